/* task_infer.c: opens a model with its weights, and sends the artifacts. */
#include "worker/rank/task_infer.h"

#include <stdlib.h>
#include "worker/ckpt/fence.h"
#include "worker/model/stored.h"
#include "worker/rank/weights.h"

struct model *task_open_model(struct run *r, struct err *e)
{
    struct model *m = calloc(1, sizeof *m);
    struct model_options o;
    if (!m) {
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    run_model_options(r, &o);
    if (!model_init(m, &o, e) && !weights_load(r, m, e)) {
        stored_turn(m);
        return m;
    }
    free(m);
    return NULL;
}

int task_check_fence(const struct run *r, struct err *e)
{
    if (!r->args->shared || !run_first(r)) return 0;
    return fence_check(r->args->job_dir, r->args->epoch, e);
}

int task_check_answered(int64_t n, int64_t n_refused, const struct err *first, struct err *e)
{
    if (n_refused < n) return 0;
    return err_field(e, ERR_INVALID, "input.path",
                     "no request of input.path was answered, %lld of %lld were refused: mend what "
                     "errors.jsonl of this job says of each%s%s",
                     (long long)n_refused, (long long)n, first->code ? "; the first: " : "",
                     first->code ? first->text : "");
}

int task_send_artifacts(struct run *r, const struct artifact_done *const *list, int n,
                        struct err *e)
{
    for (int i = 0; i < n; i++)
        if (*list[i]->name && run_send_artifact(r, list[i], e)) return -1;
    return 0;
}
