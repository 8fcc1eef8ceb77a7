/* manifest.c: writes and reads MANIFEST.json, and checks files against it by size or by digest. */
#include "api/core/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/record.h"

/* The bytes at the end of the file that the digest does not cover: ,"sha256":"<64>"} */
#define TAIL_KEY ",\"sha256\":\""
enum { TAIL_SIZE = sizeof TAIL_KEY - 1 + 64 + 2 };

/* ---- the members ----------------------------------------------------------------------------- */

static const void *file_get(const void *record, int i)
{
    const struct manifest *m = record;
    return i < m->n_files ? &m->file[i] : NULL;
}

static void *file_add(void *record, int i)
{
    struct manifest *m = record;
    if (i == MANIFEST_FILES) return NULL;
    m->n_files = i + 1;
    return &m->file[i];
}

static bool good_digest(const char *hex)
{
    return strspn(hex, "0123456789abcdef") == SHA256_HEX - 1 && !hex[SHA256_HEX - 1];
}

static bool file_holds(const void *record, int i)
{
    const struct manifest *m = record;
    const struct manifest_file *f = &m->file[i];
    return beneath_name_good(f->path) && good_digest(f->sha256) && manifest_find(m, f->path) == f;
}

#define AT(member) offsetof(struct manifest_file, member)
static const struct field file_rows[] = {
    {"path", FIELD_TEXT, AT(path), .size = MANIFEST_PATH_SIZE, .when = record_always},
    {"size", FIELD_INT, AT(size), 0, MANIFEST_FILE_MAX, .when = record_always},
    {"sha256", FIELD_TEXT, AT(sha256), .size = SHA256_HEX, .when = record_always},
    {NULL},
};
#undef AT
#define AT(member) offsetof(struct manifest, member)
static const struct field_list files = {file_rows, file_get, file_add, file_holds};
static const struct field rows[] = {
    {"version", FIELD_FIXED, 0, 1, 1, .needed = true},
    {"step", FIELD_INT, AT(step), INT64_MIN, INT64_MAX, .when = record_always},
    {"epoch", FIELD_INT, AT(epoch), INT64_MIN, INT64_MAX, .when = record_always},
    {"weights_sha256", FIELD_TEXT, AT(weights_sha256), .size = SHA256_HEX, .when = record_always},
    {"files", FIELD_LIST, .list = &files, .when = record_always},
    {NULL},
};

/* ---- writing --------------------------------------------------------------------------------- */

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
    record_write_members(&w, rows, m);
    digest(text, w.len, hex); /* text has room for all members */
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

int manifest_parse(struct manifest *m, const char *text, size_t size, const char *path,
                   struct err *e)
{
    char hex[SHA256_HEX];
    struct jread j;
    *m = (struct manifest){0};
    if (size < TAIL_SIZE) return err_set(e, ERR_CORRUPT, "%s is truncated", path);
    const char *tail = text + size - TAIL_SIZE;
    digest(text, (size_t)(tail - text), hex);
    if (memcmp(tail, TAIL_KEY, sizeof TAIL_KEY - 1) ||
        memcmp(tail + sizeof TAIL_KEY - 1, hex, 64) || memcmp(tail + TAIL_SIZE - 2, "\"}", 2))
        return err_set(e, ERR_CORRUPT, "%s does not have its own digest: it is damaged", path);
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT || record_read(&j, rows, m, NULL) || jread_next(&j) != J_END)
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
        if (e && e->code != ERR_IO)
            e->code = ERR_CORRUPT; /* path is a directory, or the file is
                                                            * far too large */
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
    const int fd = beneath_read(path, e); /* refuses a file that the process may not read */
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
