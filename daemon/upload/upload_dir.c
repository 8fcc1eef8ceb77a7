/* upload_dir.c: finds uploads on disk when seqd starts, makes and removes them, and shows them. */
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
#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "daemon/state/doc.h"
#include "daemon/upload/upload_own.h"

#define LIST_SIZE ((int64_t)4 << 20)  /* largest list.json */
#define SPARE     ((int64_t)64 << 20) /* bytes of the disk that must remain free */

/* ---- in memory ------------------------------------------------------------------------------- */

/* Adds an upload to the list in memory, and takes ownership of l. */
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
        else if (!file_exists(files))
            file_remove(path, NULL); /* a commit or a removal was interrupted */
    }
    if (dir) closedir(dir);
}

/* Measures how many bytes each file has. A file that has too many bytes is emptied. */
static void measure(struct upload_dir *d, struct upload *u)
{
    struct stat st;
    for (int i = 0; i < u->l->n; i++) {
        struct upload_file *f = &u->l->file[i];
        const int fd = upload_open_file(d, u, i, O_RDWR, NULL);
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
        if (l && l->id == id && !upload_find(d, id)) {
            measure(d, add(d, l, false, now_ms));
            continue;
        }
        /* seqd was killed before the upload had begun, or after the upload was completed or
         * removed */
        free(l);
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
    /* Mark both directories, because a root of a node may be one of these directories or a
     * directory that contains them. */
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

/* Checks the numbers of uploads. An upload stops counting when it expires or is removed. */
static int check_count(const struct upload_dir *d, const char *owner, struct err *e)
{
    int own = 0;
    for (const struct upload *u = d->first; u; u = u->next) own += !strcmp(u->l->owner, owner);
    if (own >= UPLOADS_USER)
        return err_set(e, ERR_TOO_LARGE,
                       "you have %d uploads, the limit of a user: remove one first (seqctl uploads "
                       "rm NAME)",
                       own);
    if (d->n < UPLOADS_COUNT) return 0;
    return err_set(
        e, ERR_NO_SPACE,
        "there are %d uploads of all users, the limit of this seqd: remove one first, or "
        "ask the others to",
        d->n);
}

static int check_quota(struct upload_dir *d, const struct upload_list *l, struct err *e)
{
    int64_t all = l->size, own = l->size, missing = l->size;
    struct statvfs fs;
    for (const struct upload *u = d->first; u; u = u->next) {
        all += u->l->size;
        missing += u->l->size - received(u);
        if (!strcmp(u->l->owner, l->owner)) own += u->l->size;
    }
    if (check_count(d, l->owner, e)) return -1;
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

/* Looks for an upload that has the name of the list l. Returns 1 if that upload has the same owner
 * and files, -1 if owner or files differ, and 0 if there is no upload of the name. */
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
    if (upload_part_path(d, l->id, "/tree", path, e) || file_make_dir(path, e)) return -1;
    return upload_part_path(d, l->id, "/list.json", path, e) ? -1 : upload_write_list(l, path, e);
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
        if (!upload_part_path(d, l->id, "", path, NULL)) file_remove(path, NULL);
        free(l);
        return -1;
    }
    add(d, l, false, now_ms);
    *made = true;
    return 0;
}

int upload_dir_remove(struct upload_dir *d, int64_t id, struct err *e)
{
    char path[FILE_PATH_SIZE], gone[FILE_PATH_SIZE];
    struct upload *u = upload_find_or_say(d, id, e);
    if (!u || upload_part_path(d, id, ".gone", gone, e) || file_remove(gone, e)) return -1;
    if (u->done ? file_join(path, e, "%s/files/%s", d->dir, u->l->name)
                : upload_part_path(d, id, "", path, e))
        return -1;
    if (rename(path, gone)) return err_errno(e, "remove %s", path);
    if (u->done && !file_join(path, NULL, "%s/lists/%s.json", d->dir, u->l->name))
        file_remove(path, NULL);
    log_info("upload.remove", "id=%lld name=%s", (long long)id, u->l->name);
    drop(d, u);
    /* The upload is gone even if its files cannot be removed. The next start of seqd removes the
     * files that remain. */
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
    const struct upload *u = upload_find(d, id);
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
    const struct upload *u = upload_find_or_say(d, id, e);
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
