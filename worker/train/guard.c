/* guard.c: keeps running means and variances of loss and norm, judges a step by them, and stores
 * the marked steps in guard.json. */
#include "worker/train/guard.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/record.h"
#include "worker/plan/stage.h"
#include "worker/plan/update.h"

/* ---- recent steps ---------------------------------------------------------------------------- */

double guard_z(const struct guard_window *w, double x)
{
    if (w->n < GUARD_MIN || !(x > w->mean)) return 0;
    return (x - w->mean) / sqrt(w->var); /* infinite if all values were equal */
}

/* Adds value n with weight 1 / min(n, GUARD_WINDOW). If the weight is 1/n, this is Welford's
 * recurrence for the mean and the variance of all n values. */
static void window_add(struct guard_window *w, double x)
{
    w->n++;
    const double weight = 1.0 / (double)(w->n < GUARD_WINDOW ? w->n : GUARD_WINDOW);
    const double d = x - w->mean;
    w->mean += weight * d;
    w->var = (1 - weight) * (w->var + weight * d * d);
}

static void forget(struct guard *g)
{
    g->state.loss = g->state.norm = (struct guard_window){0};
}

/* ---- judging --------------------------------------------------------------------------------- */

bool guard_marked(const struct guard *g, int64_t step)
{
    for (int i = 0; i < g->n_marks; i++)
        if (g->mark[i] == step) return true;
    return false;
}

/* Skips a step. The weights are still unchanged, because the update of a step has either waited
 * for this verdict (update_waits), or was left out because the step was marked before. */
static enum guard_verdict skip(struct guard *g, enum guard_reason why)
{
    assert(why == GUARD_MARKED || update_waits(g->spec));
    g->reason = why;
    g->state.skipped++;
    g->state.streak++;
    return GUARD_SKIP;
}

/* Judges a step whose loss or norm is NaN or infinite. If this is the first step with loaded
 * weights, the job fails. A repetition would give NaN or infinity again, because repeated steps
 * give the same bits. */
static enum guard_verdict nonfinite(struct guard *g, int64_t step)
{
    const struct job_spec *s = g->spec;
    const bool damaged = step == 0 && !spec_random_weights(s);
    g->reason = GUARD_NONFINITE;
    if (damaged || s->guard.nonfinite == NONFINITE_FAIL) return GUARD_FAIL;
    if (s->guard.nonfinite == NONFINITE_SKIP)
        return g->state.streak >= GUARD_STREAK ? GUARD_FAIL : skip(g, GUARD_NONFINITE);
    if (g->state.rollbacks >= s->guard.rollbacks || g->n_marks == GUARD_MARKS) return GUARD_FAIL;
    g->state.rollbacks++;
    g->mark[g->n_marks++] = step;
    return GUARD_ROLLBACK;
}

static bool outlier(struct guard *g, enum guard_reason why, double limit,
                    const struct guard_window *w, double x)
{
    const double z = guard_z(w, x);
    if (!(limit > 0) || !(z > limit)) return false;
    g->reason = why;
    g->z = z;
    return true;
}

void guard_begin(struct guard *g, int64_t step)
{
    if (step > 0 && stage_at(g->spec, step) != stage_at(g->spec, step - 1)) forget(g);
}

enum guard_verdict guard_judge(struct guard *g, int64_t step, double loss, double norm)
{
    const struct job_spec *s = g->spec;
    struct guard_state *st = &g->state;
    guard_begin(g, step);
    if (guard_marked(g, step)) return skip(g, GUARD_MARKED);
    if (!isfinite(loss) || !isfinite(norm)) return nonfinite(g, step);
    if (outlier(g, GUARD_LOSS, s->guard.loss_z, &st->loss, loss) ||
        outlier(g, GUARD_NORM, s->guard.grad_norm_z, &st->norm, norm)) {
        if (st->streak < GUARD_STREAK) return skip(g, g->reason);
        forget(g);
    }
    st->streak = 0;
    window_add(&st->loss, loss);
    window_add(&st->norm, norm);
    return GUARD_ACCEPT;
}

