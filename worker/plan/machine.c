/* machine.c: computes rates from a profile or from described hardware. Adds up the time of a step:
 * work, messages by purpose, copies, and the idle time of the pipeline. */
#include "worker/plan/machine.h"

#include <math.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/plan/work.h"

#define GIB  1073741824.0
#define DISK 1e9 /* assumed bytes/s at which a node's disk writes or reads; it is not measured */

void machine_of_hardware(const struct hardware *h, struct machine *out)
{
    *out = (struct machine){.known = h->tflops > 0,
                            .memory = (int64_t)(h->memory_gib * GIB),
                            .ranks_per_node = h->devices / h->nodes,
                            .link = h->link_gbs * 1e9,
                            .hop = h->link_us * 1e-6,
                            .offload = h->host_gbs * 1e9};
    out->network = h->network_gbs > 0 ? h->network_gbs * 1e9 : out->link;
    for (int k = 0; k < RATE_N; k++)
        for (int i = 0; i < PRECISION_N; i++)
            for (int j = 0; j < PROFILE_SIZES; j++) out->rate[k][i][j] = h->tflops * 1e12;
}

static void set_rate(struct machine *m, enum machine_rate kind, const double *f32,
                     const double *bf16)
{
    const size_t size = PROFILE_SIZES * sizeof *f32;
    memcpy(m->rate[kind][PRECISION_FP32], f32, size);
    memcpy(m->rate[kind][PRECISION_BF16], bf16, size);
    /* a CPU has the same rates in fp16 as in fp32 */
    memcpy(m->rate[kind][PRECISION_FP16], f32, size);
}

void machine_of_profile(const struct profile *p, int32_t cores, struct machine *out)
{
    *out = (struct machine){.known = p->hop > 0,
                            .measured = true,
                            .ranks_per_node = JOB_MAX_RANKS,
                            .cores = cores,
                            .norm = p->norm,
                            .point = p->point,
                            .turn = p->turn,
                            .update = p->update,
                            .link = p->copy,
                            .network = p->copy,
                            .hop = p->hop,
                            .offload = DISK,
                            .copies = true};
    set_rate(out, RATE_GEMM, p->gemm_f32, p->gemm_bf16);
    set_rate(out, RATE_ATTN, p->attn_f32, p->attn_bf16);
    set_rate(out, RATE_ATTN_BACK, p->attn_back_f32, p->attn_back_bf16);
    set_rate(out, RATE_LINEAR, p->linear, p->linear);
    set_rate(out, RATE_LINEAR_BACK, p->linear_back, p->linear_back);
}

/* ---- the time of a step ---------------------------------------------------------------------- */

double machine_share(const struct machine *m, const struct plan *p)
{
    const int here = p->n_ranks < m->ranks_per_node ? p->n_ranks : m->ranks_per_node;
    return m->cores <= 0 ? 1 : 1 / fmax(1, here * p->n_threads / m->cores);
}

/* Returns the number of threads or devices that a rank has for itself. The number may be a
 * fraction. */
static double threads_of(const struct machine *m, const struct plan *p)
{
    return m->cores <= 0 ? 1 : p->n_threads * machine_share(m, p);
}

/* Returns the size of the smallest block of consecutive ranks within which messages of this
 * purpose are exchanged. If a node has fewer ranks, the network carries the messages. */
static int span_of(const struct plan *p, int purpose)
{
    const int ring = p->sp * p->tp, group = p->zero_group;
    switch (purpose) {
    case PURPOSE_TENSOR: return p->tp > 1 ? p->tp : ring;
    case PURPOSE_HEADS: return p->grid[0] ? ring : p->ulysses * p->tp;
    case PURPOSE_STAGE: return p->pp * ring;
    case PURPOSE_CONTROL: return p->n_ranks;
    case PURPOSE_GRAD:
    case PURPOSE_PARAM:
        /* A group has the sp ranks of its stage for each of several values of d (axes.h). In the
         * order of ranks, all stages of one d come before the stages of the next d. */
        return group <= p->sp ? group * p->tp : ((group / p->sp - 1) * p->pp + 1) * ring;
    default: return ring;
    }
}

/* Returns the bytes of gradients that ZeRO's groups exchange with each other. Each group sends its
 * sums of shards and receives the total sums. */
static double across_groups(const struct plan *p)
{
    const double groups = (double)plan_sum_ranks(p) / p->zero_group;
    const double sums = (double)plan_sums_in_step(p);
    return 2 * (groups - 1) / groups * 4 * (double)p->n_shard * sums;
}

/* Returns a factor for the time of the exchange of states, relative to the time of one rank's
 * messages. A ring passes states from one rank to the next. A scan passes pieces of a state, one
 * after the other, in the same direction. all_gather takes as long as one rank's messages. */
static double chain(const struct job_spec *s, const struct plan *p)
{
    const int asked = s->parallel.exchange, planned = p->exchange;
    const struct model_shape *m = &s->model.shape;
    const double pieces = plan_scan_pieces(m->delta_heads ? m->delta_heads : m->head_dim);
    switch (planned != EXCHANGE_AUTO ? planned : asked) {
    case EXCHANGE_ALL_GATHER: return 1;
    case EXCHANGE_SCAN: return (pieces + p->sp - 2) / pieces;
    default: return p->sp - 1;
    }
}

