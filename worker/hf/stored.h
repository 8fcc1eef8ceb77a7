/* stored.h: a tensor as a directory has it: plain, or as the blocks that stand for it. Inside
 * worker/hf. */
#ifndef SEQD_HF_STORED_H
#define SEQD_HF_STORED_H

#include "worker/hf/mxfp4.h"
#include "worker/hf/weights.h"

struct hf_stored {
    const struct st_file *f;
    const struct st_tensor *t; /* NULL: mx has it */
    struct mxfp4 mx;
};

/* Looks up the name of the tensor, or of its blocks: one of the two is there. */
struct hf_stored hf_stored_find(const struct hf_weights *w, const struct param *p);
/* Reads elements [at, at + n) as fp32, in the file's order. Threads may read at the same time.
 * fails: as st_read_part and mxfp4_read. */
int hf_stored_read(const struct hf_stored *x, int64_t at, int64_t n, float *out, struct err *e);
/* Refuses a tied model's head that is not its embedding. Returns -1. */
int hf_tied_differs(const struct st_file *f, const char *head, struct err *e);

#endif
