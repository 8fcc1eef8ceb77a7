/* profile.h: how fast a node is: what `seqrank --profile` prints, an agent keeps and seqd plans
 * with. */
#ifndef SEQD_CORE_PROFILE_H
#define SEQD_CORE_PROFILE_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

/* Rates of one thread, and a link between two ranks of the node. All 0: not measured. */
struct profile {
    double gemm_f32, gemm_bf16, attn_f32, attn_bf16; /* FLOP/s */
    double copy; /* bytes/s from rank to rank through shared memory, both ways at once */
    double hop;  /* seconds until a small message has come */
};

/* A member's key in JSON and its place, for reader, writer and wire alike. */
struct profile_field {
    const char *key;
    size_t offset; /* of a double in struct profile */
};
#define PROFILE_FIELDS 6
extern const struct profile_field profile_fields[PROFILE_FIELDS];

/* One object on one line. Returns its length, -1 when it does not fit. */
int64_t profile_write(const struct profile *p, char *out, size_t size);
/* fails: ERR_INVALID unless every member is there, once, finite and positive. */
int profile_read(const char *json, size_t size, struct profile *out, struct err *e);
/* The same rule for numbers that came another way. */
int profile_check(const struct profile *p, struct err *e);

#endif
