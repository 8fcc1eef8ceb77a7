/* admit.h: decides whether a request reaches its route, and writes it to the audit log. It checks
 * who asks (auth.h), whether that role may, and whether the job is the asker's own.
 *
 *   token or socket -> principal -> role of the route -> owner of {id} -> audit row -> the route
 *
 * A change is written to the audit log before it is made. Its row joins the open group of commits,
 * so that no change is on disk without it. The status of the answer follows (trail.h). Every read
 * of another user's prompts or results is written as well, and every request that a known user was
 * refused. */
#ifndef SEQD_DAEMON_HTTP_ADMIT_H
#define SEQD_DAEMON_HTTP_ADMIT_H

#include "daemon/http/routes.h"

/* Calls t, now or when the store has answered with the job's owner. Otherwise answers: 401, 403 or
 * 429; 400 for a query parameter that t does not know; 415 for a body of a wrong type; or the
 * store's error. */
void admit(struct routes *R, struct http_req *r, const struct route *t,
           const struct route_match *a);

#endif
