/* gang.h: the supervisor of one attempt's ranks on this node (protocol: api/core/rank.h). */
#ifndef SEQD_GANG_GANG_H
#define SEQD_GANG_GANG_H

#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/rank.h"

struct gang;

/* Takes DIR/lock, reads DIR/start, starts the ranks. fails: ERR_CONFLICT when another gang runs or
 * ran here (no file was touched); any other failure has been put into the spool, with the final
 * record. */
struct gang *gang_create(struct loop *l, const char *dir, struct err *e);
/* Ends the attempt as if the agent had sent STOP. how: the end that the final record names. */
void gang_stop(struct gang *g, enum gang_end how);
/* Kills the processes that are left. The loop given to gang_create is stopped when the gang is
 * over. */
void gang_destroy(struct gang *g);

#endif
