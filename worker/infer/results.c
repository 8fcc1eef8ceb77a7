/* results.c: reads the whole lines of a journal when it opens the journal, adds one line for each
 * request, and publishes the journal as results.jsonl. */
#include "worker/infer/results.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/jread.h"
#include "api/core/log.h"
#include "worker/infer/requests.h"

/* ---- one line -------------------------------------------------------------------------------- */

struct result_line {
    int64_t number; /* index of the request; -1 if the line has no index */
    char id[REQUEST_ID_SIZE];
    bool refused;
    int64_t usage[2]; /* prompt_tokens, completion_tokens */
};

static void read_usage(struct jread *j, struct result_line *l)
{
    while (jread_next(j) == J_KEY) {
        int which = jread_is(j, "prompt_tokens") ? 0 : jread_is(j, "completion_tokens") ? 1 : -1;
        if (which < 0)
            jread_skip(j);
        else if (jread_next(j) == J_NUMBER)
            jread_int(j, &l->usage[which]);
    }
}

/* Enters nested objects by the member names in the parameter `way`, one name for each level,
 * and reads the usage in the innermost object. */
static void descend(struct jread *j, struct result_line *l, const char *const *way)
{
    if (!*way) {
        read_usage(j, l);
        return;
    }
    while (jread_next(j) == J_KEY) {
        if (!jread_is(j, *way)) {
            jread_skip(j);
            continue;
        }
        enum jtok t = jread_next(j);
        if (t == J_OBJECT)
            descend(j, l, way + 1);
        else if (t == J_ARRAY)
            jread_skip(j);
    }
}

/* Reads a line. Returns 0 if the bytes are exactly one line of a journal, and -1 otherwise. */
static int read_line(const char *text, size_t size, struct result_line *l)
{
    static const char *const way[] = {"body", "usage", NULL};
    struct jread j;
    char id[48] = "";
    *l = (struct result_line){.number = -1};
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT) return -1;
    while (jread_next(&j) == J_KEY) {
        if (jread_is(&j, "response") && jread_next(&j) == J_OBJECT)
            descend(&j, l, way);
        else if (jread_is(&j, "error"))
            l->refused = jread_next(&j) == J_OBJECT && !jread_skip(&j);
        else if (jread_is(&j, "id") && jread_next(&j) == J_STRING)
            jread_copy(&j, id, sizeof id);
        else if (jread_is(&j, "custom_id") && jread_next(&j) == J_STRING)
            jread_copy(&j, l->id, sizeof l->id);
        else
            break;
    }
    if (j.err.code != ERR_NONE || jread_next(&j) != J_END || strncmp(id, "req-", 4)) return -1;
    l->number = strtoll(id + 4, NULL, 10);
    return 0;
}

/* ---- the journal ----------------------------------------------------------------------------- */

/* Records which request a line answers, and the line's counts. Returns -1 if the line does not
 * belong to this batch, or if its request already has a line. */
static int note(struct results *r, const char *text, size_t size)
{
    struct result_line l;
    char id[REQUEST_ID_SIZE];
    int64_t n;
    if (read_line(text, size, &l) || l.number < 0 || l.number >= r->p->n || r->answered[l.number])
        return -1;
    const char *request = prompts_at(r->p, (int)l.number, &n);
    if (request_id(request, n, id, NULL) || strcmp(id, l.id)) return -1;
    r->answered[l.number] = 1;
    r->mixed |= l.number < r->last;
    r->last = l.number;
    r->n_answered++;
    r->n_refused += l.refused;
    r->n_prompt_tokens += l.usage[0];
    r->n_tokens += l.usage[1];
    return 0;
}

/* Maps the bytes of the journal. Returns NULL if the journal is empty. The caller unmaps them. */
static const char *map(int fd, size_t *size, struct err *e)
{
    struct stat st;
    *size = 0;
    if (fstat(fd, &st)) {
        err_errno(e, "stat the journal of the batch");
        return NULL;
    }
    if (!st.st_size) return NULL;
    char *text = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) {
        err_errno(e, "map the journal of the batch");
        return NULL;
    }
    *size = (size_t)st.st_size;
    return text;
}

/* Keeps the whole lines at the start of the journal. Removes the first line that is not whole,
 * and all bytes after it. */
