/* publish.h: writes a second copy of a job's results to the directory output.path. This
 * directory must be beneath a root that the node's operator has declared writable. The job
 * makes the directory and owns it. A file in the directory has the name of the owner, so that
 * later attempts of the job may write to the directory, but other jobs may not. A published
 * file is either complete or absent. No symbolic link in the path of a published file is
 * followed. tested: tests/engine/test_publish.c */
#ifndef SEQD_RANK_PUBLISH_H
#define SEQD_RANK_PUBLISH_H

#include "api/core/err.h"

#define PUBLISH_OWNER ".seqd-job"

struct publish {
    int dir; /* descriptor of the directory; -1 if nothing is published */
};

/* Opens the directory. Makes it, and its parents, if they do not exist. path is absolute, or
 * relative to the first root. If path is "", no directory is opened. The parameter `owner` is
 * one line of text that identifies the job, and is the same in every attempt of the job. Fails
 * with ERR_NOT_FOUND if there is no root, or if path is not beneath a root. Fails with
 * ERR_INVALID if path leaves its root, if one of its parents is a link or a file, or if the
 * root is private. Fails with ERR_CONFLICT if path exists and is not a directory of this
 * owner. Otherwise fails as err_errno does. */
int publish_open(struct publish *p, const char *path, const char *const *roots, int n_roots,
                 const char *owner, struct err *e);
/* Publishes the file `from` under the given name, which may contain directories. A file that
 * already has this name is replaced. Does nothing if no directory is open. */
int publish_file(const struct publish *p, const char *from, const char *name, struct err *e);
/* Publishes the model of a checkpoint: the files of hf/, hf_ema/ and adapter/ that its manifest
 * lists. Fails as publish_file and manifest_check do. */
int publish_checkpoint(const struct publish *p, const char *step_dir, struct err *e);
void publish_close(struct publish *p);

#endif
