/* convert.c: names results, runs the helper on one file after another, and takes its output through
 * a pipe, in which the bytes are counted, bounded and hashed. */
#include "client/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "api/core/container.h"
#include "client/text.h"
#include "convert_py.h"

#define PIECE      (1 << 18)
#define LOOK_EVERY ((int64_t)16 << 20) /* bytes between two looks at the disk's free space */
#define DRAW_MS    200
#define REASON_MAX 600 /* bytes of the helper's sentence that are shown */

struct convert {
    const struct cli *c;
    const struct cli_list *columns;
    char dir[FILE_PATH_SIZE]; /* directory of the file without a name */
    int fd, n, done;
    int64_t end;    /* bytes of the results so far */
    int64_t looked; /* bytes, with those of an unfinished result, at the last look at free space */
    int64_t drawn_ms;
    char *piece;
};

/* One file while it is converted. */
struct conversion {
    struct convert *v;
    const char *path, *name;
    int in, out, said; /* the file, the helper's output, and its sentence */
    int64_t in_size, most;
    bool lines;
    char last; /* last byte of the result */
    struct sha256 sha;
    struct converted *to;
};

/* ---- names ----------------------------------------------------------------------------------- */

/* Rows are tried by the last suffix. `how` is the helper's word. */
static const struct suffix_row {
    const char *suffix, *how;
} suffixes[] = {{".parquet", "parquet"}, {".gz", "gz"}, {".zst", "zst"}, {".zstd", "zst"}};
enum { N_SUFFIXES = sizeof suffixes / sizeof *suffixes };

static const struct suffix_row *row_of(const char *path)
{
    const char *suffix = container_suffix(path);
    for (int i = 0; i < N_SUFFIXES; i++)
        if (!strcasecmp(suffix, suffixes[i].suffix)) return &suffixes[i];
    return NULL;
}

bool convert_takes(const char *path)
{
    return row_of(path) != NULL;
}

bool convert_is_parquet(const char *path)
{
    const struct suffix_row *r = row_of(path);
    return r && !strcmp(r->how, "parquet");
}

/* Tells whether the name of an unpacked file is that of JSON, whose result is JSONL. */
static bool is_json(const char *unpacked)
{
    const char *suffix = container_suffix(unpacked);
    return !strcasecmp(suffix, ".json") || !strcasecmp(suffix, ".jsonl") ||
           !strcasecmp(suffix, ".ndjson");
}

int convert_name(const char *path, char out[FILE_PATH_SIZE], struct err *e)
{
    const size_t n = strlen(path) - strlen(container_suffix(path));
    const struct container *inner;
    if (n + sizeof ".jsonl" > FILE_PATH_SIZE)
        return err_set(e, ERR_TOO_LARGE, "the name %.60s... is longer than %d bytes", path,
                       FILE_PATH_SIZE - 1);
    snprintf(out, FILE_PATH_SIZE, "%.*s", (int)n, path);
    if (convert_is_parquet(path)) {
        strcat(out, ".jsonl");
    } else if (is_json(out)) {
        out[n - strlen(container_suffix(out))] = 0;
        strcat(out, ".jsonl");
    } else if ((inner = container_by_suffix(out))) {
        return err_set(e, ERR_INVALID,
                       "%.200s is %s within a compressed file: unpack it, and push its files", path,
                       inner->name);
    }
    return 0;
}

/* ---- the file without a name ----------------------------------------------------------------- */

/* Opens a file that has no name, or loses its name at once. Returns -1 with errno. */
static int open_nameless(const char *dir)
{
    char path[FILE_PATH_SIZE + 32];
    int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
    snprintf(path, sizeof path, "%s/seqctl-XXXXXX", dir);
    if ((fd = mkostemp(path, O_CLOEXEC)) >= 0) unlink(path);
    return fd;
}

/* Checks that the disk has room for `size` bytes beside those that it keeps free. */
static int check_room(const struct convert *v, int64_t size)
{
    struct statvfs s;
    char a[TEXT_SHORT], b[TEXT_SHORT], k[TEXT_SHORT];
    if (fstatvfs(v->fd, &s)) return CLI_OK;
    const int64_t left = (int64_t)s.f_bavail * (int64_t)s.f_frsize;
    if (left >= size + CONVERT_SPARE) return CLI_OK;
    return cli_fail(
        CLI_ERROR,
        "%s has %s left, and a conversion needs %s or more there and keeps %s free: set "
        "TMPDIR to a directory of a larger disk",
        v->dir, text_bytes(a, left), text_bytes(b, size), text_bytes(k, CONVERT_SPARE));
}

