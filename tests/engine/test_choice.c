/* Checks which options "auto" chooses, and the estimated time of a step. Estimates are compared
 * with arithmetic by hand, and limits with the plan. */
#include <math.h>
#include <stdlib.h>
#include "api/core/job.h"
#include "api/wire.h"
#include "tests/lib/profile.h"
#include "tests/lib/test.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/choice.h"
#include "worker/plan/form.h"
#include "worker/plan/product.h"
#include "worker/plan/weigh.h"

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
    /* the daemon has this shape, too, with head sizes filled in */
    spec.model.shape = copy->model.shape;
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
    const struct choice_how how = {.limits = true};
    choice_make(&spec, m, &how, &choice);
}

/* Checks the estimate of two ranks in zigzag, fp32, with S 1024. The expected time is computed by
 * hand. A layer has the matrices q, k, v and o of 256 x 256, and three matrices of 256 x 512. This
 * makes 655360 products per token. The head is 258 x 256. Each matrix is used in three passes,
 * with two flops per product. Attention needs 2 S S H D flops in each of three passes, for the
 * causal half. */
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
    /* A hop of keys and values has 512 rows of 512 floats, which are 1 MiB. Each of the 4 layers
     * has one hop forward, one hop backward, and one hop of gradients. All hops have the same
     * size. A hop takes no time while attention is computed at the same time. */
    const double ring = 12 * (1e-4 + 512 * 512 * 4 / 1e6);
    CHECK_MSG(fabs(o->time.hidden_s / fmin(ring, attention / 2 / 1e9) - 1) < 1e-12, "%.17g",
              o->time.hidden_s);
    CHECK(o->time.exchange_s > ring);
    CHECK(o->time.step_s == o->time.compute_s + o->time.exchange_s - o->time.hidden_s);
    CHECK(fabs(o->time.tokens_s * o->time.step_s - 1024) < 1e-9);
}

/* Checks the times of exchanging a state of 1 MB among 4 ranks, at 1 GB/s and 100 us per hop,
 * forward, in one layer. A ring needs three hops of 1.1 ms, one after another. An all-gather sends
 * three messages at the same time, but these messages share the link. A scan in K pieces needs K +
 * 2 steps, and each step sends one piece. */
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

/* Checks the estimate if there are more threads than cores, so that threads share cores. Also
 * checks that copies take time on the cores that compute. */
static void test_shared_cores(void)
{
    const struct profile p = profile_of(1e10, 1e9, 1e9, 1e-5);
    struct machine two, four;
    machine_of_profile(&p, 2, &two);
    machine_of_profile(&p, 4, &four);
    decoder(1024, 4);
    spec.parallel.sp = 4;
    choose(&four);
    const struct estimate wide = choice.option[0].time;
    choose(&two);
    const struct estimate narrow = choice.option[0].time;
    CHECK(fabs(narrow.compute_s / wide.compute_s - 2) < 1e-12);
    CHECK(wide.hidden_s == 0 && narrow.exchange_s == wide.exchange_s);
}

struct length_case {
    int type, reset; /* RoPE type and reset of positions in the job */
    double factor;
    int64_t max_pos;
    const char *warns;     /* NULL means that there is no warning */
    struct shape_rope own; /* the parameters of the model itself */
};

static void check_length(const struct machine *m, int kind, const struct length_case *v)
{
    const bool dynamic = v->type == 1 + ROPE_DYNAMIC || v->own.kind == ROPE_DYNAMIC;
    if (kind == JOB_GENERATE && dynamic) return; /* refused */
    decoder(9000, 1);
    spec.kind = kind;
    CHECK(!spec_intern(&spec, "/x", 2, &spec.input.source.path));
    spec.input.source.format = DATA_JSONL;
    spec.data.reset_positions = v->reset;
    spec.verify.max_tokens = 9000;
    spec.model.rope.type = v->type;
    spec.model.rope.rule.factor = v->factor;
    spec.model.shape.rope = v->own;
    spec.model.shape.max_pos = v->max_pos;
    choose(m);
    CHECK_MSG(v->warns ? strstr(choice.length_warning, "data.seq_len 9000 is longer ") != NULL
                       : choice.n && !*choice.length_warning,
              "%s, type %d, model's %d: \"%s\"", spec_kind_name(kind), v->type, v->own.kind,
              choice.length_warning);
    if (v->warns) CHECK_MSG(strstr(choice.length_warning, v->warns), "%s", choice.length_warning);
}

/* Checks that every kind of job gets a warning if it has more positions than the model was trained
 * for. A factor of RoPE in the job extends the model's positions, and so does a YaRN factor of the
 * model. */
static void test_lengths(void)
{
    const struct length_case v[] = {
        {0, 1, 0, 8192, "than the 8192 positions that the model is meant for, by", {0}},
        {0, 0, 0, 8192, "longer sequences have positions beyond them", {0}},
        {1 + ROPE_YARN, 1, 1.0625, 8192, "than the 8704 positions", {0}},
        {1 + ROPE_LINEAR, 1, 2, 8192, NULL, {0}},
        {1 + ROPE_DYNAMIC, 1, 2, 8192, NULL, {0}},
        {0, 1, 0, 9000, NULL, {0}},
        {0, 1, 0, CHOICE_ANY_POSITIONS, NULL, {0}},
        {0, 1, 0, 8192, "than the 8192 positions", {.kind = ROPE_LINEAR, .factor = 2}},
        {1 + ROPE_LINEAR, 1, 2, 8192, NULL, {.kind = ROPE_LINEAR, .factor = 1}},
        {0,
         1,
         0,
         8192,
         "than the 8192 positions",
         {.kind = ROPE_LLAMA3, .factor = 32, .original = 4096, .low_freq = 1, .high_freq = 4}},
        {0, 1, 0, 8192, NULL, {.kind = ROPE_YARN, .factor = 4, .original = 4096}},
        {0, 1, 0, 8192, NULL, {.kind = ROPE_DYNAMIC, .factor = 2}}};
    const struct machine m = devices(1, 1e-4, 1000);
    for (int kind = 0; kind < JOB_MERGE; kind++)
        for (size_t i = 0; i < sizeof v / sizeof *v; i++) check_length(&m, kind, &v[i]);
    /* If a model's files have a limit of a million positions, it is used like any other limit. */
    decoder(CHOICE_ANY_POSITIONS + 1, 1);
    spec.model.shape.max_pos = CHOICE_ANY_POSITIONS;
    choose(&m);
    CHECK_MSG(choice.n && !*choice.length_warning, "%s", choice.length_warning);
    CHECK(!spec_intern(&spec, "/m", 2, &spec.model.path));
    spec.model.shape.tokenizer = TOKENIZER_BYTE;
    choose(&m);
    CHECK_MSG(strstr(choice.length_warning, "data.seq_len 1048577 is longer than the 1048576 "),
              "%d: %s", choice.n, choice.length_warning);
}

