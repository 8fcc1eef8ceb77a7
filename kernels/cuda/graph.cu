/* graph.cu: hashes and compares lists of operations, finds their gaps, captures graphs between
 * gaps, and wraps each slot of the table so that its operations are listed. */
#include "kernels/cuda/graph.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include "kernels/cuda/device.h"

/* largest number of operations of a list; a few layers have as many */
#define LIST_OPS  64
#define LIST_SIZE (12 << 10) /* bytes of the args of a list, which are 190 for each operation */
#define PATTERNS  256
#define GRAPHS    1024
/* smallest number of operations of a graph; to launch a graph costs as much as to launch two
 * operations */
#define LEAST     4
#define AGE_NEW   2048 /* age limit in lists; a step has fewer lists */
#define AGE_KNOWN (1 << 14)

struct op {
    void (*run)(struct be *, const void *args);
    const char *name; /* name of a graph that begins with the operation */
    uint64_t hash;    /* hash of the args' bytes */
    int32_t at, size; /* place of the args and of the host's struct to which they point */
    /* offset, in the args, of the pointer to the host's struct; 0 if there is none */
    int32_t drop_at;
};

struct list {
    int n;
    int32_t used;
    uint64_t shape; /* hash of its operations' kinds */
    struct op op[LIST_OPS];
    alignas(16) char bytes[LIST_SIZE];
};

/* A pattern. graph[i] is the graph of the `len` operations from i on, up to a gap. */
struct pattern {
    struct list list;
    int64_t n_seen, last; /* number of equal lists so far, and the index of the latest one */
    int n_gaps;
    bool gap[LIST_OPS];
    int len[LIST_OPS];
    cudaGraphExec_t graph[LIST_OPS];
};

struct graphs {
    struct be_graphs counts;
    bool off;
    const char *scratch; /* the scratch with which the graphs were made */
    int64_t now;         /* lists so far */
    struct list list;
    int n;
    uint64_t shape[PATTERNS]; /* shape of each pattern */
    struct pattern pattern[PATTERNS];
};

/* ---- the list -------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}

static uint64_t hash(const char *p, int32_t size)
{
    uint64_t h = (uint64_t)size, word;
    for (int32_t i = 0; i < size; i += 8) {
        memcpy(&word, p + i, 8);
        h = mix(h, word);
    }
    return h;
}

static void run(struct cuda *c, int from, int to)
{
    struct list *l = &c->graphs->list;
    for (int i = from; i < to; i++) {
        const struct op *o = &l->op[i];
        char *args = l->bytes + o->at;
        const struct attn_drop *drop = (struct attn_drop *)(args + o->size - sizeof *drop);
        if (o->drop_at) memcpy(args + o->drop_at, &drop, sizeof drop);
        o->run(&c->be, args);
    }
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static bool any_graph(const struct pattern *p)
{
    for (int i = 0; i < p->list.n; i++)
        if (p->graph[i]) return true;
    return false;
}

/* Waits until the launched graphs are done. Returns false if they may never be done; the graphs
 * must then not be destroyed. */
static bool settle(struct cuda *c)
{
    return cuda_fine(c, cudaEventRecord(c->asked, c->compute), "waiting") && cuda_wait(c, c->asked);
}

static void drop_graph(struct cuda *c, struct pattern *p, int i, bool settled)
{
    if (!p->graph[i]) return;
    if (settled) cuda_fine(c, cudaGraphExecDestroy(p->graph[i]), "destroying a graph");
    p->graph[i] = NULL;
    c->graphs->counts.n_graphs--;
}

static void drop_graphs(struct cuda *c, struct pattern *p, bool settled)
{
    for (int i = 0; i < p->list.n; i++) drop_graph(c, p, i, settled);
}

static void drop_all(struct cuda *c)
{
    struct graphs *g = c->graphs;
    const bool settled = g->counts.n_graphs && settle(c);
    for (int i = 0; i < g->n; i++) drop_graphs(c, &g->pattern[i], settled);
}

static void turn_off(struct cuda *c, const char *doing, const char *why)
{
    struct be_graphs *k = &c->graphs->counts;
    (void)cudaGetLastError();
    c->graphs->off = true;
    snprintf(k->why_off, sizeof k->why_off, "%s: %s", doing, why);
}

/* Makes a graph of operations [from, to) of the list. Returns NULL if it cannot be made. */
static cudaGraphExec_t make(struct cuda *c, int from, int to)
{
    cudaGraphExec_t made = NULL;
    cudaGraph_t graph = NULL;
    if (c->failed.code != ERR_NONE) return NULL;
    cudaError_t rc = cudaStreamBeginCapture(c->compute, cudaStreamCaptureModeRelaxed);
    if (rc == cudaSuccess) {
        run(c, from, to);
        rc = cudaStreamEndCapture(c->compute, &graph);
    }
    if (rc == cudaSuccess && c->failed.code == ERR_NONE) rc = cudaGraphInstantiate(&made, graph, 0);
    if (graph) (void)cudaGraphDestroy(graph);
    if (rc == cudaSuccess && c->failed.code == ERR_NONE) {
        c->graphs->counts.n_made++;
        c->graphs->counts.n_graphs++;
        return made;
    }
    turn_off(c, "making a graph", rc == cudaSuccess ? c->failed.text : cudaGetErrorString(rc));
    c->failed = {}; /* the operations still have to be launched */
    return NULL;
}

