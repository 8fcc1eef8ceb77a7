/* remote.h: paths that name no file of a node. They are an address, or a name of the Hub. seqd
 * downloads nothing, but its error has the command that downloads the files. tested:
 * tests/core/test_container.c */
#ifndef SEQD_CORE_REMOTE_H
#define SEQD_CORE_REMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include "api/core/err.h"

/* Refuses a path that is an address ("s3://bucket/a", "hf://org/name"). Returns -1 with
 * ERR_INVALID; if the scheme is known, the error has the command that downloads it. Returns 0 if
 * `path` is not an address. `data` is true for a data set, false for a model. */
int remote_refuse(const char *path, const char *field, bool data, struct err *e);
/* Returns text to append to "there is no such file". If `path` may be a name of the Hub, the text
 * begins with ": ". Otherwise it is "". */
const char *remote_hint(const char *path, bool data, char *out, size_t size);

#endif
