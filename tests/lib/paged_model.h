/* paged_model.h: computes sequences in pages: in pieces of several lengths and token by token,
 * on any number of ranks and with any pages of the pool. A position must have the same bits
 * however its prompt is cut. Compares the logits with those of a whole forward pass, and the
 * messages with the plan. */
#ifndef SEQD_TESTS_PAGED_MODEL_H
#define SEQD_TESTS_PAGED_MODEL_H

#include <math.h>
#include <stdlib.h>

#include "api/core/job.h"
#include "api/core/log.h"
#define KINDS_LENGTH 512
#include "tests/lib/engine.h"
#include "tests/lib/kinds.h"
#include "tests/lib/reading.h"
#include "tests/lib/tiny.h"
#include "worker/comm/ledger.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/paged.h"
#include "worker/plan/volume.h"

#ifdef PAGED_SHORT /* for a slow device */
#define N     141  /* tokens of a sequence: two pages and a part */
#define PIECE 128
#else
#define N     333 /* five pages and a part */
#define PIECE 192
#endif
#define N_TOLD 3 /* sequences */

/* A way to compute a sequence: pieces of these lengths, of which 0 means the rest, and then tokens
 * one by one. Tables begin with the page that `shift` says. */
static const struct way {
    int64_t pieces[6];
    int shift;
} ways[] = {
#ifdef PAGED_SHORT
    {{128, 13}, 0},
    {{64, 64, 13}, 3},
    {{128}, 2},
#else
    {{192, 141}, 0}, {{64, 64, 64, 64, 64, 13}, 3}, {{128, 192, 13}, 1}, {{64}, 2}, {{192, 128}, 5},
#endif
};
enum { N_WAYS = sizeof ways / sizeof *ways };

struct job {
    struct job_spec spec;
    const struct kind *kind;
    int32_t token[N_TOLD][N];
    float *logits; /* [N_TOLD][N_WAYS][N][V], filled by the rank that has the row */
    float *whole;  /* [N][V]: logits of sequence 0, by a forward pass of a generate job */
};

static float *row_at(struct job *j, int seq, int way, int64_t pos)
{
    const int64_t V = j->spec.model.shape.vocab;
    return j->logits + (((int64_t)seq * N_WAYS + way) * N + pos) * V;
}

static void job_of(struct job *j, const struct kind *x, int P, bool serves)
{
    struct err e = {0};
    memset(&j->spec, 0, sizeof j->spec);
    spec_defaults(&j->spec);
    shape_defaults(&j->spec.model.shape);
    j->kind = x;
    j->spec.kind = serves ? JOB_SERVE : JOB_GENERATE;
    j->spec.model.shape = x->shape;
    small_sizes(&j->spec.model.shape, 48);
    j->spec.seed = 3;
    j->spec.precision.params = x->precision;
    j->spec.determinism = x->determinism;
    j->spec.resources.ranks = P;
    j->spec.resources.threads = 1;
    j->spec.data.seq_len = N;
    j->spec.sampling.max_tokens = 20;
    if (serves) {
        j->spec.serve.max_requests = N_TOLD;
        j->spec.serve.prefill_tokens = PIECE;
        j->spec.serve.cache_states = 1;
    } else {
        j->spec.input.prompt = tiny_text(&j->spec, "x");
    }
    engine_on_device(&j->spec);
    CHECK_MSG(!family_complete(&j->spec.model.shape, &e), "%s", e.text);
}

/* ---- one rank -------------------------------------------------------------------------------- */

static void keep(struct job *j, struct model *m, int seq, int way, int64_t pos, const float *logits)
{
    m->be->ops->download(m->be, row_at(j, seq, way, pos), logits, m->shape.vocab * 4);
}

/* Checks that this rank has sent the messages of the plan. */
static void settle(struct model *m, struct comm_count want[PURPOSE_N])
{
    if (!m->comm) return;
    CHECK(ledger_equals(comm_ledger(m->comm), want, 0));
    memset(want, 0, PURPOSE_N * sizeof *want);
    comm_ledger_reset(m->comm);
}

