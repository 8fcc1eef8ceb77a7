/* prometheus_serve.h: the families of /metrics about jobs that serve. */
#ifndef SEQD_DAEMON_HTTP_PROMETHEUS_SERVE_H
#define SEQD_DAEMON_HTTP_PROMETHEUS_SERVE_H

#include "daemon/http/exposition.h"
#include "daemon/state/jobs.h"
#include "daemon/state/principal.h"

/* Adds the counts of each live job that serves and has had an attempt, with the label `job`, its
 * id. A job has a fixed number of samples. Jobs that `who` may not see are left out; if it is NULL,
 * there are none. Adds nothing if there is no such job. */
void prometheus_serve(struct exposition *x, const struct jobs *jobs, const struct principal *who);

#endif
