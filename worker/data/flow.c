/* flow.c: draws noise, times and clean frames by Philox, whose counter is (stream, sample,
 * index). Shifts the time by an amount that depends on the size of the sample. */
#include "worker/data/flow.h"

#include <math.h>
#include "api/core/job.h"
#include "kernels/philox.h"
#include "worker/family/family.h"
#include "worker/plan/noise.h"

#define T_SCALE 1000 /* Factor by which the models multiply a time before they embed it. */

#define PI 3.14159265358979323846

/* Streams of one seed. Draws for different purposes use different streams, so that no two draws
 * share a counter. */
enum {
    STREAM_NOISE,
    STREAM_SAMPLE_NOISE,
    STREAM_TIME,
    STREAM_CAPTION,
    STREAM_FRAMES,
    STREAM_STEPS = 16 /* STREAM_STEPS + i is the stream of step i of a sample */
};

struct words {
    uint32_t w[4];
};

/* Draws four words. index fits 32 bits, because a sample has at most 2^25 elements, and four
 * elements share a counter. */
static struct words draw(int64_t seed, uint32_t stream, int64_t n, uint32_t index)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)((uint64_t)seed >> 32) ^ 0x666c6f77u};
    const uint32_t counter[4] = {index, (uint32_t)n, (uint32_t)((uint64_t)n >> 32), stream};
    struct words x;
    philox4x32(key, counter, x.w);
    return x;
}

/* Returns a number in (0, 1). */
static double uniform(uint32_t w)
{
    return ((double)w + 0.5) * 0x1p-32;
}

/* Makes two normal numbers from two words. */
static void normal(const uint32_t w[2], double out[2])
{
    const double r = sqrt(-2 * log(uniform(w[0]))), a = 2 * PI * uniform(w[1]);
    out[0] = r * cos(a);
    out[1] = r * sin(a);
}

static void draw_normals(int64_t seed, uint32_t stream, int64_t n, int64_t first, int64_t count,
                         float *out)
{
    for (int64_t i = 0; i < count;) {
        const struct words x = draw(seed, stream, n, (uint32_t)((first + i) / 4));
        double z[4];
        normal(x.w, z);
        normal(x.w + 2, z + 2);
        for (int64_t lane = (first + i) % 4; lane < 4 && i < count; lane++, i++)
            out[i] = (float)z[lane];
    }
}

void flow_noise(int64_t seed, enum flow_use what, int64_t n, int64_t first, int64_t count,
                float *out)
{
    draw_normals(seed, what == FLOW_TRAIN ? STREAM_NOISE : STREAM_SAMPLE_NOISE, n, first, count,
                 out);
}

void flow_step_noise(int64_t seed, int64_t i, int64_t n, int64_t first, int64_t count, float *out)
{
    draw_normals(seed, STREAM_STEPS + (uint32_t)i, n, first, count, out);
}

/* STDiT3's VAE encodes each clip of 17 frames as 5 frames of latents. The VAE of the other
 * families is for pictures, and encodes each frame as one frame of latents. */
enum { CLIP = 17, CLIP_LATENTS = 5 };

int64_t flow_frames(const struct model_shape *m, int64_t num_frames)
{
    if (!family_row(m)->clips) return num_frames;
    return num_frames / CLIP * CLIP_LATENTS + (num_frames % CLIP + 3) / 4;
}

/* Counts the frames of latents for the time shift. For STDiT3 only the frames of whole clips
 * are counted, and a picture is counted as 1 frame. from: Open-Sora 1.2 timestep_transform. */
static int64_t shift_frames(const struct model_shape *m, int64_t num_frames)
{
    if (!family_row(m)->clips || num_frames == 1) return num_frames;
    return num_frames / CLIP * CLIP_LATENTS;
}

double flow_shift(const struct model_shape *m, int64_t height, int64_t width, int64_t num_frames)
{
    const int64_t frames = shift_frames(m, num_frames);
    const double space = sqrt((double)height * (double)width / (512.0 * 512.0));
    return space * sqrt(frames > 0 ? (double)frames : 1);
}

static double shifted(double t, double r)
{
    return r * t / (1 + (r - 1) * t);
}

double flow_time(int64_t i, int64_t n_steps, double shift)
{
    return shifted(1 - (double)i / (double)n_steps, shift);
}

