/* upload_own.c: finds uploads by their ids, and opens their files beneath their own folders. */
#include "daemon/upload/upload_own.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/beneath.h"

struct upload *upload_find(const struct upload_dir *d, int64_t id)
{
    for (struct upload *u = d->first; u; u = u->next)
        if (u->l->id == id) return u;
    return NULL;
}

struct upload *upload_find_or_say(struct upload_dir *d, int64_t id, struct err *e)
{
    struct upload *u = upload_find(d, id);
    if (!u)
        err_set(e, ERR_NOT_FOUND, "there is no upload %lld: it expired, or was removed",
                (long long)id);
    return u;
}

int upload_part_path(const struct upload_dir *d, int64_t id, const char *rest,
                     char out[FILE_PATH_SIZE], struct err *e)
{
    return file_join(out, e, "%s/parts/%lld%s", d->dir, (long long)id, rest);
}

int upload_open_tree(const struct upload_dir *d, int64_t id, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (upload_part_path(d, id, "/tree", path, e)) return -1;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_errno(e, "%s", path) : fd;
}

int upload_open_file(const struct upload_dir *d, const struct upload *u, int i, int flags,
                     struct err *e)
{
    const char *leaf;
    const int tree = upload_open_tree(d, u->l->id, e);
    const int dir = tree < 0 ? -1 : beneath_make_parent(tree, u->l->file[i].path, 0700, &leaf, e);
    int fd = -1;
    if (dir >= 0 && (fd = openat(dir, leaf, flags | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0)
        err_errno(e, "%s", u->l->file[i].path);
    if (tree >= 0) close(tree);
    if (dir >= 0) close(dir);
    return fd;
}

int upload_write_list(const struct upload_list *l, const char *path, struct err *e)
{
    const size_t room = upload_list_room(l);
    char *text = malloc(room);
    if (!text) abort();
    const int64_t n = upload_list_write(l, text, room);
    const int rc = n < 0 ? err_set(e, ERR_INTERNAL, "a list is too long")
                         : file_write(path, text, (size_t)n, e);
    free(text);
    return rc;
}
