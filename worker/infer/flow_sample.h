/* flow_sample.h: computes a sample of a diffusion model, from noise to latents. Models that
 * predict a velocity use Euler's rule along the rectified flow (arXiv 2209.03003, as in Open-Sora
 * 1.2):
 *
 *   z_0 = noise                                        times t_0 = 1 > .. > t_n = 0: flow_time()
 *   z_{i+1} = z_i + (t_i - t_{i+1}) v(z_i, t_i)        v: the first in_channels of the prediction
 *   v = v_without + guidance (v_with - v_without)      caption or class (2207.12598)
 *
 * Models that predict noise use DDIM or ancestral sampling (worker/plan/noise.h), with the noise
 * in place of v. The variance is taken from the prediction with caption or class. Guidance changes
 * all channels for Latte, as in Latte's sampler. For STDiT it changes only the first three, as in
 * Open-Sora 1.0; the fourth channel is that of v_with.
 *
 * A step needs two forward passes, or only one if guidance is 1 or the model reads neither caption
 * nor class. For a prediction without caption the model reads the same number of rows of
 * y_embedding instead of the caption; for one without class, it reads the class after the last.
 *
 * z is latents.patches of model_batch() in the plan: each rank's own rows of patches, in fp32 for
 * every precision. A step allocates no memory. Noise is keyed by the index of the element in the
 * whole sample, and the steps are elementwise. So the number of ranks changes the sample only
 * through the model's own sums; under determinism "ranks" the bits are the same.
 * tested: tests/engine/test_flow_sample.c */
#ifndef SEQD_INFER_FLOW_SAMPLE_H
#define SEQD_INFER_FLOW_SAMPLE_H

#include "worker/data/flow.h"
#include "worker/model/model.h"

#define FLOW_TIMES 1000 /* the model reads the time in thousandths, 0 .. 1000 */

struct flow_sample {
    struct latents_sample x; /* C, T, H, W, height, width, num_frames and fps of the sample;
                              * text_len is the number of filled rows in model.batch.latents.text,
                              * and only these rows are read */
    int64_t seed, n;         /* keys of the noise, as in flow_noise(seed, FLOW_SAMPLE, n, ..) */
    int64_t steps;
    double guidance, shift; /* shift: argument of flow_time() */
    int32_t label;
    bool ancestral; /* for a model that predicts noise: each step adds noise of the learned
                     * variance */
};

/* Returns the number of forward passes that the whole sample needs. */
int64_t flow_sample_passes(const struct model_shape *m, const struct flow_sample *s);

/* Sets the model to the sample's grid and z to the sample's noise. Local.
 * Fails with ERR_TOO_LARGE if the plan has no room for the grid. */
int flow_sample_begin(struct model *m, const struct flow_sample *s, struct err *e);
/* Runs step i of s->steps; steps must be run in order. Collective. */
int flow_sample_step(struct model *m, const struct flow_sample *s, int64_t i, struct err *e);

/* Sets *ok to true if every value is finite on all ranks, otherwise to false. Collective; it is a
 * small sum with PURPOSE_CONTROL. */
int flow_sample_finite(struct model *m, const struct flow_sample *s, bool *ok, struct err *e);
/* Saves z as tensor "z" [C, T, H, W], F32, in the safetensors file `path`. Rank 0 writes it. It
 * gathers one channel of one frame of patches at a time from all ranks (PURPOSE_CONTROL), in the
 * order of the file, and never holds more than that. z is unchanged, but the velocity is
 * overwritten. Collective. Only rank 0 reads path. Fails as st_write does, or with the errors of
 * comm. If rank 0 fails, the other ranks wait until they are aborted. */
int flow_sample_save(struct model *m, const struct flow_sample *s, const char *path, struct err *e);
/* Returns the counts that flow_sample_finite and flow_sample_save have with PURPOSE_CONTROL on
 * rank r of the ring. */
struct comm_count flow_sample_traffic(const struct model *m, const struct flow_sample *s, int r);

#endif
