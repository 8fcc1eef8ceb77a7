/* Checks the model. Compares gradients with finite differences, P ranks with one rank, and
 * decoding with prefill. */
#include "api/core/job.h"
#include "kernels/philox.h"
#include "tests/lib/engine.h"

static struct job_spec spec;

/* One model on one rank of g, in its own arena. If g is NULL, there is only one rank. */
struct seat {
    struct plan plan;
    struct engine_memory mem;
    struct model m;
};

static void seat_open(struct seat *s, const struct job_spec *sp, struct ranks *g, int rank)
{
    struct err e = {0};
    CHECK_MSG(plan_make(sp, 0, &s->plan, &e) == 0, "%s", e.text);
    s->mem = engine_open(sp, &s->plan, NULL);
    const struct model_options o = {.shape = &sp->model.shape,
                                    .plan = &s->plan,
                                    .arena = s->mem.arena,
                                    .host = s->mem.host,
                                    .segment = g ? comm_segment(g->comm[rank]) : NULL,
                                    .be = s->mem.be,
                                    .comm = g ? g->comm[rank] : NULL,
                                    .rank = rank,
                                    .n_ranks = s->plan.n_ranks};
    CHECK_MSG(model_init(&s->m, &o, &e) == 0, "%s", e.text);
}

static void seat_close(struct seat *s)
{
    engine_close(&s->mem, &s->plan);
}

/* Makes weights so large that the gradient of no tensor is negligible. */
static void big_weights(struct model *m)
{
    struct param p;
    model_random(m, 3);
    for (int i = 0; i < param_tensors(&m->shape); i++) {
        param_get(&m->shape, i, &p);
        for (int64_t k = 0; k < p.count; k++) {
            float *w = (float *)m->params + p.offset + k;
            *w = p.cols ? *w * 8 : 1 + 0.2f * (float)sin((double)(k + i));
        }
    }
}

/* Fills all buffers of a step with NaN, because the next step must not depend on the values that a
 * step leaves in them. */
static void poison(struct model *m, char *arena, char *segment)
{
    for (int i = 0; i < PLAN_ID_N; i++) {
        const struct plan_item *it = &m->plan->item[i];
        const bool scratch = it->cls == PLAN_ACTIVATIONS || it->cls == PLAN_WORKSPACE ||
                             it->cls == PLAN_RING || it->cls == PLAN_CACHE;
        if (!it->name || it->shared || !scratch || i == PLAN_INV_FREQ) continue;
        memset((it->in_segment ? segment : arena) + it->offset, 0xff, (size_t)it->size);
    }
}

/* Returns a copy of the gradient, which the caller frees. The gradients of layers may not be
 * stored directly after bucket 0. */
static float *keep_gradient(const struct model *m)
{
    float *out = calloc((size_t)m->plan->n_params, sizeof *out);
    if (!out) abort();
    for (int i = 0; i < param_tensors(&m->shape); i++) {
        struct param p;
        param_get(&m->shape, i, &p);
        memcpy(out + p.offset, engine_gradient(m, p.offset), (size_t)p.count * sizeof *out);
    }
    return out;
}

/* ---- finite differences ---------------------------------------------------------------------- */

static double loss_at(struct seat *s, const float *w, const double *dir, const struct param *p,
                      double eps)
{
    struct err e = {0};
    float *at = (float *)s->m.params + p->offset;
    for (int64_t k = 0; k < p->count; k++) at[k] = (float)(w[p->offset + k] + eps * dir[k]);
    CHECK(model_forward(&s->m, &s->m.batch, &e) == 0);
    double loss;
    CHECK(model_nll(&s->m, &s->m.batch, &loss, &e) == 0);
    memcpy(at, w + p->offset, (size_t)p->count * 4);
    return loss;
}

/* Compares the gradient of one tensor with finite differences along a unit direction. This
 * direction is the sum of the gradient's direction and a random one. (L(+h) - L(-h)) / 2h is
 * extrapolated from h and 2h, so that the truncation error is O(h^4). The sum of nll is about 100,
 * and the forward pass in fp32 has an error of about 2e-7 of this sum. The error of the derivative
 * is therefore about 2e-5 / h = 1e-3 at h = 0.02. The bound is 1 % of the derivative, but at least
 * 0.005, which is five times this error. */
