/* removal.h: the parts of a job that can be removed: one table for the store, the nodes, REST and
 * seqctl. */
#ifndef SEQD_CORE_REMOVAL_H
#define SEQD_CORE_REMOVAL_H

#include <stdbool.h>

/* Stored and sent by number: new ones go last. REMOVAL_JOB leaves only the record of the removal.
 * REMOVAL_EVENTS leaves the events that tell on which nodes the job ran and which files it
 * made. */
enum removal_what {
    REMOVAL_JOB,
    REMOVAL_EVENTS,
    REMOVAL_METRICS,
    REMOVAL_LOGS,
    REMOVAL_CHECKPOINTS,
    REMOVAL_N
};

/* The progress of a removal. The items of one state are gone for good before the next state
 * begins. */
enum removal_state { REMOVAL_FILES, REMOVAL_ROWS, REMOVAL_NODES, REMOVAL_DONE, REMOVAL_STATE_N };

struct removal_row {
    const char *name;
    bool files; /* files of seqd: the logs of ranks */
    bool rows;  /* rows of the database */
    bool nodes; /* files of the nodes that the job ran on */
};
extern const struct removal_row removal_rows[REMOVAL_N];

int removal_find(const char *name); /* -1: there is no such row */

#endif
