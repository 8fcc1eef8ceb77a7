/* Checks generate jobs that answer several prompts at once (infer.batch). Such a job must write
 * the same bytes as a job that answers one prompt at a time, for every kind of cache and on any
 * number of ranks. Neither the order in which answers end nor a stop of an attempt may change the
 * bytes. */
#include <glob.h>
#include <stdlib.h>

#include "api/core/file.h"
#include "api/core/log.h"
#include "tests/lib/kinds.h"
#include "tests/lib/mutant.h"
#include "tests/lib/reading.h"
#include "worker/comm/ledger.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/infer.h"
#include "worker/plan/check.h"
#include "worker/plan/volume.h"

#define S          64
#define MAX_TOKENS 20

static char scratch[64];

/* clang-format off */
#define LINE(id, body)                                                                             \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{" body "}}\n"
static const char requests[] =
    LINE("long", "\"prompt\":\"int main(int argc, char **argv)\",\"ignore_eos\":true")
    LINE("short", "\"prompt\":\"a\",\"max_tokens\":2")
    LINE("bad", "\"prompt\":\"hello\",\"tempersture\":0")
    LINE("greedy", "\"prompt\":\"hello\",\"temperature\":0,\"ignore_eos\":true,\"logprobs\":2")
    LINE("three", "\"prompt\":[104,105],\"top_k\":5,\"n\":3,\"max_tokens\":9")
    LINE("one", "\"prompt\":\"one two\",\"max_tokens\":1")
    LINE("echo", "\"prompt\":\"echo\",\"echo\":true,\"max_tokens\":0,\"logprobs\":1")
    LINE("seed", "\"prompt\":\"one two\",\"seed\":4,\"ignore_eos\":true")
    LINE("penal", "\"prompt\":\"aaaa\",\"repetition_penalty\":1.5,\"presence_penalty\":0.2")
    LINE("stop", "\"prompt\":\"s\",\"stop\":[\"a\",\"e\",\"t\"],\"temperature\":1.5,\"max_tokens\":20")
    LINE("last", "\"prompt\":\"0123456789\",\"temperature\":0.3,\"max_tokens\":17");
/* clang-format on */
#define N_REQUESTS 11
#define N_REFUSED  1

#define N_PROMPTS 20 /* some of them stop early, as job_of shows */

struct job {
    struct job_spec spec;
    struct prompts p;
    char dir[128];
    /* the number of units after which the attempt is stopped; 0 means that it is not stopped */
    int leave_after;
    struct infer_text out; /* the answers of rank 0, whose text is copied */
    char text[256];
    /* how often rank 0 asked whether to stop; it asks between units and before each pass */
    int n_asked;
    int n_passes; /* the number of passes in which `moved` was counted */
    /* bytes and messages of rank 0 since the first unit began */
    struct comm_count moved[PURPOSE_N];
    int at_once; /* the planned number of prompts that are answered at once */
    bool left;
};

struct asked {
    const struct model *m;
    int n, n_units, leave_after;
    struct comm_count moved[PURPOSE_N];
};

static bool stopped(void *arg)
{
    ((struct asked *)arg)->n++;
    return false;
}

/* Adds up the ledger, which begins again with each unit. */
static void count_moved(struct asked *a)
{
    for (int i = 0; a->m->comm && i < PURPOSE_N; i++)
        volume_add(&a->moved[i], comm_ledger(a->m->comm)[i], 1);
}

static int leave(void *arg, int journal, struct err *e)
{
    struct asked *a = arg;
    (void)journal;
    if (a->n_units) count_moved(a);
    return ++a->n_units == a->leave_after ? err_set(e, ERR_ABORTED, "left") : 0;
}

/* Loads a context of arbitrary states, so that the result changes. */
static int load_context(struct model *m, struct context_layout *l, struct context *c, struct err *e)
{
    if (context_layout_init(l, &m->shape, e)) return -1;
    float *states = model_take(m, PLAN_CONTEXT_BEFORE, l->size);
    for (int64_t i = 0; i < l->size / 4; i++) states[i] = (float)(i % 17 - 8) * 0.05f;
    *c = (struct context){.n_tokens = 7, .states = (char *)states, .stride = l->stride};
    return 0;
}

