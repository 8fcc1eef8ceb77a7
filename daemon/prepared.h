/* prepared.h: what the rank that prepared a job's data says, and what follows from it. */
#ifndef SEQD_DAEMON_PREPARED_H
#define SEQD_DAEMON_PREPARED_H

#include "daemon/attempt.h"

/* The RESULT of a preparation: {"prepared_id": "...", "n_tokens": N, ...}. Applies PREPARED with the
 * steps of the run and with what parallel.form "auto" becomes, or fails the attempt. */
void prepared_take(struct control *c, struct job *j, struct part *p, const char *json);

#endif
