/* batch.h: one rank's rows of one sequence, in the form that the model reads. worker/data,
 * worker/infer or a test fills the batch; all arrays belong to the caller (the plan). Arrays of
 * tokens have shard.T entries. A family reads only the arrays that its programs name; the other
 * arrays may be NULL. */
#ifndef SEQD_MODEL_BATCH_H
#define SEQD_MODEL_BATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/plan/reach.h"

/* Diffusion: a sample of latents, divided into patches. The patches have N0 places along space and
 * N1 along time. Rows of ROWS_T are spread over the ranks along space, so a rank has [n_0, N1]
 * rows. Rows of ROWS_ALT are spread along time, so a rank has [n_1, N0] rows (worker/sp/dsp.h). */
struct batch_latents {
    /* number of patches along time (N1), height and width; N0 = height * width */
    int64_t grid[3];
    double height, width; /* size of the picture in pixels, for POSITION_2D of STDiT3 */
    /* t is from 0 to 1000 for TIMESTEP, and the index of a step for NOISE */
    double t, fps;
    int32_t label;  /* EMBED_ADD: the sample's class */
    float *patches; /* [ROWS_T rows, patch values]; rows of padding are 0 */
    /* Each row predicts n = patch_t patch_h patch_w places, and each place has in_channels
     * values. */
    float *target; /* [ROWS_T rows, n, shape_targets()]; NULL if there is no target */
    /* [ROWS_T rows, n]: weight of each place in the loss. The weight is 0 in padding, in clean
     * frames and in places beyond the sample's edges. */
    float *weight;
    float *text; /* [n_text, caption channels] */
    /* number of rows of the caption, even if the caption is dropped */
    int64_t n_text;
    /* if set, n_text rows of the null caption (a weight) replace the caption */
    bool dropped;
};

struct batch {
    int32_t *ids;     /* token of each row; a row of padding has token_pad() */
    int32_t *targets; /* -1 if a row has no target */
    /* factor of each row's loss in the gradient; NULL if all factors are 1 */
    float *weight;
    /* RoPE position of each row, counted from the start of its document (reset_positions) or of
     * the sequence */
    int64_t *pos;
    /* global range of the keys that each row sees, as in kernels/backend.h; 0, 0 for padding */
    int64_t *lo, *hi;
    int32_t *types; /* BERT: token types; if NULL, every type is 0 */
    /* the keys that each segment reaches, without windows; n is 0 if this is not known */
    struct reach_map reach;
    /* global index of the sample, which is part of the key of dropout's masks */
    int64_t sample;
    int64_t n_tokens, n_targets; /* counts over the whole sample on all ranks, without padding */
    /* adaLN: the index of each row's conditioning vector. group[0] is for ROWS_T, and group[1] for
     * ROWS_ALT. Vector 0 is the vector of the sample's t. Vector 1 is the vector of t = 0, for
     * frames that are given to the model without noise. If a group is NULL, every row uses vector
     * 0. */
    int32_t *group[2];
    struct batch_latents latents;
};

/* Rules for a sequence of documents. They decide which rows see each other, and how positions are
 * counted. */
struct batch_rules {
    bool causal;        /* a token does not see the tokens after it */
    bool document_mask; /* a token sees only its own document */
    /* positions are counted from the document's first token in the sequence */
    bool reset_positions;
    int64_t n_tokens; /* tokens of the sequence, not counting padding */
};

/* Sets the position and the visible keys of a row. pos is the row's position in the sequence. The
 * row's document has positions [begin, end) of the sequence. */
static inline void batch_place(struct batch *b, int64_t row, int64_t pos, int64_t begin,
                               int64_t end, const struct batch_rules *r)
{
    b->pos[row] = r->reset_positions ? pos - begin : pos;
    b->lo[row] = r->document_mask ? begin : 0;
    b->hi[row] = r->causal ? pos + 1 : r->document_mask ? end : r->n_tokens;
}

/* Makes a row padding. pad is the id of padding, which token_pad() returns. */
static inline void batch_pad(struct batch *b, int64_t row, int32_t pad)
{
    b->ids[row] = pad;
    b->targets[row] = -1;
    b->pos[row] = b->lo[row] = b->hi[row] = 0;
}

#endif
