/* gang.h: the supervisor of one attempt's ranks on this node (protocols: api/core/rank.h,
 * api/core/gang_start.h). */
#ifndef SEQD_GANG_GANG_H
#define SEQD_GANG_GANG_H

#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/rank.h"

struct gang;

/* Takes DIR/lock, reads DIR/start, starts the ranks. fails: ERR_CONFLICT when another gang runs or
 * ran in DIR (no file but the lock was touched). A failure after DIR/spool was opened is recorded
 * in the spool, with the final record. */
struct gang *gang_create(struct loop *l, const char *dir, struct err *e);
/* Ends the attempt as if the agent had sent STOP, unless it is ending already. how: the end in the
 * final record, unless all ranks exit with 0 (GANG_DONE). */
void gang_stop(struct gang *g, enum gang_end how);
/* Kills the processes that are left. The loop given to gang_create is stopped when the gang is
 * over. */
void gang_destroy(struct gang *g);

#endif