struct convert *convert_create(const struct cli *c, const struct cli_list *columns, int n,
                               int64_t size)
{
    struct convert *v = calloc(1, sizeof *v);
    const char *dir = getenv("TMPDIR");
    if (!v || !(v->piece = malloc(PIECE))) abort();
    v->c = c;
    v->columns = columns;
    v->n = n;
    snprintf(v->dir, sizeof v->dir, "%s", dir && *dir ? dir : "/var/tmp");
    v->fd = open_nameless(v->dir);
    if (v->fd < 0)
        cli_fail(CLI_ERROR, "%s takes no file: %s: set TMPDIR to a directory of your own", v->dir,
                 strerror(errno));
    if (v->fd >= 0 && !check_room(v, size)) return v;
    convert_destroy(v);
    return NULL;
}

void convert_destroy(struct convert *v)
{
    if (!v) return;
    if (v->fd >= 0) close(v->fd);
    free(v->piece);
    free(v);
}

int convert_fd(const struct convert *v)
{
    return v->fd;
}

/* ---- the output ------------------------------------------------------------------------------ */

static void draw(struct conversion *r)
{
    char line[256], safe[96], a[TEXT_SHORT], rows[TEXT_SHORT];
    struct convert *v = r->v;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    const int64_t ms = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    if (v->c->opt.quiet || !isatty(STDERR_FILENO) || ms - v->drawn_ms < DRAW_MS) return;
    v->drawn_ms = ms;
    /* The helper reads by the same open file, so the offset is its own. */
    const int64_t at = lseek(r->in, 0, SEEK_CUR);
    snprintf(line, sizeof line, "converting %d of %d  %d%%  %s%s%s  %s", v->done + 1, v->n,
             r->in_size ? (int)((double)at / (double)r->in_size * 100) : 0,
             text_bytes(a, r->to->size), r->lines ? "  rows " : "",
             r->lines ? text_count(rows, (double)r->to->rows) : "",
             text_safe(safe, sizeof safe, r->path));
    cli_draw(line);
}

/* Appends bytes to the results. */
static int store(struct conversion *r, const char *p, size_t n)
{
    struct convert *v = r->v;
    struct err e = {0};
    char a[TEXT_SHORT];
    if (r->to->size + (int64_t)n > r->most)
        return cli_fail(
            CLI_ERROR,
            "%s becomes larger than %s, the most that its size allows (%d times, 64 MiB "
            "at least): if it may, unpack it and push the result",
            r->path, text_bytes(a, r->most), CONVERT_GROWTH);
    if (v->end + r->to->size - v->looked >= LOOK_EVERY) {
        v->looked = v->end + r->to->size;
        if (check_room(v, LOOK_EVERY)) return CLI_ERROR;
    }
    for (size_t done = 0; done < n;) {
        const ssize_t k = pwrite(v->fd, p + done, n - done, v->end + r->to->size + (int64_t)done);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) {
            err_write(&e, v->end + r->to->size + (int64_t)n, "a file in %s", v->dir);
            return cli_fail(CLI_ERROR, "%s: TMPDIR names another directory", e.text);
        }
        done += (size_t)k;
    }
    sha256_add(&r->sha, p, n);
    r->to->size += (int64_t)n;
    for (const char *q = p; r->lines && (q = memchr(q, '\n', (size_t)(p + n - q))); q++)
        r->to->rows++;
    r->last = p[n - 1];
    return CLI_OK;
}

/* Refuses a result that only another program reads, such as an archive that was compressed under
 * the name of a text. */
static int check_head(const struct conversion *r, const char *p, size_t n)
{
    if (!r->lines && !container_is_text(r->name)) return CLI_OK;
    const struct container *c = container_by_bytes(p, n);
    if (!c) return CLI_OK;
    return cli_fail(CLI_ERROR, "%s holds %s, which jobs do not read: unpack it, and push its files",
                    r->path, c->name);
}

