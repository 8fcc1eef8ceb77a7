/* eval.c: gives each ring every dp-th window, adds the losses of a ring's windows in order, and
 * sums losses and counts over rings. */
#include "worker/train/eval.h"

#include <math.h>
#include <string.h>
#include "worker/comm/ledger.h"
#include "worker/model/finite.h"

double eval_bits_per_byte(const struct eval *v)
{
    return v->n_bytes > 0 ? v->loss * (double)v->targets / M_LN2 / (double)v->n_bytes : (double)NAN;
}

/* The numbers that are summed over windows: the nll and the bytes or, with pairs, the numbers of
 * enum prefer_value. */
enum { NLL, BYTES, TEXT_VALUES };
_Static_assert((int)NLL == (int)PREFER_LOSS && (int)TEXT_VALUES <= (int)PREFER_VALUES,
               "the loss comes first, and there is room");

struct eval_pass {
    const struct eval_args *a;
    int n_values;
    double sum[PREFER_VALUES]; /* whole numbers are exact below 2^53 */
    /* expected counts of this rank, set when the windows are known */
    struct comm_count want[PURPOSE_N];
};

static double count_bytes(const struct model *m)
{
    int64_t n = 0;
    if (m->tensor_rank) return 0; /* only the first rank of parallel.tp counts the rows */
    for (int64_t i = 0; m->batch.targets && i < m->sp.shard.T; i++)
        n += m->batch.targets[i] >= 0 && m->batch.targets[i] < 256;
    return (double)n;
}

/* Tells whether each ring searches by itself for the first value that is NaN or infinite. A ring
 * cannot do that in a pipeline, or if other rings may hold its weights (zero 3). In these cases
 * all ranks search together after the last window. */
static bool ring_looks(const struct train *t)
{
    return t->plan->pp == 1 && (t->plan->zero < 3 || t->plan->dp == 1);
}

/* Sums the values of the pairs of the window in the model's batch, and counts their messages. */
static int score_pairs(struct train *t, struct eval_pass *p, double own[PREFER_VALUES],
                       struct err *e)
{
    const struct train_source *s = &p->a->source;
    const int64_t n = s->targets(s->arg, t->model.batch.sample, e);
    if (n < 0) return -1;
    plan_met_pairs(t->plan, n, p->want);
    return prefer_score(&t->prefer, s, own, e);
}

/* Scores the window in the model's batch, and sets its sums. In a pipeline only the last stage has
 * the sums. */
static int score(struct train *t, struct eval_pass *p, double own[PREFER_VALUES], struct err *e)
{
    struct model *m = &t->model;
    const bool last = pipe_last(&t->plan->pipe);
    if (t->plan->pp > 1) {
        if (model_pipe_score(m, &m->batch, &own[NLL], e)) return -1;
    } else {
        if (model_forward(m, &m->batch, e) || model_nll(m, &m->batch, &own[NLL], e)) return -1;
    }
    if (t->plan->pairs) return last ? score_pairs(t, p, own, e) : 0;
    own[BYTES] = last ? count_bytes(m) : 0;
    if (!m->holders || !last) return 0;
    return comm_sum_f64(m->holders, PURPOSE_LOSS, own, TEXT_VALUES, m->bounce, e);
}

static int one_window(struct train *t, struct eval_pass *p, int64_t w, struct err *e)
{
    const struct eval_args *a = p->a;
    struct model *m = &t->model;
    double own[PREFER_VALUES] = {0};
    if (a->stopped && a->stopped(a->arg))
        return err_set(e, ERR_ABORTED, "stopped on request in the evaluation after step %lld",
                       (long long)t->step);
    if (train_set_grid(t, &a->source, w, true, p->want, e) ||
        a->source.batch(a->source.arg, &m->sp.shard, w, &m->batch, e))
        return -1;
    if (score(t, p, own, e)) return -1;
    if (!isfinite(own[NLL]) && ring_looks(t))
        return finite_blame_forward(m, e, "the loss of held-out sequence %lld after step %lld",
                                    (long long)w, (long long)t->step);
    for (int i = 0; i < p->n_values; i++) p->sum[i] += own[i];
    return 0;
}

