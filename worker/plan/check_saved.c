/* check_saved.c: finds the modules of a model that are trained whole beside adapters, by their
 * names in the package peft. */
#include <stdio.h>
#include <string.h>
#include "worker/family/family.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"

static const char list[] = "adapter.modules_to_save";

/* The modules of a model that can be trained whole. */
struct saving {
    const struct job_spec *s;
    char module[2][PARAM_MODULE_SIZE]; /* their names; a tied head has that of the model's files */
};

static const enum adapter_saves bits[] = {ADAPTER_SAVES_EMBEDDING, ADAPTER_SAVES_HEAD};

static void find_modules(struct saving *z, const struct job_spec *s)
{
    const struct model_shape *m = &s->model.shape;
    *z = (struct saving){.s = s};
    param_module(m, ADAPTER_SAVES_EMBEDDING, z->module[0]);
    if (param_module(m, ADAPTER_SAVES_HEAD, z->module[1])) return;
    snprintf(z->module[1], PARAM_MODULE_SIZE, "%s", family_head(m));
    char *const end = strstr(z->module[1], ".weight");
    if (end) *end = 0;
}

/* Returns the last part of a module's name. */
static const char *last(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

static int refuse_module(const struct saving *z, const char *field, const char *name, struct err *e)
{
    return err_field(e, ERR_UNSUPPORTED, field,
                     "%s \"%s\" is no module that is trained whole in this version, which are the "
                     "embedding, %s, and the head, %s: name these, or leave it out",
                     field, name, last(z->module[0]), last(z->module[1]));
}

static int find_name(const struct saving *z, int i, int32_t *saves, struct err *e)
{
    const char *const name = spec_text(z->s, z->s->adapter.modules_to_save[i]);
    char field[48];
    int k = 0;
    snprintf(field, sizeof field, "%s.%d", list, i);
    while (k < 2 && !param_is_named(z->module[k], name)) k++;
    if (k == 2) return refuse_module(z, field, name, e);
    if (z->s->model.shape.tied)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "%s \"%s\": the embedding and the head of this model are one tensor "
                         "(tie_word_embeddings), which no adapter keeps as one: leave it out, or "
                         "train a model in which they are two",
                         field, name);
    *saves |= (int32_t)bits[k];
    return 0;
}

static int check_rate(const struct job_spec *s, int n, struct err *e)
{
    static const char field[] = "optim.lr_saved";
    if (!(s->optim.lr_saved > 0)) return 0;
    if (!n)
        return err_field(e, ERR_INVALID, field,
                         "%s is the rate of adapter.modules_to_save, which names none%s", field,
                         s->model.adapter ? " beside model.adapter: leave it out"
                                          : ": name some, or leave it out");
    if (s->optim.lr > 0) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s is scheduled as optim.lr is, which is 0: set optim.lr above 0", field);
}

/* Refuses preferences from an adapter that has modules of its own: their references are computed
 * without the adapter, and the modules of its base are not kept. */
static int check_pairs(const struct job_spec *s, int n, struct err *e)
{
    if (!n || !job_learns_pairs(s) || !s->model.adapter) return 0;
    return err_field(e, ERR_UNSUPPORTED, list,
                     "%s names modules, and objective.type \"dpo\" computes no references without "
                     "those of model.adapter in this version: leave it out if model.adapter has "
                     "none, else name a merged model in model.path and leave model.adapter out",
                     list);
}

int rules_saved(struct job_spec *s, int n, struct err *e)
{
    struct saving z;
    int32_t saves = 0;
    if (check_rate(s, n, e) || check_pairs(s, n, e)) return -1;
    if (!n) return 0;
    find_modules(&z, s);
    for (int i = 0; i < n; i++)
        if (find_name(&z, i, &saves, e)) return -1;
    s->model.shape.adapter.saves = saves;
    return 0;
}
