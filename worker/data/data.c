/* data.c: opens each file of a prepared directory, compares it with meta.json, and reads ids,
 * masks, sizes and origins by pread. */
#include "worker/data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "worker/data/meta.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "prepared data is read as it lies");
_Static_assert(sizeof(struct data_origin) == 24, "origins.bin is read as it lies");

struct data_part {
    int fd; /* descriptor; -1 if the directory does not have the file */
    char path[FILE_PATH_SIZE];
};

struct data {
    struct meta meta;
    struct data_part part[PART_N];
    uint64_t *ends; /* owned, one element for each document of the two sets */
    int64_t n_tokens, n_documents;
};

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads size bytes of a file, beginning at offset `at`. Fails with ERR_CORRUPT if the file has
 * become shorter since it was opened. */
static int read_at(const struct data_part *p, void *out, int64_t size, int64_t at, struct err *e)
{
    char *to = out;
    for (int64_t done = 0; done < size;) {
        ssize_t n = pread(p->fd, to + done, (size_t)(size - done), at + done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_errno(e, "read %s", p->path);
        if (n == 0)
            return err_set(e, ERR_CORRUPT, "%s became shorter: no byte at %lld", p->path,
                           (long long)(at + done));
        done += n;
    }
    return 0;
}

int data_read(const struct data *d, int64_t first, int64_t n, int32_t *ids, struct err *e)
{
    const int width = d->meta.width;
    assert(first >= 0 && n >= 0 && n <= d->n_tokens - first);
    /* Tokens that are narrower than an id are read into the end of the array, and are then
     * widened one after another, beginning with the first. Writing id i does not overwrite
     * token i + 1, which is widened next. */
    char *raw = (char *)ids + (4 - width) * n;
    if (read_at(&d->part[PART_TOKENS], raw, width * n, width * first, e) < 0) return -1;
    for (int64_t i = 0; i < n; i++) {
        uint32_t id = 0;
        memcpy(&id, raw + width * i, (size_t)width);
        if (id > (uint32_t)d->meta.stats.max_token)
            return err_set(e, ERR_CORRUPT,
                           "%s: token %lld is %u, out of range: the largest is %lld",
                           d->part[PART_TOKENS].path, (long long)(first + i), id,
                           (long long)d->meta.stats.max_token);
        ids[i] = (int32_t)id;
    }
    return 0;
}

int data_read_mask(const struct data *d, int64_t first, int64_t n, uint8_t *learn, struct err *e)
{
    uint8_t bits[512];
    assert(first >= 0 && n >= 0 && n <= d->n_tokens - first);
    if (!data_masked(d)) {
        memset(learn, 1, (size_t)n);
        return 0;
    }
    for (int64_t i = 0; i < n;) {
        int64_t at = first + i, byte = at / 8, room = ((int64_t)sizeof bits + byte) * 8 - at;
        int64_t k = n - i < room ? n - i : room;
        if (read_at(&d->part[PART_LOSS], bits, (at + k + 7) / 8 - byte, byte, e) < 0) return -1;
        for (int64_t b = 0; b < k; b++) {
            int64_t bit = at + b - 8 * byte;
            learn[i + b] = bits[bit / 8] >> (bit % 8) & 1;
        }
        i += k;
    }
    return 0;
}

int64_t data_count_id(const struct data *d, int32_t id, bool repeats, int64_t most, struct err *e)
{
    int32_t ids[4096], before = -1;
    int64_t found = 0;
    if (id < 0 || id > d->meta.stats.max_token) return 0;
    if (most > d->n_tokens) most = d->n_tokens;
    for (int64_t at = 0, n; at < most; at += n) {
        n = most - at < 4096 ? most - at : 4096;
        if (data_read(d, at, n, ids, e) < 0) return -1;
        for (int64_t i = 0; i < n; before = ids[i++])
            found += ids[i] == id && (!repeats || before == id);
    }
    return found;
}

bool data_bytes_known(const struct data *d)
{
    return d->part[PART_BYTES].fd >= 0;
}

int data_read_bytes(const struct data *d, int64_t first, int64_t n, uint32_t *bytes, struct err *e)
{
    assert(data_bytes_known(d) && first >= 0 && n >= 0 && n <= d->n_tokens - first);
    return read_at(&d->part[PART_BYTES], bytes, 4 * n, 4 * first, e);
}

int data_origin(const struct data *d, int64_t document, struct data_origin *out, struct err *e)
{
    assert(document >= 0 && document < d->n_documents);
    return read_at(&d->part[PART_ORIGINS], out, sizeof *out, document * (int64_t)sizeof *out, e);
}

const char *data_file(const struct data *d, uint32_t file)
{
    return file < (uint32_t)d->meta.n_files ? d->meta.file[file].path : "";
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_part(struct data *d, int id, const char *dir, struct err *e)
{
    struct data_part *p = &d->part[id];
    const int64_t size = d->meta.part[id].size;
    struct stat st;
    if (size < 0) return 0;
    if (file_join(p->path, e, "%s/%s", dir, meta_part_name(id)) < 0) return -1;
    p->fd = open(p->path, O_RDONLY | O_CLOEXEC);
    if (p->fd < 0 || fstat(p->fd, &st) < 0)
        return err_set(e, ERR_CORRUPT, "cannot open %s; remove %s", p->path, dir);
    if (st.st_size == size) return 0;
    return err_set(e, ERR_CORRUPT, "%s has %lld bytes, want %lld; remove %s", p->path,
                   (long long)st.st_size, (long long)size, dir);
}

/* Writes a text that identifies the files. It consists of their names, recorded digests,
 * sizes, inodes and times. */
static int identity(const struct data *d, char *out, size_t size, struct err *e)
{
    size_t n = 0;
    for (int i = 0; i < PART_N; i++) {
        struct stat st;
        if (d->part[i].fd < 0) continue;
        if (fstat(d->part[i].fd, &st) < 0) return err_errno(e, "stat %s", d->part[i].path);
        n += (size_t)snprintf(out + n, size - n, "%s %s %lld %llu %lld.%09ld %lld.%09ld\n",
                              meta_part_name(i), d->meta.part[i].sha256, (long long)st.st_size,
                              (unsigned long long)st.st_ino, (long long)st.st_mtim.tv_sec,
                              st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
        assert(n < size);
    }
    return 0;
}

static int check_digest(const struct data *d, int id, const char *dir, struct err *e)
{
    char hex[SHA256_HEX];
    int64_t found;
    if (d->part[id].fd < 0) return 0;
    if (sha256_file(d->part[id].path, hex, &found, e) < 0) return -1;
    if (!strcmp(hex, d->meta.part[id].sha256)) return 0;
    return err_set(e, ERR_CORRUPT, "%s does not have the digest in meta.json; remove %s",
                   d->part[id].path, dir);
}

/* Hashes all files, unless an earlier open has hashed these files and they have not changed
 * since. The identity of the files is computed before they are hashed. If a file changes while
 * it is hashed, the next open computes an identity that differs from the recorded identity,
 * and hashes all files again. */
static int check_digests(const struct data *d, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE], now[2048];
    size_t size;
    if (identity(d, now, sizeof now, e) < 0) return -1;
    if (file_join(path, e, "%s.checked", dir) < 0) return -1;
    char *before = file_read(path, sizeof now, &size, NULL);
    bool known = before && !strcmp(before, now);
    free(before);
    if (known) return 0;
    for (int i = 0; i < PART_N; i++)
        if (check_digest(d, i, dir, e) < 0) return -1;
    file_write(path, now, strlen(now), NULL); /* a failure is ignored, because it only means
                                               * that the next open hashes the files again */
    return 0;
}

static int read_documents(struct data *d, struct err *e)
{
    const struct data_part *p = &d->part[PART_DOCUMENTS];
    uint64_t before = 0;
    d->ends = malloc((size_t)d->n_documents * sizeof *d->ends);
    if (!d->ends)
        return err_set(e, ERR_IO, "out of memory for the ends of %lld documents",
                       (long long)d->n_documents);
    if (read_at(p, d->ends, 8 * d->n_documents, 0, e) < 0) return -1;
    for (int64_t i = 0; i < d->n_documents; i++) {
        if (d->ends[i] <= before)
            return err_set(e, ERR_CORRUPT, "%s: document %lld does not end after the one before",
                           p->path, (long long)i);
        before = d->ends[i];
        if (i == d->meta.stats.n_documents - 1 && before != (uint64_t)d->meta.stats.n_tokens)
            return err_set(e, ERR_CORRUPT, "%s: the training set ends at token %llu, want %lld",
                           p->path, (unsigned long long)before, (long long)d->meta.stats.n_tokens);
    }
    if (before == (uint64_t)d->n_tokens) return 0;
    return err_set(e, ERR_CORRUPT, "%s: the last document ends at %llu, want %lld", p->path,
                   (unsigned long long)before, (long long)d->n_tokens);
}

static int open_parts(struct data *d, const char *dir, enum data_check check, struct err *e)
{
    if (meta_read(dir, &d->meta, e) < 0) {
        /* the directory exists, so a missing file means that it is damaged */
        if (e && e->code == ERR_NOT_FOUND) e->code = ERR_CORRUPT;
        return -1;
    }
    d->n_tokens = d->meta.stats.n_tokens + d->meta.stats.eval_tokens;
    d->n_documents = d->meta.stats.n_documents + d->meta.stats.eval_documents;
    for (int i = 0; i < PART_N; i++)
        if (open_part(d, i, dir, e) < 0) return -1;
    if (check == DATA_CHECK && check_digests(d, dir, e) < 0) return -1;
    return read_documents(d, e);
}

struct data *data_open(const char *parent, const char *id, enum data_check check, struct err *e)
{
    char dir[FILE_PATH_SIZE];
    struct stat st;
    if (file_join(dir, e, "%s/%s", parent, id) < 0) return NULL;
    if (stat(dir, &st) < 0) {
        err_errno(e, "prepared data %s", dir);
        return NULL;
    }
    struct data *d = calloc(1, sizeof *d);
    if (!d) {
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    for (int i = 0; i < PART_N; i++) d->part[i].fd = -1;
    if (open_parts(d, dir, check, e) < 0) {
        data_close(d);
        return NULL;
    }
    snprintf(d->meta.stats.id, sizeof d->meta.stats.id, "%s", id);
    return d;
}

void data_close(struct data *d)
{
    if (!d) return;
    for (int i = 0; i < PART_N; i++)
        if (d->part[i].fd >= 0) close(d->part[i].fd);
    meta_fini(&d->meta);
    free(d->ends);
    free(d);
}

const struct data_stats *data_stats(const struct data *d)
{
    return &d->meta.stats;
}

/* Compares the number of tokens with the number of bytes and documents. Text has one token per
 * byte, and one token for the end of each document. A document of ids that has only one id
 * results in the same numbers. It does not matter that such a document is counted as text,
 * because it has no target. */
bool data_all_bytes(const struct data_stats *s, enum data_set set)
{
    const bool eval = set == SET_EVAL;
    const int64_t bytes = eval ? s->eval_bytes : s->n_bytes;
    const int64_t documents = eval ? s->eval_documents : s->n_documents;
    return !s->own_tokens && bytes > 0 &&
           (eval ? s->eval_tokens : s->n_tokens) == bytes + documents;
}

int data_check_vocab(const struct data *d, int64_t vocab, struct err *e)
{
    if (d->meta.stats.max_token < vocab) return 0;
    return err_set(e, ERR_INVALID,
                   "%s: token %lld is %lld: the model's vocabulary has %lld ids, from 0",
                   data_file(d, (uint32_t)d->meta.max_file), (long long)d->meta.max_pos,
                   (long long)d->meta.stats.max_token, (long long)vocab);
}

const uint64_t *data_documents(const struct data *d)
{
    return d->ends;
}

int data_n_sources(const struct data *d)
{
    return d->meta.n_sources;
}

const struct data_source *data_source(const struct data *d, int i)
{
    assert(i >= 0 && i < d->meta.n_sources);
    return &d->meta.source[i].range;
}

bool data_latents(const struct data *d)
{
    return d->meta.source[0].format == DATA_LATENTS;
}

bool data_masked(const struct data *d)
{
    return d->part[PART_LOSS].fd >= 0;
}
