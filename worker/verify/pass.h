/* pass.h: brings rows of a stage's ranks to its first rank, and from there to rank 0, for a proof.
 * Inside worker/verify. Memory of the host; purpose VERIFY. Expected counts are added to *moved. */
#ifndef SEQD_VERIFY_PASS_H
#define SEQD_VERIFY_PASS_H

#include <stdbool.h>
#include "worker/model/model.h"

/* Returns the number of a stage's ranks that hold a sequence: sp * tp. */
int pass_holders(const struct model *m);
/* Tells whether this rank is the first of its stage's holders, on which their rows are gathered. */
bool pass_first(const struct model *m);

/* Gathers `size` bytes at own of each holder as [holders, size] at all, on the first of them.
 * Without other holders, own may be all. */
int pass_gather(struct model *m, const void *own, int64_t size, void *all, struct comm_count *moved,
                struct err *e);

/* A function for local rows [row0, row0 + n), which lie in one segment of the shard. */
typedef int pass_rows(void *at, int64_t row0, int64_t n, struct err *e);
/* Calls fn with all rows of a rank's shard, at most `room` at a time. */
int pass_pieces(const struct shard *sh, int64_t room, pass_rows *fn, void *at, struct err *e);

/* Send and receive size bytes at x, to or from the rank in the same place of that stage. */
int pass_send(struct model *m, int stage, const void *x, int64_t size, struct comm_count *moved,
              struct err *e);
int pass_receive(struct model *m, int stage, void *x, int64_t size, struct comm_count *moved,
                 struct err *e);

#endif
