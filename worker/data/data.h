/* data.h: turns files into the rows of one rank.
 *
 *   data_prepare      files -> tokens, documents, masks, origins: once, before any ring forms. The
 *                     output directory is content-addressed: the same input is prepared only once.
 *   data_open         opens a prepared directory
 *   data_order_open   a sequence of samples over one set of the directory, of one length and one
 *                     packing
 *   data_batch        fills one rank's rows of global sample n: pure in (order, n, shard)
 *   data_trace        the files and records of the tokens of sample n
 *
 * Prepared directory <parent>/<id>/ (written as <id>.tmp, fsynced, renamed), version 2, all numbers
 * little-endian:
 *   tokens.bin     u16, or u32 when any id is above 65535: all documents end to end, those of
 *                  SET_TRAIN first, in the order of the sources and their files
 *   documents.bin  u64 end offset (in tokens) of every document, ascending
 *   loss.bin       1 bit per token, lowest bit first: the token may be a target. Absent when all
 *                  may
 *   origins.bin    struct data_origin of every document
 *   bytes.bin      u32 count of text bytes per token; only if all documents are text that the
 *                  model's own tokenizer has cut
 *   meta.json      counts, sources with weights and document ranges, files, digests
 * <id> = first 32 hex digits of a SHA-256 over the inputs of the directory: the version; set,
 * format, key, end id, weight and loss_on of every source; path and digest of every file. If the
 * model's own tokenizer may cut text, the tokenizer's files and an embed job's prompt are inputs.
 * If a chat template may ask for the date, the day of submission is an input. seq_len, packing and
 * overlong are not inputs: they are properties of an order, and one prepared directory serves
 * stages of several lengths. There is one exception: for an embed job it is an input whether
 * overlong is "truncate". <parent>/<id>.lock is held while <id> is being made.
 *
 * Byte tokenizer: ids 0..255 are bytes, 256 ends a document, 257 is padding. V >= 258. The model's
 * own tokenizer: see encode_text.h. No id is added to token files and to records of ids.
 *
 * One rank per node checks the digests (DATA_CHECK), because hashing 100 GB in every rank would
 * take longer than training on it. <parent>/<id>.checked keeps the result with the size, inode and
 * times of every file. It is valid while these are the same: a later open of the same files does
 * not hash again. The other ranks (DATA_TRUST) check sizes and the document index. Every process
 * compares each token that it reads with the largest id of the preparation.
 *
 * No file is mapped: a batch is read with pread, so that a file that is truncated or fails while a
 * job runs gives ERR_CORRUPT or ERR_IO with its name. Memory: 8 bytes per document, and the lists
 * of each order (below). tested: tests/engine/test_data.c, test_packing.c, test_order.c,
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
#include "worker/model/batch.h" /* struct batch: one rank's rows of one sample */
#include "worker/plan/shard.h"

struct job_spec;
struct jwrite;

enum data_set {
    SET_TRAIN, /* data.train of train and verify, input of score and embed */
    SET_EVAL,  /* eval.data */
    SET_N
};

struct data_stats {
    char id[80];
    int64_t n_tokens, n_documents; /* counts of SET_TRAIN */
    int64_t n_bytes;               /* bytes of the text in SET_TRAIN; 0: SET_TRAIN has ids alone */
    int64_t eval_tokens, eval_documents, eval_bytes;
    int64_t n_after;        /* number of ids after every text, in an embed job that truncates */
    bool own_tokens;        /* text was cut by the model's tokenizer, not into bytes */
    int64_t n_masked;       /* tokens of both sets that may not be targets */
    int64_t n_skipped;      /* records of both sets that were skipped, as they have no token */
    int64_t max_token;      /* the largest id of both sets */
    double unigram_entropy; /* entropy of SET_TRAIN, nats per token */
    double made_mb_s; /* MB of sources per second in data_prepare; 0: the data existed already */
};

/* Tells whether every document of the set is text cut into bytes, so that its tokens below 256 are
 * its bytes. If a document consists of ids, the number of bytes is unknown. */
bool data_all_bytes(const struct data_stats *s, enum data_set set);

/* Inputs for cutting text, for a job whose model has a tokenizer of its own. */
struct data_model {
    const char *dir;     /* the model directory; borrowed */
    int64_t submitted_s; /* as in struct rank_args: the date for chat templates */
    const char *before;  /* prefix of every text of an embed job; borrowed; NULL: none */
};

/* Prepares the data of a job. roots: files must lie beneath one of them (openat2 RESOLVE_BENEATH;
 * symlinks may not leave it). Ids of spec->model.shape.vocab and above are refused. progress: in
 * bytes of the sources, which are read twice; NULL: not reported. model: needed if
 * data_needs_tokenizer(spec), else it may be NULL.
 * fails: ERR_NOT_FOUND, ERR_INVALID with the field and the file, with the line of a JSONL record
 * or the position of a token; ERR_UNSUPPORTED for a format or a record that this job cannot read;
 * ERR_CORRUPT for a token file whose sizes contradict each other; ERR_CONFLICT for a file that
 * changes during the call; ERR_TOO_LARGE; ERR_IO, ERR_NO_SPACE. */
