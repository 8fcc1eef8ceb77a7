/* param.c: lists a model's tensors in the flat layout, from the programs of its family: names,
 * shapes, offsets and buckets (plan.h). */
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/room.h"
#include "worker/family/family.h"
#include "worker/plan/plan.h"
#include "worker/program/adapt.h"

/* Returns the number of layers of a kind among the first n layers. */
static int64_t layers_of(const struct model_shape *m, int kind, int64_t n)
{
    int64_t count = 0;
    if (!family_row(m)->layer_kind && !m->freeze.n_kinds) return n;
    for (int64_t l = 0; l < n; l++) count += family_layer_kind(m, l) == kind;
    return count;
}

/* The index of a section's first element in the flat layout of weights and in the layout of
 * gradients. */
struct section_at {
    int64_t weights, gradients;
};

static void pass(struct section_at *at, const struct program *p, int64_t n)
{
    at->weights += n * p->weights_size;
    at->gradients += n * p->trained_size;
}

static struct section_at section_offset(const struct family *f, const struct model_shape *m,
                                        int bucket)
{
    struct section_at at = {0, 0};
    if (bucket > 0) pass(&at, &f->in, 1);
    const int layers = bucket - 1 < m->n_layers ? bucket - 1 : m->n_layers;
    for (int k = 0; bucket > 0 && k < f->n_kinds; k++)
        pass(&at, &f->layer[k], layers_of(m, k, layers));
    if (bucket > m->n_layers + 1) pass(&at, &f->out, 1);
    return at;
}

static struct section_at section_of(const struct model_shape *m, int bucket)
{
    struct family *f = family_new(m);
    const struct section_at at = section_offset(f, m, bucket);
    family_free(f);
    return at;
}

int64_t param_section(const struct model_shape *m, int bucket)
{
    return section_of(m, bucket).weights;
}

int64_t param_grad_section(const struct model_shape *m, int bucket)
{
    return section_of(m, bucket).gradients;
}

int64_t param_count(const struct model_shape *m)
{
    return section_of(m, m->n_layers + 2).weights;
}

static int tensors_before(const struct family *f, const struct model_shape *m, int bucket)
{
    int64_t n = bucket == 0 ? 0 : f->in.n_weights;
    for (int k = 0; bucket > 0 && k < f->n_kinds; k++)
        n += layers_of(m, k, bucket - 1) * f->layer[k].n_weights;
    return (int)n;
}

int param_tensors(const struct model_shape *m)
{
    struct family *f = family_new(m);
    const int n = tensors_before(f, m, m->n_layers + 1) + f->out.n_weights;
    family_free(f);
    return n;
}

void param_range(const struct model_shape *m, int bucket, int *first, int *last)
{
    struct family *f = family_new(m);
    *first = tensors_before(f, m, bucket);
    *last = *first + (bucket == 0             ? f->in.n_weights
                      : bucket <= m->n_layers ? family_layer(f, m, bucket - 1)->n_weights
                                              : f->out.n_weights);
    family_free(f);
}

void param_prefix(const struct program *p, int bucket, char out[64])
{
    const int64_t number = p->layer_base + (bucket - 1) / p->layer_step;
    snprintf(out, 64, p->prefix, (int)number);
}

static void write_name(char out[64], const struct program *p, int bucket, const struct weight *w)
{
    char prefix[64];
    param_prefix(p, bucket, prefix);
    const int n = snprintf(out, 64, "%s%s", prefix, w->name);
    assert(n > 0 && n < 64);
}

/* Describes tensor i of section `bucket`. `at` is the place of the section. */
static void fill(struct param *out, const struct program *p, int bucket, int i,
                 const struct section_at *at)
{
    const struct weight *w = &p->weight[i];
    write_name(out->name, p, bucket, w);
    out->rows = w->rows;
    out->cols = w->cols;
    out->offset = at->weights + w->offset;
    out->grad_offset = at->gradients + w->offset;
    out->count = prog_count(w);
    /* Weight decay would slow every rotation down, and a table of angles is not a matrix. */
    out->decay = w->cols > 0 && !w->frozen && w->init != INIT_LRPE;
    out->init = w->init;
    out->head_major_parts = w->head_major_parts;
    out->head_major_dim = w->head_major_dim;
    memcpy(out->head_major_runs, w->head_major_runs, sizeof out->head_major_runs);
    out->transposed = w->transposed;
    out->stack = w->stack;
    out->frozen = w->frozen;
    out->trained = w->offset < p->trained_size;
    out->adapter = w->adapter;
    out->of_adapter = w->of_adapter;
    out->saved = w->saved;
    out->of_ids = w->of_ids;
    out->n_fused = w->n_fused;
    memcpy(out->fused, w->fused, sizeof out->fused);
    out->n_dims = w->n_dims;
    memcpy(out->dims, w->dims, sizeof out->dims);
}

