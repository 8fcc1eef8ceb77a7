/* node.c: keeps the table of nodes, which has each node's state, the time of its last change, the
 * GPUs and the stale attempts. */
#include "daemon/state/node.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/mem.h"
#include "api/core/sha256.h"

void node_instance_id(const struct msg *hello, char out[INSTANCE_ID_SIZE])
{
    struct sha256 s;
    char hex[SHA256_HEX];
    sha256_init(&s);
    sha256_add(&s, hello->instance, sizeof hello->instance);
    sha256_hex(&s, hex);
    memcpy(out, hex, INSTANCE_ID_SIZE - 1);
    out[INSTANCE_ID_SIZE - 1] = 0;
}

enum { FIRST_ROOM = 16 }; /* a power of two */

_Static_assert((NODE_MAX & (NODE_MAX - 1)) == 0 && NODE_MAX < UINT16_MAX, "see struct nodes");

/* Returns the entry of t->at that has the name, or the empty entry at which it belongs. */
static uint16_t *entry_of(const struct nodes *t, const char *name)
{
    const uint32_t mask = 4 * (uint32_t)t->room - 1;
    uint32_t h = 2166136261u; /* FNV-1a */
    for (const char *p = name; *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
    for (h ^= h >> 16;; h++) {
        uint16_t *at = &t->at[h & mask];
        if (!*at || !strcmp(t->node[*at - 1].name, name)) return at;
    }
}

struct node *node_find(struct nodes *t, const char *name)
{
    const uint16_t at = t->n ? *entry_of(t, name) : 0;
    return at ? &t->node[at - 1] : NULL;
}

static void index_all(struct nodes *t)
{
    memset(t->at, 0, 4 * (size_t)t->room * sizeof *t->at);
    for (int i = 0; i < t->n; i++) *entry_of(t, t->node[i].name) = (uint16_t)(i + 1);
}

static void grow(struct nodes *t)
{
    t->room = t->room ? 2 * t->room : FIRST_ROOM;
    t->node = realloc(t->node, (size_t)t->room * sizeof *t->node);
    t->at = realloc(t->at, 4 * (size_t)t->room * sizeof *t->at);
    if (!t->node || !t->at) abort();
    index_all(t);
}

struct node *node_expect(struct nodes *t, const char *name, int64_t now_ms)
{
    struct node *n = node_find(t, name);
    if (n || t->n == NODE_MAX) return n;
    if (t->n == t->room) grow(t);
    n = &t->node[t->n];
    *n = (struct node){.since_ms = now_ms};
    snprintf(n->name, sizeof n->name, "%s", name);
    *entry_of(t, n->name) = (uint16_t)++t->n;
    return n;
}

static void past_clear(struct node *n)
{
    free(n->past);
    n->past = NULL;
    n->n_past = 0;
}

struct node *node_up(struct nodes *t, const struct msg *hello, int64_t now_ms)
{
    char is[INSTANCE_ID_SIZE];
    struct node *n = node_expect(t, hello->node, now_ms);
    if (!n) return NULL;
    n->up = n->joined = true;
    n->lost = false;
    node_instance_id(hello, is);
    if (strcmp(is, n->instance)) past_clear(n); /* a different machine has that name now */
    memcpy(n->instance, is, sizeof n->instance);
    n->since_ms = n->seen_ms = now_ms;
    n->abi = hello->abi;
    n->end_s = n->margin_s = 0;
    n->n_slots = hello->n_slots;
    n->n_cores = hello->n_cores;
    n->memory_size = hello->memory_size;
    n->emulated = hello->emulated;
    n->shared = hello->shared;
    n->shared_away = false;
    node_take_gpus(n, hello);
    snprintf(n->address, sizeof n->address, "%s", hello->address);
    snprintf(n->version, sizeof n->version, "%s", hello->version);
    snprintf(n->sandbox, sizeof n->sandbox, "%s", hello->sandbox);
    return n;
}

bool node_take_gpus(struct node *n, const struct msg *m)
{
    bool news = n->n_gpus != m->n_gpus;
    for (int i = 0; i < m->n_gpus && !news; i++) {
        const struct gpu *was = &n->gpu[i], *is = &m->gpus[i];
        news = strcmp(was->uuid, is->uuid) || was->health != is->health ||
               (was->n_processes > 0) != (is->n_processes > 0);
    }
    n->n_gpus = m->n_gpus;
    if (m->n_gpus) memcpy(n->gpu, m->gpus, (size_t)m->n_gpus * sizeof *n->gpu);
    return news;
}

bool node_take_shared(struct node *n, const struct msg *m)
{
    const bool was = n->shared_away;
    n->shared_away = n->shared && m->shared != n->shared;
    return n->shared_away != was;
}

bool node_shares(const struct node *n, int64_t shared)
{
    return n->up && shared && n->shared == shared && !n->shared_away;
}

const struct node *node_sharing(const struct nodes *t, int64_t shared, const char *name)
{
    const struct node *any = NULL;
    for (int i = 0; i < t->n; i++) {
        const struct node *n = &t->node[i];
        if (!node_shares(n, shared)) continue;
        if (!strcmp(n->name, name)) return n;
        if (!any) any = n;
    }
    return any;
}

void node_ends(struct node *n, const struct msg *m, int64_t now_ms, int64_t utc_ms)
{
    n->end_s = m->end_s;
    n->margin_s = m->margin_s;
    n->end_ms = now_ms + m->end_s * 1000 - utc_ms;
}

void node_down(struct nodes *t, const char *name, int64_t since_ms)
{
    struct node *n = node_find(t, name);
    if (!n || !n->up) return;
    n->up = false;
    n->since_ms = since_ms;
}

void nodes_begin(struct nodes *t, int64_t now_ms)
{
    for (int i = 0; i < t->n; i++)
        if (!t->node[i].joined) t->node[i].since_ms = now_ms;
}

static int64_t later(int64_t at_ms, int64_t by_ms, int64_t now_ms)
{
    return at_ms + by_ms < now_ms ? at_ms + by_ms : now_ms;
}

void nodes_lag(struct nodes *t, int64_t lag_ms, int64_t now_ms)
{
    for (int i = 0; i < t->n; i++) {
        struct node *n = &t->node[i];
        if (n->up)
            n->seen_ms = later(n->seen_ms, lag_ms, now_ms);
        else
            n->since_ms = later(n->since_ms, lag_ms, now_ms);
    }
}

struct node *node_next_lost(struct nodes *t, int64_t now_ms, int64_t lost_ms)
{
    for (int i = 0; i < t->n; i++) {
        struct node *n = &t->node[i];
        if (n->up || n->lost || now_ms - n->since_ms < lost_ms) continue;
        n->lost = true;
        return n;
    }
    return NULL;
}

struct down {
    int64_t since_ms;
    int i;
};

static int by_age(const void *a, const void *b)
{
    const struct down *x = a, *y = b;
    if (x->since_ms != y->since_ms) return x->since_ms < y->since_ms ? -1 : 1;
    return x->i - y->i;
}

static void node_fini(struct node *n)
{
    node_stale_clear(n);
    past_clear(n);
}

/* Ends the n listed nodes, and moves the others together in their order. */
static void forget_listed(struct nodes *t, const struct down *list, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        node_fini(&t->node[list[i].i]);
        t->node[list[i].i].name[0] = 0; /* no node has this name */
    }
    for (int i = 0; i < t->n; i++)
        if (t->node[i].name[0] && kept++ < i) t->node[kept - 1] = t->node[i];
    t->n = kept;
    index_all(t);
}

