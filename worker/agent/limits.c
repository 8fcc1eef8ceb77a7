/* limits.c: finds this process's control groups in /proc/self/cgroup and their mounts, and reads
 * one file per level up to the mount. */
#include "worker/agent/limits.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include "api/core/cgroup.h"
#include "api/core/file.h"

/* Reads the limit of one group. Returns INT64_MAX if the group has no limit. In that case the file
 * has "max" in v2, which is not a number, and a huge number or -1 in v1. */
typedef int64_t level_limit(const char *group);

static bool read_file(const char *group, const char *name, char line[128])
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, NULL, "%s/%s", group, name) < 0) return false;
    FILE *f = fopen(path, "re");
    const bool read = f && fgets(line, 128, f);
    if (f) fclose(f);
    return read;
}

static int64_t memory_v2(const char *group)
{
    char line[128];
    long long n;
    return read_file(group, "memory.max", line) && sscanf(line, "%lld", &n) == 1 && n > 0
               ? n
               : INT64_MAX;
}

static int64_t memory_v1(const char *group)
{
    char line[128];
    long long n;
    return read_file(group, "memory.limit_in_bytes", line) && sscanf(line, "%lld", &n) == 1 && n > 0
               ? n
               : INT64_MAX;
}

static int64_t quota(long long us, long long period_us)
{
    if (us <= 0 || period_us <= 0) return INT64_MAX;
    return us < period_us ? 1 : us / period_us;
}

static int64_t cores_v2(const char *group)
{
    char line[128];
    long long us, period_us;
    return read_file(group, "cpu.max", line) && sscanf(line, "%lld %lld", &us, &period_us) == 2
               ? quota(us, period_us)
               : INT64_MAX;
}

static int64_t cores_v1(const char *group)
{
    char line[128];
    long long us, period_us;
    if (!read_file(group, "cpu.cfs_quota_us", line) || sscanf(line, "%lld", &us) != 1)
        return INT64_MAX;
    if (!read_file(group, "cpu.cfs_period_us", line) || sscanf(line, "%lld", &period_us) != 1)
        return INT64_MAX;
    return quota(us, period_us);
}

/* Finds the smallest limit from the group up to the mount. In a container the path of the group
 * may be a path of the host. In that case only the mount itself exists in the container. */
static int64_t least_upwards(const char *mount, const char *group, level_limit *limit)
{
    char path[FILE_PATH_SIZE];
    int64_t least = limit(mount);
    if (strstr(group, "/..") || file_join(path, NULL, "%s%s", mount, group) < 0) return least;
    for (char *end; strlen(path) > strlen(mount); *end = 0) {
        const int64_t n = limit(path);
        if (n < least) least = n;
        end = strrchr(path, '/');
    }
    return least;
}

/* Returns true if a list like "cpu,cpuacct" contains the controller. */
static bool lists(const char *controllers, const char *controller)
{
    const size_t n = strlen(controller);
    for (const char *p = controllers; *p; p += strspn(p, ",")) {
        const size_t m = strcspn(p, ",");
        if (m == n && !strncmp(p, controller, n)) return true;
        p += m;
    }
    return false;
}

/* Reads a value in one group of this process. The parameter `group` is the group's path in
 * /proc/self/cgroup. The parameter `mount` is the directory at which the group's controller is
 * mounted. */
typedef void group_look(void *arg, bool is_v2, const char *mount, const char *group);

/* Calls `look` for each group of the controller. The lines of /proc/self/cgroup are "0::/path"
 * for v2 and "4:memory:/path" for v1. */
static void each_group(const char *root, const char *controller, group_look *look, void *arg)
{
    char path[FILE_PATH_SIZE], mount[FILE_PATH_SIZE], line[FILE_PATH_SIZE];
    FILE *f = file_join(path, NULL, "%s/proc/self/cgroup", root) < 0 ? NULL : fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        const bool is_v2 = !list[1];
        if (!is_v2 && !lists(list + 1, controller)) continue;
        const char *const at[] = {is_v2 ? "" : list + 1, is_v2 ? "unified" : controller};
        for (int i = 0; i < 2; i++) { /* a v1 mount is named by the list of all its
                                       * controllers, or by the name of one of its controllers */
            if (file_join(mount, NULL, "%s/sys/fs/cgroup/%s", root, at[i]) < 0) continue;
            if (mount[strlen(mount) - 1] == '/') mount[strlen(mount) - 1] = 0;
            look(arg, is_v2, mount, group);
        }
    }
    if (f) fclose(f);
}

struct least {
    level_limit *v2, *v1;
    int64_t n;
};

static void take_least(void *arg, bool is_v2, const char *mount, const char *group)
{
    struct least *l = arg;
    const int64_t n = least_upwards(mount, group, is_v2 ? l->v2 : l->v1);
    if (n < l->n) l->n = n;
}

static int64_t least_of_all(const char *root, const char *controller, level_limit *v2,
                            level_limit *v1)
{
    struct least l = {v2, v1, INT64_MAX};
    each_group(root, controller, take_least, &l);
    return l.n;
}

int64_t limits_memory(const char *root)
{
    return least_of_all(root, "memory", memory_v2, memory_v1);
}

int32_t limits_cores(const char *root)
{
    const int64_t n = least_of_all(root, "cpu", cores_v2, cores_v1);
    return n > INT32_MAX ? INT32_MAX : (int32_t)n;
}

/* ---- kills ----------------------------------------------------------------------------------- */

/* Reads the number after "oom_kill " in a file of lines "NAME NUMBER". Returns -1 if the file has
 * no such line. */
static int64_t kills_in(const char *dir, const char *name)
{
    char path[FILE_PATH_SIZE], line[128];
    long long n, found = -1;
    FILE *f = file_join(path, NULL, "%s/%s", dir, name) < 0 ? NULL : fopen(path, "re");
    while (f && found < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "oom_kill %lld", &n) == 1) found = n;
    if (f) fclose(f);
    return found;
}

/* Reads how many processes of the group the kernel has killed for lack of memory. If the path
 * of the group does not exist in this container, reads the count from the directory of the
 * mount. */
static void take_kills(void *arg, bool is_v2, const char *mount, const char *group)
{
    int64_t *kills = arg;
    char path[FILE_PATH_SIZE];
    const char *name = is_v2 ? "memory.events" : "memory.oom_control";
    if (*kills >= 0) return;
    /* the groups of attempts are beside seqw's own child, beneath the delegated group */
    const size_t n = strlen(group),
                 own = is_v2 && n > 6 && !strcmp(group + n - 6, "/agent") ? 6 : 0;
    if (!strstr(group, "/..") && file_join(path, NULL, "%s%.*s", mount, (int)(n - own), group) >= 0)
        *kills = kills_in(path, name);
    if (*kills < 0) *kills = kills_in(mount, name);
}

int64_t limits_oom_kills(const char *root)
{
    char path[FILE_PATH_SIZE];
    const char *given = cgroup_given();
    int64_t kills = -1;
    if (given) return kills_in(given, "memory.events");
    each_group(root, "memory", take_kills, &kills);
    if (kills >= 0 || file_join(path, NULL, "%s/proc", root) < 0) return kills;
    return kills_in(path, "vmstat");
}
