#include "worker/data/latents.h"

#include <string.h>
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
    *out = (struct latents_sample){.token = f.token + LATENTS_HEAD,
                                   .C = pair(w),
                                   .T = pair(w + 2),
                                   .H = pair(w + 4),
                                   .W = pair(w + 6),
                                   .text_len = pair(w + 8),
                                   .text_width = pair(w + 10),
                                   .height = pair(w + 12),
                                   .width = pair(w + 14),
                                   .num_frames = pair(w + 16),
                                   .fps = number(w + 18)};
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