static void check_direction(struct seat *s, const float *w, const float *g, const struct param *p)
{
    double *dir = malloc((size_t)p->count * sizeof *dir);
    double norm = 0, noise = 0, len = 0, want = 0;
    const double h = 0.02;
    if (!dir) abort();
    for (int64_t k = 0; k < p->count; k++) {
        dir[k] = (double)synth_hash((uint64_t)(p->offset + k)) / 4294967296.0 - 0.5;
        noise += dir[k] * dir[k];
        norm += (double)g[p->offset + k] * g[p->offset + k];
    }
    CHECK_MSG(norm > 0, "%s has no gradient", p->name);
    for (int64_t k = 0; k < p->count; k++) {
        dir[k] = dir[k] / sqrt(noise) + g[p->offset + k] / sqrt(norm);
        len += dir[k] * dir[k];
    }
    for (int64_t k = 0; k < p->count; k++) {
        dir[k] /= sqrt(len);
        want += dir[k] * g[p->offset + k];
    }
    const double d1 = (loss_at(s, w, dir, p, h) - loss_at(s, w, dir, p, -h)) / (2 * h);
    const double d2 = (loss_at(s, w, dir, p, 2 * h) - loss_at(s, w, dir, p, -2 * h)) / (4 * h);
    const double got = (4 * d1 - d2) / 3;
    CHECK_MSG(fabs(got - want) <= 0.01 * fmax(fabs(want), 0.5),
              "%s: difference %.6g, gradient %.6g", p->name, got, want);
    free(dir);
}

static void differences(int tied, int recompute)
{
    engine_spec(&spec, 24);
    spec.model.shape.tied = tied;
    spec.memory.recompute = recompute;
    struct synth y = {.S = 24, .doc_len = 10, .vocab = 61};
    struct seat *s = calloc(1, sizeof *s);
    struct err e = {0};
    double nll, again;
    if (!s) abort();
    seat_open(s, &spec, NULL, 0);
    big_weights(&s->m);
    synth_batch(&y, &s->m.sp.shard, 0, &s->m.batch, &e);
    model_begin_grad(&s->m);
    CHECK(model_grad(&s->m, &s->m.batch, 1, &nll, &e) == 0);
    float *w, *g = keep_gradient(&s->m);
    engine_keep(&w, s->m.params, s->plan.n_params);
    /* x of the last layer is still stored; the logits may share memory with gradients */
    CHECK(model_nll(&s->m, &s->m.batch, &again, &e) == 0 && nll == again);
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        check_direction(s, w, g, &p);
    }
    free(w);
    free(g);
    seat_close(s);
    free(s);
}

static void test_differences(void)
{
    differences(0, RECOMPUTE_NONE);
    differences(1, RECOMPUTE_SELECTIVE);
    differences(0, RECOMPUTE_FULL);
}

/* ---- P ranks against one --------------------------------------------------------------------- */

struct whole {
    struct synth y;
    struct seat *seat; /* one per rank */
    double loss;       /* summed over ranks */
    float *grad;       /* the gradient of rank 0, reduced; owned */
    bool poisoned;
};

static void whole_body(struct ranks *g, int rank, void *arg)
{
    struct whole *w = arg;
    struct seat *s = &w->seat[rank];
    struct err e = {0};
    double nll = 0;
    seat_open(s, &spec, g, rank);
    big_weights(&s->m);
    if (w->poisoned) poison(&s->m, s->mem.arena, g ? comm_segment(g->comm[rank]) : NULL);
    synth_batch(&w->y, &s->m.sp.shard, 0, &s->m.batch, &e);
    const int64_t n = synth_targets(&w->y, 0, NULL);
    model_begin_grad(&s->m);
    if (model_grad(&s->m, &s->m.batch, 1.0f / (float)(n ? n : 1), &nll, &e) ||
        model_reduce_grad(&s->m, &e) ||
        (g && comm_sum_f64(g->comm[rank], PURPOSE_LOSS, &nll, 1, s->m.bounce, &e))) {
        CHECK_MSG(0, "P %d rank %d: %s", s->plan.n_ranks, rank, e.text);
        if (g) ranks_fail(g, rank, &e);
    } else if (rank == 0) {
        w->loss = nll / (double)(n ? n : 1);
        w->grad = keep_gradient(&s->m);
    }
    seat_close(s);
}

