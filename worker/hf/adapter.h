/* adapter.h: reads and writes the directory of an adapter in the form of the Python package peft.
 *   adapter_config.json        the rank, the factor and the names of the products
 *   adapter_model.safetensors  A and B of each product, by the name that the package gives them,
 *                              and the tensors of modules that are trained whole (modules_to_save)
 * The products and the whole modules of an adapter are those that its tensors name. tested:
 * tests/engine/test_adapter_files.c, tests/fuzz/fuzz_adapter.c */
#ifndef SEQD_HF_ADAPTER_H
#define SEQD_HF_ADAPTER_H

#include "api/core/adapter.h"
#include "api/core/err.h"
#include "api/core/file.h"
#include "api/core/model_shape.h"
#include "worker/hf/hf.h"

/* Stands before the names of tensors, which begin as in the model's own files after it. */
#define ADAPTER_PREFIX "base_model.model."

enum { ADAPTER_SAVED = 4 }; /* largest number of names of modules_to_save */

struct adapter_config {
    char path[FILE_PATH_SIZE]; /* the path of adapter_config.json */
    bool lora;
    int64_t rank;
    double alpha, dropout;
    bool rslora;
    int n_saved;
    char saved[ADAPTER_SAVED][SPEC_TARGET_SIZE]; /* the names of modules_to_save */
};
/* Reads a directory's adapter_config.json. Refuses everything that is computed in another way than
 * the adapters of a job. Fails as adapter_check does. */
int adapter_read_config(const char *dir, struct adapter_config *out, struct err *e);

struct st_file;
/* Checks that target_modules and exclude_modules of a directory's adapter_config.json do not
 * contradict the tensors of f: every module that has an adapter is named by the first, and by none
 * of the second. A name without an adapter passes, because peft keeps names that no module has.
 * Fails with ERR_INVALID, or as file_read does. */
int adapter_targets_check(const char *dir, const struct st_file *f, struct err *e);

/* Returns the number of the layer that a tensor's name has, or -1 if it has none. */
int64_t hf_adapter_layer(const char *tensor);

/* Writes one line of JSON about a directory: {"rank", "alpha", "rslora", "dropout", "layers",
 * "targets", "modules_to_save"}. layers is the number of layers, by the last of them that has a
 * tensor. targets are the names of the products within a layer, as its tensors give them, because
 * those in the configuration may be a regular expression. modules_to_save are the last parts of the
 * names of the modules that it has whole, and is left out if there are none. Returns the length.
 * Fails as adapter_read_config and st_open do, and with ERR_UNSUPPORTED if the directory has a
 * tensor of another kind, or more products than a job can name, or a tensor of another type. Fails
 * with ERR_INVALID if a matrix is not of the rank of the configuration. */
int64_t adapter_describe(const char *dir, char *out, size_t size, struct err *e);

/* The model of adapters. */
struct adapter_base {
    const char *name; /* NULL or "" if it has none */
    bool wrapped;     /* the model is in a wrapper (config_wraps), whose class gives modules their
                       * names */
};

/* Writes the directory of the adapters of m, which has some. weights has the tensors of adapters,
 * as hf_write_flats reads them; its prefix is ADAPTER_PREFIX. `written` is as for hf_save_flat. */
int adapter_save(const char *dir, const struct model_shape *m, const struct hf_flat *weights,
                 const struct adapter_base *base, struct st_digest *written, struct err *e);

/* Checks that a directory's adapter_config.json describes the adapters of m: a LoRA of the same
 * rank and factor, with no whole module that m does not train, and nothing that is computed in
 * another way. Fails with ERR_INVALID or ERR_UNSUPPORTED, and the error names the key, its value
 * and the fix; with ERR_CORRUPT if the file is not JSON; or with ERR_IO. */
int adapter_check(const char *dir, const struct model_shape *m, struct err *e);
/* Does the same for adapter k of a model with several (shape_adapters). */
int adapter_check_at(const char *dir, const struct model_shape *m, int k, struct err *e);

/* Calls adapter_check, and passes the tensors of the directory to a sink, which gets elements of
 * the flat layout of m. The tensors of a head that m does not compute are passed over. Fails as
 * adapter_check and hf_read_found do, and with ERR_INVALID if the directory has a tensor that the
 * adapters of m do not have, or lacks one that they have. */
int adapter_load(const char *dir, const struct model_shape *m, const struct hf_sink *to,
                 struct err *e);
/* Does the same for adapter k of a model with several (shape_adapters). */
int adapter_load_at(const char *dir, const struct model_shape *m, int k, const struct hf_sink *to,
                    struct err *e);

struct st_tensor;
/* Opens a directory to read single tensors of the adapters of m, which is borrowed. Checks all that
 * adapter_load checks, and returns NULL if it fails. */
struct adapter_reading *adapter_open(const char *dir, const struct model_shape *m, struct err *e);
/* Returns the tensor of the directory that has the elements of p, and its file in *f. Returns NULL
 * if p is no tensor of the adapters. */
const struct st_tensor *adapter_find(const struct adapter_reading *r, const struct param *p,
                                     const struct st_file **f);
void adapter_close(struct adapter_reading *r); /* accepts NULL */

/* ---- inside worker/hf: modules that are trained whole (adapter_saved.c) ---------------------- */

struct jwrite;
/* Writes the member modules_to_save of m, which is null if it has none. */
void adapter_saved_write(struct jwrite *w, const struct model_shape *m);
/* Fails if the configuration names a whole module that m does not train. */
int adapter_saved_compare(const struct adapter_config *c, const struct model_shape *m,
                          struct err *e);
/* Tells whether a tensor, by its name in the flat layout, is of a head that m does not compute. */
bool adapter_saved_unused(const struct model_shape *m, const char *name);
/* Refuses a tensor of an adapter's file: one of no adapter that the job does not have, one of
 * another shape than p, and the lack of p. */
int adapter_saved_unknown(const char *path, const char *name, struct err *e);
int adapter_saved_misfit(const char *path, const struct st_tensor *t, const struct param *p,
                         struct err *e);
int adapter_saved_missing(const char *path, const struct param *p, struct err *e);

#endif
