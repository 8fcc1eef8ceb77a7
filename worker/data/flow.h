/* flow.h: the random draws of a sample of latents and its noise, for rectified flow (arXiv
 * 2209.03003) as in Open-Sora 1.2, and for models that predict noise (worker/plan/noise.h).
 *   rectified flow   x_t = (1 - t) x_0 + t noise
 *                    t in [0, 1], all noise at 1
 *                    the model learns v = x_0 - noise
 *   noise            x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise
 *                    t = 0 .. 999
 *                    the model learns the noise
 * Each draw is a pure function of (seed, number of the sample in the order, index), by
 * Philox4x32-10. So the noise of an element depends neither on the number of ranks, nor on the
 * rank that holds it, nor on earlier draws, and a resumed training draws the same. tested:
 * tests/engine/test_latents.c */
#ifndef SEQD_DATA_FLOW_H
#define SEQD_DATA_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/model_shape.h"
#include "worker/data/latents.h"

struct job_spec;

struct flow_draw {
    double t;            /* the time: 0 .. 1 for rectified flow, the index of a step for a model
                          * that predicts noise */
    double told;         /* the time that the model reads, 0 .. 1000 */
    double keep, noise;  /* factors of x_0 and of the noise in x_t */
    bool no_caption;     /* whether the sample is trained without its caption */
    int64_t clean_head;  /* number of frames at the beginning that are given without noise */
    int64_t clean_tail;  /* number of frames at the end that are given without noise */
    uint64_t clean_some; /* seed of the random clean frames; 0 if there are none (flow_clean) */
    int64_t n_some, T;   /* n_some is the number of random frames that are given clean; T is the
                          * number of all frames of patches */
    uint32_t last_word;  /* the largest word of a random clean frame, and the index of that
                          * frame */
    int64_t last_frame;
};

/* Draws for sample n of an order. The steps of models that predict noise are uniform. Times are
 * uniform, or the logistic function of a normal number (arXiv 2403.03206). With
 * objective.transform, times are shifted towards noise for large pictures and long videos:
 *   t' = r t / (1 + (r - 1) t)      r = sqrt(height width / 512^2) * sqrt(n)
 * Here n is the number of frames of latents, at least 1. For STDiT3 it is 5 per whole clip of 17
 * frames, and 1 for a picture; for the other families it counts all frames. */
void flow_draw(const struct job_spec *s, const struct latents_sample *x, int64_t n,
               struct flow_draw *out);
/* Tells whether frame `frame` (of patches) is given clean, which means that its time is 0 and that
 * it is not a target. */
bool flow_clean(const struct flow_draw *d, int64_t frame);

/* Draws the standard normal noise of elements [first, first + count) of the sample's flat [C, T,
 * H, W] (Box-Muller; each element has its own words). n is the index of the sample with
 * FLOW_TRAIN, and the index of the request with FLOW_SAMPLE. */
enum flow_use { FLOW_TRAIN, FLOW_SAMPLE };
void flow_noise(int64_t seed, enum flow_use what, int64_t n, int64_t first, int64_t count,
                float *out);
/* Draws, as flow_noise does, the noise that sampling adds in step i of request n. */
void flow_step_noise(int64_t seed, int64_t i, int64_t n, int64_t first, int64_t count, float *out);

/* One rank's part of a sample: rows of patches [share, frames], which are spread along space. s0
 * is the rank's first index in space (worker/sp/dsp.h). */
struct flow_rows {
    int64_t patch[3];  /* frames, height and width of a patch, as in model_shape */
    int64_t grid[3];   /* patches: frames, height, width */
    int64_t share, s0; /* share is the number of the rank's indices in space, including pads; s0 is
                        * its first index */
};
/* Finds the range [*w0, *w1) of line h of a picture of width W that lies in these rows. */
void flow_covered(const struct flow_rows *r, int64_t W, int64_t h, int64_t *w0, int64_t *w1);
/* Finds the row of patches (*row) that has pixel (frame, h, w), and the pixel's position in that
 * row (*in). Returns false if another rank has the pixel. */
bool flow_place(const struct flow_rows *r, int64_t frame, int64_t h, int64_t w, int64_t *row,
                int64_t *in);
/* Computes the grid of a sample. Sides that are not multiples of the patch are rounded up. */
void flow_grid(const struct model_shape *m, const struct latents_sample *x, int64_t grid[3]);

/* The values on which a rank trains, for struct batch_latents. A row of patches has in_channels
 * values for each of its n places. In `patches` channels are outermost, as in a convolution; in
 * `target` they are innermost, as in the output of the last layer.
 *   patches   [share * frames, patch values]: x_t, or x_0 in frames given clean, or 0 in pads
 *   target    [share * frames, n, shape_targets()]: x_0 - noise; for models that predict noise,
 *             the noise and then x_0; 0 where the sample has no value
 *   weight    [share * frames, n]: 1, or 0 in frames given clean, pads, and places beyond the
 *             edges of the sample
 *   group     [share * frames]: 1 in frames given clean, otherwise 0
 * Fails with ERR_IO, or with ERR_CORRUPT, which names the file. */
struct flow_out {
    float *patches, *target, *weight;
    int32_t *group;
    int64_t targets; /* values of a place: shape_targets() */
};
int flow_fill(const struct data *d, const struct latents_sample *x, const struct flow_draw *draw,
              int64_t seed, int64_t n, const struct flow_rows *rows, const struct flow_out *out,
              struct err *e);
/* Counts the values of the sample in the loss. Values of frames that are given clean are not in
 * the loss. */
int64_t flow_targets(const struct latents_sample *x, const struct flow_draw *draw, int64_t patch_t);

/* flow_time returns the time of Euler step i of n_steps, which falls from 1 at i = 0 to 0 at i =
 * n_steps. A `shift` other than 1 shifts the time as in training. flow_shift returns this shift,
 * which is the r of flow_draw. */
double flow_time(int64_t i, int64_t n_steps, double shift);
double flow_shift(const struct model_shape *m, int64_t height, int64_t width, int64_t num_frames);
/* Returns the number of frames of latents that the family's VAE makes from num_frames frames. */
int64_t flow_frames(const struct model_shape *m, int64_t num_frames);

#endif
