/* profile.h: the measured speed of a node. `seqrank --profile` prints it, an agent keeps it, and
 * seqd plans with it. */
#ifndef SEQD_CORE_PROFILE_H
#define SEQD_CORE_PROFILE_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* The sizes at which some rates are measured: matrix products at these widths, attention at these
 * head sizes. */
#define PROFILE_SIZES 3
extern const double profile_widths[PROFILE_SIZES], profile_heads[PROFILE_SIZES];

/* Rates of one thread, and of the communication between two ranks of the node. All members are
 * doubles. All 0: not measured. _back: rates of a backward pass, whose flops are counted as twice
 * the forward's. */
struct profile {
    double gemm_f32[PROFILE_SIZES], gemm_bf16[PROFILE_SIZES]; /* FLOP/s, as all members up to
                                                               * linear_back */
    double attn_f32[PROFILE_SIZES], attn_bf16[PROFILE_SIZES];
    double attn_back_f32[PROFILE_SIZES], attn_back_bf16[PROFILE_SIZES];
    double linear[PROFILE_SIZES], linear_back[PROFILE_SIZES]; /* linear attention */
    double norm;                                              /* elements/s of a norm */
    double point;                                             /* elements/s of an activation */
    double turn;   /* elements/s of a rotation whose angles differ by head (LRPE) */
    double update; /* elements/s of AdamW */
    double copy;   /* bytes/s from rank to rank through shared memory, both ways at once */
    double hop;    /* seconds from rank to rank for a small message */
};
#define PROFILE_NUMBERS ((int)(sizeof(struct profile) / sizeof(double)))

/* A member's key in JSON and its place, for reader and writer alike. */
struct profile_field {
    const char *key;
    size_t offset; /* in struct profile, of one double or n; n doubles are an array in JSON */
    int n;
};
#define PROFILE_FIELDS 14
extern const struct profile_field profile_fields[PROFILE_FIELDS];

/* Writes one object on one line. Returns its length, -1 when it does not fit. */
int64_t profile_write(const struct profile *p, char *out, size_t size);
/* Reads a profile. fails: ERR_INVALID unless each member is there once, and is finite and
 * positive. */
int profile_read(const char *json, size_t size, struct profile *out, struct err *e);
/* Checks the numbers of a profile by the rule of profile_read. */
int profile_check(const struct profile *p, struct err *e);

#endif
