/* flow_sample.h: computes a sample of a diffusion model, from noise to latents: by Euler's rule
 * along the rectified flow (arXiv 2209.03003, as in Open-Sora 1.2)
 *
 *   z_0 = noise                                        times t_0 = 1 > .. > t_n = 0: flow_time()
 *   z_{i+1} = z_i + (t_i - t_{i+1}) v(z_i, t_i)        v: the first in_channels of the prediction
 *   v = v_without + guidance (v_with - v_without)      caption or class (2207.12598)
 *
 * or, for a model that predicts noise, by DDIM or by ancestral sampling (worker/plan/noise.h),
 * with the noise as v. The variance comes from the prediction with caption or class. Guidance
 * changes all channels for Latte, as in Latte's sampler. For STDiT it changes the first three, as
 * in Open-Sora 1.0; the fourth channel is that of v_with.
 *
 * A step takes two forward passes, or one if guidance is 1 or the model reads neither caption nor
 * class. For a prediction without caption the model reads the same number of rows of y_embedding
 * instead; without class, the class after the last.
 *
 * z is model_batch()'s latents.patches in the plan: each rank's own rows of patches, fp32 in every
 * precision. A step allocates no memory. Noise is keyed by the element's index in the whole
 * sample, and the steps are elementwise. So the number of ranks changes the sample only through
 * the model's own sums; under determinism "ranks" the bits are the same.
 * tested: tests/engine/test_flow_sample.c */
#ifndef SEQD_INFER_FLOW_SAMPLE_H
#define SEQD_INFER_FLOW_SAMPLE_H

#include "worker/data/flow.h"
#include "worker/model/model.h"

#define FLOW_TIMES 1000 /* the model reads the time in thousandths: 0 .. 1000 */

struct flow_sample {
    struct latents_sample x; /* C, T, H, W; height, width, num_frames, fps; text_len: rows of
                              * model.batch.latents.text that are filled; the others are not
                              * read */
    int64_t seed, n;         /* keys of the noise: flow_noise(seed, FLOW_SAMPLE, n, ..) */
    int64_t steps;
    double guidance, shift; /* shift: argument of flow_time() */
    int32_t label;
    bool ancestral; /* for a model that predicts noise: steps add noise of the learned variance */
};

/* Returns the number of forward passes of the whole sample. */
int64_t flow_sample_passes(const struct model_shape *m, const struct flow_sample *s);

/* Sets the model to the sample's grid and z to the sample's noise. Local.
 * fails: ERR_TOO_LARGE if the plan has no room for the grid. */
int flow_sample_begin(struct model *m, const struct flow_sample *s, struct err *e);
/* Runs step i of s->steps, in order. Collective. */
int flow_sample_step(struct model *m, const struct flow_sample *s, int64_t i, struct err *e);

/* Sets *ok to true if every value is finite on all ranks, else to false. Collective: a small sum,
 * PURPOSE_CONTROL. */
int flow_sample_finite(struct model *m, const struct flow_sample *s, bool *ok, struct err *e);
/* Saves z as tensor "z" [C, T, H, W], F32, in the safetensors file `path`. Rank 0 writes it. It
 * gathers one channel of a frame of patches at a time from all ranks (PURPOSE_CONTROL), in the
 * file's order, and never holds more. z is unchanged; the velocity is overwritten. Collective.
 * path is read on rank 0 only. fails: as st_write, comm's errors; if rank 0 fails, the other ranks
 * wait until they are aborted. */
int flow_sample_save(struct model *m, const struct flow_sample *s, const char *path, struct err *e);
/* Returns the counts of flow_sample_finite and flow_sample_save on ring rank r, PURPOSE_CONTROL. */
struct comm_count flow_sample_traffic(const struct model *m, const struct flow_sample *s, int r);

#endif
