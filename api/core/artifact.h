/* artifact.h: a result file of a job: complete or absent.
 *
 * It is written as DIR/artifacts/NAME.tmp, fsynced and renamed, and then its directory is fsynced.
 * Its SHA-256 is computed while it is written. A file of the same name from an earlier attempt is
 * replaced. */
#ifndef SEQD_CORE_ARTIFACT_H
#define SEQD_CORE_ARTIFACT_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"
#include "api/core/file.h"

#define ARTIFACT_NAME 64

struct artifact_done { /* the members of EV_ARTIFACT */
    char name[ARTIFACT_NAME];
    char path[FILE_PATH_SIZE];
    char sha256[SHA256_HEX];
    int64_t size;
};

struct artifact { /* {0}: closed */
    bool open;
    struct file_out file;
    struct artifact_done done;
};

/* Opens an artifact. name: a plain file name. Makes DIR/artifacts when it is missing. */
int artifact_open(struct artifact *a, const char *job_dir, const char *name, struct err *e);
int artifact_write(struct artifact *a, const void *data, size_t size, struct err *e);
/* Renames the temporary file to the artifact's name. After a failure the temporary file is
 * gone. */
int artifact_finish(struct artifact *a, struct err *e);
/* Removes an unfinished artifact; harmless otherwise. */
void artifact_drop(struct artifact *a);

/* artifact_path writes DIR/artifacts/NAME into done->path and makes the directory. Other code then
 * writes and renames the file, and artifact_describe fills in its digest and size. */
int artifact_path(const char *job_dir, const char *name, struct artifact_done *done, struct err *e);
int artifact_describe(struct artifact_done *done, struct err *e);

#endif
