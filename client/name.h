/* name.h: jobs by name. A job's name is accepted wherever its id is. */
#ifndef SEQD_CLIENT_NAME_H
#define SEQD_CLIENT_NAME_H

#include "client/cli.h"

/* Returns the id of the live job of that name; if none is live, the id of the newest ended one. If
 * several are live, they are listed and the name is refused. Returns -(exit code) after a
 * message. */
int64_t name_job(struct cli *c, const char *name);

#endif
