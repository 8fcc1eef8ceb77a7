/* meta.c: writes and reads meta.json member by member, and checks that its ranges and counts agree
 * with each other. */
#include "worker/data/meta.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"
#include "worker/data/source.h"

#define META_VERSION 2
#define META_SIZE    ((int64_t)512 << 20) /* SOURCE_FILES paths of some length */

static const char *const part_names[PART_N] = {"tokens.bin", "documents.bin", "loss.bin",
                                               "origins.bin", "bytes.bin"};
static const char byte_name[] = "byte"; /* the tokenizer of text that was bytes */
static const char *const set_names[SET_N] = {"train", "eval"};

const char *meta_part_name(int part)
{
    return part_names[part];
}

void meta_fini(struct meta *m)
{
    for (int i = 0; i < m->n_sources; i++) free(m->source[i].path);
    for (int i = 0; i < m->n_files; i++) free(m->file[i].path);
    free(m->file);
    m->n_sources = m->n_files = 0;
    m->file = NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_counts(struct jwrite *w, const char *set, int64_t tokens, int64_t documents,
                         int64_t bytes)
{
    jwrite_object(w, set);
    jwrite_int(w, "n_tokens", tokens);
    jwrite_int(w, "n_documents", documents);
    jwrite_int(w, "n_bytes", bytes);
    jwrite_end(w);
}

static void write_parts(struct jwrite *w, const struct meta *m)
{
    jwrite_array(w, "parts");
    for (int i = 0; i < PART_N; i++) {
        if (m->part[i].size < 0) continue;
        jwrite_object(w, NULL);
        jwrite_str(w, "name", part_names[i]);
        jwrite_int(w, "size", m->part[i].size);
        jwrite_str(w, "sha256", m->part[i].sha256);
        jwrite_end(w);
    }
    jwrite_end(w);
}

static void write_sources(struct jwrite *w, const struct meta *m)
{
    jwrite_array(w, "sources");
    for (int i = 0; i < m->n_sources; i++) {
        const struct meta_source *s = &m->source[i];
        jwrite_object(w, NULL);
        jwrite_str(w, "set", set_names[s->range.set]);
        jwrite_str(w, "path", s->path);
        jwrite_int(w, "format", s->format);
        jwrite_double(w, "weight", s->range.weight);
        jwrite_int(w, "first_document", s->range.first_document);
        jwrite_int(w, "n_documents", s->range.n_documents);
        jwrite_int(w, "n_tokens", s->n_tokens);
        jwrite_end(w);
    }
    jwrite_end(w);
}

static void write_files(struct jwrite *w, const struct meta *m)
{
    jwrite_array(w, "files");
    for (int i = 0; i < m->n_files; i++) {
        jwrite_object(w, NULL);
        jwrite_str(w, "path", m->file[i].path);
        jwrite_str(w, "sha256", m->file[i].sha256);
        jwrite_int(w, "size", m->file[i].size);
        jwrite_int(w, "source", m->file[i].source);
        jwrite_end(w);
    }
    jwrite_end(w);
}

/* Returns the bytes it needs, the NUL included. */
static size_t write_json(const struct meta *m, char *out, size_t size)
{
    const struct data_stats *s = &m->stats;
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "version", META_VERSION);
    jwrite_str(&w, "tokenizer", *m->tokenizer ? m->tokenizer : byte_name);
    jwrite_int(&w, "width", m->width);
    write_counts(&w, set_names[SET_TRAIN], s->n_tokens, s->n_documents, s->n_bytes);
    write_counts(&w, set_names[SET_EVAL], s->eval_tokens, s->eval_documents, s->eval_bytes);
    jwrite_int(&w, "n_masked", s->n_masked);
    jwrite_int(&w, "n_skipped", s->n_skipped);
    jwrite_int(&w, "max_token", s->max_token);
    jwrite_int(&w, "max_token_file", m->max_file);
    jwrite_int(&w, "max_token_pos", m->max_pos);
    jwrite_double(&w, "unigram_entropy", s->unigram_entropy);
    if (s->n_after) jwrite_int(&w, "n_after", s->n_after);
    write_parts(&w, m);
    write_sources(&w, m);
    write_files(&w, m);
    jwrite_end(&w);
    jwrite_finish(&w);
    return w.len + 1;
}

int meta_write(const struct meta *m, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    size_t size = write_json(m, NULL, 0);
    char *text = malloc(size);
    if (!text) return err_set(e, ERR_IO, "out of memory");
    write_json(m, text, size);
    int rc = file_join(path, e, "%s/meta.json", dir);
    if (rc == 0) rc = file_write(path, text, size - 1, e);
    free(text);
    return rc;
}

/* ---- reading: every function returns -1 when a value is wrong -------------------------------- */

struct meta_number { /* a member that is a whole number */
    const char *key;
    int64_t *value;
};

