/* remote.h: paths that name no file of a node: an address, or a name of the Hub. seqd downloads
 * nothing; its error has the command that does. tested: tests/core/test_container.c */
#ifndef SEQD_CORE_REMOTE_H
#define SEQD_CORE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

/* Refuses an address ("s3://bucket/a", "hf://org/name"): returns -1 with ERR_INVALID and, for a
 * known scheme, the line that fetches it; else 0. data: a data set, not a model. */
int remote_refuse(const char *path, const char *field, bool data, struct err *e);
/* Returns the addition to "there is no such file": ": ..." if the path may be a name of the Hub,
 * else "". */
const char *remote_hint(const char *path, bool data, char *out, size_t size);

#endif
