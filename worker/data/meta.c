/* meta.c: writes and reads meta.json by tables of its members, and checks that its ranges and
 * counts agree. */
#include "worker/data/meta.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/record.h"
#include "worker/data/source.h"

#define META_VERSION 2
#define META_SIZE    ((int64_t)512 << 20) /* 8 KiB for each of SOURCE_FILES files */

static const char *const part_names[PART_N + 1] = {"tokens.bin", "documents.bin", "loss.bin",
                                                   "origins.bin", "bytes.bin"};
static const char byte_name[] = "byte"; /* Value of the member `tokenizer` if each byte of text
                                         * is a token. */
static const char *const set_names[SET_N + 1] = {"train", "eval"};

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

/* ---- the members ----------------------------------------------------------------------------- */

/* A meta in the form of meta.json. In this form `tokenizer` is "byte" if each byte of text is
 * a token, and part[] lists only those parts that exist. */
struct meta_stored {
    struct meta m;
    char tokenizer[SHA256_HEX];
    int n_parts;
    struct meta_stored_part {
        int32_t id;
        struct meta_part part;
    } part[PART_N];
};

static const void *part_get(const void *record, int i)
{
    const struct meta_stored *s = record;
    return i < s->n_parts ? &s->part[i] : NULL;
}

static void *part_add(void *record, int i)
{
    struct meta_stored *s = record;
    return s->n_parts < PART_N ? &s->part[s->n_parts++] : NULL;
}

static const void *source_get(const void *record, int i)
{
    const struct meta *m = &((const struct meta_stored *)record)->m;
    return i < m->n_sources ? &m->source[i] : NULL;
}

static void *source_add(void *record, int i)
{
    struct meta *m = &((struct meta_stored *)record)->m;
    if (m->n_sources == META_SOURCES) return NULL;
    struct meta_source *s = &m->source[m->n_sources++];
    *s = (struct meta_source){0};
    return s;
}

static const void *file_get(const void *record, int i)
{
    const struct meta *m = &((const struct meta_stored *)record)->m;
    return i < m->n_files ? &m->file[i] : NULL;
}

static void *file_add(void *record, int i)
{
    struct meta *m = &((struct meta_stored *)record)->m;
    if (m->n_files == SOURCE_FILES) return NULL;
    if (!(m->n_files & (m->n_files - 1))) { /* whenever n_files is a power of two, the array
                                             * has no free element */
        size_t room = m->n_files ? 2 * (size_t)m->n_files : 1;
        struct meta_file *more = realloc(m->file, room * sizeof *more);
        if (!more) return NULL;
        m->file = more;
    }
    struct meta_file *f = &m->file[m->n_files++];
    *f = (struct meta_file){0};
    return f;
}

/* clang-format off */
#define ALWAYS .when = record_always
#define COUNT(path, m)     {path, FIELD_INT, AT(m), 0, INT64_MAX, ALWAYS}
#define SMALL(path, m)     {path, FIELD_INT32, AT(m), 0, INT32_MAX, ALWAYS}
#define REAL(path, m, lo)  {path, FIELD_DOUBLE, AT(m), lo, DBL_MAX, ALWAYS}
#define DIGEST(path, m)    {path, FIELD_TEXT, AT(m), .size = SHA256_HEX, ALWAYS}
#define PATH(path, m)      {path, FIELD_OWNED, AT(m), ALWAYS, .needed = true}
#define WORD(path, m, list, ...) {path, FIELD_ENUM, AT(m), .words = list, ALWAYS, __VA_ARGS__}
#define OBJECT(path, rows) {path, FIELD_OBJECT, .of = rows, ALWAYS}
#define LIST(path, l)      {path, FIELD_LIST, .list = &l, ALWAYS}

