/* What "auto" becomes, and what a step would take: arithmetic by hand, limits against the plan. */
#include <math.h>
#include <stdlib.h>
#include "api/core/job.h"
#include "tests/lib/profile.h"
#include "tests/lib/test.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/choice.h"
#include "worker/plan/form.h"

static struct job_spec spec;
static struct choice choice;

static void decoder(int64_t seq_len, int ranks)
{
    struct err e = {0};
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
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
    CHECK_MSG(family_check(copy, &e) == 0, "%s", e.text);
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
    /* A hop of keys and values is 512 rows of 512 floats, 1 MiB: one forward, one backward, and one
     * of gradients as large, in 4 layers, hidden for as long as attention takes. */
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
    const struct profile p = profile_of(1e10, 1e9, 1e9, 1e-5);
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
    /* RoPE's factor counts, whatever the lengths say */
    spec.model.rope.type = 1 + ROPE_YARN;
    spec.model.rope.rule.factor = 4;
    spec.model.rope.rule.original = spec.model.shape.max_pos = 4096;
    choose(&m);
    CHECK(strstr(choice.rope_warning, "factor 4 as it is given"));
    spec.model.shape.max_pos *= 4;
    choose(&m);
    CHECK(!*choice.rope_warning);
    spec.model.rope.type = 0;
    spec.model.rope.rule.factor = spec.model.rope.rule.original = 0;
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
    spec.memory.mlp_chunk_tokens = 0;
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
    CHECK(family_check(&spec, &e) == 0 && spec.parallel.sp == 4 && spec.parallel.dp == 1);
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
    CHECK(family_check(&s, &e) == 0);
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

/* ---- every family ---------------------------------------------------------------------------- */

static const struct {
    int family;
    bool plain; /* of softmax attention alone */
} kinds[] = {{FAMILY_LLAMA, true},   {FAMILY_BERT, true},    {FAMILY_TNL, false},
             {FAMILY_LINEAR, false}, {FAMILY_RETNET, false}, {FAMILY_MINIMAX, false}};
#define N_KINDS ((int)(sizeof kinds / sizeof *kinds))

static void model_of(int family, int64_t seq_len, int ranks)
{
    struct err e = {0};
    static struct job_spec checked;
    decoder(seq_len, ranks);
    struct model_shape *m = &spec.model.shape;
    m->family = family;
    m->n_kv_heads = m->n_heads;
    m->vocab = 300;
    if (family == FAMILY_MINIMAX) {
        m->n_experts = 4, m->experts_per_token = 2;
        m->layer_mask[0] = 5; /* two of four layers are linear */
        for (int i = 0; i < 6; i++) m->residual[i] = 1;
    }
    if (family == FAMILY_QWEN3_5) {
        m->delta_heads = m->delta_key_heads = 4, m->conv_width = 4;
        m->delta_key_dim = m->delta_value_dim = 64;
        m->layer_mask[0] = 7;
    }
    const int64_t positions = m->max_pos;
    checked = spec;
    CHECK_MSG(family_check(&checked, &e) == 0 && family_complete(&checked.model.shape, &e) == 0,
              "family %d: %s", family, e.text);
    spec.model.shape = checked.model.shape;
    spec.model.shape.max_pos = positions;
}

/* The longest is the longest of every family, whatever splits it; what the limits of a strategy are
 * made of is the plan's business. BERT's table of positions grows with it, unless it was given. */
static void test_family_limits(void)
{
    struct machine m = devices(1e-2, 1, 10);
    for (int k = 0; k < N_KINDS; k++)
        for (int sp = 1; sp <= 4; sp *= 4) {
            model_of(kinds[k].family, 1024, sp);
            spec.parallel.sp = sp;
            spec.resources.memory_mib = 200;
            choose(&m);
            const int64_t most = choice.max_seq_len;
            CHECK_MSG(choice.n >= 1 && most > 1024, "family %d sp %d: %d weighed, longest %lld",
                      kinds[k].family, sp, choice.n, (long long)most);
            CHECK(choice.max_batch == most / 1024 && choice.longest == most);
            if (kinds[k].family == FAMILY_BERT) spec.model.shape.max_pos = most;
            CHECK_MSG(fits(most), "family %d sp %d", kinds[k].family, sp);
            if (kinds[k].family == FAMILY_BERT) spec.model.shape.max_pos = most + 1;
            CHECK_MSG(!fits(most + 1), "family %d sp %d: %lld is not the longest", kinds[k].family,
                      sp, (long long)most);
        }
    model_of(FAMILY_BERT, 512, 2);
    spec.model.shape.max_pos = 600;
    spec.resources.memory_mib = 500;
    choose(&m);
    CHECK(choice.max_seq_len == 600);
}

/* And of every way that splits it. */
static void test_strategy_limits(void)
{
    static const struct {
        int family, strategy, form, exchange;
    } ways[] = {{FAMILY_LLAMA, STRATEGY_RSA, FORM_TWO_PASS, EXCHANGE_AUTO},
                {FAMILY_LLAMA, STRATEGY_RSA, FORM_TWO_PASS_SCATTER, EXCHANGE_AUTO},
                {FAMILY_BERT, STRATEGY_RSA, FORM_ALL_GATHER, EXCHANGE_AUTO},
                {FAMILY_LLAMA, STRATEGY_ULYSSES, FORM_AUTO, EXCHANGE_AUTO},
                {FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, EXCHANGE_ALL_GATHER},
                {FAMILY_MINIMAX, STRATEGY_LASP, FORM_AUTO, EXCHANGE_SCAN}};
    struct machine none = {0};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        model_of(ways[i].family, 1024, 4);
        spec.parallel.sp = 4;
        spec.parallel.strategy = ways[i].strategy;
        spec.parallel.form = ways[i].form;
        spec.parallel.exchange = ways[i].exchange;
        spec.resources.memory_mib = 200;
        choose(&none);
        const int64_t most = choice.max_seq_len;
        CHECK_MSG(choice.n == 1 && choice.asked && most > 1024, "%zu: %d, %lld", i, choice.n,
                  (long long)most);
        for (int more = 0; more <= 1; more++) {
            if (ways[i].family == FAMILY_BERT) spec.model.shape.max_pos = most + more;
            CHECK_MSG(fits(most + more) == !more, "%zu: %lld tokens", i, (long long)most + more);
        }
    }
}

