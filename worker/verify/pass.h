/* pass.h: messages between rank 0 and the first rank of another stage of its line, for a proof.
 * Inside worker/verify. Memory of the host; purpose VERIFY. */
#ifndef SEQD_VERIFY_PASS_H
#define SEQD_VERIFY_PASS_H

#include "worker/model/model.h"

/* Passes size bytes at x to or from the rank of that stage. The expected counts are added to
 * *moved. */
int pass_send(struct model *m, int stage, const void *x, int64_t size, struct comm_count *moved,
              struct err *e);
int pass_receive(struct model *m, int stage, void *x, int64_t size, struct comm_count *moved,
                 struct err *e);

#endif
