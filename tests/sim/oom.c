/* oom.c: simulates a lack of memory. It defines malloc and the related functions for the complete
 * process. When it is armed, the n-th allocation of the product, or of a library that the product
 * calls, fails once. */
#include "tests/sim/oom.h"
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/sim/sim.h"

enum { CALLERS = 64, TURNS = 200, WALK_MAX = 4000, NONE_LEFT = 7 };

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern char __executable_start[], etext[];

struct oom oom;
void *calloc(size_t n, size_t size);

/* Notes the innermost caller that is in this program but not in this file. */
static void note_caller(void)
{
    void *at[24];
    oom.aside++;
    const int n = backtrace(at, 24);
    for (int i = 2; i < n && oom.told && !oom.told->caller; i++)
        if ((char *)at[i] >= __executable_start && (char *)at[i] < etext)
            oom.told->caller = (char *)at[i] - __executable_start;
    oom.aside--;
}

static bool fails(void)
{
    if (!oom.at || oom.aside || ++oom.n != oom.at) return false;
    note_caller();
    return true;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return fails() ? NULL : __libc_realloc(p, size);
}

void *sim_malloc(size_t size)
{
    return __libc_malloc(size);
}

void *sim_calloc(size_t n, size_t size)
{
    return __libc_calloc(n, size);
}

void *sim_realloc(void *p, size_t size)
{
    return __libc_realloc(p, size);
}

/* ---- the walk: every allocation of each request fails once ----------------------------------- */

pid_t __real_waitpid(pid_t pid, int *status, int flags);

static struct {
    int64_t caller;
    int n;
} aborts[CALLERS];

static int bad; /* crashes that are not aborts */

static void note_abort(int64_t caller)
{
    for (int i = 0; i < CALLERS; i++) {
        if (aborts[i].n && aborts[i].caller != caller) continue;
        aborts[i].caller = caller;
        aborts[i].n++;
        return;
    }
}

/* Runs in a child process, until the request is answered or the loop has run TURNS times. */
static void probe(int kind, int64_t at)
{
    clients_probe(kind);
    oom.n = 0;
    oom.at = at;
    for (int i = 0; i < TURNS && !oom.told->status; i++) {
        sim_now += 5;
        seqd_turn();
    }
    _exit(oom.n < at ? NONE_LEFT : 0);
}

/* Makes one allocation fail in a child. Returns false if there was no such allocation. */
static bool fail_one(int kind, int64_t at, int count[4])
{
    int status;
    *oom.told = (struct oom_told){0};
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) probe(kind, at);
    __real_waitpid(pid, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == NONE_LEFT) return false;
    const bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (aborted) note_abort(oom.told->caller);
    bad += WIFSIGNALED(status) && !aborted;
    if (WIFSIGNALED(status) && !aborted)
        printf("  crash: signal %d, the allocation at 0x%llx\n", WTERMSIG(status),
               (long long)oom.told->caller);
    /* Index 3 counts the processes without an answer, which their writer thread ended with status
     * 70. */
    const int how = oom.told->status >= 500 ? 1 : oom.told->status ? 0 : aborted ? 2 : 3;
    count[how]++;
    return true;
}

int oom_walk(void)
{
    void *warm[4];
    backtrace(warm, 4); /* loads the library of backtrace before allocations fail */
    oom.told = mmap(NULL, sizeof *oom.told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                    0);
    printf("%-8s %9s %9s %9s %9s\n", "request", "answered", "refused", "aborted", "ended");
    static const char *const names[] = {"submit", "cancel", "show", "list", "events", "metrics"};
    for (int k = 0; k < (int)(sizeof names / sizeof *names); k++) {
        int count[4] = {0};
        for (int64_t at = 1; at < WALK_MAX && fail_one(k, at, count); at++) continue;
        printf("%-8s %9d %9d %9d %9d\n", names[k], count[0], count[1], count[2], count[3]);
    }
    for (int i = 0; i < CALLERS && aborts[i].n; i++)
        printf("  0x%llx aborts %d\n", (long long)aborts[i].caller, aborts[i].n);
    printf("oom: %d passed, %d failed\n", (int)(sizeof names / sizeof *names), bad);
    return bad ? 1 : 0;
}
