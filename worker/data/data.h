/* data.h: turns files into the rows of one rank.
 *
 *   data_prepare      turns files into tokens, documents, masks and origins, once, before any ring
 *                     exists. The output directory is content-addressed, so that the same input is
 *                     prepared only once.
 *   data_open         opens a prepared directory
 *   data_order_open   opens a sequence of samples over one set of the directory, for one length
 *                     and one packing
 *   data_batch        fills one rank's rows of global sample n; it is pure in (order, n, shard)
 *   data_trace        lists the files and records of the tokens of sample n
 *
 * Prepared directory <parent>/<id>/ (written as <id>.tmp, fsynced, renamed), version 2; all
 * numbers are little-endian:
 *   tokens.bin     u16, or u32 if any id is above 65535: all documents end to end, with those of
 *                  SET_TRAIN first, in the order of the sources and their files
 *   documents.bin  u64 end offset (in tokens) of every document, ascending
 *   loss.bin       1 bit per token, lowest bit first, which tells whether the token may be a
 *                  target. Absent if all tokens may
 *   origins.bin    struct data_origin of every document
 *   bytes.bin      u32 count of text bytes per token; only if all documents are text that the
 *                  model's own tokenizer has cut
 *   meta.json      counts, sources with weights and document ranges, files, digests
 *
 * <id> is the first 32 hex digits of a SHA-256 over the inputs of the directory: the version; set,
 * format, key, end id, weight and loss_on of every source; path and digest of every file. If the
 * model's own tokenizer may cut text, the tokenizer's files and an embed job's prompt are inputs,
 * too. If a chat template may ask for the date, the day of submission is an input. seq_len,
 * packing and overlong are not inputs, because they are properties of an order, and one prepared
 * directory serves stages of several lengths. But in an embed job, it is an input whether overlong
 * is "truncate". <parent>/<id>.lock is held while <id> is being made.
 *
 * Byte tokenizer: ids 0..255 are bytes, 256 ends a document, 257 is padding, and V >= 258.
 * encode_text.h describes the model's own tokenizer. No id is added to the ids of token files and
 * of records with ids.
 *
 * Only one rank per node checks the digests (DATA_CHECK), because hashing 100 GB in every rank
 * would take longer than training on it. <parent>/<id>.checked keeps the result with the size,
 * inode and times of every file. This result is valid while size, inode and times are the same, so
 * a later open of the same files does not hash them again. The other ranks (DATA_TRUST) check
 * sizes and the document index. Every process checks that no token that it reads is above the
 * largest id that the preparation has recorded.
 *
 * No file is mapped. A batch is read with pread, so that a file that is truncated or fails while a
 * job runs gives ERR_CORRUPT or ERR_IO with its name. Memory is 8 bytes per document, and the
 * lists of each order (below). tested: tests/engine/test_data.c, test_packing.c, test_order.c,
 * test_prepare.c */
#ifndef SEQD_DATA_DATA_H
#define SEQD_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/progress.h"
#include "worker/data/mask.h"
#include "worker/hf/tokenizer.h"
#include "worker/model/batch.h" /* struct batch: the rows of one rank of one sample */
#include "worker/plan/shard.h"

struct job_spec;
struct jwrite;

enum data_set {
    SET_TRAIN, /* data.train of train and verify jobs, input of score and embed jobs */
    SET_EVAL,  /* eval.data */
    SET_N
};

struct data_stats {
    char id[80];
    int64_t n_tokens, n_documents; /* counts of SET_TRAIN */
    int64_t n_bytes;               /* bytes of the text in SET_TRAIN; 0 if it has only ids */
    int64_t eval_tokens, eval_documents, eval_bytes;
    int64_t n_after;        /* number of ids after every text, in an embed job that truncates */
    bool own_tokens;        /* text was cut by the model's tokenizer, and not into bytes */
    int64_t n_masked;       /* number of tokens of both sets that may not be targets */
    int64_t n_skipped;      /* number of records of both sets that were skipped because they have
                             * no token */
    int64_t max_token;      /* the largest id of both sets */
    double unigram_entropy; /* entropy of SET_TRAIN in nats per token */
    double made_mb_s; /* MB of sources per second in data_prepare; 0 if the data existed already */
};

