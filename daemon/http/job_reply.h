/* job_reply.h: answers that consist of one job, which are 200 with its ETag, 304, or 404. */
#ifndef SEQD_DAEMON_HTTP_JOB_REPLY_H
#define SEQD_DAEMON_HTTP_JOB_REPLY_H

#include "daemon/http/http.h"
#include "daemon/loop/control.h"

/* Answers with a job's JSON and its ETag. If status is 200, a GET gets 304 instead when the job is
 * unchanged. The tags of If-None-Match decide that. If the request has no such header, the
 * argument `unchanged` decides. */
void job_reply(struct http_req *r, int status, const char *json, bool unchanged);
/* Answers with the job in the row that ASK_JOB has read, by 200 or 304 as job_reply does. */
void job_reply_row(const struct control *c, struct http_req *r, int64_t id,
                   const struct store_row *row, bool unchanged);
/* Answers that there is no such job, or why it could not be read. */
void job_reply_none(struct http_req *r, int64_t id, const struct err *failed);

#endif