/* Checks that a warning and a refusal name the field that sets the longest sequence. */
static void test_length_fields(void)
{
    const struct machine m = devices(1, 1e-4, 1000);
    decoder(9000, 1);
    spec.n_stages = 2;
    spec.stages[0] = (struct spec_stage){.from_step = 1, .seq_len = 9001};
    spec.stages[1] = (struct spec_stage){.from_step = 2, .seq_len = 10000};
    spec.train.steps = 3;
    spec.model.shape.max_pos = 9000;
    choose(&m);
    CHECK_MSG(strstr(choice.length_warning, "stages.1.seq_len 10000 is longer") &&
                  strstr(choice.length_warning, "make stages.1.seq_len smaller"),
              "%s", choice.length_warning);
    struct err e = {0};
    spec.model.shape.family = FAMILY_GPT2;
    spec.model.shape.n_kv_heads = spec.model.shape.n_heads;
    spec.data.reset_positions = 0;
    CHECK(family_check(&spec, &e) && e.code == ERR_INVALID);
    CHECK_MSG(!strcmp(e.field, "stages.1.seq_len") && strstr(e.text, "stages.1.seq_len 10000: "),
              "%s: %s", e.field, e.text);
    decoder(9000, 1);
    spec.kind = JOB_VERIFY;
    spec.verify.max_tokens = 8500;
    spec.model.shape.max_pos = 8192;
    choose(&m);
    CHECK_MSG(strstr(choice.length_warning, "verify.max_tokens 8500 is longer") &&
                  strstr(choice.length_warning, "make verify.max_tokens smaller"),
              "%s", choice.length_warning);
    decoder(4096, 4);
    spec.kind = JOB_VERIFY;
    spec.verify.max_tokens = 1024;
    choose(&m);
    CHECK_MSG(strstr(choice.warning, "sequences of 1024 tokens fit"), "%s", choice.warning);
}

static void test_degree(void)
{
    decoder(4096, 4);
    spec.parallel.pp = spec.parallel.tp = 1;
    spec.train.global_batch = 4;
    /* the link is slow, so each sequence has one rank */
    struct machine m = devices(1, 1e-4, 1000);
    choose(&m);
    CHECK(choice.option[0].sp == 1 && choice.option[0].dp == 4);
    CHECK(choice.option[0].strategy == STRATEGY_LOCAL);
    spec.train.global_batch = 1; /* dp has no samples to split */
    choose(&m);
    CHECK(choice.option[0].sp == 4);
    CHECK(strstr(choice.warning, "will not help") && strstr(choice.warning, "4096"));
    m = devices(1e-4, 100, 1); /* the link is fast enough to be worth it */
    choose(&m);
    CHECK(choice.option[0].sp == 4 && !*choice.warning && choice.alone_s > 0);
    /* the job's factor of RoPE applies to every length */
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
    CHECK(choice.alone_s > 3 * choice.option[0].time.step_s);
    /* an option that does not fit is not chosen, even if it would be the fastest */
    m = devices(1, 1e-4, 1000);
    spec.train.global_batch = 4;
    choose(&m);
    int64_t whole = 0, shared = 0;
    for (int i = 0; i < choice.n; i++) {
        if (choice.option[i].sp == 1) whole = choice.option[i].size;
        if (choice.option[i].sp == 4) shared = choice.option[i].size;
    }
    /* these settings keep one rank from using less memory by recomputation */
    spec.memory.recompute = RECOMPUTE_NONE;
    spec.memory.mlp_chunk_tokens = 0;
    spec.resources.memory_mib = (whole + shared) / 2 >> 20;
    CHECK(whole > shared && shared > 0);
    choose(&m);
    CHECK(choice.option[0].fits && choice.option[0].sp > 1);
}

/* Checks that fields that the job sets are not changed. Also checks that no field is chosen by
 * the estimated time of a step if the machine is unknown. */
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
    CHECK(!choice.timed && choice.option[0].sp == 4);
    choice_apply(&choice, &spec);
    struct err e = {0};
    CHECK(family_check(&spec, &e) == 0 && spec.parallel.sp == 4 && spec.parallel.dp == 1);
    CHECK(spec.parallel.strategy == STRATEGY_RSA && spec.parallel.layout == LAYOUT_ZIGZAG);
}

/* Checks that a second choice for an unchanged job and machine gives the same bits as the first
 * one. */
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
    bool plain; /* the model has only softmax attention */
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
        m->layer_mask[0] = 5; /* two of the four layers are linear */
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

/* Checks the longest sequence of every family, for every way to divide it among ranks. The plan
 * must fit with this length, and must not fit with one more token. BERT's table of positions grows
 * with the sequence, unless the job sets its size. */
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
    /* The positions of each document start at 0, so a sample may be longer than the range. */
    CHECK(choice.max_seq_len > 600);
    spec.data.reset_positions = false;
    choose(&m);
    CHECK(choice.max_seq_len == 600);
}

