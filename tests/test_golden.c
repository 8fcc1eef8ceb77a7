/* test_golden.c: the language-model families against models that share no code with ours: logits, loss
 * and the gradient of every tensor, on P ranks (tests/golden/make_lm_golden.py: float64, PyTorch). */
#include "tests/engine.h"

#include "worker/model/hf.h"
#include "worker/model/safetensors.h"

static struct job_spec spec;

struct golden {
    const char *name;
    struct st_file *file;
    int64_t n, S, V; /* samples, tokens, vocabulary */
    const int32_t *ids, *targets, *pos, *lo, *hi;
    const float *logits;
    double loss;
    int64_t n_targets;     /* of all samples */
    float *weights, *grad; /* flat; owned */
};

static const void *array(const struct golden *g, const char *name, enum st_dtype dtype)
{
    const struct st_tensor *t = st_find(g->file, name);
    CHECK_MSG(t && t->dtype == dtype, "%s: %s", g->name, name);
    if (!t || t->dtype != dtype) abort();
    return st_data(g->file, t); /* tensors are aligned in these files */
}

static void golden_open(struct golden *g, const char *name)
{
    char path[256];
    struct err e = {0};
    *g = (struct golden){.name = name};
    snprintf(path, sizeof path, "tests/golden/%s", name);
    CHECK_MSG(hf_config_read(path, &spec.model.shape, &e) == 0, "%s", e.text);
    const struct model_shape *m = &spec.model.shape;
    if (e.code) abort();
    g->weights = calloc((size_t)param_count(m), 4);
    g->grad = calloc((size_t)param_count(m), 4);
    CHECK_MSG(hf_load(path, m, DT_F32, g->weights, &e) == 0, "%s", e.text);
    snprintf(path, sizeof path, "tests/golden/%s/golden.safetensors", name);
    g->file = st_open(path, &e);
    CHECK_MSG(g->file && hf_read_flat(g->file, m, "grad:", g->grad, &e) == 0, "%s", e.text);
    if (e.code) abort();
    g->ids = array(g, "ids", ST_I32);
    g->targets = array(g, "targets", ST_I32);
    g->pos = array(g, "pos", ST_I32);
    g->lo = array(g, "lo", ST_I32);
    g->hi = array(g, "hi", ST_I32);
    g->logits = array(g, "logits", ST_F32);
    memcpy(&g->loss, array(g, "loss", ST_F64), sizeof g->loss);
    const struct st_tensor *t = st_find(g->file, "logits");
    g->n = t->dims[0], g->S = t->dims[1], g->V = t->dims[2];
    for (int64_t i = 0; i < g->n * g->S; i++) g->n_targets += g->targets[i] >= 0;
}

static void golden_close(struct golden *g)
{
    st_close(g->file);
    free(g->weights);
    free(g->grad);
}

static void fill(const struct golden *g, const struct shard *sh, int64_t n, struct batch *b)
{
    b->n_tokens = g->S;
    b->n_targets = 0;
    for (int64_t i = 0; i < g->S; i++) b->n_targets += g->targets[n * g->S + i] >= 0;
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t p = shard_pos(sh, i), at = n * g->S + p;
        const bool pad = p >= g->S;
        b->ids[i] = pad ? 0 : g->ids[at];
        b->targets[i] = pad ? -1 : g->targets[at];
        b->pos[i] = pad ? 0 : g->pos[at];
        b->lo[i] = pad ? 0 : g->lo[at];
        b->hi[i] = pad ? 0 : g->hi[at];
    }
}

/* ---- one rank ------------------------------------------------------------------------------------ */

struct way {
    int P, determinism, recompute, exchange, layout;
    int64_t chunk; /* of the loss; 0: auto */
};

struct run {
    const struct golden *g;
    struct plan plan;
    double loss;   /* summed over ranks */
    float *logits; /* [n, S, V], each rank its rows */
    float *grad;   /* rank 0's, reduced */
};

static void place(struct model *m, const struct golden *g, struct ranks *ranks, int rank,
                  struct be *be, const struct plan *plan, void *arena, struct err *e)
{
    const struct model_options o = {.shape = &spec.model.shape,
                                    .plan = plan,
                                    .arena = arena,
                                    .segment = ranks ? comm_segment(ranks->comm[rank]) : NULL,
                                    .be = be,
                                    .comm = ranks ? ranks->comm[rank] : NULL,
                                    .rank = rank,
                                    .n_ranks = plan->n_ranks};
    if (model_init(m, &o, e) == 0)
        memcpy(m->params, g->weights, (size_t)param_count(&spec.model.shape) * 4);
}

