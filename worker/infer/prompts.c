/* prompts.c: reads a file as one prompt, as lines of JSON or as requests. Checks that custom_ids
 * differ, and sends the bytes from rank 0 to the other ranks. */
#include "worker/infer/prompts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/container.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "worker/data/source.h"
#include "worker/family/family.h"
#include "worker/infer/requests.h"

void prompts_fini(struct prompts *p)
{
    free(p->end);
    free(p->line);
    free(p->text);
    *p = (struct prompts){0};
}

const char *prompts_at(const struct prompts *p, int i, int64_t *size)
{
    assert(i >= 0 && i < p->n);
    int64_t begin = i ? p->end[i - 1] : 0;
    *size = p->end[i] - begin;
    return p->text + begin;
}

static int64_t used(const struct prompts *p)
{
    return p->n ? p->end[p->n - 1] : 0;
}

/* Appends a prompt whose bytes are already in text[used, used + size). `where` describes the
 * position of the prompt in the input, for use in error messages. */
static int append(struct prompts *p, int64_t size, const char *where, struct err *e)
{
    if (size == 0) return err_field(e, ERR_INVALID, "input", "%s: the prompt is empty", where);
    if (p->n == PROMPTS_MAX)
        return err_field(e, ERR_TOO_LARGE, "input", "%s has more than %d prompts: split the file",
                         where, PROMPTS_MAX);
    int64_t at = used(p);
    p->end[p->n++] = at + size;
    return 0;
}

static int reserve(struct prompts *p, int64_t size, struct err *e)
{
    p->end = calloc(PROMPTS_MAX, sizeof *p->end);
    p->line = calloc(PROMPTS_MAX, sizeof *p->line);
    p->text = malloc((size_t)size + 1);
    if (!p->end || !p->line || !p->text)
        return err_set(e, ERR_IO, "out of memory for %lld bytes of prompts", (long long)size);
    return 0;
}

/* Reads a whole file beneath a root. The caller frees *data. */
static int read_file(const char *path, const char *const *roots, int n_roots, char **data,
                     int64_t *size, struct err *e)
{
    struct source_list list = {0};
    struct stat st;
    int fd = -1, rc = -1;
    *data = NULL;
    if (source_expand(&list, path, roots, n_roots, 0, "input.path", e)) goto out;
    if (list.n != 1) {
        err_field(e, ERR_INVALID, "input.path", "%s matches %d files: want one", path, list.n);
        goto out;
    }
    fd = source_open(roots[list.file[0].root], list.file[0].path, e);
    if (fd < 0) goto out;
    if (fstat(fd, &st)) {
        err_errno(e, "stat %s", path);
        goto out;
    }
    if (st.st_size > PROMPTS_MAX_SIZE) {
        err_field(e, ERR_TOO_LARGE, "input.path", "%s has %lld bytes: want at most %lld", path,
                  (long long)st.st_size, (long long)PROMPTS_MAX_SIZE);
        goto out;
    }
    *data = malloc((size_t)st.st_size + 1);
    *size = 0;
    while (*data && *size < st.st_size) {
        ssize_t n = pread(fd, *data + *size, (size_t)(st.st_size - *size), *size);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            err_errno(e, "read %s", path);
            goto out;
        }
        /* the file has become shorter since its size was read; the bytes that were read before
         * its end are used */
        if (n == 0) break;
        *size += n;
    }
    rc = *data ? 0 : err_set(e, ERR_IO, "out of memory reading %s", path);
out:
    if (fd >= 0) close(fd);
    source_list_fini(&list);
    return rc;
}

/* Reads a line that is one JSON object. Appends the string under `key` to p->text, which has room
 * for the line. */
static int take_line(struct prompts *p, const char *line, size_t size, const char *key,
                     const char *where, struct err *e)
{
    struct jread j;
    bool found = false;
    int64_t n = 0;
    jread_init(&j, line, size);
    if (jread_next(&j) != J_OBJECT)
        return err_field(e, ERR_INVALID, "input", "%s: want a JSON object", where);
    for (enum jtok t = jread_next(&j); t == J_KEY; t = jread_next(&j)) {
        bool wanted = jread_is(&j, key);
        if (!wanted) {
            if (jread_skip(&j)) break;
            continue;
        }
        if (found || jread_next(&j) != J_STRING)
            return err_field(e, ERR_INVALID, "input", "%s: want one string under \"%s\"", where,
                             key);
        found = true;
        n = (int64_t)jread_unescape(&j, p->text + used(p));
    }
    if (j.err.code == ERR_NONE) jread_next(&j);
    if (j.err.code != ERR_NONE)
        return err_field(e, ERR_INVALID, "input", "%s: %s", where, j.err.text);
    if (!found)
        return err_field(e, ERR_INVALID, "input",
                         "%s: there is no \"%s\"; name the member in "
                         "input.text_key",
                         where, key);
    return append(p, n, where, e);
}

