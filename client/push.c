/* push.c: sends a file or a directory as an upload, which jobs read as upload:NAME. First it sends
 * the list of the files, with all digests. The answer tells how many bytes of each file the server
 * has, so the same command continues after any break. The files are sent in pieces of 1 MiB, each
 * from the offset that the server has. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/jwrite.h"
#include "api/core/sha256.h"
#include "client/api.h"
#include "client/convert.h"
#include "client/text.h"
#include "client/verbs.h"

#define PIECE      (1 << 20) /* bytes of one body, which is the largest number that seqd accepts */
#define FILES_MAX  1000
#define DEPTH_MAX  16
#define PUSH_TRIES 6 /* largest number of successive tries that bring no byte */
#define ENTRY_SIZE 2048
#define DRAW_MS    200

struct push_file {
    char *path; /* path beneath the source; a converted file has the name of its result here */
    char *from; /* path beneath the source of a converted file; NULL for all others */
    int64_t at; /* the beginning of a converted file's result in convert_fd; 0 for all others */
    int64_t size;
    char sha256[SHA256_HEX];
};

struct push {
    struct cli *c;
    const char *source; /* path of a directory or of a file */
    bool is_dir;
    char name[128];
    int n;
    struct push_file file[FILES_MAX];
    int64_t total, sent, had, id;
    int64_t began_ms, drawn_ms;
    struct convert *convert; /* NULL if no file is converted */
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void draw(struct push *p, const char *what, const char *name, int64_t done, bool now)
{
    char line[256], safe[96], a[TEXT_SHORT], b[TEXT_SHORT], r[TEXT_SHORT];
    const int64_t ms = now_ms(), span = ms - p->began_ms;
    if (p->c->opt.quiet || !isatty(STDERR_FILENO) || (!now && ms - p->drawn_ms < DRAW_MS)) return;
    p->drawn_ms = ms;
    snprintf(line, sizeof line, "%s %d%%  %s of %s  %s/s  %s", what,
             p->total ? (int)((double)done / (double)p->total * 100) : 100, text_bytes(a, done),
             text_bytes(b, p->total), text_bytes(r, span > 0 ? done * 1000 / span : 0),
             text_safe(safe, sizeof safe, name));
    cli_draw(line);
}

/* ---- the source ------------------------------------------------------------------------------ */

static int add_file(struct push *p, const char *path, int64_t size)
{
    if (p->n == FILES_MAX)
        return cli_fail(CLI_ERROR, "%s has more than %d files: push parts of it", p->source,
                        FILES_MAX);
    struct push_file *f = &p->file[p->n++];
    *f = (struct push_file){.path = strdup(path), .size = size};
    if (!f->path) abort();
    p->total += size;
    return CLI_OK;
}

static int walk(struct push *p, const char *rest, int depth);

/* Adds one entry of the source. Links to files are followed, because caches of models have many of
 * them. Links to directories are refused, because they could form a circle. */
static int see(struct push *p, const char *rest, int depth)
{
    char full[FILE_PATH_SIZE];
    struct stat st, own;
    if ((size_t)snprintf(full, sizeof full, "%s/%s", p->source, rest) >= sizeof full)
        return cli_fail(CLI_ERROR, "a path beneath %.60s is longer than %d bytes", p->source,
                        FILE_PATH_SIZE - 1);
    if (stat(full, &st) || lstat(full, &own))
        return cli_fail(CLI_ERROR, "%s cannot be read: %s", full, strerror(errno));
    if (S_ISREG(st.st_mode)) return add_file(p, rest, (int64_t)st.st_size);
    if (S_ISDIR(own.st_mode)) return walk(p, rest, depth + 1);
    return cli_fail(CLI_ERROR, "%s is neither a file nor a directory: move it away", full);
}

static int walk(struct push *p, const char *rest, int depth)
{
    char path[FILE_PATH_SIZE];
    int rc = CLI_OK;
    if (depth > DEPTH_MAX)
        return cli_fail(CLI_ERROR, "%s has more than %d levels of directories: push parts of it",
                        p->source, DEPTH_MAX);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", p->source, rest) >= sizeof path)
        return cli_fail(CLI_ERROR, "a path beneath %.60s is longer than %d bytes", p->source,
                        FILE_PATH_SIZE - 1);
    DIR *d = opendir(path);
    if (!d) return cli_fail(CLI_ERROR, "%s cannot be read: %s", path, strerror(errno));
    for (struct dirent *ent; !rc && (ent = readdir(d));) {
        if (!strcmp(ent->d_name, ".") || !strcmp(ent->d_name, "..")) continue;
        if ((size_t)snprintf(path, sizeof path, "%s%s%s", rest, *rest ? "/" : "", ent->d_name) >=
            sizeof path)
            rc = cli_fail(CLI_ERROR, "a path beneath %.60s is longer than %d bytes", p->source,
                          FILE_PATH_SIZE - 1);
        else
            rc = see(p, path, depth);
    }
    closedir(d);
    return rc;
}

static const char *full_path(const struct push *p, const struct push_file *f,
                             char out[FILE_PATH_SIZE])
{
    snprintf(out, FILE_PATH_SIZE, p->is_dir ? "%s/%s" : "%s", p->source, f->path);
    return out;
}

/* ---- conversion ------------------------------------------------------------------------------ */

/* Counts the files that are converted, and their bytes. */
static int count_converted(const struct push *p, int64_t *size)
{
    int n = 0, n_parquet = 0;
    *size = 0;
    for (int i = 0; i < p->n; i++) {
        if (!convert_takes(p->file[i].path)) continue;
        n++;
        n_parquet += convert_is_parquet(p->file[i].path);
        *size += p->file[i].size;
    }
    if (p->c->opt.column.n && !n_parquet)
        return -cli_fail(CLI_USAGE, "--column chooses columns of Parquet files, and %s has none",
                         p->source);
    return n;
}

static int convert_one(struct push *p, struct push_file *f, int64_t *rows)
{
    char name[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    struct err e = {0};
    struct converted to;
    if (convert_name(f->path, name, &e)) return cli_fail(CLI_ERROR, "%s", e.text);
    const int rc = convert_add(p->convert, full_path(p, f, path), name, &to);
    if (rc) return rc;
    f->from = f->path;
    f->path = strdup(name);
    if (!f->path) abort();
    p->total += to.size - f->size;
    f->at = to.at;
    f->size = to.size;
    memcpy(f->sha256, to.sha256, sizeof f->sha256);
    if (to.rows >= 0) *rows = to.rows + (*rows < 0 ? 0 : *rows);
    return CLI_OK;
}

/* Replaces the files that jobs do not read by results that they read. */
static int convert_files(struct push *p)
{
    int64_t size, rows = -1, bytes = 0; /* rows is -1 as long as no result is JSONL */
    char a[TEXT_SHORT], b[TEXT_SHORT];
    const int n = count_converted(p, &size);
    if (n < 0) return -n;
    if (!n) {
        cli_say(p->c, "%s has no Parquet, gzip or Zstandard file: nothing is converted", p->source);
        return CLI_OK;
    }
    p->convert = convert_create(p->c, &p->c->opt.column, n, size);
    if (!p->convert) return CLI_ERROR;
    for (int i = 0; i < p->n; i++) {
        struct push_file *f = &p->file[i];
        if (!convert_takes(f->path)) continue;
        const int rc = convert_one(p, f, &rows);
        if (rc) return rc;
        bytes += f->size;
    }
    cli_say(p->c, "converted %d of %d files: %s%s%s", n, p->n,
            rows < 0 ? "" : text_count(a, (double)rows), rows < 0 ? "" : " rows of JSONL, ",
            text_bytes(b, bytes));
    return CLI_OK;
}

/* Checks, in files sorted by name, that no result has the name of another file. */
static int check_names(const struct push *p)
{
    for (int i = 1; i < p->n; i++) {
        const struct push_file *a = &p->file[i - 1], *b = &p->file[i];
        if (!strcmp(a->path, b->path))
            return cli_fail(CLI_ERROR, "%s and %s would both become %s: rename one of them",
                            a->from ? a->from : a->path, b->from ? b->from : b->path, a->path);
    }
    return CLI_OK;
}

/* ---- digests --------------------------------------------------------------------------------- */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct push_file *)a)->path, ((const struct push_file *)b)->path);
}

