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
    struct model *m;
    const struct plan *plan;
    struct prefer_reference *r;
    struct comm_count want[PURPOSE_N]; /* expected counts of this rank */
};

/* ---- samples --------------------------------------------------------------------------------- */

/* Samples are told apart by their first document, because no document is in two samples. */
int prefer_reference_init(struct prefer_reference *r, const struct prefer *f, struct err *e)
{
    const int64_t most = r->n_drawn < r->n_different ? r->n_drawn : r->n_different;
    uint8_t *seen = calloc((size_t)r->n_documents + 1, 1);
    if (!r->source) r->source = f->source;
    r->n_samples = 0;
    r->sample = malloc((size_t)(most + 1) * sizeof *r->sample);
    if (!seen || !r->sample) {
        free(seen);
        return err_set(e, ERR_IO, "out of memory for %lld samples", (long long)most);
    }
    for (int64_t n = 0; n < r->n_drawn && r->n_samples < most; n++) {
        int64_t document[2];
        r->source->documents(r->source->arg, n, 0, document);
        if (seen[document[0] - r->first_document]) continue;
        seen[document[0] - r->first_document] = 1;
        r->sample[r->n_samples++] = n;
    }
    free(seen);
    return 0;
}

void prefer_reference_fini(struct prefer_reference *r)
{
    free(r->sample);
}

/* Calls fn with the documents of each pair of the samples that are drawn. */
static int each_pair(const struct prefer_reference *r,
                     void (*fn)(void *arg, const int64_t document[2]), void *arg, struct err *e)
{
    const struct train_source *s = r->source;
    for (int64_t i = 0; i < r->n_samples; i++) {
        const int64_t n = s->targets(s->arg, r->sample[i], e);
        if (n < 0) return -1;
        for (int64_t k = 0; k < n; k++) {
            int64_t document[2];
            s->documents(s->arg, r->sample[i], k, document);
            fn(arg, document);
        }
    }
    return 0;
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
    const int64_t n = prefer_each(p->f, p->r->source, &visit, e);
    if (n < 0) return -1;
    plan_met_pairs(p->plan, n, p->want);
    return 0;
}

static int one_sample(struct reference_pass *p, int64_t sample, struct err *e)
{
    const struct train_source *s = p->r->source;
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

struct drawn {
    int64_t first;
    uint8_t *is; /* by document, from the first on */
};

static void mark(void *arg, const int64_t document[2])
{
    const struct drawn *d = arg;
    d->is[document[0] - d->first] = d->is[document[1] - d->first] = 1;
}

/* Sets the references of all documents that are not drawn to NaN. */
static int forget_others(const struct reference_pass *p, struct err *e)
{
    const struct prefer_reference *r = p->r;
    struct drawn d = {r->first_document, calloc((size_t)r->n_documents + 1, 1)};
    if (!d.is)
        return err_set(e, ERR_IO, "out of memory for %lld documents", (long long)r->n_documents);
    const int rc = each_pair(r, mark, &d, e);
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
    const int64_t n = p->r->n_samples, *sample = p->r->sample;
    for (int64_t i = 0; i < n; i += dp) {
        const int64_t end = i + dp < n ? i + dp : n;
        if (i + ring < end ? one_sample(p, sample[i + ring], e) : model_lend(p->m, e)) return -1;
        progress_at(p->r->progress, done + (double)end);
    }
    return 0;
}

static int run(struct reference_pass *p, struct err *e)
{
    const struct plan_reference x = {p->m->sp.shard.S, p->r->n_samples, p->r->n_documents};
    if (plan_reference_comm(&p->m->shape, p->plan, p->r->rank, &x, p->want, e)) return -1;
    return run_rounds(p, e) || share(p, e) || check_finite(p, e) || compare(p, e) ||
                   forget_others(p, e)
               ? -1
               : 0;
}

int prefer_reference_run(struct prefer *f, struct prefer_reference *r, struct err *e)
{
    struct model *m = f->model;
    struct reference_pass p = {.f = f, .m = m, .plan = m->plan, .r = r};
    const int64_t S = m->sp.shard.S;
    memset(r->reference + r->first_document, 0, (size_t)r->n_documents * sizeof *r->reference);
    if (model_set_seq(m, r->seq_len ? r->seq_len : S, e)) return -1;
    if (m->job) comm_ledger_reset(m->job);
    model_use_base(m, !mutant_on(MUTANT_REFERENCE_TUNED));
    const int rc = run(&p, e);
    model_use_base(m, false);
    return rc ? -1 : model_set_seq(m, S, e);
}

struct complete {
    const double *reference;
    bool is;
};

/* Notes whether an answer of the pair has no reference. */
static void look(void *arg, const int64_t document[2])
{
    struct complete *c = arg;
    c->is = c->is && !isnan(c->reference[document[0]]) && !isnan(c->reference[document[1]]);
}

int prefer_reference_complete(const struct prefer_reference *r, struct err *e)
{
    struct complete c = {r->reference, true};
    return each_pair(r, look, &c, e) ? -1 : c.is;
}
