/* stored.h: finds and reads a tensor of a directory that has it either plain or in MXFP4. Used
 * only inside worker/hf. */
#ifndef SEQD_HF_STORED_H
#define SEQD_HF_STORED_H

#include "worker/hf/mxfp4.h"
#include "worker/hf/weights.h"

struct hf_stored {
    const struct st_file *f;
    const struct st_tensor *t; /* NULL if the tensor is in mx */
    struct mxfp4 mx;
};

/* Finds the tensor by its name, or its blocks by their names. The directory must have one of the
 * two. */
struct hf_stored hf_stored_find(const struct hf_weights *w, const struct param *p);
/* Reads elements [at, at + n) as fp32, in the file's order. Several threads may read at the same
 * time. Fails as st_read_part and mxfp4_read do. */
int hf_stored_read(const struct hf_stored *x, int64_t at, int64_t n, float *out, struct err *e);
/* Refuses the head of a tied model that is not equal to its embedding. Returns -1. */
int hf_tied_differs(const struct st_file *f, const char *head, struct err *e);

#endif
