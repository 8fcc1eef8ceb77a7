/* cgroup.c: makes, limits, joins, kills and removes control groups by mkdir, rmdir and writes to
 * the groups' files. If a step fails, this is logged, and the attempt runs without a group. */
#include "api/core/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/log.h"

/* The mount points of cgroup v2, when it is mounted alone and when it is mounted beside v1. */
static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

#define AGENT "/agent" /* seqw's own group, beneath the delegated one */

enum { N_CONTROLLERS = 2, N_RECORDS = 3 };
/* The controllers, in the order of their bits. `limit` is the file of v2, old_limit that of v1, and
 * `record` the file in the attempt's directory that names a group of v1. */
static const struct {
    const char *name, *on, *limit, *old_limit, *record;
} kind[N_CONTROLLERS] = {
    {"memory", "+memory", "memory.max", "memory.limit_in_bytes", "cgroup.memory"},
    {"pids", "+pids", "pids.max", "pids.max", "cgroup.pids"},
};
static const char *const records[N_RECORDS] = {"cgroup", "cgroup.memory", "cgroup.pids"};

/* Tells whether systemd delegated the group. systemd marks such a group by the attribute
 * user.delegate. If the kernel's cgroup file system has no user attributes, systemd uses
 * trusted.delegate, which only root can read. */
static bool is_delegated(const char *path)
{
    char mark[4] = "";
    return (getxattr(path, "user.delegate", mark, sizeof mark) == 1 ||
            getxattr(path, "trusted.delegate", mark, sizeof mark) == 1) &&
           *mark == '1';
}

const char *cgroup_given(void)
{
    const char *given = getenv("SEQD_CGROUP");
    return given && *given ? given : NULL;
}

static bool ends_with(const char *path, const char *end)
{
    const size_t n = strlen(path), m = strlen(end);
    return n > m && !strcmp(path + n - m, end);
}

/* Tells whether the group `path` is delegated. If not, but it is the child `agent` of a delegated
 * group, as seqw's is, cuts that part off. */
static bool take_delegated(char path[FILE_PATH_SIZE])
{
    if (is_delegated(path)) return true;
    if (!ends_with(path, AGENT)) return false;
    path[strlen(path) - strlen(AGENT)] = 0;
    return is_delegated(path);
}

/* Finds the group in which this process may make groups. */
static bool own_group(char out[FILE_PATH_SIZE])
{
    char line[FILE_PATH_SIZE];
    const char *given = cgroup_given();
    if (given) return file_join(out, NULL, "%s", given) >= 0;
    FILE *f = fopen("/proc/self/cgroup", "re");
    bool found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "0::", 3)) continue;
        for (size_t i = 0; i < sizeof mounts / sizeof *mounts && !found; i++)
            found = file_join(out, NULL, "%s%s", mounts[i], line + 3) >= 0 && take_delegated(out);
    }
    if (f) fclose(f);
    return found;
}

/* Finds this process's group of a controller of v1. In a container its path may be one of the
 * host; then only the mount is there. */
static bool old_group(const char *controller, char out[FILE_PATH_SIZE])
{
    char line[FILE_PATH_SIZE], key[32];
    FILE *f = cgroup_given() ? NULL : fopen("/proc/self/cgroup", "re");
    bool found = false;
    snprintf(key, sizeof key, ":%s:", controller);
    while (f && !found && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        const char *at = strstr(line, key);
        if (!at) continue;
        found = (file_join(out, NULL, "/sys/fs/cgroup/%s%s", controller, at + strlen(key)) >= 0 &&
                 !access(out, W_OK)) ||
                (file_join(out, NULL, "/sys/fs/cgroup/%s", controller) >= 0 && !access(out, W_OK));
    }
    if (f) fclose(f);
    return found;
}

static int write_file(const char *group, const char *name, const char *word)
{
    char path[FILE_PATH_SIZE];
    const int fd = file_join(path, NULL, "%s/%s", group, name) < 0
                       ? -1
                       : open(path, O_WRONLY | O_CLOEXEC);
    const bool written = fd >= 0 && write(fd, word, strlen(word)) >= 0;
    const int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return written ? 0 : -1;
}

/* Returns the text of a group's file, which the caller frees, or NULL. The kernel says no size of
 * such a file. */
