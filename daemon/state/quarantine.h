/* quarantine.h: nodes that get no jobs because three different jobs blamed them within an hour.
 *
 * The rows are in the store (tables blames, quarantine) and outlive seqd. A blame is withdrawn
 * when the job failed the same way elsewhere. The quarantine that it made then ends, too. The last
 * node that could take jobs is never quarantined. At most NODE_MAX rows: the oldest of a node that
 * is not up makes room.
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
    int64_t toy_ms; /* the loop's clock: when the next toy run is due */
};

struct quarantine;
struct quarantine *quarantine_create(void);
void quarantine_destroy(struct quarantine *q);
/* Returns the node's row; NULL: it is in no quarantine. */
const struct quarantined *quarantine_find(const struct quarantine *q, const char *node);
/* Returns row i; NULL past the last. */
const struct quarantined *quarantine_at(const struct quarantine *q, int i);

/* Take rows of the store. */
void quarantine_load(struct quarantine *q, const char *node, int64_t at_ms, const char *reason);
void quarantine_load_blame(struct quarantine *q, const char *node, int64_t job, int64_t at_ms);

/* Takes ev, which has been folded into j: its consequences for nodes join t. now_ms: the loop's
 * clock. */
void quarantine_take(struct quarantine *q, const struct nodes *nodes, int64_t now_ms,
                     struct store_txn *t, const struct job *j, const struct event *ev);
/* Returns a node whose toy run is due and not among the jobs. Its next one is due after
 * QUARANTINE_TOY_MS. NULL: there is none. */
const struct node *quarantine_due(struct quarantine *q, const struct nodes *nodes,
                                  const struct jobs *jobs, int64_t now_ms);
/* Makes the spec of that node's toy run: two ranks, on GPUs if it has any in health GPU_OK; one
 * rank if there is no room for two. */
int quarantine_toy(const struct node *n, struct job_spec *spec, struct err *e);
/* Ends a node's quarantine: the row's end joins t. false: the node is in none. */
bool quarantine_end(struct quarantine *q, struct store_txn *t, const char *node, const char *why);

#endif
