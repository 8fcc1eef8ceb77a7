/* check_weights.c: the jobs whose weights may be stored in blocks (model.weights). */
#include <stdio.h>
#include "worker/family/family.h"
#include "worker/plan/rules.h"

static int refuse(const struct job_spec *s, const char *why, const char *way, struct err *e)
{
    return err_field(e, ERR_UNSUPPORTED, "model.weights", "model.weights \"%s\" %s: %s",
                     spec_weights_words[s->model.weights], why, way);
}

/* Refuses a section's weight that cannot be stored in blocks. */
static int check_section(const struct job_spec *s, const struct program *p, struct err *e)
{
    char room[160], why[320];
    for (int i = 0; i < p->n_weights; i++) {
        const char *fault = p->weight[i].stored ? store_fault(p, i, room) : NULL;
        if (!fault) continue;
        snprintf(why, sizeof why, "cannot store %s: %s", p->weight[i].name, fault);
        return refuse(s, why, "leave it out", e);
    }
    return 0;
}

static int check_shapes(const struct job_spec *s, struct err *e)
{
    struct family *f = family_new(&s->model.shape);
    int rc = check_section(s, &f->in, e);
    for (int k = 0; k < f->n_kinds && !rc; k++) rc = check_section(s, &f->layer[k], e);
    if (!rc) rc = check_section(s, &f->out, e);
    family_free(f);
    return rc;
}

int rules_weights(struct job_spec *s, struct err *e)
{
    s->model.shape.quant = WEIGHTS_MODEL;
    if (s->model.weights == WEIGHTS_MODEL) return 0;
    if (s->kind == JOB_VERIFY && s->parallel.zero == 3)
        return refuse(s, "is not cut into the shards of parallel.zero 3",
                      "make parallel.zero 2 or less", e);
    if (!rules_known(s)) return 0;
    if (family_diffusion(&s->model.shape))
        return refuse(s, "is for models of text", "leave it out", e);
    s->model.shape.quant = s->model.weights;
    return check_shapes(s, e);
}
