/* duration.h: a length of time as people write it: "90s", "30m", "24h", "7d". A number without a
 * unit counts seconds. libc only. tested: tests/core/test_core.c */
#ifndef SEQD_CORE_DURATION_H
#define SEQD_CORE_DURATION_H

#include <stdint.h>
#include "api/core/err.h"

/* Reads a duration as whole seconds from min_s to max_s. Fails with ERR_INVALID. */
int duration_parse(const char *text, int64_t min_s, int64_t max_s, int64_t *out_s, struct err *e);

#endif
