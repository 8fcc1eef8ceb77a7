/* data_prepare: makes two passes over the sources. The first pass hashes the sources to compute
 * the id. If the data with this id exist already, there is no second pass. The second pass turns
 * the sources into tokens, and checks that it has read the same bytes that were hashed. Only one
 * process at a time makes data of an id (making.h). A killed process leaves only a .tmp directory,
 * which the next preparation removes. */
#include "worker/data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/clock.h"
#include "api/core/container.h"
#include "api/core/job.h"
#include "api/core/log.h"
#include "kernels/cpu/pool.h"
#include "worker/data/digest.h"
#include "worker/data/encode_text.h"
#include "worker/data/format.h"
#include "worker/data/latents.h"
#include "worker/data/making.h"
#include "worker/data/source.h"

struct prepared_source {
    const struct spec_source *spec; /* borrowed */
    int set;
    char field[64]; /* "data.train.0", "eval.data.1", "input" */
};

struct prepare {
    const struct job_spec *spec;
    int n_sources;
    struct prepared_source source[META_SOURCES];
    const char *const *roots;
    struct progress *progress;
    struct source_list list;
    int n_workers;            /* number of workers that process records in parallel */
    struct pool *pool;        /* threads of the workers; NULL if the caller works alone */
    struct encode_text *text; /* [n_workers]; NULL if text is bytes, or is refused */
    int64_t begun_us;
    struct meta meta; /* the first pass fills the sources and the files, and the second pass
                       * fills the counts */
};

/* Sets the field of the error to the field of the source, unless the error has a field already. */
static int blame(const struct prepare *p, int source, struct err *e)
{
    if (e && !e->field[0]) snprintf(e->field, sizeof e->field, "%s.path", p->source[source].field);
    return -1;
}

static void add_source(struct prepare *p, const struct spec_source *s, int set, const char *field,
                       int index)
{
    struct prepared_source *to = &p->source[p->n_sources++];
    *to = (struct prepared_source){.spec = s, .set = set};
    if (index < 0)
        snprintf(to->field, sizeof to->field, "%s", field);
    else
        snprintf(to->field, sizeof to->field, "%s.%d", field, index);
}

static int choose_sources(struct prepare *p, struct err *e)
{
    const struct job_spec *s = p->spec;
    const bool training = s->kind == JOB_TRAIN || s->kind == JOB_VERIFY;
    const char *field = training ? "data.train" : "input";
    if (training) {
        for (int i = 0; i < s->data.n_train; i++)
            add_source(p, &s->data.train[i], SET_TRAIN, field, i);
    } else if (s->input.source.path) {
        add_source(p, &s->input.source, SET_TRAIN, field, -1);
    }
    if (!p->n_sources) return err_field(e, ERR_INVALID, field, "%s names no file to read", field);
    for (int i = 0; training && i < s->eval.n_data; i++)
        add_source(p, &s->eval.data[i], SET_EVAL, "eval.data", i);
    for (int i = 1; i < p->n_sources; i++)
        if ((p->source[i].spec->format == DATA_LATENTS) !=
            (p->source[0].spec->format == DATA_LATENTS))
            return err_field(e, ERR_INVALID, p->source[i].field,
                             "%s.format: latents and tokens do not go together",
                             p->source[i].field);
    return 0;
}

/* ---- first pass ------------------------------------------------------------------------------ */

/* Lists the files that were found, with their digests. */
static int digest_all(struct prepare *p, struct err *e)
{
    int format[META_SOURCES], bad;
    for (int i = 0; i < p->n_sources; i++) format[i] = p->source[i].spec->format;
    for (int i = 0; i < p->list.n; i++) {
        struct meta_file *m = &p->meta.file[i];
        m->source = p->list.file[i].source;
        m->path = strdup(p->list.file[i].path);
        p->meta.n_files = i + 1;
        if (!m->path) return err_set(e, ERR_IO, "out of memory");
    }
    const struct digest_in in = {&p->list, p->roots, format, p->pool, p->progress};
    return digest_files(&in, p->meta.file, &bad, e) < 0 ? blame(p, p->list.file[bad].source, e) : 0;
}

