/* job_reply.h: answers that are one job: 200 with its ETag, 304, or 404. */
#ifndef SEQD_DAEMON_HTTP_JOB_REPLY_H
#define SEQD_DAEMON_HTTP_JOB_REPLY_H

#include "daemon/http/http.h"
#include "daemon/loop/control.h"

/* json: the job's. unchanged: it equals the client's copy, as the client says without a tag;
 * If-None-Match is stricter. Both are of a GET that is answered by 200. */
void job_reply(struct http_req *r, int status, const char *json, bool unchanged);
/* 200 or 304, with what ASK_JOB has read. */
void job_reply_row(const struct control *c, struct http_req *r, int64_t id,
                   const struct store_row *row, bool unchanged);
/* There is none, or why it could not be read. */
void job_reply_none(struct http_req *r, int64_t id, const struct err *failed);

#endif
