/* Reads a manifest and the safetensors files that its lines name (latents.h). Both passes read
 * the whole manifest before the files, so the bytes of the source are hashed in the same order
 * in both passes. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/jread.h"
#include "worker/data/format.h"
#include "worker/data/latents.h"
#include "worker/data/source.h"
#include "worker/hf/safetensors.h"

#define MANIFEST_SIZE ((size_t)64 << 20)
#define BATCH         4096 /* numbers that are converted together */

struct latents_line {
    char latents[FILE_PATH_SIZE], text[FILE_PATH_SIZE];
    int64_t height, width, num_frames, text_len; /* 0 if the line does not have the member */
    int64_t label;                               /* -1 if the line does not have the member */
    double fps;
};

/* ---- a line ---------------------------------------------------------------------------------- */

static int take_path(struct jread *j, const char *key, char out[FILE_PATH_SIZE], struct err *e)
{
    if (out[0]) return err_set(e, ERR_INVALID, "the member \"%s\" occurs twice", key);
    if (jread_next(j) != J_STRING || jread_copy(j, out, FILE_PATH_SIZE) < 0 || !out[0])
        return err_set(e, ERR_INVALID, "\"%s\" must be the path of a safetensors file", key);
    return 0;
}

static int take_count(struct jread *j, const char *key, int64_t *out, struct err *e)
{
    if (jread_next(j) == J_NUMBER && jread_int(j, out) == 0 && *out >= 1 && *out <= LATENTS_DIM)
        return 0;
    return err_set(e, ERR_INVALID, "\"%s\" must be a whole number from 1 to %d", key, LATENTS_DIM);
}

static int take_label(struct jread *j, int64_t *out, struct err *e)
{
    if (jread_next(j) == J_NUMBER && jread_int(j, out) == 0 && *out >= 0 && *out < LATENTS_DIM)
        return 0;
    return err_set(e, ERR_INVALID, "\"label\" must be a whole number from 0 to %d",
                   LATENTS_DIM - 1);
}

static int take_fps(struct jread *j, double *out, struct err *e)
{
    if (jread_next(j) == J_NUMBER && jread_double(j, out) == 0 && *out > 0 && *out <= 1e6) return 0;
    return err_set(e, ERR_INVALID, "\"fps\" must be a number above 0");
}

static int take_member(struct jread *j, struct latents_line *l, struct err *e)
{
    if (jread_is(j, "latents")) return take_path(j, "latents", l->latents, e);
    if (jread_is(j, "text")) return take_path(j, "text", l->text, e);
    if (jread_is(j, "height")) return take_count(j, "height", &l->height, e);
    if (jread_is(j, "width")) return take_count(j, "width", &l->width, e);
    if (jread_is(j, "num_frames")) return take_count(j, "num_frames", &l->num_frames, e);
    if (jread_is(j, "text_len")) return take_count(j, "text_len", &l->text_len, e);
    if (jread_is(j, "label")) return take_label(j, &l->label, e);
    if (jread_is(j, "fps")) return take_fps(j, &l->fps, e);
    return jread_skip(j) < 0 ? err_set(e, ERR_INVALID, "%s", j->err.text) : 0;
}

static int parse_line(const char *text, size_t n, struct latents_line *l, struct err *e)
{
    struct jread j;
    enum jtok t;
    *l = (struct latents_line){.fps = 24, .label = -1};
    jread_init(&j, text, n);
    if (jread_next(&j) != J_OBJECT)
        return err_set(e, ERR_INVALID, "%s", j.err.code ? j.err.text : "the line is not an object");
    while ((t = jread_next(&j)) == J_KEY)
        if (take_member(&j, l, e) < 0) return -1;
    if (t != J_OBJECT_END || jread_next(&j) != J_END)
        return err_set(e, ERR_INVALID, "%s", j.err.text);
    if (!l->latents[0]) return err_set(e, ERR_INVALID, "the member \"latents\" is missing");
    if (l->text_len && !l->text[0])
        return err_set(e, ERR_INVALID, "\"text_len\" needs a member \"text\"");
    if (!l->height || !l->width)
        return err_set(e, ERR_INVALID, "the member \"%s\" is missing: the picture's pixels",
                       l->height ? "width" : "height");
    return 0;
}

/* ---- the files of a line --------------------------------------------------------------------- */