static double purpose_s(const struct machine *m, const struct plan *p, int purpose)
{
    const struct comm_count *c = &p->comm[purpose];
    const double rate = span_of(p, purpose) > m->ranks_per_node ? m->network : m->link;
    /* no rate is needed, and the rate may be unknown */
    if (!c->messages_sent && !c->messages_received) return 0;
    const double n = (double)(c->messages_sent > c->messages_received ? c->messages_sent
                                                                      : c->messages_received);
    const double bytes = (double)(c->bytes_sent > c->bytes_received ? c->bytes_sent
                                                                    : c->bytes_received);
    const double apart = purpose == PURPOSE_GRAD && p->n_ranks > m->ranks_per_node
                             ? fmin(bytes, across_groups(p))
                             : 0;
    return n * m->hop + (bytes - apart) / rate + (apart > 0 ? apart / m->network : 0);
}

/* Estimates the time of a proof's one-rank reference, which runs only on the first rank while the
 * other ranks wait. */
static double reference_s(const struct machine *m, const struct job_spec *spec,
                          const struct plan *p)
{
    struct plan ref;
    struct work w;
    struct err e;
    if (p->kind != JOB_VERIFY || plan_reference(spec, p, &ref, &e)) return 0;
    work_count(m, &spec->model.shape, &ref, &w);
    return plan_verify_samples(p) * (w.products_s + w.attention_s + w.other_s) /
           threads_of(m, &ref);
}

/* Returns the seconds in which a rank copies bytes to the store or back. If ranks compute on the
 * CPU cores of one machine, they share its disk. */
static double store_s(const struct machine *m, const struct plan *p, double bytes)
{
    const int here = p->n_ranks < m->ranks_per_node ? p->n_ranks : m->ranks_per_node;
    return bytes / m->offload * (m->copies ? here : 1);
}

/* Returns the seconds of a step's copies of activations in one direction. */
static double offload_s(const struct machine *m, const struct plan *p)
{
    if (!p->offload.on) return 0;
    return store_s(m, p, (double)plan_offloaded(p, p->T) * (double)p->micro_batches);
}

/* Seconds of a step's copies of an offloaded optimizer. */
struct away_time {
    double gradients; /* during the backward passes, in both directions */
    double in, out;   /* during the update */
};

static struct away_time away_time(const struct machine *m, const struct plan *p)
{
    if (!p->offload.optimizer) return (struct away_time){0};
    const struct offload_count passes = plan_away_moves(p, 0, false),
                               all = plan_away_moves(p, 0, true);
    return (struct away_time){
        .gradients = store_s(m, p, (double)passes.bytes_out + (double)passes.bytes_in),
        .in = store_s(m, p, (double)(all.bytes_in - passes.bytes_in)),
        .out = store_s(m, p, (double)(all.bytes_out - passes.bytes_out))};
}

/* Returns the part of an update's copies that is hidden. While a piece is updated, the next one
 * arrives and the one before it leaves. A bus carries both directions at the same time, but one
 * thread reads and writes a file. */
static double hidden_update(const struct plan *p, const struct away_time *t, double update_s)
{
    const double copies = p->own_memory ? fmax(t->in, t->out) : t->in + t->out;
    return t->in + t->out + update_s - fmax(copies, update_s);
}

/* Returns the share of the forward pass in a step. The backward pass takes twice as long as the
 * forward pass. Under recompute "full" it also computes the forward pass again. */
static double forward_part(const struct plan *p)
{
    return p->recompute == RECOMPUTE_FULL ? 1.0 / 4 : 1.0 / 3;
}

static double work_s(const struct work *w)
{
    return w->products_s + w->attention_s + w->other_s;
}

/* Counts the work of the pipeline stage that computes longest. */
static void count_slowest(const struct machine *m, const struct job_spec *spec,
                          const struct plan *p, struct work *out)
{
    struct plan at = *p;
    *out = (struct work){0};
    for (int i = 0; i < p->pp; i++) {
        struct work w;
        if (p->pp > 1) plan_set_stage(&at, i);
        work_count(m, &spec->model.shape, &at, &w);
        if (work_s(&w) >= work_s(out)) *out = w;
    }
}

/* Returns how long a stage waits under 1F1B, before its first sequence and after its last one
 * together. */
static double bubble_s(const struct plan *p, double compute_s)
{
    return compute_s / (double)p->micro_batches * (p->pp - 1);
}

void machine_estimate(const struct machine *m, const struct job_spec *spec, const struct plan *p,
                      struct estimate *out)
{
    const double threads = threads_of(m, p);
    struct work w;
    double ring = 0, other = 0;
    count_slowest(m, spec, p, &w);
    for (int i = 0; i < PURPOSE_N; i++) {
        const bool is_ring = i == PURPOSE_RING_KV || i == PURPOSE_RING_DKV;
        const bool is_state = i == PURPOSE_STATE || i == PURPOSE_DSTATE;
        *(is_ring ? &ring : &other) += purpose_s(m, p, i) * (is_state ? chain(spec, p) : 1);
    }
    *out = (struct estimate){.compute_s = work_s(&w) / threads, .exchange_s = ring + other};
    if (!m->copies) out->hidden_s = fmin(ring, w.attention_s / threads);
    const double update = w.update_s / threads, passes = out->compute_s - update;
    const double copies = offload_s(m, p), forward = passes * forward_part(p);
    const struct away_time away = away_time(m, p);
    out->offload_s = 2 * copies + away.gradients + away.in + away.out;
    out->hidden_s += fmin(copies, forward) + fmin(copies + away.gradients, passes - forward) +
                     hidden_update(p, &away, update);
    out->bubble_s = bubble_s(p, out->compute_s);
    out->compute_s += reference_s(m, spec, p);
    out->step_s = out->compute_s + out->bubble_s + out->exchange_s + out->offload_s - out->hidden_s;
    out->tokens_s = (double)p->seq_len * (double)p->micro_batches * p->dp / out->step_s;
}
