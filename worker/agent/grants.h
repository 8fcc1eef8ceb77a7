/* grants.h: private files (api/core/beneath.h) that a job may read. seqd grants it some, as the
 * uploads of its owner. Its spec names others by job:ID, which becomes a path here. seqd has judged
 * both when the job was submitted. tested: tests/agent/test_agent_grants.c */
#ifndef SEQD_AGENT_GRANTS_H
#define SEQD_AGENT_GRANTS_H

#include "api/core/job.h"
#include "worker/agent/state_dir.h"

struct grants {
    int n;
    char dir[RANK_GRANTS][RANK_PATH_SIZE];
};

/* Takes the absolute paths of list that lie beneath a root: seqd opens no directory that this
 * node's operator has not opened. */
void grants_take(struct grants *g, const struct state_dir *s, const char *const *list, int n);
/* Resolves path on this node: to itself, or job:ID/... to its path, with a grant. fails:
 * ERR_INVALID, ERR_TOO_LARGE naming the field. */
int grants_path(struct grants *g, const struct state_dir *s, const char *path, const char *field,
                char out[FILE_PATH_SIZE], struct err *e);
/* Resolves every path of a spec in place, as grants_path does. */
int grants_spec(struct grants *g, const struct state_dir *s, struct job_spec *spec, struct err *e);

#endif
