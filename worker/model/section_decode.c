/* section_decode.c: runs the sections for new tokens, one of each sequence, whose keys and values
 * go into caches. */
#include "worker/model/section.h"

#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/model/model.h"
#include "worker/model/section_paged.h"

/* ---- caches ---------------------------------------------------------------------------------- */

/* Returns row k of the keys and values in a slot's cache. `first` is the keys and values of the
 * first cache. */
static char *cache_row(const struct model *m, const struct tensor *first, int slot, int64_t k)
{
    const int64_t row = first->cols * dtype_size(first->dtype);
    return (char *)first->data + (slot * cache_stride(&m->plan->extent) + k) * row;
}

int64_t section_new_rows(const struct model *m)
{
    if (m->plan->paged) return m->plan->n_pages * CACHE_PAGE;
    if (m->plan->batch > 1) return m->plan->batch * cache_stride(&m->plan->extent);
    return m->cache[0].used;
}

/* Returns the position of row k of this rank's part of a cache. The rows have ascending positions:
 * first the rows of the prompt, and then the blocks of new tokens that this rank stores
 * (model.c). */
static int64_t cache_pos(const struct model *m, const struct shard *sh, int64_t k, int64_t prompt)
{
    if (k < prompt) return shard_pos(sh, k);
    const int64_t block = (k - prompt) / CACHE_BLOCK;
    return sh->S + (block * m->plan->sp + m->rank) * CACHE_BLOCK + (k - prompt) % CACHE_BLOCK;
}

/* Returns the rows of a layer's cache that the new token sees. If the layer has no window, these
 * are all rows. If it has a window, these are the last rows. */
static struct sp_keys visible_cache(const struct model *m, const struct op *o,
                                    const struct model_cache *c, struct tensor all)
{
    const int64_t pos = c->shard.S + c->n_decoded, prompt = model_prompt_rows(&c->shard);
    int64_t first = o->u.attn.window > 0 ? all.rows : 0;
    while (first > 0 && cache_pos(m, &c->shard, first - 1, prompt) > pos - o->u.attn.window)
        first--;
    return (struct sp_keys){.kv = tensor_sub(all, first, all.rows - first, 0, all.cols),
                            .n = all.rows - first};
}

/* Returns the rows of the cache that the new token of sequence i sees. They include the token's
 * own key and value if this rank keeps them. kv has the new keys and values of all sequences. */
static struct sp_keys cache_of_row(struct model *m, const struct here *h, const struct op *o, int i,
                                   struct tensor kv)
{
    const struct section_row *row = &m->prog.row[i];
    const struct model_cache *c = &m->cache[row->slot];
    const int read = mutant_on(MUTANT_CACHE_SHARED) ? 0 : row->slot;
    struct tensor first = kv;
    first.data = section_address(m, h, &h->s->at.value[prog_base(h->p, o->in[1])], false);
    first.ld = first.cols;
    char *const own = cache_row(m, &first, row->slot, c->used);
    const char *const made = (char *)kv.data + i * kv.ld * dtype_size(kv.dtype);
    if (row->own && own != made) m->be->ops->copy(m->be, own, made, kv.cols * dtype_size(kv.dtype));
    return visible_cache(
        m, o, c,
        tensor_of(kv.dtype, cache_row(m, &first, read, 0), c->used + row->own, kv.cols, kv.cols));
}

enum { OP_VALUES = OP_INS + OP_OUTS };

static int value_of(const struct op *o, int k)
{
    return k < OP_INS ? o->in[k] : o->out[k - OP_INS];
}

/* Sets the values of an operation to row i or, if i < 0, to all their rows. Values that have no
 * rows of tokens, such as states, are always set whole. */
static void set_values(struct frame *f, const struct op *o, const struct tensor *all, int i)
{
    for (int k = 0; k < OP_VALUES; k++) {
        const int v = value_of(o, k);
        if (v == PROG_NONE) continue;
        const struct value *x = &f->p->value[prog_base(f->p, v)];
        const bool whole = i < 0 || !all[k].data || x->state || x->form;
        f->value[v] = whole ? all[k] : tensor_sub(all[k], i, 1, 0, all[k].cols);
    }
}

int section_decode_rows(struct model *m, const struct here *h, const struct op *o, struct err *e)
{
    struct frame *f = &m->prog.frame;
    const struct tensor made = f->value[o->in[1]];
    for (int i = 0; i < m->prog.n_rows; i++)
        f->keys[i] = m->plan->paged ? section_paged_row(m, h, o, i)
                                    : cache_of_row(m, h, o, i, made);
    return op_table[o->kind]->decode(f, o, e);
}

int section_decode_each(struct model *m, const struct here *h, int op, struct err *e)
{
    struct frame *f = &m->prog.frame;
    const struct op *o = &h->p->op[op];
    struct tensor all[OP_VALUES] = {0};
    int rc = 0;
    for (int k = 0; k < OP_VALUES; k++)
        if (value_of(o, k) != PROG_NONE) all[k] = f->value[value_of(o, k)];
    f->rows[ROWS_T].n = 1;
    for (int i = 0; i < m->prog.n_rows && !rc; i++) {
        set_values(f, o, all, i);
        op_scratch_reset(f);
        f->state = section_state_at(m, h, op, m->prog.row[i].slot);
        rc = op_table[o->kind]->decode(f, o, e);
    }
    f->rows[ROWS_T].n = m->prog.n_rows;
    set_values(f, o, all, -1);
    return rc;
}

/* ---- one token of each sequence -------------------------------------------------------------- */

static void place_rows(struct section_state *s, const struct section_row *row, int n)
{
    s->row = row;
    s->n_rows = n;
    for (int i = 0; i < n; i++) {
        s->token[i] = row[i].token;
        s->pos[i] = row[i].pos;
        s->frame.adapter[i] = row[i].adapter;
    }
}

int section_decode(struct model *m, const struct section_row *row, int n, struct err *e)
{
    struct section_state *s = &m->prog;
    place_rows(s, row, n);
    s->frame.by_row = true;
    if (m->be->own_memory) {
        assert(n <= m->plan->T);
        m->be->ops->upload(m->be, s->one[0].ids, s->token, n * (int64_t)sizeof *s->token);
        m->be->ops->upload(m->be, s->one[0].pos, s->pos, n * (int64_t)sizeof *s->pos);
    }
    s->frame.host = &s->one[1];
    const struct batch *b = &s->one[m->be->own_memory ? 0 : 1];
    section_set_rows(m, n);
    for (int i = 0; i <= m->shape.n_layers + 1; i++) {
        struct here h = section_at(m, i);
        h.one = true;
        section_open_frame(m, &h, b, false);
        if (section_run(m, &h, e)) return -1;
    }
    return 0;
}
