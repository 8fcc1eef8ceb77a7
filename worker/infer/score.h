/* score.h: computes how well a model predicts a text: nll, perplexity and bits per byte, per
 * document and in total.
 *
 * The prepared input is read in windows of data.seq_len, in file order. If score.stride is 0,
 * windows follow each other, and the first token of a window is not scored. With score.stride d,
 * window w begins at token w*d and scores only the tokens that no earlier window has scored. After
 * the first window these tokens begin at position seq_len - d, so that each of them has at least
 * seq_len - d tokens of the window before it. (Under data.document_mask the model sees only those
 * of the token's own document.) The first token of a document and tokens that the data masks are
 * never scored; "unscored" counts them. With data.packing "best_fit" a window has only whole
 * documents (window.h), so that a document of at most seq_len tokens is scored as if it were
 * alone.
 *
 * Every rank computes the nll of its rows. Rank 0 gathers them and adds them in the order of the
 * text. No [S, V] tensor exists, because the head runs in chunks.
 *
 * The losses of a window are kept in a journal (score_journal.h), so that an attempt continues
 * where the previous one died. The attempt that completes the job writes all results, with the
 * bytes that a single attempt would write.
 *
 * score.jsonl has a line for each document:
 *   {"document", "file", "record", "nll", "tokens", "bytes", "ppl", "bits_per_byte", "unscored",
 *    "offset"}
 * record is the line of a JSONL file, as in struct data_origin; offset is the index of the
 * document's first token in the prepared input.
 *
 *   ppl = exp(nll / tokens)      bits_per_byte = nll of text / ln 2 / bytes
 *
 * tokens counts the scored tokens. "nll of text" leaves out the ids that end documents, as
 * lm-evaluation-harness does. bytes counts the bytes of the scored tokens and also those of the
 * first token of each document, although it is not predicted; it is 0 if the input was ids.
 *
 * score.by_position_bucket n: the position of a token is the number of tokens that its prediction
 * could see. The first of these tokens is the first token of the document or, if the window begins
 * later, of the window. Without document_mask it is always the first token of the window. Bucket b
 * has positions [b*n, (b+1)*n). score-buckets.json:
 *   {"bucket_tokens", "buckets": [{"from", "to", "tokens", "nll", "loss", "ppl"}]}
 * where loss = nll / tokens.
 *
 * score.token_logprobs: token-logprobs.npy has, in float64, one number per token of the prepared
 * input, which is NaN for unscored tokens. The numbers of a document of score.jsonl begin at its
 * "offset". */
#ifndef SEQD_INFER_SCORE_H
#define SEQD_INFER_SCORE_H

#include "worker/data/data.h"
#include "worker/infer/infer.h"

struct score_sum {
    double nll; /* nats */
    int64_t n_targets, n_bytes;
};
double score_ppl(const struct score_sum *s); /* NaN without targets */
/* Returns the bits per byte for text_nll, the nats of the tokens that stand for text. Returns NaN
 * if n_bytes is 0. */
double score_bits_per_byte(double text_nll, int64_t n_bytes);

struct score {
    struct score_sum total; /* rank 0 */
    double text_nll;        /* total.nll without the ids that end documents; only on rank 0, as is
                             * n_unscored */
    int64_t n_documents, n_windows, n_unscored;
    int64_t n_resumed;             /* number of windows whose losses an earlier attempt has
                                    * computed */
    struct infer_pace pace;        /* pace of the windows that this attempt computed */
    bool ledger_equal;             /* whether every window sent the plan's bytes, on every rank */
    struct artifact_done artifact; /* rank 0: score.jsonl, one line per document */
    struct artifact_done buckets;  /* rank 0: score-buckets.json; no name if it is not wanted */
    struct artifact_done logprobs; /* rank 0: token-logprobs.npy; no name if it is not wanted */
};

/* Scores all windows. Collective. Fails with ERR_CORRUPT if a loss is not finite (the error names
 * the window), or if a record of the journal changes during the call. Fails with ERR_INTERNAL if
 * the text and the batch have different numbers of targets. Also fails with ERR_ABORTED, and with
 * the errors of the data, of comm and of writing files. */
int score_run(const struct infer *in, const struct data *d, struct score *out, struct err *e);

#endif
