/* batch.h: one rank's rows of one sequence, as the model reads them. worker/data, worker/infer
 * or a test fills the batch; all arrays belong to the caller (the plan). Arrays of tokens have
 * shard.T entries. A family reads only the arrays that its programs name; the others may be
 * NULL. */
#ifndef SEQD_MODEL_BATCH_H
#define SEQD_MODEL_BATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "worker/plan/reach.h"

/* Diffusion: a sample of latents [N0 space, N1 time] in patches. Rows of ROWS_T are spread along
 * space, [n_0, N1]; rows of ROWS_ALT along time, [n_1, N0] (worker/sp/dsp.h). */
struct batch_latents {
    int64_t grid[3];      /* patches: frames N1, height, width; N0 = height * width */
    double height, width; /* pixels of the picture, for POSITION_2D of STDiT3 */
    double t, fps;        /* TIMESTEP: t is 0 .. 1000; NOISE: t is the number of a step */
    int32_t label;        /* EMBED_ADD: the sample's class */
    float *patches;       /* [ROWS_T rows, patch values]; pads 0 */
    /* A row predicts n = patch_t patch_h patch_w places of in_channels values each. */
    float *target;  /* [ROWS_T rows, n, shape_targets()]; NULL: none */
    float *weight;  /* [ROWS_T rows, n]: weight of the place in the loss; 0: pads, clean frames,
                     * places beyond the sample's edges */
    float *text;    /* [n_text, caption channels] */
    int64_t n_text; /* rows of the caption, dropped or not */
    bool dropped;   /* n_text rows of the null caption (a weight) replace the caption */
};

struct batch {
    int32_t *ids;     /* token of each row; token_pad() on padding */
    int32_t *targets; /* -1: none */
    int64_t *pos;     /* RoPE position: in its document (reset_positions) or in the sequence */
    int64_t *lo, *hi; /* visible global key range, as in kernels/backend.h; padding: 0, 0 */
    int32_t *types;   /* BERT: token type; NULL: all 0 */
    struct reach_map reach;      /* reach of every segment, without windows; n 0: not known */
    int64_t sample;              /* global number: dropout's masks are keyed by it */
    int64_t n_tokens, n_targets; /* counts of the whole sample, all ranks, without padding */
    /* adaLN: number of each row's conditioning vector, [0] for ROWS_T and [1] for ROWS_ALT. Vector
     * 0 is that of the sample's t; vector 1 that of t = 0, for frames that are given clean. NULL:
     * all 0. */
    int32_t *group[2];
    struct batch_latents latents;
};

/* Rules by which the rows of a sequence of documents see each other and count their positions. */
struct batch_rules {
    bool causal;          /* a token sees none after it */
    bool document_mask;   /* a token sees its own document alone */
    bool reset_positions; /* positions count from the document's first token in the sequence */
    int64_t n_tokens;     /* tokens of the sequence, without padding */
};

/* Sets the position and the visible keys of a row. The row holds position pos of the sequence, in
 * the document that has positions [begin, end) there. */
static inline void batch_place(struct batch *b, int64_t row, int64_t pos, int64_t begin,
                               int64_t end, const struct batch_rules *r)
{
    b->pos[row] = r->reset_positions ? pos - begin : pos;
    b->lo[row] = r->document_mask ? begin : 0;
    b->hi[row] = r->causal ? pos + 1 : r->document_mask ? end : r->n_tokens;
}

/* Makes a row padding. pad: its id, token_pad(). */
static inline void batch_pad(struct batch *b, int64_t row, int32_t pad)
{
    b->ids[row] = pad;
    b->targets[row] = -1;
    b->pos[row] = b->lo[row] = b->hi[row] = 0;
}

#endif
