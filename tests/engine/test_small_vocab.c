/* Checks vocabularies without ids for bytes: characters, bases of DNA, or 0 and 1. Jobs must be
 * able to train on token ids, score them, and answer with them. Text must be refused. Rows of
 * padding must have an id that is valid in the model.
 * tests: needs golden seqrank */
#include <math.h>
#include "tests/lib/own_model.h"
#include "worker/hf/files.h"

static struct order *ids_order(enum job_kind kind, const char *name, int64_t vocab, int ranks)
{
    struct order *o = order_new(kind, scratch, "", name);
    struct job_spec *s = &o->spec;
    const struct spec_source ids = {tiny_text(s, in_dir("", "char.bin")), 0, DATA_NANOGPT, 0, -1};
    s->model.shape.vocab = vocab;
    /* 333 tokens are not a multiple of 50, so the last sequence is padded; the parts of ranks are
     * padded, too */
    s->data.seq_len = 50;
    s->resources.ranks = ranks;
    s->resources.threads = 1;
    s->train.steps = 8;
    s->determinism = DET_RANKS;
    if (kind == JOB_TRAIN || kind == JOB_VERIFY) {
        s->data.n_train = 1;
        s->data.train[0] = ids;
    } else {
        s->input.source = ids;
    }
    return o;
}

static void put_ids(int64_t vocab)
{
    uint16_t ids[333];
    for (int i = 0; i < 333; i++) ids[i] = (uint16_t)(i * 7 % vocab);
    CHECK(!file_write(in_dir("", "char.bin"), ids, sizeof ids, &e));
}

static void check_directory(const char *hf, int64_t vocab)
{
    char path[1400];
    struct model_shape m;
    int32_t tokenizer = -1;
    CHECK_MSG(!hf_read_dir(hf, &m, &e) && m.vocab == vocab, "%s", e.text);
    CHECK(!hf_tokenizer_of(hf, &tokenizer, &e) && tokenizer == TOKENIZER_NONE);
    snprintf(path, sizeof path, "%s/config.json", hf);
    char *config = file_read(path, 1 << 16, NULL, &e);
    CHECK(config && strstr(config, "\"eos_token_id\":null") &&
          strstr(config, "\"pad_token_id\":null"));
    free(config);
    CHECK(hf_read_pad(hf) == -1);
}

/* Checks that a score job with the trained model gives the last loss of the training. */
static void check_score(const char *hf, int64_t vocab, double loss)
{
    struct order *o = ids_order(JOB_SCORE, "score", vocab, 2);
    o->spec.model.shape = (struct model_shape){0};
    o->spec.model.path = tiny_text(&o->spec, hf);
    o->spec.determinism = 0;
    if (job_runs(o))
        CHECK_MSG(log(number(g.result, "ppl")) < loss, "%d ids: %s", (int)vocab, g.result);
    else
        CHECK_MSG(false, "%s", g.fail.text);
    free(o);
}

static void check_vocab(int64_t vocab)
{
    char sha[2][80], hf[1300] = "", name[64];
    double first = 0;
    put_ids(vocab);
    for (int ranks = 1; ranks <= 2; ranks++) {
        snprintf(name, sizeof name, "train-%d-%d", (int)vocab, ranks);
        struct order *o = ids_order(JOB_TRAIN, name, vocab, ranks);
        if (job_runs(o)) {
            first = g.step[0].loss;
            CHECK_MSG(fabs(first - log((double)vocab)) < 0.5, "%g", first);
            CHECK(number(g.result, "loss") < first);
            text(g.result, "weights_sha256", sha[ranks - 1], sizeof sha[0]);
            text(g.result, "hf", hf, sizeof hf);
        } else {
            CHECK_MSG(false, "%s", g.fail.text);
        }
        free(o);
    }
    CHECK_STR(sha[0], sha[1]);
    check_directory(hf, vocab);
    check_score(hf, vocab, first);
}

static void test_train(void)
{
    static const int64_t vocabs[] = {2, 5, 65, 257};
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; i++) check_vocab(vocabs[i]);
}

static void test_verify(void)
{
    put_ids(65);
    struct order *o = ids_order(JOB_VERIFY, "verify", 65, 2);
    o->spec.determinism = 0;
    if (job_runs(o)) CHECK(number(g.result, "targets") == 49 && strstr(g.result, "\"equal\":true"));
    free(o);
}

static void test_generate(void)
{
    struct order *o = ids_order(JOB_GENERATE, "generate", 65, 2);
    put("", "ask.jsonl",
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":[1,2,64],"
        "\"max_tokens\":4}}\n"
        "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":\"hi\","
        "\"max_tokens\":4}}\n");
    o->spec.input.source.path = tiny_text(&o->spec, in_dir("", "ask.jsonl"));
    o->spec.input.source.format = DATA_OPENAI_BATCH;
    o->spec.sampling.max_tokens = 4;
    if (job_runs(o)) {
        char *all = get(o->args.job_dir, "artifacts/results.jsonl");
        CHECK_MSG(all && strstr(all, "\"completion_tokens\":4") && strstr(all, "\"token_ids\":["),
                  "%s", all);
        CHECK_MSG(all && strstr(all, "prompt is text, which is read as bytes, and "
                                     "model.config.vocab_size 65"),
                  "%s", all);
        free(all);
    } else {
        CHECK_MSG(false, "%s", g.fail.text);
    }
    free(o);
}

static void refuses(struct order *o, const char *field, const char *why)
{
    e = (struct err){0};
    CHECK(family_check(&o->spec, &e) < 0);
    CHECK_STR(e.field, field);
    CHECK_MSG(strstr(e.text, why), "%s", e.text);
    free(o);
}

static void test_text(void)
{
    struct order *o = ids_order(JOB_TRAIN, "text", 65, 1);
    o->spec.data.train[0].format = DATA_TEXT;
    refuses(o, "data.train.0", "is text, which is read as bytes");
    o = ids_order(JOB_TRAIN, "byte", 257, 1);
    o->spec.data.tokenizer = TOKENIZER_BYTE;
    refuses(o, "model.config.vocab_size", "\"byte\" needs at least 258");
    o = ids_order(JOB_TRAIN, "jsonl", 65, 1);
    put("", "r.jsonl", "{\"input_ids\":[1,2,3]}\n{\"text\":\"a\"}\n");
    o->spec.data.train[0].path = tiny_text(&o->spec, in_dir("", "r.jsonl"));
    o->spec.data.train[0].format = DATA_JSONL;
    CHECK(!prepares(o));
    fails("data.train.0.path", "line 2: \"text\" is text, which is read as bytes");
    free(o);
    o = ids_order(JOB_TRAIN, "one", 1, 1);
    refuses(o, "model.config.vocab_size", "between 2 and");
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    model_dir_begin("test_small_vocab");
    RUN(test_train);
    RUN(test_verify);
    RUN(test_generate);
    RUN(test_text);
    model_dir_end();
    return test_done("small_vocab");
}
