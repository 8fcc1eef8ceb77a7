/* context.h: reads and writes a file with the states of a linear attention model after a context.
 *
 * The safetensors file replaces a prompt of any length:
 *   layers.L.state   F32 [H, Dk, Dv] of every layer; [H, Dk, Dv + 1] if outputs are divided by the
 *                    sum of their weights
 *   context.tokens   I64 [1]: number of tokens of the context; positions continue from there
 *   context.model    U8 [64]: SHA-256 of the weights that computed it, in hex (hf_flat_digest)
 * A state has no meaning for other weights, so a file of another model is refused. */
#ifndef SEQD_INFER_CONTEXT_H
#define SEQD_INFER_CONTEXT_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"
#include "worker/model/model.h"

/* Layout of the states of all layers, by the family's programs. A layer of linear attention has
 * one state, which a file can hold. A layer of the delta rule or of short convolutions has several
 * states. */
struct context_layout {
    int64_t n_layers, n_states; /* n_states: layers of linear attention */
    int64_t stride; /* bytes from one layer's states to the next: the largest size, rounded up */
    int64_t size;   /* bytes of all states: n_layers * stride */
    struct context_state {
        int64_t n_heads, key_dim, value_dim; /* 0: the layer has no linear attention */
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

/* Copy all states after the tokens that model m has read: context_take copies them out of the
 * model, context_put into it. m must have been created for generation. */
void context_take(struct model *m, const struct context_layout *l, char *to);
void context_put(struct model *m, const struct context_layout *l, const char *from);

/* Writes path.tmp, which is fsynced and renamed. context_write and context_read refuse a layout
 * that has layers without a state: ERR_UNSUPPORTED, model.config. */
int context_write(const char *path, const struct context_layout *l, const struct context *c,
                  struct err *e);
/* Fills c->n_tokens and the memory at c->states. c->model: digest of the loaded weights. of: the
 * remedy for other weights, after "give": "model.path the model that made it".
 * fails: ERR_CONFLICT, field context.load, if other weights computed the file; ERR_CORRUPT and
 * ERR_INVALID naming file and tensor; as st_open. */
int context_read(const char *path, const struct context_layout *l, const char *of,
                 struct context *c, struct err *e);

#endif
