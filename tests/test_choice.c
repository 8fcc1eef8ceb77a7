/* What "auto" becomes, and what a step would take: arithmetic by hand, limits against the plan. */
#include <math.h>
#include <stdlib.h>
#include "tests/test.h"
#include "worker/plan/choice.h"

static struct job_spec spec;
static struct choice choice;

static void decoder(int64_t seq_len, int ranks)
{
    struct err e = {0};
    spec_defaults(&spec);
    spec.kind = JOB_TRAIN;
    spec.model.shape.width = 256;
    spec.model.shape.n_layers = 4;
    spec.model.shape.n_heads = 4;
    spec.model.shape.ffn_width = 512;
    spec.data.n_train = 1;
    spec_source_defaults(&spec.data.train[0]);
    CHECK(!spec_intern(&spec, "/x", 2, &spec.data.train[0].path));
    spec.data.seq_len = seq_len;
    spec.train.steps = 1;
    spec.resources.ranks = ranks;
    struct job_spec *copy = malloc(sizeof *copy);
    *copy = spec;
    CHECK_MSG(job_check(copy, &e) == 0, "%s", e.text);
    spec.model.shape = copy->model.shape; /* as a daemon knows it: head sizes filled in */
    free(copy);
}

static struct machine devices(double tflops, double link_gbs, double link_us)
{
    struct hardware h;
    struct machine m;
    struct err e = {0};
    hardware_defaults(&h);
    h.given = 1, h.devices = 4, h.memory_gib = 1;
    h.tflops = tflops, h.link_gbs = link_gbs, h.link_us = link_us;
    CHECK_MSG(hardware_check(&h, &e) == 0, "%s", e.text);
    machine_of_hardware(&h, &m);
    return m;
}

static void choose(const struct machine *m)
{
    choice_make(&spec, m, true, &choice);
}

/* Two ranks of zigzag, fp32, S 1024. By hand, a layer: q, k, v and o 256 x 256 and three of 256 x
 * 512, 655360 products a token; head 258 x 256; three passes of two flops; attention 2 S S H D for
 * the causal half, three times. */
static void test_estimate(void)
{
    decoder(1024, 2);
    struct machine m = devices(1e-3, 1e-3, 100); /* 1 GFLOP/s, 1 MB/s, 100 us */
    choose(&m);
    CHECK(choice.n >= 1 && choice.timed);
    const struct option *o = NULL;
    for (int i = 0; i < choice.n; i++)
        if (choice.option[i].strategy == STRATEGY_RSA && choice.option[i].sp == 2)
            o = &choice.option[i];
    CHECK(o != NULL);
    if (!o) return;
    const double products = 6.0 * 1024 * (4 * 655360 + 258 * 256);
    const double attention = 3 * 4 * (2.0 * 1024 * 1024 * 256);
    CHECK_MSG(fabs(o->time.compute_s / ((products + attention) / 2 / 1e9) - 1) < 1e-12, "%.17g",
              o->time.compute_s);
    CHECK(o->recompute == RECOMPUTE_NONE);
    /* A hop of keys and values is 512 rows of 512 floats, 1 MiB: one forward, one backward, and
     * one of gradients as large, in 4 layers, hidden behind attention as far as that takes. */
    const double ring = 12 * (1e-4 + 512 * 512 * 4 / 1e6);
    CHECK_MSG(fabs(o->time.hidden_s / fmin(ring, attention / 2 / 1e9) - 1) < 1e-12, "%.17g",
              o->time.hidden_s);
    CHECK(o->time.exchange_s > ring);
    CHECK(o->time.step_s == o->time.compute_s + o->time.exchange_s - o->time.hidden_s);
    CHECK(fabs(o->time.tokens_s * o->time.step_s - 1024) < 1e-9);
}

/* A state of 1 MB over 4 ranks at 1 GB/s and 100 us a hop, forward, one layer: a ring is three
 * hops of 1.1 ms one after another; all-gather is three messages that leave together, but share
 * the link; a scan in K pieces is K + 2 steps of a piece. */
