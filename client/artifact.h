/* artifact.h: fetches the result files of a job. */
#ifndef SEQD_CLIENT_ARTIFACT_H
#define SEQD_CLIENT_ARTIFACT_H

#include "client/cli.h"
#include "client/json.h"

/* Fetches a JSON artifact. Returns an enum cli_exit, and prints the message of an error. */
int artifact_json(struct cli *c, int64_t id, const char *name, struct jv **out);

#endif
