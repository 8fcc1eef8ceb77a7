/* artifact.h: a result file of a job, complete or not there at all.
 *
 * Written as DIR/artifacts/NAME.tmp, then fsync, rename, fsync of the directory; its SHA-256 is taken
 * over the bytes as they are written. A file of the same name from an earlier attempt is replaced. */
#ifndef SEQD_TRAIN_ARTIFACT_H
#define SEQD_TRAIN_ARTIFACT_H

#include <stdint.h>
#include <stdio.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

#define ARTIFACT_NAME 64
#define ARTIFACT_PATH 1200

struct artifact_done { /* what EV_ARTIFACT says */
    char name[ARTIFACT_NAME];
    char path[ARTIFACT_PATH];
    char sha256[SHA256_HEX];
    int64_t size;
};

struct artifact {
    int fd;
    struct sha256 sha;
    struct artifact_done done;
    char tmp[ARTIFACT_PATH];
};

/* name: a plain file name. Makes DIR/artifacts when it is missing. */
int artifact_open(struct artifact *a, const char *job_dir, const char *name, struct err *e);
int artifact_write(struct artifact *a, const void *data, size_t size, struct err *e);
/* Makes it visible. After a failure the temporary file is gone. */
int artifact_finish(struct artifact *a, struct err *e);
/* Drops an unfinished one; harmless after artifact_finish or on a zeroed struct with fd -1. */
void artifact_drop(struct artifact *a);
/* The same promise for a file somebody else wrote at artifact_path(): digest and size only. */
int artifact_describe(const char *job_dir, const char *name, struct artifact_done *done,
                      struct err *e);
/* DIR/artifacts/NAME into out, making the directory. */
int artifact_path(const char *job_dir, const char *name, char out[ARTIFACT_PATH], struct err *e);

#endif
