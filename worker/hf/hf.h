/* hf.h: reads and writes model directories in the form of the Python package transformers.
 *   config.json            <-> struct model_shape. The keys of transformers v4 and v5 and of each
 *                              family are read. A model whose family, activation or rule of RoPE
 *                              seqd cannot compute is refused, and the error names the key
 *                              (worker/family/config_table.h)
 *   model.safetensors, or model.safetensors.index.json and its shards  <-> flat parameters
 *   all other files            copied from the directory of the original weights (struct
 *                              hf_beside, worker/hf/files.h), or those of the byte tokenizer
 * Flat parameters are one array of fp32, bf16 or fp16 with param_count(shape) elements laid
 * out by param_list (worker/plan/plan.h). Files do not have the gaps that align tensors. In a
 * tied model the embedding is stored once. If a file also has the head, head and embedding
 * must be equal. Names are read with and without family_base, and written in the form in which
 * they were read. The old names of BERT's tensors (gamma, beta) are read, and its pooler is
 * skipped. */
#ifndef SEQD_HF_HF_H
#define SEQD_HF_HF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/model_shape.h"
#include "kernels/backend.h"
#include "worker/family/config.h"
#include "worker/plan/plan.h"

/* Files to write to the directory in addition to the weights. */
struct hf_beside {
    const char *from; /* directory whose files and keys are copied; it must be a directory of the
                       * model that is written; NULL if there is no such directory */
    bool bytes; /* whether the model was trained on bytes. If so, and if `from` has a tokenizer
                 * that is not the byte tokenizer, the byte tokenizer and the ids of its
                 * special tokens are written */
    void (*still)(void *arg); /* called while files are copied; may be NULL */
    void *arg;
};
/* Writes the family's config.json for weights of this dtype, to a temporary file that it
 * renames. If b->from has a config.json, the keys of that file are kept, with two exceptions.
 * quantization_config is left out. The job sets the dtype, rope_theta and the rule of RoPE,
 * the objective of the training, and ids of special tokens. If b is NULL, the model is a new
 * model that trains on bytes. Fails with ERR_CONFLICT if the model in `from` is not the model
 * m. If the config.json of `from` is wrong, fails as config_parse does. Also fails with ERR_IO
 * or ERR_NO_SPACE. */
int hf_config_write(const char *dir, const struct model_shape *m, enum dtype dtype,
                    const struct hf_beside *b, struct err *e);

/* Writes the family's sizes as one line of JSON. It has the keys of model.config in a job spec,
 * and "n_params" (elements of all tensors). `seqrank --describe DIR` prints this line, and the
 * agent passes it to seqd. Returns the length, or -1 if it does not fit. */
int64_t hf_shape_json(const struct model_shape *m, char *out, size_t size);
/* Calls config_read_dir and hf_embedding_read. Also reads those properties of the model that
 * are in other files, which are shape.tokenizer, shape.weightless, shape.headless,
 * shape.unprefixed and, for a masked language model, shape.mask. */
int hf_read_dir(const char *dir, struct model_shape *m, struct err *e);
/* Calls hf_read_dir and hf_shape_json. If DIR has weights, checks that their tensors are those of
 * the shape that was read. Returns the length, or -1 with *e set. */
int64_t hf_describe(const char *dir, char *out, size_t size, struct err *e);

/* Returns the config.json key of the first size in which two shapes differ, or NULL if they
 * are the same model. The sizes max_position_embeddings are compared only if they are sizes of
 * a table of positions. */
const char *hf_shape_diff(const struct model_shape *a, const struct model_shape *b);

/* Fills params [param_count(m)] of dtype from the weights of DIR. If the weights are stored in
 * another type, they are converted, and are rounded if dtype is narrower. Gaps are set to 0. m
 * must be the shape of DIR. Fails with ERR_INVALID if tensors are missing, unexpected or have a
 * wrong shape. The error names the first few of these tensors and counts the rest. Also fails with
 * ERR_INVALID if a tied head differs from the embedding, and with ERR_UNSUPPORTED if a tensor has
 * a dtype that cannot be read. Also fails as hf_weights_open does, or with ERR_CORRUPT or
 * ERR_IO. */
int hf_load(const char *dir, const struct model_shape *m, enum dtype dtype, void *params,
            struct err *e);

