/* capture.c: reads both outputs of a program through pipes on the loop, and describes how the
 * program ended. One timer kills the program, and another checks whether it has ended. While the
 * loop runs, no function waits for a program. A program may close its outputs and continue to run,
 * and a killed program may hang in the kernel. */
#include "worker/agent/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/log.h"
#include "api/core/rank.h"
#include "worker/agent/spawn.h"

enum {
    SENTENCE_SIZE = 1024,
    REAP_MIN_MS = 1, /* time before the first check for the program's end; it is doubled for
                      * each later check, up to REAP_MAX_MS */
    REAP_MAX_MS = 100,
    CANCEL_MS = 1000
};

struct pipe_in { /* one output of the program; at most `room` bytes of the output are kept */
    struct capture *a;
    int fd;
    struct loop_fd *on_fd;
    size_t n, room;
    bool full;  /* the program printed more than `room` bytes */
    char *text; /* owned, room + 1 bytes */
};

struct capture {
    struct capture_options o; /* options of the caller; the member argv is valid only during
                               * capture_start */
    char name[64];            /* name of the program in error messages, such as "seqrank
                               * --describe" */
    int pid;
    struct loop_timer *limit, *reap;
    int64_t reap_ms; /* wait before the next check for the program's end */
    bool late;
    struct pipe_in out, err;
};

static void pipe_close(struct pipe_in *p)
{
    if (p->fd < 0) return;
    loop_fd_remove(p->on_fd);
    close(p->fd);
    p->fd = -1;
}

/* Waits for the end of a killed program, but at most CANCEL_MS. If the program hangs in the
 * kernel and does not end in this time, init must reap it later. */
static void reap_killed(int pid)
{
    const struct timespec rest = {0, 1000000};
    for (int ms = 0; ms < CANCEL_MS && !waitpid(pid, NULL, WNOHANG); ms++) nanosleep(&rest, NULL);
}

void capture_cancel(struct capture *a)
{
    if (!a) return;
    pipe_close(&a->out);
    pipe_close(&a->err);
    loop_timer_destroy(a->limit);
    loop_timer_destroy(a->reap);
    if (a->pid > 0) {
        kill(a->pid, SIGKILL);
        reap_killed(a->pid);
    }
    free(a->out.text);
    free(a->err.text);
    free(a);
}

/* Sets the error for a program that did not answer. If the program refused, the request is at
 * fault. After any other end this node is at fault. If another process killed the program, the
 * request may succeed when it is repeated later. */
static void end_of(const struct capture *a, int status, struct err *e)
{
    const int signo = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    const char *said = a->err.n ? a->err.text : "it says nothing";
    if (WIFEXITED(status) && WEXITSTATUS(status) == RANK_EXIT_REFUSED && a->err.n)
        err_set(e, ERR_INVALID, "%.480s", a->err.text);
    else if (signo)
        err_set(e, rank_signal_own(signo) ? ERR_INTERNAL : ERR_PEER,
                "%s was ended by signal %d (SIG%s, %s)", a->name, signo, sigabbrev_np(signo),
                strsignal(signo));
    else
        err_set(e, ERR_INTERNAL, "%s ended with status %d: %.400s", a->name, WEXITSTATUS(status),
                said);
    if (e->code != ERR_INVALID)
        log_error("capture.end", "program=\"%s\" why=\"%s\" said=\"%s\"", a->name, e->text, said);
}

/* Answers for a program that has ended, and frees the capture. */
static void finish(struct capture *a, int status)
{
    struct err e = {0};
    a->pid = 0;
    a->out.text[a->out.n] = a->err.text[a->err.n] = 0;
    a->err.text[strcspn(a->err.text, "\n")] = 0;
    if (a->late)
        err_set(&e, ERR_TIMEOUT, "%s did not end in %lld s", a->name,
                (long long)a->o.limit_ms / 1000);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        end_of(a, status, &e);
    else if (a->out.full)
        err_set(&e, ERR_INTERNAL, "%s printed more than %zu bytes", a->name, a->out.room);
    a->o.done(a->o.arg, a->o.request, a->out.text, a->out.n, &e);
    capture_cancel(a);
}

/* Ends the capture when both outputs are closed and the program was reaped. If both outputs are
 * closed but the program is still running, sets a timer to check again. */
static void look(void *arg)
{
    struct capture *a = arg;
    int status = 0;
    if (a->out.fd >= 0 || a->err.fd >= 0) return;
    if (waitpid(a->pid, &status, WNOHANG)) {
        finish(a, status);
        return;
    }
    loop_timer_set(a->reap, a->reap_ms);
    a->reap_ms = a->reap_ms * 2 < REAP_MAX_MS ? a->reap_ms * 2 : REAP_MAX_MS;
}

static void pipe_read(void *arg, uint32_t events)
{
    struct pipe_in *p = arg;
    struct capture *a = p->a;
    char rest[4096];
    size_t room = p->room - p->n;
    /* Output for which there is no room is read and dropped, because the program must not
     * block on a full pipe. */
    ssize_t n = read(p->fd, room ? p->text + p->n : rest, room ? room : sizeof rest);
    if (n > 0 && room) p->n += (size_t)n;
    if (n > 0 && !room) p->full = true;
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    pipe_close(p);
    look(a);
}

void capture_kill(struct capture *a)
{
    kill(a->pid, SIGKILL);
    pipe_close(&a->out);
    pipe_close(&a->err);
    look(a);
}

static void on_late(void *arg)
{
    struct capture *a = arg;
    a->late = true;
    capture_kill(a);
}

static int pipe_open(struct pipe_in *p, struct capture *a, size_t room, int *write_fd,
                     struct err *e)
{
    int fd[2];
    p->a = a;
    p->room = room;
    if (!(p->text = malloc(room + 1))) abort();
    if (pipe2(fd, O_CLOEXEC) < 0) return err_errno(e, "pipe");
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    *write_fd = fd[1];
    p->on_fd = loop_fd_add(a->o.loop, fd[0], EPOLLIN, pipe_read, p, e);
    if (p->on_fd) return p->fd = fd[0], 0;
    close(fd[0]);
    return -1;
}

struct capture *capture_start(const struct capture_options *o, struct err *e)
{
    struct capture *a = calloc(1, sizeof *a);
    int out = -1, err = -1;
    if (!a) abort();
    a->o = *o;
    snprintf(a->name, sizeof a->name, "%s %s", o->argv[0], o->argv[1]);
    a->out.fd = a->err.fd = -1;
    int rc = pipe_open(&a->out, a, o->max_size, &out, e);
    if (rc == 0) rc = pipe_open(&a->err, a, SENTENCE_SIZE, &err, e);
    if (rc == 0) a->pid = spawn_program(o->program, o->argv, out, err, e);
    const int why = errno;
    if (out >= 0) close(out);
    if (err >= 0) close(err);
    if (a->pid > 0) {
        a->limit = loop_timer_create(o->loop, on_late, a);
        a->reap = loop_timer_create(o->loop, look, a);
        a->reap_ms = REAP_MIN_MS;
        loop_timer_set(a->limit, o->limit_ms);
        return a;
    }
    /* The program is missing, or no process can be started. The node is at fault, and not the
     * request. */
    e->code = why == EAGAIN || why == ENOMEM ? ERR_PEER : ERR_INTERNAL;
    log_error("capture.start", "program=\"%s\" why=\"%s\"", a->name, e->text);
    capture_cancel(a);
    return NULL;
}
