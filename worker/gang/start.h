/* start.h: the start record of an attempt, which the agent writes (api/core/gang_start.h). */
#ifndef SEQD_GANG_START_H
#define SEQD_GANG_START_H

#include "api/core/err.h"
#include "api/core/gang_start.h"
#include "api/core/rank.h"

/* Reads and checks DIR/start, and checks that the program seqrank whose path is in the record
 * can be run. Fails with ERR_CORRUPT if the record is damaged, and with ERR_UNSUPPORTED if
 * another version of seqw wrote the record. Fails as err_errno does if seqrank cannot be run.
 * Also fails as file_read does. */
int start_read(const char *dir, struct gang_start *out, struct err *e);

#endif
