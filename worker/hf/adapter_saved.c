/* adapter_saved.c: the modules that an adapter's directory has whole: their names in the
 * configuration, and the errors about their tensors. */
#include <stdio.h>
#include <string.h>
#include "api/core/jwrite.h"
#include "worker/hf/adapter.h"
#include "worker/hf/safetensors.h"

static const char field[] = "adapter.modules_to_save";

/* The names of the modules of a model that are trained whole. */
struct saved {
    int n;
    char module[2][PARAM_MODULE_SIZE];
};

static struct saved find(const struct model_shape *m)
{
    static const enum adapter_saves all[] = {ADAPTER_SAVES_EMBEDDING, ADAPTER_SAVES_HEAD};
    struct saved found = {0};
    for (int i = 0; i < 2 && m->adapter.rank; i++)
        if (m->adapter.saves & (int)all[i])
            found.n += param_module(m, all[i], found.module[found.n]);
    return found;
}

/* Returns the last part of a module's name. */
static const char *last(const char *module)
{
    const char *const dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

void adapter_saved_write(struct jwrite *w, const struct model_shape *m)
{
    const struct saved found = find(m);
    if (!found.n) {
        jwrite_null(w, "modules_to_save");
        return;
    }
    jwrite_array(w, "modules_to_save");
    for (int i = 0; i < found.n; i++) jwrite_str(w, NULL, last(found.module[i]));
    jwrite_end(w);
}

int adapter_saved_compare(const struct adapter_config *c, const struct model_shape *m,
                          struct err *e)
{
    const struct saved found = find(m);
    for (int i = 0; i < c->n_saved; i++) {
        int k = 0;
        /* A wrapper's class gives modules other names in front. Tensors are found by theirs. */
        while (k < found.n && strcmp(last(found.module[k]), last(c->saved[i])) != 0) k++;
        if (k == found.n)
            return err_field(e, ERR_INVALID, field,
                             "%s: modules_to_save names %s, which the job's %s does not: name it "
                             "there",
                             c->path, c->saved[i], field);
    }
    return 0;
}

bool adapter_saved_unused(const struct model_shape *m, const char *name)
{
    char module[PARAM_MODULE_SIZE];
    if (!m->no_head || !m->adapter.rank || !(m->adapter.saves & ADAPTER_SAVES_HEAD)) return false;
    if (!param_module(m, ADAPTER_SAVES_HEAD, module)) return false;
    const size_t n = strlen(module);
    return !strncmp(name, module, n) && name[n] == '.';
}

int adapter_saved_unknown(const char *path, const char *name, struct err *e)
{
    return err_field(
        e, ERR_INVALID, field,
        "%s has the tensor %.120s, of which the job's %s says nothing: name its module "
        "there, or train an adapter without it if it is neither embedding nor head",
        path, name, field);
}

int adapter_saved_misfit(const char *path, const struct st_tensor *t, const struct param *p,
                         struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "%s: %.120s is [%lld, %lld], and the model's is [%lld, %lld]: if the vocabulary "
                   "was resized, save the resized model and name it in model.path, else give an "
                   "adapter of this model",
                   path, t->name, (long long)t->dims[0],
                   t->n_dims > 1 ? (long long)t->dims[1] : 1LL, (long long)p->rows,
                   (long long)p->cols);
}

int adapter_saved_missing(const char *path, const struct param *p, struct err *e)
{
    return err_field(e, ERR_INVALID, field,
                     "%s does not have %s, whose module the job's %s names: leave it out there, or "
                     "fetch the file again if the module was trained",
                     path, p->name, field);
}