/* A video's limit is in frames of the asked size. */
static void test_frames_limit(void)
{
    struct machine m = devices(1e-2, 1, 10);
    for (int sp = 1; sp <= 4; sp *= 4) {
        static struct plan p;
        static struct job_spec s;
        struct err e = {0};
        decoder(1024, sp);
        struct model_shape *shape = &spec.model.shape;
        shape->family = FAMILY_STDIT3;
        shape->n_kv_heads = shape->n_heads;
        shape->caption_channels = 64, shape->text_len = 8;
        spec.data.train[0].format = DATA_LATENTS;
        spec.data.seq_len = 0;
        spec.data.frames = 4, spec.data.height = spec.data.width = 16;
        spec.parallel.sp = sp;
        spec.resources.memory_mib = 300;
        s = spec;
        CHECK_MSG(family_check(&s, &e) == 0 && !family_complete(&s.model.shape, &e), "%s", e.text);
        *shape = s.model.shape;
        choose(&m);
        const int64_t most = choice.max_seq_len;
        CHECK(choice.frames && choice.max_batch == 0 && choice.longest == most && most > 4);
        for (int more = 0; more <= 1; more++) {
            s = spec;
            choice_apply(&choice, &s);
            s.data.frames = most + more;
            CHECK_MSG(family_check(&s, &e) == 0, "%s", e.text);
            CHECK_MSG((plan_make(&s, s.resources.memory_mib << 20, &p, &e) == 0) == !more,
                      "sp %d: %lld frames", sp, (long long)most + more);
        }
    }
}

static const struct option *found(int strategy, int form, int exchange)
{
    for (int i = 0; i < choice.n + choice.n_compared; i++) {
        const struct option *o = &choice.option[i];
        if (o->strategy == strategy && (form < 0 || o->form == form) &&
            (exchange < 0 || o->exchange == exchange) && o->sp == choice.option[choice.best].sp)
            return o;
    }
    return NULL;
}

