/* encode.h: writes the binary files of a prepared directory, document by document. */
#ifndef SEQD_DATA_ENCODE_H
#define SEQD_DATA_ENCODE_H

#include "api/core/file.h"
#include "worker/data/meta.h"

struct encode_text;
struct pool;

struct encode {
    struct file_out out[PART_N];
    int width;                /* bytes of a token: 2 or 4 */
    bool too_wide;            /* set if an id did not fit into 2 bytes; in that case the caller
                               * must begin again with a width of 4 bytes */
    struct encode_text *text; /* borrowed [n_workers]; NULL if each byte of text is a token */
    int n_workers;            /* number of elements of `text` */
    struct pool *pool;        /* borrowed: threads of the workers; NULL if the caller works
                               * alone */
    bool ids;                 /* set if a document was a record of ids; in that case bytes.bin
                               * is not written */
    bool masked;              /* set if a token that may not be a target was added; in that
                               * case loss.bin is written */
    uint8_t bits;             /* last byte of loss.bin, which is not full yet */
    int64_t vocab;            /* every id is below vocab */
    int set;                  /* enum data_set of the data that are added next */
    uint32_t source, file;
    int64_t mark;      /* number of tokens before the current file or record; positions in
                        * error messages are counted from this token */
    int64_t file_mark; /* tokens before this file */
    int64_t n_tokens, n_documents; /* counts of both sets */
    int64_t document_start;
    uint32_t last;  /* the id that was added last */
    int32_t end_id; /* end id of the tokenizer that encoded the last text; -1 if that tokenizer
                     * has no end id */
    int64_t *count; /* owned [n_count]: number of occurrences of each id in SET_TRAIN */
    int64_t n_count;
    struct meta *meta; /* borrowed; stats, max_file, max_pos, width and parts are filled in */
};

/* Opens the files. m->tokenizer decides whether bytes.bin is written. Call encode_abort after
 * any failure. Fails with ERR_IO or ERR_NO_SPACE, and the error names the file. */
int encode_open(struct encode *c, const char *dir, int width, int64_t vocab, struct meta *m,
                struct err *e);
void encode_abort(struct encode *c); /* closes the files and frees all memory; may be called
                                      * after encode_close */
/* Begins a file. All data that are added until the next call belong to this file. Sets the
 * marks. */
void encode_file(struct encode *c, int set, uint32_t source, uint32_t file);

/* Add tokens to the document that is open. The parameter `learn` is true if the tokens may be
 * targets. In encode_ids it is an array with one value for each token, or NULL if all tokens
 * may be targets. Fail with ERR_INVALID for an id beyond the vocabulary. The error gives the
 * id's position, counted from the mark. If an id does not fit into the width of tokens, fail
 * with ERR_TOO_LARGE and set too_wide. Also fail with ERR_IO or ERR_NO_SPACE. */
int encode_bytes(struct encode *c, const void *bytes, size_t n, bool learn, struct err *e);
int encode_ids(struct encode *c, const uint32_t *ids, size_t n, const uint8_t *learn,
               struct err *e);
/* Adds the tokens that a tokenizer made of a text (encode_text.h). */
struct encode_cut;
int encode_put(struct encode *c, const struct encode_cut *cut, struct err *e);
/* Ends the document. A document without a token is left out, and counted as skipped. If eod is
 * true, the end id is added to a document that is not empty. If each byte of the text is a
 * token, the end id is TOKEN_EOD. Otherwise it is the end id of the tokenizer. No end id is
 * added if the tokenizer has no end id, or if the document ends with the end id already. */
int encode_end(struct encode *c, bool eod, uint64_t record, uint64_t offset, struct err *e);
/* Closes and fsyncs the files, and stores their sizes and digests in the member `part` of the
 * meta. */
int encode_close(struct encode *c, struct err *e);

#endif