static bool launch(struct cuda *c, const struct pattern *p, int from)
{
    const cudaError_t rc = cudaGraphLaunch(p->graph[from], c->compute);
    c->launched = p->list.op[from].name;
    if (rc != cudaSuccess) turn_off(c, "launching a graph", cudaGetErrorString(rc));
    return rc == cudaSuccess;
}

/* ---- patterns -------------------------------------------------------------------------------- */

static bool same(const struct list *a, const struct list *b, int i)
{
    const struct op *x = &a->op[i], *y = &b->op[i];
    return x->hash == y->hash && !memcmp(a->bytes + x->at, b->bytes + y->at, (size_t)x->size);
}

/* Returns the number of operations that are equal in the list and in the pattern, without gaps. */
static int n_same(const struct pattern *p, const struct list *l)
{
    int n = 0;
    for (int i = 0; i < l->n; i++) n += !p->gap[i] && p->list.op[i].hash == l->op[i].hash;
    return n;
}

/* Finds the pattern that has the largest number of operations equal to the list's. Returns NULL if
 * no pattern is similar enough. */
static struct pattern *find(struct graphs *g)
{
    const struct list *l = &g->list;
    struct pattern *best = NULL;
    int most = LEAST - 1;
    for (int i = 0; i < g->n; i++) {
        struct pattern *p = &g->pattern[i];
        if (g->shape[i] != l->shape || p->list.n != l->n) continue;
        const int n = n_same(p, l);
        if (n <= most || 4 * n < 3 * (l->n - p->n_gaps)) continue;
        most = n;
        best = p;
    }
    return best;
}

static int64_t age_left(const struct graphs *g, const struct pattern *p)
{
    return p->last + (p->n_seen > 1 ? AGE_KNOWN : AGE_NEW) - g->now;
}

/* Keeps the list as a new pattern. The pattern uses a free place, or replaces a pattern whose age
 * exceeds its limit. */
static void remember(struct cuda *c)
{
    struct graphs *g = c->graphs;
    int at = g->n;
    if (g->n < PATTERNS) {
        g->n++;
    } else {
        at = 0;
        for (int i = 1; i < PATTERNS; i++)
            if (age_left(g, &g->pattern[i]) < age_left(g, &g->pattern[at])) at = i;
        if (age_left(g, &g->pattern[at]) > 0) return;
    }
    struct pattern *p = &g->pattern[at];
    if (any_graph(p)) drop_graphs(c, p, settle(c));
    memset(p->gap, 0, sizeof p->gap);
    p->n_gaps = 0;
    p->n_seen = 1;
    p->last = g->now;
    p->list.n = g->list.n;
    p->list.used = g->list.used;
    memcpy(p->list.op, g->list.op, sizeof *p->list.op * (size_t)g->list.n);
    memcpy(p->list.bytes, g->list.bytes, (size_t)g->list.used);
    g->shape[at] = g->list.shape;
}

/* Finds the operations in which the list and the pattern differ. Marks them as gaps, so that no
 * graph contains them from now on. */
static void find_gaps(struct cuda *c, struct pattern *p)
{
    bool settled = false;
    for (int i = 0, from = 0; i < p->list.n; i++) {
        if (p->gap[i] || same(&p->list, &c->graphs->list, i)) continue;
        for (from = i; from > 0 && !p->gap[from - 1];) from--;
        p->gap[i] = true;
        p->n_gaps++;
        if (p->graph[from]) settled = settled || settle(c);
        drop_graph(c, p, from, settled);
    }
}

/* Runs operations [from, to), which contain no gap. */
static void run_steady(struct cuda *c, struct pattern *p, int from, int to)
{
    struct graphs *g = c->graphs;
    if (!g->off && to - from >= LEAST && !p->graph[from] && p->n_seen > 2 &&
        g->counts.n_graphs < GRAPHS) {
        p->graph[from] = make(c, from, to);
        p->len[from] = to - from;
    }
    assert(!p->graph[from] || p->len[from] == to - from);
    if (g->off || !p->graph[from] || !launch(c, p, from)) return run(c, from, to);
    g->counts.n_by_graph += to - from;
}

static void run_pattern(struct cuda *c, struct pattern *p)
{
    const int n = p->list.n;
    p->last = c->graphs->now;
    p->n_seen++;
    find_gaps(c, p);
    for (int i = 0, to; i < n; i = to) {
        for (to = i; to < n && !p->gap[to];) to++;
        if (to > i) {
            run_steady(c, p, i, to);
            continue;
        }
        run(c, i, ++to);
    }
}

