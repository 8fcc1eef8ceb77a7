/* Questions to nodes: one message out, exactly one back, or an error after ASK_TIMEOUT_MS. Nothing
 * of it is durable: whoever asked asks again. */
#include "daemon/control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ask {
    struct ask *next;
    struct asks *all;
    int64_t request;
    enum msg_type want;
    char node[NODE_NAME];
    struct loop_timer *timer;
    control_answer *answer;
    void *arg;
};

struct asks {
    struct loop *loop;
    struct ask *first;
    int64_t last;
};

struct asks *asks_create(struct loop *l)
{
    struct asks *a = calloc(1, sizeof *a);
    if (!a) abort();
    a->loop = l;
    return a;
}

/* Takes it out of the list, so that the callee may ask again. */
static void finish(struct ask *q, const struct msg *m, const struct err *e)
{
    struct ask **at = &q->all->first;
    while (*at && *at != q) at = &(*at)->next;
    if (*at) *at = q->next;
    loop_timer_destroy(q->timer);
    q->answer(q->arg, m, e);
    free(q);
}

void asks_destroy(struct asks *a)
{
    if (!a) return;
    for (struct ask *q = a->first, *next; q; q = next) {
        next = q->next;
        loop_timer_destroy(q->timer);
        free(q);
    }
    free(a);
}

static void timed_out(void *arg)
{
    struct ask *q = arg;
    struct err e;
    err_set(&e, ERR_TIMEOUT, "node %s did not answer within %d s", q->node, ASK_TIMEOUT_MS / 1000);
    finish(q, NULL, &e);
}

void asks_take(struct asks *a, const char *node, const struct msg *m)
{
    for (struct ask *q = a->first; q; q = q->next) {
        if (q->request != m->request || q->want != m->type || strcmp(q->node, node)) continue;
        finish(q, m->err.code ? NULL : m, m->err.code ? &m->err : NULL);
        return;
    }
}

void asks_node_down(struct asks *a, const char *node)
{
    struct err e;
    err_set(&e, ERR_PEER, "node %s went away", node);
    for (struct ask *q = a->first, *next; q; q = next) {
        next = q->next;
        if (!strcmp(q->node, node)) finish(q, NULL, &e);
    }
}

void control_ask(struct control *c, const char *node, const struct msg *m, control_answer *answer,
                 void *arg)
{
    struct asks *a = control_asks(c);
    struct msg out = *m;
    struct err e;
    if (!node) node = control_any_node(c);
    if (!node) {
        err_set(&e, ERR_PEER, "no node is up to answer");
        answer(arg, NULL, &e);
        return;
    }
    out.request = ++a->last;
    if (control_send(c, node, &out)) {
        err_set(&e, ERR_PEER, "node %s is not connected", node);
        answer(arg, NULL, &e);
        return;
    }
    struct ask *q = calloc(1, sizeof *q);
    if (!q) abort();
    q->all = a;
    q->request = out.request;
    q->want = m->type == MSG_DESCRIBE ? MSG_DESCRIBED : MSG_FETCHED; /* also of a TRACE */
    snprintf(q->node, sizeof q->node, "%s", node);
    q->answer = answer;
    q->arg = arg;
    q->timer = loop_timer_create(a->loop, timed_out, q);
    loop_timer_set(q->timer, ASK_TIMEOUT_MS);
    q->next = a->first;
    a->first = q;
}
