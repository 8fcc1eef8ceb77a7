/* hf.h: reads and writes model directories in the form of the Python package transformers.
 *   config.json            <-> struct model_shape. Spellings of transformers v4 and v5 and of each
 *                              family are read. A model that seqd would compute differently (with
 *                              another activation, family or rule of RoPE) is refused, and the
 *                              error names the key (worker/family/config_table.h)
 *   model.safetensors, or model.safetensors.index.json and its shards  <-> flat parameters
 *   all other files            copied from the directory of the original weights (struct
 *                              hf_beside, worker/hf/files.h), or those of the byte tokenizer
 * Flat parameters are one array of fp32, bf16 or fp16 with param_count(shape) elements laid out by
 * param_list (worker/plan/plan.h); files do not have the gaps that align tensors. In a tied model
 * the embedding is stored once; if a file has the head as well, both must be equal. Names are read
 * with and without family_base, and written in the form in which they were read. Old names of
 * BERT's tensors are read (gamma, beta); its pooler is skipped. */
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

/* Files to write beside the weights. */
struct hf_beside {
    const char
        *from;  /* a directory of the same model, whose files and keys are copied; NULL if there is
                 * none */
    bool bytes; /* the model was trained on bytes; if `from` has another tokenizer, the byte
                 * tokenizer and the ids of its special tokens are written instead */
    void (*still)(void *arg); /* called while files are copied; may be NULL */
    void *arg;
};
/* Writes the family's config.json for weights of this dtype, to a temporary file that it renames.
 * If b->from has a config.json, its keys are kept, except that quantization_config is left out and
 * the job changes these: dtype, rope_theta and the rule of RoPE, the objective of the training,
 * and ids of special tokens. If b is NULL, the model is a new model that trains on bytes. Fails
 * with ERR_CONFLICT if `from` is another model. Fails as config_parse does if the config.json of
 * `from` is wrong, or with ERR_IO or ERR_NO_SPACE. */
int hf_config_write(const char *dir, const struct model_shape *m, enum dtype dtype,
                    const struct hf_beside *b, struct err *e);

/* Writes the family's sizes as one line of JSON with the keys of model.config in a job spec, and
 * "n_params" (elements of all tensors). `seqrank --describe DIR` prints this line, and the agent
 * passes it to seqd. Returns the length, or -1 if it does not fit. */
int64_t hf_shape_json(const struct model_shape *m, char *out, size_t size);
/* Calls config_read_dir and hf_embedding_read, and reads the other properties of a directory:
 * shape.tokenizer, shape.weightless, shape.headless, shape.unprefixed and, for a masked language
 * model, shape.mask. */
int hf_read_dir(const char *dir, struct model_shape *m, struct err *e);
/* Calls hf_read_dir and hf_shape_json, and checks that the weights of DIR, if it has any, have
 * that shape. Returns the length, or -1 with *e set. */
int64_t hf_describe(const char *dir, char *out, size_t size, struct err *e);

/* Returns the config.json key of the first size in which two shapes differ, or NULL if they are
 * the same model. (max_position_embeddings may differ, unless it is the size of a table of
 * positions.) */
const char *hf_shape_diff(const struct model_shape *a, const struct model_shape *b);

/* Fills params [param_count(m)] of dtype from the weights of DIR. If these are stored in another
 * type, they are converted, with rounding if dtype is narrower. Gaps are set to 0. m must be the
 * directory's own shape.
 * Fails with ERR_INVALID if tensors are missing, unexpected or have a wrong shape; the error names
 * the first few and counts the rest. Also fails with ERR_INVALID if a tied head differs from the
 * embedding. Otherwise fails as hf_weights_open does, or with ERR_CORRUPT, with ERR_UNSUPPORTED
 * for a dtype, or with ERR_IO. */
int hf_load(const char *dir, const struct model_shape *m, enum dtype dtype, void *params,
            struct err *e);

struct st_digest; /* worker/hf/safetensors.h */

/* A flat array (weights, gradients, moments) to write to a safetensors file. The names of its
 * tensors in the file begin with the prefix: "exp_avg:model.norm.weight". */
struct hf_flat {
    const char *prefix;
    const void *data;
    enum dtype dtype;
    /* Called if data is NULL, for an array on a device. out gets elements [offset, offset + n) of
     * the flat layout in fp32. All of them lie in one tensor, and n is at most ST_CHUNK. */
    int (*read)(void *arg, int64_t offset, int64_t n, float *out, struct err *e);
    void *arg;
    bool trained;  /* it has only the trained tensors, as frozen ones have no moments */
    bool gradient; /* offsets of tensors in it are those of the layout of gradients */
    const struct hf_halves *halves; /* for weights: worker/hf/halves.h; NULL means that names are
                                     * those of the flat layout */
};

/* Writes a model directory that transformers loads: config.json, model.safetensors, and the files
 * of b (NULL means the byte tokenizer). dir is made if it does not exist; files and directory are
 * fsynced. `written`, which may be NULL, gets the digests of model.safetensors. Its digest of the
 * tensors equals that of hf_flat_digest. */
int hf_save_flat(const char *dir, const struct model_shape *m, const struct hf_flat *weights,
                 const struct hf_beside *b, struct st_digest *written, struct err *e);

