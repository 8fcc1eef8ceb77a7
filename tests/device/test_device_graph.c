/* Checks that operations which the device runs repeatedly are launched as CUDA graphs
 * (kernels/cuda/graph.h). Most operations must be launched by graphs, and the results must have
 * the same bits as when operations run one by one. The first tests use short lists of operations,
 * each with one special property. Later tests run trainings (also on two ranks and with dropout),
 * and decoding. SEQD_TEST_DEVICE names the device; if it is not set, the device is "emulated".
 * tests: needs golden/mistral golden/tnl libkernels_emulated.so */
#include <dlfcn.h>
#include "api/core/job.h"
#include "tests/lib/lm.h"

/* ---- lists of operations --------------------------------------------------------------------- */

enum { N = 400 };

/* Two devices. Only the first one uses graphs. Every call is made to both devices, and the results
 * must be the same. */
static struct {
    struct be *be[2];
    float *x[2]; /* N floats each */
    char *scratch[2];
    /* the number of operations that had run by graph when by_graph() was called last */
    int64_t n_by_graph;
} pair;

static void pair_open(void)
{
    static const float zero[N];
    struct err e = {0};
    pair.n_by_graph = 0;
    for (int i = 0; i < 2; i++) {
        const struct be_options o = {
            .device = engine_device(), .n_threads = 1, .scratch_later = true, .no_graphs = i == 1};
        struct be *b = pair.be[i] = be_open(&o, &e);
        CHECK_MSG(b, "%s", e.text);
        if (!b) abort();
        pair.x[i] = b->ops->alloc(b, N * 4, &e);
        pair.scratch[i] = b->ops->alloc(b, 1 << 20, &e);
        be_give_scratch(b, pair.scratch[i], 1 << 20);
        b->ops->upload(b, pair.x[i], zero, sizeof zero);
    }
    CHECK(pair.be[0]->graphs && !pair.be[1]->graphs);
}

static void pair_close(void)
{
    for (int i = 0; i < 2; i++) {
        pair.be[i]->ops->free(pair.be[i], pair.x[i], N * 4);
        pair.be[i]->ops->free(pair.be[i], pair.scratch[i], 1 << 20);
        be_close(pair.be[i]);
    }
}

/* Checks that both devices hold the same numbers. To compare them, this function reads the numbers
 * from the devices, which also ends the current list of operations. */
static void pair_check(const char *what)
{
    float got[2][N];
    struct err e = {0};
    for (int i = 0; i < 2; i++) {
        pair.be[i]->ops->download(pair.be[i], got[i], pair.x[i], sizeof got[i]);
        CHECK_MSG(!pair.be[i]->ops->sync(pair.be[i], &e), "%s: %s", what, e.text);
    }
    CHECK_MSG(!memcmp(got[0], got[1], sizeof got[0]), "%s", what);
}

/* by_graph returns the number of operations that have run by graph since it was called last.
 * n_graphs returns the number of graphs that exist. */
static int64_t by_graph(void)
{
    const int64_t before = pair.n_by_graph;
    pair.n_by_graph = pair.be[0]->graphs->n_by_graph;
    return pair.n_by_graph - before;
}
static int64_t n_graphs(void)
{
    return pair.be[0]->graphs->n_graphs;
}

/* fill computes x[at] = value, and add computes x[at] += x[from]. Both run on both devices. */
static void fill(int at, float value)
{
    for (int i = 0; i < 2; i++) pair.be[i]->ops->fill(pair.be[i], pair.x[i] + at, 1, value);
}
static void add(int at, int from)
{
    for (int i = 0; i < 2; i++) {
        struct add_args a = {.y = pair.x[i] + at, .x = pair.x[i] + from, .n = 1};
        pair.be[i]->ops->add(pair.be[i], &a);
        /* overwrites the arguments, because a graph must not read them after the call */
        memset(&a, 0xff, sizeof a);
    }
}
static void upload(int at, float value)
{
    for (int i = 0; i < 2; i++)
        pair.be[i]->ops->upload(pair.be[i], pair.x[i] + at, &value, sizeof value);
}

/* Runs n operations, each of which reads the result of the previous operation. Operation number
 * `odd` has a new argument in every call, so that it never equals an earlier operation. If `odd`
 * is -1, all operations have the same arguments in every call. */
static void steady(int n, int odd)
{
    static float number = 1;
    for (int k = 1; k <= n; k++)
        if (k - 1 == odd)
            fill(k, number++);
        else
            add(k, k - 1);
}