/* Takes the output until its end. */
static int take_output(struct conversion *r)
{
    char *piece = r->v->piece;
    size_t n = 0;
    int rc = CLI_OK;
    for (bool first = true, more = true; more && !rc;) {
        const ssize_t k = read(r->out, piece + n, PIECE - n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return cli_fail(CLI_ERROR, "%s: %s", r->path, strerror(errno));
        more = k > 0;
        n += (size_t)k;
        if (!n || (more && n < PIECE / 2)) continue; /* small pieces are joined */
        if (first) rc = check_head(r, piece, n);
        if (!rc) rc = store(r, piece, n);
        first = false;
        n = 0;
        draw(r);
    }
    return rc;
}

/* ---- the helper ------------------------------------------------------------------------------ */

/* Starts the helper. Returns its pid, or prints a message and returns -1. */
static pid_t start(struct conversion *r)
{
    extern char **environ;
    const struct suffix_row *row = row_of(r->path);
    const char *argv[6 + CLI_LIST + 1] = {"python3",  "-I",     "-c",
                                          convert_py, row->how, r->lines ? "json" : "bytes"};
    posix_spawn_file_actions_t files;
    int fd[2];
    pid_t pid = -1;
    if (pipe2(fd, O_CLOEXEC))
        return cli_fail(CLI_ERROR, "the helper cannot be started: %s", strerror(errno)), -1;
    for (int i = 0; i < r->v->columns->n; i++) argv[6 + i] = r->v->columns->at[i];
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, r->in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, fd[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, r->said, STDERR_FILENO);
    const int failed = posix_spawnp(&pid, argv[0], &files, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(fd[1]);
    r->out = fd[0];
    if (!failed) return pid;
    return cli_fail(CLI_ERROR,
                    "python3, which reads %s, cannot be started: %s: install it, or put it in PATH",
                    r->path, strerror(failed)),
           -1;
}

/* Prints the sentence of a helper that failed. */
static int tell(const struct conversion *r, int status)
{
    char text[REASON_MAX + 1];
    if (WIFSIGNALED(status))
        return cli_fail(CLI_ERROR, "the helper that reads %s was ended by signal %d (SIG%s)",
                        r->path, WTERMSIG(status), sigabbrev_np(WTERMSIG(status)));
    const ssize_t n = pread(r->said, text, REASON_MAX, 0);
    text[n > 0 ? n : 0] = 0;
    return cli_fail(CLI_ERROR, "%s %s", r->path,
                    *text ? text : "cannot be read, and its helper does not say why");
}

static int run(struct conversion *r)
{
    int status = 0, rc = CLI_OK;
    const pid_t pid = start(r);
    if (pid < 0) return CLI_ERROR;
    rc = take_output(r);
    if (rc) kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (!rc && status) rc = tell(r, status);
    if (!rc && r->lines && r->to->size && r->last != '\n') r->to->rows++;
    return rc;
}

/* Opens the file, and a file in memory for the helper's sentence. */
static int open_files(struct conversion *r)
{
    struct stat st;
    r->in = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->in < 0 || fstat(r->in, &st))
        return cli_fail(CLI_ERROR, "%s cannot be read: %s", r->path, strerror(errno));
    r->said = memfd_create("seqctl", MFD_CLOEXEC);
    if (r->said < 0)
        return cli_fail(CLI_ERROR, "the helper cannot be started: %s", strerror(errno));
    r->in_size = (int64_t)st.st_size;
    r->most = r->in_size > CONVERT_LEAST / CONVERT_GROWTH ? r->in_size * CONVERT_GROWTH
                                                          : CONVERT_LEAST;
    return CLI_OK;
}

int convert_add(struct convert *v, const char *path, const char *name, struct converted *out)
{
    struct conversion r = {
        .v = v, .path = path, .name = name, .in = -1, .out = -1, .said = -1, .to = out};
    *out = (struct converted){.at = v->end};
    r.lines = is_json(name);
    sha256_init(&r.sha);
    int rc = open_files(&r);
    if (!rc) rc = run(&r);
    if (r.in >= 0) close(r.in);
    if (r.out >= 0) close(r.out);
    if (r.said >= 0) close(r.said);
    if (rc) return rc;
    sha256_hex(&r.sha, out->sha256);
    if (!r.lines) out->rows = -1;
    v->end += out->size;
    v->done++;
    return CLI_OK;
}
