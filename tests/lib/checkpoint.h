/* checkpoint.h: checks and loads a checkpoint in the same way as a job that resumes. */
#ifndef SEQD_TESTS_CHECKPOINT_H
#define SEQD_TESTS_CHECKPOINT_H

#include "worker/ckpt/ckpt.h"

static inline int checkpoint_load(const char *step_dir, const struct model_shape *shape,
                                  const struct ckpt_arrays *a, struct ckpt_state *s, struct err *e)
{
    struct ckpt_info info;
    if (ckpt_check(step_dir, &info, e)) return -1;
    return ckpt_load_checked(&info, shape, a, s, e);
}

#endif
