/* name.h: jobs by name. A job's name is accepted wherever its id is. */
#ifndef SEQD_CLIENT_NAME_H
#define SEQD_CLIENT_NAME_H

#include "client/cli.h"

/* Returns the id of the live job with that name. If no such job is live, returns the id of the
 * newest job of that name that has ended. If several are live, lists them and refuses the name. On
 * failure prints a message and returns -(exit code). */
int64_t name_job(struct cli *c, const char *name);

#endif
