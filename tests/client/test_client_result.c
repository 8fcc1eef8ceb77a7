/* test_client_result: checks the line that shows the outcome of a job, for each kind of job. */
#include <stdlib.h>
#include <string.h>
#include "client/result.h"
#include "tests/lib/test.h"

static void test_lines(void)
{
    static const char *const v[][2] = {
        {"{\"kind\":\"train\",\"result\":{\"loss\":1.25},\"last_metrics\":{\"tokens_s\":12000}}",
         "loss 1.2500, 12,000 tokens/s"},
        {"{\"kind\":\"train\",\"result\":{\"loss\":1.25,\"eval\":{\"loss\":1.5}}}",
         "loss 1.2500, evaluation 1.5000"},
        {"{\"kind\":\"train\",\"result\":{\"steps\":60,\"loss\":1.25,\"eval\":{\"loss\":1.5},"
         "\"best\":{\"step\":20,\"loss\":1.4375},\"ended_early\":{\"field\":\"eval.patience\","
         "\"step\":30,\"loss\":1.375}}}",
         "loss 1.2500, evaluation 1.5000, ended early at step 60, lowest 1.3750 at 30"},
        {"{\"kind\":\"score\",\"result\":{\"nll\":50.0,\"tokens\":20,\"ppl\":12.18,"
         "\"bits_per_byte\":3.25}}",
         "loss 2.5000, perplexity 12.18, 3.2500 bits per byte"},
        {"{\"kind\":\"score\",\"result\":{\"nll\":50.0,\"tokens\":20,\"ppl\":12.18,"
         "\"bits_per_byte\":null}}",
         "loss 2.5000, perplexity 12.18"},
        {"{\"kind\":\"generate\",\"result\":{\"text\":\"a\\nb\\u001b[31m\",\"prompts\":1}}", "a"},
        {"{\"kind\":\"generate\",\"result\":{\"text\":\"a\",\"prompts\":4}}", "4 answers"},
        {"{\"kind\":\"generate\",\"result\":{\"requests\":3,\"samples\":2}}", "2 samples"},
        {"{\"kind\":\"generate\",\"result\":{\"text\":\"\",\"prompts\":7,\"refused\":7}}",
         "0 answers, 7 refused: see errors.jsonl"},
        {"{\"kind\":\"generate\",\"result\":{\"requests\":3,\"samples\":2,\"refused\":1}}",
         "2 samples, 1 refused: see errors.jsonl"},
        {"{\"kind\":\"embed\",\"result\":{\"documents\":5,\"dimensions\":384}}",
         "5 vectors of 384 numbers"},
        {"{\"kind\":\"verify\",\"result\":{\"equal\":true,\"ranks\":4,\"tokens\":2048}}",
         "4 ranks == 1 rank over 2048 tokens"},
        {"{\"kind\":\"verify\",\"result\":{\"equal\":false,\"ranks\":2,\"tokens\":8}}",
         "2 ranks != 1 rank over 8 tokens"},
        {"{\"kind\":\"train\",\"result\":{\"loss\":0.25,\"eval\":{\"loss\":0.5,\"preferences\":"
         "{\"accuracy\":0.875}}}}",
         "loss 0.2500, evaluation 0.5000, accuracy 0.875"},
        {"{\"kind\":\"train\",\"result\":{\"steps\":60,\"loss\":1.25,\"eval\":{\"loss\":null},"
         "\"ended_early\":{\"field\":\"eval.patience\"}}}",
         "loss 1.2500, ended early at step 60"},
        {"{\"kind\":\"merge\",\"result\":{\"parameters\":12000,\"adapter_parameters\":96}}",
         "12,000 parameters, with 96 of an adapter merged into them"},
        {"{\"kind\":\"serve\",\"result\":{\"requests\":120,\"refused\":0,\"n_tokens\":45100}}",
         "120 answers, 45,100 tokens"},
        {"{\"kind\":\"serve\",\"result\":{\"requests\":1,\"refused\":2,\"n_tokens\":8}}",
         "1 answers, 8 tokens, 2 refused"},
        {"{\"kind\":\"train\",\"result\":null}", ""},
        {"{\"kind\":\"other\",\"result\":{}}", ""}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char line[96];
        struct jv *job = jv_parse(v[i][0], strlen(v[i][0]), NULL);
        CHECK(job);
        result_line(job, line, sizeof line);
        if (i == 5) /* the line must have no control character that moves the cursor */
            CHECK_MSG(line[0] == 'a' && !strpbrk(line, "\n\x1b") && strchr(line, 'b'), "%s", line);
        else
            CHECK_STR(line, v[i][1]);
        jv_free(job);
    }
}

