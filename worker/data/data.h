/* data.h: turns files into the rows of one rank.
 *
 *   data_prepare      turns files into tokens, documents, masks and origins once, before any ring
 *                     exists. The output directory is content-addressed, so that an input that
 *                     was prepared once is not prepared again
 *   data_open         opens a prepared directory
 *   data_order_open   opens a sequence of samples over one set of the directory, for one length
 *                     and one packing
 *   data_batch        fills one rank's rows of global sample n; it is pure in (order, n, shard)
 *   data_trace        lists the files and records of the tokens of sample n
 *
 * Prepared directory <parent>/<id>/ (written as <id>.tmp, fsynced, renamed), version 2; all
 * numbers are little-endian:
 *   tokens.bin     u16, or u32 if any id is above 65535: all documents end to end. Documents of
 *                  SET_TRAIN come first. In each set, the documents are in the order of the
 *                  sources and of their files
 *   documents.bin  u64 end offset (in tokens) of every document, ascending
 *   loss.bin       1 bit per token, lowest bit first, which is set if the token may be a
 *                  target. The file is absent if all tokens may be targets
 *   origins.bin    struct data_origin of every document
 *   bytes.bin      u32 count of text bytes per token. It exists only if all documents are text
 *                  that the model's own tokenizer has converted to tokens
 *   meta.json      counts, sources with weights and document ranges, files, digests
 *
 * <id> is the first 32 hex digits of a SHA-256 over the inputs of the directory. The inputs are
 * the version; the set, format, key, end id, weight and loss_on of every source; and the path and
 * digest of every file. If the model's own tokenizer may be used for text, the tokenizer's files
 * and an embed job's prompt are inputs, too. If a chat template may ask for the date, the day of
 * submission is an input. seq_len, packing and overlong are not inputs, because they are
 * properties of an order, and one prepared directory serves stages of several lengths. Only for
 * an embed job the directory also depends on whether overlong is "truncate". <parent>/<id>.lock
 * is held while <id> is being made.
 *
 * The byte tokenizer's ids 0..255 are bytes, 256 ends a document, and 257 is padding, so its
 * vocabulary has at least 258 ids. encode_text.h describes the model's own tokenizer. If a token
 * file or a record contains ids, no further id is added to them.
 *
 * Only one rank per node checks the digests (DATA_CHECK), because hashing 100 GB in every rank
 * would take longer than a training on these data. <parent>/<id>.checked keeps the result with
 * the size, inode and times of every file. As long as the files still have the recorded sizes,
 * inodes and times, the result is valid, and a later open does not hash the files again. The
 * other ranks (DATA_TRUST) check sizes and the document index. Every process checks that no token
 * that it reads is above the largest id that the preparation has recorded.
 *
 * No file is mapped. A batch is read with pread, so that a file that is truncated or fails while a
 * job runs causes ERR_CORRUPT or ERR_IO, with the name of the file. An open directory takes 8
 * bytes of memory per document. Each order takes memory for its lists (below). tested:
 * tests/engine/test_data.c, test_packing.c, test_order.c, test_prepare.c */
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
    SET_TRAIN, /* data of data.train for train and verify jobs; data of the input for score and
                * embed jobs */
    SET_EVAL,  /* eval.data */
    SET_N
};

struct data_stats {
    char id[80];
    int64_t n_tokens, n_documents; /* counts of SET_TRAIN */
    int64_t n_bytes;               /* number of bytes of the text in SET_TRAIN; 0 if SET_TRAIN
                                    * has only ids */
    int64_t eval_tokens, eval_documents, eval_bytes;
    /* in an embed job that truncates, the number of ids that are added after every text */
    int64_t n_after;
    bool own_tokens;        /* text was converted to tokens by the model's tokenizer; if false,
                             * each byte of the text is a token */
    int64_t n_masked;       /* number of tokens of both sets that may not be targets */
    int64_t n_skipped;      /* number of records of both sets that were skipped because they have
                             * no token */
    int64_t max_token;      /* the largest id that occurs in the two sets */
    double unigram_entropy; /* entropy of SET_TRAIN in nats per token */
    double made_mb_s; /* MB of sources per second in data_prepare; 0 if the data existed already */
};

/* Returns true if every document of the set is text in which each byte is a token. The tokens
 * below 256 of such a document are its bytes. Returns false if a document consists of ids,
 * because the number of its text bytes is not known. */
bool data_all_bytes(const struct data_stats *s, enum data_set set);

/* Inputs that are needed to convert text to tokens with the model's own tokenizer. */
struct data_model {
    const char *dir;     /* the model directory; borrowed */
    int64_t submitted_s; /* date for chat templates, as in struct rank_args */
    const char *before;  /* borrowed: prefix of each text of an embed job; NULL if texts get no
                          * prefix */
};

