/* Checks generate jobs of diffusion models, from requests to artifacts, on 1 to 4 ranks. The
 * samples must equal the samples of the golden files, and their bits must not depend on the number
 * of ranks. No request may be refused because a different request is bad. A resumed attempt must
 * compute no sample twice.
 * tests: needs golden */
#include <math.h>

#include "api/core/field.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/log.h"
#include "tests/lib/flow_rank.h"
#include "tests/lib/told.h"
#include "worker/plan/check.h"
#include "worker/family/shape.h"
#include "worker/hf/safetensors.h"
#include "worker/infer/flow_generate.h"

static char scratch[64];

struct job {
    const char *name; /* the name of the golden model */
    struct job_spec spec;
    char dir[128];
    /* the number of questions that are answered with "continue" before the job is told to stop; 0
     * means that it is never told to stop */
    int stop_after;
    int asked;                 /* the number of questions on rank 0 */
    struct flow_generate done; /* the state of rank 0 */
    int n_sent;                /* artifacts of samples */
    bool stopped;              /* the job ended because it was told to stop */
    bool damaged;              /* a weight is NaN */
    bool loud;                 /* the weights are finite, but so large that samples are not */
    struct err err;            /* the error of rank 0 */
};

static void put(const char *name, const char *text)
{
    char path[256];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    CHECK_MSG(!file_write(path, text, strlen(text), &e), "%s", e.text);
}

/* Writes a caption [rows, cols] of small numbers. If bad is not 0, one number becomes `bad`. */
static void put_caption(const char *name, const char *tensor, int64_t rows, int64_t cols, float bad)
{
    char path[256];
    struct err e = {0};
    float *y = malloc((size_t)(rows * cols) * sizeof *y);
    for (int64_t i = 0; i < rows * cols; i++) y[i] = (float)sin(3.0 * (double)i);
    if (bad != 0) y[rows * cols / 2] = bad;
    const struct st_out t = {
        .name = tensor, .dtype = ST_F32, .n_dims = 2, .dims = {rows, cols}, .data = y};
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    CHECK_MSG(!st_write(path, &t, 1, &e), "%s", e.text);
    free(y);
}

/* ---- a job ----------------------------------------------------------------------------------- */

static void job_of(struct job *j, const char *name, int P, const char *requests, const char *dir)
{
    static const int64_t most[3] = {5, 8, 9};
    char path[128];
    struct err e = {0};
    *j = (struct job){.name = name};
    flow_rank_spec(&j->spec, name, P, most);
    snprintf(path, sizeof path, "%s/%s", scratch, requests);
    snprintf(j->dir, sizeof j->dir, "%s/%s", scratch, dir);
    CHECK(!spec_intern(&j->spec, path, strlen(path), &j->spec.input.source.path));
    j->spec.input.source.format = DATA_JSONL;
    j->spec.sampling.steps = 3;
    j->spec.determinism = P == 3 ? DET_RUN : DET_RANKS;
    CHECK_MSG(!family_check(&j->spec, &e), "%s: %s", e.field, e.text);
}

static bool ask(void *arg)
{
    struct job *j = arg;
    return j->stop_after && ++j->asked > j->stop_after;
}

static bool count(void *arg)
{
    ((struct job *)arg)->asked++;
    return false;
}

static int generate(struct job *j, struct flow_rank *r, struct flow_generate *g, struct err *e)
{
    const char *const roots[] = {scratch};
    const bool first = r->m.rank == 0;
    struct told told;
    told_open(&told);
    const struct infer in = {.model = &r->m,
                             .progress = &told.p,
                             .spec = &j->spec,
                             .job_dir = j->dir,
                             .stopped = !first          ? NULL
                                        : j->stop_after ? ask
                                                        : count,
                             .arg = j};
    for (int64_t k = 0; j->loud && k < r->m.plan->n_params; k++) ((float *)r->m.params)[k] *= 1e20f;
    if (j->damaged) ((float *)r->m.params)[0] = NAN;
    if (first && flow_generate_open(g, &j->spec, roots, 1, e)) return -1;
    if (flow_generate_run(g, &in, e)) return -1;
    /* If a sample is refused because its numbers are not finite, it is computed once more to find
     * their origin. */
    if (first && !j->loud)
        told_check(&told, PROGRESS_REQUESTS, (double)g->n_resumed, (double)g->requests.n);
    if (first && !g->n_resumed) CHECK(told.n_inside >= g->n_samples * j->spec.sampling.steps - 1);
    for (int64_t i = 0; first && i < g->requests.n; i++) {
        struct artifact_done a;
        const int there = flow_generate_sample(g, &in, i, &a, e);
        if (there < 0) return -1;
        j->n_sent += there;
    }
    return 0;
}

