/* gguf_names.h: the architectures of GGUF files that are read, and the names that their tensors
 * have in a directory of transformers. Inside worker/gguf and worker/hf. */
#ifndef SEQD_GGUF_GGUF_NAMES_H
#define SEQD_GGUF_GGUF_NAMES_H

#include "worker/gguf/gguf.h"

struct gguf_arch {
    const char *name;       /* general.architecture, and the first word of its keys */
    const char *model_type; /* of config.json */
    const char *class;      /* of "architectures" */
    bool permuted;          /* rows of q and k: both halves of a head in turn, for RoPE by pairs */
    bool one_more;          /* norms hold 1 + the weight */
    bool windowed;          /* five of six layers have a window, and another RoPE base */
};
/* Returns the row of a file's architecture. fails: ERR_UNSUPPORTED naming it. */
const struct gguf_arch *gguf_arch(const struct gguf *g, struct err *e);

/* A tensor in terms of transformers. */
struct gguf_place {
    char name[192];
    bool passed;   /* it is a table that config.json says: no weight */
    bool q, k;     /* rows are permuted, in query heads or in key heads */
    bool one_more; /* 1 is taken off */
};
/* Writes the name in a GGUF file of a tensor with a name of transformers. A name that no row has
 * stays as it is. */
void gguf_name_of(const struct gguf_arch *a, const char *name, char out[GGUF_NAME_SIZE]);
/* A name that no row has stays as it is. */
void gguf_place(const struct gguf_arch *a, const char *name, struct gguf_place *out);

#endif
