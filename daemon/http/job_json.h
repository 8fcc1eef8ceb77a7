/* job_json.h: the whole of a job as clients see it. */
#ifndef SEQD_DAEMON_HTTP_JOB_JSON_H
#define SEQD_DAEMON_HTTP_JOB_JSON_H

#include "daemon/loop/control.h"

/* malloc'd: the committed job, from its row of ASK_JOB. */
char *job_json(const struct control *c, int64_t id, const struct store_row *row);
/* The part of it that lists have, from a row of ASK_JOBS or ASK_TAGGED. */
char *job_json_listed(const struct control *c, const struct store_row *row);
/* The same of a job that was committed just now and that nothing has happened to since. */
char *job_json_new(const struct job *j);

#endif
