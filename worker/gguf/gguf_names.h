/* gguf_names.h: the architectures of GGUF files that are read, and the names of their tensors in a
 * model directory of transformers. Inside worker/gguf and worker/hf. */
#ifndef SEQD_GGUF_GGUF_NAMES_H
#define SEQD_GGUF_GGUF_NAMES_H

#include "worker/gguf/gguf.h"

struct gguf_arch {
    const char *name;       /* value of general.architecture, and first word of the architecture's
                             * keys */
    const char *model_type; /* of config.json */
    const char *class;      /* of "architectures" */
    bool permuted;          /* rows of q and k alternate between both halves of a head, for RoPE on
                             * adjacent pairs */
    bool one_more;          /* norms hold 1 + the weight */
    bool windowed;          /* five of six layers have a window, and another RoPE base */
};
/* Returns the row of a file's architecture. fails: ERR_UNSUPPORTED naming it. */
const struct gguf_arch *gguf_arch(const struct gguf *g, struct err *e);

/* A tensor in terms of transformers. */
struct gguf_place {
    char name[192];
    bool passed;   /* it is a table that config.json implies, not a weight */
    bool q, k;     /* rows are permuted within query heads (q) or key heads (k) */
    bool one_more; /* 1 is subtracted from each value */
};
/* Translates a tensor's name in transformers to its name in a GGUF file. A name that no row has is
 * copied. */
void gguf_name_of(const struct gguf_arch *a, const char *name, char out[GGUF_NAME_SIZE]);
/* Translates a tensor's name in a GGUF file. A name that no row has is copied. */
void gguf_place(const struct gguf_arch *a, const char *name, struct gguf_place *out);

#endif
