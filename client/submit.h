/* submit.h: sending a spec. */
#ifndef SEQD_CLIENT_SUBMIT_H
#define SEQD_CLIENT_SUBMIT_H

#include "client/cli.h"
#include "client/json.h"

/* POST /v1/jobs with a fresh Idempotency-Key. Returns an enum cli_exit, its message printed; *job
 * is the caller's. */
int submit_spec(struct cli *c, const struct jv *spec, struct jv **job);
/* The same, printed; with --wait until the job has ended. Returns an enum cli_exit. */
int submit_and_wait(struct cli *c, const struct jv *spec);

#endif
