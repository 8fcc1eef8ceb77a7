/* data_prepare: two passes over the sources. The first hashes them, which gives the id and, most
 * often, finds the work done already; the second turns them into tokens and checks that what it
 * read is what was hashed. A lock per id keeps two preparations of the same data apart; the kernel
 * releases it with the process, so that a killed one leaves nothing but a .tmp directory, which the
 * next one removes. */
#include "worker/train/data.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "api/core/log.h"
#include "worker/train/source.h"

enum {
    CHUNK_SIZE = 1 << 18,
    LINE_SIZE = 256 << 20, /* one line of JSONL, in memory while it is read */
    META_SOURCES = 1000    /* files named in meta.json; all are in the id */
};

struct source_digest {
    char hex[SHA256_HEX];
    int64_t size;
};

struct prepare {
    const struct job_spec *spec;
    const struct spec_source *source; /* borrows the spec's */
    int n_sources;
    const char *field; /* "data.train" or "input" */
    const char *const *roots;
    struct source_list list;
    struct source_digest *digest; /* [list.n] owned */
    /* the second pass */
    struct file_out tokens, documents;
    int64_t n_tokens, n_documents, n_bytes;
    int64_t document_start;
    int64_t count[BYTE_VOCAB];
};

static void field_name(const struct prepare *p, int source, const char *member, char out[96])
{
    if (p->source == p->spec->data.train)
        snprintf(out, 96, "%s.%d.%s", p->field, source, member);
    else
        snprintf(out, 96, "%s.%s", p->field, member);
}

/* Gives an error the name of the spec field that led to it, unless it has one. */
static int blame(const struct prepare *p, int source, struct err *e)
{
    if (e && !e->field[0]) field_name(p, source, "path", e->field);
    return -1;
}

static int choose_sources(struct prepare *p, struct err *e)
{
    const struct job_spec *s = p->spec;
    if (s->kind == JOB_TRAIN || s->kind == JOB_VERIFY) {
        p->source = s->data.train;
        p->n_sources = s->data.n_train;
        p->field = "data.train";
    } else {
        p->source = &s->input.source;
        p->n_sources = s->input.source.path ? 1 : 0;
        p->field = "input";
    }
    if (p->n_sources) return 0;
    return err_field(e, ERR_INVALID, p->field, "%s names no file to read", p->field);
}

/* ---- first pass ----------------------------------------------------------------------------- */

static int digest_one(struct prepare *p, int i, struct err *e)
{
    const struct source_file *f = &p->list.file[i];
    struct sha256 sha;
    sha256_init(&sha);
    int fd = source_open(p->roots[f->root], f->path, e);
    if (fd < 0) return blame(p, f->source, e);
    uint8_t *buf = malloc(CHUNK_SIZE);
    ssize_t n = buf ? 1 : -1;
    while (n > 0) {
        n = read(fd, buf, CHUNK_SIZE);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            sha256_add(&sha, buf, (size_t)n);
    }
    if (n < 0) err_errno(e, "read %s", f->path);
    free(buf);
    close(fd);
    if (n < 0) return blame(p, f->source, e);
    p->digest[i].size = (int64_t)sha.n_bytes;
    sha256_hex(&sha, p->digest[i].hex);
    return 0;
}

static int find_sources(struct prepare *p, int n_roots, struct err *e)
{
    for (int i = 0; i < p->n_sources; i++) {
        char field[96];
        field_name(p, i, "path", field);
        const char *path = spec_text(p->spec, p->source[i].path);
        if (source_expand(&p->list, path, p->roots, n_roots, i, field, e) < 0) return -1;
    }
    p->digest = calloc((size_t)p->list.n, sizeof *p->digest);
    if (!p->digest) return err_set(e, ERR_IO, "out of memory");
    for (int i = 0; i < p->list.n; i++)
        if (digest_one(p, i, e) < 0) return -1;
    return 0;
}

static const char *text_key(const struct prepare *p, int source)
{
    const char *key = spec_text(p->spec, p->source[source].text_key);
    return key[0] ? key : "text";
}

/* Everything that the tokens are a function of, each piece ended by a NUL. */
static void make_id(const struct prepare *p, char id[80])
{
    struct sha256 sha;
    char hex[SHA256_HEX];
    static const char version[] = "seqd prepared data 1, byte tokenizer";
    sha256_init(&sha);
    sha256_add(&sha, version, sizeof version);
    for (int i = 0; i < p->list.n; i++) {
        int source = p->list.file[i].source;
        bool jsonl = p->source[source].format == DATA_JSONL;
        const char *how = jsonl ? "jsonl" : "text", *key = jsonl ? text_key(p, source) : "";
        sha256_add(&sha, how, strlen(how) + 1);
        sha256_add(&sha, key, strlen(key) + 1);
        sha256_add(&sha, p->digest[i].hex, SHA256_HEX);
    }
    sha256_hex(&sha, hex);
    snprintf(id, 80, "%.32s", hex);
}

