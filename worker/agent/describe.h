/* describe.h: checks the output of `seqrank --describe DIR` about a model directory, and of
 * `seqrank --describe-adapter DIR`. */
#ifndef SEQD_AGENT_DESCRIBE_H
#define SEQD_AGENT_DESCRIBE_H

#include <stddef.h>
#include "api/core/err.h"
#include "api/core/limits.h"

/* Copies the JSON to out. The keys are not interpreted here, because seqd interprets them. Fails
 * with ERR_PEER if the text is not one whole object, or is longer than SPEC_CONFIG_SIZE allows. */
int describe_take(const char *json, size_t size, char out[SPEC_CONFIG_SIZE], struct err *e);

#endif
