/* publish.c: opens the output directory beneath a writable root, writes a file with the
 * owner's name to this directory, and copies each result by write and rename. */
#include "worker/rank/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/job_paths.h"
#include "api/core/manifest.h"

#define FIELD "output.path"

enum { COPY_SIZE = 1 << 20, OWNER_SIZE = 256, READABLE = 0755, FILE_MODE = 0644 };

/* ---- writing --------------------------------------------------------------------------------- */

static int write_all(int fd, const char *data, size_t size, struct err *e)
{
    while (size) {
        const ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, "write");
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

static int copy(int from, int to, struct err *e)
{
    char *buf = malloc(COPY_SIZE);
    ssize_t n = -1;
    int rc = 0;
    if (!buf) return err_set(e, ERR_IO, "out of memory");
    while (!rc && (n = read(from, buf, COPY_SIZE)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        rc = n < 0 ? err_errno(e, "read") : write_all(to, buf, (size_t)n, e);
    }
    free(buf);
    return rc;
}

/* Writes the file `leaf` in an open directory. The file is complete, or it does not exist. Its
 * content is that of the file descriptor `from`. If `from` is -1, its content is the parameter
 * `text`. */
static int put(int dir, const char *leaf, int from, const char *text, struct err *e)
{
    static const char tmp[] = ".seqd-part";
    if (unlinkat(dir, tmp, 0) && errno != ENOENT) return err_errno(e, "remove %s", tmp);
    const int fd = openat(dir, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, "make a file");
    int rc = from < 0 ? write_all(fd, text, strlen(text), e) : copy(from, fd, e);
    if (!rc && (fchmod(fd, FILE_MODE) || fsync(fd))) rc = err_errno(e, "sync");
    close(fd);
    if (!rc && renameat(dir, tmp, dir, leaf)) rc = err_errno(e, "rename");
    if (!rc && fsync(dir)) rc = err_errno(e, "sync the directory");
    if (rc) unlinkat(dir, tmp, 0);
    return rc;
}

/* ---- whose directory ------------------------------------------------------------------------- */

static bool is_owner(int dir, const char *owner)
{
    char text[OWNER_SIZE] = "";
    const int fd = openat(dir, PUBLISH_OWNER, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    return n > 0 && !strcmp(text, owner);
}

static int open_dir(int parent, const char *leaf)
{
    return openat(parent, leaf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Makes the directory with its owner's name in it, and then gives the directory its name. If
 * the process is killed during this, only a temporary directory remains. */
static int make_own(int parent, const char *leaf, const char *owner, struct err *e)
{
    char tmp[64];
    snprintf(tmp, sizeof tmp, ".seqd-%ld", (long)getpid());
    if (mkdirat(parent, tmp, READABLE) && errno != EEXIST) return err_errno(e, "make a directory");
    const int dir = open_dir(parent, tmp);
    if (dir < 0) return err_errno(e, "open a directory");
    int rc = fchmod(dir, READABLE) ? err_errno(e, "chmod") : put(dir, PUBLISH_OWNER, -1, owner, e);
    close(dir);
    if (!rc && !renameat2(parent, tmp, parent, leaf, RENAME_NOREPLACE))
        return fsync(parent) ? err_errno(e, "sync the directory") : 0;
    const int why = errno;
    const int left = open_dir(parent, tmp);
    if (left >= 0) unlinkat(left, PUBLISH_OWNER, 0), close(left);
    unlinkat(parent, tmp, AT_REMOVEDIR);
    errno = why;
    return rc || why == EEXIST ? rc : err_errno(e, "rename");
}

static int take(struct publish *p, int parent, const char *leaf, const char *path,
                const char *owner, struct err *e)
{
    p->dir = open_dir(parent, leaf);
    if (p->dir < 0 && errno == ENOENT) {
        if (make_own(parent, leaf, owner, e)) return -1;
        p->dir = open_dir(parent, leaf);
    }
    if (p->dir >= 0 && is_owner(p->dir, owner)) return 0;
    publish_close(p);
    return err_set(e, ERR_CONFLICT,
                   "%s is there, and is not this job's: name a directory that is not there yet",
                   path);
}

/* ---- where ----------------------------------------------------------------------------------- */

static int beneath(struct publish *p, const char *root, const char *rest, const char *path,
                   const char *owner, struct err *e)
{
    const char *leaf;
    if (!beneath_name_good(rest))
        return err_set(e, ERR_INVALID, "%s is no directory beneath %s", path, root);
    if (beneath_private(root)) return err_set(e, ERR_INVALID, "%s lies in what seqd keeps", root);
    const int at = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) return err_errno(e, "open %s", root);
    const int parent = beneath_make_parent(at, rest, READABLE, &leaf, e);
    close(at);
    if (parent < 0) return -1;
    const int rc = take(p, parent, leaf, path, owner, e);
    close(parent);
    return rc;
}

int publish_open(struct publish *p, const char *path, const char *const *roots, int n_roots,
                 const char *owner, struct err *e)
{
    char tidy[FILE_PATH_SIZE];
    int rc = 1;
    p->dir = -1;
    if (!*path) return 0;
    /* the mask lets other users read published files; to change it is safe, because the
     * process has no other thread yet */
    const mode_t mask = umask(022);
    if (*path != '/' && n_roots) {
        rc = beneath(p, roots[0], path, path, owner, e);
    } else if (job_path_tidy(path, tidy, sizeof tidy)) {
        for (int i = 0; i < n_roots && rc > 0; i++) {
            const char *rest = beneath_rest(roots[i], tidy);
            if (rest) rc = beneath(p, roots[i], rest, path, owner, e);
        }
    }
    if (rc > 0)
        rc = err_set(e, ERR_NOT_FOUND,
                     "%s lies beneath none of this node's %d writable roots: --writable-root of "
                     "seqw, or of seqd --dev, gives one",
                     path, n_roots);
    umask(mask);
    if (rc < 0 && !*e->field) snprintf(e->field, sizeof e->field, FIELD);
    return rc;
}

int publish_file(const struct publish *p, const char *from, const char *name, struct err *e)
{
    const char *leaf;
    if (p->dir < 0) return 0;
    const int fd = beneath_read(from, e);
    const int parent = fd < 0 ? -1 : beneath_make_parent(p->dir, name, READABLE, &leaf, e);
    int rc = parent < 0 ? -1 : fchmod(parent, READABLE) ? err_errno(e, "chmod") : 0;
    if (!rc) rc = put(parent, leaf, fd, NULL, e);
    if (fd >= 0) close(fd);
    if (parent >= 0) close(parent);
    return rc < 0 ? err_prefix(e, FIELD ": %s", name) : 0;
}

int publish_checkpoint(const struct publish *p, const char *step_dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct manifest *m;
    if (p->dir < 0) return 0;
    if (!(m = malloc(sizeof *m))) return err_set(e, ERR_IO, "out of memory");
    int rc = manifest_check(m, step_dir, MANIFEST_SIZES, e);
    for (int i = 0; !rc && i < m->n_files; i++) {
        const char *name = m->file[i].path;
        if (strncmp(name, "hf/", 3) && strncmp(name, "hf_ema/", 7) && strncmp(name, "adapter/", 8))
            continue;
        rc = file_join(path, e, "%s/%s", step_dir, name) || publish_file(p, path, name, e);
    }
    free(m);
    return rc ? -1 : 0;
}

void publish_close(struct publish *p)
{
    if (p->dir >= 0) close(p->dir);
    p->dir = -1;
}