/* Checks the longest sequence of every way to split it. */
static void test_strategy_limits(void)
{
    static const struct {
        int family, strategy, form, exchange;
    } ways[] = {{FAMILY_LLAMA, STRATEGY_RSA, FORM_TWO_PASS, EXCHANGE_AUTO},
                {FAMILY_LLAMA, STRATEGY_RSA, FORM_TWO_PASS_SCATTER, EXCHANGE_AUTO},
                {FAMILY_BERT, STRATEGY_RSA, FORM_ALL_GATHER, EXCHANGE_AUTO},
                {FAMILY_LLAMA, STRATEGY_ULYSSES, FORM_AUTO, EXCHANGE_AUTO},
                {FAMILY_LLAMA, STRATEGY_USP, FORM_AUTO, EXCHANGE_AUTO},
                {FAMILY_TNL, STRATEGY_LASP, FORM_AUTO, EXCHANGE_ALL_GATHER},
                {FAMILY_MINIMAX, STRATEGY_LASP, FORM_AUTO, EXCHANGE_SCAN}};
    struct machine none = {0};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        model_of(ways[i].family, 1024, 4);
        spec.parallel.sp = 4;
        spec.parallel.strategy = ways[i].strategy;
        spec.parallel.form = ways[i].form;
        spec.parallel.exchange = ways[i].exchange;
        spec.parallel.ulysses = ways[i].strategy == STRATEGY_USP ? 2 : 0;
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

/* Makes a training of STDiT on frames of 16 x 16. */
static void video(int sp, int frames)
{
    decoder(1024, sp);
    struct model_shape *shape = &spec.model.shape;
    shape->family = FAMILY_STDIT3;
    shape->n_kv_heads = shape->n_heads;
    shape->caption_channels = 64, shape->text_len = 8;
    spec.data.train[0].format = DATA_LATENTS;
    spec.data.seq_len = 0;
    spec.data.frames = frames, spec.data.height = spec.data.width = 16;
    spec.parallel.sp = sp;
}

/* Checks that the limit of a video's length is a number of frames, if frames have the requested
 * size. */
static void test_frames_limit(void)
{
    struct machine m = devices(1e-2, 1, 10);
    for (int sp = 1; sp <= 4; sp *= 4) {
        static struct plan p;
        static struct job_spec s;
        struct err e = {0};
        video(sp, 4);
        struct model_shape *shape = &spec.model.shape;
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
            (exchange < 0 || o->exchange == exchange) && o->sp == choice.option[0].sp)
            return o;
    }
    return NULL;
}

/* ---- the cost of a step ---------------------------------------------------------------------- */

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

/* Checks the total time of all ranks for every family, if all flops have the same rate. It must be
 * the time of the flops that the plan counts for the complete sequence. The plan counts them in an
 * independent way. Recomputation adds flops to this number. In every recompute mode, BERT's head
 * (a matrix of 256 x 256 before the logits) is computed two more times. */
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

/* Checks the time of a verify job. It must be the time of the pass on all ranks plus the time of a
 * pass over the complete sequence on one rank. */
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

/* Checks the time of a proof of preferences. Before their pass, the ranks and the one rank each
 * compute the references of the answers, which is a pass forward. */
static void test_proof_of_pairs(void)
{
    static struct plan p;
    const struct machine m = devices(1e-3, 1, 10);
    double took[JOB_KIND_N];
    static const enum job_kind jobs[] = {JOB_TRAIN, JOB_SCORE, JOB_VERIFY};
    for (int i = 0; i < 3; i++) {
        model_of(FAMILY_LLAMA, 1024, 1);
        spec.kind = jobs[i];
        spec.memory.recompute = RECOMPUTE_NONE;
        if (spec.kind == JOB_VERIFY) spec.train.steps = 0, spec.verify.max_tokens = 1024;
        if (spec.kind != JOB_SCORE) {
            spec.objective.type = OBJECTIVE_DPO;
            spec.objective.beta = 0.1;
            spec.data.packing = PACKING_BEST_FIT;
            spec.data.overlong = OVERLONG_ERROR;
            spec.data.document_mask = spec.data.reset_positions = 1;
            spec.data.train[0].format = DATA_JSONL;
        }
        spec.input.source = spec.data.train[0];
        took[spec.kind] = estimate_of(&m, &spec, &p).compute_s;
    }
    const double want = 2 * (took[JOB_TRAIN] + took[JOB_SCORE]);
    CHECK_MSG(fabs(took[JOB_VERIFY] / want - 1) < 1e-9, "%g of %g", took[JOB_VERIFY], want);
}

/* Checks the rate of a size between two measured sizes. It is interpolated linearly between the
 * logarithms. For linear attention with narrow heads, the rate must be the one measured for linear
 * attention, and not the rate of products. */
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
        /* heads of 64 and heads of 16, neither of which was measured */
        s->n_heads = s->n_kv_heads = i ? 4 : 16;
        s->head_dim = 256 / s->n_heads;
        at[i] = estimate_of(&m, &spec, &p).compute_s;
    }
    /* The flops of all heads together grow in proportion to the head size, and so does the rate,
     * so the time does not change. */
    CHECK_MSG(fabs(at[1] / at[0] - 1) < 0.02 && at[0] > 100 * even, "%g s and %g s, %g at one rate",
              at[0], at[1], even);
}

/* Checks the time of operations on single elements. A model of many narrow layers needs time even
 * if its products need none. */
static void test_elements(void)
{
    static struct plan p;
    const struct profile fast = profile_of(1e18, 1e9, 1e12, 1e-9);
    struct machine m;
    machine_of_profile(&fast, 1, &m);
    model_of(FAMILY_LLAMA, 1024, 1);
    const double four = estimate_of(&m, &spec, &p).compute_s;
    /* Forward and backward of a layer take at least two norms of 256 columns and a gate of 512
     * columns, three times. */
    CHECK_MSG(four > 4 * 1024 * (2 * 256 + 512) * 3 / 1e9 && four < 1, "%g s", four);
    spec.model.shape.n_layers = 8;
    const double eight = estimate_of(&m, &spec, &p).compute_s;
    CHECK(eight > 1.5 * four && eight < 2 * four);
}

/* Counts elements of gradients. If gradients are summed bucket by bucket, each micro-batch clears
 * the bucket and adds the part of its sum that this rank owns. The number of all other elements of
 * the step does not change. */
static void test_buckets(void)
{
    static struct plan p;
    struct machine m = devices(1e-3, 1, 10);
    m.point = 1e6;
    for (int samples = 1; samples <= 3; samples += 2) {
        model_of(FAMILY_LLAMA, 1024, 2);
        spec.parallel.sp = 2;
        spec.memory.recompute = RECOMPUTE_NONE;
        spec.train.global_batch = samples;
        spec.parallel.zero = 1;
        const double one = estimate_of(&m, &spec, &p).compute_s;
        CHECK(!p.by_bucket);
        spec.parallel.zero = 2;
        const double two = estimate_of(&m, &spec, &p).compute_s;
        CHECK(p.by_bucket && !p.fused && p.micro_batches == samples && p.n_trained > p.n_grad);
        const double more = (double)(samples * (p.n_trained + p.n_shard)) / 1e6;
        CHECK_MSG(fabs((two - one) / more - 1) < 1e-6, "%d: %g s more, by hand %g", samples,
                  two - one, more);
    }
}

