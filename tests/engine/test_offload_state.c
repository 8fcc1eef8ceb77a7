/* test_offload_state.c: checks memory.offload "optimizer" and "all". Losses, norms, gradients,
 * weights, moments and averages must have the bits of a training that offloads nothing, on every
 * product of axes. engine.h compares the bytes that are copied, and the memory that is held, with
 * the plan in every step. The sizes are also compared with numbers that are computed by hand.
 * tests: needs golden */
#include <math.h>
#include "api/core/mem.h"
#include "tests/lib/adapter.h"
#include "tests/lib/engine.h"
#include "tests/lib/freeze.h"
#include "tests/lib/mutant.h"
#include "tests/lib/planned.h"
#include "worker/family/config.h"
#include "worker/family/family.h"
#include "worker/hf/hf.h"
#include "worker/plan/check.h"
#include "worker/plan/machine.h"
#include "worker/plan/work.h"

enum { STEPS = 3, LENGTH = 37 };

static struct job_spec spec; /* static because it is too large for the stack */
static struct synth synth = {.S = LENGTH, .doc_len = 11, .vocab = 61};

struct way {
    const char *family; /* directory in tests/golden; NULL means a Llama */
    int P, dp, pp, tp, zero, group, determinism, precision, tied, layers;
    int adapter; /* rank of adapters; 0 means that all weights are trained */
    int saves;   /* bits of enum adapter_saves */
    const char *freeze[FREEZE_PATTERNS];
    int64_t batch;
    double max_norm, ema;
};

/* Sets sizes that are multiples of the number of ranks that share layers. */
static void share_layers(struct model_shape *m)
{
    m->width = 32, m->n_heads = 4, m->n_kv_heads = 2, m->head_dim = 8, m->ffn_width = 44;
}

static void set_spec(const struct way *w, enum offload_id offload)
{
    struct job_spec *s = &spec;
    struct err e = {0};
    engine_spec(s, LENGTH);
    engine_on_device(s);
    s->model.shape.n_layers = w->layers ? w->layers : 4;
    if (w->family) {
        char dir[96];
        snprintf(dir, sizeof dir, "tests/golden/%s", w->family);
        CHECK_MSG(!config_read_dir(dir, &s->model.shape, &e), "%s", e.text);
    }
    if (!w->family) s->model.shape.tied = w->tied;
    if (w->tp > 1) share_layers(&s->model.shape);
    s->train.steps = STEPS;
    s->train.global_batch = w->batch ? w->batch : w->dp > 1 ? w->dp : 1;
    s->optim.max_grad_norm = w->max_norm;
    s->ema.decay = w->ema;
    s->precision.params = w->precision;
    s->parallel.zero = w->zero;
    s->parallel.zero_group = w->group;
    s->determinism = w->determinism ? w->determinism : DET_RUN;
    s->memory.recompute = RECOMPUTE_SELECTIVE;
    s->memory.mlp_chunk_tokens = 0;
    s->memory.offload = (int32_t)offload;
    if (w->freeze[0]) freeze_tensors(s, w->freeze);
    if (!w->adapter) return;
    s->adapter.rank = w->adapter;
    s->adapter.alpha = 5;
    adapter_saves(s, w->saves);
    s->optim.lr_saved = w->saves ? 4 * s->optim.lr : 0;
    adapter_targets(s, NULL, 0);
}

/* The moving averages after the last step. */
static float *averages;

static void keep_averages(struct train *t, int rank, void *arg)
{
    (void)rank, (void)arg;
    if (t->plan->ema && t->step == STEPS) engine_collect(t, SHARDED_EMA, averages);
}

static struct engine_run go(const struct way *w, enum offload_id offload, float *ema)
{
    struct engine_run r = {.P = w->P ? w->P : 1,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = STEPS,
                           .source = {synth_batch, synth_targets, &synth},
                           .after_step = keep_averages};
    set_spec(w, offload);
    averages = ema;
    engine_go(&r, &spec);
    return r;
}

