#include "worker/plan/machine.h"

#include <math.h>

#define GIB 1073741824.0

void machine_of_hardware(const struct hardware *h, struct machine *out)
{
    *out = (struct machine){.known = h->tflops > 0,
                            .memory = (int64_t)(h->memory_gib * GIB),
                            .ranks_per_node = h->devices / h->nodes,
                            .link = h->link_gbs * 1e9,
                            .hop = h->link_us * 1e-6};
    out->network = h->network_gbs > 0 ? h->network_gbs * 1e9 : out->link;
    for (int i = 0; i < PRECISION_N; i++) out->gemm[i] = out->attn[i] = h->tflops * 1e12;
}

void machine_of_profile(const struct profile *p, int32_t cores, struct machine *out)
{
    *out = (struct machine){.known = p->gemm_f32 > 0 && p->attn_f32 > 0 && p->copy > 0,
                            .measured = true,
                            .ranks_per_node = JOB_MAX_RANKS,
                            .cores = cores,
                            .link = p->copy,
                            .network = p->copy,
                            .hop = p->hop,
                            .copies = true};
    out->gemm[PRECISION_FP32] = p->gemm_f32;
    out->gemm[PRECISION_BF16] = p->gemm_bf16 > 0 ? p->gemm_bf16 : p->gemm_f32;
    out->attn[PRECISION_FP32] = p->attn_f32;
    out->attn[PRECISION_BF16] = p->attn_bf16 > 0 ? p->attn_bf16 : p->attn_f32;
    /* A CPU's products of half floats are products of floats. */
    out->gemm[PRECISION_FP16] = out->gemm[PRECISION_FP32];
    out->attn[PRECISION_FP16] = out->attn[PRECISION_FP32];
}

/* ---- what a step takes ----------------------------------------------------------------------- */

/* Flops of softmax attention over a whole sequence, as the plan counts them: the pairs that a
 * causal mask leaves. Where layers differ, or see less than the sequence, all is
 * taken for products. */
static double attention_flops(const struct job_spec *s, const struct plan *p)
{
    const struct model_shape *m = &s->model.shape;
    const struct family_traits *f = family_traits(m->family);
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    const double S = (double)p->S, HD = (double)(m->n_heads * m->head_dim);
    if (!f->softmax || f->linear || f->diffusion) return 0;
    const double pairs = f->masked ? S * S : S * S / 2;
    return fmin(p->flops,
                4 * pairs * HD * m->n_layers * (back ? 3 : 1) * (double)p->micro_batches * p->dp);
}

/* Attention of the slowest rank, times the number of ranks, over that of all: with a causal mask
 * and contiguous shards the last rank sees nearly everything. */
static double imbalance(const struct plan *p, bool masked)
{
    if (p->layout == LAYOUT_ZIGZAG || p->strategy != STRATEGY_RSA || masked) return 1;
    return (2.0 * p->sp - 1) / p->sp;
}

struct work {
    double products_s, attention_s; /* on the slowest rank */
};

static struct work work_of(const struct machine *m, const struct job_spec *s, const struct plan *p)
{
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    const bool again = back && p->recompute != RECOMPUTE_NONE;
    const bool whole = back && p->recompute == RECOMPUTE_FULL;
    const double attention = attention_flops(s, p), ranks = p->n_ranks;
    const double slowest = imbalance(p, family_traits(s->model.shape.family)->masked);
    const int here = p->n_ranks < m->ranks_per_node ? p->n_ranks : m->ranks_per_node;
    /* Threads beyond the cores take turns. */
    const double turns = m->cores > 0 ? fmax(1, here * p->n_threads / m->cores) : 1;
    const double threads = m->cores > 0 ? p->n_threads / turns : 1;
    return (struct work){
        (p->flops - attention) * (again ? 4.0 / 3 : 1) / ranks / threads / m->gemm[p->precision],
        attention * (whole ? 4.0 / 3 : 1) * slowest / ranks / threads / m->attn[p->precision]};
}

static bool within_ring(int purpose)
{
    return purpose != PURPOSE_GRAD && purpose != PURPOSE_PARAM && purpose != PURPOSE_CONTROL;
}

/* By how much longer than one rank's messages the exchange of states takes: one rank after another
 * round the ring; a scan's pieces follow each other down that chain; of all at once, not at all. */
static double chain(const struct job_spec *s, const struct plan *p)
{
    const int asked = s->parallel.exchange, planned = p->exchange;
    const double pieces = plan_scan_pieces(s->model.shape.head_dim);
    switch (planned != EXCHANGE_AUTO ? planned : asked) {
    case EXCHANGE_ALL_GATHER: return 1;
    case EXCHANGE_SCAN: return (pieces + p->sp - 2) / pieces;
    default: return p->sp - 1;
    }
}

static double purpose_s(const struct machine *m, const struct plan *p, int purpose)
{
    const struct comm_count *c = &p->comm[purpose];
    const int peers = within_ring(purpose) ? p->sp : p->n_ranks;
    const double rate = peers > m->ranks_per_node ? m->network : m->link;
    if (!c->messages_sent && !c->messages_received) return 0; /* of one device no link is known */
    const double n = (double)(c->messages_sent > c->messages_received ? c->messages_sent
                                                                      : c->messages_received);
    const double bytes = (double)(c->bytes_sent > c->bytes_received ? c->bytes_sent
                                                                    : c->bytes_received);
    return n * m->hop + bytes / rate;
}

void machine_estimate(const struct machine *m, const struct job_spec *spec, const struct plan *p,
                      struct estimate *out)
{
    const struct work w = work_of(m, spec, p);
    double ring = 0, other = 0;
    for (int i = 0; i < PURPOSE_N; i++) {
        const bool is_ring = i == PURPOSE_RING_KV || i == PURPOSE_RING_DKV;
        const bool is_state = i == PURPOSE_STATE || i == PURPOSE_DSTATE;
        *(is_ring ? &ring : &other) += purpose_s(m, p, i) * (is_state ? chain(spec, p) : 1);
    }
    *out = (struct estimate){.compute_s = w.products_s + w.attention_s, .exchange_s = ring + other};
    if (!m->copies) out->hidden_s = fmin(ring, w.attention_s);
    out->step_s = out->compute_s + out->exchange_s - out->hidden_s;
    out->tokens_s = (double)p->seq_len * (double)p->micro_batches * p->dp / out->step_s;
}
