/* test_serve_pages.c: runs random sequences through the pages of a serve job, and compares each
 * call with a slow model of it that has lists alone. Each page has a stamp for each position,
 * which a sequence writes when it computes the position. A stamp tells adapter and tokens up to
 * the position, so a page of another sequence, or of an earlier one, has other stamps. */
#include "tests/lib/mutant.h"
#include "worker/infer/pages.h"

enum { P_MOST = 4, SLOTS = 5, MOST = 9, N_PAGES = 16, OWNERS = 2, ADAPTERS = 2, FORMS = 3 };

/* A sequence. Page k has one of a few forms, so that many sequences begin alike. */
struct text {
    uint32_t owner;
    int32_t adapter;
    uint8_t form[MOST];
    int64_t n_prompt, n_positions; /* the prompt, and all positions */
    int32_t token[MOST * CACHE_PAGE];
};

/* A page of the model. */
struct entry {
    bool held, kept; /* held: it is not free */
    int users;
    int64_t idle_at; /* the time at which its last user ended */
    uint32_t owner;
    int32_t adapter;
    int64_t k; /* the place of the page in its sequence */
    uint8_t form[MOST];
    int rank;
};

struct slot {
    bool busy;
    struct text text;
    int64_t n_done; /* computed positions */
    int own[MOST];  /* entries of the model */
    int64_t n, n_kept;
};

struct trial {
    int P;
    int64_t n_pages;
    struct pages at[P_MOST]; /* as each rank has them */
    struct entry entry[P_MOST * N_PAGES];
    struct slot slot[SLOTS];
    int64_t now;
    uint64_t rng;
    int32_t room[P_MOST][SLOTS][MOST], *table[P_MOST][SLOTS];
    int32_t loaded[P_MOST][SLOTS][MOST]; /* the tables, from the entries that pages_changed says */
    uint64_t stamp[P_MOST][N_PAGES][CACHE_PAGE];
    int64_t n_hits, n_waits, n_bad; /* n_bad: results that differ from those of the model */
};

static uint32_t draw(struct trial *t, uint32_t n)
{
    t->rng = t->rng * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(t->rng >> 33) % n;
}

/* Forms 0 and 1 of a page differ in its last token alone. */
static int32_t token_of(int64_t k, int64_t i, int form)
{
    return form == 2 ? (int32_t)(500 + i) : (int32_t)(k + i + 1) + (i == CACHE_PAGE - 1) * form;
}

static uint64_t stamp_of(const struct text *x, int64_t pos)
{
    uint64_t h = (uint64_t)x->adapter + 7;
    for (int64_t k = 0; k < pos / CACHE_PAGE; k++) h = h * 31 + x->form[k];
    return (h * 31 + (uint64_t)x->token[pos]) * 1000 + (uint64_t)pos;
}

static void draw_text(struct trial *t, struct text *x)
{
    *x = (struct text){.owner = draw(t, OWNERS), .adapter = (int32_t)draw(t, ADAPTERS) - 1};
    x->n_positions = 1 + draw(t, MOST * CACHE_PAGE);
    if (draw(t, 2)) x->n_positions = (x->n_positions + CACHE_PAGE - 1) / CACHE_PAGE * CACHE_PAGE;
    x->n_prompt = 1 + draw(t, (uint32_t)x->n_positions);
    for (int k = 0; k < MOST; k++) {
        x->form[k] = draw(t, 3) ? 0 : (uint8_t)draw(t, FORMS);
        for (int i = 0; i < CACHE_PAGE; i++)
            x->token[k * CACHE_PAGE + i] = token_of(k, i, x->form[k]);
    }
}

/* ---- the model ------------------------------------------------------------------------------- */

static bool is_entry(const struct entry *g, const struct text *x, int64_t k)
{
    return g->kept && g->owner == x->owner && g->adapter == x->adapter && g->k == k &&
           !memcmp(g->form, x->form, (size_t)k + 1);
}

static int find_entry(const struct trial *t, const struct text *x, int64_t k)
{
    for (int i = 0; i < t->P * t->n_pages; i++)
        if (is_entry(&t->entry[i], x, k)) return i;
    return -1;
}

static int64_t longest(const struct trial *t, const struct text *x, bool whole)
{
    int64_t k = 0;
    while (!whole && (k + 1) * CACHE_PAGE < x->n_prompt && find_entry(t, x, k) >= 0) k++;
    return k;
}

