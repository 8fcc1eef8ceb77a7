/* flow.c: fills the ranks' batch from the order and the reference's batch from the definition, and
 * compares predicted patches row by row. */
#include "worker/verify/flow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/model/host_copy.h"
#include "worker/plan/volume.h"
#include "worker/verify/logits.h"

struct flow_source verify_flow_source(const struct verify_args *a, const struct data_order *order)
{
    return (struct flow_source){a->data, order, a->spec, false};
}

/* ---- the ranks' side ------------------------------------------------------------------------- */

int verify_flow_ranks(const struct verify_args *a, const struct flow_source *s,
                      struct comm_count want[PURPOSE_N], struct err *e)
{
    struct model *m = a->model;
    struct plan_pass pass = {0};
    if (flow_item_grid(s, 0, pass.grid, e) || model_set_grid(m, pass.grid[0], pass.grid[1], e))
        return -1;
    plan_grid_comm(&m->shape, m->plan, m->rank, &pass, want);
    return flow_batch(s, &m->sp.shard, 0, &m->batch, e);
}

/* ---- the reference: from the definition ------------------------------------------------------ */

/* Sizes of z and of its patches. Each row is one patch. On one rank, rows are sorted by their
 * place in the frame, and rows of the same place are sorted by their frame. The values of a patch
 * that the model reads have the order [channel, frame, line, column]. The values of a patch that
 * the model predicts have the order [frame, line, column, channel]. */
struct sizes {
    int64_t C, T, H, W; /* sizes of z */
    int64_t pt, ph, pw; /* sizes of a patch */
    /* nt, nh, nw: numbers of patches along frames, lines and columns; n: number of values of one
     * channel in a patch */
    int64_t nt, nh, nw, n;
    bool noise;        /* noise is predicted; if false, the velocity is predicted */
    double keep, part; /* x_t = keep x_0 + part noise */
};

/* Sets keep and part. If noise is predicted, keep^2 is the product of (1 - beta) over the steps up
 * to t. There are 1,000 steps, whose variances beta rise linearly. */
static void set_mixture(struct sizes *z, bool noise, double t)
{
    double kept = 1;
    z->noise = noise;
    for (int i = 0; noise && i <= (int)t; i++) kept -= kept * (0.0001 + i * (0.0199 / 999));
    z->keep = noise ? sqrt(kept) : 1 - t;
    z->part = noise ? sqrt(1 - kept) : t;
}

static void put(const struct sizes *z, const struct flow_item *x, struct batch *b,
                const int64_t at[4], float value, float noise)
{
    struct batch_latents *l = &b->latents;
    const int64_t c = at[0], t = at[1], h = at[2], w = at[3];
    const int64_t row = (h / z->ph * z->nw + w / z->pw) * z->nt + t / z->pt;
    const int64_t in = (t % z->pt * z->ph + h % z->ph) * z->pw + w % z->pw;
    const bool clean = flow_clean(&x->draw, t / z->pt);
    const double x_t = clean ? (double)value : z->keep * value + z->part * noise;
    const int64_t place = row * z->n + in;
    l->patches[(row * z->C + c) * z->n + in] = (float)x_t;
    if (!z->noise) {
        l->target[place * z->C + c] = value - noise;
    } else {
        l->target[2 * place * z->C + c] = noise;
        l->target[(2 * place + 1) * z->C + c] = value;
    }
    l->weight[row * z->n + in] = clean ? 0 : 1;
    b->n_targets += !clean;
}

static int put_values(const struct flow_source *s, const struct sizes *z, const struct flow_item *x,
                      struct batch *b, struct err *e)
{
    enum { PIECE = 1000 };
    const int64_t n = z->C * z->T * z->H * z->W;
    float value[PIECE], noise[PIECE];
    for (int64_t k = 0; k < n; k++) {
        const int64_t line = k / z->W, left = n - k < PIECE ? n - k : PIECE;
        const int64_t at[4] = {line / z->H / z->T, line / z->H % z->T, line % z->H, k % z->W};
        if (k % PIECE == 0) {
            if (latents_read(s->data, &x->sample, k, left, value, e)) return -1;
            flow_noise(s->spec->seed, FLOW_TRAIN, x->key, k, left, noise);
        }
        put(z, x, b, at, value[k % PIECE], noise[k % PIECE]);
    }
    return 0;
}

static void put_groups(const struct sizes *z, const struct flow_item *x, struct batch *b)
{
    const int64_t space = z->nh * z->nw;
    for (int64_t t = 0; t < z->nt; t++)
        for (int64_t i = 0; i < space; i++)
            b->group[0][i * z->nt + t] = b->group[1][t * space + i] = flow_clean(&x->draw, t);
}

static int put_condition(const struct flow_source *s, const struct flow_item *x, struct batch *b,
                         struct err *e)
{
    const struct latents_sample *z = &x->sample;
    struct batch_latents *l = &b->latents;
    const int64_t classes = s->spec->model.shape.type_vocab;
    const bool reads = s->spec->model.shape.caption_channels > 0;
    l->height = (double)z->height;
    l->width = (double)z->width;
    l->t = shape_of_noise(&s->spec->model.shape) ? x->draw.t : 1000 * x->draw.t;
    l->fps = z->fps;
    l->label = (int32_t)(x->draw.no_caption ? classes - 1 : z->label);
    l->dropped = x->draw.no_caption;
    l->n_text = reads ? z->text_len : 0;
    return latents_read_text(s->data, z, 0, l->n_text * z->text_width, l->text, e);
}

