/* manifest.h: MANIFEST.json, which makes a directory a checkpoint: size and SHA-256 of every file,
 * written last. Its own last member is the digest of all bytes before it, so that no bit of it can
 * turn unseen.
 *
 *   {"version":1,"step":500,"epoch":3,"weights_sha256":"..","files":[{"path":"hf/config.json",
 *    "size":512,"sha256":".."},..],"sha256":".."}
 *
 * tested: tests/engine/test_ckpt.c */
#ifndef SEQD_CKPT_MANIFEST_H
#define SEQD_CKPT_MANIFEST_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

#define MANIFEST_FILES     200
#define MANIFEST_PATH_SIZE 128

struct manifest_file {
    char path[MANIFEST_PATH_SIZE]; /* relative, inside the directory */
    int64_t size;
    char sha256[SHA256_HEX];
};

struct manifest {
    int64_t step, epoch;
    char weights_sha256[SHA256_HEX]; /* tensor bytes in name order */
    struct manifest_file file[MANIFEST_FILES];
    int n_files;
};

/* Appends a file of dir with its size and digest, read back from the disk's cache. */
int manifest_add(struct manifest *m, const char *dir, const char *path, struct err *e);
/* DIR/MANIFEST.json, fsynced. */
int manifest_write(const struct manifest *m, const char *dir, struct err *e);

enum manifest_depth {
    MANIFEST_SIZES,  /* every file is there and has its size */
    MANIFEST_DIGESTS /* and its digest */
};
/* Reads and checks. fails: ERR_CORRUPT naming the file and what is wrong; ERR_NOT_FOUND when dir
 * does not exist. */
int manifest_check(struct manifest *m, const char *dir, enum manifest_depth depth, struct err *e);
/* The entry of path, or NULL. */
const struct manifest_file *manifest_find(const struct manifest *m, const char *path);

#endif