static int64_t pages_of(int64_t n)
{
    return (n + CACHE_PAGE - 1) / CACHE_PAGE;
}

static bool fits(const struct trial *t, const struct text *x, bool whole)
{
    const int64_t n_found = longest(t, x, whole);
    for (int q = 0; q < t->P; q++) {
        int64_t room = 0;
        for (int i = 0; i < t->P * t->n_pages; i++)
            room += t->entry[i].rank == q && !t->entry[i].users;
        for (int64_t k = q; k < pages_of(x->n_positions); k += t->P)
            room -= k >= n_found || !t->entry[find_entry(t, x, k)].users;
        if (room < 0) return false;
    }
    return true;
}

/* Takes a free page of rank q. While there is none, frees the page that is idle for the longest
 * time. */
static int take_entry(struct trial *t, int q)
{
    for (;;) {
        int old = -1;
        for (int i = 0; i < t->P * t->n_pages; i++) {
            struct entry *g = &t->entry[i];
            if (g->rank == q && !g->held) {
                *g = (struct entry){.held = true, .users = 1, .rank = q};
                return i;
            }
            if (g->held && !g->users && (old < 0 || g->idle_at < t->entry[old].idle_at)) old = i;
        }
        t->entry[old] = (struct entry){.rank = t->entry[old].rank};
    }
}

static void drop_entry(struct trial *t, int i)
{
    struct entry *g = &t->entry[i];
    if (--g->users) return;
    g->idle_at = ++t->now;
    if (!g->kept) *g = (struct entry){.rank = g->rank};
}

static void keep_entries(struct trial *t, struct slot *s, int64_t n_positions)
{
    const struct text *x = &s->text;
    for (; (s->n_kept + 1) * CACHE_PAGE <= n_positions; s->n_kept++) {
        const int64_t k = s->n_kept;
        const int was = find_entry(t, x, k);
        struct entry *own = &t->entry[s->own[k]];
        if (was >= 0) {
            t->entry[was].users++;
            drop_entry(t, s->own[k]);
            s->own[k] = was;
            continue;
        }
        own->kept = true;
        own->owner = x->owner;
        own->adapter = x->adapter;
        own->k = k;
        memcpy(own->form, x->form, MOST);
    }
}

static void begin_entries(struct trial *t, struct slot *s, bool whole)
{
    s->n = pages_of(s->text.n_positions);
    s->n_kept = longest(t, &s->text, whole);
    for (int64_t k = 0; k < s->n_kept; k++) {
        s->own[k] = find_entry(t, &s->text, k);
        t->entry[s->own[k]].users++;
    }
    for (int64_t k = s->n_kept; k < s->n; k++) s->own[k] = take_entry(t, (int)(k % t->P));
}

/* ---- steps of both --------------------------------------------------------------------------- */

static void differs(struct trial *t, bool bad)
{
    t->n_bad += bad;
}

static uint64_t *stamp_at(struct trial *t, int slot, int64_t pos)
{
    const int64_t k = pos / CACHE_PAGE;
    const int q = (int)(k % t->P);
    const int32_t place = t->loaded[q][slot][k / t->P];
    return &t->stamp[q][place][pos % CACHE_PAGE];
}

static void load(struct trial *t, int slot)
{
    for (int q = 0; q < t->P; q++) {
        int64_t from;
        const int64_t n = pages_changed(&t->at[q], slot, &from);
        memcpy(t->loaded[q][slot] + from, t->table[q][slot] + from, (size_t)n * sizeof(int32_t));
        differs(t, pages_changed(&t->at[q], slot, &from) != 0);
    }
}

static void check_stamps(struct trial *t, int slot)
{
    const struct slot *s = &t->slot[slot];
    for (int64_t pos = 0; pos < s->n_done; pos++)
        if (*stamp_at(t, slot, pos) != stamp_of(&s->text, pos)) {
            differs(t, true);
            return;
        }
}

