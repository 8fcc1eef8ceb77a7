/* gguf_names.h: the architectures of GGUF files that can be read, and the names of their tensors
 * in a model directory of transformers. Used only inside worker/gguf and worker/hf. */
#ifndef SEQD_GGUF_GGUF_NAMES_H
#define SEQD_GGUF_GGUF_NAMES_H

#include "worker/gguf/gguf.h"

struct gguf_arch {
    /* value of general.architecture; the names of the architecture's keys begin with this word */
    const char *name;
    const char *model_type; /* of config.json */
    const char *class;      /* of "architectures" */
    /* set if RoPE rotates pairs of adjacent rows of q and k; in that case rows of the first
     * half of a head and rows of its second half alternate */
    bool permuted;
    bool one_more; /* set if the file stores 1 + w for each weight w of a norm */
    bool windowed; /* set if five of six layers have a window, and if the RoPE base of these
                    * layers differs from that of other layers */
};
/* Returns the row of a file's architecture. Fails with ERR_UNSUPPORTED; the error names the
 * architecture. */
const struct gguf_arch *gguf_arch(const struct gguf *g, struct err *e);

/* The tensor of transformers that corresponds to a tensor of a file. */
struct gguf_place {
    char name[192];
    /* set if the tensor is a table that can be computed from config.json, and for that reason
     * is not a weight */
    bool passed;
    bool q, k;     /* `q` is set if rows are permuted within query heads, and `k` is set if
                    * rows are permuted within key heads */
    bool one_more; /* set if 1 must be subtracted from each stored value */
};
/* Translates the name that a tensor has in transformers to its name in a GGUF file. If the
 * table has no row for the name, the name is copied. */
void gguf_name_of(const struct gguf_arch *a, const char *name, char out[GGUF_NAME_SIZE]);
/* Translates the name that a tensor has in a GGUF file to its name in transformers. If the
 * table has no row for the name, the name is copied. */
void gguf_place(const struct gguf_arch *a, const char *name, struct gguf_place *out);

#endif
