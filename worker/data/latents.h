/* latents.h: samples of diffusion models: latents of a video or picture, with the embedding of its
 * caption or with its class. Other programs have computed latents and embeddings.
 *
 * The source is a manifest in JSONL, one sample per line:
 *   {"latents": "a/0001.safetensors", "text": "a/0001_t5.safetensors", "height": 480, "width": 854,
 *    "num_frames": 51, "fps": 24, "text_len": 117, "label": 7}
 * latents    a tensor z [C, T, H, W]      text   a tensor y [L, width]; its first text_len rows
 *            (default: all) are the caption. Both F32, F16 or BF16
 * label      the class, from 0. the model's family decides whether text or label is read
 *            (latents_check); the other member is allowed, and ignored
 * height, width (of the picture in pixels), num_frames, fps   inputs of the model; height,
 *            width and num_frames also shift the time of a sample. num_frames defaults
 *            to T, fps to 24
 * Paths are relative to the manifest's directory, or absolute, and must lie beneath its root.
 *
 * Prepared data holds every number of a sample as fp32, in two 16-bit words, low word first, as if
 * it were a document of 16-bit tokens. So orders, mixtures, passes, digests and provenance work as
 * for any other data. A document is LATENTS_HEAD words (struct latents_sample as latents.c lays it
 * out), z, then y. tested: tests/engine/test_latents.c */
#ifndef SEQD_DATA_LATENTS_H
#define SEQD_DATA_LATENTS_H

#include "api/core/file.h"
#include "worker/data/data.h"

#define LATENTS_HEAD  22          /* words */
#define LATENTS_DIM   65535       /* the largest dimension */
#define LATENTS_WORDS JOB_MAX_SEQ /* most words of a sample: 128 MiB as fp32 */
#define LATENTS_VOCAB 65536       /* vocabulary of the words, as tokens */

struct latents_sample {
    int64_t document;             /* number of the document in the directory */
    int64_t token;                /* index of the first word of z among the directory's tokens */
    int64_t C, T, H, W;           /* dimensions of z */
    int64_t text_len, text_width; /* 0: no text */
    int64_t height, width;        /* pixels */
    int64_t num_frames;
    int64_t label; /* -1: none */
    float fps;
};

/* Returns the options of an order of latents: every sample is a document of its own. */
struct order_options latents_order_options(const struct job_spec *s, int set);

/* Reads the n-th sample of an order. fails: ERR_IO, ERR_CORRUPT naming the file. */
int latents_sample(const struct data_order *o, int64_t n, struct latents_sample *out,
                   struct err *e);
/* Checks that the model of this spec can learn from the sample. z has the model's channels; at
 * most data.frames frames; and, whatever the frame's shape, at most as many patches in a frame as
 * data.height and data.width give. The caption has the model's width, and at most its length. The
 * class is one of the model's. A longer caption is not cut off: a part of its embedding is not the
 * embedding of a shorter caption.
 * fails: ERR_INVALID, ERR_TOO_LARGE naming the manifest, its line and the field to change. */
int latents_check(const struct data *d, const struct job_spec *s, const struct latents_sample *x,
                  struct err *e);

/* Read values [first, first + n) of z, flat [C, T, H, W], or of y, flat [text_len, text_width]. */
int latents_read(const struct data *d, const struct latents_sample *s, int64_t first, int64_t n,
                 float *out, struct err *e);
int latents_read_text(const struct data *d, const struct latents_sample *s, int64_t first,
                      int64_t n, float *out, struct err *e);

/* ---- the files of a line (format_latents.c) -------------------------------------------------- */

/* Resolves a path of a line, which is relative to the manifest's directory. An absolute path
 * stays. */
int format_latents_path(const char *manifest, const char *path, char out[FILE_PATH_SIZE],
                        struct err *e);
/* Opens a file beneath root: no file outside of root is read. The caller closes it. */
struct st_file;
struct st_file *format_latents_file(const char *root, const char *path, struct err *e);
/* Returns the tensor `name`. fails: ERR_INVALID if there is no such tensor of n_dims dimensions,
 * of 1 to LATENTS_DIM each, in F32, F16 or BF16. */
struct st_tensor;
const struct st_tensor *format_latents_tensor(const struct st_file *f, const char *name, int n_dims,
                                              const char *path, struct err *e);

#endif
