#include "worker/plan/machine.h"

#include <math.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/plan/work.h"

#define GIB 1073741824.0

void machine_of_hardware(const struct hardware *h, struct machine *out)
{
    *out = (struct machine){.known = h->tflops > 0,
                            .memory = (int64_t)(h->memory_gib * GIB),
                            .ranks_per_node = h->devices / h->nodes,
                            .link = h->link_gbs * 1e9,
                            .hop = h->link_us * 1e-6};
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
    memcpy(m->rate[kind][PRECISION_FP16], f32, size); /* a CPU's are those of floats */
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
                            .copies = true};
    set_rate(out, RATE_GEMM, p->gemm_f32, p->gemm_bf16);
    set_rate(out, RATE_ATTN, p->attn_f32, p->attn_bf16);
    set_rate(out, RATE_ATTN_BACK, p->attn_back_f32, p->attn_back_bf16);
    set_rate(out, RATE_LINEAR, p->linear, p->linear);
    set_rate(out, RATE_LINEAR_BACK, p->linear_back, p->linear_back);
}

/* ---- what a step takes ----------------------------------------------------------------------- */

double machine_share(const struct machine *m, const struct plan *p)
{
    const int here = p->n_ranks < m->ranks_per_node ? p->n_ranks : m->ranks_per_node;
    return m->cores <= 0 ? 1 : 1 / fmax(1, here * p->n_threads / m->cores);
}

/* How many threads or devices of its own a rank has. */
static double threads_of(const struct machine *m, const struct plan *p)
{
    return m->cores <= 0 ? 1 : p->n_threads * machine_share(m, p);
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
    const int peers = within_ring(purpose)       ? p->sp
                      : purpose == PURPOSE_PARAM ? p->zero_group
                                                 : p->n_ranks;
    const double rate = peers > m->ranks_per_node ? m->network : m->link;
    if (!c->messages_sent && !c->messages_received) return 0; /* of one device no link is known */
    const double n = (double)(c->messages_sent > c->messages_received ? c->messages_sent
                                                                      : c->messages_received);
    const double bytes = (double)(c->bytes_sent > c->bytes_received ? c->bytes_sent
                                                                    : c->bytes_received);
    return n * m->hop + bytes / rate;
}

/* A proof runs its one-rank reference after the ranks' pass, on the first of them alone. */
static double reference_s(const struct machine *m, const struct job_spec *spec,
                          const struct plan *p)
{
    struct plan ref;
    struct work w;
    struct err e;
    if (p->kind != JOB_VERIFY || plan_reference(spec, p, &ref, &e)) return 0;
    work_count(m, &spec->model.shape, &ref, &w);
    return (w.products_s + w.attention_s + w.other_s) / threads_of(m, &ref);
}

void machine_estimate(const struct machine *m, const struct job_spec *spec, const struct plan *p,
                      struct estimate *out)
{
    const double threads = threads_of(m, p);
    struct work w;
    double ring = 0, other = 0;
    work_count(m, &spec->model.shape, p, &w);
    for (int i = 0; i < PURPOSE_N; i++) {
        const bool is_ring = i == PURPOSE_RING_KV || i == PURPOSE_RING_DKV;
        const bool is_state = i == PURPOSE_STATE || i == PURPOSE_DSTATE;
        *(is_ring ? &ring : &other) += purpose_s(m, p, i) * (is_state ? chain(spec, p) : 1);
    }
    *out = (struct estimate){.compute_s = (w.products_s + w.attention_s + w.other_s) / threads,
                             .exchange_s = ring + other};
    if (!m->copies) out->hidden_s = fmin(ring, w.attention_s / threads);
    out->compute_s += reference_s(m, spec, p);
    out->step_s = out->compute_s + out->exchange_s - out->hidden_s;
    out->tokens_s = (double)p->seq_len * (double)p->micro_batches * p->dp / out->step_s;
}