static void begin(struct trial *t, int slot)
{
    struct slot *s = &t->slot[slot];
    struct text *x = &s->text;
    const bool whole = !draw(t, 8);
    draw_text(t, x);
    const struct pages_ask a = {x->owner, x->adapter, x->token, x->n_prompt, x->n_positions, whole};
    const bool fit = fits(t, x, whole);
    for (int q = 0; q < t->P; q++) differs(t, pages_fit(&t->at[q], &a) != fit);
    t->n_waits += !fit;
    if (!fit || t->n_bad) return;
    begin_entries(t, s, whole);
    for (int q = 0; q < t->P; q++)
        differs(t, pages_begin(&t->at[q], slot, &a) != s->n_kept * CACHE_PAGE);
    load(t, slot);
    s->n_done = s->n_kept * CACHE_PAGE;
    s->busy = true;
    t->n_hits += s->n_kept > 0;
    check_stamps(t, slot);
}

/* Computes positions of a sequence. Pages of the prompt are kept when they are whole. */
static void compute(struct trial *t, int slot)
{
    struct slot *s = &t->slot[slot];
    const struct text *x = &s->text;
    const int64_t left = x->n_positions - s->n_done, n = left ? 1 + draw(t, (uint32_t)left) : 0;
    for (int64_t i = 0; i < n; i++, s->n_done++)
        *stamp_at(t, slot, s->n_done) = stamp_of(x, s->n_done);
    const int64_t prompt = s->n_done < x->n_prompt ? s->n_done : x->n_prompt;
    const struct pages_text done = {x->token, NULL, prompt, 0};
    keep_entries(t, s, prompt);
    for (int q = 0; q < t->P; q++) pages_keep(&t->at[q], slot, &done);
    load(t, slot);
    check_stamps(t, slot);
}

/* Ends a sequence, which may be dropped at any time. */
static void end(struct trial *t, int slot)
{
    struct slot *s = &t->slot[slot];
    const struct text *x = &s->text;
    const int64_t n_answer = s->n_done - x->n_prompt;
    const struct pages_text all = {x->token, x->token + x->n_prompt, x->n_prompt, n_answer};
    if (n_answer > 0 && draw(t, 4)) {
        keep_entries(t, s, s->n_done);
        for (int q = 0; q < t->P; q++) pages_keep(&t->at[q], slot, &all);
    }
    check_stamps(t, slot);
    while (s->n) drop_entry(t, s->own[--s->n]);
    for (int q = 0; q < t->P; q++) pages_end(&t->at[q], slot);
    s->busy = false;
}

static void check_counts(struct trial *t)
{
    int64_t used = 0;
    for (int i = 0; i < t->P * t->n_pages; i++) used += t->entry[i].users > 0;
    for (int q = 0; q < t->P; q++) {
        differs(t, pages_used(&t->at[q]) != used);
        differs(t, pages_sum(&t->at[q]) != pages_sum(&t->at[0]));
    }
}

static void run(struct trial *t, int P, uint64_t seed, int n_steps)
{
    struct err e = {0};
    *t = (struct trial){.P = P, .rng = seed};
    t->n_pages = (MOST + P - 1) / P + 6 / P;
    for (int i = 0; i < P * t->n_pages; i++) t->entry[i].rank = (int)(i / t->n_pages);
    for (int q = 0; q < P; q++) {
        for (int k = 0; k < SLOTS; k++) t->table[q][k] = t->room[q][k];
        const struct pages_options o = {P, q, t->n_pages, SLOTS, MOST * CACHE_PAGE, t->table[q]};
        CHECK(!pages_init(&t->at[q], &o, &e));
    }
    for (int i = 0; i < n_steps && !t->n_bad; i++) {
        const int k = (int)draw(t, SLOTS);
        if (!t->slot[k].busy)
            begin(t, k);
        else if (draw(t, 3))
            compute(t, k);
        else
            end(t, k);
        check_counts(t);
    }
    for (int q = 0; q < P; q++) pages_fini(&t->at[q]);
}

static void test_model(void)
{
    static struct trial t;
    for (int P = 1; P <= P_MOST; P++) {
        run(&t, P, (uint64_t)P, 25000);
        CHECK_MSG(!t.n_bad, "P %d", P);
        CHECK_MSG(t.n_hits > 500 && t.n_waits > 100, "P %d: %lld hits, %lld waits", P,
                  (long long)t.n_hits, (long long)t.n_waits);
    }
}