static void keep_logits(struct run *r, struct model *m, int64_t n)
{
    const struct golden *g = r->g;
    for (int64_t i = 0; i < m->sp.shard.T; i++) {
        const int64_t p = shard_pos(&m->sp.shard, i);
        if (p >= g->S) continue;
        memcpy(r->logits + (n * g->S + p) * g->V, model_logits(m, i, 1).data, (size_t)g->V * 4);
    }
}

static void body(struct ranks *ranks, int rank, void *arg)
{
    struct run *r = arg;
    struct err e = {0};
    struct model *m = calloc(1, sizeof *m);
    void *arena = engine_pages(r->plan.arena_size);
    struct be *be = engine_be(&r->plan, arena, NULL);
    double nll, sum = 0;
    if (!m) abort();
    place(m, r->g, ranks, rank, be, &r->plan, arena, &e);
    for (int64_t n = 0; !e.code && n < r->g->n; n++) {
        fill(r->g, &m->sp.shard, n, &m->batch);
        if (r->logits) { /* scored: no backward */
            if (model_forward(m, &m->batch, &e)) break;
            keep_logits(r, m, n);
            sum += model_nll(m, &m->batch);
        } else if (model_grad(m, &m->batch, 1.0f / (float)r->g->n_targets, &nll, &e) == 0) {
            sum += nll;
        }
        if (!e.code && r->grad && r->plan.rank_bits) { /* they replace: summed here */
            if (model_reduce_grad(m, &e)) break;
            for (int64_t i = 0; rank == 0 && i < r->plan.n_params; i++) r->grad[i] += m->grad[i];
        }
    }
    if (!e.code && r->grad && !r->plan.rank_bits && model_reduce_grad(m, &e) == 0 && rank == 0)
        memcpy(r->grad, m->grad, (size_t)r->plan.n_params * 4);
    if (!e.code && ranks) comm_sum_f64(ranks->comm[rank], PURPOSE_LOSS, &sum, 1, m->bounce, &e);
    if (rank == 0) r->loss = sum / (double)r->g->n_targets;
    CHECK_MSG(!e.code, "%s P %d rank %d: %s", r->g->name, r->plan.n_ranks, rank, e.text);
    if (e.code && ranks) ranks_fail(ranks, rank, &e);
    be_close(be);
    engine_unpage(arena, r->plan.arena_size);
    free(m);
}

static void set_spec(const struct golden *g, const struct way *w, int kind)
{
    const struct model_shape m = spec.model.shape;
    engine_spec(&spec, g->S);
    spec.model.shape = m;
    spec.kind = kind;
    spec.parallel.sp = w->P;
    spec.determinism = w->determinism;
    spec.parallel.exchange = w->exchange;
    spec.parallel.layout = w->layout;
    spec.memory.recompute = w->recompute;
    spec.memory.loss_chunk_tokens = w->chunk;
}

static bool go(struct run *r)
{
    struct ranks ranks;
    struct err e = {0};
    if (plan_make(&spec, 0, &r->plan, &e)) {
        CHECK_MSG(0, "%s: %s", r->g->name, e.text);
        return false;
    }
    if (r->plan.n_ranks == 1) {
        body(NULL, 0, r);
        return true;
    }
    ranks_open(&ranks, r->plan.n_ranks, r->plan.segment_size,
               &(struct comm_options){.delay_max_us = 50, .delay_seed = 5});
    ranks_run(&ranks, body, r);
    ranks_close(&ranks);
    return true;
}

/* ---- comparing ------------------------------------------------------------------------------------- */

/* A gradient that is 0 by the mathematics (of BERT's key biases: softmax does not see what shifts a
 * row) is noise on both sides: it is held against the gradient of the tensor's neighbours. */
static double scale_of(const struct golden *g, const struct param *p)
{
    double all = 0, own = 0;
    for (int64_t i = 0; i < param_count(&spec.model.shape); i++)
        all += (double)g->grad[i] * g->grad[i];
    for (int64_t i = 0; i < p->count; i++)
        own += (double)g->grad[p->offset + i] * g->grad[p->offset + i];
    const double floor = 1e-4 *
                         sqrt(all / (double)param_count(&spec.model.shape) * (double)p->count);
    return sqrt(own) > floor ? sqrt(own) : floor * 1e4;
}

