/* format.h: reads the files of a data source. A format is a row of a table, and its reader is a
 * source file.
 *
 *   text      a file is a document: its bytes and then 256, or the ids that the model's tokenizer
 *             makes of it (encode_text.h, format_text.c)
 *   jsonl     a line is a document: {"text"} (or text_key) and {"prompt", "completion"} are read
 *             like the format text; {"messages"} is a conversation (encode_text.h); {"input_ids"}
 *             with "labels" or "loss_mask" is used unchanged
 *   llmc      a header of 256 int32 with the count of tokens in [2], then ids (magic 20240520,
 *             version 1: uint16; magic 20240801, version 7: uint32). A document *begins* with the
 *             end id (50256, 128000)
 *   nanogpt   uint16 ids without a header. A document ends with the end id (50256)
 *   npy       one-dimensional, little-endian integers. A document ends with the end id if the
 *             source names one; otherwise the file is one document
 *   latents   a manifest of safetensors files (latents.h)
 *   megatron  PREFIX.idx and PREFIX.bin, of which the index has the documents
 * from: llm.c dev/data/data_common.py and dataloader.h; nanoGPT prepare.py; numpy.lib.format;
 * Megatron-LM megatron/core/datasets/indexed_dataset.py.
 * tested: tests/engine/test_formats.c, test_records.c, test_prepare_threads.c, tests/fuzz */
#ifndef SEQD_DATA_FORMAT_H
#define SEQD_DATA_FORMAT_H

#include "worker/data/encode.h"
#include "worker/data/reader.h"

struct format_in {
    struct reader *r;            /* open, at the file's beginning */
    struct encode *c;            /* encode_file has been called */
    const char *root;            /* the root, for other files of the source */
    struct progress *progress;   /* borrowed, counts bytes; NULL if progress is not reported */
    const char *text_key;        /* jsonl */
    int64_t eod;                 /* end id; -1 means that of the format */
    int loss_on;                 /* enum loss_on_id */
    const struct job_spec *spec; /* for jsonl: tells whether text may be read (job_reads_bytes) */
};

struct format {
    const char *name; /* as in the job spec */
    bool tokens;      /* whether the files have ids, so that a source may set spec_source.eod */
    /* Hashes the file and the files that belong to it, in the order in which `read` reads them.
     * NULL means that no other files belong to the file, which is hashed alone. */
    int (*hash)(const char *root, const char *path, struct intake *into, struct err *e);
    /* Reads the file to its end. Fails with ERR_INVALID, which names the file and the line or
     * token, or with ERR_CORRUPT if its sizes contradict each other. */
    int (*read)(struct format_in *in, struct err *e);
    /* Reads the first files of file [n], in groups that are held in memory, up to the first file
     * that is too large for that. The files follow each other in one source, file[0] has index
     * `index` in the meta, and in->r is NULL. Returns the number of files that were read, or -1
     * after a failure. If it returns 0, the caller must read file[0] with `read`. Output and
     * errors are the same as if each file was read with `read`, except that this function fails
     * with ERR_CONFLICT for a file that has changed since it was hashed. NULL means that every
     * file is read alone. */
    int (*read_small)(struct format_in *in, const struct meta_file *file, uint32_t index, int n,
                      struct err *e);
    /* A word that is an input of the id of prepared data. A version that makes other tokens from
     * the same bytes has another word. NULL means that the tokens are the same as in the first
     * version. */
    const char *reading;
};

/* Returns the file of a source from which its other files are found. It is path, or for megatron
 * PREFIX.idx, which is written to room. Returns NULL if the path does not fit. */
const char *format_index(int format, const char *path, char room[FILE_PATH_SIZE], struct err *e);
/* Returns the row of a format, or NULL for openai_batch, which is not training data. */
const struct format *format_row(int format);

int format_read_text(struct format_in *in, struct err *e);
int format_read_texts(struct format_in *in, const struct meta_file *file, uint32_t index, int n,
                      struct err *e);
int format_read_jsonl(struct format_in *in, struct err *e);
int format_read_llmc(struct format_in *in, struct err *e);
int format_read_nanogpt(struct format_in *in, struct err *e);
int format_read_npy(struct format_in *in, struct err *e);
int format_read_megatron(struct format_in *in, struct err *e);
int format_hash_megatron(const char *root, const char *path, struct intake *into, struct err *e);
int format_read_latents(struct format_in *in, struct err *e);
int format_hash_latents(const char *root, const char *path, struct intake *into, struct err *e);

#endif
