/* gather.c: the list of kept requests, and the list of requests that are on their way. A client's
 * request that is not here after GATHER_MS, for example because it waits for a node, is expected no
 * longer, so that it cannot slow down the commits of others. */
#include "daemon/store/gather.h"

#include <stddef.h>
#include "daemon/store/txn.h"

static void on_timer(void *arg)
{
    gather_flush(arg);
}

void gather_init(struct gatherer *g, struct loop *l, gather_take *take, void *arg)
{
    *g = (struct gatherer){.loop = l, .take = take, .arg = arg};
    g->last = &g->first;
    g->timer = loop_timer_create(l, on_timer, g);
}

void gather_fini(struct gatherer *g)
{
    for (struct store_txn *t = g->first, *next; t; t = next) {
        next = t->next;
        txn_free(t);
    }
    while (g->coming) gather_arrived(g->coming);
    if (g->timer) loop_timer_destroy(g->timer);
}

void gather_hold(struct gatherer *g, struct store_txn *t)
{
    *g->last = t;
    g->last = &t->next;
    g->n++;
}

void gather_flush(struct gatherer *g)
{
    struct store_txn *first = g->first, **last = g->last;
    const int n = g->n;
    g->first = NULL;
    g->last = &g->first;
    if (g->n_gathered) loop_timer_set(g->timer, -1);
    g->n = g->n_gathered = 0;
    if (n) g->take(g->arg, first, last, n);
}

void gather_pass(struct gatherer *g, struct store_txn *t)
{
    gather_hold(g, t);
    gather_flush(g);
}

/* Tells whether a request that began less than GATHER_MS ago is on its way. */
static bool more_come(const struct gatherer *g)
{
    return g->coming && loop_clock_ms(g->loop) - g->coming->since_ms < GATHER_MS;
}

void gather_wait(struct gatherer *g, struct store_txn *t)
{
    gather_hold(g, t);
    if (++g->n_gathered >= GATHER_MAX || !more_come(g))
        gather_flush(g);
    else if (g->n_gathered == 1)
        loop_timer_set(g->timer, GATHER_MS);
}

void gather_expect(struct gatherer *g, struct store_coming *c)
{
    *c = (struct store_coming){.in = g, .next = g->coming, .since_ms = loop_clock_ms(g->loop)};
    if (c->next) c->next->prev = c;
    g->coming = c;
}

void gather_arrived(struct store_coming *c)
{
    if (!c->in) return;
    if (c->next) c->next->prev = c->prev;
    if (c->prev)
        c->prev->next = c->next;
    else
        c->in->coming = c->next;
    *c = (struct store_coming){.in = NULL};
}
