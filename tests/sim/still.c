/* still.c: a cluster in which nothing happens. If some work is repeated without end, the number of
 * sessions, certificates, timers, files, descriptors or events grows. */
#include <dirent.h>
#include <ftw.h>
#include "api/core/loop.h"
#include "tests/sim/sim.h"

enum { SESSIONS, CERTIFICATES, EVENTS, TIMERS, FILES, DESCRIPTORS, THINGS };

static const char *const names[THINGS] = {"sessions opened", "certificates", "events",
                                          "timers",          "files",        "open descriptors"};
static int64_t before[THINGS], n_timers, n_files;

struct loop_timer *__real_loop_timer_create(struct loop *l, loop_call *call, void *arg);
void __real_loop_timer_destroy(struct loop_timer *t);
struct loop_timer *__wrap_loop_timer_create(struct loop *l, loop_call *call, void *arg);
void __wrap_loop_timer_destroy(struct loop_timer *t);

struct loop_timer *__wrap_loop_timer_create(struct loop *l, loop_call *call, void *arg)
{
    n_timers++;
    return __real_loop_timer_create(l, call, arg);
}

void __wrap_loop_timer_destroy(struct loop_timer *t)
{
    n_timers -= t != NULL;
    __real_loop_timer_destroy(t);
}

static int count_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    n_files++;
    return 0;
}

static int64_t count_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int64_t n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

static void count(int64_t out[THINGS])
{
    n_files = 0;
    nftw(sim_dir(), count_one, 16, FTW_PHYS);
    out[SESSIONS] = net_opened();
    out[CERTIFICATES] = check_count("certificates");
    out[EVENTS] = check_count("events");
    out[TIMERS] = n_timers;
    out[FILES] = n_files;
    out[DESCRIPTORS] = count_descriptors();
}

void still_begin(void)
{
    count(before);
}

void still_end(void)
{
    int64_t now[THINGS];
    count(now);
    for (int i = 0; i < THINGS; i++)
        if (now[i] > before[i])
            sim_broken("still", 0, "nothing happened for %d s, and %s were %lld and are %lld",
                       STILL_MS / 1000, names[i], (long long)before[i], (long long)now[i]);
}