static void say(const struct way *w, enum offload_id offload, char *out, size_t size)
{
    snprintf(out, size,
             "%s P %d dp %d pp %d tp %d zero %d group %d determinism %d precision %d tied %d "
             "adapter %d saves %d batch %lld norm %g ema %g offload %d",
             w->family ? w->family : "llama", w->P, w->dp, w->pp, w->tp, w->zero, w->group,
             w->determinism, w->precision, w->tied, w->adapter, w->saves, (long long)w->batch,
             w->max_norm, w->ema, offload);
}

static int64_t state_of(const struct plan *p)
{
    return p->class_size[PLAN_GRADIENTS] + p->class_size[PLAN_OPTIMIZER];
}

enum { AVERAGES = 1 << 20 };

static bool same(const struct engine_run *a, const struct engine_run *b)
{
    const size_t size = (size_t)a->n * 4;
    for (int k = 0; k < STEPS; k++)
        if (!(a->loss[k] == b->loss[k] && a->norm[k] == b->norm[k])) return false;
    return !memcmp(a->grad, b->grad, size) && !memcmp(a->weights, b->weights, size) &&
           !memcmp(a->adam_m, b->adam_m, size) && !memcmp(a->adam_v, b->adam_v, size);
}

/* Compares a training that offloads with the same training without it. */
static void beside(const struct way *w)
{
    static float ema[2][AVERAGES];
    struct engine_run kept = go(w, OFFLOAD_NONE, ema[0]);
    CHECK(kept.n <= AVERAGES && kept.norm[0] > 1e-6);
    for (enum offload_id o = OFFLOAD_OPTIMIZER; o <= OFFLOAD_ALL; o++) {
        char what[256];
        struct engine_run away = go(w, o, ema[1]);
        say(w, o, what, sizeof what);
        CHECK_MSG(away.plan.offload.optimizer && away.plan.offload.on == (o == OFFLOAD_ALL), "%s",
                  what);
        CHECK_MSG(same(&kept, &away), "%s: other bits; losses %.17g, %.17g; norms %.17g, %.17g",
                  what, away.loss[2], kept.loss[2], away.norm[2], kept.norm[2]);
        if (w->ema > 0)
            CHECK_MSG(!memcmp(ema[0], ema[1], (size_t)kept.n * 4), "%s: other averages", what);
        if (!w->adapter && !w->family && !w->freeze[0])
            CHECK_MSG(state_of(&away.plan) < state_of(&kept.plan), "%s: %lld bytes, kept %lld",
                      what, (long long)state_of(&away.plan), (long long)state_of(&kept.plan));
        engine_free(&away);
    }
    engine_free(&kept);
}

/* Checks one and two ranks with every kind of sharding, with one and with several sequences of a
 * rank in a step, with tied embeddings, and with gradients that are clipped. */
static void test_shards(void)
{
    for (int P = 1; P <= 2; P++)
        for (int zero = 0; zero <= 3; zero++)
            for (int batch = 1; batch <= 3; batch++) {
                if (P == 1 && zero) continue;
                if (small_leaves(P + zero + batch, 2)) continue;
                beside(&(struct way){.P = P,
                                     .zero = zero,
                                     .batch = batch,
                                     .tied = (zero + batch) % 2,
                                     .precision = batch % 2 ? PRECISION_BF16 : PRECISION_FP32,
                                     .max_norm = batch == 1 ? 0 : 0.5,
                                     .ema = zero % 2 ? 0.9 : 0});
            }
}

