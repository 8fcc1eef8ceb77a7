/* Checks the states after the tokens of a context. The states can be stored in a file, and can
 * replace the tokens from which they were computed. */
#include <math.h>
#include <unistd.h>

#include "api/core/beneath.h"
#include "tests/lib/answer.h"
#include "tests/lib/prefill.h"
#include "tests/lib/tiny.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/infer/context.h"
#include "worker/infer/infer.h"

enum { N_TOKENS = 50, ROOM = 6, SPLIT = 29 };

/* Makes a shape of the family. TNL's first layer has LRPE, which doubles the height of the layer's
 * state. The tokens after a context have the positions that follow the context. */
static void set_shape(struct model_shape *m, int family)
{
    *m = (struct model_shape){.family = family,
                              .n_layers = 3,
                              .width = 32,
                              .n_heads = 2,
                              .n_kv_heads = 2,
                              .head_dim = 16,
                              .ffn_width = 40,
                              .vocab = 258,
                              .norm_eps = 1e-6,
                              .rope_theta = 10000};
    if (family == FAMILY_TNL) m->layer_mask[0] = 1;
    if (family == FAMILY_LINEAR) m->normalise = 1;
    CHECK(!family_complete(m, NULL));
}

/* ---- the file -------------------------------------------------------------------------------- */

struct file_case {
    char dir[32];
    struct context_layout layout;
    struct context context;
    char path[512];
};

static void case_open(struct file_case *f)
{
    struct model_shape m;
    struct err e = {0};
    snprintf(f->dir, sizeof f->dir, "/tmp/seqd-context-XXXXXX");
    if (!mkdtemp(f->dir)) abort();
    set_shape(&m, FAMILY_TNL);
    CHECK(!context_layout_init(&f->layout, &m, &e));
    CHECK(f->layout.n_states == 3 && f->layout.layer[0].key_dim == 32);
    CHECK(f->layout.layer[1].key_dim == 16 && f->layout.layer[1].value_dim == 16);
    f->context = (struct context){.n_tokens = 4194304, .stride = f->layout.stride};
    memset(f->context.model, 'a', SHA256_HEX - 1);
    f->context.states = calloc(1, (size_t)f->layout.size);
    for (int64_t i = 0; i < f->layout.size / 4; i++)
        ((float *)f->context.states)[i] = (float)i * 0.25f;
    snprintf(f->path, sizeof f->path, "%s/context.safetensors", f->dir);
}

static int read_back(const struct file_case *f, char digest, struct context *got, struct err *e)
{
    *got = (struct context){.states = calloc(1, (size_t)f->layout.size)};
    memset(got->model, digest, SHA256_HEX - 1);
    return context_read(f->path, &f->layout, "model.config and seed", got, e);
}

static void test_file(void)
{
    struct file_case f;
    struct context got;
    struct err e = {0};
    case_open(&f);
    CHECK_MSG(!context_write(f.path, &f.layout, &f.context, &e), "%s", e.text);
    CHECK_MSG(!read_back(&f, 'a', &got, &e), "%s", e.text);
    CHECK(got.n_tokens == 4194304);
    for (int64_t l = 0; l < 3; l++) {
        const struct context_state *s = &f.layout.layer[l];
        CHECK(!memcmp(got.states + l * f.layout.stride, f.context.states + l * f.layout.stride,
                      (size_t)(4 * s->n_heads * s->key_dim * s->value_dim)));
    }
    free(got.states);
    CHECK(read_back(&f, 'b', &got, &e) && e.code == ERR_CONFLICT);
    CHECK_MSG(strstr(e.text, ": give model.config and seed, with the same model.weights"), "%s",
              e.text);
    CHECK_STR(e.field, "context.load");
    free(got.states);
    f.context.n_tokens = 0; /* a context without tokens */
    CHECK(!context_write(f.path, &f.layout, &f.context, &e));
    CHECK(read_back(&f, 'a', &got, &e) && e.code == ERR_CORRUPT);
    free(got.states);
    f.context.n_tokens = 7;
    ((float *)f.context.states)[5] = NAN;
    CHECK(!context_write(f.path, &f.layout, &f.context, &e));
    CHECK(read_back(&f, 'a', &got, &e) && e.code == ERR_CORRUPT);
    free(got.states);
    free(f.context.states);
    context_layout_fini(&f.layout);
    unlink(f.path);
    rmdir(f.dir);
}

