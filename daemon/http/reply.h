/* reply.h: answers of routes: JSON, or a problem (RFC 9457). It is the only place that turns an
 * error code into an HTTP status. It also reads query parameters, and refuses them by a
 * problem. */
#ifndef SEQD_DAEMON_HTTP_REPLY_H
#define SEQD_DAEMON_HTTP_REPLY_H

#include "daemon/http/http.h"

int reply_status(enum err_code code);
/* Answers with a problem. extra: JSON, the value of its member "plan"; NULL: it has none. */
void reply_problem(struct http_req *r, int status, const struct err *e, const char *extra);
/* Answers with several faults of one request: the first is its title, code and detail. */
void reply_problems(struct http_req *r, int status, const struct err *e, int n, const char *extra);
void reply_fail(struct http_req *r, const struct err *e); /* answers with the status of e's code */
void reply_json(struct http_req *r, int status, const char *json);
/* Reads an integer parameter between lo and hi. -1 after having answered 400. */
int reply_query_int(struct http_req *r, const char *name, int64_t fallback, int64_t lo, int64_t hi,
                    int64_t *out);
/* Reads dry_run=true or false; without it false. -1 after having answered 400. */
int reply_query_dry_run(struct http_req *r, bool *out);
bool reply_wants_stream(const struct http_req *r); /* Accept: text/event-stream */

#endif
