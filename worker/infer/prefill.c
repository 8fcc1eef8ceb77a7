/* prefill.c: runs the passes over prompts, gathers the log-probabilities of echoed prompts, and
 * counts the messages that a prompt should cause. */
#include "worker/infer/prefill.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/model/finite.h"
#include "worker/plan/paged.h"
#include "worker/plan/volume.h"

/* Tokens of a prompt that a pass computes, and the rows that this rank has of them. */
struct prefill_span {
    int64_t pos, n; /* positions [pos, pos + n) */
    int64_t T;      /* number of rows of each rank, of which some may be padding */
};

static bool wants_logprobs(const struct request *r)
{
    return r->echo && r->logprobs >= 0;
}

/* Returns the position of row i of rank q, or a position beyond the span if the row is padding. */
static int64_t span_pos(const struct model *m, const struct prefill_span *s, int q, int64_t i)
{
    const int P = m->plan->sp;
    if (m->plan->paged) return paged_pos(P, q, paged_before(P, q, s->pos) + i);
    const struct shard sh = shard_of(&m->sp.shard, q);
    return shard_pos(&sh, i);
}

static bool in_span(const struct prefill_span *s, int64_t pos)
{
    return pos < s->pos + s->n;
}

/* ---- progress -------------------------------------------------------------------------------- */

double prefill_part(const struct request *r)
{
    return (double)r->n_tokens / (double)(r->n_tokens + r->n * r->max_tokens);
}

void prefill_done_part(const struct infer *in, struct infer_work *w, double part)
{
    if (part <= w->part) return;
    progress_add(in->progress, part - w->part);
    w->part = part;
}

/* ---- the log-probabilities of a prompt ------------------------------------------------------- */

/* Returns the size of the record of one row. A record describes the token after the row: it has a
 * double, followed by the alternatives. */
static size_t record_size(int n_top)
{
    return sizeof(double) + (size_t)n_top * sizeof(struct sample_top);
}

/* Makes the record of a row, whose logits are in w->logits. Returns false if the log-probability of
 * the next token is NaN or infinite. */
static bool record_row(struct infer_work *w, const struct request *r, int64_t pos, char *to)
{
    struct sample_top top[SAMPLE_TOP];
    double chosen;
    sample_logprobs(w->logits, w->sampler.n_vocab, r->tokens[pos + 1], &chosen, r->logprobs, top);
    memcpy(to, &chosen, sizeof chosen);
    memcpy(to + sizeof chosen, top, (size_t)r->logprobs * sizeof *top);
    return isfinite(chosen);
}

/* Makes the records of this rank's rows. If no token comes after a row, the record of the row
 * remains zero. Returns the index of the first token whose log-probability is NaN or infinite. */
static int64_t record_rows(const struct infer *in, struct infer_work *w,
                           const struct prefill_span *s, char *records)
{
    struct model *m = in->model;
    const struct request *r = &w->request;
    const int64_t V = m->shape.vocab, step = m->plan->loss_chunk;
    int64_t bad = FINITE_NONE;
    for (int64_t row0 = 0; row0 < s->T; row0 += step) {
        const int64_t n = row0 + step < s->T ? step : s->T - row0;
        const struct tensor logits = model_logits(m, row0, n);
        for (int64_t i = 0; i < n; i++) {
            const int64_t pos = span_pos(m, s, m->sp.shard.r, row0 + i);
            char *to = records + (size_t)(row0 + i) * record_size(r->logprobs);
            if (!in_span(s, pos) || pos + 1 >= r->n_tokens) continue;
            m->be->ops->download(m->be, w->logits, (float *)logits.data + i * logits.ld,
                                 V * (int64_t)sizeof(float));
            if (!record_row(w, r, pos, to) && pos + 1 < bad) bad = pos + 1;
        }
    }
    return bad;
}

/* Makes room for the log-probabilities of the whole prompt. */
static int open_records(const struct request *r, struct infer_tokens *out, struct err *e)
{
    const size_t n = (size_t)r->n_tokens;
    if (out->id) return 0;
    *out = (struct infer_tokens){.n = r->n_tokens, .n_top = r->logprobs};
    out->id = malloc(n * sizeof *out->id);
    out->logprob = calloc(n, sizeof *out->logprob);
    out->top = calloc(n * (size_t)r->logprobs + 1, sizeof *out->top);
    if (!out->id || !out->logprob || !out->top)
        return err_set(e, ERR_IO, "out of memory for the prompt's log-probabilities");
    memcpy(out->id, r->tokens, n * sizeof *out->id);
    return 0;
}

