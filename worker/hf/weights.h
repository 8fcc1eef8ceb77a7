/* weights.h: the safetensors files of a model directory, opened together. Used only inside
 * worker/hf. */
#ifndef SEQD_HF_WEIGHTS_H
#define SEQD_HF_WEIGHTS_H

#include "api/core/file.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

enum { HF_MAX_SHARDS = 1024 };

/* A tensor's name and the file that has the tensor. This file is known from the weight_map of
 * the index, or, if there is only one file, from the header of the file. */
struct hf_entry {
    char name[ST_NAME_SIZE];   /* name in the flat layout */
    char stored[ST_NAME_SIZE]; /* name in the file */
    int shard;
};

struct hf_weights {
    const struct model_shape *m;
    struct faults *faults;
    char path[FILE_PATH_SIZE]; /* path of model.safetensors, of the index, or of the GGUF file */
    struct st_file *file[HF_MAX_SHARDS]; /* owned */
    char shard_name[HF_MAX_SHARDS][96];
    int n_shards;
    struct hf_entry *entry; /* owned; in ascending order of names once the files are open */
    int n, room;
    bool unprefixed; /* whether the names in the files lack family_base */
};

/* Opens the files that transformers would open. This is model.safetensors if it exists, and
 * otherwise the index and its shards. A GGUF file (worker/gguf/model_file.h) is treated as one
 * file, whose tensors have the names of transformers. Entries have the names of the flat
 * layout, even if the files use the family's older spellings. m is borrowed. Fails with
 * ERR_NOT_FOUND if there are no weights, and with ERR_CORRUPT or ERR_TOO_LARGE if the index is
 * wrong. Also fails as st_open, hf_gguf_open and hf_name_entries do, or with ERR_IO. */
struct hf_weights *hf_weights_open(const char *dir, const struct model_shape *m, struct err *e);
/* Sets *out to true if DIR has neither model.safetensors nor its index. Fails with ERR_TOO_LARGE
 * for a path that is too long. */
int hf_weightless(const char *dir, bool *out, struct err *e);
/* Opens the files as hf_weights_open does, and adds every fault to faults. If a shard cannot
 * be read, its file is NULL, and the other shards are still read. If m is NULL, the shape is
 * not known, and entries have the names in the files. If faults is NULL, does the same as
 * hf_weights_open. */
struct hf_weights *hf_weights_check(const char *dir, const struct model_shape *m,
                                    struct faults *faults, struct err *e);
void hf_weights_close(struct hf_weights *w);
/* Opens a GGUF file. Its tensors have the names, the order of rows and the values that they have
 * in transformers. Fails as gguf_open and gguf_arch do. Also fails with ERR_CORRUPT if sizes are
 * not multiples of the number of heads. */
struct st_file *hf_gguf_open(const char *path, struct err *e);
/* Finds the tensor with this name, and the file that has the tensor. Returns NULL if there is
 * no such tensor. */
const struct st_tensor *hf_lookup(const struct hf_weights *w, const char *name, struct st_file **f);
const struct hf_entry *hf_entry_of(const struct hf_weights *w, const char *name);
/* Returns true if the tensor is in a shard that could not be opened. In that case the fault of
 * this shard was added before. */
bool hf_unreadable(const struct hf_weights *w, const char *name);

/* Checks that the files have all tensors of m, in the shapes of m and in types that can be
 * read. The files may have other tensors only if hf_skipped allows them. If w->faults is set,
 * each difference is added as a fault, and the call does not fail. If w->faults is not set,
 * fails with ERR_INVALID, and the error has the first few differences. Also fails as hf_list
 * does. */
int hf_compare(const struct hf_weights *w, const char *dir, const struct model_shape *m,
               struct err *e);
/* Checks that the file has every tensor of the list, with the shape that the list gives. The
 * name of a tensor in the file is the prefix followed by the tensor's name in the list. */
int hf_compare_flat(const struct st_file *f, const struct param *list, int n, const char *prefix,
                    struct err *e);
bool hf_same_shape(const struct st_tensor *t, const struct param *p);

/* Gives every entry the name that its tensor has in the flat layout. It is a fault if only
 * some names begin with family_base. If there is this fault and w->faults is set, adds the
 * fault. If w->faults is not set, fails with ERR_INVALID. */
int hf_name_entries(struct hf_weights *w, struct err *e);
/* Sets *headless to true if the model has tensors of a head and the files have none of these
 * tensors. */
int hf_find_head(const struct hf_weights *w, bool *headless, struct err *e);
/* Checks that the head in the file of a tied model, if there is one, is equal to the embedding.
 * `be` may be NULL. */
int hf_check_tied(const struct hf_weights *w, const struct model_shape *m, struct be *be,
                  struct err *e);
/* Lists all tensors of the model with its head, sorted by name. The caller frees the list. */
struct param *hf_sorted_whole(const struct model_shape *m, int *n, struct err *e);
/* Returns true if files may have this tensor in addition to the weights. Such a tensor may be
 * a tied head, a table that is computed, a head that the model does not use, or a tensor of a
 * wrapper's other half. */
bool hf_skipped(const struct model_shape *m, const char *name);

bool hf_starts_with(const char *s, const char *start);
bool hf_ends_with(const char *s, const char *end);

#endif