#define AT(member) offsetof(struct meta_stored_part, member)
static const struct field part_rows[] = {
    WORD("name", id, part_names, .needed = true),
    {"size", FIELD_INT, AT(part.size), 0, INT64_MAX, ALWAYS, .needed = true},
    {"sha256", FIELD_TEXT, AT(part.sha256), .size = SHA256_HEX, ALWAYS, .needed = true},
    RECORD_CLOSED /* unknown members are refused, because they may change the meaning of the
                   * bytes */
};
#undef AT
#define AT(member) offsetof(struct meta_source, member)
static const struct field source_rows[] = {
    WORD("set", range.set, set_names),
    PATH("path", path),
    SMALL("format", format),
    REAL("weight", range.weight, 0),
    COUNT("first_document", range.first_document),
    COUNT("n_documents", range.n_documents),
    COUNT("n_tokens", n_tokens),
    {NULL}
};
#undef AT
#define AT(member) offsetof(struct meta_file, member)
static const struct field file_rows[] = {
    PATH("path", path),
    DIGEST("sha256", sha256),
    COUNT("size", size),
    SMALL("source", source),
    {NULL}
};
#undef AT
#define AT(member) offsetof(struct meta_stored, m.stats.member)
static const struct field train_rows[] = {
    COUNT("n_tokens", n_tokens),
    COUNT("n_documents", n_documents),
    COUNT("n_bytes", n_bytes),
    {NULL}
};
static const struct field eval_rows[] = {
    COUNT("n_tokens", eval_tokens),
    COUNT("n_documents", eval_documents),
    COUNT("n_bytes", eval_bytes),
    {NULL}
};
#undef AT
#define AT(member) offsetof(struct meta_stored, member)
static const struct field_list parts = {part_rows, part_get, part_add, NULL};
static const struct field_list sources = {source_rows, source_get, source_add, NULL};
static const struct field_list files = {file_rows, file_get, file_add, NULL};
static const struct field rows[] = {
    {"version", FIELD_FIXED, 0, META_VERSION, META_VERSION, .needed = true},
    DIGEST("tokenizer", tokenizer),
    SMALL("width", m.width),
    OBJECT("train", train_rows),
    OBJECT("eval", eval_rows),
    COUNT("n_masked", m.stats.n_masked),
    COUNT("n_skipped", m.stats.n_skipped),
    {"max_token", FIELD_INT, AT(m.stats.max_token), 0, INT32_MAX, ALWAYS},
    SMALL("max_token_file", m.max_file),
    COUNT("max_token_pos", m.max_pos),
    REAL("unigram_entropy", m.stats.unigram_entropy, -DBL_MAX),
    {"n_after", FIELD_INT, AT(m.stats.n_after), 0, 64},
    LIST("parts", parts),
    LIST("sources", sources),
    LIST("files", files),
    {NULL}
};
#undef AT
/* clang-format on */

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes the JSON text. Returns the size that the text needs, including its NUL. */
static size_t write_json(const struct meta_stored *s, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    record_write(&w, NULL, rows, s);
    jwrite_finish(&w);
    return w.len + 1;
}

int meta_write(const struct meta *m, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct meta_stored s = {.m = *m};
    memcpy(s.tokenizer, m->tokenizer, sizeof s.tokenizer);
    if (!*m->tokenizer) memcpy(s.tokenizer, byte_name, sizeof byte_name);
    for (int i = 0; i < PART_N; i++)
        if (m->part[i].size >= 0) s.part[s.n_parts++] = (struct meta_stored_part){i, m->part[i]};
    size_t size = write_json(&s, NULL, 0);
    char *text = malloc(size);
    if (!text) return err_set(e, ERR_IO, "out of memory");
    write_json(&s, text, size);
    int rc = file_join(path, e, "%s/meta.json", dir);
    if (rc == 0) rc = file_write(path, text, size - 1, e);
    free(text);
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Returns true if the ranges of the sources are adjacent and together cover all documents. The
 * ranges of SET_TRAIN must come before those of SET_EVAL. */
static bool ranges_hold(const struct meta *m)
{
    int64_t next = 0, train = 0;
    for (int i = 0; i < m->n_sources; i++) {
        const struct data_source *r = &m->source[i].range;
        if (i && r->set < m->source[i - 1].range.set) return false;
        if (r->first_document != next || r->n_documents > INT64_MAX / 64 - next) return false;
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
    if (s->eval_tokens < s->eval_documents || s->eval_tokens > big) return false;
    const int64_t tokens = s->n_tokens + s->eval_tokens, docs = s->n_documents + s->eval_documents;
    if (m->width != 2 && m->width != 4) return false;
    if (m->width == 2 && s->max_token > 65535) return false;
    const int64_t loss = m->part[PART_LOSS].size, bytes = m->part[PART_BYTES].size;
    return m->part[PART_TOKENS].size == m->width * tokens &&
           m->part[PART_DOCUMENTS].size == 8 * docs &&
           m->part[PART_ORIGINS].size == (int64_t)sizeof(struct data_origin) * docs &&
           (loss == -1 || loss == (tokens + 7) / 8) && (bytes == -1 || bytes == 4 * tokens);
}

/* Fills the meta from its text. */
static int parse(const char *text, size_t size, struct meta *m, struct err *e)
{
    struct meta_stored s = {.tokenizer = "byte"};
    const int rc = record_parse(text, size, rows, &s, e);
    *m = s.m;
    if (rc) return rc;
    m->stats.own_tokens = strcmp(s.tokenizer, byte_name) != 0;
    if (m->stats.own_tokens) memcpy(m->tokenizer, s.tokenizer, sizeof m->tokenizer);
    for (int i = 0; i < PART_N; i++) m->part[i].size = -1;
    for (int i = 0; i < s.n_parts; i++) m->part[s.part[i].id] = s.part[i].part;
    if (!counts_hold(m)) return err_set(e, ERR_CORRUPT, "its counts and sizes do not agree");
    if (!ranges_hold(m))
        return err_set(e, ERR_CORRUPT, "the documents of its sources are not those of its sets");
    return 0;
}

int meta_read(const char *dir, struct meta *m, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct err why = {0};
    size_t size;
    *m = (struct meta){0};
    if (file_join(path, e, "%s/meta.json", dir) < 0) return -1;
    char *text = file_read(path, META_SIZE, &size, e);
    if (!text) return -1;
    int rc = parse(text, size, m, &why);
    free(text);
    if (!rc) return 0;
    return err_set(e, ERR_CORRUPT, "%s is not the description of prepared data: %s; remove %s",
                   path, why.text, dir);
}
