/* report_sections.c: writes the buffers of sections as JSON. Values that have the same name and
 * are stored in the same place get one entry. */
#include "worker/plan/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/mem.h"

/* An entry of the report. It is for all values that have the same name and are stored in the same
 * place. */
struct report_line {
    const char *name;
    enum place_where where;
    bool grad;
    int64_t size; /* KEPT, CACHE: sum over all layers; WORK: size of the largest value */
};
enum { LINES = 96 };
struct report_lines {
    int n;
    struct report_line line[LINES];
};

static void note(struct report_lines *l, const struct report_line *one)
{
    int i = 0;
    while (i < l->n && (strcmp(l->line[i].name, one->name) || l->line[i].where != one->where ||
                        l->line[i].grad != one->grad))
        i++;
    if (i == LINES) return;
    if (i == l->n) {
        l->line[l->n++] = *one;
        return;
    }
    struct report_line *to = &l->line[i];
    to->size = one->where != PLACE_WORK ? to->size + one->size
               : one->size > to->size   ? one->size
                                        : to->size;
}

/* Tells whether value v is computed in place and so shares the buffer of an earlier value. All
 * values that share a buffer are reported once, by the name of the first value. */
static bool seen(const struct program *p, const struct place *at, int v)
{
    for (int i = 0; i < v; i++)
        if (p->value[i].view_of == PROG_NONE && at[i].where == at[v].where &&
            at[i].offset == at[v].offset && at[v].where != PLACE_WORK)
            return true;
    return false;
}

static void note_section(struct report_lines *l, const struct program *p,
                         const struct placement *at, int64_t n_layers, int64_t n_caches)
{
    for (int v = 0; v < p->n_values; v++) {
        if (p->value[v].view_of != PROG_NONE) continue;
        const struct place *value = &at->value[v], *grad = &at->grad[v];
        const bool record = value->where == PLACE_KEPT || value->where == PLACE_CACHE;
        if (record && !seen(p, at->value, v))
            note(l, &(struct report_line){p->value[v].name, value->where, false,
                                          value->size * n_layers});
        if (value->where == PLACE_WORK)
            note(l, &(struct report_line){p->value[v].name, PLACE_WORK, false, value->size});
        if (grad->where == PLACE_WORK)
            note(l, &(struct report_line){p->value[v].name, PLACE_WORK, true, grad->size});
    }
    for (int i = 0; i < p->n_ops; i++)
        if (at->state[i].size)
            note(l, &(struct report_line){"state", PLACE_CACHE, false,
                                          at->state[i].size * n_layers * n_caches});
}

static void write_line(struct jwrite *w, const struct report_line *l)
{
    char name[80];
    const bool work = l->where == PLACE_WORK, cache = l->where == PLACE_CACHE;
    snprintf(name, sizeof name, "%s%s", l->grad ? "d_" : "", l->name);
    jwrite_object(w, NULL);
    jwrite_str(w, "name", name);
    jwrite_str(w, "class",
               plan_class_name(work    ? PLAN_WORKSPACE
                               : cache ? PLAN_CACHE
                                       : PLAN_ACTIVATIONS));
    jwrite_int(w, "bytes", l->size);
    jwrite_bool(w, work ? "inside_work" : cache ? "inside_caches" : "inside_kept", true);
    jwrite_end(w);
}

void report_sections(struct jwrite *w, const struct model_shape *m, const struct plan *p)
{
    struct sections *s = mem_scratch(sizeof *s);
    struct report_lines l = {0};
    plan_sections(m, p, s);
    note_section(&l, &s->family.in, &s->in.at, 1, p->batch);
    for (int k = 0; k < s->family.n_kinds; k++)
        note_section(&l, &s->family.layer[k], &s->layer[k].at, p->shards.n_of[ZERO_LAYER + k],
                     p->batch);
    note_section(&l, &s->family.out, &s->out.at, 1, p->batch);
    free(s);
    for (int i = 0; i < l.n; i++) write_line(w, &l.line[i]);
}
