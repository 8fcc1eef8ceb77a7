/* format.h: reads the files of a data source. Each format has a row in a table, and a reader in a
 * source file.
 *
 *   text      a file is a document. Its tokens are its bytes, followed by 256, or the ids to which
 *             the tokenizer of the model converts its text (encode_text.h, format_text.c)
 *   jsonl     a line is a document: {"text"} (or text_key) and {"prompt", "completion"} are read
 *             like the format text; {"messages"} is a conversation (encode_text.h); {"input_ids"}
 *             with "labels" or "loss_mask" is used unchanged. If the job learns preferences, a
 *             line is {"prompt", "chosen", "rejected"}, and becomes two documents (preference.h)
 *   llmc      a header of 256 int32 with the count of tokens in [2], then ids (magic 20240520,
 *             version 1: uint16; magic 20240801, version 7: uint32). A document *begins* with the
 *             end id (50256, 128000)
 *   nanogpt   uint16 ids without a header. A document ends with the end id (50256)
 *   npy       one-dimensional, little-endian integers. A document ends with the end id if the
 *             source names one; otherwise the file is one document
 *   latents   a manifest of safetensors files (latents.h)
 *   megatron  PREFIX.bin has the ids, and PREFIX.idx has the borders of the documents
 * from: llm.c dev/data/data_common.py and dataloader.h; nanoGPT prepare.py; numpy.lib.format;
 * Megatron-LM megatron/core/datasets/indexed_dataset.py.
 * tested: tests/engine/test_formats.c, test_records.c, test_prepare_threads.c, tests/fuzz */
#ifndef SEQD_DATA_FORMAT_H
#define SEQD_DATA_FORMAT_H

#include "worker/data/encode.h"
#include "worker/data/reader.h"

struct format_in {
    struct reader *r;          /* open reader, which is at the beginning of the file */
    struct encode *c;          /* encoder, for which encode_file has been called */
    const char *root;          /* root of the source, beneath which other files of the source
                                * are opened */
    struct progress *progress; /* borrowed, counts bytes; NULL if progress is not reported */
    const char *text_key;      /* jsonl */
    int64_t eod;               /* end id; -1 means the format's end id */
    int loss_on;               /* enum loss_on_id */
    /* spec of the job; the format jsonl uses it to decide whether text may be read
     * (job_reads_bytes) */
    const struct job_spec *spec;
};

struct format {
    const char *name; /* name of the format in the job spec */
    bool tokens;      /* whether the files consist of ids; only for these formats a source may
                       * set spec_source.eod */
    /* Hashes the file and the other files that belong to it, in the order in which `read`
     * reads them. If the pointer is NULL, files of this format have no other files that belong
     * to them, and each file is hashed alone. */
    int (*hash)(const char *root, const char *path, struct intake *into, struct err *e);
    /* Reads the file to its end. Fails with ERR_INVALID if the data are wrong; the error names
     * the file and the line or token. Fails with ERR_CORRUPT if the sizes in the file
     * contradict each other. */
    int (*read)(struct format_in *in, struct err *e);
    /* Reads several small files, all of which are in memory at the same time. Begins with
     * file[0], and stops before the first of the n files that is too large for this. The files
     * are consecutive files of one source, and file[0] has index `index` in the meta. in->r is
     * NULL. Returns the number of files that were read, or -1 after a failure. If it returns
     * 0, the caller must read file[0] with `read`. Output and errors do not differ from those
     * of calls of `read` for each file. In addition, fails with ERR_CONFLICT if a file has
     * changed since it was hashed. If the pointer is NULL, every file is read alone. */
    int (*read_small)(struct format_in *in, const struct meta_file *file, uint32_t index, int n,
                      struct err *e);
    /* A word that is an input of the id of prepared data. It is changed when a new version of
     * seqd makes other tokens from the same bytes than the version before. NULL means that the
     * tokens have not changed since the first version. */
    const char *reading;
};

/* Returns the path of the file that names the other files of a source, or describes them. For
 * megatron this is PREFIX.idx, which is written to `room`. For all other formats it is `path`
 * itself. Returns NULL if the path does not fit into `room`. */
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
