/* offload.c: copies to and from an unnamed file in a thread of its own, or to and from pinned host
 * memory by the device's two streams of copies. */
#include "worker/model/offload.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"

#define QUEUE (2 * OFFLOAD_FLIGHT)
#define PIECE ((int64_t)8 << 20) /* bytes of one read or write; n_tasks is increased after each */

_Static_assert(QUEUE <= BE_COPIES, "each direction has marks of its own");

struct offload_copy {
    bool out;
    char *buf;
    int64_t size, at;
};

struct offload {
    struct be *be;
    char *host;   /* the memory of the store; NULL if the store is a file */
    void *pinned; /* the address by which the device reads and writes the host's part */
    int fd;
    int64_t *n_tasks;
    int64_t n_beside[2]; /* copies that the device was asked for: back, out */
    /* These members are used under lock. Request i is in queue[i % QUEUE]. Requests
     * [n_done, n_asked) are still to be served. */
    pthread_mutex_t lock;
    pthread_cond_t asked, done;
    struct offload_copy queue[QUEUE];
    int64_t n_asked, n_done;
    bool closing, has_thread;
    /* error of the first copy that failed; its code is ERR_NONE if no copy has failed */
    struct err failed;
    struct offload_count count;
    pthread_t thread;
};

/* ---- the file -------------------------------------------------------------------------------- */

/* Opens a file without a name. If the file system does not support O_TMPFILE, the file has a name
 * for a moment. */
static int open_unnamed(int dir, struct err *e)
{
    char name[64];
    int fd = openat(dir, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) return fd;
    if (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)
        return err_errno(e, "make a file");
    snprintf(name, sizeof name, ".seqd-offload-%ld", (long)getpid());
    if (unlinkat(dir, name, 0) && errno != ENOENT) return err_errno(e, "remove %s", name);
    fd = openat(dir, name, O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, "make a file");
    if (!unlinkat(dir, name, 0)) return fd;
    err_errno(e, "remove %s", name);
    close(fd);
    return -1;
}

/* Gives a file its size. If the file system cannot reserve blocks, the file has holes, which are
 * read as zeros. */
static int set_size(int fd, int64_t size, struct err *e)
{
    char need[24];
    if (!size || !fallocate(fd, 0, 0, size)) return 0;
    if ((errno == EOPNOTSUPP || errno == ENOSYS) && !ftruncate(fd, size)) return 0;
    return err_errno(e, "%s for what a rank offloads", plan_bytes(need, size));
}

int offload_file(int dir, int64_t size, struct err *e)
{
    int fd = open_unnamed(dir, e);
    if (fd >= 0 && set_size(fd, size, e)) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0) return fd;
    return err_about(e, OFFLOAD_FIELD);
}

static ssize_t move(const struct offload *o, const struct offload_copy *r, int64_t done)
{
    const int64_t left = r->size - done, n = left < PIECE ? left : PIECE;
    if (r->out) return pwrite(o->fd, r->buf + done, (size_t)n, r->at + done);
    return pread(o->fd, r->buf + done, (size_t)n, r->at + done);
}

/* Copies the bytes of a request. Returns the number of bytes that were copied. If this number is
 * smaller than the size of the request, the copy failed. */
static int64_t copy(const struct offload *o, const struct offload_copy *r, struct err *e)
{
    int64_t done = 0;
    while (done < r->size) {
        const ssize_t n = move(o, r, done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            if (n == 0) errno = r->out ? ENOSPC : EIO; /* EIO, because the file ended early */
            err_errno(e, "%s %lld offloaded bytes", r->out ? "write" : "read", (long long)r->size);
            err_about(e, OFFLOAD_FIELD);
            break;
        }
        done += n;
        if (o->n_tasks) __atomic_fetch_add(o->n_tasks, 1, __ATOMIC_RELAXED);
    }
    return done;
}

/* Serves requests in order. This is the function of the thread. After a failure it copies nothing
 * more, and the pass fails at its next wait. */
static void *serve(void *arg)
{
    struct offload *o = arg;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (!o->closing && o->n_done == o->n_asked) pthread_cond_wait(&o->asked, &o->lock);
        if (o->closing) break;
        const struct offload_copy r = o->queue[o->n_done % QUEUE];
        const bool sound = o->failed.code == ERR_NONE;
        struct err e = {0};
        pthread_mutex_unlock(&o->lock);
        const int64_t n = sound ? copy(o, &r, &e) : 0;
        pthread_mutex_lock(&o->lock);
        if (sound) o->failed = e;
        *(r.out ? &o->count.bytes_out : &o->count.bytes_in) += n;
        o->n_done++;
        pthread_cond_broadcast(&o->done);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* Starts the thread with all signals blocked, because signals are for the rank's own thread. */
static int start(struct offload *o, struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGUSR2); /* by which each thread enters the sandbox (landlock_enter_all) */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&o->thread, NULL, serve, o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) return err_set(e, ERR_IO, "the thread that offloads does not start: error %d", rc);
    o->has_thread = true;
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int pin(struct offload *o, const struct offload_options *x, struct err *e)
{
    const struct plan_item *it = &x->plan->item[PLAN_OFFLOAD];
    assert(x->plan->own_memory && (it->in_host || !it->name));
    o->host = (char *)x->host + it->offset;
    if (o->be->ops->pin(o->be, x->host, x->plan->host_size, e)) return -1;
    o->pinned = x->host;
    return 0;
}

