/* gang.h: the supervisor of the ranks that one attempt has on this node (protocols:
 * api/core/rank.h, api/core/gang_start.h). */
#ifndef SEQD_GANG_GANG_H
#define SEQD_GANG_GANG_H

#include "api/core/err.h"
#include "api/core/loop.h"
#include "api/core/rank.h"

struct gang;

/* Takes DIR/lock, reads DIR/start and starts the ranks. Fails with ERR_CONFLICT if another gang
 * runs or ran in DIR; then only the lock file was touched. A failure after DIR/spool was opened is
 * recorded in the spool, together with the final record. */
struct gang *gang_create(struct loop *l, const char *dir, struct err *e);
/* Ends the attempt as if the agent had sent STOP, unless the attempt is ending already. The final
 * record gets `how` as its end or, if all ranks exit with 0, GANG_DONE. */
void gang_stop(struct gang *g, enum gang_end how);
/* Kills the processes that are left. When the gang is over, it stops the loop that was given to
 * gang_create. */
void gang_destroy(struct gang *g);

#endif
