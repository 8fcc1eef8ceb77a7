/* budget.c: counts connections by client, and keeps the idle ones in order. */
#include "daemon/http/budget.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "daemon/http/http.h"

#define OTHERS       512  /* descriptors that are not for connections */
#define MIN_REQUESTS 96   /* requests for which descriptors are always kept, in OTHERS */
#define MIN_FILES    640  /* fewer descriptors are divided as these are */
#define SLOTS        4096 /* slots of the hash table; a pool has at most 10,000 connections */

struct budget_client {
    struct budget_client *next; /* in the same slot */
    struct budget_key key;
    int n;
    struct budget_lists idle;
};

/* ---- lists ----------------------------------------------------------------------------------- */

static void lists_init(struct budget_lists *l)
{
    for (int i = 0; i < 2; i++) l->head[i].next = l->head[i].prev = &l->head[i];
}

static struct budget_conn *lists_first(const struct budget_lists *l)
{
    struct budget_conn *c = l->head[0].next->conn;
    return c ? c : l->head[1].next->conn;
}

static void unlink_one(struct budget_link *k)
{
    if (!k->next) return;
    k->next->prev = k->prev;
    k->prev->next = k->next;
    k->next = k->prev = NULL;
}

static void append(struct budget_link *head, struct budget_link *k, struct budget_conn *c)
{
    k->conn = c;
    k->next = head;
    k->prev = head->prev;
    k->prev->next = head->prev = k;
}

/* Puts the connection at the end of its lists if it is idle, and removes it from them if not. */
static void place(struct budget_conn *c)
{
    unlink_one(&c->link[0]);
    unlink_one(&c->link[1]);
    if (!c->idle) return;
    append(&c->pool->idle.head[c->known], &c->link[0], c);
    if (c->client) append(&c->client->idle.head[c->known], &c->link[1], c);
}

/* ---- clients --------------------------------------------------------------------------------- */

static struct budget_client **slot_of(const struct budget *b, const struct budget_key *key)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < sizeof key->bytes; i++) h = (h ^ key->bytes[i]) * 1099511628211u;
    return &b->table[(h ^ h >> 32) % SLOTS];
}

static struct budget_client *find(const struct budget *b, const struct budget_key *key)
{
    if (!key) return NULL;
    for (struct budget_client *k = *slot_of(b, key); k; k = k->next)
        if (!memcmp(&k->key, key, sizeof *key)) return k;
    return NULL;
}

static void join(struct budget_conn *c, const struct budget_key *key)
{
    struct budget_client *k = find(c->pool, key);
    if (!key) return;
    if (!k) {
        struct budget_client **slot = slot_of(c->pool, key);
        k = calloc(1, sizeof *k);
        if (!k) abort();
        k->key = *key;
        k->next = *slot;
        lists_init(&k->idle);
        *slot = k;
    }
    k->n++;
    c->client = k;
}

static void leave(struct budget_conn *c)
{
    struct budget_client *k = c->client;
    unlink_one(&c->link[1]);
    c->client = NULL;
    if (!k || --k->n) return;
    struct budget_client **at = slot_of(c->pool, &k->key);
    while (*at != k) at = &(*at)->next;
    *at = k->next;
    free(k);
}

/* ---- the pool -------------------------------------------------------------------------------- */

void budget_divide(int64_t descriptors, int *connections, int *requests)
{
    if (descriptors < MIN_FILES) descriptors = MIN_FILES;
    int64_t n = descriptors - OTHERS;
    if (n > HTTP_CONNECTIONS) n = HTTP_CONNECTIONS;
    int64_t pairs = (descriptors - OTHERS - n) / 2;
    if (pairs < MIN_REQUESTS) pairs = MIN_REQUESTS;
    *connections = (int)n - HTTP_UNIX_CONNECTIONS - HTTP_METRICS_CONNECTIONS;
    *requests = (int)(pairs < n ? pairs : n);
}

void budget_init(struct budget *b, int most, int share)
{
    *b = (struct budget){.most = most, .share = share};
    lists_init(&b->idle);
    b->table = calloc(SLOTS, sizeof *b->table);
    if (!b->table) abort();
}

void budget_fini(struct budget *b)
{
    assert(!b->n);
    free(b->table);
    b->table = NULL;
}

enum budget_room budget_room(const struct budget *b, const struct budget_key *key)
{
    const struct budget_client *k = find(b, key);
    if (k && k->n >= b->share) return BUDGET_CLIENT_FULL;
    return b->n < b->most ? BUDGET_FREE : BUDGET_FULL;
}

struct budget_conn *budget_victim(const struct budget *b, enum budget_room room,
                                  const struct budget_key *key)
{
    if (room == BUDGET_FREE) return NULL;
    return lists_first(room == BUDGET_FULL ? &b->idle : &find(b, key)->idle);
}

void budget_add(struct budget *b, struct budget_conn *c, const struct budget_key *key)
{
    c->pool = b;
    c->idle = true;
    b->n++;
    join(c, key);
    place(c);
}

void budget_remove(struct budget_conn *c)
{
    if (!c->pool) return;
    c->idle = false;
    place(c);
    leave(c);
    c->pool->n--;
    c->pool = NULL;
}

void budget_set_idle(struct budget_conn *c, bool idle)
{
    if (!c->pool || c->idle == idle) return;
    c->idle = idle;
    place(c);
}

bool budget_is_of(const struct budget_conn *c, const struct budget_key *key)
{
    return c->client && !memcmp(&c->client->key, key, sizeof *key);
}

void budget_know(struct budget_conn *c, const struct budget_key *key)
{
    if (!c->pool) return;
    c->known = true;
    if (key && !budget_is_of(c, key)) {
        leave(c);
        join(c, key);
    }
    place(c);
}
