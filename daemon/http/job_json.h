/* job_json.h: writes a whole job in the form in which clients see it. */
#ifndef SEQD_DAEMON_HTTP_JOB_JSON_H
#define SEQD_DAEMON_HTTP_JOB_JSON_H

#include "daemon/loop/control.h"

/* Returns the JSON of a committed job, malloc'd. `row` is the job's row of ASK_JOB. */
char *job_json(const struct control *c, int64_t id, const struct store_row *row);
/* Returns the JSON of a job as lists show it, malloc'd. `row` is a row of ASK_JOBS or
 * ASK_TAGGED. */
char *job_json_listed(const struct control *c, const struct store_row *row);
/* Returns the JSON of a new job, malloc'd. The job must not have changed since its commit. */
char *job_json_new(const struct job *j);

#endif
