/* ask.c: sends a question to a node, or to several nodes in sequence until one answers, and gives
 * the answer to the caller. */
#include "daemon/loop/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ask {
    struct ask *next;
    struct asks *all;
    struct msg m;
    bool any;  /* the question may be sent to any node */
    bool runs; /* this question is counted in `n_described` of the node that was asked last */
    int n_tried;
    /* nodes that were asked so far; the last of these nodes has not answered yet */
    char tried[ASK_NODES][NODE_NAME];
    struct loop_timer *timer;
    ask_answer *answer;
    void *arg;
};

struct asks {
    struct loop *loop;
    const struct cluster *cluster;
    struct outbox out;
    struct ask *first;
    int64_t last;
};

struct asks *asks_create(struct loop *l, const struct cluster *k, const struct outbox *o)
{
    struct asks *a = calloc(1, sizeof *a);
    if (!a) abort();
    a->loop = l;
    a->cluster = k;
    a->out = *o;
    return a;
}

static int64_t limit_ms(const struct ask *q)
{
    return q->m.models ? ASK_MODELS_MS : q->m.n_files ? ASK_FILES_MS : ASK_TIMEOUT_MS;
}

static const char *asked(const struct ask *q)
{
    return q->n_tried ? q->tried[q->n_tried - 1] : "";
}

/* Tells whether an agent that speaks `abi` can answer m. An agent of ABI 6 can fetch only
 * artifacts, does not know files of data or adapters, and can list models only from the first model
 * on. */
static bool understands(uint32_t abi, const struct msg *m)
{
    static const char checkpoints[] = "checkpoints/";
    if (abi < 7 && (m->n_files || m->adapter || (m->models && m->offset))) return false;
    return wire_knows(abi, m->type) && (abi >= 7 || m->type != MSG_FETCH ||
                                        strncmp(m->path, checkpoints, sizeof checkpoints - 1));
}

/* Counts the process of a DESCRIBE as running or as ended, on the node that is asked now. */
static void count(struct ask *q, bool runs)
{
    struct node *n = node_find((struct nodes *)&q->all->cluster->nodes, asked(q));
    if (q->m.type != MSG_DESCRIBE || q->runs == runs) return;
    q->runs = runs;
    if (n) n->n_described += runs ? 1 : -1;
}

/* Asks one node. Returns -1 if there is no such node, if the node is not connected, or if the
 * version of the node does not know this kind of question. */
static int ask_node(struct ask *q, const char *node, struct err *e)
{
    const char *why = q->all->cluster->no_node;
    if (!node)
        return err_set(e, ERR_PEER, "no node is up to answer%s%.440s", *why ? ": " : "", why);
    const struct node *n = node_find((struct nodes *)&q->all->cluster->nodes, node);
    snprintf(q->tried[q->n_tried], NODE_NAME, "%s", node);
    if (n && n->up && !understands(n->abi, &q->m)) {
        q->n_tried++; /* if the question is for any node, the next node is asked */
        return err_set(
            e, ERR_PEER, "node %s speaks protocol %u, which %s: upgrade seqw there", node, n->abi,
            q->m.type == MSG_FETCH ? "does not send checkpoints" : "does not know this question");
    }
    q->m.request = ++q->all->last;
    const int rc = outbox_send(&q->all->out, node, &q->m);
    /* count the node after the send, so that q does not fail if the send breaks the session */
    q->n_tried++;
    if (rc) return err_set(e, ERR_PEER, "node %s is not connected", node);
    count(q, true);
    loop_timer_set(q->timer, limit_ms(q));
    return 0;
}

static bool ask_another(struct ask *q)
{
    while (q->any && q->n_tried < ASK_NODES) {
        const char *node = cluster_any_node(q->all->cluster, (const char(*)[NODE_NAME])q->tried,
                                            q->n_tried);
        if (!node) return false;
        if (!ask_node(q, node, NULL)) return true;
    }
    return false;
}

/* Ends the question with the answer m or the error e. After an error, if the question is for any
 * node, asks the next node instead. The question is removed from the list of questions before its
 * callback is called, so that the callee may ask again. */
static void finish(struct ask *q, const struct msg *m, const struct err *e)
{
    struct ask **at = &q->all->first;
    count(q, false);
    if (e && ask_another(q)) return;
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
    err_set(&e, ERR_TIMEOUT, "node %s did not answer within %d s", asked(q),
            (int)(limit_ms(q) / 1000));
    finish(q, NULL, &e);
}

static enum msg_type answer_of(const struct msg *m)
{
    return m->type == MSG_DESCRIBE && !m->models ? MSG_DESCRIBED : MSG_FETCHED;
}

bool asks_take(struct asks *a, const char *node, const struct msg *m)
{
    for (struct ask *q = a->first; q; q = q->next) {
        /* an older seqw answers a question about models with DESCRIBED */
        const bool old = q->m.models && m->type == MSG_DESCRIBED;
        if (q->m.request != m->request || (answer_of(&q->m) != m->type && !old) ||
            strcmp(asked(q), node))
            continue;
        if (old) {
            struct err e;
            err_set(&e, ERR_UNSUPPORTED, "node %s lists no models: its version is older", node);
            finish(q, NULL, &e);
            return true;
        }
        if (!m->err.code && q->m.offset != m->offset) return false;
        finish(q, m->err.code ? NULL : m, m->err.code ? &m->err : NULL);
        return true;
    }
    return false;
}

void asks_node_down(struct asks *a, const char *node)
{
    struct err e;
    err_set(&e, ERR_PEER, "node %s went away", node);
    for (struct ask *q = a->first, *next; q; q = next) {
        next = q->next;
        if (!strcmp(asked(q), node)) finish(q, NULL, &e);
    }
}

void asks_add(struct asks *a, const char *node, const struct msg *m, ask_answer *answer, void *arg)
{
    struct err e;
    struct ask *q = calloc(1, sizeof *q);
    if (!q) abort();
    q->all = a;
    q->m = *m;
    q->any = !node;
    q->answer = answer;
    q->arg = arg;
    q->timer = loop_timer_create(a->loop, timed_out, q);
    q->next = a->first;
    a->first = q;
    if (ask_node(q, node ? node : cluster_any_node(a->cluster, NULL, 0), &e)) finish(q, NULL, &e);
}
