/* Checks that generate and score jobs use exactly the memory of the plan. Every page of the arena
 * must be touched, every item of the plan must be placed, and the process must allocate no further
 * memory. */
/* Not under sanitizers: sanitizers allocate pages themselves. test_infer and test_score run the
 * same code under sanitizers. */
#include "api/core/log.h"
#include "tests/lib/linear.h"
#include "tests/lib/reading.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/score.h"

/* With VOCAB tokens in the vocabulary, a sampler needs 1.6 MB, and a row of logits needs 0.5
 * MB. */
#define VOCAB  65536
#define PROMPT 600
#define ROOM   64
#define OTHER  ((int64_t)256 << 10) /* libc, and the answers of ROOM tokens */
/* the stack of a thread, on which there may be one struct sections */
#define STACK (sizeof(struct sections) + (1 << 20))

static char scratch[64];
static struct tiny_rank ready; /* one rank, which is touched before anything is measured */

static void __attribute__((noinline)) touch_stack(void)
{
    volatile char room[STACK];
    for (size_t i = 0; i < sizeof room; i += 512) room[i] = 1;
}

/* Starts a measurement. The stack of the calling thread is not measured. */
static int64_t start(void)
{
    touch_stack();
    memset(&ready, 1, sizeof ready);
    return pages_anonymous();
}

/* Checks the pages of rank 0's arena, and how many bytes the process has allocated since the arena
 * was opened. */
static void check_memory(struct tiny_rank *t, int64_t before)
{
    const int64_t planned = t->plan.arena_size + t->plan.segment_size;
    const int64_t touched = pages_touched(t->arena, t->plan.arena_size,
                                          &t->plan.item[PLAN_SCRATCH]);
    const int64_t other = pages_anonymous() - before - touched;
    CHECK_MSG(t->model.placed_size == planned, "placed %lld bytes, planned %lld",
              (long long)t->model.placed_size, (long long)planned);
    if (!SANITIZED) CHECK_MSG(other <= OTHER, "%lld bytes outside the plan", (long long)other);
}

static void fill_shape(struct model_shape *m, bool linear)
{
    struct err e = {0};
    *m = tiny_shape;
    m->vocab = VOCAB;
    if (linear) m->family = FAMILY_TNL, m->n_kv_heads = m->n_heads, m->layer_mask[0] = 3;
    CHECK_MSG(!family_complete(m, &e), "%s", e.text);
}

/* ---- generate -------------------------------------------------------------------------------- */

static int begin(const struct infer *in, struct infer_work *w, struct request *r,
                 struct infer_answer *a, struct err *e)
{
    if (request_init(r, PROMPT, e)) return -1;
    request_of_prompt(r, in->spec, "", 0, 0);
    for (r->n_tokens = 0; r->n_tokens < PROMPT - w->slot; r->n_tokens++)
        r->tokens[r->n_tokens] = (int32_t)(97 + r->n_tokens % 23);
    return infer_begin(in, w, r, a, e);
}

static bool all_done(const struct infer_work *w, int n)
{
    bool done = true;
    for (int i = 0; i < n; i++) done &= w[i].done;
    return done;
}

/* Answers one prompt in every cache of the plan. */
static int answer(struct tiny_rank *t, const struct job_spec *spec, struct err *e)
{
    const int n = t->plan.batch;
    struct infer in = {.model = &t->model, .spec = spec};
    static struct infer_work w[JOB_MAX_BATCH];
    static struct request r[JOB_MAX_BATCH];
    static struct infer_answer a[JOB_MAX_BATCH];
    struct infer_steps steps = {0};
    int rc = infer_work_init(w, &in, true, e);
    for (int i = 0; i < n && !rc; i++) rc = begin(&in, &w[i], &r[i], &a[i], e);
    while (!rc && !all_done(w, n)) rc = infer_step(&in, w, n, &steps, e);
    for (int i = 0; i < n; i++) {
        CHECK(rc || a[i].n_generated == 2 * ROOM);
        infer_answer_fini(&a[i]);
        request_fini(&r[i]);
    }
    CHECK(rc || steps.pace.n == n * 2 * (ROOM - 1));
    infer_work_fini(w, n);
    return rc;
}

