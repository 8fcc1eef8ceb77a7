/* published.c: counts each system's tensors and sends by tables, and searches for the largest batch
 * or length that fits. */
#include "tests/paper/published.h"

#include <string.h>
#include "api/core/assert.h"
#include "tests/paper/search.h"

#define MOST ((int64_t)1 << 40) /* sequences, or tokens */

/* ---- memory ---------------------------------------------------------------------------------- */

enum unit {
    PER_COLUMN, /* B S C: bytes for each token and column */
    PER_SCORE,  /* B H S S: bytes for each head, query and key */
    PER_ROW     /* B H S: bytes for each head and query */
};

/* The values that a block keeps for its backward (2205.05198, section 4). If `whole` is set, TP
 * stores the complete value on every rank. All other systems divide it among the ranks. */
static const struct kept {
    const char *name;
    enum unit unit;
    int bytes;
    bool whole;
} kept[] = {
    {"norm 1 input", PER_COLUMN, 2, true},
    {"qkv input", PER_COLUMN, 2, true},
    {"q", PER_COLUMN, 2, false},
    {"k", PER_COLUMN, 2, false},
    {"v", PER_COLUMN, 2, false},
    {"probabilities", PER_SCORE, 2, false},
    {"probabilities' mask", PER_SCORE, 1, false},
    {"dropped probabilities", PER_SCORE, 2, false},
    {"log-sum-exp", PER_ROW, 4, false},
    {"projection input", PER_COLUMN, 2, false},
    {"attention's mask", PER_COLUMN, 1, true},
    {"norm 2 input", PER_COLUMN, 2, true},
    {"mlp input", PER_COLUMN, 2, true},
    {"gelu input", PER_COLUMN, 8, false},
    {"gelu output", PER_COLUMN, 8, false},
    {"mlp's mask", PER_COLUMN, 1, true},
};
#define N_KEPT ((int)(sizeof kept / sizeof *kept))
_Static_assert(N_KEPT + 3 <= PUBLISHED_TENSORS, "a layer's tensors and three beside it");

static double units(const struct published_case *c, enum unit u)
{
    const double tokens = (double)c->B * (double)c->S;
    if (u == PER_COLUMN) return tokens * (double)c->width;
    return tokens * (double)c->n_heads * (u == PER_SCORE ? (double)c->S : 1);
}

static bool divides_weights(enum published_system s)
{
    return s == PUBLISHED_TP || s == PUBLISHED_TP_SP;
}

int published_tensors(const struct published_case *c, int64_t l,
                      struct published_tensor out[PUBLISHED_TENSORS])
{
    const bool tp = c->system == PUBLISHED_TP, ring = c->system == PUBLISHED_RING;
    const double P = (double)c->P, tokens = (double)c->B * (double)c->S;
    const int64_t end = 2 * c->n_layers - 1;
    int n = 0;
    out[n++] = (struct published_tensor){
        .name = "weights, gradients, optimizer",
        .layer = -1,
        .size = c->weights / (divides_weights(c->system) ? P : 1),
        .dies = end,
        .fitted = true,
    };
    out[n++] = (struct published_tensor){.name = "before the layers",
                                         .layer = -1,
                                         .size = c->edge * tokens * (double)c->width / (tp ? 1 : P),
                                         .dies = end,
                                         .fitted = true};
    if (c->logits > 0) /* the head runs between the last forward and the first backward */
        out[n++] = (struct published_tensor){.name = "logits",
                                             .layer = -1,
                                             .size = c->logits * c->vocab * tokens / P,
                                             .born = c->n_layers - 1,
                                             .dies = c->n_layers};
    for (int i = 0; i < N_KEPT; i++) {
        const struct kept *k = &kept[i];
        if (k->unit == (ring ? PER_SCORE : PER_ROW)) continue;
        out[n++] = (struct published_tensor){.name = k->name,
                                             .layer = l,
                                             .size = k->bytes * units(c, k->unit) /
                                                     (tp && k->whole ? 1 : P),
                                             .born = l,
                                             .dies = end - l};
    }
    return n;
}

/* Returns the bytes that are stored at moment t. */
static double live_at(const struct published_case *c, int64_t t)
{
    struct published_tensor x[PUBLISHED_TENSORS];
    double sum = 0;
    for (int64_t l = 0; l < c->n_layers; l++) {
        const int n = published_tensors(c, l, x);
        for (int i = 0; i < n; i++)
            if ((x[i].layer >= 0 || l == 0) && x[i].born <= t && t <= x[i].dies) sum += x[i].size;
    }
    return sum;
}

double published_peak(const struct published_case *c)
{
    double most = 0;
    for (int64_t t = 0; t < 2 * c->n_layers; t++) {
        const double now = live_at(c, t);
        if (now > most) most = now;
    }
    return most;
}

