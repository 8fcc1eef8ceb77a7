/* files.h: writes data files byte by byte, and checks the directory that preparation makes from
 * them. */
#ifndef SEQD_TESTS_FILES_H
#define SEQD_TESTS_FILES_H

#include <sys/stat.h>
#include "api/core/job.h"
#include "tests/lib/datadir.h"

/* ---- writing --------------------------------------------------------------------------------- */

static uint8_t file[1 << 20];
static size_t size;

static inline void begin(void)
{
    size = 0;
}

static inline void add(const void *p, size_t n)
{
    memcpy(file + size, p, n);
    size += n;
}

static inline void add_int(int64_t v, int width)
{
    for (int i = 0; i < width; i++) file[size++] = (uint8_t)((uint64_t)v >> (8 * i));
}

static inline void add_ints(const int64_t *v, int n, int width)
{
    for (int i = 0; i < n; i++) add_int(v[i], width);
}

static inline void end(const char *name)
{
    put(name, file, size);
}

static inline void llmc_header(int64_t magic, int64_t version, int64_t n)
{
    begin();
    add_int(magic, 4);
    add_int(version, 4);
    add_int(n, 4);
    for (int i = 3; i < 256; i++) add_int(0, 4);
}

/* ---- checking -------------------------------------------------------------------------------- */

/* Checks that the directory holds these tokens and these ends of documents, and that all tokens
 * are in the training set. */
static inline void check_data(struct data *d, const int64_t *ids, int64_t n, const uint64_t *ends,
                              int64_t n_documents)
{
    int32_t got[64];
    const struct data_stats *s = data_stats(d);
    CHECK_MSG(s->n_tokens == n && s->n_documents == n_documents, "%lld tokens, %lld documents",
              (long long)s->n_tokens, (long long)s->n_documents);
    if (s->n_tokens != n || s->n_documents != n_documents) return;
    CHECK(data_read(d, 0, n, got, &e) == 0);
    for (int64_t i = 0; i < n; i++)
        CHECK_MSG(got[i] == ids[i], "token %lld is %d, want %lld", (long long)i, got[i],
                  (long long)ids[i]);
    for (int64_t i = 0; i < n_documents; i++) CHECK(data_documents(d)[i] == ends[i]);
}

static inline void check_origin(struct data *d, int64_t document, uint64_t record, uint64_t offset)
{
    struct data_origin at;
    CHECK(data_origin(d, document, &at, &e) == 0);
    CHECK_MSG(at.record == record && at.offset == offset, "document %lld: record %llu offset %llu",
              (long long)document, (unsigned long long)at.record, (unsigned long long)at.offset);
}

/* Sets the vocabulary and a single source in the spec. */
static inline void one_source(const char *path, enum data_format format, int64_t vocab, int64_t eod)
{
    sources_begin();
    spec->model.shape.vocab = vocab;
    source_add(path, format, NULL)->eod = eod;
}

static inline void refused(enum err_code code, const char *want)
{
    struct data_stats st;
    CHECK_MSG(prepare(&st) == -1 && e.code == code && strstr(e.text, want), "want \"%s\": %s %s",
              want, err_name(e.code), e.text);
    CHECK_STR(e.field, "data.train.0.path");
}

static inline off_t size_of(const struct data *d, const char *part)
{
    char path[200];
    struct stat st;
    snprintf(path, sizeof path, "%s/prepared/%s/%s", dir, data_stats(d)->id, part);
    return stat(path, &st) < 0 ? -1 : st.st_size;
}

#endif