static int recover(struct results *r, struct err *e)
{
    size_t size, at = 0;
    struct err none = {0};
    const char *text = map(r->fd, &size, &none), *nl;
    if (none.code != ERR_NONE) {
        if (e) *e = none;
        return -1;
    }
    while (text && (nl = memchr(text + at, '\n', size - at)) != NULL) {
        if (note(r, text + at, (size_t)(nl - (text + at)))) break;
        at = (size_t)(nl - text) + 1;
    }
    if (text) munmap((char *)text, size);
    if (r->n_answered)
        log_info("batch.resume", "answered=%lld of=%d cut_bytes=%lld", (long long)r->n_answered,
                 r->p->n, (long long)(size - at));
    if (at < size && (ftruncate(r->fd, (off_t)at) || fsync(r->fd)))
        return err_errno(e, "cut %s", r->path);
    return 0;
}

static int copy_bytes(int from, int to, struct err *e)
{
    char buf[16384];
    ssize_t n;
    while ((n = read(from, buf, sizeof buf)) != 0) {
        if (n < 0) return err_errno(e, "read the journal of the batch");
        for (ssize_t at = 0, done; at < n; at += done)
            if ((done = write(to, buf + at, (size_t)(n - at))) < 0)
                return err_errno(e, "copy the journal of the batch");
    }
    return fsync(to) ? err_errno(e, "sync the copy of the journal") : 0;
}

/* Opens the journal of an attempt that shares the job's directory with other nodes. Its file is a
 * copy, because an earlier attempt may run on elsewhere, and the lines of that attempt must not
 * come between. */
static int open_copy(struct results *r, int64_t epoch, struct err *e)
{
    char tmp[FILE_PATH_SIZE];
    if (file_join(tmp, e, "%s.e%lld", r->path, (long long)epoch) < 0) return -1;
    if (unlink(tmp) && errno != ENOENT) return err_errno(e, "remove %s", tmp);
    const int from = open(r->path, O_RDONLY | O_CLOEXEC);
    if (from < 0 && errno != ENOENT) return err_errno(e, "open %s", r->path);
    r->fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    int rc = r->fd < 0 ? err_errno(e, "make %s", tmp) : 0;
    if (!rc && from >= 0) rc = copy_bytes(from, r->fd, e);
    if (!rc && rename(tmp, r->path)) rc = err_errno(e, "rename %s", tmp);
    if (rc) unlink(tmp);
    if (from >= 0) close(from);
    return rc;
}

