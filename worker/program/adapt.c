/* adapt.c: puts an ADAPT after each product of a section that has adapters, and marks the modules
 * that are trained whole beside them. Indices of values stay in the order in which the values are
 * written, so the values after a product's output move up by one for each ADAPT. */
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/program/adapt.h"
#include "worker/program/rule.h"

static const char suffix[] = ".weight";

int prog_module_in(const char *name)
{
    const size_t n = strlen(name), k = sizeof suffix - 1;
    return n > k && !strcmp(name + n - k, suffix) ? (int)(n - k) : -1;
}

int prog_module_size(const struct weight *w)
{
    return prog_module_in(w->name);
}

bool prog_adapts(const struct program *p, int i)
{
    const struct weight *w = &p->weight[i];
    const bool dims = w->n_dims && !w->transposed;
    if (w->adapter || !w->cols || dims || w->stack || prog_module_size(w) < 0) return false;
    for (int k = 0; k < p->n_ops; k++) {
        const struct op *o = &p->op[k];
        if (o->kind == OP_LINEAR && i >= o->w && i < o->w + o->n_w) return o->n_w <= ADAPT_PARTS;
    }
    return false;
}

/* Moves the values from `at` on up by one, with all references to them, and leaves value `at` as it
 * was. */
static void open_value(struct program *p, int at)
{
    assert(p->n_values < PROG_VALUES);
    memmove(&p->value[at + 1], &p->value[at], (size_t)(p->n_values - at) * sizeof *p->value);
    p->n_values++;
    for (int i = at + 1; i < p->n_values; i++)
        if (p->value[i].view_of >= at) p->value[i].view_of++;
    for (int i = 0; i < p->n_ops; i++) {
        for (int k = 0; k < OP_INS; k++) p->op[i].in[k] += p->op[i].in[k] >= at;
        for (int k = 0; k < OP_OUTS; k++) p->op[i].out[k] += p->op[i].out[k] >= at;
    }
    for (int k = 0; k < p->n_shared; k++) p->shared[k] += p->shared[k] >= at;
    p->result += p->result >= at;
}

/* Makes all readers of value `from` read value `to`. Its views become views of `to`. */
static void redirect(struct program *p, int from, int to)
{
    for (int i = 0; i < p->n_ops; i++)
        for (int k = 0; k < OP_INS; k++)
            if (p->op[i].in[k] == from) p->op[i].in[k] = to;
    for (int i = 0; i < p->n_values; i++)
        if (p->value[i].view_of == from) p->value[i].view_of = to;
    if (p->result == from) p->result = to;
}

static int add_part(struct program *p, const struct weight *base, const char *part, struct weight w)
{
    const int n = snprintf(w.name, sizeof w.name, "%.*s.%s%s", prog_module_size(base), base->name,
                           part, suffix);
    assert(n > 0 && n < (int)sizeof w.name);
    w.adapter = true;
    return prog_weight(p, &w);
}

/* Adds A and B of weight i, for adapter k. The rows of B have the order of the weight's rows in
 * files, and are divided as those are. Returns the index of A. */
static int add_weights(struct program *p, int i, const struct program_adapt *of, int k)
{
    const struct weight base = p->weight[i];
    struct weight B = base;
    const int a = add_part(
        p, &base, "lora_A",
        (struct weight){
            .rows = of->rank, .cols = base.cols, .init = INIT_UNIFORM, .of_adapter = k});
    B.cols = of->rank;
    B.of_adapter = k;
    B.init = of->random_b ? INIT_NORMAL : INIT_ZERO;
    B.joined = B.transposed = B.frozen = false;
    B.stored = WEIGHTS_MODEL;
    B.n_dims = 0;
    add_part(p, &base, "lora_B", B);
    return a;
}

/* Tells whether a value is a part of a sum over the ranks of tensor parallelism. The product that
 * computes it then reads only the columns of its input that the rank has. */
static bool is_part(const struct program *p, int value)
{
    for (int i = 0; i < p->n_ops; i++)
        if (op_rules[p->op[i].kind]->sums && prog_base(p, p->op[i].in[0]) == value) return true;
    return false;
}

/* Adds the parts of adapter k of a product to its ADAPT. */
static void add_parts(struct program *p, const struct op *product, const struct program_adapt *a,
                      int k, struct op *to)
{
    int64_t col = 0;
    for (int i = product->w; i < product->w + product->n_w; i++) {
        if (freeze_has(a->on, i)) {
            assert(prog_adapts(p, i) && to->u.adapt.n < ADAPT_ALL);
            const int first = add_weights(p, i, a, k);
            if (!to->n_w) to->w = first;
            to->n_w += 2;
            to->u.adapt.part[to->u.adapt.n++] = (struct adapt_place){col, a->scale, k};
            to->u.adapt.rank = rule_max(to->u.adapt.rank, a->rank);
            to->u.adapt.drops |= a->drops;
        }
        col += p->weight[i].rows;
    }
}

/* Adapts the product that is operation `at`. Returns whether one of its weights has an adapter. */
static bool adapt_product(struct program *p, const struct program_adapt *a, int n, int at)
{
    const struct op product = p->op[at];
    const int out = product.out[0];
    struct op to = {.kind = OP_ADAPT, .in = {out, product.in[0]}};
    to.u.adapt.cut = is_part(p, out);
    for (int k = 0; k < n; k++) add_parts(p, &product, &a[k], k, &to);
    if (!to.n_w) return false;
    open_value(p, out + 1);
    p->value[out + 1] = p->value[out];
    p->value[out].keep = KEEP_NEVER;
    redirect(p, out, out + 1);
    assert(p->n_ops < PROG_OPS);
    memmove(&p->op[at + 2], &p->op[at + 1], (size_t)(p->n_ops - at - 1) * sizeof *p->op);
    p->n_ops++;
    to.in[2] = to.out[1] = to.out[2] = to.bias = PROG_NONE;
    to.out[0] = out + 1;
    op_rules[OP_ADAPT]->check(p, &to, &p->value[out + 1]);
    p->op[at + 1] = to;
    return true;
}

void prog_adapt(struct program *p, const struct program_adapt *a, int n)
{
    for (int i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == OP_LINEAR && adapt_product(p, a, n, i)) i++;
}

/* ---- modules that are trained whole ---------------------------------------------------------- */

/* Returns the weight of the first operation of a kind, or PROG_NONE. */
static int weight_of(const struct program *p, enum op_kind kind)
{
    for (int i = 0; i < p->n_ops; i++)
        if (p->op[i].kind == kind && p->op[i].n_w) return p->op[i].w;
    return PROG_NONE;
}

int prog_embedding(const struct program *in)
{
    return weight_of(in, OP_EMBED);
}

int prog_head(const struct program *out)
{
    const int w = weight_of(out, OP_XENT);
    return w == PROG_TIED ? PROG_NONE : w;
}

void prog_save(struct program *p, int weight)
{
    const int n = prog_module_size(&p->weight[weight]);
    assert(n > 0);
    for (int i = 0; i < p->n_weights; i++) {
        struct weight *const w = &p->weight[i];
        if (strncmp(w->name, p->weight[weight].name, (size_t)n + 1) || strchr(w->name + n + 1, '.'))
            continue;
        w->saved = true;
        w->stored = WEIGHTS_MODEL;
    }
}
