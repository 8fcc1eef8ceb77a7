/* artifact.h: writes a result file of a job, which is either complete or absent.
 *
 * The file is written as DIR/artifacts/NAME.tmp, fsynced and renamed; then its directory is
 * fsynced. The SHA-256 of the file is computed while the file is written. A file of the same name
 * from an earlier attempt is replaced. */
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

/* Opens an artifact. `name` is a plain file name. The directory DIR/artifacts is made if it is
 * missing. */
int artifact_open(struct artifact *a, const char *job_dir, const char *name, struct err *e);
int artifact_write(struct artifact *a, const void *data, size_t size, struct err *e);
/* Renames the temporary file to the artifact's name. After a failure the temporary file is
 * removed. */
int artifact_finish(struct artifact *a, struct err *e);
/* Removes an unfinished artifact. Does nothing if the artifact was finished or never opened. */
void artifact_drop(struct artifact *a);

/* Stores the path DIR/artifacts/NAME in done->path, and makes the directory. The caller then
 * writes the file and renames it to that path, and calls artifact_describe, which fills in the
 * digest and the size of the file. */
int artifact_path(const char *job_dir, const char *name, struct artifact_done *done, struct err *e);
int artifact_describe(struct artifact_done *done, struct err *e);

#endif
