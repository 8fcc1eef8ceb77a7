/* retain.h: what may go, and what must stay: pure. removal.c does it. */
#ifndef SEQD_DAEMON_RETAIN_H
#define SEQD_DAEMON_RETAIN_H

#include "daemon/jobs.h"

/* A live job that reads files of job `id`: its model, a checkpoint, data. NULL: none does. `where`:
 * the field that names them. Files are known by their path: .../jobs/ID/... */
const struct job *retain_user(struct jobs *t, int64_t id, const char **where);

#endif
