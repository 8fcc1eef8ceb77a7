/* data.h: from files to the rows of one rank.
 *
 *   data_prepare   files -> tokens, documents, digest: once, before any ring forms. The output
 *                  directory is content-addressed: the same input is never tokenized twice.
 *   data_open      maps a prepared directory
 *   data_batch     fills one rank's rows of global sample n: a pure function of (seed, n, shard)
 *
 * Prepared directory <parent>/<id>/ (written as <id>.tmp, fsynced, renamed):
 *   tokens.bin     uint16 little-endian token ids, all documents concatenated, each ended by id 256
 *   documents.bin  uint64 little-endian end offsets (in tokens), one per document, ascending
 *   meta.json      {"version":1,"tokenizer":"byte","n_tokens":..,"n_documents":..,"n_bytes":..,
 *                   "unigram_entropy":..,(nats per token) "sources":[{"path","sha256","size",..}],
 *                   "sha256_tokens":..,"sha256_documents":..}
 * A document without a byte is skipped; one text file is one document, one JSONL line is one.
 * <id> = first 32 hex digits of the SHA-256 over tokenizer, options and the sources' digests.
 *
 * Byte tokenizer: ids 0..255 are bytes, 256 ends a document, 257 is padding. V >= 258.
 *
 * Packing by concatenation: sample k of pass p is the token window [w*S, (w+1)*S) with w = the
 * Feistel permutation of k keyed by (seed, p); ceil(n_tokens/S) windows. Position i of a sample has
 * target tokens[i+1] when i+1 lies in the same window and the same document, else none (-1).
 * Rows beyond the tokens are padding. The part of a document inside one window is a *fragment*: masks
 * and positions know fragments only, so a window has tokens - fragments targets.
 * <parent>/<id>.lock is held while <id> is being made. */
#ifndef SEQD_TRAIN_DATA_H
#define SEQD_TRAIN_DATA_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/job.h"
#include "worker/model/batch.h" /* struct batch: one rank's rows of one sample */
#include "worker/model/tokenizer.h"
#include "worker/plan/shard.h"

struct data_stats { /* also the JSON payload of EV_PREPARED */
    char id[80];
    int64_t n_tokens, n_documents, n_bytes;
    double unigram_entropy; /* nats per token */
};

/* What data_prepare reads: data.train of train and verify, input of score.
 * roots: files must lie beneath one of them (openat2 RESOLVE_BENEATH; symlinks may not leave it).
 * fails: ERR_NOT_FOUND, ERR_INVALID with the field and the file, JSONL errors with the line. */
int data_prepare(const struct job_spec *spec, const char *const *roots, int n_roots,
                 const char *parent, struct data_stats *out, struct err *e);

struct data; /* a mapped prepared directory */
/* Checks sizes, digests and document ends. fails: ERR_NOT_FOUND when there is no such directory,
 * ERR_CORRUPT naming the file. */
struct data *data_open(const char *parent, const char *id, struct err *e);
void data_close(struct data *d);
const struct data_stats *data_stats(const struct data *d);
const uint16_t *data_tokens(const struct data *d);
const uint64_t *data_documents(const struct data *d); /* end offsets */

int64_t data_samples(const struct data *d, int64_t seq_len); /* windows per pass */
/* Which window global sample n (counted over passes from 0) is. */
int64_t data_window(const struct data *d, int64_t seq_len, int64_t seed, int64_t n);

struct batch_options {
    int64_t seq_len, seed;
    bool document_mask, reset_positions, causal;
    bool in_order; /* score: windows in file order, no permutation */
    int mutant;    /* tests only: enum sp_mutant (label shift, document crossed, local position) */
};

/* fails: ERR_CORRUPT naming the file when a token id is out of range or the map is truncated. */
int data_batch(const struct data *d, const struct batch_options *o, const struct shard *sh,
               int64_t n, struct batch *b, struct err *e);
/* Targets of sample n alone (any rank can count the global batch before it computes). */
int64_t data_targets(const struct data *d, const struct batch_options *o, int64_t n);

#endif
