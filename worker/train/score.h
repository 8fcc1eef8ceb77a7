/* score.h: how well a model predicts a text: nll, perplexity, bits per byte, per document and in all.
 *
 * The prepared input is taken in windows of data.seq_len, in file order. A window's first token is
 * given, not scored; nor is a document's first. Every rank computes the nll of its rows; rank 0
 * gathers them and adds in the order of the text. No [S, V] tensor exists: the head runs in chunks;
 * rank 0 holds 16 bytes per token of one window outside the plan.
 *
 *   ppl = exp(nll / tokens)      bits_per_byte = nll / ln 2 / bytes
 * tokens: targets; bytes: those of them that are no end of a document. */
#ifndef SEQD_TRAIN_SCORE_H
#define SEQD_TRAIN_SCORE_H

#include "worker/train/data.h"
#include "worker/train/infer.h"

struct score_sum {
    double nll; /* nats */
    int64_t n_targets, n_bytes;
};
double score_ppl(const struct score_sum *s);           /* NaN without targets */
double score_bits_per_byte(const struct score_sum *s); /* NaN without bytes */

struct score {
    struct score_sum total; /* rank 0 */
    int64_t n_documents, n_windows;
    bool ledger_equal;             /* every window moved what the formula says, on every rank */
    struct artifact_done artifact; /* rank 0: score.jsonl, one line per document */
};

/* Collective. fails: the data's and comm's errors; ERR_ABORTED; ERR_INTERNAL when a loss is not
 * finite, naming the window. */
int score_run(const struct infer *in, const struct data *d, struct score *out, struct err *e);

#endif
