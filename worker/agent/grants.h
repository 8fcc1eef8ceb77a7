/* grants.h: finds the private files (api/core/beneath.h) that a job may read. seqd grants some
 * of them, such as the uploads of the job's owner. The spec names other files by job:ID, which
 * this module replaces by a path. seqd checked these files and paths when the job was
 * submitted. tested: tests/agent/test_agent_grants.c */
#ifndef SEQD_AGENT_GRANTS_H
#define SEQD_AGENT_GRANTS_H

#include "api/core/job.h"
#include "worker/agent/state_dir.h"

struct grants {
    int n;
    char dir[RANK_GRANTS][RANK_PATH_SIZE];
};

/* Adds the absolute paths of list that are beneath a root. Other paths are left out, because
 * seqd may not grant a directory outside the roots that the operator of this node has set. */
void grants_take(struct grants *g, const struct state_dir *s, const char *const *list, int n);
/* Resolves path on this node. A path of the form job:ID/... is replaced by the path of that
 * file on this node, and this path is granted to the job. Any other path is copied. Fails with
 * ERR_INVALID or ERR_TOO_LARGE, and the error names the field. */
int grants_path(struct grants *g, const struct state_dir *s, const char *path, const char *field,
                char out[FILE_PATH_SIZE], struct err *e);
/* Resolves every path of a spec in place, as grants_path does. */
int grants_spec(struct grants *g, const struct state_dir *s, struct job_spec *spec, struct err *e);

#endif