/* ---- second pass: tokens -------------------------------------------------------------------- */

static int put_bytes(struct prepare *p, const uint8_t *bytes, size_t n, struct err *e)
{
    uint8_t pair[2 * 4096]; /* u16 little-endian, whatever the machine's order */
    p->n_bytes += (int64_t)n;
    p->n_tokens += (int64_t)n;
    while (n) {
        size_t k = n < 4096 ? n : 4096;
        for (size_t i = 0; i < k; i++) {
            pair[2 * i] = bytes[i];
            pair[2 * i + 1] = 0;
            p->count[bytes[i]]++;
        }
        if (file_out_add(&p->tokens, pair, 2 * k, e) < 0) return -1;
        bytes += k;
        n -= k;
    }
    return 0;
}

/* A document without a byte is none. */
static int end_document(struct prepare *p, struct err *e)
{
    static const uint8_t eod[2] = {TOKEN_EOD & 0xff, TOKEN_EOD >> 8};
    uint8_t end[8];
    if (p->n_tokens == p->document_start) return 0;
    if (file_out_add(&p->tokens, eod, 2, e) < 0) return -1;
    p->count[TOKEN_EOD]++;
    p->document_start = ++p->n_tokens;
    p->n_documents++;
    for (int i = 0; i < 8; i++) end[i] = (uint8_t)((uint64_t)p->n_tokens >> (8 * i));
    return file_out_add(&p->documents, end, 8, e);
}

/* A source being read: hashed on the way. */
struct reader {
    int fd;
    const char *path;
    struct sha256 sha;
    char *buf;
    size_t n, room; /* bytes held, bytes allocated */
    bool end;
};

static int reader_open(struct reader *r, const struct prepare *p, int i, struct err *e)
{
    const struct source_file *f = &p->list.file[i];
    *r = (struct reader){.fd = source_open(p->roots[f->root], f->path, e), .path = f->path};
    if (r->fd < 0) return -1;
    sha256_init(&r->sha);
    r->room = CHUNK_SIZE;
    if ((r->buf = malloc(r->room))) return 0;
    close(r->fd);
    return err_set(e, ERR_IO, "out of memory");
}

/* Reads once more behind what is held. */
static int reader_fill(struct reader *r, struct err *e)
{
    ssize_t n;
    do n = read(r->fd, r->buf + r->n, r->room - r->n);
    while (n < 0 && errno == EINTR);
    if (n < 0) return err_errno(e, "read %s", r->path);
    sha256_add(&r->sha, r->buf + r->n, (size_t)n);
    r->n += (size_t)n;
    r->end = n == 0;
    return 0;
}

static int put_text(struct prepare *p, struct reader *r, struct err *e)
{
    while (!r->end) {
        r->n = 0;
        if (reader_fill(r, e) < 0 || put_bytes(p, (uint8_t *)r->buf, r->n, e) < 0) return -1;
    }
    return end_document(p, e);
}

/* The text member of one line. *text points into line, which is overwritten. */
static int line_text(char *line, size_t n, const char *key, char **text, size_t *len, struct err *e)
{
    struct jread j;
    enum jtok t;
    bool found = false;
    jread_init(&j, line, n);
    if ((t = jread_next(&j)) != J_OBJECT && t != J_ERROR)
        return err_set(e, ERR_INVALID, "want an object on every line");
    while (t != J_ERROR && (t = jread_next(&j)) == J_KEY) {
        if (!jread_is(&j, key)) {
            if (jread_skip(&j) < 0) break;
            continue;
        }
        if (found) return err_set(e, ERR_INVALID, "the member \"%s\" occurs twice", key);
        if ((t = jread_next(&j)) == J_ERROR) break;
        if (t != J_STRING) return err_set(e, ERR_INVALID, "the member \"%s\" is not a string", key);
        *text = line + (j.text - line);
        *len = jread_unescape(&j, *text);
        found = true;
    }
    while (j.err.code == ERR_NONE && t > J_END) t = jread_next(&j);
    if (j.err.code != ERR_NONE) return err_set(e, ERR_INVALID, "%s", j.err.text);
    if (!found) return err_set(e, ERR_INVALID, "no member \"%s\"; set text_key", key);
    return 0;
}