/* ---- what a step costs ----------------------------------------------------------------------- */

static struct estimate estimate_of(const struct machine *m, const struct job_spec *s,
                                   struct plan *p)
{
    static struct job_spec checked;
    struct estimate t = {0};
    struct err e = {0};
    checked = *s;
    CHECK_MSG(family_check(&checked, &e) == 0, "%s: %s", e.field, e.text);
    CHECK_MSG(plan_make(&checked, 0, p, &e) == 0, "%s: %s", e.field, e.text);
    machine_estimate(m, &checked, p, &t);
    return t;
}

/* At one rate for every flop, the steps that the ranks run cost what the plan counts of the whole
 * sequence: two ways to the number, for every family. Recomputing costs beside that; BERT's head,
 * 256 x 256 before the logits, is computed again twice in every mode. */
static void test_work_is_the_flops(void)
{
    static struct plan p;
    const struct machine m = devices(1e-3, 1, 10);
    for (int k = 0; k < N_KINDS; k++)
        for (int sp = 1; sp <= 4; sp *= 4) {
            model_of(kinds[k].family, 1024, sp);
            spec.parallel.sp = sp;
            spec.memory.recompute = RECOMPUTE_NONE;
            const double none = estimate_of(&m, &spec, &p).compute_s;
            const double again = kinds[k].family == FAMILY_BERT ? 2 * 2.0 * 1024 * 256 * 256 : 0;
            CHECK_MSG(fabs(none * sp * 1e9 / (p.flops + again) - 1) < 1e-9,
                      "family %d sp %d: %g of %g", kinds[k].family, sp, none * sp * 1e9, p.flops);
            spec.memory.recompute = RECOMPUTE_FULL;
            const double full = estimate_of(&m, &spec, &p).compute_s;
            CHECK(full > 1.05 * none && full < 1.5 * none && p.recompute == RECOMPUTE_FULL);
        }
}

/* A proof is the ranks' pass, and then the whole on one of them. */
static void test_proof(void)
{
    static struct plan p;
    const struct machine m = devices(1e-3, 1, 10);
    for (int sp = 1; sp <= 4; sp *= 2) {
        model_of(FAMILY_LLAMA, 1024, sp);
        spec.kind = JOB_VERIFY;
        spec.train.steps = 0;
        spec.parallel.sp = sp;
        spec.verify.max_tokens = 1024;
        spec.memory.recompute = RECOMPUTE_NONE;
        const double took = estimate_of(&m, &spec, &p).compute_s;
        CHECK_MSG(fabs(took * 1e9 / (p.flops / sp + p.flops) - 1) < 1e-9, "sp %d: %g of %g", sp,
                  took * 1e9, p.flops);
    }
}

/* Rates of the sizes at hand: between two that were measured on a line of logarithms. A narrow
 * linear attention is what it was measured to be, whatever products reach. */
static void test_rates(void)
{
    static struct plan p;
    struct profile slow = profile_of(1e10, 1e12, 1e9, 1e-5);
    struct machine m, same;
    double at[2];
    model_of(FAMILY_TNL, 1024, 1);
    spec.model.shape.layer_mask[0] = 0;
    spec.memory.recompute = RECOMPUTE_NONE;
    machine_of_profile(&slow, 4, &same);
    const double even = estimate_of(&same, &spec, &p).compute_s;
    for (int i = 0; i < PROFILE_SIZES; i++)
        slow.linear[i] = slow.linear_back[i] = 1e10 * profile_heads[i] / 1e6;
    machine_of_profile(&slow, 4, &m);
    for (int i = 0; i < 2; i++) {
        struct model_shape *s = &spec.model.shape;
        s->n_heads = s->n_kv_heads = i ? 4 : 16; /* of 64, and of 16: neither is measured */
        s->head_dim = 256 / s->n_heads;
        at[i] = estimate_of(&m, &spec, &p).compute_s;
    }
    /* Flops of all heads grow with the head size as the rate does. */
    CHECK_MSG(fabs(at[1] / at[0] - 1) < 0.02 && at[0] > 100 * even, "%g s and %g s, %g at one rate",
              at[0], at[1], even);
}

