/* rule.c: the checks, requests for scratch and terms of work that several rules share. */
#include "worker/program/rule.h"

#include <stddef.h>
#include "api/core/assert.h"

enum { ALIGN = 64 /* bytes; the same as MEM_ALIGN of api/core/mem.h */ };

/* ---- shapes ---------------------------------------------------------------------------------- */

const struct value *rule_in(const struct program *p, const struct op *op, int i)
{
    return op->in[i] == PROG_NONE ? NULL : &p->value[op->in[i]];
}

bool rule_alike(const struct value *a, const struct value *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

int64_t rule_weight_rows(const struct program *p, int w, int n)
{
    int64_t rows = 0;
    for (int i = w; i < w + n; i++) {
        assert(i >= 0 && i < p->n_weights && (i == w || p->weight[i].joined));
        rows += p->weight[i].rows;
    }
    return rows;
}

int64_t rule_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void rule_check_nothing(const struct program *p, const struct op *op, const struct value *out)
{
}

void rule_check_loss(const struct program *p, const struct op *op, const struct value *out)
{
    assert(!out);
}

void rule_check_alike(const struct program *p, const struct op *op, const struct value *out)
{
    const struct value *a = rule_in(p, op, 0), *b = rule_in(p, op, 1);
    assert(rule_alike(a, out) && (!b || rule_alike(a, b)));
}

int rule_alias_first(const struct op *op)
{
    return 0;
}

/* ---- scratch --------------------------------------------------------------------------------- */

static int64_t rounded(int64_t size)
{
    return (size + ALIGN - 1) / ALIGN * ALIGN;
}

void ask_bytes(struct op_ask *a, int64_t size)
{
    a->total += rounded(size);
}

void ask_act(struct op_ask *a, int64_t elements)
{
    ask_bytes(a, elements * a->x->unit);
}

void ask_stage(struct op_ask *a, int64_t size)
{
    a->staged += rounded(size);
}

void ask_twin(struct op_ask *a, int64_t size)
{
    ask_bytes(a, size);
    ask_stage(a, size);
}

bool ask_back(const struct op_ask *a)
{
    return a->s->kind == STEP_BACKWARD;
}

bool ask_narrow(const struct op_ask *a)
{
    return a->x->unit < 4;
}

int64_t ask_rows(const struct op_ask *a, int value)
{
    return a->x->rows[a->p->value[value].rows];
}

int64_t ask_elements(const struct op_ask *a, int value)
{
    return ask_rows(a, value) * a->p->value[value].cols;
}

/* Returns the number of elements of a value's gradient. If each chunk has its own gradient, the
 * rows of the value are counted once for each chunk. */
int64_t ask_grad_elements(const struct op_ask *a, int value)
{
    const enum rows_id rows = a->p->value[value].rows;
    return ask_elements(a, value) * (rows == ROWS_TEXT || rows == ROWS_COND ? a->x->parts : 1);
}

void ask_dy(struct op_ask *a)
{
    const int out = a->op->out[0];
    if (ask_back(a) && ask_narrow(a) && prog_grad_f32(a->p, out))
        ask_act(a, ask_grad_elements(a, out));
}

void ask_dx(struct op_ask *a, int k)
{
    const int in = a->op->in[k];
    if (in == PROG_NONE || !a->s->wanted[k]) return;
    if (ask_narrow(a) && prog_grad_f32(a->p, in)) ask_act(a, ask_grad_elements(a, in));
}

void ask_dx_new(struct op_ask *a, int k)
{
    const int in = a->op->in[k];
    const bool fp32 = !ask_narrow(a) || prog_grad_f32(a->p, in);
    if (a->s->wanted[k] && !(fp32 && a->s->first[k])) ask_bytes(a, 4 * ask_grad_elements(a, in));
}

void rule_scratch_nothing(struct op_ask *a)
{
}

void rule_scratch_dy(struct op_ask *a)
{
    ask_dy(a);
}

void rule_scratch_rows_of(struct op_ask *a)
{
    if (!ask_back(a)) return;
    ask_dy(a);
    for (int k = 0; k < OP_INS; k++) ask_dx(a, k);
}

void rule_need_nothing(const struct program *p, const struct op *op, struct op_need *n)
{
}

/* ---- work ------------------------------------------------------------------------------------ */

double work_rows(const struct op_site *s, int value)
{
    return s->rows[s->p->value[value].rows];
}

double work_size(const struct op_site *s, int value)
{
    return work_rows(s, value) * (double)s->p->value[value].cols;
}

void work_add(struct op_work *w, const struct op_term *t)
{
    assert(w->n < OP_TERMS);
    w->term[w->n++] = *t;
}

int work_times(const struct op_site *s)
{
    return s->back ? !s->no_dx + !s->no_dw : 1;
}

void work_product(struct op_work *w, double rows, double inner, double cols)
{
    work_add(w, &(struct op_term){.id = TERM_PRODUCT,
                                  .n = rows * inner * cols,
                                  .rows = rows,
                                  .inner = inner,
                                  .cols = cols});
}

void work_elements(struct op_work *w, enum op_term_id id, double n, double slow)
{
    work_add(w, &(struct op_term){.id = id, .n = n, .slow = slow});
}

void work_points(const struct op_site *s, struct op_work *w, double passes)
{
    const int value = s->op->out[0] == PROG_NONE ? s->op->in[0] : s->op->out[0];
    work_elements(w, TERM_POINT, passes * work_size(s, value), 1);
}

void work_nothing(const struct op_site *s, struct op_work *w)
{
}

void work_once(const struct op_site *s, struct op_work *w)
{
    work_points(s, w, 1);
}
