/* source.c: expands the patterns of a path into a sorted list of files. It expands one component
 * at a time, beneath an open root. */
#include "worker/data/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/remote.h"

int source_open(const char *root, const char *path, struct err *e)
{
    struct stat st;
    int fd = beneath_open(root, path, 0);
    if (fd < 0 && errno == EPERM) return beneath_refuse(path, e);
    if (fd < 0 && (errno == EXDEV || errno == ELOOP))
        return err_set(e, ERR_INVALID, "%s leads outside the root %s", path, root);
    if (fd < 0) return err_errno(e, "open %s", path);
    if (fstat(fd, &st) < 0) {
        err_errno(e, "stat %s", path);
    } else if (S_ISDIR(st.st_mode)) {
        err_set(e, ERR_INVALID,
                "%s is a directory: name its files, with /*.jsonl or another pattern "
                "after its name",
                path);
    } else if (!S_ISREG(st.st_mode)) {
        err_set(e, ERR_INVALID, "%s is not a regular file", path);
    } else {
        return fd;
    }
    close(fd);
    return -1;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct source_file *)a)->path, ((const struct source_file *)b)->path);
}

static int append(struct source_list *list, const char *path, int root, int source, struct err *e)
{
    if (list->n == SOURCE_FILES)
        return err_set(e, ERR_TOO_LARGE, "the sources have more than %d files: concatenate some",
                       SOURCE_FILES);
    if (!(list->n & (list->n - 1))) { /* whenever n is a power of two, the array has no free
                                       * element */
        size_t room = list->n ? 2 * (size_t)list->n : 1;
        struct source_file *more = realloc(list->file, room * sizeof *more);
        if (!more) return err_set(e, ERR_IO, "out of memory");
        list->file = more;
    }
    char *copy = strdup(path);
    if (!copy) return err_set(e, ERR_IO, "out of memory");
    list->file[list->n++] = (struct source_file){copy, root, source};
    return 0;
}

struct source_walk {
    struct source_list *list;
    const char *root;
    int root_index, source;
    int depth;
};

enum { MAX_DEPTH = 64 };

static int walk(struct source_walk *w, const char *done, const char *rest, struct err *e);

static int walk_dir(struct source_walk *w, const char *done, const char *comp, const char *tail,
                    struct err *e)
{
    char next[FILE_PATH_SIZE];
    if (file_join(next, e, "%s/.", done) < 0) return -1;
    int fd = beneath_open(w->root, next, O_DIRECTORY);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        if (fd >= 0) close(fd);
        return 0;
    }
    int rc = 0;
    struct dirent *ent;
    while (rc == 0 && (ent = readdir(d))) {
        struct stat st;
        if (fnmatch(comp, ent->d_name, FNM_PERIOD) || fstatat(dirfd(d), ent->d_name, &st, 0) < 0)
            continue;
        if (!(*tail ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode))) continue;
        rc = file_join(next, e, "%s/%s", done, ent->d_name);
        if (rc == 0 && *tail)
            rc = walk(w, next, tail, e);
        else if (rc == 0)
            rc = append(w->list, next, w->root_index, w->source, e);
    }
    closedir(d);
    return rc;
}

/* Matches one component. The parameter `done` is the path of a directory, without wildcards.
 * The parameter `rest` has the components that must still be matched. Appends the paths that
 * match. A wildcard skips directories that cannot be read. */
static int walk_one(struct source_walk *w, const char *done, const char *rest, struct err *e)
{
    char comp[NAME_MAX + 1], next[FILE_PATH_SIZE];
    size_t n = strcspn(rest, "/");
    const char *tail = rest + n + strspn(rest + n, "/");
    if (n > NAME_MAX) return err_set(e, ERR_INVALID, "a component of %s is too long", rest);
    memcpy(comp, rest, n);
    comp[n] = 0;
    if (!strcmp(comp, "..")) return err_set(e, ERR_INVALID, "\"..\" is not allowed in a path");
    if (!strpbrk(comp, "*?[")) {
        if (file_join(next, e, "%s/%s", done, comp) < 0) return -1;
        if (*tail) return walk(w, next, tail, e);
        return append(w->list, next, w->root_index, w->source, e);
    }
    return walk_dir(w, done, comp, tail, e);
}