bool param_module(const struct model_shape *m, enum adapter_saves which,
                  char out[PARAM_MODULE_SIZE])
{
    const bool head = which == ADAPTER_SAVES_HEAD;
    struct model_shape *whole = room_take(sizeof *whole);
    *whole = *m;
    whole->no_head = whole->freeze.n_kinds = whole->adapter.rank = whole->adapters.n = 0;
    struct family *f = family_new(whole);
    const struct program *const p = head ? &f->out : &f->in;
    const int i = head ? prog_head(p) : prog_embedding(p);
    char prefix[64];
    if (i != PROG_NONE) {
        param_prefix(p, head ? m->n_layers + 1 : 0, prefix);
        snprintf(out, PARAM_MODULE_SIZE, "%s%.*s", prefix, prog_module_size(&p->weight[i]),
                 p->weight[i].name);
    }
    family_free(f);
    room_give(whole);
    return i != PROG_NONE;
}

bool param_is_named(const char *module, const char *name)
{
    const size_t n = strlen(module), k = strlen(name);
    return n >= k && !strcmp(module + n - k, name) && (n == k || module[n - k - 1] == '.');
}

static const struct program *section(const struct family *f, const struct model_shape *m,
                                     int bucket)
{
    return bucket == 0 ? &f->in : bucket <= m->n_layers ? family_layer(f, m, bucket - 1) : &f->out;
}

/* Describes tensors [from, to) of all tensors. */
static void get(const struct model_shape *m, int from, int to, struct param *out)
{
    struct family *f = family_new(m);
    int at = 0;
    struct section_at begin = {0, 0};
    for (int b = 0; b < m->n_layers + 2 && at < to; b++) {
        const struct program *p = section(f, m, b);
        for (int i = 0; i < p->n_weights; i++, at++)
            if (at >= from && at < to) fill(&out[at - from], p, b, i, &begin);
        pass(&begin, p, 1);
    }
    assert(at >= to);
    family_free(f);
}

int param_bucket(const struct model_shape *m, int bucket, struct param *out, int *first)
{
    struct family *f = family_new(m);
    const struct program *p = section(f, m, bucket);
    const struct section_at at = section_offset(f, m, bucket);
    for (int i = 0; i < p->n_weights; i++) fill(&out[i], p, bucket, i, &at);
    if (first) *first = tensors_before(f, m, bucket);
    const int n = p->n_weights;
    family_free(f);
    return n;
}

void param_get(const struct model_shape *m, int i, struct param *out)
{
    assert(i >= 0);
    get(m, i, i + 1, out);
}

int param_list(const struct model_shape *m, struct param *out, int max)
{
    const int n = param_tensors(m);
    get(m, 0, n < max ? n : max, out);
    return n;
}

/* Returns the bytes of a section in which numbers that are not in blocks have `unit` bytes.
 * Returns -1 if the weight of a product cannot be stored in blocks. */
static int64_t blocks_of(const struct program *p, int64_t unit)
{
    char room[160];
    for (int i = 0; i < p->n_weights; i++)
        if (p->weight[i].stored && store_fault(p, i, room)) return -1;
    return store_places(p, unit, NULL);
}

const char *plan_blocks_fault(const struct model_shape *m, enum weights_id format,
                              char room[PLAN_FAULT_SIZE])
{
    struct model_shape shape = *m;
    char part[160];
    bool found = false;
    shape.quant = format;
    struct family *f = family_new(&shape);
    for (int k = 0; k < f->n_kinds + 2 && !found; k++) {
        const struct program *p = !k ? &f->in : k <= f->n_kinds ? &f->layer[k - 1] : &f->out;
        for (int i = 0; i < p->n_weights && !found; i++) {
            const char *fault = p->weight[i].stored ? store_fault(p, i, part) : NULL;
            found = fault;
            if (found) snprintf(room, PLAN_FAULT_SIZE, "%.120s: %s", p->weight[i].name, fault);
        }
    }
    family_free(f);
    return found ? room : NULL;
}

int64_t plan_blocks_size(const struct model_shape *m, enum weights_id format)
{
    struct model_shape shape = *m;
    int64_t size = 0;
    shape.quant = format;
    struct family *f = family_new(&shape);
    for (int b = 0; b < m->n_layers + 2 && size >= 0; b++) {
        const int64_t n = blocks_of(section(f, m, b), 2);
        size = n < 0 ? -1 : size + n;
    }
    family_free(f);
    return size > 0 ? size : 0;
}