static int find_source(struct prepare *p, int i, int n_roots, struct err *e)
{
    const struct prepared_source *s = &p->source[i];
    struct meta_source *m = &p->meta.source[i];
    const char *path = spec_text(p->spec, s->spec->path);
    char field[96], index[FILE_PATH_SIZE];
    snprintf(field, sizeof field, "%s.path", s->field);
    m->range = (struct data_source){.set = s->set, .weight = s->spec->weight};
    m->format = s->spec->format;
    m->path = strdup(path);
    p->meta.n_sources = i + 1;
    if (!m->path) return err_set(e, ERR_IO, "out of memory");
    if (!format_row(s->spec->format))
        return err_field(e, ERR_UNSUPPORTED, s->field, "%s.format: only generate reads this one",
                         s->field);
    if (!(path = format_index(s->spec->format, path, index, e))) return blame(p, i, e);
    return source_expand(&p->list, path, p->roots, n_roots, i, field, e);
}

/* Refuses a file of text or JSONL whose first bytes show that its format is not text or JSONL. */
static int check_head(const struct prepare *p, const struct source_file *f, struct err *e)
{
    const int format = p->source[f->source].spec->format;
    char head[CONTAINER_HEAD];
    if (format != DATA_TEXT && format != DATA_JSONL) return 0;
    const int fd = source_open(p->roots[f->root], f->path, NULL);
    if (fd < 0) return 0; /* the error is reported later, when the file is read */
    const ssize_t n = pread(fd, head, sizeof head, 0);
    close(fd);
    const struct container *c = n > 0 ? container_by_bytes(head, (size_t)n) : NULL;
    return c ? container_refuse(c, "", f->path, "", e) : 0;
}

/* Sums the bytes of the files that were found. Returns 0 if these files name other files,
 * because the sizes of the other files are not known yet. */
static double listed_size(const struct prepare *p)
{
    double n = 0;
    struct stat st;
    for (int i = 0; i < p->list.n; i++) {
        const struct source_file *f = &p->list.file[i];
        if (format_row(p->source[f->source].spec->format)->hash) return 0;
        const int fd = source_open(p->roots[f->root], f->path, NULL);
        if (fd < 0) continue; /* the error is reported later, when the file is read */
        if (!fstat(fd, &st)) n += (double)st.st_size;
        close(fd);
    }
    return n;
}

static int find_sources(struct prepare *p, int n_roots, struct err *e)
{
    for (int i = 0; i < p->n_sources; i++)
        if (find_source(p, i, n_roots, e) < 0) return -1;
    for (int i = 0; i < p->list.n; i++)
        if (check_head(p, &p->list.file[i], e) < 0) return blame(p, p->list.file[i].source, e);
    progress_begin(p->progress, PROGRESS_BYTES, 2 * listed_size(p), 0);
    p->meta.file = calloc((size_t)p->list.n, sizeof *p->meta.file);
    if (!p->meta.file) return err_set(e, ERR_IO, "out of memory");
    return digest_all(p, e);
}

static const char *text_key(const struct prepare *p, const struct prepared_source *s)
{
    const char *key = spec_text(p->spec, s->spec->text_key);
    return key[0] ? key : "text";
}

static bool has_records(const struct prepare *p)
{
    bool jsonl = false;
    for (int i = 0; i < p->n_sources; i++) jsonl |= p->source[i].spec->format == DATA_JSONL;
    return jsonl;
}

/* Returns true if the job truncates texts. In such a job the ids that the post-processor puts
 * at the end of a text are kept, as in the Python package tokenizers. */
static bool cuts_texts(const struct job_spec *s)
{
    return s->kind == JOB_EMBED && s->data.overlong == OVERLONG_TRUNCATE;
}

/* Makes the id from all inputs of the prepared data. A NUL follows each input. Paths are inputs
 * because origins name them. */
