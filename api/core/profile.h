/* profile.h: the measured speed of a node. `seqrank --profile` prints it, an agent keeps it, and
 * seqd makes plans with it. */
#ifndef SEQD_CORE_PROFILE_H
#define SEQD_CORE_PROFILE_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* The sizes at which some rates are measured: the widths of matrix products, and the head sizes of
 * attention. */
#define PROFILE_SIZES 3
extern const double profile_widths[PROFILE_SIZES], profile_heads[PROFILE_SIZES];

/* Rates of one thread, and of the communication between two ranks of the node. All members are
 * doubles, and all are 0 if nothing was measured. The suffix _back marks rates of a backward pass,
 * whose flops are counted as twice those of the forward pass. */
struct profile {
    /* FLOP/s, the unit of all members up to linear_back */
    double gemm_f32[PROFILE_SIZES], gemm_bf16[PROFILE_SIZES];
    double attn_f32[PROFILE_SIZES], attn_bf16[PROFILE_SIZES];
    double attn_back_f32[PROFILE_SIZES], attn_back_bf16[PROFILE_SIZES];
    double linear[PROFILE_SIZES], linear_back[PROFILE_SIZES]; /* linear attention */
    double norm;                                              /* elements/s of a norm */
    double point;                                             /* elements/s of an activation */
    double turn;   /* elements/s of a rotation whose angles differ by head (LRPE) */
    double update; /* elements/s of AdamW */
    double copy;   /* bytes/s from rank to rank through shared memory while both send */
    double hop;    /* seconds that a small message takes from rank to rank */
};
#define PROFILE_NUMBERS ((int)(sizeof(struct profile) / sizeof(double)))

/* The key of a member in JSON, and the place of the member in the struct. Both the reader and the
 * writer use this row. */
struct profile_field {
    const char *key;
    size_t offset; /* offset in struct profile of one double, or of n doubles that are an array in
                    * JSON */
    int n;
};
#define PROFILE_FIELDS 14
extern const struct profile_field profile_fields[PROFILE_FIELDS];

/* Writes one object on one line. Returns its length, or -1 if it does not fit. */
int64_t profile_write(const struct profile *p, char *out, size_t size);
/* Reads a profile. Fails with ERR_INVALID unless each member occurs once and is finite and
 * positive. */
int profile_read(const char *json, size_t size, struct profile *out, struct err *e);
/* Checks the numbers of a profile by the rule of profile_read. */
int profile_check(const struct profile *p, struct err *e);

#endif
