/* manager: replaces systemd in tests. It starts the ExecStart of a unit of Type=notify with the
 * environment that systemd sets, prints the service's messages, and ends the service as the unit
 * requires.
 *
 *     manager UNIT STATE_DIR RUNTIME_DIR [SECONDS]
 *
 * It prints a line for every line that the service sends, and also "started PID" and "timeout". If
 * the service does not reset the watchdog in time, the manager prints "watchdog" and ends the
 * service with SIGABRT. When the service ends, the manager prints "exit N" or "signal N" and ends,
 * too. It passes on SIGHUP, SIGUSR1, SIGTERM and SIGINT. With KillMode=process these signals are
 * sent only to the main process, and otherwise to every process of its session. SECONDS is the
 * time that the start may take (default 60). */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct unit {
    char exec[4096], kill_mode[32];
    long watchdog_s;
    int notify;
};

static void die(const char *what)
{
    fprintf(stderr, "manager: %s: %s\n", what, strerror(errno));
    exit(2);
}

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static void unit_read(struct unit *u, const char *path)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    if (!f) die(path);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "ExecStart=", 10)) snprintf(u->exec, sizeof u->exec, "%s", line + 10);
        if (!strncmp(line, "KillMode=", 9))
            snprintf(u->kill_mode, sizeof u->kill_mode, "%.31s", line + 9);
        if (!strncmp(line, "WatchdogSec=", 12)) u->watchdog_s = atol(line + 12);
        if (!strcmp(line, "Type=notify")) u->notify = 1;
    }
    fclose(f);
    if (*u->exec && u->notify) return;
    fprintf(stderr, "manager: %s has no ExecStart, or is not of Type=notify\n", path);
    exit(2);
}

/* Makes a socket with an abstract name, as managers in containers use. The socket of systemd
 * itself is a path. */
static int listen_at(char name[64])
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(name, 64, "@manager-%d", (int)getpid());
    memcpy(at.sun_path + 1, name + 1, strlen(name) - 1);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, size)) die(name);
    return fd;
}

static pid_t start(const struct unit *u, const char *name, const char *state, const char *run)
{
    char *argv[64], usec[32], *words = strdup(u->exec);
    int n = 0;
    for (char *w = strtok(words, " "); w && n < 63; w = strtok(NULL, " ")) argv[n++] = w;
    argv[n] = NULL;
    const pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid > 0) return free(words), pid;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    snprintf(usec, sizeof usec, "%ld000000", u->watchdog_s);
    setenv("NOTIFY_SOCKET", name, 1);
    setenv("STATE_DIRECTORY", state, 1);
    setenv("RUNTIME_DIRECTORY", run, 1);
    if (u->watchdog_s) setenv("WATCHDOG_USEC", usec, 1);
    execv(argv[0], argv);
    die(argv[0]);
    return -1;
}

/* Prints the message. Returns 1 for READY=1 and 2 for WATCHDOG=1. */
static int receive(int fd)
{
    char text[4096];
    int is = 0;
    const ssize_t n = recv(fd, text, sizeof text - 1, MSG_DONTWAIT);
    if (n <= 0) return 0;
    text[n] = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        printf("%s\n", line);
        if (!strcmp(line, "READY=1")) is |= 1;
        if (!strcmp(line, "WATCHDOG=1")) is |= 2;
    }
    return is;
}

int main(int argc, char **argv)
{
    struct unit u = {.kill_mode = "control-group"};
    char name[64];
    if (argc < 4) return fprintf(stderr, "usage: manager UNIT STATE_DIR RUNTIME_DIR [S]\n"), 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    unit_read(&u, argv[1]);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP), sigaddset(&set, SIGTERM), sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD), sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    const int fd = listen_at(name), signals = signalfd(-1, &set, SFD_CLOEXEC);
    const pid_t pid = start(&u, name, argv[2], argv[3]);
    printf("started %d\n", (int)pid);
    long long due = now_ms() + 1000 * (argc > 4 ? atol(argv[4]) : 60);
    for (int ready = 0, stopped = 0;;) {
        struct pollfd p[2] = {{fd, POLLIN, 0}, {signals, POLLIN, 0}};
        const long long left = due - now_ms();
        const int n = poll(p, 2, due < 0 ? -1 : left < 0 ? 0 : (int)left);
        const int is = p[0].revents ? receive(fd) : 0;
        ready |= is & 1;
        if (is && ready) due = u.watchdog_s ? now_ms() + 1000 * u.watchdog_s : -1;
        if (p[1].revents) {
            struct signalfd_siginfo s;
            int status;
            if (read(signals, &s, sizeof s) != sizeof s) die("signalfd");
            if (s.ssi_signo != SIGCHLD)
                kill(strcmp(u.kill_mode, "process") ? -pid : pid, (int)s.ssi_signo);
            if (s.ssi_signo == SIGCHLD && waitpid(pid, &status, WNOHANG) == pid) {
                while (receive(fd)) continue;
                if (WIFSIGNALED(status)) return printf("signal %d\n", WTERMSIG(status)), 1;
                return printf("exit %d\n", WEXITSTATUS(status)), WEXITSTATUS(status);
            }
        }
        if (n || due < 0 || now_ms() < due || stopped) continue;
        puts(ready ? "watchdog" : "timeout");
        kill(pid, SIGABRT);
        kill(pid, SIGCONT);
        stopped = 1;
        due = -1;
    }
}
