/* job_merge.c: the rules of job_check for jobs of the kind merge. */
#include <string.h>
#include "api/core/job.h"

int job_check_merge(struct job_spec *s, struct err *e)
{
    const char *device = spec_text(s, s->resources.device);
    if (!*spec_text(s, s->model.path))
        return err_field(e, ERR_INVALID, "model.path",
                         "model.path is missing: a merge job reads the model that the adapter was "
                         "trained on from its directory; a model of random weights is merged by "
                         "checkpoint.merge of the training");
    if (!*spec_text(s, s->model.adapter))
        return err_field(e, ERR_INVALID, "model.adapter",
                         "model.adapter is missing: name the adapter to merge by its path, "
                         "upload:NAME or job:ID");
    if (strcmp(device, "cpu"))
        return err_field(
            e, ERR_UNSUPPORTED, "resources.device",
            "resources.device \"%.32s\": a merge job computes on the CPU: leave it out", device);
    if (s->resources.ranks > 1)
        return err_field(e, ERR_UNSUPPORTED, "resources.ranks",
                         "resources.ranks %d: a merge job has one rank: leave it out, "
                         "resources.threads makes it faster",
                         s->resources.ranks);
    s->resources.ranks = s->parallel.sp = s->parallel.dp = 1;
    return 0;
}