static int put_line(struct prepare *p, struct reader *r, int64_t number, char *line, size_t n,
                    const char *key, struct err *e)
{
    char *text = NULL;
    size_t len = 0, blank = 0;
    if (number == 1 && n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) {
        line += 3;
        n -= 3;
    }
    while (blank < n && strchr(" \t\r", line[blank]) && line[blank]) blank++;
    if (blank == n) return 0;
    if (line_text(line, n, key, &text, &len, e) < 0)
        return err_prefix(e, "%s line %lld", r->path, (long long)number);
    if (put_bytes(p, (uint8_t *)text, len, e) < 0) return -1;
    return end_document(p, e);
}

static int reader_grow(struct reader *r, int64_t line, struct err *e)
{
    if (r->room >= LINE_SIZE)
        return err_set(e, ERR_TOO_LARGE, "%s line %lld has more than %d bytes", r->path,
                       (long long)line, LINE_SIZE);
    char *more = realloc(r->buf, 2 * r->room);
    if (!more) return err_set(e, ERR_IO, "%s line %lld: out of memory", r->path, (long long)line);
    r->buf = more;
    r->room *= 2;
    return 0;
}

static int put_jsonl(struct prepare *p, struct reader *r, const char *key, struct err *e)
{
    int64_t number = 0;
    size_t searched = 0; /* of the held bytes, without a newline */
    while (!r->end || r->n) {
        char *nl = r->n > searched ? memchr(r->buf + searched, '\n', r->n - searched) : NULL;
        if (!nl && !r->end) {
            searched = r->n;
            if (r->n == r->room && reader_grow(r, number + 1, e) < 0) return -1;
            if (reader_fill(r, e) < 0) return -1;
            continue;
        }
        /* All whole lines held, then what is left moves to the front. */
        char *line = r->buf, *end = r->buf + r->n;
        for (; nl; line = nl + 1, nl = memchr(line, '\n', (size_t)(end - line)))
            if (put_line(p, r, ++number, line, (size_t)(nl - line), key, e) < 0) return -1;
        if (r->end && line < end) {
            if (put_line(p, r, ++number, line, (size_t)(end - line), key, e) < 0) return -1;
            line = end;
        }
        r->n = searched = (size_t)(end - line);
        memmove(r->buf, line, r->n);
    }
    return 0;
}

static int put_file(struct prepare *p, int i, struct err *e)
{
    struct reader r;
    char hex[SHA256_HEX];
    int source = p->list.file[i].source;
    if (reader_open(&r, p, i, e) < 0) return blame(p, source, e);
    int rc = p->source[source].format == DATA_JSONL ? put_jsonl(p, &r, text_key(p, source), e)
                                                    : put_text(p, &r, e);
    close(r.fd);
    free(r.buf);
    if (rc < 0) return blame(p, source, e);
    sha256_hex(&r.sha, hex);
    if (!strcmp(hex, p->digest[i].hex)) return 0;
    err_set(e, ERR_CONFLICT, "%s changed while it was read; try again", r.path);
    return blame(p, source, e);
}

static double entropy(const struct prepare *p)
{
    double h = 0;
    for (int t = 0; t < BYTE_VOCAB; t++) {
        double q = (double)p->count[t] / (double)p->n_tokens;
        if (p->count[t]) h -= q * log(q);
    }
    return h;
}

/* With size 0 it only measures. Returns the bytes needed, NUL included. */
static size_t meta_json(const struct prepare *p, const char *sha_tokens, const char *sha_documents,
                        char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "version", 1);
    jwrite_str(&w, "tokenizer", "byte");
    jwrite_int(&w, "n_tokens", p->n_tokens);
    jwrite_int(&w, "n_documents", p->n_documents);
    jwrite_int(&w, "n_bytes", p->n_bytes);
    jwrite_double(&w, "unigram_entropy", entropy(p));
    jwrite_str(&w, "sha256_tokens", sha_tokens);
    jwrite_str(&w, "sha256_documents", sha_documents);
    jwrite_int(&w, "n_sources", p->list.n);
    jwrite_array(&w, "sources");
    for (int i = 0; i < p->list.n && i < META_SOURCES; i++) {
        jwrite_object(&w, NULL);
        jwrite_str(&w, "path", p->list.file[i].path);
        jwrite_str(&w, "sha256", p->digest[i].hex);
        jwrite_int(&w, "size", p->digest[i].size);
        jwrite_end(&w);
    }
    jwrite_end(&w);
    jwrite_end(&w);
    jwrite_finish(&w);
    return w.len + 1;
}

