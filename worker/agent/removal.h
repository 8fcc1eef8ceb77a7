/* removal.h: removes a job's directory or checkpoints from this node, for a removal by seqd. A
 * thread of trees.h does the work; seqd is told when it is durable. A removal that is asked for
 * twice is done twice: the second time there are no files. Loop thread. */
#ifndef SEQD_AGENT_REMOVAL_H
#define SEQD_AGENT_REMOVAL_H

#include "api/trees.h"
#include "api/wire.h"
#include "worker/agent/state_dir.h"

/* Called with the MSG_REMOVED that answers a request. */
typedef void removal_done(void *arg, const struct msg *m);

struct node_removals;
/* Borrows t, s and arg. */
struct node_removals *removals_create(struct trees *t, const struct state_dir *s,
                                      removal_done *done, void *arg);
void removals_destroy(struct node_removals *r); /* call it after trees_destroy; NULL allowed */

/* Takes MSG_REMOVE. busy: an attempt of the job is here, so no file of it can go now. The request
 * is held then, and answered after removals_over. If seqd asks for a held one again, or if too
 * many are held, the answer comes at once: ERR_CONFLICT, and this request is held no longer. */
void removals_take(struct node_removals *r, const struct msg *m, bool busy);
void removals_over(struct node_removals *r, int64_t job); /* no attempt of the job is here now */
void removals_drop(struct node_removals *r); /* drops held requests: the session is over */

#endif
