/* check_offload.c: checks the place to which a job offloads (memory.offload). */
#include "api/core/device.h"
#include "worker/plan/rules.h"

/* Returns the value of memory.offload that counts for the job. A proof has no optimizer, but it
 * takes the spec of a training that offloads one. */
static enum offload_id counts(const struct job_spec *s)
{
    const enum offload_id asked = (enum offload_id)s->memory.offload;
    if (s->kind != JOB_VERIFY) return asked;
    return asked == OFFLOAD_OPTIMIZER ? OFFLOAD_NONE
           : asked == OFFLOAD_ALL     ? OFFLOAD_ACTIVATIONS
                                      : asked;
}

int rules_offload(const struct job_spec *s, struct err *e)
{
    static const char offload[] = "memory.offload", dir[] = "memory.offload_dir";
    const char *device = spec_text(s, s->resources.device);
    const bool own = device_find(device)->own_memory, named = *spec_text(s, s->memory.offload_dir);
    if (own && named)
        return err_field(e, ERR_INVALID, dir,
                         "memory.offload_dir: \"%s\" offloads to its host's memory: leave it out",
                         device);
    const enum offload_id what = counts(s);
    if (what == OFFLOAD_AUTO || what == OFFLOAD_NONE) return 0;
    const char *word = spec_field(offload)->words[s->memory.offload];
    if (s->memory.time_chunk > 0 && what == OFFLOAD_OPTIMIZER)
        return err_field(
            e, ERR_UNSUPPORTED, offload,
            "memory.offload \"optimizer\" with memory.time_chunk: gradients are summed "
            "over windows on the device: leave one of them out");
    if (s->memory.time_chunk > 0)
        return err_field(e, ERR_UNSUPPORTED, offload,
                         "memory.offload \"%s\" with memory.time_chunk: windows in time "
                         "keep states alone: leave one of them out",
                         word);
    if (!own && !named)
        return err_field(e, ERR_INVALID, dir,
                         "memory.offload_dir is missing: memory.offload \"%s\" on \"cpu\" "
                         "needs a directory beneath a writable root of the node",
                         word);
    return 0;
}
