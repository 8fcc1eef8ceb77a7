/* prepared.h: reads the report of the rank that prepared a job's data, and derives its
 * consequences. */
#ifndef SEQD_DAEMON_STATE_PREPARED_H
#define SEQD_DAEMON_STATE_PREPARED_H

#include "daemon/state/attempt.h"

/* Handles the RESULT of a preparation: {"prepared_id": "...", "n_tokens": N, ...}. If the result
 * is good, *v becomes PREPARED, with the steps of the run and the form that replaces "auto". If it
 * is bad, *v becomes a failure of part p, unless the attempt is already stopping; then *v is
 * unchanged. If a form other than blockwise replaces "auto", the plan of j is made again. `node`
 * is the node of rank 0, or NULL if it is not known. */
void prepared_take(struct job *j, const struct node *node, const struct attempt_part *p,
                   const char *json, struct verdict *v);

#endif
