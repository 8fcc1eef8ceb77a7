/* manifest.h: the file MANIFEST.json. The file is written last, so that a directory that has it is
 * a complete checkpoint. It lists every other file with its size and SHA-256. Its last member is
 * the digest of all bytes before that member, so that a changed bit of the manifest is detected.
 *
 *   {"version":1,"step":500,"epoch":3,"weights_sha256":"..","files":[{"path":"hf/config.json",
 *     "size":512,"sha256":".."},..],"sha256":".."}
 *
 * tested: tests/engine/test_ckpt.c */
#ifndef SEQD_CORE_MANIFEST_H
#define SEQD_CORE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

#define MANIFEST_NAME "MANIFEST.json"
#define MANIFEST_STEP "step-%08lld" /* format of the name of a step's directory */
/* Bytes of the manifest's text, including escapes. */
#define MANIFEST_SIZE      (MANIFEST_FILES * 512)
#define MANIFEST_FILES     200
#define MANIFEST_PATH_SIZE 128
/* Largest size of one file in bytes. With this limit no sum of sizes overflows. */
#define MANIFEST_FILE_MAX ((int64_t)1 << 50)

struct manifest_file {
    char path[MANIFEST_PATH_SIZE]; /* relative to the directory */
    int64_t size;
    char sha256[SHA256_HEX];
};

struct manifest {
    int64_t step, epoch;
    char weights_sha256[SHA256_HEX]; /* digest of the bytes of all tensors, in the order of their
                                      * names */
    struct manifest_file file[MANIFEST_FILES];
    int n_files;
};

/* Appends a file of dir with its size and digest. To compute the digest, the file is read again,
 * usually from the cache of the disk. */
int manifest_add(struct manifest *m, const char *dir, const char *path, struct err *e);
/* Appends a file whose digest was computed while the file was written. */
void manifest_put(struct manifest *m, const char *path, int64_t size, const char hex[SHA256_HEX]);
/* Writes DIR/MANIFEST.json and syncs it. */
int manifest_write(const struct manifest *m, const char *dir, struct err *e);

enum manifest_depth {
    MANIFEST_SIZES,  /* checks that every file exists and has its size */
    MANIFEST_DIGESTS /* checks the size and the digest of every file */
};
/* Reads the manifest of `dir` and checks the files that it lists. Fails with ERR_CORRUPT if the
 * manifest or a file is damaged, is missing or may not be read; the error names the file and the
 * fault. Fails with ERR_NOT_FOUND if `dir` does not exist, with ERR_IO if reading fails, and with
 * ERR_TOO_LARGE if a path is too long. */
int manifest_check(struct manifest *m, const char *dir, enum manifest_depth depth, struct err *e);
/* The two steps of manifest_check, for callers that check several files at one time: manifest_read
 * reads the manifest, and manifest_check_file checks file i. */
int manifest_read(struct manifest *m, const char *dir, struct err *e);
int manifest_check_file(const struct manifest *m, int i, const char *dir, enum manifest_depth depth,
                        struct err *e);
/* Parses the text of a manifest. Checks that names are safe (beneath_name_good), that no name is
 * repeated, and that digests are hexadecimal. The text may come from any source; `path` is only
 * the file's name in errors. Fails with ERR_CORRUPT. */
int manifest_parse(struct manifest *m, const char *text, size_t size, const char *path,
                   struct err *e);
/* Returns the entry of path, or NULL. */
const struct manifest_file *manifest_find(const struct manifest *m, const char *path);

#endif
