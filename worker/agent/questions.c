/* questions.c: starts seqrank with the arguments of each question (capture.h), and sends its
 * output or its failure as the answer. A question keeps its slot until its program has ended,
 * even if its session is over. For that reason a node never runs more than MOST programs at
 * the same time, even if some programs do not end. */
#include "worker/agent/questions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job_paths.h"
#include "api/core/sandbox.h"
#include "worker/agent/capture.h"
#include "worker/agent/describe.h"
#include "worker/agent/grants.h"
#include "worker/agent/state_dir.h"

enum {
    MOST = 8, /* largest number of programs that run at the same time */
    LIMIT_MS = 30000,
    FILES_MS = 4000, /* longer than seqd waits for the answer */
    DESCRIBE_SIZE = 8192,
    N_ROOTS = RANK_ROOTS + RANK_GRANTS,
    GRANT_SIZE = RANK_PATH_SIZE + 16
};

/* Makes the answer from a program's output, and sends it. */
typedef void answer_call(struct questions *q, int64_t request, const char *text, size_t size,
                         const struct err *why);

struct questions {
    struct loop *loop;
    struct state_dir *state_dir;
    const char *rank_program, *node;
    char confined[FILE_PATH_SIZE]; /* the word by which the programs confine themselves, or "" */
    void (*send)(void *arg, const struct msg *m);
    void *arg;
    struct asked_program {
        struct questions *q;
        struct capture *program; /* NULL if the program has ended and the slot is free */
        answer_call *answer;     /* NULL if the session that asked is over */
    } asked[MOST];
    bool listing;  /* whether one of the running programs is `seqrank --models` */
    int64_t first; /* number of the first model that this program lists */
};

struct questions *questions_create(const struct questions_options *o)
{
    struct questions *q = calloc(1, sizeof *q);
    assert(q);
    *q = (struct questions){.loop = o->loop,
                            .state_dir = o->state_dir,
                            .rank_program = o->rank_program,
                            .node = o->node,
                            .send = o->send,
                            .arg = o->arg};
    if (o->sandbox != SANDBOX_OFF)
        snprintf(q->confined, sizeof q->confined, RANK_CONFINED "%s", o->state_dir->dir);
    return q;
}

void questions_destroy(struct questions *q)
{
    if (!q) return;
    for (int i = 0; i < MOST; i++) capture_cancel(q->asked[i].program);
    free(q);
}

void questions_drop(struct questions *q)
{
    q->listing = false;
    for (int i = 0; i < MOST; i++) {
        if (!q->asked[i].program) continue;
        q->asked[i].answer = NULL;
        capture_kill(q->asked[i].program);
    }
}

/* Frees the slot of a program that has ended, and answers unless the session is over. */
static void ended(void *arg, int64_t request, const char *text, size_t size, const struct err *why)
{
    struct asked_program *p = arg;
    p->program = NULL;
    if (p->answer) p->answer(p->q, request, text, size, why);
}

/* Returns the command line with a word after its second, by which seqrank enters its sandbox before
 * it reads a file. The caller frees it. */
static char **confined(struct questions *q, char *const *argv)
{
    int n = 0;
    while (argv[n]) n++;
    char **out = calloc((size_t)n + 2, sizeof *out);
    if (!out) abort();
    memcpy(out, argv, 2 * sizeof *out);
    out[2] = q->confined;
    memcpy(out + 3, argv + 2, (size_t)(n - 2) * sizeof *out);
    return out;
}

/* Starts a program. argv and max_size are as in capture.h. */
static int ask(struct questions *q, char *const *argv, int64_t request, int64_t limit_ms,
               size_t max_size, answer_call *answer, struct err *e)
{
    struct asked_program *p = q->asked;
    while (p < q->asked + MOST && p->program) p++;
    if (p == q->asked + MOST)
        return err_set(e, ERR_CONFLICT, "node %s answers %d questions already", q->node, MOST);
    char **words = *q->confined ? confined(q, argv) : NULL;
    const struct capture_options o = {
        q->loop, q->rank_program, words ? words : argv, request, limit_ms, max_size, ended, p};
    p->q = q;
    p->answer = answer;
    p->program = capture_start(&o, e);
    free(words);
    return p->program ? 0 : -1;
}

