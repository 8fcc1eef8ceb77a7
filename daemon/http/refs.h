/* refs.h: resolves references job:ID in a spec when a job is submitted. For each reference it
 * finds the owner of the job, the checkpoint, and the node that has the checkpoint. It replaces
 * the reference by job:ID/step-N/..., whose meaning never changes. A path of a checkpoint in a
 * spec is replaced in the same way. A spec that needs files of two nodes is refused, because rank
 * 0 reads them on one. A checkpoint that is resumed takes the place of model.adapter, but not of
 * model.path. tested: tests/daemon/test_seqd_refs.c, tests/scripts/private.sh */
#ifndef SEQD_DAEMON_HTTP_REFS_H
#define SEQD_DAEMON_HTTP_REFS_H

#include "api/core/job.h"
#include "daemon/http/routes.h"

struct refs_found {
    /* node that has the files from which the job begins; "" means any node */
    char node[NODE_NAME];
    int64_t shared; /* id of the shared directory of `node` that has them, or 0 */
    int64_t step;   /* step of the checkpoint; 1 for an artifact; 0 if node is "" */
    /* node that has model.adapter, which is another one if the job resumes a checkpoint there; ""
     * means any node */
    char adapter_node[NODE_NAME];
};

/* Called once with the result, perhaps inside refs_resolve. e is ERR_INVALID or ERR_TOO_LARGE and
 * names the field, or it is the store's error. For a job of a different user the error is the same
 * as for a job that never existed. The spec must have passed names_resolve before, and the caller
 * keeps it until this call. */
typedef void refs_done(void *arg, const struct refs_found *found, const struct err *e);
void refs_resolve(struct routes *R, struct job_spec *spec, const struct principal *who,
                  refs_done *done, void *arg);

#endif
