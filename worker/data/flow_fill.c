/* flow_fill.c: fills the rows of one rank. A sample is read line by line. A line is the part
 * of a row of pixels, in one channel of one frame, that the rank's patches cover. */
#include <string.h>
#include "worker/data/flow.h"

#define LINE 1024 /* values read at a time */

struct fill {
    const struct data *d;
    const struct latents_sample *x;
    const struct flow_draw *draw;
    const struct flow_rows *rows;
    const struct flow_out *out;
    int64_t seed, n;
    int64_t values; /* values of a patch row */
};

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

void flow_grid(const struct model_shape *m, const struct latents_sample *x, int64_t grid[3])
{
    grid[0] = div_up(x->T, m->patch_t);
    grid[1] = div_up(x->H, m->patch_h);
    grid[2] = div_up(x->W, m->patch_w);
}

void flow_covered(const struct flow_rows *r, int64_t W, int64_t h, int64_t *w0, int64_t *w1)
{
    const int64_t first = h / r->patch[1] * r->grid[2]; /* index of the line's first patch */
    const int64_t from = r->s0 - first, to = from + r->share;
    *w0 = (from > 0 ? from : 0) * r->patch[2];
    *w1 = (to < r->grid[2] ? to : r->grid[2]) * r->patch[2];
    if (*w1 > W) *w1 = W;
}

bool flow_place(const struct flow_rows *r, int64_t frame, int64_t h, int64_t w, int64_t *row,
                int64_t *in)
{
    const int64_t *p = r->patch, s = h / p[1] * r->grid[2] + w / p[2] - r->s0;
    *row = s * r->grid[0] + frame / p[0];
    *in = (frame % p[0] * p[1] + h % p[1]) * p[2] + w % p[2];
    return s >= 0 && s < r->share;
}

int64_t flow_targets(const struct latents_sample *x, const struct flow_draw *draw, int64_t patch_t)
{
    int64_t frames = 0;
    for (int64_t t = 0; t < x->T; t++) frames += !flow_clean(draw, t / patch_t);
    return frames * x->C * x->H * x->W;
}

/* Marks the patches of clean frames. Here a frame is a frame of patches and not a frame of
 * latents; draw->T counts frames of the same kind. */
static void fill_frames(const struct fill *f)
{
    const struct flow_rows *r = f->rows;
    const int64_t space = r->grid[1] * r->grid[2];
    for (int64_t t = 0; t < r->grid[0]; t++) {
        const bool clean = flow_clean(f->draw, t);
        for (int64_t i = 0; i < r->share; i++)
            f->out->group[i * r->grid[0] + t] = clean && r->s0 + i < space;
    }
}

static void clear(const struct fill *f)
{
    const int64_t n = f->rows->share * f->rows->grid[0] * f->values;
    memset(f->out->patches, 0, (size_t)n * sizeof(float));
    memset(f->out->target, 0, (size_t)(n / f->x->C * f->out->targets) * sizeof(float));
    memset(f->out->weight, 0, (size_t)(n / f->x->C) * sizeof(float));
}

struct fill_place {
    int64_t c, frame, h; /* place of a line */
    bool clean;
};

static void put_target(const struct fill *f, int64_t place, int64_t c, float z, float noise)
{
    const int64_t n = f->out->targets;
    float *to = f->out->target + place * n + c;
    if (n > f->x->C)
        to[0] = noise, to[f->x->C] = z;
    else
        to[0] = z - noise;
}

/* Writes values [w, w + n) of a line to the rank's rows. */
static void put(const struct fill *f, const struct fill_place *at, int64_t w, int64_t n,
                const float *z, const float *noise)
{
    const int64_t *p = f->rows->patch, area = p[0] * p[1] * p[2];
    const double keep = at->clean ? 1 : f->draw->keep, part = at->clean ? 0 : f->draw->noise;
    for (int64_t k = 0; k < n; k++) {
        int64_t row, in;
        if (!flow_place(f->rows, at->frame, at->h, w + k, &row, &in)) continue;
        f->out->patches[row * f->values + at->c * area + in] = (float)(keep * z[k] +
                                                                       part * noise[k]);
        put_target(f, row * area + in, at->c, z[k], noise[k]);
        f->out->weight[row * area + in] = !at->clean;
    }
}

static int fill_line(const struct fill *f, const struct fill_place *at, struct err *e)
{
    const struct latents_sample *x = f->x;
    const int64_t first = ((at->c * x->T + at->frame) * x->H + at->h) * x->W;
    float z[LINE], noise[LINE];
    int64_t w, end;
    flow_covered(f->rows, x->W, at->h, &w, &end);
    for (; w < end; w += LINE) {
        const int64_t n = end - w < LINE ? end - w : LINE;
        if (latents_read(f->d, x, first + w, n, z, e) < 0) return -1;
        flow_noise(f->seed, FLOW_TRAIN, f->n, first + w, n, noise);
        put(f, at, w, n, z, noise);
    }
    return 0;
}

int flow_fill(const struct data *d, const struct latents_sample *x, const struct flow_draw *draw,
              int64_t seed, int64_t n, const struct flow_rows *rows, const struct flow_out *out,
              struct err *e)
{
    const struct fill f = {.d = d,
                           .x = x,
                           .draw = draw,
                           .rows = rows,
                           .out = out,
                           .seed = seed,
                           .n = n,
                           .values = x->C * rows->patch[0] * rows->patch[1] * rows->patch[2]};
    clear(&f);
    fill_frames(&f);
    for (int64_t c = 0; c < x->C; c++)
        for (int64_t t = 0; t < x->T; t++) {
            const bool clean = flow_clean(draw, t / rows->patch[0]);
            for (int64_t h = 0; h < x->H; h++)
                if (fill_line(&f, &(struct fill_place){c, t, h, clean}, e) < 0) return -1;
        }
    return 0;
}