int verify_flow_reference(const struct flow_source *s, struct model *ref, struct err *e)
{
    const struct model_shape *m = &ref->shape;
    struct batch *b = &ref->batch;
    struct flow_item x;
    if (flow_item(s, 0, &x, e)) return -1;
    struct sizes z = {x.sample.C, x.sample.T, x.sample.H, x.sample.W,
                      m->patch_t, m->patch_h, m->patch_w};
    z.nt = (z.T + z.pt - 1) / z.pt;
    z.nh = (z.H + z.ph - 1) / z.ph;
    z.nw = (z.W + z.pw - 1) / z.pw;
    z.n = z.pt * z.ph * z.pw;
    if (model_set_grid(ref, z.nh * z.nw, z.nt, e)) return -1;
    set_mixture(&z, shape_of_noise(m), x.draw.t);
    const size_t places = (size_t)(ref->sp.shard.T * z.n) * sizeof(float);
    memset(b->latents.patches, 0, places * (size_t)z.C);
    memset(b->latents.target, 0, places * (size_t)(z.noise ? 2 * z.C : z.C));
    memset(b->latents.weight, 0, places);
    memcpy(b->latents.grid, (int64_t[]){z.nt, z.nh, z.nw}, sizeof b->latents.grid);
    b->n_tokens = z.nt * z.nh * z.nw;
    b->n_targets = 0;
    put_groups(&z, &x, b);
    return put_values(s, &z, &x, b, e) || put_condition(s, &x, b, e) ? -1 : 0;
}

/* ---- predictions ----------------------------------------------------------------------------- */

/* Buffers, and sums over all rows that have been compared. own and one have `room` rows. all has
 * `room` rows for each rank; it is used on rank 0. */
struct step_rows {
    double diff, norm, max_abs;
    float *own, *all, *one;
    int64_t room, cols;
    struct comm_count gathered;
};

/* Copies rows [row0, row0 + n) of the output of the last linear map to the host. */
static void fetch(struct model *m, int64_t row0, int64_t n, float *out)
{
    const struct tensor t = model_normed(m, row0, n);
    for (int64_t i = 0; i < n; i++)
        host_copy_out(m->be, t.dtype, (char *)t.data + i * t.ld * dtype_size(t.dtype),
                      out + i * t.cols, t.cols);
}

static void compare(struct step_rows *c, const float *one, const float *many, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const double x = one[i], d = x - (double)many[i];
        c->diff += d * d;
        c->norm += x * x;
        if (!(fabs(d) <= c->max_abs)) c->max_abs = fabs(d);
    }
}

static int compare_chunk(struct model *m, struct model *ref, struct step_rows *c, int64_t row0,
                         int64_t n, struct err *e)
{
    const struct shard *sh = &m->sp.shard;
    const int64_t size = n * c->cols * (int64_t)sizeof(float);
    fetch(m, row0, n, c->own);
    float *all = m->comm ? c->all : c->own;
    if (m->comm && comm_gather(m->comm, PURPOSE_VERIFY, 0, c->own, size, all, m->bounce, e))
        return -1;
    volume_add(&c->gathered, volume_gather(sh->P, size, m->rank == 0), 1);
    for (int q = 0; ref && q < sh->P; q++) {
        const struct shard other = shard_of(sh, q);
        const int64_t pos = other.pos[0] + row0; /* a rank's segments follow each other */
        const int64_t real = other.S - pos < n ? other.S - pos : n;
        if (real <= 0) continue;
        fetch(ref, pos, real, c->one);
        compare(c, c->one, all + (int64_t)q * n * c->cols, real * c->cols);
    }
    return 0;
}

int verify_flow_compare(struct model *m, struct model *ref, struct verify *v, struct err *e)
{
    const struct model_shape *s = &m->shape;
    const int64_t T = m->sp.shard.T, P = m->plan->sp;
    struct step_rows c = {.cols = s->out_channels * s->patch_t * s->patch_h * s->patch_w};
    const int64_t row = c.cols * (int64_t)sizeof(float), most = LOGITS_GATHERED / (P * row);
    int rc = 0;
    c.room = most < 1 ? 1 : most < T ? most : T;
    c.own = malloc((size_t)(c.room * row));
    c.one = malloc((size_t)(c.room * row));
    c.all = malloc((size_t)(ref ? P * c.room * row : 1));
    if (!c.own || !c.one || !c.all)
        rc = err_set(e, ERR_IO, "out of memory for %lld rows of predictions", (long long)c.room);
    for (int64_t i = 0; !rc && i < T; i += c.room)
        rc = compare_chunk(m, ref, &c, i, T - i < c.room ? T - i : c.room, e);
    free(c.own);
    free(c.one);
    free(c.all);
    if (rc) return -1;
    volume_add(&v->gathered, c.gathered, 1);
    v->logits_max_abs = c.max_abs;
    v->logits_rel_l2 = c.norm > 0 ? sqrt(c.diff / c.norm) : c.diff > 0 ? (double)INFINITY : 0;
    return 0;
}