/* Returns true if the error is about a field of the job. An error of this node is not about a
 * field of the job. */
static bool of_the_model(enum err_code code)
{
    return code && code != ERR_INTERNAL && code != ERR_PEER && code != ERR_TIMEOUT &&
           code != ERR_CONFLICT;
}

/* Sends the description of the directory that the field names. */
static void send_description(struct questions *q, int64_t request, const char *field,
                             const char *text, size_t size, const struct err *why)
{
    struct msg m = {.type = MSG_DESCRIBED, .request = request, .err = *why};
    if (!m.err.code) describe_take(text, size, m.config, &m.err);
    if (of_the_model(m.err.code) && !*m.err.field)
        snprintf(m.err.field, sizeof m.err.field, "%s", field);
    q->send(q->arg, &m);
}

static void described(struct questions *q, int64_t request, const char *text, size_t size,
                      const struct err *why)
{
    send_description(q, request, "model.path", text, size, why);
}

static void described_adapter(struct questions *q, int64_t request, const char *text, size_t size,
                              const struct err *why)
{
    send_description(q, request, "model.adapter", text, size, why);
}

/* Sends the output of a program, or its error. The parameter `offset` is the offset that the
 * question named. */
static void send_text(struct questions *q, int64_t request, int64_t offset, const char *text,
                      size_t size, const struct err *why)
{
    struct msg m = {.type = MSG_FETCHED, .request = request, .offset = offset, .err = *why};
    if (!m.err.code) {
        m.data = text;
        m.size = size;
        m.total = (int64_t)size;
    }
    q->send(q->arg, &m);
}

static void traced(struct questions *q, int64_t request, const char *text, size_t size,
                   const struct err *why)
{
    send_text(q, request, 0, text, size, why);
}

static void listed_models(struct questions *q, int64_t request, const char *text, size_t size,
                          const struct err *why)
{
    q->listing = false;
    send_text(q, request, q->first, text, size, why);
}

/* Adds the roots and the grants to argv. */
static void put_roots(struct questions *q, const struct grants *g, char words[][GRANT_SIZE],
                      char **argv)
{
    for (int i = 0; i < q->state_dir->n_roots; i++) *argv++ = q->state_dir->roots[i];
    for (int i = 0; i < g->n; i++) {
        snprintf(words[i], GRANT_SIZE, "--grant=%s", g->dir[i]);
        *argv++ = words[i];
    }
}

/* Lists the models beneath the roots. Only one process lists models at a time, even if seqd makes
 * several requests. */
static void list_models(struct questions *q, const struct msg *m)
{
    char *argv[3 + N_ROOTS + 1] = {"seqrank", "--models"}, first[32];
    char words[RANK_GRANTS][GRANT_SIZE];
    struct grants g = {0};
    grants_take(&g, q->state_dir, m->grants, m->n_grants);
    snprintf(first, sizeof first, "--first=%lld", (long long)m->offset);
    if (m->offset) argv[2] = first;
    put_roots(q, &g, words, argv + (m->offset ? 3 : 2));
    struct err e = {0};
    if (!q->listing) q->first = m->offset;
    if (q->listing)
        err_set(&e, ERR_CONFLICT, "node %s lists its models for another request", q->node);
    else if (!q->state_dir->n_roots)
        err_field(&e, ERR_NOT_FOUND, "roots", "node %s has no roots: seqw --root DIR gives it one",
                  q->node);
    else if ((q->listing = !ask(q, argv, m->request, LIMIT_MS, WIRE_TRACE_SIZE, listed_models, &e)))
        return;
    send_text(q, m->request, m->offset, "", 0, &e);
}

/* Sends the answer of `seqrank --files`, which prints the name of the field if it refuses a
 * field. */
static void found_files(struct questions *q, int64_t request, const char *text, size_t size,
                        const struct err *why)
{
    struct msg m = {.type = MSG_DESCRIBED, .request = request, .err = *why};
    if (m.err.code == ERR_INVALID)
        snprintf(m.err.field, sizeof m.err.field, "%.*s", (int)strcspn(text, "\n"), text);
    q->send(q->arg, &m);
}