struct st_digest; /* worker/hf/safetensors.h */

/* A flat array (weights, gradients, moments) to write to a safetensors file. The names of its
 * tensors in the file begin with the prefix, for example "exp_avg:model.norm.weight". */
struct hf_flat {
    const char *prefix;
    const void *data;
    enum dtype dtype;
    /* Called if data is NULL, for an array on a device. out gets elements [offset, offset + n)
     * of the flat layout in fp32. All these elements belong to one tensor, and n is at most
     * ST_CHUNK. */
    int (*read)(void *arg, int64_t offset, int64_t n, float *out, struct err *e);
    void *arg;
    /* set if the array has only the trained tensors; arrays of moments are an example, because
     * frozen tensors have no moments */
    bool trained;
    bool gradient;     /* set if the offsets of tensors in the array are those of the layout of
                    * gradients */
    bool of_base;      /* set if tensors of adapters are left out; hf_save_flat sets it */
    bool bare;         /* set if the names in the file do not have family_base after the prefix */
    const char *outer; /* with bare: the prefix of names that never have family_base; NULL means the
                        * same prefix */
    const struct hf_halves *halves; /* maps the names of weights to their names in the file
                                     * (worker/hf/halves.h); NULL means that the names in the
                                     * file are those of the flat layout */
    /* borrowed memory for two blocks of the largest tensor that is written by blocks
     * (hf_by_blocks), in dtype; NULL means that the memory is allocated for each tensor */
    void *blocks;
};

/* Writes a model directory that transformers can load. The directory gets config.json,
 * model.safetensors and the files of b. If b is NULL, it gets the files of the byte tokenizer
 * instead of the files of b. dir is made if it does not exist. Files and directory are
 * fsynced. The parameter `written` may be NULL. Otherwise it gets the digests of
 * model.safetensors. written->tensors is equal to the result of hf_flat_digest, if the model has
 * no adapters. */
int hf_save_flat(const char *dir, const struct model_shape *m, const struct hf_flat *weights,
                 const struct hf_beside *b, struct st_digest *written, struct err *e);

/* The tensors of a GGUF file whose values must be quantised a second time, because the format
 * of their blocks is not the format of the job's weights. */
struct hf_requant {
    int n;
    char names[200]; /* names of the first tensors, such as "output.weight (Q4_1)" */
};

/* Receives elements as they are read. The elements [offset, offset + n) of the flat layout
 * belong to one tensor, and n is at most ST_CHUNK. Unless any_order is set, only the caller's
 * thread calls the function `take`, and it does so in the order of the flat layout. */
struct hf_sink {
    int (*take)(void *arg, int64_t offset, int64_t n, const float *x, struct err *e);
    void *arg;
    /* Called in place of take for elements that the file stores in the 16-bit type `half`. If
     * take_half is NULL, take gets these elements, too. */
    int (*take_half)(void *arg, int64_t offset, int64_t n, const uint16_t *x, struct err *e);
    enum dtype half;
    /* take_blocks is called in place of take for a tensor of a GGUF file if blocks of the weight's
     * format can represent its values exactly. It gets elements [offset, offset + n) in the form
     * of quant_row. n and the offset in the tensor are multiples of QUANT_K. `format` returns the
     * format of the weight that has element `offset`. If `format` is NULL, take gets these
     * elements, too. */
    enum weights_id (*format)(void *arg, int64_t offset);
    int (*take_blocks)(void *arg, int64_t offset, int64_t n, const uint8_t *blocks, struct err *e);
    struct hf_requant *again; /* gets the tensors whose values are quantised a second time; may
                               * be NULL */
    struct be *be; /* backend whose host threads read and convert the elements (be_host_run);
                    * NULL means that the caller's thread does this work */
    /* set if the host threads of `be` may call the function `take` at the same time and in any
     * order */
    bool any_order;
};
/* Do the same as hf_load and hf_read_flat, but pass one piece at a time to a sink, so that the
 * whole array need not fit into memory. Names and shapes are checked before the first piece. A
 * sink that receives elements in order takes 2 MiB of memory. If tensors are read by blocks
 * (hf_by_blocks), the call also takes memory for two blocks of the largest of these tensors.
 * If elements cannot be read, or if the sink refuses them, the error is that of the element
 * that is first in the order of the flat layout, even if several threads have failed. The sink
 * may have received elements that come after this element. */
