/* submit.h: sending a spec. */
#ifndef SEQD_CLIENT_SUBMIT_H
#define SEQD_CLIENT_SUBMIT_H

#include "client/cli.h"
#include "client/json.h"

/* Posts to /v1/jobs with a new Idempotency-Key. Returns an enum cli_exit, and prints the message
 * of an error. The caller frees *job. */
int submit_spec(struct cli *c, const struct jv *spec, struct jv **job);
/* Posts a spec as submit_spec does, and prints the job. If --wait is given, waits until the job
 * has ended. Returns an enum cli_exit. */
int submit_and_wait(struct cli *c, const struct jv *spec);

#endif