static int make_id(struct prepare *p, char id[80], struct err *e)
{
    struct sha256 sha;
    char hex[SHA256_HEX], how[128];
    static const char version[] = "seqd prepared data 2, byte tokenizer";
    sha256_init(&sha);
    sha256_add(&sha, version, sizeof version);
    if (p->text && encode_text_digest(p->text, has_records(p), &sha, p->meta.tokenizer, e) < 0)
        return -1;
    if (cuts_texts(p->spec)) sha256_add(&sha, "n_after", sizeof "n_after");
    if (job_learns_pairs(p->spec)) sha256_add(&sha, "preferences", sizeof "preferences");
    for (int i = 0; i < p->n_sources; i++) {
        const struct prepared_source *s = &p->source[i];
        const struct format *row = format_row(s->spec->format);
        const bool jsonl = s->spec->format == DATA_JSONL;
        const char *key = jsonl ? text_key(p, s) : "";
        int n = snprintf(how, sizeof how, "source %d %s eod %lld weight %.17g loss_on %d%s", s->set,
                         row->name, (long long)(row->tokens ? s->spec->eod : -1), s->spec->weight,
                         jsonl ? p->spec->data.loss_on : 0, row->reading ? row->reading : "");
        sha256_add(&sha, how, (size_t)n + 1);
        sha256_add(&sha, key, strlen(key) + 1);
    }
    for (int i = 0; i < p->meta.n_files; i++) {
        const struct meta_file *f = &p->meta.file[i];
        int n = snprintf(how, sizeof how, "file %d %s", f->source, f->sha256);
        sha256_add(&sha, how, (size_t)n + 1);
        sha256_add(&sha, f->path, strlen(f->path) + 1);
    }
    sha256_hex(&sha, hex);
    snprintf(id, 80, "%.32s", hex);
    return 0;
}

/* ---- second pass ----------------------------------------------------------------------------- */

/* Begins file i. All data that are added until the next call belong to this file. */
static struct format_in begin_file(const struct prepare *p, struct encode *c, int i)
{
    const struct source_file *f = &p->list.file[i];
    const struct prepared_source *s = &p->source[f->source];
    encode_file(c, s->set, (uint32_t)f->source, (uint32_t)i);
    return (struct format_in){.c = c,
                              .root = p->roots[f->root],
                              .progress = p->progress,
                              .text_key = text_key(p, s),
                              .eod = s->spec->eod,
                              .loss_on = p->spec->data.loss_on,
                              .spec = p->spec};
}

static int read_file(struct prepare *p, struct encode *c, int i, struct err *e)
{
    const struct source_file *f = &p->list.file[i];
    struct format_in in = begin_file(p, c, i);
    struct intake into = {.progress = p->progress};
    struct reader r;
    sha256_init(&into.sha);
    if (reader_open(&r, in.root, f->path, &into, e) < 0) return blame(p, f->source, e);
    in.r = &r;
    int rc = format_row(p->source[f->source].spec->format)->read(&in, e);
    reader_close(&r);
    if (rc == 0) rc = reader_unchanged(&into, f->path, p->meta.file[i].sha256, e);
    return rc < 0 ? blame(p, f->source, e) : 0;
}

/* Reads one or several files of a source, beginning with file i. Several files are read
 * together if they are small. Returns the number of files that were read. */
static int read_files(struct prepare *p, struct encode *c, int i, int n, struct err *e)
{
    const struct format *row = format_row(p->source[p->list.file[i].source].spec->format);
    struct format_in in = begin_file(p, c, i);
    int done = 0;
    if (row->read_small) done = row->read_small(&in, &p->meta.file[i], (uint32_t)i, n, e);
    if (done < 0) return blame(p, p->list.file[i].source, e);
    if (done) return done;
    return read_file(p, c, i, e) < 0 ? -1 : 1;
}

static int read_source(struct prepare *p, struct encode *c, int i, struct err *e)
{
    struct meta_source *m = &p->meta.source[i];
    const int64_t n_tokens = c->n_tokens;
    int at = 0, end;
    m->range.first_document = c->n_documents;
    while (at < p->list.n && p->list.file[at].source != i) at++;
    for (end = at; end < p->list.n && p->list.file[end].source == i;) end++;
    while (at < end) {
        const int n = read_files(p, c, at, end - at, e);
        if (n < 0) return -1;
        at += n;
    }
    m->range.n_documents = c->n_documents - m->range.first_document;
    m->n_tokens = c->n_tokens - n_tokens;
    return 0;
}

static int no_token(const struct prepare *p, int set, struct err *e)
{
    int n_files = 0;
    for (int i = 0; i < p->list.n; i++) n_files += p->source[p->list.file[i].source].set == set;
    const char *field = set == SET_EVAL                        ? "eval.data"
                        : !strcmp(p->source[0].field, "input") ? "input"
                                                               : "data.train";
    return err_field(e, ERR_INVALID, field, "%s has no byte of text and no token in %d file%s",
                     field, n_files, n_files == 1 ? "" : "s");
}