static void body(struct ranks *g, int rank, void *arg)
{
    struct job *j = arg;
    struct flow_rank *r = malloc(sizeof *r);
    struct flow_generate *f = calloc(1, sizeof *f);
    struct err e = {0};
    if (flow_rank_open(r, &j->spec, j->name, g, rank, &e) || generate(j, r, f, &e)) {
        j->stopped |= e.code == ERR_ABORTED;
        CHECK_MSG(e.code == ERR_ABORTED || (j->damaged && e.code == ERR_CORRUPT), "%s rank %d: %s",
                  j->name, rank, e.text);
        if (rank == 0) j->err = e;
        if (g) ranks_fail(g, rank, &e);
    }
    flow_generate_close(f);
    if (rank == 0) j->done = *f;
    flow_rank_close(r);
    free(f);
    free(r);
}

static char *content(const char *dir, const char *name, size_t *size)
{
    char path[256];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/artifacts/%s", dir, name);
    char *text = file_read(path, 1 << 24, size, &e);
    CHECK_MSG(text, "%s", e.text);
    return text ? text : calloc(1, 1);
}

static double distance_to(const char *dir, const char *golden)
{
    char path[2][256];
    float *x[2];
    double diff = 0, norm = 0;
    int64_t n = 0;
    snprintf(path[0], sizeof path[0], "%s/artifacts/sample-00000.safetensors", dir);
    snprintf(path[1], sizeof path[1], "tests/golden/%s/sample.safetensors", golden);
    for (int i = 0; i < 2; i++) {
        struct err e = {0};
        struct st_file *f = st_open(path[i], &e);
        const struct st_tensor *t = f ? st_find(f, i ? "latents" : "z") : NULL;
        CHECK_MSG(t, "%s", e.text);
        if (!t) return NAN;
        n = t->count;
        x[i] = malloc((size_t)n * sizeof *x[i]);
        CHECK(!st_read_f32(f, t, x[i], &e));
        st_close(f);
    }
    for (int64_t k = 0; k < n; k++) {
        const double d = (double)x[0][k] - (double)x[1][k];
        diff += d * d;
        norm += (double)x[1][k] * (double)x[1][k];
    }
    free(x[0]);
    free(x[1]);
    return sqrt(diff / norm);
}

/* ---- against the golden ---------------------------------------------------------------------- */

/* Checks that the samples equal the samples of the golden files. Each request has a seed. The size
 * of the latents is given, or derived from the size of the video: STDiT3 makes 10 frames of
 * latents from 34 frames, and 2D autoencoders keep the number of frames. */
