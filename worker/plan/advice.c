/* advice.c: sets one field after another in a copy of the spec, and makes a plan of the copy. The
 * table of fields tells whether the job's kind has the field. family_check() tells whether the job
 * accepts the value. */
#include "worker/plan/advice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/mem.h"
#include "worker/plan/check.h"
#include "worker/plan/report.h"
#include "worker/plan/rules.h"

enum {
    SETTINGS = 11, /* number of settings that try_all() tries */
    PAIRS = SETTINGS * (SETTINGS - 1) / 2,
    RING_PLANS = 6 /* number of plans that are reserved for pairs with a longer ring */
};

/* One or two fields, with values that differ from the job's values. */
struct setting {
    const char *path[2]; /* path[1] is NULL if the setting has only one field */
    int64_t value[2];
    bool names_dir; /* memory.offload_dir must be set as well */
    bool absent;    /* there are fewer devices than its ranks */
    char text[96];
    int64_t need; /* number of bytes that a rank needs; -1 if the job would not be legal */
};

struct pair {
    const struct setting *a, *b; /* owned by the trial */
    int64_t need;
};

struct trial {
    const struct job_spec *asked, *checked; /* as family_check() got it, and as it left it */
    const struct plan *now;
    int64_t limit;
    int most_ranks;        /* number of devices; 0 if it is not known */
    struct job_spec *spec; /* checked, with some settings */
    int n_plans, n;        /* plans made; settings with which the job needs less */
    struct setting setting[SETTINGS];
    struct setting ring; /* of a pair */
};

static int64_t total(const struct plan *p)
{
    return p->arena_size + p->segment_size;
}

/* ---- one plan -------------------------------------------------------------------------------- */

/* Sets a field of t->spec. Returns false if the job's kind does not have the field. */
static bool set(struct trial *t, const char *path, int64_t value)
{
    const struct field *f = spec_field(path);
    char *at = (char *)t->spec + f->offset;
    if (!(f->kinds & 1u << t->spec->kind)) return false;
    if (f->type == FIELD_INT)
        *(int64_t *)at = value;
    else
        *(int32_t *)at = (int32_t)value;
    return true;
}

/* Starts from the checked job, with the modes of its plan. */
static void begin(struct trial *t)
{
    const struct plan *p = t->now;
    *t->spec = *t->checked;
    t->spec->parallel.sp = p->sp;
    t->spec->parallel.dp = p->dp;
    t->spec->resources.ranks = p->n_ranks;
    set(t, "memory.recompute", p->recompute);
    set(t, "memory.mlp_chunk_tokens", p->mlp_chunk);
    set(t, "memory.offload", plan_offload_id(p));
    set(t, rules_together_field(t->spec), p->batch);
}

/* Undoes the decisions of family_check() that hold only for a ring of one rank. */
static void open_ring(struct trial *t)
{
    if (t->now->sp > 1) return;
    t->spec->parallel.strategy = t->asked->parallel.strategy;
    t->spec->parallel.layout = t->asked->parallel.layout;
    t->spec->parallel.ulysses = t->asked->parallel.ulysses;
}

static bool apply(struct trial *t, const struct setting *s)
{
    static const char dir[] = "/offload";
    for (int i = 0; i < 2 && s->path[i]; i++)
        if (!set(t, s->path[i], s->value[i])) return false;
    if (t->spec->parallel.sp != t->now->sp) open_ring(t);
    return !s->names_dir || !spec_intern(t->spec, dir, strlen(dir), &t->spec->memory.offload_dir);
}

/* Returns the bytes that a rank needs with setting a and, if b is not NULL, setting b. Returns -1
 * if the job is then not legal, or if ADVICE_PLANS plans have already been made. */
static int64_t need_of(struct trial *t, const struct setting *a, const struct setting *b)
{
    struct plan p;
    struct err e;
    begin(t);
    if (t->n_plans >= ADVICE_PLANS || !apply(t, a) || (b && !apply(t, b)) ||
        family_check(t->spec, &e))
        return -1;
    t->n_plans++;
    if (plan_choose(t->spec, t->spec->parallel.sp, &p, &e) ||
        place_ranks(t->spec, t->limit, &p, &e))
        return -1;
    return total(&p);
}

static bool fits(const struct trial *t, const struct setting *s)
{
    return s->need >= 0 && s->need <= t->limit;
}

/* ---- single settings ------------------------------------------------------------------------- */

static struct setting setting_of(const char *path, int64_t value)
{
    struct setting s = {.path = {path}, .value = {value}, .need = -1};
    const char *const *words = spec_field(path)->words;
    if (words)
        snprintf(s.text, sizeof s.text, "%s \"%s\"", path, words[value]);
    else
        snprintf(s.text, sizeof s.text, "%s %lld", path, (long long)value);
    return s;
}