/* Copies records from the order of the ranks into the order of the prompt's tokens. */
static int order_records(const struct infer *in, const struct request *r,
                         const struct prefill_span *s, const char *records,
                         struct infer_tokens *out, struct err *e)
{
    const struct model *m = in->model;
    if (open_records(r, out, e)) return -1;
    for (int q = 0; q < m->plan->sp; q++)
        for (int64_t i = 0; i < s->T; i++) {
            const int64_t pos = span_pos(m, s, q, i), at = pos + 1;
            const char *from = records + (size_t)(q * s->T + i) * record_size(r->logprobs);
            if (!in_span(s, pos) || at >= r->n_tokens) continue;
            memcpy(&out->logprob[at], from, sizeof(double));
            memcpy(&out->top[at * r->logprobs], from + sizeof(double),
                   (size_t)r->logprobs * sizeof *out->top);
        }
    return 0;
}

/* Fails because the log-probability of token `bad` is NaN or infinite. */
static int blame_logprob(const struct infer *in, const struct infer_work *w, int64_t bad,
                         struct err *e)
{
    struct prefill_again x = {in, w};
    return finite_blame(in->model, &(struct finite_again){prefill_again, &x}, e,
                        "the log-probability of token %lld of prompt %s", (long long)bad,
                        w->request.id);
}

/* Gathers the log-probabilities of a span of the prompt on rank 0. Collective. */
static int gather_logprobs(const struct infer *in, struct infer_work *w,
                           const struct prefill_span *s, char *own, char *all, struct err *e)
{
    struct model *m = in->model;
    const struct request *r = &w->request;
    const int64_t mine = s->T * (int64_t)record_size(r->logprobs);
    memset(own, 0, (size_t)mine);
    int64_t bad = record_rows(in, w, s, own);
    if (finite_least(m, &bad, e)) return -1;
    if (bad != FINITE_NONE) return blame_logprob(in, w, bad, e);
    if (m->comm && comm_gather(m->comm, PURPOSE_CONTROL, 0, own, mine, all, m->bounce, e))
        return -1;
    return m->sp.shard.r == 0 ? order_records(in, r, s, all, &w->out->prompt, e) : 0;
}

/* Does the same with memory for the whole prompt. */
static int gather_whole(const struct infer *in, struct infer_work *w, const struct prefill_span *s,
                        struct err *e)
{
    const struct model *m = in->model;
    const size_t mine = (size_t)s->T * record_size(w->request.logprobs);
    char *own = malloc(mine), *all = own;
    int rc = -1;
    if (m->comm && m->sp.shard.r == 0) all = malloc(mine * (size_t)m->plan->sp);
    if (own && all)
        rc = gather_logprobs(in, w, s, own, all, e);
    else
        err_set(e, ERR_IO, "out of memory for the prompt's log-probabilities");
    if (all != own) free(all);
    free(own);
    return rc;
}