static void test_golden(void)
{
    static const char *const asked[][2] = {
        {"stdit3", "{\"custom_id\":\"g\",\"text\":\"sample.safetensors\",\"height\":360,"
                   "\"width\":640,\"num_frames\":34,\"fps\":12,\"seed\":1099511627853,"
                   "\"latents\":{\"T\":4,\"H\":6,\"W\":7},\"steps\":4,\"guidance\":7}"},
        {"t2d_plain", "{\"custom_id\":\"g\",\"height\":128,\"width\":96,\"num_frames\":1,"
                      "\"latents\":{\"T\":5,\"H\":4,\"W\":3},\"seed\":0,\"steps\":4}\n"},
    };
    static struct job j;
    for (int i = 0; i < 2; i++) {
        char from[128], to[128];
        size_t size;
        struct err e = {0};
        snprintf(from, sizeof from, "tests/golden/%s/sample.safetensors", asked[i][0]);
        snprintf(to, sizeof to, "%s/sample.safetensors", scratch);
        char *file = file_read(from, 1 << 20, &size, &e);
        CHECK(file && !file_write(to, file, size, &e));
        free(file);
        put("golden.jsonl", asked[i][1]);
        for (int way = 0; way < 6; way++) {
            /* ways 0 to 3 are DSP on 1 to 4 ranks; the later ways are forms that need a head for
             * each rank */
            const int P = way < 4 ? way + 1 : 2 + i;
            char dir[32];
            snprintf(dir, sizeof dir, "%s.%d", asked[i][0], way);
            job_of(&j, asked[i][0], P, "golden.jsonl", dir);
            if (way >= 4) j.spec.parallel.form = way == 4 ? FORM_ULYSSES : FORM_ULYSSES_BOTH;
            CHECK_MSG(!family_check(&j.spec, &e), "%s: %s", e.field, e.text);
            flow_rank_run(&j.spec, body, &j);
            const double d = distance_to(j.dir, asked[i][0]);
            CHECK_MSG(d <= 1e-5, "%s P %d: %.3g", asked[i][0], P, d);
            CHECK(j.done.ledger_equal && j.done.n_samples == 1 && !j.done.n_refused);
            CHECK(j.n_sent == 1);
        }
    }
}

/* ---- many requests --------------------------------------------------------------------------- */

#define SIZE    "\"height\":64,\"width\":72,"
#define CAPTION "\"text\":\"c/two.safetensors\","

/* Two requests have different grids, in which height and width are swapped. One request has the
 * default length. Three requests are refused: the first for its line, the second for its caption,
 * and the third for lack of room. */
static const char many[] = "{\"custom_id\":\"plain\"," CAPTION SIZE "\"num_frames\":17}\n"
                           "\n"
                           "{\"custom_id\":\"side\"," CAPTION SIZE
                           "\"latents\":{\"T\":2,\"H\":9,\"W\":8}}\n"
                           "{\"custom_id\":\"typo\"," CAPTION SIZE
                           "\"num_frames\":17,\"guidence\":3}\n"
                           "{\"custom_id\":\"gone\",\"text\":\"c/none.safetensors\"," SIZE
                           "\"num_frames\":1}\n"
                           "{\"custom_id\":\"short\"," CAPTION "\"text_len\":1," SIZE
                           "\"num_frames\":1,\"guidance\":1,\"steps\":2}\n"
                           "{\"custom_id\":\"large\"," CAPTION SIZE "\"num_frames\":18}\n"
                           "{\"custom_id\":\"seed 1\"," CAPTION SIZE
                           "\"num_frames\":1,\"seed\":5,\"steps\":1}\n"
                           "{\"custom_id\":\"seed 2\"," CAPTION SIZE
                           "\"num_frames\":1,\"seed\":5,\"steps\":1}\n";
enum { N_MANY = 8, N_REFUSED = 3, N_STEPS = 3 + 3 + 2 + 1 + 1 };

static char *whole; /* results.jsonl of a run on one rank without interruption */
static size_t whole_size;

