/* DeepSpeed-Ulysses (2309.14509) on a grid, a method with which DSP is compared. It is an
 * all-to-all that exchanges a rank's rows of all heads for all rows of the rank's heads. The block
 * of rank w is [T, sets, H / P, D]. It has T rows of the sender and the heads of the receiver. On
 * the way back, it has T rows of the receiver and the heads of the sender. */
#include "api/core/assert.h"
#include "worker/sp/dsp.h"

static int64_t block_size(const struct dsp *d, const struct dsp_heads *h)
{
    return h->rows.rows * h->rows.cols / d->P * dtype_size(h->rows.dtype);
}

/* Copies the columns of rank w's heads from this rank's rows into a block or, if h->back is set,
 * from the block into the rows. */
static void move_block(struct dsp *d, const struct dsp_heads *h, int w, char *block)
{
    const int64_t size = dtype_size(h->rows.dtype), set = h->rows.cols / h->sets * size;
    const int64_t part = set / d->P, ld = h->rows.ld * size, own = h->sets * part;
    char *rows = (char *)h->rows.data + w * part;
    struct permute_args a = {.dst = block,
                             .src = rows,
                             .n = {1, h->rows.rows, h->sets},
                             .dst_stride = {0, own, part},
                             .src_stride = {0, ld, set},
                             .size = part};
    if (h->back) {
        a.dst = rows, a.src = block;
        for (int i = 1; i < 3; i++) {
            const int64_t stride = a.dst_stride[i];
            a.dst_stride[i] = a.src_stride[i];
            a.src_stride[i] = stride;
        }
    }
    d->be->ops->permute(d->be, &a);
}

int dsp_turn_heads(struct dsp *d, const struct dsp_heads *h, struct err *e)
{
    const int64_t size = block_size(d, h);
    char *heads = h->heads.data, *send = d->send, *recv = d->recv;
    int64_t at[JOB_MAX_RANKS + 1];
    struct comm_exchange x;
    assert(h->heads.ld == h->heads.cols && h->rows.cols % (h->sets * d->P) == 0);
    if (size == 0) return 0;
    for (int w = 0; w <= d->P; w++) at[w] = w * size;
    for (int w = 0; w < d->P; w++) {
        if (w == d->r) continue;
        if (h->back)
            d->be->ops->copy(d->be, send + at[w], heads + at[w], size);
        else
            move_block(d, h, w, send + at[w]);
    }
    const struct comm_blocks from = {send, at}, to = {recv, at};
    if (d->P > 1 && (comm_batch_begin(d->comm, e) ||
                     comm_all_to_all(d->comm, PURPOSE_HEADS, from, to, false, &x, e) ||
                     comm_batch_end(d->comm, e)))
        return -1;
    move_block(d, h, d->r, heads + at[d->r]);
    if (d->P > 1 && comm_all_to_all_wait(d->comm, &x, e)) return -1;
    for (int w = 0; w < d->P; w++) {
        if (w == d->r) continue;
        if (h->back)
            move_block(d, h, w, recv + at[w]);
        else
            d->be->ops->copy(d->be, heads + at[w], recv + at[w], size);
    }
    return 0;
}
