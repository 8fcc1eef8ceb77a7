/* machine.h: estimates how fast the ranks of a job would be. The node has been measured, or its
 * hardware is only described.
 *
 * The time of a step is estimated from numbers of the plan: flops, and the bytes and messages of
 * each purpose. So the estimate works for every family and strategy:
 *   compute   the operations that run (worker/plan/work.h), each at the rate of its kind and size.
 *             On described hardware, only products and attention count, at one rate. The one-rank
 *             reference of a proof is included
 *   exchange  messages * latency + bytes / bandwidth, for each purpose. States of linear attention
 *             pass from rank to rank. So a ring takes P-1 times as long as the messages of one
 *             rank, and a scan in K pieces takes (K+P-2)/K times as long
 *   offload   bytes / bandwidth, out and back (memory.offload)
 *   hidden    the part of `offload` that overlaps with compute or with copies in the other
 *             direction, and the part of ring attention's exchange that overlaps with its compute.
 *             Copies of activations overlap with the forward pass on the way out, and with the
 *             backward pass on the way back. Copies of gradients overlap with the backward pass.
 *             The update of an offloaded optimizer takes as long as the slowest of its
 *             computation, its copies in and its copies out. With a file, its copies in both
 *             directions come one after another. The part of the exchange is 0 if the core that
 *             computes also makes the copies (ranks of one machine) */
#ifndef SEQD_PLAN_MACHINE_H
#define SEQD_PLAN_MACHINE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/field.h"
#include "api/core/profile.h"
#include "worker/plan/plan.h"

struct job_spec;

/* The object "hardware" of a request for a plan. */
struct hardware {
    int32_t given;
    int32_t devices, nodes;
    double memory_gib; /* GiB of a device */
    /* TFLOP/s that a device sustains; 0 means that they are not known, and so no time is known */
    double tflops;
    double link_gbs;    /* GB/s that a device can send within a node */
    double link_us;     /* latency of a small message */
    double network_gbs; /* GB/s that a device can send between nodes; 0 means link_gbs */
    double host_gbs;    /* GB/s between a device and its host's memory, in each direction */
};
/* members of struct hardware; the last entry has path NULL */
extern const struct field hardware_fields[];
void hardware_defaults(struct hardware *h);
/* Checks the members of h. Fails with ERR_INVALID; the error names the member and the fix. */
int hardware_check(const struct hardware *h, struct err *e);

enum machine_rate { RATE_GEMM, RATE_ATTN, RATE_ATTN_BACK, RATE_LINEAR, RATE_LINEAR_BACK, RATE_N };

struct machine {
    bool known;     /* set if there are rates, so that times can be estimated */
    bool measured;  /* set if the rates were measured; otherwise a user gave them */
    int64_t memory; /* bytes that a rank may use; 0 if no limit is known */
    int32_t ranks_per_node;
    double cores; /* cores that the ranks of a node share; 0 if each rank has its own device */
    /* Rates of one thread or device. rate is in FLOP/s, by size, as in struct profile. norm,
     * point, turn and update are in elements/s; if one of these rates is 0, its work does not
     * count. */
    double rate[RATE_N][PRECISION_N][PROFILE_SIZES];
    double norm, point, turn, update;
    double link, network; /* bytes/s that a rank can send within a node, and between nodes */
    double hop;           /* latency of a message, in seconds */
    /* bytes/s of a rank, in each direction, between the device and the store outside its memory */
    double offload;
    bool copies; /* set if the core that computes also makes the copies of an exchange */
};
void machine_of_profile(const struct profile *p, int32_t cores, struct machine *out);
void machine_of_hardware(const struct hardware *h, struct machine *out);

/* Returns the share of a core that each of p's threads has while all ranks compute. If there are
 * more threads than cores, the share is less than 1, because the threads share the cores. */
double machine_share(const struct machine *m, const struct plan *p);

struct estimate {
    /* step_s is the sum compute_s + bubble_s + exchange_s + offload_s - hidden_s. In a pipeline,
     * compute_s is the time of the stage that computes longest. bubble_s is the time for which
     * this stage waits before its first sequence and after its last one. */
    double compute_s, bubble_s, exchange_s, offload_s, hidden_s, step_s;
    double tokens_s; /* tokens per second, for all rings together */
};
/* Estimates the time of a step. p is the plan of spec, which is checked. m->known must be true. */
void machine_estimate(const struct machine *m, const struct job_spec *spec, const struct plan *p,
                      struct estimate *out);

#endif