static void test_many(void)
{
    static struct job j;
    size_t size, a_size, b_size;
    char dir[128];
    struct err e = {0};
    snprintf(dir, sizeof dir, "%s/c", scratch);
    CHECK(!file_make_dir(dir, &e));
    put_caption("c/two.safetensors", "y", 2, 11, 0);
    put("many.jsonl", many);
    for (int P = 1; P <= 4; P *= 2) {
        snprintf(dir, sizeof dir, "many.%d", P);
        job_of(&j, "stdit3", P, "many.jsonl", dir);
        flow_rank_run(&j.spec, body, &j);
        CHECK(j.done.n_samples == N_MANY - N_REFUSED && j.done.n_refused == N_REFUSED);
        CHECK(j.done.ledger_equal && !j.done.n_resumed && j.n_sent == N_MANY - N_REFUSED);
        CHECK(j.done.results.size > 0 && j.done.errors.size > 0);
        /* The file has the digests of the samples, so the comparison finds samples with other
         * bits. */
        char *text = content(j.dir, "results.jsonl", &size);
        if (P > 1) {
            CHECK_MSG(size == whole_size && !memcmp(text, whole, size), "P %d differs", P);
            free(text);
            continue;
        }
        whole = text;
        whole_size = size;
    }
    char *errors = content(j.dir, "errors.jsonl", &size);
    CHECK(strstr(errors, "many.jsonl line 4: unknown member") && strstr(errors, "\"guidence\""));
    CHECK(strstr(errors, "line 5: ") && strstr(errors, "none.safetensors: No such file"));
    CHECK(strstr(errors, "line 7: latents.T 6: this job was planned for data.frames 5"));
    CHECK(strstr(errors, "\"param\":\"latents.T\"") && strstr(errors, "\"param\":\"text\""));
    free(errors);
    char *a = content(j.dir, "sample-00006.safetensors", &a_size);
    char *b = content(j.dir, "sample-00007.safetensors", &b_size);
    CHECK(a_size == b_size && !memcmp(a, b, a_size)); /* the two requests have the same seed */
    free(a);
    free(b);
    CHECK(strstr(whole, "\"latents\":[4,5,8,9],\"steps\":3,\"guidance\":7"));
    CHECK(strstr(whole, "\"latents\":[4,2,9,8]") && strstr(whole, "\"latents\":[4,1,8,9]"));
}

/* Checks a job that is stopped at its n-th question and then resumed, on the same number of ranks
 * or on more. Its result must be the same as without a stop. Only steps of the interrupted request
 * may be computed twice. */
static void test_resume(void)
{
    static struct job j;
    /* there is one question before each request and one before each step */
    const int most = N_STEPS + N_MANY;
    for (int after = 1; after < most; after += 2) {
        struct err e = {0};
        size_t size;
        char dir[128];
        snprintf(dir, sizeof dir, "%s/again", scratch);
        CHECK(!file_remove(dir, &e));
        job_of(&j, "stdit3", 1, "many.jsonl", "again");
        j.stop_after = after;
        flow_rank_run(&j.spec, body, &j);
        CHECK_MSG(j.stopped, "after %d", after);
        job_of(&j, "stdit3", 1 + after / 2 % 2, "many.jsonl", "again");
        flow_rank_run(&j.spec, body, &j);
        char *text = content(j.dir, "results.jsonl", &size);
        CHECK_MSG(size == whole_size && !memcmp(text, whole, size), "after %d", after);
        free(text);
        CHECK_MSG(j.asked <= most - after + 1 + 3, "%d asked after %d", j.asked, after);
        CHECK(j.n_sent == N_MANY - N_REFUSED && j.done.n_samples == N_MANY - N_REFUSED);
    }
    job_of(&j, "stdit3", 2, "many.jsonl", "again"); /* no sample is left to compute */
    flow_rank_run(&j.spec, body, &j);
    CHECK(j.asked == 0 && j.done.n_resumed == N_MANY && j.n_sent == N_MANY - N_REFUSED);
}

/* Checks a weight that is NaN. The job must fail, and its error must name the weight. Also checks
 * weights that are too large. Every sample must then be refused, and its line must name the first
 * operation whose result was not finite. */
static void test_damaged(void)
{
    static struct job j;
    size_t size;
    job_of(&j, "stdit3", 1, "many.jsonl", "damaged");
    j.damaged = true;
    flow_rank_run(&j.spec, body, &j);
    CHECK_STR(j.err.field, "model.path");
    CHECK_MSG(
        strstr(j.err.text, "sample 0 is NaN or infinity, since tensor x_embedder.proj.weight "),
        "%s", j.err.text);
    job_of(&j, "stdit3", 2, "many.jsonl", "loud");
    j.loud = true;
    flow_rank_run(&j.spec, body, &j);
    CHECK(j.done.n_samples == 0 && j.done.n_refused == N_MANY && j.n_sent == 0);
    CHECK(j.done.ledger_equal);
    char *errors = content(j.dir, "errors.jsonl", &size);
    CHECK(strstr(errors, "line 1: the sample is NaN or infinity, and first so is the output of "));
    free(errors);
}

