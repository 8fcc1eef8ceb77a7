/* removal.h: removes a job's directory or checkpoints from this node when seqd asks for that. A
 * thread of trees.h does the work, and seqd is told when the removal is durable. If seqd repeats a
 * request, the removal runs again, and finds no files. The functions are called on the loop
 * thread. */
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
void removals_destroy(struct node_removals *r); /* called after trees_destroy; accepts NULL */

/* Processes MSG_REMOVE. `busy` means that this node has an attempt of the job, so no file of
 * the job may be removed now. In that case the request is stored, and is answered after
 * removals_over. If seqd repeats a stored request, or if too many requests are stored, the
 * request is not stored, and is immediately answered with ERR_CONFLICT. `away` means that the
 * directory with the files is not there now (shared.h). Then the answer is ERR_IO. */
void removals_take(struct node_removals *r, const struct msg *m, bool busy, bool away);
void removals_over(struct node_removals *r, int64_t job); /* called when no attempt of the job is
                                                           * left */
void removals_drop(struct node_removals *r); /* drops the stored requests; call it when the
                                              * session is over */

#endif
