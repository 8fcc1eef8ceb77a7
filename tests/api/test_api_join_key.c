/* test_api_join_key: tests the key that all ranks of a run have. Tokens and proofs are compared
 * to values of another implementation of HKDF-SHA256 and HMAC-SHA256. */
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/join_key.h"
#include "tests/lib/test.h"

static char dir[] = "/tmp/seqd-key-XXXXXX", path[64];
static struct err e;

static bool read_key(const char *text, size_t size, struct join_key *k)
{
    CHECK(!file_write_private(path, text, size, &e));
    return !join_key_read(path, k, &e);
}

/* The expected values are of Python's hmac and of HKDF in the package `cryptography`. */
static void test_values(void)
{
    struct join_key k;
    char proof[JOIN_NONCE_HEX], nonce[2][JOIN_NONCE_HEX];
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    CHECK(read_key("0123456789abcdef0123456789abcdef", 32, &k));
    CHECK_STR(k.id, "c5af0a70116f");
    CHECK_STR(k.token,
              "seqj_c5af0a70116f_66fc8c9d3bfbbe9575f7c9edcc471d0348f51ed6eebffb2a59d706cb40cc4d03");
    join_key_prove(&k, zeros, zeros, proof);
    CHECK_STR(proof, "06fafbba51d16c29335163dacb62fb3687f193579ed2ff8126576702ae636cc8");
    CHECK(join_key_equal(proof, proof) && !join_key_equal(proof, zeros));
    CHECK(!join_key_equal("", "") && !join_key_equal(proof, "ff"));
    join_key_nonce(nonce[0]);
    join_key_nonce(nonce[1]);
    CHECK(strlen(nonce[0]) == 64 && strcmp(nonce[0], nonce[1]) != 0);
}

static void test_refusals(void)
{
    struct join_key k;
    char large[JOIN_KEY_MAX + 1] = {0};
    CHECK(!read_key("short", 5, &k) && strstr(e.text, "has 5 bytes: want at least 32 random"));
    CHECK(!read_key(large, sizeof large, &k) && e.code == ERR_TOO_LARGE);
    CHECK(read_key(large, JOIN_KEY_MAX, &k));
    const mode_t open_modes[] = {0640, 0604, 0620, 0666};
    for (int i = 0; i < 4; i++) {
        CHECK(!chmod(path, open_modes[i]) && join_key_read(path, &k, &e));
        CHECK_MSG(strstr(e.text, "make it 0600"), "%s", e.text);
    }
    CHECK(!chmod(path, 0400) && !join_key_read(path, &k, &e));
    CHECK(join_key_read("/nowhere/key", &k, &e) && strstr(e.text, "--join-key /nowhere/key"));
    CHECK(join_key_read("/tmp", &k, &e));
}

int main(void)
{
    CHECK(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/key", dir);
    RUN(test_values);
    RUN(test_refusals);
    CHECK(!file_remove(dir, &e));
    return test_done("join_key");
}