/* ---- the spec -------------------------------------------------------------------------------- */

static void set(struct job_spec *s, const char *path, double v)
{
    const struct field *f = spec_field(path);
    char *at = (char *)s + f->offset;
    if (f->type == FIELD_INT)
        *(int64_t *)at = (int64_t)v;
    else if (f->type == FIELD_DOUBLE)
        *(double *)at = v;
    else
        *(int32_t *)at = (int32_t)v;
}

/* Checks fields that are refused in a job of a diffusion model, and fields that are refused in a
 * job of a decoder. */
static void test_rules(void)
{
    static const struct {
        const char *field;
        double value;
    } wrong[] = {{"sampling.temperature", 0.7},
                 {"sampling.max_tokens", 10},
                 {"sampling.top_k", 5},
                 {"sampling.n", 2},
                 {"sampling.ignore_eos", 1},
                 {"sampling.logprobs", 2},
                 {"data.frames", 0},
                 {"data.width", 0},
                 {"data.seq_len", 100},
                 {"infer.batch", 2},
                 {"context.save", 1},
                 {"sampling.steps", 10001},
                 {"sampling.guidance", -1}};
    static struct job j;
    struct err e = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        job_of(&j, "latte", 1, "many.jsonl", "none");
        set(&j.spec, wrong[i].field, wrong[i].value);
        CHECK_MSG(family_check(&j.spec, &e) && !strcmp(e.field, wrong[i].field), "%s: %s: %s",
                  wrong[i].field, e.field, e.text);
    }
    job_of(&j, "latte", 1, "many.jsonl", "none");
    j.spec.input.source.format = DATA_LATENTS;
    CHECK(family_check(&j.spec, &e) && !strcmp(e.field, "input.format"));
    j.spec.input.source.path = 0;
    CHECK(!spec_intern(&j.spec, "x", 1, &j.spec.input.prompt));
    CHECK_MSG(family_check(&j.spec, &e) && strstr(e.text, "asked by requests"), "%s", e.text);
    /* A model directory whose sizes have not been read yet is accepted; they are read later. */
    job_of(&j, "latte", 2, "many.jsonl", "none");
    struct job_spec *s = malloc(sizeof *s);
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    j.spec.model.shape = s->model.shape;
    CHECK(!spec_intern(&j.spec, "latte", 5, &j.spec.model.path));
    CHECK_MSG(!family_check(&j.spec, &e), "%s: %s", e.field, e.text);
    s->kind = JOB_GENERATE;
    s->model.shape.n_layers = 1;
    s->model.shape.width = s->model.shape.ffn_width = 8;
    s->model.shape.n_heads = 1;
    CHECK(!spec_intern(s, "x", 1, &s->input.prompt));
    CHECK_MSG(!family_check(s, &e), "%s: %s", e.field, e.text);
    s->sampling.guidance = 2;
    CHECK_MSG(family_check(s, &e) && !strcmp(e.field, "sampling.guidance"), "%s", e.text);
    s->sampling.guidance = 7;
    s->sampling.eta = 1;
    CHECK_MSG(family_check(s, &e) && !strcmp(e.field, "sampling.eta"), "%s", e.text);
    free(s);
}

/* ---- bad requests ---------------------------------------------------------------------------- */

#define GOOD "\"custom_id\":\"a\"," CAPTION SIZE "\"num_frames\":17"

