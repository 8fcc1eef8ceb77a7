/* admit.h: decides whether a request reaches its route, and writes it to the audit log. It checks
 * who sent the request (auth.h), whether the user's role allows it, and whether the job belongs to
 * that user.
 *
 *   token or socket -> principal -> role of the route -> owner of {id} -> audit row -> the route
 *
 * A change is written to the audit log before it is made. The row is committed in the same group
 * as the change or in an earlier one, so that no change is on disk without its row. The row of a
 * request that changes nothing is committed within a second. The status of
 * the answer is added later (trail.h). The log also has every read of another user's prompts or
 * results, and every request of a known user that was refused. */
#ifndef SEQD_DAEMON_HTTP_ADMIT_H
#define SEQD_DAEMON_HTTP_ADMIT_H

#include "daemon/http/routes.h"

/* Calls t, either now or when the store has told the job's owner. If the request is not allowed,
 * t is not called, and the answer is 401, 403 or 429, or 404 for a job of another user. The
 * answer is 400 if t does not know a query parameter, and 415 if the body has a wrong type. If
 * the store fails, the answer is its error. */
void admit(struct routes *R, struct http_req *r, const struct route *t,
           const struct route_match *a);

#endif