static void test_states(void)
{
    static struct plan p;
    struct machine m = devices(1, 1, 100);
    const double K = plan_scan_pieces(64);
    const struct {
        enum exchange_id exchange;
        int64_t messages, bytes;
        double s;
    } ways[] = {{EXCHANGE_RING, 1, 1000000, 3 * 1.1e-3},
                {EXCHANGE_ALL_GATHER, 3, 3000000, 3 * 1.1e-3},
                {EXCHANGE_SCAN, (int64_t)K, 1000000, (K + 2) * (1e-4 + 1e-3 / K)}};
    decoder(1024, 4);
    spec.model.shape.head_dim = 64;
    for (int i = 0; i < 3; i++) {
        struct estimate t;
        p = (struct plan){
            .kind = JOB_SCORE, .S = 1024, .sp = 4, .dp = 1, .n_ranks = 4, .flops = 4e12};
        p.n_threads = p.micro_batches = 1;
        p.exchange = ways[i].exchange;
        p.strategy = STRATEGY_LASP;
        p.comm[PURPOSE_STATE].messages_sent = ways[i].messages;
        p.comm[PURPOSE_STATE].bytes_sent = ways[i].bytes;
        machine_estimate(&m, &spec, &p, &t);
        CHECK_MSG(fabs(t.exchange_s / ways[i].s - 1) < 1e-12, "%d: %g, by hand %g", i, t.exchange_s,
                  ways[i].s);
        CHECK(t.hidden_s == 0);
    }
}

/* Threads beyond the cores take turns, and copies cost the cores that compute. */
static void test_shared_cores(void)
{
    const struct profile p = {1e10, 1e10, 1e10, 1e10, 1e9, 1e-5};
    struct machine two, four;
    machine_of_profile(&p, 2, &two);
    machine_of_profile(&p, 4, &four);
    decoder(1024, 4);
    spec.parallel.sp = 4;
    choose(&four);
    const struct estimate wide = choice.option[choice.best].time;
    choose(&two);
    const struct estimate narrow = choice.option[choice.best].time;
    CHECK(fabs(narrow.compute_s / wide.compute_s - 2) < 1e-12);
    CHECK(wide.hidden_s == 0 && narrow.exchange_s == wide.exchange_s);
}

static void test_degree(void)
{
    decoder(4096, 4);
    spec.train.global_batch = 4;
    struct machine m = devices(1, 1e-4, 1000); /* a slow link: one rank each */
    choose(&m);
    CHECK(choice.option[choice.best].sp == 1 && choice.option[choice.best].dp == 4);
    CHECK(choice.option[choice.best].strategy == STRATEGY_LOCAL);
    spec.train.global_batch = 1; /* dp has nothing to share out */
    choose(&m);
    CHECK(choice.option[choice.best].sp == 4);
    CHECK(strstr(choice.warning, "will not help") && strstr(choice.warning, "4096"));
    m = devices(1e-4, 100, 1); /* a fast one: worth it */
    choose(&m);
    CHECK(choice.option[choice.best].sp == 4 && !*choice.warning && choice.alone_s > 0);
    CHECK(choice.alone_s > 3 * choice.option[choice.best].time.step_s);
    /* what does not fit is not chosen, though it were fastest */
    m = devices(1, 1e-4, 1000);
    spec.train.global_batch = 4;
    choose(&m);
    int64_t whole = 0, shared = 0;
    for (int i = 0; i < choice.n; i++) {
        if (choice.option[i].sp == 1) whole = choice.option[i].size;
        if (choice.option[i].sp == 4) shared = choice.option[i].size;
    }
    spec.memory.recompute = RECOMPUTE_NONE; /* or one rank would make itself smaller */
    spec.resources.memory_mib = (whole + shared) / 2 >> 20;
    CHECK(whole > shared && shared > 0);
    choose(&m);
    CHECK(choice.option[choice.best].fits && choice.option[choice.best].sp > 1);
}