/* Returns the set of the sizes of groups that were considered on 8 ranks. Each size is a bit of
 * the result. */
static int groups_weighed(void)
{
    int sizes = 0;
    for (int i = 0; i < choice.n; i++) {
        const struct option *o = &choice.option[i];
        if (o->strategy == STRATEGY_USP && o->sp == 8) sizes |= o->ulysses;
        CHECK((o->strategy == STRATEGY_USP) == (o->ulysses > 0));
    }
    return sizes;
}

/* Checks that "auto" also considers groups that are neither a single rank nor all ranks. Also
 * checks that every size is considered for a job that asks for groups. */
static void test_groups(void)
{
    static struct job_spec s;
    struct machine m = devices(1e-3, 1, 10);
    struct err e = {0};
    decoder(1024, 8);
    spec.parallel.sp = 8;
    choose(&m);
    CHECK_MSG(groups_weighed() == (2 | 4), "%d", groups_weighed());
    spec.parallel.strategy = STRATEGY_USP;
    choose(&m);
    CHECK_MSG(groups_weighed() == (1 | 2 | 4), "%d", groups_weighed()); /* 4 heads */
    s = spec;
    choice_apply(&choice, &s);
    CHECK(s.parallel.ulysses == choice.option[0].ulysses && s.parallel.ulysses > 0);
    CHECK_MSG(family_check(&s, &e) == 0, "%s", e.text);
    CHECK(strstr(choice.reason, "in groups of"));
    spec.parallel.ulysses = 2;
    choose(&m);
    CHECK(choice.n == 1 && groups_weighed() == 2 && choice.asked);
}

/* Checks "auto" if it must not use groups. A node of the previous version must know everything
 * that it chooses. */
static void test_ungrouped(void)
{
    static struct job_spec s;
    const struct choice_how how = {.ungrouped = true};
    struct machine m = devices(1e-3, 1, 10);
    decoder(1024, 8);
    spec.parallel.sp = 8;
    choice_make(&spec, &m, &how, &choice);
    CHECK(choice.n > 0);
    for (int i = 0; i < choice.n; i++) CHECK(choice.option[i].strategy != STRATEGY_USP);
    s = spec;
    choice_apply(&choice, &s);
    CHECK_MSG(!spec_needs(&s, WIRE_ABI_BEFORE), "%s", spec_needs(&s, WIRE_ABI_BEFORE));
    spec.parallel.strategy = STRATEGY_USP; /* the job asks for it, so it is kept */
    choice_make(&spec, &m, &how, &choice);
    CHECK(choice.n && groups_weighed() == (1 | 2 | 4));
}

/* Checks for each family which options are listed. */
static void test_compared(void)
{
    struct machine m = devices(1e-3, 1, 10);
    for (int k = 0; k < N_KINDS; k++) {
        model_of(kinds[k].family, 1024, 4);
        spec.parallel.sp = 4;
        choose(&m);
        CHECK(!found(STRATEGY_RSA, FORM_ALL_GATHER, -1) == !kinds[k].plain);
        CHECK(!found(STRATEGY_RSA, FORM_TWO_PASS, -1) == !kinds[k].plain);
        CHECK(!found(STRATEGY_RSA, FORM_TWO_PASS_SCATTER, -1) == !kinds[k].plain);
        CHECK(!found(STRATEGY_ULYSSES, -1, -1) == !kinds[k].plain);
        for (int x = EXCHANGE_RING; x <= EXCHANGE_SCAN; x++)
            CHECK(!found(STRATEGY_LASP, -1, x) == kinds[k].plain);
        /* no job can have these */
        CHECK(!found(STRATEGY_TP, -1, -1) && !found(STRATEGY_TP_SP, -1, -1));
        for (int i = 0; i < choice.n + choice.n_compared; i++)
            CHECK(choice.option[i].bytes > 0 && choice.option[i].messages > 0 &&
                  !choice.option[i].note == (i < choice.n));
    }
    /* the job asks for one option, so all other options are only compared */
    spec.parallel.strategy = STRATEGY_LASP;
    spec.parallel.exchange = EXCHANGE_SCAN;
    choose(&m);
    CHECK(choice.asked && choice.n == 1 && choice.n_compared == 2);
    CHECK(found(STRATEGY_LASP, -1, EXCHANGE_RING)->note != NULL);
    spec.parallel.sp = spec.resources.ranks = 1;
    spec.parallel.strategy = STRATEGY_AUTO;
    choose(&m);
    CHECK(choice.n == 1 && choice.n_compared == 0);
}

/* Checks families in which a rank needs the state of the rank before it. In a ring, ranks compute
 * one after another. With maps, ranks do additional work. The estimated times must include both,
 * and the way with the smaller time must be chosen. Under determinism "ranks", only the ring is
 * considered. */
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
    const struct option *best = &choice.option[0];
    if (!ring || !scan || !gather) {
        CHECK(!"all three are weighed");
        return;
    }
    CHECK(best == scan || best == gather);
    CHECK(best->time.step_s <= scan->time.step_s && best->time.step_s <= gather->time.step_s);
    CHECK(ring->bytes == scan->bytes && ring->messages < scan->messages);
    /* There are three layers with 4 heads, forward and backward. For each head, a rank gathers
     * three pairs [A, b] of 64 x 128 floats. In a ring it receives one state of 64 x 64 floats. */
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

/* Checks four ranks on two cores. In a ring, one rank computes at a time, on a core of its own.
 * With maps, all ranks compute at the same time, and two ranks share a core. */
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

static void test_nothing_fits(void)
{
    struct machine m = devices(1, 10, 10);
    decoder(4096, 4);
    spec.resources.memory_mib = 1;
    choose(&m);
    CHECK(choice.n >= 1 && !choice.option[0].fits);
    CHECK(strstr(choice.reason, "none of") && choice.max_seq_len == 0);
    for (int i = 0; i < choice.n; i++) CHECK(choice.option[0].size <= choice.option[i].size);
}

/* ---- products of axes ------------------------------------------------------------------------ */