static int open_journal(struct results *r, int64_t epoch, struct err *e)
{
    if (epoch) return open_copy(r, epoch, e);
    r->fd = open(r->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    return r->fd < 0 ? err_errno(e, "open %s", r->path) : 0;
}

/* Fails with ERR_ABORTED if a later attempt has replaced the journal. */
static int check_own(const struct results *r, struct err *e)
{
    struct stat own, now;
    if (fstat(r->fd, &own) || stat(r->path, &now)) return err_errno(e, "%s", r->path);
    if (own.st_dev == now.st_dev && own.st_ino == now.st_ino) return 0;
    return err_set(e, ERR_ABORTED, "another attempt has taken over %s", r->path);
}

int results_open(struct results *r, const char *job_dir, const struct prompts *p, int64_t epoch,
                 struct err *e)
{
    struct sha256 sha;
    char hex[SHA256_HEX];
    *r = (struct results){.fd = -1, .p = p, .last = -1, .shared = epoch != 0};
    sha256_init(&sha);
    sha256_add(&sha, p->end, (size_t)p->n * sizeof *p->end);
    sha256_add(&sha, p->text, (size_t)(p->n ? p->end[p->n - 1] : 0));
    sha256_hex(&sha, hex);
    if (file_make_dir(job_dir, e) || file_join(r->path, e, "%s/batch-%.16s.jsonl", job_dir, hex))
        return -1;
    r->answered = calloc((size_t)p->n + 1, 1);
    if (!r->answered) return err_set(e, ERR_IO, "out of memory for %d requests", p->n);
    if (!open_journal(r, epoch, e) && !recover(r, e) && !file_sync_dir(job_dir, e)) return 0;
    results_close(r);
    return -1;
}

void results_close(struct results *r)
{
    if (r->fd >= 0) close(r->fd);
    free(r->answered);
    *r = (struct results){.fd = -1};
}

int results_add(struct results *r, int i, const char *line, int64_t size, struct err *e)
{
    assert(!r->answered[i] && line[size - 1] == '\n');
    for (int64_t at = 0; at < size;) {
        ssize_t n = write(r->fd, line + at, (size_t)(size - at));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_write(e, lseek(r->fd, 0, SEEK_END) + size - at, "write %s", r->path);
        at += n;
    }
    if (fdatasync(r->fd)) return err_errno(e, "sync %s", r->path);
    if (note(r, line, (size_t)size - 1) || !r->answered[i])
        return err_set(e, ERR_INTERNAL, "the answer of request %d does not read back", i);
    return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Returns the offset of each request's line in the journal, [n]. The caller frees the array. */
static size_t *find_lines(const struct results *r, const char *text, size_t size, struct err *e)
{
    struct result_line l;
    size_t *from = calloc((size_t)r->p->n + 1, sizeof *from);
    if (!from) {
        err_set(e, ERR_IO, "out of memory for %d requests", r->p->n);
        return NULL;
    }
    for (size_t at = 0; at < size;) {
        const char *nl = memchr(text + at, '\n', size - at);
        const int bad = read_line(text + at, (size_t)(nl - text) - at, &l);
        assert(!bad && l.number >= 0 && l.number < r->p->n);
        from[l.number] = at;
        at = (size_t)(nl - text) + 1;
    }
    return from;
}

/* Copies the lines of the journal in the order of the requests. If refused is true, copies only
 * the lines of refused requests. */
static int copy_lines(const struct results *r, struct artifact *a, const char *text, size_t size,
                      bool refused, struct err *e)
{
    struct result_line l;
    size_t *from = find_lines(r, text, size, e);
    int rc = from ? 0 : -1;
    for (int i = 0; i < r->p->n && !rc; i++) {
        const char *line = text + from[i];
        const size_t n = (size_t)((const char *)memchr(line, '\n', size - from[i]) - line);
        if (!refused || (!read_line(line, n, &l) && l.refused))
            rc = artifact_write(a, line, n + 1, e);
    }
    free(from);
    return rc;
}

static int publish_copy(const struct results *r, const char *job_dir, const char *name,
                        bool refused, struct artifact_done *done, struct err *e)
{
    struct artifact a = {0};
    struct err none = {0};
    size_t size;
    const char *text = map(r->fd, &size, &none);
    int rc = -1;
    if (!text) return err_set(e, ERR_IO, "%s", *none.text ? none.text : "the journal is empty");
    if (!artifact_open(&a, job_dir, name, e) && !copy_lines(r, &a, text, size, refused, e) &&
        !artifact_finish(&a, e)) {
        *done = a.done;
        rc = 0;
    }
    artifact_drop(&a);
    munmap((char *)text, size);
    return rc;
}

/* Publishes the journal as results.jsonl. Makes a link if possible. Makes a copy if the file
 * system has no links, or if the lines are not in the order of the requests. */
static int publish(const struct results *r, const char *job_dir, struct artifact_done *done,
                   struct err *e)
{
    char tmp[FILE_PATH_SIZE];
    if (r->shared && check_own(r, e)) return -1;
    if (r->mixed) return publish_copy(r, job_dir, "results.jsonl", false, done, e);
    if (artifact_path(job_dir, "results.jsonl", done, e) || file_join(tmp, e, "%s.tmp", done->path))
        return -1;
    if (file_remove(tmp, e)) return -1;
    if (link(r->path, tmp)) return publish_copy(r, job_dir, "results.jsonl", false, done, e);
    if (rename(tmp, done->path)) return err_errno(e, "rename %s", tmp);
    /* A file of this name must be removed before the link is made. If both names were links to
     * the same file, rename() would do nothing, and both names would remain. */
    if (file_remove(tmp, e)) return -1;
    return artifact_describe(done, e);
}

int results_finish(struct results *r, const char *job_dir, struct artifact_done *done,
                   struct artifact_done *errors, struct err *e)
{
    assert(r->n_answered == r->p->n);
    *errors = (struct artifact_done){0};
    if (publish(r, job_dir, done, e)) return -1;
    if (!r->n_refused) return 0;
    return publish_copy(r, job_dir, "errors.jsonl", true, errors, e);
}
