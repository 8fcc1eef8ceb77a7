/* latents.h: samples of diffusion models, which are the latents of a video or picture with the
 * embedding of its caption or with its class. Other programs have computed the latents and
 * embeddings.
 *
 * The source is a manifest in JSONL, with one sample per line:
 *   {"latents": "a/0001.safetensors", "text": "a/0001_t5.safetensors", "height": 480,
 *    "width": 854, "num_frames": 51, "fps": 24, "text_len": 117, "label": 7}
 *
 * latents    a safetensors file with a tensor z [C, T, H, W] in F32, F16 or BF16
 * text       a safetensors file with a tensor y [L, width] in F32, F16 or BF16, whose first
 *            text_len rows (default: all) are the caption
 * label      the class, from 0. The model's family decides whether text or label is read
 *            (latents_check); the other member is allowed, and ignored
 * height, width, num_frames, fps   inputs of the model: height and width of the picture in pixels,
 *            the number of frames (default T) and the frames per second (default 24). Height,
 *            width and num_frames also shift the time of a sample
 *
 * Paths are relative to the manifest's directory, or absolute, and must lie beneath its root.
 *
 * Prepared data has every number of a sample as fp32, in two 16-bit words, low word first, as if
 * the sample were a document of 16-bit tokens. So orders, mixtures, passes, digests and provenance
 * work as for any other data. A document is LATENTS_HEAD words (struct latents_sample as latents.c
 * lays it out), then z, then y. tested: tests/engine/test_latents.c */
#ifndef SEQD_DATA_LATENTS_H
#define SEQD_DATA_LATENTS_H

#include "api/core/file.h"
#include "worker/data/data.h"

#define LATENTS_HEAD  22          /* words */
#define LATENTS_DIM   65535       /* the largest dimension */
#define LATENTS_WORDS JOB_MAX_SEQ /* most words of a sample, which are 128 MiB as fp32 */
#define LATENTS_VOCAB 65536       /* vocabulary of the words when they are seen as tokens */

struct latents_sample {
    int64_t document;             /* number of the document in the directory */
    int64_t token;                /* index among the directory's tokens of the first word of z */
    int64_t C, T, H, W;           /* dimensions of z */
    int64_t text_len, text_width; /* 0 if there is no text */
    int64_t height, width;        /* pixels */
    int64_t num_frames;
    int64_t label; /* -1 if there is none */
    float fps;
};

/* Returns the options of an order of latents, in which every sample is a document of its own. */
struct order_options latents_order_options(const struct job_spec *s, int set);

/* Reads sample n of an order. Fails with ERR_IO, or with ERR_CORRUPT, which names the file. */
int latents_sample(const struct data_order *o, int64_t n, struct latents_sample *out,
                   struct err *e);
/* Checks that the model of this spec can learn from the sample. z must have the model's number of
 * channels and at most data.frames frames. A frame may have any shape, but at most as many patches
 * as a frame of data.height and data.width. The caption must have the model's width, and must not
 * be longer than the model's captions. The class must be one of the model's classes. A longer
 * caption is not cut off, because a part of its embedding is not the embedding of a shorter
 * caption.
 * Fails with ERR_INVALID or ERR_TOO_LARGE; the error names the manifest, its line and the field to
 * change. */
int latents_check(const struct data *d, const struct job_spec *s, const struct latents_sample *x,
                  struct err *e);

/* Read values [first, first + n) of z, flat [C, T, H, W], or of y, flat [text_len, text_width]. */
int latents_read(const struct data *d, const struct latents_sample *s, int64_t first, int64_t n,
                 float *out, struct err *e);
int latents_read_text(const struct data *d, const struct latents_sample *s, int64_t first,
                      int64_t n, float *out, struct err *e);

/* ---- the files of a line (format_latents.c) -------------------------------------------------- */

/* Resolves a path of a line, which is relative to the manifest's directory. An absolute path is
 * unchanged. */
int format_latents_path(const char *manifest, const char *path, char out[FILE_PATH_SIZE],
                        struct err *e);
/* Opens a file beneath root. A file outside of root is never read. The caller closes the file. */
struct st_file;
struct st_file *format_latents_file(const char *root, const char *path, struct err *e);
/* Returns the tensor `name`. Fails with ERR_INVALID if there is no tensor of that name with n_dims
 * dimensions of 1 to LATENTS_DIM each, in F32, F16 or BF16. */
struct st_tensor;
const struct st_tensor *format_latents_tensor(const struct st_file *f, const char *name, int n_dims,
                                              const char *path, struct err *e);

#endif
