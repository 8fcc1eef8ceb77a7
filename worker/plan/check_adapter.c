/* check_adapter.c: finds the products of a model that have an adapter, and refuses the fields with
 * which an adapter is not computed. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/core/room.h"
#include "worker/family/family.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"
#include "worker/program/adapt.h"

#define NAMES_SIZE  400
#define TARGET_SIZE SPEC_TARGET_SIZE /* the names of weights are not longer */

struct adapting {
    const struct job_spec *s;
    struct shape_adapter *to;
    int n;                      /* number of targets */
    bool whole[SPEC_TARGETS];   /* the target is the whole name of a product within its layer */
    bool matched[SPEC_TARGETS]; /* the target has matched a product */
    char names[NAMES_SIZE];     /* last parts of the names of products, for errors */
};

static const char *target(const struct adapting *z, int i)
{
    return spec_text(z->s, z->s->adapter.targets[i]);
}

/* Tells whether one of the dotted parts of a name before its last one names an attention. */
static bool in_attention(const char *module)
{
    static const char *const words[] = {"attn", "attention", "token_mixer"};
    const char *last = strrchr(module, '.');
    for (size_t i = 0; last && i < sizeof words / sizeof *words; i++) {
        const char *at = strstr(module, words[i]);
        if (at && at < last) return true;
    }
    return false;
}

/* Tells whether the module is the gate of a shared expert, which belongs to the routing. */
static bool is_routing(const char *module)
{
    static const char gate[] = "shared_expert_gate";
    const size_t n = strlen(module), k = sizeof gate - 1;
    return n >= k && !strcmp(module + n - k, gate);
}

static bool matches(const char *module, const char *name)
{
    if (!strcmp(name, "all-linear")) return !is_routing(module);
    if (!strcmp(name, "attention")) return !is_routing(module) && in_attention(module);
    if (!strcmp(name, "mlp")) return !is_routing(module) && !in_attention(module);
    return param_is_named(module, name);
}

/* Tells whether target i names the module. A whole name names its module alone: output.dense of
 * BERT is not attention.output.dense. */
static bool is_by(const struct adapting *z, int i, const char *module)
{
    return z->whole[i] ? !strcmp(module, target(z, i)) : matches(module, target(z, i));
}

static bool is_target(struct adapting *z, const char *module)
{
    bool any = !z->n && matches(module, "all-linear");
    for (int i = 0; i < z->n; i++)
        if (is_by(z, i, module)) any = z->matched[i] = true;
    return any;
}

/* Adds the last part of a name to z->names, unless it is there. */
static void note_name(struct adapting *z, const char *module)
{
    char list[NAMES_SIZE + 4], word[TARGET_SIZE + 4];
    const char *dot = strrchr(module, '.'), *name = dot ? dot + 1 : module;
    const size_t at = strlen(z->names);
    snprintf(list, sizeof list, ", %s,", z->names);
    snprintf(word, sizeof word, ", %.60s,", name);
    if (strstr(list, word) || at + strlen(word) >= sizeof z->names) return;
    snprintf(z->names + at, sizeof z->names - at, "%s%s", at ? ", " : "", name);
}

/* Writes the name of a weight's module within its layer. Returns false if it has no adapter. */
static bool name_module(const struct program *p, int i, char out[TARGET_SIZE])
{
    if (!prog_adapts(p, i)) return false;
    snprintf(out, TARGET_SIZE, "%.*s", prog_module_size(&p->weight[i]), p->weight[i].name);
    return true;
}

static void find_whole(struct adapting *z, const struct program *p)
{
    char module[TARGET_SIZE];
    for (int i = 0; i < p->n_weights; i++)
        for (int k = 0; k < z->n && name_module(p, i, module); k++)
            z->whole[k] = z->whole[k] || !strcmp(module, target(z, k));
}

/* Marks the weights of a kind of layer. Returns their number. */
static int mark(struct adapting *z, const struct program *p, uint64_t *on)
{
    int n = 0;
    memset(on, 0, FREEZE_WORDS * sizeof *on);
    for (int i = 0; i < p->n_weights; i++) {
        char module[TARGET_SIZE];
        if (!name_module(p, i, module)) continue;
        note_name(z, module);
        if (!is_target(z, module)) continue;
        on[i / 64] |= (uint64_t)1 << i % 64;
        n++;
    }
    return n;
}

/* Counts the products of p that have a marked weight. */
static int n_products(const struct program *p, const uint64_t *on)
{
    int n = 0;
    for (int i = 0; i < p->n_ops; i++) {
        const struct op *o = &p->op[i];
        bool any = false;
        for (int k = o->w; o->kind == OP_LINEAR && k < o->w + o->n_w; k++) any |= freeze_has(on, k);
        n += any;
    }
    return n;
}