int data_prepare(const struct job_spec *spec, const struct data_model *model,
                 const char *const *roots, int n_roots, const char *parent,
                 struct progress *progress, struct data_stats *out, struct err *e);

/* Tells whether a source may hold text that the tokenizer of model.path cuts. */
bool data_needs_tokenizer(const struct job_spec *spec);

/* ---- a prepared directory -------------------------------------------------------------------- */

enum data_check { DATA_CHECK, DATA_TRUST };

struct data;
/* Opens a prepared directory. fails: ERR_NOT_FOUND when there is no such directory, ERR_CORRUPT
 * naming the file, ERR_IO. */
struct data *data_open(const char *parent, const char *id, enum data_check check, struct err *e);
void data_close(struct data *d);
const struct data_stats *data_stats(const struct data *d);
/* Checks that every id lies in [0, vocab): the directory may have been prepared for a larger model.
 * fails: ERR_INVALID naming the file and the position of an id that is too large. */
int data_check_vocab(const struct data *d, int64_t vocab, struct err *e);

/* Read tokens and masks in the order of the files, without a data_order, for oracles and for
 * scoring. Tokens and documents of SET_EVAL follow those of SET_TRAIN. ids [n] gets tokens [first,
 * first + n); learn [n] gets 1 for each token that may be a target, else 0.
 * fails: ERR_IO, ERR_CORRUPT naming the file and the token. Any thread. */
int data_read(const struct data *d, int64_t first, int64_t n, int32_t *ids, struct err *e);
int data_read_mask(const struct data *d, int64_t first, int64_t n, uint8_t *learn, struct err *e);
/* Reads the number of text bytes of each of tokens [first, first + n). Needs data_bytes_known. */
int data_read_bytes(const struct data *d, int64_t first, int64_t n, uint32_t *bytes, struct err *e);
/* Counts how often `id` occurs among the first `most` tokens of both sets. repeats: counts it only
 * if the token before it is `id`, too. Returns -1 as data_read fails. */
int64_t data_count_id(const struct data *d, int32_t id, bool repeats, int64_t most, struct err *e);
bool data_bytes_known(const struct data *d);          /* the directory has bytes.bin */
const uint64_t *data_documents(const struct data *d); /* end offsets; borrowed until data_close */

struct data_source { /* a range of documents; ranges of SET_TRAIN come first */
    int set;
    double weight; /* that of the spec; 0: no source has a weight */
    int64_t first_document, n_documents;
};
int data_n_sources(const struct data *d);
const struct data_source *data_source(const struct data *d, int i);
bool data_masked(const struct data *d);  /* the directory has loss.bin */
bool data_latents(const struct data *d); /* samples of latents (latents.h), not tokens */

struct data_origin { /* origin of a document: a record of origins.bin */
    uint32_t source; /* index over data.train, then eval.data */
    uint32_t file;   /* index into the files of the directory: data_file */
    uint64_t record; /* JSONL, latents: line, from 1; token files: document, from 0; text: 0 */
    uint64_t offset; /* byte offset of the line or of the first token in the file */
};
int data_origin(const struct data *d, int64_t document, struct data_origin *out, struct err *e);
const char *data_file(const struct data *d, uint32_t file); /* path; "": no such file */
/* Writes the members "file" and "record" of an origin into the object that is open. */
void data_write_origin(const struct data *d, const struct data_origin *from, struct jwrite *w);

/* ---- orders ---------------------------------------------------------------------------------- */

/* A sample is a list of fragments, end to end from position 0, then padding up to seq_len. A
 * fragment is a part of one document; masks and positions depend on fragments only. The target of
 * position i is token i + 1 if that token lies in the same fragment and may be a target. If tokens
 * are hidden (order_options.mask), the target of a hidden token's position is that token, and no
 * other position has a target.
 *
 *   concat    all documents end to end, cut every seq_len tokens
 *   none      a sample is one document
 *   best_fit  whole documents, longest first, each into the sample with the smallest room that
 *             holds it (bestfit.h), and documents of equal length in their order
 * Documents longer than seq_len, before packing:
 *   split     into fragments of seq_len, the last one shorter (concat: cut where the sample ends)
 *   truncate  the first seq_len tokens stay      drop   they are left out
 *   error     the order cannot be opened         auto   split; error when anything is masked
 *
 * The sample of number n, counted over passes from 0:
 *   in_order       sample n mod N, N = samples of a pass
 *   no weights     pass p = n / N, sample permute(n mod N) keyed by (seed, p)
 *   weights        see mixture.h: each source has its own samples, order and passes
 * The order does not depend on ranks, rings, batch sizes or steps.
 *
 * Memory of an order: concat that leaves out no token takes none. Any other order takes 16 bytes
 * per fragment and 8 per sample. Packing takes up to 24 more per fragment for a time, and best_fit
 * 4 more per token of seq_len. An order with such lists has at most ORDER_FRAGMENTS fragments,
 * counted before concat cuts them. */
#define ORDER_FRAGMENTS ((int64_t)1 << 28)