static void generate_body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    struct infer_text out = {0};
    struct asked asked = {.m = &t->model, .leave_after = j->leave_after};
    struct told told;
    int rc = tiny_open(t, &j->spec, g, rank, &e);
    told_open(&told);
    struct context_layout layout = {0};
    struct context context;
    struct infer in = {.model = &t->model,
                       .spec = &j->spec,
                       .job_dir = j->dir,
                       .stopped = stopped,
                       .leave = leave,
                       .arg = &asked,
                       .progress = &told.p};
    CHECK(rc || !j->spec.infer.batch || t->plan.batch == j->spec.infer.batch);
    if (!rc && *spec_text(&j->spec, j->spec.context.load)) {
        rc = load_context(&t->model, &layout, &context, &e);
        in.context = &context;
    }
    if (!rc) rc = infer_generate(&in, &j->p, &out, &e);
    if (rc && j->leave_after && e.code == ERR_ABORTED) {
        if (rank == 0) j->left = true;
    } else if (rc) {
        ranks_fail(g, rank, &e);
    } else {
        told_check(&told, PROGRESS_REQUESTS, (double)out.n_resumed, (double)j->p.n);
        CHECK(out.n_resumed || told.at.tokens == out.n_tokens);
        CHECK(out.ledger_equal);
    }
    if (!rc && rank == 0) {
        j->out = out;
        j->at_once = t->plan.batch;
        j->n_asked = asked.n;
        j->n_passes = asked.n - asked.n_units;
        count_moved(&asked);
        memcpy(j->moved, asked.moved, sizeof asked.moved);
        snprintf(j->text, sizeof j->text, "%s", out.text ? out.text : "");
    }
    context_layout_fini(&layout);
    infer_text_fini(&out);
    tiny_close(t);
    free(t);
}

static void put(const char *name, const char *text, size_t size)
{
    char path[256];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    CHECK_MSG(!file_write(path, text, size, &e), "%s", e.text);
}

/* Writes prompts of different lengths. */
static void put_prompts(void)
{
    char text[N_PROMPTS * 64], *at = text;
    for (int i = 0; i < N_PROMPTS; i++)
        at += sprintf(at, "{\"text\":\"prompt %.*s %d\"}\n", i * 7 % 20, "of some different length",
                      i);
    put("prompts.jsonl", text, (size_t)(at - text));
}

static void job_of(struct job *j, const struct kind *x, const char *file, int P, int batch)
{
    char path[128];
    *j = (struct job){0};
    spec_defaults(&j->spec);
    shape_defaults(&j->spec.model.shape);
    j->spec.kind = JOB_GENERATE;
    j->spec.model.shape = x->shape;
    small_sizes(&j->spec.model.shape, 48);
    j->spec.seed = 3;
    j->spec.precision.params = x->precision;
    j->spec.determinism = x->determinism;
    j->spec.resources.ranks = P;
    j->spec.resources.threads = 1;
    j->spec.data.seq_len = S;
    j->spec.sampling.max_tokens = MAX_TOKENS;
    j->spec.sampling.temperature = 0.8;
    j->spec.infer.batch = batch;
    /* computes logits for two prompts at a time */
    j->spec.memory.loss_chunk_tokens = batch == 5 ? 2 : 0;
    snprintf(path, sizeof path, "%s/%s", scratch, file);
    j->spec.input.source = (struct spec_source){tiny_text(&j->spec, path),
                                                tiny_text(&j->spec, "text"), DATA_JSONL, 0, -1};
    if (strstr(file, "batch.jsonl")) j->spec.input.source.format = DATA_OPENAI_BATCH;
    if (x->load) j->spec.context.load = tiny_text(&j->spec, "context.safetensors");
    if (strcmp(file, "prompts.jsonl") != 0) return;
    static const char *const stops[SPEC_STOPS] = {"a", "7", "\n", "x"};
    for (int i = 0; i < SPEC_STOPS; i++) j->spec.sampling.stop[i] = tiny_text(&j->spec, stops[i]);
}

/* Runs a job in DIR, which is kept. */
static void run(struct job *j, const char *dir)
{
    snprintf(j->dir, sizeof j->dir, "%s/%s", scratch, dir);
    reading_prompts(&j->spec, scratch, &j->p);
    reading_run(&j->spec, j->spec.resources.ranks, generate_body, j);
    prompts_fini(&j->p);
}

