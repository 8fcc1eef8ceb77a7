/* flow_sample.c: draws noise for this rank's patches, predicts with and without the caption, and
 * changes z step by step. */
#include "worker/infer/flow_sample.h"

#include <math.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/family/family.h"
#include "worker/plan/noise.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/volume.h"

#define LINE 1024 /* values of noise that are drawn together */

/* The rows of this rank. Each row is a patch, and the patches are [share of space, frames]. A
 * row has C channels, and each channel has `places` values. */
struct sample_rows {
    struct flow_rows at;
    int64_t C, places, cols; /* `cols` is the number of values of a row */
    int64_t n;               /* number of rows */
};

static struct sample_rows rows_of(const struct model *m, const struct flow_sample *s)
{
    const struct model_shape *a = &m->shape;
    struct sample_rows r = {.at.patch = {a->patch_t, a->patch_h, a->patch_w}, .C = a->in_channels};
    flow_grid(a, &s->x, r.at.grid);
    r.places = a->patch_t * a->patch_h * a->patch_w;
    r.cols = r.C * r.places;
    r.at.share = shard_share(r.at.grid[1] * r.at.grid[2], m->plan->sp, m->plan->rank_bits);
    r.at.s0 = m->rank * r.at.share;
    r.n = r.at.share * r.at.grid[0];
    return r;
}

/* ---- noise ----------------------------------------------------------------------------------- */

struct sample_line { /* one row of pixels of one channel */
    int64_t c, frame, h;
};

/* The noise to draw, and the array in which it is stored. */
struct sample_draw {
    struct model *m;
    const struct flow_sample *s;
    const struct sample_rows *r;
    /* index of the step; -1 for the initial noise. When the initial noise is stored, the
     * weight of each place of a row is set, too. */
    int64_t step;
    /* parameters for the noise of a step; NULL for the initial noise. If it is not NULL,
     * `spread` must have the predicted variance. */
    const struct noise_draw *by;
};

static void put_value(const struct sample_draw *d, int64_t row, int64_t col, int64_t in, float z)
{
    const struct batch_latents *b = &d->m->batch.latents;
    float *spread = d->m->prog.spread + row * d->r->cols + col;
    if (d->step >= 0) {
        *spread = (float)(noise_spread(d->by, *spread) * z);
        return;
    }
    b->patches[row * d->r->cols + col] = z;
    b->weight[row * d->r->places + in] = 1;
}

/* Stores values [w, w + n) of a line in the rows. */
static void put_noise(const struct sample_draw *d, const struct sample_line *at, int64_t w,
                      int64_t n, const float *noise)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t row, in;
        if (!flow_place(&d->r->at, at->frame, at->h, w + k, &row, &in)) continue;
        put_value(d, row, at->c * d->r->places + in, in, noise[k]);
    }
}

/* Draws the values of a line that are in this rank's patches. */
static void draw_line(const struct sample_draw *d, const struct sample_line *at)
{
    const struct flow_sample *s = d->s;
    const struct latents_sample *x = &s->x;
    const int64_t first = ((at->c * x->T + at->frame) * x->H + at->h) * x->W;
    int64_t w, end;
    float noise[LINE];
    flow_covered(&d->r->at, x->W, at->h, &w, &end);
    for (; w < end; w += LINE) {
        const int64_t n = end - w < LINE ? end - w : LINE;
        if (d->step >= 0)
            flow_step_noise(s->seed, d->step, s->n, first + w, n, noise);
        else
            flow_noise(s->seed, FLOW_SAMPLE, s->n, first + w, n, noise);
        put_noise(d, at, w, n, noise);
    }
}

static void draw_all(const struct sample_draw *d)
{
    const struct latents_sample *x = &d->s->x;
    struct sample_line at;
    for (at.c = 0; at.c < x->C; at.c++)
        for (at.frame = 0; at.frame < x->T; at.frame++)
            for (at.h = 0; at.h < x->H; at.h++) draw_line(d, &at);
}

