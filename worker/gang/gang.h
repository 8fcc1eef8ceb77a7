/* gang.h: the supervisor of the ranks that one attempt has on this node (protocols:
 * api/core/rank.h, api/core/gang_start.h). */
#ifndef SEQD_GANG_GANG_H
#define SEQD_GANG_GANG_H

#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/rank.h"

struct gang;

/* Takes DIR/lock, reads DIR/start and starts the ranks. Fails with ERR_CONFLICT if another
 * gang is running in DIR or has run there. In that case only the lock file was opened. If a
 * failure occurs after DIR/spool was opened, the spool gets a record of the failure and the
 * final record. */
struct gang *gang_create(struct loop *l, const char *dir, struct err *e);
/* Ends the attempt in the way in which STOP from the agent ends it, unless the attempt is
 * ending already. The final record says GANG_DONE if all ranks exit with 0. Otherwise it says
 * `how`. */
void gang_stop(struct gang *g, enum gang_end how);
/* Kills the processes that are still running. When a gang is over, it stops the loop that was
 * passed to gang_create. */
void gang_destroy(struct gang *g);

#endif
