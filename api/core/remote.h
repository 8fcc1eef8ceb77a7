/* remote.h: paths that do not name a file of a node but an address or a name of the Hub. seqd
 * downloads nothing; its error contains the command that does. tested:
 * tests/core/test_container.c */
#ifndef SEQD_CORE_REMOTE_H
#define SEQD_CORE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

/* Refuses an address ("s3://bucket/a", "hf://org/name"). Returns -1 with ERR_INVALID and, for a
 * known scheme, the line that fetches it; returns 0 if path is not an address. data is true for a
 * data set, false for a model. */
int remote_refuse(const char *path, const char *field, bool data, struct err *e);
/* Returns a clause to append to "there is no such file": ": ..." if the path may be a name of the
 * Hub, otherwise "". */
const char *remote_hint(const char *path, bool data, char *out, size_t size);

#endif
