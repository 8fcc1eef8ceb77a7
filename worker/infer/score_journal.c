/* score_journal.c: appends records of a fixed size with their digests, and counts the valid
 * records when it opens the file. */
#include "worker/infer/score_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGEST_SIZE = 32 };

static int64_t record_size(const struct score_journal *j)
{
    return j->S * (int64_t)sizeof(double) + DIGEST_SIZE;
}

static void digest(const struct score_journal *j, int64_t k, const double *nll,
                   uint8_t out[DIGEST_SIZE])
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, &k, sizeof k);
    sha256_add(&sha, nll, (size_t)j->S * sizeof *nll);
    sha256_bytes(&sha, out);
}

/* Reads size bytes at offset `at`. Returns -1 if the file ends earlier or cannot be read. */
static int read_at(const struct score_journal *j, int64_t at, void *to, int64_t size)
{
    for (char *p = to; size > 0;) {
        const ssize_t n = pread(j->fd, p, (size_t)size, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        p += n, at += n, size -= n;
    }
    return 0;
}

static int write_at(const struct score_journal *j, int64_t at, const void *from, int64_t size,
                    struct err *e)
{
    for (const char *p = from; size > 0;) {
        const ssize_t n = pwrite(j->fd, p, (size_t)size, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_write(e, at + size, "write %s", j->path);
        p += n, at += n, size -= n;
    }
    return 0;
}

bool score_journal_has(const struct score_journal *j, int64_t k, const double *nll)
{
    uint8_t want[DIGEST_SIZE], got[DIGEST_SIZE];
    const int64_t at = (k + 1) * record_size(j) - DIGEST_SIZE;
    if (read_at(j, at, want, DIGEST_SIZE)) return false;
    digest(j, k, nll, got);
    return !memcmp(want, got, DIGEST_SIZE);
}

int score_journal_read(const struct score_journal *j, int64_t k, double *nll, struct err *e)
{
    if (!read_at(j, k * record_size(j), nll, j->S * (int64_t)sizeof *nll) &&
        score_journal_has(j, k, nll))
        return 0;
    return err_set(e, ERR_CORRUPT, "%s: the record of window %lld is damaged", j->path,
                   (long long)k);
}

int score_journal_cut(struct score_journal *j, int64_t n, struct err *e)
{
    if (ftruncate(j->fd, n * record_size(j))) return err_errno(e, "cut %s", j->path);
    j->n = n;
    return 0;
}

int score_journal_add(struct score_journal *j, const double *nll, struct err *e)
{
    uint8_t sum[DIGEST_SIZE];
    const int64_t at = j->n * record_size(j), size = j->S * (int64_t)sizeof *nll;
    digest(j, j->n, nll, sum);
    if (write_at(j, at, nll, size, e) || write_at(j, at + size, sum, DIGEST_SIZE, e)) return -1;
    j->n++;
    return 0;
}

static int name_it(struct score_journal *j, const char *job_dir, const struct window *w,
                   struct err *e)
{
    char hex[SHA256_HEX];
    struct sha256 sha;
    const char *id = data_stats(w->d)->id;
    const int64_t whole = w->whole ? 2 : 0; /* bit 0 is for document_mask, and bit 1 is for
                                             * whole documents */
    const int64_t cut[] = {w->S, w->stride, w->n_windows, w->document_mask | whole};
    sha256_init(&sha);
    sha256_add(&sha, id, strlen(id));
    sha256_add(&sha, cut, sizeof cut);
    sha256_hex(&sha, hex);
    return file_join(j->path, e, "%s/score-%.16s.journal", job_dir, hex);
}

/* Returns the number of windows with whole records before the first damaged or missing record. */
static int64_t count(const struct score_journal *j, int64_t n_windows, double *nll)
{
    int64_t n = 0;
    while (n < n_windows && !score_journal_read(j, n, nll, NULL)) n++;
    return n;
}

int score_journal_open(struct score_journal *j, const char *job_dir, const struct window *w,
                       double *nll, struct err *e)
{
    *j = (struct score_journal){.fd = -1, .S = w->S};
    if (file_make_dir(job_dir, e) || name_it(j, job_dir, w, e)) return -1;
    j->fd = open(j->path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (j->fd < 0) return err_errno(e, "open %s", j->path);
    if (!score_journal_cut(j, count(j, w->n_windows, nll), e)) return 0;
    score_journal_close(j);
    return -1;
}

void score_journal_close(struct score_journal *j)
{
    if (j->fd >= 0) close(j->fd);
    j->fd = -1;
}

int score_journal_remove(struct score_journal *j, struct err *e)
{
    score_journal_close(j);
    return file_remove(j->path, e);
}
