/* prometheus_serve.c: writes the counts of jobs that serve, family by family. */
#include "daemon/http/prometheus_serve.h"

#include <stdlib.h>
#include <string.h>
#include "daemon/state/serve_counts.h"

struct server_list {
    const struct principal *who; /* the user who sees the list; NULL sees all jobs */
    const struct job **at;       /* owned */
    size_t n, room;
};

static void list_job(void *arg, struct job *j)
{
    struct server_list *l = arg;
    if (!j->serving || !j->epoch) return;
    if (l->who && !principal_owns(l->who, j->owner)) return;
    if (l->n == l->room) {
        l->room = 2 * l->room + 16;
        if (!(l->at = realloc(l->at, l->room * sizeof *l->at))) abort();
    }
    l->at[l->n++] = j;
}

static int by_id(const void *a, const void *b)
{
    const struct job *const *x = a, *const *y = b;
    return ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

/* ---- numbers of this moment ------------------------------------------------------------------ */

static int64_t open_of(const struct serve_counts *c)
{
    return c->open;
}

static int64_t at_work_of(const struct serve_counts *c)
{
    return c->now.at_work;
}

static int64_t queued_of(const struct serve_counts *c)
{
    return c->now.queued;
}

static int64_t pages_of(const struct serve_counts *c)
{
    return c->now.pages;
}

static int64_t pages_used_of(const struct serve_counts *c)
{
    return c->now.pages_used;
}

static void add_gauges(struct exposition *x, const struct server_list *l)
{
    static const struct {
        const char *name, *help;
        int64_t (*of)(const struct serve_counts *);
    } rows[] = {{"seqd_serve_open",
                 "Requests that seqd has passed on and that wait for the end "
                 "of their answer.",
                 open_of},
                {"seqd_serve_at_work", "Requests whose next tokens passes compute.", at_work_of},
                {"seqd_serve_queued", "Requests that wait for a slot at rank 0.", queued_of},
                {"seqd_serve_pages", "Pages of the caches of all ranks.", pages_of},
                {"seqd_serve_pages_used", "Pages that requests at work have.", pages_used_of}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        exposition_family(x, rows[i].name, "gauge", rows[i].help);
        for (size_t k = 0; k < l->n; k++)
            exposition_add(x, "%s{job=\"%lld\"} %lld\n", rows[i].name, (long long)l->at[k]->id,
                           (long long)(job_placed(l->at[k]) ? rows[i].of(l->at[k]->serving) : 0));
    }
}

/* ---- sums over all attempts ------------------------------------------------------------------ */

static int64_t sum_of(const struct serve_counts *c, const char *name)
{
    const char *is;
    int64_t n;
    for (int i = 0; (n = serve_counts_sum(c, i, &is)) >= 0; i++)
        if (!strcmp(is, name)) return n;
    return 0;
}

static void add_requests(struct exposition *x, const struct server_list *l)
{
    static const struct {
        const char *outcome, *sum;
    } rows[] = {{"answered", "requests"}, {"refused", "refused"}, {"dropped", "dropped"}};
    exposition_family(x, "seqd_serve_requests_total", "counter",
                      "Requests that have ended, of all attempts. Lost ones were answered with "
                      "503, because a process, a node or a link had ended.");
    for (size_t k = 0; k < l->n; k++) {
        const long long id = (long long)l->at[k]->id;
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            exposition_add(x, "seqd_serve_requests_total{job=\"%lld\",outcome=\"%s\"} %lld\n", id,
                           rows[i].outcome, (long long)sum_of(l->at[k]->serving, rows[i].sum));
        exposition_add(x, "seqd_serve_requests_total{job=\"%lld\",outcome=\"lost\"} %lld\n", id,
                       (long long)l->at[k]->serving->lost);
    }
}

static void add_sums(struct exposition *x, const struct server_list *l)
{
    static const struct {
        const char *name, *sum, *help;
    } rows[] = {
        {"seqd_serve_prompt_tokens_total", "prompt_tokens",
         "Tokens of prompts, without kept ones."},
        {"seqd_serve_kept_tokens_total", "kept_tokens", "Tokens of prompts that were kept."},
        {"seqd_serve_tokens_total", "tokens", "Generated tokens."},
        {"seqd_serve_passes_total", "passes", "Passes that compute next tokens."},
        {"seqd_serve_rows_total", "rows", "Rows of these passes."}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        exposition_family(x, rows[i].name, "counter", rows[i].help);
        for (size_t k = 0; k < l->n; k++)
            exposition_add(x, "%s{job=\"%lld\"} %lld\n", rows[i].name, (long long)l->at[k]->id,
                           (long long)sum_of(l->at[k]->serving, rows[i].sum));
    }
    exposition_family(x, "seqd_serve_pass_seconds_total", "counter", "Duration of these passes.");
    for (size_t k = 0; k < l->n; k++)
        exposition_add(x, "seqd_serve_pass_seconds_total{job=\"%lld\"} %.6f\n",
                       (long long)l->at[k]->id, (double)sum_of(l->at[k]->serving, "pass_us") / 1e6);
}

/* ---- waits of clients ------------------------------------------------------------------------ */

static void add_histogram(struct exposition *x, const char *name, int64_t id,
                          const struct serve_histogram *h)
{
    int64_t n = 0;
    for (int i = 0; i < SERVE_BUCKETS; i++) {
        n += h->n[i];
        exposition_add(x, "%s_bucket{job=\"%lld\",le=\"%g\"} %lld\n", name, (long long)id,
                       serve_counts_bound(i), (long long)n);
    }
    n = serve_counts_waits(h);
    exposition_add(x, "%s_bucket{job=\"%lld\",le=\"+Inf\"} %lld\n", name, (long long)id,
                   (long long)n);
    exposition_add(x, "%s_sum{job=\"%lld\"} %.6f\n", name, (long long)id, h->sum_s);
    exposition_add(x, "%s_count{job=\"%lld\"} %lld\n", name, (long long)id, (long long)n);
}

static void add_waits(struct exposition *x, const struct server_list *l)
{
    static const struct {
        const char *name, *help;
    } rows[SERVE_WAIT_N] = {
        {"seqd_serve_first_token_seconds",
         "From a request to the first piece of an answer that is streamed."},
        {"seqd_serve_token_seconds",
         "Between two pieces of an answer that is streamed; a piece has one token, as a rule."},
        {"seqd_serve_answer_seconds", "From a request to the end of its answer."}};
    for (int i = 0; i < SERVE_WAIT_N; i++) {
        exposition_family(x, rows[i].name, "histogram", rows[i].help);
        for (size_t k = 0; k < l->n; k++)
            add_histogram(x, rows[i].name, l->at[k]->id, &l->at[k]->serving->wait[i]);
    }
}

void prometheus_serve(struct exposition *x, const struct jobs *jobs, const struct principal *who)
{
    struct server_list l = {.who = who};
    jobs_each((struct jobs *)jobs, list_job, &l);
    if (l.n) {
        qsort(l.at, l.n, sizeof *l.at, by_id);
        add_gauges(x, &l);
        add_requests(x, &l);
        add_sums(x, &l);
        add_waits(x, &l);
    }
    free(l.at);
}