/* Element by element: a model of many narrow layers is not free where products are. */
static void test_elements(void)
{
    static struct plan p;
    const struct profile fast = profile_of(1e18, 1e9, 1e12, 1e-9);
    struct machine m;
    machine_of_profile(&fast, 1, &m);
    model_of(FAMILY_LLAMA, 1024, 1);
    const double four = estimate_of(&m, &spec, &p).compute_s;
    /* Of a layer forward and back at least two norms and a gate of 512 columns. */
    CHECK_MSG(four > 4 * 1024 * (2 * 256 + 512) * 3 / 1e9 && four < 1, "%g s", four);
    spec.model.shape.n_layers = 8;
    const double eight = estimate_of(&m, &spec, &p).compute_s;
    CHECK(eight > 1.5 * four && eight < 2 * four);
}

/* What is listed of each family, and what is not. */
static void test_compared(void)
{
    struct machine m = devices(1e-3, 1, 10);
    for (int k = 0; k < N_KINDS; k++) {
        model_of(kinds[k].family, 1024, 4);
        spec.parallel.sp = 4;
        choose(&m);
        const bool llama = kinds[k].family == FAMILY_LLAMA;
        CHECK(!found(STRATEGY_RSA, FORM_ALL_GATHER, -1) == !kinds[k].plain);
        CHECK(!found(STRATEGY_RSA, FORM_TWO_PASS, -1) == !kinds[k].plain);
        CHECK(!found(STRATEGY_RSA, FORM_TWO_PASS_SCATTER, -1) == !kinds[k].plain);
        CHECK(!found(STRATEGY_ULYSSES, -1, -1) == !kinds[k].plain);
        for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++)
            CHECK(!found(STRATEGY_LASP, -1, x) == kinds[k].plain);
        for (int s = STRATEGY_TP; s <= STRATEGY_TP_SP; s++) {
            const struct option *o = found(s, -1, -1);
            CHECK(!o == !kinds[k].plain);
            if (o) CHECK(!o->runs && strstr(o->note, "not run by jobs") && o->time.step_s > 0);
            if (o) CHECK((o->size > 0) == llama);
        }
        for (int i = 0; i < choice.n + choice.n_compared; i++)
            CHECK(choice.option[i].bytes > 0 && choice.option[i].messages > 0 &&
                  !choice.option[i].note == (i < choice.n));
    }
    spec.parallel.strategy = STRATEGY_LASP; /* asked for: the others are compared */
    spec.parallel.exchange = EXCHANGE_SCAN;
    choose(&m);
    CHECK(choice.asked && choice.n == 1 && choice.n_compared == 2);
    CHECK(found(STRATEGY_LASP, -1, EXCHANGE_RING)->note != NULL);
    spec.parallel.sp = spec.resources.ranks = 1;
    spec.parallel.strategy = STRATEGY_AUTO;
    choose(&m);
    CHECK(choice.n == 1 && choice.n_compared == 0);
}

/* States that wait for those before them: the time of the ring says that ranks take turns, that of
 * maps what they cost more, and the faster is chosen; the ring alone under "ranks". */
