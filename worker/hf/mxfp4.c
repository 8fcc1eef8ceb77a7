/* mxfp4.c: finds the blocks and scales of a tensor, checks their shapes, and unpacks groups of 32
 * values. */
#include "worker/hf/mxfp4.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"

enum { GROUP = 32, PACKED = GROUP / 2, GROUPS = 512 /* groups that are read at a time */ };

bool mxfp4_find(const struct hf_weights *w, const struct param *p, struct mxfp4 *out)
{
    char name[ST_NAME_SIZE];
    *out = (struct mxfp4){0};
    if (!p->stack || !p->transposed) return false;
    snprintf(name, sizeof name, "%s_blocks", p->name);
    out->blocks = hf_lookup(w, name, &out->block_file);
    snprintf(name, sizeof name, "%s_scales", p->name);
    out->scales = hf_lookup(w, name, &out->scale_file);
    return out->blocks && out->scales;
}

bool mxfp4_fits(const struct mxfp4 *x, const struct param *p)
{
    const int64_t dims[4] = {p->stack, p->rows / p->stack, p->cols / GROUP, PACKED};
    const struct st_tensor *b = x->blocks, *s = x->scales;
    return p->cols % GROUP == 0 && b->dtype == ST_U8 && s->dtype == ST_U8 && b->n_dims == 4 &&
           s->n_dims == 3 && !memcmp(b->dims, dims, sizeof dims) &&
           !memcmp(s->dims, dims, 3 * sizeof *dims);
}

bool mxfp4_part(const char *name, char *out, size_t size)
{
    const size_t n = strlen(name), end = sizeof "_blocks" - 1;
    if (n <= end || n - end >= size) return false;
    if (!hf_ends_with(name, "_blocks") && !hf_ends_with(name, "_scales")) return false;
    memcpy(out, name, n - end);
    out[n - end] = 0;
    return true;
}

static void unpack(const uint8_t *packed, int scale, float *out)
{
    static const float values[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    /* 2^(scale - 127) is exact, and every finite product with it is exact, too */
    const float times = ldexpf(1, scale - 127);
    for (int i = 0; i < PACKED; i++) {
        out[2 * i] = values[packed[i] & 15] * times;
        out[2 * i + 1] = values[packed[i] >> 4] * times;
    }
}

int mxfp4_read(const struct mxfp4 *x, int64_t at, int64_t n, float *out, struct err *e)
{
    uint8_t packed[GROUPS * PACKED], scale[GROUPS];
    const int64_t first = at / GROUP, groups = n / GROUP;
    assert(at % GROUP == 0 && n % GROUP == 0);
    for (int64_t g = 0; g < groups; g += GROUPS) {
        const int64_t k = groups - g < GROUPS ? groups - g : GROUPS;
        if (st_read_bytes(x->block_file, x->blocks, (first + g) * PACKED, k * PACKED, packed, e) ||
            st_read_bytes(x->scale_file, x->scales, first + g, k, scale, e))
            return -1;
        for (int64_t i = 0; i < k; i++) {
            if (scale[i] == 255)
                return err_set(e, ERR_CORRUPT, "%s: %s has a scale that is NaN",
                               st_path(x->scale_file), x->scales->name);
            unpack(packed + i * PACKED, scale[i], out + (g + i) * GROUP);
        }
    }
    return 0;
}