/* Reads the names, sizes and digests of all files, in the order of their names. */
static int read_source(struct push *p)
{
    char path[FILE_PATH_SIZE];
    struct stat st;
    struct err e = {0};
    int64_t size, done = 0;
    if (stat(p->source, &st))
        return cli_fail(CLI_ERROR, "%s cannot be read: %s", p->source, strerror(errno));
    const char *base = strrchr(p->source, '/');
    p->is_dir = S_ISDIR(st.st_mode);
    int rc = p->is_dir ? walk(p, "", 0)
                       : add_file(p, base ? base + 1 : p->source, (int64_t)st.st_size);
    if (!rc && !p->n) rc = cli_fail(CLI_ERROR, "%s has no files", p->source);
    if (!rc && p->c->opt.convert) rc = convert_files(p);
    if (rc) return rc;
    qsort(p->file, (size_t)p->n, sizeof *p->file, by_path);
    if (check_names(p)) return CLI_ERROR;
    p->began_ms = now_ms();
    for (int i = 0; i < p->n; i++) {
        if (p->file[i].from) continue;
        draw(p, "reading", p->file[i].path, done, false);
        if (sha256_file(full_path(p, &p->file[i], path), p->file[i].sha256, &size, &e))
            return cli_fail(CLI_ERROR, "%s", e.text);
        p->total += size - p->file[i].size;
        p->file[i].size = size;
        done += size;
    }
    return CLI_OK;
}

