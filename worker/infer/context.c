/* context.c: places the states of all layers one after the other, and copies them between a model,
 * memory and a safetensors file. */
#include "worker/infer/context.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/mem.h"
#include "worker/hf/safetensors.h"

enum { DIGEST = SHA256_HEX - 1, NAME_SIZE = 40 };

/* ---- sizes ----------------------------------------------------------------------------------- */

static const struct op *find_linear(const struct program *p)
{
    for (int i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == OP_LINEAR_ATTENTION) return &p->op[i];
    return NULL;
}

static int64_t count_of(const struct context_state *s)
{
    return s->n_heads * s->key_dim * s->value_dim;
}

/* Fills the layout. The memory for the states has the same size in every layer. It is the size
 * of the largest layer's states. */
static void fill_layout(struct context_layout *c, const struct model_shape *m,
                        const struct family *f)
{
    for (int64_t l = 0; l < c->n_layers; l++) {
        const struct program *p = family_layer(f, m, l);
        const struct op *o = find_linear(p);
        if (placement_states_size(p) > c->stride) c->stride = placement_states_size(p);
        if (!o) continue;
        c->n_states++;
        /* If outputs are divided by the sum of their weights, the sum is an additional column of
         * v. */
        c->layer[l] = (struct context_state){o->u.linear.n_heads, o->u.linear.key_dim,
                                             o->u.linear.value_dim + o->u.linear.normalise};
    }
    c->size = c->n_layers * c->stride;
}

static int check_layout(const struct context_layout *c, struct err *e)
{
    if (c->n_states == c->n_layers) return 0;
    return err_field(e, ERR_UNSUPPORTED, "model.config",
                     "%lld of %lld layers have softmax attention, whose context is no state: only "
                     "models of linear attention alone can keep one",
                     (long long)(c->n_layers - c->n_states), (long long)c->n_layers);
}

int context_layout_init(struct context_layout *c, const struct model_shape *m, struct err *e)
{
    struct family *f = malloc(sizeof *f);
    *c = (struct context_layout){.n_layers = m->n_layers};
    c->layer = calloc((size_t)m->n_layers, sizeof *c->layer);
    int rc = f && c->layer ? 0 : err_set(e, ERR_IO, "out of memory for a context's layout");
    if (rc == 0) {
        family_write(m, f);
        fill_layout(c, m, f);
    }
    free(f);
    if (rc) context_layout_fini(c);
    return rc;
}

void context_layout_fini(struct context_layout *c)
{
    free(c->layer);
    c->layer = NULL;
}

/* ---- out of a model and into it -------------------------------------------------------------- */

void context_take(struct model *m, const struct context_layout *l, char *to)
{
    for (int64_t i = 0; i < l->n_layers; i++) {
        char *at = to + i * l->stride, *state;
        int64_t size;
        for (int k = 0; (state = section_state(m, (int)i, k, &size)); k++) {
            m->be->ops->download(m->be, at, state, size);
            at += mem_round(size, MEM_ALIGN);
        }
    }
}

void context_put(struct model *m, const struct context_layout *l, const char *from)
{
    for (int64_t i = 0; i < l->n_layers; i++) {
        const char *at = from + i * l->stride;
        char *state;
        int64_t size;
        for (int k = 0; (state = section_state(m, (int)i, k, &size)); k++) {
            m->be->ops->upload(m->be, state, at, size);
            at += mem_round(size, MEM_ALIGN);
        }
    }
}

/* ---- writing --------------------------------------------------------------------------------- */

static void name_of(char out[NAME_SIZE], int64_t l)
{
    snprintf(out, NAME_SIZE, "layers.%lld.state", (long long)l);
}