static void test_products(void)
{
    static const struct way all[] = {
        {.P = 2, .dp = 2, .zero = 0, .batch = 4, .max_norm = 0.5},
        {.P = 2, .dp = 2, .zero = 1, .group = 2, .batch = 4, .max_norm = 0.5, .tied = 1},
        {.P = 2, .dp = 2, .zero = 3, .group = 2, .batch = 4, .max_norm = 0.5},
        {.P = 2, .zero = 1, .determinism = DET_RANKS, .batch = 2, .max_norm = 0.5, .tied = 1},
        {.P = 1, .determinism = DET_RANKS, .batch = 2, .max_norm = 0.5, .tied = 1},
        {.P = 1, .pp = 2, .batch = 3, .max_norm = 0.5, .tied = 1},
        {.P = 1, .pp = 2, .batch = 3, .max_norm = 0.5},
        {.P = 2, .pp = 2, .zero = 1, .batch = 3, .max_norm = 0.5, .tied = 1},
        {.P = 1, .pp = 2, .dp = 2, .zero = 3, .batch = 6, .max_norm = 0.5, .tied = 1, .layers = 5},
        {.P = 1, .pp = 2, .determinism = DET_RANKS, .batch = 3, .max_norm = 0.5, .tied = 1},
        {.family = "mistral", .P = 1, .tp = 2, .batch = 2, .max_norm = 0.5},
        {.family = "mistral", .P = 2, .tp = 2, .zero = 2, .batch = 2, .max_norm = 0.5},
        {.family = "gpt2", .P = 2, .zero = 1, .batch = 2, .max_norm = 0.5, .ema = 0.9},
        {.family = "mixtral", .P = 2, .zero = 0, .batch = 2, .max_norm = 0.5},
        {.family = "tnl", .P = 2, .zero = 3, .batch = 2, .max_norm = 0.5},
        {.P = 2, .zero = 1, .batch = 2, .precision = PRECISION_FP16, .max_norm = 0.5},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!small_leaves((int64_t)i, 3)) beside(&all[i]);
}

static void test_tuned(void)
{
    static const struct way all[] = {
        {.P = 2, .zero = 1, .adapter = 3, .batch = 2, .max_norm = 0.5},
        {.P = 2, .zero = 3, .adapter = 3, .saves = 3, .batch = 2, .max_norm = 0.5},
        {.P = 1, .adapter = 3, .saves = 2, .batch = 2, .precision = PRECISION_BF16},
        {.P = 2, .zero = 2, .batch = 2, .max_norm = 0.5, .freeze = {"*.layers.0.*", "*embed*"}},
        {.P = 1, .pp = 2, .batch = 3, .max_norm = 0.5, .freeze = {"*.layers.1.*", "*norm*"}},
        {.P = 2,
         .zero = 0,
         .batch = 2,
         .max_norm = 0.5,
         .freeze = {"*.q_proj.*", "*.k_proj.*", "*.v_proj.*"}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!small_leaves((int64_t)i, 2)) beside(&all[i]);
}

/* ---- skipped steps --------------------------------------------------------------------------- */

static int64_t batch; /* number of samples in a step */

/* A step whose samples have no target is skipped: neither moments nor weights are copied. */
static int64_t no_targets(void *arg, int64_t n, struct err *e)
{
    return n / batch == 1 ? 0 : synth_targets(arg, n, e);
}

static int bare_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    if (synth_batch(arg, sh, n, b, e)) return -1;
    for (int64_t i = 0; n / batch == 1 && i < sh->T; i++) b->targets[i] = -1;
    return 0;
}

/* Skips a step of one sample, without clipping and with it. Also skips a step of two samples, whose
 * gradients each rank of zero 0 and 1 adds up itself. */
static void test_skipped(void)
{
    static const struct way all[] = {
        {.P = 2, .zero = 0, .batch = 1},
        {.P = 2, .zero = 2, .batch = 1, .max_norm = 0.5},
        {.P = 1, .zero = 0, .batch = 2, .max_norm = 0.5, .tied = 1},
        {.P = 2, .zero = 1, .batch = 2, .max_norm = 0.5, .ema = 0.9},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct engine_run r[2];
        batch = all[i].batch;
        for (int o = 0; o < 2; o++) {
            r[o] = (struct engine_run){
                .P = all[i].P, .steps = STEPS, .source = {bare_batch, no_targets, &synth}};
            set_spec(&all[i], o ? OFFLOAD_OPTIMIZER : OFFLOAD_NONE);
            engine_go(&r[o], &spec);
        }
        const size_t size = (size_t)r[0].n * 4;
        CHECK(plan_adds_here(&r[1].plan) == (batch > 1));
        CHECK(isnan(r[0].loss[1]) && isnan(r[1].loss[1]) && r[0].loss[2] == r[1].loss[2]);
        CHECK(!memcmp(r[0].weights, r[1].weights, size) && !memcmp(r[0].grad, r[1].grad, size));
        CHECK(!memcmp(r[0].adam_m, r[1].adam_m, size) && !memcmp(r[0].adam_v, r[1].adam_v, size));
        engine_free(&r[0]), engine_free(&r[1]);
    }
}

