/* wait.h: GET /v1/jobs/{id}?wait=30s&since_version=7. It is answered as soon as the job's version
 * is larger than since_version, and at the latest after the time `wait`.
 *
 * A waiting request keeps its connection and takes about 140 bytes. It causes no work until its
 * job has a commit or its time is over. The answer is always read from the store, so it shows the
 * state on disk. All functions are called on the loop thread. tested:
 * tests/daemon/test_seqd_wait.c */
#ifndef SEQD_DAEMON_HTTP_WAIT_H
#define SEQD_DAEMON_HTTP_WAIT_H

#include "daemon/http/routes.h"

/* longest wait of one request, in seconds; a client that must wait longer sends a second
 * request */
#define WAIT_MAX_S 60
/* Largest number of requests that wait at the same time, and largest number that one user may have
 * among them. A further request gets 503, and 429 if it is the user's limit. */
#define WAIT_MAX  5000
#define WAIT_USER 200

struct waits;
struct waits *waits_create(struct loop *l);
/* call it after http_destroy, which answers all requests */
void waits_destroy(struct waits *all);
int waits_n(const struct waits *all); /* requests that wait now */
void waits_changed(struct waits *all, int64_t job);
/* Answers r as soon as the job's version is larger than `since`, the job has ended, or ms
 * milliseconds have passed. `ms` may be 0. The answer is 200 with the job, or 304 if the job's
 * version is not larger than `since`. If the request has If-None-Match, this header decides
 * between 200 and 304. The answer is 404 if there is no such job, and 401 if the token was revoked
 * or expired in the meantime. Beyond the limits it is 429 or 503. */
void wait_start(struct waits *all, struct routes *R, struct http_req *r,
                const struct route_match *a, int64_t since, int64_t ms);

#endif
