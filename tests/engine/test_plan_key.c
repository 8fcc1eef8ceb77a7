/* test_plan_key: walks every field of the spec's tables in a job of each kind. A changed field must
 * change the key, or the plan must stay the same to the byte. */
#include <math.h>
#include <stdlib.h>
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "tests/lib/test.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/choice.h"
#include "worker/plan/plan_key.h"

static struct job_spec base, changed;
static struct machine machine;
static const struct plan_limits limits = {(int64_t)64 << 20, 4};

static void put(struct job_spec *s, spec_ref *ref, const char *text)
{
    CHECK(!spec_intern(s, text, strlen(text), ref));
}

/* Makes a small job of the kind, as it is before family_check. */
static void begin(enum job_kind kind)
{
    struct job_spec *s = &base;
    struct hardware h;
    hardware_defaults(&h);
    h.given = 1, h.devices = 2, h.memory_gib = 1, h.tflops = 1;
    machine_of_hardware(&h, &machine);
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = (int32_t)kind;
    s->model.shape.width = 64;
    s->model.shape.n_layers = 2;
    s->model.shape.n_heads = 4;
    s->model.shape.ffn_width = 128;
    s->resources.memory_mib = limits.memory >> 20;
    if (kind == JOB_TRAIN || kind == JOB_VERIFY) {
        put(s, &s->data.train[0].path, "a.txt");
        s->data.n_train = 1;
    }
    if (kind == JOB_SCORE || kind == JOB_EMBED) put(s, &s->input.source.path, "b.txt");
    if (kind == JOB_GENERATE) put(s, &s->input.prompt, "once upon");
    if (kind == JOB_MERGE || kind == JOB_SERVE) put(s, &s->model.path, "/m");
    if (kind == JOB_MERGE) {
        put(s, &s->model.adapter, "/a");
        s->adapter.type = ADAPTER_LORA;
    }
    if (kind != JOB_GENERATE && kind != JOB_MERGE) s->data.seq_len = 256;
    if (kind == JOB_TRAIN) s->train.steps = 10, s->resources.ranks = 2;
}

/* Returns the plan of the job with all that seqd shows and keeps of it, or the error. */
static char *plan_of(const struct job_spec *asked)
{
    enum { SIZE = 1 << 18 };
    char *out = malloc(2 * SIZE), *more = malloc(SIZE);
    struct job_spec *s = malloc(sizeof *s);
    struct plan *p = calloc(1, sizeof *p);
    struct choice *c = calloc(1, sizeof *c);
    struct err e = {0};
    struct jwrite w;
    if (!out || !more || !s || !p || !c) abort();
    *s = *asked;
    if (s->kind != JOB_MERGE) choice_make(asked, &machine, &(struct choice_how){.limits = true}, c);
    choice_apply(c, s);
    jwrite_init(&w, more, SIZE);
    jwrite_object(&w, NULL);
    choice_write(c, &machine, CHOICE_OPTIONS, &w);
    jwrite_end(&w);
    CHECK(jwrite_finish(&w) > 0);
    const int bad = family_check(s, &e);
    if (bad || plan_asked(asked, s, &limits, p, &e) || plan_json(s, p, out, SIZE) < 0) *out = 0;
    snprintf(out + strlen(out), SIZE, "%s%d %s", more, e.code, e.text);
    free(more);
    free(s);
    free(p);
    free(c);
    return out;
}

static void key_of(const struct job_spec *s, uint8_t key[PLAN_KEY_SIZE])
{
    const struct plan_question q = {s, s, &machine, &limits, true, false};
    plan_key(&q, key);
}

static bool same_key(void)
{
    uint8_t a[PLAN_KEY_SIZE], b[PLAN_KEY_SIZE];
    key_of(&base, a);
    key_of(&changed, b);
    return !memcmp(a, b, sizeof a);
}

/* Gives the member at `at` of `changed` a value that it does not have. The value stays in the
 * field's range where there is one. */
static void change(const struct field *f, char *at)
{
    int32_t v32;
    int64_t v64;
    double d;
    switch (f->type) {
    case FIELD_INT:
        memcpy(&v64, at, sizeof v64);
        v64 += v64 < f->max ? 1 : -1;
        memcpy(at, &v64, sizeof v64);
        break;
    case FIELD_DOUBLE:
        memcpy(&d, at, sizeof d);
        d = d != f->max ? f->max : f->min;
        memcpy(at, &d, sizeof d);
        break;
    case FIELD_STRING: {
        spec_ref ref;
        memcpy(&ref, at, sizeof ref);
        put(&changed, &ref, *spec_text(&changed, ref) ? "another" : "new");
        memcpy(at, &ref, sizeof ref);
        break;
    }
    default:
        memcpy(&v32, at, sizeof v32);
        v32 += v32 ? -1 : 1;
        memcpy(at, &v32, sizeof v32);
    }
}

