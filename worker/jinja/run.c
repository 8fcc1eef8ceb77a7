/* Runs statements. It implements scopes, loops, macros, blocks with filters, and the spans of
 * generation tags. */
#include "worker/jinja/run.h"

#include <stdlib.h>
#include <string.h>
#include "worker/jinja/lex.h"
#include "worker/jinja/parse.h"
#include "worker/jinja/value_json.h"

/* ---- scopes --------------------------------------------------------------------------------- */

struct scope *jinja_scope_new(struct template_run *r, struct scope *up)
{
    struct scope *s = jinja_heap_alloc(&r->h, sizeof *s);
    s->up = up;
    return s;
}

static struct pyvalue *scope_find(struct template_run *r, const struct scope *s, int symbol)
{
    if (!s->up) return &s->v[symbol];
    jinja_heap_spend(&r->h, s->n >> 5);
    for (int i = 0; i < s->n; i++)
        if (s->symbol[i] == symbol) return &s->v[i];
    return NULL;
}

struct pyvalue jinja_scope_get(struct template_run *r, const struct scope *scope, int symbol)
{
    for (; scope; scope = scope->up) {
        const struct pyvalue *v = scope_find(r, scope, symbol);
        if (v && v->type != V_MISSING) return *v;
    }
    return (struct pyvalue){0};
}

void jinja_scope_set(struct template_run *r, struct scope *s, int symbol, struct pyvalue v)
{
    struct pyvalue *old = scope_find(r, s, symbol);
    if (old) {
        *old = v;
        return;
    }
    if (s->n == s->room) {
        const int room = s->room ? 2 * s->room : 4;
        s->v = jinja_heap_grow(&r->h, s->v, s->n * (int64_t)sizeof *s->v,
                               room * (int64_t)sizeof *s->v);
        s->symbol = jinja_heap_grow(&r->h, s->symbol, s->n * (int64_t)sizeof *s->symbol,
                                    room * (int64_t)sizeof *s->symbol);
        s->room = room;
    }
    s->symbol[s->n] = symbol;
    s->v[s->n++] = v;
}

static void assign_namespace(struct template_run *r, struct scope *scope,
                             const struct template_node *n, struct pyvalue v)
{
    const struct pyvalue ns = jinja_scope_get(r, scope, n->symbol);
    if (ns.type != V_NAMESPACE)
        jinja_heap_fail(&r->h, ERR_INVALID, "cannot assign attribute on non-namespace object");
    if (n->value.s->n && n->value.s->p[0] == '_')
        jinja_heap_fail(&r->h, ERR_INVALID, "a namespace takes no attribute that begins with _");
    jinja_dict_set(&r->h, ns.dict, n->value, v);
}

/* Assigns v to the target. If the target is a tuple, fails with ERR_INVALID unless v has as
 * many items as the target. */
static void run_assign(struct template_run *r, struct scope *scope,
                       const struct template_node *target, struct pyvalue v)
{
    if (target->type == N_NAME) {
        jinja_scope_set(r, scope, target->symbol, v);
        return;
    }
    if (target->type == N_NSREF) {
        assign_namespace(r, scope, target, v);
        return;
    }
    const struct pylist *l = jinja_value_items(&r->h, v);
    if (l->n != target->n)
        jinja_heap_fail(&r->h, ERR_INVALID, "%s values to unpack (expected %d, got %lld)",
                        l->n < target->n ? "not enough" : "too many", target->n, (long long)l->n);
    for (int i = 0; i < target->n; i++) run_assign(r, scope, target->list[i], l->v[i]);
}

/* ---- loops ---------------------------------------------------------------------------------- */

/* Finds the next item that satisfies the condition of the loop. Returns false if no item is
 * left. The condition can read the variables of the target and the variables outside the loop.
 * It cannot read the variable `loop` of this loop. If it reads `loop`, it gets that of an
 * outer loop. */
static bool pull(struct template_run *r, struct template_loop *l, struct pyvalue *out)
{
    while (!l->over && jinja_cursor_next(&r->h, &l->items, out)) {
        if (!l->node->test) return true;
        jinja_heap_spend(&r->h, 1);
        struct scope *s = jinja_scope_new(r, l->scope);
        run_assign(r, s, l->node->a, *out);
        if (jinja_value_truth(&r->h, jinja_eval(r, s, l->node->test))) return true;
    }
    l->over = true;
    return false;
}

