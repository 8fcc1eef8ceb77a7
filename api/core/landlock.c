/* landlock.c: calls Landlock's three system calls. The bits are written out here, because headers
 * of older systems end with those of their own kernel. */
#include "api/core/landlock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "api/core/clock.h"

#ifndef SYS_landlock_create_ruleset /* the same number on every architecture */
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif

/* The sanitizer of threads calls handlers only where it knows that a thread waits. */
#ifdef __SANITIZE_THREAD__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { RULE_PATH = 1, RULE_PORT = 2, VERSION = 1 };
enum { BIND = 1, CONNECT = 2, ABSTRACT = 1, SIGNALS = 2 };
enum {
    EXECUTE = 1 << 0,
    WRITE_FILE = 1 << 1,
    READ_FILE = 1 << 2,
    READ_DIR = 1 << 3,
    REMOVE_DIR = 1 << 4,
    REMOVE_FILE = 1 << 5,
    MAKE_DIR = 1 << 7,
    MAKE_REG = 1 << 8,
    MAKE_SYM = 1 << 12,
    REFER = 1 << 13,
    TRUNCATE = 1 << 14,
    IOCTL_DEV = 1 << 15,
    OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV /* not of directories */
};

static const uint64_t rights[] = {
    [LANDLOCK_READ] = EXECUTE | READ_FILE | READ_DIR,
    [LANDLOCK_NAMES] = READ_DIR,
    [LANDLOCK_WRITE] = READ_FILE | READ_DIR | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR |
                       MAKE_REG | MAKE_SYM | REFER | TRUNCATE,
    [LANDLOCK_DEVICE] = READ_FILE | READ_DIR | WRITE_FILE | IOCTL_DEV,
};

struct ruleset {
    uint64_t files, net, scoped;
};
struct path_rule {
    uint64_t allowed;
    int32_t fd;
} __attribute__((packed));
struct port_rule {
    uint64_t allowed, port;
};

int landlock_abi(void)
{
    const long n = syscall(SYS_landlock_create_ruleset, NULL, 0, VERSION);
    return n > 0 ? (int)n : 0;
}

static uint64_t all_files(int abi)
{
    const int n = abi >= 5 ? 16 : abi >= 3 ? 15 : 14;
    return ((uint64_t)1 << n) - 1;
}

int landlock_open(struct landlock *l, const struct landlock_options *o, struct err *e)
{
    struct ruleset r = {0};
    *l = LANDLOCK_NONE;
    l->abi = landlock_abi();
    if (l->abi >= LANDLOCK_FILES && o->files) r.files = all_files(l->abi);
    if (l->abi >= LANDLOCK_PORTS) r.net = (o->bind ? BIND : 0) | (o->connect ? CONNECT : 0);
    if (l->abi >= LANDLOCK_SIGNALS)
        r.scoped = (o->signals ? SIGNALS : 0) | (o->abstract ? ABSTRACT : 0);
    l->files = r.files;
    if (!r.files && !r.net && !r.scoped) return 0;
    /* kernels that know fewer members accept the others as long as they are 0 */
    l->fd = (int)syscall(SYS_landlock_create_ruleset, &r, sizeof r, 0);
    return l->fd < 0 ? err_errno(e, "make rules of Landlock") : 0;
}

int landlock_allow_fd(const struct landlock *l, int fd, enum landlock_files what, struct err *e)
{
    struct stat st;
    struct path_rule rule = {.allowed = rights[what] & l->files, .fd = fd};
    if (l->fd < 0 || !rule.allowed) return 0;
    if (fstat(fd, &st)) return err_errno(e, "look at a path for Landlock");
    if (!S_ISDIR(st.st_mode)) rule.allowed &= OF_FILES;
    if (!rule.allowed) return 0;
    return syscall(SYS_landlock_add_rule, l->fd, RULE_PATH, &rule, 0)
               ? err_errno(e, "allow a path by Landlock")
               : 0;
}

