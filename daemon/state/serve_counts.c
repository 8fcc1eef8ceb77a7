/* serve_counts.c: adds up the counts of a job that serves, and writes and reads them as JSON. */
#include "daemon/state/serve_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"

/* The largest count, because doubles are exact up to it. */
#define MOST ((int64_t)1 << 53)

/* A sum of struct rank_serving, its name in the document, and its name in the result of rank 0. */
static const struct {
    size_t at;
    const char *name, *result;
} sums[] = {{offsetof(struct rank_serving, requests), "requests", "requests"},
            {offsetof(struct rank_serving, refused), "refused", "refused"},
            {offsetof(struct rank_serving, dropped), "dropped", "dropped"},
            {offsetof(struct rank_serving, prompt_tokens), "prompt_tokens", "n_prompt_tokens"},
            {offsetof(struct rank_serving, tokens), "tokens", "n_tokens"},
            {offsetof(struct rank_serving, kept_tokens), "kept_tokens", "n_kept_tokens"},
            {offsetof(struct rank_serving, passes), "passes", NULL},
            {offsetof(struct rank_serving, rows), "rows", NULL},
            {offsetof(struct rank_serving, pass_us), "pass_us", NULL}};
enum { N_SUMS = sizeof sums / sizeof *sums };

static const double bounds_s[SERVE_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                               0.25,  0.5,    1,     2.5,  5,     10,   30};
static const char *const wait_names[SERVE_WAIT_N] = {"first_token", "token", "answer"};

static int64_t *sum_at(struct rank_serving *r, int i)
{
    return (int64_t *)(void *)((char *)r + sums[i].at);
}

static int64_t sum_of(const struct rank_serving *r, int i)
{
    return *sum_at((struct rank_serving *)r, i);
}

static int64_t add(int64_t a, int64_t b)
{
    return a + b < MOST ? a + b : MOST;
}

int64_t serve_counts_sum(const struct serve_counts *c, int index, const char **name)
{
    if (index >= N_SUMS) return -1;
    *name = sums[index].name;
    return add(sum_of(&c->before, index), sum_of(&c->now, index));
}

int64_t serve_counts_requests(const struct serve_counts *c)
{
    return add(c->before.requests, c->now.requests);
}

/* ---- seqd's door ----------------------------------------------------------------------------- */

double serve_counts_bound(int bucket)
{
    return bounds_s[bucket];
}

int64_t serve_counts_waits(const struct serve_histogram *h)
{
    int64_t n = 0;
    for (int i = 0; i <= SERVE_BUCKETS; i++) n = add(n, h->n[i]);
    return n;
}

static void add_wait(struct serve_counts *c, enum serve_wait w, int64_t us)
{
    const double s = us > 0 ? (double)us / 1e6 : 0;
    int i = 0;
    while (i < SERVE_BUCKETS && s > bounds_s[i]) i++;
    c->wait[w].n[i]++;
    c->wait[w].sum_s += s;
}

/* Returns the wait that a share of the waits does not exceed. It lies in its bucket as if the
 * waits of the bucket were spread evenly. */
static double quantile(const struct serve_histogram *h, double share)
{
    double left = share * (double)serve_counts_waits(h), from = 0;
    for (int i = 0; i < SERVE_BUCKETS; from = bounds_s[i++]) {
        const double n = (double)h->n[i];
        if (n > 0 && left <= n) return from + (bounds_s[i] - from) * left / n;
        left -= n;
    }
    return bounds_s[SERVE_BUCKETS - 1];
}

void serve_counts_open(struct serve_counts *c, struct serve_watch *w, int64_t now_us)
{
    *w = (struct serve_watch){.begun_us = now_us};
    if (c) c->open++;
}

void serve_counts_piece(struct serve_counts *c, struct serve_watch *w, const struct msg *m,
                        int64_t now_us)
{
    const bool first = !w->piece_us;
    if (first) {
        w->good = m->status == 200;
        w->stream = m->stream;
    }
    if (c && w->good && w->stream && m->size)
        add_wait(c, first ? SERVE_WAIT_FIRST : SERVE_WAIT_TOKEN,
                 now_us - (first ? w->begun_us : w->piece_us));
    w->piece_us = now_us;
    if (m->more || !c) return;
    c->open--;
    if (w->good) add_wait(c, SERVE_WAIT_ANSWER, now_us - w->begun_us);
}

void serve_counts_lost(struct serve_counts *c)
{
    if (!c) return;
    c->open--;
    c->lost++;
}