static void whole_run(struct whole *w, int P)
{
    static struct plan p;
    struct ranks g;
    struct err e = {0};
    spec.parallel.sp = P;
    w->grad = NULL;
    w->seat = calloc((size_t)P, sizeof *w->seat);
    if (!w->seat) abort();
    if (P == 1) {
        whole_body(NULL, 0, w);
    } else {
        CHECK_MSG(plan_make(&spec, 0, &p, &e) == 0, "%s", e.text);
        ranks_open(&g, P, p.segment_size,
                   &(struct comm_options){.delay_max_us = 50, .delay_seed = 3});
        ranks_run(&g, whole_body, w);
        ranks_close(&g);
    }
    free(w->seat);
}

/* Compares each tensor separately, so that the error of a small tensor is not lost beside the
 * large embedding. The required bound is 1e-5. */
static void compare(const struct whole *got, const struct whole *want, int P)
{
    const double scale = want->loss > 0 ? want->loss : 1;
    CHECK_MSG(fabs(got->loss - want->loss) <= 1e-6 * scale,
              "S %lld doc %lld P %d layout %d: loss %.9g, %.9g", (long long)want->y.S,
              (long long)want->y.doc_len, P, spec.parallel.layout, got->loss, want->loss);
    for (int i = 0; i < param_tensors(&spec.model.shape) && got->grad && want->grad; i++) {
        struct param p;
        param_get(&spec.model.shape, i, &p);
        const double d = rel_l2(got->grad + p.offset, want->grad + p.offset, p.count);
        CHECK_MSG(d <= 1e-5, "S %lld doc %lld P %d layout %d %s: rel-L2 %.3g", (long long)want->y.S,
                  (long long)want->y.doc_len, P, spec.parallel.layout, p.name, d);
    }
}

static void against_one(int64_t S, int64_t doc_len, int64_t bare_from, int tied)
{
    static const int layouts[] = {LAYOUT_ZIGZAG, LAYOUT_CONTIGUOUS};
    engine_spec(&spec, S);
    spec.model.shape.tied = tied;
    struct whole one = {.y = {.S = S, .doc_len = doc_len, .vocab = 61, .bare_from = bare_from}};
    whole_run(&one, 1);
    for (int P = 2; P <= 8; P += P == 4 ? 4 : 1)
        for (int k = 0; k < 2; k++) {
            struct whole some = {.y = one.y, .poisoned = k == 0};
            spec.parallel.layout = layouts[k];
            spec.memory.recompute = RECOMPUTE_NONE + (P + k) % 3;
            spec.memory.loss_chunk_tokens = k ? 5 : 0;
            whole_run(&some, P);
            compare(&some, &one, P);
            free(some.grad);
        }
    free(one.grad);
}

static void test_ranks(void)
{
    against_one(1, 0, 0, 0);
    against_one(8, 0, 0, 1);
    against_one(37, 0, 0, 0);
    against_one(37, 1, 0, 0); /* each document has one token, so there is no target */
    against_one(203, 43, 0, 1);
    against_one(256, 0, 1, 0); /* there is only one target, so all ranks but one have none */
    against_one(512, 100, 300, 0);
}

/* Checks GQA with 1, 3 and 8 query heads for each KV head, and head sizes that are not multiples
 * of a vector. */
static void test_shapes(void)
{
    static const struct model_shape shapes[] = {{.n_layers = 1,
                                                 .width = 24,
                                                 .n_heads = 3,
                                                 .n_kv_heads = 3,
                                                 .head_dim = 10,
                                                 .ffn_width = 17},
                                                {.n_layers = 2,
                                                 .width = 72,
                                                 .n_heads = 9,
                                                 .n_kv_heads = 3,
                                                 .head_dim = 24,
                                                 .ffn_width = 50},
                                                {.n_layers = 1,
                                                 .width = 33,
                                                 .n_heads = 8,
                                                 .n_kv_heads = 1,
                                                 .head_dim = 4,
                                                 .ffn_width = 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        engine_spec(&spec, 90);
        spec.model.shape = shapes[i];
        spec.model.shape.vocab = 61;
        spec.model.shape.norm_eps = 1e-6;
        spec.model.shape.rope_theta = 5e5;
        struct whole one = {.y = {.S = 90, .doc_len = 31, .vocab = 61}}, three = one;
        whole_run(&one, 1);
        whole_run(&three, 3);
        compare(&three, &one, 3);
        free(one.grad);
        free(three.grad);
    }
}

/* Checks that poisoned buffers change no bit. */
static void test_poison(void)
{
    for (int det = DET_RUN; det <= DET_RANKS; det++)
        for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
            struct whole clean = {.y = {.S = 70, .doc_len = 30, .vocab = 61}}, dirty = clean;
            engine_spec(&spec, 70);
            spec.determinism = det;
            spec.memory.recompute = mode;
            dirty.poisoned = true;
            whole_run(&clean, 2);
            whole_run(&dirty, 2);
            CHECK(clean.loss == dirty.loss && clean.grad && dirty.grad);
            if (clean.grad && dirty.grad)
                CHECK(!memcmp(clean.grad, dirty.grad, (size_t)param_count(&spec.model.shape) * 4));
            free(clean.grad);
            free(dirty.grad);
        }
}