static int read_int(struct jread *j, int64_t *out)
{
    return jread_next(j) == J_NUMBER ? jread_int(j, out) : -1;
}

static int read_small(struct jread *j, int *out)
{
    int64_t v;
    if (read_int(j, &v) < 0 || v < 0 || v > INT32_MAX) return -1;
    *out = (int)v;
    return 0;
}

static int read_text(struct jread *j, char *out, size_t size)
{
    return jread_next(j) == J_STRING ? jread_copy(j, out, size) : -1;
}

static int read_path(struct jread *j, char **out)
{
    if (*out || jread_next(j) != J_STRING || !(*out = malloc(j->len + 1))) return -1;
    return jread_copy(j, *out, j->len + 1);
}

/* Reads one of the numbers, or skips another member. */
static int read_number(struct jread *j, const struct meta_number *n, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (jread_is(j, n[i].key)) return read_int(j, n[i].value);
    return jread_skip(j);
}

static int read_counts(struct jread *j, int64_t *tokens, int64_t *documents, int64_t *bytes)
{
    const struct meta_number n[] = {
        {"n_tokens", tokens}, {"n_documents", documents}, {"n_bytes", bytes}};
    enum jtok t = jread_next(j);
    if (t != J_OBJECT) return -1;
    while ((t = jread_next(j)) == J_KEY)
        if (read_number(j, n, 3) < 0) return -1;
    return t == J_OBJECT_END ? 0 : -1;
}

static int read_set(struct jread *j, int *set)
{
    if (jread_next(j) != J_STRING) return -1;
    for (*set = 0; *set < SET_N; ++*set)
        if (jread_is(j, set_names[*set])) return 0;
    return -1;
}

static int read_part(struct jread *j, struct meta *m)
{
    struct meta_part p = {.size = -1};
    int id = PART_N;
    enum jtok t;
    while ((t = jread_next(j)) == J_KEY) {
        int rc = -1;
        if (jread_is(j, "size")) {
            rc = read_int(j, &p.size);
        } else if (jread_is(j, "sha256")) {
            rc = read_text(j, p.sha256, sizeof p.sha256);
        } else if (jread_is(j, "name") && jread_next(j) == J_STRING) {
            for (id = 0; id < PART_N && !jread_is(j, part_names[id]);) id++;
            rc = 0;
        }
        if (rc < 0) return -1;
    }
    if (t != J_OBJECT_END || id == PART_N || p.size < 0) return -1;
    m->part[id] = p;
    return 0;
}

static int read_source(struct jread *j, struct meta *m)
{
    if (m->n_sources == META_SOURCES) return -1;
    struct meta_source *s = &m->source[m->n_sources++];
    *s = (struct meta_source){0};
    const struct meta_number n[] = {{"first_document", &s->range.first_document},
                                    {"n_documents", &s->range.n_documents},
                                    {"n_tokens", &s->n_tokens}};
    enum jtok t;
    while ((t = jread_next(j)) == J_KEY) {
        int rc;
        if (jread_is(j, "set"))
            rc = read_set(j, &s->range.set);
        else if (jread_is(j, "path"))
            rc = read_path(j, &s->path);
        else if (jread_is(j, "format"))
            rc = read_small(j, &s->format);
        else if (jread_is(j, "weight"))
            rc = jread_next(j) == J_NUMBER ? jread_double(j, &s->range.weight) : -1;
        else
            rc = read_number(j, n, 3);
        if (rc < 0) return -1;
    }
    return t == J_OBJECT_END && s->path && s->range.weight >= 0 ? 0 : -1;
}

static int read_file(struct jread *j, struct meta *m)
{
    if (m->n_files == SOURCE_FILES) return -1;
    if (!(m->n_files & (m->n_files - 1))) { /* full at every power of two */
        size_t room = m->n_files ? 2 * (size_t)m->n_files : 1;
        struct meta_file *more = realloc(m->file, room * sizeof *more);
        if (!more) return -1;
        m->file = more;
    }
    struct meta_file *f = &m->file[m->n_files++];
    *f = (struct meta_file){0};
    enum jtok t;
    while ((t = jread_next(j)) == J_KEY) {
        int rc;
        if (jread_is(j, "path"))
            rc = read_path(j, &f->path);
        else if (jread_is(j, "sha256"))
            rc = read_text(j, f->sha256, sizeof f->sha256);
        else if (jread_is(j, "source"))
            rc = read_small(j, &f->source);
        else
            rc = read_number(j, &(struct meta_number){"size", &f->size}, 1);
        if (rc < 0) return -1;
    }
    return t == J_OBJECT_END && f->path && f->size >= 0 ? 0 : -1;
}

