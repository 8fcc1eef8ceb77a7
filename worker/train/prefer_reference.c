/* prefer_reference.c: lists the samples that are drawn, runs them forward, and sums the losses of
 * their answers over ranks. */
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
    const struct train_source *source;
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
    const struct train_source *s = p->source;
    const int64_t most = r->n_drawn < r->n_different ? r->n_drawn : r->n_different;
    uint8_t *seen = calloc((size_t)r->n_documents + 1, 1);
    int rc = 0;
    p->sample = malloc((size_t)(most + 1) * sizeof *p->sample);
    if (!seen || !p->sample)
        rc = err_set(e, ERR_IO, "out of memory for %lld samples", (long long)most);
    for (int64_t n = 0; !rc && n < r->n_drawn && p->n < most; n++) {
        struct data_answer a[2];
        if ((rc = s->pair(s->arg, n, 0, a, e))) break;
        if (seen[a->document - r->first_document]) continue;
        seen[a->document - r->first_document] = 1;
        p->sample[p->n++] = n;
    }
    free(seen);
    return rc;
}

static void keep_pair(void *arg, const struct data_answer a[2], const double nll[2])
{
    const struct prefer_reference *r = arg;
    for (int j = 0; j < 2; j++) r->reference[a[j].document] = -nll[j];
}

/* Keeps the references of the answers of the sample in the model's batch. */
static int keep_answers(struct reference_pass *p, struct err *e)
{
    const struct prefer_visit visit = {keep_pair, p->r};
    const int64_t n = prefer_each(p->f, p->source, &visit, e);
    if (n < 0) return -1;
    plan_met_pairs(p->plan, n, p->want);
    return 0;
}

static int one_sample(struct reference_pass *p, int64_t sample, struct err *e)
{
    const struct train_source *s = p->source;
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
    return pipe_last(&p->plan->pipe) ? keep_answers(p, e) : 0;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* Gives every rank the references of all rings. The first rank of each ring contributes. */
static int share(struct reference_pass *p, struct err *e)
{
    enum { MOST = 2 * PLAN_PAIRS_AT_ONCE };
    struct model *m = p->m;
    double *x = p->r->reference + p->r->first_document;
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
    const struct train_source *s = p->source;
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

struct drawn {
    int64_t first;
    uint8_t *is; /* by document, from the first on */
};

static int mark(void *arg, const struct data_answer a[2], struct err *e)
{
    const struct drawn *d = arg;
    (void)e;
    d->is[a[0].document - d->first] = d->is[a[1].document - d->first] = 1;
    return 0;
}

/* Sets the references of all documents that are not drawn to NaN. */
static int forget_others(struct reference_pass *p, struct err *e)
{
    const struct prefer_reference *r = p->r;
    struct drawn d = {r->first_document, calloc((size_t)r->n_documents + 1, 1)};
    if (!d.is)
        return err_set(e, ERR_IO, "out of memory for %lld documents", (long long)r->n_documents);
    const int rc = each_pair(p, mark, &d, e);
    for (int64_t i = 0; !rc && i < r->n_documents; i++)
        if (!d.is[i]) r->reference[r->first_document + i] = NAN;
    free(d.is);
    return rc;
}

static int check_finite(struct reference_pass *p, struct err *e)
{
    const struct prefer_reference *r = p->r;
    for (int64_t i = r->first_document; i < r->first_document + r->n_documents; i++)
        if (!isfinite(r->reference[i]))
            return finite_blame(p->m, NULL, e, "the reference of document %lld", (long long)i);
    return 0;
}

/* Computes this ring's samples, one in each round. In the last round this ring may have no sample,
 * while the other rings need the weights that it holds. */
static int run_rounds(struct reference_pass *p, struct err *e)
{
    const int64_t dp = p->plan->dp, ring = p->m->ring;
    const double done = progress_done(p->r->progress);
    for (int64_t i = 0; i < p->n; i += dp) {
        const int64_t end = i + dp < p->n ? i + dp : p->n;
        if (i + ring < end ? one_sample(p, p->sample[i + ring], e) : model_lend(p->m, e)) return -1;
        progress_at(p->r->progress, done + (double)end);
    }
    return 0;
}

static int run(struct reference_pass *p, struct err *e)
{
    const struct plan_reference x = {p->m->sp.shard.S, p->n, p->r->n_documents};
    if (plan_reference_comm(&p->m->shape, p->plan, p->r->rank, &x, p->want, e)) return -1;
    return run_rounds(p, e) || share(p, e) || check_finite(p, e) || compare(p, e) ||
                   forget_others(p, e)
               ? -1
               : 0;
}

static struct reference_pass pass_of(struct prefer *f, struct prefer_reference *r)
{
    return (struct reference_pass){.f = f,
                                   .source = r->source ? r->source : f->source,
                                   .m = f->model,
                                   .plan = f->model->plan,
                                   .r = r};
}

int64_t prefer_reference_samples(struct prefer *f, struct prefer_reference *r, struct err *e)
{
    struct reference_pass p = pass_of(f, r);
    const int rc = list_samples(&p, e);
    free(p.sample);
    return rc ? -1 : p.n;
}

int prefer_reference_run(struct prefer *f, struct prefer_reference *r, struct err *e)
{
    struct model *m = f->model;
    struct reference_pass p = pass_of(f, r);
    const int64_t S = m->sp.shard.S;
    memset(r->reference + r->first_document, 0, (size_t)r->n_documents * sizeof *r->reference);
    if (model_set_seq(m, r->seq_len ? r->seq_len : S, e)) return -1;
    if (m->job) comm_ledger_reset(m->job);
    model_use_base(m, !mutant_on(MUTANT_REFERENCE_TUNED));
    const int rc = list_samples(&p, e) || run(&p, e) ? -1 : 0;
    model_use_base(m, false);
    free(p.sample);
    return rc ? -1 : model_set_seq(m, S, e);
}

struct complete {
    const double *reference;
    bool is;
};

/* Notes whether an answer of the pair has no reference. */
static int look(void *arg, const struct data_answer a[2], struct err *e)
{
    struct complete *c = arg;
    (void)e;
    c->is = c->is && !isnan(c->reference[a[0].document]) && !isnan(c->reference[a[1].document]);
    return 0;
}

int prefer_reference_complete(struct prefer *f, struct prefer_reference *r, struct err *e)
{
    struct reference_pass p = pass_of(f, r);
    struct complete c = {r->reference, true};
    const int rc = list_samples(&p, e) || each_pair(&p, look, &c, e) ? -1 : 0;
    free(p.sample);
    return rc ? -1 : c.is;
}