void serve_counts_closed(struct serve_counts *c)
{
    if (c) c->open--;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

bool serve_counts_good(const struct rank_serving *r)
{
    const int64_t more[] = {r->elapsed_us, r->at_work, r->queued, r->pages, r->pages_used};
    bool good = true;
    for (int i = 0; i < N_SUMS; i++) good &= sum_of(r, i) >= 0 && sum_of(r, i) <= MOST;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) good &= more[i] >= 0 && more[i] <= MOST;
    return good && r->pages_used <= r->pages;
}

static double rate(int64_t n, int64_t us)
{
    return n > 0 && us > 0 ? (double)n * 1e6 / (double)us : 0;
}

void serve_counts_report(struct serve_counts *c, const struct rank_serving *r)
{
    if (!c) return;
    const int64_t us = r->elapsed_us - c->now.elapsed_us, passes = r->passes - c->now.passes;
    c->prompt_tokens_s = rate(r->prompt_tokens - c->now.prompt_tokens, us);
    c->tokens_s = rate(r->tokens - c->now.tokens, us);
    c->rows = passes > 0 ? (double)(r->rows - c->now.rows) / (double)passes : 0;
    c->now = *r;
}

void serve_counts_attempt(struct serve_counts *c)
{
    if (!c) return;
    for (int i = 0; i < N_SUMS; i++)
        *sum_at(&c->before, i) = add(sum_of(&c->before, i), sum_of(&c->now, i));
    c->now = (struct rank_serving){0};
    c->prompt_tokens_s = c->tokens_s = c->rows = 0;
}

/* Returns the index of the sum that a member of a result has, or -1. */
static int result_index(const struct jread *r)
{
    for (int i = 0; i < N_SUMS; i++)
        if (sums[i].result && jread_is(r, sums[i].result)) return i;
    return -1;
}

/* Returns the part of a result's sum that is of earlier attempts. A result counts all tokens of
 * prompts, and the reports count kept ones apart. */
static int64_t earlier(const struct serve_counts *c, int i)
{
    const int64_t n = sum_of(&c->before, i);
    return sums[i].at == offsetof(struct rank_serving, prompt_tokens)
               ? add(n, c->before.kept_tokens)
               : n;
}

/* Tells whether a number follows the key that ends at `at`. */
static bool is_count(const char *at)
{
    at += strspn(at, "\": \t\r\n");
    return *at == '-' || (*at >= '0' && *at <= '9');
}

char *serve_counts_result(const struct serve_counts *c, const char *result)
{
    const size_t size = strlen(result), room = size + N_SUMS * 24;
    char *out = malloc(room);
    const char *copied = result;
    struct jread r;
    size_t n = 0;
    int64_t count;
    unsigned seen = 0; /* bits of the members that have come */
    if (!out) abort();
    jread_init(&r, result, size);
    if (jread_next(&r) == J_OBJECT)
        while (jread_next(&r) == J_KEY) {
            /* a rank has written the result: a member may come twice, and have any value */
            const int i = result_index(&r);
            const bool again = i < 0 || seen >> i & 1;
            const char *const value = r.text + r.len;
            if (again) {
                if (jread_skip(&r)) break;
                continue;
            }
            seen |= 1u << i;
            if (!is_count(value)) {
                if (jread_skip(&r)) break;
                continue;
            }
            if (jread_next(&r) != J_NUMBER || jread_int(&r, &count) || count < 0 || count > MOST)
                continue;
            n += (size_t)snprintf(out + n, room - n, "%.*s%lld", (int)(r.text - copied), copied,
                                  (long long)add(count, earlier(c, i)));
            copied = r.text + r.len;
        }
    snprintf(out + n, room - n, "%s", copied);
    return out;
}

/* ---- the document ---------------------------------------------------------------------------- */

static void write_histogram(const struct serve_histogram *h, struct jwrite *w, const char *key)
{
    const int64_t n = serve_counts_waits(h);
    jwrite_object(w, key);
    jwrite_int(w, "count", n);
    jwrite_double(w, "sum_s", h->sum_s);
    if (n) {
        jwrite_double(w, "mean_s", h->sum_s / (double)n);
        jwrite_double(w, "p50_s", quantile(h, 0.5));
        jwrite_double(w, "p90_s", quantile(h, 0.9));
    }
    jwrite_array(w, "buckets");
    for (int i = 0; i <= SERVE_BUCKETS; i++) jwrite_int(w, NULL, h->n[i]);
    jwrite_end(w);
    jwrite_end(w);
}