int context_write(const char *path, const struct context_layout *l, const struct context *c,
                  struct err *e)
{
    const int64_t n = l->n_layers;
    if (check_layout(l, e)) return -1;
    struct st_out *items = calloc((size_t)n + 2, sizeof *items);
    char(*names)[NAME_SIZE] = calloc((size_t)n, sizeof *names);
    int rc = items && names ? 0 : err_set(e, ERR_IO, "%s: out of memory", path);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        const struct context_state *s = &l->layer[i];
        name_of(names[i], i);
        items[i] = (struct st_out){.name = names[i],
                                   .dtype = ST_F32,
                                   .n_dims = 3,
                                   .dims = {s->n_heads, s->key_dim, s->value_dim},
                                   .data = c->states + i * l->stride};
    }
    if (rc == 0) {
        items[n] = (struct st_out){.name = "context.tokens", .dtype = ST_I64, .n_dims = 1};
        items[n].dims[0] = 1;
        items[n].data = &c->n_tokens;
        items[n + 1] = (struct st_out){.name = "context.model", .dtype = ST_U8, .n_dims = 1};
        items[n + 1].dims[0] = DIGEST;
        items[n + 1].data = c->model;
        rc = st_write(path, items, (int)n + 2, e);
    }
    free(items);
    free(names);
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const struct st_tensor *want(const struct st_file *f, const char *name, enum st_dtype type,
                                    int64_t count, struct err *e)
{
    const struct st_tensor *t = st_find(f, name);
    if (t && t->dtype == type && t->count == count) return t;
    if (!t)
        err_field(e, ERR_INVALID, "context.load", "%s: no tensor \"%s\": this is no context",
                  st_path(f), name);
    else
        err_field(e, ERR_INVALID, "context.load",
                  "%s: \"%s\" is %lld elements of %s, want %lld of %s", st_path(f), name,
                  (long long)t->count, st_dtype_name(t->dtype), (long long)count,
                  st_dtype_name(type));
    return NULL;
}

static int read_head(const struct st_file *f, const char *of, struct context *c, struct err *e)
{
    const struct st_tensor *model = want(f, "context.model", ST_U8, DIGEST, e);
    const struct st_tensor *tokens = model ? want(f, "context.tokens", ST_I64, 1, e) : NULL;
    if (!model || !tokens) return -1;
    memcpy(&c->n_tokens, st_data(f, tokens), sizeof c->n_tokens);
    if (memcmp(st_data(f, model), c->model, DIGEST))
        return err_field(e, ERR_CONFLICT, "context.load",
                         "%s was made by the model with weights %.12s..., and this one has "
                         "%.12s...: give %s, with the same model.weights and precision.params",
                         st_path(f), (const char *)st_data(f, model), c->model, of);
    if (c->n_tokens < 1 || c->n_tokens > INT64_MAX / 2)
        return err_field(e, ERR_CORRUPT, "context.load", "%s stands for %lld tokens", st_path(f),
                         (long long)c->n_tokens);
    return 0;
}

static int read_state(const struct st_file *f, const struct context_layout *l, int64_t i, float *to,
                      struct err *e)
{
    const struct context_state *s = &l->layer[i];
    const int64_t n = count_of(s), dims[] = {s->n_heads, s->key_dim, s->value_dim};
    char name[NAME_SIZE];
    name_of(name, i);
    const struct st_tensor *t = want(f, name, ST_F32, n, e);
    if (!t) return -1;
    if (t->n_dims != 3 || memcmp(t->dims, dims, sizeof dims))
        return err_field(e, ERR_INVALID, "context.load",
                         "%s: \"%s\" has another shape than this model's [%lld, %lld, %lld]",
                         st_path(f), name, (long long)dims[0], (long long)dims[1],
                         (long long)dims[2]);
    if (st_read_f32(f, t, to, e)) return -1;
    for (int64_t k = 0; k < n; k++)
        if (!isfinite(to[k]))
            return err_field(e, ERR_CORRUPT, "context.load", "%s: \"%s\" is not finite", st_path(f),
                             name);
    return 0;
}

int context_read(const char *path, const struct context_layout *l, const char *of,
                 struct context *c, struct err *e)
{
    if (check_layout(l, e)) return -1;
    struct st_file *f = st_open(path, e);
    if (!f) {
        if (e && !e->field[0]) snprintf(e->field, sizeof e->field, "context.load");
        return -1;
    }
    int rc = read_head(f, of, c, e);
    for (int64_t i = 0; rc == 0 && i < l->n_layers; i++)
        rc = read_state(f, l, i, (float *)(c->states + i * l->stride), e);
    if (rc == 0 && st_count(f) != l->n_layers + 2)
        rc = err_field(e, ERR_INVALID, "context.load",
                       "%s has %d tensors: a context of this model's %lld layers has %lld", path,
                       st_count(f), (long long)l->n_layers, (long long)l->n_layers + 2);
    st_close(f);
    return rc;
}