#ifdef SEQD_MUTANTS
static void test_mutants(void)
{
    static const int of[] = {MUTANT_MOMENTS_SHIFTED, MUTANT_GRAD_LOST};
    for (int k = 0; k < 2; k++) {
        for (int zero = 0; zero <= 3; zero++) {
            const struct way w = {.P = 2, .zero = zero, .batch = 2, .max_norm = 0.5};
            struct engine_run kept = go(&w, OFFLOAD_NONE, NULL);
            mutant_choose(of[k]);
            struct engine_run away = go(&w, OFFLOAD_OPTIMIZER, NULL);
            mutant_choose(MUTANT_NONE);
            mutant_report(of[k], !same(&kept, &away), "offloaded optimizer, three steps");
            engine_free(&kept), engine_free(&away);
        }
        verify_blind(of[k]);
    }
}
#endif

/* ---- the plan -------------------------------------------------------------------------------- */

/* Compares the store and the copied bytes with numbers computed by hand. A rank adds two sequences:
 * a gradient leaves twice and comes back once. With the update, the gradient, the master weights
 * and both moments come back, and all but the gradient leave. */
static void test_numbers(void)
{
    static char json[65536];
    struct plan p;
    const struct way w = {.P = 1, .batch = 2, .precision = PRECISION_BF16, .max_norm = 1};
    set_spec(&w, OFFLOAD_OPTIMIZER);
    planned(&spec, 0, &p);
    const int64_t n = 4 * param_count(&spec.model.shape);
    const struct offload_count done = plan_away_moves(&p, 0, true),
                               left = plan_away_moves(&p, 0, false);
    CHECK(p.by_bucket && plan_adds_here(&p) && p.offload.size == 4 * n);
    CHECK(p.offload.disk_size == mem_round(4 * n, PLAN_PAGE) || p.own_memory);
    CHECK(left.bytes_out == 2 * n && left.bytes_in == n);
    CHECK(done.bytes_out == 5 * n && done.bytes_in == 5 * n);
    CHECK(!p.item[PLAN_MASTER].name && !p.item[PLAN_ADAM_M].name && !p.item[PLAN_GRAD_ACC].name);
    CHECK(p.item[PLAN_UPDATE].size == 2 * 4 * 4 * p.offload.piece);
    CHECK(p.item[PLAN_GRAD].size == 4 * zero_grad_window(&p.shards));
    char want[128];
    snprintf(want, sizeof want, "\"bytes\":%lld,\"bytes_out\":%lld,\"bytes_in\":%lld",
             (long long)(4 * n), (long long)(5 * n), (long long)(5 * n));
    CHECK(plan_json(&spec, &p, json, sizeof json) > 0 && strstr(json, want));
    CHECK(strstr(json, "\"what\":\"optimizer\""));
    CHECK(strstr(json, "the optimizer offloaded to"));
    spec.kind = JOB_VERIFY; /* a proof has no optimizer */
    planned(&spec, 0, &p);
    CHECK(!p.offload.optimizer && !p.by_bucket && !p.offload.size);
}

/* Checks that a plan reports the largest host's part and the largest file of all stages. The first
 * stage has the largest arena, because it keeps two sequences. But its embedding is frozen, so the
 * last stage, which has the head, has more of each. */
