/* beneath.c: opens files by openat2 with RESOLVE_BENEATH, or, where openat2 does not work, by
 * realpath and a walk that follows no link; marks private directories, and confines a process to
 * roots and granted directories. */
#include "api/core/beneath.h"
#include "api/core/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The policy of this process. It is set before there are threads, and only read afterwards. */
static char *confined[BENEATH_ROOTS];
static int n_confined;
static bool guarded; /* true if the process is confined, even to the root "/"; it then opens no
                      * private file */
static char *granted[BENEATH_GRANTS];
static int n_granted;

size_t beneath_root_len(const char *root)
{
    size_t n = strlen(root);
    while (n && root[n - 1] == '/') n--;
    return n;
}

bool beneath_name_good(const char *name)
{
    for (const char *p = name;; p++) {
        const size_t n = strcspn(p, "/");
        if (!n || n > NAME_MAX || (p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.'))))
            return false;
        for (size_t i = 0; i < n; i++)
            if (utf8_control(p + i)) return false;
        p += n;
        if (!*p) return true;
    }
}

const char *beneath_rest(const char *root, const char *path)
{
    const size_t n = beneath_root_len(root);
    if (strncmp(path, root, n) || (path[n] && path[n] != '/')) return NULL;
    path += n;
    while (*path == '/') path++;
    return *path ? path : ".";
}

static int close_keeping_errno(int fd)
{
    const int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Opens `rest` beneath dir, and closes dir. `rest` comes from realpath and has no links. If a link
 * was made since then, it is not followed. */
static int walk(int dir, const char *rest, int flags)
{
    char name[NAME_MAX + 1];
    for (;;) {
        const size_t n = strcspn(rest, "/");
        if (n > NAME_MAX) return errno = ENAMETOOLONG, close_keeping_errno(dir);
        memcpy(name, rest, n);
        name[n] = 0;
        rest += n + strspn(rest + n, "/");
        const int how = *rest ? O_PATH | O_DIRECTORY | O_CLOEXEC : flags;
        const int fd = openat(dir, name, how | O_NOFOLLOW);
        close_keeping_errno(dir);
        if (fd < 0 || !*rest) return fd;
        dir = fd;
    }
}

static int open_root(const char *root)
{
    return open(beneath_root_len(root) ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* ---- private directories --------------------------------------------------------------------- */

/* Tells whether the directory named by the first n bytes of path has a mark. n = 0 stands for "/".
 * In a directory that all users may write to, such as /tmp, only a mark of the directory's owner
 * counts. Otherwise any user could lock other users out of such a directory. A mark that cannot be
 * checked counts as a mark. */
static bool is_marked(const char *path, size_t n)
{
    char name[PATH_MAX + sizeof BENEATH_MARK + 1];
    struct stat mark, dir;
    snprintf(name, sizeof name, "%.*s/" BENEATH_MARK, (int)n, path);
    if (fstatat(AT_FDCWD, name, &mark, AT_SYMLINK_NOFOLLOW))
        return errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG;
    name[n + 1] = 0;
    return stat(name, &dir) || !(dir.st_mode & S_IWOTH) || mark.st_uid == dir.st_uid;
}

bool beneath_marked(const char *dir)
{
    return is_marked(dir, beneath_root_len(dir));
}

/* Returns the length of the deepest marked directory of a path, plus 1. Returns 0 if no directory
 * of the path is marked. The path is absolute and has no links. */
static size_t mark_of(const char *real)
{
    for (size_t n = beneath_root_len(real);;) {
        if (is_marked(real, n)) return n + 1;
        if (!n) return 0;
        while (n && real[n - 1] != '/') n--;
        n = n ? n - 1 : 0;
    }
}

/* Tells whether the path `real`, which is absolute and has no links, is private. */
static bool is_private(const char *real)
{
    if (*real != '/' || strlen(real) >= PATH_MAX) return true;
    const size_t mark = mark_of(real);
    for (int i = 0; i < n_granted && mark; i++)
        if (beneath_rest(granted[i], real) && beneath_root_len(granted[i]) >= mark - 1)
            return false;
    return mark > 0;
}

/* Tells whether `path` is private after its links are followed. Returns `unknown` if `path` cannot
 * be resolved. */
static bool leads_to_private(const char *path, bool unknown)
{
    char real[PATH_MAX], part[PATH_MAX];
    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part) return unknown;
    while (!realpath(part, real)) {
        char *slash = strrchr(part, '/');
        for (int i = 0; i < n_granted; i++)
            if (errno == ENOENT && beneath_rest(granted[i], part)) return false;
        if ((errno != ENOENT && errno != ENOTDIR) || !slash) return unknown;
        slash[slash == part] = 0;
    }
    return is_private(real);
}

bool beneath_private(const char *path)
{
    return leads_to_private(path, true);
}

bool beneath_known_private(const char *path)
{
    return leads_to_private(path, false);
}

bool beneath_begins(const char *root)
{
    char real[PATH_MAX];
    return realpath(root, real) ? !mark_of(real) : !beneath_private(root);
}

/* Closes fd if its file is private. The path of the open file is checked, because links in the
 * path by which it was opened may have changed since. */
static int keep_out(int fd)
{
    char link[64], real[PATH_MAX];
    if (!guarded || fd < 0) return fd;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, real, sizeof real - 1);
    real[n > 0 ? n : 0] = 0;
    if (!is_private(real)) return fd;
    close(fd);
    return errno = EPERM, -1;
}

int beneath_mark(const char *dir, struct err *e)
{
    static const char text[] = "What is in this directory is read by no job, except what seqd "
                               "grants to it.\n";
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/" BENEATH_MARK, dir) >= (int)sizeof path)
        return err_set(e, ERR_TOO_LARGE, "the path %s is too long", dir);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return errno == EEXIST ? 0 : err_errno(e, "make %s", path);
    /* If the disk is full, the mark has no text. This is accepted, because only the existence of
     * the mark counts. */
    const int rc = write(fd, text, sizeof text - 1) < 0 && errno != ENOSPC && errno != EDQUOT
                       ? err_errno(e, "write %s", path)
                       : 0;
    close(fd);
    return rc;
}

void beneath_grant(const char *dir)
{
    char real[PATH_MAX];
    if (n_granted == BENEATH_GRANTS) return;
    if (!realpath(dir, real)) snprintf(real, sizeof real, "%s", dir);
    if (!(granted[n_granted] = strdup(real))) abort();
    n_granted++;
}

void beneath_grant_none(void)
{
    while (n_granted) free(granted[--n_granted]);
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_old(const char *root, const char *path, int flags)
{
    char real_root[PATH_MAX], real[PATH_MAX];
    if (!realpath(beneath_root_len(root) ? root : "/", real_root) || !realpath(path, real))
        return -1;
    const char *rest = beneath_rest(real_root, real);
    if (!rest) return errno = EXDEV, -1;
    const int dir = open_root(real_root);
    return dir < 0 ? -1 : walk(dir, rest, flags | O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

int beneath_open_old(const char *root, const char *path, int flags)
{
    return keep_out(open_old(root, path, flags));
}

static int open_new(const char *root, const char *path, int flags)
{
    const char *rest = beneath_rest(root, path);
    flags |= O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    if (!rest) return errno = EXDEV, -1;
    const int dir = open_root(root);
    if (dir < 0) return -1;
    struct open_how how = {.flags = (uint64_t)flags,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    const int fd = (int)syscall(SYS_openat2, dir, rest, &how, sizeof how);
    close_keeping_errno(dir);
    /* openat2 also fails with EXDEV at an absolute link whose target is within root. It does not
     * follow such a link, but open_old does. If the target is outside of root, openat2 and
     * open_old both fail with EXDEV, which does not reveal whether the target exists. */
    const int why = errno;
    if (fd >= 0 || (why != ENOSYS && why != EPERM && why != EXDEV && why != EAGAIN)) return fd;
    const int old = open_old(root, path, flags);
    if (old < 0 && why == EXDEV) errno = EXDEV;
    return old;
}

int beneath_open(const char *root, const char *path, int flags)
{
    return keep_out(open_new(root, path, flags));
}

/* Opens the directory name in dir, and makes it if it is missing. Closes dir. */
static int descend(int dir, const char *name, unsigned mode, struct err *e)
{
    int fd = mkdirat(dir, name, (mode_t)mode) && errno != EEXIST
                 ? -1
                 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        err_set(e, ERR_INVALID, "%s is not a directory, or a symbolic link: it is not followed",
                name);
    else if (fd < 0)
        err_errno(e, "directory %s", name);
    close(dir);
    return fd;
}

int beneath_make_parent(int root, const char *name, unsigned mode, const char **leaf, struct err *e)
{
    char part[NAME_MAX + 1];
    int dir = fcntl(root, F_DUPFD_CLOEXEC, 0);
    if (dir < 0) return err_errno(e, "open the directory");
    for (const char *slash; dir >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
        memcpy(part, name, (size_t)(slash - name));
        part[slash - name] = 0;
        dir = descend(dir, part, mode, e);
    }
    *leaf = name;
    return dir;
}

void beneath_confine(const char *const *roots, int n_roots)
{
    for (int i = 0; i < n_confined; i++) free(confined[i]);
    n_confined = 0;
    guarded = n_roots > 0;
    for (int i = 0; i < n_roots && i < BENEATH_ROOTS; i++) {
        if (!beneath_root_len(roots[i])) continue; /* "/": every path is inside */
        if (!(confined[n_confined] = strdup(roots[i]))) abort();
        n_confined++;
    }
}

/* Returns the shortest root with which path begins, or NULL. */
static const char *root_of(const char *path)
{
    const char *best = NULL;
    for (int i = 0; i < n_confined; i++)
        if (beneath_rest(confined[i], path) && (!best || strlen(confined[i]) < strlen(best)))
            best = confined[i];
    return best;
}

int beneath_read(const char *path, struct err *e)
{
    const char *root = root_of(path);
    const int fd = root ? beneath_open(root, path, 0)
                        : keep_out(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd >= 0) return fd;
    if (errno == EPERM) return beneath_refuse(path, e);
    if (root && (errno == EXDEV || errno == ELOOP))
        return err_set(e, ERR_INVALID,
                       "%s leads outside the root %s: its links must stay beneath it", path, root);
    return err_errno(e, "open %s", path);
}

int beneath_refuse(const char *path, struct err *e)
{
    return err_set(e, ERR_INVALID,
                   "%s lies in a directory that seqd keeps for itself and its users: name an "
                   "upload of yours by upload:NAME, a job's checkpoint by job:ID/step-N",
                   path);
}
