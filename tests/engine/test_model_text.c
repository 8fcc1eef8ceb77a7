/* Checks text for a model that does not read bytes and has no tokenizer. The text must be refused
 * when the job is checked, when a line of a file has text, and when a request has text. The error
 * must name the field and the fix. */
#include <sys/stat.h>
#include "tests/lib/model_dir.h"
#include "worker/data/data.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/requests.h"

static void refuses(struct job_spec *s, const char *field, const char *word)
{
    e = (struct err){0};
    CHECK_MSG(family_check(s, &e) == -1, "%s passed", field);
    CHECK_MSG(e.code == ERR_UNSUPPORTED && !strcmp(e.field, field) && strstr(e.text, word) &&
                  strstr(e.text, "input_ids") && strstr(e.text, "data.tokenizer \"byte\""),
              "%s: %s", e.field, e.text);
}

static struct job_spec *own_spec(enum job_kind kind, int tokenizer)
{
    static struct job_spec s;
    spec_defaults(&s);
    shape_defaults(&s.model.shape);
    s.kind = kind;
    s.model.path = tiny_text(&s, "/m");
    s.model.shape = tiny_shape;
    s.model.shape.tokenizer = tokenizer;
    s.data.seq_len = 300;
    if (kind == JOB_TRAIN) s.train.steps = 1;
    return &s;
}

/* Checks that a job whose model has its own tokenizer may read text, and that the rules for bytes
 * do not apply to it. */
static void passes(struct job_spec *s)
{
    e = (struct err){0};
    CHECK_MSG(!family_check(s, &e) && s->data.tokenizer == TOKENIZER_AUTO, "%s", e.text);
}

static void test_own_rules(void)
{
    for (int kind = 0; kind < JOB_MERGE; kind++) {
        struct job_spec *s = own_spec(kind, TOKENIZER_OWN);
        const struct spec_source text = {.path = tiny_text(s, "a"), .eod = -1};
        s->sampling.max_tokens = 4;
        if (kind == JOB_TRAIN || kind == JOB_VERIFY)
            s->data.n_train = 1, s->data.train[0] = text;
        else
            s->input.source = text;
        passes(s);
        if (kind != JOB_GENERATE) continue;
        s->input.source.path = 0;
        s->input.prompt = tiny_text(s, "hello");
        s->sampling.stop[1] = tiny_text(s, "x");
        s->data.seq_len = 5; /* text in bytes would need 9 */
        passes(s);
        s->data.seq_len = 9; /* the default does not change it */
        passes(s);
        CHECK(s->data.seq_len > 9);
        s->data.seq_len = 4;
        CHECK(family_check(s, &e) == -1 && !strcmp(e.field, "data.seq_len"));
    }
}

/* Checks the rules that apply before a file is read. */
static void test_rules(void)
{
    const int tokenizer = TOKENIZER_NONE;
    const char *why = "has no tokenizer";
    {
        for (int format = 0; format < DATA_FORMAT_N; format++) {
            if (format == DATA_OPENAI_BATCH || format == DATA_LATENTS) continue;
            for (int eval = 0; eval < 2; eval++) {
                struct job_spec *s = own_spec(JOB_TRAIN, tokenizer);
                s->data.n_train = 1;
                s->data.train[0] = (struct spec_source){
                    .path = tiny_text(s, "a"), .format = eval ? DATA_JSONL : format, .eod = -1};
                s->eval.n_data = 1;
                s->eval.data[0] = s->data.train[0];
                s->eval.data[0].format = format;
                if (format == DATA_TEXT)
                    refuses(s, eval ? "eval.data.0" : "data.train.0", why);
                else
                    CHECK_MSG(!family_check(s, &e) && s->data.tokenizer == TOKENIZER_AUTO, "%s",
                              e.text);
            }
        }
        for (int kind = JOB_SCORE; kind <= JOB_EMBED; kind++) {
            if (kind == JOB_VERIFY) continue;
            struct job_spec *s = own_spec(kind, tokenizer);
            s->input.source = (struct spec_source){.path = tiny_text(s, "a"), .eod = -1};
            refuses(s, "input", why);
            s->input.source.format = kind == JOB_GENERATE ? DATA_OPENAI_BATCH : DATA_JSONL;
            s->sampling.max_tokens = 4;
            CHECK_MSG(!family_check(s, &e), "%s", e.text);
            if (kind != JOB_GENERATE) continue;
            s->sampling.stop[1] = tiny_text(s, "x");
            refuses(s, "sampling.stop.1", why);
            s->input.source.format = DATA_JSONL; /* prompts are strings */
            refuses(s, "input", why);
            s->input.source.path = 0;
            s->input.source.format = DATA_TEXT;
            s->input.prompt = tiny_text(s, "hello");
            refuses(s, "input.prompt", why);
            s->data.tokenizer = TOKENIZER_BYTE; /* the job sets the byte tokenizer */
            CHECK_MSG(!family_check(s, &e), "%s", e.text);
        }
    }
    struct job_spec *s = own_spec(JOB_GENERATE, TOKENIZER_BYTE);
    s->input.prompt = tiny_text(s, "hello");
    s->sampling.max_tokens = 4;
    CHECK(!family_check(s, &e) && s->data.tokenizer == TOKENIZER_BYTE);
}

/* Checks the mask id of the byte tokenizer in a model whose ids are not those of the byte
 * tokenizer. */
