/* verify says "equal" when P ranks compute what one computes, and names a tensor when they do not:
 * with one weight of one rank disturbed, and (built with SEQD_MUTANTS) with every injected fault. */
#include <math.h>

#include "api/core/file.h"
#include "api/core/jread.h"
#include "api/core/log.h"
#include "tests/mutant.h"
#include "tests/tiny.h"
#include "worker/model/safetensors.h"
#include "worker/train/verify.h"

#define N_DOCS 7
static const char *const docs[N_DOCS] = {
    "int main(void) { return 0; }",         "a",  "static long f(long x) { return x * x + 1; }", "",
    "for (i = 0; i < n; i++) sum += a[i];", "zz", "struct node { struct node *next; };"};

static char scratch[64];

struct trial {
    struct job_spec spec;
    char id[80];
    int mutant;
    int disturb; /* this rank's copy of one weight is off; -1: nobody's */
    struct verify out;
    struct err sentence;
};

static enum precision_id precision; /* of the trials */

static void set_up(struct trial *t, int P, int64_t S, enum layout_id layout)
{
    struct err e = {0};
    struct data_stats st;
    const char *roots[] = {scratch};
    char path[128];
    *t = (struct trial){.disturb = -1};
    spec_defaults(&t->spec);
    struct job_spec *s = &t->spec;
    s->kind = JOB_VERIFY;
    s->model.shape = tiny_shape;
    s->precision.params = precision;
    s->seed = 3;
    s->resources.ranks = P;
    s->resources.threads = 1;
    s->parallel.layout = P > 1 ? layout : LAYOUT_AUTO;
    s->data.seq_len = 200; /* longer than what is compared */
    s->verify.max_tokens = S;
    s->data.document_mask = s->data.reset_positions = 1;
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    s->data.n_train = 1;
    s->data.train[0].path = tiny_text(s, path);
    s->data.train[0].text_key = tiny_text(s, "text");
    s->data.train[0].format = DATA_JSONL;
    CHECK_MSG(!job_check(s, &e), "%s: %s", e.field, e.text);
    CHECK_MSG(!data_prepare(s, roots, 1, scratch, &st, &e), "%s", e.text);
    snprintf(t->id, sizeof t->id, "%s", st.id);
}

static void verify_body(struct ranks *g, int rank, void *arg)
{
    struct trial *t = arg;
    struct tiny_rank *r = malloc(sizeof *r);
    struct verify v = {0};
    struct err e = {0};
    struct data *d = data_open(scratch, t->id, DATA_TRUST, &e);
    int rc = !d || tiny_open(r, &t->spec, g, rank, t->mutant, &e);
    if (!rc && rank == t->disturb) {
        struct param p;
        float *w = r->model.params;
        param_get(&t->spec.model.shape, 1 + 9 + 4, &p); /* o_proj of layer 1 */
        w[p.offset + 5] += 0.05f;
    }
    if (!rc) {
        struct verify_args a = {&t->spec, &r->model, r->arena, d, scratch, t->mutant};
        rc = verify_run(&a, &v, &e);
    }
    if (rc) ranks_fail(g, rank, &e);
    if (!rc && rank == 0) {
        t->out = v;
        verify_sentence(&t->spec, &v, &t->sentence);
    } else {
        verify_fini(&v);
    }
    tiny_close(r);
    free(r);
    data_close(d);
}

static void verify_once(struct trial *t)
{
    static struct plan plan;
    struct ranks g;
    struct err e = {0};
    CHECK_MSG(!plan_make(&t->spec, 0, &plan, &e), "%s: %s", e.field, e.text);
    ranks_open(&g, plan.n_ranks, plan.segment_size, NULL);
    ranks_run(&g, verify_body, t);
    ranks_check(&g);
    ranks_close(&g);
}

