/* pass.h: sends rows to rank 0 for a proof: the ranks of a stage send them to the stage's first
 * rank, which sends them to rank 0. It is private to worker/verify. All buffers are in the host's
 * memory. Messages have purpose VERIFY, and their expected counts are added to *moved. */
#ifndef SEQD_VERIFY_PASS_H
#define SEQD_VERIFY_PASS_H

#include <stdbool.h>
#include "worker/model/model.h"

/* Returns the number of ranks of a stage that hold one sequence: sp * tp. */
int pass_holders(const struct model *m);
/* Tells whether this rank is the first of the ranks of its stage that hold one sequence. Rows are
 * gathered on that rank. */
bool pass_first(const struct model *m);

/* Gathers `size` bytes of each holder. A holder is a rank of the stage that holds the sequence;
 * its bytes are at `own`. The first holder gets all bytes at `all`, as [holders, size]. If there
 * is only one holder, own may be equal to all. */
int pass_gather(struct model *m, const void *own, int64_t size, void *all, struct comm_count *moved,
                struct err *e);

/* A function that handles the local rows [row0, row0 + n), which are all in one segment of the
 * shard. */
typedef int pass_rows(void *at, int64_t row0, int64_t n, struct err *e);
/* Calls fn with all rows of a rank's shard, at most `room` at a time. */
int pass_pieces(const struct shard *sh, int64_t room, pass_rows *fn, void *at, struct err *e);

/* Send or receive size bytes at x. The other rank is in stage `stage` and has the same place there
 * as this rank in its own stage. */
int pass_send(struct model *m, int stage, const void *x, int64_t size, struct comm_count *moved,
              struct err *e);
int pass_receive(struct model *m, int stage, void *x, int64_t size, struct comm_count *moved,
                 struct err *e);

#endif