static char *read_text(const char *group, const char *name)
{
    enum { MOST = 1 << 18 };
    char path[FILE_PATH_SIZE], *text = NULL;
    FILE *f = file_join(path, NULL, "%s/%s", group, name) < 0 ? NULL : fopen(path, "re");
    if (f && (text = malloc(MOST))) text[fread(text, 1, MOST - 1, f)] = 0;
    if (f) fclose(f);
    return text;
}

/* ---- seqw's own group ------------------------------------------------------------------------ */

/* Moves this process into the child `agent`. A group of a service that systemd starts again is left
 * as it is: systemd would have to start the next process in a group that can keep none. */
static bool move_down(const char *base, char *why, size_t size)
{
    char path[FILE_PATH_SIZE];
    if (ends_with(base, ".service")) {
        snprintf(why, size,
                 "seqw is in its unit's own control group: DelegateSubgroup=agent of systemd 254 "
                 "puts it into a child");
        return false;
    }
    if (file_join(path, NULL, "%s" AGENT, base) >= 0 && (!mkdir(path, 0755) || errno == EEXIST) &&
        !write_file(path, "cgroup.procs", "0"))
        return true;
    snprintf(why, size, "move into the control group %.160s" AGENT ": %s", base, strerror(errno));
    return false;
}

static bool is_in(const char *base)
{
    char line[FILE_PATH_SIZE];
    FILE *f = fopen("/proc/self/cgroup", "re");
    bool in = false;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        in = in || (!strncmp(line, "0::", 3) && ends_with(base, line + 3));
    }
    if (f) fclose(f);
    return in;
}

/* Enables the controllers beneath the group. Returns those that are enabled. */
static int enable(const char *base)
{
    for (int i = 0; i < N_CONTROLLERS; i++) write_file(base, "cgroup.subtree_control", kind[i].on);
    char *text = read_text(base, "cgroup.subtree_control");
    int can = 0;
    for (int i = 0; text && i < N_CONTROLLERS; i++)
        if (strstr(text, kind[i].name)) can |= 1 << i;
    free(text);
    return can;
}

int cgroup_begin(char *why, size_t size)
{
    char base[FILE_PATH_SIZE];
    int can = 0;
    snprintf(why, size, "no control group is delegated to seqw");
    if (own_group(base) && (cgroup_given() || !is_in(base) || move_down(base, why, size)))
        can = enable(base);
    for (int i = 0; i < N_CONTROLLERS; i++)
        if (old_group(kind[i].name, base)) can |= 1 << i;
    return can;
}

/* ---- an attempt's groups --------------------------------------------------------------------- */

int cgroup_make(const char *dir, int64_t job, int64_t epoch)
{
    char base[FILE_PATH_SIZE], group[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    struct err e = {0};
    if (!own_group(base)) return 0;
    if (file_join(group, &e, "%s/attempt-%lld-e%lld", base, (long long)job, (long long)epoch) >=
            0 &&
        file_join(path, &e, "%s/cgroup", dir) >= 0) {
        /* Write the record before making the group. Otherwise a crash or a full disk could leave a
         * group that no file names, and that group would never be removed. */
        const bool named = !file_write(path, group, strlen(group), &e);
        if (named && (!mkdir(group, 0755) || errno == EEXIST)) return 1;
        if (named) err_errno(&e, "make the control group %s", group), unlink(path);
    }
    log_warn("cgroup.make", "job=%lld epoch=%lld text=\"%s: the attempt has no group of its own\"",
             (long long)job, (long long)epoch, e.text);
    return 0;
}

/* Returns the path of a group of the attempt, which the caller frees, or NULL if it has none. */
static char *group_of(const char *dir, const char *record)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, NULL, "%s/%s", dir, record) < 0 || !file_exists(path)) return NULL;
    return file_read(path, FILE_PATH_SIZE, NULL, NULL);
}

