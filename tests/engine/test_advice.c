/* test_advice.c: checks the settings that seqd advises when it refuses a job for lack of memory.
 * Each setting is read from the error's text and set in the job. The job must then be legal, and
 * must need as many bytes as the text says. */
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/place.h"
#include "worker/plan/plan.h"
#include "worker/plan/report.h"

/* `user` is the job as a user wrote it. `spec` is the job after family_check(). `changed` is a
 * copy of `user` that also has the modes of the plan that did not fit. */
static struct job_spec user, spec, changed;
static int devices; /* number of devices for which the job is planned; 0 if it is not known */

static void name_file(spec_ref *ref, const char *path)
{
    CHECK(!spec_intern(&spec, path, strlen(path), ref));
}

/* Makes a job of a kind that family_check() accepts, on `sp` ranks. */
static void job(int kind, int sp)
{
    spec_defaults(&spec);
    spec.kind = kind;
    shape_defaults(&spec.model.shape);
    spec.model.shape.n_layers = 3;
    spec.model.shape.width = 64;
    spec.model.shape.n_heads = 8;
    spec.model.shape.n_kv_heads = 2;
    spec.model.shape.ffn_width = 160;
    spec.model.shape.vocab = 8192;
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
    user = spec;
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

/* Returns the error's text when the job is planned on ranks with `limit` bytes. */
static const char *refusal(int64_t limit)
{
    static struct plan p;
    static struct err e;
    e = (struct err){0};
    CHECK(plan_asked(&user, &spec, &(struct plan_limits){limit, devices}, &p, &e) &&
          e.code == ERR_DOES_NOT_FIT);
    changed = user;
    if (spec.kind == JOB_TRAIN || spec.kind == JOB_VERIFY) {
        changed.memory.recompute = (int32_t)p.recompute;
        changed.memory.mlp_chunk_tokens = p.mlp_chunk;
        if (plan_stores(&p)) changed.memory.offload = plan_offload_id(&p);
    }
    return e.text;
}

/* Sets the field `path` of s to `value`, as a user would. */
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

/* Sets "PATH VALUE", "PATH VALUE with PATH VALUE" or "PATH VALUE with a memory.offload_dir". */
static void set_words(struct job_spec *s, const char *words)
{
    static const char dir[] = " with a memory.offload_dir";
    char path[64], value[32], with[64], beside[32];
    const bool names_dir = strstr(words, dir) != NULL;
    const int n = sscanf(words, "%63s %31s with %63s %31s", path, value, with, beside);
    CHECK_MSG(n == 2 || n == 4, "%s", words);
    set(s, path, value);
    if (names_dir)
        CHECK(!spec_intern(s, "/x", 2, &s->memory.offload_dir));
    else if (n == 4)
        set(s, with, beside);
}

/* Follows one piece of advice, "SETTING [and SETTING] needs BYTES[ still]". */
static void follow(char *piece, int64_t limit)
{
    static struct job_spec s;
    char bytes[24];
    struct err e = {0};
    s = changed;
    char *end = strstr(piece, " needs "), *second = strstr(piece, " and ");
    CHECK_MSG(end, "%s", piece);
    if (!end) return;
    *end = 0;
    if (second) *second = 0;
    set_words(&s, piece);
    if (second) set_words(&s, second + 5);
    CHECK_MSG(!family_check(&s, &e), "%s: %s", piece, e.text);
    const int64_t now = need(&s);
    plan_bytes(bytes, now);
    CHECK_MSG(!strncmp(end + 7, bytes, strlen(bytes)), "%s: it needs %s", piece, bytes);
    CHECK_MSG(!strcmp(end + 7 + strlen(bytes), now > limit ? " still" : ""), "%s", piece);
    CHECK_MSG(!second || now <= limit, "%s", piece);
}

/* Follows all advice in the text of a refusal. Returns the number of pieces of advice. */
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

/* Checks every kind of job, on one rank and on two, with much less memory than it needs and with
 * slightly less. */
static void test_legal(void)
{
    static const int parts[] = {1, 2, 64};
    int n_refused[JOB_MERGE] = {0};
    for (int kind = 0; kind < JOB_MERGE; kind++)
        for (int sp = 1; sp <= 2; sp++)
            for (int i = 0; i < 3; i++) {
                job(kind, sp);
                check();
                const int64_t limit = need(&spec) / parts[i] - 1;
                if (fits(limit)) continue; /* it fits with the modes that "auto" chooses */
                n_refused[kind]++;
                CHECK_MSG(follow_all(limit) > 0, "%s on %d ranks: %s", spec_kind_name(kind), sp,
                          refusal(limit));
            }
    for (int kind = 0; kind < JOB_MERGE; kind++)
        CHECK_MSG(n_refused[kind] >= 2, "%s", spec_kind_name(kind));
}

/* Checks that the advice for a generate job names its weights and its precision, and no field that
 * a generate job does not have. */
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
    /* rows that are not multiples of 32 cannot be stored in blocks */
    spec.model.shape.ffn_width = 200;
    spec.model.shape.width = 48;
    check();
    text = refusal(4096);
    CHECK_MSG(!strstr(text, "model.weights") && strstr(text, "; precision.params"), "%s", text);
}

