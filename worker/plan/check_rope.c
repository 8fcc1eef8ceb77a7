/* check_rope.c: checks the changes that a job makes to RoPE (model.rope). */
#include <stdio.h>
#include <string.h>
#include "api/core/err.h"
#include "worker/family/config_table.h"
#include "worker/family/family.h"
#include "worker/plan/rules.h"
#include "worker/program/rope.h"

#define OF(kind) (1u << (kind))
#define SCALED   (OF(ROPE_LINEAR) | OF(ROPE_DYNAMIC) | OF(ROPE_LLAMA3) | OF(ROPE_YARN))

static const struct {
    const char *field;
    uint32_t rules; /* rules that use the field; bit i is for the rule with enum rope_id i */
} parameters[] = {{"model.rope.factor", SCALED},
                  {"model.rope.original_max_position_embeddings", OF(ROPE_LLAMA3) | OF(ROPE_YARN)},
                  {"model.rope.low_freq_factor", OF(ROPE_LLAMA3)},
                  {"model.rope.high_freq_factor", OF(ROPE_LLAMA3)},
                  {"model.rope.beta_fast", OF(ROPE_YARN)},
                  {"model.rope.beta_slow", OF(ROPE_YARN)},
                  {"model.rope.mscale", OF(ROPE_YARN)},
                  {"model.rope.mscale_all_dim", OF(ROPE_YARN)},
                  {"model.rope.attention_factor", OF(ROPE_YARN)},
                  {"model.rope.truncate", OF(ROPE_YARN)}};

/* Checks that the job's rule uses each of the parameters that the job sets. */
static int check_parameters(const struct job_spec *s, struct err *e)
{
    const int type = s->model.rope.type;
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++) {
        const char *name = parameters[i].field;
        const struct field *f = spec_field(name);
        if (spec_is_default(s, f, (const char *)s + f->offset)) continue;
        if (!type)
            return err_field(e, ERR_INVALID, name,
                             "%s: give model.rope.type, too: the rule that reads it", name);
        if (!(parameters[i].rules & OF(type - 1)))
            return err_field(e, ERR_INVALID, name, "%s: model.rope.type \"%s\" does not read it",
                             name, rope_words[type - 1]);
    }
    return 0;
}

/* Tells whether a job may set the base of RoPE. A job may set it if the family's config has
 * rope_theta. */
static bool turns(const struct model_shape *m)
{
    return config_says(family_row(m)->config, "rope_theta");
}

static int check_stages(const struct job_spec *s, struct err *e)
{
    char field[40];
    for (int i = 0; i < s->n_stages; i++) {
        if (!(s->stages[i].rope_theta > 0)) continue;
        snprintf(field, sizeof field, "stages.%d.rope_theta", i);
        return err_field(e, ERR_UNSUPPORTED, field,
                         "%s: a model of the family %s has no base of RoPE that a job can change: "
                         "leave it out",
                         field, family_row(&s->model.shape)->name);
    }
    return 0;
}

int rules_rope(struct job_spec *s, struct err *e)
{
    struct model_shape *m = &s->model.shape;
    if (check_parameters(s, e)) return -1;
    if (!rules_known(s) || !family_row(m)) return 0;
    if (!turns(m)) {
        const char *field = s->model.rope.type        ? "model.rope.type"
                            : s->model.rope.theta > 0 ? "model.rope.theta"
                                                      : NULL;
        if (!field) return check_stages(s, e);
        return err_field(e, ERR_UNSUPPORTED, field,
                         "%s: a model of the family %s has no RoPE that a job can change: leave it "
                         "out",
                         field, family_row(m)->name);
    }
    if (s->model.rope.type) {
        m->rope = s->model.rope.rule;
        m->rope.kind = s->model.rope.type - 1;
        m->rope.no_truncate = !s->model.rope.truncate;
    }
    m->rope.compute = s->model.rope.rule.compute;
    if (s->model.rope.theta > 0) m->rope_theta = s->model.rope.theta;
    return 0;
}

int rules_rope_error(const struct job_spec *s, struct err *e)
{
    static const char prefix[] = "model.config.rope_";
    char field[sizeof e->field];
    if (!s->model.rope.type || strncmp(e->field, prefix, sizeof prefix - 1)) return -1;
    snprintf(field, sizeof field, "model.rope.%s", e->field + sizeof prefix - 1);
    if (spec_field(field)) snprintf(e->field, sizeof e->field, "%s", field);
    return -1;
}
