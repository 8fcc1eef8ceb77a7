/* family.c: the table of families. Completes and checks sizes by a family's row, and writes the
 * family's programs. To write them, it also places switches, and removes the head of a model
 * without a head. */
#include "worker/family/family.h"

#include <stddef.h>
#include "api/core/adapter.h"
#include "api/core/assert.h"
#include "api/core/room.h"
#include "api/core/choices.h"
#include "api/core/err.h"
#include "api/core/limits.h"
#include "api/core/model_shape.h"
#include "worker/program/adapt.h"
#include "worker/program/mlp.h"
#include "worker/program/rope.h"
#include "worker/program/spread.h"

#define ROW(WORD, name) [FAMILY_##WORD] = &family_##name,
static const struct family_row *const rows[FAMILY_N] = {FAMILIES(ROW)};
#define NAME(WORD, row) [FAMILY_##WORD] = family_##row.name,
const char *const family_words[FAMILY_N + 1] = {FAMILIES(NAME)};

const struct family_row *family_row(const struct model_shape *m)
{
    return m->family >= 0 && m->family < FAMILY_N ? rows[m->family] : NULL;
}

static int need(int64_t v, const char *key, struct err *e)
{
    if (v > 0) return 0;
    return err_field(e, ERR_INVALID, key, "%s is missing: a model.config needs it", key);
}

int family_needs(const struct model_shape *m, struct err *e)
{
    return need(m->width, "model.config.hidden_size", e) ||
                   need(m->n_layers, "model.config.num_hidden_layers", e) ||
                   need(m->n_heads, "model.config.num_attention_heads", e)
               ? -1
               : 0;
}

static int complete_heads(const struct family_row *row, struct model_shape *m, struct err *e)
{
    if (!m->n_kv_heads) m->n_kv_heads = m->n_heads;
    if (m->n_heads % m->n_kv_heads)
        return err_field(
            e, ERR_INVALID, "model.config.num_key_value_heads",
            "num_key_value_heads %lld does not divide num_attention_heads %lld: change "
            "one of them",
            (long long)m->n_kv_heads, (long long)m->n_heads);
    if (!m->head_dim && m->width % m->n_heads)
        return err_field(e, ERR_INVALID, "model.config.num_attention_heads",
                         "hidden_size %lld is not a multiple of num_attention_heads %lld: change "
                         "one, or give head_dim",
                         (long long)m->width, (long long)m->n_heads);
    if (!m->head_dim) m->head_dim = m->width / m->n_heads;
    if (m->head_dim % 2)
        return err_field(e, ERR_INVALID, "model.config.head_dim",
                         "head_dim %lld is odd: rotary positions turn pairs, it must be even",
                         (long long)m->head_dim);
    const int64_t widest = m->head_dim > m->value_dim ? m->head_dim : m->value_dim;
    const int most = row->softmax ? JOB_MAX_HEAD : JOB_MAX_LINEAR_HEAD;
    if (widest <= most) return 0;
    /* the width of a head was derived from the width, or read from a config.json */
    return err_field(e, ERR_INVALID, "model.config.head_dim",
                     "head_dim %lld: at most %d, so take more attention heads", (long long)widest,
                     most);
}

static int complete_rope(const struct family_row *row, struct model_shape *m, struct err *e)
{
    if (row->rope_kinds) return rope_complete(m, e);
    if (m->rope.kind == ROPE_DEFAULT) return 0;
    return err_field(e, ERR_UNSUPPORTED, "model.config.rope_type",
                     "rope_type \"%s\": only \"default\" is supported for %s",
                     rope_words[m->rope.kind], row->name);
}

int family_complete(struct model_shape *m, struct err *e)
{
    const struct family_row *row = family_row(m);
    if (!row)
        return err_field(e, ERR_UNSUPPORTED, "model.config.model_type",
                         "no model of this family is known here");
    return family_needs(m, e) || complete_heads(row, m, e) || (row->check && row->check(m, e)) ||
                   complete_rope(row, m, e) ||
                   need(m->ffn_width, "model.config.intermediate_size", e)
               ? -1
               : 0;
}

static void place_switches(const struct family_row *row, struct family *f)
{
    const enum spread_stage stage = row->residual_turns ? SPREAD_SECTION : SPREAD_OPERATIONS;
    prog_spread(&f->in, stage);
    for (int k = 0; k < f->n_kinds; k++) prog_spread(&f->layer[k], stage);
    prog_spread(&f->out, stage);
}

struct model_shape family_slice(const struct model_shape *m)
{
    struct model_shape s = *m;
    if (m->tp <= 1) return s;
    s.n_heads = m->n_heads / m->tp;
    s.n_kv_heads = m->n_kv_heads > m->tp ? m->n_kv_heads / m->tp : 1;
    s.ffn_width = m->ffn_width / m->tp;
    s.vocab = (m->vocab + m->tp - 1) / m->tp;
    return s;
}

/* Removes the head from `out`. Keeps the first operation if it is a norm. Adds a loss without
 * weights at the end. */
static void cut_head(struct program *out)
{
    const struct op first = out->op[0];
    const bool normed = first.kind == OP_NORM;
    const int n = normed ? first.n_w : 0;
    assert(out->has_input && (!n || first.w == 0));
    out->weights_size = out->n_weights > n ? out->weight[n].offset : out->weights_size;
    out->trained_size = out->weights_size;
    out->n_weights = n;
    out->n_ops = normed;
    prog_op(out, &(struct op){.kind = OP_XENT, .in = {normed ? first.out[0] : PROG_X}}, NULL);
}

