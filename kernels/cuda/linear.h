/* linear.h: declarations that the files of linear attention share. The output and the gradients
 * are all computed by a walk over blocks of 64 rows. In a block, rows see each other as in
 * attention without softmax. They see the rows before the block through a state [Dk, Dv]; in a
 * reverse walk, they see the rows after the block:
 *
 *     o  = walk(q, k, v)             dk = reverse walk(v, dO, q)
 *     dq = walk(dO, v, k)            dv = reverse walk(k, q, dO)
 *
 * Rows are divided into segments of 16 blocks, counted from row 0 of the call, so that more than
 * one block of threads can walk a head:
 *
 *     1  summary  walks each segment from a state of zero, which gives the segment's summary
 *     2  scan     folds the summaries in order, which gives the state that enters each segment
 *     3  rows     walks each segment again from the state that enters, and writes the rows
 *
 * States are rounded to fp32 after every block of a walk and every segment of the scan. A row's
 * bits depend only on the rows that it may see. They do not depend on the number of rows, of
 * blocks of threads, or of segments for which the scratch has room.
 *
 * Heads of more than LINEAR_KEYS key columns are walked in pieces of LINEAR_KEYS columns, one
 * after the other. A piece uses some of the rows of the state. The result of each piece is added
 * to out, and out is rounded after each piece.
 *
 *   linear.cu       runs 1 to 3; states at the edges               linear_bf16.cu  tensor cores
 *   linear_bwd.cu   the backward                                   linear_f32.cu   fp32
 *   linear_angle.cu LRPE's angles                hopper_linear.cu   1 and 3 in bf16 for 9.0 */
#ifndef SEQD_CUDA_LINEAR_H
#define SEQD_CUDA_LINEAR_H

#include "kernels/cuda/device.h"

#define LINEAR_T       64  /* rows of a block */
#define LINEAR_SEGMENT 16  /* blocks of a segment */
#define LINEAR_KEYS    256 /* largest number of key columns of a walk */
#define LINEAR_ROWS    (LINEAR_T * LINEAR_SEGMENT)

/* Counts that a kernel derives from the rows' documents. They are stored at the start of the
 * scratch. */
struct linear_ends {
    int64_t n_valid; /* number of rows before the padding at the end */
    int64_t n_see;   /* number of rows whose document began before the chunk */
    int64_t last;    /* the first row that the last document has in the chunk */
};

/* One of the four walks above. out_r is the sum of scale lambda^|r - c| (q_r k_c) v_c over the
 * rows c of r's document with c <= r or, in a reverse walk, with c >= r. */
struct linear_walk {
    struct tensor q, k, v, out;
    int64_t key_dim, value_dim;
    bool reverse;
    /* output: the last state times state_scale, [H, key_dim, value_dim]; NULL if it is not
     * wanted */
    float *state;
    float state_scale; /* factor by which the state that is written is multiplied */
};

/* A walk over one piece of the key columns, in the form that kernels use, for some heads and
 * segments. The grid is (columns of v, heads, segments). q and k begin at this piece of head 0. */
struct linear_part {
    mat q, k, v, out;
    bool wide_q, wide_k, wide_v; /* rows of a head can be read 16 bytes at a time */
    bool pairs;                  /* two elements of out can be written together */
    const double *slope;
    const int64_t *lo;
    const struct linear_ends *ends;
    int64_t pos, n, key_dim, value_dim;
    int64_t head_keys;     /* number of key columns of a head; the piece has key_dim columns */
    bool add;              /* add to out, which already has the sums of the earlier pieces */
    int64_t head, segment; /* first head and first segment of this part */
    int64_t n_heads, n_segments;
    float *states; /* [n_segments, n_heads, key_dim, value_dim]; NULL if no state enters */
    float scale;
    bool reverse;
};

/* Adds scale lambda^distance x_r M to out_r. M is the matrix m of a head, or its transpose. The
 * rows r are either the rows that see the entering state, whose distance is r, or the rows of the
 * last document, whose distance is n_valid - r. */
struct linear_apply {
    struct tensor x, out;
    const float *m; /* [H, rows, cols] */
    int64_t rows, cols;
    bool transposed; /* M is m'; x has `cols` columns for each head, and out has `rows` */
    bool to_end;
    float scale;
};
struct linear_apply_part {
    mat x, out;
    bool wide, pairs;
    const double *slope;
    const struct linear_ends *ends;
    const float *m;
    int64_t n, rows, cols;
    bool transposed, to_end;
    float scale;
    /* linear_bf16.cu: the piece's first column of x, and its first row (or column) of m */
    int64_t from;
};

/* The walks (linear.cu). Each call of a slot first finds the ends. The scratch has the ends and
 * then the states. */
void linear_find_ends(struct cuda *c, const struct linear_args *a);
void linear_walk_run(struct cuda *c, const struct linear_args *a, const struct linear_walk *w);
void linear_apply_run(struct cuda *c, const struct linear_args *a, const struct linear_apply *p);

/* The kernels of linear_bf16.cu (16 bits) and linear_f32.cu. They compute the summary and the rows
 * of a part, and the products with a state. */
