/* notify.c: sends datagrams from a timer, without waiting. The watchdog is notified only while the
 * caller's function reports progress. */
#include "api/core/notify.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/log.h"

enum { STATUS_SIZE = 256, WATCHDOG_PART = 4 };

struct notify {
    struct loop *loop;
    struct loop_timer *timer;
    notify_tick *tick;
    void *arg;
    int fd;
    struct sockaddr_un to;
    socklen_t n_to;
    int64_t every_ms;
    bool watchdog, failed; /* `failed` tells that a failure to send was logged */
    char status[STATUS_SIZE];
};

static void send_text(struct notify *n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void send_text(struct notify *n, const char *fmt, ...)
{
    char text[STATUS_SIZE + 64];
    va_list ap;
    va_start(ap, fmt);
    const int size = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    assert(size > 0 && size < (int)sizeof text);
    const struct sockaddr *to = (const struct sockaddr *)&n->to;
    /* Do not wait, because a manager that does not read must not stop the loop. */
    if (sendto(n->fd, text, (size_t)size, MSG_NOSIGNAL | MSG_DONTWAIT, to, n->n_to) == size) {
        n->failed = false;
        return;
    }
    if (!n->failed) log_warn("notify.failed", "text=\"%s: %s\"", text, strerror(errno));
    n->failed = true;
}

/* Asks the program for its status. Returns false if the program's work has stopped. */
static bool ask(struct notify *n, bool *changed)
{
    char status[STATUS_SIZE] = "";
    const bool moved = n->tick(n->arg, status, sizeof status);
    for (char *p = status; *p; p++)
        if ((unsigned char)*p < ' ') *p = ' ';
    *changed = strcmp(status, n->status) != 0;
    memcpy(n->status, status, sizeof status);
    return moved;
}

static void on_timer(void *arg)
{
    struct notify *n = arg;
    bool changed;
    const bool moved = ask(n, &changed);
    if (changed) send_text(n, "STATUS=%s", n->status);
    if (moved && n->watchdog) send_text(n, "WATCHDOG=1");
    if (!moved) log_warn("notify.stands", "text=\"the watchdog is not fed: %s\"", n->status);
    loop_timer_set(n->timer, n->every_ms);
}

/* Reads an address. It is a path, or a name of the abstract namespace, which begins with '@'. */
static bool address(struct notify *n, const char *path)
{
    const size_t len = strlen(path);
    if ((*path != '/' && *path != '@') || len < 2 || len >= sizeof n->to.sun_path) return false;
    n->to.sun_family = AF_UNIX;
    memcpy(n->to.sun_path, path, len + 1);
    if (*path == '@') n->to.sun_path[0] = 0;
    n->n_to = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*path == '/'));
    return true;
}

/* Returns the watchdog's time limit, or 0 if this process has no watchdog to feed. */
static int64_t watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && *pid && atoll(pid) != (long long)getpid())) return 0;
    const int64_t ms = strtoll(usec, NULL, 10) / 1000;
    return ms > 0 && ms <= 24 * 3600 * 1000LL ? ms : 0;
}

struct notify *notify_open(struct loop *l, notify_tick *tick, void *arg)
{
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path || !*path) return NULL;
    struct notify *n = calloc(1, sizeof *n);
    assert(n);
    *n = (struct notify){.loop = l, .tick = tick, .arg = arg, .every_ms = NOTIFY_STATUS_MS};
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (!address(n, path) || n->fd < 0) {
        log_warn("notify.address", "NOTIFY_SOCKET=%s text=\"not a Unix socket: nothing is told\"",
                 path);
        if (n->fd >= 0) close(n->fd);
        free(n);
        return NULL;
    }
    const int64_t ms = watchdog_ms();
    n->watchdog = ms > 0;
    if (n->watchdog) n->every_ms = ms < WATCHDOG_PART ? 1 : ms / WATCHDOG_PART;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    n->timer = loop_timer_create(l, on_timer, n);
    loop_timer_set(n->timer, n->every_ms);
    return n;
}

void notify_close(struct notify *n)
{
    if (!n) return;
    loop_timer_destroy(n->timer);
    close(n->fd);
    free(n);
}

void notify_ready(struct notify *n)
{
    bool changed;
    if (!n) return;
    ask(n, &changed);
    send_text(n, "READY=1\nSTATUS=%s", n->status);
}

void notify_reloading(struct notify *n)
{
    struct timespec now;
    if (!n) return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    send_text(n, "RELOADING=1\nMONOTONIC_USEC=%lld",
              (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

void notify_stopping(struct notify *n)
{
    if (n) send_text(n, "STOPPING=1\nSTATUS=stopping");
}