static void expect_equal(struct trial *t)
{
    verify_once(t);
    CHECK_MSG(t->out.equal, "P %d S %lld layout %d: %s", t->spec.resources.ranks,
              (long long)t->spec.verify.max_tokens, t->spec.parallel.layout, t->sentence.text);
    CHECK(t->out.ledger_equal);
    CHECK(t->out.targets_1 == t->out.targets_p && t->out.targets_1 > 0);
    CHECK(t->out.n_rows == param_tensors(&tiny_shape) - (t->spec.model.shape.tied != 0));
    /* nothing passes by being zero; two vectors rel-L2 apart have a cosine of 1 - rel-L2^2 / 2 */
    for (int i = 0; i < t->out.n_rows; i++)
        CHECK_MSG(t->out.row[i].norm_1 > 0 && t->out.row[i].cosine > (precision ? 0.998 : 0.999),
                  "%s", t->out.row[i].name);
    verify_fini(&t->out);
}

static void test_equal(void)
{
    static struct trial t;
    static const int64_t lengths[] = {8, 37, 96};
    for (int P = 1; P <= 5; P++)
        for (int k = 0; k < 3; k++)
            for (int layout = LAYOUT_CONTIGUOUS; layout < LAYOUT_N; layout++) {
                set_up(&t, P, lengths[k], layout);
                expect_equal(&t);
                if (P == 1) break; /* one layout is like the other */
            }
}

static void split_rings(struct trial *t, int dp)
{
    struct err e = {0};
    t->spec.resources.ranks *= dp;
    t->spec.parallel.dp = dp;
    CHECK_MSG(!job_check(&t->spec, &e), "%s: %s", e.field, e.text);
}

/* Rings side by side: equal together, and not when a rank of the last one is off. */
static void test_rings(void)
{
    static struct trial t;
    for (int sp = 1; sp <= 3; sp++)
        for (int dp = 2; dp <= 3; dp++) {
            set_up(&t, sp, 37, LAYOUT_CONTIGUOUS);
            split_rings(&t, dp);
            expect_equal(&t);
            CHECK(t.out.n_ranks == sp * dp);
            t.disturb = sp * dp - 1;
            verify_once(&t);
            CHECK_MSG(!t.out.equal, "sp %d dp %d: one weight of the last ring is off", sp, dp);
            verify_fini(&t.out);
        }
}

static void test_equal_bf16(void)
{
    precision = PRECISION_BF16;
    test_equal();
    precision = PRECISION_FP32;
}

static void test_equal_other_modes(void)
{
    static struct trial t;
    set_up(&t, 3, 96, LAYOUT_ZIGZAG);
    t.spec.model.shape.tied = 1;
    expect_equal(&t);
    set_up(&t, 2, 96, LAYOUT_CONTIGUOUS);
    t.spec.determinism = DET_RANKS;
    expect_equal(&t);
    set_up(&t, 2, 96, LAYOUT_ZIGZAG);
    t.spec.data.document_mask = t.spec.data.reset_positions = 0;
    expect_equal(&t);
    set_up(&t, 4, 200, LAYOUT_ZIGZAG); /* longer than the text that is left in its window */
    t.spec.memory.recompute = RECOMPUTE_FULL;
    expect_equal(&t);
}

