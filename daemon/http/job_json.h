/* job_json.h: writes a whole job in the form in which clients see it. */
#ifndef SEQD_DAEMON_HTTP_JOB_JSON_H
#define SEQD_DAEMON_HTTP_JOB_JSON_H

#include "daemon/loop/control.h"

/* Returns the JSON of a committed job, malloc'd, from its row of ASK_JOB. */
char *job_json(const struct control *c, int64_t id, const struct store_row *row);
/* Returns the JSON, malloc'd, of the members of a job that lists show, from a row of ASK_JOBS or
 * ASK_TAGGED. */
char *job_json_listed(const struct control *c, const struct store_row *row);
/* Returns the JSON, malloc'd, of a job that was committed just now and has not changed since. */
char *job_json_new(const struct job *j);

#endif
