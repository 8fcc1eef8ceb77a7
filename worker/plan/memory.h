/* memory.h: places every buffer of one choice of ranks and recompute mode. Inside worker/plan. */
#ifndef SEQD_PLAN_MEMORY_H
#define SEQD_PLAN_MEMORY_H

#include "worker/plan/plan.h"

/* Fills item[], sizes and the derived counts of *p from the fields that choose: kind, S, axes,
 * zero, layout, recompute, rank_bits, micro_batches and others. wanted_chunk:
 * memory.loss_chunk_tokens, 0 = auto. n_decode: sampling.max_tokens of generate. reference: the
 * one-rank part of a proof, which borrows scratch and, unless `weights`, parameters. Returns -1 if
 * a size reaches 2^56 bytes or the shard is impossible. */
struct memory_choice {
    const struct model_shape *shape;
    const struct job_spec *spec; /* gives the needs of score and generate beside the model */
    int64_t wanted_chunk, n_decode;
    int batch;            /* generate: prompts at once */
    int64_t segment_size; /* least size of its segment: that of the largest stage */
    bool proven; /* a proof runs beside the ranks, which keep the experts that rows choose */
    int samples; /* reference: samples of the proof */
    bool reference;
    bool weights; /* reference: it has its own copy (the ranks have shards) */
    bool collect; /* reference: it has room for the ranks' whole gradient, as PLAN_GRAD_ACC */
};
int memory_place(struct plan *p, const struct memory_choice *c, struct err *e);

#endif