/* Tells whether every document of the set is text that was cut into bytes, so that its tokens
 * below 256 are its bytes. Returns false if a document consists of ids, because the number of its
 * bytes is not known. */
bool data_all_bytes(const struct data_stats *s, enum data_set set);

/* Inputs that are needed to cut text, for a job whose model has a tokenizer of its own. */
struct data_model {
    const char *dir;     /* the model directory; borrowed */
    int64_t submitted_s; /* as in struct rank_args; the date for chat templates */
    const char *before;  /* borrowed: prefix of each text of an embed job; NULL if there is none */
};

/* Prepares the data of a job. Files must lie beneath one of the roots (openat2 RESOLVE_BENEATH;
 * symbolic links may not leave it). Ids of spec->model.shape.vocab and above are refused. progress
 * counts bytes of the sources, each of which is read twice; if it is NULL, progress is not
 * reported. model is needed if data_needs_tokenizer(spec), otherwise it may be NULL.
 * Fails with ERR_INVALID for wrong data; the error names the field and the file, and the line of a
 * JSONL record or the position of a token. Fails with ERR_UNSUPPORTED for a format or a record
 * that this job cannot read, with ERR_CORRUPT for a token file whose sizes contradict each other,
 * and with ERR_CONFLICT for a file that changes during the call. Also fails with ERR_NOT_FOUND,
 * ERR_TOO_LARGE, ERR_IO or ERR_NO_SPACE. */
int data_prepare(const struct job_spec *spec, const struct data_model *model,
                 const char *const *roots, int n_roots, const char *parent,
                 struct progress *progress, struct data_stats *out, struct err *e);

/* Tells whether a source may contain text that the tokenizer of model.path cuts. */
bool data_needs_tokenizer(const struct job_spec *spec);

/* ---- a prepared directory -------------------------------------------------------------------- */

enum data_check { DATA_CHECK, DATA_TRUST };

struct data;
/* Opens a prepared directory. Fails with ERR_NOT_FOUND if there is no such directory, with
 * ERR_CORRUPT, which names the file, or with ERR_IO. */
struct data *data_open(const char *parent, const char *id, enum data_check check, struct err *e);
void data_close(struct data *d);
const struct data_stats *data_stats(const struct data *d);
/* Checks that every id lies in [0, vocab), because the directory may have been prepared for a
 * larger model. Fails with ERR_INVALID, which names the file and the position of an id that is too
 * large. */
int data_check_vocab(const struct data *d, int64_t vocab, struct err *e);

/* Read tokens and masks in the order of the files, without a data_order, for tests and for
 * scoring. Tokens and documents of SET_EVAL follow those of SET_TRAIN. ids [n] gets tokens [first,
 * first + n). learn [n] gets 1 for each token that may be a target, and 0 for every other token.
 * Fail with ERR_IO, or with ERR_CORRUPT, which names the file and the token. Any thread may call
 * these functions. */
int data_read(const struct data *d, int64_t first, int64_t n, int32_t *ids, struct err *e);
int data_read_mask(const struct data *d, int64_t first, int64_t n, uint8_t *learn, struct err *e);
/* Reads the number of text bytes of each of the tokens [first, first + n). data_bytes_known must
 * be true. */
int data_read_bytes(const struct data *d, int64_t first, int64_t n, uint32_t *bytes, struct err *e);
/* Counts how often `id` occurs among the first `most` tokens of both sets. If `repeats` is true,
 * an occurrence counts only if the token before it is also `id`. Returns -1 with the errors of
 * data_read. */
int64_t data_count_id(const struct data *d, int32_t id, bool repeats, int64_t most, struct err *e);
bool data_bytes_known(const struct data *d);          /* the directory has bytes.bin */
const uint64_t *data_documents(const struct data *d); /* end offset of each document; borrowed
                                                       * until data_close */

struct data_source { /* a range of documents; the ranges of SET_TRAIN come first */
    int set;
    double weight; /* weight in the spec; 0 if no source has a weight */
    int64_t first_document, n_documents;
};
int data_n_sources(const struct data *d);
const struct data_source *data_source(const struct data *d, int i);
bool data_masked(const struct data *d);  /* the directory has loss.bin */
bool data_latents(const struct data *d); /* whether it has samples of latents (latents.h) instead
                                          * of tokens */