static int write_files(struct prepare *p, struct encode *c, const char *dir, struct err *e)
{
    const struct data_stats *s = &p->meta.stats;
    for (int i = 0; i < p->n_sources; i++)
        if (read_source(p, c, i, e) < 0) return -1;
    if (!s->n_documents) return no_token(p, SET_TRAIN, e);
    if (!s->eval_documents && p->source[p->n_sources - 1].set == SET_EVAL)
        return no_token(p, SET_EVAL, e);
    if (encode_close(c, e) < 0) return -1;
    for (int i = 0; cuts_texts(p->spec) && p->text && i < p->n_workers; i++)
        if (p->text[i].tokenizer) p->meta.stats.n_after = tokenizer_n_after(p->text[i].tokenizer);
    return meta_write(&p->meta, dir, e);
}

/* Returns the vocabulary of the data. Latents consist of 16-bit words, and not of tokens of
 * the model. */
static int64_t vocabulary(const struct prepare *p)
{
    return p->source[0].spec->format == DATA_LATENTS ? LATENTS_VOCAB : p->spec->model.shape.vocab;
}

static double hashed_size(const struct prepare *p)
{
    double n = 0;
    for (int i = 0; i < p->meta.n_files; i++) n += (double)p->meta.file[i].size;
    return n;
}

/* Writes the directory with tokens of 2 bytes. Starts again with 4 bytes if an id does not fit. */
static int write_all(struct prepare *p, const char *dir, struct err *e)
{
    struct encode c;
    int rc = -1;
    const double hashed = hashed_size(p);
    progress_total(p->progress, 2 * hashed);
    for (int width = 2; width <= 4; width += 2) {
        progress_at(p->progress, hashed);
        p->meta.stats = (struct data_stats){.own_tokens = p->text != NULL};
        p->meta.max_file = 0;
        p->meta.max_pos = 0;
        rc = encode_open(&c, dir, width, vocabulary(p), &p->meta, e);
        c.text = p->text;
        c.n_workers = p->n_workers;
        c.pool = p->pool;
        if (rc == 0) rc = write_files(p, &c, dir, e);
        encode_abort(&c); /* encode_abort has no effect after encode_close has succeeded */
        if (rc == 0 || !c.too_wide) break;
        if (e) *e = (struct err){0};
    }
    return rc;
}

/* Publishes the directory. If another process has published the data by now, its data stay. */
static int publish(const struct making_claim *m, const char *parent, const char *id, struct err *e)
{
    char final[FILE_PATH_SIZE];
    struct err none = {0};
    if (file_join(final, e, "%s/%s", parent, id) < 0) return -1;
    struct data *d = m->shared ? data_open(parent, id, DATA_CHECK, &none) : NULL;
    data_close(d);
    if (d) return file_remove(m->tmp, e);
    /* Remove invalid data, which data_open has refused. */
    if (file_remove(final, e)) return -1;
    if (!rename(m->tmp, final)) return 0;
    if (m->shared && (errno == ENOTEMPTY || errno == EEXIST)) return file_remove(m->tmp, e);
    return err_errno(e, "rename %s", final);
}

static int build(struct prepare *p, const struct making_claim *m, const char *parent,
                 const char *id, struct err *e)
{
    if (file_make_dir(m->tmp, e) < 0) return -1;
    int rc = write_all(p, m->tmp, e);
    if (rc == 0) rc = file_sync_dir(m->tmp, e);
    if (rc == 0) rc = publish(m, parent, id, e);
    if (rc == 0) rc = file_sync_dir(parent, e);
    if (rc < 0) file_remove(m->tmp, NULL);
    return rc;
}

/* Checks prepared data that exist already. Refuses the data if each byte of their text is a
 * token, but this job must not read text as bytes. */
static int check_text(const struct prepare *p, const struct data_stats *s, struct err *e)
{
    const char *field = p->source[s->n_bytes > 0 ? 0 : p->n_sources - 1].field;
    char what[80];
    if (p->text || job_reads_bytes(p->spec) || (!s->n_bytes && !s->eval_bytes)) return 0;
    snprintf(what, sizeof what, "%s: a part of it", field);
    return job_refuse_text(p->spec, field, what, e);
}