void jinja_loop_peek(struct template_run *r, struct template_loop *l)
{
    if (l->after.type == V_MISSING && !pull(r, l, &l->after)) l->after = (struct pyvalue){0};
}

static bool loop_next(struct template_run *r, struct template_loop *l, struct pyvalue *out)
{
    if (l->after.type != V_MISSING) {
        *out = l->after;
        l->after = (struct pyvalue){0};
    } else if (!pull(r, l, out)) {
        return false;
    }
    l->index0++;
    l->before = l->now;
    l->now = *out;
    return true;
}

int64_t jinja_loop_length(struct template_run *r, struct template_loop *l)
{
    if (l->n >= 0) return l->n;
    struct pylist *rest = jinja_list_new(&r->h, 0);
    struct pyvalue v;
    while (pull(r, l, &v)) jinja_list_add(&r->h, rest, v);
    jinja_cursor_init(&r->h, &l->items, jinja_value_of_list(rest));
    /* Remove the condition from the copied node, because all remaining items are known to
     * satisfy it. */
    struct template_node *plain = jinja_heap_grow(&r->h, l->node, sizeof *plain, sizeof *plain);
    plain->test = NULL;
    l->node = plain;
    l->over = false;
    return l->n = rest->n + l->index0 + 1 + (l->after.type != V_MISSING);
}

static enum flow run_body(struct template_run *r, const struct template_node *body,
                          struct scope *scope);

static void run_loop(struct template_run *r, const struct template_node *n, struct scope *scope,
                     struct pyvalue items, int64_t depth0)
{
    struct template_loop *l = jinja_heap_alloc(&r->h, sizeof *l);
    struct pyvalue v;
    bool none = true;
    *l = (struct template_loop){.node = n, .scope = scope, .index0 = -1, .depth0 = depth0, .n = -1};
    if (!n->test && jinja_value_has_len(items)) l->n = jinja_value_len(&r->h, items);
    jinja_cursor_init(&r->h, &l->items, items);
    while (loop_next(r, l, &v)) {
        jinja_heap_spend(&r->h, 1);
        struct scope *s = jinja_scope_new(r, scope);
        jinja_scope_set(r, s, SYM_LOOP, (struct pyvalue){.type = V_LOOP, .p = l});
        run_assign(r, s, n->a, v);
        const enum flow flow = run_body(r, n->body, s);
        if (flow == FLOW_BREAK) break;
        /* The else branch runs only if no iteration has run to its end, as in jinja2. */
        if (flow == FLOW_ON) none = false;
    }
    if (none && n->c) run_body(r, n->c, jinja_scope_new(r, scope));
}

struct pyvalue jinja_run_loop_again(struct template_run *r, struct template_loop *l,
                                    struct pyvalue items)
{
    struct text_sink text = {0}, *out = r->out;
    if (!l->node->op)
        jinja_heap_fail(&r->h, ERR_INVALID,
                        "The loop must have the 'recursive' marker to be called recursively.");
    jinja_heap_enter(&r->h);
    r->out = &text;
    run_loop(r, l->node, l->scope, items, l->depth0 + 1);
    r->out = out;
    jinja_heap_leave(&r->h);
    return jinja_sink_value(&r->h, &text);
}

/* ---- statements ----------------------------------------------------------------------------- */

struct pyvalue jinja_run_capture(struct template_run *r, const struct template_node *body,
                                 struct scope *scope)
{
    struct text_sink text = {0}, *out = r->out;
    r->out = &text;
    run_body(r, body, scope);
    r->out = out;
    return jinja_sink_value(&r->h, &text);
}

static enum flow run_if(struct template_run *r, const struct template_node *n, struct scope *scope)
{
    for (int i = 0; i < n->n; i += 2)
        if (jinja_value_truth(&r->h, jinja_eval(r, scope, n->list[i])))
            return run_body(r, n->list[i + 1], scope);
    return n->c ? run_body(r, n->c, scope) : FLOW_ON;
}

