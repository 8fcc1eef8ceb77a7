/* batch.h: POST /v1/jobs:batch, which has many specs in one request. Either all of them become
 * jobs, or none does. */
#ifndef SEQD_DAEMON_HTTP_BATCH_H
#define SEQD_DAEMON_HTTP_BATCH_H

#include "daemon/http/routes.h"

#define BATCH_JOBS 1000
/* Largest number of wrong specs that one answer names. Further wrong specs are only counted. An
 * error takes about 600 bytes in memory, and up to six times as many as JSON. */
#define BATCH_WRONG 100
/* Largest number of batches that are planned at the same time. Each user may have one batch. If a
 * further batch arrives, its client is told to try again. */
#define BATCHES 4
/* Largest size, in bytes, of the prepared jobs of one batch. A prepared job takes as much memory
 * as a live job: 16 KiB for its spec and its state, and 4 to 15 KiB (seldom more) for its plan.
 * 1,000 prepared jobs take 25 to 35 MiB. All batches together take at most 256 MiB. */
#define BATCH_SIZE (64 << 20)

/* Frees the unfinished batches. Call it only when neither the HTTP server nor control can call
 * back any more. */
void batches_drop(struct routes *R);

#endif
