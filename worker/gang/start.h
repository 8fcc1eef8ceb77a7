/* start.h: the start record of an attempt, which the agent writes (api/core/gang_start.h). */
#ifndef SEQD_GANG_START_H
#define SEQD_GANG_START_H

#include "api/core/err.h"
#include "api/core/gang_start.h"
#include "api/core/rank.h"

/* Reads and checks DIR/start, and checks that its seqrank can be run. fails: ERR_CORRUPT;
 * ERR_UNSUPPORTED for a record of another version; else as file_read, or as err_errno when seqrank
 * cannot be run. */
int start_read(const char *dir, struct gang_start *out, struct err *e);

#endif
