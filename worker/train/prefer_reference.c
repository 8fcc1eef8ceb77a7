/* prefer_reference.c: lists the samples that the steps draw, runs them forward, and sums the losses
 * of their answers over ranks. */
#include "worker/train/prefer_reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/mutant.h"
#include "worker/comm/ledger.h"
#include "worker/model/finite.h"
#include "worker/train/train.h"

struct reference_pass {
    struct prefer *f;
    struct model *m;
    const struct plan *plan;
    struct prefer_reference *r;
    int64_t *sample; /* owned [n]: the first draw of each sample that is drawn */
    int64_t n;
    struct comm_count want[PURPOSE_N]; /* expected counts of this rank */
};

/* ---- samples --------------------------------------------------------------------------------- */

/* Lists each sample once. Samples are told apart by their first document, because no document is
 * in two samples. */
static int list_samples(struct reference_pass *p, struct err *e)
{
    const struct prefer_reference *r = p->r;
    const struct train_source *s = p->f->source;
    const int64_t most = r->n_drawn < r->n_different ? r->n_drawn : r->n_different;
    uint8_t *seen = calloc((size_t)r->n_documents + 1, 1);
    int rc = 0;
    p->sample = malloc((size_t)(most + 1) * sizeof *p->sample);
    if (!seen || !p->sample)
        rc = err_set(e, ERR_IO, "out of memory for %lld samples", (long long)most);
    for (int64_t n = 0; !rc && n < r->n_drawn && p->n < most; n++) {
        struct data_answer a[2];
        if ((rc = s->pair(s->arg, n, 0, a, e))) break;
        if (seen[a->document]) continue;
        seen[a->document] = 1;
        p->sample[p->n++] = n;
    }
    free(seen);
    return rc;
}

/* Sums the nll of the answers of a sample over the ranks that hold it, and keeps the result if this
 * rank is the first of them. */
static int keep_answers(struct reference_pass *p, int64_t sample, struct err *e)
{
    const struct train_source *s = p->f->source;
    const int64_t n = s->targets(s->arg, sample, e);
    struct data_answer a[PLAN_PAIRS_AT_ONCE][2];
    double nll[2 * PLAN_PAIRS_AT_ONCE];
    if (n < 0) return -1;
    plan_met_pairs(p->plan, n, p->want);
    for (int64_t k = 0; k < n; k += PLAN_PAIRS_AT_ONCE) {
        const int some = n - k < PLAN_PAIRS_AT_ONCE ? (int)(n - k) : PLAN_PAIRS_AT_ONCE;
        if (prefer_sum_answers(p->f, s, k, some, a, nll, e)) return -1;
        for (int i = 0; i < 2 * some; i++) p->r->reference[a[i / 2][i % 2].document] = -nll[i];
    }
    return 0;
}

