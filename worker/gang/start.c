/* start.c: reads the record of gang_start.h. Refuses a record of another version, and a record
 * with a number that is out of range. */
#include "worker/gang/start.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/version.h"

static int start_check(const struct gang_start *s, struct err *e)
{
    if (s->n_ranks < 1 || s->n_ranks > JOB_MAX_RANKS || s->n_local < 1 || s->first_rank < 0 ||
        s->first_rank > s->n_ranks - s->n_local || s->n_roots < 0 || s->n_roots > RANK_ROOTS ||
        s->n_writable < 0 || s->n_writable > RANK_ROOTS || s->n_grants < 0 ||
        s->n_grants > RANK_GRANTS || s->sandbox < 0 || s->sandbox >= SANDBOX_MODE_N)
        return err_set(e, ERR_CORRUPT,
                       "the start record says %d ranks from %d of %d, %d roots, %d grants",
                       s->n_local, s->first_rank, s->n_ranks, s->n_roots, s->n_grants);
    for (int i = 0; i < s->n_local; i++)
        if (!memchr(s->gpus[i], 0, sizeof s->gpus[i]))
            return err_set(e, ERR_CORRUPT, "the start record's GPU of rank %d has no end",
                           s->first_rank + i);
    if (access(s->seqrank, X_OK) < 0) return err_errno(e, "cannot run %s", s->seqrank);
    return 0;
}

int start_read(const char *dir, struct gang_start *out, struct err *e)
{
    char path[FILE_PATH_SIZE];
    bool whole;
    if (file_join(path, e, "%s/start", dir) < 0) return -1;
    struct gang_start *start = gang_start_read(path, &whole, e);
    if (!start) return -1;
    *out = *start;
    explicit_bzero(start->key, sizeof start->key);
    free(start);
    if (!whole)
        return err_set(e, ERR_UNSUPPORTED,
                       "seqw of another version wrote %s: restart it, this seqgang is of %s", path,
                       SEQD_VERSION);
    return start_check(out, e);
}