struct data_origin { /* origin of a document, which is a record of origins.bin */
    uint32_t source; /* index over data.train and, after it, eval.data */
    uint32_t file;   /* index in the files of the directory: data_file */
    uint64_t record; /* JSONL, latents: number of the line, from 1; token files: number of the
                      * document, from 0; text: 0 */
    uint64_t offset; /* byte offset in the file of the line or of the first token */
};
int data_origin(const struct data *d, int64_t document, struct data_origin *out, struct err *e);
const char *data_file(const struct data *d, uint32_t file); /* returns the path, or "" if there is
                                                             * no such file */
/* Writes the members "file" and "record" of an origin into the object that is open. */
void data_write_origin(const struct data *d, const struct data_origin *from, struct jwrite *w);

/* ---- orders ---------------------------------------------------------------------------------- */

/* A sample is a list of fragments, end to end from position 0, followed by padding up to seq_len.
 * A fragment is a part of one document; masks and positions depend only on fragments. The target
 * of position i is token i + 1, if that token lies in the same fragment and may be a target. If
 * tokens are hidden (order_options.mask), the target of a hidden token's position is that token
 * itself, and no other position has a target.
 *
 *   concat    all documents are joined end to end, and cut every seq_len tokens
 *   none      each sample is one document
 *   best_fit  whole documents, longest first, are each put into the sample with the smallest room
 *             that is enough (bestfit.h); the earlier of two documents with
 *             equal lengths is put first
 * Documents longer than seq_len are treated before packing:
 *   split     they are cut into fragments of seq_len, of which the last is shorter (concat: they
 *             are cut where the sample ends)
 *   truncate  only their first seq_len tokens are kept
 *   drop      they are left out
 *   error     the order cannot be opened
 *   auto      means split, or error if any token is masked
 *
 * n counts the samples of all passes, from 0. Sample n is:
 *   in_order       sample n mod N, where N is the number of samples of a pass
 *   no weights     in pass p = n / N, sample permute(n mod N) keyed by (seed, p)
 *   weights        see mixture.h: each source has its own samples, order and passes
 * The order does not depend on ranks, rings, batch sizes or steps.
 *
 * Memory of an order: concat that leaves out no token needs none. Any other order needs 16 bytes
 * per fragment and 8 per sample. Packing temporarily needs up to 24 more per fragment, and
 * best_fit 4 more per token of seq_len. An order with such lists has at most ORDER_FRAGMENTS
 * fragments. These are counted before concat cuts them. */
#define ORDER_FRAGMENTS ((int64_t)1 << 28)

struct order_options {
    int set;               /* enum data_set */
    int packing, overlong; /* enum packing_id, overlong_id */
    int64_t seq_len, seed;
    int64_t longest; /* rows of the model's position table, which limit the length of a document; 0
                      * if the model has no such table */
    bool in_order;   /* samples are in the order of documents, without weights, as for evaluation
                      * and score */
    bool document_mask, reset_positions, causal; /* for data_batch */
    bool windowed; /* the model has a layer with a window, so that a reach_map is needed even for
                    * samples of one document */
    bool reach;    /* data_batch fills b->reach, which is needed to compute the number of bytes
                    * that ranks send */
    int64_t vocab; /* the model's vocabulary, for the padding id (token_pad); 0 means the byte
                    * vocabulary */
    struct mask_rule mask; /* if prob > 0, the target of a hidden token's position is that token,
                            * and other positions have no target */
};
/* Returns the options that the spec sets: packing, overlong, seed, masks and the tokens to hide.
 * causal is set unless the family's attention is bidirectional. seq_len is the length of a stage,
 * or 0, which means data.seq_len or, for SET_EVAL, stage_eval_seq_len. SET_EVAL is in order. */
struct order_options data_order_options(const struct job_spec *s, int set, int64_t seq_len);

