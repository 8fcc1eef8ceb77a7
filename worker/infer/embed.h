/* embed.h: computes a vector for every document by pooling its hidden states.
 *
 * A pass computes several documents, which are joined end to end in the order of the input. It
 * has as many documents as fit in data.seq_len, but at most 256. A document attends only to
 * itself, and its positions count from 0. Compared with a pass that computes only one document,
 * its vector differs only by the rounding of sums. If infer_packs() is false, each pass computes
 * only one document. If a state is not finite, each document of the pass is computed alone, and
 * the error names the first document whose own states are not finite.
 *
 * The token that ends documents is not part of a document, because models are not trained to
 * predict a token after it. Hidden states are the input of the head, which are the states after
 * the last layer and the final norm.
 *   last   the state of the last token, which attends to the whole document
 *   mean   the mean over the document's tokens, summed in double
 *   cls    the state of the first token
 * If normalize is set, the vector is divided by its 2-norm; a zero vector is unchanged. If a
 * document is longer than data.seq_len, the job fails before any document is computed, and the
 * error names the document. With data.overlong "truncate" the document is shortened instead. A
 * shortened document keeps the ids that the post-processor of the model's tokenizer has put after
 * the text.
 *
 *   embeddings.npy         float32 [documents, C], in the order of the prepared input
 *   embeddings.ids.jsonl   {"index", "document", "file", "record", "tokens", "offset"}, one line
 *                          per row of the array; record is the line of a JSONL file
 * The number of ranks changes the vectors only by the rounding of fp32 attention. */
#ifndef SEQD_INFER_EMBED_H
#define SEQD_INFER_EMBED_H

#include "worker/data/data.h"
#include "worker/infer/infer.h"

struct embed {
    int64_t n_documents, n_tokens, n_truncated, width;
    int64_t n_passes;       /* number of passes through the layers */
    struct infer_pace pace; /* number of tokens and duration of all passes together */
    bool ledger_equal;
    struct artifact_done vectors, ids; /* rank 0 */
};

/* Embeds all documents. Collective. Fails with ERR_TOO_LARGE if a document is too long; the error
 * names the document. Fails with ERR_CORRUPT if a state is not finite, and with ERR_ABORTED if the
 * job is stopped. Also fails with the errors of the data and of comm, or with ERR_IO or
 * ERR_NO_SPACE. */
int embed_run(const struct infer *in, const struct data *d, struct embed *out, struct err *e);

#endif
