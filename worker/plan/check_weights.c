/* check_weights.c: checks whether a job may store weights in blocks (model.weights). */
#include <stdio.h>
#include "worker/family/family.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"
#include "worker/plan/slice.h"

static int refuse(const struct job_spec *s, const char *why, const char *way, struct err *e)
{
    return err_field(e, ERR_UNSUPPORTED, "model.weights", "model.weights \"%s\" %s: %s",
                     spec_weights_words[s->model.weights], why, way);
}

/* Refuses slices of parallel.tp that cannot be stored in blocks although the whole weights can. */
static int refuse_slices(const struct job_spec *s, const char *fault, struct err *e)
{
    struct model_shape m = s->model.shape;
    char room[PLAN_FAULT_SIZE];
    int tp = s->parallel.tp;
    do m.tp = tp = rules_tensor_below(&s->model.shape, tp);
    while (tp > 1 && plan_blocks_fault(&m, s->model.weights, room));
    return err_field(
        e, ERR_UNSUPPORTED, "parallel.tp",
        "parallel.tp %d cuts weights so that model.weights \"%s\" cannot store %s: make "
        "parallel.tp %d, or leave out model.weights",
        s->parallel.tp, spec_weights_words[s->model.weights], fault, tp);
}

static int check_shapes(const struct job_spec *s, struct err *e)
{
    const struct model_shape whole = slice_whole(&s->model.shape);
    char room[PLAN_FAULT_SIZE], of_whole[PLAN_FAULT_SIZE], why[PLAN_FAULT_SIZE + 16];
    const char *fault = plan_blocks_fault(&s->model.shape, s->model.weights, room);
    if (!fault) return 0;
    if (job_tp(s) > 1 && !plan_blocks_fault(&whole, s->model.weights, of_whole))
        return refuse_slices(s, fault, e);
    snprintf(why, sizeof why, "cannot store %s", fault);
    return refuse(s, why, "leave it out", e);
}

int rules_weights(struct job_spec *s, struct err *e)
{
    s->model.shape.quant = WEIGHTS_MODEL;
    if (s->model.weights == WEIGHTS_MODEL) return 0;
    if (s->kind == JOB_TRAIN && s->adapter.type == ADAPTER_NONE)
        return refuse(s, "is not trained",
                      "leave it out, or set adapter.type \"lora\", which trains an adapter", e);
    if (s->kind == JOB_TRAIN && s->verify.first_step && (s->parallel.tp > 1 || s->parallel.pp > 1))
        return refuse(s, "with parallel.tp or parallel.pp has no whole model to compare with",
                      "leave out verify.first_step, and prove it by a job of kind verify", e);
    if (!rules_known(s)) return 0;
    if (family_diffusion(&s->model.shape))
        return refuse(s, "is for models of text", "leave it out", e);
    s->model.shape.quant = s->model.weights;
    return check_shapes(s, e);
}
