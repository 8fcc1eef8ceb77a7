/* upload_own.h: the uploads in memory and their paths, for the files that implement struct
 * upload_dir. */
#ifndef SEQD_DAEMON_UPLOAD_UPLOAD_OWN_H
#define SEQD_DAEMON_UPLOAD_UPLOAD_OWN_H

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "daemon/upload/upload_dir.h"
#include "daemon/upload/upload_list.h"

struct upload {
    struct upload *next;
    struct upload_list *l; /* owned */
    bool done;
    int64_t touched_ms;
    bool *verified; /* for each file, whether its bytes have the listed digest */
    int hashed;     /* index of the file whose first hashed_at bytes are in sha, or -1 */
    int64_t hashed_at;
    struct sha256 sha;
};

struct upload_dir {
    struct upload_dir_options o;
    char dir[FILE_PATH_SIZE - 512], files[FILE_PATH_SIZE - 504];
    int lock;
    int64_t last_id;
    int n;
    struct upload *first;
};

/* Returns the upload of that id, or NULL if there is none. */
static inline struct upload *find(const struct upload_dir *d, int64_t id)
{
    for (struct upload *u = d->first; u; u = u->next)
        if (u->l->id == id) return u;
    return NULL;
}

static inline struct upload *find_or_say(struct upload_dir *d, int64_t id, struct err *e)
{
    struct upload *u = find(d, id);
    if (!u)
        err_set(e, ERR_NOT_FOUND, "there is no upload %lld: it expired, or was removed",
                (long long)id);
    return u;
}

static inline int part_path(const struct upload_dir *d, int64_t id, const char *rest,
                            char out[FILE_PATH_SIZE], struct err *e)
{
    return file_join(out, e, "%s/parts/%lld%s", d->dir, (long long)id, rest);
}

static inline int open_tree(const struct upload_dir *d, int64_t id, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (part_path(d, id, "/tree", path, e)) return -1;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_errno(e, "%s", path) : fd;
}

static inline int open_file(const struct upload_dir *d, const struct upload *u, int i, int flags,
                            struct err *e)
{
    const char *leaf;
    const int tree = open_tree(d, u->l->id, e);
    const int dir = tree < 0 ? -1 : beneath_make_parent(tree, u->l->file[i].path, 0700, &leaf, e);
    int fd = -1;
    if (dir >= 0 && (fd = openat(dir, leaf, flags | O_NOFOLLOW | O_CLOEXEC, 0600)) < 0)
        err_errno(e, "%s", u->l->file[i].path);
    if (tree >= 0) close(tree);
    if (dir >= 0) close(dir);
    return fd;
}

static inline int write_list(const struct upload_list *l, const char *path, struct err *e)
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

#endif
