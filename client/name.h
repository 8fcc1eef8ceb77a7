/* name.h: jobs by their names: anywhere a job's id is taken, its name is, too. */
#ifndef SEQD_CLIENT_NAME_H
#define SEQD_CLIENT_NAME_H

#include "client/cli.h"

/* Returns the id of the live job of that name; if none is live, the id of the newest ended one. If
 * several are live, they are listed and the name is refused. Returns -(exit code) after a
 * message. */
int64_t name_job(struct cli *c, const char *name);

#endif
