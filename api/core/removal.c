/* removal.c: the table of removable parts, and the search for a row by its name. */
#include "api/core/removal.h"

#include <string.h>

const struct removal_row removal_rows[REMOVAL_N] = {
    [REMOVAL_JOB] = {"job", true, true, true},
    [REMOVAL_EVENTS] = {"events", false, true, false},
    [REMOVAL_METRICS] = {"metrics", false, true, false},
    [REMOVAL_LOGS] = {"logs", true, false, false},
    [REMOVAL_CHECKPOINTS] = {"checkpoints", false, true, true},
};

int removal_find(const char *name)
{
    for (int i = 0; i < REMOVAL_N; i++)
        if (!strcmp(removal_rows[i].name, name)) return i;
    return -1;
}
