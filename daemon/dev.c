#include "daemon/dev.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/log.h"
#include "api/core/rank.h"

#define AGAIN_MS 1000

struct dev {
    struct loop *loop;
    char program[1024], node_dir[1024], pid_path[1024], address[256], slots[16];
    char roots[RANK_ROOTS][RANK_PATH_SIZE];
    int n_roots;
    struct option_list writable;
    int pidfd; /* -1: not running */
    struct loop_fd *watch;
    struct loop_timer *timer; /* to start it again, or to kill it */
    bool stopping;
    loop_call *gone;
    void *gone_arg;
};

extern char **environ;

static void on_exit_of_seqw(void *arg, uint32_t events);

static int watch(struct dev *d, pid_t pid, struct err *e)
{
    d->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (d->pidfd < 0) return err_errno(e, "watch seqw");
    d->watch = loop_fd_add(d->loop, d->pidfd, EPOLLIN, on_exit_of_seqw, d, e);
    return d->watch ? 0 : -1;
}

static void tell(const struct dev *d, int signo)
{
    if (d->pidfd >= 0) syscall(SYS_pidfd_send_signal, d->pidfd, signo, NULL, 0);
}

static void write_pid(const struct dev *d, pid_t pid)
{
    FILE *f = fopen(d->pid_path, "we");
    if (!f) return; /* costs only the adoption after a kill -9 */
    fprintf(f, "%d\n", (int)pid);
    fclose(f);
}

/* Is pid a seqw that serves our node directory, by its arguments? */
static bool is_ours(const struct dev *d, pid_t pid)
{
    char path[64], args[16384];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(args, 1, sizeof args - 1, f) : 0;
    if (f) fclose(f);
    args[n] = 0;
    const char *name = strrchr(args, '/');
    if (strcmp(name ? name + 1 : args, "seqw")) return false;
    for (const char *p = args; p < args + n; p += strlen(p) + 1)
        if (!strcmp(p, d->node_dir)) return true;
    return false;
}

/* Takes over a seqw that a killed seqd has left. */
static bool adopt(struct dev *d)
{
    int pid = 0;
    FILE *f = fopen(d->pid_path, "re");
    bool read = f && fscanf(f, "%d", &pid) == 1 && pid > 1;
    if (f) fclose(f);
    if (!read || watch(d, pid, NULL)) return false;
    if (is_ours(d, pid)) { /* after the pidfd, so that the number cannot change hands */
        log_info("dev.adopted", "pid=%d", pid);
        return true;
    }
    loop_fd_remove(d->watch);
    close(d->pidfd);
    d->pidfd = -1;
    d->watch = NULL;
    return false;
}

static int spawn(struct dev *d, struct err *e)
{
    char *argv[16 + 2 * RANK_ROOTS + 2 * OPTION_LIST];
    int n = 0;
    argv[n++] = d->program;
    argv[n++] = "--connect", argv[n++] = d->address;
    argv[n++] = "--name", argv[n++] = "local";
    argv[n++] = "--state", argv[n++] = d->node_dir;
    argv[n++] = "--address", argv[n++] = "127.0.0.1";
    argv[n++] = "--slots", argv[n++] = d->slots;
    argv[n++] = "--orphan-ms", argv[n++] = "60000"; /* outlives a kill -9 of seqd, not for ever */
    for (int i = 0; i < d->n_roots; i++) argv[n++] = "--root", argv[n++] = d->roots[i];
    for (int i = 0; i < d->writable.n; i++)
        argv[n++] = "--writable-root", argv[n++] = d->writable.text[i];
    argv[n] = NULL;
    posix_spawnattr_t attr;
    posix_spawn_file_actions_t files;
    sigset_t none, all;
    pid_t pid;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    int rc = posix_spawn(&pid, d->program, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    errno = rc;
    if (rc) return err_errno(e, "start %s", d->program);
    write_pid(d, pid);
    log_info("dev.started", "pid=%d slots=%s", (int)pid, d->slots);
    return watch(d, pid, e);
}

static void on_timer(void *arg)
{
    struct dev *d = arg;
    struct err e;
    if (d->stopping) {
        log_warn("dev.kill", "text=\"seqw did not stop within %d s\"", DEV_STOP_MS / 1000);
        tell(d, SIGKILL);
    } else if (d->pidfd < 0 && spawn(d, &e)) {
        log_error("dev.spawn", "text=\"%s\"", e.text);
        loop_timer_set(d->timer, AGAIN_MS);
    }
}

static void on_exit_of_seqw(void *arg, uint32_t events)
{
    struct dev *d = arg;
    loop_fd_remove(d->watch);
    waitid(P_PIDFD, (id_t)d->pidfd, &(siginfo_t){0}, WEXITED | WNOHANG); /* adopted: not ours */
    close(d->pidfd);
    d->pidfd = -1;
    d->watch = NULL;
    unlink(d->pid_path);
    if (d->stopping) {
        loop_timer_set(d->timer, -1);
        d->gone(d->gone_arg);
        return;
    }
    log_warn("dev.died", "text=\"seqw died: starting it again\"");
    loop_timer_set(d->timer, AGAIN_MS);
}

static int find_program(struct dev *d, struct err *e)
{
    ssize_t n = readlink("/proc/self/exe", d->program, sizeof d->program - 8);
    char *slash = n > 0 ? memrchr(d->program, '/', (size_t)n) : NULL;
    if (!slash) return err_errno(e, "find this program");
    memcpy(slash + 1, "seqw", 5);
    if (access(d->program, X_OK)) return err_errno(e, "%s, which must lie beside seqd", d->program);
    return 0;
}

struct dev *dev_start(struct loop *l, const struct dev_options *o, struct err *e)
{
    struct dev *d = calloc(1, sizeof *d);
    if (!d) abort();
    d->loop = l;
    d->pidfd = -1;
    d->timer = loop_timer_create(l, on_timer, d);
    snprintf(d->node_dir, sizeof d->node_dir, "%s/node", o->state_dir);
    snprintf(d->pid_path, sizeof d->pid_path, "%s/seqw.pid", o->state_dir);
    snprintf(d->address, sizeof d->address, "%s", o->node_address);
    snprintf(d->slots, sizeof d->slots, "%d", o->n_slots);
    d->writable = *o->writable;
    d->n_roots = o->n_roots < RANK_ROOTS ? o->n_roots : RANK_ROOTS;
    for (int i = 0; i < d->n_roots; i++)
        snprintf(d->roots[i], sizeof d->roots[i], "%s", o->roots[i]);
    if (find_program(d, e)) goto fail;
    if (!adopt(d) && spawn(d, e)) goto fail;
    return d;
fail:
    dev_destroy(d);
    return NULL;
}

void dev_stop(struct dev *d, loop_call *gone, void *arg)
{
    if (d->stopping) return;
    d->stopping = true;
    d->gone = gone;
    d->gone_arg = arg;
    if (d->pidfd < 0) {
        loop_timer_set(d->timer, -1);
        gone(arg);
        return;
    }
    tell(d, SIGTERM);
    loop_timer_set(d->timer, DEV_STOP_MS);
}

void dev_destroy(struct dev *d)
{
    if (!d) return;
    if (d->watch) loop_fd_remove(d->watch);
    if (d->pidfd >= 0) close(d->pidfd);
    loop_timer_destroy(d->timer);
    free(d);
}
