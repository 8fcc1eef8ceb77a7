/* manifest.c: writes and reads MANIFEST.json, and checks files against it by size or by digest. */
#include "api/core/manifest.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"

/* The bytes after the digested ones: ,"sha256":"<64>"} */
#define TAIL_KEY ",\"sha256\":\""
enum { TAIL_SIZE = sizeof TAIL_KEY - 1 + 64 + 2 };

void manifest_put(struct manifest *m, const char *path, int64_t size, const char hex[SHA256_HEX])
{
    assert(m->n_files < MANIFEST_FILES && strlen(path) < MANIFEST_PATH_SIZE);
    struct manifest_file *f = &m->file[m->n_files++];
    f->size = size;
    memcpy(f->sha256, hex, SHA256_HEX);
    snprintf(f->path, sizeof f->path, "%s", path);
}

int manifest_add(struct manifest *m, const char *dir, const char *path, struct err *e)
{
    char full[FILE_PATH_SIZE], hex[SHA256_HEX];
    int64_t size;
    if (file_join(full, e, "%s/%s", dir, path) < 0) return -1;
    if (sha256_file(full, hex, &size, e) < 0) return -1;
    manifest_put(m, path, size, hex);
    return 0;
}

static void digest(const char *text, size_t n, char hex[SHA256_HEX])
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, text, n);
    sha256_hex(&sha, hex);
}

int manifest_write(const struct manifest *m, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE], hex[SHA256_HEX];
    struct jwrite w;
    char *text = malloc(MANIFEST_SIZE);
    if (!text) return err_set(e, ERR_IO, "out of memory");
    jwrite_init(&w, text, MANIFEST_SIZE);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "version", 1);
    jwrite_int(&w, "step", m->step);
    jwrite_int(&w, "epoch", m->epoch);
    jwrite_str(&w, "weights_sha256", m->weights_sha256);
    jwrite_array(&w, "files");
    for (int i = 0; i < m->n_files; i++) {
        jwrite_object(&w, NULL);
        jwrite_str(&w, "path", m->file[i].path);
        jwrite_int(&w, "size", m->file[i].size);
        jwrite_str(&w, "sha256", m->file[i].sha256);
        jwrite_end(&w);
    }
    jwrite_end(&w);
    digest(text, w.len, hex); /* it fits */
    jwrite_str(&w, "sha256", hex);
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    assert(n > 0);
    int rc = file_join(path, e, "%s/" MANIFEST_NAME, dir);
    if (rc == 0) rc = file_write(path, text, (size_t)n, e);
    free(text);
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool good_digest(const char *hex)
{
    return strspn(hex, "0123456789abcdef") == SHA256_HEX - 1 && !hex[SHA256_HEX - 1];
}

static bool good_entry(const struct manifest *m, const struct manifest_file *f)
{
    return beneath_name_good(f->path) && f->size >= 0 && f->size <= MANIFEST_FILE_MAX &&
           good_digest(f->sha256) && !manifest_find(m, f->path);
}

static int read_file_entry(struct manifest *m, struct jread *j)
{
    struct manifest_file *f = &m->file[m->n_files];
    enum jtok t;
    while ((t = jread_next(j)) == J_KEY) {
        int rc = 0;
        if (jread_is(j, "path"))
            rc = jread_next(j) == J_STRING ? jread_copy(j, f->path, sizeof f->path) : -1;
        else if (jread_is(j, "sha256"))
            rc = jread_next(j) == J_STRING ? jread_copy(j, f->sha256, sizeof f->sha256) : -1;
        else if (jread_is(j, "size"))
            rc = jread_next(j) == J_NUMBER ? jread_int(j, &f->size) : -1;
        else
            rc = jread_skip(j);
        if (rc < 0) return -1;
    }
    if (t != J_OBJECT_END || !good_entry(m, f)) return -1;
    m->n_files++;
    return 0;
}

static int read_files(struct manifest *m, struct jread *j)
{
    enum jtok t;
    if (jread_next(j) != J_ARRAY) return -1;
    while ((t = jread_next(j)) == J_OBJECT)
        if (m->n_files == MANIFEST_FILES || read_file_entry(m, j) < 0) return -1;
    return t == J_ARRAY_END ? 0 : -1;
}

