/* machine.h: how fast the ranks of a job would be: a measured node, or hardware that is not here.
 *
 * The time of a step is estimated from a plan's own numbers, flops and bytes and messages by
 * purpose, so that it holds for every family and strategy:
 *   compute   the operations that run (worker/plan/work.h), each at the rate of its kind and size;
 *             on given hardware products and attention alone, at one rate. A proof's one-rank
 *             reference is part of it
 *   exchange  messages * latency + bytes / bandwidth, for each purpose. States of linear attention
 *             pass from rank to rank: a ring takes P-1 times as long as one rank's messages, a
 *             scan in K pieces (K+P-2)/K times
 *   offload   bytes / bandwidth, out and back (memory.offload)
 *   hidden    the part of these copies that overlaps with compute, out with the forward pass and
 *             back with the backward pass; and the part of ring attention's exchange that overlaps
 *             with its compute, 0 where a copy costs the core that computes (ranks of one
 *             machine) */
#ifndef SEQD_PLAN_MACHINE_H
#define SEQD_PLAN_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/field.h"
#include "api/core/profile.h"
#include "worker/plan/plan.h"

struct job_spec;

/* "hardware" of a plan's request. */
struct hardware {
    int32_t given;
    int32_t devices, nodes;
    double memory_gib;  /* GiB of a device */
    double tflops;      /* TFLOP/s that a device sustains; 0: unknown, as are all times */
    double link_gbs;    /* GB/s a device sends, within a node */
    double link_us;     /* latency of a small message */
    double network_gbs; /* GB/s a device sends between nodes; 0: link_gbs */
    double host_gbs;    /* GB/s between a device and its host's memory, each way */
};
extern const struct field hardware_fields[]; /* members of struct hardware; ends with path NULL */
void hardware_defaults(struct hardware *h);
/* Checks the members. fails: ERR_INVALID naming the member and the fix. */
int hardware_check(const struct hardware *h, struct err *e);

enum machine_rate { RATE_GEMM, RATE_ATTN, RATE_ATTN_BACK, RATE_LINEAR, RATE_LINEAR_BACK, RATE_N };

struct machine {
    bool known;     /* there are rates: times can be estimated */
    bool measured;  /* rates were measured; else they were given */
    int64_t memory; /* bytes a rank may use; 0: no limit is known */
    int32_t ranks_per_node;
    double cores; /* cores that the ranks of a node share; 0: each has a device of its own */
    /* Rates of one thread or device. rate: FLOP/s by size, as in struct profile; norm, point,
     * turn, update: elements/s, 0: not counted. */
    double rate[RATE_N][PRECISION_N][PROFILE_SIZES];
    double norm, point, turn, update;
    double link, network; /* bytes/s of a rank within a node, between nodes */
    double hop;           /* latency of a message, seconds */
    double offload; /* bytes/s of a rank, each way, between the device and the store beside it */
    bool copies;    /* an exchange costs the core that computes */
};
void machine_of_profile(const struct profile *p, int32_t cores, struct machine *out);
void machine_of_hardware(const struct hardware *h, struct machine *out);

/* Returns the part of a core that a thread of p's has while all ranks compute: threads beyond the
 * cores take turns. */
double machine_share(const struct machine *m, const struct plan *p);

struct estimate {
    /* step = compute + bubble + exchange + offload - hidden. A pipeline has the compute of the
     * stage that computes longest; bubble: its wait for others' first and last sequences. */
    double compute_s, bubble_s, exchange_s, offload_s, hidden_s, step_s;
    double tokens_s; /* tokens of all rings in a second */
};
/* Estimates the time of a step. spec: the checked spec that p was made of. m->known must hold. */
void machine_estimate(const struct machine *m, const struct job_spec *spec, const struct plan *p,
                      struct estimate *out);

#endif