double published_bert_params(int64_t n_layers, int64_t width, int64_t vocab)
{
    const double L = (double)n_layers, C = (double)width, V = (double)vocab;
    const double layer = 12 * C * C + 13 * C, tables = (V + 512 + 2) * C, head = C * C + 4 * C + V;
    return L * layer + tables + head;
}

/* *n is the member of c whose largest value is searched for. */
struct room {
    struct published_case *c;
    int64_t *n;
    double limit;
};

static bool fits(int64_t n, void *arg)
{
    const struct room *r = arg;
    *r->n = n;
    return published_peak(r->c) <= r->limit;
}

int64_t published_max_batch(struct published_case c, double limit)
{
    return search_most(fits, &(struct room){&c, &c.B, limit}, 1, MOST);
}

int64_t published_max_length(struct published_case c, double limit)
{
    return search_most(fits, &(struct room){&c, &c.S, limit}, 1, MOST);
}

/* ---- bytes on the wire ----------------------------------------------------------------------- */

static int copy(struct published_send *out, const struct published_send *from, int n)
{
    memcpy(out, from, (size_t)n * sizeof *out);
    return n;
}
#define COPY(out, from) copy(out, from, (int)(sizeof(from) / sizeof *(from)))

int published_sends(enum published_system s, bool variant,
                    struct published_send out[PUBLISHED_SENDS])
{
    const enum published_op sums = variant ? PUBLISHED_REDUCE_SCATTER : PUBLISHED_ALL_REDUCE;
    const struct published_send rsa[] = {
        {"K round the ring", PUBLISHED_HOPS, PUBLISHED_KV, 1, 1},
        {"V round the ring", PUBLISHED_HOPS, PUBLISHED_KV, 1, 1},
        {"dK summed", sums, PUBLISHED_KV, 0, 1},
        {"dV summed", sums, PUBLISHED_KV, 0, 1},
    };
    static const struct published_send tp[] = {
        {"attention's output, its input's gradient", PUBLISHED_ALL_REDUCE, PUBLISHED_WIDTH, 1, 1},
        {"the MLP's output, its input's gradient", PUBLISHED_ALL_REDUCE, PUBLISHED_WIDTH, 1, 1},
    };
    const struct published_send tp_sp[] = {
        {"inputs gathered", PUBLISHED_ALL_GATHER, PUBLISHED_WIDTH, 2, 2},
        {"outputs summed and scattered", PUBLISHED_REDUCE_SCATTER, PUBLISHED_WIDTH, 2, 2},
        {"inputs gathered again for the weights", PUBLISHED_ALL_GATHER, PUBLISHED_WIDTH, 0,
         variant ? 2 : 0},
    };
    static const struct published_send ring[] = {
        {"K round the ring", PUBLISHED_HOPS, PUBLISHED_KV, 1, 1},
        {"V round the ring", PUBLISHED_HOPS, PUBLISHED_KV, 1, 1},
        {"dK round the ring", PUBLISHED_HOPS, PUBLISHED_KV32, 0, 1},
        {"dV round the ring", PUBLISHED_HOPS, PUBLISHED_KV32, 0, 1},
    };
    static const struct published_send ulysses[] = {
        {"Q", PUBLISHED_ALL_TO_ALL, PUBLISHED_WIDTH, 1, 1},
        {"K", PUBLISHED_ALL_TO_ALL, PUBLISHED_KV, 1, 1},
        {"V", PUBLISHED_ALL_TO_ALL, PUBLISHED_KV, 1, 1},
        {"O", PUBLISHED_ALL_TO_ALL, PUBLISHED_WIDTH, 1, 1},
    };
    switch (s) {
    case PUBLISHED_RSA: return COPY(out, rsa);
    case PUBLISHED_TP: return COPY(out, tp);
    case PUBLISHED_TP_SP: return COPY(out, tp_sp);
    case PUBLISHED_RING: return COPY(out, ring);
    case PUBLISHED_ULYSSES: return COPY(out, ulysses);
    case PUBLISHED_N: break;
    }
    assert(!"no such system");
    return 0;
}

static int64_t sent(enum published_op op, int64_t P, int64_t X)
{
    switch (op) {
    case PUBLISHED_HOPS:
    case PUBLISHED_ALL_GATHER:
    case PUBLISHED_REDUCE_SCATTER: return (P - 1) * X;
    case PUBLISHED_ALL_REDUCE: return 2 * (P - 1) * X;
    case PUBLISHED_ALL_TO_ALL: return X / P * (P - 1);
    }
    return 0;
}

struct published_volume published_sum(const struct published_send *s, int n, int64_t P,
                                      const int64_t size[PUBLISHED_SLICE_N])
{
    struct published_volume v = {0};
    for (int i = 0; i < n; i++) {
        const int64_t one = sent(s[i].op, P, size[s[i].slice]);
        v.forward += s[i].forward * one;
        v.backward += s[i].backward * one;
    }
    return v;
}
