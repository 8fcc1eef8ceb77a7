/* names.c: maps the name of a tensor in the files of a directory to its name in the flat
 * layout. In files of the base class of transformers, names do not have the prefix that they
 * have in files of other classes (family_base). Some older files use other names
 * (family_row.rename). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/faults.h"
#include "worker/family/family.h"
#include "worker/hf/weights.h"

struct param *hf_sorted_whole(const struct model_shape *m, int *n, struct err *e)
{
    struct model_shape whole = *m;
    whole.no_head = false;
    struct param *list = hf_sorted(&whole, n, e);
    if (list) *n = hf_of_base(list, *n);
    return list;
}

/* Two names that show whether names have the base's prefix (family_base). `with` is the first
 * name that has the prefix. `without` is the first name of a tensor of the base that does not
 * have the prefix. A member is NULL if there is no such name. */
struct evidence {
    const char *with, *without;
};
static struct evidence look(const struct hf_weights *w, const struct param *params, int n)
{
    const char *base = family_base(w->m);
    struct evidence found = {0};
    for (int i = 0; i < w->n && *base; i++) {
        const char *name = w->entry[i].name;
        char whole[ST_NAME_SIZE + 32];
        snprintf(whole, sizeof whole, "%s%s", base, name);
        if (!found.with && hf_starts_with(name, base)) found.with = w->entry[i].stored;
        if (!found.without && hf_find_param(params, n, whole)) found.without = w->entry[i].stored;
    }
    return found;
}

/* Adds the base's prefix to the names in a file of the base class. The names of the tensors of a
 * head are not changed. */
static void put_base(struct hf_weights *w, const struct param *params, int n)
{
    for (int i = 0; i < w->n; i++) {
        struct hf_entry *x = &w->entry[i];
        char whole[ST_NAME_SIZE];
        if (hf_find_param(params, n, x->name) || hf_skipped(w->m, x->name)) continue;
        if (snprintf(whole, sizeof whole, "%s%s", family_base(w->m), x->name) < (int)sizeof whole)
            memcpy(x->name, whole, sizeof whole);
    }
}

static int mixed(struct hf_weights *w, const struct evidence *found, struct err *e)
{
    err_set(e, ERR_INVALID,
            "%s: \"%s\" and \"%s\": names of tensors have \"%s\" before them, or none has: save "
            "the directory again with the package",
            w->path, found->with, found->without, family_base(w->m));
    if (!w->faults) return -1;
    faults_add(w->faults, e);
    return 0;
}

int hf_name_entries(struct hf_weights *w, struct err *e)
{
    const struct family_row *row = w->m ? family_row(w->m) : NULL;
    int n, rc = 0;
    for (int i = 0; i < w->n; i++) {
        struct hf_entry *x = &w->entry[i];
        if (row && row->rename)
            row->rename(x->stored, x->name, sizeof x->name);
        else
            memcpy(x->name, x->stored, sizeof x->name);
    }
    struct param *params = row ? hf_sorted_whole(w->m, &n, e) : NULL;
    if (!params) return row ? -1 : 0;
    const struct evidence found = look(w, params, n);
    w->unprefixed = found.without && !found.with;
    if (w->unprefixed) put_base(w, params, n);
    if (found.with && found.without) rc = mixed(w, &found, e);
    free(params);
    return rc;
}

int hf_find_head(const struct hf_weights *w, bool *headless, struct err *e)
{
    struct model_shape less = *w->m, whole = *w->m;
    int n;
    less.no_head = true;
    whole.no_head = false;
    const int first = param_tensors(&less);
    struct param *params = hf_list(&whole, &n, e);
    if (!params) return -1;
    *headless = first < n;
    for (int i = first; i < n; i++)
        if (hf_entry_of(w, params[i].name)) *headless = false;
    free(params);
    return 0;
}