int rules_adapter_room(const struct program *p, const uint64_t *on, int n, struct err *e)
{
    const int more = n_products(p, on);
    if (p->n_weights + 2 * n <= PROG_WEIGHTS && p->n_ops + more <= PROG_OPS &&
        p->n_values + more <= PROG_VALUES)
        return 0;
    return err_field(e, ERR_UNSUPPORTED, "adapter.targets",
                     "adapter.targets name %d products of a layer of %d tensors and %d operations, "
                     "and with adapters a layer may have %d tensors and %d operations: name fewer",
                     n, p->n_weights, p->n_ops, PROG_WEIGHTS, PROG_OPS);
}

static int check_targets(const struct adapting *z, struct err *e)
{
    char field[32];
    for (int i = 0; i < z->n; i++) {
        if (z->matched[i]) continue;
        snprintf(field, sizeof field, "adapter.targets.%d", i);
        return err_field(e, ERR_INVALID, field,
                         "%s \"%.64s\" names no product of the model's layers: its products are "
                         "%s, and all-linear, attention and mlp name several",
                         field, target(z, i), *z->names ? z->names : "none");
    }
    if (*z->names) return 0;
    return err_field(
        e, ERR_UNSUPPORTED, "adapter.type",
        "adapter.type \"lora\": the layers of this model have no product that can have "
        "an adapter: leave adapter out");
}

/* Tells whether a layer of the model is of kind k. */
static bool has_kind(const struct model_shape *m, int k)
{
    for (int l = 0; l < m->n_layers; l++)
        if (family_own_kind(m, l) == k) return true;
    return false;
}

static int find(struct adapting *z, struct err *e)
{
    struct family *f = family_new(&z->s->model.shape);
    int rc = 0;
    for (int k = 0; k < f->n_kinds; k++) find_whole(z, &f->layer[k]);
    for (int k = 0; k < f->n_kinds && !rc; k++) {
        if (!has_kind(&z->s->model.shape, k)) continue;
        const int n = mark(z, &f->layer[k], z->to->on[k]);
        rc = rules_adapter_room(&f->layer[k], z->to->on[k], n, e);
    }
    if (!rc) rc = check_targets(z, e);
    family_free(f);
    return rc;
}

/* Fails if a name has a character that names of modules cannot have. */
static int check_characters(const char *field, const char *name, struct err *e)
{
    static const char taken[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    const unsigned char c = (unsigned char)name[strspn(name, taken)];
    if (!c) return 0;
    if (*name == '[')
        return err_field(e, ERR_INVALID, field,
                         "%s is the text %.64s: a list has its names in quotes, as [\"q_proj\", "
                         "\"v_proj\"]",
                         field, name);
    return err_field(e, ERR_INVALID, field,
                     "%s has the byte 0x%02x, which no module's name has: use letters, digits, "
                     "\"_\", \".\" and \"-\"",
                     field, c);
}

/* Checks the names of modules in ref[most], and counts them. `list` is the path of the list. Fails
 * if a name is too long, has a wrong character, or is empty and a later name is not. */
static int count_list(const struct job_spec *s, const char *list, const spec_ref *ref, int most,
                      int *n, struct err *e)
{
    char field[48];
    *n = 0;
    for (int i = 0; i < most; i++) {
        const size_t size = strlen(spec_text(s, ref[i]));
        if (!size) continue;
        snprintf(field, sizeof field, "%s.%d", list, i);
        if (size >= TARGET_SIZE)
            return err_field(e, ERR_TOO_LARGE, field, "%s has %zu bytes, at most %d", field, size,
                             TARGET_SIZE - 1);
        if (check_characters(field, spec_text(s, ref[i]), e)) return -1;
        if (i == *n) {
            ++*n;
            continue;
        }
        snprintf(field, sizeof field, "%s.%d", list, *n);
        return err_field(e, ERR_INVALID, field, "%s is empty: leave it out", field);
    }
    return 0;
}

/* Fails if a field of an adapter is set in a job that has none. */
static int check_absent(const struct job_spec *s, int n, int n_saved, struct err *e)
{
    const struct {
        const char *field;
        bool is_set;
    } of[] = {{"adapter.targets", n > 0},
              {"adapter.rank", s->adapter.rank > 0},
              {"adapter.alpha", s->adapter.alpha > 0},
              {"adapter.dropout", s->adapter.dropout > 0},
              {"adapter.rslora", s->adapter.rslora != 0},
              {"adapter.modules_to_save", n_saved > 0},
              {"optim.lr_saved", s->optim.lr_saved > 0},
              {"checkpoint.merge", s->checkpoint.merge != 0},
              {"model.adapter", s->model.adapter != 0}};
    const char *field = NULL;
    for (size_t i = sizeof of / sizeof *of; i-- > 0;)
        if (of[i].is_set) field = of[i].field;
    if (!field) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s belongs to an adapter, and adapter.type is \"none\": set adapter.type "
                     "\"lora\", or leave %s out",
                     field, field);
}