/* Prepares the data of a job. Files must be beneath one of the roots, and symbolic links may
 * not leave that root (openat2 RESOLVE_BENEATH). Ids that are not below
 * spec->model.shape.vocab are refused. progress counts bytes of the sources. Each byte is read
 * twice. If the parameter `progress` is NULL, no progress is reported. model may be NULL if
 * data_needs_tokenizer(spec) is false. Fails with ERR_INVALID if data is wrong. The error
 * names the field, the file, and the line of the JSONL record or the position of the token.
 * Fails with ERR_UNSUPPORTED for a format or a record that this job cannot read, with
 * ERR_CORRUPT for a token file whose sizes contradict each other, and with ERR_CONFLICT for a
 * file that changes during the call. Also fails with ERR_NOT_FOUND, ERR_TOO_LARGE, ERR_IO or
 * ERR_NO_SPACE. */
int data_prepare(const struct job_spec *spec, const struct data_model *model,
                 const char *const *roots, int n_roots, const char *parent,
                 struct progress *progress, struct data_stats *out, struct err *e);

/* Returns true if a source may contain text that must be converted to tokens by the tokenizer
 * of model.path. */
bool data_needs_tokenizer(const struct job_spec *spec);

/* ---- a prepared directory -------------------------------------------------------------------- */

enum data_check { DATA_CHECK, DATA_TRUST };

struct data;
/* Opens a prepared directory. Fails with ERR_NOT_FOUND if there is no such directory. Fails
 * with ERR_CORRUPT if a file is damaged; the error names the file. Also fails with ERR_IO. */
struct data *data_open(const char *parent, const char *id, enum data_check check, struct err *e);
void data_close(struct data *d);
const struct data_stats *data_stats(const struct data *d);
/* Checks that every id is in [0, vocab), because the directory may have been prepared for a
 * larger model. If an id is too large, fails with ERR_INVALID, and the error names the file
 * and the position of the id. */
int data_check_vocab(const struct data *d, int64_t vocab, struct err *e);

/* Read tokens and masks in the order of the files, without a data_order, for tests and for
 * scoring. Tokens and documents of SET_EVAL follow the tokens and documents of SET_TRAIN. ids
 * [n] gets tokens [first, first + n). learn [n] gets 1 for each token that may be a target,
 * and 0 for every other token. Fail with ERR_IO or ERR_CORRUPT. The error ERR_CORRUPT names
 * the file and the token. Any thread may call these functions. */
int data_read(const struct data *d, int64_t first, int64_t n, int32_t *ids, struct err *e);
int data_read_mask(const struct data *d, int64_t first, int64_t n, uint8_t *learn, struct err *e);
/* Reads the number of text bytes of each of the tokens [first, first + n). data_bytes_known must
 * be true. */
int data_read_bytes(const struct data *d, int64_t first, int64_t n, uint32_t *bytes, struct err *e);
/* Counts how often `id` occurs among the first tokens of both sets. The parameter `most` is
 * the number of tokens that are searched. If `repeats` is true, an occurrence is counted only
 * if the token before it is also `id`. Returns -1 with the errors of data_read. */
int64_t data_count_id(const struct data *d, int32_t id, bool repeats, int64_t most, struct err *e);
bool data_bytes_known(const struct data *d);          /* returns true if the directory has
                                                       * bytes.bin */
const uint64_t *data_documents(const struct data *d); /* end offset of each document; borrowed
                                                       * until data_close */

struct data_source { /* a range of documents; the ranges of SET_TRAIN come first */
    int set;
    double weight; /* weight in the spec; 0 if no source has a weight */
    int64_t first_document, n_documents;
};
int data_n_sources(const struct data *d);
const struct data_source *data_source(const struct data *d, int i);
bool data_masked(const struct data *d);  /* returns true if the directory has loss.bin */
bool data_latents(const struct data *d); /* returns true if the directory has samples of
                                          * latents (latents.h) instead of tokens */

struct data_origin { /* origin of a document, which is a record of origins.bin */
    uint32_t source; /* index in the list of data.train followed by eval.data */
    uint32_t file;   /* index of the file, for data_file */
    uint64_t record; /* for JSONL and latents, the number of the line, counted from 1; for token
                      * files, the number of the document, counted from 0; for text, 0 */
    uint64_t offset; /* byte offset of the line or of the first token in the file */
};
int data_origin(const struct data *d, int64_t document, struct data_origin *out, struct err *e);
const char *data_file(const struct data *d, uint32_t file); /* returns the path, or "" if there is
                                                             * no such file */
/* Writes the members "file" and "record" of an origin into the JSON object that is open in the
 * writer. */
void data_write_origin(const struct data *d, const struct data_origin *from, struct jwrite *w);