/* Lists a setting, unless it saves nothing. */
static void add(struct trial *t, const struct setting *s)
{
    if (s->need >= 0 && s->need < total(t->now) && t->n < SETTINGS) t->setting[t->n++] = *s;
}

static void try_value(struct trial *t, const char *path, int64_t value)
{
    struct setting s = setting_of(path, value);
    s.need = need_of(t, &s, NULL);
    add(t, &s);
}

/* Tries the values of a field, from `first` to `last`, until one of them fits. If no value fits,
 * lists the value with which the job needs the smallest amount of memory. */
static void try_until(struct trial *t, const char *path, int first, int last)
{
    struct setting best = {.need = -1};
    for (int v = first; v <= last && !fits(t, &best); v++) {
        struct setting s = setting_of(path, v);
        s.need = need_of(t, &s, NULL);
        if (s.need >= 0 && (best.need < 0 || s.need < best.need)) best = s;
    }
    add(t, &best);
}

static struct setting offload_of(struct trial *t, enum offload_id value)
{
    struct setting s = setting_of("memory.offload", value);
    s.names_dir = !t->now->own_memory && !*spec_text(t->checked, t->checked->memory.offload_dir);
    if (s.names_dir)
        snprintf(s.text + strlen(s.text), sizeof s.text - strlen(s.text),
                 " with a memory.offload_dir");
    s.need = need_of(t, &s, NULL);
    return s;
}

/* Tries to offload activations and, if a training still does not fit, its optimizer as well. On
 * the CPU the job has to name a directory. */
static void try_offload(struct trial *t)
{
    const struct offload_plan *now = &t->now->offload;
    struct setting best = {.need = -1};
    if (!now->on) best = offload_of(t, now->optimizer ? OFFLOAD_ALL : OFFLOAD_ACTIVATIONS);
    if (t->now->kind == JOB_TRAIN && !now->optimizer && !fits(t, &best)) {
        const struct setting all = offload_of(t, OFFLOAD_ALL);
        if (all.need >= 0 && (best.need < 0 || all.need < best.need)) best = all;
    }
    add(t, &best);
}

/* Returns the setting for a ring of sp ranks. resources.ranks becomes the number of ranks of all
 * rings and stages. */
static struct setting ring_of(const struct trial *t, int sp)
{
    const int ranks = t->now->n_ranks / t->now->sp * sp;
    struct setting s = {.path = {"parallel.sp", "resources.ranks"}, .value = {sp, ranks}};
    const int n = snprintf(s.text, sizeof s.text, "parallel.sp %d with resources.ranks %d", sp,
                           ranks);
    s.absent = t->most_ranks && ranks > t->most_ranks;
    if (s.absent)
        snprintf(s.text + n, sizeof s.text - (size_t)n, ", of which %d %s there,", t->most_ranks,
                 t->most_ranks == 1 ? "is" : "are");
    return s;
}

/* Doubles the ranks of a ring until the job fits, or until no larger ring may be tried. Returns
 * the index of the listed setting. Returns -1 if a longer ring does not need less memory. */
static int try_ring(struct trial *t)
{
    const int n = t->n;
    struct setting best = {.need = -1};
    for (int sp = t->now->sp * 2; sp <= JOB_MAX_RANKS && !fits(t, &best); sp *= 2) {
        struct setting s = ring_of(t, sp);
        if (s.value[1] > JOB_MAX_RANKS) break;
        s.need = need_of(t, &s, NULL);
        if (s.need < 0) break;
        if (best.need < 0 || s.need < best.need) best = s;
    }
    add(t, &best);
    return t->n > n ? n : -1;
}

/* Tries smaller chunks of the loss if the logits need an eighth of the memory or more. */
static void try_loss(struct trial *t)
{
    const struct plan *p = t->now;
    if (p->loss_chunk > 64 && !p->extent.logits_apart && p->item[PLAN_LOGITS].size > t->limit / 8)
        try_value(t, "memory.loss_chunk_tokens", p->loss_chunk / 8);
}

/* Tries all settings. Returns the index of the setting with the longer ring, or -1 if a longer
 * ring does not help. */