static void generate(bool linear, bool load, int batch)
{
    static struct job_spec spec;
    struct err e = {0};
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.kind = JOB_GENERATE;
    fill_shape(&spec.model.shape, linear);
    spec.resources.ranks = spec.resources.threads = 1;
    spec.data.seq_len = PROMPT;
    spec.sampling.max_tokens = ROOM;
    spec.sampling.temperature = 1;
    spec.sampling.top_k = 40;
    spec.sampling.logprobs = SAMPLE_TOP;
    spec.sampling.n = 2;
    spec.memory.loss_chunk_tokens = 1; /* the job reads one row of logits at a time */
    spec.sampling.ignore_eos = 1;
    spec.infer.batch = batch;
    if (load) spec.context.load = tiny_text(&spec, "context.safetensors");
    struct tiny_rank *t = &ready;
    const int64_t before = start();
    CHECK_MSG(!tiny_open(t, &spec, NULL, 0, &e), "%s", e.text);
    if (load) { /* as a job that begins with a context does */
        const int64_t size = t->plan.item[PLAN_CONTEXT_BEFORE].size;
        memset(model_take(&t->model, PLAN_CONTEXT_BEFORE, size), 0, (size_t)size);
    }
    CHECK_MSG(!answer(t, &spec, &e), "%s", e.text);
    check_memory(t, before);
    tiny_close(t);
}

static void test_generate(void)
{
    for (int batch = 1; batch <= 4; batch += 3) {
        generate(false, false, batch);
        generate(true, false, batch);
        generate(true, true, batch);
    }
}

/* ---- score ----------------------------------------------------------------------------------- */

struct job {
    struct job_spec spec;
    char id[80];
    bool measured;
};

static void score_body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct tiny_rank *t = g->P == 1 ? &ready : malloc(sizeof *t);
    struct err e = {0};
    struct score out;
    const int64_t before = g->P == 1 ? start() : 0;
    struct data *d = data_open(scratch, j->id, DATA_TRUST, &e);
    int rc = !d || tiny_open(t, &j->spec, g, rank, &e);
    struct infer in = {.model = &t->model, .spec = &j->spec, .job_dir = scratch};
    if (!rc) rc = score_run(&in, d, &out, &e);
    if (!rc && j->measured && g->P == 1) check_memory(t, before);
    if (!rc && j->measured && g->P > 1 && rank == 0)
        pages_touched(t->arena, t->plan.arena_size, &t->plan.item[PLAN_SCRATCH]);
    if (rc) ranks_fail(g, rank, &e);
    tiny_close(t);
    if (t != &ready) free(t);
    data_close(d);
}

static void score(const char *path, int P, int64_t seq_len, bool measured)
{
    static struct job j;
    reading_spec(&j.spec, JOB_SCORE, scratch, path, P, seq_len);
    fill_shape(&j.spec.model.shape, true);
    j.spec.model.shape.vocab = tiny_shape.vocab;
    j.spec.score.by_position_bucket = 15;
    reading_prepare(&j.spec, scratch, j.id);
    j.measured = measured;
    reading_run(&j.spec, P, score_body, &j);
}

/* Checks a score job. The tokens and losses of a window of 60000 tokens take 1.3 MB on one rank. A
 * short window is scored before it, so that the buffers of files and of threads already exist. */
static void test_score(void)
{
    char path[128];
    struct err e = {0};
    const size_t n = 61000;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i++) text[i] = (char)('a' + i * i % 23);
    memcpy(text, "{\"text\":\"", 9);
    memcpy(text + n - 3, "\"}\n", 3);
    snprintf(path, sizeof path, "%s/text.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, n, &e), "%s", e.text);
    free(text);
    score(path, 1, 600, false);
    score(path, 1, 60000, true);
    score(path, 2, 60000, true);
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_infer_pages");
    test_fresh_memory = true;
    snprintf(scratch, sizeof scratch, "/tmp/test_infer_pages.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    RUN(test_generate);
    RUN(test_score);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("infer_pages");
}