/* Each row has a line, words of its error, and the member that the error names. */
static const char *const bad_lines[][3] = {
    {"", "the text ends", ""},
    {"[]", "must be a JSON object", ""},
    {"{" GOOD, "a comma", ""},
    {"{" GOOD "} x", "", ""},
    {"{" GOOD ",\"prompt\":\"x\"}", "unknown member \"prompt\"", "prompt"},
    {"{" GOOD ",\"fps\":1,\"fps\":2}", "fps occurs twice", "fps"},
    {"{" GOOD ",\"fps\":0}", "above 0", "fps"},
    {"{" GOOD ",\"fps\":\"24\"}", "must be a number", "fps"},
    {"{" GOOD ",\"text_len\":0}", "1 to 65535", "text_len"},
    {"{" GOOD ",\"text_len\":1.5}", "whole number", "text_len"},
    {"{" GOOD ",\"label\":0}", "knows no classes", "label"},
    {"{" GOOD ",\"label\":-1}", "from 0", "label"},
    {"{" GOOD ",\"steps\":0}", "between 1 and 10000", "steps"},
    {"{" GOOD ",\"steps\":2.5}", "whole number", "steps"},
    {"{" GOOD ",\"guidance\":-1}", "between 0 and 1000", "guidance"},
    {"{" GOOD ",\"guidance\":true}", "must be a number", "guidance"},
    {"{" GOOD ",\"seed\":-1}", "between 0", "seed"},
    {"{" GOOD ",\"latents\":5}", "latents must be", "latents"},
    {"{" GOOD ",\"latents\":{\"C\":4}}", "each once", "latents"},
    {"{" GOOD ",\"latents\":{\"T\":1,\"T\":1}}", "each once", "latents"},
    {"{" GOOD ",\"latents\":{\"H\":0}}", "latents.H must be", "latents.H"},
    {"{" GOOD ",\"latents\":{\"W\":11}}", "data.width 9", "latents.W"},
    {"{" GOOD ",\"latents\":{\"H\":9}}", "data.height 8", "latents.H"},
    {"{" GOOD ",\"latents\":{\"T\":65535}}", "data.frames 5", "latents.T"},
    {"{\"custom_id\":5}", "custom_id must be", "custom_id"},
    {"{" CAPTION SIZE "\"num_frames\":1}", "custom_id is missing", "custom_id"},
    {"{\"custom_id\":\"a\"," SIZE "\"num_frames\":1}", "text is missing", "text"},
    {"{\"custom_id\":\"a\",\"text\":\"\"}", "text must be", "text"},
    {"{\"custom_id\":\"a\",\"text\":[\"b\"]}", "text must be", "text"},
    {"{\"custom_id\":\"a\"," CAPTION "\"num_frames\":1}", "height is missing", "height"},
    {"{\"custom_id\":\"a\"," CAPTION "\"height\":64,\"num_frames\":1}", "width is missing",
     "width"},
    {"{\"custom_id\":\"a\"," CAPTION "\"height\":7,\"width\":64,\"num_frames\":1}",
     "height 7: an eighth", "height"},
    {"{\"custom_id\":\"a\"," CAPTION SIZE "\"fps\":8}", "num_frames is missing", "num_frames"},
};

static void test_bad_lines(void)
{
    static struct job j;
    struct flow_request r;
    job_of(&j, "stdit3", 1, "none", "none");
    for (size_t i = 0; i < sizeof bad_lines / sizeof *bad_lines; i++) {
        const char *const *bad = bad_lines[i];
        flow_request_of_line(&r, &j.spec, bad[0], (int64_t)strlen(bad[0]));
        CHECK_MSG(r.refused.code != ERR_NONE && strstr(r.refused.text, bad[1]) &&
                      !strcmp(r.refused.field, bad[2]),
                  "%s: %s, about \"%s\"", bad[0], r.refused.text, r.refused.field);
    }
    static const char null[] = "{" GOOD ",\"label\":null,\"latents\":null,\"steps\":null}";
    flow_request_of_line(&r, &j.spec, null, sizeof null - 1);
    CHECK_MSG(r.refused.code == ERR_NONE && r.s.steps == 3 && r.s.x.T == 5, "%s", r.refused.text);
}

