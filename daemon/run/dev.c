/* dev.c: starts, adopts and restarts the local seqw of seqd --dev. */
#include "daemon/run/dev.h"

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
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/mem.h"
#include "api/core/rank.h"
#include "api/core/thread.h"
#include "api/wire.h"

/* the first wait before seqw is started again; it doubles each time that a seqw ends within
 * STEADY_MS */
#define AGAIN_MS  1000
#define MOST_MS   60000
#define STEADY_MS 60000
#define QUIT_MS   100 /* time between tries to send QUIT until seqw has a session */
#define NAME      "local"

struct dev {
    struct loop *loop;
    char program[1024], node_dir[1024], pid_path[1024], address[256], slots[16];
    bool no_pin;
    char sandbox[16];
    char roots[RANK_ROOTS][RANK_PATH_SIZE];
    int n_roots;
    struct option_list writable;
    int pidfd; /* -1 if seqw does not run */
    struct loop_fd *watch;
    struct loop_timer *timer; /* the time at which seqw is started again, or killed */
    uint32_t (*quit)(void *arg, const char *node);
    void (*died)(void *arg, const char *why);
    void *arg;
    char words_path[1024], words_env[1056];
    /* started_ms is a time of the loop's clock; again_ms is the wait before the next start */
    int64_t started_ms, again_ms;
    bool stopping, told;
    int64_t kill_ms; /* time at which SIGKILL is due, by the loop's clock */
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
    if (!f)
        return; /* if the file cannot be written, seqw cannot be adopted after a kill -9 of
                     * seqd */
    fprintf(f, "%d\n", (int)pid);
    fclose(f);
}

/* Tells whether process pid is a seqw that serves our node directory. The arguments of the process
 * show this. */
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

/* Adopts a seqw that a killed seqd has left. */
static bool adopt(struct dev *d)
{
    int pid = 0;
    FILE *f = fopen(d->pid_path, "re");
    bool read = f && fscanf(f, "%d", &pid) == 1 && pid > 1;
    if (f) fclose(f);
    if (!read || watch(d, pid, NULL)) return false;
    /* check the process after the pidfd is open, because until then the pid could become that of a
     * different process */
    if (is_ours(d, pid)) {
        log_info("dev.adopted", "pid=%d", pid);
        return true;
    }
    loop_fd_remove(d->watch);
    close(d->pidfd);
    d->pidfd = -1;
    d->watch = NULL;
    return false;
}

/* Returns this process's environment and one more variable, which names the file to which seqw
 * writes its last error. */
static char **environment(struct dev *d)
{
    size_t n = 0;
    while (environ[n]) n++;
    char **env = mem_scratch((n + 2) * sizeof *env);
    memcpy(env, environ, n * sizeof *env);
    env[n] = d->words_env;
    env[n + 1] = NULL;
    return env;
}

static int spawn(struct dev *d, struct err *e)
{
    char *argv[18 + 2 * RANK_ROOTS + 2 * OPTION_LIST];
    int n = 0;
    argv[n++] = d->program;
    argv[n++] = "--connect", argv[n++] = d->address;
    argv[n++] = "--name", argv[n++] = NAME;
    argv[n++] = "--state", argv[n++] = d->node_dir;
    argv[n++] = "--address", argv[n++] = "127.0.0.1";
    argv[n++] = "--slots", argv[n++] = d->slots;
    if (d->no_pin) argv[n++] = "--no-pin";
    if (*d->sandbox) argv[n++] = "--sandbox", argv[n++] = d->sandbox;
    /* after a kill -9 of seqd, seqw continues to run for this time */
    argv[n++] = "--orphan-ms", argv[n++] = "60000";
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
    char **env = environment(d);
    unlink(d->words_path);
    int rc = posix_spawn(&pid, d->program, &files, &attr, argv, env);
    free(env);
    d->started_ms = loop_now_ms(d->loop);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    errno = rc;
    if (rc) return err_errno(e, "start %s", d->program);
    write_pid(d, pid);
    log_info("dev.started", "pid=%d slots=%s", (int)pid, d->slots);
    return watch(d, pid, e);
}

