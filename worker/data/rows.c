/* data_batch: fills one rank's rows of one sample. A rank has a few segments of the sample.
 * Fragments of a segment that are adjacent in tokens.bin are read by one call. */
#include <string.h>
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/data/order.h"
#include "worker/sp/sp.h"

struct segment { /* rows [row, row + n), which are positions [pos, pos + n) of the sample */
    const struct data_order *o;
    const struct sample *s;
    struct batch *b;
    int64_t pos, row, n;
    int64_t sample; /* number of the sample */
};

/* Finds the fragment that contains position `pos` of the sample. */
static int64_t fragment_at(const struct segment *g, int64_t pos)
{
    int64_t lo = 0, hi = g->s->n_fragments - 1;
    while (lo < hi) {
        struct fragment f;
        int64_t mid = lo + (hi - lo + 1) / 2;
        data_fragment(g->o, g->s, mid, &f);
        if (f.pos <= pos)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Fills row i of the segment, which is in fragment f. */
static void set_row(const struct segment *g, const struct fragment *f, int64_t i)
{
    const struct order_options *o = &g->o->options;
    const struct batch_rules rules = {o->causal, o->document_mask, o->reset_positions,
                                      g->s->n_tokens};
    const int64_t row = g->row + i, pos = g->pos + i, end = f->pos + f->length;
    batch_place(g->b, row, pos, f->pos, end, &rules);
    if (pos + 1 == end && o->mask.prob <= 0) g->b->targets[row] = -1;
}

/* Hides tokens of rows [i, i + n) by the rule of the order. The first of these tokens is
 * `token`. Only hidden tokens become targets. */
static int hide(const struct segment *g, int64_t i, int64_t token, int64_t n, struct err *e)
{
    int32_t *ids = g->b->ids + g->row + i, *targets = g->b->targets + g->row + i;
    uint8_t learn[4096];
    for (int64_t at = 0; at < n;) {
        const int64_t m = n - at < (int64_t)sizeof learn ? n - at : (int64_t)sizeof learn;
        if (data_read_mask(g->o->data, token + at, m, learn, e) < 0) return -1;
        for (int64_t j = at; j < at + m; j++) {
            const int32_t seen = mask_token(&g->o->options.mask, g->sample, g->pos + i + j, ids[j],
                                            &targets[j]);
            if (!learn[j - at])
                targets[j] = -1;
            else
                ids[j] = seen;
        }
        at += m;
    }
    return 0;
}

/* Among rows [i, i + n), removes the targets of those rows whose target token may not be a
 * target. These rows have tokens [token, token + n). */
static int mask_targets(const struct segment *g, int64_t i, int64_t token, int64_t n, struct err *e)
{
    uint8_t learn[4096];
    if (!data_masked(g->o->data)) return 0;
    for (int64_t at = 0; at < n;) {
        int64_t m = n - at < (int64_t)sizeof learn ? n - at : (int64_t)sizeof learn;
        if (data_read_mask(g->o->data, token + at, m, learn, e) < 0) return -1;
        for (int64_t j = 0; j < m; j++)
            if (!learn[j]) g->b->targets[g->row + i + at + j] = -1;
        at += m;
    }
    return 0;
}

/* Reads tokens [token, token + n) of tokens.bin into rows [i, i + n). The parameter `more` is
 * true if the last fragment continues after the segment. In that case the last row has a
 * target, too. */
static int read_run(const struct segment *g, int64_t i, int64_t token, int64_t n, bool more,
                    struct err *e)
{
    int32_t *ids = g->b->ids + g->row + i, *targets = g->b->targets + g->row + i;
    const struct data *d = g->o->data;
    if (data_read(d, token, n, ids, e) < 0) return -1;
    if (g->o->options.mask.prob > 0) return hide(g, i, token, n, e);
    memcpy(targets, ids + 1, (size_t)(n - 1) * sizeof *targets);
    targets[n - 1] = -1;
    if (more && data_read(d, token + n, 1, targets + n - 1, e) < 0) return -1;
    return mask_targets(g, i, token + 1, n - !more, e);
}

static int fill_segment(const struct segment *g, struct err *e)
{
    int64_t real = g->s->n_tokens - g->pos, k = 0;
    if (real > g->n) real = g->n;
    if (real < 0) real = 0;
    for (int64_t i = real; i < g->n; i++)
        batch_pad(g->b, g->row + i, token_pad(g->o->options.vocab));
    if (real > 0) k = fragment_at(g, g->pos);
    for (int64_t i = 0; i < real;) {
        struct fragment f;
        data_fragment(g->o, g->s, k, &f);
        const int64_t begin = i, first = k, token = f.token + (g->pos + i - f.pos);
        bool joined = true;
        while (joined) { /* i is now the first row after the rows of this run */
            i = f.pos + f.length - g->pos;
            if (i >= real || ++k == g->s->n_fragments) break;
            data_fragment(g->o, g->s, k, &f);
            joined = f.token == token + (i - begin);
        }
        bool more = i > real;
        if (more) i = real;
        if (read_run(g, begin, token, i - begin, more, e) < 0) return -1;
        int64_t row = begin;
        for (int64_t j = first; row < i; j++) {
            data_fragment(g->o, g->s, j, &f);
            for (; row < i && g->pos + row < f.pos + f.length; row++) set_row(g, &f, row);
        }
    }
    return 0;
}

/* For mutation tests: injects the fault of the active mutant, if a mutant is active. */
static void mutate(const struct shard *sh, struct batch *b)
{
    if (sh->P == 1) return;
    if (mutant_on(MUTANT_LABEL_SHIFT)) b->targets[sh->T - 1] = -1;
    for (int64_t row = 0; row < sh->T; row++) {
        if (b->hi[row] == 0) continue; /* padding */
        if (mutant_on(MUTANT_DOC_CROSSED)) b->lo[row] = 0;
        if (mutant_on(MUTANT_LOCAL_POSITION)) b->pos[row] = row;
    }
}

struct row_places { /* finds the documents of a sample, for document_at */
    struct segment g;
    bool mask;
};

static struct reach_document document_at(void *arg, int64_t pos)
{
    const struct row_places *p = arg;
    struct fragment f;
    if (!p->mask) return (struct reach_document){0, p->g.s->n_tokens};
    data_fragment(p->g.o, p->g.s, fragment_at(&p->g, pos), &f);
    return (struct reach_document){f.pos, f.pos + f.length};
}

/* Makes the map of the keys to which each segment attends. map->n becomes 0 if every segment
 * attends to all keys. */
static void set_reach(const struct data_order *o, const struct sample *s, const struct shard *sh,
                      struct reach_map *map)
{
    const struct order_options *x = &o->options;
    struct row_places p = {.g = {.o = o, .s = s}, .mask = x->document_mask};
    map->n = 0;
    if (sh->P == 1 || (!x->document_mask && !x->windowed)) return;
    reach_make(map, sh,
               &(struct reach_documents){
                   .at = document_at, .arg = &p, .n_tokens = s->n_tokens, .causal = x->causal});
}

void data_reach(const struct data_order *o, const struct shard *sh, int64_t n,
                struct reach_map *map)
{
    struct sample s;
    assert(sh->S == o->options.seq_len);
    data_sample(o, n, &s);
    set_reach(o, &s, sh, map);
}

int data_batch(const struct data_order *o, const struct shard *sh, int64_t n, struct batch *b,
               struct err *e)
{
    struct sample s;
    assert(sh->S == o->options.seq_len);
    data_sample(o, n, &s);
    for (int i = 0; i < sh->n_segs; i++) {
        const struct segment g = {o, &s, b, sh->pos[i], i * sh->seg_len, sh->seg_len, n};
        if (fill_segment(&g, e) < 0) return -1;
    }
    b->n_tokens = s.n_tokens;
    b->sample = n;
    b->reach.n = 0;
    if (o->options.reach) set_reach(o, &s, sh, &b->reach);
    b->n_targets = data_targets(o, n, e);
    if (b->n_targets < 0) return -1;
    mutate(sh, b);
    return 0;
}
