/* batch.h: POST /v1/jobs:batch, many specs in one request: all of them become jobs, or none. */
#ifndef SEQD_DAEMON_HTTP_BATCH_H
#define SEQD_DAEMON_HTTP_BATCH_H

#include "daemon/http/routes.h"

#define BATCH_JOBS 1000
/* Wrong specs that one answer names; the others are only counted. An error takes about 600 bytes
 * in memory, and up to six times as many as JSON. */
#define BATCH_WRONG 100
/* Batches that are planned at once, at most one of each user. Clients of other batches are told to
 * try again. */
#define BATCHES 4
/* Bytes of prepared jobs of one batch. Each is held as a live job: 16 KiB are its spec and its
 * fold, and its plan has 4 to 15 KiB, seldom more. 1,000 of them take 25 to 35 MiB, and all
 * batches together at most 256 MiB. */
#define BATCH_SIZE (64 << 20)

/* Frees the batches under way. By then neither the HTTP server nor control calls back. */
void batches_drop(struct routes *R);

#endif
