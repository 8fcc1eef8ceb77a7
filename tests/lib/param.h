/* param.h: finds a tensor of a model by its name in a checkpoint. */
#ifndef SEQD_TESTS_PARAM_H
#define SEQD_TESTS_PARAM_H

#include <string.h>
#include "tests/lib/test.h"
#include "worker/plan/plan.h"

static inline struct param param_named(const struct model_shape *m, const char *name)
{
    struct param p = {0};
    int i = 0;
    for (; i < param_tensors(m); i++) {
        param_get(m, i, &p);
        if (!strcmp(p.name, name)) break;
    }
    CHECK_MSG(i < param_tensors(m), "the model has no tensor \"%s\"", name);
    return p;
}

#endif
