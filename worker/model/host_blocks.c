/* host_blocks.c: copies parts of panels to the host and back. On the host, kernels/quant.c handles
 * a part as if it were a whole weight. A write of some rows of a panel does not change the other
 * rows. */
#include "worker/model/host_blocks.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/mem.h"
#include "kernels/quant.h"

#define BLOCKS 1024 /* largest number of blocks of a part; a part has at most 544 KiB */

/* Neighbouring blocks of a panel, which follow each other in memory. Together they have the form
 * of a weight with at most QUANT_ROWS rows. */
struct panel_part {
    struct tensor there, here; /* the part on the device, and its copy on the host */
    /* row and column in the weight of the part's first element; bytes of the part */
    int64_t row, col, size;
};

/* Returns the part with its first element at (row, col). `row` is the first row of a panel, and
 * `col` is the first column of a block. */
static struct panel_part part_of(struct tensor w, int64_t row, int64_t col, void *room)
{
    const enum weights_id f = dtype_format(w.dtype);
    const int64_t rows = w.rows - row < QUANT_ROWS ? w.rows - row : QUANT_ROWS;
    const int64_t left = w.cols - col, cols = left < BLOCKS * QUANT_K ? left : BLOCKS * QUANT_K;
    char *const at = (char *)w.data + quant_size(f, row, w.cols) + col / QUANT_K * quant_block(f);
    return (struct panel_part){.there = tensor_of(w.dtype, at, rows, cols, cols),
                               .here = tensor_of(w.dtype, room, rows, cols, cols),
                               .row = row,
                               .col = col,
                               .size = cols / QUANT_K * quant_block(f)};
}

/* A copy of elements [at, at + n) of w. */
struct block_copy {
    struct be *be;
    struct tensor w;
    struct panel_part part;
    int64_t at, n;
    const float *in;
    const uint8_t *blocks; /* blocks to write, if they are given instead of `in` */
    float *out;
};

/* Returns the number of elements to be copied in row r of the part. Sets *first to the index of
 * the first of them in the part. */
static int64_t run_of(const struct block_copy *c, int64_t r, int64_t *first)
{
    const struct panel_part *p = &c->part;
    const int64_t row = (p->row + r) * c->w.cols + p->col, end = row + p->here.cols;
    const int64_t from = row < c->at ? c->at : row, to = end < c->at + c->n ? end : c->at + c->n;
    *first = r * p->here.cols + from - row;
    return to > from ? to - from : 0;
}

/* Returns the index of an element of the part among the elements that are to be copied. */
static int64_t place(const struct block_copy *c, int64_t r, int64_t first)
{
    return (c->part.row + r) * c->w.cols + c->part.col + first - r * c->part.here.cols - c->at;
}

static void put_row(void *arg, int64_t r, int worker)
{
    const struct block_copy *c = arg;
    int64_t first;
    const int64_t n = run_of(c, r, &first);
    (void)worker;
    if (!n) return;
    const int64_t at = place(c, r, first);
    if (c->blocks)
        quant_put_blocks(c->part.here, first, n,
                         c->blocks + quant_row(dtype_format(c->w.dtype), at));
    else
        quant_put(c->part.here, first, n, c->in + at);
}

static void put_part(struct block_copy *c)
{
    const struct panel_part *p = &c->part;
    int64_t have = 0, first;
    for (int64_t r = 0; r < p->here.rows; r++) have += run_of(c, r, &first);
    if (!have) return;
    if (have < p->here.rows * p->here.cols)
        c->be->ops->download(c->be, p->here.data, p->there.data, p->size);
    else
        /* clears the rows after the last row of the weight */
        memset(p->here.data, 0, (size_t)p->size);
    be_host_run(c->be, put_row, c, p->here.rows);
    c->be->ops->upload(c->be, p->there.data, p->here.data, p->size);
}

static void get_part(struct block_copy *c)
{
    const struct panel_part *p = &c->part;
    bool there = false;
    for (int64_t r = 0; r < p->here.rows; r++) {
        int64_t first;
        const int64_t n = run_of(c, r, &first);
        if (!n) continue;
        if (!there) c->be->ops->download(c->be, p->here.data, p->there.data, p->size);
        there = true;
        quant_get(p->here, first, n, c->out + place(c, r, first));
    }
}

/* Calls one() for each part of the panels that has elements to be copied. */
static void each_part(struct block_copy *c, void (*one)(struct block_copy *))
{
    void *const room = c->n ? mem_scratch(BLOCKS * QUANT_INT8) : NULL;
    const int64_t end = c->n ? (c->at + c->n - 1) / c->w.cols + 1 : 0;
    for (int64_t row = c->at / c->w.cols / QUANT_ROWS * QUANT_ROWS; row < end; row += QUANT_ROWS)
        for (int64_t col = 0; col < c->w.cols; col += BLOCKS * QUANT_K) {
            c->part = part_of(c->w, row, col, room);
            one(c);
        }
    free(room);
}

void host_blocks_in(struct be *be, struct tensor w, int64_t at, int64_t n, const float *x)
{
    if (be->own_memory)
        each_part(&(struct block_copy){.be = be, .w = w, .at = at, .n = n, .in = x}, put_part);
    else
        quant_put(w, at, n, x);
}

void host_blocks_take(struct be *be, struct tensor w, int64_t at, int64_t n, const uint8_t *blocks)
{
    if (be->own_memory)
        each_part(&(struct block_copy){.be = be, .w = w, .at = at, .n = n, .blocks = blocks},
                  put_part);
    else
        quant_put_blocks(w, at, n, blocks);
}

void host_blocks_out(struct be *be, struct tensor w, int64_t at, int64_t n, float *out)
{
    if (be->own_memory)
        each_part(&(struct block_copy){.be = be, .w = w, .at = at, .n = n, .out = out}, get_part);
    else
        quant_get(w, at, n, out);
}

int64_t host_blocks_not_finite(struct be *be, struct tensor w, bool *past)
{
    int64_t found = -1;
    if (!be->own_memory) return quant_not_finite(w, past);
    void *const room = mem_scratch(BLOCKS * QUANT_INT8);
    for (int64_t row = 0; row < w.rows && found < 0; row += QUANT_ROWS)
        for (int64_t col = 0; col < w.cols && found < 0; col += BLOCKS * QUANT_K) {
            const struct panel_part p = part_of(w, row, col, room);
            be->ops->download(be, room, p.there.data, p.size);
            const int64_t at = quant_not_finite(p.here, past), cols = p.here.cols;
            if (at >= 0) found = (row + at / cols) * w.cols + col + at % cols;
        }
    free(room);
    return found;
}
