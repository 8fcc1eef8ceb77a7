/* advice.c: sets one field after another in a copy of the spec, and plans it. The table of fields
 * says whether the job's kind has the field, and family_check() whether the job takes the value. */
#include "worker/plan/advice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/plan/check.h"
#include "worker/plan/place.h"
#include "worker/plan/report.h"

struct trial {
    const struct job_spec *asked;
    const struct plan *now;
    int64_t limit;
    struct sentence *out;
    struct job_spec *spec; /* asked, with one setting changed */
};

static int64_t total(const struct plan *p)
{
    return p->arena_size + p->segment_size;
}

/* Sets a field of t->spec. Returns false if the job's kind has no such field. */
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

/* Takes the job as it was asked for, with the modes of its plan. */
static void begin(struct trial *t)
{
    const struct plan *p = t->now;
    *t->spec = *t->asked;
    t->spec->parallel.sp = p->sp;
    t->spec->parallel.dp = p->dp;
    t->spec->resources.ranks = p->n_ranks;
    set(t, "memory.recompute", p->recompute);
    set(t, "memory.mlp_chunk_tokens", p->mlp_chunk);
    set(t, "memory.offload", p->offload.on ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE);
    set(t, "infer.batch", p->batch);
}

/* Returns the bytes of a rank under t->spec, or -1 if that is no legal job. */
static int64_t size_of(const struct trial *t)
{
    struct plan p;
    struct err e;
    if (family_check(t->spec, &e) || plan_choose(t->spec, t->spec->parallel.sp, &p, &e) ||
        place_ranks(t->spec, t->limit, &p, &e))
        return -1;
    return total(&p);
}

/* Adds a setting in words, unless it saves nothing or there is no room for it. */
static void add(struct trial *t, const char *setting, int64_t need)
{
    char bytes[24], text[192];
    if (need < 0 || need >= total(t->now)) return;
    const int n = snprintf(text, sizeof text, "; %s needs %s%s", setting, plan_bytes(bytes, need),
                           need > t->limit ? " still" : "");
    if (n > 0 && (size_t)n < t->out->size - t->out->n) sentence_add(t->out, "%s", text);
}

static void try_number(struct trial *t, const char *path, int64_t value)
{
    char text[96];
    begin(t);
    if (!set(t, path, value)) return;
    snprintf(text, sizeof text, "%s %lld", path, (long long)value);
    add(t, text, size_of(t));
}

static void try_word(struct trial *t, const char *path, int word)
{
    char text[96];
    begin(t);
    if (!set(t, path, word)) return;
    snprintf(text, sizeof text, "%s \"%s\"", path, spec_field(path)->words[word]);
    add(t, text, size_of(t));
}

/* Tries the values of a field from `first` to `last`, each of which needs less, up to the first
 * that fits. */
static void try_until(struct trial *t, const char *path, int first, int last)
{
    for (int v = first; v <= last; v++) {
        begin(t);
        if (!set(t, path, v)) return;
        const int64_t need = size_of(t);
        if (need < 0 || (need > t->limit && v < last)) continue;
        if (spec_field(path)->words)
            try_word(t, path, v);
        else
            try_number(t, path, v);
        return;
    }
}

/* Offloads activations, on the CPU beneath a directory that a job has to name. */
static void try_offload(struct trial *t)
{
    static const char field[] = "memory.offload", dir[] = "/offload";
    if (t->now->offload.on) return;
    begin(t);
    if (!set(t, field, OFFLOAD_ACTIVATIONS)) return;
    const bool names = !t->now->own_memory && !*spec_text(t->spec, t->spec->memory.offload_dir);
    if (names && spec_intern(t->spec, dir, strlen(dir), &t->spec->memory.offload_dir)) return;
    add(t,
        names ? "memory.offload \"activations\" with a memory.offload_dir"
              : "memory.offload \"activations\"",
        size_of(t));
}

/* Doubles the ranks of a ring up to the first number that fits, or that ends the series. */
static void try_ranks(struct trial *t)
{
    const int others = t->now->n_ranks / t->now->sp;
    char text[96];
    int64_t need = -1;
    int sp = 0;
    for (int n = t->now->sp * 2; n * others <= JOB_MAX_RANKS; n *= 2) {
        begin(t);
        set(t, "parallel.sp", n);
        t->spec->resources.ranks = n * others;
        const int64_t now = size_of(t);
        if (now < 0) break;
        need = now;
        sp = n;
        if (need <= t->limit) break;
    }
    snprintf(text, sizeof text, "parallel.sp %d with resources.ranks %d", sp, sp * others);
    add(t, text, need);
}

/* Makes the chunks of the loss smaller where their logits are an eighth of the memory or more. */
static void try_loss(struct trial *t)
{
    const struct plan *p = t->now;
    if (p->loss_chunk > 64 && !p->extent.logits_apart && p->item[PLAN_LOGITS].size > t->limit / 8)
        try_number(t, "memory.loss_chunk_tokens", p->loss_chunk / 8);
}

void advice_add(struct sentence *out, const struct job_spec *s, const struct plan *p, int64_t limit)
{
    struct trial t = {.asked = s, .now = p, .limit = limit, .out = out};
    t.spec = malloc(sizeof *t.spec);
    if (!t.spec) return; /* the refusal has its numbers without advice */
    if (p->recompute != RECOMPUTE_FULL) try_word(&t, "memory.recompute", RECOMPUTE_FULL);
    if (!p->mlp_chunk) try_number(&t, "memory.mlp_chunk_tokens", PLAN_MLP_CHUNK);
    if (s->model.weights != WEIGHTS_INT4)
        try_until(&t, "model.weights", s->model.weights + 1, WEIGHTS_INT4);
    if (p->precision == PRECISION_FP32) try_word(&t, "precision.params", PRECISION_BF16);
    if (p->kind == JOB_TRAIN && p->n_ranks > 1) try_until(&t, "parallel.zero", p->zero + 1, 3);
    if (p->zero_group < plan_sum_ranks(p)) try_number(&t, "parallel.zero_group", plan_sum_ranks(p));
    if (p->batch > 1) try_number(&t, "infer.batch", 1);
    try_ranks(&t);
    try_loss(&t);
    try_offload(&t);
    free(t.spec);
}
