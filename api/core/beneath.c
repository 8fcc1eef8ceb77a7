#include "api/core/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A policy of the process, not a state of the engine: set once, then only read. */
static char *confined[BENEATH_ROOTS];
static int n_confined;

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
            if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f) return false;
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

/* rest has no link in it, as realpath says: a link made since then is not followed. Takes dir. */
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

int beneath_open_old(const char *root, const char *path, int flags)
{
    char real_root[PATH_MAX], real[PATH_MAX];
    if (!realpath(beneath_root_len(root) ? root : "/", real_root) || !realpath(path, real))
        return -1;
    const char *rest = beneath_rest(real_root, real);
    if (!rest) return errno = EXDEV, -1;
    const int dir = open_root(real_root);
    return dir < 0 ? -1 : walk(dir, rest, flags | O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

int beneath_open(const char *root, const char *path, int flags)
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
    /* EXDEV also of an absolute link that stays within: the kernel does not follow those here. Of
     * one that does not, nothing more is said: not even whether what it leads to exists. */
    const int why = errno;
    if (fd >= 0 || (why != ENOSYS && why != EPERM && why != EXDEV && why != EAGAIN)) return fd;
    const int old = beneath_open_old(root, path, flags);
    if (old < 0 && why == EXDEV) errno = EXDEV;
    return old;
}

/* One directory deeper, which is made when it is missing. Takes dir. */
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
    for (int i = 0; i < n_roots && i < BENEATH_ROOTS; i++) {
        if (!beneath_root_len(roots[i])) continue; /* "/": every path is inside */
        if (!(confined[n_confined] = strdup(roots[i]))) abort();
        n_confined++;
    }
}

/* The widest root that path begins with, or NULL. */
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
                        : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) return fd;
    if (root && (errno == EXDEV || errno == ELOOP))
        return err_set(e, ERR_INVALID,
                       "%s leads outside the root %s: its links must stay beneath it", path, root);
    return err_errno(e, "open %s", path);
}
