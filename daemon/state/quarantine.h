/* quarantine.h: nodes that get no jobs because three different jobs blamed them within an hour.
 *
 * The rows are in the store (tables blames, quarantine), so they are kept when seqd restarts. A
 * blame is withdrawn if the job fails in the same way elsewhere, and the quarantine that followed
 * from it then ends, too. The last node that could take jobs is never quarantined. There are at
 * most NODE_MAX rows, and a further one replaces the oldest row of a node that is not up.
 *
 * Every ten minutes a toy run, a job of one or two ranks that reads no file, tests the node. If it
 * succeeds, the quarantine ends. `seqctl nodes release` ends it as well. */
#ifndef SEQD_DAEMON_STATE_QUARANTINE_H
#define SEQD_DAEMON_STATE_QUARANTINE_H

#include "daemon/state/jobs.h"
#include "daemon/state/node.h"
#include "daemon/store/store.h"

#define QUARANTINE_JOBS   3
#define QUARANTINE_MS     ((int64_t)3600 * 1000)
#define QUARANTINE_TOY_MS ((int64_t)600 * 1000)
#define QUARANTINE_REASON 384

struct quarantined {
    char node[NODE_NAME];
    int64_t at_ms; /* UTC */
    char reason[QUARANTINE_REASON];
    int64_t toy_ms; /* when the next toy run is due, by the loop's clock */
};

struct quarantine;
struct quarantine *quarantine_create(void);
void quarantine_destroy(struct quarantine *q);
/* Returns the node's row, or NULL if it is not in quarantine. */
const struct quarantined *quarantine_find(const struct quarantine *q, const char *node);
/* Returns row i, or NULL past the last. */
const struct quarantined *quarantine_at(const struct quarantine *q, int i);

/* Take rows of the store. */
void quarantine_load(struct quarantine *q, const char *node, int64_t at_ms, const char *reason);
void quarantine_load_blame(struct quarantine *q, const char *node, int64_t job, int64_t at_ms);

/* Takes ev, which has been folded into j. The consequences for nodes are added to t. now_ms is of
 * the loop's clock. */
void quarantine_take(struct quarantine *q, const struct nodes *nodes, int64_t now_ms,
                     struct store_txn *t, const struct job *j, const struct event *ev);
/* Returns a node whose toy run is due but is not a job yet, or NULL if there is no such node. The
 * next toy run of that node is due after QUARANTINE_TOY_MS. */
const struct node *quarantine_due(struct quarantine *q, const struct nodes *nodes,
                                  const struct jobs *jobs, int64_t now_ms);
/* Makes the spec of that node's toy run. It has two ranks, or one rank if there is no room for
 * two, and runs on GPUs if the node has any whose health is GPU_OK. */
int quarantine_toy(const struct node *n, struct job_spec *spec, struct err *e);
/* Ends a node's quarantine. The removal of the row is added to t. Returns false if the node is not
 * in quarantine. */
bool quarantine_end(struct quarantine *q, struct store_txn *t, const char *node, const char *why);

#endif