/* Tells seqw to end. If the version of seqw does not have MSG_QUIT, sends SIGTERM, at which such a
 * seqw stops all gangs. */
static void order_end(struct dev *d)
{
    const int64_t now_ms = loop_now_ms(d->loop);
    const uint32_t abi = d->told ? 0 : d->quit(d->arg, NAME);
    if (abi && !wire_knows(abi, MSG_QUIT)) tell(d, SIGTERM);
    d->told = d->told || abi;
    if (now_ms >= d->kill_ms) {
        log_warn("dev.kill", "text=\"seqw did not stop within %d s\"", DEV_STOP_MS / 1000);
        tell(d, SIGKILL);
    } else {
        loop_timer_set(d->timer, d->told ? d->kill_ms - now_ms : QUIT_MS);
    }
}

static void on_timer(void *arg)
{
    struct dev *d = arg;
    struct err e;
    if (d->stopping) {
        order_end(d);
    } else if (d->pidfd < 0 && spawn(d, &e)) {
        log_error("dev.spawn", "text=\"%s\"", e.text);
        loop_timer_set(d->timer, AGAIN_MS);
    }
}

/* Writes the last error of seqw. If seqw left no error, writes how seqw ended. */
static void words_of(const struct dev *d, const siginfo_t *end, char *out, size_t size)
{
    size_t n;
    char *said = file_read(d->words_path, LAST_WORDS_SIZE, &n, NULL);
    const bool killed = end->si_code == CLD_KILLED || end->si_code == CLD_DUMPED;
    if (said && n)
        snprintf(out, size, "seqw ended: %s", said);
    else if (end->si_pid)
        snprintf(out, size, "seqw ended by %s %d", killed ? "signal" : "status", end->si_status);
    else
        snprintf(out, size, "seqw ended");
    free(said);
}

static void start_again(struct dev *d, const siginfo_t *end)
{
    char why[LAST_WORDS_SIZE + 32];
    if (loop_now_ms(d->loop) - d->started_ms >= STEADY_MS) d->again_ms = AGAIN_MS;
    words_of(d, end, why, sizeof why);
    log_warn("dev.died", "text=\"%s\" again_ms=%lld", why, (long long)d->again_ms);
    d->died(d->arg, why);
    loop_timer_set(d->timer, d->again_ms);
    d->again_ms = 2 * d->again_ms < MOST_MS ? 2 * d->again_ms : MOST_MS;
}

static void on_exit_of_seqw(void *arg, uint32_t events)
{
    struct dev *d = arg;
    loop_fd_remove(d->watch);
    siginfo_t end = {0};
    /* fails for an adopted seqw, which is not a child of this process */
    waitid(P_PIDFD, (id_t)d->pidfd, &end, WEXITED | WNOHANG);
    close(d->pidfd);
    d->pidfd = -1;
    d->watch = NULL;
    unlink(d->pid_path);
    if (d->stopping) {
        loop_timer_set(d->timer, -1);
        d->gone(d->gone_arg);
        return;
    }
    start_again(d, &end);
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
    d->no_pin = o->no_pin;
    snprintf(d->sandbox, sizeof d->sandbox, "%s", o->sandbox);
    d->writable = *o->writable;
    d->quit = o->quit;
    d->died = o->died;
    d->arg = o->arg;
    d->again_ms = AGAIN_MS;
    snprintf(d->words_path, sizeof d->words_path, "%s/seqw.words", o->state_dir);
    snprintf(d->words_env, sizeof d->words_env, LAST_WORDS_ENV "=%s", d->words_path);
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
    d->kill_ms = loop_now_ms(d->loop) + DEV_STOP_MS;
    order_end(d);
}

void dev_destroy(struct dev *d)
{
    if (!d) return;
    if (d->watch) loop_fd_remove(d->watch);
    if (d->pidfd >= 0) close(d->pidfd);
    loop_timer_destroy(d->timer);
    free(d);
}
