/* test_advice.c: the settings that a refusal for memory advises. Each is read back from the
 * sentence, set in the job, checked and planned: it is legal, and needs as many bytes as said. */
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/plan/check.h"
#include "worker/plan/plan.h"
#include "worker/plan/report.h"

static struct job_spec spec, changed;

static void name_file(spec_ref *ref, const char *path)
{
    CHECK(!spec_intern(&spec, path, strlen(path), ref));
}

/* Makes a job of a kind that family_check() accepts, on sp ranks. */
static void job(int kind, int sp)
{
    spec_defaults(&spec);
    spec.kind = kind;
    spec.model.shape = (struct model_shape){.n_layers = 3,
                                            .width = 64,
                                            .n_heads = 8,
                                            .n_kv_heads = 2,
                                            .head_dim = 8,
                                            .ffn_width = 160,
                                            .vocab = 8192,
                                            .norm_eps = 1e-5,
                                            .rope_theta = 10000};
    spec.data.seq_len = 4096;
    spec.data.n_train = 1;
    name_file(&spec.data.train[0].path, "a.txt");
    name_file(&spec.input.source.path, "a.jsonl");
    spec.input.source.format = DATA_JSONL;
    if (kind == JOB_TRAIN) spec.train.steps = 8;
    if (kind == JOB_VERIFY) spec.verify.max_tokens = 4096;
    spec.parallel.sp = sp;
}

static void check(void)
{
    struct err e = {0};
    CHECK_MSG(!family_check(&spec, &e), "%s: %s", e.field, e.text);
}

static int64_t size_of(const struct plan *p)
{
    return p->arena_size + p->segment_size;
}

static int64_t need(const struct job_spec *s)
{
    static struct plan p;
    struct err e = {0};
    CHECK_MSG(!plan_make(s, 0, &p, &e), "%s: %s", e.field, e.text);
    return size_of(&p);
}

static bool fits(int64_t limit)
{
    static struct plan p;
    struct err e;
    return !plan_make(&spec, limit, &p, &e);
}

/* Returns the refusal of the job on ranks of `limit` bytes. */
static const char *refusal(int64_t limit)
{
    static struct plan p;
    static struct err e;
    e = (struct err){0};
    CHECK(plan_make(&spec, limit, &p, &e) && e.code == ERR_DOES_NOT_FIT);
    /* The modes of the plan that did not fit: the advice is one setting beside them. */
    changed = spec;
    if (spec.kind == JOB_TRAIN || spec.kind == JOB_VERIFY) {
        changed.memory.recompute = (int32_t)p.recompute;
        changed.memory.mlp_chunk_tokens = p.mlp_chunk;
        if (p.offload.on) changed.memory.offload = OFFLOAD_ACTIVATIONS;
    }
    return e.text;
}

/* Sets `path value` in s, as a person would. */
static void set(struct job_spec *s, const char *path, const char *value)
{
    const struct field *f = spec_field(path);
    CHECK_MSG(f && f->kinds & 1u << s->kind, "a %s job has no %s", spec_kind_name(s->kind), path);
    if (!f) return;
    char *at = (char *)s + f->offset;
    int word = 0;
    if (f->type == FIELD_ENUM) {
        while (f->words[word] && (strncmp(f->words[word], value + 1, strlen(f->words[word])) ||
                                  value[1 + strlen(f->words[word])] != '"'))
            word++;
        CHECK_MSG(f->words[word], "%s has no word %s", path, value);
        *(int32_t *)at = word;
    } else if (f->type == FIELD_INT) {
        *(int64_t *)at = atoll(value);
    } else {
        CHECK(f->type == FIELD_INT32);
        *(int32_t *)at = atoi(value);
    }
}

/* Follows one piece of advice, "PATH VALUE [with PATH VALUE] needs BYTES[ still]". */
static void follow(const char *piece, int64_t limit)
{
    static struct job_spec s;
    char path[64], value[32], with[64], beside[32], bytes[24];
    struct err e = {0};
    s = changed;
    const char *end = strstr(piece, " needs ");
    CHECK_MSG(end, "%s", piece);
    if (!end) return;
    CHECK_MSG(sscanf(piece, "%63s %31s", path, value) == 2, "%s", piece);
    set(&s, path, value);
    if (!strncmp(end - strlen("memory.offload_dir"), "memory.offload_dir", 18))
        CHECK(!spec_intern(&s, "/x", 2, &s.memory.offload_dir));
    else if (sscanf(piece, "%*s %*s with %63s %31s", with, beside) == 2)
        set(&s, with, beside);
    CHECK_MSG(!family_check(&s, &e), "%s: %s", piece, e.text);
    const int64_t now = need(&s);
    plan_bytes(bytes, now);
    CHECK_MSG(!strncmp(end + 7, bytes, strlen(bytes)), "%s: it needs %s", piece, bytes);
    CHECK_MSG(!strcmp(end + 7 + strlen(bytes), now > limit ? " still" : ""), "%s", piece);
}