/* Computes the pieces of a sequence. Returns the number of tokens in them, or -1. */
static int64_t run_pieces(struct job *j, struct model *m, int seq, int way, struct err *e)
{
    struct model_piece p = {.slot = seq, .adapter = ADAPTER_BASE};
    struct comm_count want[PURPOSE_N];
    for (int k = 0; k < 6 && ways[way].pieces[k]; k++, p.pos += p.n) {
        p.n = ways[way].pieces[k];
        p.tokens = j->token[seq] + p.pos;
        if (m->comm) comm_ledger_reset(m->comm);
        if (model_piece(m, &p, e) ||
            plan_piece_comm(&m->shape, m->plan, m->rank, p.pos, p.n, want, e))
            return -1;
        settle(m, want);
        for (int64_t i = 0; i < p.n; i++) {
            int64_t row;
            if (model_piece_owner(m, &p, p.pos + i, &row) != m->rank) continue;
            keep(j, m, seq, way, p.pos + i, model_logits(m, row, 1).data);
        }
    }
    return p.pos;
}

/* Decodes the rest of the tokens of all sequences, which are equally long, together. */
static int run_tokens(struct job *j, struct model *m, int way, int64_t from, struct err *e)
{
    const int order[N_TOLD] = {2, 0, 1};
    for (int64_t pos = from; pos < N; pos++) {
        struct model_next next[N_TOLD];
        struct tensor logits;
        struct comm_count want[PURPOSE_N] = {0};
        for (int i = 0; i < N_TOLD; i++)
            next[i] = (struct model_next){order[i], j->token[order[i]][pos]};
        if (m->comm) comm_ledger_reset(m->comm);
        if (model_decode_all(m, next, N_TOLD, e)) return -1;
        volume_add(&want[PURPOSE_DECODE], plan_decode_comm(&m->shape, m->plan->sp, N_TOLD), 1);
        settle(m, want);
        for (int i = 0; i < N_TOLD; i++) {
            if (model_decoded(m, i, 1, &logits, e)) return -1;
            if (m->rank == 0) keep(j, m, order[i], way, pos, logits.data);
        }
    }
    return 0;
}

static void set_tables(struct model *m, int way)
{
    int page = ways[way].shift;
    for (int i = 0; i < N_TOLD; i++)
        for (int64_t k = 0; k < m->plan->table; k++)
            m->cache[i].pages[k] = (int32_t)((page += 7) % m->plan->n_pages);
    for (int i = 0; i < N_TOLD; i++) model_load_pages(m, i, 0, m->plan->table);
}

/* Computes the end of sequence 0 in slot 1, after the pages and states that slot 0 had after the
 * first piece. It must have the bits of way 0. */
static int run_kept(struct job *j, struct model *m, struct err *e)
{
    const int64_t V = m->shape.vocab, shared = PIECE / CACHE_PAGE, place = m->plan->batch;
    struct model_piece p = {0, ADAPTER_BASE, j->token[0], 0, PIECE};
    float *x = malloc((size_t)V * 4);
    set_tables(m, 0);
    int rc = model_piece(m, &p, e);
    const bool states = m->plan->n_kept_states > 0;
    if (states) model_copy_states(m, 0, (int)place);
    p = (struct model_piece){0, ADAPTER_BASE, j->token[1], PIECE, 7};
    rc = rc || model_piece(m, &p, e);
    int64_t k = 0;
    for (; k * m->plan->sp + m->rank < shared; k++) m->cache[1].pages[k] = m->cache[0].pages[k];
    model_load_pages(m, 1, 0, k);
    if (states) model_copy_states(m, (int)place, 1);
    p = (struct model_piece){1, ADAPTER_BASE, j->token[0] + PIECE, PIECE, N - PIECE};
    rc = rc || model_piece(m, &p, e);
    for (int64_t pos = PIECE; pos < N && !rc; pos++) {
        int64_t row;
        if (model_piece_owner(m, &p, pos, &row) != m->rank) continue;
        m->be->ops->download(m->be, x, model_logits(m, row, 1).data, V * 4);
        CHECK_MSG(!memcmp(x, row_at(j, 0, 0, pos), (size_t)V * 4), "%s: position %lld",
                  j->kind->name, (long long)pos);
    }
    free(x);
    return rc;
}

static void serve_body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    int rc = tiny_open(t, &j->spec, g, rank, &e);
    struct model *m = &t->model;
    CHECK(rc || (t->plan.paged && t->plan.n_pages % 7));
    for (int w = 0; w < N_WAYS && !rc; w++) {
        int64_t n = 0;
        set_tables(m, w);
        for (int i = 0; i < N_TOLD && !rc; i++) {
            n = run_pieces(j, m, i, w, &e);
            rc = n < 0;
        }
        if (!rc) rc = run_tokens(j, m, w, n, &e);
    }
    rc = rc || run_kept(j, m, &e);
    if (rc) ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
}