/* ---- generate -------------------------------------------------------------------------------- */

enum { N_NEW = 40 }; /* more tokens than two blocks of the cache */

struct generation {
    int64_t S; /* the prompt; the plan is for more tokens */
    struct synth y;
    struct seat *seat;
    float *logits; /* [N_NEW, V] the logits of rank 0, owned */
};

static void generation_body(struct ranks *g, int rank, void *arg)
{
    struct generation *w = arg;
    struct seat *s = &w->seat[rank];
    struct err e = {0};
    struct tensor out;
    const int64_t V = spec.model.shape.vocab;
    seat_open(s, &spec, g, rank);
    big_weights(&s->m);
    poison(&s->m, s->mem.arena, g ? comm_segment(g->comm[rank]) : NULL);
    int rc = model_set_seq(&s->m, w->S, &e);
    if (!rc) rc = synth_batch(&w->y, &s->m.sp.shard, 0, &s->m.batch, &e);
    if (!rc) rc = model_forward(&s->m, &s->m.batch, &e);
    for (int i = 0; i < N_NEW && !rc; i++) {
        rc = model_decode(&s->m, synth_token(&w->y, 0, w->S + i), &out, &e);
        if (!rc && rank == 0) memcpy(w->logits + i * V, out.data, (size_t)V * 4);
    }
    CHECK_MSG(rc == 0, "P %d rank %d: %s", s->plan.n_ranks, rank, e.text);
    if (rc && g) ranks_fail(g, rank, &e);
    if (!rc) CHECK(model_decode(&s->m, 0, &out, &e) == -1 && e.code == ERR_TOO_LARGE);
    seat_close(s);
}

/* Runs one forward pass over the prompt and its continuation. Returns its logits at the same
 * places. */
static float *forward_logits(int64_t S, int64_t n)
{
    struct seat *s = calloc(1, sizeof *s);
    struct synth y = {.S = S + n, .vocab = 61};
    struct err e = {0};
    const int64_t V = spec.model.shape.vocab;
    float *out = malloc((size_t)(n * V) * 4);
    if (!s || !out) abort();
    spec.kind = JOB_SCORE;
    spec.data.seq_len = S + n;
    spec.parallel.sp = 1;
    seat_open(s, &spec, NULL, 0);
    big_weights(&s->m);
    synth_batch(&y, &s->m.sp.shard, 0, &s->m.batch, &e);
    CHECK(model_forward(&s->m, &s->m.batch, &e) == 0);
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * V, model_logits(&s->m, S + i, 1).data, (size_t)V * 4);
    seat_close(s);
    free(s);
    return out;
}

static void generate(int64_t S, int P, int layout)
{
    static struct plan p;
    struct ranks g;
    struct err e = {0};
    struct generation w = {.S = S, .y = {.S = S, .vocab = 61}};
    engine_spec(&spec, S);
    const int64_t V = spec.model.shape.vocab;
    float *want = forward_logits(S, N_NEW);
    engine_spec(&spec, S + 9);
    spec.kind = JOB_GENERATE;
    spec.sampling.max_tokens = N_NEW;
    spec.parallel.sp = P;
    spec.parallel.layout = layout;
    w.logits = malloc((size_t)(N_NEW * V) * 4);
    w.seat = calloc((size_t)P, sizeof *w.seat);
    if (!w.logits || !w.seat) abort();
    if (P == 1) {
        generation_body(NULL, 0, &w);
    } else {
        CHECK_MSG(plan_make(&spec, 0, &p, &e) == 0, "%s", e.text);
        ranks_open(&g, P, p.segment_size, NULL);
        ranks_run(&g, generation_body, &w);
        ranks_close(&g);
    }
    const double d = rel_l2(w.logits, want, N_NEW * V);
    CHECK_MSG(d <= 2e-6, "prompt %lld P %d layout %d: rel-L2 %.3g", (long long)S, P, layout, d);
    free(want);
    free(w.logits);
    free(w.seat);
}