static int gather_piece(const struct infer *in, struct infer_work *w, const struct prefill_span *s,
                        struct err *e)
{
    const struct model *m = in->model;
    char *own = w->records;
    return gather_logprobs(in, w, s, own,
                           m->comm ? own + m->plan->T * (int64_t)record_size(w->n_top) : own, e);
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Adds the counts that are expected for the results of a pass over a span. The results are the
 * log-probabilities of an echoed prompt and, if the span ends the prompt, the logits after it,
 * which rank `root` has. */
static void expect_results(const struct infer *in, struct infer_work *w,
                           const struct prefill_span *s, int root)
{
    const struct model *m = in->model;
    const struct request *r = &w->request;
    const int P = m->plan->sp, me = m->sp.shard.r;
    struct comm_count *shared = &w->want[PURPOSE_CONTROL];
    if (s->pos + s->n == r->n_tokens)
        volume_add(shared, volume_broadcast(P, 4 * m->shape.vocab, me == root), 1);
    if (!wants_logprobs(r)) return;
    volume_add(shared, volume_gather(P, s->T * (int64_t)record_size(r->logprobs), me == 0), 1);
    volume_add(shared, volume_sum_small(P, 1), 1);
}

/* Adds the counts that are expected for the pass over a whole prompt. */
static int expect_whole(const struct infer *in, struct infer_work *w, const struct prefill_span *s,
                        struct err *e)
{
    int64_t row;
    if (!in->model->comm) return 0;
    const int root = infer_owner(in, s->n - 1, &row, e);
    if (root < 0 || infer_expect(in, 1, w->want, e)) return -1;
    expect_results(in, w, s, root);
    return 0;
}

/* Adds the counts that are expected for a piece. */
static int expect_piece(const struct infer *in, struct infer_work *w, const struct prefill_span *s,
                        struct err *e)
{
    const struct model *m = in->model;
    struct comm_count want[PURPOSE_N] = {0};
    if (!m->comm) return 0;
    if (plan_piece_comm(&m->shape, m->plan, m->rank, s->pos, s->n, want, e)) return -1;
    for (int k = 0; k < PURPOSE_N; k++) volume_add(&w->want[k], want[k], 1);
    expect_results(in, w, s, paged_owner(m->plan->sp, s->pos + s->n - 1));
    return 0;
}

/* ---- the passes ------------------------------------------------------------------------------ */

static int forward_prompt(const struct infer *in, struct infer_work *w, struct err *e)
{
    const struct request *r = &w->request;
    const int64_t begin_us = clock_us();
    const double at = progress_done(in->progress), prompt = prefill_part(r);
    progress_piece(in->progress, at, prompt);
    if (infer_forward(in, r->tokens, r->n_tokens, e)) return -1;
    pace_until_now(&w->out->prefill, r->n_tokens, begin_us);
    progress_part(in->progress, 1);
    w->part = prompt;
    return 0;
}

int prefill_whole(const struct infer *in, struct infer_work *w, struct err *e)
{
    const struct request *r = &w->request;
    if (forward_prompt(in, w, e)) return -1;
    const struct prefill_span s = {0, r->n_tokens, in->model->sp.shard.T};
    if (expect_whole(in, w, &s, e)) return -1;
    if (w->states) context_take(in->model, &w->layout, w->states);
    w->n_prefilled = r->n_tokens;
    if (wants_logprobs(r) && gather_whole(in, w, &s, e)) return -1;
    return infer_last_logits(in, r->n_tokens, w->first, e);
}

static struct model_piece piece_at(const struct infer *in, const struct infer_work *w, int64_t pos)
{
    const struct request *r = &w->request;
    const struct plan *p = in->model->plan;
    const int64_t left = r->n_tokens - pos, n = left < p->piece ? left : p->piece;
    /* states are kept at the ends of pages, so the last piece is what follows the last whole
     * page */
    const bool whole = p->n_kept_states > 0 && n > CACHE_PAGE;
    return (struct model_piece){.slot = w->slot,
                                .adapter = in->model->cache[w->slot].adapter,
                                .tokens = r->tokens + pos,
                                .pos = pos,
                                .n = whole ? n / CACHE_PAGE * CACHE_PAGE : n};
}

int prefill_piece(const struct infer *in, struct infer_work *w, struct err *e)
{
    struct model *m = in->model;
    const struct request *r = &w->request;
    const int64_t begin_us = clock_us();
    const struct model_piece p = piece_at(in, w, w->n_prefilled);
    const struct prefill_span s = {p.pos, p.n, paged_most(m->plan->sp, p.pos, p.n)};
    int64_t row;
    model_use(m, w->slot);
    if (infer_check_stop(in, e) || model_piece(m, &p, e) || expect_piece(in, w, &s, e)) return -1;
    pace_until_now(&w->out->prefill, p.n, begin_us);
    if (wants_logprobs(r) && gather_piece(in, w, &s, e)) return -1;
    w->n_prefilled += p.n;
    prefill_done_part(in, w, prefill_part(r) * (double)w->n_prefilled / (double)r->n_tokens);
    if (w->n_prefilled < r->n_tokens) return 0;
    if (w->states && r->n > 1) context_take(m, &w->layout, w->states);
    const int root = model_piece_owner(m, &p, r->n_tokens - 1, &row);
    return infer_share_logits(in, root, row, w->first, e);
}

void prefill_load_pages(const struct infer *in, struct pages *p, int slot)
{
    int64_t from;
    const int64_t n = pages_changed(p, slot, &from);
    model_load_pages(in->model, slot, from, n);
}

static int prompt_again(const struct infer *in, const struct infer_work *w, struct err *e)
{
    const struct request *r = &w->request;
    if (!in->model->plan->paged) return infer_forward(in, r->tokens, r->n_tokens, e);
    for (int64_t pos = 0; pos < r->n_tokens;) {
        const struct model_piece p = piece_at(in, w, pos);
        if (model_piece(in->model, &p, e)) return -1;
        pos += p.n;
    }
    return 0;
}

int prefill_again(void *arg, struct err *e)
{
    const struct prefill_again *x = arg;
    const struct infer_work *w = x->w;
    struct tensor unused;
    model_use(x->in->model, w->slot);
    int rc = prompt_again(x->in, w, e);
    for (int64_t i = 0; i < w->n && !rc; i++)
        rc = model_decode(x->in->model, w->tokens[i], &unused, e);
    return rc;
}
