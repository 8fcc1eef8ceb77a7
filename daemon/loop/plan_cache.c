/* plan_cache.c: keeps plans in an array, which is searched from its start. A search takes
 * microseconds, and a plan takes a millisecond or more. */
#include "daemon/loop/plan_cache.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct kept_plan {
    uint8_t key[PLAN_KEY_SIZE];
    int64_t asked; /* number of the last question for it */
    struct plan_made made;
};

struct plan_cache {
    pthread_mutex_t mutex; /* guards the members below */
    int n;
    size_t size; /* bytes of all texts */
    int64_t asked;
    struct plan_cache_counts counts;
    struct kept_plan plan[PLAN_CACHE_PLANS];
};

struct plan_cache *plan_cache_create(void)
{
    struct plan_cache *c = calloc(1, sizeof *c);
    if (!c) abort();
    pthread_mutex_init(&c->mutex, NULL);
    return c;
}

void plan_cache_destroy(struct plan_cache *c)
{
    if (!c) return;
    for (int i = 0; i < c->n; i++) free(c->plan[i].made.text);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

static struct kept_plan *find(struct plan_cache *c, const uint8_t key[PLAN_KEY_SIZE])
{
    for (int i = 0; i < c->n; i++)
        if (!memcmp(c->plan[i].key, key, PLAN_KEY_SIZE)) return &c->plan[i];
    return NULL;
}

static char *copy_text(const char *text)
{
    char *copy = strdup(text);
    if (!copy) abort();
    return copy;
}

bool plan_cache_find(struct plan_cache *c, const uint8_t key[PLAN_KEY_SIZE], struct plan_made *out)
{
    pthread_mutex_lock(&c->mutex);
    struct kept_plan *k = find(c, key);
    if (k) {
        k->asked = ++c->asked;
        *out = k->made;
        out->text = copy_text(k->made.text);
        c->counts.found++;
    } else {
        c->counts.missed++;
    }
    pthread_mutex_unlock(&c->mutex);
    return k;
}

/* Drops the plan that was asked for the longest time ago. */
static void drop_oldest(struct plan_cache *c)
{
    int oldest = 0;
    for (int i = 1; i < c->n; i++)
        if (c->plan[i].asked < c->plan[oldest].asked) oldest = i;
    c->size -= strlen(c->plan[oldest].made.text);
    free(c->plan[oldest].made.text);
    c->plan[oldest] = c->plan[--c->n];
}

void plan_cache_keep(struct plan_cache *c, const uint8_t key[PLAN_KEY_SIZE],
                     const struct plan_made *m)
{
    const size_t size = strlen(m->text);
    pthread_mutex_lock(&c->mutex);
    if (!find(c, key) && size <= PLAN_CACHE_SIZE) { /* another thread may have made it, too */
        while (c->n == PLAN_CACHE_PLANS || c->size + size > PLAN_CACHE_SIZE) drop_oldest(c);
        struct kept_plan *k = &c->plan[c->n++];
        memcpy(k->key, key, PLAN_KEY_SIZE);
        k->asked = ++c->asked;
        k->made = *m;
        k->made.text = copy_text(m->text);
        c->size += size;
    }
    pthread_mutex_unlock(&c->mutex);
}

struct plan_cache_counts plan_cache_counts(struct plan_cache *c)
{
    pthread_mutex_lock(&c->mutex);
    const struct plan_cache_counts n = c->counts;
    pthread_mutex_unlock(&c->mutex);
    return n;
}
