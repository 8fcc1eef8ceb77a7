/* roots.c: resolves a path by realpath and searches for the root that contains the path.
 * Private paths are refused. */
#include "worker/rank/roots.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "api/core/beneath.h"
#include "api/core/job_paths.h"
#include "api/core/file.h"
#include "api/core/remote.h"

static bool is_type(mode_t mode, mode_t type)
{
    return type ? (mode & S_IFMT) == type : S_ISDIR(mode) || S_ISREG(mode);
}

/* Finds a directory or a file. type is a file type of st_mode, or 0 if any type is accepted. */
static int find(const char *path, const char *const *roots, int n_roots, const char *field,
                mode_t type, char out[RANK_PATH_SIZE], struct err *e)
{
    char real_root[PATH_MAX], joined[2 * PATH_MAX], real[PATH_MAX], hint[256];
    bool exists = false, hidden = false;
    const char *first = NULL; /* root from which a relative path starts */
    for (int i = 0; i < n_roots; i++) {
        struct stat st;
        if (path[0] != '/' && !beneath_begins(roots[i])) continue;
        if (!first) first = roots[i];
        snprintf(joined, sizeof joined, "%s%s%s", path[0] == '/' ? "" : roots[i],
                 path[0] == '/' ? "" : "/", path);
        if (!realpath(roots[i], real_root)) continue;
        /* This check must be the first, so that no error reveals whether a private path exists. */
        if (beneath_private(joined)) {
            hidden = true;
            continue;
        }
        if (!realpath(joined, real)) continue;
        exists = true;
        if (!beneath_rest(real_root, real)) continue;
        if (stat(real, &st) || !is_type(st.st_mode, type))
            return err_field(e, ERR_INVALID, field, "%s is not a %s", path,
                             type == S_IFDIR   ? "directory"
                             : type == S_IFREG ? "file"
                                               : "directory or a .gguf file");
        if (strlen(real) >= RANK_PATH_SIZE)
            return err_field(e, ERR_TOO_LARGE, field, "a path may have %d bytes",
                             RANK_PATH_SIZE - 1);
        memcpy(out, real, strlen(real) + 1);
        return 0;
    }
    if (hidden) {
        beneath_refuse(path, e);
        snprintf(e->field, sizeof e->field, "%s", field);
        return -1;
    }
    remote_hint(path, false, hint, sizeof hint);
    if (!exists && (path[0] == '/' || !first))
        return err_field(e, ERR_NOT_FOUND, field, "%s does not exist on this node%s", path, hint);
    if (!exists)
        return err_field(e, ERR_NOT_FOUND, field,
                         "%s does not exist on this node beneath %s, in which relative paths "
                         "begin%s",
                         path, first, *hint ? hint : ": give the whole path");
    return err_field(e, ERR_INVALID, field, "%s lies beneath none of the node's %d roots", path,
                     n_roots);
}

int roots_directory(const char *path, const char *const *roots, int n_roots, const char *field,
                    char out[RANK_PATH_SIZE], struct err *e)
{
    return find(path, roots, n_roots, field, S_IFDIR, out, e);
}

int roots_model(const char *path, const char *const *roots, int n_roots, char out[RANK_PATH_SIZE],
                struct err *e)
{
    return find(path, roots, n_roots, "model.path", 0, out, e);
}

int roots_file(const char *path, const char *const *roots, int n_roots, const char *field,
               char out[RANK_PATH_SIZE], struct err *e)
{
    return find(path, roots, n_roots, field, S_IFREG, out, e);
}

static int open_beneath(const char *root, const char *path, const char *field, struct err *e)
{
    if (beneath_private(path)) {
        beneath_refuse(path, e);
        snprintf(e->field, sizeof e->field, "%s", field);
        return -1;
    }
    const int fd = beneath_open(root, path, O_DIRECTORY);
    if (fd >= 0) return fd;
    const int why = errno;
    err_errno(e, "%s: open %s", field, path);
    snprintf(e->field, sizeof e->field, "%s", field);
    if (why == ENOENT) e->code = ERR_NOT_FOUND;
    if (why == EXDEV || why == ELOOP || why == ENOTDIR) e->code = ERR_INVALID;
    return -1;
}

int roots_writable(const char *path, const char *const *roots, int n_roots, const char *field,
                   struct err *e)
{
    char tidy[FILE_PATH_SIZE], joined[2 * FILE_PATH_SIZE];
    if (*path != '/' && n_roots) {
        snprintf(joined, sizeof joined, "%s/%s", roots[0], path);
        return open_beneath(roots[0], joined, field, e);
    }
    for (int i = 0; i < n_roots && job_path_tidy(path, tidy, sizeof tidy); i++)
        if (beneath_rest(roots[i], tidy)) return open_beneath(roots[i], tidy, field, e);
    return err_field(e, ERR_NOT_FOUND, field,
                     "%s: %s lies beneath none of this node's %d writable roots: "
                     "--writable-root of seqw, or of seqd --dev, gives one",
                     field, path, n_roots);
}
