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

/* path: absolute, or relative to the first root; its parents are made. owner: one line, the same in
 * every attempt. fails: ERR_NOT_FOUND where there is no root, or none of them; ERR_INVALID for a
 * path that leaves its root or meets a link, ERR_CONFLICT for one that is there and another's. */
int publish_open(struct publish *p, const char *path, const char *const *roots, int n_roots,
                 const char *owner, struct err *e);
/* The file `from` as name, which may have directories in it. A file of that name is replaced. Does
 * nothing where nothing is published. */
int publish_file(const struct publish *p, const char *from, const char *name, struct err *e);
void publish_close(struct publish *p);

#endif
