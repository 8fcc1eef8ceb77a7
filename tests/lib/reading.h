/* reading.h: makes a job that reads documents (score or embed), prepares its data, and runs P
 * ranks on it. */
#ifndef SEQD_TESTS_READING_H
#define SEQD_TESTS_READING_H

#include "api/core/file.h"
#include "tests/lib/tiny.h"
#include "tests/lib/told.h"
#include "worker/data/data.h"
#include "worker/plan/check.h"
#include "worker/family/shape.h"
#include "worker/infer/embed.h"
#include "worker/infer/infer.h"

/* Fills in a job of the given kind that reads documents from the JSONL file `path`. The caller may
 * change the job before it calls reading_prepare. */
static inline void reading_spec(struct job_spec *s, enum job_kind kind, const char *dir,
                                const char *path, int P, int64_t seq_len)
{
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = kind;
    s->model.shape = tiny_shape;
    s->seed = 3;
    s->resources.ranks = P;
    s->resources.threads = 1;
    s->data.seq_len = seq_len;
    s->input.source.path = tiny_text(s, path);
    s->input.source.text_key = tiny_text(s, "text");
    s->input.source.format = DATA_JSONL;
}

static inline void reading_prepare(struct job_spec *s, const char *dir, char id[80])
{
    struct err e = {0};
    struct data_stats st;
    const char *roots[] = {dir};
    CHECK_MSG(!family_check(s, &e), "%s: %s", e.field, e.text);
    CHECK_MSG(!data_prepare(s, NULL, roots, 1, dir, NULL, &st, &e), "%s", e.text);
    snprintf(id, 80, "%s", st.id);
}

static inline void reading_run(const struct job_spec *s, int P,
                               void (*body)(struct ranks *, int, void *), void *arg)
{
    static struct plan p;
    struct ranks g;
    struct err e = {0};
    CHECK_MSG(!plan_make(s, 0, &p, &e), "%s", e.text);
    ranks_open(&g, P, p.segment_size, NULL);
    ranks_run(&g, body, arg);
    ranks_check(&g);
    ranks_close(&g);
}

/* Reads the prompts of a generate job from a file beneath `dir`, and checks the job. The caller
 * frees the prompts by prompts_fini. */
static inline void reading_prompts(struct job_spec *s, const char *dir, struct prompts *p)
{
    struct err e = {0};
    CHECK_MSG(!prompts_read(p, s, &dir, 1, &e), "%s", e.text);
    CHECK_MSG(!family_check(s, &e), "%s: %s", e.field, e.text);
}

/* ---- an embed job ---------------------------------------------------------------------------- */

struct reading_embed {
    struct job_spec spec;
    char id[80], dir[128];
    const char *parent; /* the directory of the prepared data */
    bool may_fail;      /* set if the test expects the job to fail and checks the error itself */
    /* Functions that are called on each rank, before and after the job. Each of them may be
     * NULL. */
    void (*before)(struct tiny_rank *t, const struct reading_embed *j);
    int (*after)(struct tiny_rank *t, struct reading_embed *j, struct err *e);
    void *arg;
    /* the result that rank 0 returned */
    struct embed out;
    struct err e;
    struct told told;
};

/* Runs one rank of the job that arg points to. reading_run calls it for each rank. */
static inline void reading_embed(struct ranks *g, int rank, void *arg)
{
    struct reading_embed *j = arg;
    struct tiny_rank *t = calloc(1, sizeof *t);
    struct err e = {0};
    struct embed out = {0};
    struct told told;
    struct data *d = data_open(j->parent, j->id, DATA_TRUST, &e);
    int rc = !d || tiny_open(t, &j->spec, g, rank, &e);
    told_open(&told);
    struct infer in = {
        .model = &t->model, .spec = &j->spec, .job_dir = j->dir, .progress = &told.p};
    if (!rc && j->before) j->before(t, j);
    if (!rc) rc = embed_run(&in, d, &out, &e);
    if (!rc) told_check(&told, PROGRESS_TOKENS, 0, (double)data_stats(d)->n_tokens);
    CHECK_MSG(!told.fell, "rank %d: the progress fell", rank);
    if (rank == 0) j->out = out, j->e = e, j->told = told;
    if (!rc && j->after) rc = j->after(t, j, &e);
    if (rc && !j->may_fail) ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
    data_close(d);
}

/* Reads the whole file DIR/artifacts/NAME. The caller frees the bytes that it returns. */
static inline char *reading_artifact(const char *dir, const char *name, size_t *size)
{
    char path[512];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/artifacts/%s", dir, name);
    char *text = file_read(path, 1 << 24, size, &e);
    CHECK_MSG(text, "%s", e.text);
    return text ? text : calloc(1, 1);
}

#endif