/* Returns a machine of n_nodes nodes, each with the same number of devices, with a network between
 * them. */
static struct machine nodes(int devices, int n_nodes, double network_gbs)
{
    struct hardware h;
    struct machine m;
    struct err e = {0};
    hardware_defaults(&h);
    h.given = 1, h.devices = devices, h.nodes = n_nodes, h.memory_gib = 64;
    h.tflops = 1, h.link_gbs = 50, h.link_us = 1, h.network_gbs = network_gbs;
    CHECK_MSG(hardware_check(&h, &e) == 0, "%s", e.text);
    machine_of_hardware(&h, &m);
    return m;
}

/* Checks that the forms of attention over a grid are compared. In their exchanges, every rank of a
 * ring sends to all others, and the ranks may be on several nodes. */
static void test_grid_forms(void)
{
    static struct job_spec s;
    struct machine m = nodes(2, 2, 1);
    const struct option *o[3];
    struct err e = {0};
    video(4, 8);
    s = spec;
    CHECK_MSG(family_check(&s, &e) == 0, "%s", e.text);
    spec.model.shape = s.model.shape;
    choose(&m);
    CHECK(choice.option[0].form == FORM_SWITCH);
    for (int i = 0; i < 3; i++) {
        o[i] = found(STRATEGY_DSP, FORM_SWITCH + i, -1);
        CHECK_MSG(o[i], "no form %d", FORM_SWITCH + i);
        if (!o[i] || !i) continue;
        CHECK(o[i]->bytes > o[i - 1]->bytes && o[i]->time.exchange_s > 0);
        CHECK_MSG(o[i]->time.exchange_s > o[i - 1]->time.exchange_s, "form %d: %g s, %g s", i,
                  o[i]->time.exchange_s, o[i - 1]->time.exchange_s);
    }
}

static void test_products(void)
{
    static struct axes got[PRODUCTS_MAX];
    for (int ranks = 1; ranks <= JOB_MAX_RANKS; ranks++)
        for (int said = 0; said < 4; said++) {
            const struct axes keep = {.tp = said & 1 ? 2 : 0, .pp = said & 2 ? 3 : 0};
            const int n = products_of(&keep, ranks, 0, got);
            int want = 0;
            for (int d = 1; d <= ranks; d++)
                for (int p = 1; p * d <= ranks; p++)
                    for (int s = 1; s * p * d <= ranks; s++)
                        for (int t = 1; t * s * p * d <= ranks; t++)
                            want += d * p * s * t == ranks && (!keep.tp || t == keep.tp) &&
                                    (!keep.pp || p == keep.pp);
            CHECK_MSG(n == want, "%d ranks: %d, want %d", ranks, n, want);
            for (int i = 0; i < n; i++) {
                const struct axes *a = &got[i], *b = i ? a - 1 : a;
                CHECK(axes_ranks(a) == ranks && a->pp * a->tp >= b->pp * b->tp);
                for (int k = 0; k < i; k++) CHECK(memcmp(a, &got[k], sizeof *a) != 0);
            }
        }
    /* With nodes of 4 ranks, ranks that share layers must be on one node, unless the job sets this
     * differently. */
    const struct axes open = {0}, said = {.tp = 8};
    const int n = products_of(&open, 24, 4, got);
    for (int i = 0; i < n; i++) CHECK(got[i].tp == 1 || got[i].tp == 2 || got[i].tp == 4);
    CHECK(n > 0 && products_of(&said, 24, 4, got) == 3);
    CHECK(products_of(&open, 3, 64, got) == 4);
}

/* Returns the rank that is number k among those with the given stage and tp index. */
static int rank_on_line(const struct axes *a, int stage, int tp, int k)
{
    return ((k / a->sp * a->pp + stage) * a->sp + k % a->sp) * a->tp + tp;
}

/* Tells whether each group is within a node. A group has g ranks with the same stage and tp
 * index. */
static bool groups_stay(const struct axes *a, int g, int node)
{
    for (int line = 0; line < a->pp * a->tp; line++)
        for (int k = 0; k < a->dp * a->sp; k++)
            if (rank_on_line(a, line / a->tp, line % a->tp, k) / node !=
                rank_on_line(a, line / a->tp, line % a->tp, k / g * g) / node)
                return false;
    return true;
}

/* Checks groups of ZeRO that are within nodes. The size of a group is the number of ranks on the
 * first node that have the first stage and the first tp index. */
static void test_node_groups(void)
{
    static struct axes all[PRODUCTS_MAX];
    const struct axes open = {0};
    int n_groups = 0;
    for (int ranks = 2; ranks <= 32; ranks++)
        for (int node = 1; node <= 8; node++) {
            const int n = products_of(&open, ranks, 0, all);
            for (int i = 0; i < n; i++) {
                const struct axes *a = &all[i];
                const int g = product_zero_group(a, node), line = a->dp * a->sp;
                int want = 0;
                while (want < line && rank_on_line(a, 0, 0, want) < node) want++;
                if (want <= 1 || want == line || line % want || !groups_stay(a, want, node))
                    want = 0;
                CHECK_MSG(g == want, "dp %d pp %d sp %d tp %d in nodes of %d: %d, want %d", a->dp,
                          a->pp, a->sp, a->tp, node, g, want);
                n_groups += g > 0;
            }
        }
    CHECK(n_groups > 100);
    CHECK(product_zero_group(&(struct axes){4, 1, 4, 1}, 8) == 8);
    CHECK(product_zero_group(&(struct axes){4, 1, 2, 2}, 8) == 4);
    CHECK(product_zero_group(&(struct axes){2, 2, 4, 1}, 8) == 4);
    CHECK(product_zero_group(&(struct axes){4, 1, 4, 1}, 16) == 0);
    CHECK(product_zero_group(&(struct axes){4, 1, 4, 1}, 0) == 0);
}

/* Computes the cost of every combination of options that a job may use, without any function of
 * choice.c. oracle_cost has the costs of the combinations that fit, in ascending order. */
#define ORACLE 4096
static double oracle_cost[ORACLE];
static int oracle_n, oracle_fit;