/* Returns the contents of the artifact, or of the journal, that matches the pattern. The caller
 * frees it. */
static char *content(const char *dir, const char *pattern, size_t *size, char path[256])
{
    struct err e = {0};
    glob_t found;
    char *text = NULL;
    snprintf(path, 256, "%s/%s/%s", scratch, dir, pattern);
    if (!glob(path, 0, NULL, &found) && found.gl_pathc == 1) {
        snprintf(path, 256, "%s", found.gl_pathv[0]);
        text = file_read(path, 1 << 24, size, &e);
    }
    CHECK_MSG(text, "%s", path);
    globfree(&found);
    return text ? text : calloc(1, 1);
}

static void empty(const char *dir)
{
    char path[128];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, dir);
    CHECK(!file_remove(path, &e));
}

/* ---- the same bytes -------------------------------------------------------------------------- */

struct whole {
    char *text; /* the text of an artifact */
    size_t size;
    struct job job;
};

static void run_whole(struct whole *w, const struct kind *x, const char *file, int P, int batch)
{
    char path[256];
    empty("whole");
    job_of(&w->job, x, file, P, batch);
    run(&w->job, "whole");
    const bool requests_file = w->job.spec.input.source.format == DATA_OPENAI_BATCH;
    w->text = content("whole",
                      requests_file ? "artifacts/results.jsonl" : "artifacts/generate.jsonl",
                      &w->size, path);
}

/* Checks the number and the bytes of messages. In each layer of a pass, a rank sends one message
 * to every other rank, with the data of all rows of the pass. The ranks compare the tokens that
 * they have chosen once for all rows, and a second time if a continuation has ended. */
static void check_messages(const struct job *one, const struct job *j, const char *name)
{
    const int P = j->spec.resources.ranks;
    const struct comm_count row = plan_decode_comm(&j->spec.model.shape, P, 1);
    const struct comm_count *c = &j->moved[PURPOSE_DECODE];
    if (P == 1) return;
    CHECK_MSG(c->messages_sent == j->n_passes * row.messages_sent &&
                  c->bytes_sent == j->out.decode.n * row.bytes_sent,
              "%s, %d ranks: %lld messages in %d passes", name, P, (long long)c->messages_sent,
              j->n_passes);
    CHECK(one->moved[PURPOSE_DECODE].bytes_sent == c->bytes_sent);
    if (j->spec.infer.batch == 1) return;
    const struct comm_count *told = &j->moved[PURPOSE_CONTROL];
    CHECK(one->moved[PURPOSE_CONTROL].bytes_sent == told->bytes_sent);
    CHECK_MSG(one->moved[PURPOSE_CONTROL].messages_sent - told->messages_sent >=
                  (P - 1) * (one->n_passes - j->n_passes),
              "%s, %d ranks: %lld messages of choices", name, P, (long long)told->messages_sent);
}

static const int batches[] = {2, 3, 5, 20};
enum { N_BATCHES = sizeof batches / sizeof *batches };

/* Compares a job that answers several prompts at once with a job that answers one prompt at a
 * time. The bytes and the counts must be equal. */
static void compare_whole(const struct kind *x, const char *file, int P, const struct whole *one,
                          const struct whole *many)
{
    const struct infer_text *a = &one->job.out, *b = &many->job.out;
    CHECK_MSG(many->size == one->size && !memcmp(many->text, one->text, one->size),
              "%s, %s, %d ranks: %d at once differ", x->name, file, P, many->job.at_once);
    CHECK(!strcmp(one->job.text, many->job.text) && a->finish == b->finish);
    CHECK(a->n_tokens == b->n_tokens && a->n_prompt_tokens == b->n_prompt_tokens);
    CHECK(a->n_refused == b->n_refused && a->prefill.n == b->prefill.n);
    /* the counts are those of rows and not of passes */
    CHECK(a->decode.n == b->decode.n && b->decode.us > 0);
    check_messages(&one->job, &many->job, x->name);
}

/* Checks that a job with infer.batch "auto" runs in the same way as a job that sets the number
 * that "auto" chooses. */
