/* hf.h: reads and writes model directories in the form of the Python package transformers.
 *
 *   config.json            <-> struct model_shape; spellings of transformers v4 and v5, and each
 *                              family's own; a model that seqd would compute differently (another
 *                              activation, family or rule of RoPE) is refused, naming the key
 *                              (worker/family/config_table.h)
 *   model.safetensors, or model.safetensors.index.json and its shards  <-> flat parameters
 *   all other files            copied from the directory of the original weights (struct
 *                              hf_beside, worker/hf/files.h), or the byte tokenizer's
 *
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
        *from;  /* a directory of the same model, whose files and keys are copied; NULL: none */
    bool bytes; /* the model was trained on bytes: if `from` has another tokenizer, the byte
                       * tokenizer replaces it, with its ids of special tokens */
    void (*still)(void *arg); /* called while files are copied; NULL: not called */
    void *arg;
};
/* Writes the family's config.json for weights of this dtype, to a temporary file that it renames.
 * If b->from has a config.json, all keys are kept except those that the job changes: dtype,
 * rope_theta and RoPE's rule, the objective of the training, ids of special tokens;
 * quantization_config is left out. b NULL: a new model that trains on bytes.
 * fails: ERR_CONFLICT if `from` is another model; as config_parse for the file of `from`; ERR_IO,
 * ERR_NO_SPACE. */
int hf_config_write(const char *dir, const struct model_shape *m, enum dtype dtype,
                    const struct hf_beside *b, struct err *e);

/* Writes the family's sizes as one line of JSON with the keys of model.config in a job spec, and
 * "n_params" (elements of all tensors). `seqrank --describe DIR` prints it, and the agent passes
 * it to seqd. Returns the length, or -1 when it does not fit. */
int64_t hf_shape_json(const struct model_shape *m, char *out, size_t size);
/* Calls config_read_dir and hf_embedding_read, and reads the other properties of a directory:
 * shape.tokenizer, shape.weightless, shape.headless, shape.unprefixed, and of a masked language
 * model shape.mask. */
int hf_read_dir(const char *dir, struct model_shape *m, struct err *e);
/* Calls hf_read_dir and hf_shape_json, and checks that DIR's weights, if it has any, have that
 * shape. Returns the length, or -1 with *e. */
int64_t hf_describe(const char *dir, char *out, size_t size, struct err *e);

/* Returns the config.json key of the first size in which two shapes differ; NULL: they are the
 * same model. (max_position_embeddings may differ, unless it is the size of a table of
 * positions.) */
const char *hf_shape_diff(const struct model_shape *a, const struct model_shape *b);

/* Fills params[param_count(m)] of dtype from DIR's weights, which may be stored in another type
 * and are then rounded if dtype is narrower. Gaps are set to 0. m must be the directory's own
 * shape.
 * fails: ERR_INVALID listing every missing, unexpected and misshapen tensor at once (the first few
 * by name, the rest by number), or for a tied head that differs; as hf_weights_open; ERR_CORRUPT;
 * ERR_UNSUPPORTED dtypes; ERR_IO. */
int hf_load(const char *dir, const struct model_shape *m, enum dtype dtype, void *params,
            struct err *e);

struct st_digest; /* worker/hf/safetensors.h */

/* A flat array (weights, gradients, moments) to write to a safetensors file. Names of its tensors
 * begin with the prefix: "exp_avg:model.norm.weight". */
struct hf_flat {
    const char *prefix;
    const void *data;
    enum dtype dtype;
    /* Called if data is NULL, for an array on a device. out gets elements [offset, offset + n) of
     * the flat layout in fp32. They lie in one tensor, and n is at most ST_CHUNK. */
    int (*read)(void *arg, int64_t offset, int64_t n, float *out, struct err *e);
    void *arg;
    const struct hf_halves *halves; /* for weights: worker/hf/halves.h; NULL: names are those of
                                     * the flat layout */
};

/* Writes a model directory that transformers loads: config.json, model.safetensors, and the files
 * of b (NULL: the byte tokenizer). dir is made if it does not exist; files and directory are
 * fsynced. written: the digests of model.safetensors; its digest of tensors equals that of
 * hf_flat_digest. written NULL: not wanted. */
int hf_save_flat(const char *dir, const struct model_shape *m, const struct hf_flat *weights,
                 const struct hf_beside *b, struct st_digest *written, struct err *e);

/* The tensors of a GGUF file whose blocks are none of those of the weight's own format, so that
 * their values are quantised again. */
struct hf_requant {
    int n;
    char names[200]; /* the first ones: "lm_head.weight (Q4_1)" */
};

