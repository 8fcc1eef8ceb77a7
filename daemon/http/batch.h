/* batch.h: POST /v1/jobs:batch, many specs in one request: all of them become jobs, or none. */
#ifndef SEQD_DAEMON_HTTP_BATCH_H
#define SEQD_DAEMON_HTTP_BATCH_H

#include "daemon/http/routes.h"

#define BATCH_JOBS 1000
/* Specs of one batch that are said to be wrong; past them no other is looked at. */
#define BATCH_WRONG 16
/* Batches that are planned at once, one of a user: others are refused, to come again. */
#define BATCHES 4
/* Bytes of prepared jobs of one batch. Each is held as a live job: 16 KiB are its spec and its
 * fold, and its plan has 4 to 15 KiB, seldom more. 1,000 of them take 25 to 35 MiB, and all batches
 * together at most 256. */
#define BATCH_SIZE (64 << 20)

/* Frees those that are under way, when neither the HTTP server nor control will call any more. */
void batches_drop(struct routes *R);

#endif
