/* pages.c: lists of free and of idle pages, and a table of kept pages by the hash of their
 * tokens. */
#include "worker/infer/pages.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/mutant.h"

#define NONE (-1)

struct pool_page {
    int32_t n_users;    /* sequences that have it */
    int32_t prev, next; /* neighbours among the free pages (next alone) or the idle pages */
    bool kept;
    /* of a kept page */
    uint32_t owner;
    int32_t adapter;
    int32_t before;  /* the kept page before it in the sequence, or NONE */
    int32_t n_after; /* kept pages that have it before them */
    int32_t same;    /* the next page in its bucket, or NONE */
    uint64_t hash;
    int state; /* place of the states after it, or PAGES_NO_STATE */
};

/* A place of states. */
struct page_state {
    int32_t page; /* NONE if the place is free */
    uint64_t use; /* number of the last use, of all uses */
};

/* A page that is looked for. */
struct page_key {
    uint32_t owner;
    int32_t adapter, before;
    const int32_t *tokens;
    uint64_t hash;
};

static int rank_of(const struct pages *p, int32_t i)
{
    return (int)(i / p->o.n_pages);
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    h = (h ^ x) * 0x9E3779B97F4A7C15u;
    return h ^ h >> 29;
}

enum page_event { PAGE_TAKEN, PAGE_FREED, PAGE_KEPT, PAGE_IDLE, PAGE_SHARED, PAGE_STATE };