struct order_stats { /* counts of one pass */
    int64_t n_samples, n_fragments;
    int64_t n_tokens;    /* tokens in samples, without padding */
    int64_t n_documents; /* number of documents of which a part is in a sample */
    int64_t dropped_documents, dropped_tokens;
    int64_t truncated_documents, truncated_tokens; /* truncated_tokens: tokens cut off */
    int64_t split_documents; /* number of documents longer than seq_len that were split */
};

struct data_order; /* immutable, so that all threads may use it */
/* Opens an order. Borrows d. Fails with ERR_INVALID for a document that is too long, naming its
 * file and record, and for a set or a weighted source without a sample, naming the counts. Fails
 * with ERR_TOO_LARGE for too many fragments, and with ERR_IO if memory is out. Also fails as
 * mixture_init and data_origin do. */
struct data_order *data_order_open(const struct data *d, const struct order_options *o,
                                   struct err *e);
void data_order_close(struct data_order *o);
const struct order_stats *data_order_stats(const struct data_order *o);
/* Returns the number of samples of a pass. With weights each source has passes of its own, and the
 * result is the sum of the samples of one pass of each source. */
int64_t data_order_samples(const struct data_order *o);

/* Fills one rank's rows of sample n. sh->S must be the order's seq_len. Allocates no memory. Fails
 * with ERR_IO, or with ERR_CORRUPT, which names the file. */
int data_batch(const struct data_order *o, const struct shard *sh, int64_t n, struct batch *b,
               struct err *e);
/* Makes the map of the keys that each segment of sample n sees, even if the option `reach` is off.
 * sh is the shard of any rank of a ring of at least two ranks. map->n becomes 0 if no key can be
 * left out. */
void data_reach(const struct data_order *o, const struct shard *sh, int64_t n,
                struct reach_map *map);
/* Counts the targets of sample n without filling rows. With this, any rank can count the targets
 * of the global batch before it computes. It reads the disk only if some tokens are masked or
 * hidden. Returns -1 with the errors of data_batch. */
int64_t data_targets(const struct data_order *o, int64_t n, struct err *e);
/* Counts the text bytes of the targets of sample n. data_order_bytes_known must be true, which is
 * so if the model's own tokenizer has cut the text and no token is hidden. Reads the disk. Returns
 * -1 with the errors of data_batch. */
int64_t data_target_bytes(const struct data_order *o, int64_t n, struct err *e);
bool data_order_bytes_known(const struct data_order *o);

/* Counts over a pass of the data, without random masks. */
struct order_learnt {
    int64_t tokens;  /* tokens that may be targets */
    int64_t cut_off; /* number of documents that have no such token any more because they were
                      * truncated */
};
/* Counts the tokens that may be targets. It reads the disk if some tokens are masked. Fails as
 * data_batch does. */
int data_order_learnt(const struct data_order *o, struct order_learnt *out, struct err *e);

struct sample {
    int stream;    /* index of the source if there are weights, otherwise 0 */
    int64_t index; /* index among the samples of the stream, in the order of packing */
    int64_t pass;  /* number of the stream's pass */
    int64_t n_tokens, n_fragments;
    int64_t first; /* private to the packer */
};
struct fragment {
    int64_t document; /* number of the document in the directory */
    int64_t token;    /* number in the directory of the fragment's first token */
    int64_t length;
    int64_t pos; /* first position in the sample */
};
void data_sample(const struct data_order *o, int64_t n, struct sample *s);
void data_fragment(const struct data_order *o, const struct sample *s, int64_t k,
                   struct fragment *f);

/* Writes global sample n as one JSON object: {"sample", "pass", "tokens", "targets",
 * "n_fragments", "fragments": [{"source", "file", "record", "byte_offset", "document", "offset",
 * "length", "pos"}]}, with at most max_fragments fragments. "offset" is the number of tokens
 * before the fragment in its document. A sample of latents has "latents": [C, T, H, W], "text_len"
 * and, if it has a class, "label" in place of tokens and targets; its only fragment is the whole
 * sample, counted in 16-bit words. Returns the full length of the object, even if it does not fit
 * into size (as jwrite does), or -1 with the errors of data_batch. */
int64_t data_trace(const struct data_order *o, int64_t n, int64_t max_fragments, char *out,
                   size_t size, struct err *e);

#endif
