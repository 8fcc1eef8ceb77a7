/* context.h: reads and writes a file with the states of a linear attention model after a context.
 * With such a safetensors file a job need not compute the prompt again, however long the prompt
 * is:
 *
 *   layers.L.state   F32 [H, Dk, Dv] for every layer; [H, Dk, Dv + 1] if outputs are divided by
 *                    the sum of their weights
 *   context.tokens   I64 [1]: number of tokens of the context, which is also the position of the
 *                    next token
 *   context.model    U8 [64]: SHA-256 of the weights that computed the states, in hex
 *                    (hf_flat_digest)
 * The states are useful only with the weights that computed them, so a file that another model
 * has computed is refused. */
#ifndef SEQD_INFER_CONTEXT_H
#define SEQD_INFER_CONTEXT_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"
#include "worker/model/model.h"

/* Layout of the states of all layers, as the programs of the model family define it. A layer
 * of linear attention has one state, and a file can store it. A layer of the delta rule or of
 * short convolutions has several states, and a file cannot store them. */
struct context_layout {
    int64_t n_layers, n_states; /* n_states is the number of layers of linear attention */
    /* Bytes from the states of one layer to the states of the next layer. This is the size of the
     * largest layer's states, rounded up. */
    int64_t stride;
    int64_t size; /* bytes of the states of all layers: n_layers * stride */
    struct context_state {
        int64_t n_heads, key_dim, value_dim; /* sizes of the layer's state; n_heads is 0 if the
                                              * layer has no linear attention */
    } * layer;                               /* owned, [n_layers] */
};
int context_layout_init(struct context_layout *c, const struct model_shape *m, struct err *e);
void context_layout_fini(struct context_layout *c);

struct context {
    char model[SHA256_HEX];
    int64_t n_tokens;
    char *states;   /* borrowed; layout->size bytes */
    int64_t stride; /* stride of the layout */
};

/* Copy the states of all layers, as they are after the tokens that model m has read.
 * context_take copies the states out of the model, and context_put copies them into the model.
 * m must have been created for generation. */
void context_take(struct model *m, const struct context_layout *l, char *to);
void context_put(struct model *m, const struct context_layout *l, const char *from);

/* Writes path.tmp, syncs it and renames it to path. context_write and context_read both fail with
 * ERR_UNSUPPORTED and the field model.config if the layout has layers without a state. */
int context_write(const char *path, const struct context_layout *l, const struct context *c,
                  struct err *e);
/* Reads a file. Fills c->n_tokens and the memory at c->states. c->model must be the digest of
 * the loaded weights. Fails with ERR_CONFLICT and the field context.load if other weights
 * computed the file. In that case the text of the error has the word "give" followed by the
 * parameter `of`, for example "model.path the model that made it". Fails with ERR_CORRUPT or
 * ERR_INVALID if the file is wrong; the error names file and tensor. Otherwise fails as
 * st_open does. */
int context_read(const char *path, const struct context_layout *l, const char *of,
                 struct context *c, struct err *e);

#endif
