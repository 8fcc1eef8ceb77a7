/* score.h: computes how well a model predicts a text: nll, perplexity and bits per byte, per
 * document and in total.
 *
 * The prepared input is read in windows of data.seq_len, in file order. If score.stride is 0,
 * windows do not overlap, and the first token of a window is not scored. With score.stride d,
 * window w begins at token w*d and scores only the tokens that no earlier window has scored. In
 * all windows except the first, these tokens begin at position seq_len - d. For this reason at
 * least seq_len - d tokens of the window come before each scored token. (Under
 * data.document_mask, the model sees only tokens of the same document.) The first token of a
 * document is never scored, and tokens that the data masks are never scored; "unscored" counts
 * the tokens of these two kinds. With data.packing "best_fit" a window has only whole documents
 * (window.h). In that case the scores of a document of at most seq_len tokens do not depend on
 * other documents.
 *
 * Every rank computes the nll of its rows. Rank 0 gathers them and adds them in the order of the
 * text. No [S, V] tensor exists, because the head runs in chunks.
 *
 * The losses of a window are kept in a journal (score_journal.h), so that an attempt continues
 * after the last window that an earlier attempt has scored. The attempt that completes the job
 * writes all results. They have the same bytes as those of a job with only one attempt.
 *
 * score.jsonl has a line for each document:
 *   {"document", "file", "record", "nll", "tokens", "bytes", "ppl", "bits_per_byte", "unscored",
 *    "offset"}
 * "record" is the number of a line in a JSONL file (struct data_origin); "offset" is the index of
 * the document's first token in the prepared input.
 *
 *   ppl = exp(nll / tokens)      bits_per_byte = nll of text / ln 2 / bytes
 *
 * "tokens" is the number of scored tokens. "nll of text" does not include the ids that end
 * documents, as in lm-evaluation-harness. "bytes" counts the bytes of the scored tokens. It also
 * counts the bytes of the document's first token, although this token is not predicted. "bytes" is
 * 0 if the input was ids.
 *
 * score.by_position_bucket n: the position of a token is the number of tokens that its prediction
 * could see. With document_mask these are the tokens of its document that come before it in the
 * window. Without document_mask they are all tokens that come before it in the window. Bucket b
 * has positions [b*n, (b+1)*n). score-buckets.json:
 *   {"bucket_tokens", "buckets": [{"from", "to", "tokens", "nll", "loss", "ppl"}]}
 * where loss = nll / tokens.
 *
 * score.token_logprobs: token-logprobs.npy has one float64 number for each token of the prepared
 * input. The number is NaN for unscored tokens. The numbers of a document begin at its "offset" in
 * score.jsonl. */
#ifndef SEQD_INFER_SCORE_H
#define SEQD_INFER_SCORE_H

#include "worker/data/data.h"
#include "worker/infer/infer.h"

struct score_sum {
    double nll; /* nats */
    int64_t n_targets, n_bytes;
};
double score_ppl(const struct score_sum *s); /* returns NaN if there are no targets */
/* Returns the bits per byte for text_nll, which is the negative log-likelihood, in nats, of
 * the tokens that represent text. Returns NaN if n_bytes is 0. */
double score_bits_per_byte(double text_nll, int64_t n_bytes);

struct score {
    struct score_sum total; /* rank 0 */
    /* total.nll without the share of the ids that end documents; filled only on rank 0, as
     * n_unscored is */
    double text_nll;
    int64_t n_documents, n_windows, n_unscored;
    /* number of windows whose losses earlier attempts have computed */
    int64_t n_resumed;
    struct infer_pace pace; /* pace of the windows that this attempt computed */
    /* set if every rank has sent, in every window, as many bytes as the plan says */
    bool ledger_equal;
    struct artifact_done artifact; /* score.jsonl, which has one line for each document; filled
                                    * only on rank 0 */
    struct artifact_done buckets;  /* filled on rank 0: score-buckets.json; its name is "" if
                                    * it is not written */
    struct artifact_done logprobs; /* filled on rank 0: token-logprobs.npy; its name is "" if
                                    * it is not written */
};

/* Scores all windows. Collective. Fails with ERR_CORRUPT if a loss is not finite; the error names
 * the window. Also fails with ERR_CORRUPT if a record of the journal changes during the call.
 * Fails with ERR_INTERNAL if the text and the batch have different numbers of targets. Fails with
 * ERR_ABORTED if the job is stopped. Also fails with the errors of the data, of comm and of
 * writing files. */
int score_run(const struct infer *in, const struct data *d, struct score *out, struct err *e);

#endif