/* Makes a group of v1. Its name is one that no other agent of this machine gives. */
static char *make_old(const char *dir, int i, int64_t job, int64_t epoch)
{
    char base[FILE_PATH_SIZE], group[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    if (!old_group(kind[i].name, base) ||
        file_join(group, NULL, "%s/attempt-%lld-e%lld-%d-%llx", base, (long long)job,
                  (long long)epoch, (int)getpid(), (long long)clock_us()) < 0 ||
        file_join(path, NULL, "%s/%s", dir, kind[i].record) < 0 ||
        file_write(path, group, strlen(group), NULL))
        return NULL;
    if (!mkdir(group, 0755)) return strdup(group);
    unlink(path);
    return NULL;
}

static bool limit_one(const char *dir, int i, int64_t job, int64_t epoch, int64_t most)
{
    char word[32];
    char *group = group_of(dir, "cgroup");
    snprintf(word, sizeof word, "%lld", (long long)most);
    bool done = group && !write_file(group, kind[i].limit, word);
    free(group);
    if (done) return true;
    group = make_old(dir, i, job, epoch);
    done = group && !write_file(group, kind[i].old_limit, word);
    free(group);
    return done;
}

int cgroup_limit(const char *dir, int64_t job, int64_t epoch, const struct cgroup_limits *l)
{
    const int64_t most[N_CONTROLLERS] = {l->memory, l->pids};
    int done = 0;
    for (int i = 0; i < N_CONTROLLERS; i++)
        if (most[i] > 0 && limit_one(dir, i, job, epoch, most[i])) done |= 1 << i;
    return done;
}

/* Reads the number after "oom_kill " in a group's file. */
static int64_t kills_in(const char *group, const char *name)
{
    char *text = read_text(group, name), *at = text ? strstr(text, "oom_kill ") : NULL;
    const int64_t n = at ? strtoll(at + strlen("oom_kill "), NULL, 10) : -1;
    free(text);
    return n;
}

int64_t cgroup_kills(const char *dir)
{
    char *group = group_of(dir, "cgroup.memory"), *left = read_text(dir, "kills");
    int64_t n = group ? kills_in(group, "memory.oom_control") : -1;
    if (left) n = strtoll(left, NULL, 10);
    free(group);
    group = n < 0 ? group_of(dir, "cgroup") : NULL;
    if (group) n = kills_in(group, "memory.events");
    free(group);
    free(left);
    return n;
}

void cgroup_join(const char *dir)
{
    for (int i = 0; i < N_RECORDS; i++) {
        char *group = group_of(dir, records[i]);
        if (group && write_file(group, "cgroup.procs", "0") && errno != ENOENT)
            log_warn("cgroup.join", "group=%s text=\"%s\"", group, strerror(errno));
        free(group);
    }
}

void cgroup_leave(const char *dir)
{
    char path[FILE_PATH_SIZE], text[32];
    const int64_t kills = cgroup_kills(dir);
    for (int i = 0; i < N_CONTROLLERS; i++) {
        char *group = group_of(dir, kind[i].record);
        if (!group) continue;
        const int n = snprintf(text, sizeof text, "%lld", (long long)kills);
        if (file_join(path, NULL, "%s/kills", dir) >= 0) file_write(path, text, (size_t)n, NULL);
        if (file_join(path, NULL, "%s/..", group) >= 0 && !write_file(path, "cgroup.procs", "0"))
            rmdir(group);
        free(group);
    }
}

/* Kills the processes of a group of v1, which has no file for it. */
static void kill_each(const char *group)
{
    char *text = read_text(group, "cgroup.procs"), *at = text;
    for (char *end; at && *at; at = end + (*end == '\n')) {
        const long pid = strtol(at, &end, 10);
        if (end == at) break;
        if (pid > 0) kill((pid_t)pid, SIGKILL);
    }
    free(text);
}

void cgroup_kill(const char *dir)
{
    for (int i = 0; i < N_RECORDS; i++) {
        char *group = group_of(dir, records[i]);
        /* after a reboot the group and all its processes are gone */
        if (group && i) kill_each(group);
        if (group && !i && write_file(group, "cgroup.kill", "1") && errno != ENOENT)
            log_warn("cgroup.kill", "group=%s text=\"%s\"", group, strerror(errno));
        free(group);
    }
}

void cgroup_remove(const char *dir)
{
    cgroup_kill(dir);
    for (int i = 0; i < N_RECORDS; i++) {
        char *group = group_of(dir, records[i]);
        /* EBUSY means that killed processes are still exiting. An empty group costs little until
         * seqw ends. */
        if (group && rmdir(group) && errno != EBUSY && errno != ENOENT)
            log_warn("cgroup.remove", "path=%s text=\"%s\"", group, strerror(errno));
        free(group);
    }
}
