/* refs.h: resolves job:ID in the place of a path when a job is submitted. It finds the owner of
 * the job that is named, its checkpoint, and the node that has the checkpoint. Afterwards the spec
 * has job:ID/step-N/..., whose meaning never changes. The path of a checkpoint is replaced in the
 * same way.
 * tested: tests/scripts/private.sh */
#ifndef SEQD_DAEMON_HTTP_REFS_H
#define SEQD_DAEMON_HTTP_REFS_H

#include "api/core/job.h"
#include "daemon/http/routes.h"

struct refs_found {
    /* node that has the files from which the job begins, or "" for any node */
    char node[NODE_NAME];
    int64_t step; /* step of the checkpoint, 1 for an artifact, or 0 if node is "" */
};

/* done is called once, perhaps inside the call. Until then the caller keeps spec, which must have
 * passed names_resolve. e is ERR_INVALID or ERR_TOO_LARGE and names the field, or it is the
 * store's error. A job of another user gives the same error as a job that never existed. */
typedef void refs_done(void *arg, const struct refs_found *found, const struct err *e);
void refs_resolve(struct routes *R, struct job_spec *spec, const struct principal *who,
                  refs_done *done, void *arg);

#endif
