#include "daemon/conns.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

struct conns {
    pthread_mutex_t mutex;
    struct conn *first;
};

/* The loop's clock belongs to its thread. */
static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

struct conns *conns_create(void)
{
    struct conns *t = calloc(1, sizeof *t);
    if (!t) abort();
    pthread_mutex_init(&t->mutex, NULL);
    return t;
}

void conns_destroy(struct conns *t)
{
    if (!t) return;
    while (t->first) conns_remove(t, t->first);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

struct conn *conns_add(struct conns *t, int fd, int64_t in_ms)
{
    struct conn *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->fd = fd;
    c->deadline_ms = now_ms() + in_ms;
    pthread_mutex_lock(&t->mutex);
    c->next = t->first;
    c->at = &t->first;
    if (c->next) c->next->at = &c->next;
    t->first = c;
    pthread_mutex_unlock(&t->mutex);
    return c;
}

void conns_remove(struct conns *t, struct conn *c)
{
    pthread_mutex_lock(&t->mutex);
    *c->at = c->next;
    if (c->next) c->next->at = c->at;
    pthread_mutex_unlock(&t->mutex);
    free(c);
}

void conns_deadline(struct conns *t, struct conn *c, int64_t in_ms)
{
    pthread_mutex_lock(&t->mutex);
    c->deadline_ms = in_ms ? now_ms() + in_ms : 0;
    pthread_mutex_unlock(&t->mutex);
}

/* The lock is held across shutdown(): a connection leaves the table before its fd is closed, so
 * the number cannot have become somebody else's. */
void conns_sweep(struct conns *t)
{
    int64_t now = now_ms();
    pthread_mutex_lock(&t->mutex);
    for (struct conn *c = t->first; c; c = c->next) {
        if (!c->deadline_ms || now < c->deadline_ms) continue;
        /* Both ways: with SHUT_RD alone Linux still takes in what drips, and libmicrohttpd, which
         * reads once per edge, may never come to see the end behind it. */
        shutdown(c->fd, SHUT_RDWR);
        c->deadline_ms = 0;
    }
    pthread_mutex_unlock(&t->mutex);
}