/* Sets the upload's name. It is the given name or, if none is given, the last part of the source's
 * path. If the source is a converted file, it is the name of the result. In such a name, '-'
 * replaces each character that a name may not have. */
static void default_name(struct push *p, const char *given)
{
    char real[FILE_PATH_SIZE];
    const char *text = given ? given : realpath(p->source, real) ? real : p->source;
    const char *base = given ? NULL : strrchr(text, '/');
    if (!given && !p->is_dir && p->file->from) text = p->file->path, base = NULL;
    snprintf(p->name, sizeof p->name, "%.127s", base ? base + 1 : text);
    for (char *c = p->name; *c && !given; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *c))
            *c = '-';
}

/* ---- requests -------------------------------------------------------------------------------- */

static int begin_upload(struct push *p, struct jv **out)
{
    const size_t size = (size_t)p->n * ENTRY_SIZE + 1024;
    char *body = malloc(size);
    struct jwrite w;
    if (!body) abort();
    jwrite_init(&w, body, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "name", p->name);
    jwrite_array(&w, "files");
    for (int i = 0; i < p->n; i++) {
        jwrite_object(&w, NULL);
        jwrite_str(&w, "path", p->file[i].path);
        jwrite_int(&w, "size", p->file[i].size);
        jwrite_str(&w, "sha256", p->file[i].sha256);
        jwrite_end(&w);
    }
    jwrite_end(&w);
    jwrite_end(&w);
    int rc = jwrite_finish(&w) < 0
                 ? cli_fail(CLI_ERROR,
                            "the list of files is too long for one request: push parts of it")
                 : api_post(p->c, "/v1/uploads", body, NULL, out);
    free(body);
    p->id = jv_int(*out, "id", -1);
    return rc;
}

static void pause_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Sends one piece. *at becomes the end of the file at the server, or -1 if the server did not
 * answer and must be asked again. */
static int send_piece(struct push *p, int i, const char *bytes, size_t n, int64_t *at)
{
    char path[96], offset[32];
    struct http_reply r;
    struct err e = {0};
    snprintf(path, sizeof path, "/v1/uploads/%lld?file=%d", (long long)p->id, i);
    snprintf(offset, sizeof offset, "%lld", (long long)*at);
    const struct http_request q = {.method = "PATCH",
                                   .path = path,
                                   .body = bytes,
                                   .body_size = n,
                                   .type = "application/offset+octet-stream",
                                   .upload_offset = offset};
    int rc = CLI_OK;
    const int failed = http_do(p->c->http, &q, &r, &e);
    const bool again = failed ? e.code == ERR_PEER || e.code == ERR_TIMEOUT : api_busy(r.status);
    const int64_t now = failed ? -1 : r.upload_offset;
    if (again)
        *at = -1;
    else if (failed)
        rc = cli_fail(CLI_ERROR, "%s", e.text);
    else if (r.status == 200 || (r.status == 409 && now >= 0 && now != *at && now > 0))
        /* 409: an earlier request, whose answer was lost, brought these bytes */
        *at = now;
    else
        rc = api_refused(&r, path);
    if (!failed) http_reply_fini(&r);
    return rc;
}

/* Asks, after a break, where the file ends at the server. */
static int ask_offset(struct push *p, int i, int64_t *at)
{
    char path[64], field[64];
    struct jv *v = NULL;
    snprintf(path, sizeof path, "/v1/uploads/%lld", (long long)p->id);
    snprintf(field, sizeof field, "files.%d.received", i);
    struct http_reply r;
    struct err e = {0};
    if (http_do(p->c->http, &(struct http_request){.method = "GET", .path = path}, &r, &e))
        return e.code == ERR_PEER || e.code == ERR_TIMEOUT ? CLI_OK
                                                           : cli_fail(CLI_ERROR, "%s", e.text);
    int rc = CLI_OK;
    if (r.status == 200 && (v = jv_parse(r.body, r.size, &e)))
        *at = jv_int(v, field, -1);
    else if (!api_busy(r.status))
        rc = api_refused(&r, path);
    jv_free(v);
    http_reply_fini(&r);
    return rc;
}