int format_latents_path(const char *manifest, const char *path, char out[FILE_PATH_SIZE],
                        struct err *e)
{
    const char *slash = strrchr(manifest, '/');
    if (path[0] == '/' || !slash) return file_join(out, e, "%s", path);
    return file_join(out, e, "%.*s/%s", (int)(slash - manifest), manifest, path);
}

/* Opens a file by the descriptor from source_open, so that no file outside of the root is read. */
struct st_file *format_latents_file(const char *root, const char *path, struct err *e)
{
    char proc[64];
    const int fd = source_open(root, path, e);
    if (fd < 0) return NULL;
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    struct st_file *f = st_open(proc, e);
    if (!f) err_prefix(e, "%s", path);
    close(fd);
    return f;
}

const struct st_tensor *format_latents_tensor(const struct st_file *f, const char *name, int n_dims,
                                              const char *path, struct err *e)
{
    const struct st_tensor *t = st_find(f, name);
    if (!t) {
        err_set(e, ERR_INVALID, "%s has no tensor \"%s\"", path, name);
        return NULL;
    }
    bool fits = t->n_dims == n_dims &&
                (t->dtype == ST_F32 || t->dtype == ST_F16 || t->dtype == ST_BF16);
    for (int i = 0; fits && i < n_dims; i++) fits = t->dims[i] >= 1 && t->dims[i] <= LATENTS_DIM;
    if (fits) return t;
    err_set(e, ERR_INVALID, "%s: %s has %d dimensions of %s: want %s of F32, F16 or BF16", path,
            name, t->n_dims, st_dtype_name(t->dtype), n_dims == 4 ? "[C, T, H, W]" : "[L, width]");
    return NULL;
}

static int put_words(struct encode *c, const uint32_t *x, size_t n, struct err *e)
{
    uint32_t w[2 * BATCH];
    for (size_t i = 0; i < n; i++) w[2 * i] = x[i] & 0xffff, w[2 * i + 1] = x[i] >> 16;
    return encode_ids(c, w, 2 * n, NULL, e);
}

/* Adds elements [0, n) of a tensor as words. */
static int put_tensor(struct encode *c, const struct st_file *f, const struct st_tensor *t,
                      int64_t n, const char *path, struct err *e)
{
    float x[BATCH];
    uint32_t bits[BATCH];
    for (int64_t at = 0; at < n; at += BATCH) {
        const int64_t k = n - at < BATCH ? n - at : BATCH;
        if (st_read_part(f, t, at, k, x, e) < 0) return err_prefix(e, "%s", path);
        for (int64_t i = 0; i < k; i++)
            if (!isfinite(x[i]))
                return err_set(e, ERR_INVALID, "%s: element %lld of %s is no finite number", path,
                               (long long)(at + i), t->name);
        memcpy(bits, x, (size_t)k * sizeof *bits);
        if (put_words(c, bits, (size_t)k, e) < 0) return -1;
    }
    return 0;
}

/* open files of one sample: the file of latents, and the file of text, which is NULL if the
 * sample has no text */
struct latents_pair {
    char path[2][FILE_PATH_SIZE];
    struct st_file *f[2];
    const struct st_tensor *t[2];
};

static int put_sample(struct encode *c, const struct latents_pair *p, const struct latents_line *l,
                      struct err *e)
{
    static const int64_t no_text[2] = {0, 0};
    const int64_t *z = p->t[0]->dims, *y = p->t[1] ? p->t[1]->dims : no_text;
    const int64_t rows = l->text_len ? l->text_len : y[0];
    const float fps = (float)l->fps;
    uint32_t fps_bits;
    memcpy(&fps_bits, &fps, sizeof fps_bits);
    if (rows > y[0])
        return err_set(e, ERR_INVALID, "text_len is %lld, y of %s has %lld rows", (long long)rows,
                       p->path[1], (long long)y[0]);
    const double words = LATENTS_HEAD + 2.0 * (double)p->t[0]->count + 2.0 * (double)(rows * y[1]);
    if (words > LATENTS_WORDS)
        return err_set(e, ERR_TOO_LARGE, "%s and its caption hold %.0f numbers, at most %lld",
                       p->path[0], words / 2, (long long)LATENTS_WORDS / 2);
    const uint32_t head[LATENTS_HEAD / 2] = {(uint32_t)z[0],
                                             (uint32_t)z[1],
                                             (uint32_t)z[2],
                                             (uint32_t)z[3],
                                             (uint32_t)rows,
                                             (uint32_t)y[1],
                                             (uint32_t)l->height,
                                             (uint32_t)l->width,
                                             (uint32_t)(l->num_frames ? l->num_frames : z[1]),
                                             fps_bits,
                                             (uint32_t)(l->label + 1)};
    if (put_words(c, head, LATENTS_HEAD / 2, e) < 0) return -1;
    if (put_tensor(c, p->f[0], p->t[0], p->t[0]->count, p->path[0], e) < 0) return -1;
    if (!p->t[1]) return 0;
    return put_tensor(c, p->f[1], p->t[1], rows * y[1], p->path[1], e);
}

