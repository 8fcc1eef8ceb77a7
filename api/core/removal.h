/* removal.h: the parts of a job that can be removed, in one table for the store, the nodes, REST
 * and seqctl. */
#ifndef SEQD_CORE_REMOVAL_H
#define SEQD_CORE_REMOVAL_H

#include <stdbool.h>

/* Parts are stored and sent by number, so a new part is added at the end. REMOVAL_JOB keeps only
 * the record of the removal. REMOVAL_EVENTS keeps the events that tell on which nodes the job ran
 * and which files it made. */
enum removal_what {
    REMOVAL_JOB,
    REMOVAL_EVENTS,
    REMOVAL_METRICS,
    REMOVAL_LOGS,
    REMOVAL_CHECKPOINTS,
    REMOVAL_N
};

/* The progress of a removal. A state begins when everything that the state before it removes is
 * removed durably. */
enum removal_state { REMOVAL_FILES, REMOVAL_ROWS, REMOVAL_NODES, REMOVAL_DONE, REMOVAL_STATE_N };

struct removal_row {
    const char *name;
    bool files; /* whether files of seqd are removed: the logs of ranks */
    bool rows;  /* rows of the database */
    bool nodes; /* whether files of the nodes that the job ran on are removed */
};
extern const struct removal_row removal_rows[REMOVAL_N];

int removal_find(const char *name); /* returns -1 if there is no such row */

#endif
