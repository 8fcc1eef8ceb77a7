/* asked.c: passes pieces of requests and answers on, and keeps the ids of open requests. */
#include "worker/gang/asked.h"

#include <string.h>

enum { TO_RANK_SIZE = RANK_BODIES_SIZE, TO_AGENT_SIZE = 64 << 20, FINISH_MS = 2000 };

void asked_init(struct asked *a)
{
    a->rank = a->agent = OUTFLOW_NONE;
    a->n = 0;
    a->still = false;
}

void asked_fini(struct asked *a)
{
    outflow_close(&a->rank);
    outflow_close(&a->agent);
}

int asked_rank(struct asked *a, struct loop *l, int sock)
{
    return outflow_open(&a->rank, l, sock, TO_RANK_SIZE);
}

int asked_agent(struct asked *a, struct loop *l, int sock)
{
    return outflow_open(&a->agent, l, sock, TO_AGENT_SIZE);
}

void asked_rank_gone(struct asked *a)
{
    outflow_close(&a->rank);
}

/* ---- the open requests ----------------------------------------------------------------------- */

static int find(const struct asked *a, uint64_t id)
{
    for (int i = 0; i < a->n; i++)
        if (a->id[i] == id) return i;
    return -1;
}

static void forget(struct asked *a, uint64_t id)
{
    const int i = find(a, id);
    if (i >= 0) a->id[i] = a->id[--a->n];
}

/* Adds a request unless it is open already. Returns false if there is no place. */
static bool add(struct asked *a, uint64_t id)
{
    if (find(a, id) >= 0) return true;
    if (a->n == RANK_ASKS) return false;
    a->id[a->n++] = id;
    return true;
}

static void drop(struct asked *a, uint64_t id)
{
    outflow_send(&a->rank, (struct rank_msg){.type = RANK_DROP}, &id, sizeof id);
}

void asked_agent_gone(struct asked *a)
{
    outflow_close(&a->agent);
    while (a->n) drop(a, a->id[--a->n]);
}

/* Tells the agent that the request is lost. */
static void lose(struct asked *a, uint64_t id)
{
    const struct rank_answer lost = {.id = id, .status = 503, .flags = RANK_ANSWER_LAST};
    forget(a, id);
    drop(a, id);
    outflow_send(&a->agent, (struct rank_msg){.type = RANK_ANSWER}, &lost, sizeof lost);
}

/* ---- packets --------------------------------------------------------------------------------- */

void asked_take(struct asked *a, const struct rank_msg *head, const void *payload)
{
    struct rank_ask ask;
    uint64_t id;
    if (head->type == RANK_DROP) {
        if (head->size != sizeof id) return;
        memcpy(&id, payload, sizeof id);
        forget(a, id);
        drop(a, id);
        return;
    }
    if (head->size < sizeof id) return;
    memcpy(&id, payload, sizeof id); /* the first member of every version */
    if (head->size >= sizeof ask) memcpy(&ask, payload, sizeof ask);
    if (head->size < sizeof ask || ask.size < 0 || ask.size > RANK_PIECE_SIZE ||
        head->size != sizeof ask + (size_t)ask.size) {
        lose(a, id); /* it has another version's form, and its client must not wait */
        return;
    }
    if (a->still || !add(a, ask.id) ||
        outflow_send(&a->rank, (struct rank_msg){.type = RANK_ASK}, payload, head->size))
        lose(a, ask.id);
}

int asked_answer(struct asked *a, const struct rank_msg *head, const void *payload)
{
    struct rank_answer answer;
    memcpy(&answer, payload, sizeof answer); /* packet_good has compared the sizes */
    if (find(a, answer.id) < 0) return 0;    /* the request was dropped in the meantime */
    if (answer.flags & RANK_ANSWER_LAST) forget(a, answer.id);
    return outflow_send(&a->agent, (struct rank_msg){.type = RANK_ANSWER}, payload, head->size);
}

void asked_tell(struct asked *a, enum rank_msg_type type, const void *payload, size_t size)
{
    outflow_send(&a->rank, (struct rank_msg){.type = type}, payload, size);
}

void asked_stand(struct asked *a, bool still)
{
    a->still = still;
    while (still && a->n) lose(a, a->id[a->n - 1]);
}

void asked_finish(struct asked *a)
{
    outflow_finish(&a->agent, FINISH_MS);
}
