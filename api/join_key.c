/* join_key.c: reads the key's file, and derives the token and the proof from it. */
#include "api/join_key.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include "api/core/file.h"

static void hex(const uint8_t *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* Computes the first block of HKDF's output, which suffices for 32 bytes. */
static void derive(const uint8_t extracted[HMAC_SIZE], const char *info, uint8_t out[HMAC_SIZE])
{
    uint8_t block[16];
    const size_t n = strlen(info);
    memcpy(block, info, n);
    block[n] = 1;
    hmac_sha256(extracted, HMAC_SIZE, block, n + 1, out);
}

static void derive_all(const void *secret, size_t size, struct join_key *k)
{
    static const uint8_t salt[HMAC_SIZE];
    uint8_t extracted[HMAC_SIZE], token[HMAC_SIZE], id[HMAC_SIZE];
    hmac_sha256(salt, sizeof salt, secret, size, extracted);
    derive(extracted, "token", token);
    derive(extracted, "id", id);
    derive(extracted, "ca", k->ca);
    hex(id, JOIN_KEY_ID, k->id);
    char text[2 * HMAC_SIZE + 1];
    hex(token, HMAC_SIZE, text);
    snprintf(k->token, sizeof k->token, "%s%s_%s", JOIN_TOKEN_HEAD, k->id, text);
    explicit_bzero(extracted, sizeof extracted);
    explicit_bzero(token, sizeof token);
    explicit_bzero(text, sizeof text);
}

static int check_private(const char *path, struct err *e)
{
    struct stat st;
    if (stat(path, &st)) return err_errno(e, "--join-key %s", path);
    if (st.st_mode & 077)
        return err_set(e, ERR_INVALID,
                       "--join-key %s can be read by others than its owner (mode %04o): make it "
                       "0600",
                       path, (unsigned)(st.st_mode & 07777));
    return 0;
}

int join_key_read(const char *path, struct join_key *k, struct err *e)
{
    size_t size = 0;
    if (check_private(path, e)) return -1;
    char *text = file_read(path, JOIN_KEY_MAX, &size, e);
    if (!text) return err_prefix(e, "--join-key %s", path);
    if (size >= JOIN_KEY_MIN) derive_all(text, size, k);
    explicit_bzero(text, size);
    free(text);
    if (size >= JOIN_KEY_MIN) return 0;
    return err_set(e, ERR_INVALID,
                   "--join-key %s has %zu bytes: want at least %d random bytes, as of `head -c 32 "
                   "/dev/urandom`",
                   path, size, JOIN_KEY_MIN);
}

void join_key_prove(const struct join_key *k, const char *nonce, const char *fingerprint,
                    char proof[JOIN_NONCE_HEX])
{
    char text[2 * JOIN_NONCE_HEX];
    uint8_t mac[HMAC_SIZE];
    const int n = snprintf(text, sizeof text, "%.64s%.64s", nonce, fingerprint);
    hmac_sha256(k->ca, sizeof k->ca, text, (size_t)n, mac);
    hex(mac, sizeof mac, proof);
}

void join_key_nonce(char nonce[JOIN_NONCE_HEX])
{
    uint8_t bytes[HMAC_SIZE];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) abort();
    hex(bytes, sizeof bytes, nonce);
}

bool join_key_equal(const char *a, const char *b)
{
    int diff = 0;
    if (strlen(a) != JOIN_NONCE_HEX - 1 || strlen(b) != JOIN_NONCE_HEX - 1) return false;
    for (int i = 0; i < JOIN_NONCE_HEX; i++) diff |= a[i] ^ b[i];
    return !diff;
}
