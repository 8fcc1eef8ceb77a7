/* test_gang_sandbox: puts a program in the place of a rank that tries to reach other jobs, seqw
 * and the machine, and does the work of ranks. seqgang starts it with the sandbox, and once
 * without, where all of this must be possible: else the test would prove nothing. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/landlock.h"
#include "tests/lib/fake_rank.h"
#include "tests/lib/test.h"
#include "worker/gang/gang.h"

/* ---- the program in a rank's place ----------------------------------------------------------- */

static const char *top;   /* the directory of all files of the test; its name is in TEST_TOP */
static pid_t other;       /* a process of this user that is no rank of the attempt; TEST_OTHER */
static int32_t listening; /* a port that is no rank's; TEST_PORT */
static char secret[] = "a key in another's memory";
static char *at_other; /* its address in the other process; TEST_SECRET */

static const char *in(const char *name)
{
    static char path[4][512];
    static int i;
    i = (i + 1) % 4;
    snprintf(path[i], sizeof path[i], "%s/%s", top, name);
    return path[i];
}

static bool opens(const char *name, int flags)
{
    const int fd = open(in(name), flags | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static bool opens_of(const char *file)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)other, file);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char c;
    const bool got = fd >= 0 && pread(fd, &c, 1, (off_t)(intptr_t)at_other) == 1;
    if (fd >= 0) close(fd);
    return got;
}

static bool lists(const char *name)
{
    DIR *d = opendir(in(name));
    if (d) closedir(d);
    return d;
}

static bool vm_read(void)
{
    char got[sizeof secret];
    const struct iovec to = {got, sizeof got}, from = {at_other, sizeof secret};
    return process_vm_readv(other, &to, 1, &from, 1, 0) > 0;
}

static bool attaches(void)
{
    if (ptrace(PTRACE_SEIZE, other, 0, 0)) return false;
    ptrace(PTRACE_INTERRUPT, other, 0, 0);
    waitpid(other, NULL, __WALL);
    ptrace(PTRACE_DETACH, other, 0, 0);
    return true;
}

static bool forks(void)
{
    const pid_t pid = fork();
    if (pid == 0) _exit(0);
    if (pid > 0) waitpid(pid, NULL, 0);
    return pid > 0;
}

static void *nothing(void *arg)
{
    return arg;
}

static bool threads(void)
{
    pthread_t t;
    return !pthread_create(&t, NULL, nothing, NULL) && !pthread_join(t, NULL);
}