static double draw_time(const struct job_spec *s, const struct latents_sample *x, int64_t n)
{
    const struct words w = draw(s->seed, STREAM_TIME, n, 0);
    double z[2], t = uniform(w.w[0]);
    if (s->objective.timestep == TIMESTEP_LOGIT_NORMAL) {
        normal(w.w, z);
        t = 1 / (1 + exp(-z[0]));
    }
    return s->objective.transform
               ? shifted(t, flow_shift(&s->model.shape, x->height, x->width, x->num_frames))
               : t;
}

/* Draws a number of frames from 1 to a quarter of T, as Open-Sora's mask generator does. */
static int64_t some_frames(uint32_t w, int64_t T)
{
    const int64_t most = T / 4 > 1 ? T / 4 : 1;
    return 1 + (int64_t)(uniform(w) * (double)most);
}

/* Returns the random word of a frame. The n_some frames with the smallest words are clean. If
 * two frames have equal words, the word of the earlier frame is treated as smaller. */
static uint32_t frame_word(const struct flow_draw *d, int64_t frame)
{
    return draw((int64_t)d->clean_some, STREAM_FRAMES, -1, (uint32_t)frame).w[0];
}

/* Finds the n_some-th smallest word of all frames, and the frame that has it. First finds the
 * word byte by byte: for each prefix, counts the words that begin with the prefix. Then finds
 * the frame among the frames that have this word. */
static void find_last(struct flow_draw *d)
{
    int64_t left = d->n_some;
    uint64_t word = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int64_t count[256] = {0};
        uint64_t byte = 0;
        for (int64_t f = 0; f < d->T; f++) {
            const uint64_t w = frame_word(d, f);
            if (w >> (shift + 8) == word) count[w >> shift & 255]++;
        }
        while (left > count[byte]) left -= count[byte++];
        word = word << 8 | byte;
    }
    d->last_word = (uint32_t)word;
    for (d->last_frame = -1; left > 0; left -= frame_word(d, d->last_frame) == d->last_word)
        d->last_frame++;
}

static void draw_frames(const struct job_spec *s, int64_t n, struct flow_draw *d)
{
    const struct words w = draw(s->seed, STREAM_FRAMES, n, 0);
    double u = uniform(w.w[0]);
    int kind = 0;
    while (kind < 4 && u >= s->objective.frame_mask[kind]) u -= s->objective.frame_mask[kind++];
    if (kind == 4 || d->T < 2) return; /* a single frame must be a target, so it is never clean */
    const int64_t k = some_frames(w.w[1], d->T);
    switch (kind) {
    case 0:
        d->clean_some = (uint64_t)w.w[2] << 32 | w.w[3] | 1;
        d->n_some = k;
        find_last(d);
        break;
    case 1: d->clean_head = k; break;
    case 2: d->clean_tail = k; break;
    default:
        d->clean_head = k;
        d->clean_tail = d->T - 2 * k > 0 ? k : 0;
        break;
    }
}

static void draw_flow(const struct job_spec *s, const struct latents_sample *x, int64_t n,
                      struct flow_draw *d)
{
    d->t = draw_time(s, x, n);
    d->told = T_SCALE * d->t;
    d->keep = 1 - d->t;
    d->noise = d->t;
}

static void draw_step(const struct job_spec *s, int64_t n, struct flow_draw *d)
{
    const double u = uniform(draw(s->seed, STREAM_TIME, n, 0).w[0]);
    const int64_t t = (int64_t)(u * NOISE_STEPS);
    const struct noise_step at = noise_step(t);
    d->t = d->told = (double)t;
    d->keep = at.keep;
    d->noise = at.noise;
}

void flow_draw(const struct job_spec *s, const struct latents_sample *x, int64_t n,
               struct flow_draw *out)
{
    const int64_t patch_t = s->model.shape.patch_t > 0 ? s->model.shape.patch_t : 1;
    *out = (struct flow_draw){.T = (x->T + patch_t - 1) / patch_t};
    if (shape_of_noise(&s->model.shape))
        draw_step(s, n, out);
    else
        draw_flow(s, x, n, out);
    out->no_caption = uniform(draw(s->seed, STREAM_CAPTION, n, 0).w[0]) < s->objective.text_dropout;
    draw_frames(s, n, out);
}

bool flow_clean(const struct flow_draw *d, int64_t frame)
{
    if (frame < d->clean_head || frame >= d->T - d->clean_tail) return true;
    if (!d->clean_some) return false;
    const uint32_t w = frame_word(d, frame);
    return w < d->last_word || (w == d->last_word && frame <= d->last_frame);
}
