/* prepared.h: the report of the rank that prepared a job's data, and its consequences. */
#ifndef SEQD_DAEMON_STATE_PREPARED_H
#define SEQD_DAEMON_STATE_PREPARED_H

#include "daemon/state/attempt.h"

/* Takes the RESULT of a preparation: {"prepared_id": "...", "n_tokens": N, ...}. *v is PREPARED,
 * with the steps of the run and the form that "auto" becomes, or a failure of part p. A bad result
 * of an attempt that stops already leaves *v as it is. The plan of j is made again if "auto"
 * becomes another form than blockwise. node: the node of rank 0; NULL: it is not known. */
void prepared_take(struct job *j, const struct node *node, const struct attempt_part *p,
                   const char *json, struct verdict *v);

#endif
