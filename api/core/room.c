/* room.c: keeps returned rooms in a list of the thread, and frees them when the thread ends. */
#include "api/core/room.h"

#include <pthread.h>
#include <stdlib.h>

struct room {
    struct room *next;
    size_t size;
    char data[]; /* 16-byte aligned, because the head has 16 bytes */
};

_Static_assert(sizeof(struct room) == 16, "rooms are 16-byte aligned");

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct {
    struct room *first;
    int n;
} kept;

static void free_kept(void *arg)
{
    (void)arg;
    while (kept.first) {
        struct room *r = kept.first;
        kept.first = r->next;
        free(r);
    }
    kept.n = 0;
}

static void free_at_exit(void)
{
    free_kept(NULL);
}

static void make_key(void)
{
    if (pthread_key_create(&key, free_kept)) abort();
    atexit(free_at_exit); /* needed for the main thread, because its keys' destructors do not run
                           * at exit */
}

void *room_take(size_t size)
{
    for (struct room **at = &kept.first; *at; at = &(*at)->next) {
        struct room *r = *at;
        if (r->size != size) continue;
        *at = r->next;
        kept.n--;
        return r->data;
    }
    struct room *r = malloc(sizeof *r + size);
    if (!r) abort();
    r->size = size;
    return r->data;
}

void room_give(void *data)
{
    if (!data) return;
    struct room *r = (struct room *)((char *)data - offsetof(struct room, data));
    if (kept.n == ROOM_KEPT) {
        free(r);
        return;
    }
    pthread_once(&once, make_key);
    if (!kept.first)
        pthread_setspecific(key, &kept); /* makes the end of this thread free the
                                                       * rooms */
    r->next = kept.first;
    kept.first = r;
    kept.n++;
}
