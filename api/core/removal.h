/* removal.h: what of a job can be removed: one table for the store, the nodes, REST and seqctl. */
#ifndef SEQD_CORE_REMOVAL_H
#define SEQD_CORE_REMOVAL_H

#include <stdbool.h>

/* Stored and sent by number: new ones go last. Of REMOVAL_JOB nothing is left but the record of the
 * removal. REMOVAL_EVENTS leaves those that say on which nodes it ran, and which files it made. */
enum removal_what {
    REMOVAL_JOB,
    REMOVAL_EVENTS,
    REMOVAL_METRICS,
    REMOVAL_LOGS,
    REMOVAL_CHECKPOINTS,
    REMOVAL_N
};

/* How far a removal is. What is before the next one is gone for good. */
enum removal_state { REMOVAL_FILES, REMOVAL_ROWS, REMOVAL_NODES, REMOVAL_DONE, REMOVAL_STATE_N };

struct removal_row {
    const char *name;
    bool files; /* seqd's own: the logs of ranks */
    bool rows;  /* of the database */
    bool nodes; /* files of the nodes that it ran on */
};
extern const struct removal_row removal_rows[REMOVAL_N];

int removal_find(const char *name); /* -1: there is no such row */

#endif