static int one_sample(struct reference_pass *p, int64_t sample, struct err *e)
{
    const struct train_source *s = p->f->source;
    struct model *m = p->m;
    double nll;
    if (p->r->stopped && p->r->stopped(p->r->arg))
        return err_set(e, ERR_ABORTED, "stopped on request while references were computed");
    if (s->batch(s->arg, &m->sp.shard, sample, &m->batch, e)) return -1;
    plan_met_forward(&m->shape, p->plan, &m->sp.shard, &m->batch.reach, p->want);
    if (p->plan->pp > 1) {
        if (model_pipe_score(m, &m->batch, &nll, e)) return -1;
    } else if (model_forward(m, &m->batch, e) || model_nll(m, &m->batch, &nll, e)) {
        return -1;
    }
    return pipe_last(&p->plan->pipe) ? keep_answers(p, sample, e) : 0;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* Gives every rank the references of all rings. The first rank of each ring contributes. */
static int share(struct reference_pass *p, struct err *e)
{
    enum { MOST = 2 * PLAN_PAIRS_AT_ONCE };
    struct model *m = p->m;
    double *x = p->r->reference;
    const int64_t n = p->r->n_documents;
    const bool rings = p->plan->dp > 1 && !mutant_on(MUTANT_REFERENCE_ALONE);
    const bool last = pipe_last(&p->plan->pipe);
    if (rings && (m->rank || m->tensor_rank)) memset(x, 0, (size_t)n * sizeof *x);
    for (int64_t i = 0; rings && last && i < n; i += MOST)
        if (comm_sum_f64(m->all, PURPOSE_LOSS, x + i, n - i < MOST ? (int)(n - i) : MOST, m->bounce,
                         e))
            return -1;
    for (int64_t i = 0; i < n; i += MOST)
        if (model_pipe_share(m, x + i, n - i < MOST ? (int)(n - i) : MOST, e)) return -1;
    return 0;
}

/* Compares the ledger with the plan, and sums the result over all ranks. The messages of this sum
 * itself are compared after it, and the result is part of the sum in the first step. */
static int compare(struct reference_pass *p, struct err *e)
{
    struct comm *c = p->m->job;
    p->r->ledger_equal = p->r->control_equal = true;
    if (!c) return 0;
    int64_t n_ok = ledger_equals(comm_ledger(c), p->want, 1u << PURPOSE_CONTROL);
    if (comm_sum_i64(c, PURPOSE_CONTROL, &n_ok, 1, p->m->bounce, e)) return -1;
    p->r->ledger_equal = n_ok == p->plan->n_ranks;
    p->r->control_equal = ledger_equal(&comm_ledger(c)[PURPOSE_CONTROL], &p->want[PURPOSE_CONTROL]);
    return 0;
}

/* Calls fn with each pair of the samples that are drawn. */
static int each_pair(const struct reference_pass *p,
                     int (*fn)(void *arg, const struct data_answer a[2], struct err *e), void *arg,
                     struct err *e)
{
    const struct train_source *s = p->f->source;
    for (int64_t i = 0; i < p->n; i++) {
        const int64_t n = s->targets(s->arg, p->sample[i], e);
        if (n < 0) return -1;
        for (int64_t k = 0; k < n; k++) {
            struct data_answer a[2];
            if (s->pair(s->arg, p->sample[i], k, a, e) || fn(arg, a, e)) return -1;
        }
    }
    return 0;
}

static int mark(void *arg, const struct data_answer a[2], struct err *e)
{
    uint8_t *drawn = arg;
    (void)e;
    drawn[a[0].document] = drawn[a[1].document] = 1;
    return 0;
}

/* Sets the references of all documents that no step draws to NaN. */
static int forget_others(struct reference_pass *p, struct err *e)
{
    const struct prefer_reference *r = p->r;
    uint8_t *drawn = calloc((size_t)r->n_documents + 1, 1);
    if (!drawn)
        return err_set(e, ERR_IO, "out of memory for %lld documents", (long long)r->n_documents);
    const int rc = each_pair(p, mark, drawn, e);
    for (int64_t i = 0; !rc && i < r->n_documents; i++)
        if (!drawn[i]) r->reference[i] = NAN;
    free(drawn);
    return rc;
}

static int check_finite(struct reference_pass *p, struct err *e)
{
    for (int64_t i = 0; i < p->r->n_documents; i++)
        if (!isfinite(p->r->reference[i]))
            return finite_blame(p->m, NULL, e, "the reference of document %lld", (long long)i);
    return 0;
}

static int run(struct reference_pass *p, struct err *e)
{
    const struct model *m = p->m;
    const int64_t dp = p->plan->dp;
    const struct plan_reference x = {m->sp.shard.S, p->n, p->r->n_documents};
    if (plan_reference_comm(&m->shape, p->plan, p->r->rank, &x, p->want, e)) return -1;
    for (int64_t i = m->ring; i < p->n; i += dp)
        if (one_sample(p, p->sample[i], e)) return -1;
    /* In the last round this ring may have no sample, while the other rings need the weights that
     * it holds. */
    if (p->n % dp && m->ring >= p->n % dp && model_lend(p->m, e)) return -1;
    return share(p, e) || check_finite(p, e) || compare(p, e) || forget_others(p, e) ? -1 : 0;
}

int prefer_reference_run(struct prefer *f, struct prefer_reference *r, struct err *e)
{
    struct model *m = f->model;
    struct reference_pass p = {.f = f, .m = m, .plan = m->plan, .r = r};
    memset(r->reference, 0, (size_t)r->n_documents * sizeof *r->reference);
    if (m->job) comm_ledger_reset(m->job);
    model_use_base(m, !mutant_on(MUTANT_REFERENCE_TUNED));
    const int rc = list_samples(&p, e) || run(&p, e) ? -1 : 0;
    model_use_base(m, false);
    free(p.sample);
    return rc;
}

static int has_both(void *arg, const struct data_answer a[2], struct err *e)
{
    const struct prefer_reference *r = arg;
    if (!isnan(r->reference[a[0].document]) && !isnan(r->reference[a[1].document])) return 0;
    return err_field(e, ERR_CONFLICT, "train.steps",
                     "train.steps draws pairs whose references were not computed before the first "
                     "step of the job that this one continues: leave train.steps, "
                     "train.global_batch and the data as they were, or start from the weights of "
                     "the checkpoint in model.path");
}

int prefer_reference_check(struct prefer *f, struct prefer_reference *r, struct err *e)
{
    struct reference_pass p = {.f = f, .r = r};
    const int rc = list_samples(&p, e) || each_pair(&p, has_both, r, e) ? -1 : 0;
    free(p.sample);
    return rc;
}