static int read_member(struct manifest *m, struct jread *j, int64_t *version)
{
    if (jread_is(j, "version")) return jread_next(j) == J_NUMBER ? jread_int(j, version) : -1;
    if (jread_is(j, "step")) return jread_next(j) == J_NUMBER ? jread_int(j, &m->step) : -1;
    if (jread_is(j, "epoch")) return jread_next(j) == J_NUMBER ? jread_int(j, &m->epoch) : -1;
    if (jread_is(j, "files")) return read_files(m, j);
    if (!jread_is(j, "weights_sha256")) return jread_skip(j);
    if (jread_next(j) != J_STRING) return -1;
    return jread_copy(j, m->weights_sha256, sizeof m->weights_sha256);
}

int manifest_parse(struct manifest *m, const char *text, size_t size, const char *path,
                   struct err *e)
{
    char hex[SHA256_HEX];
    struct jread j;
    enum jtok t = J_ERROR;
    int64_t version = 0;
    int rc = 0;
    *m = (struct manifest){0};
    if (size < TAIL_SIZE) return err_set(e, ERR_CORRUPT, "%s is truncated", path);
    const char *tail = text + size - TAIL_SIZE;
    digest(text, (size_t)(tail - text), hex);
    if (memcmp(tail, TAIL_KEY, sizeof TAIL_KEY - 1) ||
        memcmp(tail + sizeof TAIL_KEY - 1, hex, 64) || memcmp(tail + TAIL_SIZE - 2, "\"}", 2))
        return err_set(e, ERR_CORRUPT, "%s does not have its own digest: it is damaged", path);
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) rc = -1;
    while (rc == 0 && (t = jread_next(&j)) == J_KEY) rc = read_member(m, &j, &version);
    if (rc < 0 || t != J_OBJECT_END || jread_next(&j) != J_END || version != 1)
        return err_set(e, ERR_CORRUPT, "%s is not a manifest of version 1", path);
    return 0;
}

int manifest_read(struct manifest *m, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct stat st;
    size_t size;
    *m = (struct manifest){0};
    if (stat(dir, &st) < 0) return err_errno(e, "checkpoint %s", dir);
    if (file_join(path, e, "%s/" MANIFEST_NAME, dir) < 0) return -1;
    char *text = file_read(path, MANIFEST_SIZE, &size, e);
    if (!text && e && e->code == ERR_NOT_FOUND)
        return err_set(e, ERR_CORRUPT,
                       "%s has no " MANIFEST_NAME ": it is not a complete checkpoint", dir);
    if (!text) {
        if (e && e->code != ERR_IO) e->code = ERR_CORRUPT; /* a directory, or far too large */
        return -1;
    }
    int rc = manifest_parse(m, text, size, path, e);
    free(text);
    return rc;
}

int manifest_check_file(const struct manifest *m, int i, const char *dir, enum manifest_depth depth,
                        struct err *e)
{
    const struct manifest_file *f = &m->file[i];
    char path[FILE_PATH_SIZE], hex[SHA256_HEX];
    struct stat st;
    if (file_join(path, e, "%s/%s", dir, f->path) < 0) return -1;
    const int fd = beneath_read(path, e); /* as it will be read: a size is not told of others */
    const int rc = fd < 0 ? -1 : fstat(fd, &st);
    if (fd >= 0) close(fd);
    if (rc < 0) {
        if (fd >= 0) err_errno(e, "%s", path);
        if (e) e->code = ERR_CORRUPT;
        return -1;
    }
    if (!S_ISREG(st.st_mode)) return err_set(e, ERR_CORRUPT, "%s is not a regular file", path);
    if (st.st_size != f->size)
        return err_set(e, ERR_CORRUPT, "%s has %lld bytes, the manifest says %lld", path,
                       (long long)st.st_size, (long long)f->size);
    if (depth == MANIFEST_SIZES) return 0;
    if (sha256_file(path, hex, NULL, e) < 0) return -1;
    if (!strcmp(hex, f->sha256)) return 0;
    return err_set(e, ERR_CORRUPT, "%s is damaged: its SHA-256 is not the manifest's", path);
}

int manifest_check(struct manifest *m, const char *dir, enum manifest_depth depth, struct err *e)
{
    if (manifest_read(m, dir, e) < 0) return -1;
    for (int i = 0; i < m->n_files; i++)
        if (manifest_check_file(m, i, dir, depth, e) < 0) return -1;
    return 0;
}

const struct manifest_file *manifest_find(const struct manifest *m, const char *path)
{
    for (int i = 0; i < m->n_files; i++)
        if (!strcmp(m->file[i].path, path)) return &m->file[i];
    return NULL;
}
