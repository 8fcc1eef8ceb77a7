/* pass.h: sends rows of a stage's ranks to the first rank of the stage, and from there to rank 0,
 * for a proof. It is private to worker/verify. It works in the host's memory, with purpose VERIFY,
 * and adds the expected counts to *moved. */
#ifndef SEQD_VERIFY_PASS_H
#define SEQD_VERIFY_PASS_H

#include <stdbool.h>
#include "worker/model/model.h"

/* Returns the number of ranks of a stage that hold one sequence: sp * tp. */
int pass_holders(const struct model *m);
/* Tells whether this rank is the first of its stage's holders, on which the holders' rows are
 * gathered. */
bool pass_first(const struct model *m);

/* Gathers `size` bytes at own of each holder as [holders, size] at all, on the first holder. If
 * there is only one holder, own may be equal to all. */
int pass_gather(struct model *m, const void *own, int64_t size, void *all, struct comm_count *moved,
                struct err *e);

/* A function for the local rows [row0, row0 + n), which are in one segment of the shard. */
typedef int pass_rows(void *at, int64_t row0, int64_t n, struct err *e);
/* Calls fn with all rows of a rank's shard, at most `room` at a time. */
int pass_pieces(const struct shard *sh, int64_t room, pass_rows *fn, void *at, struct err *e);

/* Send or receive size bytes at x, to or from the rank that has the same place in that stage. */
int pass_send(struct model *m, int stage, const void *x, int64_t size, struct comm_count *moved,
              struct err *e);
int pass_receive(struct model *m, int stage, void *x, int64_t size, struct comm_count *moved,
                 struct err *e);

#endif
