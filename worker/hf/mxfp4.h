/* mxfp4.h: reads weights in MXFP4, the format of the experts in gpt-oss files. Used only inside
 * worker/hf. In place of a stacked tensor NAME of shape [stack, cols, rows], a file has
 *   NAME_blocks  U8 [stack, rows, cols / 32, 16]: 32 values of 4 bits each (E2M1). A byte has
 *                two values, and the low bits of the byte have the first value
 *   NAME_scales  U8 [stack, rows, cols / 32]: 2^(scale - 127) is the factor of 32 values (E8M0)
 * bf16 represents every value of MXFP4 exactly. MXFP4 is only read. Weights are always written
 * as plain numbers. from: OCP Microscaling Formats 1.0; transformers, integrations/mxfp4.py */
#ifndef SEQD_HF_MXFP4_H
#define SEQD_HF_MXFP4_H

#include "worker/hf/weights.h"

struct mxfp4 {
    struct st_file *block_file, *scale_file;
    const struct st_tensor *blocks, *scales;
};

/* mxfp4_find returns true if the directory has tensor p in MXFP4. p must be stacked and
 * transposed. mxfp4_fits returns true if blocks and scales have the shapes that p needs. */
bool mxfp4_find(const struct hf_weights *w, const struct param *p, struct mxfp4 *out);
bool mxfp4_fits(const struct mxfp4 *x, const struct param *p);
/* Returns true if `name` is the name of blocks or scales. In that case out gets the name of
 * the tensor to which the blocks or scales belong. */
bool mxfp4_part(const char *name, char *out, size_t size);
/* Reads values [at, at + n) of the array [stack, rows, cols]. at and n must be multiples of
 * 32. Fails with ERR_CORRUPT if a scale is NaN (255). Also fails as st_read_bytes does. */
int mxfp4_read(const struct mxfp4 *x, int64_t at, int64_t n, float *out, struct err *e);

#endif
