/* trail.c: collects the statuses of answers, and writes them into the audit log. */
#include "daemon/http/trail.h"

#include <stdio.h>
#include <stdlib.h>

#define WAIT_MS   1000
#define WAITS_MAX 64

/* An answer that is not in the log yet. Its row is found by the request's id and time. The id
 * alone is not enough, because ids begin again when seqd restarts. */
struct answered {
    int64_t at_ms, request;
    int status;
    char made[64];
};

struct trail {
    struct store *store;
    struct loop_timer *timer;
    bool stopped;
    int n;
    struct answered wait[WAITS_MAX];
};

static void take(struct trail *t, struct store_txn *txn)
{
    for (int i = 0; i < t->n; i++) {
        const struct answered *w = &t->wait[i];
        store_audit_answer(txn, w->at_ms, w->request, w->status, w->made);
    }
    t->n = 0;
    loop_timer_set(t->timer, -1);
}

static void write(struct trail *t, store_done *done, void *arg)
{
    struct store_txn *txn = store_begin();
    take(t, txn);
    store_commit(t->store, txn, done, arg);
}

/* Commits a transaction, which may be empty. Commits are answered in order, so when this commit is
 * answered, all earlier rows and statuses are on disk. done and arg are passed on, so no callback
 * refers to the trail. */
void trail_flush(struct trail *t, store_done *done, void *arg)
{
    if (t->stopped)
        done(arg, NULL);
    else
        write(t, done, arg);
}

static void on_timer(void *arg)
{
    struct trail *t = arg;
    if (t->n && !t->stopped) write(t, NULL, NULL);
}

static void on_answer(void *arg, int64_t at_ms, const struct http_req *r, int status)
{
    struct trail *t = arg;
    const char *made = http_answer_header(r, "Location");
    if (t->stopped) return;
    struct answered *w = &t->wait[t->n++];
    *w = (struct answered){.at_ms = at_ms, .request = http_id(r), .status = status};
    snprintf(w->made, sizeof w->made, "%s", made ? made : "");
    if (t->n == WAITS_MAX)
        write(t, NULL, NULL);
    else if (t->n == 1)
        loop_timer_set(t->timer, WAIT_MS);
}

void trail_note(struct trail *t, struct http_req *r, const struct store_audit *row)
{
    struct store_txn *txn = store_begin();
    store_audit_add(txn, row);
    take(t, txn);
    store_commit(t->store, txn, NULL, NULL);
    if (!row->status) http_on_answer(r, on_answer, t, row->at_ms);
}

struct trail *trail_create(struct loop *l, struct store *s)
{
    struct trail *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->store = s;
    t->timer = loop_timer_create(l, on_timer, t);
    return t;
}

void trail_stop(struct trail *t)
{
    if (t->n) write(t, NULL, NULL);
    t->stopped = true;
}

void trail_destroy(struct trail *t)
{
    if (!t) return;
    loop_timer_destroy(t->timer);
    free(t);
}