/* Takes elements as they are read: [offset, offset + n) of the flat layout lies in one tensor, n is
 * at most ST_CHUNK. take is called by the caller's thread in order of the flat layout, unless
 * any_order is set. */
struct hf_sink {
    int (*take)(void *arg, int64_t offset, int64_t n, const float *x, struct err *e);
    void *arg;
    /* Called in place of take for elements that the file stores in the 16-bit type `half`; NULL:
     * take gets them, too. */
    int (*take_half)(void *arg, int64_t offset, int64_t n, const uint16_t *x, struct err *e);
    enum dtype half;
    /* take_blocks is called in place of take for a tensor of a GGUF file if blocks of the weight's
     * format can hold its values exactly. It gets elements [offset, offset + n) in the form of
     * quant_row; n and the offset in the tensor are multiples of QUANT_K. `format` returns the
     * format of the weight that has element `offset`. NULL: take gets such elements, too. */
    enum weights_id (*format)(void *arg, int64_t offset);
    int (*take_blocks)(void *arg, int64_t offset, int64_t n, const uint8_t *blocks, struct err *e);
    struct hf_requant *again; /* gets those tensors; NULL: not asked for */
    struct be *be;  /* its host threads read and convert (be_host_run); NULL: the caller does */
    bool any_order; /* its host threads call take, several at once and in any order */
};
/* Do the same as hf_load and hf_read_flat, but pass one piece at a time to a sink, so that the
 * whole need not fit into memory. Names and shapes are checked before the first piece. Memory: 2
 * MiB for a sink that takes in order, and two blocks of the largest tensor that is read by blocks.
 * The error is that of the first element in the flat layout that cannot be read or taken, in
 * whichever thread; elements after it may have been taken. */
int hf_load_pieces(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                   struct err *e);
struct st_file;
int hf_read_pieces(const struct st_file *f, const struct model_shape *m, const char *prefix,
                   const struct hf_sink *to, struct err *e);

/* Computes the SHA-256 of weights: only of the tensors' bytes, in ascending order of name. Weights
 * in blocks (m->quant) are hashed as values, and the name of their format is hashed after them. */
int hf_flat_digest(const struct model_shape *m, const struct hf_flat *weights, char out[65],
                   struct err *e);

/* Writes flat arrays as one file. written: as for hf_save_flat. */
int hf_write_flats(const char *path, const struct model_shape *m, const struct hf_flat *flats,
                   int n_flats, struct st_digest *written, struct err *e);
/* Reads one flat array back; gaps become 0. fails: ERR_INVALID naming the tensor that is missing
 * or has another shape; as st_read_f32. */
struct st_file;
int hf_read_flat(const struct st_file *f, const struct model_shape *m, const char *prefix,
                 float *flat, struct err *e);

/* ---- inside worker/hf ------------------------------------------------------------------------ */

/* List all tensors, in the order of the flat layout or sorted by name; the caller frees. */
struct param *hf_list(const struct model_shape *m, int *n, struct err *e);
struct param *hf_sorted(const struct model_shape *m, int *n, struct err *e);

/* Returns the number of elements of a run. A file may store a tensor's rows in another order
 * (struct weight.head_major_parts). Both orders are sequences of the same runs. A tensor with the
 * same order in both is one run. */
int64_t hf_run_size(const struct param *p);
/* hf_run_in_file returns the number in the file of run i of the flat layout. hf_run_here returns
 * the number in the flat layout of run i of the file. */
int64_t hf_run_in_file(const struct param *p, int64_t i);
int64_t hf_run_here(const struct param *p, int64_t i);
/* hf_by_blocks tells whether a tensor is stacked, or transposed in files (struct weight). Such a
 * tensor is read and written by blocks of hf_block_size elements, in which the file has another
 * order. hf_block_here converts from the file's order to that of the flat layout, by elements of
 * `unit` bytes; hf_block_in_file converts back. transposed: the file's block is transposed; a
 * block that was unpacked (mxfp4.h) is not. */
bool hf_by_blocks(const struct param *p);
int64_t hf_block_size(const struct param *p);
int64_t hf_block_rows(const struct param *p);
void hf_block_here(const struct param *p, const void *file, void *ours, int64_t unit,
                   bool transposed);
/* Converts rows [first, last), counted in the flat layout, of a block of fp32. */
void hf_block_rows_here(const struct param *p, const float *file, float *ours, bool transposed,
                        int64_t first, int64_t last);
void hf_block_in_file(const struct param *p, const void *ours, void *file, int64_t unit);

#endif
