/* check_freeze.c: matches the patterns of train.freeze with the names of a model's tensors, and
 * assigns a kind to each layer by the tensors that are frozen in it. */
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/room.h"
#include "worker/family/family.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"

#define NAMES_SIZE   320
#define PATTERN_SIZE 128 /* largest number of bytes of a pattern; names are shorter than 64 */

static_assert(FREEZE_LAYERS == ZERO_LAYERS_MAX, "plans refuse models with more layers");

struct freezing {
    const struct job_spec *s;
    struct shape_freeze *to;
    int n;                         /* number of patterns */
    bool matched[SPEC_FREEZES];    /* the pattern has matched a tensor */
    bool trains;                   /* set if a trained tensor was found; to->first is the first */
    char names[NAMES_SIZE];        /* names of some tensors, which errors list */
    struct param of[PROG_WEIGHTS]; /* tensors of the section that is being marked */
};

static const char *pattern(const struct freezing *z, int i)
{
    return spec_text(z->s, z->s->train.freeze[i]);
}

/* Tells whether a pattern matches a whole name. `*` matches any number of characters, and `?`
 * matches one. */
static bool fits(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*')
            star = pattern++, from = name;
        else if (*pattern == '?' || *pattern == *name)
            pattern++, name++;
        else if (star)
            pattern = star + 1, name = ++from;
        else
            return false;
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

static bool matches(struct freezing *z, const char *name)
{
    bool any = false;
    for (int i = 0; i < z->n; i++) {
        if (fits(pattern(z, i), name)) any = z->matched[i] = true;
    }
    return any;
}

/* Tells whether tensor i of a section is frozen. In a model with adapters only their tensors and
 * the modules that are trained whole are not. A pattern that matches the name of the head also
 * freezes a tied embedding. */
static bool is_frozen(struct freezing *z, int bucket, int i)
{
    const struct model_shape *m = &z->s->model.shape;
    if (shape_adapts(m)) return !z->of[i].adapter && !z->of[i].saved;
    const bool by_name = matches(z, z->of[i].name);
    return (bucket == 0 && i == 0 && m->tied && matches(z, family_head(m))) || by_name;
}

/* Fails if only some of the tensors that one product reads are frozen. */
static int check_joined(const struct freezing *z, const struct program *p, const uint64_t *frozen,
                        struct err *e)
{
    for (int i = 1; i < p->n_weights; i++) {
        const bool now = freeze_has(frozen, i);
        if (!p->weight[i].joined || now == freeze_has(frozen, i - 1)) continue;
        return err_field(e, ERR_UNSUPPORTED, "train.freeze",
                         "train.freeze names %s and not %s, and one product computes both: name "
                         "both or neither",
                         z->of[now ? i : i - 1].name, z->of[now ? i - 1 : i].name);
    }
    return 0;
}

static void note_name(struct freezing *z, const char *name)
{
    const size_t at = strlen(z->names);
    if (at + strlen(name) + 3 < sizeof z->names)
        snprintf(z->names + at, sizeof z->names - at, "%s%s", at ? ", " : "", name);
}

/* Marks the frozen tensors of a section. p is the program of the section. */
static int mark(struct freezing *z, int bucket, const struct program *p, uint64_t *frozen,
                struct err *e)
{
    const int n = param_bucket(&z->s->model.shape, bucket, z->of, NULL);
    memset(frozen, 0, FREEZE_WORDS * sizeof *frozen);
    for (int i = 0; i < n; i++) {
        if (bucket < 2 || bucket > z->s->model.shape.n_layers) note_name(z, z->of[i].name);
        if (is_frozen(z, bucket, i))
            frozen[i / 64] |= (uint64_t)1 << i % 64;
        else if (!z->of[i].frozen && !z->trains)
            z->trains = true, z->to->first = bucket;
    }
    return check_joined(z, p, frozen, e);
}

/* Returns the index of the kind of layer l, and adds the kind if it is new. Returns -1 if there
 * are too many kinds. */
static int kind_of(struct shape_freeze *to, const struct model_shape *m, int l,
                   const struct freeze_kind *like)
{
    for (int k = 0; k < to->n_kinds; k++) {
        const struct freeze_kind *of = &to->of[k];
        if (of->input == like->input && !memcmp(of->frozen, like->frozen, sizeof of->frozen) &&
            family_own_kind(m, of->layer) == family_own_kind(m, l))
            return k;
    }
    if (to->n_kinds == FREEZE_KINDS) return -1;
    to->of[to->n_kinds] = *like;
    return to->n_kinds++;
}

static int mark_layers(struct freezing *z, const struct family *f, struct err *e)
{
    const struct model_shape *m = &z->s->model.shape;
    for (int l = 0; l < m->n_layers; l++) {
        struct freeze_kind kind = {.layer = l, .input = z->trains};
        if (mark(z, l + 1, family_layer(f, m, l), kind.frozen, e)) return -1;
        const int k = kind_of(z->to, m, l, &kind);
        if (k < 0)
            return err_field(e, ERR_UNSUPPORTED, "train.freeze",
                             "train.freeze leaves layers that are frozen in more than %d different "
                             "ways: name the same tensors of more layers",
                             FREEZE_KINDS);
        z->to->kind[l] = (uint8_t)k;
    }
    return 0;
}

/* Fails if a pattern matches no tensor, or if all tensors are frozen. */
static int check_patterns(const struct freezing *z, struct err *e)
{
    char field[32];
    for (int i = 0; i < z->n; i++) {
        if (z->matched[i]) continue;
        snprintf(field, sizeof field, "train.freeze.%d", i);
        return err_field(e, ERR_INVALID, field,
                         "%s \"%s\" matches no tensor of the model: give a pattern of names "
                         "such as %s",
                         field, pattern(z, i), z->names);
    }
    if (z->trains) return 0;
    return err_field(e, ERR_INVALID, "train.freeze",
                     "train.freeze matches every tensor of the model, and nothing would be "
                     "trained: name fewer");
}

static int find(struct freezing *z, struct err *e)
{
    const struct model_shape *m = &z->s->model.shape;
    struct family *f = family_new(m);
    int rc = mark(z, 0, &f->in, z->to->in, e) || mark_layers(z, f, e) ||
                     mark(z, m->n_layers + 1, &f->out, z->to->out, e) || check_patterns(z, e)
                 ? -1
                 : 0;
    family_free(f);
    return rc;
}

/* Fails if a pattern has a character that names of tensors cannot have. */
static int check_characters(const char *field, const char *pattern, struct err *e)
{
    static const char taken[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-*?";
    const unsigned char c = (unsigned char)pattern[strspn(pattern, taken)];
    if (!c) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s has the byte 0x%02x, which no tensor's name has: use letters, digits, "
                     "\"_\", \".\", \"-\", \"*\" and \"?\"",
                     field, c);
}

/* Sets *n to the number of patterns. Fails if a pattern is too long or has a wrong character, or
 * if a pattern is empty and a later pattern is not. */
static int count_patterns(const struct job_spec *s, int *n, struct err *e)
{
    char field[32];
    *n = 0;
    for (int i = 0; i < SPEC_FREEZES; i++) {
        const size_t size = strlen(spec_text(s, s->train.freeze[i]));
        if (!size) continue;
        snprintf(field, sizeof field, "train.freeze.%d", i);
        if (size > PATTERN_SIZE)
            return err_field(e, ERR_TOO_LARGE, field, "%s has %zu bytes, at most %d", field, size,
                             PATTERN_SIZE);
        if (check_characters(field, spec_text(s, s->train.freeze[i]), e)) return -1;
        if (i == *n) {
            ++*n;
            continue;
        }
        snprintf(field, sizeof field, "train.freeze.%d", *n);
        return err_field(e, ERR_INVALID, field, "%s is empty: leave it out", field);
    }
    return 0;
}

int rules_freeze(struct job_spec *s, struct err *e)
{
    int n;
    if (count_patterns(s, &n, e)) return -1;
    if (!(n || shape_adapts(&s->model.shape)) || !rules_known(s)) return 0;
    assert(s->model.shape.n_layers <= FREEZE_LAYERS);
    struct shape_freeze *to = room_take(sizeof *to);
    struct freezing *z = room_take(sizeof *z);
    memset(to, 0, sizeof *to);
    memset(z, 0, sizeof *z);
    z->s = s;
    z->to = to;
    z->n = n;
    const int rc = find(z, e);
    if (!rc) s->model.shape.freeze = *to;
    room_give(z);
    room_give(to);
    return rc;
}