/* ---- orders ---------------------------------------------------------------------------------- */

/* A sample is a list of fragments, end to end from position 0, followed by padding up to seq_len.
 * A fragment is a part of one document. Masks and positions depend only on fragments. The target
 * of position i is token i + 1, if that token is in the same fragment and may be a target. If
 * tokens are hidden (order_options.mask), only the positions of hidden tokens have targets. Such a
 * target is the hidden token.
 *
 *   concat    all documents are joined end to end, and each sample has the next seq_len tokens
 *   none      each sample is one document
 *   best_fit  whole documents, longest first, are put into the sample with the smallest room
 *             that is enough (bestfit.h); the earlier of two documents with
 *             equal lengths is put first
 * Before packing, documents longer than seq_len are treated as data.overlong says:
 *   split     they are cut into fragments of seq_len, and a last, shorter one (with concat they
 *             are cut where the sample ends)
 *   truncate  only their first seq_len tokens are kept
 *   drop      they are left out
 *   error     the order cannot be opened
 *   auto      like split if no token is masked, like error if a token is masked
 *
 * n counts the samples of all passes, from 0. With these options sample n is:
 *   in_order       sample n mod N, where N is the number of samples of a pass
 *   no weights     sample permute(n mod N), keyed by (seed, p), where p = n / N is the pass
 *   weights        see mixture.h: each source has its own samples, order and passes
 * The order does not depend on ranks, rings, batch sizes or steps.
 *
 * An order of concat that leaves out no token needs no lists in memory. Any other order needs
 * lists, with 16 bytes per fragment and 8 bytes per sample. While it packs, it needs up to 24
 * more bytes per fragment, and with best_fit 4 more bytes per token of seq_len. An order with
 * lists has at most ORDER_FRAGMENTS fragments. The fragments are counted before concat divides
 * them at the ends of samples. */
#define ORDER_FRAGMENTS ((int64_t)1 << 28)

struct order_options {
    int set;               /* enum data_set */
    int packing, overlong; /* enum packing_id, overlong_id */
    int64_t seq_len, seed;
    int64_t longest; /* number of rows of the model's position table, which limits the length of a
                      * document; 0 if the model has no such table */
    bool in_order;   /* samples are in the order of documents, and weights are ignored; used
                      * for evaluations and score jobs */
    bool document_mask, reset_positions, causal; /* for data_batch */
    bool windowed; /* set if the model has a layer with a window; such a model needs a
                    * reach_map even for samples of one document */
    bool reach;    /* data_batch fills b->reach, from which the number of bytes that ranks send is
                    * computed */
    int64_t vocab; /* the model's vocabulary, for the padding id (token_pad); 0 means the byte
                    * vocabulary */
    /* Documents 2 k and 2 k + 1 of the set are a pair, the chosen answer and the rejected answer.
     * Both are in one sample, one after the other, and are never cut: a pair that is too long is
     * dropped or is an error. packing is not concat. overlong is error, drop or auto, which means
     * error. */
    bool pairs;
    struct mask_rule mask; /* if prob > 0, tokens are hidden; in that case only the positions
                            * of hidden tokens have targets, and the target of such a position
                            * is the hidden token */
};
/* Returns the options that the spec sets, which are packing, overlong, seed, masks and the
 * rule by which tokens are hidden. causal is set unless the family's attention is
 * bidirectional. in_order is set for SET_EVAL. seq_len is the length of a stage. If it is 0,
 * the length is data.seq_len, or stage_eval_seq_len for SET_EVAL. */
struct order_options data_order_options(const struct job_spec *s, int set, int64_t seq_len);

struct order_stats { /* counts of one pass */
    int64_t n_samples, n_fragments;
    int64_t n_tokens;    /* tokens in samples, without padding */
    int64_t n_documents; /* number of documents that have at least one token in a sample */
    int64_t dropped_documents, dropped_tokens;
    /* truncated_documents is the number of documents that were truncated; truncated_tokens is
     * the number of tokens that were left out in this way */
    int64_t truncated_documents, truncated_tokens;
    int64_t split_documents; /* number of documents that were split because they are longer
                              * than seq_len */
};

struct data_order; /* immutable, so that all threads may use it */
/* Opens an order. Borrows d. If a document is too long, fails with ERR_INVALID, and the error
 * names the file and the record. If a set or a weighted source has no sample, fails with
 * ERR_INVALID, and the error has the counts of documents and tokens. Fails with ERR_TOO_LARGE
 * if there are too many fragments, and with ERR_IO if memory is out. Also fails as
 * mixture_init and data_origin do. */
struct data_order *data_order_open(const struct data *d, const struct order_options *o,
                                   struct err *e);
