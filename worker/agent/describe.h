/* describe.h: what `seqrank --describe DIR` says about a model directory. */
#ifndef SEQD_AGENT_DESCRIBE_H
#define SEQD_AGENT_DESCRIBE_H

#include <stddef.h>
#include "api/core/err.h"
#include "api/core/job.h"

/* Its JSON: keys of model.config in a job spec, each exactly once needed. */
int describe_parse(const char *json, size_t size, struct model_shape *m, struct err *e);

#endif
