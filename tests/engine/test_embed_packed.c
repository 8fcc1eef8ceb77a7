/* test_embed_packed.c: checks documents that share a pass (embed_run). In every family, on one
 * rank and on several, the vector of a document must equal the vector from a pass for this
 * document alone. The vectors must be in the order of the input. Documents that cannot share a
 * pass must get separate passes. If a vector is not finite, the error must name its document. */
#include <math.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "api/core/log.h"
#include "tests/lib/param.h"
#include "tests/lib/reading.h"
#include "tests/lib/shapes.h"
#include "worker/program/rope.h"

enum { S = 40, WIDTH = 16, VOCAB = 258 };

/* Documents of 5, 1, 30, 4 | 40 | 7, 2, 29 | 3 tokens. The bars separate passes. The first pass is
 * full. The second pass has a single document. The third pass has room left, but not enough for
 * the last document. */
static const char *const docs[] = {"hello",
                                   "a",
                                   "the quick brown fox jumps over",
                                   "abcd",
                                   "a document as long as its whole sequence",
                                   "xyzzy..",
                                   "No",
                                   "plugh, and a little more of t",
                                   "end"};
enum { N_DOCS = sizeof docs / sizeof *docs, N_PASSES = 4 };

static char scratch[64];
struct job {
    struct reading_embed r;
    int broken; /* the byte whose embedding is NaN */
    /* out */
    float vector[N_DOCS][WIDTH];
};

static void break_weights(struct tiny_rank *t, const struct reading_embed *r)
{
    const struct job *j = r->arg;
    const struct param p = param_named(&t->model.shape, "model.embed_tokens.weight");
    float *row = (float *)t->model.params + tiny_at(&t->model, &p) + j->broken * p.cols;
    row[0] = NAN;
}

/* Makes a job on P ranks with a model of this shape. */
static void set(struct job *j, const struct model_shape *m, int P, int pooling, int packing)
{
    char path[128];
    struct reading_embed *r = &j->r;
    *j = (struct job){.r = {.parent = scratch, .arg = j}};
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    snprintf(r->dir, sizeof r->dir, "%s/job-%d", scratch, packing);
    reading_spec(&r->spec, JOB_EMBED, scratch, path, P, S);
    r->spec.model.shape = *m;
    r->spec.model.shape.vocab = VOCAB;
    r->spec.embed.pooling = pooling;
    r->spec.data.packing = packing;
    reading_prepare(&r->spec, scratch, r->id);
}

static void run(struct job *j)
{
    reading_run(&j->r.spec, j->r.spec.resources.ranks, reading_embed, &j->r);
}

static void go(struct job *j)
{
    size_t size;
    run(j);
    CHECK(j->r.out.n_documents == N_DOCS && j->r.out.width == WIDTH && j->r.out.ledger_equal);
    char *npy = reading_artifact(j->r.dir, "embeddings.npy", &size);
    CHECK(size == 128 + sizeof j->vector);
    if (size == 128 + sizeof j->vector) memcpy(j->vector, npy + 128, sizeof j->vector);
    free(npy);
}

/* Returns the largest difference between the vectors of two jobs. Each difference is divided by
 * the largest entry of its vector. */
static double distance(const struct job *a, const struct job *b)
{
    double worst = 0;
    for (int i = 0; i < N_DOCS; i++) {
        double most = 0, off = 0;
        for (int c = 0; c < WIDTH; c++) {
            const double x = (double)a->vector[i][c], y = (double)b->vector[i][c];
            most = fmax(most, fabs(x));
            off = fmax(off, fabs(x - y));
        }
        CHECK_MSG(most > 0 && isfinite(off), "family %d: document %d", a->r.spec.model.shape.family,
                  i);
        worst = fmax(worst, off / most);
    }
    return worst;
}

static void check_lines(const struct job *a, const struct job *b)
{
    size_t n, m;
    char *x = reading_artifact(a->r.dir, "embeddings.ids.jsonl", &n);
    char *y = reading_artifact(b->r.dir, "embeddings.ids.jsonl", &m);
    CHECK(n == m && !memcmp(x, y, n));
    free(x);
    free(y);
}

