/* gguf_names.h: the architectures of GGUF files that are read, and the names that their tensors
 * have in a model directory of transformers. Used only inside worker/gguf and worker/hf. */
#ifndef SEQD_GGUF_GGUF_NAMES_H
#define SEQD_GGUF_GGUF_NAMES_H

#include "worker/gguf/gguf.h"

struct gguf_arch {
    const char *name;       /* value of general.architecture, which is also the first word of the
                             * architecture's keys */
    const char *model_type; /* of config.json */
    const char *class;      /* of "architectures" */
    bool permuted;          /* in q and k, rows of the first and of the second half of a head
                             * alternate, because RoPE rotates adjacent pairs */
    bool one_more;          /* norms hold 1 + the weight */
    bool windowed;          /* five of six layers have a window and another RoPE base */
};
/* Returns the row of a file's architecture. Fails with ERR_UNSUPPORTED, which names the
 * architecture. */
const struct gguf_arch *gguf_arch(const struct gguf *g, struct err *e);

/* A tensor in terms of transformers. */
struct gguf_place {
    char name[192];
    bool passed;   /* true for a table that follows from config.json, and so is not a weight */
    bool q, k;     /* whether rows are permuted within query heads (q) or within key heads (k) */
    bool one_more; /* 1 is subtracted from each value */
};
/* Translates the name of a tensor in transformers to its name in a GGUF file. A name without a row
 * is copied. */
void gguf_name_of(const struct gguf_arch *a, const char *name, char out[GGUF_NAME_SIZE]);
/* Translates the name of a tensor in a GGUF file to its name in transformers. A name without a row
 * is copied. */
void gguf_place(const struct gguf_arch *a, const char *name, struct gguf_place *out);

#endif
