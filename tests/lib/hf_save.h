/* hf_save.h: writes weights that are in memory to model directories, and computes digests of these
 * directories. */
#ifndef SEQD_TESTS_HF_SAVE_H
#define SEQD_TESTS_HF_SAVE_H

#include "worker/hf/hf.h"

/* Writes a model directory whose tokenizer maps each byte to a token. */
static inline int hf_save(const char *to, const struct model_shape *m, enum dtype dtype,
                          const void *params, struct err *why)
{
    return hf_save_flat(to, m, &(struct hf_flat){.prefix = "", .data = params, .dtype = dtype},
                        NULL, NULL, why);
}

static inline int hf_weights_digest(const struct model_shape *m, enum dtype dtype,
                                    const void *params, char out[65], struct err *why)
{
    return hf_flat_digest(m, &(struct hf_flat){.prefix = "", .data = params, .dtype = dtype}, out,
                          why);
}

#endif