static void check_gradients(const struct golden *g, const struct way *w, const float *grad)
{
    struct param p;
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        param_get(&spec.model.shape, i, &p);
        double d = 0;
        for (int64_t k = 0; k < p.count; k++) {
            const double x = (double)grad[p.offset + k] - g->grad[p.offset + k];
            d += x * x;
        }
        const double rel = sqrt(d) / scale_of(g, &p);
        CHECK_MSG(rel <= 1e-5, "%s P %d %s: rel-L2 %.3g", g->name, w->P, p.name, rel);
    }
}

static void check_way(const struct golden *g, const struct way *w)
{
    struct run r = {.g = g};
    set_spec(g, w, JOB_TRAIN);
    r.grad = calloc((size_t)param_count(&spec.model.shape), 4);
    if (go(&r)) {
        CHECK_MSG(fabs(r.loss - g->loss) <= 1e-5 * g->loss, "%s P %d: loss %.9g, %.9g", g->name,
                  w->P, r.loss, g->loss);
        check_gradients(g, w, r.grad);
    }
    free(r.grad);
    r = (struct run){.g = g};
    set_spec(g, w, JOB_SCORE);
    r.logits = calloc((size_t)(g->n * g->S * g->V), 4);
    if (go(&r)) {
        const double d = rel_l2(r.logits, g->logits, g->n * g->S * g->V);
        CHECK_MSG(d <= 1e-5, "%s P %d: logits rel-L2 %.3g", g->name, w->P, d);
        CHECK_MSG(fabs(r.loss - g->loss) <= 1e-5 * g->loss, "%s P %d scored: loss %.9g, %.9g",
                  g->name, w->P, r.loss, g->loss);
    }
    free(r.logits);
}

static void check_golden(const char *name, int layout)
{
    static const struct way ways[] = {
        {1, DET_RUN, RECOMPUTE_NONE, EXCHANGE_AUTO, 0, 0},
        {1, DET_RANKS, RECOMPUTE_FULL, EXCHANGE_AUTO, 0, 3},
        {2, DET_RUN, RECOMPUTE_SELECTIVE, EXCHANGE_RING, 0, 0},
        {3, DET_RUN, RECOMPUTE_NONE, EXCHANGE_ALL_GATHER, 0, 7},
        {4, DET_RANKS, RECOMPUTE_NONE, EXCHANGE_RING, 0, 0},
        {4, DET_RUN, RECOMPUTE_FULL, EXCHANGE_SCAN, 0, 0},
        {8, DET_RUN, RECOMPUTE_SELECTIVE, EXCHANGE_RING, 0, 4},
    };
    struct golden g;
    golden_open(&g, name);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = ways[i];
        w.layout = w.determinism == DET_RANKS ? LAYOUT_CONTIGUOUS : layout;
        check_way(&g, &w);
    }
    golden_close(&g);
}

static void test_bert(void)
{
    check_golden("bert", LAYOUT_CONTIGUOUS);
    check_golden("bert_wide", LAYOUT_CONTIGUOUS);
}

static void test_mistral(void)
{
    check_golden("mistral", LAYOUT_ZIGZAG);
}

static void test_tnl(void)
{
    check_golden("tnl", LAYOUT_CONTIGUOUS);
    check_golden("tnl_wide", LAYOUT_CONTIGUOUS);
}

static void test_linear(void)
{
    check_golden("linear", LAYOUT_CONTIGUOUS);
    check_golden("linear_relu", LAYOUT_CONTIGUOUS);
}

static void test_retnet(void)
{
    check_golden("retnet", LAYOUT_CONTIGUOUS);
    check_golden("retnet_wide", LAYOUT_CONTIGUOUS);
}

static void test_minimax(void)
{
    check_golden("minimax", LAYOUT_CONTIGUOUS);
    check_golden("minimax_wide", LAYOUT_CONTIGUOUS);
}

int main(void)
{
    RUN(test_tnl);
    RUN(test_linear);
    RUN(test_retnet);
    RUN(test_bert);
    RUN(test_mistral);
    RUN(test_minimax);
    return test_done("golden");
}
