/* dit.h: runs the program of a model's family operation by operation, where every value and every
 * gradient has memory of its own. It is for tests of families and operations, and uses no
 * schedule, placement or plan.
 *
 * A column is one rank's instance of a model. No value is computed a second time, and no two
 * values share memory. A gradient that backward must overwrite is filled with NaN before backward.
 * A gradient to which backward must add keeps the sum that it holds. */
#ifndef SEQD_TESTS_DIT_H
#define SEQD_TESTS_DIT_H

#include <math.h>
#include <stdlib.h>
#include "api/core/model_shape.h"
#include "tests/lib/ranks.h"
#include "worker/family/family.h"
#include "worker/model/op.h"
#include "worker/hf/safetensors.h"

enum { COLUMN_SECTIONS = 16, COLUMN_SCRATCH = 16 << 20 };

struct column_section {
    const struct program *p;
    int layer; /* the index of the layer, or -1 in the sections `in` and `out` */
    float *weights, *grad;
    struct tensor value[PROG_VALUES], dvalue[PROG_VALUES];
    bool touched[PROG_VALUES]; /* tells which gradients have been written so far */
};

struct column {
    const struct model_shape *m;
    const struct family *family;
    int n_sections;
    struct column_section section[COLUMN_SECTIONS];
    struct frame frame; /* one frame for all sections */
    int64_t weight_at[PROG_WEIGHTS];
    double *nll; /* the losses: for each row, an array with the loss of each place of the row */
};

static inline void *column_mem(int64_t size)
{
    void *p = NULL;
    if (posix_memalign(&p, 64, (size_t)(size > 0 ? size + 64 : 64))) abort();
    memset(p, 0xff, (size_t)(size > 0 ? size + 64 : 64));
    return p;
}

static inline int64_t column_rows(const struct column *c, const struct value *v, bool grad)
{
    const bool parts = v->rows == ROWS_TEXT || v->rows == ROWS_COND;
    return c->frame.rows[v->rows].n * (grad && parts ? c->frame.parts : 1);
}

static inline struct tensor column_tensor(const struct column *c, const struct value *v, bool grad)
{
    const int64_t rows = column_rows(c, v, grad);
    return tensor_f32(column_mem(rows * v->cols * 4), rows, v->cols, v->cols);
}

static inline struct tensor column_window(struct tensor base, const struct value *v)
{
    return tensor_sub(base, 0, base.rows, v->view_col, v->cols);
}

/* Allocates the values of section k. If the section reads values of an earlier section, it uses
 * the memory of that section. */
static inline void column_place(struct column *c, int k)
{
    struct column_section *s = &c->section[k], *in = &c->section[0];
    const struct program *p = s->p;
    s->weights = column_mem(p->weights_size * 4);
    s->grad = column_mem(p->weights_size * 4);
    memset(s->grad, 0, (size_t)p->weights_size * 4);
    for (int i = 0; i < p->n_values; i++) {
        const struct value *v = &p->value[i];
        int shared = -1;
        for (int j = 0; k && j < p->n_shared; j++)
            if (p->shared[j] == i) shared = in->p->shared[j];
        if (v->view_of != PROG_NONE) {
            s->value[i] = column_window(s->value[v->view_of], v);
            if (s->dvalue[v->view_of].data) s->dvalue[i] = column_window(s->dvalue[v->view_of], v);
        } else if (shared >= 0) {
            s->value[i] = in->value[shared];
            s->dvalue[i] = in->dvalue[shared];
            /* this gradient is cleared before backward, and all sections add to it */
            s->touched[i] = true;
        } else if (k && i == PROG_X) {
            s->value[i] = s[-1].value[s[-1].p->result];
            s->dvalue[i] = s[-1].dvalue[s[-1].p->result];
        } else {
            s->value[i] = column_tensor(c, v, false);
            if (!v->no_grad) s->dvalue[i] = column_tensor(c, v, true);
            if (!k && v->shared) {
                memset(s->dvalue[i].data, 0, (size_t)(s->dvalue[i].rows * v->cols * 4));
                s->touched[i] = true;
            }
        }
    }
}

static inline void column_free(struct column *c)
{
    for (int k = 0; k < c->n_sections; k++) {
        struct column_section *s = &c->section[k];
        free(s->weights);
        free(s->grad);
        for (int i = 0; i < s->p->n_values; i++) {
            bool own = s->p->value[i].view_of == PROG_NONE && !(k && i == PROG_X);
            for (int j = 0; k && j < s->p->n_shared; j++) own = own && s->p->shared[j] != i;
            if (own) free(s->value[i].data), free(s->dvalue[i].data);
        }
    }
    free(c->nll);
    free(c->frame.scratch);
    free(c->frame.tree_room);
}