int flow_sample_begin(struct model *m, const struct flow_sample *s, struct err *e)
{
    const struct sample_rows r = rows_of(m, s);
    struct batch_latents *b = &m->batch.latents;
    if (model_set_grid(m, r.at.grid[1] * r.at.grid[2], r.at.grid[0], e)) return -1;
    memcpy(b->grid, r.at.grid, sizeof b->grid);
    b->height = (double)s->x.height;
    b->width = (double)s->x.width;
    b->fps = (double)s->x.fps;
    b->n_text = m->shape.caption_channels ? s->x.text_len : 0;
    memset(b->patches, 0, (size_t)(r.n * r.cols) * sizeof *b->patches);
    memset(b->weight, 0, (size_t)(r.n * r.places) * sizeof *b->weight);
    draw_all(&(struct sample_draw){m, s, &r, -1, NULL});
    b->dropped = false;
    model_place(m, &m->batch);
    return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Returns true if guidance is possible, which means that the model can also predict without a
 * caption or class. */
static bool can_be_guided(const struct model_shape *m)
{
    return m->caption_channels || m->type_vocab;
}

static bool two_passes(const struct model_shape *m, const struct flow_sample *s)
{
    return s->guidance != 1 && can_be_guided(m);
}

int64_t flow_sample_passes(const struct model_shape *m, const struct flow_sample *s)
{
    return s->steps * (two_passes(m, s) ? 2 : 1);
}

static int predict(struct model *m, const struct flow_sample *s, bool told, struct err *e)
{
    struct batch *b = model_batch(m);
    b->latents.dropped = !told;
    /* The class after the last class means "no class". */
    b->latents.label = told ? s->label : (int32_t)m->shape.type_vocab - 1;
    return model_forward(m, b, e);
}

static struct tensor velocity(const struct model *m, const struct sample_rows *r)
{
    return tensor_of(m->dtype, m->prog.velocity, r->n, r->cols, r->cols);
}

/* Copies in_channels channels of the last prediction to the velocity, beginning with channel
 * `first`. If `first` is 0, they are the channels of the predicted value. If `first` is
 * in_channels, they are the channels of the variance. In a patch of the prediction, the channels
 * of one place are adjacent. */
static void take_channels(struct model *m, const struct sample_rows *r, int64_t first)
{
    const struct tensor y = model_normed(m, 0, r->n), v = velocity(m, r);
    const int64_t out = m->shape.out_channels, size = dtype_size(y.dtype);
    assert(y.ld == y.cols && y.cols == r->places * out && y.dtype == v.dtype);
    for (int64_t c = 0; c < r->C; c++)
        m->be->ops->permute(m->be,
                            &(struct permute_args){.dst = (char *)v.data + c * r->places * size,
                                                   .src = (const char *)y.data + (first + c) * size,
                                                   .n = {1, r->n, r->places},
                                                   .dst_stride = {0, r->cols * size, size},
                                                   .src_stride = {0, y.cols * size, out * size},
                                                   .size = size});
}

static void take_velocity(struct model *m, const struct sample_rows *r)
{
    take_channels(m, r, 0);
}

static struct tensor sample(struct model *m, const struct sample_rows *r)
{
    return tensor_f32(model_batch(m)->latents.patches, r->n, r->cols, r->cols);
}

struct channels {
    int64_t first, end;
};

/* Computes z = alpha z + beta v in the channels c. If beta is 0, v is not read. */
static void advance(struct model *m, const struct sample_rows *r, struct channels c, double alpha,
                    double beta)
{
    const int64_t col = c.first * r->places, n = (c.end - c.first) * r->places;
    const struct tensor z = tensor_sub(sample(m, r), 0, r->n, col, n);
    struct mix_args a = {.a = z, .y = z, .alpha = (float)alpha, .beta = (float)beta};
    if (n == 0 || (alpha == 1 && beta == 0)) return;
    if (beta != 0) a.b = tensor_sub(velocity(m, r), 0, r->n, col, n);
    m->be->ops->mix(m->be, &a);
}

/* Returns the channels that guidance changes. The other channels come from the prediction with
 * caption or class. */
static struct channels guided(const struct model *m)
{
    const int64_t n = shape_of_noise(&m->shape) ? family_row(&m->shape)->guided : 0;
    return (struct channels){0, n > 0 && n < m->shape.in_channels ? n : m->shape.in_channels};
}

/* The numbers of a step. The model predicts v at the time `told`. Then z becomes alpha z +
 * beta v. */
struct step_by {
    double told, alpha, beta;
};

static struct step_by step_of(const struct model *m, const struct flow_sample *s, int64_t i)
{
    if (shape_of_noise(&m->shape)) {
        const struct noise_jump j = s->ancestral ? noise_draw(i, s->steps).mean
                                                 : noise_jump(i, s->steps);
        return (struct step_by){(double)j.t, j.alpha, j.beta};
    }
    const double t = flow_time(i, s->steps, s->shift);
    return (struct step_by){FLOW_TIMES * t, 1, t - flow_time(i + 1, s->steps, s->shift)};
}

/* Sets pads and values beyond the edges of the sample to 0, as the model expects. */
static void clear_beyond(struct model *m, const struct sample_rows *r)
{
    float *const places = model_batch(m)->latents.weight;
    const struct tensor weight = tensor_f32(places, r->n, r->places, r->places);
    for (int64_t c = 0; c < r->C; c++) {
        const struct tensor z = tensor_sub(sample(m, r), 0, r->n, c * r->places, r->places);
        m->be->ops->glu_fwd(
            m->be, &(struct glu_fwd_args){.fn = ACT_IDENTITY, .a = z, .b = weight, .y = z});
    }
}

/* Adds the noise of step i. The last prediction has its variance. The host computes the noise in
 * double. */
static int add_drawn(struct model *m, const struct flow_sample *s, const struct sample_rows *r,
                     int64_t i, struct err *e)
{
    const struct noise_draw by = noise_draw(i, s->steps);
    const struct tensor z = sample(m, r);
    const struct tensor spread = tensor_f32(m->prog.d_spread, r->n, r->cols, r->cols);
    const int64_t size = r->n * r->cols * (int64_t)sizeof(float);
    if (by.last) return 0;
    take_channels(m, r, r->C);
    m->be->ops->mix(m->be, &(struct mix_args){.a = velocity(m, r), .y = spread, .alpha = 1});
    if (m->be->own_memory) m->be->ops->download(m->be, m->prog.spread, m->prog.d_spread, size);
    if (m->be->ops->sync && m->be->ops->sync(m->be, e)) return -1;
    draw_all(&(struct sample_draw){m, s, r, i, &by});
    if (m->be->own_memory) m->be->ops->upload(m->be, m->prog.d_spread, m->prog.spread, size);
    m->be->ops->mix(m->be, &(struct mix_args){.a = z, .b = spread, .y = z, .alpha = 1, .beta = 1});
    return 0;
}

int flow_sample_step(struct model *m, const struct flow_sample *s, int64_t i, struct err *e)
{
    const struct sample_rows r = rows_of(m, s);
    const struct step_by by = step_of(m, s, i);
    const bool two = two_passes(&m->shape, s);
    const double with = two ? s->guidance : 1;
    const struct channels led = guided(m), rest = {led.end, m->shape.in_channels};
    model_batch(m)->latents.t = by.told;
    if (two) {
        if (predict(m, s, false, e)) return -1;
        take_velocity(m, &r);
    }
    if (predict(m, s, true, e)) return -1;
    if (two) advance(m, &r, led, by.alpha, by.beta * (1 - with));
    take_velocity(m, &r);
    advance(m, &r, led, two ? 1 : by.alpha, by.beta * with);
    advance(m, &r, rest, by.alpha, by.beta);
    if (s->ancestral && add_drawn(m, s, &r, i, e)) return -1;
    clear_beyond(m, &r);
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}

/* ---- the result ------------------------------------------------------------------------------ */

int flow_sample_finite(struct model *m, const struct flow_sample *s, bool *ok, struct err *e)
{
    const struct sample_rows r = rows_of(m, s);
    const float *z = m->batch.latents.patches;
    int64_t bad = 0;
    if (m->be->own_memory)
        m->be->ops->download(m->be, m->batch.latents.patches, sample(m, &r).data, r.n * r.cols * 4);
    for (int64_t i = 0; i < r.n * r.cols; i++) bad += !isfinite(z[i]);
    if (m->comm && comm_sum_i64(m->comm, PURPOSE_CONTROL, &bad, 1, m->bounce, e)) return -1;
    *ok = bad == 0;
    return 0;
}

/* Copies the values so that all values of one channel and one frame of patches (a plane) are
 * adjacent: [C, frames, share, places]. */
static void pack(struct model *m, const struct sample_rows *r)
{
    const int64_t size = r->places * (int64_t)sizeof(float);
    m->be->ops->permute(m->be, &(struct permute_args){
                                   .dst = m->prog.velocity,
                                   .src = sample(m, r).data,
                                   .n = {r->at.share, r->at.grid[0], r->C},
                                   .dst_stride = {size, r->at.share * size, r->n * size},
                                   .src_stride = {r->at.grid[0] * r->C * size, r->C * size, size},
                                   .size = size});
}

struct sample_gather {
    struct model *m;
    const struct flow_sample *s;
    struct sample_rows r;
    /* index (c * frames + f) of the plane that is in m->prog.plane on rank 0; -1 if no plane
     * has been gathered yet */
    int64_t plane;
};

static int next_plane(struct sample_gather *g, struct err *e)
{
    struct model *m = g->m;
    const int64_t n = g->r.at.share * g->r.places, size = n * (int64_t)sizeof(float);
    const float *own = m->prog.velocity + ++g->plane * n;
    if (m->be->own_memory || !m->comm) {
        float *here = m->prog.plane + (m->comm ? m->plan->sp * n : 0);
        m->be->ops->download(m->be, here, own, size);
        own = here;
    }
    if (!m->comm) return 0;
    return comm_gather(m->comm, PURPOSE_CONTROL, 0, own, size, m->prog.plane, m->bounce, e);
}

/* Copies values [w, w + n) of a line of the current plane. */
static void unpatch(const struct sample_gather *g, const struct sample_line *at, int64_t w,
                    int64_t n, float *out)
{
    const struct sample_rows *r = &g->r;
    const int64_t *p = r->at.patch;
    const int64_t row = at->h / p[1] * r->at.grid[2];
    const int64_t in = (at->frame % p[0] * p[1] + at->h % p[1]) * p[2];
    for (int64_t k = 0; k < n; k++)
        out[k] = g->m->prog.plane[(row + (w + k) / p[2]) * r->places + in + (w + k) % p[2]];
}

/* Reads elements for the function that writes the file. This function asks for the elements in
 * ascending order. When it asks for the first element of a plane, the plane is gathered. */
static int read_latents(void *arg, int64_t at, int64_t n, void *out, struct err *e)
{
    struct sample_gather *g = arg;
    const struct latents_sample *x = &g->s->x;
    float *to = out;
    for (int64_t end = at + n, k; at < end; at += k, to += k) {
        const int64_t w = at % x->W, left = x->W - w;
        const struct sample_line l = {at / x->W / x->H / x->T, at / x->W / x->H % x->T,
                                      at / x->W % x->H};
        const int64_t plane = l.c * g->r.at.grid[0] + l.frame / g->r.at.patch[0];
        while (g->plane < plane)
            if (next_plane(g, e)) return -1;
        k = left < end - at ? left : end - at;
        unpatch(g, &l, w, k, to);
    }
    return 0;
}

int flow_sample_save(struct model *m, const struct flow_sample *s, const char *path, struct err *e)
{
    struct sample_gather g = {m, s, rows_of(m, s), -1};
    const struct latents_sample *x = &s->x;
    const struct st_out z = {.name = "z",
                             .dtype = ST_F32,
                             .n_dims = 4,
                             .dims = {x->C, x->T, x->H, x->W},
                             .read = read_latents,
                             .arg = &g};
    pack(m, &g.r);
    if (m->be->ops->sync && m->be->ops->sync(m->be, e)) return -1;
    if (m->rank == 0) return st_write(path, &z, 1, e);
    while (g.plane + 1 < g.r.C * g.r.at.grid[0])
        if (next_plane(&g, e)) return -1;
    return 0;
}

struct comm_count flow_sample_traffic(const struct model *m, const struct flow_sample *s, int r)
{
    const struct sample_rows own = rows_of(m, s);
    const int64_t size = own.at.share * own.places * (int64_t)sizeof(float);
    struct comm_count c = {0};
    if (m->plan->sp == 1) return c;
    volume_add(&c, volume_sum_small(m->plan->sp, 1), 1);
    volume_add(&c, volume_gather(m->plan->sp, size, r == 0), own.C * own.at.grid[0]);
    return c;
}