static bool makes_socket(int family, int type, int protocol)
{
    const int fd = socket(family, type | SOCK_CLOEXEC, protocol);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

static bool dials_path(const char *name)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(sun.sun_path, sizeof sun.sun_path, "%s", in(name));
    const bool up = fd >= 0 && !connect(fd, (struct sockaddr *)&sun, sizeof sun);
    if (fd >= 0) close(fd);
    return up;
}

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static bool binds(int port)
{
    const struct sockaddr_in sa = loopback(port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool bound = fd >= 0 && !bind(fd, (const struct sockaddr *)&sa, sizeof sa);
    if (fd >= 0) close(fd);
    return bound;
}

/* A port that is free for the moment. */
static int free_port(void)
{
    struct sockaddr_in sa = loopback(0);
    socklen_t size = sizeof sa;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool got = fd >= 0 && !bind(fd, (struct sockaddr *)&sa, sizeof sa) &&
                     !getsockname(fd, (struct sockaddr *)&sa, &size);
    if (fd >= 0) close(fd);
    return got ? ntohs(sa.sin_port) : 1;
}

static bool dials(void)
{
    const struct sockaddr_in sa = loopback(listening);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool up = fd >= 0 && !connect(fd, (const struct sockaddr *)&sa, sizeof sa);
    if (fd >= 0) close(fd);
    return up;
}

static bool writes(const char *name)
{
    char old[600], new[600];
    snprintf(old, sizeof old, "%s/x.tmp", in(name));
    snprintf(new, sizeof new, "%s/x", in(name));
    const int fd = open(old, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool wrote = fd >= 0 && write(fd, "x", 1) == 1 && !fchmod(fd, 0400) && !fsync(fd);
    if (fd >= 0) close(fd);
    return wrote && !rename(old, new) && !unlink(new);
}

static bool limits_other(void)
{
    struct rlimit l;
    return !prlimit(other, RLIMIT_NOFILE, NULL, &l);
}

static void try(const char *what, bool reached)
{
    printf("%s: %s\n", what, reached ? "reached" : "refused");
}

/* Tries calls that are always refused, with arguments that would fail with another error. */
static void try_calls(void)
{
    static const struct {
        const char *name;
        long number;
    } calls[] = {
        {"bpf", SYS_bpf},
        {"perf_event_open", SYS_perf_event_open},
        {"keyctl", SYS_keyctl},
        {"userfaultfd", SYS_userfaultfd},
        {"mount", SYS_mount},
        {"io_uring_setup", SYS_io_uring_setup},
        {"shmget", SYS_shmget},
        {"open_by_handle_at", SYS_open_by_handle_at},
        {"setns", SYS_setns},
        {"init_module", SYS_init_module},
        {"kcmp", SYS_kcmp},
        {"pidfd_getfd", SYS_pidfd_getfd},
        {"unshare", SYS_unshare},
        {"socketpair", SYS_socketpair},
        {"sched_setaffinity", SYS_sched_setaffinity},

    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        errno = 0;
        const long rc = syscall(calls[i].number, -1, 0, -1, -1, -1, -1);
        printf("call %s: %s\n", calls[i].name, rc < 0 && errno == EPERM ? "refused" : "reached");
    }
#ifdef __x86_64__
    errno = 0;
    syscall(SYS_getpid | 0x40000000);
    printf("call of x32: %s\n", errno == EPERM ? "refused" : "reached");
#endif
}

static void attack(void)
{
    try("node.key", opens("state/pki/node.key", O_RDONLY));
    try("truncate", !truncate(in("state/pki/node.key"), 4));
    try("chmod", !chmod(in("state/pki/node.key"), 0600));
    try("state directory", lists("state"));
    try("checkpoint", opens("state/jobs/8/checkpoints/w", O_RDONLY));
    try("write to a checkpoint", opens("state/jobs/8/checkpoints/w", O_WRONLY));
    try("remove a checkpoint", !unlink(in("state/jobs/8/checkpoints/v")));
    try("prepared data", opens("state/prepared/bb/data", O_RDONLY));
    try("private directory", opens("root/hidden/w", O_RDONLY));
    try("write to a root", opens("root/new", O_WRONLY | O_CREAT));
    try("elsewhere", opens("elsewhere", O_RDONLY));
    try("memory", opens_of("mem"));
    try("process_vm_readv", vm_read());
    try("ptrace", attaches());
    try("limits", limits_other());
    try("signal", !kill(other, 0));
    try("fork", forks());
    try("socket of seqd", dials_path("state/seqd.sock"));
    try("datagram", makes_socket(AF_INET, SOCK_DGRAM, 0));
    try("netlink", makes_socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
    try("port to bind", binds(free_port()));
}

static void work(void)
{
    char line[64];
    FILE *f = fopen("/proc/self/status", "r");
    printf("status: %s\n", f && fgets(line, sizeof line, f) ? "works" : "fails");
    if (f) fclose(f);
    static const struct {
        const char *what, *name;
        int flags;
    } files[] = {{"model", "root/model/config.json", O_RDONLY},
                 {"prepared", "state/prepared/aa/data", O_RDONLY},
                 {"grant", "root/hidden/mine/w", O_RDONLY},
                 {"null", "../../dev/null", O_RDWR}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        printf("%s: %s\n", files[i].what, opens(files[i].name, files[i].flags) ? "works" : "fails");
    printf("list: %s\n", lists("root") && lists("root/model") ? "works" : "fails");
    printf("job: %s\n", writes("state/jobs/7") ? "works" : "fails");
    printf("results: %s\n", writes("out") ? "works" : "fails");
    printf("threads: %s\n", threads() ? "works" : "fails");
    printf("memfd: %s\n", memfd_create("m", 0) >= 0 ? "works" : "fails");
}

static int rank_main(void)
{
    static struct fake_order o;
    top = getenv("TEST_TOP");
    other = atoi(getenv("TEST_OTHER"));
    listening = atoi(getenv("TEST_PORT"));
    at_other = (char *)(intptr_t)strtoll(getenv("TEST_SECRET"), NULL, 10);
    prctl(PR_SET_DUMPABLE, 0); /* as seqrank's first act; /proc/self stays its own */
    fake_receive(RANK_ARGS, &o, sizeof o);
    work();
    attack();
    try_calls();
    try("port to connect to", dials());
    try("MPTCP", makes_socket(AF_INET, SOCK_STREAM, 262));
    printf("stream: %s\n", makes_socket(AF_INET, SOCK_STREAM, 0) ? "works" : "fails");
    printf("any port: %s\n", binds(0) ? "works" : "fails");
    printf("restricts itself: %d\n", (int)o.args.confined);
    fflush(stdout);
    return 0;
}

/* ---- the attempt ----------------------------------------------------------------------------- */

static char dir[64];
static struct gang_start start;
static int sock;

static void make(const char *name)
{
    struct err e;
    char path[512];
    snprintf(path, sizeof path, "%s", in(name));
    *strrchr(path, '/') = 0;
    CHECK_MSG(!file_make_dir(path, &e) && !file_write(in(name), "data", 4, &e), "%s", e.text);
}

static void make_tree(void)
{
    static const char *const files[] = {
        "state/pki/node.key",
        "state/.seqd-private",
        "state/jobs/7/checkpoints/w",
        "state/prepared/aa/data",
        "state/jobs/8/checkpoints/w",
        "state/jobs/8/checkpoints/v",
        "state/prepared/bb/data",
        "root/model/config.json",
        "root/hidden/.seqd-private",
        "root/hidden/w",
        "root/hidden/mine/w",
        "out/w",
        "elsewhere",
        "state/gangs/7-e2/w",
    };
    snprintf(dir, sizeof dir, "/tmp/seqd-sandbox-XXXXXX");
    assert(mkdtemp(dir));
    top = dir;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) make(files[i]);
}

static void start_fill(int mode, int n_ranks)
{
    memset(&start, 0, sizeof start);
    start = (struct gang_start){.abi = RANK_ABI,
                                .task = TASK_RUN,
                                .job = 7,
                                .epoch = 2,
                                .n_ranks = n_ranks,
                                .n_local = 1,
                                .n_roots = 1,
                                .n_writable = 1,
                                .n_grants = 1,
                                .sandbox = mode};
    start.spec.limits.init_timeout_s = start.spec.limits.step_timeout_s = 600;
    start.spec.text_used = 1;
    snprintf(start.roots[0], RANK_PATH_SIZE, "%s", in("root"));
    snprintf(start.writable[0], RANK_PATH_SIZE, "%s", in("out"));
    snprintf(start.grants[0], RANK_PATH_SIZE, "%s", in("root/hidden/mine"));
    snprintf(start.prepared_dir, RANK_PATH_SIZE, "%s", in("state/prepared"));
    snprintf(start.state_dir, RANK_PATH_SIZE, "%s", in("state"));
    snprintf(start.prepared_id, sizeof start.prepared_id, "aa");
    snprintf(start.job_dir, RANK_PATH_SIZE, "%s", in("state/jobs/7"));
    const ssize_t n = readlink("/proc/self/exe", start.seqrank, sizeof start.seqrank - 1);
    assert(n > 0);
}

static void run_gang(void)
{
    struct err e = {0};
    struct loop *l = loop_create(NULL, NULL, &e);
    struct gang *g = gang_create(l, in("state/gangs/7-e2"), &e);
    if (!g) printf("%s\n", e.text), exit(1);
    loop_run(l);
    gang_destroy(g);
    loop_destroy(l);
    exit(0);
}

/* Listens on a Unix socket in the state directory, and on a port of loopback. */
static void listen_all(void)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    struct sockaddr_in sa = loopback(0);
    socklen_t size = sizeof sa;
    char port[16];
    const int un = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(sun.sun_path, sizeof sun.sun_path, "%s", in("state/seqd.sock"));
    CHECK(!bind(un, (struct sockaddr *)&sun, sizeof sun) && !listen(un, 9));
    sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!bind(sock, (struct sockaddr *)&sa, sizeof sa) && !listen(sock, 9) &&
          !getsockname(sock, (struct sockaddr *)&sa, &size));
    snprintf(port, sizeof port, "%d", ntohs(sa.sin_port));
    setenv("TEST_PORT", port, 1);
}

/* Runs an attempt of one rank here, and others elsewhere. Returns the output of its rank 0,
 * which the caller frees. */
static char *life(int mode, int n_ranks)
{
    char path[512], pid_text[16], at[32];
    struct err e;
    make_tree();
    start_fill(mode, n_ranks);
    CHECK_MSG(!gang_start_write(in("state/gangs/7-e2/start"), &start, &e), "%s", e.text);
    listen_all();
    snprintf(pid_text, sizeof pid_text, "%d", (int)getpid());
    setenv("TEST_TOP", dir, 1);
    setenv("TEST_OTHER", pid_text, 1);
    snprintf(at, sizeof at, "%lld", (long long)(intptr_t)secret);
    setenv("TEST_SECRET", at, 1);
    fflush(stdout);
    const pid_t pid = fork();
    if (!pid) run_gang();
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
    snprintf(path, sizeof path, "%s", in("state/gangs/7-e2/rank-0.log"));
    char *log = file_read(path, 1 << 16, NULL, &e);
    assert(log);
    close(sock);
    file_remove(dir, NULL);
    return log;
}

static bool says(const char *log, const char *what, const char *how)
{
    char line[128];
    snprintf(line, sizeof line, "%s: %s\n", what, how);
    const char *at = strstr(log, line);
    return at && (at == log || at[-1] == '\n');
}

static void expect(const char *log, const char *what, const char *how)
{
    CHECK_MSG(says(log, what, how), "%s is not %s", what, how);
}

/* The attempts of attack(), and where the kernel must have this ABI of Landlock to refuse them. */
static const struct {
    const char *what;
    int abi;
} attempts[] = {
    {"node.key", LANDLOCK_FILES},
    {"truncate", 0},
    {"chmod", 0},
    {"state directory", LANDLOCK_FILES},
    {"checkpoint", LANDLOCK_FILES},
    {"write to a checkpoint", LANDLOCK_FILES},
    {"remove a checkpoint", LANDLOCK_FILES},
    {"prepared data", LANDLOCK_FILES},
    {"private directory", LANDLOCK_FILES},
    {"write to a root", LANDLOCK_FILES},
    {"elsewhere", LANDLOCK_FILES},
    {"memory", LANDLOCK_FILES},
    {"process_vm_readv", 0},
    {"ptrace", 0},
    {"limits", 0},
    {"signal", LANDLOCK_SIGNALS},
    {"fork", 0},
    {"socket of seqd", 0},
    {"datagram", 0},
    {"netlink", 0},
    {"port to bind", LANDLOCK_PORTS},
};
enum { N_ATTEMPTS = sizeof attempts / sizeof *attempts };

static void check_work(const char *log)
{
    static const char *const works[] = {"status", "model", "prepared", "grant",   "null",
                                        "list",   "job",   "results",  "threads", "memfd"};
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) expect(log, works[i], "works");
}

