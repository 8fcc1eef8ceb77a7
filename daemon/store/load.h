/* load.h: what of the store is live, row by row: for store.c. */
#ifndef SEQD_DAEMON_STORE_LOAD_H
#define SEQD_DAEMON_STORE_LOAD_H

#include "daemon/store/store.h"

struct sqlite3;

/* As store_load. path: for sentences. */
int load_all(struct sqlite3 *db, const char *path, const struct store_load *c, struct err *e);

#endif