static struct pyvalue macro_value(struct template_run *r, const struct macro *def,
                                  struct scope *scope)
{
    struct macro_value *m = jinja_heap_alloc(&r->h, sizeof *m);
    *m = (struct macro_value){def, scope};
    return (struct pyvalue){.type = V_MACRO, .p = m};
}

/* Runs a block in its own scope, and passes its text through its filters. Returns the flow of the
 * body (break, continue). */
static enum flow run_filtered(struct template_run *r, const struct template_node *n,
                              struct scope *scope, struct pyvalue *out)
{
    struct scope *inner = jinja_scope_new(r, scope);
    struct text_sink text = {0}, *saved = r->out;
    r->out = &text;
    const enum flow flow = run_body(r, n->body, inner);
    r->out = saved;
    *out = jinja_sink_value(&r->h, &text);
    if (n->b && flow == FLOW_ON) { /* the text of the block is the input of the innermost filter */
        struct template_node *chain[2 * TEMPLATE_NEST];
        int depth = 0;
        for (struct template_node *f = n->b; f; f = f->a) {
            if (depth == 2 * TEMPLATE_NEST)
                jinja_heap_fail(&r->h, ERR_TOO_LARGE, "more than %d filters in a row", depth);
            chain[depth++] = f;
        }
        while (depth--) *out = jinja_call_native(r, inner, chain[depth], *out);
    }
    return flow;
}

static void run_with(struct template_run *r, const struct template_node *n, struct scope *scope,
                     struct scope *inner)
{
    for (int i = 0; i < n->n; i += 2)
        run_assign(r, inner, n->list[i], jinja_eval(r, scope, n->list[i + 1]));
}

static void add_span(struct template_run *r, int64_t begin, int64_t end)
{
    struct template_output *o = r->spans;
    if (o->n_spans == o->span_room) {
        const int64_t room = o->span_room ? 2 * o->span_room : 16;
        struct template_span *more = realloc(o->span, (size_t)room * sizeof *more);
        if (!more)
            jinja_heap_fail(&r->h, ERR_TOO_LARGE, "no memory for %lld spans", (long long)room);
        o->span = more;
        o->span_room = room;
    }
    o->span[o->n_spans++] = (struct template_span){begin, end};
}

/* Runs a generation tag. If the text is captured by a block around the tag, such as set or
 * filter, the place of the text in the output is not known, and the end of the span becomes
 * negative. */
static void run_generation(struct template_run *r, const struct template_node *n,
                           struct scope *scope)
{
    const struct pyvalue text = jinja_run_capture(r, n->body, jinja_scope_new(r, scope));
    const int64_t begin = r->main->n;
    jinja_sink_str(&r->h, r->out, text);
    add_span(r, begin, r->out == r->main ? begin + text.s->n : -1);
}

static enum flow run_statement(struct template_run *r, const struct template_node *n,
                               struct scope *scope)
{
    struct pyvalue v;
    enum flow flow = FLOW_ON;
    struct scope *inner;
    switch (n->type) {
    case N_DATA: jinja_sink_str(&r->h, r->out, n->value); break;
    case N_PRINT: jinja_sink_str(&r->h, r->out, jinja_eval(r, scope, n->a)); break;
    case N_IF: return run_if(r, n, scope);
    case N_FOR: run_loop(r, n, scope, jinja_eval(r, scope, n->b), 0); break;
    case N_SET: run_assign(r, scope, n->a, jinja_eval(r, scope, n->b)); break;
    case N_SET_BLOCK:
        flow = run_filtered(r, n, scope, &v);
        if (flow == FLOW_ON) run_assign(r, scope, n->a, v);
        break;
    case N_FILTER_BLOCK:
        flow = run_filtered(r, n, scope, &v);
        if (flow == FLOW_ON) jinja_sink_str(&r->h, r->out, v);
        break;
    case N_MACRO:
        jinja_scope_set(r, scope, n->macro->symbol, macro_value(r, n->macro, scope));
        break;
    case N_CALL_BLOCK:
        v = jinja_call_node(r, scope, n->a, macro_value(r, n->macro, scope));
        jinja_sink_str(&r->h, r->out, v);
        break;
    case N_WITH:
        inner = jinja_scope_new(r, scope);
        run_with(r, n, scope, inner);
        return run_body(r, n->body, inner);
    case N_GENERATION: run_generation(r, n, scope); break;
    case N_BREAK: return FLOW_BREAK;
    case N_CONTINUE: return FLOW_CONTINUE;
    default: return run_body(r, n, scope);
    }
    return flow;
}

