/* Checks inference in 16-bit types. Decoding with a cache of 16 bits must give the same logits as
 * a prefill of all tokens, up to rounding errors. All ranks must generate the same text. Texts and
 * scores may differ from the results in fp32 only by rounding errors. */
#include <math.h>
#include "tests/lib/prefill.h"
#include "tests/lib/tiny.h"
#include "worker/plan/volume.h"
#include "worker/comm/ledger.h"
#include "worker/plan/check.h"
#include "worker/family/shape.h"
#include "worker/infer/infer.h"

enum { ROOM = 20, MAX_PROMPT = 64, MAX_V = 260 };

struct story {
    struct job_spec spec;
    int64_t n_prompt;
    /* the logits after each of the ROOM tokens that follow the prompt, on rank 0 and on the last
     * rank */
    float decoded[2][ROOM][MAX_V], prefilled[ROOM][MAX_V];
};

static void story_spec(struct story *s, int P, enum layout_id layout, enum precision_id precision)
{
    struct err e = {0};
    spec_defaults(&s->spec);
    shape_defaults(&s->spec.model.shape);
    s->spec.kind = JOB_GENERATE;
    s->spec.model.shape = tiny_shape;
    s->spec.precision.params = precision;
    s->spec.seed = 3;
    s->spec.resources.ranks = P;
    s->spec.resources.threads = 1;
    s->spec.parallel.layout = P > 1 ? layout : LAYOUT_AUTO;
    s->spec.sampling.max_tokens = ROOM;
    s->spec.data.seq_len = MAX_PROMPT + ROOM;
    s->spec.input.prompt = tiny_text(&s->spec, "x");
    CHECK_MSG(!family_check(&s->spec, &e), "%s: %s", e.field, e.text);
}

static int32_t token(int64_t i)
{
    return (int32_t)(32 + i * i % 91);
}

/* Checks the bytes that were sent for attention: one ring of keys and values in 16 bits for the
 * prompt, and the rows of the next n tokens in fp32. */
static bool counts_hold(const struct model *m, int64_t n)
{
    struct comm_count kv = {0}, decode = {0};
    const struct model_shape *s = &m->shape;
    if (!m->comm) return true;
    const int P = comm_size(m->comm);
    volume_add(&kv,
               volume_ring_kv(P, m->sp.shard.T, s->n_kv_heads, s->head_dim, m->plan->precision),
               s->n_layers);
    volume_add(&decode, plan_decode_comm(s, P, 1), n);
    return ledger_equal(&comm_ledger(m->comm)[PURPOSE_RING_KV], &kv) &&
           ledger_equal(&comm_ledger(m->comm)[PURPOSE_DECODE], &decode);
}

static int decode_all(struct tiny_rank *t, struct story *s, int side, struct err *e)
{
    struct infer in = {.model = &t->model, .spec = &s->spec};
    float first[MAX_V];
    int32_t text[MAX_PROMPT];
    for (int64_t i = 0; i < s->n_prompt; i++) text[i] = token(i);
    infer_at(&in, 1);
    if (prefill(&in, text, s->n_prompt, first, e)) return -1;
    for (int64_t i = 0; i < ROOM; i++) {
        struct tensor logits;
        if (model_decode(&t->model, token(s->n_prompt + i), &logits, e)) return -1;
        if (side >= 0) memcpy(s->decoded[side][i], logits.data, sizeof first);
    }
    CHECK(counts_hold(&t->model, ROOM));
    return 0;
}

static void body(struct ranks *g, int rank, void *arg)
{
    struct story *s = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    float logits[MAX_V];
    int32_t text[MAX_PROMPT + ROOM];
    int rc = tiny_open(t, &s->spec, g, rank, &e);
    struct infer in = {.model = &t->model, .spec = &s->spec};
    if (!rc) rc = decode_all(t, s, rank == 0 ? 0 : rank == g->P - 1 ? 1 : -1, &e);
    for (int64_t i = 0; i < s->n_prompt + ROOM; i++) text[i] = token(i);
    for (int64_t i = 0; i < ROOM && !rc; i++) {
        rc = prefill(&in, text, s->n_prompt + i + 1, logits, &e);
        if (rank == 0) memcpy(s->prefilled[i], logits, sizeof logits);
    }
    if (rc) ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
}

static void tell(struct story *s, int P, enum layout_id layout, enum precision_id precision)
{
    static struct plan p;
    struct err e = {0};
    struct ranks g;
    story_spec(s, P, layout, precision);
    CHECK_MSG(!plan_make(&s->spec, 0, &p, &e), "%s", e.text);
    ranks_open(&g, P, p.segment_size, NULL);
    ranks_run(&g, body, s);
    ranks_check(&g);
    ranks_close(&g);
}

static double rel(const void *a, const void *b)
{
    const float *x = a, *y = b;
    double d = 0, n = 0;
    for (int i = 0; i < ROOM * MAX_V; i++) {
        d += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        n += (double)y[i] * y[i];
    }
    return sqrt(d / n);
}

/* Compares decoding with prefilling, and both with fp32. A computation has 11 roundings per layer,
 * of at most u each (2^-9 in bf16 and 2^-12 in fp16): the norm, q, k, v, RoPE, o and the residual,
 * the norm, gate and up, the activation, the residual. Two independent computations differ by at
 * most sqrt(2 * 11 L) u. The difference from fp32 is at most sqrt(3 * 11 L) u, because three steps
 * round as much as one computation: the computation itself, model_random and tiny_scale. The
 * latter two round the weights. */
static void check_decode(enum precision_id precision, double u)
{
    static struct story fp32, s;
    static const int64_t lengths[] = {1, 5, 37};
    const double same = sqrt(22.0 * tiny_shape.n_layers) * u;
    const double fp32_apart = sqrt(33.0 * tiny_shape.n_layers) * u;
    for (int k = 0; k < 3; k++) {
        fp32.n_prompt = s.n_prompt = lengths[k];
        tell(&fp32, 1, LAYOUT_AUTO, PRECISION_FP32);
        for (int P = 1; P <= 4; P++) {
            tell(&s, P, k % 2 ? LAYOUT_CONTIGUOUS : LAYOUT_ZIGZAG, precision);
            const double a = rel(s.decoded[0], s.prefilled), b = rel(s.decoded[0], fp32.decoded[0]);
            CHECK_MSG(a <= same, "prompt of %lld, P %d: decoded and prefilled logits rel-L2 %g",
                      (long long)lengths[k], P, a);
            CHECK_MSG(b > 0 && b <= fp32_apart, "prompt of %lld, P %d: %g bits and fp32 rel-L2 %g",
                      (long long)lengths[k], P, -log2(u), b);
            CHECK(P == 1 || !memcmp(s.decoded[0], s.decoded[1], sizeof s.decoded[0]));
        }
    }
}

static void test_decode(void)
{
    check_decode(PRECISION_BF16, 0x1p-9), check_decode(PRECISION_FP16, 0x1p-12);
}

int main(void)
{
    RUN(test_decode);
    return test_done("infer_half");
}