static double worst_of_all;

/* Checks that the vectors of documents that share a pass equal the vectors of documents with a
 * pass of their own. The bound is 1e-5 of the vector's largest entry, as in test_embed.c for
 * several ranks. The vectors are not exactly equal, because blocks of keys begin at other
 * positions, so that the terms of a row's keys are added in a different order. With AVX-512 the
 * largest difference of all families is 9e-7. */
static void check_equal(const struct model_shape *m, int P, int pooling)
{
    static struct job packed, alone;
    set(&packed, m, P, pooling, PACKING_CONCAT);
    set(&alone, m, P, pooling, PACKING_NONE);
    go(&packed), go(&alone);
    const double d = distance(&packed, &alone);
    const int want = rope_by_length(m) ? N_DOCS : N_PASSES;
    CHECK_MSG(packed.r.out.n_passes == want && alone.r.out.n_passes == N_DOCS,
              "family %d: %lld and %lld passes", m->family, (long long)packed.r.out.n_passes,
              (long long)alone.r.out.n_passes);
    CHECK_MSG(packed.r.out.n_tokens == alone.r.out.n_tokens, "%lld tokens",
              (long long)packed.r.out.n_tokens);
    CHECK_MSG(d <= 1e-5, "family %d P %d pooling %d: %g", m->family, P, pooling, d);
    if (rope_by_length(m)) CHECK(d == 0);
    check_lines(&packed, &alone);
    worst_of_all = fmax(worst_of_all, d);
}

static void check_model(const struct model_shape *m)
{
    for (int P = 1; P <= 3; P += 2)
        for (int pooling = 0; pooling < POOLING_N; pooling++)
            if (pooling != POOLING_CLS || family_masked(m)) check_equal(m, P, pooling);
}

static void test_families(void)
{
    for (int id = 0; id < FAMILY_N; id++) {
        if (family_diffusion(&(struct model_shape){.family = id})) continue;
        struct model_shape m = shape_of(id);
        for (int i = 0; i < 6; i++) m.residual[i] = 1; /* for MiniMax */
        check_model(&m);
    }
}

/* Checks windows that are narrower than a document, in models that attend in one direction and in
 * both. */
static void test_windows(void)
{
    struct model_shape m = shape_of(FAMILY_LLAMA);
    m.window = 3;
    check_model(&m);
    m = shape_of(FAMILY_MODERNBERT);
    m.window = 5;
    m.layer_mask[0] = 2;
    check_model(&m);
}

/* Checks RoPE whose frequencies depend on the length of the sequence. Documents of such a model
 * cannot share a pass. */
static void test_rope(void)
{
    struct model_shape m = shape_of(FAMILY_LLAMA);
    m.rope = (struct shape_rope){.kind = ROPE_DYNAMIC, .factor = 2};
    m.max_pos = 16;
    check_model(&m);
}

static void write_docs(const char *const *text, int n, int times)
{
    char path[128];
    struct err e = {0};
    char *all = calloc((size_t)(n * times), 64), *at = all;
    for (int i = 0; i < n * times; i++) at += sprintf(at, "{\"text\":\"%s\"}\n", text[i % n]);
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    CHECK_MSG(!file_write(path, all, (size_t)(at - all), &e), "%s", e.text);
    free(all);
}

/* Checks 16-bit types, in which values that differ in the last bits of fp32 are sometimes rounded
 * in different directions. The vectors may differ by at most twice the difference between vectors
 * in 16 bits and in fp32. */
static void check_half(int family, int pooling)
{
    static struct job packed, alone, single;
    const struct model_shape m = shape_of(family);
    set(&packed, &m, 1, pooling, PACKING_CONCAT);
    set(&alone, &m, 1, pooling, PACKING_NONE);
    set(&single, &m, 1, pooling, PACKING_NONE);
    packed.r.spec.precision.params = alone.r.spec.precision.params = PRECISION_BF16;
    go(&packed), go(&alone), go(&single);
    const double far = distance(&alone, &single), near = distance(&packed, &alone);
    CHECK_MSG(far > 0 && near <= 2 * far, "family %d pooling %d: %g, bf16 %g", family, pooling,
              near, far);
}

