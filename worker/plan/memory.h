/* memory.h: places every buffer for one choice of ranks and recompute mode. It is private to
 * worker/plan. */
#ifndef SEQD_PLAN_MEMORY_H
#define SEQD_PLAN_MEMORY_H

#include "worker/plan/plan.h"

/* Fills item[], the sizes and the derived counts of *p from the fields that hold choices: kind, S,
 * axes, zero, layout, recompute, rank_bits, micro_batches and others. wanted_chunk is
 * memory.loss_chunk_tokens, where 0 means auto. n_decode is sampling.max_tokens of generate.
 * reference is set for the one-rank part of a proof. This part borrows scratch from the plan of
 * the ranks and, unless `weights` is set, also parameters. Returns -1 if a size reaches 2^56 bytes
 * or the shard is impossible. */
struct memory_choice {
    const struct model_shape *shape;
    const struct job_spec *spec; /* gives the additional needs of score and generate */
    int64_t wanted_chunk, n_decode;
    int batch;            /* generate: number of prompts together */
    int64_t segment_size; /* least size of its segment, which is the size for the largest stage */
    bool proven; /* a proof runs beside the ranks, so they keep the experts that rows choose */
    int samples; /* reference: samples of the proof */
    bool reference;
    /* reference: it has its own copy of the weights (because the ranks have shards) */
    bool weights;
    bool collect; /* reference: it has room for the ranks' whole gradient, as PLAN_GRAD_ACC */
};
int memory_place(struct plan *p, const struct memory_choice *c, struct err *e);

#endif
