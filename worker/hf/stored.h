/* stored.h: finds and reads a tensor of a directory, which may be stored either as plain
 * numbers or in MXFP4. Used only inside worker/hf. */
#ifndef SEQD_HF_STORED_H
#define SEQD_HF_STORED_H

#include "worker/hf/mxfp4.h"
#include "worker/hf/weights.h"

struct hf_stored {
    const struct st_file *f;
    const struct st_tensor *t; /* the plain tensor; NULL if the tensor is in MXFP4, as
                                * described by mx */
    struct mxfp4 mx;
};

/* Finds the tensor by its name, or finds its MXFP4 blocks and scales by their names. The
 * directory must have either the tensor, or its blocks and scales. */
struct hf_stored hf_stored_find(const struct hf_weights *w, const struct param *p);
/* Reads elements [at, at + n) as fp32, in the order of the file. Several threads may read at
 * the same time. Fails as st_read_part and mxfp4_read do. */
int hf_stored_read(const struct hf_stored *x, int64_t at, int64_t n, float *out, struct err *e);
/* Sets the error for a tied model whose head differs from its embedding. Returns -1. */
int hf_tied_differs(const struct st_file *f, const char *head, struct err *e);

#endif
