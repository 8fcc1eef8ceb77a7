/* manifest.h: MANIFEST.json, which makes a directory a checkpoint: it has the size and SHA-256 of
 * every file, and is written last. Its own last member is the digest of all bytes before that
 * member, which detects a changed bit.
 *
 *   {"version":1,"step":500,"epoch":3,"weights_sha256":"..","files":[{"path":"hf/config.json",
 *    "size":512,"sha256":".."},..],"sha256":".."}
 *
 * tested: tests/engine/test_ckpt.c */
#ifndef SEQD_CORE_MANIFEST_H
#define SEQD_CORE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

#define MANIFEST_NAME      "MANIFEST.json"
#define MANIFEST_STEP      "step-%08lld"          /* the name of a step's directory */
#define MANIFEST_SIZE      (MANIFEST_FILES * 512) /* bytes of its text, escapes included */
#define MANIFEST_FILES     200
#define MANIFEST_PATH_SIZE 128
#define MANIFEST_FILE_MAX  ((int64_t)1 << 50) /* bytes of one file: no sum of sizes overflows */

struct manifest_file {
    char path[MANIFEST_PATH_SIZE]; /* relative to the directory */
    int64_t size;
    char sha256[SHA256_HEX];
};

struct manifest {
    int64_t step, epoch;
    char weights_sha256[SHA256_HEX]; /* over the bytes of all tensors, in the order of their
                                      * names */
    struct manifest_file file[MANIFEST_FILES];
    int n_files;
};

/* Appends a file of dir with its size and digest, read back from the disk's cache. */
int manifest_add(struct manifest *m, const char *dir, const char *path, struct err *e);
/* Appends a file that was hashed as it was written. */
void manifest_put(struct manifest *m, const char *path, int64_t size, const char hex[SHA256_HEX]);
/* Writes DIR/MANIFEST.json and syncs it. */
int manifest_write(const struct manifest *m, const char *dir, struct err *e);

enum manifest_depth {
    MANIFEST_SIZES,  /* every file is there and has its size */
    MANIFEST_DIGESTS /* every file has its size and its digest */
};
/* Reads the manifest of dir and checks its files. fails: ERR_CORRUPT naming the file and the
 * fault, also if a file is missing or may not be read; ERR_NOT_FOUND when dir does not exist;
 * ERR_IO when reading fails; ERR_TOO_LARGE for a long path. */
int manifest_check(struct manifest *m, const char *dir, enum manifest_depth depth, struct err *e);
/* manifest_read reads the manifest, and manifest_check_file checks file i. They are the two parts
 * of manifest_check, for callers that check several files at one time. */
int manifest_read(struct manifest *m, const char *dir, struct err *e);
int manifest_check_file(const struct manifest *m, int i, const char *dir, enum manifest_depth depth,
                        struct err *e);
/* Parses a manifest's text from any source: checks that names are safe (beneath_name_good) and
 * given once, and that digests are hexadecimal. path: the file's name in errors. fails:
 * ERR_CORRUPT. */
int manifest_parse(struct manifest *m, const char *text, size_t size, const char *path,
                   struct err *e);
/* Returns the entry of path, or NULL. */
const struct manifest_file *manifest_find(const struct manifest *m, const char *path);

#endif
