#include "worker/agent/spawn.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/jread.h"

extern char **environ;

/* out_fd and err_fd become stdout and stderr; all other descriptors of ours are close-on-exec. */
static int spawn(const char *program, char *const argv[], int out_fd, int err_fd, struct err *e)
{
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t actions;
    sigset_t none, all;
    pid_t pid = -1;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out_fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err_fd, STDERR_FILENO);
    errno = posix_spawn(&pid, program, &actions, &attr, argv, environ);
    if (errno) pid = -1, err_errno(e, "cannot run %s", program);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    return pid;
}

int spawn_gang(const char *program, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    char *argv[] = {"seqgang", (char *)dir, NULL};
    if (file_join(path, e, "%s/gang.log", dir) < 0) return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, "open %s", path);
    int pid = spawn(program, argv, fd, fd, e);
    close(fd);
    return pid;
}

/* ---- describing a model directory ------------------------------------------------------------------ */

struct pipe_in { /* one output of the program, as far as it fits */
    struct describe *d;
    int fd;
    struct loop_fd *on_fd;
    size_t n;
    char text[8192];
};

struct describe {
    struct loop *loop;
    int pid;
    int64_t request;
    spawn_described *done;
    void *arg;
    struct loop_timer *limit;
    bool late;
    struct pipe_in out, err;
};

static int shape_field(struct jread *j, const char *key, struct model_shape *m, struct err *e)
{
    char path[128], word[64];
    static const size_t base = offsetof(struct job_spec, model.shape);
    snprintf(path, sizeof path, "model.config.%s", key);
    const struct field *f = spec_field(path);
    enum jtok t = jread_next(j);
    if (!f) return t == J_ERROR ? -1 : jread_skip(j); /* n_params, and what later versions add */
    assert(f->offset >= base && f->offset < base + sizeof *m);
    char *member = (char *)m + (f->offset - base);
    int64_t v64 = 0;
    int32_t v32 = 0;
    double real = 0;
    bool is_number = t == J_NUMBER;
    if (f->type == FIELD_INT && is_number && jread_int(j, &v64) == 0)
        return memcpy(member, &v64, sizeof v64), 0;
    if (f->type == FIELD_DOUBLE && is_number && jread_double(j, &real) == 0)
        return memcpy(member, &real, sizeof real), 0;
    if (f->type == FIELD_INT32 && is_number && jread_int(j, &v64) == 0 && v64 == (int32_t)v64) {
        v32 = (int32_t)v64;
    } else if (f->type == FIELD_BOOL && (t == J_TRUE || t == J_FALSE)) {
        v32 = t == J_TRUE;
    } else if (f->type == FIELD_ENUM && t == J_STRING && jread_copy(j, word, sizeof word) == 0) {
        while (f->words[v32] && strcmp(f->words[v32], word) != 0) v32++;
        if (!f->words[v32])
            return err_field(e, ERR_UNSUPPORTED, path, "%s '%s' is unknown", path, word);
    } else {
        return err_field(e, ERR_INVALID, path, "%s has a value of the wrong kind", path);
    }
    memcpy(member, &v32, sizeof v32);
    return 0;
}

int describe_parse(const char *json, size_t size, struct model_shape *m, struct err *e)
{
    struct jread j;
    char key[64];
    *m = (struct model_shape){0};
    jread_init(&j, json, size);
    if (jread_next(&j) != J_OBJECT)
        return err_set(e, ERR_PEER, "seqrank --describe printed no object");
    for (enum jtok t = jread_next(&j); t != J_OBJECT_END; t = jread_next(&j)) {
        *e = (struct err){0};
        if (t != J_KEY || jread_copy(&j, key, sizeof key) < 0 || shape_field(&j, key, m, e) < 0)
            return e->code ? -1 : err_set(e, ERR_PEER, "seqrank --describe: %s", j.err.text);
    }
    if (m->n_layers < 1 || m->width < 1 || m->n_heads < 1 || m->vocab < 1)
        return err_set(e, ERR_PEER, "seqrank --describe printed no sizes");
    return 0;
}

static void pipe_close(struct pipe_in *p)
{
    if (p->fd < 0) return;
    loop_fd_remove(p->on_fd);
    close(p->fd);
    p->fd = -1;
}

void describe_cancel(struct describe *d)
{
    if (!d) return;
    pipe_close(&d->out);
    pipe_close(&d->err);
    loop_timer_destroy(d->limit);
    if (d->pid > 0) {
        kill(d->pid, SIGKILL);
        while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR) continue;
    }
    free(d);
}

/* Both outputs are closed: the program is over, or as good as over. */
static void describe_finish(struct describe *d)
{
    int status = 0;
    struct err e = {0};
    struct model_shape m = {0};
    if (d->late) kill(d->pid, SIGKILL);
    while (waitpid(d->pid, &status, 0) < 0 && errno == EINTR) continue;
    d->pid = 0;
    d->err.text[d->err.n] = 0;
    d->err.text[strcspn(d->err.text, "\n")] = 0;
    if (d->late)
        err_set(&e, ERR_TIMEOUT, "seqrank --describe did not end in %d s",
                SPAWN_DESCRIBE_MS / 1000);
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        err_field(&e, ERR_INVALID, "model.path", "%.480s",
                  d->err.n ? d->err.text : "seqrank --describe died");
    else
        describe_parse(d->out.text, d->out.n, &m, &e);
    d->done(d->arg, d->request, &m, &e);
    describe_cancel(d);
}

static void pipe_read(void *arg, uint32_t events)
{
    struct pipe_in *p = arg;
    struct describe *d = p->d;
    char rest[4096];
    size_t room = sizeof p->text - 1 - p->n;
    /* What does not fit is read and dropped: the program must not block on a full pipe. */
    ssize_t n = read(p->fd, room ? p->text + p->n : rest, room ? room : sizeof rest);
    if (n > 0 && room) p->n += (size_t)n;
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    pipe_close(p);
    if (d->out.fd < 0 && d->err.fd < 0) describe_finish(d);
}

static void describe_late(void *arg)
{
    struct describe *d = arg;
    d->late = true;
    pipe_close(&d->out);
    pipe_close(&d->err);
    describe_finish(d);
}

static int pipe_open(struct pipe_in *p, struct describe *d, int *write_fd, struct err *e)
{
    int fd[2];
    if (pipe2(fd, O_CLOEXEC) < 0) return err_errno(e, "pipe");
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    p->d = d;
    *write_fd = fd[1];
    p->on_fd = loop_fd_add(d->loop, fd[0], EPOLLIN, pipe_read, p, e);
    if (p->on_fd) return p->fd = fd[0], 0;
    close(fd[0]);
    return -1;
}

struct describe *describe_start(struct loop *l, const char *program, const char *path,
                                int64_t request, spawn_described *done, void *arg, struct err *e)
{
    struct describe *d = calloc(1, sizeof *d);
    char *argv[] = {"seqrank", "--describe", (char *)path, NULL};
    int out = -1, err = -1;
    assert(d);
    d->loop = l;
    d->request = request;
    d->done = done;
    d->arg = arg;
    d->out.fd = d->err.fd = -1;
    int rc = pipe_open(&d->out, d, &out, e);
    if (rc == 0) rc = pipe_open(&d->err, d, &err, e);
    if (rc == 0) d->pid = spawn(program, argv, out, err, e);
    if (out >= 0) close(out);
    if (err >= 0) close(err);
    if (d->pid > 0) {
        d->limit = loop_timer_create(l, describe_late, d);
        loop_timer_set(d->limit, SPAWN_DESCRIBE_MS);
        return d;
    }
    describe_cancel(d);
    return NULL;
}