static void check_refused(const char *log)
{
    const int abi = landlock_abi();
    for (int i = 0; i < N_ATTEMPTS; i++) {
        if (SANITIZED && !strcmp(attempts[i].what, "fork")) continue;
        if (abi >= attempts[i].abi)
            expect(log, attempts[i].what, "refused");
        else
            printf("left out: %s: Landlock of this kernel has ABI %d, and %d refuses it\n",
                   attempts[i].what, abi, attempts[i].abi);
    }
    for (const char *at = log; (at = strstr(at, "\ncall ")); at++)
        CHECK_MSG(!memcmp(strchr(at, ':'), ": refused", 9), "%.40s", at + 1);
}

/* Without the sandbox all of it can be done. */
static void test_off(void)
{
    char *log = life(SANDBOX_OFF, 1);
    check_work(log);
    for (int i = 0; i < N_ATTEMPTS; i++) expect(log, attempts[i].what, "reached");
    expect(log, "port to connect to", "reached");
    expect(log, "restricts itself", "0");
    free(log);
}

static void test_alone(void)
{
    char *log = life(SANDBOX_AUTO, 1);
    check_work(log);
    check_refused(log);
    expect(log, "stream", "fails");
    expect(log, "port to connect to", "refused");
    expect(log, "restricts itself", "0");
    free(log);
}

/* Checks a rank with peers on another node. It restricts itself to their ports later. */
static void test_peers(void)
{
    char *log = life(SANDBOX_AUTO, 2);
    check_work(log);
    check_refused(log);
    expect(log, "stream", "works");
    expect(log, "any port", "works");
    expect(log, "MPTCP", "refused");
    expect(log, "restricts itself", "1");
    free(log);
}

int main(int argc, char **argv)
{
    if (fake_rank_is(argv)) return rank_main();
    alarm(300); /* only ends a test that would hang */
    RUN(test_off);
    RUN(test_alone);
    RUN(test_peers);
    return test_done("sandbox");
}
