/* plan.h: what a job would hold and send. */
#ifndef SEQD_CLIENT_PLAN_H
#define SEQD_CLIENT_PLAN_H

#include "client/cli.h"
#include "client/json.h"

/* POST /v1/plan and print. Returns an enum cli_exit, its message printed. */
int plan_spec(struct cli *c, const struct jv *spec);

#endif