static enum flow run_body(struct template_run *r, const struct template_node *body,
                          struct scope *scope)
{
    enum flow flow = FLOW_ON;
    jinja_heap_enter(&r->h);
    for (int i = 0; i < body->n && flow == FLOW_ON; i++) {
        jinja_heap_spend(&r->h, 1);
        r->h.line = body->list[i]->line;
        flow = run_statement(r, body->list[i], scope);
    }
    jinja_heap_leave(&r->h);
    return flow;
}

/* ---- rendering ------------------------------------------------------------------------------ */

static void set_root(struct template_run *r, const struct dict *vars)
{
    for (int i = 0; i < r->t->n_symbols; i++) {
        const struct pyvalue *v = jinja_dict_get(&r->h, vars, r->t->symbol[i]);
        const struct native *f = jinja_native_find(jinja_native_functions, r->t->symbol[i]);
        if (v)
            r->root.v[i] = *v;
        else if (f)
            r->root.v[i] = (struct pyvalue){.type = V_FUNCTION, .p = (void *)(uintptr_t)f};
    }
}

static void render(struct template_run *r, const char *json, int64_t size,
                   const struct run_prepare *prepare, struct template_output *o)
{
    struct text_sink out = {0};
    r->h.n_steps = INT64_MAX; /* do not count steps while JSON is read, because the limit on
                               * memory also limits this work */
    const struct pyvalue vars = jinja_json_read(&r->h, json, size);
    if (vars.type != V_DICT) jinja_heap_fail(&r->h, ERR_INVALID, "the variables are not an object");
    if (prepare) prepare->fn(r, vars.dict, prepare->context);
    r->root.v = jinja_heap_alloc(&r->h, (r->t->n_symbols + 1) * (int64_t)sizeof *r->root.v);
    set_root(r, vars.dict);
    r->h.n_steps = HEAP_STEPS;
    r->out = r->main = &out;
    run_body(r, r->t->root, &r->root);
    if (prepare && prepare->after) prepare->after(r, prepare->context);
    if (out.n > o->room) {
        char *text = realloc(o->text, (size_t)out.n);
        if (!text) jinja_heap_fail(&r->h, ERR_TOO_LARGE, "no memory for its output");
        o->text = text;
        o->room = out.n;
    }
    if (out.n) memcpy(o->text, out.p, (size_t)out.n);
    o->size = out.n;
}

/* Renders. This is a separate function so that no variable of the caller is undefined after a
 * longjmp. */
static int try_render(struct template_run *r, const char *json, int64_t size,
                      const struct run_prepare *prepare, struct template_output *o)
{
    if (setjmp(r->h.fail)) return -1;
    render(r, json, size, prepare, o);
    return 0;
}

int jinja_render(const struct template *t, const char *json, int64_t size, int64_t now_s,
                 struct template_output *o, struct err *e)
{
    return jinja_run_template(t, json, size, now_s, NULL, o, e);
}

int jinja_run_template(const struct template *t, const char *json, int64_t size, int64_t now_s,
                       const struct run_prepare *prepare, struct template_output *o, struct err *e)
{
    struct err ignored;
    struct template_run r = {.t = t, .now_s = now_s, .spans = o};
    r.h.e = e ? e : &ignored;
    arena_init(&r.h.arena, (size_t)TEMPLATE_MEMORY);
    o->size = o->n_spans = 0;
    const int failed = try_render(&r, json, size, prepare, o);
    if (failed) o->size = o->n_spans = 0;
    if (failed && prepare && prepare->failed) prepare->failed(&r, prepare->context);
    arena_fini(&r.h.arena);
    return failed;
}

void jinja_output_fini(struct template_output *o)
{
    free(o->text);
    free(o->span);
    *o = (struct template_output){0};
}
