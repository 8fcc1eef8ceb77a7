/* latents.c: decodes the words of a prepared sample, reads its numbers, and compares its sizes
 * with those of the model. */
#include "worker/data/latents.h"

#include <string.h>
#include "api/core/job.h"
#include "worker/data/flow.h"
#include "worker/data/order.h"

struct order_options latents_order_options(const struct job_spec *s, int set)
{
    struct order_options o = data_order_options(s, set, LATENTS_WORDS);
    o.packing = PACKING_NONE;
    o.overlong = OVERLONG_ERROR;
    return o;
}

static int64_t pair(const int32_t *w)
{
    return w[0] | (int64_t)w[1] << 16;
}

static float number(const int32_t *w)
{
    const uint32_t bits = (uint32_t)pair(w);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

int latents_sample(const struct data_order *o, int64_t n, struct latents_sample *out, struct err *e)
{
    struct sample s;
    struct fragment f;
    int32_t w[LATENTS_HEAD];
    data_sample(o, n, &s);
    data_fragment(o, &s, 0, &f);
    if (f.length < LATENTS_HEAD)
        return err_set(e, ERR_CORRUPT, "document %lld is no sample of latents",
                       (long long)f.document);
    if (data_read(o->data, f.token, LATENTS_HEAD, w, e) < 0) return -1;
    *out = (struct latents_sample){.document = f.document,
                                   .token = f.token + LATENTS_HEAD,
                                   .C = pair(w),
                                   .T = pair(w + 2),
                                   .H = pair(w + 4),
                                   .W = pair(w + 6),
                                   .text_len = pair(w + 8),
                                   .text_width = pair(w + 10),
                                   .height = pair(w + 12),
                                   .width = pair(w + 14),
                                   .num_frames = pair(w + 16),
                                   .fps = number(w + 18),
                                   .label = pair(w + 20) - 1};
    const double words = 2.0 * (double)out->C * (double)out->T * (double)out->H * (double)out->W +
                         2.0 * (double)out->text_len * (double)out->text_width;
    if (words + LATENTS_HEAD == (double)f.length) return 0;
    return err_set(e, ERR_CORRUPT, "document %lld has %lld words, its sizes say %.0f",
                   (long long)f.document, (long long)f.length, words + LATENTS_HEAD);
}

static int read_numbers(const struct data *d, int64_t token, int64_t n, float *out, struct err *e)
{
    int32_t w[4096];
    for (int64_t at = 0; at < n;) {
        const int64_t most = (int64_t)(sizeof w / sizeof *w / 2), k = n - at < most ? n - at : most;
        if (data_read(d, token + 2 * at, 2 * k, w, e) < 0) return -1;
        for (int64_t i = 0; i < k; i++) out[at + i] = number(w + 2 * i);
        at += k;
    }
    return 0;
}

int latents_read(const struct data *d, const struct latents_sample *s, int64_t first, int64_t n,
                 float *out, struct err *e)
{
    return read_numbers(d, s->token + 2 * first, n, out, e);
}

int latents_read_text(const struct data *d, const struct latents_sample *s, int64_t first,
                      int64_t n, float *out, struct err *e)
{
    return read_numbers(d, s->token + 2 * (s->C * s->T * s->H * s->W + first), n, out, e);
}

/* ---- checks against the model ---------------------------------------------------------------- */

static int check_size(const struct job_spec *s, const struct latents_sample *x, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const struct latents_sample largest = {
        .T = s->data.frames, .H = s->data.height, .W = s->data.width};
    int64_t grid[3], most[3];
    flow_grid(m, x, grid);
    flow_grid(m, &largest, most);
    if (x->C != m->in_channels)
        return err_field(e, ERR_INVALID, "model.config.in_channels",
                         "z has %lld channels, the model has in_channels %lld", (long long)x->C,
                         (long long)m->in_channels);
    if (grid[0] > most[0])
        return err_field(e, ERR_TOO_LARGE, "data.frames",
                         "z has %lld frames, data.frames says %lld of the largest sample",
                         (long long)x->T, (long long)s->data.frames);
    if (grid[1] * grid[2] > most[1] * most[2])
        return err_field(e, ERR_TOO_LARGE, x->H > s->data.height ? "data.height" : "data.width",
                         "a frame of z is %lld x %lld, %lld patches; data.height %lld and "
                         "data.width %lld say %lld of the largest sample",
                         (long long)x->H, (long long)x->W, (long long)(grid[1] * grid[2]),
                         (long long)s->data.height, (long long)s->data.width,
                         (long long)(most[1] * most[2]));
    return 0;
}

static int check_caption(const struct model_shape *m, const struct latents_sample *x, struct err *e)
{
    if (!m->caption_channels) return 0;
    if (!x->text_len)
        return err_field(e, ERR_INVALID, "data.train",
                         "the member \"text\" is missing: the model reads a caption");
    if (x->text_width != m->caption_channels)
        return err_field(e, ERR_INVALID, "model.config.caption_channels",
                         "a row of y has %lld numbers, the model has caption_channels %lld",
                         (long long)x->text_width, (long long)m->caption_channels);
    if (x->text_len <= m->text_len) return 0;
    return err_field(e, ERR_TOO_LARGE, "model.config.model_max_length",
                     "a caption of %lld tokens, the model has model_max_length %lld: embed a "
                     "shorter one (cut before it is embedded, not after)",
                     (long long)x->text_len, (long long)m->text_len);
}

/* Checks the class. The last row of the model's table of classes means "no class", so no
 * sample may have the index of this row as its class. */
static int check_label(const struct model_shape *m, const struct latents_sample *x, struct err *e)
{
    if (!m->type_vocab || (x->label >= 0 && x->label < m->type_vocab - 1)) return 0;
    if (x->label < 0)
        return err_field(e, ERR_INVALID, "data.train",
                         "the member \"label\" is missing: the model reads a class");
    return err_field(e, ERR_INVALID, "model.config.type_vocab_size",
                     "label %lld: the model has %lld classes, from 0", (long long)x->label,
                     (long long)m->type_vocab - 1);
}

int latents_check(const struct data *d, const struct job_spec *s, const struct latents_sample *x,
                  struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    struct data_origin o;
    struct err why;
    if (!check_size(s, x, e) && !check_caption(m, x, e) && !check_label(m, x, e)) return 0;
    if (data_origin(d, x->document, &o, &why)) return -1;
    return err_prefix(e, "%s line %llu", data_file(d, o.file), (unsigned long long)o.record);
}
