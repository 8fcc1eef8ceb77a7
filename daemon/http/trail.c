/* trail.c: collects the statuses of answers, and writes them into the audit log. */
#include "daemon/http/trail.h"

#include <stdio.h>
#include <stdlib.h>

#define WAIT_MS   1000
#define WAITS_MAX 64 /* answers that wait, and rows that wait */

/* An answer that is not in the log yet. Its row is found by the request's id and time. The id
 * alone is not enough, because ids begin again when seqd restarts. */
struct answered {
    int64_t at_ms, request;
    int status;
    char made[64];
};

struct trail {
    struct store *store;
    struct loop *loop;
    struct loop_timer *timer;
    bool stopped, armed;
    int64_t since_ms; /* time of the oldest row or answer that waits */
    int n_held;       /* rows that were given to store_hold since the last commit of this file */
    int n;
    struct answered wait[WAITS_MAX];
};

static bool waits(const struct trail *t)
{
    return t->n || store_holds(t->store);
}

/* Call it before a row or an answer is added that will wait. */
static void begin_wait(struct trail *t)
{
    if (!waits(t)) t->since_ms = loop_now_ms(t->loop);
    if (!t->armed) loop_timer_set(t->timer, WAIT_MS);
    t->armed = true;
}

static void take(struct trail *t, struct store_txn *txn)
{
    for (int i = 0; i < t->n; i++) {
        const struct answered *w = &t->wait[i];
        store_audit_answer(txn, w->at_ms, w->request, w->status, w->made);
    }
    t->n = 0;
}

static void write(struct trail *t)
{
    struct store_txn *txn = store_begin();
    take(t, txn);
    t->n_held = 0;
    t->armed = false;
    loop_timer_set(t->timer, -1);
    store_commit(t->store, txn, NULL, NULL);
}

/* Commits an empty request. Commits are answered in order, so when it is answered, all earlier rows
 * and statuses are on disk. It may be withdrawn, but the rows and statuses before it are not. done
 * and arg are passed on, so no callback refers to the trail. */
void trail_flush(struct trail *t, store_done *done, void *arg)
{
    if (t->stopped) {
        done(arg, NULL);
        return;
    }
    struct store_txn *last = store_begin();
    write(t);
    store_client(last, NULL);
    store_commit(t->store, last, done, arg);
}

static void on_timer(void *arg)
{
    struct trail *t = arg;
    const int64_t left_ms = t->since_ms + WAIT_MS - loop_now_ms(t->loop);
    t->armed = waits(t) && left_ms > 0 && !t->stopped;
    if (t->armed)
        loop_timer_set(t->timer, left_ms);
    else if (waits(t) && !t->stopped)
        write(t);
}

static void on_answer(void *arg, int64_t at_ms, const struct http_req *r, int status)
{
    struct trail *t = arg;
    const char *made = http_answer_header(r, "Location");
    if (t->stopped) return;
    begin_wait(t);
    struct answered *w = &t->wait[t->n++];
    *w = (struct answered){.at_ms = at_ms, .request = http_id(r), .status = status};
    snprintf(w->made, sizeof w->made, "%s", made ? made : "");
    if (t->n == WAITS_MAX) write(t);
}

void trail_note(struct trail *t, struct http_req *r, const struct store_audit *row, bool may_wait)
{
    struct store_txn *txn = store_begin();
    store_audit_add(txn, row);
    begin_wait(t);
    take(t, txn);
    if (may_wait && ++t->n_held < WAITS_MAX) {
        store_hold(t->store, txn);
    } else {
        t->n_held = 0;
        store_commit(t->store, txn, NULL, NULL);
    }
    if (!row->status) http_on_answer(r, on_answer, t, row->at_ms);
}

struct trail *trail_create(struct loop *l, struct store *s)
{
    struct trail *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->store = s;
    t->loop = l;
    t->timer = loop_timer_create(l, on_timer, t);
    return t;
}

void trail_stop(struct trail *t)
{
    if (waits(t)) write(t);
    t->stopped = true;
}

void trail_destroy(struct trail *t)
{
    if (!t) return;
    loop_timer_destroy(t->timer);
    free(t);
}