static void test_in_turn(void)
{
    static struct plan p;
    const struct machine m = devices(1e-3, 1, 10);
    struct err e = {0};
    double took[2];
    for (int i = 0; i < 2; i++) {
        model_of(FAMILY_QWEN3_5, 1024, i ? 4 : 1);
        spec.parallel.sp = i ? 4 : 1;
        took[i] = estimate_of(&m, &spec, &p).compute_s;
    }
    CHECK_MSG(took[1] > took[0] / 3.9 && took[1] < took[0], "%g s and %g s", took[0], took[1]);
    for (int x = EXCHANGE_ALL_GATHER; x <= EXCHANGE_SCAN; x++) {
        spec.parallel.exchange = x;
        const double maps = estimate_of(&m, &spec, &p).compute_s;
        CHECK_MSG(maps < took[1] && maps > took[0] / 4, "%g s, and %g s", maps, took[1]);
    }
    spec.parallel.exchange = EXCHANGE_AUTO;
    choose(&m);
    const struct option *ring = found(STRATEGY_LASP, -1, EXCHANGE_RING);
    const struct option *scan = found(STRATEGY_LASP, -1, EXCHANGE_SCAN);
    const struct option *gather = found(STRATEGY_LASP, -1, EXCHANGE_ALL_GATHER);
    const struct option *best = &choice.option[choice.best];
    if (!ring || !scan || !gather) {
        CHECK(!"all three are weighed");
        return;
    }
    CHECK(best == scan || best == gather);
    CHECK(best->time.step_s <= scan->time.step_s && best->time.step_s <= gather->time.step_s);
    CHECK(ring->bytes == scan->bytes && ring->messages < scan->messages);
    /* Three layers, there and back, of 4 heads: 3 times [A, b] of 64 x 128 for one state. */
    CHECK(gather->bytes - ring->bytes == 3 * 2 * 4 * (4 * 64 * (3 * 128 - 64)));
    spec.determinism = DET_RANKS;
    choose(&m);
    CHECK(found(STRATEGY_LASP, -1, EXCHANGE_RING) && !found(STRATEGY_LASP, -1, EXCHANGE_SCAN));
    CHECK(!found(STRATEGY_LASP, -1, EXCHANGE_ALL_GATHER));
    for (int x = EXCHANGE_ALL_GATHER; x <= EXCHANGE_SCAN; x++) {
        spec.parallel.exchange = x;
        CHECK(family_check(&spec, &e) && e.code == ERR_INVALID);
        CHECK_MSG(!strcmp(e.field, "parallel.exchange") && strstr(e.text, "needs \"ring\""), "%s",
                  e.text);
    }
}

/* Four ranks on two cores: those that take turns each have a core, those that pass maps half of
 * one. */
static void test_turns_on_shared_cores(void)
{
    static struct plan p;
    const struct profile rates = profile_of(1e10, 1e9, 1e9, 1e-5);
    double slower[2];
    for (int i = 0; i < 2; i++) {
        double took[2];
        for (int k = 0; k < 2; k++) {
            struct machine m;
            machine_of_profile(&rates, k ? 4 : 2, &m);
            model_of(FAMILY_QWEN3_5, 1024, 4);
            spec.parallel.sp = 4;
            spec.parallel.exchange = i ? EXCHANGE_SCAN : EXCHANGE_RING;
            took[k] = estimate_of(&m, &spec, &p).compute_s;
        }
        slower[i] = took[0] / took[1];
    }
    CHECK_MSG(slower[0] > 1 && slower[0] < 1.9, "%g times", slower[0]);
    CHECK_MSG(fabs(slower[1] - 2) < 1e-9, "%g times", slower[1]);
}

/* Tensor parallelism by hand: 4 ranks, 4 layers of two halves, S 1024 rows of 256 floats, each an
 * all-reduce forward and one backward: 2 * 3/4 of 1 MiB; beside the loss and the agreement of a
 * step, which a lone rank does not need. A rank's weights: a quarter of q, k, v, o and the MLP. */