static void test_half(void)
{
    for (int pooling = POOLING_LAST; pooling <= POOLING_MEAN; pooling++)
        check_half(FAMILY_LLAMA, pooling), check_half(FAMILY_BERT, pooling);
}

/* Counts the reads of the prepared data. This function replaces pread of the C library. */
static _Atomic int n_reads;
ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    n_reads++;
    return syscall(SYS_pread64, fd, to, n, at);
}

static void count_reads(struct tiny_rank *t, const struct reading_embed *r)
{
    n_reads = 0;
}

/* Checks that each document is read once, and its origin once. There is one further read. One
 * document has as many tokens as the sequence if its end token is counted, so its last token is
 * read to find out whether it is an end token. */
static void test_reads(void)
{
    static struct job j;
    const struct model_shape m = shape_of(FAMILY_LLAMA);
    for (int packing = PACKING_CONCAT; packing <= PACKING_NONE; packing++) {
        if (packing == PACKING_BEST_FIT) continue;
        set(&j, &m, 1, POOLING_MEAN, packing);
        j.r.before = count_reads;
        go(&j);
        CHECK_MSG(n_reads == 2 * N_DOCS + 1, "%d reads", n_reads);
    }
}

/* Checks more documents than one pass accepts. The documents that are left must be computed in a
 * second pass. */
static void test_many(void)
{
    static const char *const two[] = {"a", "b"};
    static struct job j;
    enum { TIMES = 150 };
    size_t size;
    const struct model_shape m = shape_of(FAMILY_BERT);
    write_docs(two, 2, TIMES);
    set(&j, &m, 2, POOLING_CLS, PACKING_CONCAT);
    j.r.spec.data.seq_len = 2 * TIMES;
    j.r.spec.model.shape.max_pos = 2 * TIMES;
    run(&j);
    CHECK(j.r.out.n_documents == 2 * TIMES && j.r.out.n_passes == 2 && j.r.out.ledger_equal);
    char *npy = reading_artifact(j.r.dir, "embeddings.npy", &size);
    CHECK(size == 128 + 2 * TIMES * WIDTH * sizeof(float));
    const float *x = (const float *)(npy + 128);
    for (int i = 2; i < 2 * TIMES && size > 128; i++)
        for (int c = 0; c < WIDTH; c++)
            CHECK(fabs((double)x[i * WIDTH + c] - (double)x[i % 2 * WIDTH + c]) <= 1e-5);
    free(npy);
    write_docs(docs, N_DOCS, 1);
}

/* Checks a document whose states are not finite. The error must name this document, and no other
 * document in its pass. To find it, the job computes the documents of the pass again one by one.
 * The progress must not decrease. */
static void test_not_finite(void)
{
    static struct job j;
    const struct model_shape m = shape_of(FAMILY_LLAMA);
    static const struct {
        char byte;
        const char *name;
    } bad[] = {{'q', "document 2: a hidden state"},
               {'y', "document 5: a hidden state"},
               {'N', "document 6: a hidden state"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int P = 1; P <= 2; P++) {
            set(&j, &m, P, POOLING_MEAN, PACKING_CONCAT);
            j.broken = bad[i].byte;
            j.r.before = break_weights;
            j.r.may_fail = true;
            run(&j);
            CHECK_MSG(j.r.e.code == ERR_CORRUPT && strstr(j.r.e.text, bad[i].name), "P %d '%c': %s",
                      P, bad[i].byte, j.r.e.text);
        }
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_embed_packed");
    snprintf(scratch, sizeof scratch, "/tmp/test_embed_packed.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs(docs, N_DOCS, 1);
    RUN(test_families);
    RUN(test_windows);
    RUN(test_rope);
    RUN(test_half);
    RUN(test_many);
    RUN(test_reads);
    RUN(test_not_finite);
    printf("  worst: %.2e\n", worst_of_all);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("embed_packed");
}