struct offload *offload_open(const struct offload_options *x, struct err *e)
{
    struct offload *o = calloc(1, sizeof *o);
    if (!o) {
        if (x->fd >= 0) close(x->fd);
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    *o = (struct offload){.be = x->be, .fd = x->fd, .n_tasks = x->n_tasks};
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->asked, NULL);
    pthread_cond_init(&o->done, NULL);
    if (!(x->host ? pin(o, x, e) : start(o, e))) return o;
    offload_close(o);
    return NULL;
}

void offload_close(struct offload *o)
{
    if (!o) return;
    pthread_mutex_lock(&o->lock);
    o->closing = true;
    pthread_cond_broadcast(&o->asked);
    pthread_mutex_unlock(&o->lock);
    if (o->has_thread) pthread_join(o->thread, NULL);
    if (o->pinned) {
        o->be->ops->sync(o->be, NULL);
        o->be->ops->unpin(o->be, o->pinned);
    }
    pthread_cond_destroy(&o->done);
    pthread_cond_destroy(&o->asked);
    pthread_mutex_destroy(&o->lock);
    if (o->fd >= 0) close(o->fd);
    free(o);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static int64_t ask(struct offload *o, const struct offload_copy *r)
{
    pthread_mutex_lock(&o->lock);
    while (o->n_asked - o->n_done == QUEUE) pthread_cond_wait(&o->done, &o->lock);
    o->queue[o->n_asked % QUEUE] = *r;
    const int64_t ticket = ++o->n_asked;
    pthread_cond_signal(&o->asked);
    pthread_mutex_unlock(&o->lock);
    return ticket;
}

/* Requests a copy that the device makes while it runs operations. The ticket has the direction in
 * its lowest bit, and the number of the copy in this direction, counted from 1, above it. */
static int64_t beside(struct offload *o, void *dst, const void *src, int64_t size, bool out)
{
    const int mark = (int)(o->n_beside[out]++ % OFFLOAD_FLIGHT) + out * OFFLOAD_FLIGHT;
    o->be->ops->copy_beside(o->be, dst, src, size, out, mark);
    return 2 * o->n_beside[out] + out;
}

/* Makes later operations wait for a copy. If its mark was set again, they wait for a later copy of
 * the same direction. */
static void await(const struct offload *o, int64_t ticket)
{
    const int out = ticket % 2;
    const int mark = (int)((ticket / 2 - 1) % OFFLOAD_FLIGHT) + out * OFFLOAD_FLIGHT;
    o->be->ops->copy_await(o->be, mark);
}

int64_t offload_out(struct offload *o, const void *buf, int64_t size, int64_t at)
{
    if (!o->host) return ask(o, &(struct offload_copy){true, (char *)buf, size, at});
    o->count.bytes_out += size;
    return beside(o, o->host + at, buf, size, true);
}

int64_t offload_back(struct offload *o, void *buf, int64_t size, int64_t at)
{
    if (!o->host) return ask(o, &(struct offload_copy){false, buf, size, at});
    o->count.bytes_in += size;
    return beside(o, buf, o->host + at, size, false);
}

/* Fails with the error of the first copy that failed, if one has. The caller has the lock. */
static int any_failed(const struct offload *o, struct err *e)
{
    if (o->failed.code == ERR_NONE) return 0;
    if (e) *e = o->failed;
    return -1;
}

int offload_wait(struct offload *o, int64_t ticket, struct err *e)
{
    if (o->host) {
        if (ticket) await(o, ticket);
        return 0; /* sync reports failures */
    }
    pthread_mutex_lock(&o->lock);
    while (o->n_done < ticket) pthread_cond_wait(&o->done, &o->lock);
    const int rc = any_failed(o, e);
    pthread_mutex_unlock(&o->lock);
    return rc;
}

/* ---- copies of the host ---------------------------------------------------------------------- */

/* Copies from or to a file in the calling thread. After a failure it copies nothing more. */
static int copy_here(struct offload *o, const struct offload_copy *r, struct err *e)
{
    struct err why = {0};
    pthread_mutex_lock(&o->lock);
    const int failed = any_failed(o, e);
    pthread_mutex_unlock(&o->lock);
    if (failed) return -1;
    if (copy(o, r, &why) == r->size) return 0;
    pthread_mutex_lock(&o->lock);
    if (o->failed.code == ERR_NONE) o->failed = why;
    pthread_mutex_unlock(&o->lock);
    if (e) *e = why;
    return -1;
}

int offload_read(struct offload *o, void *to, int64_t size, int64_t at, struct err *e)
{
    if (!o->host) return copy_here(o, &(struct offload_copy){false, to, size, at}, e);
    if (o->be->ops->sync(o->be, e)) return -1;
    memcpy(to, o->host + at, (size_t)size);
    return 0;
}

void offload_write(struct offload *o, const void *from, int64_t size, int64_t at)
{
    if (!o->host) {
        copy_here(o, &(struct offload_copy){true, (char *)from, size, at}, NULL);
        return;
    }
    o->be->ops->sync(o->be, NULL);
    memcpy(o->host + at, from, (size_t)size);
}

struct offload_count offload_counted(struct offload *o)
{
    pthread_mutex_lock(&o->lock);
    const struct offload_count c = o->count;
    pthread_mutex_unlock(&o->lock);
    return c;
}

bool offload_moved(struct offload *o, const struct offload_count *want)
{
    const struct offload_count c = o ? offload_counted(o) : (struct offload_count){0, 0};
    return c.bytes_out == want->bytes_out && c.bytes_in == want->bytes_in;
}

void offload_reset(struct offload *o)
{
    if (!o) return;
    pthread_mutex_lock(&o->lock);
    o->count = (struct offload_count){0, 0};
    pthread_mutex_unlock(&o->lock);
}
