/* score.h: how well a model predicts a text: nll, perplexity, bits per byte, per document and in
 * all.
 *
 * The prepared input is taken in windows of data.seq_len, in file order. score.stride 0: windows
 * follow each other, and a window's first token is given, not scored. score.stride d: window w
 * begins at token w*d and scores only what no window before it has scored, its last d tokens, so
 * that every token but those of the first window has at least seq_len - d tokens before it in its
 * window (of which those of its own document count, under data.document_mask). A document's first
 * token is never scored, nor one that the data masks; "unscored" counts them all. data.packing
 * "best_fit": a window holds whole documents (window.h), so that one of at most seq_len tokens is
 * scored as if it stood alone.
 *
 * Every rank computes the nll of its rows; rank 0 gathers them and adds in the order of the text.
 * No [S, V] tensor exists: the head runs in chunks.
 *
 * The losses of a window are kept in a journal (score_journal.h), so that an attempt continues
 * where the one before it died; the attempt that ends writes the results whole, with the same
 * bytes.
 *
 * score.jsonl has a line for each document:
 *   {"document", "file", "record", "nll", "tokens", "bytes", "ppl", "bits_per_byte", "unscored",
 *    "offset"}
 * record: the line of a JSONL file, as in struct data_origin; offset: the document's first token in
 * the prepared input.
 *
 *   ppl = exp(nll / tokens)      bits_per_byte = nll of text / ln 2 / bytes
 * tokens: scored tokens. bits_per_byte is of the text, as lm-evaluation-harness counts it: without
 * the loss of ids that end documents, over the bytes of the scored tokens and of each document's
 * first token, which nothing predicts. bytes is 0 where the input was ids.
 *
 * score.by_position_bucket n: a token's position is the number of tokens that its prediction could
 * see: from its document's beginning, or the window's where that comes later (or without
 * document_mask). Bucket b holds positions [b*n, (b+1)*n). score-buckets.json:
 *   {"bucket_tokens", "buckets": [{"from", "to", "tokens", "nll", "loss", "ppl"}]}
 * where loss is nll / tokens.
 *
 * score.token_logprobs: token-logprobs.npy, float64, one number per token of the prepared input,
 * NaN for those unscored; a document of score.jsonl begins at its "offset". */
#ifndef SEQD_INFER_SCORE_H
#define SEQD_INFER_SCORE_H

#include "worker/data/data.h"
#include "worker/infer/infer.h"

struct score_sum {
    double nll; /* nats */
    int64_t n_targets, n_bytes;
};
double score_ppl(const struct score_sum *s); /* NaN without targets */
/* Returns the bits per byte of text_nll, the nats of the tokens that stand for text. Returns NaN
 * if n_bytes is 0. */
double score_bits_per_byte(double text_nll, int64_t n_bytes);

struct score {
    struct score_sum total; /* rank 0 */
    double text_nll;        /* total.nll without ids that end documents; rank 0, as n_unscored */
    int64_t n_documents, n_windows, n_unscored;
    int64_t n_resumed;             /* windows whose losses an earlier attempt left */
    struct infer_pace pace;        /* windows that this attempt computed, with their losses */
    bool ledger_equal;             /* every window moved the formula's bytes, on every rank */
    struct artifact_done artifact; /* rank 0: score.jsonl, one line per document */
    struct artifact_done buckets;  /* rank 0: score-buckets.json; no name: not asked for */
    struct artifact_done logprobs; /* rank 0: token-logprobs.npy; no name: not asked for */
};

/* Scores all windows. Collective. fails: the data's and comm's errors; the errors of writing files;
 * ERR_ABORTED; ERR_CORRUPT when a loss is not finite, naming the window, or when a record of the
 * journal changes; ERR_INTERNAL when text and batch count different targets. */
int score_run(const struct infer *in, const struct data *d, struct score *out, struct err *e);

#endif