static void note(struct pages *p, enum page_event what, int32_t i)
{
    p->sum = mix(p->sum, (uint64_t)what << 32 | (uint32_t)i);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void free_page(struct pages *p, int32_t i)
{
    const int q = rank_of(p, i);
    p->page[i].next = p->free[q];
    p->free[q] = i;
    p->n_free[q]++;
    note(p, PAGE_FREED, i);
}

int pages_init(struct pages *p, const struct pages_options *o, struct err *e)
{
    const int64_t most = (o->longest + CACHE_PAGE - 1) / CACHE_PAGE, n_all = o->n_pages * o->P;
    const int64_t own = (most + o->P - 1) / o->P;
    assert(o->P <= JOB_MAX_RANKS && o->n_pages >= own && n_all < INT32_MAX);
    *p = (struct pages){.o = *o, .most = most, .n_all = n_all, .oldest = NONE, .newest = NONE};
    for (p->n_buckets = 1; p->n_buckets < n_all;) p->n_buckets *= 2;
    p->page = calloc((size_t)n_all, sizeof *p->page);
    p->tokens = calloc((size_t)n_all, CACHE_PAGE * sizeof *p->tokens);
    p->bucket = malloc((size_t)p->n_buckets * sizeof *p->bucket);
    p->sequence = calloc((size_t)o->n_slots, sizeof *p->sequence);
    p->lists = calloc((size_t)(o->n_slots * most), sizeof *p->lists);
    p->state = calloc((size_t)o->n_states + 1, sizeof *p->state);
    if (!p->state || !p->page || !p->tokens || !p->bucket || !p->sequence || !p->lists) {
        pages_fini(p);
        return err_set(e, ERR_IO, "out of memory for %lld pages", (long long)n_all);
    }
    for (int64_t i = 0; i < p->n_buckets; i++) p->bucket[i] = NONE;
    for (int i = 0; i < o->n_states; i++) p->state[i].page = NONE;
    for (int q = 0; q < o->P; q++) p->free[q] = NONE;
    for (int64_t i = n_all - 1; i >= 0; i--) free_page(p, (int32_t)i);
    for (int k = 0; k < o->n_slots; k++) p->sequence[k].page = p->lists + k * most;
    return 0;
}

void pages_fini(struct pages *p)
{
    free(p->page);
    free(p->tokens);
    free(p->bucket);
    free(p->sequence);
    free(p->lists);
    free(p->state);
    *p = (struct pages){0};
}

/* ---- the tree -------------------------------------------------------------------------------- */

static void set_hash(struct page_key *k)
{
    uint64_t h = mix(mix(k->owner, (uint32_t)k->adapter), (uint32_t)k->before);
    const int n = mutant_on(MUTANT_PREFIX_LONG) ? CACHE_PAGE - 1 : CACHE_PAGE;
    if (mutant_on(MUTANT_PREFIX_ADAPTER)) h = mix(k->owner, (uint32_t)k->before);
    if (mutant_on(MUTANT_PREFIX_OWNER)) h = mix((uint32_t)k->adapter, (uint32_t)k->before);
    for (int i = 0; i < n; i++) h = mix(h, (uint32_t)k->tokens[i]);
    k->hash = h;
}

static bool is_page(const struct pages *p, int32_t i, const struct page_key *k)
{
    const struct pool_page *g = &p->page[i];
    const int n = mutant_on(MUTANT_PREFIX_LONG) ? CACHE_PAGE - 1 : CACHE_PAGE;
    return g->hash == k->hash && g->before == k->before &&
           (g->owner == k->owner || mutant_on(MUTANT_PREFIX_OWNER)) &&
           (g->adapter == k->adapter || mutant_on(MUTANT_PREFIX_ADAPTER)) &&
           !memcmp(p->tokens + (int64_t)i * CACHE_PAGE, k->tokens, (size_t)n * sizeof *k->tokens);
}

static int32_t *bucket_of(const struct pages *p, uint64_t hash)
{
    return &p->bucket[hash & (uint64_t)(p->n_buckets - 1)];
}

/* Returns the kept page with this key, or NONE. */
static int32_t find(const struct pages *p, struct page_key *k)
{
    set_hash(k);
    int32_t i = *bucket_of(p, k->hash);
    while (i != NONE && !is_page(p, i, k)) i = p->page[i].same;
    return i;
}

/* Keeps a page. find has set the key's hash. */
static void insert(struct pages *p, int32_t i, struct page_key *k)
{
    int32_t *tokens = p->tokens + (int64_t)i * CACHE_PAGE;
    struct pool_page *g = &p->page[i];
    if (mutant_on(MUTANT_PAGE_STALE) && tokens[0] != 0) {
        k->tokens = tokens;
        set_hash(k);
    }
    memmove(tokens, k->tokens, CACHE_PAGE * sizeof *tokens);
    g->kept = true;
    g->state = PAGES_NO_STATE;
    g->owner = k->owner;
    g->adapter = k->adapter;
    g->before = k->before;
    g->hash = k->hash;
    g->same = *bucket_of(p, k->hash);
    *bucket_of(p, k->hash) = i;
    if (k->before != NONE) p->page[k->before].n_after++;
    note(p, PAGE_KEPT, i);
}

/* ---- idle pages ------------------------------------------------------------------------------ */

static void unlink_idle(struct pages *p, int32_t i)
{
    struct pool_page *g = &p->page[i];
    *(g->prev == NONE ? &p->oldest : &p->page[g->prev].next) = g->next;
    *(g->next == NONE ? &p->newest : &p->page[g->next].prev) = g->prev;
    p->n_idle[rank_of(p, i)]--;
}

static void link_newest(struct pages *p, int32_t i)
{
    struct pool_page *g = &p->page[i];
    g->prev = p->newest;
    g->next = NONE;
    *(p->newest == NONE ? &p->oldest : &p->page[p->newest].next) = i;
    p->newest = i;
    p->n_idle[rank_of(p, i)]++;
    note(p, PAGE_IDLE, i);
}

/* Frees the idle page that was used least recently. No kept page has it before: such a page became
 * idle earlier, because every sequence that has it has this page, too, and ends its pages from the
 * last to the first. */
static void evict(struct pages *p)
{
    const int32_t i = p->oldest;
    struct pool_page *g = &p->page[i];
    assert(i != NONE && !g->n_users && !g->n_after);
    int32_t *at = bucket_of(p, g->hash);
    while (*at != i) at = &p->page[*at].same;
    *at = g->same;
    if (g->before != NONE) p->page[g->before].n_after--;
    unlink_idle(p, i);
    if (g->state != PAGES_NO_STATE) p->state[g->state].page = NONE;
    g->kept = false;
    free_page(p, i);
}

/* Takes a page of rank q. */
static int32_t take(struct pages *p, int q)
{
    while (p->free[q] == NONE) evict(p);
    const int32_t i = p->free[q];
    p->free[q] = p->page[i].next;
    p->n_free[q]--;
    p->page[i].n_users = 1;
    note(p, PAGE_TAKEN, i);
    return i;
}

/* Gives a kept page to one more sequence. */
static void share(struct pages *p, int32_t i)
{
    if (!p->page[i].n_users++) unlink_idle(p, i);
    note(p, PAGE_SHARED, i);
}

static void release(struct pages *p, int32_t i)
{
    if (--p->page[i].n_users) return;
    if (p->page[i].kept)
        link_newest(p, i);
    else
        free_page(p, i);
}

/* ---- sequences ------------------------------------------------------------------------------- */

static int64_t n_pages(int64_t n_positions)
{
    return (n_positions + CACHE_PAGE - 1) / CACHE_PAGE;
}

/* Returns the next page of the longest kept prefix, or NONE. `before` is page k - 1. */
static int32_t next_kept(const struct pages *p, const struct pages_ask *a, int64_t k,
                         int32_t before)
{
    struct page_key key = {a->owner, a->adapter, before, a->tokens + k * CACHE_PAGE, 0};
    /* the last token is computed in any case, because its logits are needed */
    return a->whole || (k + 1) * CACHE_PAGE >= a->n_tokens ? NONE : find(p, &key);
}

/* Returns the number of pages of the longest kept prefix. With states, it ends with a page that has
 * states. */
static int64_t prefix_pages(const struct pages *p, const struct pages_ask *a)
{
    int64_t k = 0, n = 0;
    for (int32_t i = NONE; (i = next_kept(p, a, k, i)) != NONE;) {
        k++;
        if (!p->o.states || p->page[i].state != PAGES_NO_STATE) n = k;
    }
    return n;
}

bool pages_fit(const struct pages *p, const struct pages_ask *a)
{
    const int64_t n = n_pages(a->n_positions), n_kept = prefix_pages(p, a);
    const int P = p->o.P;
    int64_t k = 0, more[JOB_MAX_RANKS] = {0}; /* pages that each rank has to give */
    for (int32_t i = NONE; k < n_kept; k++) {
        i = next_kept(p, a, k, i);
        more[k % P] += !p->page[i].n_users;
    }
    for (; k < n; k++) more[k % P]++;
    for (int q = 0; q < P; q++)
        if (more[q] > p->n_free[q] + p->n_idle[q]) return false;
    return true;
}

/* Sets page k of the sequence of a slot. */
static void set_page(struct pages *p, int slot, int64_t k, int32_t i)
{
    struct pages_sequence *s = &p->sequence[slot];
    const int64_t at = k / p->o.P;
    s->page[k] = i;
    if (k % p->o.P != p->o.rank) return;
    p->o.table[slot][at] = (int32_t)(i % p->o.n_pages);
    if (s->from == s->to) s->from = s->to = at;
    if (at < s->from) s->from = at;
    if (at >= s->to) s->to = at + 1;
}

int64_t pages_changed(struct pages *p, int slot, int64_t *from)
{
    struct pages_sequence *s = &p->sequence[slot];
    const int64_t n = s->to - s->from;
    *from = s->from;
    s->from = s->to = 0;
    return n;
}

/* Gives the sequence the first page of another sequence, for a test that must notice it. */
static void take_foreign(struct pages *p, int slot)
{
    for (int k = 0; k < p->o.n_slots; k++)
        if (k != slot && p->sequence[k].n && p->sequence[slot].n_kept == 0)
            p->o.table[slot][0] = p->o.table[k][0];
}

int64_t pages_begin(struct pages *p, int slot, const struct pages_ask *a)
{
    struct pages_sequence *s = &p->sequence[slot];
    const int64_t n = n_pages(a->n_positions), n_kept = prefix_pages(p, a);
    assert(!s->n && n > 0 && n <= p->most && a->n_tokens <= a->n_positions);
    s->owner = a->owner;
    s->adapter = a->adapter;
    s->n = n;
    s->n_kept = 0;
    s->state = PAGES_NO_STATE;
    for (int32_t i = NONE; s->n_kept < n_kept;) {
        i = next_kept(p, a, s->n_kept, i);
        share(p, i);
        set_page(p, slot, s->n_kept++, i);
        s->state = p->page[i].state;
    }
    if (s->state != PAGES_NO_STATE) p->state[s->state].use = ++p->n_uses;
    for (int64_t k = s->n_kept; k < n; k++) set_page(p, slot, k, take(p, (int)(k % p->o.P)));
    if (mutant_on(MUTANT_PAGE_FOREIGN)) take_foreign(p, slot);
    return s->n_kept * CACHE_PAGE;
}

static void copy_tokens(const struct pages_text *t, int64_t pos, int32_t out[CACHE_PAGE])
{
    for (int64_t i = 0; i < CACHE_PAGE; i++, pos++)
        out[i] = pos < t->n_prompt ? t->prompt[pos] : t->answer[pos - t->n_prompt];
}

static void keep(struct pages *p, int slot, const int32_t *tokens)
{
    struct pages_sequence *s = &p->sequence[slot];
    const int64_t k = s->n_kept++;
    const int32_t own = s->page[k];
    struct page_key key = {s->owner, s->adapter, k ? s->page[k - 1] : NONE, tokens, 0};
    const int32_t i = find(p, &key);
    if (i == NONE) {
        insert(p, own, &key);
        return;
    }
    share(p, i);
    set_page(p, slot, k, i);
    release(p, own);
}

void pages_keep(struct pages *p, int slot, const struct pages_text *t)
{
    struct pages_sequence *s = &p->sequence[slot];
    const int64_t n = (t->n_prompt + t->n_answer) / CACHE_PAGE;
    int32_t tokens[CACHE_PAGE];
    assert(n <= s->n);
    while (s->n_kept < n) {
        copy_tokens(t, s->n_kept * CACHE_PAGE, tokens);
        keep(p, slot, tokens);
    }
}

/* Returns the place of states that is free or was used least recently. */
static int oldest_state(const struct pages *p)
{
    int least = 0;
    for (int k = 0; k < p->o.n_states; k++) {
        if (p->state[k].page == NONE) return k;
        if (p->state[k].use < p->state[least].use) least = k;
    }
    return least;
}

int pages_keep_state(struct pages *p, int slot)
{
    const struct pages_sequence *s = &p->sequence[slot];
    const int64_t last = s->n_kept - 1 - (mutant_on(MUTANT_STATE_TOKEN) && s->n_kept > 1);
    const int32_t i = s->n_kept ? s->page[last] : NONE;
    if (i == NONE || !p->o.n_states || p->page[i].state != PAGES_NO_STATE) return PAGES_NO_STATE;
    const int k = oldest_state(p);
    if (p->state[k].page != NONE) p->page[p->state[k].page].state = PAGES_NO_STATE;
    p->state[k] = (struct page_state){i, ++p->n_uses};
    p->page[i].state = k;
    note(p, PAGE_STATE, i);
    return k;
}

int pages_last_state(const struct pages *p, int slot)
{
    const struct pages_sequence *s = &p->sequence[slot];
    return s->n_kept ? p->page[s->page[s->n_kept - 1]].state : PAGES_NO_STATE;
}

int pages_state(const struct pages *p, int slot)
{
    return p->sequence[slot].state;
}

void pages_end(struct pages *p, int slot)
{
    struct pages_sequence *s = &p->sequence[slot];
    while (s->n) release(p, s->page[--s->n]);
    s->n_kept = 0;
}

uint64_t pages_sum(const struct pages *p)
{
    return p->sum;
}

int64_t pages_used(const struct pages *p)
{
    int64_t n = p->n_all;
    for (int q = 0; q < p->o.P; q++) n -= p->n_free[q] + p->n_idle[q];
    return n;
}
