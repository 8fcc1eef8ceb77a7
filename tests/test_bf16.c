/* Training in bf16: how far its roundings may lie from fp32, that ranks do not add to them, and that
 * bits, bytes, pages and checkpoints are as exact as in fp32.
 *
 * u = 2^-9: the largest relative error of one rounding to bf16. Sums are fp32, so an error is made only
 * where a number is stored: at N_ROUND places per layer along the residual stream in forward (the
 * embedding is exact: initial weights are bf16 numbers here), as many again in backward. */
#include <unistd.h>
#include "api/core/file.h"
#include "kernels/bf16.h"
#include "tests/engine.h"
#include "worker/model/hf.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define U 0x1p-9

static struct job_spec spec;
static bool small;

/* ---- a run, and what it computed --------------------------------------------------------------- */

enum { MAX_S = 1024, MAX_C = 64 };

struct seen { /* by global position, from all ranks */
    float hidden[MAX_S * MAX_C];
    double nll[MAX_S];
};

static void look(struct train *t, int rank, void *arg)
{
    struct seen *s = arg;
    struct model *m = &t->model;
    const struct tensor h = model_hidden(m);
    (void)rank;
    for (int64_t i = 0; i < m->sp.shard.T; i++) {
        const int64_t pos = shard_pos(&m->sp.shard, i);
        if (pos >= m->sp.shard.S) continue;
        s->nll[pos] = m->nll[i];
        for (int64_t c = 0; c < h.cols; c++)
            s->hidden[pos * h.cols + c] = h.dtype == DT_F32
                                              ? ((float *)h.data)[i * h.ld + c]
                                              : bf16_value(((uint16_t *)h.data)[i * h.ld + c]);
    }
}

/* Weights of ordinary size that are bf16 numbers, so that both precisions start from the same. */
static float *weights(const struct model_shape *s, int seed)
{
    float *w = calloc((size_t)param_count(s), sizeof *w);
    if (!w) abort();
    for (int i = 0; i < param_tensors(s); i++) {
        struct param p;
        param_get(s, i, &p);
        for (int64_t k = 0; k < p.count; k++) {
            const double r = synth_hash((uint64_t)seed << 40 | (uint64_t)(p.offset + k)) / 0x1p32;
            const double x = p.cols ? (r - 0.5) * 1.8 / sqrt((double)p.cols) : 0.8 + 0.4 * r;
            w[p.offset + k] = bf16_value(bf16_round((float)(i ? x : 2 * (r - 0.5))));
        }
    }
    return w;
}

static void go(struct engine_run *r, struct synth *y, enum precision_id p, struct seen *seen)
{
    static struct job_spec own; /* as engine_run keeps it */
    own = spec;
    own.precision.params = p;
    r->source = (struct train_source){synth_batch, synth_targets, y};
    if (!r->steps) r->steps = 1;
    if (seen) {
        memset(seen, 0xff, sizeof *seen);
        r->after_step = look;
        r->arg = seen;
    }
    engine_go(r, &own);
}

/* ---- errors ------------------------------------------------------------------------------------ */

struct error { /* sums of squares over everything compared */
    double hidden, nll, grad, loss;
};

static double square_f(const float *a, const float *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return s;
}

static double square_d(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += (a[i] - b[i]) * (a[i] - b[i]);
    return s;
}

static void add_error(struct error *e, const struct engine_run *r, const struct seen *s,
                      const struct engine_run *ref, const struct seen *rs, int64_t S)
{
    e->hidden += square_f(s->hidden, rs->hidden, S * spec.model.shape.width);
    e->nll += square_d(s->nll, rs->nll, S);
    e->grad += square_f(r->grad, ref->grad, ref->plan.n_params);
    e->loss += (r->loss[0] - ref->loss[0]) * (r->loss[0] - ref->loss[0]);
}

/* Eight ranks round where one does, because what they pass on and add up is fp32 (keys and values are
 * passed on as they are stored). Only fp32 sums in another order tip a rounding now and then, to the
 * other neighbour, which is as far off on the average. So both errors are drawn from one distribution,
 * and over some ten thousand numbers their rms agrees to within a few percent; 10 % is the bound. A
 * sum over blocks or hops that is kept in bf16 adds P - 1 roundings to the about ten there are. */
static void test_ranks_add_no_error(void)
{
    static struct seen ref_seen, one_seen, many_seen;
    struct error one = {0}, many = {0};
    const int n_seeds = small ? 3 : 6;
    for (int seed = 1; seed <= n_seeds; seed++) {
        struct synth y = {.S = 120, .doc_len = seed % 2 ? 0 : 50, .vocab = 61};
        engine_spec(&spec, y.S);
        spec.parallel.layout = seed % 3 ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS;
        float *w = weights(&spec.model.shape, seed);
        struct engine_run ref = {.P = 1, .initial = w}, a = ref, b = {.P = 8, .initial = w};
        go(&ref, &y, PRECISION_FP32, &ref_seen);
        go(&a, &y, PRECISION_BF16, &one_seen);
        go(&b, &y, PRECISION_BF16, &many_seen);
        add_error(&one, &a, &one_seen, &ref, &ref_seen, y.S);
        add_error(&many, &b, &many_seen, &ref, &ref_seen, y.S);
        engine_free(&ref), engine_free(&a), engine_free(&b);
        free(w);
    }
    const double e1[] = {one.hidden, one.nll, one.grad, one.loss};
    const double e8[] = {many.hidden, many.nll, many.grad, many.loss};
    static const char *const names[] = {"hidden", "nll", "gradient", "loss"};
    printf("  error of 8 ranks over 1:");
    for (int i = 0; i < 4; i++) {
        printf(" %s %.3f", names[i], sqrt(e8[i] / e1[i]));
        CHECK_MSG(e1[i] > 0 && e8[i] > 0 && sqrt(e8[i] / e1[i]) <= 1.10, "%s: rms error %g and %g",
                  names[i], sqrt(e1[i]), sqrt(e8[i]));
    }
    printf("\n");
}

int main(void)
{
    small = SANITIZED || getenv("SEQD_TEST_SMALL");
    RUN(test_ranks_add_no_error);
    return test_done("bf16");
}
