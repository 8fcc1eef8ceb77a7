/* latents.h: the samples on which diffusion models train. A sample has the latents of a video or a
 * picture, and either the embedding of its caption or its class. Other programs have computed the
 * latents and embeddings.
 *
 * The source is a manifest in JSONL, with one sample per line:
 *   {"latents": "a/0001.safetensors", "text": "a/0001_t5.safetensors", "height": 480,
 *    "width": 854, "num_frames": 51, "fps": 24, "text_len": 117, "label": 7}
 *
 * latents    a safetensors file with a tensor z [C, T, H, W] in F32, F16 or BF16 text       a
 * safetensors file with a tensor y [L, width] in F32, F16 or BF16, whose first
 *            text_len rows (default: all) are the caption
 * label      the class, from 0. The model's family decides whether text or label is read
 *            (latents_check); the member that is not read is allowed, and is ignored
 * height, width, num_frames, fps   inputs of the model: height and width of the picture in pixels,
 *            the number of frames (default T) and the frames per second (default 24). Height,
 *            width and num_frames also shift the time of a sample
 *
 * Paths are absolute or relative to the manifest's directory. They must be beneath the root of the
 * manifest.
 *
 * Prepared data stores a sample as if it were a document of 16-bit tokens. Every number of the
 * sample is fp32 and becomes two 16-bit words, the low word first. For this reason orders,
 * mixtures, passes, digests and provenance work as they do for tokens. A document consists of
 * LATENTS_HEAD words, z and y. latents.c describes how the first words store struct
 * latents_sample. tested: tests/engine/test_latents.c */
#ifndef SEQD_DATA_LATENTS_H
#define SEQD_DATA_LATENTS_H

#include "api/core/file.h"
#include "worker/data/data.h"

#define LATENTS_HEAD 22    /* words */
#define LATENTS_DIM  65535 /* the largest dimension */
/* Largest number of words of a sample; as fp32, these words have 128 MiB. */
#define LATENTS_WORDS JOB_MAX_SEQ
#define LATENTS_VOCAB 65536 /* size of the vocabulary if 16-bit words are read as tokens */

struct latents_sample {
    int64_t document;             /* number of the document in the directory */
    int64_t token;                /* index of the first word of z among the directory's tokens */
    int64_t C, T, H, W;           /* dimensions of z */
    int64_t text_len, text_width; /* dimensions of y; both are 0 if the sample has no text */
    int64_t height, width;        /* pixels */
    int64_t num_frames;
    int64_t label; /* class of the sample; -1 if it has no class */
    float fps;
};

/* Returns the options of an order of latents, in which every sample is one document. */
struct order_options latents_order_options(const struct job_spec *s, int set);

/* Reads sample n of an order. Fails with ERR_IO or ERR_CORRUPT. The error ERR_CORRUPT names
 * the file. */
int latents_sample(const struct data_order *o, int64_t n, struct latents_sample *out,
                   struct err *e);
/* Checks that the model of this spec can learn from the sample. z must have the model's number
 * of channels and at most data.frames frames. A frame may have any height and width, but it
 * must not have more patches than a frame of data.height and data.width. The caption must have
 * the model's width, and must not be longer than the model's captions. The class must be one
 * of the model's classes. A caption that is too long is refused and not shortened, because a
 * part of its embedding is not the embedding of a shorter caption. Fails with ERR_INVALID or
 * ERR_TOO_LARGE. The error names the manifest, the line of the sample and the field to change. */
int latents_check(const struct data *d, const struct job_spec *s, const struct latents_sample *x,
                  struct err *e);

/* Read values [first, first + n). latents_read reads them from z, flat [C, T, H, W].
 * latents_read_text reads them from y, flat [text_len, text_width]. */
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
/* Returns the tensor `name`. Fails with ERR_INVALID if there is no such tensor, or if it does not
 * have n_dims dimensions of 1 to LATENTS_DIM each, in F32, F16 or BF16. */
struct st_tensor;
const struct st_tensor *format_latents_tensor(const struct st_file *f, const char *name, int n_dims,
                                              const char *path, struct err *e);

#endif