int nodes_forget(struct nodes *t)
{
    struct down *list = mem_scratch((size_t)t->n * sizeof *list + 1);
    int n = 0;
    for (int i = 0; i < t->n; i++)
        if (!t->node[i].up && !t->node[i].held) list[n++] = (struct down){t->node[i].since_ms, i};
    if (n) {
        qsort(list, (size_t)n, sizeof *list, by_age);
        n = n < NODE_FORGET ? n : NODE_FORGET;
        forget_listed(t, list, n);
    }
    free(list);
    return n;
}

void nodes_fini(struct nodes *t)
{
    for (int i = 0; i < t->n; i++) node_fini(&t->node[i]);
    free(t->node);
    free(t->at);
    *t = (struct nodes){0};
}

int node_net(const struct node *n)
{
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, n->address, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127 ? 1 : 2;
    if (inet_pton(AF_INET6, n->address, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6) ? 3 : 4;
    return 0;
}

void node_stale_clear(struct node *n)
{
    free(n->stale);
    n->stale = NULL;
    n->n_stale = 0;
}

void node_stale_add(struct node *n, const struct stale *stale)
{
    n->stale = realloc(n->stale, (size_t)(n->n_stale + 1) * sizeof *n->stale);
    if (!n->stale) abort();
    n->stale[n->n_stale++] = *stale;
}

void node_stale_remove(struct node *n, int64_t job, int64_t epoch)
{
    for (int i = 0; i < n->n_stale; i++) {
        if (n->stale[i].job != job || n->stale[i].epoch != epoch) continue;
        n->stale[i] = n->stale[--n->n_stale];
        return;
    }
}

int32_t node_stale_slots(const struct node *n)
{
    int32_t slots = 0;
    for (int i = 0; i < n->n_stale; i++) slots += n->stale[i].slots;
    return slots;
}

void node_past_add(struct node *n, int64_t job, int64_t epoch)
{
    if (!n->past && !(n->past = calloc(NODE_PAST, sizeof *n->past))) abort();
    if (!node_past_has(n, job, epoch)) n->past[n->n_past++ % NODE_PAST] = (struct past){job, epoch};
}

bool node_past_has(const struct node *n, int64_t job, int64_t epoch)
{
    const int64_t kept = n->n_past < NODE_PAST ? n->n_past : NODE_PAST;
    for (int64_t i = 0; i < kept; i++)
        if (n->past[i].job == job && n->past[i].epoch == epoch) return true;
    return false;
}
