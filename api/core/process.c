/* process.c: reads /proc/PID/stat, the stat of each thread, and /proc/PID/io, and opens
 * descriptors 0, 1 and 2 before any other code runs. */
#include "api/core/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "api/core/log.h"

static void open_standard(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) _exit(127);
}

/* Opens the descriptors before the constructors of the program's libraries run. Builds with a
 * sanitizer leave this function out, because the sanitizer must run first. */
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
static void (*const first)(void) __attribute__((section(".preinit_array"), used)) = open_standard;
#endif

void process_begin(void)
{
    open_standard();
    signal(SIGXFSZ, SIG_IGN);
}

void process_hide(void)
{
    const int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    struct rlimit core;
    /* no core at all, because even registers have bytes of a text that is copied */
    if (!getrlimit(RLIMIT_CORE, &core)) {
        core.rlim_cur = 0;
        setrlimit(RLIMIT_CORE, &core);
    }
    /* a kernel that writes no cores has no such file */
    if (fd < 0 ? errno != ENOENT : write(fd, "0", 1) < 0)
        log_warn("process.hide", "errno=%d: cores of this process may have requests", errno);
    if (fd >= 0) close(fd);
}

/* Reads the file `stat` of a process or of a thread. */
static int read_stat(const char *path, struct process_stat *out)
{
    char text[1024];
    long long user = 0, system = 0, start = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) return -1;
    text[n] = 0;
    /* The text is "pid (name) state ...". The name may contain any byte, so reading starts after
     * the last parenthesis. Fields 14 and 15 are user and system time, and field 22 is the start
     * time (proc(5)). */
    char *p = strrchr(text, ')');
    char state = 0;
    if (!p ||
        sscanf(p + 1,
               " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %*d %*d %*d %*d %*d %*d "
               "%lld",
               &state, &user, &system, &start) != 4)
        return -1;
    *out = (struct process_stat){state, (user + system) * 1000 / sysconf(_SC_CLK_TCK), start};
    return 0;
}

int process_stat(int pid, struct process_stat *out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    return read_stat(path, out);
}

int process_runnable(int pid)
{
    char path[64 + NAME_MAX];
    struct process_stat s;
    int runnable = 0;
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *dir = opendir(path);
    for (struct dirent *ent; dir && !runnable && (ent = readdir(dir));) {
        if (ent->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "/proc/%d/task/%s/stat", pid, ent->d_name);
        runnable = !read_stat(path, &s) && s.state == 'R';
    }
    if (dir) closedir(dir);
    return runnable;
}

/* Returns the sum of the numbers that stand after the names [n] in lines of a file of the process.
 * Returns 0 if there is no such file. */
static int64_t sum_lines(int pid, const char *file, const char *const *names, int n)
{
    char path[64], line[128];
    int64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f))
        for (int i = 0; i < n; i++) {
            const size_t size = strlen(names[i]);
            if (!strncmp(line, names[i], size)) sum += strtoll(line + size, NULL, 10);
        }
    if (f) fclose(f);
    return sum;
}

int64_t process_moved(int pid)
{
    static const char *const names[] = {"rchar:", "wchar:", "read_bytes:", "write_bytes:"};
    return sum_lines(pid, "io", names, 4);
}

int64_t process_switches(int pid)
{
    static const char *const names[] = {"voluntary_ctxt_switches:", "nonvoluntary_ctxt_switches:"};
    return sum_lines(pid, "status", names, 2);
}

int process_alive(int pid, int64_t start_time)
{
    struct process_stat s;
    return process_stat(pid, &s) == 0 && s.start_time == start_time && s.state != 'Z' &&
           s.state != 'X';
}
