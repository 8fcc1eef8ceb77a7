/* batch.h: POST /v1/jobs:batch, many specs in one request: all of them become jobs, or none. */
#ifndef SEQD_DAEMON_HTTP_BATCH_H
#define SEQD_DAEMON_HTTP_BATCH_H

#include "daemon/http/routes.h"

#define BATCH_JOBS 1000
/* Batches that are planned at once, one of a user: others are refused, to come again. */
#define BATCHES 4
/* Bytes of prepared jobs of one batch. The spec of a job is 14 KiB as it is held, and 2 KiB are the
 * job: 16 MiB of 1,000; the other half is for their texts and plans. So batches hold 128 MiB. */
#define BATCH_SIZE (32 << 20)

/* Frees those that are under way, when neither the HTTP server nor control will call any more. */
void batches_drop(struct routes *R);

#endif