/* The artifacts are what they say: both gradient sets differ by what verify.json names. */
static void test_artifacts(void)
{
    static struct trial t;
    struct err e = {0};
    set_up(&t, 2, 64, LAYOUT_ZIGZAG);
    verify_once(&t);
    const char *worst = t.out.row[0].name;
    struct st_file *one = st_open(t.out.artifact[0].path, &e);
    struct st_file *two = st_open(t.out.artifact[1].path, &e);
    CHECK_MSG(one && two, "%s", e.text);
    CHECK(st_count(one) == t.out.n_rows && st_count(two) == t.out.n_rows);
    const struct st_tensor *a = st_find(one, worst), *b = st_find(two, worst);
    CHECK(a && b && a->count == b->count);
    float *x = calloc((size_t)a->count, sizeof *x), *y = calloc((size_t)a->count, sizeof *y);
    CHECK(!st_read_f32(one, a, x, &e) && !st_read_f32(two, b, y, &e));
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < a->count; i++) {
        diff += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        norm += (double)x[i] * (double)x[i];
    }
    CHECK_MSG(fabs(sqrt(diff / norm) - t.out.row[0].rel_l2) <= 1e-12, "%g", t.out.row[0].rel_l2);
    free(x);
    free(y);
    st_close(one);
    st_close(two);
    size_t size;
    char *json = file_read(t.out.artifact[2].path, 1 << 20, &size, &e);
    CHECK_MSG(json, "%s", e.text);
    CHECK((int64_t)size == t.out.artifact[2].size);
    char first[128];
    snprintf(first, sizeof first, "\"tensors\":[{\"name\":\"%s\"", worst);
    CHECK_MSG(json && strstr(json, first), "%s", json);
    struct jread j;
    jread_init(&j, json, size);
    CHECK(jread_next(&j) == J_OBJECT && !jread_skip(&j) && jread_next(&j) == J_END);
    free(json);
    verify_fini(&t.out);
}

static void expect_unequal(struct trial *t, const char *what)
{
    verify_once(t);
    CHECK_MSG(!t->out.equal, "%s on %d ranks went unnoticed", what, t->spec.resources.ranks);
    CHECK(t->sentence.code == ERR_CORRUPT);
    CHECK_MSG(strstr(t->sentence.text, "ranks do not equal 1 rank") &&
                  strstr(t->sentence.text, "worst tensor ") &&
                  strstr(t->sentence.text, t->out.row[0].name),
              "%s", t->sentence.text);
    verify_fini(&t->out);
}

static void test_one_weight_off(void)
{
    static struct trial t;
    for (int rank = 1; rank < 3; rank++) {
        set_up(&t, 3, 96, LAYOUT_ZIGZAG);
        t.disturb = rank;
        expect_unequal(&t, "a weight of one rank");
    }
}

#ifdef SEQD_MUTANTS
static void test_mutants(void)
{
    static struct trial t;
    static const int zigzag[] = {MUTANT_GRAD_OVER_P,    MUTANT_STALE_KV,      MUTANT_HOP_OFF_BY_ONE,
                                 MUTANT_ZIGZAG_SWAPPED, MUTANT_LABEL_SHIFT,   MUTANT_DOC_CROSSED,
                                 MUTANT_LOCAL_POSITION, MUTANT_TOKEN_DROPPED, MUTANT_LOSS_MEAN,
                                 MUTANT_SCALE};
    for (size_t i = 0; i < sizeof zigzag / sizeof *zigzag; i++)
        /* two ranks have as many targets each: their means may be averaged */
        for (int P = zigzag[i] == MUTANT_LOSS_MEAN ? 3 : 2; P <= 4; P++) {
            set_up(&t, P, 96, LAYOUT_ZIGZAG);
            t.mutant = zigzag[i];
            expect_unequal(&t, sp_mutant_names[zigzag[i]]);
            mutant_report(zigzag[i], !t.out.equal, "verify");
        }
}

/* What is wrong is far beyond what bf16 may differ by, too. */
static void test_mutants_bf16(void)
{
    precision = PRECISION_BF16;
    test_mutants();
    precision = PRECISION_FP32;
}
#endif

static void write_docs(void)
{
    char path[128], text[1024] = "";
    struct err e = {0};
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    for (int i = 0; i < N_DOCS; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "{\"text\":\"%s\"}\n", docs[i]);
    }
    CHECK_MSG(!file_write(path, text, strlen(text), &e), "%s", e.text);
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_verify");
    snprintf(scratch, sizeof scratch, "/tmp/test_verify.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    RUN(test_equal);
    RUN(test_rings);
    RUN(test_equal_bf16);
    RUN(test_equal_other_modes);
    RUN(test_artifacts);
    RUN(test_one_weight_off);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
    RUN(test_mutants_bf16);
#endif
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("verify");
}