static void test_tensor(void)
{
    static struct plan p;
    static struct job_spec s;
    struct machine m = devices(1e-3, 1, 10);
    struct err e = {0};
    model_of(FAMILY_LLAMA, 1024, 4);
    spec.parallel.sp = 4;
    spec.memory.recompute = RECOMPUTE_NONE;
    choose(&m);
    const struct option *o = found(STRATEGY_TP, -1, -1);
    if (!o) return;
    CHECK_MSG(o->bytes == 4 * 2 * 2 * (3 * (1 << 20) / 2), "%lld", (long long)o->bytes);
    const double whole = (double)choice.option[choice.best].time.compute_s;
    CHECK(o->time.compute_s > whole &&
          o->time.compute_s < 1.2 * whole); /* the head is not divided */
    s = spec;
    s.model.shape.n_heads = s.model.shape.n_kv_heads = 1;
    s.model.shape.ffn_width /= 4;
    s.parallel.sp = s.parallel.dp = s.resources.ranks = 1;
    CHECK(family_check(&s, &e) == 0);
    CHECK_MSG(plan_make(&s, 0, &p, &e) == 0, "%s", e.text);
    CHECK(p.n_params == 2 * 300 * 256 + 256 + 4 * (2 * 256 + 4 * 256 * 64 + 3 * 256 * 128));
    CHECK(o->size > p.arena_size && o->size < p.arena_size + (4 << 20)); /* and a bounce buffer */
    CHECK(found(STRATEGY_TP_SP, -1, -1)->size < o->size);
    CHECK(found(STRATEGY_TP_SP, -1, -1)->bytes == o->bytes);
    spec.parallel.sp = 0;
    spec.resources.ranks = 8; /* 4 heads on 8 ranks */
    choose(&m);
    CHECK(choice.option[choice.best].sp == 8 && !found(STRATEGY_TP, -1, -1));
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

/* ---- the form of ring attention -------------------------------------------------------------- */

static struct reach_document equal_documents(void *arg, int64_t pos)
{
    const int64_t n = *(const int64_t *)arg, first = pos / n * n;
    return (struct reach_document){first, first + n};
}

/* Samples full of documents of n tokens each, as four ranks see them. */
static struct form_seen see(int64_t n)
{
    static struct plan p;
    static struct job_spec s;
    struct form_seen seen = {0};
    struct reach_map map;
    struct shard sh;
    struct err e = {0};
    s = spec;
    CHECK(family_check(&s, &e) == 0);
    CHECK_MSG(plan_make(&s, 0, &p, &e) == 0, "%s", e.text);
    CHECK(!shard_init(&sh, p.S, p.sp, 0, p.layout, false, &e));
    reach_make(&map, &sh,
               &(struct reach_documents){
                   .at = equal_documents, .arg = &n, .n_tokens = p.S, .causal = true});
    for (int i = 0; i < 3; i++) form_count(&s, &p, &map, &seen);
    CHECK(seen.n_samples == 3);
    return seen;
}

static enum form_id form_of(const struct machine *m, const struct form_seen *seen, char reason[384])
{
    static struct job_spec s;
    struct err e = {0};
    s = spec;
    CHECK(family_check(&s, &e) == 0 && form_waits(&s));
    return form_choose(&s, m, seen, reason, 384);
}

/* 4 ranks, 4 layers, S 4096, contiguous: T 1024 rows of 2 * 4 * 64 floats. Documents of 96 tokens:
 * one crosses each border, at 1024, 2048, 3072 (10 2/3, 21 1/3, 32 documents): rows 960 .. 1023 and
 * 2016 .. 2047 are seen past the border, and at 3072 a document ends. Rank 0 sends 64 rows of keys
 * and values, forward and backward, and receives as many of gradients. In a ring, which ignores
 * causality, blocks of 1024 rows pass rank 3: rank 1's and 2's on their way back to ranks 0 and 1,
 * twice, and the gradients of rank 0's and 1's on their way home. */
static void test_form_bytes(void)
{
    decoder(4096, 4);
    spec.parallel.sp = 4;
    spec.parallel.layout = LAYOUT_CONTIGUOUS;
    spec.memory.recompute = RECOMPUTE_NONE;
    const struct form_seen seen = see(96);
    const int64_t row = 2 * 4 * 64 * 4, layers = 4, n = 3;
    CHECK_MSG(seen.all_gather.bytes == n * layers * 3 * 64 * row, "%lld, by hand %lld",
              (long long)seen.all_gather.bytes, (long long)(n * layers * 3 * 64 * row));
    CHECK(seen.all_gather.messages == n * layers * 3);
    CHECK_MSG(seen.blockwise.bytes == n * layers * 6 * 1024 * row, "%lld, by hand %lld",
              (long long)seen.blockwise.bytes, (long long)(n * layers * 6 * 1024 * row));
}

static void test_form_choice(void)
{
    const struct machine none = {0}, slow = devices(1e-3, 1e-3, 100);
    char reason[384], bytes[24];
    decoder(4096, 4);
    spec.parallel.sp = 4;
    for (int layout = LAYOUT_AUTO; layout < LAYOUT_N; layout++)
        for (int timed = 0; timed < 2; timed++) {
            const struct machine *m = timed ? &slow : &none;
            spec.parallel.layout = layout;
            struct form_seen seen = see(48);
            CHECK_MSG(form_of(m, &seen, reason) == FORM_ALL_GATHER, "%s", reason);
            CHECK_MSG(strstr(reason, plan_bytes(bytes, seen.all_gather.bytes / 3)), "%s", reason);
            CHECK_MSG(strstr(reason, plan_bytes(bytes, seen.blockwise.bytes / 3)), "%s", reason);
            CHECK((strstr(reason, "measured") == NULL) == timed);
            seen = see(4096); /* one document */
            CHECK_MSG(form_of(m, &seen, reason) == FORM_BLOCKWISE, "%s", reason);
            CHECK_MSG(strstr(reason, plan_bytes(bytes, seen.blockwise.bytes / 3)), "%s", reason);
        }
}

/* Keys and values of all ranks must have room; and what a rank says may be anything. */
static void test_form_limits(void)
{
    static struct plan p;
    static struct job_spec s;
    const struct machine none = {0};
    char reason[384];
    struct err e = {0};
    decoder(4096, 4);
    spec.parallel.sp = 4;
    spec.memory.recompute = RECOMPUTE_NONE;
    struct form_seen seen = see(48);
    s = spec;
    CHECK(family_check(&s, &e) == 0 && !plan_make(&s, 0, &p, &e));
    spec.resources.memory_mib = ((p.arena_size + p.segment_size) >> 20) + 1;
    CHECK_MSG(form_of(&none, &seen, reason) == FORM_BLOCKWISE && strstr(reason, "does not fit"),
              "%s", reason);
    spec.resources.memory_mib = 0;
    CHECK(form_of(&none, &seen, reason) == FORM_ALL_GATHER);
    seen.all_gather.bytes = -1;
    CHECK(form_of(&none, &seen, reason) == FORM_BLOCKWISE);
    seen = (struct form_seen){INT64_MAX, {INT64_MAX, INT64_MAX}, {INT64_MAX, INT64_MAX}};
    CHECK(form_of(&none, &seen, reason) == FORM_BLOCKWISE && strstr(reason, "no sample"));
    seen = (struct form_seen){0};
    CHECK(form_of(&none, &seen, reason) == FORM_BLOCKWISE && strstr(reason, "no sample"));
    seen = (struct form_seen){1, {1000000, 1000000000000000}, {1, 1}};
    const struct machine slow = devices(1, 1, 1);
    CHECK(form_of(&slow, &seen, reason) == FORM_ALL_GATHER);
}

/* Open only where documents can tell. */
static void test_form_waits(void)
{
    static struct job_spec s;
    struct err e = {0};
    for (int i = 0; i < 6; i++) {
        decoder(4096, 4);
        s = spec;
        s.parallel.sp = i == 1 ? 1 : 4;
        s.resources.ranks = s.parallel.sp;
        if (i == 2) s.parallel.strategy = STRATEGY_ULYSSES;
        if (i == 3) s.parallel.form = FORM_TWO_PASS;
        if (i >= 4) s.data.document_mask = 0;
        if (i == 5) s.model.shape.window = 128;
        CHECK_MSG(family_check(&s, &e) == 0, "%d: %s", i, e.text);
        CHECK_MSG(form_waits(&s) == (i == 0 || i == 5), "%d", i);
    }
}

static void test_json(void)
{
    static char out[65536];
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
    CHECK(strstr(out, "\"form\":\"two_pass\"") && strstr(out, "\"comm_bytes\":"));
    CHECK(strstr(out, "\"runs\":false") && strstr(out, "\"note\":\"not run by jobs"));
    CHECK(strstr(out, "decides it when the data are prepared"));
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
    RUN(test_family_limits);
    RUN(test_strategy_limits);
    RUN(test_frames_limit);
    RUN(test_work_is_the_flops);
    RUN(test_proof);
    RUN(test_rates);
    RUN(test_elements);
    RUN(test_compared);
    RUN(test_in_turn);
    RUN(test_turns_on_shared_cores);
    RUN(test_tensor);
    RUN(test_nothing_fits);
    RUN(test_form_bytes);
    RUN(test_form_choice);
    RUN(test_form_limits);
    RUN(test_form_waits);
    RUN(test_json);
    return test_done("choice");
}