static int walk(struct source_walk *w, const char *done, const char *rest, struct err *e)
{
    if (w->depth == MAX_DEPTH)
        return err_set(e, ERR_INVALID, "a path has more than %d components", MAX_DEPTH);
    w->depth++;
    int rc = walk_one(w, done, rest, e);
    w->depth--;
    return rc;
}

static int no_root(const char *path, const char *const *roots, int n_roots, struct err *e)
{
    char list[256] = "";
    for (int i = 0; i < n_roots; i++) {
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", roots[i]);
    }
    return err_set(e, ERR_INVALID, "%s lies beneath no data root (%s)", path,
                   n_roots ? list : "none is configured");
}

/* Removes the last file from the list if the file does not exist. A path that leads out of the
 * root is not removed, even if its target does not exist, because source_open refuses such a
 * path. */
static int check_last(struct source_walk *w, struct err *e)
{
    char *path = w->list->file[w->list->n - 1].path;
    const int fd = beneath_open(w->root, path, 0), why = errno;
    if (fd >= 0) close(fd);
    const bool outside = fd < 0 && why == EXDEV;
    if (outside ? beneath_known_private(path) : beneath_private(path))
        return beneath_refuse(path, e);
    if (fd >= 0 || why != ENOENT) return 0;
    free(path);
    w->list->n--;
    return 0;
}

/* Appends the matching files beneath the root, sorted. If a path has no wildcards, `walk`
 * appends it without a check. If that file does not exist, check_last removes the path from
 * the list. */
static int expand_under(struct source_walk *w, const char *rest, struct err *e)
{
    char root[FILE_PATH_SIZE];
    struct source_list *list = w->list;
    int first = list->n;
    if (file_join(root, e, "%.*s", (int)beneath_root_len(w->root), w->root) < 0) return -1;
    if (walk(w, root, rest, e) < 0) return -1;
    if (list->n - first == 1 && check_last(w, e)) return -1;
    if (list->n > first)
        qsort(list->file + first, (size_t)(list->n - first), sizeof *list->file, by_path);
    return 0;
}

/* Returns the path relative to a root. Returns NULL if the path is not searched for in this
 * root. */
static const char *path_within(const char *root, const char *path)
{
    if (path[0] == '/') return beneath_rest(root, path);
    return beneath_begins(root) ? path : NULL;
}

/* Sets the error for a path that matches no file. The parameter `first` is the first root in
 * which relative paths are looked up, or NULL if there is no root. */
static int no_file(const char *path, const char *first, struct err *e)
{
    char hint[256];
    remote_hint(path, true, hint, sizeof hint);
    if (path[0] == '/' || !first)
        return err_set(e, ERR_NOT_FOUND, "%s matches no file%s", path, hint);
    return err_set(e, ERR_NOT_FOUND,
                   "%s matches no file beneath %s, in which relative paths begin%s", path, first,
                   *hint ? hint : ": give the file's whole path");
}

int source_expand(struct source_list *list, const char *path, const char *const *roots, int n_roots,
                  int source, const char *field, struct err *e)
{
    bool under = false;
    const char *begin = NULL;
    int first = list->n, rc = 0;
    for (int i = 0; i < n_roots && list->n == first && rc == 0; i++) {
        const char *rest = path_within(roots[i], path);
        struct source_walk w = {list, roots[i], i, source, 0};
        if (!rest) continue;
        if (!begin) begin = roots[i];
        under = true;
        rc = expand_under(&w, rest, e);
    }
    if (rc == 0 && !path[0])
        rc = err_set(e, ERR_INVALID, "a path is empty");
    else if (rc == 0 && !under)
        rc = no_root(path, roots, n_roots, e);
    else if (rc == 0 && list->n == first)
        rc = no_file(path, begin, e);
    if (rc < 0 && e) snprintf(e->field, sizeof e->field, "%s", field);
    return rc;
}

void source_list_fini(struct source_list *list)
{
    for (int i = 0; i < list->n; i++) free(list->file[i].path);
    free(list->file);
    *list = (struct source_list){0};
}