static int write_meta(const struct prepare *p, const char *dir, const char *sha_tokens,
                      const char *sha_documents, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size = meta_json(p, sha_tokens, sha_documents, NULL, 0);
    char *text = malloc(size);
    if (!text) return err_set(e, ERR_IO, "out of memory");
    meta_json(p, sha_tokens, sha_documents, text, size);
    int rc = file_join(path, e, "%s/meta.json", dir);
    if (rc == 0) rc = file_write(path, text, size - 1, e);
    free(text);
    return rc;
}

static int write_tokens(struct prepare *p, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE], sha_tokens[SHA256_HEX], sha_documents[SHA256_HEX];
    p->tokens.fd = p->documents.fd = -1;
    if (file_join(path, e, "%s/tokens.bin", dir) < 0 || file_out_open(&p->tokens, path, e) < 0)
        return -1;
    if (file_join(path, e, "%s/documents.bin", dir) < 0 ||
        file_out_open(&p->documents, path, e) < 0)
        return -1;
    for (int i = 0; i < p->list.n; i++)
        if (put_file(p, i, e) < 0) return -1;
    if (!p->n_tokens)
        return err_field(e, ERR_INVALID, p->field, "%s: no byte of text in %d file%s", p->field,
                         p->list.n, p->list.n == 1 ? "" : "s");
    if (file_out_close(&p->tokens, sha_tokens, e) < 0) return -1;
    if (file_out_close(&p->documents, sha_documents, e) < 0) return -1;
    return write_meta(p, dir, sha_tokens, sha_documents, e);
}

static int build(struct prepare *p, const char *parent, const char *id, struct err *e)
{
    char tmp[FILE_PATH_SIZE], final[FILE_PATH_SIZE];
    if (file_join(tmp, e, "%s/%s.tmp", parent, id) < 0) return -1;
    if (file_join(final, e, "%s/%s", parent, id) < 0) return -1;
    if (file_remove(tmp, e) < 0 || file_make_dir(tmp, e) < 0) return -1;
    int rc = write_tokens(p, tmp, e);
    file_out_abort(&p->tokens); /* nothing to do after a success */
    file_out_abort(&p->documents);
    if (rc == 0) rc = file_sync_dir(tmp, e);
    if (rc == 0) rc = file_remove(final, e); /* an invalid one: data_open has refused it */
    if (rc == 0 && rename(tmp, final) < 0) rc = err_errno(e, "rename %s", final);
    if (rc == 0) rc = file_sync_dir(parent, e);
    if (rc < 0) file_remove(tmp, NULL);
    return rc;
}

static int lock_id(const char *parent, const char *id, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/%s.lock", parent, id) < 0) return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return err_errno(e, "open %s", path);
    int rc;
    do rc = flock(fd, LOCK_EX);
    while (rc < 0 && errno == EINTR);
    if (rc == 0) return fd;
    err_errno(e, "lock %s", path);
    close(fd);
    return -1;
}

/* Opens what is there, or builds it first. */
static int build_once(struct prepare *p, const char *parent, const char *id, struct data_stats *out,
                      struct err *e)
{
    struct err none = {0};
    struct data *d = data_open(parent, id, &none);
    if (d) {
        log_info("data.reuse", "id=%s tokens=%lld", id, (long long)data_stats(d)->n_tokens);
    } else {
        if (none.code != ERR_NOT_FOUND)
            log_warn("data.rebuild", "id=%s reason=\"%s\"", id, none.text);
        if (build(p, parent, id, e) < 0 || !(d = data_open(parent, id, e))) return -1;
    }
    *out = *data_stats(d);
    data_close(d);
    return 0;
}

int data_prepare(const struct job_spec *spec, const char *const *roots, int n_roots,
                 const char *parent, struct data_stats *out, struct err *e)
{
    struct prepare *p = calloc(1, sizeof *p);
    char id[80];
    int rc = -1, lock = -1;
    if (!p) return err_set(e, ERR_IO, "out of memory");
    if (e) *e = (struct err){0};
    p->spec = spec;
    p->roots = roots;
    if (choose_sources(p, e) < 0 || find_sources(p, n_roots, e) < 0) goto out;
    make_id(p, id);
    if (file_make_dir(parent, e) < 0 || (lock = lock_id(parent, id, e)) < 0) goto out;
    rc = build_once(p, parent, id, out, e);
out:
    if (lock >= 0) close(lock);
    source_list_fini(&p->list);
    free(p->digest);
    free(p);
    return rc;
}
