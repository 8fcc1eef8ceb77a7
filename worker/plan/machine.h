/* machine.h: estimates how fast the ranks of a job would be, on a node that was measured or on
 * hardware that is only described.
 *
 * The time of a step is estimated from the plan's own numbers, which are flops, and bytes and
 * messages by purpose, so that the estimate works for every family and strategy:
 *   compute   the operations that run (worker/plan/work.h), each at the rate of its kind and size;
 *             on described hardware only products and attention, at one rate. A proof's one-rank
 *             reference is part of it
 *   exchange  messages * latency + bytes / bandwidth, for each purpose. States of linear attention
 *             pass from rank to rank. A ring therefore takes P-1 times as long as the messages of
 *             one rank, and a scan in K pieces takes (K+P-2)/K times as long
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
    double memory_gib; /* GiB of a device */
    /* TFLOP/s that a device sustains; 0 if unknown, and then all times are unknown */
    double tflops;
    double link_gbs;    /* GB/s that a device can send within a node */
    double link_us;     /* latency of a small message */
    double network_gbs; /* GB/s that a device can send between nodes; 0 means link_gbs */
    double host_gbs;    /* GB/s between a device and its host's memory, each way */
};
/* members of struct hardware; the last entry has path NULL */
extern const struct field hardware_fields[];
void hardware_defaults(struct hardware *h);
/* Checks the members. Fails with ERR_INVALID; the error names the member and the fix. */
int hardware_check(const struct hardware *h, struct err *e);

enum machine_rate { RATE_GEMM, RATE_ATTN, RATE_ATTN_BACK, RATE_LINEAR, RATE_LINEAR_BACK, RATE_N };

struct machine {
    bool known;     /* there are rates, so that times can be estimated */
    bool measured;  /* the rates were measured; otherwise they were given */
    int64_t memory; /* bytes that a rank may use; 0 if no limit is known */
    int32_t ranks_per_node;
    double cores; /* cores that the ranks of a node share; 0 if each rank has its own device */
    /* Rates of one thread or device. rate is in FLOP/s, by size, as in struct profile. norm,
     * point, turn and update are in elements/s; 0 means that this work is not counted. */
    double rate[RATE_N][PRECISION_N][PROFILE_SIZES];
    double norm, point, turn, update;
    double link, network; /* bytes/s of a rank within a node, and between nodes */
    double hop;           /* latency of a message, seconds */
    /* bytes/s of a rank, each way, between the device and the store outside its memory */
    double offload;
    bool copies; /* an exchange uses the core that computes */
};
void machine_of_profile(const struct profile *p, int32_t cores, struct machine *out);
void machine_of_hardware(const struct hardware *h, struct machine *out);

/* Returns the share of a core that each of p's threads has while all ranks compute. It is less
 * than 1 if there are more threads than cores, because threads then take turns. */
double machine_share(const struct machine *m, const struct plan *p);

struct estimate {
    /* step = compute + bubble + exchange + offload - hidden. For a pipeline, compute is that of
     * the stage that computes longest, and bubble is the time in which that stage waits for the
     * first and last sequences of the other stages. */
    double compute_s, bubble_s, exchange_s, offload_s, hidden_s, step_s;
    double tokens_s; /* tokens per second, of all rings together */
};
/* Estimates the time of a step. spec is the checked spec of which p is the plan. m->known must be
 * true. */
void machine_estimate(const struct machine *m, const struct job_spec *spec, const struct plan *p,
                      struct estimate *out);

#endif