void graph_flush(struct cuda *c)
{
    struct graphs *g = c->graphs;
    if (!g || !g->list.n) return;
    if (g->scratch != c->be.scratch) drop_all(c);
    g->scratch = c->be.scratch;
    g->now++;
    struct pattern *p = g->off || g->list.n < LEAST ? NULL : find(g);
    if (p) {
        run_pattern(c, p);
    } else {
        if (!g->off && g->list.n >= LEAST) remember(c);
        run(c, 0, g->list.n);
    }
    g->list.n = 0;
    g->list.used = 0;
    g->list.shape = 0;
}

void graph_forget(struct cuda *c)
{
    if (!c->graphs) return;
    graph_flush(c);
    drop_all(c);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Returns the member of the args that points to a struct of the host, or NULL if there is none. */
template <class A> static auto drop_in(A *a, int) -> decltype(&a->drop)
{
    return &a->drop;
}
template <class A> static const struct attn_drop **drop_in(A *, long)
{
    return NULL;
}

/* Clears the padding between members, because its bytes have no meaning. If the compiler cannot
 * clear padding, operations with equal args may be found different, and are then launched one by
 * one. */
template <class A> static void clear_padding(A *a)
{
#if __has_builtin(__builtin_clear_padding)
    __builtin_clear_padding(a);
#endif
}

/* Keeps the args, and the struct of the host to which they point. */
template <class A> static void keep(struct list *l, struct op *o, const A *args)
{
    A *a = (A *)(l->bytes + o->at);
    memcpy(a, args, sizeof *a);
    clear_padding(a);
    const struct attn_drop **drop = drop_in(a, 0);
    if (drop && *drop) {
        struct attn_drop *d = (struct attn_drop *)(a + 1);
        memcpy(d, *drop, sizeof *d);
        clear_padding(d);
        o->drop_at = (int32_t)((char *)drop - (char *)a);
        o->size += (int32_t)sizeof *d;
        *drop = NULL;
    }
}

template <class A, void (*CALL)(struct be *, const A *)>
static void call(struct be *be, const void *args)
{
    CALL(be, (const A *)args);
}

template <class A, void (*CALL)(struct be *, const A *)>
static void ask(struct be *be, const A *args, const char *name)
{
    struct cuda *c = cuda_of(be);
    struct graphs *g = c->graphs;
    if (!g || g->off) return CALL(be, args);
    struct list *l = &g->list;
    static_assert(sizeof(A) % 8 == 0 && alignof(A) <= 16, "it is hashed by words");
    if (l->n == LIST_OPS || l->used + (int64_t)(sizeof(A) + sizeof(struct attn_drop)) > LIST_SIZE)
        graph_flush(c);
    struct op *o = &l->op[l->n];
    *o = {call<A, CALL>, name, 0, l->used, (int32_t)sizeof(A), 0};
    keep(l, o, args);
    o->hash = hash(l->bytes + o->at, o->size);
    l->shape = mix(mix(l->shape, (uint64_t)(uintptr_t)o->run), (uint64_t)o->size);
    l->used += (o->size + 15) / 16 * 16;
    l->n++;
    g->counts.n_ops++;
}

#define ASK(op)                                                                                    \
    static void ask_##op(struct be *be, const op##_args *args)                                     \
    {                                                                                              \
        ask<op##_args, cuda_##op>(be, args, "a graph that begins with " #op);                      \
    }
CUDA_OPS(ASK)

/* Args of slots that have no args struct. */
struct fill_args {
    float *p;
    int64_t n;
    float value;
};
static void cuda_fill(struct be *be, const struct fill_args *a)
{
    cuda_fill(be, a->p, a->n, a->value);
}
ASK(fill)
struct copy_args {
    void *dst;
    const void *src;
    int64_t size;
};
static void cuda_copy(struct be *be, const struct copy_args *a)
{
    cuda_copy(be, a->dst, a->src, a->size);
}
ASK(copy)
#undef ASK

static void fill(struct be *be, float *p, int64_t n, float value)
{
    const struct fill_args a = {p, n, value};
    ask_fill(be, &a);
}

static void copy(struct be *be, void *dst, const void *src, int64_t size)
{
    const struct copy_args a = {dst, src, size};
    ask_copy(be, &a);
}

/* Launches AdamW immediately, without a graph, because its args change at each step. AdamW is the
 * last operation of a step. If it were only listed, the device would be idle until the next
 * step. */
static void adamw(struct be *be, const struct adamw_args *args)
{
    struct cuda *c = cuda_of(be);
    graph_flush(c);
    if (c->graphs) c->graphs->counts.n_ops++;
    cuda_adamw(be, args);
}

void graph_slots(struct be_ops *t)
{
#define ENTER(op) t->op = ask_##op;
    CUDA_OPS(ENTER)
#undef ENTER
    t->fill = fill;
    t->copy = copy;
    t->adamw = adamw;
}

/* ---- opening --------------------------------------------------------------------------------- */

const struct be_graphs *graph_open(struct cuda *c)
{
    c->graphs = (struct graphs *)calloc(1, sizeof *c->graphs);
    return c->graphs ? &c->graphs->counts : NULL;
}

void graph_close(struct cuda *c)
{
    if (!c->graphs) return;
    drop_all(c);
    free(c->graphs);
    c->graphs = NULL;
}
