/* test_notify: tests the messages to a service manager, over a path and over an abstract name.
 * Also tests the messages that keep its watchdog from acting. The test sets the loop's clock. */
#include "tests/lib/test.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/core/notify.h"

static int64_t now_ms = 1000;
static int64_t clock_of(void *arg)
{
    return now_ms;
}

static int server = -1;
static char name[100], got[512];
static bool moved = true;
static const char *status = "one";

static bool tick(void *arg, char *out, size_t size)
{
    snprintf(out, size, "%s", status);
    return moved;
}

static void serve(char first)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(name, sizeof name, "%c/tmp/test-notify-%d", first, (int)getpid());
    if (first == '/') memmove(name, name + 1, strlen(name));
    memcpy(at.sun_path, name, strlen(name));
    if (first == '@') at.sun_path[0] = 0;
    if (first == '/') unlink(name);
    server = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    CHECK(bind(server, (struct sockaddr *)&at,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) == 0);
    setenv("NOTIFY_SOCKET", name, 1);
}

static const char *next(void)
{
    const ssize_t n = recv(server, got, sizeof got - 1, 0);
    got[n < 0 ? 0 : n] = 0;
    return got;
}

static struct loop *l;
static struct notify *open_one(char first, const char *usec)
{
    l = loop_create(clock_of, NULL, NULL);
    serve(first);
    if (usec) setenv("WATCHDOG_USEC", usec, 1);
    return notify_open(l, tick, NULL);
}

static void close_one(struct notify *n)
{
    notify_close(n);
    loop_destroy(l);
    close(server);
    if (*name == '/') unlink(name);
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    moved = true;
    status = "one";
}

static void later(int64_t ms)
{
    now_ms += ms;
    loop_turn(l, 0);
}

static void test_messages(void)
{
    for (int i = 0; i < 2; i++) {
        struct notify *n = open_one(i ? '@' : '/', NULL);
        CHECK(n && !getenv("NOTIFY_SOCKET"));
        notify_ready(n);
        CHECK_STR(next(), "READY=1\nSTATUS=one");
        notify_reloading(n);
        CHECK(!strncmp(next(), "RELOADING=1\nMONOTONIC_USEC=", 27) && atoll(got + 27) > 0);
        notify_stopping(n);
        CHECK_STR(next(), "STOPPING=1\nSTATUS=stopping");
        later(NOTIFY_STATUS_MS);
        CHECK_STR(next(), ""); /* there is no news and no watchdog */
        status = "two\nREADY=1";
        later(NOTIFY_STATUS_MS);
        CHECK_STR(next(), "STATUS=two READY=1");
        close_one(n);
    }
}

static void test_watchdog(void)
{
    struct notify *n = open_one('@', "4000000");
    CHECK(!getenv("WATCHDOG_USEC"));
    later(999);
    CHECK_STR(next(), "");
    later(1);
    CHECK_STR(next(), "STATUS=one");
    CHECK_STR(next(), "WATCHDOG=1");
    later(1000);
    CHECK_STR(next(), "WATCHDOG=1");
    moved = false;
    later(1000);
    CHECK_STR(next(), "");
    moved = true;
    later(1000);
    CHECK_STR(next(), "WATCHDOG=1");
    close_one(n);
}

static void test_watchdog_of_another(void)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid() + 1);
    setenv("WATCHDOG_PID", pid, 1);
    struct notify *n = open_one('@', "4000");
    status = "one";
    notify_ready(n);
    next();
    later(NOTIFY_STATUS_MS);
    CHECK_STR(next(), "");
    close_one(n);
}

/* Checks that a manager that no longer exists, or that reads nothing, does not delay the
 * program. */
static void test_silent_manager(void)
{
    struct notify *n = open_one('@', "4");
    for (int i = 0; i < 2000; i++) later(1);
    close(server);
    notify_ready(n);
    server = dup(0);
    close_one(n);
}

static void test_none(void)
{
    static const char *const bad[] = {"", "relative", "vsock:2:1", "@", NULL};
    l = loop_create(clock_of, NULL, NULL);
    unsetenv("NOTIFY_SOCKET");
    CHECK(!notify_open(l, tick, NULL));
    for (int i = 0; bad[i]; i++) {
        setenv("NOTIFY_SOCKET", bad[i], 1);
        CHECK_MSG(!notify_open(l, tick, NULL), "%s", bad[i]);
    }
    char far[200];
    memset(far, '/', sizeof far);
    far[sizeof far - 1] = 0;
    setenv("NOTIFY_SOCKET", far, 1);
    CHECK(!notify_open(l, tick, NULL));
    unsetenv("NOTIFY_SOCKET");
    notify_ready(NULL);
    notify_reloading(NULL);
    notify_stopping(NULL);
    notify_close(NULL);
    loop_destroy(l);
}

int main(void)
{
    RUN(test_messages);
    RUN(test_watchdog);
    RUN(test_watchdog_of_another);
    RUN(test_silent_manager);
    RUN(test_none);
    return test_done("notify");
}