static void compare_auto(const struct kind *x, const char *file, int P, const struct whole *one)
{
    static struct whole any, same;
    run_whole(&any, x, file, P, 0);
    run_whole(&same, x, file, P, any.job.at_once);
    CHECK_MSG(any.job.at_once > 1, "%s: auto takes %d", x->name, any.job.at_once);
    CHECK_MSG(any.job.n_asked == same.job.n_asked && any.job.n_passes == same.job.n_passes,
              "%s: auto takes %d passes, %d at once %d", x->name, any.job.n_passes,
              same.job.at_once, same.job.n_passes);
    compare_whole(x, file, P, one, &any);
    compare_whole(x, file, P, one, &same);
    free(any.text);
    free(same.text);
}

static void compare(const struct kind *x, const char *file, int P)
{
    static struct whole one, many;
    run_whole(&one, x, file, P, 1);
    int asked = one.job.n_asked;
    check_messages(&one.job, &one.job, x->name);
    for (int i = 0; i < N_BATCHES; i++) {
        if (small_tests() && x != models && i % (N_BATCHES - 1)) continue;
        run_whole(&many, x, file, P, batches[i]);
        compare_whole(x, file, P, &one, &many);
        CHECK_MSG(many.job.n_asked <= asked - !i, "%s: %d at once take %d passes, fewer %d",
                  x->name, batches[i], many.job.n_asked, asked);
        asked = many.job.n_asked;
        free(many.text);
    }
    compare_auto(x, file, P, &one);
    /* If all prompts run at once, there are as many passes as the longest answer needs, which is
     * 27 for three continuations. */
    CHECK_MSG(asked <= one.job.out.n_prompts + 27, "%d", asked);
    CHECK(x != models || strstr(one.text, "\"finish_reason\":\"stop\""));
    CHECK(strstr(one.text, "\"finish_reason\":\"length\""));
    free(one.text);
}

static void test_requests(void)
{
    for (int i = 0; i < N_MODELS; i++)
        for (int P = 1; P <= 2; P++) compare(&models[i], "batch.jsonl", P);
    compare(&models[0], "batch.jsonl", 3);
}

/* Checks several continuations of a prompt, for every kind of cache. If sampling is greedy, all of
 * them must have the same text. The prompt must be computed only once. */
static void test_continuations(void)
{
#define GREEDY "\"prompt\":\"hello you\",\"temperature\":0,\"max_tokens\":9,\"ignore_eos\":true"
    static const char text[] = LINE("n", GREEDY ",\"n\":3"), first[] = LINE("n", GREEDY);
    static struct whole w, one;
    put("alone-batch.jsonl", text, sizeof text - 1);
    put("first-batch.jsonl", first, sizeof first - 1);
    for (int i = 0; i < N_MODELS; i++)
        for (int P = 1; P <= 2; P++) {
            run_whole(&w, &models[i], "alone-batch.jsonl", P, 3);
            const char *at[3], *const end = "\"finish_reason\"";
            at[0] = strstr(w.text, "\"text\"");
            for (int c = 1; c < 3; c++) at[c] = strstr(at[c - 1] + 1, "\"text\"");
            const size_t size = (size_t)(strstr(at[0], end) - at[0]);
            CHECK_MSG(!memcmp(at[0], at[1], size) && !memcmp(at[0], at[2], size),
                      "%s, %d ranks: %.200s", models[i].name, P, at[0]);
            run_whole(&one, &models[i], "first-batch.jsonl", P, 3);
            for (int k = 0; k < PURPOSE_N; k++) {
                const struct comm_count *a = &w.job.moved[k], *b = &one.job.moved[k];
                CHECK_MSG(k == PURPOSE_DECODE || k == PURPOSE_CONTROL || ledger_equal(a, b),
                          "%s, %d ranks: the prompt's %s", models[i].name, P, purpose_name(k));
            }
            free(one.text);
            free(w.text);
        }
}

/* Checks that lines are in the order of the prompts, whichever answer ends first. */
static void test_prompts(void)
{
    for (int P = 1; P <= 3; P++) compare(&models[0], "prompts.jsonl", P);
}

/* ---- another attempt ------------------------------------------------------------------------- */