/* ---- words ----------------------------------------------------------------------------------- */

void guard_sentence(const struct guard *g, int64_t step, double loss, double norm, char *out,
                    size_t size)
{
    const long long k = (long long)step + 1;
    switch (g->reason) {
    case GUARD_LOSS:
        snprintf(out, size,
                 "step %lld: loss %g lies %.3g deviations above the recent mean %g: no update", k,
                 loss, g->z, g->state.loss.mean);
        break;
    case GUARD_NORM:
        snprintf(out, size,
                 "step %lld: gradient norm %g lies %.3g deviations above the recent mean %g: no "
                 "update",
                 k, norm, g->z, g->state.norm.mean);
        break;
    case GUARD_MARKED:
        snprintf(out, size, "step %lld was bad before the rollback: no update", k);
        break;
    default:
        snprintf(out, size, "step %lld: loss %g, gradient norm %g: no update", k, fabs(loss),
                 fabs(norm));
    }
}

/* ---- guard.json ------------------------------------------------------------------------------ */

static const void *mark_get(const void *record, int i)
{
    const struct guard *g = record;
    return i < g->n_marks ? &g->mark[i] : NULL;
}

static void *mark_add(void *record, int i)
{
    struct guard *g = record;
    return g->n_marks < GUARD_MARKS ? &g->mark[g->n_marks++] : NULL;
}

static const struct field mark_rows[] = {{"", FIELD_INT, 0, 0, INT64_MAX}, {NULL}};
static const struct field_list marks = {mark_rows, mark_get, mark_add, NULL};
static const struct field rows[] = {
    {"version", FIELD_FIXED, 0, 1, 1, .needed = true},
    {"rollbacks", FIELD_INT, offsetof(struct guard, state.rollbacks), 0, INT64_MAX,
     .when = record_always, .needed = true},
    {"marks", FIELD_LIST, .list = &marks, .when = record_always},
    {NULL},
};

int guard_save(const struct guard *g, const char *job_dir, struct err *e)
{
    char path[FILE_PATH_SIZE], text[GUARD_MARKS * 21 + 128];
    struct jwrite w;
    jwrite_init(&w, text, sizeof text);
    record_write(&w, NULL, rows, g);
    const int64_t n = jwrite_finish(&w);
    if (n < 0) return err_set(e, ERR_INTERNAL, "guard.json needs %zu bytes", w.len);
    if (file_join(path, e, "%s/guard.json", job_dir) < 0) return -1;
    return file_write(path, text, (size_t)n, e) < 0 ? -1 : file_sync_dir(job_dir, e);
}

/* Adds the rollbacks and the marks in the text of a guard.json. */
static int add(struct guard *g, const char *text, size_t size, struct err *e)
{
    struct guard *more = calloc(1, sizeof *more);
    if (!more) abort();
    int rc = record_parse(text, size, rows, more, e);
    for (int i = 0; !rc && i < more->n_marks; i++) {
        if (guard_marked(g, more->mark[i])) continue;
        if (g->n_marks == GUARD_MARKS)
            rc = err_set(e, ERR_CORRUPT, "it has too many marks");
        else
            g->mark[g->n_marks++] = more->mark[i];
    }
    if (!rc && more->state.rollbacks > g->state.rollbacks)
        g->state.rollbacks = more->state.rollbacks;
    free(more);
    return rc;
}

int guard_load(struct guard *g, const char *job_dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct err why = {0};
    size_t size;
    if (file_join(path, e, "%s/guard.json", job_dir) < 0) return -1;
    if (!file_exists(path)) return 0;
    char *text = file_read(path, 1 << 20, &size, e);
    if (!text) return -1;
    const int rc = add(g, text, size, &why);
    free(text);
    if (!rc) return 0;
    return err_set(e, ERR_CORRUPT, "%s is no record of rollbacks: %s; remove it", path, why.text);
}