static void test_third_time(void)
{
    pair_open();
    for (int k = 0; k < 5; k++) {
        upload(0, (float)k + 0.5f);
        steady(9, -1);
        pair_check("a list again");
        CHECK(by_graph() == (k < 2 ? 0 : 9) && n_graphs() == (k >= 2));
    }
    /* a list of 3 operations is so short that no graph is made for it */
    for (int k = 0; k < 5; k++) {
        steady(3, -1);
        pair_check("a short one");
        CHECK(by_graph() == 0 && n_graphs() == 1);
    }
    pair_close();
}

/* Checks that several graphs are used if there are more operations than a list has room for. */
static void test_full_list(void)
{
    pair_open();
    for (int k = 0; k < 4; k++) {
        upload(0, 1);
        steady(N - 1, -1);
        pair_check("more than a list");
        CHECK(by_graph() >= (k < 2 ? 0 : N - 1 - 3) && n_graphs() >= (k < 2 ? 0 : 4));
    }
    pair_close();
}

static void test_gaps(void)
{
    pair_open();
    upload(0, 1);
    for (int k = 0; k < 5; k++) {
        steady(12, 5);
        pair_check("one that is never the same");
        CHECK(by_graph() == (k < 2 ? 0 : 11) && n_graphs() == (k < 2 ? 0 : 2));
    }
    /* from now on, the operation with i = 9 has a new argument in each round */
    for (int k = 0; k < 3; k++) {
        for (int i = 1; i <= 12; i++)
            i == 6 ? fill(6, (float)(9 + k)) : add(i, i == 9 ? 40 + k : i - 1);
        upload(40 + k, 3);
        pair_check("another that differs");
        /* Only the first list, of 5 operations, still runs by graph. The second list had 6. One of
         * them now changes in each round, which leaves lists of 2 and of 3. Both are too short for
         * a graph. */
        CHECK(by_graph() == 5);
    }
    CHECK(n_graphs() == 1);
    pair_close();
}

/* Checks lists as the layers of a model make them. Every layer has the same operations. Some of
 * these operations have the same arguments in all layers, and one of them has new arguments each
 * time. */
static void test_alike(void)
{
    pair_open();
    for (int k = 0; k < 4; k++) {
        for (int layer = 0; layer < 6; layer++) {
            upload(300, (float)(layer + k));
            for (int i = 0; i < 5; i++) add(301 + i, 300 + i);
            fill(320, (float)(10 * k + layer));
            for (int i = 0; i < 6; i++) add(20 * layer + i, 300 + i);
        }
        pair_check("layers");
        CHECK(by_graph() == (k < 2 ? 0 : 66) && n_graphs() == (k < 2 ? 0 : 12));
    }
    pair_close();
}

/* Checks that uploads and transfers that are called between two lists run between them. */
static void test_order(void)
{
    pair_open();
    for (int k = 0; k < 5; k++) {
        upload(0, (float)k);
        steady(6, -1);
        /* the operations of the previous list must have read x[0] before it is overwritten */
        upload(0, -1);
        steady(5, -1);
        for (int i = 0; i < 2; i++) pair.be[i]->ops->transfer_begin(pair.be[i]);
        steady(4, -1);
        for (int i = 0; i < 2; i++) {
            const struct be_ops *ops = pair.be[i]->ops;
            ops->transfer_end(pair.be[i], 3);
            ops->transfer_await(pair.be[i], 3);
            ops->copy(pair.be[i], pair.x[i] + 100, pair.x[i], 80);
        }
        steady(7, -1);
        pair_check("lists between");
        CHECK(by_graph() == (k < 2 ? 0 : 6 + 5 + 4 + 8) && n_graphs() == (k < 2 ? 0 : 4));
    }
    pair_close();
}

static void drop(uint32_t step, double rate)
{
    for (int i = 0; i < 2; i++) {
        struct attn_drop d = {.rate = rate, .key = {7, step}, .layer = 1};
        const struct dropout_args a = {.x = tensor_f32(pair.x[i], 1, 40, 40), .drop = &d};
        pair.be[i]->ops->dropout(pair.be[i], &a);
        memset(&d, 0xff, sizeof d);
    }
}

/* Checks dropout, whose key changes in every step. The key is passed by pointer. */
static void test_dropout_key(void)
{
    pair_open();
    for (uint32_t k = 0; k < 6; k++) {
        for (int i = 0; i < 40; i++) upload(i, 1);
        steady(5, -1);
        drop(k, 0.5);
        steady(5, -1);
        pair_check("another key each time");
        CHECK(by_graph() == (k < 2 ? 0 : 10));
    }
    for (int k = 0; k < 4; k++) {
        steady(6, -1);
        drop(3, 0.25);
        pair_check("the same key");
        CHECK(by_graph() == (k < 2 ? 0 : 7));
    }
    pair_close();
}