static void again(const struct whole *w, const char *journal, size_t size, int batch,
                  int64_t resumed)
{
    static struct job j;
    struct err e = {0};
    char path[256], name[64], dir[128];
    size_t n;
    empty("again");
    snprintf(dir, sizeof dir, "%s/again", scratch);
    CHECK(!file_make_dir(dir, &e));
    free(content("whole", "batch-*.jsonl", &n, path));
    snprintf(name, sizeof name, "again/%s", strrchr(path, '/') + 1);
    put(name, journal, size);
    job_of(&j, &models[0], "batch.jsonl", w->job.spec.resources.ranks, batch);
    run(&j, "again");
    char *text = content("again", "artifacts/results.jsonl", &n, path);
    CHECK_MSG(n == w->size && !memcmp(text, w->text, n), "%d at once after %zu bytes differ", batch,
              size);
    CHECK(j.out.n_resumed == resumed && j.out.n_refused == N_REFUSED);
    free(text);
    text = content("again", "artifacts/errors.jsonl", &n, path);
    CHECK(strstr(text, "\"custom_id\":\"bad\"") && strchr(text, '\n') == text + n - 1);
    free(text);
}

/* Resumes from a journal that is truncated after each line and within lines. Its lines are in the
 * order in which answers ended. */
static void resume(int P)
{
    static struct whole w;
    size_t size;
    char path[256];
    run_whole(&w, &models[0], "batch.jsonl", P, 5);
    char *journal = content("whole", "batch-*.jsonl", &size, path);
    CHECK(size == w.size && memcmp(journal, w.text, size)); /* the order of the lines is
                                                             * different */
    int64_t lines = 0;
    for (char *line = journal; *line; line = strchr(line, '\n') + 1, lines++) {
        const size_t at = (size_t)(line - journal);
        again(&w, journal, at, batches[lines % N_BATCHES], lines);
        again(&w, journal, at + 20, 3, lines);
    }
    CHECK(lines == N_REQUESTS);
    again(&w, journal, size, 5, N_REQUESTS);
    again(&w, journal, size, 1, N_REQUESTS);
    free(journal);
    free(w.text);
}

static void test_resume(void)
{
    resume(1);
    resume(2);
}

/* Checks an attempt that stops while some answers are incomplete. The next attempt must use the
 * complete answers. */
static void test_leave(void)
{
    static struct whole w;
    static struct job j;
    size_t size;
    char path[256];
    run_whole(&w, &models[0], "batch.jsonl", 1, 1);
    for (int units = 1; units <= N_REQUESTS; units += 2) {
        empty("left");
        job_of(&j, &models[0], "batch.jsonl", 1, 3);
        j.leave_after = units;
        run(&j, "left");
        CHECK(j.left);
        job_of(&j, &models[0], "batch.jsonl", 1, 3);
        run(&j, "left");
        /* Two other answers that had begun may be incomplete. */
        CHECK_MSG(j.out.n_resumed < units && j.out.n_resumed >= units - 3, "%lld of %d",
                  (long long)j.out.n_resumed, units);
        char *text = content("left", "artifacts/results.jsonl", &size, path);
        CHECK(size == w.size && !memcmp(text, w.text, size));
        free(text);
    }
    free(w.text);
}

#ifdef SEQD_MUTANTS
/* Checks that an injected fault is found. With this fault, the next token of a prompt is computed
 * from the keys and values of a different prompt. */
static void test_mutant(void)
{
    static struct whole one, many;
    char by[64];
    for (int P = 1; P <= 2; P++) {
        run_whole(&one, &models[0], "batch.jsonl", P, 1);
        mutant_choose(MUTANT_CACHE_SHARED);
        run_whole(&many, &models[0], "batch.jsonl", P, 3);
        mutant_choose(MUTANT_NONE);
        snprintf(by, sizeof by, "answers of 3 prompts at once on P %d", P);
        mutant_report(MUTANT_CACHE_SHARED,
                      one.size != many.size || memcmp(one.text, many.text, one.size) != 0, by);
        free(one.text);
        free(many.text);
    }
    verify_blind(MUTANT_CACHE_SHARED);
}
#endif

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_infer_batch");
    snprintf(scratch, sizeof scratch, "/tmp/test_infer_batch.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    put("batch.jsonl", requests, sizeof requests - 1);
    put_prompts();
    RUN(test_requests);
    RUN(test_continuations);
    RUN(test_prompts);
    RUN(test_resume);
    RUN(test_leave);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("infer_batch");
}
