/* test_sandbox: enters domains of Landlock and filters of system calls in child processes. */
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/landlock.h"
#include "api/core/sandbox.h"
#include "api/core/seccomp.h"

static char dir[] = "/tmp/test-sandbox-XXXXXX";

static const char *in(const char *name)
{
    static char path[4][256];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", dir, name);
    return path[i];
}

static void make(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s", in(name));
    *strrchr(path, '/') = 0;
    CHECK(!file_make_dir(path, NULL) && !file_write(in(name), "data", 4, NULL));
}

static bool opens(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* Runs `body` in a child. Its checks count as this test's. */
static void in_child(void (*body)(void))
{
    int status = 0;
    fflush(stdout);
    const pid_t pid = fork();
    if (!pid) {
        body();
        fflush(stdout);
        _exit(test_failures_now > 0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
}

static void reader(void)
{
    const char *const roots[] = {in("root"), in("deep")}, *const paths[] = {in("state/prepared")};
    const struct sandbox_reader r = {.program = "/proc/self/exe",
                                     .state = in("deep/a/state"),
                                     .roots = roots,
                                     .n_roots = 2,
                                     .paths = paths,
                                     .n_paths = 1};
    struct err e = {0};
    CHECK_MSG(!sandbox_enter_reader(&r, &e), "%s", e.text);
    CHECK(opens(in("root/model/w"), O_RDONLY) && opens(in("state/prepared/w"), O_RDONLY));
    CHECK(opens("/etc/passwd", O_RDONLY) && opens("/dev/null", O_RDWR));
    CHECK(opens(in("deep/b"), O_RDONLY) && opens(in("deep/a/c/w"), O_RDONLY));
    if (!SANITIZED) CHECK(socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
    if (landlock_abi() < LANDLOCK_FILES) {
        printf("left out: files: Landlock of this kernel has ABI %d\n", landlock_abi());
        return;
    }
    CHECK(!opens(in("root/model/w"), O_WRONLY) && !opens(in("deep/a/state/w"), O_RDONLY));
    CHECK(!opens(in("root/hidden/w"), O_RDONLY) && !opens(in("root/link"), O_RDONLY));
    CHECK(!opens(in("elsewhere"), O_RDONLY) && !opens("/etc/shadow", O_RDONLY));
}

/* Checks that a process that answers a question reaches no private directory of its roots. */
static void test_reader(void)
{
    static const char *const files[] = {"root/model/w",   "root/hidden/w", "state/prepared/w",
                                        "deep/a/state/w", "deep/a/c/w",    "elsewhere"};
    for (int i = 0; i < 6; i++) make(files[i]);
    CHECK(!file_write(in("deep/b"), "x", 1, NULL));
    CHECK(!beneath_mark(in("root/hidden"), NULL) && !symlink(in("elsewhere"), in("root/link")));
    CHECK(beneath_marked(in("root/hidden")) && !beneath_marked(in("root")));
    in_child(reader);
}

/* ---- ports ----------------------------------------------------------------------------------- */

static int listening(int *port)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof sa;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!bind(fd, (struct sockaddr *)&sa, sizeof sa) && !listen(fd, 9) &&
          !getsockname(fd, (struct sockaddr *)&sa, &size));
    *port = ntohs(sa.sin_port);
    return fd;
}

static bool dials(int port)
{
    const struct sockaddr_in sa = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool up = fd >= 0 && !connect(fd, (const struct sockaddr *)&sa, sizeof sa);
    if (fd >= 0) close(fd);
    return up;
}

static int own, foreign;
static sem_t go;

static void *other_thread(void *arg)
{
    bool *reaches = arg;
    while (sem_wait(&go)) continue;
    reaches[0] = dials(own);
    reaches[1] = dials(foreign);
    return NULL;
}

static void ports(void)
{
    const struct landlock_options o = {.connect = true};
    struct landlock l;
    struct err e = {0};
    bool reaches[2] = {false, true};
    pthread_t t;
    sem_init(&go, 0, 0);
    CHECK(!pthread_create(&t, NULL, other_thread, reaches));
    CHECK(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !landlock_open(&l, &o, &e));
    CHECK(!landlock_allow_connect(&l, own, &e));
    CHECK_MSG(!landlock_enter_all(&l, &e), "%s", e.text);
    landlock_close(&l);
    sem_post(&go);
    CHECK(!pthread_join(t, NULL));
    CHECK(dials(own) && reaches[0]);
    if (landlock_abi() < LANDLOCK_PORTS) {
        printf("left out: ports: Landlock of this kernel has ABI %d\n", landlock_abi());
        return;
    }
    CHECK(!dials(foreign));
#ifndef __SANITIZE_THREAD__
    CHECK(!reaches[1]);
#endif
}

/* Checks that each thread reaches the allowed port alone. */
static void test_ports(void)
{
    const int a = listening(&own), b = listening(&foreign);
    in_child(ports);
    close(a);
    close(b);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void test_words(void)
{
    char text[SANDBOX_TEXT];
    CHECK(sandbox_mode("off") == SANDBOX_OFF && sandbox_mode("auto") == SANDBOX_AUTO);
    CHECK(sandbox_mode("require") == SANDBOX_REQUIRE && sandbox_mode("on") < 0);
    CHECK(sandbox_lacks(text, sizeof text) ==
          (landlock_abi() < LANDLOCK_SIGNALS || !seccomp_works()));
    CHECK(!strncmp(text, "this kernel", 11));
}

int main(void)
{
    if (!mkdtemp(dir)) return 1;
    RUN(test_words);
    RUN(test_reader);
    RUN(test_ports);
    file_remove(dir, NULL);
    return test_done("core_sandbox");
}