/* Checks the cases at the end of a prompt: its last token is always computed. */
static void test_last_token(void)
{
    int32_t room[2][2], *const table[] = {room[0], room[1]};
    const struct pages_options o = {2, 0, 4, 2, 4 * CACHE_PAGE, table};
    int32_t tokens[3 * CACHE_PAGE] = {0};
    struct pages p;
    struct err e = {0};
    CHECK(!pages_init(&p, &o, &e));
    struct pages_ask a = {1, 0, tokens, 2 * CACHE_PAGE, 3 * CACHE_PAGE, false};
    const struct pages_text t = {tokens, NULL, 2 * CACHE_PAGE, 0};
    CHECK(pages_begin(&p, 0, &a) == 0);
    CHECK(pages_begin(&p, 1, &a) == 0);
    pages_keep(&p, 0, &t);
    pages_keep(&p, 1, &t); /* it gets the pages of the first sequence */
    CHECK(room[0][0] == room[1][0] && pages_used(&p) == 4);
    pages_end(&p, 1);
    CHECK(pages_begin(&p, 1, &a) == CACHE_PAGE);
    pages_end(&p, 1);
    a.n_tokens++;
    CHECK(pages_begin(&p, 1, &a) == 2 * CACHE_PAGE);
    pages_end(&p, 1);
    pages_end(&p, 1);
    a.whole = true;
    CHECK(pages_begin(&p, 1, &a) == 0);
    pages_fini(&p);
}

#ifdef SEQD_MUTANTS
static void test_mutants(void)
{
    static const int ids[] = {MUTANT_PAGE_FOREIGN, MUTANT_PAGE_STALE, MUTANT_PREFIX_LONG,
                              MUTANT_PREFIX_ADAPTER, MUTANT_PREFIX_OWNER};
    static struct trial t;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        mutant_choose(ids[i]);
        run(&t, 2, 1, 20000);
        mutant_choose(MUTANT_NONE);
        mutant_report(ids[i], t.n_bad, "pages of random sequences");
        verify_blind(ids[i]);
    }
}
#endif

/* Checks prefixes of a model with states, of which one place exists. */
static void test_states(void)
{
    int32_t room[2][8], *const table[] = {room[0], room[1]};
    const struct pages_options o = {1, 0, 8, 2, 4 * CACHE_PAGE, table, true, 1};
    int32_t tokens[4 * CACHE_PAGE] = {0};
    struct pages p;
    struct err e = {0};
    CHECK(!pages_init(&p, &o, &e));
    struct pages_ask a = {1, 0, tokens, 3 * CACHE_PAGE + 1, 4 * CACHE_PAGE, false};
    struct pages_text t = {tokens, NULL, CACHE_PAGE, 0};
    CHECK(pages_begin(&p, 0, &a) == 0 && pages_state(&p, 0) == PAGES_NO_STATE);
    CHECK(pages_keep_state(&p, 0) == PAGES_NO_STATE); /* no page is kept yet */
    pages_keep(&p, 0, &t);
    CHECK(pages_keep_state(&p, 0) == 0 && pages_keep_state(&p, 0) == PAGES_NO_STATE);
    t.n_prompt = 3 * CACHE_PAGE;
    pages_keep(&p, 0, &t);
    /* the third page is kept without states, so the prefix is the first page */
    CHECK(pages_begin(&p, 1, &a) == CACHE_PAGE && pages_state(&p, 1) == 0);
    pages_end(&p, 1);
    CHECK(pages_keep_state(&p, 0) == 0); /* takes the place from the first page */
    CHECK(pages_begin(&p, 1, &a) == 3 * CACHE_PAGE && pages_state(&p, 1) == 0);
    pages_end(&p, 1);
    pages_end(&p, 0);
    /* another sequence needs the pages, so their states go with them */
    for (int i = 0; i < 4 * CACHE_PAGE; i++) tokens[i] = 7;
    a.n_tokens = CACHE_PAGE;
    CHECK(pages_begin(&p, 0, &a) == 0 && pages_begin(&p, 1, &a) == 0);
    t.n_prompt = CACHE_PAGE;
    pages_keep(&p, 0, &t);
    CHECK(pages_keep_state(&p, 0) == 0);
    pages_end(&p, 0);
    pages_end(&p, 1);
    for (int i = 0; i < 4 * CACHE_PAGE; i++) tokens[i] = 0;
    a.n_tokens = 3 * CACHE_PAGE + 1;
    CHECK(pages_begin(&p, 0, &a) == 0 && pages_state(&p, 0) == PAGES_NO_STATE);
    pages_fini(&p);
}

int main(void)
{
    RUN(test_model);
    RUN(test_last_token);
    RUN(test_states);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    return test_done("serve_pages");
}
