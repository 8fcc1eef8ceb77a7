/* references.c: writes and reads the file as a whole: a header of fixed size, and the numbers. */
#include "worker/ckpt/references.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/sha256.h"

static const char magic[16] = "seqd references";

struct header {
    char magic[16];
    uint64_t version, n;
    char data_id[80], base[72], sha256[72];
};
_Static_assert(sizeof(struct header) == 256, "the file has no gaps");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the file is little-endian");

static void digest(const struct references *r, char out[SHA256_HEX])
{
    struct sha256 s;
    sha256_init(&s);
    sha256_add(&s, r->x, (size_t)r->n * sizeof *r->x);
    sha256_hex(&s, out);
}

int references_write(const char *dir, const struct references *r, struct err *e)
{
    char path[FILE_PATH_SIZE], sha[SHA256_HEX];
    struct header h = {.version = 1, .n = (uint64_t)r->n};
    const size_t size = sizeof h + (size_t)r->n * sizeof *r->x;
    if (file_join(path, e, "%s/" REFERENCES_FILE, dir) < 0) return -1;
    char *all = malloc(size);
    if (!all) return err_set(e, ERR_IO, "out of memory for %lld references", (long long)r->n);
    digest(r, sha);
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.data_id, r->data_id, strnlen(r->data_id, sizeof h.data_id - 1));
    memcpy(h.base, r->base, strnlen(r->base, sizeof h.base - 1));
    memcpy(h.sha256, sha, strlen(sha));
    memcpy(all, &h, sizeof h);
    memcpy(all + sizeof h, r->x, (size_t)r->n * sizeof *r->x);
    const int rc = file_write(path, all, size, e);
    free(all);
    return rc < 0 ? -1 : file_sync_dir(dir, e);
}

/* Checks the contents of a file, and copies its numbers. */
static int take(const char *path, const char *all, size_t size, const struct references *r,
                bool any_base, struct err *e)
{
    struct header h;
    char sha[SHA256_HEX];
    if (size < sizeof h || memcmp(all, magic, sizeof magic))
        return err_set(e, ERR_CORRUPT, "%s is no file of references", path);
    memcpy(&h, all, sizeof h);
    if (h.version != 1)
        return err_set(e, ERR_CORRUPT, "%s has version %llu: this version of seqd reads 1", path,
                       (unsigned long long)h.version);
    h.data_id[sizeof h.data_id - 1] = h.base[sizeof h.base - 1] = 0;
    h.sha256[sizeof h.sha256 - 1] = 0;
    if (strcmp(h.data_id, r->data_id)) return 0;
    if (!any_base && (!*r->base || strcmp(h.base, r->base))) return 0;
    if (h.n != (uint64_t)r->n || size != sizeof h + (size_t)r->n * sizeof *r->x)
        return err_set(e, ERR_CORRUPT,
                       "%s has %llu references in %zu bytes, and the data %lld "
                       "documents",
                       path, (unsigned long long)h.n, size, (long long)r->n);
    memcpy(r->x, all + sizeof h, (size_t)r->n * sizeof *r->x);
    digest(r, sha);
    if (strcmp(sha, h.sha256))
        return err_set(e, ERR_CORRUPT, "%s: the digest of its references is %s, not %s", path, sha,
                       h.sha256);
    return 1;
}

int references_read(const char *dir, const struct references *r, bool any_base, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size;
    const int64_t most = (int64_t)sizeof(struct header) + (r->n + 1) * (int64_t)sizeof *r->x;
    struct err why = {0};
    if (file_join(path, e, "%s/" REFERENCES_FILE, dir) < 0) return -1;
    if (!file_exists(path)) return 0;
    char *all = file_read(path, most, &size, &why);
    if (!all && why.code == ERR_TOO_LARGE) return 0; /* of other data, or damaged */
    if (!all) {
        if (e) *e = why;
        return -1;
    }
    const int rc = take(path, all, size, r, any_base, e);
    free(all);
    return rc;
}
