/* context.h: reads and writes a file with the states of a linear attention model after a context.
 * The safetensors file replaces a prompt of any length:
 *
 *   layers.L.state   F32 [H, Dk, Dv] for every layer; [H, Dk, Dv + 1] if outputs are divided by
 *                    the sum of their weights
 *   context.tokens   I64 [1]: number of tokens of the context, which is also the position of the
 *                    next token
 *   context.model    U8 [64]: SHA-256 of the weights that computed it, in hex (hf_flat_digest)
 * States have no meaning for other weights, so a file of another model is refused. */
#ifndef SEQD_INFER_CONTEXT_H
#define SEQD_INFER_CONTEXT_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"
#include "worker/model/model.h"

/* Layout of the states of all layers, according to the family's programs. A layer of linear
 * attention has one state, which a file can store. A layer of the delta rule or of short
 * convolutions has several states, which it cannot store. */
struct context_layout {
    int64_t n_layers, n_states; /* n_states: layers of linear attention */
    int64_t stride; /* bytes from the states of one layer to those of the next: the size of the
                     * largest, rounded up */
    int64_t size;   /* bytes of the states of all layers: n_layers * stride */
    struct context_state {
        int64_t n_heads, key_dim, value_dim; /* 0 if the layer has no linear attention */
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

/* Copy all states as they are after the tokens that model m has read. context_take copies them out
 * of the model, and context_put copies them into it. m must have been created for generation. */
void context_take(struct model *m, const struct context_layout *l, char *to);
void context_put(struct model *m, const struct context_layout *l, const char *from);

/* Writes path.tmp, which is fsynced and renamed. context_write and context_read both refuse a
 * layout that has layers without a state, with ERR_UNSUPPORTED and the field model.config. */
int context_write(const char *path, const struct context_layout *l, const struct context *c,
                  struct err *e);
/* Fills c->n_tokens and the memory at c->states. c->model must be the digest of the loaded
 * weights. `of` is the remedy that the error gives if other weights computed the file. It follows
 * the word "give", as in "model.path the model that made it". Fails with ERR_CONFLICT and the
 * field context.load if other weights computed the file, and with ERR_CORRUPT or ERR_INVALID,
 * naming file and tensor, if the file is wrong. Otherwise fails as st_open does. */
int context_read(const char *path, const struct context_layout *l, const char *of,
                 struct context *c, struct err *e);

#endif