/* Sums the rows of a matrix. This operation uses the device's scratch memory. */
static void sum_rows(void)
{
    for (int i = 0; i < 2; i++) {
        struct bias_bwd_args a;
        memset(&a, rand(), sizeof a); /* also fills the padding between the members of a */
        a.dy.data = pair.x[i];
        a.dy.rows = 40;
        a.dy.cols = a.dy.ld = 2;
        a.dy.dtype = DT_F32;
        a.db = pair.x[i] + 200;
        pair.be[i]->ops->bias_bwd(pair.be[i], &a);
    }
}

/* Checks that a graph is discarded if its operations use memory that is freed, or a scratch that
 * is replaced. The graph contains the addresses of that memory, and must not be launched again. */
static void test_memory_that_goes(void)
{
    struct err e = {0};
    char *other[2];
    pair_open();
    for (int k = 0; k < 8; k++) {
        upload(0, (float)k);
        steady(9, -1);
        sum_rows();
        pair_check("another scratch");
        CHECK(by_graph() == (k < 2 ? 0 : 10) && n_graphs() == (k >= 2));
        for (int i = 0; i < 2 && k == 4; i++) {
            static const char zeros[4096];
            struct be *b = pair.be[i];
            b->scratch = other[i] = b->ops->alloc(b, 1 << 20, &e);
            b->ops->upload(b, pair.scratch[i], zeros, sizeof zeros);
        }
    }
    char old[4096];
    pair.be[0]->ops->download(pair.be[0], old, pair.scratch[0], sizeof old);
    for (size_t i = 0; i < sizeof old; i++)
        if (old[i]) CHECK_MSG(0, "the scratch of before was written to");
    pair.be[0]->ops->free(pair.be[0], other[0], 1 << 20);
    CHECK(n_graphs() == 0);
    pair.be[1]->ops->free(pair.be[1], other[1], 1 << 20);
    pair_close();
}

/* Checks that new lists get graphs even if the device has already seen more lists than it can
 * record at the same time. Lists that were not used for a long time are removed to make room for
 * them. */
static void test_room(void)
{
    enum { MANY = 300, LATER = (1 << 14) + 10 };
    pair_open();
    struct be *one = pair.be[1];
    /* Uses one device as both devices of the pair, so that each operation runs twice on it.
     * Numbers are not compared, because the loop is long. */
    pair.be[1] = pair.be[0];
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < MANY; i++) {
            for (int n = 0; n < 4; n++) add(i + n, n);
            CHECK(!pair.be[0]->ops->sync(pair.be[0], NULL));
        }
    const int64_t known = n_graphs();
    CHECK(known > 100 && known < MANY && by_graph() == 2 * 8 * known);
    /* A list of one operation is not recorded, so that no graph is launched for it. The lists that
     * are recorded become old in this loop. */
    for (int k = 0; k < LATER; k++) {
        pair.be[0]->ops->fill(pair.be[0], pair.x[0], 0, 0);
        CHECK(!pair.be[0]->ops->sync(pair.be[0], NULL));
    }
    for (int k = 0; k < 3; k++) {
        for (int n = 0; n < 4; n++) add(350 + n, n);
        CHECK(!pair.be[0]->ops->sync(pair.be[0], NULL));
    }
    CHECK(by_graph() == 8 && n_graphs() == known);
    pair.be[1] = one;
    pair_close();
}

/* Checks that operations run one by one if a graph cannot be made or launched. The device then has
 * to report the reason. */
static void test_failures(void)
{
    void *dl = dlopen("libkernels_emulated.so", RTLD_NOW | RTLD_NOLOAD);
    void (*fail)(int) = dl ? (void (*)(int))dlsym(dl, "emu_graphs_fail") : NULL;
    if (!fail) return; /* left out, because only the emulated device can be made to fail */
    for (int where = 1; where <= 4; where++) {
        pair_open();
        for (int k = 0; k < 5; k++) {
            upload(0, (float)k);
            steady(12, 6);
            if (k == 2) fail(where);
            pair_check("a device without graphs");
            fail(0);
        }
        CHECK(by_graph() == 0 && n_graphs() <= 1);
        CHECK_MSG(strstr(pair.be[0]->graphs->why_off, where == 4 ? "launching" : "making"), "%s",
                  pair.be[0]->graphs->why_off);
        pair_close();
    }
}

/* ---- trainings ------------------------------------------------------------------------------- */

static struct job_spec spec; /* static because it has 75 KiB, too many for the stack */

