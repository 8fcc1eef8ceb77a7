/* publish.h: writes a second copy of a job's results to output.path, which is a directory beneath
 * a directory that the node's operator has declared writable. The job makes the directory and owns
 * it: a file in it names the owner, so that a later attempt of this job continues there and
 * another job is refused. A file is either complete or absent. No link on the way is followed.
 * tested: tests/engine/test_publish.c */
#ifndef SEQD_RANK_PUBLISH_H
#define SEQD_RANK_PUBLISH_H

#include "api/core/err.h"

#define PUBLISH_OWNER ".seqd-job"

struct publish {
    int dir; /* -1 if nothing is published */
};

/* Opens the directory, and makes its parents. path is absolute, or relative to the first root. If
 * path is "", no directory is opened. owner is one line, which is the same in every attempt. Fails
 * with ERR_NOT_FOUND if there is no root, or no root above the path. Fails with ERR_INVALID if the
 * path leaves its root or has a link or a file among its parents, or if the root is private. Fails
 * with ERR_CONFLICT if the path exists and is not a directory of this owner, and otherwise as
 * err_errno does. */
int publish_open(struct publish *p, const char *path, const char *const *roots, int n_roots,
                 const char *owner, struct err *e);
/* Publishes the file `from` under the given name, which may contain directories. A file that
 * already has this name is replaced. Does nothing if no directory is open. */
int publish_file(const struct publish *p, const char *from, const char *name, struct err *e);
void publish_close(struct publish *p);

#endif
