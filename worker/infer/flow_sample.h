/* flow_sample.h: computes a sample of a diffusion model, from noise to latents. Models that
 * predict a velocity use Euler's rule along the rectified flow (arXiv 2209.03003, as in Open-Sora
 * 1.2):
 *
 *   z_0 = noise                                        times t_0 = 1 > .. > t_n = 0: flow_time()
 *   z_{i+1} = z_i + (t_i - t_{i+1}) v(z_i, t_i)        v: the first in_channels of the prediction
 *   v = v_without + guidance (v_with - v_without)      caption or class (2207.12598)
 *
 * Models that predict noise use DDIM or ancestral sampling (worker/plan/noise.h), with the
 * predicted noise in place of v. If the model also predicts a variance, the prediction with
 * caption or class is used for it. For Latte, guidance changes all channels, as in Latte's
 * sampler. For STDiT, guidance changes only the first three channels, as in Open-Sora 1.0, and
 * the fourth channel is taken from v_with.
 *
 * A step needs two forward passes. It needs only one if guidance is 1, or if the model reads
 * neither caption nor class. For a prediction without caption, the model reads rows of
 * y_embedding instead of the caption's rows, and as many of them as the caption has. For a
 * prediction without class, the model reads the number that follows the last class.
 *
 * z is stored in latents.patches of model_batch(). Each rank stores a share of the rows of
 * patches, in fp32 for every precision. A step allocates no memory. The noise of an element
 * depends on the index of the element in the whole sample, and the steps compute each element
 * by itself. For this reason the number of ranks changes the sample only by the rounding of
 * sums in the model. Under determinism "ranks" the bits do not depend on the number of ranks.
 * tested: tests/engine/test_flow_sample.c */
#ifndef SEQD_INFER_FLOW_SAMPLE_H
#define SEQD_INFER_FLOW_SAMPLE_H

#include "worker/data/flow.h"
#include "worker/model/model.h"

#define FLOW_TIMES 1000 /* unit of the time that the model reads, which is 0 .. 1000 */

struct flow_sample {
    /* C, T, H, W, height, width, num_frames and fps of the sample. text_len is the number of
     * rows of model.batch.latents.text that are filled; the model reads only these rows. */
    struct latents_sample x;
    int64_t seed, n; /* keys of the noise, as in flow_noise(seed, FLOW_SAMPLE, n, ..) */
    int64_t steps;
    double guidance, shift; /* `shift` is the argument of flow_time() */
    int32_t label;
    /* for models that predict noise: whether each step adds noise of the learned variance */
    bool ancestral;
};

/* Returns the number of forward passes that are needed for all steps of the sample. */
int64_t flow_sample_passes(const struct model_shape *m, const struct flow_sample *s);

/* Sets the model to the grid of the sample, and z to the noise of the sample. Local. Fails with
 * ERR_TOO_LARGE if the plan has no room for the grid. */
int flow_sample_begin(struct model *m, const struct flow_sample *s, struct err *e);
/* Runs step i of s->steps. Steps must be run in ascending order. Collective. */
int flow_sample_step(struct model *m, const struct flow_sample *s, int64_t i, struct err *e);

/* Sets *ok to true if all values of z are finite on all ranks, and to false otherwise.
 * Collective: the ranks exchange a small sum with PURPOSE_CONTROL. */
int flow_sample_finite(struct model *m, const struct flow_sample *s, bool *ok, struct err *e);
/* Saves z as tensor "z" [C, T, H, W], F32, in the safetensors file `path`. Rank 0 writes the
 * file. It gathers z from all ranks in the order of the file (PURPOSE_CONTROL), and at no time
 * stores more than one channel of one frame of patches. z is unchanged, but the velocity is
 * overwritten. Collective. Only rank 0 reads path. Fails as st_write does, or with the errors
 * of comm. If rank 0 fails, the other ranks wait until they are aborted. */
int flow_sample_save(struct model *m, const struct flow_sample *s, const char *path, struct err *e);
/* Returns the counts of messages and bytes of flow_sample_finite and flow_sample_save, added
 * up, for PURPOSE_CONTROL and rank r of the ring. */
struct comm_count flow_sample_traffic(const struct model *m, const struct flow_sample *s, int r);

#endif