/* Checks that a context's path is refused if a link in it leads out of its root. */
static void test_link_out_of_the_root(void)
{
    struct file_case f;
    struct context got;
    struct err e = {0};
    case_open(&f);
    const char *const roots[] = {f.dir};
    if (symlink("/proc/version", f.path)) abort();
    beneath_confine(roots, 1);
    CHECK(read_back(&f, 'a', &got, &e) && e.code == ERR_INVALID);
    CHECK_MSG(strstr(e.text, "leads outside the root"), "%s", e.text);
    CHECK_STR(e.field, "context.load");
    beneath_confine(NULL, 0);
    free(got.states);
    free(f.context.states);
    context_layout_fini(&f.layout);
    unlink(f.path);
    rmdir(f.dir);
}

/* Checks files that do not fit the model. A file must be refused if its number of layers or its
 * sizes differ from the model's, or if the model also has layers of kinds that the file lacks. */
static void test_other_shapes_are_refused(void)
{
    struct file_case f;
    struct context got;
    struct err e = {0};
    struct model_shape m;
    case_open(&f);
    f.layout.n_layers = f.layout.n_states = 2;
    CHECK(!context_write(f.path, &f.layout, &f.context, &e));
    f.layout.n_layers = f.layout.n_states = 3;
    CHECK(read_back(&f, 'a', &got, &e) && e.code == ERR_INVALID);
    free(got.states);
    CHECK(!context_write(f.path, &f.layout, &f.context, &e));
    f.layout.n_layers = f.layout.n_states = 2;
    CHECK(read_back(&f, 'a', &got, &e) && e.code == ERR_INVALID);
    free(got.states);
    f.layout.layer[0].key_dim = 16;
    f.layout.layer[0].value_dim = 32; /* the state has the same number of elements */
    CHECK(read_back(&f, 'a', &got, &e) && e.code == ERR_INVALID);
    free(got.states);
    free(f.context.states);
    context_layout_fini(&f.layout);
    set_shape(&m, FAMILY_LLAMA);
    CHECK(!context_layout_init(&f.layout, &m, &e) && f.layout.n_states == 0);
    CHECK(context_write(f.path, &f.layout, &f.context, &e) && e.code == ERR_UNSUPPORTED);
    context_layout_fini(&f.layout);
    unlink(f.path);
    rmdir(f.dir);
}

/* ---- states that replace tokens -------------------------------------------------------------- */

struct story {
    struct job_spec spec;
    int32_t tokens[N_TOKENS + ROOM];
    double diff, size; /* the largest difference of two logits and the largest absolute value of a
                        * logit, on rank 0 */
    bool same;         /* two greedy continuations of one prompt are the same */
};

static void set_story(struct story *s, int family, int P)
{
    spec_defaults(&s->spec);
    shape_defaults(&s->spec.model.shape);
    s->spec.kind = JOB_GENERATE;
    set_shape(&s->spec.model.shape, family);
    s->spec.seed = 3;
    s->spec.resources.ranks = s->spec.parallel.sp = P;
    s->spec.resources.threads = 1;
    s->spec.sampling.max_tokens = ROOM;
    s->spec.data.seq_len = N_TOKENS + ROOM;
    s->spec.input.prompt = tiny_text(&s->spec, "x");
    for (int i = 0; i < N_TOKENS + ROOM; i++) s->tokens[i] = 97 + i * i % 23;
}

/* Computes the logits after the prompt [from, N_TOKENS), and after each of ROOM further tokens. */
static int tell(const struct infer *in, const struct story *s, int from, float *logits,
                struct err *e)
{
    const int64_t V = in->model->shape.vocab;
    if (prefill(in, s->tokens + from, N_TOKENS - from, logits, e)) return -1;
    for (int i = 0; i < ROOM; i++) {
        struct tensor t;
        if (model_decode(in->model, s->tokens[N_TOKENS + i], &t, e)) return -1;
        memcpy(logits + (i + 1) * V, t.data, (size_t)V * sizeof *logits);
    }
    return 0;
}