static void test_generate(void)
{
    generate(30, 1, LAYOUT_AUTO);
    generate(30, 2, LAYOUT_ZIGZAG);
    generate(37, 3, LAYOUT_CONTIGUOUS);
    generate(50, 4, LAYOUT_ZIGZAG);
    generate(1, 2, LAYOUT_ZIGZAG); /* rank 1 has no part of the prompt */
}

/* ---- random numbers, refusals ---------------------------------------------------------------- */

/* Checks the known answers in Random123's kat_vectors. */
static void test_philox(void)
{
    static const uint32_t want[2][4] = {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
                                        {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}};
    uint32_t zero[4] = {0}, ones[4] = {~0u, ~0u, ~0u, ~0u}, out[4];
    philox4x32(zero, zero, out);
    CHECK(!memcmp(out, want[0], sizeof out));
    philox4x32(ones, ones, out);
    CHECK(!memcmp(out, want[1], sizeof out));
}

static void test_random(void)
{
    struct seat *s = calloc(1, sizeof *s);
    if (!s) abort();
    engine_spec(&spec, 8);
    spec.model.shape.vocab = 1000;
    seat_open(s, &spec, NULL, 0);
    model_random(&s->m, 77);
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        struct param p;
        double sum = 0, square = 0;
        param_get(&spec.model.shape, i, &p);
        const float *w = (const float *)s->m.params + p.offset;
        for (int64_t k = 0; k < p.count; k++) sum += w[k], square += (double)w[k] * w[k];
        const double n = (double)p.count, std = sqrt(square / n);
        const bool residual = strstr(p.name, "o_proj") || strstr(p.name, "down_proj");
        const double want = residual ? 0.01 : 0.02; /* for 2 layers it is 0.02 / sqrt(4) */
        if (!p.cols) {
            CHECK(sum == n && w[0] == 1);
            continue;
        }
        /* the bounds are five standard errors of a mean and of a standard deviation */
        CHECK_MSG(fabs(sum / n) <= 5 * want / sqrt(n), "%s: mean %g", p.name, sum / n);
        CHECK_MSG(fabs(std - want) <= 5 * want / sqrt(2 * n), "%s: deviation %g", p.name, std);
    }
    const float *w = s->m.params, first = w[0];
    float part[3000];
    model_random(&s->m, 78);
    CHECK(w[0] != first);
    model_random(&s->m, 77);
    CHECK(w[0] == first);
    /* Drawing any part of the weights must give the same numbers as drawing all weights. A part
     * may begin or end in a tensor, in a gap, or in a line of the generator. */
    for (int64_t from = 0; from < 4099; from += 1033) {
        model_random_part(s->m.be, &s->m.shape, 0, 77, from, tensor_f32(part, 1, 3000, 3000));
        CHECK(memcmp(part, w + from, sizeof part) == 0);
    }
    seat_close(s);
    free(s);
}

static void test_refusals(void)
{
    struct seat *s = calloc(1, sizeof *s);
    struct err e = {0};
    if (!s) abort();
    engine_spec(&spec, 16);
    seat_open(s, &spec, NULL, 0);
    CHECK(model_set_seq(&s->m, 17, &e) == -1 && e.code == ERR_TOO_LARGE);
    CHECK(model_set_seq(&s->m, 3, &e) == 0 && s->m.sp.shard.T == 3);
    struct model_options o = {.shape = &spec.model.shape,
                              .plan = &s->plan,
                              .arena = s->mem.arena,
                              .host = s->mem.host,
                              .be = s->mem.be,
                              .rank = 0,
                              .n_ranks = 2};
    struct model other;
    CHECK(model_init(&other, &o, &e) == -1 && e.code == ERR_INVALID);
    seat_close(s);
    free(s);
}

int main(void)
{
    RUN(test_philox);
    RUN(test_random);
    RUN(test_refusals);
    RUN(test_differences);
    RUN(test_shapes);
    RUN(test_ranks);
    RUN(test_poison);
    RUN(test_generate);
    return test_done("model");
}