/* Refuses the fields with which an adapter is not computed. */
static int check_beside(const struct job_spec *s, struct err *e)
{
    const bool infers = s->kind != JOB_TRAIN && s->kind != JOB_VERIFY;
    if (*spec_text(s, s->train.freeze[0]))
        return err_field(e, ERR_INVALID, "train.freeze",
                         "train.freeze with an adapter: the tensors of the model are frozen "
                         "already: leave it out");
    if (s->ema.decay > 0)
        return err_field(
            e, ERR_UNSUPPORTED, "ema.decay",
            "ema.decay %g: an average of adapters is not kept in this version: leave it "
            "out",
            s->ema.decay);
    if (s->checkpoint.merge && s->model.weights != WEIGHTS_MODEL)
        return err_field(e, ERR_UNSUPPORTED, "checkpoint.merge",
                         "checkpoint.merge with model.weights \"%s\": a base in blocks is not "
                         "merged while it is trained: leave checkpoint.merge out, and merge the "
                         "adapter by seqctl merge when it is trained",
                         spec_weights_words[s->model.weights]);
    if (infers && !s->model.adapter)
        return err_field(e, ERR_INVALID, "model.adapter",
                         "adapter.type \"lora\" in a %s job needs model.adapter, the directory of "
                         "the adapter: give it, or leave adapter out",
                         spec_kind_name(s->kind));
    return 0;
}

static int check_family(const struct job_spec *s, struct err *e)
{
    if (s->adapter.dropout > 0 && s->train.attention_dropout > 0 &&
        s->model.shape.n_heads > ADAPT_HEADS)
        return err_field(e, ERR_UNSUPPORTED, "adapter.dropout",
                         "adapter.dropout %g with train.attention_dropout: of a model of more than "
                         "%d heads they would drop by the same numbers: leave one of them out",
                         s->adapter.dropout, ADAPT_HEADS);
    if (!family_diffusion(&s->model.shape)) return 0;
    return err_field(e, ERR_UNSUPPORTED, "adapter.type",
                     "adapter.type \"lora\": adapters of diffusion models are not in this version: "
                     "leave adapter out");
}

/* Checks that all tensors can be saved and listed. */
static int check_tensors(const struct model_shape *m, struct err *e)
{
    const int n = param_tensors(m);
    if (n <= FAMILY_TENSORS) return 0;
    return err_field(e, ERR_UNSUPPORTED, "adapter.targets",
                     "adapter.targets make a model of %d tensors, and at most %d are supported: "
                     "name fewer products",
                     n, FAMILY_TENSORS);
}

/* Refuses a merge that would lose a head: the adapter has one, and the model's files have none. */
static int check_merged_head(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    if (s->kind != JOB_MERGE || !m->no_head || !(m->adapter.saves & ADAPTER_SAVES_HEAD)) return 0;
    return err_field(e, ERR_UNSUPPORTED, "model.path",
                     "model.path has no head, since it was saved from its base class, and the "
                     "merged model would lose the head that model.adapter has whole: give the "
                     "directory of the model that has its head");
}

static void set_factor(const struct job_spec *s, struct shape_adapter *to)
{
    to->rank = (int32_t)(s->adapter.rank ? s->adapter.rank : ADAPTER_RANK);
    to->rslora = s->adapter.rslora;
    to->random_b = s->kind == JOB_VERIFY && !s->model.adapter;
    to->dropout = s->adapter.dropout;
    to->alpha = s->adapter.alpha > 0 ? s->adapter.alpha : to->rank;
    to->scale = to->alpha / (to->rslora ? sqrt(to->rank) : to->rank);
}

static int count_names(const struct job_spec *s, int *n, int *n_saved, struct err *e)
{
    static const char targets[] = "adapter.targets", saved[] = "adapter.modules_to_save";
    return count_list(s, targets, s->adapter.targets, SPEC_TARGETS, n, e) ||
                   count_list(s, saved, s->adapter.modules_to_save, SPEC_SAVED, n_saved, e)
               ? -1
               : 0;
}

int rules_adapter(struct job_spec *s, struct err *e)
{
    struct shape_adapter *to = room_take(sizeof *to);
    struct adapting *z = room_take(sizeof *z);
    int n = 0, n_saved = 0, rc = count_names(s, &n, &n_saved, e);
    const bool has = s->adapter.type == ADAPTER_LORA;
    if (!rc) rc = has ? check_beside(s, e) : check_absent(s, n, n_saved, e);
    if (!rc && has && rules_known(s) && !(rc = check_family(s, e))) {
        memset(to, 0, sizeof *to);
        memset(z, 0, sizeof *z);
        z->s = s;
        z->to = to;
        z->n = n;
        set_factor(s, to);
        rc = find(z, e);
        if (!rc) s->model.shape.adapter = *to;
        if (!rc) rc = rules_saved(s, n_saved, e);
        if (!rc) rc = check_merged_head(s, e);
        if (!rc) rc = check_tensors(&s->model.shape, e);
    }
    room_give(z);
    room_give(to);
    return rc;
}