struct order_options {
    int set;               /* enum data_set */
    int packing, overlong; /* enum packing_id, overlong_id */
    int64_t seq_len, seed;
    int64_t longest; /* rows of the model's position table, the most tokens of a document; 0: no
                      * table */
    bool in_order;   /* samples in the order of documents, without weights: evaluation, score */
    bool document_mask, reset_positions, causal; /* for data_batch */
    bool windowed; /* a layer has a window: even samples of one document need a reach_map */
    bool reach;    /* data_batch fills b->reach, which the formulas of bytes sent use */
    int64_t vocab; /* model's vocabulary, for the padding id (token_pad); 0: the byte vocabulary */
    struct mask_rule mask; /* prob > 0: the target of a hidden token's position is that token, and
                            * other positions have none */
};
/* Returns the options that the spec sets: packing, overlong, seed, masks, the tokens to hide, and
 * causal unless the family's attention is bidirectional. seq_len: the length of a stage, or 0:
 * data.seq_len, for SET_EVAL stage_eval_seq_len. SET_EVAL is in order. */
struct order_options data_order_options(const struct job_spec *s, int set, int64_t seq_len);

struct order_stats { /* counts of one pass */
    int64_t n_samples, n_fragments;
    int64_t n_tokens;    /* tokens in samples, without padding */
    int64_t n_documents; /* documents that have a part in a sample */
    int64_t dropped_documents, dropped_tokens;
    int64_t truncated_documents, truncated_tokens; /* truncated_tokens: tokens cut off */
    int64_t split_documents; /* documents longer than seq_len that were split */
};

struct data_order; /* immutable: all threads may use it */
/* Opens an order; borrows d. fails: ERR_INVALID for an over-long document (naming file and
 * record), for a set or a weighted source without a sample (with counts), and as mixture_init;
 * ERR_TOO_LARGE for too many fragments; ERR_IO for no memory; as data_origin. */
struct data_order *data_order_open(const struct data *d, const struct order_options *o,
                                   struct err *e);
void data_order_close(struct data_order *o);
const struct order_stats *data_order_stats(const struct data_order *o);
/* Returns the number of samples of a pass; with weights, the sum of this number over all sources,
 * which have no common pass. */
int64_t data_order_samples(const struct data_order *o);

/* Fills one rank's rows of sample n. sh->S must be the order's seq_len. Allocates nothing.
 * fails: ERR_IO, ERR_CORRUPT naming the file. */
int data_batch(const struct data_order *o, const struct shard *sh, int64_t n, struct batch *b,
               struct err *e);
/* Maps the keys that each segment sees in sample n, even if the option `reach` is off. sh: the
 * shard of any rank of a ring of at least two. map->n is 0 if no key can be left out. */
void data_reach(const struct data_order *o, const struct shard *sh, int64_t n,
                struct reach_map *map);
/* Counts only the targets of sample n, so that any rank can count the global batch before it
 * computes. It reads the disk only if some tokens are masked or hidden. Returns -1 as data_batch
 * fails. */
int64_t data_targets(const struct data_order *o, int64_t n, struct err *e);
/* Counts the text bytes of the targets of sample n. Needs data_order_bytes_known: the model's own
 * tokenizer has cut the text, and no token is hidden. Reads the disk. Returns -1 as data_batch
 * fails. */
int64_t data_target_bytes(const struct data_order *o, int64_t n, struct err *e);
bool data_order_bytes_known(const struct data_order *o);

/* Counts of a pass over the data, without random masks. */
struct order_learnt {
    int64_t tokens;  /* tokens that may be targets */
    int64_t cut_off; /* documents that truncation left without such a token */
};
/* Counts the tokens that may be targets. It reads the disk if some tokens are masked. fails: as
 * data_batch. */
int data_order_learnt(const struct data_order *o, struct order_learnt *out, struct err *e);

struct sample {
    int stream;    /* number of the source if there are weights, else 0 */
    int64_t index; /* number among the stream's samples, in the order of packing */
    int64_t pass;  /* number of the stream's pass */
    int64_t n_tokens, n_fragments;
    int64_t first; /* private to the packer */
};
struct fragment {
    int64_t document; /* number of the document in the directory */
    int64_t token;    /* number of the fragment's first token in the directory */
    int64_t length;
    int64_t pos; /* first position in the sample */
};
void data_sample(const struct data_order *o, int64_t n, struct sample *s);
void data_fragment(const struct data_order *o, const struct sample *s, int64_t k,
                   struct fragment *f);

/* Writes global sample n as one JSON object: {"sample", "pass", "tokens", "targets",
 * "n_fragments", "fragments": [{"source", "file", "record", "byte_offset", "document", "offset",
 * "length", "pos"}]}, with at most max_fragments fragments. offset: tokens before the fragment in
 * its document. A sample of latents has "latents": [C, T, H, W], "text_len" and, if it has a
 * class, "label" in place of tokens and targets. Its only fragment is the whole sample, counted in
 * 16-bit words. Returns the full length of the object, even if it does not fit into size (as
 * jwrite); -1 as data_batch fails. */
int64_t data_trace(const struct data_order *o, int64_t n, int64_t max_fragments, char *out,
                   size_t size, struct err *e);

#endif
