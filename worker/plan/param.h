/* param.h: the tensors of a model, in the order and at the places of the flat layout. */
#ifndef SEQD_PLAN_PARAM_H
#define SEQD_PLAN_PARAM_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/adapter.h"
#include "api/core/model_shape.h"
#include "worker/program/program.h"

/* A tensor of the flat parameter layout. The layout has every tensor of the model, with its name
 * in the checkpoint. The order is the order of the family's program: section `in`, the layers,
 * `out` (worker/family). For example, the layout of the Llama family is:
 *   embed_tokens; per layer input_layernorm, q|k|v, o, post_attention_layernorm, gate|up, down;
 * norm; lm_head unless tied. In this list, `|` joins tensors that have no gap between them, so
 * that one matrix product can use them together. Every other tensor starts at a multiple of 16
 * elements. Gradients and Adam's m and v have the same layout. Offsets and counts are in
 * elements. */
struct param {
    char name[64];      /* "model.layers.3.self_attn.q_proj.weight" */
    int64_t rows, cols; /* cols is 0 if the tensor has one dimension, whose size is rows */
    int64_t offset, count;
    int64_t grad_offset; /* first element in the layout of gradients, if the tensor is trained */
    bool decay;          /* weight decay applies (to matrices) */
    enum init_id init;   /* distribution of its random weights */
    /* As in struct weight: */
    int32_t head_major_parts, head_major_dim, head_major_runs[HEAD_PARTS];
    bool transposed;
    int32_t stack;
    bool frozen; /* the tensor never has a gradient or weight decay */
    /* The tensor has moments and a place in the layout of gradients. With train.freeze, frozen
     * tensors have neither. The trained tensors of a bucket come first. Their gradients have the
     * order and the distances of these tensors. */
    bool trained;
    bool adapter, saved;
    int32_t of_adapter;
    bool of_ids;
    int32_t n_fused;
    int64_t fused[FUSED_PARTS];
    int32_t n_dims;
    int64_t dims[5];
};
/* Returns the number of elements of the flat buffer, including gaps. This is the offset of its
 * end, and a multiple of 16. */
int64_t param_count(const struct model_shape *m);
/* param_section returns the index of the first element of a bucket's weights. param_grad_section
 * returns the index of the first element of the bucket in the layout of gradients, which has only
 * the trained tensors. For the index after the last bucket, both return the end of the layout. */
int64_t param_section(const struct model_shape *m, int bucket);
int64_t param_grad_section(const struct model_shape *m, int bucket);
/* Counts the tensors. */
int param_tensors(const struct model_shape *m);
/* Sets *first and *last to the tensors of a bucket (zero.h), whose indices are [*first, *last).
 * Bucket 0 is `in`, buckets 1 to L are the layers, and bucket L + 1 is `out`. */
void param_range(const struct model_shape *m, int bucket, int *first, int *last);
/* Writes the prefix of the names of a bucket's tensors, such as "model.layers.3.". p is the
 * bucket's program. */
void param_prefix(const struct program *p, int bucket, char out[64]);
/* Writes the name of the embedding's or the head's module, "model.embed_tokens", of a model of
 * text; the head's also if the job does not compute it. Returns false if the model has no head of
 * its own. */
#define PARAM_MODULE_SIZE 128
bool param_module(const struct model_shape *m, enum adapter_saves which,
                  char out[PARAM_MODULE_SIZE]);
/* Tells whether `name` is the module's name, or its last dotted parts. */
bool param_is_named(const char *module, const char *name);
/* Describes tensor i, 0 <= i < param_tensors. */
void param_get(const struct model_shape *m, int i, struct param *out);
/* Describes the tensors of a bucket. out must have room for PROG_WEIGHTS tensors. Returns the
 * number of tensors. If first is not NULL, sets *first to the index of the first tensor. A loop
 * over param_get would take quadratic time instead. */
int param_bucket(const struct model_shape *m, int bucket, struct param *out, int *first);
/* Describes the first max tensors. Returns the number of tensors of the model. */
int param_list(const struct model_shape *m, struct param *out, int max);
/* Returns the number of elements of the blocks in which a tensor of `count` elements is read from
 * files and written to them, or 0 if it is read and written row by row. A tensor has blocks if it
 * is transposed in files, and then it is one block, or if it is a stack of matrices, which are then
 * the blocks. */
static inline int64_t param_block(bool transposed, int32_t stack, int64_t count)
{
    return transposed || stack ? count / (stack ? stack : 1) : 0;
}

#endif