static int send_from(struct push *p, int i, int fd, int64_t at, char *piece)
{
    const struct push_file *f = &p->file[i];
    int rc = CLI_OK;
    for (int tries = 0; !rc && at < f->size;) {
        const int64_t before = at;
        if (at < 0) {
            if (++tries == PUSH_TRIES)
                return cli_fail(CLI_ERROR, "seqd at %s does not answer: run this again to continue",
                                http_url(p->c->http));
            pause_ms(50 << tries);
            rc = ask_offset(p, i, &at);
            continue;
        }
        const size_t want = f->size - at < PIECE ? (size_t)(f->size - at) : PIECE;
        const ssize_t n = pread(fd, piece, want, f->at + at);
        if (n <= 0)
            return cli_fail(CLI_ERROR, "%s became shorter while it was sent: run this again",
                            f->path);
        rc = send_piece(p, i, piece, (size_t)n, &at);
        if (at > before)
            p->sent += at - before, tries = 0;
        else if (!rc && at >= 0 && ++tries == PUSH_TRIES)
            rc = cli_fail(CLI_ERROR, "seqd takes no byte of %s: run this again to continue",
                          f->path);
        draw(p, "sending", f->path, p->had + p->sent, false);
    }
    return rc;
}

static int send_file(struct push *p, int i, int64_t at)
{
    const struct push_file *f = &p->file[i];
    char path[FILE_PATH_SIZE], *piece = malloc(PIECE);
    const int fd = f->from ? convert_fd(p->convert)
                           : open(full_path(p, f, path), O_RDONLY | O_CLOEXEC);
    if (!piece) abort();
    int rc = fd < 0 ? cli_fail(CLI_ERROR, "%s cannot be read: %s", path, strerror(errno))
                    : send_from(p, i, fd, at, piece);
    if (fd >= 0 && !f->from) close(fd);
    free(piece);
    return rc;
}

static int send_all(struct push *p, const struct jv *upload)
{
    char field[64];
    int rc = CLI_OK;
    p->began_ms = now_ms();
    for (int i = 0; i < p->n && !rc; i++) {
        snprintf(field, sizeof field, "files.%d.received", i);
        const int64_t at = jv_int(upload, field, 0);
        p->had += at;
        rc = send_file(p, i, at);
    }
    if (isatty(STDERR_FILENO)) cli_draw("");
    return rc;
}

static int push_run(struct cli *c)
{
    struct push *p = calloc(1, sizeof *p);
    struct jv *upload = NULL, *done = NULL;
    char path[64], a[TEXT_SHORT], b[TEXT_SHORT];
    if (!p) abort();
    p->c = c;
    p->source = c->arg[0];
    if (c->opt.column.n && !c->opt.convert)
        return free(p), cli_fail(CLI_USAGE, "--column needs --convert beside it");
    int rc = read_source(p);
    if (!rc) default_name(p, c->n_args > 1 ? c->arg[1] : NULL);
    if (!rc) rc = begin_upload(p, &upload);
    if (!rc) rc = send_all(p, upload);
    snprintf(path, sizeof path, "/v1/uploads/%lld:commit", (long long)p->id);
    if (!rc) rc = api_post(c, path, NULL, NULL, &done);
    if (!rc && c->output == OUT_NAME)
        printf("upload:%s\n", p->name);
    else if (!rc && !api_print(c, done))
        cli_say(c, "upload:%s: %s in %d files, %s sent; nodes read it at %s", p->name,
                text_bytes(a, p->total), p->n, text_bytes(b, p->sent), jv_str(done, "path", "?"));
    jv_free(upload);
    jv_free(done);
    for (int i = 0; i < p->n; i++) free(p->file[i].path), free(p->file[i].from);
    convert_destroy(p->convert);
    free(p);
    return rc;
}

const struct verb verb_push = {
    .name = "push",
    .operands = "FILE|DIR [NAME]",
    .summary = "bring inputs or a model to where jobs read",
    .options = OPT_CONVERT,
    .min_args = 1,
    .max_args = 2,
    .run = push_run,
    .help =
        "Sends a file, or all files of a directory, to seqd's uploads, where jobs name them\n"
        "upload:NAME/FILE (NAME: of the file or directory, unless given). It appears when it is\n"
        "whole and has its digests. Run again after a break it continues; again after that, it\n"
        "finds everything there.\n\n"
        "  seqctl push corpus.jsonl              # \"path\": \"upload:corpus.jsonl/corpus.jsonl\"\n"
        "  seqctl push models/tiny tiny          # \"model\": {\"path\": \"upload:tiny\"}\n"
        "  seqctl push --convert chats/ chats    # \"path\": \"upload:chats/*.jsonl\"\n\n"
        "  --convert      write Parquet, gzip and Zstandard files as jobs read them, before they\n"
        "                 are sent: NAME.parquet and NAME.json.gz become NAME.jsonl, a record a\n"
        "                 line, and NAME.txt.zst becomes NAME.txt. Other files are sent as they\n"
        "                 are. python3 reads the files, with pyarrow if they are Parquet. A file\n"
        "                 may grow to 100 times its size. The results lie in TMPDIR, or else\n"
        "                 /var/tmp, until all is sent\n"
        "  --column NAME  a column of Parquet files to take; may be repeated (default: all). A\n"
        "                 null is left out of its row. Times, decimals and bytes are refused",
};
