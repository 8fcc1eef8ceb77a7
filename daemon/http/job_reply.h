/* job_reply.h: answers that are one job: 200 with its ETag, 304, or 404. */
#ifndef SEQD_DAEMON_HTTP_JOB_REPLY_H
#define SEQD_DAEMON_HTTP_JOB_REPLY_H

#include "daemon/http/http.h"
#include "daemon/loop/control.h"

/* Answers with a job's JSON and its ETag. A GET that would get 200 gets 304 if it is unchanged: by
 * the tags of If-None-Match or, without that header, if `unchanged` is set. */
void job_reply(struct http_req *r, int status, const char *json, bool unchanged);
/* Answers 200 or 304 with the row that ASK_JOB has read. */
void job_reply_row(const struct control *c, struct http_req *r, int64_t id,
                   const struct store_row *row, bool unchanged);
/* Answers that there is no such job, or why it could not be read. */
void job_reply_none(struct http_req *r, int64_t id, const struct err *failed);

#endif
