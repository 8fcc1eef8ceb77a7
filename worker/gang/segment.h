/* segment.h: the shared memory of one attempt's ranks on this node (struct shm_head of
 * api/core/rank.h). It has the abort flag, and each rank's last operation. */
#ifndef SEQD_GANG_SEGMENT_H
#define SEQD_GANG_SEGMENT_H

#include "api/core/err.h"
#include "api/core/rank.h"

struct gang_segment {
    int fd; /* a memfd, which ranks inherit; -1 if there is none */
    int n_ranks;
    struct shm_head *head; /* owned; ranks can write to the whole segment, so seqgang does not
                            * use an index or a count that it reads from the segment */
};
#define SEGMENT_NONE ((struct gang_segment){.fd = -1})

/* Fills *s, which must be SEGMENT_NONE before the call. The caller must call segment_close,
 * even after a failure. Fails with ERR_IO. */
int segment_open(struct gang_segment *s, int n_ranks, struct err *e);
void segment_close(struct gang_segment *s);
/* Raises the abort flag. Ranks that wait in the transport are woken by a futex and return
 * ERR_ABORTED. The parameter `blame` is the rank that caused the abort, or -1. */
void segment_abort(struct gang_segment *s, int blame);

#endif