/* Makes the word "NAME=VALUE" of a command line. The caller owns it. */
static char *option(const char *name, const char *value)
{
    const size_t size = strlen(name) + strlen(value) + 2;
    char *word = malloc(size);
    if (!word) abort();
    snprintf(word, size, "%s=%s", name, value);
    return word;
}

static void find_files(struct questions *q, const struct msg *m)
{
    char **argv = calloc((size_t)(2 + N_ROOTS + RANK_ROOTS + m->n_files + 1), sizeof *argv),
         **at = argv;
    char words[RANK_GRANTS][GRANT_SIZE];
    struct err e = {0};
    struct grants g = {0};
    if (!argv) abort();
    grants_take(&g, q->state_dir, m->grants, m->n_grants);
    *at++ = "seqrank";
    *at++ = "--files";
    put_roots(q, &g, words, at);
    while (*at) at++;
    char **first = at;
    for (int i = 0; i < q->state_dir->n_writable; i++)
        *at++ = option("--writable", q->state_dir->writable[i]);
    for (int i = 0; i < m->n_files; i++) *at++ = option("--file", m->files[i]);
    const int rc = ask(q, argv, m->request, FILES_MS, DESCRIBE_SIZE, found_files, &e);
    while (at > first) free(*--at);
    free(argv);
    if (rc) found_files(q, m->request, "", 0, &e);
}

/* Resolves a path in this node's state directory. The path need not be beneath a root. */
static int resolve(const char *path, char out[FILE_PATH_SIZE], struct err *e)
{
    return realpath(path, out) ? 0 : err_errno(e, "%s", path);
}

void questions_describe(struct questions *q, const struct msg *m)
{
    if (m->models) {
        list_models(q, m);
        return;
    }
    if (m->n_files) {
        find_files(q, m);
        return;
    }
    char path[FILE_PATH_SIZE], named[FILE_PATH_SIZE], words[RANK_GRANTS][GRANT_SIZE];
    char *argv[3 + N_ROOTS + 1] = {"seqrank", m->adapter ? "--describe-adapter" : "--describe",
                                   path};
    const char *field = m->adapter ? "model.adapter" : "model.path";
    answer_call *answer = m->adapter ? described_adapter : described;
    struct err e = {0};
    struct grants g = {0};
    grants_take(&g, q->state_dir, m->grants, m->n_grants);
    int rc = grants_path(&g, q->state_dir, m->path, field, named, &e);
    if (rc == 0)
        rc = job_ref_is(m->path) ? resolve(named, path, &e)
                                 : state_dir_beneath(q->state_dir, named, path, &e);
    put_roots(q, &g, words, argv + 3); /* if the path has the form job:ID/..., grants_path has
                                        * added the granted directory to g */
    if (rc == 0 && !ask(q, argv, m->request, LIMIT_MS, DESCRIBE_SIZE, answer, &e)) return;
    answer(q, m->request, "", 0, &e);
}

/* Finds the files whose samples a training step used. `seqrank --trace` finds them in this node's
 * prepared data. */
void questions_trace(struct questions *q, const struct msg *m)
{
    const struct wire_trace *t = &m->trace;
    char dir[FILE_PATH_SIZE], word[7][64];
    char *argv[11] = {"seqrank", "--trace", dir};
    struct err e = {0};
    int n = 0;
    snprintf(word[n++], sizeof word[0], "seq_len=%lld", (long long)t->seq_len);
    snprintf(word[n++], sizeof word[0], "seed=%lld", (long long)t->seed);
    snprintf(word[n++], sizeof word[0], "packing=%s", t->packing);
    snprintf(word[n++], sizeof word[0], "overlong=%s", t->overlong);
    snprintf(word[n++], sizeof word[0], "first=%lld", (long long)t->first);
    snprintf(word[n++], sizeof word[0], "count=%lld", (long long)t->count);
    snprintf(word[n++], sizeof word[0], "max_fragments=%lld", (long long)t->max_fragments);
    for (int k = 0; k < n; k++) argv[3 + k] = word[k];
    if (!state_dir_prepared(q->state_dir, m->prepared_id, dir, &e) &&
        !ask(q, argv, m->request, LIMIT_MS, WIRE_TRACE_SIZE, traced, &e))
        return;
    traced(q, m->request, "", 0, &e);
}
