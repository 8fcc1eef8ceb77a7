/* children.c: starts programs, waits for their ends and for signals, and ends the programs. */
#include "daemon/run/children.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/log.h"

static void our_signals(sigset_t *set)
{
    static const int list[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) sigaddset(set, list[i]);
}

void children_init(struct children *c)
{
    sigset_t set;
    *c = (struct children){.signal = 0};
    for (int i = 0; i < CHILDREN_MAX; i++) c->child[i].status = -1;
    our_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void become(char *const argv[], int ends, const struct child_files *f, pid_t parent)
{
    const int given[3] = {f->in, f->out, f->err};
    sigset_t none;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, ends);
    if (getppid() != parent) _exit(127); /* the parent died before the prctl took effect */
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        const int fd = given[i] < 0 ? null : given[i];
        if (fd == i ? fcntl(fd, F_SETFD, 0) < 0 : dup2(fd, i) < 0) _exit(127);
    }
    signal(SIGPIPE, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvp(argv[0], argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

int children_start(struct children *c, int which, int ends, char *const argv[],
                   const struct child_files *f, struct err *e)
{
    const pid_t parent = getpid(), pid = fork();
    c->child[which] = (struct child){.status = -1}; /* clear the status of the previous child */
    if (pid < 0) return err_errno(e, "start %s", argv[0]);
    if (!pid) become(argv, ends, f, parent);
    setpgid(pid, pid);
    c->child[which] = (struct child){pid, -1, ends};
    return 0;
}

static void reap(struct children *c)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int i = 0; i < CHILDREN_MAX; i++)
            if (c->child[i].pid == pid)
                c->child[i] = (struct child){
                    0, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 0};
}

void children_wait(struct children *c, int timeout_ms)
{
    sigset_t set;
    struct timespec t = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
    our_signals(&set);
    const int signo = sigtimedwait(&set, NULL, &t);
    if (signo > 0 && signo != SIGCHLD && !c->signal) c->signal = signo;
    reap(c);
}

bool children_runs(const struct children *c, int which)
{
    return c->child[which].pid > 0;
}

void children_stop(struct children *c, int which, int timeout_ms)
{
    const int64_t until_ms = clock_ms() + timeout_ms;
    bool killed = false;
    if (!children_runs(c, which)) return;
    if (timeout_ms) kill(c->child[which].pid, c->child[which].ends);
    while (children_runs(c, which)) {
        const int64_t left = until_ms - clock_ms();
        if (left <= 0 && !killed) {
            if (timeout_ms)
                log_warn("children.kill", "pid=%d after_ms=%d", (int)c->child[which].pid,
                         timeout_ms);
            killed = !kill(c->child[which].pid, SIGKILL);
        }
        children_wait(c, left > 0 && left < 1000 ? (int)left : 1000);
    }
}

/* Kills all children of this process that /proc lists. They include the orphans of programs that
 * have ended. */
static void kill_orphans(void)
{
    char path[64], line[512];
    DIR *d = opendir("/proc");
    for (struct dirent *x; d && (x = readdir(d));) {
        const int pid = atoi(x->d_name);
        int parent = 0;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *f = pid > 1 ? fopen(path, "re") : NULL;
        if (f && fgets(line, sizeof line, f)) {
            const char *end = strrchr(line, ')');
            if (end && sscanf(end, ") %*c %d", &parent) == 1 && parent == getpid())
                kill(pid, SIGKILL);
        }
        if (f) fclose(f);
    }
    if (d) closedir(d);
}

static bool none_left(void)
{
    return waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
}

void children_end(struct children *c, int timeout_ms)
{
    const int64_t until_ms = clock_ms() + timeout_ms;
    while (!none_left()) {
        /* the children of a killed process become children of this process, and the next round
         * kills them */
        if (clock_ms() >= until_ms) kill_orphans();
        children_wait(c, 100);
    }
}