/* Writes the numbers of this moment. */
static void write_now(const struct serve_counts *c, struct jwrite *w)
{
    jwrite_int(w, "open", c->open);
    jwrite_int(w, "at_work", c->now.at_work);
    jwrite_int(w, "queued", c->now.queued);
    jwrite_double(w, "prompt_tokens_s", c->prompt_tokens_s);
    jwrite_double(w, "tokens_s", c->tokens_s);
    jwrite_double(w, "rows_of_pass", c->rows);
    jwrite_int(w, "pages", c->now.pages);
    jwrite_int(w, "pages_used", c->now.pages_used);
}

void serve_counts_write(const struct serve_counts *c, bool placed, struct jwrite *w)
{
    static const struct serve_counts none;
    const char *name;
    int64_t n;
    jwrite_object(w, "serving");
    write_now(placed ? c : &none, w);
    for (int i = 0; (n = serve_counts_sum(c, i, &name)) >= 0; i++) jwrite_int(w, name, n);
    jwrite_int(w, "lost", c->lost);
    jwrite_object(w, "waits");
    for (int i = 0; i < SERVE_WAIT_N; i++) write_histogram(&c->wait[i], w, wait_names[i]);
    jwrite_end(w);
    jwrite_object(w, "earlier");
    for (int i = 0; i < N_SUMS; i++) jwrite_int(w, sums[i].name, sum_of(&c->before, i));
    jwrite_end(w);
    jwrite_end(w);
}

/* Reads a count. Any other value counts as 0, and is skipped. */
static int64_t read_count(struct jread *r)
{
    int64_t n = 0;
    const enum jtok t = jread_next(r);
    if (t == J_OBJECT || t == J_ARRAY) jread_skip(r);
    return t == J_NUMBER && !jread_int(r, &n) && n >= 0 && n <= MOST ? n : 0;
}

/* Reads the value of a key if it names a sum. */
static bool read_sum(struct jread *r, struct rank_serving *out)
{
    for (int i = 0; i < N_SUMS; i++)
        if (jread_is(r, sums[i].name)) {
            *sum_at(out, i) = read_count(r);
            return true;
        }
    return false;
}

static void read_sums(struct jread *r, struct rank_serving *out)
{
    if (jread_next(r) != J_OBJECT) return;
    while (jread_next(r) == J_KEY)
        if (!read_sum(r, out) && jread_skip(r)) return;
}

static void read_histogram(struct jread *r, struct serve_histogram *h)
{
    int i = 0;
    if (jread_next(r) != J_OBJECT) return;
    while (jread_next(r) == J_KEY) {
        const bool sum = jread_is(r, "sum_s"), buckets = jread_is(r, "buckets");
        if (!sum && !buckets && jread_skip(r)) return;
        if (sum && (jread_next(r) != J_NUMBER || jread_double(r, &h->sum_s))) return;
        if (!buckets || jread_next(r) != J_ARRAY) continue;
        for (enum jtok t = jread_next(r); t == J_NUMBER; t = jread_next(r), i++) {
            int64_t n;
            if (i > SERVE_BUCKETS || jread_int(r, &n)) return;
            h->n[i] = n >= 0 && n <= MOST ? n : 0;
        }
    }
}

static void read_waits(struct jread *r, struct serve_counts *c)
{
    if (jread_next(r) != J_OBJECT) return;
    while (jread_next(r) == J_KEY) {
        int i = 0;
        while (i < SERVE_WAIT_N && !jread_is(r, wait_names[i])) i++;
        if (i < SERVE_WAIT_N)
            read_histogram(r, &c->wait[i]);
        else if (jread_skip(r))
            return;
    }
}

void serve_counts_read(struct serve_counts *c, const char *json)
{
    struct rank_serving all = {0};
    struct jread r;
    *c = (struct serve_counts){0};
    jread_init(&r, json, strlen(json));
    if (jread_next(&r) != J_OBJECT) return;
    while (jread_next(&r) == J_KEY) {
        if (jread_is(&r, "earlier"))
            read_sums(&r, &c->before);
        else if (jread_is(&r, "waits"))
            read_waits(&r, c);
        else if (jread_is(&r, "lost"))
            c->lost = read_count(&r);
        else if (!read_sum(&r, &all) && jread_skip(&r))
            break;
    }
    for (int i = 0; i < N_SUMS; i++) {
        const int64_t now = sum_of(&all, i) - sum_of(&c->before, i);
        *sum_at(&c->now, i) = now > 0 ? now : 0;
    }
}