static inline int64_t column_places(const struct model_shape *m)
{
    return m->patch_t * m->patch_h * m->patch_w;
}

static inline double column_nll(const struct column *c, int64_t row)
{
    const int64_t n = column_places(c->m);
    double s = 0;
    for (int64_t k = 0; k < n; k++) s += c->nll[row * n + k];
    return s;
}

/* Opens a column. Before the call, the caller has to set c->m, c->family, and these members of
 * c->frame: rows, parts, tree, be, dsp and batch. */
static inline void column_open(struct column *c)
{
    int64_t most = 0;
    c->n_sections = c->m->n_layers + 2;
    if (c->n_sections > COLUMN_SECTIONS) abort();
    for (int k = 0; k < c->n_sections; k++) {
        const bool in = k == 0, out = k == c->n_sections - 1;
        c->section[k].layer = in || out ? -1 : k - 1;
        c->section[k].p = in    ? &c->family->in
                          : out ? &c->family->out
                                : family_layer(c->family, c->m, k - 1);
        column_place(c, k);
        if (c->section[k].p->weights_size > most) most = c->section[k].p->weights_size;
    }
    c->frame.shape = c->m;
    c->frame.dtype = DT_F32;
    c->frame.scratch = column_mem(COLUMN_SCRATCH);
    c->frame.scratch_size = COLUMN_SCRATCH;
    c->frame.tree_stride = most;
    c->frame.tree_room = column_mem(4 * most * 4);
    c->nll = column_mem(c->frame.rows[ROWS_T].n * column_places(c->m) * 8);
    c->frame.nll = c->nll;
}

static inline void column_enter(struct column *c, int k)
{
    const struct column_section *s = &c->section[k];
    c->frame.p = s->p;
    c->frame.layer = s->layer;
    c->frame.weights = s->weights;
    store_places(s->p, 4, c->weight_at);
    c->frame.weight_at = c->weight_at;
    c->frame.weights_grad = s->grad;
    memcpy(c->frame.value, s->value, sizeof s->value);
    memcpy(c->frame.grad, s->dvalue, sizeof s->dvalue);
}

static inline int column_forward(struct column *c, struct err *e)
{
    for (int k = 0; k < c->n_sections; k++) {
        column_enter(c, k);
        for (int i = 0; i < c->section[k].p->n_ops; i++) {
            const struct op *o = &c->section[k].p->op[i];
            op_scratch_reset(&c->frame);
            if (op_table[o->kind]->forward(&c->frame, o, e)) return -1;
        }
    }
    return 0;
}

static inline int column_backward(struct column *c, struct err *e)
{
    for (int k = c->n_sections - 1; k >= 0; k--) {
        struct column_section *s = &c->section[k];
        column_enter(c, k);
        for (int i = s->p->n_ops - 1; i >= 0; i--) {
            const struct op *o = &s->p->op[i];
            struct step st = {.kind = STEP_BACKWARD, .op = i, .alias = PROG_NONE};
            for (int j = 0; j < OP_INS; j++) {
                const int v = o->in[j];
                if (v == PROG_NONE) continue;
                st.wanted[j] = s->dvalue[v].data != NULL;
                st.first[j] = !s->touched[v];
                s->touched[v] = true;
            }
            op_scratch_reset(&c->frame);
            if (op_table[o->kind]->backward(&c->frame, o, &st, e)) return -1;
        }
    }
    return 0;
}

/* ---- weights by name ------------------------------------------------------------------------- */

static inline void column_name(const struct column *c, int k, int w, char name[128])
{
    const struct program *p = c->section[k].p;
    char prefix[64];
    snprintf(prefix, sizeof prefix, p->prefix,
             p->layer_base + (k - 1) / (p->layer_step ? p->layer_step : 1));
    snprintf(name, 128, "%s%s", prefix, p->weight[w].name);
}

static inline int64_t column_count(const struct weight *w)
{
    return w->rows * (w->cols ? w->cols : 1);
}

static inline void column_load(struct column *c, const struct st_file *f)
{
    struct err e = {0};
    int n = 0;
    for (int k = 0; k < c->n_sections; k++)
        for (int i = 0; i < c->section[k].p->n_weights; i++, n++) {
            const struct weight *w = &c->section[k].p->weight[i];
            char name[128];
            column_name(c, k, i, name);
            const struct st_tensor *t = st_find(f, name);
            CHECK_MSG(t && t->count == column_count(w), "%s of %s: %lld elements wanted", name,
                      st_path(f), (long long)column_count(w));
            if (t && t->count == column_count(w))
                CHECK(st_read_f32(f, t, c->section[k].weights + w->offset, &e) == 0);
        }
    CHECK_MSG(n == st_count(f), "%s: %d tensors, the programs have %d", st_path(f), st_count(f), n);
}

#endif