static int by_cost(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void oracle_one(const struct machine *m, int strategy, const int degree[4], int group, int u)
{
    static struct job_spec s;
    static struct plan p;
    struct err e = {0};
    struct estimate t;
    s = spec;
    s.parallel.strategy = strategy;
    s.parallel.dp = degree[0], s.parallel.pp = degree[1], s.parallel.sp = degree[2];
    s.parallel.tp = degree[3], s.parallel.zero_group = group, s.parallel.ulysses = u;
    if (family_check(&s, &e)) return;
    const int rc = plan_make(&s, s.resources.memory_mib << 20, &p, &e);
    if (rc && e.code != ERR_DOES_NOT_FIT) return;
    oracle_n++;
    if (rc) return;
    machine_estimate(m, &s, &p, &t);
    const bool divides = degree[1] * degree[3] > 1;
    oracle_cost[oracle_fit++] = divides ? t.step_s / 0.9 : t.step_s;
}

/* Returns how many ranks of node 0 hold the same stage and slice as rank 0. Returns 0 if another
 * node has a different number of such ranks. */
static int oracle_group(const int degree[4], int node)
{
    int in[JOB_MAX_RANKS] = {0}, most = 0;
    for (int d = 0; d < degree[0]; d++)
        for (int s = 0; s < degree[2]; s++)
            most = fmax(most, ++in[((d * degree[1]) * degree[2] + s) * degree[3] / node]);
    for (int i = 0; i < JOB_MAX_RANKS; i++)
        if (in[i] % most) return 0;
    return most;
}

static void oracle(const struct machine *m)
{
    const int ranks = spec.resources.ranks, node = m->ranks_per_node;
    oracle_n = oracle_fit = 0;
    for (int d = ranks; d >= 1; d--)
        for (int p = 1; p <= ranks; p++)
            for (int s = 1; s <= ranks; s++)
                for (int t = 1; t <= node; t++) {
                    const int degree[4] = {d, p, s, t};
                    if (d * p * s * t != ranks || (ranks > node && node % t)) continue;
                    const int g = oracle_group(degree, node);
                    const bool groups = g > 1 && g < d * s && d * s % g == 0;
                    for (int both = 0; both <= groups; both++) {
                        const int zero_group = both ? g : 0;
                        if (s == 1) {
                            oracle_one(m, STRATEGY_LOCAL, degree, zero_group, 0);
                            continue;
                        }
                        oracle_one(m, STRATEGY_RSA, degree, zero_group, 0);
                        oracle_one(m, STRATEGY_ULYSSES, degree, zero_group, 0);
                        for (int u = 2; u <= s / 2; u++)
                            if (s % u == 0) oracle_one(m, STRATEGY_USP, degree, zero_group, u);
                    }
                }
    qsort(oracle_cost, (size_t)oracle_fit, sizeof *oracle_cost, by_cost);
}

static void check_oracle(const struct machine *m)
{
    const struct choice_how how = {0};
    choice_make(&spec, m, &how, &choice);
    oracle(m);
    const int n = oracle_n < CHOICE_OPTIONS ? oracle_n : CHOICE_OPTIONS;
    CHECK_MSG(choice.n_weighed == oracle_n && choice.n_fit == oracle_fit && choice.n == n,
              "%d ranks: %d weighed, %d fit, %d listed; %d, %d", spec.resources.ranks,
              choice.n_weighed, choice.n_fit, choice.n, oracle_n, oracle_fit);
    CHECK(choice.products_weighed == choice.n_products && choice.n_products > 1);
    for (int i = 0; i < n && i < oracle_fit; i++)
        CHECK_MSG(choice.option[i].fits && choice.option[i].cost_s == oracle_cost[i],
                  "%d ranks, option %d: %g s, want %g", spec.resources.ranks, i,
                  choice.option[i].cost_s, oracle_cost[i]);
    for (int i = 1; i < n; i++)
        CHECK(!weigh_better(&choice, &choice.option[i], &choice.option[i - 1]));
}

static void test_oracle(void)
{
    const struct machine one = nodes(8, 1, 0), four = nodes(8, 4, 0.5);
    for (int batch = 1; batch <= 8; batch *= 4)
        for (int mib = 0; mib <= 16; mib += 8) {
            decoder(2048, 8);
            spec.train.global_batch = batch;
            spec.resources.memory_mib = mib;
            check_oracle(&one);
            check_oracle(&four);
        }
    /* Checks more options than are listed. */
    decoder(2400, 60);
    spec.model.shape.n_heads = spec.model.shape.n_kv_heads = 60;
    spec.model.shape.width = 240, spec.model.shape.head_dim = 4, spec.model.shape.ffn_width = 480;
    spec.train.global_batch = 60;
    const struct machine many = nodes(60, 5, 1);
    check_oracle(&many);
    CHECK_MSG(choice.n_weighed > CHOICE_OPTIONS && choice.n == CHOICE_OPTIONS, "%d of %d", choice.n,
              choice.n_weighed);
    CHECK(choice.n_plans <= CHOICE_PLANS);
}

static int64_t memory_of(int pp, int tp)
{
    static struct job_spec s;
    static struct plan p;
    struct err e = {0};
    s = spec;
    s.parallel.pp = pp, s.parallel.tp = tp;
    s.parallel.sp = s.resources.ranks / pp / tp, s.parallel.dp = 1;
    CHECK_MSG(!family_check(&s, &e) && !plan_make(&s, 0, &p, &e), "%s: %s", e.field, e.text);
    return p.arena_size + p.segment_size;
}

/* Checks weights that are too large for one rank. In some cases the weights fit only if ranks
 * share layers, and in other cases only if there are stages. The axis with which the weights fit
 * must be chosen, whether or not the machine is known. */
static void test_only_one_fits(void)
{
    const struct machine none = {0}, known = nodes(2, 1, 0);
    for (int stages = 0; stages < 2; stages++)
        for (int timed = 0; timed < 2; timed++) {
            decoder(64, 2);
            spec.train.global_batch = 4;
            spec.model.shape.width = 384, spec.model.shape.ffn_width = 4096;
            /* with one layer, no second stage would have a layer */
            spec.model.shape.n_layers = stages ? 4 : 1;
            spec.model.shape.n_heads = spec.model.shape.n_kv_heads = stages ? 3 : 4;
            spec.model.shape.head_dim = stages ? 128 : 96;
            spec.memory.mlp_chunk_tokens = 0, spec.memory.recompute = RECOMPUTE_FULL;
            const int64_t whole = memory_of(1, 1);
            const int64_t part = stages ? memory_of(2, 1) : memory_of(1, 2);
            CHECK_MSG(part + (2 << 20) < whole, "%lld and %lld", (long long)part, (long long)whole);
            spec.resources.memory_mib = (part >> 20) + 1;
            choose(timed ? &known : &none);
            const struct option *b = &choice.option[0];
            CHECK_MSG(b->fits && b->pp == (stages ? 2 : 1) && b->tp == (stages ? 1 : 2), "%s",
                      choice.reason);
            CHECK_MSG(strstr(choice.reason, stages ? "x pp 2" : "x tp 2"), "%s", choice.reason);
            CHECK(choice.max_seq_len > 64);
            static struct job_spec s;
            struct err e = {0};
            s = spec;
            choice_apply(&choice, &s);
            CHECK_MSG(!family_check(&s, &e), "%s", e.text);
            CHECK(job_stages(&s) == b->pp && job_tp(&s) == b->tp);
            CHECK_MSG(fits(choice.max_seq_len) && !fits(choice.max_seq_len + 1), "%lld",
                      (long long)choice.max_seq_len);
            /* If the job sets both axes to 1, they must not be changed, so no option fits. */
            spec.parallel.pp = spec.parallel.tp = 1;
            choose(timed ? &known : &none);
            CHECK(!choice.option[0].fits && choice.option[0].pp == 1 && choice.option[0].tp == 1);
        }
}

/* Checks that the fields that the job sets are the same in every option. If no times are known and
 * the job fits, no other option is examined. */
static void test_said(void)
{
    const struct machine known = nodes(16, 1, 0), none = {0};
    decoder(2048, 16);
    spec.train.global_batch = 8;
    choose(&known);
    bool divided = false;
    for (int i = 0; i < choice.n; i++)
        divided |= choice.option[i].pp > 1 || choice.option[i].tp > 1;
    CHECK(divided);
    choose(&none);
    CHECK(choice.n_products == 1 && choice.option[0].sp == 16);
    for (int i = 0; i < choice.n; i++) CHECK(choice.option[i].pp == 1 && choice.option[i].tp == 1);
    const struct axes said[] = {{.pp = 2}, {.tp = 2}, {.pp = 1, .tp = 1}, {.sp = 4}, {.dp = 2}};
    for (size_t k = 0; k < sizeof said / sizeof *said; k++) {
        const struct axes *a = &said[k];
        decoder(2048, 16);
        spec.train.global_batch = 8;
        spec.parallel.pp = a->pp, spec.parallel.tp = a->tp;
        spec.parallel.sp = a->sp, spec.parallel.dp = a->dp;
        choose(&known);
        CHECK(choice.n > 0);
        for (int i = 0; i < choice.n; i++) {
            const struct option *o = &choice.option[i];
            CHECK((!a->pp || o->pp == a->pp) && (!a->tp || o->tp == a->tp));
            CHECK((!a->sp || o->sp == a->sp) && (!a->dp || o->dp == a->dp));
            /* If the job sets only sp or only dp, the missing axis is computed from the given
             * axis, in the same way as without a plan. */
            if (a->sp || a->dp) CHECK(o->sp * o->dp == 16);
        }
    }
    decoder(2048, 16);
    spec.parallel.zero_group = 4;
    choose(&known);
    for (int i = 0; i < choice.n; i++) CHECK(choice.option[i].zero_group == 4);
}

/* Checks that gathering weights across a slow network is estimated to cost more than gathering
 * them within a node. */
static void test_node_zero(void)
{
    for (int slow = 0; slow < 2; slow++) {
        const struct machine m = nodes(16, 1 + slow, 0.1);
        decoder(2048, 16);
        spec.train.global_batch = 16;
        spec.parallel.zero = 3;
        spec.parallel.pp = spec.parallel.tp = 1;
        choose(&m);
        CHECK_MSG(choice.option[0].zero_group == (slow ? 8 : 0), "%s", choice.reason);
        for (int i = 1; slow && i < choice.n; i++) {
            const struct option *o = &choice.option[i], *b = &choice.option[0];
            if (o->sp == b->sp && o->strategy == b->strategy && !o->zero_group)
                CHECK(o->time.step_s > 2 * b->time.step_s && o->size < b->size);
        }
        CHECK(!strstr(choice.reason, "zero_group 8: ") == !slow);
        static struct job_spec s;
        static struct plan p;
        struct err e = {0};
        s = spec;
        choice_apply(&choice, &s);
        CHECK_MSG(!family_check(&s, &e) && !plan_make(&s, 0, &p, &e), "%s", e.text);
        CHECK(p.zero_group == (slow ? 8 : 16));
        choice_make(&spec, &m, &(struct choice_how){.ungrouped = true}, &choice);
        CHECK(choice.n > 0);
        for (int i = 0; i < choice.n; i++) CHECK(!choice.option[i].zero_group);
    }
    const struct machine m = nodes(16, 2, 0.1);
    decoder(2048, 16);
    spec.train.global_batch = 16;
    spec.parallel.zero = 3;
    spec.parallel.zero_group = 16; /* the job sets this field, so the field must be the same in
                                    * every product */
    choose(&m);
    CHECK(choice.n > 1);
    for (int i = 0; i < choice.n; i++)
        CHECK_MSG(!choice.option[i].zero_group || choice.option[i].zero_group == 16, "%d: %d", i,
                  choice.option[i].zero_group);
}

static int64_t ticks(void *arg)
{
    return (*(int64_t *)arg += 100); /* each call of this clock is 0.1 s after the previous call */
}

/* Checks the two limits of the search. It must make at most the allowed number of plans, and it
 * must stop when its time is over. In both cases it must report that it stopped at a limit. The
 * first product is always examined. */
static void test_bounds(void)
{
    const struct machine m = nodes(16, 2, 1);
    int64_t now = 0;
    decoder(2048, 16);
    spec.train.global_batch = 8;
    choose(&m);
    const int all = choice.n_plans, products = choice.n_products;
    CHECK(all > 30 && choice.products_weighed == products && !strstr(choice.reason, "the limit"));
    for (int most = 1; most <= all; most += 7) {
        const struct choice_how how = {.most_plans = most};
        choice_make(&spec, &m, &how, &choice);
        CHECK(choice.n_plans == most && choice.n_products == products && choice.n > 0);
        CHECK((choice.products_weighed < products) == (strstr(choice.reason, "the limit") != NULL));
        CHECK(most > all - 7 || choice.products_weighed < products);
    }
    struct choice_how how = {.clock_ms = ticks, .arg = &now};
    choice_make(&spec, &m, &how, &choice);
    CHECK_MSG(choice.n_plans > 2 && choice.n_plans <= CHOICE_MS / 100 &&
                  choice.products_weighed < products,
              "%d plans, %d of %d products", choice.n_plans, choice.products_weighed, products);
    CHECK_MSG(strstr(choice.reason, "the limit is 2000 plans, or 2 s"), "%s", choice.reason);
    CHECK(choice.option[0].fits);
}

/* ---- the form of ring attention -------------------------------------------------------------- */

static struct reach_document equal_documents(void *arg, int64_t pos)
{
    const int64_t n = *(const int64_t *)arg, first = pos / n * n;
    return (struct reach_document){first, first + n};
}

/* Returns which rows of other ranks the documents of samples reach on four ranks. The samples
 * consist of documents of n tokens each. */
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

static enum form_id form_of(const struct machine *m, const struct form_seen *seen,
                            char reason[FORM_REASON_SIZE])
{
    static struct job_spec s;
    struct err e = {0};
    s = spec;
    CHECK(family_check(&s, &e) == 0 && form_waits(&s));
    return form_choose(&s, m, seen, reason);
}

/* Checks the bytes of both forms by hand, for 4 ranks, 4 layers, S 4096 and a contiguous layout.
 * Each rank has T = 1024 rows of 2 * 4 * 64 floats. Documents have 96 tokens, so the borders
 * between ranks are at 10 2/3, 21 1/3 and 32 documents. One document therefore crosses the border
 * at 1024, one document crosses the border at 2048, and one document ends at 3072. Rows 960 ..
 * 1023 and 2016 .. 2047 are seen by the next rank. Rank 0 sends 64 rows of keys and values,
 * forward and backward, and receives as many rows of gradients. In a ring, blocks of 1024 rows are
 * also passed to ranks that do not see them because of causality. Rank 3 therefore passes on the
 * blocks of ranks 1 and 2 toward ranks 0 and 1, twice. It also passes on the gradients of ranks 0
 * and 1 toward these ranks. */
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
    char reason[FORM_REASON_SIZE], bytes[24];
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

/* Returns a limit for the memory of each of four ranks, in MiB. With this limit, blockwise
 * attention fits, and all_gather does not fit. */
static int64_t tight_mib(void)
{
    static struct plan p;
    static struct job_spec s;
    struct err e = {0};
    s = spec;
    CHECK(family_check(&s, &e) == 0 && !plan_make(&s, 0, &p, &e));
    return ((p.arena_size + p.segment_size) >> 20) + 1;
}

/* Checks that all_gather is chosen only if there is room for the keys and values of all ranks,
 * whatever numbers a rank reports. */
static void test_form_limits(void)
{
    const struct machine none = {0};
    char reason[FORM_REASON_SIZE];
    decoder(4096, 4);
    spec.parallel.sp = 4;
    spec.memory.recompute = RECOMPUTE_NONE;
    struct form_seen seen = see(48);
    spec.resources.memory_mib = tight_mib();
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

/* Checks that the text fits into its buffer with the largest numbers that a rank can report. There
 * are three sentences to check. */
static void test_form_reason_fits(void)
{
    const struct machine none = {0};
    const int64_t most = 1000000000000000000;
    static const char *const says[] = {"which does not fit", "pass it", "hold the keys"};
    char reason[FORM_REASON_SIZE];
    decoder(4096, 4);
    spec.parallel.sp = 4;
    spec.memory.recompute = RECOMPUTE_NONE;
    const int64_t tight = tight_mib();
    for (int i = 0; i < 3; i++) {
        const struct form_seen seen = {
            1, {most, i == 1 ? most : most / 2}, {most, i == 1 ? most / 2 : most}};
        spec.resources.memory_mib = i == 0 ? tight : 0;
        form_of(&none, &seen, reason);
        CHECK_MSG(strlen(reason) + 1 < sizeof reason && strstr(reason, says[i]), "%s", reason);
    }
}

/* Checks that the choice of the form is postponed only if the lengths of documents can influence
 * it. */
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
    choice_write(&choice, &m, CHOICE_OPTIONS, &w);
    jwrite_end(&w);
    CHECK(jwrite_finish(&w) > 0);
    CHECK(strstr(out, "\"weighed\":[{\"strategy\":") && strstr(out, "\"chosen\":true"));
    CHECK(strstr(out, "\"form\":\"two_pass\"") && strstr(out, "\"comm_bytes\":"));
    CHECK(strstr(out, "\"note\":\"the published form") && !strstr(out, "not run by jobs"));
    CHECK(strstr(out, "decides it when the data are prepared"));
    CHECK(strstr(out, "\"estimate\":{\"step_s\":") && strstr(out, "\"source\":\"given\""));
}

int main(void)
{
    RUN(test_estimate);
    RUN(test_states);
    RUN(test_shared_cores);
    RUN(test_lengths);
    RUN(test_length_fields);
    RUN(test_degree);
    RUN(test_asked);
    RUN(test_pure);
    RUN(test_limits);
    RUN(test_family_limits);
    RUN(test_strategy_limits);
    RUN(test_frames_limit);
    RUN(test_grid_forms);
    RUN(test_work_is_the_flops);
    RUN(test_proof);
    RUN(test_proof_of_pairs);
    RUN(test_rates);
    RUN(test_elements);
    RUN(test_buckets);
    RUN(test_groups);
    RUN(test_ungrouped);
    RUN(test_compared);
    RUN(test_in_turn);
    RUN(test_turns_on_shared_cores);
    RUN(test_nothing_fits);
    RUN(test_products);
    RUN(test_node_groups);
    RUN(test_oracle);
    RUN(test_only_one_fits);
    RUN(test_said);
    RUN(test_node_zero);
    RUN(test_bounds);
    RUN(test_form_bytes);
    RUN(test_form_choice);
    RUN(test_form_limits);
    RUN(test_form_reason_fits);
    RUN(test_form_waits);
    RUN(test_json);
    return test_done("choice");
}
