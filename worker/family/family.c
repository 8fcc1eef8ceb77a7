#include "worker/family/family.h"

#include <assert.h>
#include <stddef.h>

/* By enum model_family. */
static const struct family_row *const rows[FAMILY_N] = {
    [FAMILY_LLAMA] = &family_llama,   [FAMILY_BERT] = &family_bert,
    [FAMILY_TNL] = &family_tnl,       [FAMILY_LINEAR] = &family_linear,
    [FAMILY_RETNET] = &family_retnet, [FAMILY_MINIMAX] = &family_minimax,
    [FAMILY_STDIT] = &family_stdit,   [FAMILY_STDIT3] = &family_stdit3,
    [FAMILY_LATTE] = &family_latte,   [FAMILY_T2D] = &family_t2d,
};

const struct family_row *family_row(const struct model_shape *m)
{
    return m->family >= 0 && m->family < FAMILY_N ? rows[m->family] : NULL;
}

int family_complete(struct model_shape *m, struct err *e)
{
    const struct family_row *row = family_row(m);
    if (!row)
        return err_field(e, ERR_UNSUPPORTED, "model.config.model_type",
                         "no model of this family is known here");
    return row->check ? row->check(m, e) : 0;
}

void family_write(const struct model_shape *m, struct family *f)
{
    const struct family_row *row = family_row(m);
    assert(row);
    f->n_kinds = 0;
    row->write(m, f);
    assert(f->n_kinds >= 1 && f->n_kinds <= FAMILY_KINDS);
    assert(!f->in.has_input && f->in.result != PROG_NONE && f->out.result == PROG_NONE);
}

int family_layer_kind(const struct model_shape *m, int64_t l)
{
    const struct family_row *row = family_row(m);
    assert(l >= 0 && l < m->n_layers);
    return row->layer_kind ? row->layer_kind(m, l) : 0;
}

const struct program *family_layer(const struct family *f, const struct model_shape *m, int64_t l)
{
    const int kind = family_layer_kind(m, l);
    assert(kind >= 0 && kind < f->n_kinds);
    return &f->layer[kind];
}
