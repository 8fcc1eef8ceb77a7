/* postponed.h: reports of nodes that wait in memory, because an order of a client was folded into
 * their job and is not on disk yet (commit_order). They are in the nodes' spools, too, until seqd
 * acknowledges them. */
#ifndef SEQD_DAEMON_LOOP_POSTPONED_H
#define SEQD_DAEMON_LOOP_POSTPONED_H

#include <stdbool.h>
#include "api/wire.h"

/* largest number of bytes of all reports that wait */
#define POSTPONED_SIZE (4 << 20)

struct postponed {
    struct postponed_report *first, **last;
    size_t size;
};

void postponed_init(struct postponed *p);
void postponed_fini(struct postponed *p);
/* Keeps a copy of the report m of the node. Returns false if there is no room for it. */
bool postponed_keep(struct postponed *p, const char *node, const struct msg *m);
/* Calls `call` with the reports of a job, in their order, and frees them. */
typedef void postponed_call(void *arg, const char *node, const struct msg *m);
void postponed_take(struct postponed *p, int64_t job, postponed_call *call, void *arg);

#endif