/* Checks that a score job is advised to compute its loss in chunks. Also checks that a job on the
 * CPU is advised to set a directory for its activations. */
static void test_others(void)
{
    job(JOB_SCORE, 1);
    spec.model.shape.vocab = 1 << 17;
    check();
    CHECK_MSG(strstr(refusal(need(&spec) / 2), "; memory.loss_chunk_tokens "), "%s",
              refusal(need(&spec) / 2));
    job(JOB_TRAIN, 1);
    spec.model.shape.n_layers = 8; /* more layers than there are buffers for copies */
    check();
    CHECK_MSG(strstr(refusal(1 << 20), "; memory.offload \"all\" with a memory.offload_dir needs "),
              "%s", refusal(1 << 20));
    job(JOB_GENERATE, 1);
    spec.infer.batch = 8;
    check();
    CHECK_MSG(strstr(refusal(1 << 20), "; infer.batch 1 needs "), "%s", refusal(1 << 20));
}

/* Checks that a training is advised to divide its state among its ranks. The advice must be the
 * first setting with which the job fits. */
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

/* Checks a job on a cluster with fewer devices than a longer ring needs. The ring must come last,
 * with their number, and two settings with which the job fits without it must come first. */
static void test_devices(void)
{
    static struct job_spec both;
    static const char pair[] = "; model.weights \"int4\" and precision.params \"bf16\" needs ";
    struct err e = {0};
    job(JOB_GENERATE, 1);
    spec.data.seq_len = 1 << 16;
    check();
    both = user;
    both.model.weights = WEIGHTS_INT4;
    both.precision.params = PRECISION_BF16;
    CHECK(!family_check(&both, &e));
    const int64_t limit = need(&both);
    const char *text = refusal(limit);
    CHECK_MSG(strstr(text, "; parallel.sp ") && !strstr(text, pair), "%s", text);
    devices = 1;
    text = refusal(limit);
    const char *ring = strstr(text, "; parallel.sp ");
    CHECK_MSG(ring && strstr(ring, ", of which 1 is there, needs ") && !strstr(ring + 2, "; ") &&
                  strstr(text, pair) &&
                  strstr(text, pair) < strstr(text, "; model.weights \"int4\" n"),
              "%s", text);
    CHECK(follow_all(limit) > 2);
    devices = 64;
    text = refusal(limit);
    CHECK_MSG(strstr(text, "; parallel.sp ") && !strstr(text, " there") && !strstr(text, pair),
              "%s", text);
    devices = 0;
}

/* Checks a field that has no value with which the job fits. The advice must name the value with
 * which the job needs the fewest bytes. For a small model, this is not the highest stage of ZeRO,
 * because its buffers need more than it saves. */
static void test_least(void)
{
    int64_t size[4];
    for (int zero = 3; zero >= 0; zero--) {
        job(JOB_TRAIN, 1);
        spec.parallel.dp = spec.train.global_batch = 2;
        spec.model.shape.n_layers = 1;
        spec.model.shape.width = spec.model.shape.ffn_width = spec.model.shape.vocab = 512;
        spec.data.seq_len = 16;
        spec.memory.recompute = RECOMPUTE_FULL;
        spec.parallel.zero = zero;
        check();
        size[zero] = need(&spec);
    }
    CHECK(size[1] < size[2] && size[2] < size[3] && size[3] < size[0]);
    const char *text = refusal(size[1] / 2);
    CHECK_MSG(strstr(text, "; parallel.zero 1 needs ") && !strstr(text, "zero 2"), "%s", text);
    CHECK(follow_all(size[1] / 2) > 1);
}

/* Checks jobs that do not fit with any single setting. Pairs of settings with which the job fits
 * must be advised first. Pairs that need no further ranks must come before all other pairs. If a
 * pair has a number of ranks, it must be the smallest number with which the job fits. */
