/* upload_dir.c: makes, fills, verifies and publishes uploads on disk, and removes them. */
#include "daemon/upload/upload_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "daemon/state/doc.h"
#include "daemon/upload/upload_list.h"

#define LIST_SIZE ((int64_t)4 << 20)  /* largest list.json */
#define SPARE     ((int64_t)64 << 20) /* bytes of the disk that stay free */
#define PIECE     (1 << 18)

struct upload {
    struct upload *next;
    struct upload_list *l; /* owned */
    bool done;
    int64_t touched_ms;
    bool *verified; /* per file: its bytes have the listed digest */
    int hashed;     /* index of the file whose first hashed_at bytes are in sha; -1: none */
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

static struct upload *find(const struct upload_dir *d, int64_t id)
{
    for (struct upload *u = d->first; u; u = u->next)
        if (u->l->id == id) return u;
    return NULL;
}

static struct upload *find_or_say(struct upload_dir *d, int64_t id, struct err *e)
{
    struct upload *u = find(d, id);
    if (!u)
        err_set(e, ERR_NOT_FOUND, "there is no upload %lld: it expired, or was removed",
                (long long)id);
    return u;
}

static int part_path(const struct upload_dir *d, int64_t id, const char *rest,
                     char out[FILE_PATH_SIZE], struct err *e)
{
    return file_join(out, e, "%s/parts/%lld%s", d->dir, (long long)id, rest);
}

/* ---- in memory ------------------------------------------------------------------------------- */

/* Adds an upload to the list in memory. Takes l. */
static struct upload *add(struct upload_dir *d, struct upload_list *l, bool done, int64_t now_ms)
{
    struct upload *u = calloc(1, sizeof *u);
    if (!u) abort();
    u->l = upload_list_fit(l);
    u->verified = calloc((size_t)u->l->n, sizeof *u->verified);
    if (!u->verified) abort();
    u->done = done;
    for (int i = 0; i < u->l->n && done; i++) u->l->file[i].received = u->l->file[i].size;
    u->touched_ms = now_ms;
    u->hashed = -1;
    u->next = d->first;
    d->first = u;
    d->n++;
    if (u->l->id > d->last_id) d->last_id = u->l->id;
    return u;
}

static void drop(struct upload_dir *d, struct upload *u)
{
    struct upload **p = &d->first;
    for (d->n--; *p != u;) p = &(*p)->next;
    *p = u->next;
    free(u->l);
    free(u->verified);
    free(u);
}

static int64_t received(const struct upload *u)
{
    int64_t n = 0;
    for (int i = 0; i < u->l->n; i++) n += u->l->file[i].received;
    return n;
}

/* ---- at the start ---------------------------------------------------------------------------- */

static struct upload_list *read_list(const char *path)
{
    struct err e = {0};
    size_t size = 0;
    char *text = file_read(path, LIST_SIZE, &size, &e);
    struct upload_list *l = text ? upload_list_new() : NULL;
    if (l && upload_list_read(l, text, size, true, &e)) {
        free(l);
        l = NULL;
    }
    if (!l && e.code != ERR_NOT_FOUND) log_warn("upload.list", "path=%s why=\"%s\"", path, e.text);
    free(text);
    return l;
}

static void scan_lists(struct upload_dir *d, int64_t now_ms)
{
    char path[FILE_PATH_SIZE], files[FILE_PATH_SIZE];
    if (file_join(path, NULL, "%s/lists", d->dir)) return;
    DIR *dir = opendir(path);
    for (struct dirent *ent; dir && (ent = readdir(dir));) {
        const size_t n = strlen(ent->d_name);
        if (n < 6 || strcmp(ent->d_name + n - 5, ".json") ||
            file_join(path, NULL, "%s/lists/%s", d->dir, ent->d_name) ||
            file_join(files, NULL, "%s/files/%.*s", d->dir, (int)n - 5, ent->d_name))
            continue;
        struct upload_list *l = file_exists(files) ? read_list(path) : NULL;
        if (l)
            add(d, l, true, now_ms);
        else
            file_remove(path, NULL); /* a commit or a removal was cut short */
    }
    if (dir) closedir(dir);
}

static int open_tree(const struct upload_dir *d, int64_t id, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (part_path(d, id, "/tree", path, e)) return -1;
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? err_errno(e, "%s", path) : fd;
}

static int open_file(const struct upload_dir *d, const struct upload *u, int i, int flags,
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

/* Measures the bytes that each file has. A file with too many is emptied. */
static void measure(struct upload_dir *d, struct upload *u)
{
    struct stat st;
    for (int i = 0; i < u->l->n; i++) {
        struct upload_file *f = &u->l->file[i];
        const int fd = open_file(d, u, i, O_RDWR, NULL);
        if (fd < 0) continue;
        if (!fstat(fd, &st)) f->received = st.st_size;
        if (f->received > f->size && !ftruncate(fd, 0)) f->received = 0;
        close(fd);
    }
}

static void scan_parts(struct upload_dir *d, int64_t now_ms)
{
    char path[FILE_PATH_SIZE], again[32];
    if (file_join(path, NULL, "%s/parts", d->dir)) return;
    DIR *dir = opendir(path);
    for (struct dirent *ent; dir && (ent = readdir(dir));) {
        if (ent->d_name[0] == '.') continue;
        const long long id = strtoll(ent->d_name, NULL, 10);
        snprintf(again, sizeof again, "%lld", id);
        if (file_join(path, NULL, "%s/parts/%s/list.json", d->dir, ent->d_name)) continue;
        struct upload_list *l = !strcmp(again, ent->d_name) ? read_list(path) : NULL;
        if (l && l->id == id && !find(d, id)) {
            measure(d, add(d, l, false, now_ms));
            continue;
        }
        free(l); /* never begun, complete, or removed: left by a kill */
        if (!file_join(path, NULL, "%s/parts/%s", d->dir, ent->d_name)) file_remove(path, NULL);
        if (id > d->last_id) d->last_id = id;
    }
    if (dir) closedir(dir);
}

static int take_lock(struct upload_dir *d, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/lock", d->dir)) return -1;
    d->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock < 0) return err_errno(e, "open %s", path);
    if (file_lock(d->lock) == 0) return 0;
    if (errno != EWOULDBLOCK) return err_errno(e, "lock %s", path);
    return err_set(e, ERR_CONFLICT,
                   "%s is held: another seqd has these uploads: give each its own --uploads", path);
}

static int make_dirs(struct upload_dir *d, struct err *e)
{
    static const char *const parts[] = {"parts", "lists", "files"};
    char path[FILE_PATH_SIZE], real[FILE_PATH_SIZE];
    if (file_make_dir(d->o.dir, e)) return -1;
    if (!realpath(d->o.dir, real)) return err_errno(e, "%s", d->o.dir);
    if (strlen(real) >= sizeof d->dir) return err_set(e, ERR_TOO_LARGE, "%s is too long", real);
    memcpy(d->dir, real, strlen(real) + 1);
    snprintf(d->files, sizeof d->files, "%s/files", d->dir);
    for (int i = 0; i < 3; i++)
        if (file_join(path, e, "%s/%s", d->dir, parts[i]) || file_make_dir(path, e)) return -1;
    /* Mark both: nodes may have either as a root, or a directory above them. */
    if (beneath_mark(d->dir, e) || beneath_mark(d->files, e)) return -1;
    return chmod(path, 0755) ? err_errno(e, "chmod %s", path) : take_lock(d, e);
}

struct upload_dir *upload_dir_open(const struct upload_dir_options *o, int64_t now_ms,
                                   struct err *e)
{
    struct upload_dir *d = calloc(1, sizeof *d);
    if (!d) abort();
    d->o = *o;
    d->lock = -1;
    if (make_dirs(d, e)) {
        err_prefix(e, "uploads");
        upload_dir_close(d);
        return NULL;
    }
    scan_lists(d, now_ms);
    scan_parts(d, now_ms);
    return d;
}

void upload_dir_close(struct upload_dir *d)
{
    if (!d) return;
    while (d->first) drop(d, d->first);
    if (d->lock >= 0) close(d->lock);
    free(d);
}

const char *upload_dir_files(const struct upload_dir *d)
{
    return d->files;
}

/* ---- new ones -------------------------------------------------------------------------------- */

static int check_quota(struct upload_dir *d, const struct upload_list *l, struct err *e)
{
    int64_t all = l->size, own = l->size, missing = l->size;
    struct statvfs fs;
    for (const struct upload *u = d->first; u; u = u->next) {
        all += u->l->size;
        missing += u->l->size - received(u);
        if (!strcmp(u->l->owner, l->owner)) own += u->l->size;
    }
    if (d->n >= UPLOADS_COUNT)
        return err_set(e, ERR_TOO_LARGE, "there are %d uploads, the most: remove one first", d->n);
    if (all > d->o.max)
        return err_field(e, ERR_TOO_LARGE, "files",
                         "all uploads would have %lld bytes, at most %lld may be (seqd "
                         "--uploads-max): remove one first",
                         (long long)all, (long long)d->o.max);
    if (own > d->o.user_max)
        return err_field(e, ERR_TOO_LARGE, "files",
                         "your uploads would have %lld bytes, at most %lld may be (seqd "
                         "--user-uploads-max): remove one first",
                         (long long)own, (long long)d->o.user_max);
    if (statvfs(d->dir, &fs)) return err_errno(e, "%s", d->dir);
    if (missing + SPARE > (int64_t)fs.f_bavail * (int64_t)fs.f_frsize)
        return err_set(
            e, ERR_NO_SPACE,
            "the disk of %s has %lld bytes free, uploads need %lld: remove an upload, or "
            "make room there",
            d->dir, (long long)fs.f_bavail * (long long)fs.f_frsize, (long long)(missing + SPARE));
    return 0;
}

static int write_list(const struct upload_list *l, const char *path, struct err *e)
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

/* Looks for an upload of the same name. 1: it has the same owner and files, -1: it differs, 0:
 * there is none. */
static int find_name(struct upload_dir *d, const struct upload_list *l, int64_t *id, struct err *e)
{
    for (const struct upload *u = d->first; u; u = u->next) {
        if (strcmp(u->l->name, l->name)) continue;
        if (strcmp(u->l->owner, l->owner))
            return err_field(e, ERR_CONFLICT, "name",
                             "name: another user has an upload \"%s\": give another name", l->name);
        *id = u->l->id;
        if (upload_list_same(u->l, l)) return 1;
        return err_field(e, ERR_CONFLICT, "name",
                         "name: an upload \"%s\" with other files %s: remove it (%lld), or give "
                         "another name",
                         l->name, u->done ? "is here" : "has begun", (long long)u->l->id);
    }
    return 0;
}

static int make_part(struct upload_dir *d, const struct upload_list *l, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (part_path(d, l->id, "/tree", path, e) || file_make_dir(path, e)) return -1;
    return part_path(d, l->id, "/list.json", path, e) ? -1 : write_list(l, path, e);
}

int upload_dir_create(struct upload_dir *d, const char *owner, const char *body, size_t size,
                      int64_t now_ms, int64_t *id, bool *made, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct upload_list *l = upload_list_new();
    *made = false;
    int rc = upload_list_read(l, body, size, false, e);
    snprintf(l->owner, sizeof l->owner, "%s", owner);
    if (!rc) rc = find_name(d, l, id, e);
    if (!rc) rc = check_quota(d, l, e);
    if (rc) {
        free(l);
        return rc < 0 ? -1 : 0;
    }
    l->id = *id = ++d->last_id;
    l->created_ms = now_ms;
    if (make_part(d, l, e)) {
        if (!part_path(d, l->id, "", path, NULL)) file_remove(path, NULL);
        free(l);
        return -1;
    }
    add(d, l, false, now_ms);
    *made = true;
    return 0;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Compares the digest of a whole file, sha, with its list. A file that differs becomes empty. */
static int judge(struct upload *u, int i, int fd, const struct sha256 *sha, struct err *e)
{
    char hex[SHA256_HEX];
    struct sha256 copy = *sha;
    sha256_hex(&copy, hex);
    u->verified[i] = !strcmp(hex, u->l->file[i].sha256);
    if (u->verified[i]) return 0;
    if (!ftruncate(fd, 0)) u->l->file[i].received = 0;
    u->hashed = -1;
    return err_field(e, ERR_CORRUPT, "sha256",
                     "%s does not have the digest of its list: it is empty again, send it again",
                     u->l->file[i].path);
}

/* Writes all bytes or none: a full disk leaves the file as it was. */
static int append(int fd, const char *path, int64_t offset, const char *bytes, size_t n,
                  struct err *e)
{
    for (size_t done = 0; done < n;) {
        const ssize_t k = pwrite(fd, bytes + done, n - done, offset + (int64_t)done);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) {
            err_write(e, offset + (int64_t)n, "write %s", path);
            if (ftruncate(fd, offset)) err_errno(e, "truncate %s after a failed write", path);
            return -1;
        }
        done += (size_t)k;
    }
    return 0;
}

/* Adds the fix to the error of a disk that has no room. at: the bytes that the file has. */
static int say_fix(const struct upload_dir *d, int64_t at, struct err *e)
{
    char why[sizeof e->text];
    if (e->code != ERR_NO_SPACE) return -1;
    memcpy(why, e->text, sizeof why);
    return err_set(
        e, ERR_NO_SPACE,
        "%.256s: remove an upload or make room on the disk of %.128s, then send the file on "
        "from byte %lld",
        why, d->dir, (long long)at);
}

static int check_write(const struct upload *u, int file, int64_t offset, size_t n, int64_t *at,
                       struct err *e)
{
    if (file < 0 || file >= u->l->n)
        return err_field(e, ERR_NOT_FOUND, "file", "file: the upload has files 0 to %d",
                         u->l->n - 1);
    *at = u->l->file[file].received;
    if (offset != *at)
        return err_field(e, ERR_CONFLICT, "Upload-Offset", "%s has %lld bytes: continue there",
                         u->l->file[file].path, (long long)*at);
    if ((int64_t)n > u->l->file[file].size - *at)
        return err_field(e, ERR_INVALID, "Upload-Offset",
                         "%s would have more than the %lld bytes of its list",
                         u->l->file[file].path, (long long)u->l->file[file].size);
    return 0;
}

/* Computes the digest as bytes come, while they come in order. After a restart it is computed at
 * the end. */
static void hash_along(struct upload *u, int i, int64_t offset, const void *bytes, size_t n)
{
    if (!offset) {
        u->hashed = i;
        u->hashed_at = 0;
        sha256_init(&u->sha);
    }
    if (u->hashed != i || u->hashed_at != offset) return;
    sha256_add(&u->sha, bytes, n);
    u->hashed_at += (int64_t)n;
}

int upload_dir_write(struct upload_dir *d, int64_t id, int file, int64_t offset, const void *bytes,
                     size_t n, int64_t now_ms, int64_t *at, struct err *e)
{
    struct upload *u = find_or_say(d, id, e);
    *at = -1;
    if (!u || check_write(u, file, offset, n, at, e)) return -1;
    if (u->done || !n) return 0;
    struct upload_file *f = &u->l->file[file];
    const int fd = open_file(d, u, file, O_RDWR | O_CREAT, e);
    if (fd < 0) return say_fix(d, offset, e);
    int rc = append(fd, f->path, offset, bytes, n, e);
    if (!rc) {
        u->touched_ms = now_ms;
        f->received += (int64_t)n;
        hash_along(u, file, offset, bytes, n);
        if (f->received == f->size && u->hashed == file && u->hashed_at == f->size)
            rc = judge(u, file, fd, &u->sha, e);
    } else {
        say_fix(d, offset, e);
    }
    *at = f->received;
    close(fd);
    return rc;
}

/* ---- completion ------------------------------------------------------------------------------ */

static int verify(struct upload_dir *d, struct upload *u, int i, struct err *e)
{
    const struct upload_file *f = &u->l->file[i];
    struct sha256 sha;
    ssize_t n = 0;
    if (f->received < f->size)
        return err_field(e, ERR_CONFLICT, "files", "%s has %lld of %lld bytes: send the rest first",
                         f->path, (long long)f->received, (long long)f->size);
    if (u->verified[i]) return 0;
    const int fd = open_file(d, u, i, O_RDWR | O_CREAT, e); /* an empty file is made here */
    char *piece = malloc(PIECE);
    if (!piece) abort();
    sha256_init(&sha);
    for (int64_t at = 0; fd >= 0 && (n = pread(fd, piece, PIECE, at)) > 0; at += n)
        sha256_add(&sha, piece, (size_t)n);
    free(piece);
    const int rc = fd < 0 ? -1 : n < 0 ? err_errno(e, "read") : judge(u, i, fd, &sha, e);
    if (fd >= 0) close(fd);
    return rc;
}

/* Lets ranks read the files, even ranks of another Unix user. The mode of DIR decides who may
 * enter it. */
static int open_modes(const struct upload *u, int tree, struct err *e)
{
    char path[UPLOAD_PATH];
    int rc = fchmod(tree, 0755);
    for (int i = 0; i < u->l->n && !rc; i++) {
        snprintf(path, sizeof path, "%s", u->l->file[i].path);
        rc = fchmodat(tree, path, 0644, 0);
        for (char *slash; !rc && (slash = strrchr(path, '/'));) {
            *slash = 0;
            rc = fchmodat(tree, path, 0755, 0);
        }
    }
    return rc ? err_errno(e, "chmod") : 0;
}

static int publish(struct upload_dir *d, struct upload *u, struct err *e)
{
    char list[FILE_PATH_SIZE], tree[FILE_PATH_SIZE], files[FILE_PATH_SIZE], dir[FILE_PATH_SIZE];
    if (file_join(list, e, "%s/lists/%s.json", d->dir, u->l->name) ||
        file_join(files, e, "%s/files/%s", d->dir, u->l->name) ||
        part_path(d, u->l->id, "/tree", tree, e) || write_list(u->l, list, e) ||
        file_join(dir, e, "%s/lists", d->dir) || file_sync_dir(dir, e))
        return -1;
    if (rename(tree, files)) return err_errno(e, "rename %s", files);
    if (file_join(dir, e, "%s/files", d->dir) || file_sync_dir(dir, e)) return -1;
    if (!part_path(d, u->l->id, "", tree, NULL)) file_remove(tree, NULL);
    u->done = true;
    log_info("upload.done", "id=%lld name=%s size=%lld", (long long)u->l->id, u->l->name,
             (long long)u->l->size);
    return 0;
}

int upload_dir_commit(struct upload_dir *d, int64_t id, struct err *e)
{
    struct upload *u = find_or_say(d, id, e);
    if (!u || u->done) return u ? 0 : -1;
    for (int i = 0; i < u->l->n; i++)
        if (verify(d, u, i, e)) return -1;
    const int tree = open_tree(d, id, e);
    if (tree < 0) return -1;
    int rc = open_modes(u, tree, e);
    if (!rc && syncfs(tree)) rc = err_errno(e, "sync");
    close(tree);
    return rc ? -1 : publish(d, u, e);
}

int upload_dir_remove(struct upload_dir *d, int64_t id, struct err *e)
{
    char path[FILE_PATH_SIZE], gone[FILE_PATH_SIZE];
    struct upload *u = find_or_say(d, id, e);
    if (!u || part_path(d, id, ".gone", gone, e) || file_remove(gone, e)) return -1;
    if (u->done ? file_join(path, e, "%s/files/%s", d->dir, u->l->name)
                : part_path(d, id, "", path, e))
        return -1;
    if (rename(path, gone)) return err_errno(e, "remove %s", path);
    if (u->done && !file_join(path, NULL, "%s/lists/%s.json", d->dir, u->l->name))
        file_remove(path, NULL);
    log_info("upload.remove", "id=%lld name=%s", (long long)id, u->l->name);
    drop(d, u);
    /* The upload is gone whatever becomes of its files: the next start removes those that stay. */
    struct err stays = {0};
    if (file_remove(gone, &stays))
        log_error("upload.stays", "id=%lld why=\"%s\"", (long long)id, stays.text);
    return 0;
}

void upload_dir_sweep(struct upload_dir *d, int64_t now_ms)
{
    for (struct upload *u = d->first, *next; u; u = next) {
        struct err e;
        next = u->next;
        if (u->done || now_ms - u->touched_ms < d->o.expire_ms) continue;
        if (upload_dir_remove(d, u->l->id, &e))
            log_error("upload.expire", "id=%lld why=\"%s\"", (long long)u->l->id, e.text);
    }
}

static void copy_name(const struct upload *u, struct upload_name *out)
{
    out->id = u->l->id;
    memcpy(out->name, u->l->name, sizeof out->name);
    memcpy(out->owner, u->l->owner, sizeof out->owner);
}

bool upload_dir_complete(const struct upload_dir *d, int i, struct upload_name *out)
{
    const struct upload *u = d->first;
    while (u && (!u->done || i-- > 0)) u = u->next;
    if (u) copy_name(u, out);
    return u != NULL;
}

bool upload_dir_name(const struct upload_dir *d, int64_t id, struct upload_name *out)
{
    const struct upload *u = find(d, id);
    if (u) copy_name(u, out);
    return u != NULL;
}

/* ---- shown ----------------------------------------------------------------------------------- */

static void put_upload(struct jwrite *w, const struct upload_dir *d, const struct upload *u,
                       bool files)
{
    char path[FILE_PATH_SIZE];
    struct upload_shown v = {.state = u->done ? UPLOAD_COMPLETE : UPLOAD_RECEIVING,
                             .size = u->l->size,
                             .received = received(u),
                             .all = files ? u->l : NULL};
    copy_name(u, &v.of);
    doc_time(u->l->created_ms, v.created_at);
    if (u->done && !file_join(path, NULL, "%s/%s", d->files, u->l->name)) v.path = path;
    upload_show(&v, w);
}

static size_t room_of(const struct upload_dir *d)
{
    return 6 * strlen(d->files) + 6 * (3 * UPLOAD_NAME) + 512;
}

char *upload_dir_show(struct upload_dir *d, int64_t id, struct err *e)
{
    const struct upload *u = find_or_say(d, id, e);
    if (!u) return NULL;
    const size_t size = upload_list_room(u->l) + (size_t)u->l->n * 40 + room_of(d);
    char *out = malloc(size);
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    put_upload(&w, d, u, true);
    if (jwrite_finish(&w) < 0) abort();
    return out;
}

char *upload_dir_list(struct upload_dir *d, const struct principal *who)
{
    const size_t size = (size_t)(d->n + 1) * room_of(d);
    char *out = malloc(size);
    struct jwrite w;
    if (!out) abort();
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    for (const struct upload *u = d->first; u; u = u->next)
        if (principal_owns(who, u->l->owner)) put_upload(&w, d, u, false);
    jwrite_end(&w);
    jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", false);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
    return out;
}