static int read_array(struct jread *j, struct meta *m, int (*one)(struct jread *, struct meta *))
{
    enum jtok t;
    if (jread_next(j) != J_ARRAY) return -1;
    while ((t = jread_next(j)) == J_OBJECT)
        if (one(j, m) < 0) return -1;
    return t == J_ARRAY_END ? 0 : -1;
}

static int read_tokenizer(struct jread *j, struct meta *m)
{
    if (jread_next(j) != J_STRING) return -1;
    m->stats.own_tokens = !jread_is(j, byte_name);
    return m->stats.own_tokens ? jread_copy(j, m->tokenizer, sizeof m->tokenizer) : 0;
}

static int read_member(struct jread *j, struct meta *m, int64_t *version)
{
    struct data_stats *s = &m->stats;
    const struct meta_number n[] = {{"version", version},         {"n_masked", &s->n_masked},
                                    {"n_skipped", &s->n_skipped}, {"n_after", &s->n_after},
                                    {"max_token", &s->max_token}, {"max_token_pos", &m->max_pos}};
    if (jread_is(j, "tokenizer")) return read_tokenizer(j, m);
    if (jread_is(j, "width")) return read_small(j, &m->width);
    if (jread_is(j, "max_token_file")) return read_small(j, &m->max_file);
    if (jread_is(j, "unigram_entropy"))
        return jread_next(j) == J_NUMBER ? jread_double(j, &s->unigram_entropy) : -1;
    if (jread_is(j, set_names[SET_TRAIN]))
        return read_counts(j, &s->n_tokens, &s->n_documents, &s->n_bytes);
    if (jread_is(j, set_names[SET_EVAL]))
        return read_counts(j, &s->eval_tokens, &s->eval_documents, &s->eval_bytes);
    if (jread_is(j, "parts")) return read_array(j, m, read_part);
    if (jread_is(j, "sources")) return read_array(j, m, read_source);
    if (jread_is(j, "files")) return read_array(j, m, read_file);
    return read_number(j, n, sizeof n / sizeof *n);
}

/* Checks that the ranges of the sources, one after the other, are all documents, and that those of
 * training come first. */
static bool ranges_hold(const struct meta *m)
{
    int64_t next = 0, train = 0;
    for (int i = 0; i < m->n_sources; i++) {
        const struct data_source *r = &m->source[i].range;
        if (i && r->set < m->source[i - 1].range.set) return false;
        if (r->first_document != next || r->n_documents < 0 ||
            r->n_documents > INT64_MAX / 64 - next)
            return false;
        next += r->n_documents;
        if (r->set == SET_TRAIN) train = next;
    }
    return train == m->stats.n_documents && next == train + m->stats.eval_documents;
}

static bool counts_hold(const struct meta *m)
{
    const struct data_stats *s = &m->stats;
    const int64_t big = INT64_MAX / 64;
    if (s->n_documents < 1 || s->n_tokens < s->n_documents || s->n_tokens > big) return false;
    if (s->eval_documents < 0 || s->eval_tokens < s->eval_documents || s->eval_tokens > big)
        return false;
    const int64_t tokens = s->n_tokens + s->eval_tokens, docs = s->n_documents + s->eval_documents;
    if (m->width != 2 && m->width != 4) return false;
    if (s->n_after < 0 || s->n_after > 64) return false;
    if (s->max_token < 0 || s->max_token > (m->width == 2 ? 65535 : INT32_MAX)) return false;
    const int64_t loss = m->part[PART_LOSS].size, bytes = m->part[PART_BYTES].size;
    return m->part[PART_TOKENS].size == m->width * tokens &&
           m->part[PART_DOCUMENTS].size == 8 * docs &&
           m->part[PART_ORIGINS].size == (int64_t)sizeof(struct data_origin) * docs &&
           (loss == -1 || loss == (tokens + 7) / 8) && (bytes == -1 || bytes == 4 * tokens);
}

int meta_read(const char *dir, struct meta *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct jread j;
    size_t size;
    int64_t version = 0;
    *m = (struct meta){0};
    for (int i = 0; i < PART_N; i++) m->part[i].size = -1;
    if (file_join(path, e, "%s/meta.json", dir) < 0) return -1;
    char *text = file_read(path, META_SIZE, &size, e);
    if (!text) return -1;
    jread_init(&j, text, size);
    int rc = jread_next(&j) == J_OBJECT ? 0 : -1;
    enum jtok t = J_ERROR;
    while (rc == 0 && (t = jread_next(&j)) == J_KEY) rc = read_member(&j, m, &version);
    if (rc < 0 || t != J_OBJECT_END || jread_next(&j) != J_END || version != META_VERSION ||
        !counts_hold(m) || !ranges_hold(m))
        rc = err_set(e, ERR_CORRUPT, "%s is not the description of prepared data; remove %s", path,
                     dir);
    free(text);
    return rc;
}
