/* wait.h: GET /v1/jobs/{id}?wait=30s&since_version=7, which is answered when the job has a newer
 * version, and at the latest after that time.
 *
 * A request that waits holds its connection and about 140 bytes. No work is done for it until its
 * job has a commit or its time is up. The answer is always read from the store, so it shows the
 * state on disk.
 * Loop thread. tested: tests/daemon/test_seqd_wait.c */
#ifndef SEQD_DAEMON_HTTP_WAIT_H
#define SEQD_DAEMON_HTTP_WAIT_H

#include "daemon/http/routes.h"

#define WAIT_MAX_S 60  /* longest wait of a request; longer waits ask again */
#define WAIT_MAX   256 /* requests that may wait at once; beyond, 503 */
#define WAIT_USER  64  /* waiting requests of one user; beyond, 429 */

struct waits;
struct waits *waits_create(struct loop *l);
void waits_destroy(struct waits *all); /* call it after http_destroy, which answers all requests */
int waits_n(const struct waits *all);  /* requests that wait now */
void waits_changed(struct waits *all, int64_t job);
/* Answers r once the job's version is beyond since, the job has ended, or ms have passed (0: at
 * once): 200 with the job, or 304 if its version is not beyond since. If-None-Match, if given,
 * decides between the two. Answers 404 if there is no such job, 401 if the token has ended
 * meanwhile, 429 and 503 beyond the limits. */
void wait_start(struct waits *all, struct routes *R, struct http_req *r,
                const struct route_match *a, int64_t since, int64_t ms);

#endif
