/* refs.h: resolves job:ID in the place of a path, at submit. It finds the owner of the job, the
 * checkpoint, and the node that has it. Afterwards the spec has job:ID/step-N/..., which never
 * changes. A checkpoint that is named by its own path is replaced in the same way.
 * tested: tests/scripts/private.sh */
#ifndef SEQD_DAEMON_HTTP_REFS_H
#define SEQD_DAEMON_HTTP_REFS_H

#include "api/core/job.h"
#include "daemon/http/routes.h"

struct refs_found {
    char node[NODE_NAME]; /* node with the files that the job begins from; "": any node */
    int64_t step;         /* step of the checkpoint; 1 for an artifact; 0: node is "" */
};

/* done is called once, perhaps at once; until then the caller keeps spec, which has passed
 * names_resolve. e: ERR_INVALID or ERR_TOO_LARGE naming the field, or the store's error; the error
 * for another user's job is the same as for a job that never was. */
typedef void refs_done(void *arg, const struct refs_found *found, const struct err *e);
void refs_resolve(struct routes *R, struct job_spec *spec, const struct principal *who,
                  refs_done *done, void *arg);

#endif
