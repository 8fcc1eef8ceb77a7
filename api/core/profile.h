/* profile.h: the measured speed of a node. `seqrank --profile` prints it, an agent keeps it, and
 * seqd makes plans with it. */
#ifndef SEQD_CORE_PROFILE_H
#define SEQD_CORE_PROFILE_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* Sizes at which rates are measured. profile_widths are for matrix products, profile_heads for
 * attention. */
#define PROFILE_SIZES 3
extern const double profile_widths[PROFILE_SIZES], profile_heads[PROFILE_SIZES];

/* Rates of one thread, and of the communication between two ranks of the node. All members are
 * doubles, and all are 0 if nothing was measured. The suffix _back marks rates of a backward pass.
 * A backward pass counts as twice the flops of its forward pass. */
struct profile {
    /* FLOP/s. All members up to linear_back have this unit */
    double gemm_f32[PROFILE_SIZES], gemm_bf16[PROFILE_SIZES];
    double attn_f32[PROFILE_SIZES], attn_bf16[PROFILE_SIZES];
    double attn_back_f32[PROFILE_SIZES], attn_back_bf16[PROFILE_SIZES];
    double linear[PROFILE_SIZES], linear_back[PROFILE_SIZES]; /* linear attention */
    double norm;                                              /* elements/s of a norm */
    double point;                                             /* elements/s of an activation */
    double turn;   /* elements/s of a rotation whose angles differ between heads (LRPE) */
    double update; /* elements/s of AdamW */
    double copy;   /* bytes/s between two ranks through shared memory, in one direction, while both
                    * ranks send */
    double hop;    /* seconds that a small message needs from one rank to a second rank */
};
#define PROFILE_NUMBERS ((int)(sizeof(struct profile) / sizeof(double)))

/* A row of the table of members: the key in JSON, and the place in the struct. The reader and the
 * writer both use the table. */
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
