/* rpc_endpoint.c: runs the thread of the completion queue and hands its finished operations to the
 * loop (rpc_stream.h). */
#include <errno.h>
#include <grpc/support/time.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "api/core/thread.h"
#include "api/rpc_stream.h"

static void *endpoint_thread(void *arg)
{
    struct endpoint *ep = arg;
    for (;;) {
        grpc_event ev = grpc_completion_queue_next(ep->cq, gpr_inf_future(GPR_CLOCK_REALTIME),
                                                   NULL);
        if (ev.type == GRPC_QUEUE_SHUTDOWN) return NULL;
        if (ev.type != GRPC_OP_COMPLETE) continue;
        struct rpc_op *op = ev.tag;
        pthread_mutex_lock(&ep->lock);
        op->ok = ev.success != 0;
        op->next = NULL;
        *ep->end = op;
        ep->end = &op->next;
        pthread_mutex_unlock(&ep->lock);
        uint64_t one = 1;
        ssize_t n = write(ep->wake_fd, &one, sizeof one);
        assert(n == sizeof one);
    }
}

/* Prepares an operation. gRPC orders this write before the completion of the operation. The lock
 * is needed only for sanitizers, which do not see the synchronization inside gRPC. */
void rpc_op_init(struct endpoint *ep, struct rpc_op *op, rpc_op_done *done, void *owner)
{
    pthread_mutex_lock(&ep->lock);
    *op = (struct rpc_op){.done = done, .owner = owner};
    pthread_mutex_unlock(&ep->lock);
}

static void endpoint_drain(void *arg, uint32_t events)
{
    struct endpoint *ep = arg;
    uint64_t count;
    ssize_t n = read(ep->wake_fd, &count, sizeof count);
    assert(n == sizeof count || errno == EAGAIN);
    pthread_mutex_lock(&ep->lock);
    struct rpc_op *op = ep->first;
    ep->first = NULL;
    ep->end = &ep->first;
    pthread_mutex_unlock(&ep->lock);
    while (op) {
        struct rpc_op *next = op->next; /* `done` may free op */
        op->done(op);
        op = next;
    }
}

void rpc_endpoint_wait(struct endpoint *ep)
{
    struct pollfd p = {.fd = ep->wake_fd, .events = POLLIN};
    int rc = poll(&p, 1, -1);
    assert(rc == 1 || (rc < 0 && errno == EINTR));
    endpoint_drain(ep, 0);
}

int rpc_endpoint_init(struct endpoint *ep, struct loop *l, const struct rpc_calls *calls, void *arg,
                      struct err *e)
{
    sigset_t all, old;
    ep->loop = l;
    ep->calls = calls;
    ep->arg = arg;
    ep->end = &ep->first;
    ep->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (ep->wake_fd < 0) return err_errno(e, "eventfd");
    ep->wake = loop_fd_add(l, ep->wake_fd, EPOLLIN, endpoint_drain, ep, e);
    if (!ep->wake) {
        close(ep->wake_fd);
        return -1;
    }
    pthread_mutex_init(&ep->lock, NULL);
    setenv("GRPC_VERBOSITY", "NONE", 0); /* gRPC logs nothing, because seqd's errors have the same
                                          * information */
    /* The loop handles signals, so no signal may be delivered to a thread of gRPC. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    /* names are resolved as other programs of the machine resolve them, also by /etc/hosts */
    setenv("GRPC_DNS_RESOLVER", "native", 0);
    grpc_init();
    ep->cq = grpc_completion_queue_create_for_next(NULL);
    thread_must_start(&ep->thread, NULL, endpoint_thread, ep);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return 0;
}

void rpc_endpoint_fini(struct endpoint *ep)
{
    grpc_completion_queue_shutdown(ep->cq);
    pthread_join(ep->thread, NULL);
    assert(!ep->first && !ep->streams);
    grpc_completion_queue_destroy(ep->cq);
    grpc_shutdown_blocking();
    loop_fd_remove(ep->wake);
    close(ep->wake_fd);
    pthread_mutex_destroy(&ep->lock);
}

void rpc_endpoint_stop(struct endpoint *ep)
{
    assert(!ep->in_callback); /* otherwise a stream would be freed while one of its callbacks
                               * runs */
    ep->stopping = true;
    for (struct rpc_stream *s = ep->streams; s; s = s->next) rpc_stream_close(s);
}