/* Checks models that read no caption: models that read a class, and models without a condition. */
static void test_told(void)
{
    static const char *const lines[][4] = {
        {"latte", "{\"custom_id\":\"a\"," SIZE "\"num_frames\":3}", "label is missing", "label"},
        {"latte", "{\"custom_id\":\"a\"," SIZE "\"num_frames\":3,\"label\":3}", "knows 3 classes",
         "label"},
        {"latte", "{" GOOD ",\"label\":1}", "reads no caption", "text"},
        {"latte", "{\"custom_id\":\"a\"," SIZE "\"num_frames\":3,\"label\":2}", NULL, ""},
        {"latte_noise", "{\"custom_id\":\"a\"," SIZE "\"num_frames\":3,\"label\":2,\"steps\":1}",
         "sampled in 2 to 1000", "steps"},
        {"latte_noise", "{\"custom_id\":\"a\"," SIZE "\"num_frames\":3,\"label\":2,\"steps\":2}",
         NULL, ""},
        {"t2d_plain", "{" GOOD "}", "reads no caption", "text"},
        {"t2d_plain", "{\"custom_id\":\"a\"," SIZE "\"num_frames\":3,\"text_len\":1}",
         "there is no text", "text_len"},
    };
    static struct job j;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct flow_request r;
        job_of(&j, lines[i][0], 1, "none", "none");
        flow_request_of_line(&r, &j.spec, lines[i][1], (int64_t)strlen(lines[i][1]));
        const bool bad = lines[i][2] != NULL;
        CHECK_MSG((r.refused.code != ERR_NONE) == bad, "%s: %s", lines[i][1], r.refused.text);
        if (bad) CHECK_MSG(strstr(r.refused.text, lines[i][2]), "%s", r.refused.text);
        CHECK(!strcmp(r.refused.field, lines[i][3]));
    }
}

/* Checks files of captions that cannot be read, and the reasons in their errors. */
static void test_bad_captions(void)
{
    static const char *const bad[][3] = {
        {"c/narrow", "y of", "text"},
        {"c/long", "7 at most", "text_len"},
        {"c/other", "no tensor", "text"},
        {"c/nan", "no finite number", "text"},
        {"c/junk", "", "text"},
        {"c", "directory", "text"},
        {"../etc/passwd", "", "text"},
        {"/etc/passwd", "outside the root", "text"},
        {"c/link", "outside the root", "text"},
    };
    static struct job j;
    float room[7 * 11];
    char manifest[128], link[128];
    put_caption("c/narrow", "y", 2, 10, 0);
    put_caption("c/long", "y", 8, 11, 0);
    put_caption("c/other", "x", 2, 11, 0);
    put_caption("c/nan", "y", 2, 11, NAN);
    put("c/junk", "safetensors");
    snprintf(link, sizeof link, "%s/c/link", scratch);
    CHECK(!symlink("/etc/passwd", link));
    snprintf(manifest, sizeof manifest, "%s/many.jsonl", scratch);
    job_of(&j, "stdit3", 1, "none", "none");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct flow_request r = {0};
        struct err e = {0};
        snprintf(r.text, sizeof r.text, "%s", bad[i][0]);
        const int rc = flow_request_caption(&r, &j.spec.model.shape, scratch, manifest, room, &e);
        CHECK_MSG(rc && strstr(e.text, bad[i][1]) && !strcmp(e.field, bad[i][2]), "%s: %s (%s)",
                  bad[i][0], e.text, e.field);
    }
    struct flow_request r = {.text = "c/two.safetensors", .s.x.text_len = 3};
    struct err e = {0};
    CHECK(flow_request_caption(&r, &j.spec.model.shape, scratch, manifest, room, &e));
    CHECK_MSG(strstr(e.text, "has 2 rows") && !strcmp(e.field, "text_len"), "%s", e.text);
}

int main(void)
{
    setenv("SEQD_LOG", "error", 0);
    log_init("test_flow_generate");
    snprintf(scratch, sizeof scratch, "/tmp/test_flow_generate.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    RUN(test_golden);
    RUN(test_many);
    RUN(test_resume);
    RUN(test_damaged);
    RUN(test_rules);
    RUN(test_bad_lines);
    RUN(test_told);
    RUN(test_bad_captions);
    free(whole);
    file_remove(scratch, NULL);
    return test_done("flow_generate");
}
