/* name.h: jobs by name. A job's name is accepted wherever its id is. */
#ifndef SEQD_CLIENT_NAME_H
#define SEQD_CLIENT_NAME_H

#include "client/cli.h"

/* Returns the id of the live job with that name or, if none is live, the id of the newest ended
 * one. If several are live, lists them and refuses the name. On failure prints a message and
 * returns -(exit code). */
int64_t name_job(struct cli *c, const char *name);

#endif
