/* plan.h: shows the memory that a job would take and the bytes that it would send. */
#ifndef SEQD_CLIENT_PLAN_H
#define SEQD_CLIENT_PLAN_H

#include "client/cli.h"
#include "client/json.h"

/* Posts to /v1/plan and prints the plan. Returns an enum cli_exit, and prints the message of an
 * error. */
int plan_spec(struct cli *c, const struct jv *spec);

#endif
