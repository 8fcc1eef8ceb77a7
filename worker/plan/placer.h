/* placer.h: places buffers one after another. It is private to worker/plan. */
#ifndef SEQD_PLAN_PLACER_H
#define SEQD_PLAN_PLACER_H

#include "worker/plan/memory.h"

struct placer {
    struct plan *p;
    const struct model_shape *m;
    const struct job_spec *spec;
    struct shard sh;
    int64_t arena, segment, host; /* next free byte */
    bool overflow;
};

/* The host's use of a buffer. If the device has memory of its own, this decides where the buffer
 * is placed. */
enum placer_host {
    HOST_NEVER,
    HOST_TOO,   /* the host and the device use the buffer */
    HOST_ALONE, /* only the host uses the buffer, and no operation does */
};

struct placer_want {
    enum plan_id id;
    const char *name;
    enum plan_class cls;
    int64_t size; /* bytes of one instance */
    int64_t n;    /* number of instances; 0 if the buffer is not used */
    bool in_segment;
    enum placer_host host;
};
void placer_put(struct placer *b, const struct placer_want *w);
/* Returns x * y. If the product reaches 2^56, sets b->overflow and returns 0. */
int64_t placer_times(struct placer *b, int64_t x, int64_t y);

/* Places all buffers except the parameters, as the family's program requires them
 * (memory_program.c). */
void memory_program(struct placer *b, bool reference);
/* memory_infer places the additional buffers of score and generate (memory_infer.c).
 * memory_contexts places the states of the family's layers after a context. */
void memory_infer(struct placer *b);
void memory_contexts(struct placer *b, const struct family *f);
/* Places all buffers of a merge, which runs no model (memory_merge.c). */
void memory_merge(struct placer *b);
/* Returns the number of elements of the largest matrix that one product for a weight gradient
 * writes. If MLPs run in pieces, the matrices of a dense MLP together count as one matrix. */
int64_t memory_largest_gradient(const struct model_shape *m, const struct plan *p);

#endif