static void test_stages(void)
{
    static char json[65536];
    for (int own = 0; own < 2; own++) {
        struct plan p, of;
        struct err e = {0};
        int64_t host = 0, disk = 0;
        char want[64];
        set_spec(&(struct way){.P = 1, .pp = 2, .batch = 3, .max_norm = 1, .freeze = {"*embed*"}},
                 OFFLOAD_OPTIMIZER);
        spec.parallel.pp = 2;
        CHECK(!spec_intern(&spec, own ? "emulated" : "cpu", own ? 8 : 3, &spec.resources.device));
        planned(&spec, 0, &p);
        for (int rank = 0; rank < p.n_ranks; rank++) {
            CHECK_MSG(!plan_of_rank(&spec, &p, rank, &of, &e), "%s", e.text);
            if (of.host_size > host) host = of.host_size;
            if (of.offload.disk_size > disk) disk = of.offload.disk_size;
        }
        CHECK(p.n_ranks == 2 && (own ? p.host_size < host : p.offload.disk_size < disk));
        snprintf(want, sizeof want, own ? "\"host_bytes\":%lld," : "\"disk_bytes\":%lld,",
                 (long long)(own ? host : disk));
        CHECK_MSG(plan_json(&spec, &p, json, sizeof json) > 0 && strstr(json, want), "%s", want);
    }
}

/* Checks the estimated elements of an update whose gradients a rank adds up in the store: each
 * gradient is cleared once, for any number of samples. */
static void test_work(void)
{
    struct machine m = {.known = true, .point = 1e6, .update = 1e6};
    for (int i = 0; i < RATE_N; i++)
        for (int k = 0; k < PRECISION_N; k++)
            for (int j = 0; j < PROFILE_SIZES; j++) m.rate[i][k][j] = 1e12;
    for (int64_t n = 1; n <= 3; n += 2) {
        struct work kept, away;
        struct plan p;
        const struct way w = {.P = 1, .batch = n, .tied = 1, .max_norm = 1};
        set_spec(&w, OFFLOAD_NONE);
        work_count(&m, &spec.model.shape, planned(&spec, 0, &p), &kept);
        set_spec(&w, OFFLOAD_OPTIMIZER);
        work_count(&m, &spec.model.shape, planned(&spec, 0, &p), &away);
        CHECK(p.micro_batches == n && plan_adds_here(&p));
        CHECK_MSG(fabs((away.other_s - kept.other_s) * 1e6 - (double)p.n_trained) < 1e-3,
                  "%lld samples: %.9g elements, not %lld", (long long)n,
                  (away.other_s - kept.other_s) * 1e6, (long long)p.n_trained);
    }
}

/* Compares the estimated time of a step with numbers computed by hand. `seconds` are those of one
 * array in one direction. Two samples of a rank: each gradient leaves twice and comes back once,
 * during backward passes. Then four arrays come back and three leave, while AdamW takes
 * `update_s`. */
static void step_is(bool own, double seconds, double update_s)
{
    struct hardware h;
    struct machine m;
    struct estimate kept, away;
    struct plan p;
    const struct way w = {.P = 1, .batch = 2, .precision = PRECISION_BF16, .max_norm = 1};
    set_spec(&w, OFFLOAD_NONE);
    CHECK(!spec_intern(&spec, own ? "emulated" : "cpu", own ? 8 : 3, &spec.resources.device));
    hardware_defaults(&h);
    h.given = 1, h.tflops = 1e-6;
    machine_of_hardware(&h, &m);
    const double n = (double)param_count(&spec.model.shape);
    m.offload = 4 * n / seconds, m.update = n / update_s;
    machine_estimate(&m, &spec, planned(&spec, 0, &p), &kept);
    spec.memory.offload = OFFLOAD_OPTIMIZER;
    machine_estimate(&m, &spec, planned(&spec, 0, &p), &away);
    const double copies = (own ? 4 : 7) * seconds, most = copies > update_s ? copies : update_s;
    const double passes = (kept.compute_s - update_s) * 2 / 3;
    const double seen = 3 * seconds > passes ? 3 * seconds - passes : 0;
    CHECK(p.own_memory == own && fabs(away.offload_s / (10 * seconds) - 1) < 1e-9);
    CHECK_MSG(fabs((away.step_s - kept.step_s) / (most - update_s + seen) - 1) < 1e-6 ||
                  (most - update_s + seen < 1e-9 && fabs(away.step_s / kept.step_s - 1) < 1e-9),
              "own %d, %g s, update %g s: %g s more, not %g s", own, seconds, update_s,
              away.step_s - kept.step_s, most - update_s + seen);
}

