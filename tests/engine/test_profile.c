/* Checks seqrank --profile: its measurements, and its line of JSON. Also checks how a line is read
 * that a different program wrote. */
#include <math.h>
#include "tests/lib/profile.h"
#include "tests/lib/test.h"
#include "worker/rank/profile.h"

static void test_measure(void)
{
    struct profile p, again;
    struct err e = {0};
    char line[2048];
    CHECK_MSG(profile_measure(1, &p, &e) == 0, "%s", e.text);
    CHECK(profile_check(&p, &e) == 0);
    /* These bounds are wide and check only the units. Every machine that runs this test needs less
     * than an hour for a product of 512^3, and less than an hour for a message. */
    for (int i = 0; i < PROFILE_SIZES; i++)
        CHECK(p.gemm_f32[i] > 1e5 && p.attn_back_bf16[i] > 1e5 && p.linear_back[i] > 1e5);
    CHECK(p.norm > 1e3 && p.point > 1e3 && p.turn > 1e3 && p.update > 1e3);
    CHECK(p.copy > 1e3 && p.hop < 10);
    const int64_t n = profile_write(&p, line, sizeof line);
    CHECK(n > 0 && profile_read(line, (size_t)n, &again, &e) == 0);
    CHECK(!memcmp(&p, &again, sizeof p));
    CHECK(profile_write(&p, line, 40) == -1);
}

static int read_text(const char *text, struct profile *p)
{
    struct err e = {0};
    const int rc = profile_read(text, strlen(text), p, &e);
    CHECK(rc == 0 || e.text[0]);
    return rc;
}

/* Returns the JSON of `p`, in which `by` replaces `what`. */
static const char *with(const struct profile *p, const char *what, const char *by)
{
    static char line[2048], out[2048];
    CHECK(profile_write(p, line, sizeof line) > 0);
    const char *at = strstr(line, what);
    CHECK_MSG(at, "%s in %s", what, line);
    if (at) snprintf(out, sizeof out, "%.*s%s%s", (int)(at - line), line, by, at + strlen(what));
    return out;
}

static void test_read(void)
{
    static const char *const bad[][2] = {
        {"\"hop_s\":6", "\"hop_s\":0"},
        {"\"hop_s\":6", "\"hop_s\":-1"},
        {"\"hop_s\":6", "\"hop_s\":1e999"},
        {"\"hop_s\":6", "\"hop_s\":\"6\""},
        {"\"hop_s\":6", "\"hop_s\":6,\"hop_s\":6"},
        {",\"hop_s\":6", ""},
        {"\"hop_s\":6}", "\"hop_s\":6"},
        {"\"hop_s\":6}", "\"hop_s\":6} x"},
        {"\"hop_s\":6", "\"hop_s\":[6]"},
        {"\"linear_attention_flops\":[2,2,2]", "\"linear_attention_flops\":[2,2]"},
        {"\"linear_attention_flops\":[2,2,2]", "\"linear_attention_flops\":[2,2,2,2]"},
        {"\"linear_attention_flops\":[2,2,2]", "\"linear_attention_flops\":[2,2,0]"},
        {"\"linear_attention_flops\":[2,2,2]", "\"linear_attention_flops\":2"},
        {"\"linear_attention_flops\":[2,2,2]", "\"linear_attention_flops\":[2,[2],2]"},
        {"\"linear_attention_flops\":[2,2,2],", ""}};
    const struct profile given = profile_of(2, 3, 5, 6);
    struct profile p;
    CHECK(read_text(with(&given, "6}", "6}"), &p) == 0 && !memcmp(&p, &given, sizeof p));
    CHECK(read_text(with(&given, "\"hop_s\"", "\"later\":[{}],\"hop_s\""), &p) == 0);
    CHECK(read_text("", &p) == -1 && read_text("[]", &p) == -1 && read_text("{}", &p) == -1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(read_text(with(&given, bad[i][0], bad[i][1]), &p) == -1, "%s", bad[i][1]);
}

int main(void)
{
    RUN(test_measure);
    RUN(test_read);
    return test_done("profile");
}
