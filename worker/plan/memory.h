/* memory.h: places every buffer for one choice of ranks and recompute mode. It is private to
 * worker/plan. */
#ifndef SEQD_PLAN_MEMORY_H
#define SEQD_PLAN_MEMORY_H

#include "worker/plan/plan.h"

/* The choices for memory_place(), which fills item[], the sizes and the derived counts of *p.
 * memory_place reads the fields of *p that hold choices: kind, S, axes, zero, layout, recompute,
 * rank_bits, micro_batches and others. It returns -1 if a size reaches 2^56 bytes or the shard is
 * impossible. wanted_chunk is memory.loss_chunk_tokens, where 0 means auto. n_decode is
 * sampling.max_tokens of generate. reference is set for the one-rank reference of a proof. The
 * reference uses the scratch of the ranks' plan. Unless `weights` is set, it also uses the
 * parameters of the ranks' plan. */
struct memory_choice {
    const struct model_shape *shape;
    const struct job_spec *spec; /* for the additional needs of score and generate */
    int64_t wanted_chunk, n_decode;
    int batch; /* generate: number of prompts that are processed together */
    /* lower bound of the segment's size; it is the size that the largest stage needs */
    int64_t segment_size;
    bool proven; /* there is a proof, so the ranks keep the experts that rows choose */
    int samples; /* reference: number of samples of the proof */
    bool reference;
    /* set if the reference has its own copy of the weights, because the ranks have only shards */
    bool weights;
    /* set if the reference has room for the whole gradient of the ranks, as PLAN_GRAD_ACC */
    bool collect;
};
int memory_place(struct plan *p, const struct memory_choice *c, struct err *e);

#endif