int hf_load_pieces(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                   struct err *e);
struct st_file;
int hf_read_pieces(const struct st_file *f, const struct model_shape *m, const char *prefix,
                   const struct hf_sink *to, struct err *e);

/* Computes the SHA-256 of weights. Only the bytes of the tensors are hashed, in ascending order of
 * the tensors' names. If weights are in blocks (m->quant), their values are hashed, and then the
 * name of the format. */
int hf_flat_digest(const struct model_shape *m, const struct hf_flat *weights, char out[65],
                   struct err *e);

/* Writes flat arrays as one file. The parameter `written` has the meaning that it has in
 * hf_save_flat. */
int hf_write_flats(const char *path, const struct model_shape *m, const struct hf_flat *flats,
                   int n_flats, struct st_digest *written, struct err *e);
/* Reads one flat array of the trained tensors back. All other elements of the array, which are
 * gaps or belong to frozen tensors, become 0. Fails with ERR_INVALID if a tensor is missing or
 * has a wrong shape; the error names the tensor. Also fails as st_read_f32 does. */
struct st_file;
int hf_read_flat(const struct st_file *f, const struct model_shape *m, const char *prefix,
                 float *flat, struct err *e);

/* ---- inside worker/hf ------------------------------------------------------------------------ */

/* List all tensors, in the order of the flat layout or sorted by name. The caller frees the list.
 * hf_trained removes frozen tensors from a list. hf_of_base removes the tensors of adapters, which
 * are in no file of a model. hf_of_adapter keeps only these and the tensors of modules that are
 * trained whole, which are in an adapter's file. These three return the number of tensors that
 * remain. */
struct st_tensor;
struct param *hf_list(const struct model_shape *m, int *n, struct err *e);
int hf_trained(struct param *list, int n);
int hf_of_base(struct param *list, int n);
int hf_of_adapter(struct param *list, int n);
struct param *hf_sorted(const struct model_shape *m, int *n, struct err *e);
/* The tensors of a file. `find` returns the file's tensor that has the elements of p. */
struct hf_found {
    const struct st_file *f;
    const struct st_tensor *(*find)(void *arg, const struct param *p);
    void *arg;
};
/* Passes the n tensors of a list, which has the order of the flat layout, to a sink. The file's
 * tensors must have the shapes of the list. */
int hf_read_found(const struct hf_found *from, const struct param *list, int n,
                  const struct hf_sink *to, struct err *e);
/* Returns the element with this name of a list that is sorted by name, or NULL. */
const struct param *hf_find_param(const struct param *sorted, int n, const char *name);

/* Returns the number of elements of a run. A file may store the rows of a tensor in another
 * order than the flat layout (struct weight.head_major_parts). A run is a stretch of elements
 * that is the same in the file and in the flat layout. If the rows of the tensor have the same
 * order in the file and in the flat layout, the whole tensor is a single run. */
int64_t hf_run_size(const struct param *p);
/* hf_run_in_file returns the index that run i of the flat layout has in the file. hf_run_here
 * returns the index that run i of the file has in the flat layout. */
int64_t hf_run_in_file(const struct param *p, int64_t i);
int64_t hf_run_here(const struct param *p, int64_t i);
/* hf_by_blocks tells whether a tensor is stacked, or is transposed in files (struct weight).
 * Such a tensor is read and written in blocks of hf_block_size elements. Within a block the
 * elements have different orders in the file and in the flat layout. hf_block_here converts a
 * block from the file's order to the flat layout's order, in elements of `unit` bytes.
 * hf_block_in_file converts a block back. The parameter `transposed` is true if the file's
 * block is transposed. It is false for a block that was unpacked from MXFP4 (mxfp4.h). */
bool hf_by_blocks(const struct param *p);
int64_t hf_block_size(const struct param *p);
int64_t hf_block_rows(const struct param *p);
void hf_block_here(const struct param *p, const void *file, void *ours, int64_t unit,
                   bool transposed);
/* Converts a part of a block of fp32 to the flat layout. The part has the rows [first, last)
 * of the flat layout. */
void hf_block_rows_here(const struct param *p, const float *file, float *ours, bool transposed,
                        int64_t first, int64_t last);
void hf_block_in_file(const struct param *p, const void *ours, void *file, int64_t unit);

#endif