/* What was asked for stays; without a machine nothing is decided by time. */
static void test_asked(void)
{
    struct machine m = devices(1, 1e-4, 1000), none = {0};
    decoder(4096, 4);
    spec.train.global_batch = 4;
    spec.parallel.strategy = STRATEGY_RSA;
    spec.parallel.sp = 2;
    choose(&m);
    CHECK(choice.asked && choice.n == 1 && choice.option[0].sp == 2 && choice.option[0].dp == 2);
    decoder(4096, 4);
    spec.train.global_batch = 4;
    choose(&none);
    CHECK(!choice.timed && choice.option[choice.best].sp == 4);
    choice_apply(&choice, &spec);
    struct err e = {0};
    CHECK(job_check(&spec, &e) == 0 && spec.parallel.sp == 4 && spec.parallel.dp == 1);
    CHECK(spec.parallel.strategy == STRATEGY_RSA && spec.parallel.layout == LAYOUT_ZIGZAG);
}

/* The same question, the same answer, to the bit. */
static void test_pure(void)
{
    static struct choice first;
    struct machine m = devices(1, 10, 10);
    decoder(4096, 4);
    spec.train.global_batch = 4;
    spec.resources.memory_mib = 100;
    choose(&m);
    first = choice;
    choose(&m);
    CHECK(!memcmp(&first, &choice, sizeof first));
}

static bool fits(int64_t seq_len)
{
    static struct plan p;
    static struct job_spec s;
    struct err e = {0};
    s = spec;
    choice_apply(&choice, &s);
    CHECK(job_check(&s, &e) == 0);
    s.data.seq_len = seq_len;
    return plan_make(&s, s.resources.memory_mib << 20, &p, &e) == 0;
}

static void test_limits(void)
{
    struct machine none = {0};
    for (int64_t mib = 40; mib <= 2560; mib *= 4)
        for (int sp = 1; sp <= 4; sp *= 2) {
            decoder(2048, sp);
            spec.parallel.sp = sp;
            spec.resources.memory_mib = mib;
            choose(&none);
            const int64_t most = choice.max_seq_len;
            CHECK_MSG(most == 0 || (fits(most) && !fits(most + 1)), "%lld MiB, sp %d: %lld",
                      (long long)mib, sp, (long long)most);
            if (mib == 2560) CHECK(most > 2048);
            CHECK(choice.max_batch == most / 2048);
        }
    CHECK(choice.longest == choice.max_seq_len);
    spec.resources.memory_mib = 0;
    choose(&none);
    CHECK(choice.max_seq_len == 0); /* no limit is known */
}

static void test_nothing_fits(void)
{
    struct machine m = devices(1, 10, 10);
    decoder(4096, 4);
    spec.resources.memory_mib = 1;
    choose(&m);
    CHECK(choice.n >= 1 && !choice.option[choice.best].fits);
    CHECK(strstr(choice.reason, "none of") && choice.max_seq_len == 0);
    for (int i = 0; i < choice.n; i++)
        CHECK(choice.option[choice.best].size <= choice.option[i].size);
}

static void test_json(void)
{
    static char out[32768];
    struct jwrite w;
    struct machine m = devices(1, 10, 10);
    decoder(4096, 4);
    spec.train.global_batch = 4;
    choose(&m);
    jwrite_init(&w, out, sizeof out);
    jwrite_object(&w, NULL);
    choice_write(&choice, &m, &w);
    jwrite_end(&w);
    CHECK(jwrite_finish(&w) > 0);
    CHECK(strstr(out, "\"weighed\":[{\"strategy\":") && strstr(out, "\"chosen\":true"));
    CHECK(strstr(out, "\"estimate\":{\"step_s\":") && strstr(out, "\"source\":\"given\""));
}

int main(void)
{
    RUN(test_estimate);
    RUN(test_states);
    RUN(test_shared_cores);
    RUN(test_degree);
    RUN(test_asked);
    RUN(test_pure);
    RUN(test_limits);
    RUN(test_nothing_fits);
    RUN(test_json);
    return test_done("choice");
}
