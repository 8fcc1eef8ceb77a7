/* latents.h: writes manifests of small latents and captions, for tests of diffusion training. */
#ifndef SEQD_TESTS_LATENTS_H
#define SEQD_TESTS_LATENTS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "tests/lib/test.h"
#include "worker/hf/safetensors.h"

struct latents_made {
    /* T frames, H rows, W columns; the caption has L tokens */
    int64_t T, H, W, L;
    int64_t height, width, num_frames;
};

/* Videos and pictures whose sides are not multiples of a patch or of the number of ranks, and a
 * picture that consists of a single patch. */
static const struct latents_made latents_usual[] = {
    {5, 6, 8, 3, 480, 640, 17}, {1, 7, 5, 1, 512, 512, 1}, {3, 4, 10, 2, 240, 600, 9},
    {4, 8, 6, 3, 640, 480, 16}, {1, 2, 2, 3, 256, 256, 1},
};
enum { LATENTS_USUAL = sizeof latents_usual / sizeof *latents_usual };
/* The sizes of the largest sample, for data.frames, data.height and data.width. */
#define LATENTS_FRAMES 5
#define LATENTS_HEIGHT 6
#define LATENTS_WIDTH  8

/* Returns the value of one element of a sample. The values are smooth within a sample and differ
 * between samples, so that a model can learn them. */
static inline float latents_value(int which, int64_t c, int64_t t, int64_t h, int64_t w)
{
    return (float)(0.7 * sin(0.9 * (double)(c + which) + 0.3 * (double)t) +
                   0.2 * cos(0.5 * (double)h - 0.4 * (double)w));
}

static inline void latents_write(const char *path, const char *name, int n_dims,
                                 const int64_t dims[4], int which)
{
    struct st_out out = {.name = name, .dtype = ST_F32, .n_dims = n_dims};
    struct err e = {0};
    int64_t n[4] = {1, 1, 1, 1}, k = 0;
    for (int i = 0; i < n_dims; i++) n[4 - n_dims + i] = out.dims[i] = dims[i];
    float *x = malloc((size_t)(n[0] * n[1] * n[2] * n[3]) * sizeof *x);
    if (!x) abort();
    for (int64_t c = 0; c < n[0]; c++)
        for (int64_t t = 0; t < n[1]; t++)
            for (int64_t h = 0; h < n[2]; h++)
                for (int64_t w = 0; w < n[3]; w++) x[k++] = latents_value(which, c, t, h, w);
    out.data = x;
    CHECK_MSG(st_write(path, &out, 1, &e) == 0, "%s", e.text);
    free(x);
}

/* Writes the manifest <dir>/<name>.jsonl and its tensors. There are n samples of C channels. Their
 * labels are 0, 1, 2 and so on, and their captions have `width` columns. If `width` is 0, there
 * are no captions. */
static inline void latents_manifest(const char *dir, const char *name, const struct latents_made *s,
                                    int n, int64_t C, int64_t width)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s.jsonl", dir, name);
    FILE *f = fopen(path, "we");
    if (!f) abort();
    for (int i = 0; i < n; i++) {
        const int64_t z[4] = {C, s[i].T, s[i].H, s[i].W}, y[4] = {s[i].L, width};
        snprintf(path, sizeof path, "%s/%s-z%d.safetensors", dir, name, i);
        latents_write(path, "z", 4, z, i);
        fprintf(f, "{\"latents\":\"%s-z%d.safetensors\",", name, i);
        if (width) {
            snprintf(path, sizeof path, "%s/%s-y%d.safetensors", dir, name, i);
            latents_write(path, "y", 2, y, i + 100);
            fprintf(f, "\"text\":\"%s-y%d.safetensors\",", name, i);
        }
        fprintf(f, "\"label\":%d,\"height\":%lld,\"width\":%lld,\"num_frames\":%lld,\"fps\":24}\n",
                i, (long long)s[i].height, (long long)s[i].width, (long long)s[i].num_frames);
    }
    CHECK(!fclose(f));
}

#endif