/* Checks copies and updates either of which take longer, and gradients that take longer than the
 * backward passes. */
static void test_time(void)
{
    for (int own = 0; own < 2; own++) {
        step_is(own, 1, 0.5);
        step_is(own, 1, 5);
        step_is(own, 1, 50);
        step_is(own, 1e5, 1);
    }
}

static void on_one_device(int64_t tokens)
{
    engine_spec(&spec, tokens);
    spec.model.shape = (struct model_shape){PLANNED_LLAMA_8B};
    CHECK(!spec_intern(&spec, "cuda", 4, &spec.resources.device));
    spec.precision.params = PRECISION_BF16;
    spec.memory.recompute = RECOMPUTE_AUTO;
    spec.memory.mlp_chunk_tokens = -1;
    spec.memory.offload = OFFLOAD_AUTO;
}

/* Checks a full fine-tune of a decoder with 8 billion weights at 500,000 tokens on one device of 80
 * GiB, in bf16. "auto" offloads activations and the optimizer, because nothing else makes it
 * fit. */
static void test_large(void)
{
    const struct hardware h = {
        .given = 1, .devices = 1, .nodes = 1, .memory_gib = 80, .tflops = 400, .host_gbs = 25};
    const int64_t limit = (int64_t)80 << 30;
    struct machine m;
    struct estimate t;
    struct plan p;
    char a[24], b[24], c[PLAN_CLASS_N][24];
    struct err e = {0};
    machine_of_hardware(&h, &m);
    on_one_device(500000);
    spec.memory.offload = OFFLOAD_ACTIVATIONS;
    spec.memory.recompute = RECOMPUTE_FULL;
    CHECK(plan_make(&spec, limit, &p, &e) && e.code == ERR_DOES_NOT_FIT);
    printf("  8 B, 500000 tokens, one device: %s with activations offloaded\n",
           plan_bytes(a, planned_size(&p)));
    on_one_device(500000);
    machine_estimate(&m, &spec, planned(&spec, limit, &p), &t);
    for (int i = 0; i < PLAN_CLASS_N; i++) plan_bytes(c[i], p.class_size[i]);
    printf("  all offloaded: %s (weights %s, gradients %s, optimizer %s, activations %s, workspace "
           "%s), of the host %s; %.4g s a step, %.3g s of copies, %.3g s not hidden\n",
           plan_bytes(a, planned_size(&p)), c[PLAN_WEIGHTS], c[PLAN_GRADIENTS], c[PLAN_OPTIMIZER],
           c[PLAN_ACTIVATIONS], c[PLAN_WORKSPACE], plan_bytes(b, p.host_size), t.step_s,
           t.offload_s, t.offload_s - t.hidden_s);
    CHECK(p.offload.on && p.offload.optimizer && planned_size(&p) <= limit);
    /* bf16 weights; the largest of a layer's, the embedding's and the head's gradients */
    CHECK(p.class_size[PLAN_WEIGHTS] == 2 * p.n_params);
    CHECK(p.item[PLAN_GRAD].size == 4 * zero_grad_window(&p.shards));
    CHECK(p.host_size >= 16 * p.n_params); /* gradients, master weights and both moments */
}

