/* weights.c: the bytes of a rank's weights, and the jobs whose weights are stored in blocks. */
#include <stdio.h>
#include <string.h>
#include "api/core/device.h"
#include "worker/family/family.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"

int64_t plan_weights_size(const struct model_shape *m, const struct plan *p)
{
    const int64_t unit = precision_size(p->precision);
    int64_t size = 0;
    if (!m->quant) return p->n_held * unit;
    struct family *f = family_new(m);
    for (int b = 0; b < m->n_layers + 2; b++)
        if (zero_holds(&p->shards, b))
            size += prog_places(b == 0             ? &f->in
                                : b <= m->n_layers ? family_layer(f, m, b - 1)
                                                   : &f->out,
                                unit, NULL);
    family_free(f);
    return size;
}

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
        const char *fault = p->weight[i].stored ? prog_store_fault(p, i, room) : NULL;
        if (!fault) continue;
        snprintf(why, sizeof why, "cannot store %s%s: %s", p->weight[i].name,
                 s->model.shape.tp > 1 ? " on one rank of parallel.tp" : "", fault);
        return refuse(s, why,
                      s->model.shape.tp > 1 ? "take a smaller parallel.tp, or leave it out"
                                            : "leave it out",
                      e);
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
    const bool parts = s->parallel.tp > 1 || s->parallel.pp > 1 || s->parallel.zero;
    s->model.shape.quant = WEIGHTS_MODEL;
    if (s->model.weights == WEIGHTS_MODEL) return 0;
    if (strcmp(spec_text(s, s->resources.device), "cpu"))
        return refuse(s, "is stored by device \"cpu\" alone",
                      "set resources.device \"cpu\", or leave it out", e);
    if (s->kind == JOB_VERIFY && parts)
        return refuse(s, "is proved on ranks that hold all weights",
                      "leave out parallel.tp, parallel.pp and parallel.zero", e);
    if (!rules_known(s)) return 0;
    if (family_diffusion(&s->model.shape))
        return refuse(s, "is for models of text", "leave it out", e);
    s->model.shape.quant = s->model.weights;
    return check_shapes(s, e);
}
