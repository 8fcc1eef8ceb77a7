/* seqrank --profile: what it measures, and its one line of JSON, also when it is not ours. */
#include <math.h>
#include "tests/test.h"
#include "worker/rank/profile.h"

static void test_measure(void)
{
    struct profile p, again;
    struct err e = {0};
    char line[512];
    CHECK_MSG(profile_measure(1, &p, &e) == 0, "%s", e.text);
    CHECK(profile_check(&p, &e) == 0);
    /* Units, not speed: anything that runs this does a product of 512^3 within an hour, and no
     * message takes one. */
    CHECK(p.gemm_f32 > 1e5 && p.attn_f32 > 1e5 && p.copy > 1e3 && p.hop < 10);
    const int64_t n = profile_write(&p, line, sizeof line);
    CHECK(n > 0 && profile_read(line, (size_t)n, &again, &e) == 0);
    CHECK(!memcmp(&p, &again, sizeof p));
    CHECK(profile_write(&p, line, 40) == -1);
}

#define FIVE                                                                                       \
    "\"gemm_f32_flops\":1,\"gemm_bf16_flops\":2,\"attention_f32_flops\":3,"                        \
    "\"attention_bf16_flops\":4,\"copy_bytes_s\":5"

static int read_text(const char *text, struct profile *p)
{
    struct err e = {0};
    const int rc = profile_read(text, strlen(text), p, &e);
    CHECK(rc == 0 || e.text[0]);
    return rc;
}

static void test_read(void)
{
    struct profile p;
    CHECK(read_text("{" FIVE ",\"hop_s\":6}", &p) == 0 && p.gemm_bf16 == 2 && p.hop == 6);
    CHECK(read_text("{" FIVE ",\"later\":[{}],\"hop_s\":6}", &p) == 0);
    static const char *const bad[] = {"",
                                      "[]",
                                      "{}",
                                      "{" FIVE "}",
                                      "{" FIVE ",\"hop_s\":0}",
                                      "{" FIVE ",\"hop_s\":-1}",
                                      "{" FIVE ",\"hop_s\":1e999}",
                                      "{" FIVE ",\"hop_s\":\"6\"}",
                                      "{" FIVE ",\"hop_s\":6,\"hop_s\":6}",
                                      "{" FIVE ",\"hop_s\":6} x",
                                      "{" FIVE ",\"hop_s\":6"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(read_text(bad[i], &p) == -1, "%s", bad[i]);
}

int main(void)
{
    RUN(test_measure);
    RUN(test_read);
    return test_done("profile");
}