/* Appends the line without a change. Refuses the line if it has no custom_id. */
static int take_request(struct prompts *p, const char *line, size_t size, const char *where,
                        struct err *e)
{
    char id[REQUEST_ID_SIZE];
    struct err why;
    if (request_id(line, (int64_t)size, id, &why))
        return err_field(e, ERR_INVALID, "input", "%s: %s", where, why.text);
    memcpy(p->text + used(p), line, size);
    return append(p, (int64_t)size, where, e);
}

/* Returns true if each line of the file is a request with a custom_id, either of a batch or to
 * a diffusion model. */
static bool holds_requests(const struct job_spec *s)
{
    return s->input.source.format == DATA_OPENAI_BATCH || family_diffusion(&s->model.shape);
}

static int take_lines(struct prompts *p, const struct job_spec *spec, const char *data,
                      int64_t size, const char *path, struct err *e)
{
    const char *key = spec_text(spec, spec->input.source.text_key);
    const bool batch = holds_requests(spec);
    int64_t line = 0;
    for (int64_t at = 0; at < size;) {
        const char *nl = memchr(data + at, '\n', (size_t)(size - at));
        int64_t n = nl ? nl - (data + at) : size - at;
        char where[256];
        line++;
        snprintf(where, sizeof where, "%.200s line %lld", path, (long long)line);
        bool blank = strspn(data + at, " \t\r") >= (size_t)n;
        if (!blank && (batch ? take_request(p, data + at, (size_t)n, where, e)
                             : take_line(p, data + at, (size_t)n, key, where, e)))
            return -1;
        if (!blank) p->line[p->n - 1] = line;
        at += n + 1;
    }
    return 0;
}

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Refuses two requests that have the same custom_id, because their results could not be
 * distinguished. */
static int check_unique(const struct prompts *p, const char *path, struct err *e)
{
    char(*id)[REQUEST_ID_SIZE] = calloc((size_t)p->n + 1, sizeof *id);
    struct err none;
    int rc = 0;
    if (!id) return err_set(e, ERR_IO, "out of memory for %d requests", p->n);
    for (int i = 0; i < p->n; i++) {
        int64_t size;
        const char *line = prompts_at(p, i, &size);
        request_id(line, size, id[i], &none);
    }
    qsort(id, (size_t)p->n, sizeof *id, by_id);
    for (int i = 1; i < p->n && !rc; i++)
        if (!strcmp(id[i - 1], id[i]))
            rc = err_field(e, ERR_INVALID, "input", "%s: two requests have the custom_id \"%s\"",
                           path, id[i]);
    free(id);
    return rc;
}

/* Refuses a file whose first bytes are those of a known format that is not text, because a
 * prompt is text. */
static int check_head(const char *data, int64_t size, const char *path, struct err *e)
{
    const size_t n = size < CONTAINER_HEAD ? (size_t)size : CONTAINER_HEAD;
    const struct container *c = container_by_bytes(data, n);
    return c ? container_refuse(c, "input.path", path, "", e) : 0;
}

int prompts_read(struct prompts *p, const struct job_spec *spec, const char *const *roots,
                 int n_roots, struct err *e)
{
    const char *literal = spec_text(spec, spec->input.prompt);
    const char *path = spec_text(spec, spec->input.source.path);
    char *data = NULL;
    int64_t size = (int64_t)strlen(literal);
    int rc = -1;
    *p = (struct prompts){0};
    if (!literal[0] && read_file(path, roots, n_roots, &data, &size, e)) goto out;
    if (data && check_head(data, size, path, e)) goto out;
    if (reserve(p, size, e)) goto out;
    if (data) data[size] = 0;
    const int format = data ? spec->input.source.format : DATA_TEXT;
    if (format == DATA_JSONL || format == DATA_OPENAI_BATCH) {
        if (take_lines(p, spec, data, size, path, e)) goto out;
        if (holds_requests(spec) && check_unique(p, path, e)) goto out;
    } else {
        memcpy(p->text, data ? data : literal, (size_t)size);
        if (append(p, size, data ? path : "input.prompt", e)) goto out;
    }
    rc = p->n ? 0 : err_field(e, ERR_INVALID, "input.path", "%s has no prompt", path);
out:
    free(data);
    if (rc) prompts_fini(p);
    return rc;
}

int prompts_share(struct prompts *p, struct comm *comm, void *bounce, struct err *e)
{
    if (!comm) return 0;
    int64_t head[2] = {p->n, used(p)};
    if (comm_broadcast(comm, PURPOSE_CONTROL, 0, head, sizeof head, bounce, e)) return -1;
    if (comm_rank(comm) != 0) {
        if (reserve(p, head[1], e)) return -1;
        p->n = (int)head[0];
    }
    if (comm_broadcast(comm, PURPOSE_CONTROL, 0, p->end, head[0] * (int64_t)sizeof *p->end, bounce,
                       e))
        return -1;
    return comm_broadcast(comm, PURPOSE_CONTROL, 0, p->text, head[1], bounce, e);
}
