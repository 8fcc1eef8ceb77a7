/* cgroup.c: makes, joins, kills and removes control groups by mkdir, rmdir and writes to the
 * groups' files. If a step fails, this is logged, and the attempt runs without a group. */
#include "api/core/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/log.h"

/* The mount points of cgroup v2, when it is mounted alone and when it is mounted beside v1. */
static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

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

/* Finds the group of this process, if this process may make groups in it. */
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
            found = file_join(out, NULL, "%s%s", mounts[i], line + 3) >= 0 && is_delegated(out);
    }
    if (f) fclose(f);
    return found;
}

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

/* Writes a word to a file of the attempt's group. The path of the group is read from seqw's own
 * state directory. */
static void write_word(const char *dir, const char *name, const char *word)
{
    char path[FILE_PATH_SIZE], in[FILE_PATH_SIZE];
    struct err e;
    if (file_join(path, NULL, "%s/cgroup", dir) < 0 || !file_exists(path)) return;
    char *group = file_read(path, FILE_PATH_SIZE, NULL, &e);
    const int fd = group && file_join(in, NULL, "%s/%s", group, name) >= 0
                       ? open(in, O_WRONLY | O_CLOEXEC)
                       : -1;
    /* After a reboot the group and all its processes are gone. */
    if ((fd < 0 && errno != ENOENT) || (fd >= 0 && write(fd, word, strlen(word)) < 0))
        log_warn("cgroup.write", "dir=%s file=%s text=\"%s\"", dir, name, strerror(errno));
    if (fd >= 0) close(fd);
    free(group);
}

void cgroup_join(const char *dir)
{
    write_word(dir, "cgroup.procs", "0");
}

void cgroup_kill(const char *dir)
{
    write_word(dir, "cgroup.kill", "1");
}

void cgroup_remove(const char *dir)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, NULL, "%s/cgroup", dir) < 0 || !file_exists(path)) return;
    cgroup_kill(dir);
    char *group = file_read(path, FILE_PATH_SIZE, NULL, NULL);
    /* EBUSY means that killed processes are still exiting. An empty group costs little until seqw
     * ends. */
    if (group && rmdir(group) && errno != EBUSY && errno != ENOENT)
        log_warn("cgroup.remove", "path=%s text=\"%s\"", group, strerror(errno));
    free(group);
}
