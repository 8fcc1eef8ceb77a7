/* publish.h: a second copy of a job's results in output.path, a directory beneath one that the
 * node's operator has given as writable. The directory is made by the job and is the job's: it has
 * a file that names the owner, so that a later attempt continues and another job is refused. A file
 * is there whole or not at all. No link on the way is followed.
 * tested: tests/engine/test_publish.c */
#ifndef SEQD_RANK_PUBLISH_H
#define SEQD_RANK_PUBLISH_H

#include "api/core/err.h"

#define PUBLISH_OWNER ".seqd-job"

struct publish {
    int dir; /* -1: nothing is published */
};

/* Opens the directory. path: absolute, or relative to the first root; its parents are made; "": no
 * directory is opened. owner: one line, the same in every attempt. fails: ERR_NOT_FOUND if there
 * is no root, or none above the path; ERR_INVALID for a path that leaves its root or has a link or
 * a file among its parents, and for a root that seqd keeps private; ERR_CONFLICT for a name that
 * exists and is no directory of this owner; else as err_errno. */
int publish_open(struct publish *p, const char *path, const char *const *roots, int n_roots,
                 const char *owner, struct err *e);
/* Publishes the file `from` under name, which may have directories in it. A file of that name is
 * replaced. Does nothing if no directory is open. */
int publish_file(const struct publish *p, const char *from, const char *name, struct err *e);
void publish_close(struct publish *p);

#endif
