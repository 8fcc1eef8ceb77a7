/* guard.c: keeps running means and variances of loss and norm, judges a step by them, and stores
 * marked steps in guard.json. */
#include "worker/train/guard.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "worker/plan/stage.h"
#include "worker/plan/update.h"

/* ---- recent steps ---------------------------------------------------------------------------- */

double guard_z(const struct guard_window *w, double x)
{
    if (w->n < GUARD_MIN || !(x > w->mean)) return 0;
    return (x - w->mean) / sqrt(w->var); /* infinite if the values have not varied */
}

/* Adds a value. With weight 1/n this is Welford's recurrence for the mean and the variance of all n
 * values. */
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

/* Skips a step. The update of a step that was not marked has waited for this verdict. */
static enum guard_verdict skip(struct guard *g, enum guard_reason why)
{
    assert(why == GUARD_MARKED || update_waits(g->spec));
    g->reason = why;
    g->state.skipped++;
    g->state.streak++;
    return GUARD_SKIP;
}

/* Judges a step with a value that is NaN or infinite. The same steps give the same bits, so weights
 * that are damaged before any update stay damaged: the job can only fail. */
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

int guard_save(const struct guard *g, const char *job_dir, struct err *e)
{
    char path[FILE_PATH_SIZE], text[GUARD_MARKS * 21 + 128];
    struct jwrite w;
    jwrite_init(&w, text, sizeof text);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "version", 1);
    jwrite_int(&w, "rollbacks", g->state.rollbacks);
    jwrite_array(&w, "marks");
    for (int i = 0; i < g->n_marks; i++) jwrite_int(&w, NULL, g->mark[i]);
    jwrite_end(&w);
    jwrite_end(&w);
    const int64_t n = jwrite_finish(&w);
    if (n < 0) return err_set(e, ERR_INTERNAL, "guard.json needs %zu bytes", w.len);
    if (file_join(path, e, "%s/guard.json", job_dir) < 0) return -1;
    return file_write(path, text, (size_t)n, e) < 0 ? -1 : file_sync_dir(job_dir, e);
}

static int parse_marks(struct jread *j, struct guard *g)
{
    enum jtok t;
    int64_t step;
    if (jread_next(j) != J_ARRAY) return -1;
    while ((t = jread_next(j)) == J_NUMBER) {
        if (jread_int(j, &step) < 0 || step < 0) return -1;
        if (guard_marked(g, step)) continue;
        if (g->n_marks == GUARD_MARKS) return -1;
        g->mark[g->n_marks++] = step;
    }
    return t == J_ARRAY_END ? 0 : -1;
}

static int parse(const char *text, size_t size, struct guard *g)
{
    struct jread j;
    enum jtok t;
    int64_t version = 0, rollbacks = -1;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return -1;
    while ((t = jread_next(&j)) == J_KEY) {
        if (jread_is(&j, "version")) {
            if (jread_next(&j) != J_NUMBER || jread_int(&j, &version) < 0) return -1;
        } else if (jread_is(&j, "rollbacks")) {
            if (jread_next(&j) != J_NUMBER || jread_int(&j, &rollbacks) < 0) return -1;
        } else if (jread_is(&j, "marks")) {
            if (parse_marks(&j, g) < 0) return -1;
        } else if (jread_skip(&j) < 0) {
            return -1;
        }
    }
    if (t != J_OBJECT_END || jread_next(&j) != J_END || version != 1 || rollbacks < 0) return -1;
    if (rollbacks > g->state.rollbacks) g->state.rollbacks = rollbacks;
    return 0;
}

int guard_load(struct guard *g, const char *job_dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size;
    if (file_join(path, e, "%s/guard.json", job_dir) < 0) return -1;
    if (!file_exists(path)) return 0;
    char *text = file_read(path, 1 << 20, &size, e);
    if (!text) return -1;
    const int rc = parse(text, size, g);
    free(text);
    return rc < 0 ? err_set(e, ERR_CORRUPT, "%s is no record of rollbacks: remove it", path) : 0;
}
