/* flow.h: makes the random draws of a sample of latents and the sample's noise, for rectified
 * flow (arXiv 2209.03003, as used by Open-Sora 1.2) and for models that predict noise
 * (worker/plan/noise.h).
 *   rectified flow   x_t = (1 - t) x_0 + t noise
 *                    t is in [0, 1], and x_1 is the noise
 *                    the model learns v = x_0 - noise
 *   noise            x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise
 *                    t = 0 .. 999
 *                    the model learns the noise
 * Philox4x32-10 makes each draw as a pure function of the seed, the sample's index in the
 * order, and the draw's index. For this reason the noise of an element depends neither on the
 * number of ranks, nor on the rank that stores the element, nor on earlier draws. A resumed
 * training makes the draws that an uninterrupted training makes. tested:
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
    double t;           /* the time; for rectified flow it is in 0 .. 1, and for a model that
                         * predicts noise it is the index of a step */
    double told;        /* the time that the model reads, 0 .. 1000 */
    double keep, noise; /* factors of x_0 and of the noise in x_t */
    bool no_caption;    /* whether the sample is trained without its caption */
    /* number of clean frames at the beginning, which are frames without noise */
    int64_t clean_head;
    int64_t clean_tail;  /* number of clean frames at the end */
    uint64_t clean_some; /* seed of the random clean frames; 0 if no clean frames are chosen at
                          * random (flow_clean) */
    int64_t n_some, T;   /* n_some is the number of random clean frames; T is the number of all
                          * frames of patches */
    uint32_t last_word;  /* last_word is the largest of the random words of the random clean
                          * frames; last_frame is the index of the frame with that word */
    int64_t last_frame;
};

/* Makes the draws for sample n of an order. For a model that predicts noise the step is uniform.
 * For rectified flow the time is uniform, or is the logistic function of a normal number (arXiv
 * 2403.03206). With objective.transform, times are shifted towards noise for large pictures and
 * long videos:
 *   t' = r t / (1 + (r - 1) t)      r = sqrt(height width / 512^2) * sqrt(n)
 * Here n is the number of frames of latents, at least 1. For STDiT3 n is 5 for each whole clip of
 * 17 frames, and 1 for a picture. For the other families n counts all frames. */
void flow_draw(const struct job_spec *s, const struct latents_sample *x, int64_t n,
               struct flow_draw *out);
/* Returns true if frame `frame` of patches is clean, which means that its time is 0 and that
 * it is not a target. */
bool flow_clean(const struct flow_draw *d, int64_t frame);

/* Draws the standard normal noise of elements [first, first + count) of the sample's flat [C, T,
 * H, W] (by Box-Muller, with separate random words for each element). With FLOW_TRAIN n is the
 * index of the sample. With FLOW_SAMPLE n is the index of the request. */
enum flow_use { FLOW_TRAIN, FLOW_SAMPLE };
void flow_noise(int64_t seed, enum flow_use what, int64_t n, int64_t first, int64_t count,
                float *out);
/* Draws the noise that sampling adds in step i of request n. The draw works as in flow_noise.. */
void flow_step_noise(int64_t seed, int64_t i, int64_t n, int64_t first, int64_t count, float *out);

/* One rank's part of a sample. It is [share, frames] rows of patches, because the ranks divide the
 * space of a frame among them (worker/sp/dsp.h). */
struct flow_rows {
    int64_t patch[3];  /* frames, height and width of a patch, as in model_shape */
    int64_t grid[3];   /* number of patches along frames, height and width */
    int64_t share, s0; /* `share` is the number of the rank's indices in space, including pads;
                        * `s0` is the first of these indices */
};
/* Finds the pixels [*w0, *w1) of line h that the rows r cover. W is the width of the picture. */
void flow_covered(const struct flow_rows *r, int64_t W, int64_t h, int64_t *w0, int64_t *w1);
/* Finds the row of patches (*row) that has pixel (frame, h, w), and the pixel's position in
 * that row (*in). Returns false if the pixel is not in the rows of this rank. */
bool flow_place(const struct flow_rows *r, int64_t frame, int64_t h, int64_t w, int64_t *row,
                int64_t *in);
/* Computes the grid of a sample. Each side of the sample is rounded up to a multiple of the
 * patch's side. */
void flow_grid(const struct model_shape *m, const struct latents_sample *x, int64_t grid[3]);

/* The values on which a rank trains, for struct batch_latents. A row of patches has in_channels
 * values for each of its n places. Channels are outermost in `patches`, as in a convolution. They
 * are innermost in `target`, as in the output of the last layer.
 *   patches   [share * frames, patch values]: x_t, or x_0 in clean frames, or 0 in pads
 *   target    [share * frames, n, shape_targets()]: x_0 - noise. For models that predict noise
 *             it is the noise, followed by x_0. It is 0 where the sample has no value
 *   weight    [share * frames, n]: 1, or 0 in clean frames, pads, and places beyond the
 *             edges of the sample
 *   group     [share * frames]: 1 in clean frames, otherwise 0
 * Fails with ERR_IO or ERR_CORRUPT. The error ERR_CORRUPT names the file. */
struct flow_out {
    float *patches, *target, *weight;
    int32_t *group;
    int64_t targets; /* values of a place: shape_targets() */
};
int flow_fill(const struct data *d, const struct latents_sample *x, const struct flow_draw *draw,
              int64_t seed, int64_t n, const struct flow_rows *rows, const struct flow_out *out,
              struct err *e);
/* Counts the values of the sample that are in the loss. Values of clean frames are not in the
 * loss. */
int64_t flow_targets(const struct latents_sample *x, const struct flow_draw *draw, int64_t patch_t);

/* flow_time returns the time of Euler step i of n_steps. The time falls from 1 at i = 0 to 0
 * at i = n_steps. The time is shifted by the parameter `shift`, as in training. The value 1
 * means that the time is not shifted. flow_shift returns the shift for this picture or video,
 * which is the r of flow_draw. */
double flow_time(int64_t i, int64_t n_steps, double shift);
double flow_shift(const struct model_shape *m, int64_t height, int64_t width, int64_t num_frames);
/* Returns the number of frames of latents that the family's VAE makes from num_frames frames. */
int64_t flow_frames(const struct model_shape *m, int64_t num_frames);

#endif