/* Checks that the error of an earlier attempt is not the reason of a job that runs again. */
static void test_why(void)
{
#define FAILED "\"error\":{\"text\":\"rank 1 died\"}"
    static const char *const v[][2] = {
        {"{\"state\":\"failed\"," FAILED "}", "rank 1 died"},
        {"{\"state\":\"queued\"," FAILED ",\"reason\":{\"text\":\"backoff\"}}", "rank 1 died"},
        {"{\"state\":\"stopping\"," FAILED "}", "rank 1 died"},
        {"{\"state\":\"starting\"," FAILED "}", ""},
        {"{\"state\":\"running\"," FAILED "}", ""},
        {"{\"state\":\"running\"," FAILED ",\"reason\":{\"text\":\"no space\"}}", "no space"},
        {"{\"state\":\"running\"," FAILED ",\"away\":{\"node\":\"n1\",\"since\":\"now\"}}",
         "away: node n1, since now"},
        {"{\"state\":\"queued\",\"reason\":{\"text\":\"no slots\"}}", "no slots"},
        {"{\"state\":\"running\",\"serving\":{\"open\":2,\"requests\":120,\"tokens_s\":45.2,"
         "\"waits\":{"
         "\"first_token\":{\"p50_s\":0.1234},\"token\":{\"p50_s\":0.02}}}}",
         "2 open, 120 answered, 45 tokens/s, first token 0.123 s, each 20 ms"},
        {"{\"state\":\"running\",\"serving\":{\"open\":0,\"requests\":0,\"tokens_s\":0}}",
         "0 open, 0 answered"},
        {"{\"state\":\"queued\",\"serving\":{\"open\":0}}", ""},
        {"{\"state\":\"stopping\",\"drains_until\":\"2026-11-30T21:07:09.123Z\","
         "\"reason\":{\"text\":\"x\"},\"serving\":{\"open\":3,\"requests\":120}}",
         "draining, 3 open, until 21:07:09 UTC"},
        {"{\"state\":\"stopping\",\"drains_until\":\"\",\"serving\":{\"open\":3}}", ""},
        {"{\"state\":\"succeeded\",\"kind\":\"embed\",\"result\":{\"documents\":1}}",
         "1 vectors of 0 numbers"}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char line[96];
        struct jv *job = jv_parse(v[i][0], strlen(v[i][0]), NULL);
        CHECK_STR(result_why(job, line, sizeof line), v[i][1]);
        jv_free(job);
    }
}

/* Checks that a line that is longer than its room is cut. */
static void test_long(void)
{
    static const char text[] =
        "{\"kind\":\"train\",\"result\":{\"loss\":1e300,\"eval\":{\"loss\":1e300},"
        "\"ended_early\":{}},\"last_metrics\":{\"tokens_s\":1e300}}";
    struct jv *job = jv_parse(text, strlen(text), NULL);
    char line[2][64];
    memset(line, 'x', sizeof line);
    result_line(job, line[0], sizeof line[0]);
    CHECK(strlen(line[0]) == sizeof line[0] - 1 && !strncmp(line[0], "loss 1", 6));
    for (size_t i = 0; i < sizeof line[1]; i++) CHECK(line[1][i] == 'x');
    jv_free(job);
}

int main(void)
{
    RUN(test_lines);
    RUN(test_why);
    RUN(test_long);
    return test_done("client_result");
}
