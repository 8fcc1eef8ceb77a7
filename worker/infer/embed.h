/* embed.h: computes a vector for every document: its pooled hidden states.
 *
 * A pass takes documents in the order of the input, end to end, as many as fit data.seq_len, at
 * most 256. A document attends only to itself and counts its positions from 0. Its vector differs
 * from that of a separate pass only by the rounding of sums. If infer_packs() is false, each
 * document has its own pass. If a state is not finite, each document of the pass is computed
 * alone, and the error names the first document whose own states are not finite.
 *
 * The token that ends documents is not part of a document (models are not trained to predict a
 * token after it). Hidden states are the input of the head: the states after the last layer and
 * the final norm.
 *   last   the state of the last token, which attends to the whole document
 *   mean   the mean over the document's tokens, summed in double
 *   cls    the state of the first token
 * normalize: the vector is divided by its 2-norm; a zero vector stays zero.
 * A document longer than data.seq_len is an error that names it, before any document is computed.
 * Under data.overlong "truncate" it is cut instead, but keeps the ids that the post-processor of
 * the model's tokenizer has put after the text.
 *
 *   embeddings.npy         float32 [documents, C], in the order of the prepared input
 *   embeddings.ids.jsonl   {"index", "document", "file", "record", "tokens", "offset"}, a line per
 *                          row of the array; record: the line of a JSONL file
 * The number of ranks changes the vectors only by the rounding of fp32 attention. */
#ifndef SEQD_INFER_EMBED_H
#define SEQD_INFER_EMBED_H

#include "worker/data/data.h"
#include "worker/infer/infer.h"

struct embed {
    int64_t n_documents, n_tokens, n_truncated, width;
    int64_t n_passes;       /* passes through the layers */
    struct infer_pace pace; /* tokens and time of all passes */
    bool ledger_equal;
    struct artifact_done vectors, ids; /* rank 0 */
};

/* Embeds all documents. Collective. fails: ERR_TOO_LARGE naming the document; ERR_CORRUPT when a
 * state is not finite; the data's and comm's errors; ERR_ABORTED; ERR_IO, ERR_NO_SPACE. */
int embed_run(const struct infer *in, const struct data *d, struct embed *out, struct err *e);

#endif
