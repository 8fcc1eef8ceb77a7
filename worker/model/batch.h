/* batch.h: one rank's rows of one sequence, in the form that the model reads. worker/data,
 * worker/infer or a test fills the batch; all arrays belong to the caller (the plan). Arrays of
 * tokens have shard.T entries. A family reads only the arrays that its programs name; the other
 * arrays may be NULL. */
#ifndef SEQD_MODEL_BATCH_H
#define SEQD_MODEL_BATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/plan/reach.h"

/* Diffusion: a sample of latents [N0 space, N1 time], divided into patches. Rows of ROWS_T are
 * spread along space, as [n_0, N1]; rows of ROWS_ALT are spread along time, as [n_1, N0]
 * (worker/sp/dsp.h). */
struct batch_latents {
    int64_t grid[3];      /* patches along time (N1), height and width; N0 = height * width */
    double height, width; /* size of the picture in pixels, for POSITION_2D of STDiT3 */
    /* for TIMESTEP, t is from 0 to 1000; for NOISE, t is the index of a step */
    double t, fps;
    int32_t label;  /* EMBED_ADD: the sample's class */
    float *patches; /* [ROWS_T rows, patch values]; rows of padding are 0 */
    /* A row predicts n = patch_t patch_h patch_w places, each of in_channels values. */
    float *target; /* [ROWS_T rows, n, shape_targets()]; NULL if there is no target */
    /* [ROWS_T rows, n]: weight of each place in the loss. It is 0 in padding, in clean frames and
     * in places beyond the sample's edges. */
    float *weight;
    float *text;    /* [n_text, caption channels] */
    int64_t n_text; /* rows of the caption, dropped or not */
    /* n_text rows of the null caption (a weight) are used instead of the caption */
    bool dropped;
};

struct batch {
    int32_t *ids;     /* token of each row; token_pad() in a row of padding */
    int32_t *targets; /* -1 if a row has no target */
    /* RoPE position, counted in the document (reset_positions) or in the sequence */
    int64_t *pos;
    /* global range of keys that the row sees, as in kernels/backend.h; 0, 0 for padding */
    int64_t *lo, *hi;
    int32_t *types; /* BERT: token types; if NULL, every type is 0 */
    /* reach of every segment, without windows; n is 0 if it is not known */
    struct reach_map reach;
    /* global index of the sample, which is part of the key of dropout's masks */
    int64_t sample;
    int64_t n_tokens, n_targets; /* counts over the whole sample and all ranks, without padding */
    /* adaLN: index of each row's conditioning vector, in group[0] for ROWS_T and in group[1] for
     * ROWS_ALT. Vector 0 is that of the sample's t. Vector 1 is that of t = 0; it serves frames
     * that are given to the model without noise. If a group is NULL, every row uses vector 0. */
    int32_t *group[2];
    struct batch_latents latents;
};

/* Rules that decide which rows of a sequence of documents see each other, and how positions are
 * counted. */
struct batch_rules {
    bool causal;        /* a token does not see the tokens after it */
    bool document_mask; /* a token sees only its own document */
    /* positions count from the first token that the document has in the sequence */
    bool reset_positions;
    int64_t n_tokens; /* tokens of the sequence, not counting padding */
};

/* Sets the position and the visible keys of a row. The row has position pos of the sequence, in
 * the document that has positions [begin, end) of the sequence. */
static inline void batch_place(struct batch *b, int64_t row, int64_t pos, int64_t begin,
                               int64_t end, const struct batch_rules *r)
{
    b->pos[row] = r->reset_positions ? pos - begin : pos;
    b->lo[row] = r->document_mask ? begin : 0;
    b->hi[row] = r->causal ? pos + 1 : r->document_mask ? end : r->n_tokens;
}

/* Makes a row padding. pad is its id, which token_pad() returns. */
static inline void batch_pad(struct batch *b, int64_t row, int32_t pad)
{
    b->ids[row] = pad;
    b->targets[row] = -1;
    b->pos[row] = b->lo[row] = b->hi[row] = 0;
}

#endif