static int read_sample(struct format_in *in, const struct latents_line *l, struct err *e)
{
    static const char *const names[] = {"z", "y"};
    const char *given[] = {l->latents, l->text};
    struct latents_pair p = {0};
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        if (!given[i][0]) continue;
        rc = format_latents_path(in->r->path, given[i], p.path[i], e);
        if (rc == 0) rc = reader_hash(in->root, p.path[i], in->r->into, e);
        if (rc == 0) p.f[i] = format_latents_file(in->root, p.path[i], e);
        if (rc == 0 && p.f[i])
            p.t[i] = format_latents_tensor(p.f[i], names[i], i ? 2 : 4, p.path[i], e);
        if (!p.t[i]) rc = -1;
    }
    if (rc == 0) rc = put_sample(in->c, &p, l, e);
    st_close(p.f[0]);
    st_close(p.f[1]);
    return rc;
}

/* ---- the manifest ---------------------------------------------------------------------------- */

static bool blank(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r')) p++;
    return p == end;
}

/* Calls the function `take` for every line that is not blank. */
struct latents_walk {
    int (*take)(void *arg, const struct latents_line *l, uint64_t number, uint64_t offset,
                struct err *e);
    void *arg;
};

static int walk_lines(struct reader *r, const struct latents_walk *w, struct err *e)
{
    struct latents_line *l = malloc(sizeof *l);
    uint64_t number = 0;
    int rc = l ? 0 : err_set(e, ERR_IO, "out of memory");
    while (rc == 0 && !r->end) {
        if (r->n == r->room) rc = reader_grow(r, MANIFEST_SIZE, e);
        if (rc == 0) rc = reader_fill(r, e);
    }
    for (char *p = r->buf, *end = r->buf + r->n, *nl; rc == 0 && p < end; p = nl + 1) {
        nl = memchr(p, '\n', (size_t)(end - p));
        if (!nl) nl = end;
        number++;
        if (blank(p, nl)) continue;
        rc = parse_line(p, (size_t)(nl - p), l, e);
        if (rc == 0) rc = w->take(w->arg, l, number, (uint64_t)(p - r->buf), e);
        if (rc < 0) err_prefix(e, "%s line %llu", r->path, (unsigned long long)number);
    }
    free(l);
    return rc;
}

static int take_sample(void *arg, const struct latents_line *l, uint64_t number, uint64_t offset,
                       struct err *e)
{
    struct format_in *in = arg;
    if (read_sample(in, l, e) < 0) return -1;
    return encode_end(in->c, false, number, offset, e);
}

int format_read_latents(struct format_in *in, struct err *e)
{
    return walk_lines(in->r, &(struct latents_walk){take_sample, in}, e);
}

struct beside {
    const char *root, *manifest;
    struct intake *into;
};

static int take_digest(void *arg, const struct latents_line *l, uint64_t number, uint64_t offset,
                       struct err *e)
{
    const struct beside *b = arg;
    const char *given[] = {l->latents, l->text};
    char path[FILE_PATH_SIZE];
    (void)number, (void)offset;
    for (int i = 0; i < 2; i++) {
        if (!given[i][0]) continue;
        if (format_latents_path(b->manifest, given[i], path, e) < 0 ||
            reader_hash(b->root, path, b->into, e) < 0)
            return -1;
    }
    return 0;
}

int format_hash_latents(const char *root, const char *path, struct intake *into, struct err *e)
{
    const struct beside b = {root, path, into};
    struct reader r;
    int rc = reader_open(&r, root, path, into, e);
    if (rc == 0) rc = walk_lines(&r, &(struct latents_walk){take_digest, (void *)&b}, e);
    reader_close(&r);
    return rc;
}
