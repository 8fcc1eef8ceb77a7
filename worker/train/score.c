#include "worker/train/score.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/core/jwrite.h"
#include "worker/comm/ledger.h"

double score_ppl(const struct score_sum *s)
{
    return s->n_targets ? exp(s->nll / (double)s->n_targets) : (double)NAN;
}

double score_bits_per_byte(const struct score_sum *s)
{
    return s->n_bytes ? s->nll / M_LN2 / (double)s->n_bytes : (double)NAN;
}

/* Rank 0's reading of the text, document by document across windows. */
struct scorer {
    const struct infer *in;
    const struct data *d;
    struct data_order *order; /* owned: windows in file order */
    int32_t *ids;             /* [S] tokens of the window, on rank 0 */
    uint8_t *learn;           /* [S] which of them may be targets */
    double *rows;             /* [P * T] gathered, rank order */
    double *nll;              /* [P * T] by position in the window */
    int64_t S;
    int64_t document;     /* the one being read */
    struct score_sum sum; /* of that one */
    struct artifact out;
};

static int finish_document(struct scorer *s, struct score *out, struct err *e)
{
    char line[512];
    struct jwrite w;
    jwrite_init(&w, line, sizeof line - 1);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "document", s->document);
    jwrite_double(&w, "nll", s->sum.nll);
    jwrite_int(&w, "tokens", s->sum.n_targets);
    jwrite_int(&w, "bytes", s->sum.n_bytes);
    jwrite_double(&w, "ppl", score_ppl(&s->sum));
    jwrite_double(&w, "bits_per_byte", score_bits_per_byte(&s->sum));
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    assert(n > 0);
    line[n] = '\n';
    out->total.nll += s->sum.nll;
    out->total.n_targets += s->sum.n_targets;
    out->total.n_bytes += s->sum.n_bytes;
    s->sum = (struct score_sum){0};
    s->document++;
    return artifact_write(&s->out, line, (size_t)n + 1, e);
}

/* From rank order to the order of the text. */
static int put_in_order(struct scorer *s, struct err *e)
{
    const struct model *m = s->in->model;
    const struct plan *p = m->plan;
    int64_t T = m->sp.shard.T;
    for (int q = 0; q < p->n_ranks; q++) {
        struct shard sh;
        if (shard_init(&sh, s->S, p->n_ranks, q, p->layout, p->rank_bits, e)) return -1;
        for (int64_t i = 0; i < T; i++) {
            int64_t pos = shard_pos(&sh, i);
            if (pos < s->S) s->nll[pos] = s->rows[q * T + i];
        }
    }
    return 0;
}

/* Adds the window's targets to their documents; writes those that end here. n_targets: what the
 * batch said it has. */
static int read_window(struct scorer *s, int64_t window, int64_t n_targets, struct score *out,
                       struct err *e)
{
    const uint64_t *ends = data_documents(s->d);
    int64_t first = window * s->S, n = data_stats(s->d)->n_tokens - first, seen = 0;
    if (n > s->S) n = s->S;
    if (put_in_order(s, e) || data_read(s->d, first, n, s->ids, e) ||
        data_read_mask(s->d, first, n, s->learn, e))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t end = (int64_t)ends[s->document];
        if (first + i + 1 < end && i + 1 < n && s->learn[i + 1]) {
            seen++;
            s->sum.nll += s->nll[i];
            s->sum.n_targets++;
            s->sum.n_bytes += s->ids[i + 1] < 256;
        }
        if (first + i + 1 == end && finish_document(s, out, e)) return -1;
    }
    if (seen != n_targets)
        return err_set(e, ERR_INTERNAL,
                       "window %lld has %lld targets in the text and %lld in the "
                       "batch",
                       (long long)window, (long long)seen, (long long)n_targets);
    return 0;
}

/* The window's sum over ranks, as the plan counts it. Rank 0 has the rows and does not need it; it
 * is how every rank learns that the loss is a number. */
static int sum_window(struct scorer *s, int64_t window, struct score *out, struct err *e)
{
    struct model *m = s->in->model;
    double nll = model_nll(m, &m->batch);
    if (m->comm) {
        const struct comm_count *got = comm_ledger(m->comm), *want = m->plan->comm;
        if (comm_sum_f64(m->comm, PURPOSE_LOSS, &nll, 1, m->bounce, e)) return -1;
        bool equal = ledger_equal(&got[PURPOSE_RING_KV], &want[PURPOSE_RING_KV]) &&
                     ledger_equal(&got[PURPOSE_LOSS], &want[PURPOSE_LOSS]);
        out->ledger_equal = out->ledger_equal && equal;
    }
    if (isfinite(nll)) return 0;
    return err_field(e, ERR_CORRUPT, "model.path",
                     "the loss of window %lld is not finite: the weights are damaged",
                     (long long)window);
}

static int one_window(struct scorer *s, int64_t window, struct score *out, struct err *e)
{
    struct model *m = s->in->model;
    bool writer = m->sp.shard.r == 0;
    int64_t T = m->sp.shard.T;
    infer_at(s->in, window + 1);
    if (data_batch(s->order, &m->sp.shard, window, &m->batch, e)) return -1;
    if (model_forward(m, &m->batch, e)) return -1;
    if (sum_window(s, window, out, e)) return -1;
    if (!m->comm)
        memcpy(s->rows, m->nll, (size_t)T * sizeof *m->nll);
    else if (comm_gather(m->comm, PURPOSE_CONTROL, 0, m->nll, T * (int64_t)sizeof *m->nll, s->rows,
                         m->bounce, e))
        return -1;
    return writer ? read_window(s, window, m->batch.n_targets, out, e) : 0;
}

int score_run(const struct infer *in, const struct data *d, struct score *out, struct err *e)
{
    struct model *m = in->model;
    struct scorer s = {.in = in, .d = d, .S = m->plan->S};
    bool writer = m->sp.shard.r == 0;
    size_t n_rows = writer ? (size_t)(m->plan->n_ranks * m->sp.shard.T) : 1;
    int rc = -1;
    *out = (struct score){.n_documents = data_stats(d)->n_documents, .ledger_equal = true};
    struct order_options oo = data_order_options(in->spec, SET_TRAIN, s.S);
    oo.in_order = true;
    s.order = data_order_open(d, &oo, e);
    if (!s.order) goto out;
    out->n_windows = data_order_samples(s.order);
    s.rows = calloc(n_rows, sizeof *s.rows);
    s.nll = calloc(n_rows, sizeof *s.nll);
    s.ids = calloc(writer ? (size_t)s.S : 1, sizeof *s.ids);
    s.learn = calloc(writer ? (size_t)s.S : 1, sizeof *s.learn);
    if (!s.rows || !s.nll || !s.ids || !s.learn) {
        err_set(e, ERR_IO, "out of memory for the losses of a window of %lld", (long long)s.S);
        goto out;
    }
    if (writer && artifact_open(&s.out, in->job_dir, "score.jsonl", e)) goto out;
    for (int64_t w = 0; w < out->n_windows; w++)
        if (infer_check_stop(in, e) || one_window(&s, w, out, e)) goto out;
    if (infer_agree(in, &out->ledger_equal, e)) goto out;
    if (writer && artifact_finish(&s.out, e)) goto out;
    out->artifact = s.out.done;
    rc = 0;
out:
    artifact_drop(&s.out);
    data_order_close(s.order);
    free(s.rows);
    free(s.nll);
    free(s.ids);
    free(s.learn);
    return rc;
}