/* Computes the whole sequence at once, as a generate job does. */
static void whole_body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    const struct batch_rules rules = {true, true, true, N};
    int rc = tiny_open(t, &j->spec, g, rank, &e);
    struct model *m = &t->model;
    for (int64_t i = 0; i < N && !rc; i++) {
        m->batch.ids[i] = j->token[0][i];
        m->batch.targets[i] = -1;
        batch_place(&m->batch, i, i, 0, N, &rules);
    }
    m->batch.n_tokens = N;
    rc = rc || model_forward(m, &m->batch, &e);
    for (int64_t i = 0; i < N && !rc; i++)
        m->be->ops->download(m->be, j->whole + i * m->shape.vocab, model_logits(m, i, 1).data,
                             m->shape.vocab * 4);
    if (rc) ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void fill_tokens(struct job *j)
{
    uint32_t x = 1;
    for (int s = 0; s < N_TOLD; s++)
        for (int i = 0; i < N; i++) {
            x = x * 1664525u + 1013904223u;
            j->token[s][i] = (int32_t)(x >> 24) % 250;
        }
}

static double difference(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = d;
    }
    return most;
}

static double bound_of(const struct kind *x)
{
    return x->precision == PRECISION_FP32 ? 2e-4 : x->precision == PRECISION_FP16 ? 0.1 : 1;
}

/* Compares the ways to compute each sequence. A state after new tokens differs from that after a
 * page of them, which is computed in another order. */
static bool compare_ways(struct job *j, int P, bool says)
{
    const int64_t V = j->spec.model.shape.vocab;
    bool good = true;
    for (int s = 0; s < N_TOLD; s++)
        for (int w = 1; w < N_WAYS; w++) {
            int64_t same = 0, n = 0; /* n: tokens that must have the same bits */
            for (int k = 0; k < 6; k++) n += ways[w].pieces[k];
            if (!paged_states(&j->spec.model.shape)) n = N;
            const double far = difference(row_at(j, s, w, n), row_at(j, s, 0, n), (N - n) * V);
            while (same < n && !memcmp(row_at(j, s, w, same), row_at(j, s, 0, same), (size_t)V * 4))
                same++;
            good &= same == n && far < bound_of(j->kind);
            if (!says) continue;
            CHECK_MSG(far < bound_of(j->kind), "%s: decoding differs by %g", j->kind->name, far);
            CHECK_MSG(same == n, "%s, %d ranks, sequence %d, way %d: position %lld differs by %g",
                      j->kind->name, P, s, w, (long long)same,
                      same < n ? difference(row_at(j, s, w, same), row_at(j, s, 0, same), V) : 0);
        }
    return good;
}

static struct job *open_model(const struct kind *x)
{
    struct job *j = calloc(1, sizeof *j);
    fill_tokens(j);
    job_of(j, x, 1, false);
    const int64_t V = j->spec.model.shape.vocab;
    j->whole = calloc((size_t)(N * V), 4);
    j->logits = calloc((size_t)(N_TOLD * N_WAYS * N * V), 4);
    return j;
}

static void free_model(struct job *j)
{
    free(j->logits);
    free(j->whole);
    free(j);
}

/* Checks a model on 1 to most_ranks ranks. */
static void check_model(const struct kind *x, int most_ranks)
{
    if (x->load) return; /* a serve job has no context */
    struct job *j = open_model(x);
    reading_run(&j->spec, 1, whole_body, j);
    for (int P = 1; P <= most_ranks; P++) {
        if (x->determinism == DET_RANKS && P == 3) continue; /* it needs a power of 2 */
        job_of(j, x, P, true);
        memset(j->logits, 0, (size_t)(N_TOLD * N_WAYS * N * j->spec.model.shape.vocab) * 4);
        reading_run(&j->spec, P, serve_body, j);
        compare_ways(j, P, true);
        const double far = difference(row_at(j, 0, 0, 0), j->whole, N * j->spec.model.shape.vocab);
        CHECK_MSG(far <= bound_of(x), "%s, %d ranks: %g from the whole pass", x->name, P, far);
    }
    free_model(j);
}

#endif