static void test_mask_token(void)
{
    struct job_spec *s = own_spec(JOB_TRAIN, TOKENIZER_OWN);
    s->model.shape.family = FAMILY_BERT;
    s->model.shape.n_kv_heads = 6;
    s->data.n_train = 1;
    s->data.train[0] = (struct spec_source){
        .path = tiny_text(s, "a"), .format = DATA_NPY, .eod = -1};
    e = (struct err){0};
    CHECK(family_check(s, &e) == -1 && !strcmp(e.field, "objective.mask_token"));
    s->model.shape.mask = 5;
    CHECK_MSG(!family_check(s, &e) && s->objective.mask_token == 4, "%s", e.text);
    s->model.shape.mask = 0;
    s->objective.mask_token = 103;
    CHECK_MSG(!family_check(s, &e), "%s", e.text);
    s->objective.mask_token = 258;
    s->data.tokenizer = TOKENIZER_BYTE;
    CHECK_MSG(!family_check(s, &e), "%s", e.text);
}

static int prepare(struct job_spec *s, const char *file, bool eval)
{
    const char *roots[] = {scratch};
    struct data_stats st;
    s->data.n_train = 1;
    s->data.train[0] = (struct spec_source){
        .path = tiny_text(s, eval ? "ids.jsonl" : file), .format = DATA_JSONL, .eod = -1};
    s->eval.n_data = eval;
    s->eval.data[0] = s->data.train[0];
    s->eval.data[0].path = tiny_text(s, file);
    e = (struct err){0};
    mkdir(in_dir("prepared2", ""), 0700);
    return data_prepare(s, NULL, roots, 1, in_dir("prepared2", ""), NULL, &st, &e);
}

static void test_data(void)
{
    static const char *const files[][2] = {
        {"text.jsonl", "{\"input_ids\":[1,2]}\n{\"text\":\"abc\"}\n"},
        {"pair.jsonl", "\n{\"prompt\":\"abc\",\"completion\":\"d\"}\n"}};
    put("", "ids.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[258,4]}\n");
    CHECK_MSG(!prepare(own_spec(JOB_TRAIN, TOKENIZER_NONE), "ids.jsonl", true), "%s", e.text);
    for (int i = 0; i < 2; i++) {
        put("", files[i][0], files[i][1]);
        for (int eval = 0; eval < 2; eval++) {
            /* The text is refused with an error that names its line, also if a different job has
             * already prepared this text. */
            for (int again = 0; again < 2; again++) {
                CHECK(prepare(own_spec(JOB_TRAIN, TOKENIZER_NONE), files[i][0], eval) == -1);
                CHECK_MSG(e.code == ERR_UNSUPPORTED && strstr(e.text, "data.tokenizer \"byte\"") &&
                              !strncmp(e.field, eval ? "eval.data.0" : "data.train.0", 11),
                          "%s: %s", e.field, e.text);
                CHECK_MSG(again || strstr(e.text, "line 2"), "%s", e.text);
                CHECK_MSG(!prepare(own_spec(JOB_TRAIN, TOKENIZER_AUTO), files[i][0], eval), "%s",
                          e.text);
            }
            struct job_spec *s = own_spec(JOB_TRAIN, TOKENIZER_NONE);
            s->data.tokenizer = TOKENIZER_BYTE;
            CHECK_MSG(!prepare(s, files[i][0], eval), "%s", e.text);
        }
    }
}

static void test_requests(void)
{
    static const struct {
        const char *body, *field; /* NULL means that the request is answered */
    } v[] = {{"\"prompt\":[1,2,3]", NULL},
             {"\"prompt\":\"abc\"", "prompt"},
             {"\"prompt\":[1],\"stop\":\"a\"", "stop"},
             {"\"prompt\":[1],\"stop\":[\"a\"]", "stop"},
             {"\"prompt\":[1],\"stop\":null", NULL}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (int own = 0; own < 2; own++) {
            struct job_spec *s = own_spec(JOB_GENERATE, own ? TOKENIZER_NONE : TOKENIZER_BYTE);
            char line[256];
            struct request r;
            s->sampling.max_tokens = 4;
            const int n = snprintf(line, sizeof line,
                                   "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":"
                                   "\"/v1/completions\",\"body\":{%s,\"max_tokens\":2}}",
                                   v[i].body);
            CHECK(!request_init(&r, n, &e));
            request_of_line(&r, s, line, n);
            const bool ok = !own || !v[i].field;
            CHECK_MSG((r.refused.code == ERR_NONE) == ok, "%s: %s", v[i].body, r.refused.text);
            if (!ok) CHECK(!strcmp(r.refused.field, v[i].field) && strstr(r.refused.text, "byte"));
            request_fini(&r);
        }
}

static void test_all_bytes(void)
{
    const struct data_stats v[] = {
        {.n_tokens = 12, .n_documents = 2, .n_bytes = 10},
        {.n_tokens = 15, .n_documents = 3, .n_bytes = 10}, /* one record has 3 ids */
        {.n_tokens = 15, .n_documents = 3},
        {.eval_tokens = 12, .eval_documents = 2, .eval_bytes = 10}};
    CHECK(data_all_bytes(&v[0], SET_TRAIN) && !data_all_bytes(&v[0], SET_EVAL));
    CHECK(!data_all_bytes(&v[1], SET_TRAIN) && !data_all_bytes(&v[2], SET_TRAIN));
    CHECK(data_all_bytes(&v[3], SET_EVAL) && !data_all_bytes(&v[3], SET_TRAIN));
}

int main(void)
{
    model_dir_begin("test_model_text");
    RUN(test_own_rules);
    RUN(test_rules);
    RUN(test_mask_token);
    RUN(test_data);
    RUN(test_requests);
    RUN(test_all_bytes);
    model_dir_end();
    return test_done("model_text");
}
