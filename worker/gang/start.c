#include "worker/gang/start.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/gang_start.h"

static int start_check(const struct gang_start *s, struct err *e)
{
    if (s->abi != RANK_ABI)
        return err_set(e, ERR_UNSUPPORTED, "the start record has abi %u, this seqgang %u", s->abi,
                       RANK_ABI);
    if (s->n_ranks < 1 || s->n_ranks > JOB_MAX_RANKS || s->n_local < 1 || s->first_rank < 0 ||
        s->first_rank > s->n_ranks - s->n_local || s->n_roots < 0 || s->n_roots > RANK_ROOTS)
        return err_set(e, ERR_CORRUPT, "the start record says %d ranks from %d of %d, %d roots",
                       s->n_local, s->first_rank, s->n_ranks, s->n_roots);
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
    size_t size = 0;
    if (file_join(path, e, "%s/start", dir) < 0) return -1;
    char *data = file_read(path, sizeof *out, &size, e);
    if (!data) return -1;
    bool whole = size == sizeof *out;
    if (whole) memcpy(out, data, size);
    explicit_bzero(data, size); /* it holds the attempt's key */
    free(data);
    if (!whole)
        return err_set(e, ERR_CORRUPT, "%s has %zu bytes, want %zu", path, size, sizeof *out);
    return start_check(out, e);
}
