/* form.c: counts the bytes of both forms on prepared samples, and chooses the faster form. If the
 * machine is not known, chooses the form with fewer bytes. */
#include "worker/plan/form.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/plan/place.h"
#include "worker/plan/strategy.h"
#include "worker/plan/traffic.h"

bool form_waits(const struct job_spec *s)
{
    const bool learns = s->kind == JOB_TRAIN || s->kind == JOB_VERIFY;
    const struct strategy_row *row = strategy_row(s->parallel.strategy);
    return learns && row && row->form[FORM_ALL_GATHER] && s->parallel.sp > 1 &&
           s->parallel.form == FORM_AUTO && (s->data.document_mask || s->model.shape.window > 0);
}

/* ---- counting -------------------------------------------------------------------------------- */

/* Returns the counts of the direction with more bytes. Only this direction matters, because a rank
 * sends and receives at the same time. */
static struct form_traffic longer(const struct comm_count *c)
{
    if (c->bytes_received > c->bytes_sent)
        return (struct form_traffic){c->messages_received, c->bytes_received};
    return (struct form_traffic){c->messages_sent, c->bytes_sent};
}

static struct form_traffic sample_traffic(const struct job_spec *s, const struct plan *p,
                                          const struct reach_map *map)
{
    const struct traffic t = {TRAFFIC_BOTH, p->S, 1, map};
    struct form_traffic most = {0, 0};
    for (int r = 0; r < p->sp; r++) {
        struct comm_count c[PURPOSE_N] = {0};
        if (traffic_program(&s->model.shape, p, r, &t, c, NULL)) continue;
        const struct form_traffic kv = longer(&c[PURPOSE_RING_KV]);
        const struct form_traffic dkv = longer(&c[PURPOSE_RING_DKV]);
        if (kv.bytes + dkv.bytes <= most.bytes) continue;
        most = (struct form_traffic){kv.messages + dkv.messages, kv.bytes + dkv.bytes};
    }
    return most;
}

static void count_form(const struct job_spec *s, const struct plan *p, enum form_id form,
                       const struct reach_map *map, struct form_traffic *sum)
{
    struct plan at = *p;
    at.form = form;
    const struct form_traffic one = sample_traffic(s, &at, map);
    sum->messages += one.messages;
    sum->bytes += one.bytes;
}

void form_count(const struct job_spec *s, const struct plan *p, const struct reach_map *map,
                struct form_seen *seen)
{
    count_form(s, p, FORM_BLOCKWISE, map, &seen->blockwise);
    count_form(s, p, FORM_ALL_GATHER, map, &seen->all_gather);
    seen->n_samples++;
}

/* ---- choosing -------------------------------------------------------------------------------- */

struct candidate {
    bool fits;
    enum recompute_id recompute;
    int64_t mlp_chunk;
    enum offload_id offload;
    double bytes, messages; /* per sample */
    double step_s;          /* 0 if no machine is known */
    int64_t size;           /* bytes per rank */
};

static struct candidate candidate_of(const struct job_spec *s, const struct machine *m,
                                     enum form_id form, const struct form_traffic *t, int64_t n)
{
    struct job_spec *spec = malloc(sizeof *spec);
    struct plan *p = calloc(1, sizeof *p);
    struct candidate c = {.bytes = (double)t->bytes / (double)n,
                          .messages = (double)t->messages / (double)n};
    struct err e;
    if (!spec || !p) abort();
    *spec = *s;
    spec->parallel.form = form;
    c.fits = plan_try(spec, s->resources.memory_mib << 20, p, &e) == 0;
    c.recompute = p->recompute;
    c.mlp_chunk = p->mlp_chunk;
    c.offload = plan_offload_id(p);
    c.size = p->arena_size + p->segment_size;
    const double samples = (double)p->micro_batches;
    if (c.fits && m->known && c.bytes * samples < 4e18 && c.messages * samples < 4e18) {
        const int64_t bytes = (int64_t)(c.bytes * samples);
        const int64_t messages = (int64_t)(c.messages * samples);
        struct estimate time;
        p->comm[PURPOSE_RING_KV] = (struct comm_count){bytes, bytes, messages, messages};
        p->comm[PURPOSE_RING_DKV] = (struct comm_count){0};
        machine_estimate(m, spec, p, &time);
        c.step_s = time.step_s;
    }
    free(spec);
    free(p);
    return c;
}

/* Tells whether all_gather is chosen. If the machine is not known, all_gather is chosen if it
 * moves fewer bytes and does not need a slower mode of memory. */
static bool gathers(const struct candidate *ring, const struct candidate *all)
{
    const double most = 1 - FORM_GAIN;
    if (!all->fits || !ring->fits) return all->fits;
    if (all->step_s > 0 && ring->step_s > 0) return all->step_s < most * ring->step_s;
    return all->recompute == ring->recompute && all->mlp_chunk == ring->mlp_chunk &&
           all->offload == ring->offload && all->bytes < most * ring->bytes;
}

static void explain(const struct candidate *ring, const struct candidate *all, bool gather,
                    int64_t n, char out[FORM_REASON_SIZE])
{
    char a[24], b[24], c[24];
    const char *timed = ring->step_s > 0 && all->step_s > 0 ? "" : "; no machine has been measured";
    plan_bytes(a, (int64_t)all->bytes);
    plan_bytes(b, (int64_t)ring->bytes);
    plan_bytes(c, all->size);
    if (gather)
        snprintf(out, FORM_REASON_SIZE,
                 "all_gather: as documents lie in %lld samples, the busiest rank gets %s of keys, "
                 "values and gradients a sample in %.0f messages; a ring would pass it %s in "
                 "%.0f%s",
                 (long long)n, a, all->messages, b, ring->messages, timed);
    else if (!all->fits)
        snprintf(out, FORM_REASON_SIZE,
                 "blockwise: all_gather would move %s a sample instead of %s, but needs %s per "
                 "rank, which does not fit",
                 a, b, c);
    else
        snprintf(out, FORM_REASON_SIZE,
                 "blockwise: as documents lie in %lld samples, a ring passes the busiest rank %s a "
                 "sample in %.0f messages; all_gather would give it %s in %.0f, and hold the keys "
                 "and values of all ranks%s",
                 (long long)n, b, ring->messages, a, all->messages, timed);
}

/* Tells whether the traffic is within the limit that plan_make sets for a step (10^18 bytes). */
static bool sane(const struct form_traffic *t)
{
    const int64_t most = 1000000000000000000;
    return t->bytes >= 0 && t->bytes <= most && t->messages >= 0 && t->messages <= most;
}

enum form_id form_choose(const struct job_spec *s, const struct machine *m,
                         const struct form_seen *seen, char reason[FORM_REASON_SIZE])
{
    const int64_t n = seen->n_samples;
    if (n < 1 || !sane(&seen->blockwise) || !sane(&seen->all_gather)) {
        snprintf(reason, FORM_REASON_SIZE, "blockwise: no sample was counted");
        return FORM_BLOCKWISE;
    }
    const struct candidate ring = candidate_of(s, m, FORM_BLOCKWISE, &seen->blockwise, n);
    const struct candidate all = candidate_of(s, m, FORM_ALL_GATHER, &seen->all_gather, n);
    const bool gather = gathers(&ring, &all);
    explain(&ring, &all, gather, n, reason);
    return gather ? FORM_ALL_GATHER : FORM_BLOCKWISE;
}