/* Opens the data. If they do not exist, builds them first. */
static int build_once(struct prepare *p, const struct making_claim *m, const char *parent,
                      const char *id, struct data_stats *out, struct err *e)
{
    struct err none = {0};
    char own[FILE_PATH_SIZE];
    if (file_join(own, e, "%s/%s", parent, id) < 0) return -1;
    beneath_grant(own); /* the job may read this directory, because its data come from the job's
                         * own sources */
    struct data *d = data_open(parent, id, DATA_CHECK, &none);
    const bool there = d != NULL;
    if (there) {
        log_info("data.reuse", "id=%s tokens=%lld", id, (long long)data_stats(d)->n_tokens);
    } else {
        if (none.code != ERR_NOT_FOUND)
            log_warn("data.rebuild", "id=%s reason=\"%s\"", id, none.text);
        if (build(p, m, parent, id, e) < 0 || !(d = data_open(parent, id, DATA_CHECK, e)))
            return -1;
    }
    *out = *data_stats(d);
    if (!there) out->made_mb_s = hashed_size(p) / (double)(clock_us() - p->begun_us + 1);
    int rc = data_check_vocab(d, vocabulary(p), e);
    if (rc == 0) rc = check_text(p, out, e);
    data_close(d);
    return rc;
}

static bool may_be_text(const struct spec_source *s)
{
    return s->format == DATA_TEXT || s->format == DATA_JSONL;
}

bool data_needs_tokenizer(const struct job_spec *s)
{
    const bool training = s->kind == JOB_TRAIN || s->kind == JOB_VERIFY;
    bool text = !training && may_be_text(&s->input.source);
    for (int i = 0; training && i < s->data.n_train; i++)
        text = text || may_be_text(&s->data.train[i]);
    for (int i = 0; training && i < s->eval.n_data; i++)
        text = text || may_be_text(&s->eval.data[i]);
    return text && job_has_tokenizer(s);
}

/* Opens a worker for each thread of a rank. If the threads cannot be started, the caller does all
 * the work. */
static int open_workers(struct prepare *p, const struct data_model *model, struct err *e)
{
    const struct job_spec *s = p->spec;
    p->n_workers = s->resources.threads > 1 ? s->resources.threads : 1;
    if (p->n_workers > 1) p->pool = pool_open(p->n_workers, NULL, NULL);
    if (!data_needs_tokenizer(s)) return 0;
    p->text = calloc((size_t)p->n_workers, sizeof *p->text);
    if (!p->text) return err_set(e, ERR_IO, "out of memory for %d tokenizers", p->n_workers);
    p->text[0] = (struct encode_text){.dir = model->dir,
                                      .ends = s->kind != JOB_EMBED,
                                      .before = model->before,
                                      .submitted_s = model->submitted_s};
    return 0;
}

/* Checks that the model's prompt (the text before each input) can be put before the input.
 * This is possible only for the text of a jsonl file. Refuses every other input. */
static int check_before(const struct prepare *p, const char *before, struct err *e)
{
    if (!before) return 0;
    if (p->text && p->source[0].spec->format == DATA_JSONL) return 0;
    return err_field(e, ERR_INVALID, "embed.prompts",
                     "the model's prompt stands before the texts of a jsonl file, which %s: set "
                     "embed.prompts to false, or give such a file",
                     p->text ? "this input is not" : "this model has no tokenizer for");
}

int data_prepare(const struct job_spec *spec, const struct data_model *model,
                 const char *const *roots, int n_roots, const char *parent,
                 struct progress *progress, struct data_stats *out, struct err *e)
{
    struct prepare *p = calloc(1, sizeof *p);
    char id[80];
    int rc = -1;
    struct making_claim m = MAKING_NONE;
    if (!p) return err_set(e, ERR_IO, "out of memory");
    if (e) *e = (struct err){0};
    p->begun_us = clock_us();
    p->spec = spec;
    p->roots = roots;
    p->progress = progress;
    if (open_workers(p, model, e) < 0) goto out;
    if (choose_sources(p, e) < 0 || check_before(p, model ? model->before : NULL, e) < 0) goto out;
    if (find_sources(p, n_roots, e) < 0) goto out;
    if (make_id(p, id, e) < 0) goto out;
    for (int i = 1; p->text && i < p->n_workers; i++) p->text[i] = encode_text_like(p->text);
    if (file_make_dir(parent, e) < 0 || making_begin(&m, parent, id, MAKING_STALE_MS, e)) goto out;
    rc = build_once(p, &m, parent, id, out, e);
    if (!rc) progress_end(progress);
out:
    making_end(&m);
    for (int i = 0; p->text && i < p->n_workers; i++) encode_text_fini(&p->text[i]);
    free(p->text);
    pool_close(p->pool);
    source_list_fini(&p->list);
    meta_fini(&p->meta);
    free(p);
    return rc;
}