/* Adds the sums of all rings. The first rank of each ring contributes the ring's sum, and all
 * further ranks of the ring contribute 0. */
static int sum_rings(struct train *t, struct eval_pass *p, struct err *e)
{
    struct model *m = &t->model;
    if (t->plan->dp > 1 && pipe_last(&t->plan->pipe)) {
        if (m->rank || m->tensor_rank) memset(p->sum, 0, sizeof p->sum);
        if (comm_sum_f64(m->all, PURPOSE_LOSS, p->sum, p->n_values, m->bounce, e)) return -1;
    }
    return model_pipe_share(m, p->sum, p->n_values, e);
}

/* Compares the ledger with the plan, and sums the result over all ranks. The messages of this sum
 * are compared in the next step, as in a training step. */
static int compare(struct train *t, const struct comm_count *want, bool *equal, struct err *e)
{
    struct comm *c = t->model.job;
    *equal = true;
    if (!c) return 0;
    int64_t n_ok = ledger_equals(comm_ledger(c), want, 1u << PURPOSE_CONTROL);
    if (comm_sum_i64(c, PURPOSE_CONTROL, &n_ok, 1, t->model.bounce, e)) return -1;
    *equal = n_ok == t->plan->n_ranks;
    if (!ledger_equal(&comm_ledger(c)[PURPOSE_CONTROL], &want[PURPOSE_CONTROL]))
        t->others_ok = false;
    return 0;
}

static int64_t rings_of_last_round(const struct train *t, const struct eval_args *a)
{
    const int64_t left = a->n_windows % t->plan->dp;
    return left ? left : t->plan->dp;
}

static int run(struct train *t, const struct eval_args *a, struct eval *out, struct err *e)
{
    struct comm *c = t->model.job;
    struct eval_pass p = {.a = a, .n_values = t->plan->pairs ? PREFER_VALUES : TEXT_VALUES};
    memcpy(p.want, a->want, sizeof p.want);
    if (c) comm_ledger_reset(c);
    for (int64_t w = 0; w < a->n_windows; w++) {
        const int64_t n = a->source.targets(a->source.arg, w, e);
        if (n < 0) return -1;
        out->targets += n;
        const int64_t bytes = a->source.bytes ? a->source.bytes(a->source.arg, w, e) : 0;
        if (bytes < 0) return -1;
        out->n_bytes += bytes;
        if (w % t->plan->dp == t->model.ring && one_window(t, &p, w, e)) return -1;
    }
    /* In the last round this ring may have no window, while the other rings need the weights that
     * it holds. */
    if (t->model.ring >= rings_of_last_round(t, a) && model_lend(&t->model, e)) return -1;
    if (sum_rings(t, &p, e)) return -1;
    if (!isfinite(p.sum[NLL]))
        return finite_blame(&t->model, NULL, e, "the held-out loss after step %lld",
                            (long long)t->step);
    if (compare(t, p.want, &out->ledger_equal, e)) return -1;
    out->windows = a->n_windows;
    out->loss = out->targets > 0 ? p.sum[NLL] / (double)out->targets : (double)NAN;
    for (int i = 0; t->plan->pairs && i < PREFER_VALUES; i++)
        out->preference[i] = p.sum[i] / (double)out->targets;
    if (!t->plan->pairs && !a->source.bytes) out->n_bytes = (int64_t)p.sum[BYTES];
    return 0;
}

int eval_run(struct train *t, const struct eval_args *a, struct eval *out, struct err *e)
{
    const int64_t S = t->model.sp.shard.S;
    *out = (struct eval){0};
    /* If the source has grids, the model is set for every sample when the sample is computed. */
    if (a->source.grid) return run(t, a, out, e);
    if (model_set_seq(&t->model, a->seq_len, e)) return -1;
    if (run(t, a, out, e)) return -1;
    return model_set_seq(&t->model, S, e);
}
