/* load.h: reads the live rows of the store, one by one. Used by store.c. */
#ifndef SEQD_DAEMON_STORE_LOAD_H
#define SEQD_DAEMON_STORE_LOAD_H

#include "daemon/store/store.h"

struct sqlite3;

/* Loads as store_load_tokens does. `path` is used only in error texts. */
int load_tokens(struct sqlite3 *db, const char *path, void *arg,
                int (*token)(void *, const struct store_token *), struct err *e);
/* Loads as store_load. */
int load_all(struct sqlite3 *db, const char *path, const struct store_load *c, struct err *e);
/* Loads as store_load_joins. */
int load_joins(struct sqlite3 *db, const char *path, const struct store_load_joins *c,
               struct err *e);

#endif
