/* check_adapters.c: the rules of model.adapters, from which the requests of one job choose. Each of
 * them is checked as if it were the model.adapter of the job. */
#include <stdio.h>
#include <string.h>
#include "api/core/job_paths.h"
#include "api/core/room.h"
#include "worker/family/family.h"
#include "worker/plan/adapter_facts.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"
#include "worker/program/adapt.h"

static const char list[] = "model.adapters";

static const char *name_at(const struct job_spec *s, int i)
{
    return spec_text(s, s->model.adapters[i].name);
}

static int check_name(const struct job_spec *s, int i, struct err *e)
{
    static const char taken[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *name = name_at(s, i);
    const size_t size = strlen(name);
    const unsigned char c = (unsigned char)name[strspn(name, taken)];
    if (size >= SPEC_ADAPTER)
        return err_field(e, ERR_TOO_LARGE, list,
                         "%s has a name of %zu bytes, and a name has at most %d: shorten it", list,
                         size, SPEC_ADAPTER - 1);
    if (c)
        return err_field(e, ERR_INVALID, list,
                         "%s: name %d has the byte 0x%02x: names are of a to z, digits, \".\", "
                         "\"_\" and \"-\"",
                         list, i + 1, c);
    for (int k = 0; k < i; k++)
        if (!strcmp(name_at(s, k), name))
            return err_field(e, ERR_INVALID, list, "%s has the name %s twice: rename one", list,
                             name);
    return 0;
}

/* Refuses an adapter with a name by which requests choose the model without an adapter. */
static int check_choice(const struct job_spec *s, int i, struct err *e)
{
    char field[JOB_ADAPTER_FIELD];
    const bool job = !strcmp(spec_text(s, s->name), name_at(s, i));
    if (!job && strcmp(spec_text(s, s->model.path), name_at(s, i))) return 0;
    job_adapter_field(s, i, field);
    return err_field(e, ERR_INVALID, field,
                     "%s has the %s, by which requests choose the model without an adapter: "
                     "rename it%s",
                     field, job ? "name of the job" : "text of model.path",
                     job ? ", or change name" : "");
}

/* Checks the names and paths of the list, and counts them. */
static int check_list(const struct job_spec *s, int *n, struct err *e)
{
    char field[JOB_ADAPTER_FIELD];
    *n = spec_n_adapters(s);
    for (int i = *n; i < SPEC_ADAPTERS; i++)
        if (s->model.adapters[i].name || s->model.adapters[i].path || s->model.adapters[i].facts)
            return err_field(e, ERR_INVALID, list, "%s has an adapter without a name: name it",
                             list);
    for (int i = 0; i < *n; i++) {
        if (check_name(s, i, e) || check_choice(s, i, e)) return -1;
        job_adapter_field(s, i, field);
        if (!s->model.adapters[i].path)
            return err_field(e, ERR_INVALID, field, "%s is empty: give the path of an adapter",
                             field);
    }
    return 0;
}

/* Returns the first field of adapter.* that is set, or NULL. */
static const char *form_field(const struct job_spec *s)
{
    const struct {
        const char *field;
        bool is_set;
    } of[] = {{"adapter.type", s->adapter.type != ADAPTER_NONE},
              {"adapter.rank", s->adapter.rank > 0},
              {"adapter.alpha", s->adapter.alpha > 0},
              {"adapter.rslora", s->adapter.rslora != 0},
              {"adapter.dropout", s->adapter.dropout > 0},
              {"adapter.targets", s->adapter.targets[0] != 0},
              {"adapter.modules_to_save", s->adapter.modules_to_save[0] != 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].is_set) return of[i].field;
    return NULL;
}

/* Refuses the jobs whose prompts do not choose an adapter, and fields that do not go with a
 * choice. */
static int check_beside(const struct job_spec *s, struct err *e)
{
    if (!job_generates(s))
        return err_field(
            e, ERR_INVALID, list,
            "%s belongs to a generate or serve job, and a %s job has one adapter: name it in "
            "model.adapter",
            list, spec_kind_name(s->kind));
    if (s->model.adapter)
        return err_field(e, ERR_INVALID, list,
                         "%s beside model.adapter: requests choose from %s alone, so move "
                         "model.adapter into it",
                         list, list);
    const char *form = form_field(s);
    if (form)
        return err_field(e, ERR_INVALID, form,
                         "%s beside %s, each of which has a form of its own: leave adapter out",
                         form, list);
    if (rules_known(s) && family_diffusion(&s->model.shape))
        return err_field(e, ERR_UNSUPPORTED, list,
                         "%s: adapters of diffusion models are not in this version: leave it out",
                         list);
    if (!job_has_bodies(s))
        return err_field(e, ERR_INVALID, list,
                         "%s: requests of input.format \"openai_batch\" choose an adapter by their "
                         "model, and other prompts name none: name one adapter for all of them in "
                         "model.adapter",
                         list);
    if (s->context.load || s->context.save)
        return err_field(e, ERR_UNSUPPORTED, s->context.load ? "context.load" : "context.save",
                         "a context is of one adapter, and %s has several: leave one of them out",
                         list);
    return 0;
}

int adapter_list_check(const struct job_spec *s, struct err *e)
{
    int n;
    if (check_list(s, &n, e)) return -1;
    return n ? check_beside(s, e) : 0;
}

/* ---- the adapters of the shape --------------------------------------------------------------- */

/* Finds the products of the adapter of the job `own`. */
static int find_products(struct job_spec *own, const struct adapter_facts *facts, struct err *e)
{
    if (adapter_facts_fill(own, facts, e)) return -1;
    if (rules_adapter(own, e)) {
        if (!strcmp(e->field, "adapter.type"))
            return err_set(e, ERR_UNSUPPORTED,
                           "the layers of this model have no product that can have an adapter: "
                           "leave %s out",
                           list);
        adapter_facts_blame(own, facts, 0, e);
        return -1;
    }
    return rules_known(own) ? adapter_facts_check_layers(own, facts, e) : 0;
}

/* Checks adapter i as the model.adapter of the job `own`, a copy of s, and finds its products. */
static int find_one(const struct job_spec *s, int i, struct job_spec *own,
                    struct adapter_facts *facts, struct err *e)
{
    const char *text = spec_text(s, s->model.adapters[i].facts);
    char field[JOB_ADAPTER_FIELD];
    *own = *s;
    memset(own->model.adapters, 0, sizeof own->model.adapters);
    memset(&own->adapter, 0, sizeof own->adapter); /* a stored spec says the default type */
    own->model.adapter = s->model.adapters[i].path;
    job_adapter_field(s, i, field);
    if (adapter_facts_read(text, strlen(text), facts, e) ||
        (!facts->n_saved && find_products(own, facts, e))) {
        adapter_facts_listed(field, e);
        return -1;
    }
    if (!facts->n_saved) return 0;
    return err_field(e, ERR_UNSUPPORTED, field,
                     "%s: it has whole modules (modules_to_save), here %s, and one of several "
                     "adapters has none: name it alone in model.adapter",
                     field, facts->saved[0]);
}

/* Checks that each layer has room for the n adapters together. */
static int check_room(const struct family *f, const struct shape_adapter *of, int n_of,
                      struct err *e)
{
    for (int k = 0; k < f->n_kinds; k++) {
        uint64_t any[FREEZE_WORDS] = {0};
        int n = 0;
        for (int i = 0; i < n_of; i++)
            for (int w = 0; w < FREEZE_WORDS; w++) {
                any[w] |= of[i].on[k][w];
                n += __builtin_popcountll(of[i].on[k][w]);
            }
        if (rules_adapter_room(&f->layer[k], any, n, e)) return -1;
    }
    return 0;
}

/* Sets the bits of the products of a layer that have the adapter, by their numbers among those that
 * can have one. */
static int number(const struct program *p, const uint64_t *on, uint64_t *to, struct err *e)
{
    int n = 0;
    *to = 0;
    for (int i = 0; i < p->n_weights; i++) {
        if (!prog_adapts(p, i)) continue;
        if (n == SHAPE_PRODUCTS && freeze_has(on, i))
            return err_set(e, ERR_UNSUPPORTED,
                           "of a layer with more than %d products only the first can have one of "
                           "several adapters: name one in model.adapter",
                           SHAPE_PRODUCTS);
        if (n < SHAPE_PRODUCTS) *to |= (uint64_t)freeze_has(on, i) << n++;
    }
    return 0;
}

/* Sets the adapters of the shape. */
static int set_all(struct model_shape *m, const struct shape_adapter *of, int n, struct err *e)
{
    struct shape_adapters to = {.n = n};
    struct family *f = family_new(m);
    int rc = check_room(f, of, n, e);
    for (int i = 0; i < n && !rc; i++) {
        to.of[i].rank = of[i].rank;
        to.of[i].rslora = of[i].rslora;
        to.of[i].alpha = of[i].alpha;
        to.of[i].scale = of[i].scale;
        for (int k = 0; k < f->n_kinds && !rc; k++)
            rc = number(&f->layer[k], of[i].on[k], &to.of[i].on[k], e);
    }
    family_free(f);
    if (!rc) m->adapters = to;
    return rc;
}

static int check_tensors(const struct model_shape *m, struct err *e)
{
    const int n = param_tensors(m);
    if (n <= FAMILY_TENSORS) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "the adapters make a model of %d tensors, and at most %d are supported: name "
                   "fewer",
                   n, FAMILY_TENSORS);
}

static int find_all(const struct job_spec *s, int n, struct shape_adapter *to, struct err *e)
{
    struct job_spec *own = room_take(sizeof *own);
    struct adapter_facts *facts = room_take(sizeof *facts);
    int rc = 0;
    for (int i = 0; i < n && !rc; i++) {
        rc = find_one(s, i, own, facts, e);
        to[i] = own->model.shape.adapter;
    }
    room_give(facts);
    room_give(own);
    return rc;
}

int rules_adapters(struct job_spec *s, struct err *e)
{
    const int n = spec_n_adapters(s);
    if (adapter_list_check(s, e)) return -1;
    if (!n) return 0;
    for (int i = 0; i < n; i++)
        if (!s->model.adapters[i].facts) return 0;
    struct shape_adapter *of = room_take(SPEC_ADAPTERS * sizeof *of);
    int rc = find_all(s, n, of, e);
    if (!rc && rules_known(s) &&
        (set_all(&s->model.shape, of, n, e) || check_tensors(&s->model.shape, e)))
        rc = err_about(e, list);
    room_give(of);
    return rc;
}