/* Checks the order of the choices of "auto": activations, then the optimizer, then both. */
static void test_auto(void)
{
    static const enum offload_id order[] = {OFFLOAD_ACTIVATIONS, OFFLOAD_OPTIMIZER, OFFLOAD_ALL};
    struct plan p[3], found;
    struct err e = {0};
    for (int i = 0; i < 3; i++) {
        on_one_device(8192 << i);
        spec.memory.offload = (int32_t)order[i];
        spec.memory.recompute = RECOMPUTE_FULL;
        spec.memory.mlp_chunk_tokens = 2048;
        planned(&spec, 0, &p[i]);
        spec.memory.recompute = RECOMPUTE_AUTO;
        spec.memory.mlp_chunk_tokens = -1;
        spec.memory.offload = OFFLOAD_AUTO;
        planned(&spec, planned_size(&p[i]), &found);
        CHECK_MSG(plan_offload_id(&found) == order[i], "%d at %d", plan_offload_id(&found), i);
        spec.memory.offload = OFFLOAD_NONE;
        engine_legal(&spec);
        CHECK(plan_make(&spec, planned_size(&p[i]), &found, &e) && e.code == ERR_DOES_NOT_FIT);
        const char *word = i ? "memory.offload \"all\"" : "memory.offload \"activations\"";
        CHECK_MSG(strstr(e.text, word), "%s", e.text);
    }
    CHECK(!spec_intern(&spec, "cpu", 3, &spec.resources.device)); /* no directory is given */
    spec.memory.offload = OFFLOAD_AUTO;
    CHECK(plan_make(&spec, planned_size(&p[2]), &found, &e) && !plan_stores(&found));
}

/* A proof takes the value of its training. It has no optimizer, so it offloads activations alone,
 * and needs a directory only for them. */
static void test_refused(void)
{
    struct err e = {0};
    set_spec(&(struct way){.P = 1}, OFFLOAD_AUTO);
    engine_legal(&spec);
    spec.memory.offload = OFFLOAD_OPTIMIZER;
    spec.memory.offload_dir = 0;
    CHECK(!spec_intern(&spec, "cpu", 3, &spec.resources.device));
    CHECK(family_check(&spec, &e) && !strcmp(e.field, "memory.offload_dir"));
    CHECK_MSG(strstr(e.text, "memory.offload \"optimizer\" on \"cpu\""), "%s", e.text);
    spec.kind = JOB_VERIFY;
    CHECK_MSG(!family_check(&spec, &e), "%s: %s", e.field, e.text);
    spec.memory.offload = OFFLOAD_ALL;
    CHECK(family_check(&spec, &e) && !strcmp(e.field, "memory.offload_dir"));
    CHECK_MSG(strstr(e.text, "memory.offload \"all\" on \"cpu\""), "%s", e.text);
}

/* Checks windows in time, with which a training may not offload. A proof has no windows. */
static void test_refused_in_time(void)
{
    struct err e = {0};
    set_spec(&(struct way){.family = "tnl", .P = 1}, OFFLOAD_OPTIMIZER);
    CHECK(!spec_intern(&spec, "emulated", 8, &spec.resources.device));
    engine_legal(&spec);
    spec.memory.time_chunk = 16;
    CHECK(family_check(&spec, &e) && !strcmp(e.field, "memory.offload"));
    CHECK_MSG(strstr(e.text, "memory.offload \"optimizer\" with memory.time_chunk"), "%s", e.text);
    spec.kind = JOB_VERIFY;
    CHECK(family_check(&spec, &e) && !strcmp(e.field, "memory.time_chunk"));
    spec.memory.time_chunk = 0;
    CHECK_MSG(!family_check(&spec, &e), "%s: %s", e.field, e.text);
}

int main(void)
{
    RUN(test_numbers);
    RUN(test_stages);
    RUN(test_work);
    RUN(test_time);
    RUN(test_shards);
    RUN(test_products);
    RUN(test_tuned);
    RUN(test_skipped);
    RUN(test_large);
    RUN(test_auto);
    RUN(test_refused);
    RUN(test_refused_in_time);
#ifdef SEQD_MUTANTS
    RUN(test_mutants);
#endif
    return test_done("offload_state");
}