static void test_pairs(void)
{
    static struct job_spec both;
    struct err e = {0};
    job(JOB_GENERATE, 1);
    spec.model.shape.width = spec.model.shape.ffn_width = 1024;
    spec.data.seq_len = 512; /* a longer ring saves little */
    check();
    both = user;
    both.model.weights = WEIGHTS_INT4;
    both.precision.params = PRECISION_BF16;
    CHECK(!family_check(&both, &e));
    const char *text = refusal(need(&both));
    CHECK_MSG(strstr(text, "; model.weights \"int4\" and precision.params \"bf16\" needs ") &&
                  strstr(text, "; model.weights \"int4\" needs "),
              "%s", text);
    CHECK(follow_all(need(&both)) > 2);
    text = refusal(need(&both) / 8);
    CHECK_MSG(!strstr(text, " and "), "%s", text);
    job(JOB_TRAIN, 2);
    spec.model.shape.width = spec.model.shape.ffn_width = 1024;
    spec.model.shape.n_layers = 8;
    spec.data.seq_len = 512;
    spec.memory.recompute = RECOMPUTE_FULL;
    spec.memory.offload = OFFLOAD_ALL;
    name_file(&spec.memory.offload_dir, "/x");
    check();
    both = user;
    both.parallel.zero = 3;
    both.parallel.sp = both.resources.ranks = 8;
    CHECK(!family_check(&both, &e));
    text = refusal(need(&both));
    CHECK_MSG(strstr(text, "; parallel.zero 3 and parallel.sp 8 with resources.ranks 8 needs "),
              "%s", text);
    CHECK(follow_all(need(&both)) > 2);
}

/* Checks jobs of one rank whose spec sets how a ring is split. A larger ring must be advised only
 * if the job remains valid with it. */
static void test_said(void)
{
    static const struct {
        int strategy, layout;
        bool rings;
    } v[] = {{STRATEGY_AUTO, LAYOUT_AUTO, true},         {STRATEGY_LOCAL, LAYOUT_AUTO, false},
             {STRATEGY_LOCAL, LAYOUT_CONTIGUOUS, false}, {STRATEGY_AUTO, LAYOUT_CONTIGUOUS, true},
             {STRATEGY_AUTO, LAYOUT_ZIGZAG, true},       {STRATEGY_RSA, LAYOUT_AUTO, true},
             {STRATEGY_RSA, LAYOUT_CONTIGUOUS, true},    {STRATEGY_USP, LAYOUT_AUTO, true}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        job(JOB_TRAIN, 1);
        spec.data.seq_len = 1 << 14;
        spec.parallel.strategy = v[i].strategy;
        spec.parallel.layout = v[i].layout;
        check();
        const int64_t limit = need(&spec) / 4;
        CHECK_MSG(!strstr(refusal(limit), "parallel.sp ") == !v[i].rings, "case %zu: %s", i,
                  refusal(limit));
        CHECK(follow_all(limit) > 0);
    }
}

/* Checks jobs with several axes, jobs that set their ranks, and a device with memory of its
 * own. */
static void test_axes(void)
{
    static const struct {
        int sp, dp, pp, tp, ranks;
        const char *device;
    } v[] = {{.sp = 1},          {.sp = 2, .tp = 2},
             {.tp = 2},          {.sp = 2, .pp = 2},
             {.pp = 3, .dp = 2}, {.sp = 2, .dp = 2, .pp = 2, .tp = 2},
             {.ranks = 4},       {.ranks = 4, .dp = 2},
             {.ranks = 1},       {.sp = 2, .device = "emulated"},
             {.device = "cuda"}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (int part = 1; part <= 64; part *= 4) {
            job(JOB_TRAIN, v[i].sp);
            spec.train.global_batch = 4;
            spec.parallel.dp = v[i].dp;
            spec.parallel.pp = v[i].pp;
            spec.parallel.tp = v[i].tp;
            spec.resources.ranks = v[i].ranks;
            if (v[i].device)
                CHECK(
                    !spec_intern(&spec, v[i].device, strlen(v[i].device), &spec.resources.device));
            check();
            const int64_t limit = need(&spec) / part - 1;
            if (fits(limit)) continue;
            CHECK_MSG(follow_all(limit) > 0, "case %zu: %s", i, refusal(limit));
            const char *text = refusal(limit);
            CHECK_MSG(strstr(text, "; parallel.sp "), "case %zu: %s", i, text);
            CHECK_MSG(!v[i].device || !strstr(text, "offload_dir"), "%s", text);
        }
}

int main(void)
{
    RUN(test_legal);
    RUN(test_generate);
    RUN(test_others);
    RUN(test_shared);
    RUN(test_devices);
    RUN(test_least);
    RUN(test_pairs);
    RUN(test_said);
    RUN(test_axes);
    return test_done("test_advice");
}