int landlock_allow(const struct landlock *l, const char *path, enum landlock_files what,
                   struct err *e)
{
    if (l->fd < 0) return 0;
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return 0; /* this process cannot reach it, so the domain cannot either */
    const int rc = landlock_allow_fd(l, fd, what, e);
    close(fd);
    return rc ? err_prefix(e, "%s", path) : 0;
}

static int allow_port(const struct landlock *l, uint64_t what, int port, struct err *e)
{
    const struct port_rule rule = {what, (uint64_t)port};
    if (l->fd < 0 || l->abi < LANDLOCK_PORTS) return 0;
    return syscall(SYS_landlock_add_rule, l->fd, RULE_PORT, &rule, 0)
               ? err_errno(e, "allow port %d by Landlock", port)
               : 0;
}

int landlock_allow_bind(const struct landlock *l, int port, struct err *e)
{
    return allow_port(l, BIND, port, e);
}

int landlock_allow_connect(const struct landlock *l, int port, struct err *e)
{
    return allow_port(l, CONNECT, port, e);
}

int landlock_enter(const struct landlock *l)
{
    return l->fd < 0 ? 0 : (int)syscall(SYS_landlock_restrict_self, l->fd, 0);
}

/* ---- all threads ----------------------------------------------------------------------------- */

enum { ALL_THREADS = 1 << 3, WAIT_MS = 5000 }; /* a flag of ABI 8 */

/* The work of the handler, for the time of one call of landlock_enter_all. */
static struct {
    int fd, n_done, n_failed;
} asked;

static void on_asked(int signo)
{
    const int saved = errno;
    if (syscall(SYS_landlock_restrict_self, asked.fd, 0))
        __atomic_add_fetch(&asked.n_failed, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&asked.n_done, 1, __ATOMIC_SEQ_CST);
    errno = saved;
}

/* Asks every other thread. Returns their number, or -1 with errno. */
static int ask_threads(void)
{
    DIR *d = opendir("/proc/self/task");
    const struct dirent *ent;
    int n = 0;
    while (d && (ent = readdir(d))) {
        const pid_t tid = (pid_t)atoi(ent->d_name);
        if (tid > 0 && tid != gettid() && !tgkill(getpid(), tid, SIGUSR2)) n++;
    }
    if (!d) return -1;
    closedir(d);
    return n;
}

static int enter_each(struct err *e)
{
    const int64_t until_ms = clock_ms() + WAIT_MS;
    const int n = ask_threads();
    if (n < 0) return err_errno(e, "list the threads of this process");
    while (__atomic_load_n(&asked.n_done, __ATOMIC_SEQ_CST) < n) {
        if (clock_ms() > until_ms)
            return err_set(e, ERR_TIMEOUT, "a thread did not enter the sandbox within %d ms",
                           WAIT_MS);
        sched_yield();
    }
    return asked.n_failed ? err_set(e, ERR_IO, "a thread cannot enter the sandbox") : 0;
}

int landlock_enter_all(const struct landlock *l, struct err *e)
{
    struct sigaction act = {.sa_handler = on_asked, .sa_flags = SA_RESTART}, before;
    int rc = 0;
    if (l->fd < 0) return 0;
    if (l->abi >= LANDLOCK_THREADS)
        return syscall(SYS_landlock_restrict_self, l->fd, ALL_THREADS)
                   ? err_errno(e, "enter the sandbox with all threads")
                   : 0;
    asked.fd = l->fd;
    asked.n_done = asked.n_failed = 0;
    sigaction(SIGUSR2, &act, &before);
    if (!SANITIZED) rc = enter_each(e);
    sigaction(SIGUSR2, &before, NULL);
    if (!rc && landlock_enter(l)) rc = err_errno(e, "enter the sandbox");
    return rc;
}

void landlock_close(struct landlock *l)
{
    if (l->fd >= 0) close(l->fd);
    *l = LANDLOCK_NONE;
}