/* Records the tensors of a GGUF file whose blocks have another format than the job's weights, so
 * that their values must be quantised a second time. */
struct hf_requant {
    int n;
    char names[200]; /* names of the first ones: "output.weight (Q4_1)" */
};

/* Receives elements as they are read: [offset, offset + n) of the flat layout lies in one tensor,
 * and n is at most ST_CHUNK. The caller's thread calls take, in the order of the flat layout,
 * unless any_order is set. */
struct hf_sink {
    int (*take)(void *arg, int64_t offset, int64_t n, const float *x, struct err *e);
    void *arg;
    /* Called in place of take for elements that the file stores in the 16-bit type `half`. If it
     * is NULL, take gets these elements, too. */
    int (*take_half)(void *arg, int64_t offset, int64_t n, const uint16_t *x, struct err *e);
    enum dtype half;
    /* take_blocks is called in place of take for a tensor of a GGUF file if blocks of the weight's
     * format can represent its values exactly. It gets elements [offset, offset + n) in the form
     * of quant_row; n and the offset in the tensor are multiples of QUANT_K. `format` returns the
     * format of the weight that has element `offset`. If it is NULL, take gets such elements,
     * too. */
    enum weights_id (*format)(void *arg, int64_t offset);
    int (*take_blocks)(void *arg, int64_t offset, int64_t n, const uint8_t *blocks, struct err *e);
    struct hf_requant *again; /* gets the tensors that are quantised a second time; NULL if that is
                               * not wanted */
    struct be *be;  /* its host threads read and convert (be_host_run); NULL means that the
                     * caller's thread does */
    bool any_order; /* its host threads call take, several at the same time and in any order */
};
/* Do the same as hf_load and hf_read_flat, but pass one piece at a time to a sink, so that the
 * whole need not fit into memory. Names and shapes are checked before the first piece. Memory is 2
 * MiB for a sink that receives elements in order, and two blocks of the largest tensor that is
 * read by blocks. If elements cannot be read, or the sink refuses them, the error is that of the
 * first such element in the order of the flat layout, even if several threads have failed. The
 * sink may have received later elements. */
int hf_load_pieces(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                   struct err *e);
struct st_file;
int hf_read_pieces(const struct st_file *f, const struct model_shape *m, const char *prefix,
                   const struct hf_sink *to, struct err *e);

/* Computes the SHA-256 of weights from only the bytes of the tensors, in ascending order of their
 * names. Weights in blocks (m->quant) are hashed as values, and the name of their format is hashed
 * after them. */
int hf_flat_digest(const struct model_shape *m, const struct hf_flat *weights, char out[65],
                   struct err *e);

/* Writes flat arrays as one file. `written` is as for hf_save_flat. */
int hf_write_flats(const char *path, const struct model_shape *m, const struct hf_flat *flats,
                   int n_flats, struct st_digest *written, struct err *e);
/* Reads one flat array of the trained tensors back. All other elements become 0: they are gaps or
 * belong to frozen tensors. Fails with ERR_INVALID, which names a tensor
 * that is missing or has another shape, or as st_read_f32 does. */
struct st_file;
int hf_read_flat(const struct st_file *f, const struct model_shape *m, const char *prefix,
                 float *flat, struct err *e);

/* ---- inside worker/hf ------------------------------------------------------------------------ */

/* List all tensors, in the order of the flat layout or sorted by name. The caller frees the list.
 * hf_trained removes the tensors that are not trained from a list, and returns the number of
 * tensors that remain. */
struct param *hf_list(const struct model_shape *m, int *n, struct err *e);
int hf_trained(struct param *list, int n);
struct param *hf_sorted(const struct model_shape *m, int *n, struct err *e);

/* Returns the number of elements of a run. A file may store the rows of a tensor in another order
 * than the flat layout (struct weight.head_major_parts). Runs are the stretches of elements that
 * are the same in both orders. If the two orders of a tensor are equal, the tensor is a single
 * run. */
int64_t hf_run_size(const struct param *p);
/* hf_run_in_file returns the index that run i of the flat layout has in the file. hf_run_here
 * returns the index that run i of the file has in the flat layout. */
int64_t hf_run_in_file(const struct param *p, int64_t i);
int64_t hf_run_here(const struct param *p, int64_t i);
/* hf_by_blocks tells whether a tensor is stacked, or is transposed in files (struct weight). Such
 * a tensor is read and written in blocks of hf_block_size elements, in which the file has another
 * order. hf_block_here converts from the file's order to that of the flat layout, in elements of
 * `unit` bytes; hf_block_in_file converts back. `transposed` is true if the file's block is
 * transposed, and false for a block that was unpacked (mxfp4.h). */
bool hf_by_blocks(const struct param *p);
int64_t hf_block_size(const struct param *p);
int64_t hf_block_rows(const struct param *p);
void hf_block_here(const struct param *p, const void *file, void *ours, int64_t unit,
                   bool transposed);
/* Converts those rows of a block of fp32 that are rows [first, last) of the flat layout. */
void hf_block_rows_here(const struct param *p, const float *file, float *ours, bool transposed,
                        int64_t first, int64_t last);
void hf_block_in_file(const struct param *p, const void *ours, void *file, int64_t unit);

#endif