static int continue_twice(const struct infer *in, struct story *s, struct err *e)
{
    struct infer_work w;
    struct request r;
    struct infer_answer a = {0};
    if (infer_work_init(&w, in, false, e) || request_init(&r, N_TOKENS, e)) return -1;
    request_of_prompt(&r, in->spec, "", 0, 0);
    memcpy(r.tokens, s->tokens, N_TOKENS * sizeof *s->tokens);
    r.n_tokens = N_TOKENS;
    r.n = 2;
    int rc = answer_alone(in, &w, &r, &a, e);
    if (!rc)
        s->same = a.choice[0].tokens.n == a.choice[1].tokens.n && a.choice[0].tokens.n > 0 &&
                  !memcmp(a.choice[0].tokens.id, a.choice[1].tokens.id,
                          (size_t)a.choice[0].tokens.n * sizeof(int32_t));
    infer_answer_fini(&a);
    request_fini(&r);
    infer_work_fini(&w, 1);
    return rc;
}

/* Computes the complete prompt at once. Then computes the first part of the prompt, keeps the
 * states, and computes the rest of the prompt from these states. */
static int compare(struct tiny_rank *t, struct story *s, int rank, struct err *e)
{
    struct infer in = {.model = &t->model, .spec = &s->spec};
    const int64_t V = t->model.shape.vocab, n = (ROOM + 1) * V;
    float *want = calloc((size_t)n, 4), *got = calloc((size_t)n, 4);
    struct context_layout l;
    struct context c = {.n_tokens = SPLIT};
    int rc = context_layout_init(&l, &t->model.shape, e);
    c.stride = l.stride;
    c.states = calloc(1, (size_t)l.size);
    if (!rc) rc = tell(&in, s, 0, want, e) || prefill(&in, s->tokens, SPLIT, got, e);
    if (!rc) context_take(&t->model, &l, c.states);
    in.context = &c;
    if (!rc) rc = tell(&in, s, SPLIT, got, e);
    for (int64_t i = 0; i < n && rank == 0; i++) {
        s->diff = fmax(s->diff, fabs((double)got[i] - (double)want[i]));
        s->size = fmax(s->size, fabs((double)want[i]));
    }
    if (!rc) rc = continue_twice(&in, s, e);
    free(want);
    free(got);
    free(c.states);
    context_layout_fini(&l);
    return rc;
}

static void story_body(struct ranks *g, int rank, void *arg)
{
    struct story *s = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    if (tiny_open(t, &s->spec, g, rank, &e) || compare(t, s, rank, &e)) ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
}

/* Checks that states replace the tokens from which they were computed. The sums over the first and
 * the second part of the prompt are rounded separately in fp32, each by 6e-8 of its value. After
 * three layers and the head, the difference is about 1e-6 of the largest logit. A missing state,
 * or tokens at other positions, would change logits by a tenth or more. */
static void test_context_stands_for_its_tokens(void)
{
    static const int families[] = {FAMILY_TNL, FAMILY_LINEAR, FAMILY_RETNET};
    static struct story s;
    static struct plan p;
    for (int f = 0; f < 3; f++)
        for (int P = 1; P <= 3; P++) {
            struct ranks g;
            struct err e = {0};
            s = (struct story){0};
            set_story(&s, families[f], P);
            CHECK_MSG(!plan_make(&s.spec, 0, &p, &e), "%s", e.text);
            ranks_open(&g, P, p.segment_size, NULL);
            ranks_run(&g, story_body, &s);
            ranks_check(&g);
            ranks_close(&g);
            CHECK_MSG(s.size > 0 && s.diff <= 1e-5 * fmax(1, s.size),
                      "family %d P %d: %.2e of %.2e", families[f], P, s.diff, s.size);
            CHECK_MSG(s.same, "family %d P %d: two greedy continuations differ", families[f], P);
        }
}

int main(void)
{
    RUN(test_file);
    RUN(test_link_out_of_the_root);
    RUN(test_other_shapes_are_refused);
    RUN(test_context_stands_for_its_tokens);
    return test_done("context");
}
