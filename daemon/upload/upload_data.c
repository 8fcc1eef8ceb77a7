/* upload_data.c: writes the bytes of uploads, verifies them, and publishes complete uploads. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/log.h"
#include "daemon/upload/upload_own.h"

#define PIECE (1 << 18)

/* ---- bytes ----------------------------------------------------------------------------------- */

/* Compares sha, which has hashed a whole file, with the digest in the upload's list. If they
 * differ, empties the file. */
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

/* Writes all bytes or none. A full disk leaves the file unchanged. */
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

/* If *e is ERR_NO_SPACE, adds the fix to its text. `at` is the number of bytes that the file
 * has. */
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

/* Hashes bytes as they arrive, if they arrive in order. If they do not, or if seqd was restarted
 * in between, the file is hashed at the end instead. */
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
    struct upload *u = upload_find_or_say(d, id, e);
    *at = -1;
    if (!u || check_write(u, file, offset, n, at, e)) return -1;
    if (u->done || !n) return 0;
    struct upload_file *f = &u->l->file[file];
    const int fd = upload_open_file(d, u, file, O_RDWR | O_CREAT, e);
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
    /* an empty file is made here, because the client sends no bytes for it */
    const int fd = upload_open_file(d, u, i, O_RDWR | O_CREAT, e);
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

/* Lets ranks read the files, even ranks that run as a different Unix user. The mode of DIR decides
 * which users can reach the files. */
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
        upload_part_path(d, u->l->id, "/tree", tree, e) || upload_write_list(u->l, list, e) ||
        file_join(dir, e, "%s/lists", d->dir) || file_sync_dir(dir, e))
        return -1;
    if (rename(tree, files)) return err_errno(e, "rename %s", files);
    if (file_join(dir, e, "%s/files", d->dir) || file_sync_dir(dir, e)) return -1;
    if (!upload_part_path(d, u->l->id, "", tree, NULL)) file_remove(tree, NULL);
    u->done = true;
    log_info("upload.done", "id=%lld name=%s size=%lld", (long long)u->l->id, u->l->name,
             (long long)u->l->size);
    return 0;
}

int upload_dir_commit(struct upload_dir *d, int64_t id, struct err *e)
{
    struct upload *u = upload_find_or_say(d, id, e);
    if (!u || u->done) return u ? 0 : -1;
    for (int i = 0; i < u->l->n; i++)
        if (verify(d, u, i, e)) return -1;
    const int tree = upload_open_tree(d, id, e);
    if (tree < 0) return -1;
    int rc = open_modes(u, tree, e);
    if (!rc && syncfs(tree)) rc = err_errno(e, "sync");
    close(tree);
    return rc ? -1 : publish(d, u, e);
}
