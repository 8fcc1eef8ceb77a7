/* family.h: the model families. One row each of family_table[]; a family is its file here. */
#ifndef SEQD_FAMILY_FAMILY_H
#define SEQD_FAMILY_FAMILY_H

#include "api/core/err.h"
#include "worker/program/program.h"

#define FAMILY_KINDS 4 /* kinds of layer in one model */

/* A whole model, written down. About 250 KB: one per process, filled once. */
struct family {
    int n_kinds;
    struct program in, out, layer[FAMILY_KINDS];
};

enum task_id { MODEL_CAUSAL_LM, MODEL_MASKED_LM, MODEL_DIFFUSION };

struct family_row {
    const char *name; /* config.json's model_type */
    enum task_id task;
    bool linear, softmax; /* which attentions its layers have */
    /* Diffusion: the model whose published weights predict noise, which is not rectified flow; NULL:
     * there are none such. */
    const char *published_on_noise;
    /* Sizes that go together; completes what config.json leaves out. NULL: nothing to do. fails:
     * ERR_INVALID, ERR_UNSUPPORTED naming the key. */
    int (*check)(struct model_shape *m, struct err *e);
    void (*write)(const struct model_shape *m, struct family *f);
    int (*layer_kind)(const struct model_shape *m, int64_t l); /* NULL: all of kind 0 */
};

/* NULL: nobody has written that family down. */
const struct family_row *family_row(const struct model_shape *m);
static inline bool family_diffusion(const struct model_shape *m)
{
    return family_row(m)->task == MODEL_DIFFUSION;
}
/* A masked language model: it reads both ways. */
static inline bool family_masked(const struct model_shape *m)
{
    return family_row(m)->task == MODEL_MASKED_LM;
}
/* What "auto" is without a machine to weigh strategies for: worker/plan/choice.c does that. */
enum strategy_id family_strategy(const struct model_shape *m, int sp);
enum layout_id family_layout(const struct model_shape *m, int strategy, int sp, bool rank_bits);
/* Whether sp ranks may run it so: what family_check() refuses, for those that come after it. */
bool family_takes(const struct model_shape *m, int strategy, int layout, int sp);
/* Runs the family's check: whoever has read a shape completes it before anything is made of it. A
 * completed shape stays as it is. fails: ERR_INVALID, ERR_UNSUPPORTED naming the key. */
int family_complete(struct model_shape *m, struct err *e);
/* The family as this shape has it. m is complete. */
void family_write(const struct model_shape *m, struct family *f);
int family_layer_kind(const struct model_shape *m, int64_t l);
/* The program of layer l. */
const struct program *family_layer(const struct family *f, const struct model_shape *m, int64_t l);

extern const struct family_row family_llama, family_bert, family_tnl, family_linear, family_retnet,
    family_minimax, family_stdit, family_stdit3, family_latte, family_t2d;

#endif
