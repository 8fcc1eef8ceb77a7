/* reply.h: the answers of routes, which are JSON or a problem (RFC 9457). Only this module turns
 * an error code into an HTTP status. It also reads query parameters. If a parameter is wrong, it
 * answers with a problem. */
#ifndef SEQD_DAEMON_HTTP_REPLY_H
#define SEQD_DAEMON_HTTP_REPLY_H

#include "daemon/http/http.h"

int reply_status(enum err_code code);
/* Answers with a problem. `extra` is the JSON value of the problem's member "plan", or NULL to
 * leave the member out. */
void reply_problem(struct http_req *r, int status, const struct err *e, const char *extra);
/* Answers with several faults of one request. The problem's title, code and detail are those of
 * the first fault. */
void reply_problems(struct http_req *r, int status, const struct err *e, int n, const char *extra);
/* Answers in the form of OpenAI's API (openai_error.h). e->field is the member of the request, and
 * `code` is the error's code. reply_problem does so for every path beneath /openai/, with the name
 * of e's code. */
void reply_openai(struct http_req *r, int status, const struct err *e, const char *code);
/* answers with the status that belongs to e's code */
void reply_fail(struct http_req *r, const struct err *e);
void reply_json(struct http_req *r, int status, const char *json);
/* Reads an integer parameter between lo and hi. On failure answers 400 and returns -1. */
int reply_query_int(struct http_req *r, const char *name, int64_t fallback, int64_t lo, int64_t hi,
                    int64_t *out);
/* Reads the parameter dry_run, which is true or false. If the request lacks it, *out is false. On
 * failure answers 400 and returns -1. */
int reply_query_dry_run(struct http_req *r, bool *out);
bool reply_wants_stream(const struct http_req *r); /* true for Accept: text/event-stream */

#endif
