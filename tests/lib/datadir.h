/* datadir.h: a directory of data files for tests of data preparation, and functions that several
 * of these tests call. */
#ifndef SEQD_TESTS_DATADIR_H
#define SEQD_TESTS_DATADIR_H

#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/log.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"
#include "tests/lib/told.h"
#include "worker/data/data.h"
#include "worker/family/shape.h"

static char dir[64]; /* the directory that has all files of the test */
static struct job_spec *spec;
static struct err e;

static inline const char *in_dir(const char *name)
{
    static char path[4][FILE_PATH_SIZE];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", dir, name);
    return path[k];
}

static inline void put(const char *name, const void *data, size_t size)
{
    struct err x = {0};
    if (file_write(in_dir(name), data, size, &x) < 0) printf("%s\n", x.text), abort();
}

static inline void puts_file(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

static inline void sources_begin(void)
{
    spec_defaults(spec);
    shape_defaults(&spec->model.shape);
    spec->kind = JOB_TRAIN;
    spec->data.n_train = 0;
}

static inline struct spec_source *source_in(struct spec_source *s, const char *path,
                                            enum data_format format, const char *key)
{
    *s = (struct spec_source){.format = format, .eod = -1};
    CHECK(spec_intern(spec, path, strlen(path), &s->path) == 0);
    if (key) CHECK(spec_intern(spec, key, strlen(key), &s->text_key) == 0);
    return s;
}

static inline struct spec_source *source_add(const char *path, enum data_format format,
                                             const char *key)
{
    return source_in(&spec->data.train[spec->data.n_train++], path, format, key);
}

static struct told preparing; /* the progress reports of the last prepare() */

static inline int prepare(struct data_stats *st)
{
    const char *roots[] = {in_dir("elsewhere"), dir};
    e = (struct err){0};
    told_open(&preparing);
    const int rc = data_prepare(spec, NULL, roots, 2, in_dir("prepared"), &preparing.p, st, &e);
    CHECK(!preparing.beyond && (!preparing.n || preparing.at.unit == PROGRESS_BYTES));
    if (!rc) CHECK(preparing.at.done == preparing.at.total && preparing.at.total > 0);
    return rc;
}

/* Prepares the data and opens it. If this fails, the program is aborted, because the rest of the
 * test needs the data. */
static inline struct data *prepare_open(void)
{
    struct data_stats st;
    if (prepare(&st) < 0) printf("  %s\n", e.text), abort();
    struct data *d = data_open(in_dir("prepared"), st.id, DATA_CHECK, &e);
    if (!d) printf("  %s\n", e.text), abort();
    return d;
}

static inline bool tokens_are(const struct data *d, const uint16_t *want, int64_t n)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    bool same = data_read(d, 0, n, ids, &e) == 0;
    for (int64_t i = 0; i < n; i++) same = same && ids[i] == want[i];
    free(ids);
    return same;
}

static inline struct data_order *order_open(const struct data *d, const struct order_options *o)
{
    struct data_order *x = data_order_open(d, o, &e);
    if (!x) printf("  %s\n", e.text), abort();
    return x;
}

static inline void datadir_begin(const char *name)
{
    scratch_dir(dir, sizeof dir, name);
    /* does not log warnings, because these tests damage data on purpose */
    setenv("SEQD_LOG", "error", 1);
    log_init("test");
    spec = malloc(sizeof *spec);
}

static inline int datadir_end(const char *name)
{
    free(spec);
    file_remove(dir, NULL);
    return test_done(name);
}

#endif
