/* embed.h: a vector for every document: its pooled hidden states.
 *
 * A pass takes documents in the order of the input, end to end, as many as fit data.seq_len, at
 * most 256. A document sees itself alone and counts its positions from 0: its vector differs from
 * that of a pass of its own by the rounding of sums alone. If infer_packs() is false, each document
 * has its own pass. If a state is not finite, each document of the pass is computed alone, and the
 * error names the first whose own states are not finite.
 *
 * The token that ends documents is not part of one (a model learns nothing of the state after that
 * token: no token follows it). Hidden states are those after the last layer and the final norm: the
 * head's input.
 *   last   of the last token, which has seen the whole document
 *   mean   over its tokens, summed in double
 *   cls    of the first token
 * normalize: divided by its length (2-norm); a zero vector stays zero.
 * A document longer than data.seq_len is an error that names it, before anything is computed.
 * Under data.overlong "truncate" it is cut off instead; the ids that the post-processor of the
 * model's tokenizer has put after a text stay.
 *
 *   embeddings.npy         float32 [documents, C], in the order of the prepared input
 *   embeddings.ids.jsonl   {"index", "document", "file", "record", "tokens", "offset"} a line:
 *                          a row's document; record: the line of a JSONL file
 * The number of ranks changes the numbers only by the rounding of fp32 attention. */
#ifndef SEQD_INFER_EMBED_H
#define SEQD_INFER_EMBED_H

#include "worker/data/data.h"
#include "worker/infer/infer.h"

struct embed {
    int64_t n_documents, n_tokens, n_truncated, width;
    int64_t n_passes;       /* passes through the layers */
    struct infer_pace pace; /* tokens of all passes, from ids to states */
    bool ledger_equal;
    struct artifact_done vectors, ids; /* rank 0 */
};

/* Embeds all documents. Collective. fails: ERR_TOO_LARGE naming the document; ERR_CORRUPT when a
 * state is not finite; the data's and comm's errors; ERR_ABORTED; ERR_IO, ERR_NO_SPACE. */
int embed_run(const struct infer *in, const struct data *d, struct embed *out, struct err *e);

#endif