void family_store(struct family *f, enum weights_id format)
{
    store_mark(&f->in, &f->in, format);
    for (int k = 0; k < f->n_kinds; k++) store_mark(&f->layer[k], &f->in, format);
    store_mark(&f->out, &f->in, format);
}

static_assert(FREEZE_KINDS == FAMILY_KINDS, "a program for each kind");

/* Replaces the family's kinds of layers by the kinds of a model with frozen tensors. m->freeze has
 * these kinds. */
static void freeze_layers(const struct model_shape *m, struct family *f)
{
    const struct shape_freeze *z = &m->freeze;
    const bool tied = m->tied;
    struct program *own = room_take(FAMILY_KINDS * sizeof *own);
    prog_freeze(&f->in, &(struct program_freeze){.frozen = z->in, .tied = tied});
    for (int k = 0; k < f->n_kinds; k++) prog_copy(&own[k], &f->layer[k]);
    for (int k = 0; k < z->n_kinds; k++) {
        const struct freeze_kind *of = &z->of[k];
        prog_copy(&f->layer[k], &own[family_own_kind(m, of->layer)]);
        prog_freeze(&f->layer[k], &(struct program_freeze){of->frozen, of->input, &f->in, tied});
    }
    const bool input = z->first <= m->n_layers;
    prog_freeze(&f->out, &(struct program_freeze){z->out, input, &f->in, tied});
    f->n_kinds = z->n_kinds;
    room_give(own);
}

static void adapt_layers(const struct shape_adapter *a, struct family *f)
{
    for (int k = 0; k < f->n_kinds; k++)
        prog_adapt(&f->layer[k],
                   &(struct program_adapt){.on = a->on[k],
                                           .rank = a->rank,
                                           .scale = (float)a->scale,
                                           .drops = a->dropout > 0,
                                           .random_b = a->random_b},
                   1);
}

/* Adds several adapters to layers of kind k. */
static void adapt_kind(const struct shape_adapters *a, int k, struct program *p)
{
    struct program_adapt of[SHAPE_ADAPTERS];
    uint64_t on[SHAPE_ADAPTERS][FREEZE_WORDS] = {0};
    int n = 0; /* number of products so far */
    for (int i = 0; i < p->n_weights; i++) {
        if (!prog_adapts(p, i)) continue;
        for (int c = 0; c < a->n; c++) on[c][i / 64] |= (a->of[c].on[k] >> n & 1) << i % 64;
        if (++n == SHAPE_PRODUCTS) break;
    }
    for (int c = 0; c < a->n; c++)
        of[c] = (struct program_adapt){
            .on = on[c], .rank = a->of[c].rank, .scale = (float)a->of[c].scale};
    prog_adapt(p, of, a->n);
}

/* Marks the modules that are trained whole. A job that does not compute the head has none. */
static void save_modules(const struct shape_adapter *a, struct family *f)
{
    const int embedding = prog_embedding(&f->in), head = prog_head(&f->out);
    if (a->saves & ADAPTER_SAVES_EMBEDDING) prog_save(&f->in, embedding);
    if (a->saves & ADAPTER_SAVES_HEAD && head != PROG_NONE) prog_save(&f->out, head);
}

void family_write(const struct model_shape *m, struct family *f)
{
    const struct family_row *row = family_row(m);
    const struct model_shape slice = family_slice(m);
    assert(row);
    f->n_kinds = 0;
    row->write(&slice, f);
    if (m->no_head) cut_head(&f->out);
    if (m->quant) family_store(f, m->quant);
    if (row->task == MODEL_DIFFUSION) place_switches(row, f);
    if (m->adapter.rank) adapt_layers(&m->adapter, f), save_modules(&m->adapter, f);
    for (int k = 0; k < f->n_kinds && m->adapters.n; k++) adapt_kind(&m->adapters, k, &f->layer[k]);
    if (m->freeze.n_kinds) freeze_layers(m, f);
    assert(f->n_kinds >= 1 && f->n_kinds <= FAMILY_KINDS);
    assert(!f->in.has_input && f->in.result != PROG_NONE && f->out.result == PROG_NONE);
}

struct family *family_new(const struct model_shape *m)
{
    struct family *f = room_take(sizeof *f);
    family_write(m, f);
    return f;
}

void family_free(struct family *f)
{
    room_give(f);
}

int family_own_kind(const struct model_shape *m, int64_t l)
{
    const struct family_row *row = family_row(m);
    assert(l >= 0 && l < m->n_layers);
    return row->layer_kind ? row->layer_kind(m, l) : 0;
}

int family_layer_kind(const struct model_shape *m, int64_t l)
{
    assert(l >= 0 && l < m->n_layers);
    return m->freeze.n_kinds ? m->freeze.kind[l] : family_own_kind(m, l);
}

struct family_mlps family_mlps(const struct model_shape *m)
{
    struct family_mlps has = {0};
    struct family *f = family_new(m);
    for (int64_t l = 0; l < m->n_layers; l++) {
        const struct program *p = family_layer(f, m, l);
        for (int i = 0; i < p->n_ops; i++) {
            has.dense |= prog_is_mlp(p, i);
            has.experts |= p->op[i].kind == OP_MOE;
        }
    }
    family_free(f);
    return has;
}

bool family_rotates(const struct model_shape *m)
{
    bool found = false;
    struct family *f = family_new(m);
    for (int k = 0; k < f->n_kinds; k++)
        for (int i = 0; i < f->layer[k].n_ops; i++) found |= f->layer[k].op[i].kind == OP_ROPE;
    family_free(f);
    return found;
}

const struct program *family_layer(const struct family *f, const struct model_shape *m, int64_t l)
{
    const int kind = family_layer_kind(m, l);
    assert(kind >= 0 && kind < f->n_kinds);
    return &f->layer[kind];
}