/* Compares the plans of both jobs if their keys are the same. */
static bool compare(const char *path, const char *was)
{
    if (!same_key()) return false;
    char *is = plan_of(&changed);
    CHECK_MSG(!strcmp(was, is), "%s changes the plan of a %s job and not its key:\n%s\n%s", path,
              spec_kind_name(base.kind), was, is);
    free(is);
    return true;
}

/* Fields that do not change the key when a text takes the place of another text. */
static const char *const unread[] = {"name",
                                     "priority",
                                     "seed",
                                     "sampling.seed",
                                     "model.path",
                                     "model.adapter",
                                     "memory.offload_dir",
                                     "checkpoint.resume_path",
                                     "context.load",
                                     "output.path"};

static bool is_unread(const char *path)
{
    const size_t n = strlen(path);
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        if (!strcmp(unread[i], path)) return true;
    return !strncmp(path, "model.adapters.", 15) && !strcmp(path + n - 5, ".path");
}

/* Changes each field of the table, from a text to another text in jobs that have one. */
static void walk(const struct field *table, size_t at, const char *was)
{
    for (const struct field *f = table; f->path; f++) {
        if (!strcmp(f->path, "kind")) continue;
        changed = base;
        change(f, (char *)&changed + at + f->offset);
        const bool same = compare(f->path, was);
        const bool path = table == source_fields && !strcmp(f->path, "path");
        const bool text = table == spec_fields && is_unread(f->path);
        CHECK_MSG(same || f->type == FIELD_STRING || !text, "%s changes the key", f->path);
        CHECK_MSG(!same || text || path, "%s does not change the key", f->path);
    }
}

static void test_walk(void)
{
    for (int kind = 0; kind < JOB_KIND_N; kind++) {
        begin((enum job_kind)kind);
        char *was = plan_of(&base);
        CHECK_MSG(strstr(was, "}0 "), "a %s job has no plan: %s", spec_kind_name(kind), was);
        walk(spec_fields, 0, was);
        walk(source_fields, offsetof(struct job_spec, data.train[0]), was);
        walk(source_fields, offsetof(struct job_spec, eval.data[1]), was);
        walk(source_fields, offsetof(struct job_spec, input.source), was);
        walk(stage_fields, offsetof(struct job_spec, stages[1]), was);
        free(was);
    }
}

/* Checks that jobs which differ in names, labels, seeds and paths have one key and one plan. */
static void test_same(void)
{
    static const char *const texts[] = {"name",        "model.path",   "memory.offload_dir",
                                        "output.path", "context.load", "checkpoint.resume_path"};
    begin(JOB_TRAIN);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        put(&base, (spec_ref *)((char *)&base + spec_field(texts[i])->offset), "a text");
    char *was = plan_of(&base);
    changed = base;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        put(&changed, (spec_ref *)((char *)&changed + spec_field(texts[i])->offset), "another one");
    put(&changed, &changed.data.train[0].path, "elsewhere.txt");
    changed.seed = changed.sampling.seed = 7;
    changed.priority = 99;
    changed.n_labels = 1;
    put(&changed, &changed.labels[0].key, "k");
    strcpy(changed.model.config + strlen(changed.model.config) + 1, "after the end");
    CHECK(compare("names, labels, seeds and paths", was));
    free(was);
    /* the first path, or a longer prompt, is a change */
    changed = base;
    changed.memory.offload_dir = 0;
    CHECK(!same_key());
    begin(JOB_GENERATE);
    changed = base;
    put(&changed, &changed.input.prompt, "twice upon");
    CHECK(!same_key());
    put(&changed, &changed.input.prompt, "9 letters");
    CHECK(same_key());
    changed.model.config[0] = 'x';
    CHECK(!same_key());
    changed = base;
    changed.model.shape.ffn_width++;
    CHECK(!same_key());
}

/* Checks that all that is beside the spec is a part of the key. */
static void test_question(void)
{
    uint8_t was[PLAN_KEY_SIZE], is[PLAN_KEY_SIZE];
    begin(JOB_TRAIN);
    changed = base;
    changed.parallel.sp = 1;
    struct machine slower = machine;
    slower.hop += 1;
    const struct plan_limits memory = {limits.memory + 1, limits.ranks};
    const struct plan_limits ranks = {limits.memory, limits.ranks + 1};
    const struct plan_question q[] = {{&base, &base, &machine, &limits, true, false},
                                      {&changed, &base, &machine, &limits, true, false},
                                      {&base, &changed, &machine, &limits, true, false},
                                      {&base, &base, &slower, &limits, true, false},
                                      {&base, &base, &machine, &memory, true, false},
                                      {&base, &base, &machine, &ranks, true, false},
                                      {&base, &base, &machine, &limits, false, false},
                                      {&base, &base, &machine, &limits, true, true}};
    plan_key(&q[0], was);
    for (size_t i = 1; i < sizeof q / sizeof *q; i++) {
        plan_key(&q[i], is);
        CHECK_MSG(memcmp(was, is, sizeof is), "question %zu", i);
    }
}

int main(void)
{
    RUN(test_walk);
    RUN(test_same);
    RUN(test_question);
    return test_done("plan_key");
}
