/* score.h: computes how well a model predicts a text: nll, perplexity and bits per byte, per
 * document and in total.
 *
 * The prepared input is taken in windows of data.seq_len, in file order. score.stride 0: windows
 * follow each other, and a window's first token is not scored. score.stride d: window w begins at
 * token w*d and scores only the tokens that no earlier window has scored. After the first window
 * these begin at position seq_len - d, so at least seq_len - d tokens of the window are before
 * each of them (under data.document_mask only tokens of its own document are seen). The first
 * token of a document and tokens that the data masks are never scored; "unscored" counts them.
 * data.packing "best_fit": a window holds whole documents (window.h), so that a document of at
 * most seq_len tokens is scored as if it stood alone.
 *
 * Every rank computes the nll of its rows; rank 0 gathers them and adds in the order of the text.
 * No [S, V] tensor exists: the head runs in chunks.
 *
 * The losses of a window are kept in a journal (score_journal.h), so that an attempt continues
 * where the previous one died. The attempt that completes the job writes all results, with the
 * bytes that a single attempt would write.
 *
 * score.jsonl has a line for each document:
 *   {"document", "file", "record", "nll", "tokens", "bytes", "ppl", "bits_per_byte", "unscored",
 *    "offset"}
 * record: the line of a JSONL file, as in struct data_origin; offset: the document's first token
 * in the prepared input.
 *
 *   ppl = exp(nll / tokens)      bits_per_byte = nll of text / ln 2 / bytes
 * tokens: scored tokens. "nll of text" leaves out the ids that end documents, as
 * lm-evaluation-harness does. bytes counts the scored tokens and each document's first token,
 * which is not predicted; it is 0 if the input was ids.
 *
 * score.by_position_bucket n: a token's position is the number of tokens that its prediction could
 * see. They begin with its document, or with the window if that begins later (or without
 * document_mask). Bucket b holds positions [b*n, (b+1)*n). score-buckets.json:
 *   {"bucket_tokens", "buckets": [{"from", "to", "tokens", "nll", "loss", "ppl"}]}
 * loss: nll / tokens.
 *
 * score.token_logprobs: token-logprobs.npy, float64, one number per token of the prepared input,
 * NaN for unscored tokens; a document of score.jsonl begins at its "offset". */
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
    double text_nll;        /* total.nll without ids that end documents; on rank 0, as is
                             * n_unscored */
    int64_t n_documents, n_windows, n_unscored;
    int64_t n_resumed;             /* windows whose losses an earlier attempt has computed */
    struct infer_pace pace;        /* pace of the windows that this attempt computed */
    bool ledger_equal;             /* every window sent the plan's bytes, on every rank */
    struct artifact_done artifact; /* rank 0: score.jsonl, one line per document */
    struct artifact_done buckets;  /* rank 0: score-buckets.json; no name: not wanted */
    struct artifact_done logprobs; /* rank 0: token-logprobs.npy; no name: not wanted */
};

/* Scores all windows. Collective. fails: the data's and comm's errors; the errors of writing files;
 * ERR_ABORTED; ERR_CORRUPT when a loss is not finite, naming the window, or when a record of the
 * journal changes; ERR_INTERNAL when the text and the batch have different numbers of targets. */
int score_run(const struct infer *in, const struct data *d, struct score *out, struct err *e);

#endif