static int try_all(struct trial *t)
{
    const struct plan *p = t->now;
    const int weights = t->checked->model.weights;
    if (p->recompute != RECOMPUTE_FULL) try_value(t, "memory.recompute", RECOMPUTE_FULL);
    if (!p->mlp_chunk) try_value(t, "memory.mlp_chunk_tokens", PLAN_MLP_CHUNK);
    if (weights != WEIGHTS_INT4) try_until(t, "model.weights", weights + 1, WEIGHTS_INT4);
    if (p->precision == PRECISION_FP32) try_value(t, "precision.params", PRECISION_BF16);
    if (p->kind == JOB_TRAIN && p->n_ranks > 1) try_until(t, "parallel.zero", p->zero + 1, 3);
    if (p->zero_group < plan_sum_ranks(p)) try_value(t, "parallel.zero_group", plan_sum_ranks(p));
    if (p->batch > 1) try_value(t, rules_together_field(t->spec), 1);
    if (p->paged && p->n_pages > p->table)
        try_value(t, "serve.cache_tokens", mem_round(p->seq_len, CACHE_PAGE));
    const int ring = try_ring(t);
    try_loss(t);
    try_offload(t);
    return ring;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static int by_needs(const void *x, const void *y)
{
    const struct pair *p = x, *q = y;
    const int64_t a = p->a->need + p->b->need, b = q->a->need + q->b->need;
    return a < b ? -1 : a > b;
}

/* Lists pairs of settings. If with_ring is set, each pair is the longer ring and one further
 * setting; `ring` is the index of the longer ring. Otherwise neither setting of a pair is the
 * longer ring. The pairs that save the largest amount of memory come first. */
static int list_pairs(const struct trial *t, int ring, bool with_ring, struct pair out[PAIRS])
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        for (int j = 0; j < t->n; j++)
            if (i != ring && (with_ring ? j == ring : j > i && j != ring))
                out[n++] = (struct pair){&t->setting[i], &t->setting[j], -1};
    qsort(out, (size_t)n, sizeof *out, by_needs);
    return n;
}

/* Tells whether the job fits with the two settings of a pair. */
static bool try_pair(struct trial *t, struct pair *p)
{
    p->need = need_of(t, p->a, p->b);
    return p->need >= 0 && p->need <= t->limit;
}

/* Halves the ring of a pair that fits, as long as the pair still fits. */
static void halve_ring(struct trial *t, struct pair *p)
{
    for (int sp = (int)p->b->value[0] / 2; sp > t->now->sp; sp /= 2) {
        const struct setting ring = ring_of(t, sp);
        struct pair less = {p->a, &ring, -1};
        if (!try_pair(t, &less)) return;
        t->ring = ring;
        *p = (struct pair){p->a, &t->ring, less.need};
    }
}

/* Finds two settings with which the job fits. First tries pairs that do not need more ranks. Tries
 * no pair with the longer ring if that ring is enough alone. */
static bool find_pair(struct trial *t, int ring, struct pair *out)
{
    struct pair pair[PAIRS];
    int n = list_pairs(t, ring, false, pair);
    for (int i = 0; i < n && t->n_plans < ADVICE_PLANS - RING_PLANS; i++)
        if (try_pair(t, &pair[i])) {
            *out = pair[i];
            return true;
        }
    if (ring >= 0 && fits(t, &t->setting[ring])) return false;
    n = list_pairs(t, ring, true, pair);
    for (int i = 0; i < n; i++)
        if (try_pair(t, &pair[i])) {
            halve_ring(t, &pair[i]);
            *out = pair[i];
            return true;
        }
    return false;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* Adds one setting or two settings to the text. b is the second setting, or NULL if there is only
 * one. If the text has too little room, adds nothing. */
static void say(const struct trial *t, const struct setting *a, const struct setting *b,
                int64_t need, struct sentence *out)
{
    char bytes[24], text[192];
    const int n = snprintf(text, sizeof text, "; %s%s%s needs %s%s", a->text, b ? " and " : "",
                           b ? b->text : "", plan_bytes(bytes, need),
                           need > t->limit ? " still" : "");
    if (n > 0 && (size_t)n < out->size - out->n) sentence_add(out, "%s", text);
}

void advice_add(struct sentence *out, const struct job_spec *asked, const struct job_spec *s,
                const struct plan *p, const struct plan_limits *limits)
{
    struct trial t = {.asked = asked,
                      .checked = s,
                      .now = p,
                      .limit = limits->memory,
                      .most_ranks = limits->ranks};
    struct pair pair;
    bool any = false;
    t.spec = malloc(sizeof *t.spec);
    if (!t.spec) return; /* the refusal has its numbers without advice */
    const int ring = try_all(&t);
    for (int i = 0; i < t.n; i++) any |= fits(&t, &t.setting[i]) && !t.setting[i].absent;
    if (!any && find_pair(&t, ring, &pair)) say(&t, pair.a, pair.b, pair.need, out);
    for (int absent = 0; absent < 2; absent++)
        for (int i = 0; i < t.n; i++)
            if (t.setting[i].absent == absent) say(&t, &t.setting[i], NULL, t.setting[i].need, out);
    free(t.spec);
}
