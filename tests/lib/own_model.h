/* own_model.h: runs whole jobs of a tiny model whose tokenizer.json is a golden file. Call
 * model_dir_begin first, because it makes the directory that holds all files of a test. */
#ifndef SEQD_TESTS_OWN_MODEL_H
#define SEQD_TESTS_OWN_MODEL_H

#include "tests/lib/gang.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/model_dir.h"

/* this tokenizer has no pattern, so that a build without PCRE2 can load it */
#define GOLDEN "tests/golden/tokenizers/llama2"
enum { VOCAB = 512, EOS = 2 };

static struct gang g; /* static because it has 100 KiB, too many for the stack */
static struct model_shape shape;
static float *own_weights;

static inline void copy_golden(const char *dir)
{
    char *text = file_read(GOLDEN ".json", 1 << 20, NULL, &e);
    CHECK_MSG(text, "%s", e.text);
    put(dir, "tokenizer.json", text);
    free(text);
    put(dir, "tokenizer_config.json", "{\"eos_token\":\"</s>\",\"model_max_length\":100}");
    put(dir, "generation_config.json", "{\"eos_token_id\":[2]}");
}

static inline void make_model(const char *dir, int64_t vocab)
{
    shape = tiny_shape;
    shape.vocab = vocab;
    own_weights = realloc(own_weights, (size_t)param_count(&shape) * sizeof *own_weights);
    for (int64_t i = 0; i < param_count(&shape); i++) {
        uint32_t h = (uint32_t)i * 2654435761u;
        h = (h ^ h >> 15) * 2246822519u;
        own_weights[i] = (float)((h ^ h >> 13) % 1000) / 2000 - 0.25f;
    }
    CHECK_MSG(!hf_save(in_dir(dir, ""), &shape, DT_F32, own_weights, &e), "%s", e.text);
    copy_golden(dir);
    CHECK(tokenizer_of(dir) == TOKENIZER_OWN);
}

/* Makes a job that reads text from a JSONL file beneath scratch. The text is the member "body" of
 * each line. */
static inline struct order *own_order(enum job_kind kind, const char *name, const char *model,
                                      const char *source)
{
    struct order *o = order_new(kind, scratch, "", name);
    struct job_spec *s = &o->spec;
    const struct spec_source lines = {tiny_text(s, in_dir("", source)), tiny_text(s, "body"),
                                      DATA_JSONL, 0, -1};
    s->model.shape.width = 0; /* not described */
    s->model.path = tiny_text(s, in_dir(model, ""));
    s->data.seq_len = 512;
    s->resources.ranks = s->resources.threads = 1;
    s->train.steps = 2;
    if (kind == JOB_TRAIN) {
        s->data.n_train = 1;
        s->data.train[0] = lines;
    } else {
        s->input.source = lines;
    }
    return o;
}

static inline bool task_runs(struct order *o, int task)
{
    o->args.task = task;
    gang_start(&g, o->spec.resources.ranks, o);
    gang_run(&g);
    return !g.n_fails && g.result[0];
}

static inline bool prepares(struct order *o)
{
    e = (struct err){0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    if (!task_runs(o, TASK_PREPARE)) return false;
    text(g.result, "prepared_id", o->args.prepared_id, sizeof o->args.prepared_id);
    return true;
}

static inline bool job_runs(struct order *o)
{
    char ledger[32];
    if (o->spec.kind != JOB_GENERATE && !prepares(o)) return all_ok(&g);
    if (o->spec.kind == JOB_GENERATE)
        CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    task_runs(o, TASK_RUN);
    if (!all_ok(&g)) return false;
    CHECK_STR(text(g.result, "ledger", ledger, sizeof ledger), "equal");
    return true;
}

static inline void fails(const char *field, const char *word)
{
    CHECK_MSG(g.n_fails >= 1 && !strcmp(g.fail.field, field) && strstr(g.fail.text, word), "%s: %s",
              g.fail.field, g.fail.text);
}

/* Runs a job with one request. Copies the line of results.jsonl that answers the request to
 * `answer`. */
static inline bool own_asks(const char *name, int ranks, const char *model, const char *url,
                            const char *body, char *answer, size_t size)
{
    char request[2048];
    struct order *o = own_order(JOB_GENERATE, name, model, "ask.jsonl");
    snprintf(request, sizeof request,
             "{\"custom_id\":\"a\",\"body\":{%s},\"method\":\"POST\","
             "\"url\":\"%s\"}\n",
             body, url);
    put("", "ask.jsonl", request);
    o->spec.input.source.format = DATA_OPENAI_BATCH;
    o->spec.sampling.max_tokens = 12;
    o->spec.resources.ranks = ranks;
    o->args.submitted_s = 1795100000; /* 2026-11-19 */
    const bool ok = job_runs(o);
    char *all = get(o->args.job_dir, "artifacts/results.jsonl");
    snprintf(answer, size, "%s", all);
    free(all);
    free(o);
    return ok;
}

#endif