enum { STEPS = 4 };

struct seen {
    struct be_graphs after[STEPS]; /* graphs of rank 0 */
    int n;
    bool graphs;
};

static void after(struct train *t, int rank, void *arg)
{
    struct seen *s = arg;
    const struct be_graphs *g = t->model.be->graphs;
    CHECK((g != NULL) == s->graphs);
    if (rank == 0 && g) s->after[s->n++] = *g;
}

static double share(const struct be_graphs *a, const struct be_graphs *b)
{
    return (double)(b->n_by_graph - a->n_by_graph) / (double)(b->n_ops - a->n_ops);
}

static struct seen train(struct engine_run *r, int P, bool graphs)
{
    static struct synth y;
    struct seen s = {.graphs = graphs};
    y = (struct synth){.S = spec.data.seq_len, .doc_len = 9};
    y.vocab = (int32_t)spec.model.shape.vocab;
    setenv("SEQD_CUDA_GRAPHS", graphs ? "1" : "0", 1);
    *r = (struct engine_run){.source = {synth_batch, synth_targets, &y},
                             .P = P,
                             .steps = STEPS,
                             .after_step = after,
                             .arg = &s};
    engine_go(r, &spec);
    unsetenv("SEQD_CUDA_GRAPHS");
    return s;
}

/* Trains once with graphs and once without, and checks that the results are the same. `least` is
 * the smallest allowed share of operations that run by graph in the last step. */
static void both_ways(int P, double least)
{
    struct engine_run with, without;
    engine_on_device(&spec);
    const struct seen s = train(&with, P, true);
    train(&without, P, false);
    const size_t size = (size_t)with.plan.n_params * 4;
    CHECK(!memcmp(with.weights, without.weights, size));
    CHECK(!memcmp(with.adam_m, without.adam_m, size));
    CHECK(!memcmp(with.adam_v, without.adam_v, size));
    CHECK(!memcmp(with.loss, without.loss, sizeof with.loss));
    CHECK(!memcmp(with.norm, without.norm, sizeof with.norm));
    CHECK_MSG(s.n == STEPS && !s.after[STEPS - 1].why_off[0], "%s", s.after[STEPS - 1].why_off);
    const double got = s.n == STEPS ? share(&s.after[STEPS - 2], &s.after[STEPS - 1]) : 0;
    printf("     %d ranks: %.3f of a step's operations by %lld graphs\n", P, got,
           (long long)s.after[STEPS - 1].n_graphs);
    CHECK_MSG(got >= least, "%.3f by graphs", got);
    engine_free(&with);
    engine_free(&without);
}

/* Checks that a training whose learning rate changes in every step has the same results with
 * graphs. */
static void test_training(void)
{
    engine_spec(&spec, 37);
    both_ways(1, 0.8);
}

static void test_accumulation(void)
{
    engine_spec(&spec, 21);
    spec.train.global_batch = 3;
    spec.memory.recompute = RECOMPUTE_FULL;
    both_ways(1, 0.9);
}

static void test_ranks(void)
{
    engine_spec(&spec, 37);
    both_ways(2, 0.75);
}

static void test_dropout(void)
{
    engine_spec(&spec, 37);
    spec.train.attention_dropout = 0.1;
    both_ways(1, 0.75);
}

/* ---- decoding: against the goldens, token by token ------------------------------------------- */

static void decoded(const char *name, int P, double least)
{
    static const struct be_graphs none;
    struct lm_golden g;
    lm_open(&g, name);
    const struct be_graphs all = lm_decode_go(&g, P);
    lm_close(&g);
    printf("     %s, %d ranks: %.3f of all operations by %lld graphs\n", name, P,
           share(&none, &all), (long long)all.n_graphs);
    CHECK(!all.why_off[0] && share(&none, &all) >= least);
}

/* Checks decoding. The required share of operations is small, because the share includes the
 * prompts and the first tokens, whose operations the device has not seen before. */
static void test_decode(void)
{
    decoded("mistral", 1, 0.1);
    decoded("tnl", 2, 0.1);
}

int main(void)
{
    setenv("SEQD_TEST_DEVICE", "emulated", 0);
    RUN(test_third_time);
    RUN(test_full_list);
    RUN(test_gaps);
    RUN(test_alike);
    RUN(test_order);
    RUN(test_dropout_key);
    RUN(test_memory_that_goes);
    RUN(test_room);
    RUN(test_failures);
    RUN(test_training);
    RUN(test_accumulation);
    RUN(test_ranks);
    RUN(test_dropout);
    RUN(test_decode);
    return test_done("device_graph");
}