/* Follows all advice of a refusal. Returns how many pieces there are. */
static int follow_all(int64_t limit)
{
    char text[sizeof((struct err *)0)->text];
    snprintf(text, sizeof text, "%s", refusal(limit));
    char *at = strstr(text, "; the largest part is ");
    int n = 0;
    CHECK_MSG(at, "%s", text);
    for (at = at ? strstr(at + 2, "; ") : NULL; at; n++) {
        char *next = strstr(at + 2, "; ");
        if (next) *next = 0;
        follow(at + 2, limit);
        at = next;
    }
    return n;
}

/* Every kind, on one rank and on two, with little and with very little too few bytes. */
static void test_legal(void)
{
    static const int parts[] = {1, 2, 64};
    int n_refused[JOB_KIND_N] = {0};
    for (int kind = 0; kind < JOB_KIND_N; kind++)
        for (int sp = 1; sp <= 2; sp++)
            for (int i = 0; i < 3; i++) {
                job(kind, sp);
                check();
                const int64_t limit = need(&spec) / parts[i] - 1;
                if (fits(limit)) continue; /* by the modes that "auto" takes */
                n_refused[kind]++;
                CHECK_MSG(follow_all(limit) > 0, "%s on %d ranks: %s", spec_kind_name(kind), sp,
                          refusal(limit));
            }
    for (int kind = 0; kind < JOB_KIND_N; kind++)
        CHECK_MSG(n_refused[kind] >= 2, "%s", spec_kind_name(kind));
}

/* Advice to a generate job names its weights and precision, and no field that it does not have. */
static void test_generate(void)
{
    job(JOB_GENERATE, 1);
    check();
    const int64_t limit = need(&spec) - 1;
    const char *text = refusal(limit);
    CHECK_MSG(strstr(text, "; model.weights \"int8\" needs ") && !strstr(text, "int4") &&
                  strstr(text, "; precision.params \"bf16\" needs ") &&
                  !strstr(text, "loss_chunk_tokens"),
              "%s", text);
    spec.model.weights = WEIGHTS_INT8;
    check();
    text = refusal(4096);
    CHECK_MSG(strstr(text, "; model.weights \"int4\" needs ") && strstr(text, " still"), "%s",
              text);
    spec.model.weights = WEIGHTS_MODEL;
    spec.model.shape.ffn_width = 200; /* no rows of 32: blocks cannot store them */
    spec.model.shape.width = 48;
    check();
    text = refusal(4096);
    CHECK_MSG(!strstr(text, "model.weights") && strstr(text, "; precision.params"), "%s", text);
}

/* A score has its loss in chunks, and a job on the CPU names a place for its activations. */
static void test_others(void)
{
    job(JOB_SCORE, 1);
    spec.model.shape.vocab = 1 << 17;
    check();
    CHECK_MSG(strstr(refusal(need(&spec) / 2), "; memory.loss_chunk_tokens "), "%s",
              refusal(need(&spec) / 2));
    job(JOB_TRAIN, 1);
    spec.model.shape.n_layers = 8; /* more than there are buffers on the way */
    check();
    CHECK_MSG(strstr(refusal(1 << 20), "; memory.offload \"activations\" with a memory.offload_dir "
                                       "needs "),
              "%s", refusal(1 << 20));
    job(JOB_GENERATE, 1);
    spec.infer.batch = 8;
    check();
    CHECK_MSG(strstr(refusal(1 << 20), "; infer.batch 1 needs "), "%s", refusal(1 << 20));
}

/* A training is told of the state that its ranks can share, by the first setting that fits. */
static void test_shared(void)
{
    job(JOB_TRAIN, 2);
    spec.parallel.dp = 2;
    spec.train.global_batch = 2;
    spec.model.shape.width = spec.model.shape.ffn_width = 1024;
    spec.data.seq_len = 64;
    spec.memory.recompute = RECOMPUTE_FULL;
    spec.parallel.zero = 3;
    check();
    const int64_t limit = need(&spec);
    spec.parallel.zero = 1;
    check();
    const char *text = refusal(limit);
    CHECK_MSG(strstr(text, "; parallel.zero 3 needs ") && !strstr(text, "zero 2"), "%s", text);
    spec.parallel.zero = 3;
    spec.parallel.zero_group = 2;
    check();
    text = refusal(limit);
    CHECK_MSG(strstr(text, "; parallel.zero_group 4 needs "), "%s", text);
    job(JOB_TRAIN, 2);
    spec.data.seq_len = 1 << 16;
    spec.memory.recompute = RECOMPUTE_NONE;
    spec.memory.mlp_chunk_tokens = 0;
    check();
    text = refusal(need(&spec) / 2);
    CHECK_MSG(strstr(text, "; memory.recompute \"full\" needs ") &&
                  strstr(text, "; memory.mlp_chunk_tokens 2048 needs ") &&
                  strstr(text, "; parallel.sp 8 with resources.ranks 8 needs "),
              "%s", text);
}

int main(void)
{
    RUN(test_legal);
    RUN(test_generate);
    RUN(test_others);
    RUN(test_shared);
    return test_done("test_advice");
}