void data_order_close(struct data_order *o);
const struct order_stats *data_order_stats(const struct data_order *o);
/* Returns the number of samples of a pass. With weights each source has its own passes. In
 * that case the result is the sum over all sources, where each source adds the number of
 * samples of one of its passes. */
int64_t data_order_samples(const struct data_order *o);

/* Fills one rank's rows of sample n. sh->S must be the order's seq_len. Allocates no memory.
 * Fails with ERR_IO or ERR_CORRUPT. The error ERR_CORRUPT names the file. */
int data_batch(const struct data_order *o, const struct shard *sh, int64_t n, struct batch *b,
               struct err *e);
/* Makes the map of the keys to which each segment of sample n attends. The option `reach` of
 * the order need not be set. sh is the shard of any rank of a ring of at least two ranks.
 * map->n becomes 0 if every segment attends to all keys. */
void data_reach(const struct data_order *o, const struct shard *sh, int64_t n,
                struct reach_map *map);
/* Counts the targets of sample n without filling rows. With this function a rank can count the
 * targets of the global batch before it computes the batch. It reads the disk only if some
 * tokens are masked or hidden. Returns -1 with the errors of data_batch. */
int64_t data_targets(const struct data_order *o, int64_t n, struct err *e);
/* Counts the text bytes of the targets of sample n. data_order_bytes_known must be true.
 * data_order_bytes_known is true if the model's own tokenizer has converted the text to tokens
 * and no token is hidden. Reads the disk. Returns -1 with the errors of data_batch. */
int64_t data_target_bytes(const struct data_order *o, int64_t n, struct err *e);
/* data_order_paired tells whether the order has the option pairs. data_pairs returns the number of
 * pairs of sample n of such an order. data_pair
 * describes pair k of it. data_pair reads the disk, to count the targets; it returns -1 with the
 * errors of data_batch. */
struct data_answer {
    int64_t document; /* index of the document in the directory */
    int64_t pos, length;
    int64_t targets; /* at least 1 */
};
bool data_order_paired(const struct data_order *o);
int64_t data_pairs(const struct data_order *o, int64_t n);
int data_pair(const struct data_order *o, int64_t n, int64_t k, struct data_answer out[2],
              struct err *e);
/* Sets document[] to the documents of the answers of pair k, as data_pair does. Reads no disk. */
void data_pair_documents(const struct data_order *o, int64_t n, int64_t k, int64_t document[2]);
bool data_order_bytes_known(const struct data_order *o);

/* Counts over a pass of the data, without random masks. */
struct order_learnt {
    int64_t tokens;  /* tokens that may be targets */
    int64_t cut_off; /* number of documents that have no token that may be a target because
                      * they were truncated */
};
/* Counts the tokens that may be targets. Reads the disk if some tokens are masked. Fails as
 * data_batch does. */
int data_order_learnt(const struct data_order *o, struct order_learnt *out, struct err *e);

/* Compares the two documents of each pair of SET_TRAIN. The directory must be that of a job that
 * learns preferences (job_learns_pairs). Reads the disk. Fails as data_read does. */
struct data_alike {
    int64_t pairs;
    int64_t equal; /* number of pairs whose documents have the same tokens */
    int64_t apart; /* number of pairs whose documents differ before a token that may be a target,
                    * so that the answers have different prompts */
};
int data_alike(const struct data *d, struct data_alike *out, struct err *e);

struct sample {
    int stream;    /* index of the source if there are weights, otherwise 0 */
    int64_t index; /* index among the samples of the stream, in the order of packing */
    int64_t pass;  /* index of the pass of the stream */
    int64_t n_tokens, n_fragments;
    int64_t first; /* private to the packer */
};
struct fragment {
    int64_t document; /* index of the document in the directory */
    int64_t token;    /* index of the fragment's first token in the directory */
    int64_t length;
    int64_t pos; /* first position in the sample */
};
void data_sample(const struct data_order *o, int64_t n, struct sample *s);
void data_fragment(const struct data_order *o, const struct sample *s, int64_t k,
                   struct fragment *f);

/* Writes global sample n as one JSON object: {"sample", "pass", "tokens", "targets",
 * "n_fragments", "fragments": [{"source", "file", "record", "byte_offset", "document",
 * "offset", "length", "pos"}]}, with at most max_fragments fragments. "offset" is the number
 * of tokens of the document before the fragment. In place of tokens and targets a sample of
 * latents has "latents": [C, T, H, W], "text_len" and, if it has a class, "label". The only
 * fragment of a sample of latents is the whole sample, and its length is a number of 16-bit
 * words. Like jwrite, returns the full length of the object even if it does not fit into size.
 * Returns -1 with the errors of data_batch. */
int64_t data_trace(const struct data_order *o, int64_t n, int64_t max_fragments, char *out,
                   size_t size, struct err *e);

#endif
