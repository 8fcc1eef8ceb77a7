/* flow.h: the random draws for a sample of latents, and the noise, for rectified flow (2209.03003)
 * as Open-Sora 1.2 trains it, and for the prediction of noise (worker/plan/noise.h).
 *
 *   x_t = (1 - t) x_0 + t noise, the model learns v = x_0 - noise      t in [0, 1], 1: all noise
 *   x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) noise, it learns the noise     t = 0 .. 999
 *
 * Everything drawn is a pure function of (seed, number of the sample in the order, index):
 * Philox4x32-10, so that the noise of an element does not depend on the number of ranks, on which
 * of them holds it, or on earlier draws; a resumed training draws the same.
 * tested: tests/engine/test_latents.c */
#ifndef SEQD_DATA_FLOW_H
#define SEQD_DATA_FLOW_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/choices.h"
#include "api/core/model_shape.h"
#include "worker/data/latents.h"

struct job_spec;

struct flow_draw {
    double t;            /* rectified flow: 0 .. 1; noise: the number of a step */
    double told;         /* time that the model is given: 0 .. 1000 */
    double keep, noise;  /* factors of x_0 and of the noise in x_t */
    bool no_caption;     /* trained without its text */
    int64_t clean_head;  /* number of first frames that are given without noise */
    int64_t clean_tail;  /* number of last frames that are given without noise */
    uint64_t clean_some; /* seed of random clean frames; 0: none (flow_clean) */
    int64_t n_some, T;   /* numbers of random clean frames, and of all frames of patches */
    uint32_t last_word;  /* word and number of the random frame that comes last */
    int64_t last_frame;
};

/* Draws for sample n of an order. Steps of noise are uniform. Times are uniform, or the logistic
 * function of a normal (2403.03206); with objective.transform they are shifted towards noise for
 * large pictures and long videos: r t / (1 + (r - 1) t), r = sqrt(height width / 512^2) * sqrt(n).
 * n counts frames of latents, at least 1: STDiT3 counts 5 for every whole clip of 17 frames, and 1
 * for a picture; the other families count all. */
void flow_draw(const struct job_spec *s, const struct latents_sample *x, int64_t n,
               struct flow_draw *out);
/* Tells whether frame `frame` (of patches) is given clean: its time is 0, and it is no target. */
bool flow_clean(const struct flow_draw *d, int64_t frame);

/* Draws the standard normal noise of elements [first, first + count) of the sample's flat [C, T, H,
 * W] (Box-Muller; each element from words of its own). what: FLOW_TRAIN with n the sample's number,
 * FLOW_SAMPLE with n the request's. */
enum flow_use { FLOW_TRAIN, FLOW_SAMPLE };
void flow_noise(int64_t seed, enum flow_use what, int64_t n, int64_t first, int64_t count,
                float *out);
/* Draws the noise of step i of request n as flow_noise does. */
void flow_step_noise(int64_t seed, int64_t i, int64_t n, int64_t first, int64_t count, float *out);

/* One rank's part of a sample: rows of patches spread along space, [share, frames], where the
 * rank's first index of space is s0 (worker/sp/dsp.h). */
struct flow_rows {
    int64_t patch[3];  /* frames, height, width of a patch: model_shape */
    int64_t grid[3];   /* patches: frames, height, width */
    int64_t share, s0; /* share: indices of space on this rank, with pads; s0: the first of them */
};
/* Finds the part of line h, of a picture W wide, that lies in these rows: [*w0, *w1). */
void flow_covered(const struct flow_rows *r, int64_t W, int64_t h, int64_t *w0, int64_t *w1);
/* Finds the row of patches (*row) and the place in it (*in) of pixel (frame, h, w). Returns false
 * if another rank has it. */
bool flow_place(const struct flow_rows *r, int64_t frame, int64_t h, int64_t w, int64_t *row,
                int64_t *in);
/* Computes the grid of a sample: sides that are no multiple of the patch are padded. */
void flow_grid(const struct model_shape *m, const struct latents_sample *x, int64_t grid[3]);

/* The values that a rank trains on, as struct batch_latents has them: a patch row holds in_channels
 * values for each of its n places, channels outermost as a convolution has them (patches), or
 * innermost as the last layer has them (target).
 *   patches   [share * frames, patch values] x_t; x_0 in frames given clean; 0 in pads
 *   target    [share * frames, n, shape_targets()] x_0 - noise; the noise, then x_0, where noise
 *             is predicted; 0 where the sample has no value
 *   weight    [share * frames, n] 1; 0: frames given clean, pads, places beyond the sample's edges
 *   group     [share * frames] 0, or 1: frames given clean
 * fails: ERR_IO, ERR_CORRUPT naming the file. */
struct flow_out {
    float *patches, *target, *weight;
    int32_t *group;
    int64_t targets; /* values of a place: shape_targets() */
};
int flow_fill(const struct data *d, const struct latents_sample *x, const struct flow_draw *draw,
              int64_t seed, int64_t n, const struct flow_rows *rows, const struct flow_out *out,
              struct err *e);
/* Counts the values of the loss, in frames that are not given clean. */
int64_t flow_targets(const struct latents_sample *x, const struct flow_draw *draw, int64_t patch_t);

/* flow_time returns the time of Euler step i of n_steps: from 1 down to 0 at i = n_steps, shifted
 * as in training where `shift` is not 1. flow_shift returns that shift, r above. */
double flow_time(int64_t i, int64_t n_steps, double shift);
double flow_shift(const struct model_shape *m, int64_t height, int64_t width, int64_t num_frames);
/* Returns how many frames of latents the family's VAE makes of num_frames frames. */
int64_t flow_frames(const struct model_shape *m, int64_t num_frames);

#endif
