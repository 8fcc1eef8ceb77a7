/* job_reply.h: answers about one job: 200 with the job and its ETag, 304, or 404. */
#ifndef SEQD_DAEMON_HTTP_JOB_REPLY_H
#define SEQD_DAEMON_HTTP_JOB_REPLY_H

#include "daemon/http/http.h"
#include "daemon/loop/control.h"

/* Answers with a job's JSON and its ETag. If `status` is 200 and the job is unchanged, a GET gets
 * 304 instead. The header If-None-Match decides whether the job is unchanged. If the request lacks
 * this header, the argument `unchanged` decides. */
void job_reply(struct http_req *r, int status, const char *json, bool unchanged);
/* Answers as job_reply does, with 200 or 304. `row` is the job's row of ASK_JOB. */
void job_reply_row(const struct control *c, struct http_req *r, int64_t id,
                   const struct store_row *row, bool unchanged);
/* Answers with 404, or with the error `failed` if the job could not be read. */
void job_reply_none(struct http_req *r, int64_t id, const struct err *failed);

#endif