void linear_summary_bf16(struct cuda *c, const struct linear_part &p);
void linear_summary_f32(struct cuda *c, const struct linear_part &p);
void linear_rows_bf16(struct cuda *c, const struct linear_part &p);
void linear_rows_f32(struct cuda *c, const struct linear_part &p);
void linear_apply_bf16(struct cuda *c, const struct linear_apply_part &p, int64_t n_heads);
void linear_apply_f32(struct cuda *c, const struct linear_apply_part &p, int64_t n_heads);

/* ---- for the kernels ------------------------------------------------------------------------ */

static __device__ __forceinline__ double linear_power(double slope, int64_t distance)
{
    return distance == 0 ? 1 : exp(-slope * (double)distance);
}

/* The decay of a state over `distance` rows. A decay near 1 would lose digits as a float, and
 * after 10,000 blocks only the error would be left. So if a decay is near 1, the state becomes S +
 * (S expm1(-slope L) + sum). */
struct linear_decay {
    float by;
    bool near_1;
};
static __device__ __forceinline__ linear_decay linear_decay_of(double slope, int64_t distance)
{
    const double power = linear_power(slope, distance);
    const bool near_1 = power >= 0.5;
    return {(float)(near_1 ? expm1(-slope * (double)distance) : power), near_1};
}
static __device__ __forceinline__ float linear_pass(float state, float sum, linear_decay d)
{
    const float x = fmaf(state, d.by, sum);
    return d.near_1 ? state + x : x;
}

/* The powers of a head, in shared memory. A block of threads computes each power once. */
struct linear_powers {
    float power[LINEAR_T + 1];  /* lambda^d */
    float scaled[LINEAR_T + 1]; /* power[d] times scale */
    linear_decay whole, tail;   /* whole: over a block; tail: over the last block of the rows */
};
static __device__ __forceinline__ void linear_fill(linear_powers *t, double slope, float scale,
                                                   int64_t n_valid)
{
    const int d = (int)threadIdx.x;
    if (d <= LINEAR_T) {
        const double power = linear_power(slope, d);
        t->power[d] = (float)power;
        t->scaled[d] = (float)((double)scale * power);
    }
    if (d == LINEAR_T + 1) t->whole = linear_decay_of(slope, LINEAR_T);
    if (d == LINEAR_T + 2) t->tail = linear_decay_of(slope, (n_valid - 1) % LINEAR_T + 1);
}

/* The rows of one block by their use, as ranges of rows that are counted from the block's first
 * row. */
struct linear_span {
    int L;
    int see0, see1; /* rows that see the state */
    int add0, add1; /* rows that are added to the state */
    bool through;   /* the old content of the state is kept */
};

/* Finds the span of a block. lo, in shared memory, has lo of the block's rows and of the row after
 * them. edge is the global index of the block's first row. All lanes of a warp call this
 * function. */
static __device__ __forceinline__ linear_span linear_span_of(const int64_t *lo, int64_t edge, int L,
                                                             bool first, bool last, bool reverse)
{
    const int lane = (int)threadIdx.x % WARP;
    const int began = __popc(__ballot_sync(FULL, lane < L && lo[lane] < edge)) +
                      __popc(__ballot_sync(FULL, lane + WARP < L && lo[lane + WARP] < edge));
    if (!reverse) {
        const int64_t start = lo[L - 1] - edge; /* first row of the last document */
        return {L, 0, first ? 0 : began, start < 0 ? 0 : (int)start, L, start < 0 && !first};
    }
    if (last) return {L, L, L, 0, began, false};
    const int64_t after = lo[L] - edge; /* first row of the document of the row after the block */
    return {L, after < 0 ? 0 : after < L ? (int)after : L, L, 0, began, after < 0};
}

/* Returns the first row of row r's document, counted from the block's first row, or -1 if it is
 * before the block. */
static __device__ __forceinline__ int linear_start(const int64_t *lo, int64_t edge, int r)
{
    const int64_t start = lo[r] - edge;
    return start < 0 ? -1 : (int)start;
}

/* The blocks of rows in the segment that this block of threads walks. */
struct linear_blocks {
    int64_t row0, n_valid;
    int n;
};
static __device__ __forceinline__ linear_blocks linear_blocks_of(const linear_part &p)
{
    const int64_t row0 = (p.segment + blockIdx.z) * LINEAR_ROWS, n_valid = p.ends->n_valid;
    const int64_t n = (n_valid - row0 + LINEAR_T - 1) / LINEAR_T;
    return {row0, n_valid, n < 0 ? 0 : n < LINEAR_SEGMENT ? (int)n : LINEAR_SEGMENT};
}

/* Zeroes columns [c0, c0 + cols) of the segment's rows of padding. */
static __device__ __forceinline__ void linear_zero(const linear_part &p, const linear_blocks &b,
                                                   int64_t c0, int cols)
{
    const int64_t r0 = b.row0 > b.n_valid ? b.row0 : b.n_valid;
    const int64_t r1 = b.row0 + LINEAR_ROWS < p.n ? b.row0 + LINEAR_ROWS : p.n;
    for (int64_t i = threadIdx.x; i < (r1 - r0) * cols; i += blockDim.x)
        set(p.out, r0 + i / cols, c0 + i % cols, 0);
}

static __device__ __forceinline__ float *linear_state(const linear_part &p)
{
    return p.states + (blockIdx.z * p.n_heads + blockIdx.y) * p.key_dim * p.value_dim;
}

#endif
