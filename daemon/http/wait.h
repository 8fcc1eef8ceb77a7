/* wait.h: GET /v1/jobs/{id}?wait=30s&since_version=7, which is answered as soon as the job has a
 * newer version than that, and at the latest after that time.
 *
 * A request that waits takes its connection and about 140 bytes. No work is done for it until its
 * job has a commit or its time is over. The answer is always read from the store, so it shows the
 * state on disk. All functions are called on the loop thread.
 * tested: tests/daemon/test_seqd_wait.c */
#ifndef SEQD_DAEMON_HTTP_WAIT_H
#define SEQD_DAEMON_HTTP_WAIT_H

#include "daemon/http/routes.h"

/* longest wait of one request; a client that wants to wait longer asks again */
#define WAIT_MAX_S 60
#define WAIT_MAX   256 /* requests that may wait at the same time; a further one gets 503 */
#define WAIT_USER  64  /* waiting requests of one user; a further one gets 429 */

struct waits;
struct waits *waits_create(struct loop *l);
/* must be called after http_destroy, which answers all requests */
void waits_destroy(struct waits *all);
int waits_n(const struct waits *all); /* requests that wait now */
void waits_changed(struct waits *all, int64_t job);
/* Answers r as soon as the job's version is larger than since, the job has ended, or ms
 * milliseconds have passed (at once if ms is 0). The answer is 200 with the job, or 304 if its
 * version is not larger than since. If the request has If-None-Match, that header decides between
 * 200 and 304 instead. The answer is 404 if there is no such job, 401 if the token has been
 * revoked or has expired in the meantime, and 429 or 503 beyond the limits. */
void wait_start(struct waits *all, struct routes *R, struct http_req *r,
                const struct route_match *a, int64_t since, int64_t ms);

#endif
