/* weights.h: the safetensors files of a model directory, opened together. Used only inside
 * worker/hf. */
#ifndef SEQD_HF_WEIGHTS_H
#define SEQD_HF_WEIGHTS_H

#include "api/core/file.h"
#include "worker/hf/hf.h"
#include "worker/hf/safetensors.h"

enum { HF_MAX_SHARDS = 1024 };

/* The file of a tensor, found by the index's weight_map or by the header of the single file. */
struct hf_entry {
    char name[ST_NAME_SIZE];   /* our name */
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

/* Opens the files in the order of transformers: model.safetensors if it exists, otherwise the
 * index and its shards. A GGUF file (worker/gguf/model_file.h) counts as one file, with the names
 * of transformers. Entries have the names of the flat layout, even if the files use the family's
 * older spellings. m is borrowed. Fails with ERR_NOT_FOUND if there are no weights, and with
 * ERR_CORRUPT or ERR_TOO_LARGE if the index is wrong. Otherwise fails as st_open, hf_gguf_open and
 * hf_name_entries do, or with ERR_IO. */
struct hf_weights *hf_weights_open(const char *dir, const struct model_shape *m, struct err *e);
/* Sets *out to true if DIR has neither model.safetensors nor its index. Fails with ERR_TOO_LARGE
 * for a path that is too long. */
int hf_weightless(const char *dir, bool *out, struct err *e);
/* Opens the files as hf_weights_open does, and adds every fault to faults. A shard that cannot be
 * read is left out, and its file is NULL. If m is NULL, the shape is not known, and names are
 * those of the files. If faults is NULL, does the same as hf_weights_open. */
struct hf_weights *hf_weights_check(const char *dir, const struct model_shape *m,
                                    struct faults *faults, struct err *e);
void hf_weights_close(struct hf_weights *w);
/* Opens a GGUF file as a file of tensors with the names, order of rows and values that they have
 * in transformers.
 * Fails as gguf_open and gguf_arch do, or with ERR_CORRUPT for sizes that are not multiples of the
 * number of heads. */
struct st_file *hf_gguf_open(const char *path, struct err *e);
/* Finds the tensor with this name and its file. Returns NULL if there is none. */
const struct st_tensor *hf_lookup(const struct hf_weights *w, const char *name, struct st_file **f);
const struct hf_entry *hf_entry_of(const struct hf_weights *w, const char *name);
/* Tells whether the tensor is in a shard that could not be opened. A fault for this shard exists
 * already. */
bool hf_unreadable(const struct hf_weights *w, const char *name);

/* Checks that the files have all tensors of m, in its shapes and in types that can be read, and no
 * other tensors except those that hf_skipped allows. If w->faults is set, each difference is added
 * as a fault, and the call does not fail. Otherwise fails with ERR_INVALID, which names the first
 * few differences. Also fails as hf_list does. */
int hf_compare(const struct hf_weights *w, const char *dir, const struct model_shape *m,
               struct err *e);
/* Checks that the file has every tensor, under its name with the prefix and in its shape. */
int hf_compare_flat(const struct st_file *f, const struct param *list, int n, const char *prefix,
                    struct err *e);
bool hf_same_shape(const struct st_tensor *t, const struct param *p);

/* Gives every entry the name that its tensor has in the flat layout. If only some names have
 * family_base, adds a fault if w->faults is set, and otherwise fails with ERR_INVALID. */
int hf_name_entries(struct hf_weights *w, struct err *e);
/* Sets *headless to true if the model has tensors of a head, and the files have none of these. */
int hf_find_head(const struct hf_weights *w, bool *headless, struct err *e);
/* Lists all tensors of the model with its head, sorted by name. The caller frees the list. */
struct param *hf_sorted_whole(const struct model_shape *m, int *n, struct err *e);
bool hf_is_param(const struct param *sorted, int n, const char *name);
/* Tells whether files may have this tensor in addition to the weights. It may be a tied head, a
 * table that is computed, another head, or a tensor of a wrapper's other half. */
bool hf_skipped(const struct model_shape *m, const char *name);

bool hf_starts_with(const char *s, const char *start);
bool hf_ends_with(const char *s, const char *end);

#endif
