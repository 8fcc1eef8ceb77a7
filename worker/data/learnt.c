/* data_order_learnt: counts the tokens that may be targets, after documents were split,
 * truncated or dropped, and packed. data_alike: compares the two documents of each pair. */
#include "worker/data/order.h"

/* Counts the tokens in [token, token + n) that may be targets. Returns -1 with the errors of
 * data_read_mask. */
static int64_t may_be_learnt(const struct data *d, int64_t token, int64_t n, struct err *e)
{
    uint8_t learn[4096];
    int64_t sum = 0;
    if (!data_masked(d)) return n;
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < (int64_t)sizeof learn ? n - i : (int64_t)sizeof learn;
        if (data_read_mask(d, token + i, m, learn, e) < 0) return -1;
        for (int64_t k = 0; k < m; k++) sum += learn[k];
    }
    return sum;
}

/* Counts the targets in a part of a document. For a causal model the first token is not a
 * target. */
static int64_t of_part(const struct data_order *o, int64_t token, int64_t n, struct err *e)
{
    const int64_t first = o->options.causal ? 1 : 0;
    return n > first ? may_be_learnt(o->data, token + first, n - first, e) : 0;
}

static int add_samples(const struct data_order *o, int stream, int64_t *tokens, struct err *e)
{
    const struct pack *p = &o->stream[stream];
    for (int64_t i = 0; i < p->stats.n_samples; i++) {
        struct sample s = {.stream = stream};
        pack_sample(p, i, &s);
        for (int64_t k = 0; k < s.n_fragments; k++) {
            struct fragment f;
            pack_fragment(p, &s, k, &f);
            const int64_t n = of_part(o, f.token, f.length, e);
            if (n < 0) return -1;
            *tokens += n;
        }
    }
    return 0;
}

/* Counts the documents that have no targets because they were truncated. */
static int add_cut(const struct data_order *o, const struct pack *p, int64_t *cut, struct err *e)
{
    const uint64_t *ends = data_documents(o->data);
    const int64_t S = o->options.seq_len;
    for (int64_t i = 0; p->stats.truncated_documents && i < p->o.n_documents; i++) {
        const int64_t d = p->o.first_document + i, begin = d ? (int64_t)ends[d - 1] : 0;
        const int64_t length = (int64_t)ends[d] - begin;
        if (length <= S) continue;
        const int64_t kept = of_part(o, begin, S, e);
        const int64_t all = kept ? kept : of_part(o, begin, length, e);
        if (kept < 0 || all < 0) return -1;
        *cut += !kept && all;
    }
    return 0;
}

int data_order_learnt(const struct data_order *o, struct order_learnt *out, struct err *e)
{
    *out = (struct order_learnt){0};
    for (int i = 0; i < o->n_streams; i++) {
        const struct order_stats *s = &o->stream[i].stats;
        if (!data_masked(o->data))
            out->tokens += s->n_tokens - (o->options.causal ? s->n_fragments : 0);
        else if (add_samples(o, i, &out->tokens, e) < 0 ||
                 add_cut(o, &o->stream[i], &out->cut_off, e) < 0)
            return -1;
    }
    return 0;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Compares the documents that begin at tokens a and b, over n tokens. *same becomes the number of
 * tokens before the first difference. *learnt tells whether one of these, or one at the first
 * difference, may be a target. */
static int compare(const struct data *d, int64_t a, int64_t b, int64_t n, int64_t *same,
                   bool *learnt, struct err *e)
{
    enum { MOST = 1024 };
    int32_t x[MOST], y[MOST];
    uint8_t p[MOST], q[MOST];
    *learnt = false;
    for (*same = 0; *same < n;) {
        const int64_t at = *same, m = n - at < MOST ? n - at : MOST;
        if (data_read(d, a + at, m, x, e) || data_read(d, b + at, m, y, e) ||
            data_read_mask(d, a + at, m, p, e) || data_read_mask(d, b + at, m, q, e))
            return -1;
        for (int64_t i = 0; i < m; i++) {
            *learnt = *learnt || p[i] || q[i];
            if (x[i] != y[i]) return 0;
            ++*same;
        }
    }
    return 0;
}

int data_alike(const struct data *d, struct data_alike *out, struct err *e)
{
    const uint64_t *ends = data_documents(d);
    *out = (struct data_alike){.pairs = data_stats(d)->n_documents / 2};
    for (int64_t k = 0; k < out->pairs; k++) {
        const int64_t a = k ? (int64_t)ends[2 * k - 1] : 0, b = (int64_t)ends[2 * k];
        const int64_t n_a = b - a, n_b = (int64_t)ends[2 * k + 1] - b, n = n_a < n_b ? n_a : n_b;
        int64_t same;
        bool learnt;
        if (compare(d, a, b, n, &same, &learnt, e)) return -1;
        out->equal += same == n && n_a == n_b;
        out->apart += same < n && !learnt;
    }
    return 0;
}
