/* test_offload.c: checks memory.offload, which offloads tensors that layers keep for the backward
 * pass. The bits must be the same as without offloading. The sizes of memory and the copied bytes
 * are compared with numbers that are computed by hand, and engine.h compares them with the plan in
 * every step. The planner's decisions, a failing disk and refused jobs are checked, too.
 * tests: needs golden */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/lib/lm.h"
#include "tests/lib/mutant.h"
#include "tests/lib/planned.h"
#include "worker/family/shape.h"
#include "worker/plan/check.h"
#include "worker/plan/choice.h"

enum { LENGTH = 37, STEPS = 3, LAYERS = 6 };

static struct job_spec spec;

/* ---- trainings ------------------------------------------------------------------------------- */

static const char *const names[] = {"mistral", "bert",    "gpt2",        "gemma3",  "gpt_oss",
                                    "tnl",     "qwen3_5", "qwen2_moe",   "retnet",  "modernbert",
                                    "phi3",    "linear",  "qwen3_mixed", "minimax", "mixtral"};
enum { NAMES = sizeof names / sizeof *names };

/* Sets a spec with more layers than there are buffers. */
static void spec_of(const char *name, enum precision_id precision)
{
    char dir[96];
    struct err e = {0};
    engine_spec(&spec, LENGTH);
    snprintf(dir, sizeof dir, "tests/golden/%s", name);
    CHECK_MSG(!config_read_dir(dir, &spec.model.shape, &e), "%s", e.text);
    spec.model.shape.n_layers = LAYERS;
    spec.precision.params = (int32_t)precision;
    spec.train.steps = STEPS;
    spec.train.global_batch = 2;
}

struct way {
    int P, dp, pp, tp, zero; /* a dp, pp or tp of 0 means 1 */
    enum recompute_id mode;
    enum strategy_id strategy;
    int64_t chunk;
};

static void train(struct engine_run *r, const struct way *w, enum offload_id offload)
{
    static struct synth y;
    struct job_spec s = spec;
    y = (struct synth){.S = LENGTH, .doc_len = 15};
    y.vocab = (int32_t)(s.model.shape.vocab < 250 ? s.model.shape.vocab : 250);
    *r = (struct engine_run){.P = w->P, .dp = w->dp, .pp = w->pp, .tp = w->tp, .steps = STEPS};
    r->source = (struct train_source){.batch = synth_batch, .targets = synth_targets, .arg = &y};
    s.parallel.zero = w->zero;
    s.parallel.strategy = w->strategy;
    s.memory.recompute = (int32_t)w->mode;
    s.memory.mlp_chunk_tokens = w->chunk;
    s.memory.offload = (int32_t)offload;
    engine_go(r, &s);
}

static void same_bits(const char *name, const struct way *w, const struct engine_run *a,
                      const struct engine_run *b)
{
    const size_t size = (size_t)a->n * 4;
    for (int k = 0; k < STEPS; k++)
        CHECK_MSG(a->loss[k] == b->loss[k] && a->norm[k] == b->norm[k],
                  "%s, %d x %d ranks, zero %d, recompute %d, step %d: loss %.17g, kept %.17g; norm "
                  "%.17g, %.17g",
                  name, w->P, w->dp, w->zero, w->mode, k, a->loss[k], b->loss[k], a->norm[k],
                  b->norm[k]);
    CHECK_MSG(!memcmp(a->grad, b->grad, size) && !memcmp(a->weights, b->weights, size) &&
                  !memcmp(a->adam_m, b->adam_m, size) && !memcmp(a->adam_v, b->adam_v, size),
              "%s, %d x %d ranks, zero %d, recompute %d: other bits", name, w->P, w->dp, w->zero,
              w->mode);
}

/* Compares a training with offloading with the same training without it. */
static void beside(const char *name, const struct way *w)
{
    struct engine_run away, kept;
    train(&away, w, OFFLOAD_ACTIVATIONS);
    train(&kept, w, OFFLOAD_NONE);
    CHECK(kept.norm[0] > 1e-4 && !kept.plan.offload.on && away.plan.offload.on);
    const int64_t a = away.plan.class_size[PLAN_ACTIVATIONS];
    const int64_t b = kept.plan.class_size[PLAN_ACTIVATIONS];
    CHECK_MSG(away.plan.offload.n_out > 0 && a < b,
              "%s: %d streams offloaded, %lld bytes of activations, kept %lld", name,
              away.plan.offload.n_out, (long long)a, (long long)b);
    same_bits(name, w, &away, &kept);
    engine_free(&away);
    engine_free(&kept);
}

static void test_families(void)
{
    for (int i = 0; i < NAMES; i++)
        for (int P = 1; P <= 3; P++) {
            if (small_leaves(i / 2 + P, 2)) continue;
            spec_of(names[i], P == 2 ? PRECISION_BF16 : PRECISION_FP32);
            const bool dense = family_mlps(&spec.model.shape).dense;
            const struct way w = {.P = P,
                                  .zero = (P + i) % 4,
                                  .mode = (enum recompute_id)(RECOMPUTE_NONE + (P + i / 3) % 3),
                                  .chunk = dense && i % 2 ? 3 : 0};
            beside(names[i], &w);
        }
}

/* Checks every strategy, data-parallel rings, all kinds of sharding, and several sequences in a
 * step. */
static void test_strategies(void)
{
    static const struct {
        const char *name;
        enum strategy_id strategy;
    } all[] = {{"mistral", STRATEGY_RSA},
               {"gpt2", STRATEGY_ULYSSES},
               {"bert", STRATEGY_RSA},
               {"tnl", STRATEGY_LASP},
               {"linear", STRATEGY_LASP}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int zero = 0; zero <= 3; zero++) {
            if (small_leaves((int64_t)i + 2 * zero, 3)) continue;
            spec_of(all[i].name, zero % 2 ? PRECISION_FP32 : PRECISION_BF16);
            spec.train.global_batch = 4;
            const struct way w = {.P = 2,
                                  .dp = 2,
                                  .zero = zero,
                                  .mode = (enum recompute_id)(RECOMPUTE_NONE + (zero + i) % 3),
                                  .strategy = all[i].strategy};
            beside(all[i].name, &w);
        }
}

/* Checks updates within the backward pass and a tied embedding. Any number of ranks must give the
 * same bits as one rank. */
static void test_fused_tied_ranks(void)
{
    for (int tied = 0; tied < 2; tied++) {
        spec_of("mistral", PRECISION_FP32);
        spec.model.shape.tied = tied;
        spec.train.global_batch = 1;
        spec.optim.max_grad_norm = 0;
        beside("mistral", &(struct way){.P = 2, .zero = 2 + tied, .mode = RECOMPUTE_FULL});
    }
    struct engine_run one, more;
    spec_of("mistral", PRECISION_BF16);
    spec.determinism = DET_RANKS;
    struct way w = {.P = 1, .mode = RECOMPUTE_FULL};
    train(&one, &w, OFFLOAD_NONE);
    for (w.P = 2; w.P <= 4; w.P += 2) {
        train(&more, &w, OFFLOAD_ACTIVATIONS);
        same_bits("ranks", &w, &more, &one);
        engine_free(&more);
    }
    engine_free(&one);
}

/* Sets sizes that are multiples of the number of ranks that share layers. */
static void share_layers(struct model_shape *m)
{
    m->width = 32, m->n_heads = 4, m->head_dim = 8, m->ffn_width = 44;
    m->n_kv_heads = m->family == FAMILY_BERT ? 4 : 2;
}

/* Checks pipeline stages. Every stage except the last keeps the activations of several sequences
 * at a time, and each sequence has its own part of the store. The cases include layers of two
 * kinds, and ranks that share layers. The bits must be the same as with one stage. */
static void test_stages(void)
{
    static const struct {
        const char *name;
        struct way way;
        int layers, tied;
        int64_t batch;
    } all[] = {
        {"mistral", {.P = 1, .pp = 2, .mode = RECOMPUTE_FULL}, 10, 0, 3},
        {"mistral", {.P = 2, .pp = 2, .dp = 2, .zero = 3, .mode = RECOMPUTE_NONE}, 9, 1, 6},
        {"mistral", {.P = 1, .pp = 3, .mode = RECOMPUTE_SELECTIVE, .chunk = 3}, 12, 0, 5},
        {"bert", {.P = 2, .pp = 2, .zero = 2, .mode = RECOMPUTE_SELECTIVE}, 10, 0, 4},
        {"gpt_oss", {.P = 1, .pp = 2, .mode = RECOMPUTE_NONE}, 9, 0, 3},
        {"qwen3_5", {.P = 2, .pp = 2, .zero = 1, .mode = RECOMPUTE_FULL}, 11, 0, 3},
        {"tnl", {.P = 2, .pp = 3, .mode = RECOMPUTE_NONE}, 12, 0, 4},
        {"mistral", {.P = 1, .pp = 2, .tp = 2, .mode = RECOMPUTE_NONE}, 9, 1, 3},
        {"mistral",
         {.P = 2, .pp = 2, .tp = 2, .dp = 2, .zero = 3, .mode = RECOMPUTE_FULL},
         10,
         0,
         4},
        {"bert", {.P = 1, .pp = 3, .tp = 2, .zero = 1, .mode = RECOMPUTE_NONE}, 12, 0, 4},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (small_leaves((int64_t)i, 3)) continue;
        spec_of(all[i].name, i % 2 ? PRECISION_BF16 : PRECISION_FP32);
        spec.model.shape.n_layers = all[i].layers;
        spec.model.shape.tied = all[i].tied;
        spec.train.global_batch = all[i].batch;
        if (all[i].way.tp) share_layers(&spec.model.shape);
        beside(all[i].name, &all[i].way);
    }
    struct engine_run one, stages;
    spec_of("mistral", PRECISION_FP32);
    spec.model.shape.n_layers = 11;
    spec.determinism = DET_RANKS;
    spec.train.global_batch = 4;
    struct way w = {.P = 1, .mode = RECOMPUTE_NONE};
    train(&one, &w, OFFLOAD_NONE);
    for (w.P = 1, w.pp = 2; w.pp <= 4; w.P = 3 - w.P, w.pp++) {
        train(&stages, &w, OFFLOAD_ACTIVATIONS);
        CHECK(stages.plan.pp == w.pp && stages.plan.offload.on);
        same_bits("stages", &w, &stages, &one);
        engine_free(&stages);
    }
    engine_free(&one);
}

/* Checks models with fewer layers than buffers, for which no byte is copied. */
static void test_few_layers(void)
{
    for (int L = 1; L <= 4; L++) {
        struct engine_run away, kept;
        const struct way w = {.P = 2, .mode = RECOMPUTE_SELECTIVE};
        spec_of(L % 2 ? "bert" : "mistral", PRECISION_FP32);
        spec.model.shape.n_layers = L;
        train(&away, &w, OFFLOAD_ACTIVATIONS);
        train(&kept, &w, OFFLOAD_NONE);
        const int ring = L % 2 ? 3 : 2;
        CHECK(away.plan.offload.n_ring == ring);
        CHECK(away.plan.offload.n_out == (L > ring ? L - ring : 0));
        CHECK(away.plan.offload.n_records_out == (L > 2 ? L - 2 : 0));
        same_bits("few layers", &w, &away, &kept);
        engine_free(&away);
        engine_free(&kept);
    }
}

/* ---- goldens --------------------------------------------------------------------------------- */

/* Compares trainings with golden files. All memory is filled with NaN first, so that reading a
 * buffer before it was computed or copied back is found. Also runs forward passes without a
 * backward pass, which must copy nothing. */
static void test_goldens(void)
{
    for (int i = 0; i < LM_NAMES; i++) {
        struct lm_golden g;
        lm_open(&g, lm_names[i]);
        for (int P = 1; P <= 3; P++) {
            if (small_leaves(i + P, 2)) continue;
            struct lm_run r = {.spec.memory = {.recompute = RECOMPUTE_NONE + (P + i) % 3,
                                               .offload = OFFLOAD_ACTIVATIONS}};
            lm_go(&r, &g, P);
            lm_check(&r, "offloaded");
            lm_free(&r);
        }
        lm_close(&g);
    }
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Sets a spec of a decoder with 12 layers, on 2 ranks of 512 rows. */
static void long_spec(void)
{
    engine_spec(&spec, 1024);
    spec.model.shape.n_layers = 12;
    spec.model.shape.width = 64;
    spec.model.shape.n_heads = 8;
    spec.parallel.sp = 2;
}

static void set_dir(void)
{
    CHECK(!spec_intern(&spec, "/w", 2, &spec.memory.offload_dir));
}

/* Compares the plan's memory with numbers computed by hand. Streams 0 to 9 and the records of
 * layers 1 to 10 are offloaded. 3 buffers for streams and 2 buffers for records remain. */
static void test_memory(void)
{
    static char json[65536];
    struct plan kept, away;
    const int64_t stream = 512 * 64 * 4;
    for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
        long_spec();
        spec.train.global_batch = 3;
        spec.memory.recompute = mode;
        planned(&spec, 0, &kept);
        spec.memory.offload = OFFLOAD_ACTIVATIONS;
        planned(&spec, 0, &away);
        const int64_t record = kept.kept[0];
        CHECK((record > 0) == (mode != RECOMPUTE_FULL));
        CHECK(kept.item[PLAN_X].size == 13 * stream && away.item[PLAN_X].size == 3 * stream);
        CHECK(kept.item[PLAN_KEPT].size == 12 * record && away.item[PLAN_KEPT].size == 2 * record);
        CHECK(away.offload.size == 10 * (stream + record));
        CHECK(away.offload.disk_size == mem_round(10 * (stream + record), PLAN_PAGE));
        CHECK(!away.host_size && !away.item[PLAN_OFFLOAD].name && !kept.offload.size);
        CHECK(plan_offloaded(&away, 512) == 10 * (stream + record));
        CHECK(plan_offloaded(&away, 100) == 10 * (100 * 64 * 4 + record));
        char want[96];
        snprintf(want, sizeof want, "\"where\":\"disk\",\"bytes\":%lld,\"bytes_out\":%lld,",
                 (long long)away.offload.size, 3 * (long long)away.offload.size);
        CHECK(plan_json(&spec, &away, json, sizeof json) > 0 && strstr(json, want));
        CHECK(strstr(json, "activations offloaded to memory.offload_dir: asked for"));
    }
    /* On a device with memory of its own, the store is in the host's memory. */
    CHECK(!spec_intern(&spec, "emulated", 8, &spec.resources.device));
    planned(&spec, 0, &away);
    CHECK(away.item[PLAN_OFFLOAD].in_host && away.item[PLAN_OFFLOAD].size == 10 * stream);
    CHECK(away.host_size >= 10 * stream && !away.offload.disk_size);
}

#define ADVICE "; memory.offload \"activations\" with a memory.offload_dir needs "

/* Compares the memory of two stages of 6 layers with numbers computed by hand. The first stage
 * keeps the activations of two of the three sequences at a time. Streams 0 to 3 and the records of
 * layers 1 to 4 of each sequence are offloaded. Also checks that "auto" offloads if there are
 * stages. */
static void test_memory_of_stages(void)
{
    struct plan p, of;
    struct err e = {0};
    const int64_t stream = 512 * 64 * 4;
    long_spec();
    spec.train.global_batch = 3;
    spec.parallel.pp = 2;
    spec.memory.recompute = RECOMPUTE_SELECTIVE;
    spec.memory.offload = OFFLOAD_ACTIVATIONS;
    planned(&spec, 0, &p);
    CHECK(p.pipe.first[1] == 7 && p.n_ranks == 4);
    for (int rank = 0; rank < p.n_ranks; rank++) {
        const int64_t slots = rank < 2 ? 2 : 1;
        CHECK_MSG(!plan_of_rank(&spec, &p, rank, &of, &e), "%s", e.text);
        const int64_t record = of.kept[0];
        CHECK(of.slots == slots && record > 0);
        CHECK(of.item[PLAN_X].size == slots * 3 * stream);
        CHECK(of.item[PLAN_KEPT].size == slots * 2 * record);
        CHECK(of.offload.size == slots * 4 * (stream + record));
        CHECK(plan_offloaded(&of, 512) == 4 * (stream + record));
    }
    spec.memory.recompute = RECOMPUTE_FULL;
    const int64_t least = planned_size(planned(&spec, 0, &p));
    spec.memory.recompute = RECOMPUTE_AUTO;
    spec.memory.offload = OFFLOAD_AUTO;
    engine_legal(&spec);
    CHECK(plan_make(&spec, least, &p, &e) && e.code == ERR_DOES_NOT_FIT);
    CHECK_MSG(strstr(e.text, ADVICE), "%s", e.text);
    set_dir();
    CHECK(planned_size(planned(&spec, least, &p)) == least && p.offload.on);
}

/* Checks that "auto" offloads only if the job does not fit with any other setting, and if the job
 * has a place for the store. */
static void test_auto(void)
{
    struct plan full, away, p;
    struct err e = {0};
    long_spec();
    spec.memory.recompute = RECOMPUTE_FULL;
    planned(&spec, 0, &full);
    spec.memory.offload = OFFLOAD_ACTIVATIONS;
    planned(&spec, 0, &away);
    CHECK(planned_size(&away) < planned_size(&full));
    spec.memory.recompute = RECOMPUTE_AUTO;
    CHECK(planned(&spec, 0, &p)->recompute == RECOMPUTE_FULL && p.offload.on);
    spec.memory.offload = OFFLOAD_AUTO;
    engine_legal(&spec);
    CHECK(plan_make(&spec, planned_size(&away), &p, &e) && e.code == ERR_DOES_NOT_FIT);
    CHECK_MSG(strstr(e.text, ADVICE), "%s", e.text);
    set_dir();
    planned(&spec, 0, &p);
    CHECK(!p.offload.on && p.recompute == RECOMPUTE_NONE);
    planned(&spec, planned_size(&full), &p);
    CHECK(!p.offload.on && p.recompute == RECOMPUTE_FULL);
    planned(&spec, planned_size(&away), &p);
    CHECK(p.offload.on && p.recompute == RECOMPUTE_FULL && planned_size(&p) == planned_size(&away));
    CHECK_MSG(strstr(p.reason, "memory.offload_dir: it would not fit with them"), "%s", p.reason);
    /* Pieces of MLPs are chosen before offloading. */
    spec.model.shape.ffn_width = 8192;
    spec.memory.mlp_chunk_tokens = 256;
    spec.memory.recompute = RECOMPUTE_FULL;
    const int64_t cut = planned_size(planned(&spec, 0, &p));
    spec.memory.recompute = RECOMPUTE_AUTO;
    spec.memory.mlp_chunk_tokens = -1;
    CHECK(cut < planned_size(planned(&spec, 0, &p)) && !p.offload.on);
    spec.memory.offload = OFFLOAD_NONE;
    CHECK(plan_make(&spec, planned_size(&away), &p, &e) && e.code == ERR_DOES_NOT_FIT &&
          !p.offload.on);
    spec.memory.offload = OFFLOAD_AUTO;
    spec.memory.time_chunk = 128;
    CHECK(plan_make(&spec, planned_size(&away), &p, &e) && !p.offload.on);
    spec.kind = JOB_SCORE;
    spec.memory.offload = OFFLOAD_ACTIVATIONS;
    CHECK(!planned(&spec, 0, &p)->offload.on);
}

/* Checks the estimated time. Copying to the store takes as long as copying back. The copies to the
 * store run during the forward pass, and the copies back run during the backward pass. */
static void test_time(void)
{
    struct hardware h;
    struct machine m;
    struct plan p;
    struct estimate kept, away;
    hardware_defaults(&h);
    h.given = 1, h.devices = 2, h.memory_gib = 1, h.tflops = 1e-3, h.link_gbs = 1;
    machine_of_hardware(&h, &m);
    long_spec();
    spec.memory.recompute = RECOMPUTE_FULL;
    machine_estimate(&m, &spec, planned(&spec, 0, &p), &kept);
    spec.memory.offload = OFFLOAD_ACTIVATIONS;
    machine_estimate(&m, &spec, planned(&spec, 0, &p), &away);
    const double way = 10 * 512 * 64 * 4 / 25e9;
    CHECK(!(kept.offload_s > 0) && fabs(away.offload_s / (2 * way) - 1) < 1e-9);
    CHECK(fabs(away.step_s / kept.step_s - 1) < 1e-9);
    m.offload = 1; /* one byte per second, much slower than any computation */
    machine_estimate(&m, &spec, &p, &away);
    const double seen = 2 * 10 * 512 * 64 * 4 - away.compute_s;
    CHECK(fabs((away.step_s - kept.step_s) / seen - 1) < 1e-9);
}

/* Checks a decoder with 8 billion weights at 2^20 tokens on 8 devices of 80 GiB, in bf16. Each
 * device needs at most 52.3 GiB, which are 56.2e9 bytes. */
static void test_large(void)
{
    const struct hardware h = {.given = 1,
                               .devices = 8,
                               .nodes = 1,
                               .memory_gib = 80,
                               .tflops = 400,
                               .link_gbs = 300,
                               .link_us = 10,
                               .host_gbs = 25};
    struct machine m;
    struct estimate t[2];
    struct plan p[2];
    char a[24], b[24], c[24];
    engine_spec(&spec, 1 << 20);
    spec.model.shape = (struct model_shape){PLANNED_LLAMA_8B};
    CHECK(!spec_intern(&spec, "cuda", 4, &spec.resources.device));
    spec.precision.params = PRECISION_BF16;
    spec.parallel.sp = 8;
    spec.parallel.zero = 3;
    spec.memory.recompute = RECOMPUTE_FULL;
    spec.memory.mlp_chunk_tokens = 2048;
    machine_of_hardware(&h, &m);
    for (int i = 0; i < 2; i++) {
        spec.memory.offload = i ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
        machine_estimate(&m, &spec, planned(&spec, 0, &p[i]), &t[i]);
    }
    printf("  8 B, 1048576 tokens, 8 ranks: %s, offloaded %s and of the host %s; %.3g s a step, "
           "%.3g s of copies, %.3g s more than without\n",
           plan_bytes(a, planned_size(&p[0])), plan_bytes(b, planned_size(&p[1])),
           plan_bytes(c, p[1].host_size), t[1].step_s, t[1].offload_s, t[1].step_s - t[0].step_s);
    const int64_t stream = (int64_t)131072 * 4096 * 2;
    CHECK(planned_size(&p[0]) - planned_size(&p[1]) == 30 * stream);
    CHECK((double)planned_size(&p[1]) <= 52.3 * (1 << 30) && (double)planned_size(&p[1]) <= 56.2e9);
    CHECK(p[1].item[PLAN_OFFLOAD].size == 30 * stream);
    CHECK(fabs(t[1].offload_s - 2 * 30 * (double)stream / 25e9) < 1e-6);
    CHECK(fabs(t[1].step_s / t[0].step_s - 1) < 1e-9); /* all copies are hidden */
    /* "auto" finds this plan if no other settings suffice. */
    spec.memory.recompute = RECOMPUTE_AUTO;
    spec.memory.mlp_chunk_tokens = -1;
    spec.memory.offload = OFFLOAD_AUTO;
    planned(&spec, planned_size(&p[0]) - 1, &p[0]);
    CHECK(p[0].offload.on && p[0].recompute == RECOMPUTE_FULL);
}

/* ---- a disk ---------------------------------------------------------------------------------- */

static bool moved(struct offload *s, int64_t bytes)
{
    return offload_moved(s, &(struct offload_count){bytes, bytes});
}

static struct offload *store_on(int fd, struct plan *p)
{
    struct err e = {0};
    long_spec();
    spec.memory.offload = OFFLOAD_ACTIVATIONS;
    const struct offload_options o = {.plan = planned(&spec, 0, p), .fd = fd};
    struct offload *s = offload_open(&o, &e);
    CHECK_MSG(fd >= 0 && s, "%s", e.text);
    return s;
}

/* Checks that the file has the planned size and no name in any directory. */
static void test_file(void)
{
    char dir[] = "/tmp/seqd-offload-XXXXXX", buf[3][5000];
    struct plan p;
    struct stat st;
    struct err e = {0};
    CHECK(mkdtemp(dir));
    const int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int fd = offload_file(at, 1 << 20, &e);
    CHECK_MSG(fd >= 0 && !fstat(fd, &st) && st.st_size == 1 << 20 && !st.st_nlink, "%s", e.text);
    CHECK(!rmdir(dir)); /* it is empty */
    struct offload *s = store_on(fd, &p);
    memset(buf[0], 7, sizeof buf[0]);
    memset(buf[1], 9, sizeof buf[1]);
    CHECK(offload_out(s, buf[0], 5000, 123) == 1 && offload_out(s, buf[1], 5000, 600000) == 2);
    CHECK(offload_back(s, buf[2], 5000, 123) == 3 && !offload_wait(s, 3, &e));
    CHECK(!memcmp(buf[0], buf[2], 5000));
    CHECK(!offload_wait(s, offload_back(s, buf[2], 5000, 600000), &e));
    CHECK(!memcmp(buf[1], buf[2], 5000) && moved(s, 10000) && !moved(s, 9999));
    offload_reset(s);
    CHECK(moved(s, 0) && moved(NULL, 0) && !moved(NULL, 1));
    offload_close(s);
    close(at);
}

static bool reserves = true; /* the file system can reserve blocks */

/* Takes the place of the library's function for this program. */
int fallocate(int fd, int mode, off_t offset, off_t len)
{
    if (reserves) return (int)syscall(SYS_fallocate, fd, mode, offset, len);
    errno = EOPNOTSUPP;
    return -1;
}

/* Checks a file system that cannot reserve blocks. The file still has its whole size, and bytes
 * that were never written are read as zeros. */
static void test_no_reserve(void)
{
    char buf[5000], zeros[5000] = {0};
    struct plan p;
    struct stat st;
    struct rlimit had;
    struct err e = {0};
    const int at = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    reserves = false;
    const int fd = offload_file(at, 1 << 20, &e);
    CHECK_MSG(fd >= 0 && !fstat(fd, &st) && st.st_size == 1 << 20, "%s", e.text);
    struct offload *s = store_on(fd, &p);
    memset(buf, 7, sizeof buf);
    CHECK_MSG(!offload_wait(s, offload_back(s, buf, 5000, (1 << 20) - 5000), &e), "%s", e.text);
    CHECK(!memcmp(buf, zeros, sizeof buf));
    memset(buf, 7, sizeof buf);
    CHECK_MSG(!offload_read(s, buf, 5000, 123, &e), "%s", e.text);
    CHECK(!memcmp(buf, zeros, sizeof buf));
    offload_close(s);
    /* a file that is too large for the process */
    CHECK(!getrlimit(RLIMIT_FSIZE, &had));
    CHECK(!setrlimit(RLIMIT_FSIZE, &(struct rlimit){1 << 20, had.rlim_max}));
    signal(SIGXFSZ, SIG_IGN);
    CHECK(offload_file(at, 2 << 20, &e) < 0 && e.code == ERR_TOO_LARGE);
    CHECK_STR(e.field, "memory.offload_dir");
    CHECK_MSG(strstr(e.text, "memory.offload_dir: 2.0 MiB for what a rank offloads"), "%s", e.text);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(!setrlimit(RLIMIT_FSIZE, &had));
    reserves = true;
    close(at);
}

/* Checks a copy of more than 16 MiB. It needs three system calls: two of 8 MiB and a shorter one.
 * Each of them copies different bytes. */
static void test_large_copy(void)
{
    enum { SIZE = (16 << 20) + 4096, AT = 4096 };
    unsigned char *buf = malloc(SIZE), *back = calloc(1, SIZE);
    struct plan p;
    struct err e = {0};
    const int at = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct offload *s = store_on(offload_file(at, AT + SIZE, &e), &p);
    if (!buf || !back) abort();
    for (int i = 0; i < SIZE; i++) buf[i] = (unsigned char)(i % 251);
    CHECK(!offload_wait(s, offload_out(s, buf, SIZE, AT), &e));
    CHECK(!offload_wait(s, offload_back(s, back, SIZE, AT), &e));
    CHECK(!memcmp(buf, back, SIZE) && moved(s, SIZE));
    CHECK(!offload_wait(s, offload_back(s, back, AT, AT + SIZE - AT), &e));
    CHECK(!memcmp(buf + SIZE - AT, back, AT)); /* the last bytes were stored at a different
                                                * offset */
    offload_close(s);
    close(at);
    free(buf), free(back);
}

/* Checks that the error names the field for every failure: no directory, no room at the beginning,
 * no room later, and a file that ends too early. */
static void test_bad_disk(void)
{
    char buf[5000] = {0};
    struct plan p;
    struct err e = {0};
    CHECK(offload_file(-1, 4096, &e) < 0 && e.code == ERR_IO);
    CHECK_STR(e.field, "memory.offload_dir");
    const int at = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(offload_file(at, (int64_t)1 << 55, &e) < 0 && e.code == ERR_TOO_LARGE);
    CHECK_STR(e.field, "memory.offload_dir");
    CHECK_MSG(strstr(e.text, "memory.offload_dir: 32.0 PiB for what a rank offloads"), "%s",
              e.text);
    struct offload *s = store_on(open("/dev/full", O_RDWR | O_CLOEXEC), &p);
    CHECK(offload_wait(s, offload_out(s, buf, 5000, 0), &e) && e.code == ERR_NO_SPACE);
    CHECK_STR(e.field, "memory.offload_dir");
    CHECK_MSG(strstr(e.text, "memory.offload_dir: write 5000 offloaded bytes: No space left"), "%s",
              e.text);
    /* after a failure no further transfer is made */
    CHECK(offload_wait(s, offload_back(s, buf, 5000, 0), &e));
    offload_close(s);
    s = store_on(open("/dev/full", O_RDWR | O_CLOEXEC), &p);
    CHECK(!offload_read(s, buf, 5000, 0, &e));
    offload_write(s, buf, 5000, 0);
    e = (struct err){0};
    CHECK(offload_read(s, buf, 5000, 0, &e) && e.code == ERR_NO_SPACE);
    CHECK_MSG(strstr(e.text, "memory.offload_dir: write 5000 offloaded bytes"), "%s", e.text);
    CHECK(offload_wait(s, 0, &e) && e.code == ERR_NO_SPACE);
    offload_close(s);
    s = store_on(offload_file(at, 4096, &e), &p);
    CHECK(offload_wait(s, offload_back(s, buf, 5000, 0), &e));
    CHECK_MSG(strstr(e.text, "read 5000 offloaded bytes"), "%s", e.text);
    offload_close(s);
    close(at);
}

/* Writes moments as a checkpoint does. They cannot be read afterwards. */
static void write_state(struct train *t)
{
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct err e = {0};
    CHECK(!sharded_read(&t->state, SHARDED_V, 0, 8, x, &e));
    sharded_write(&t->state, SHARDED_M, 0, 8, x);
    CHECK(sharded_read(&t->state, SHARDED_V, 0, 8, x, &e) && e.code == ERR_NO_SPACE);
    CHECK_STR(e.field, "memory.offload_dir");
}

/* Checks that a training fails with the error of a full disk. */
static void train_on_full(enum offload_id offload, bool writes)
{
    struct err e = {0};
    struct synth y = {.S = LENGTH, .vocab = 61};
    struct plan *p = calloc(1, sizeof *p);
    struct train *t = calloc(1, sizeof *t);
    if (!p || !t) abort();
    engine_spec(&spec, LENGTH);
    spec.model.shape.n_layers = LAYERS;
    spec.memory.offload = (int32_t)offload;
    spec.parallel.sp = 1;
    struct engine_memory mem = engine_open(&spec, planned(&spec, 0, p), NULL);
    offload_close(mem.offload);
    const struct offload_options o = {.plan = p, .fd = open("/dev/full", O_RDWR | O_CLOEXEC)};
    mem.offload = offload_open(&o, &e);
    const struct train_options to = {.spec = &spec,
                                     .plan = p,
                                     .arena = mem.arena,
                                     .offload = mem.offload,
                                     .be = mem.be,
                                     .n_ranks = 1,
                                     .source = {synth_batch, synth_targets, &y}};
    CHECK_MSG(mem.offload && !train_init(t, &to, &e), "%s", e.text);
    if (writes) write_state(t);
    sharded_random(&t->state, 1);
    CHECK(train_step(t, NULL, &e) && e.code == ERR_NO_SPACE);
    CHECK_STR(e.field, "memory.offload_dir");
    engine_close(&mem, p);
    free(t);
    free(p);
}

static void test_training_on_full(void)
{
    train_on_full(OFFLOAD_ACTIVATIONS, false);
    train_on_full(OFFLOAD_OPTIMIZER, false);
    train_on_full(OFFLOAD_OPTIMIZER, true);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void job(void)
{
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.kind = JOB_TRAIN;
    spec.train.steps = 1;
    spec.model.shape.family = FAMILY_LINEAR;
    spec.model.shape.width = 32;
    spec.model.shape.n_layers = 2;
    spec.model.shape.n_heads = 4;
    spec.model.shape.ffn_width = 48;
    spec.data.seq_len = LENGTH;
    spec.data.n_train = 1;
    spec_source_defaults(&spec.data.train[0]);
    CHECK(!spec_intern(&spec, "/x", 2, &spec.data.train[0].path));
    spec.memory.offload = OFFLOAD_ACTIVATIONS;
}

static void refused(enum err_code code, const char *field, const char *words)
{
    struct err e = {0};
    CHECK(family_check(&spec, &e) && e.code == code);
    CHECK_STR(e.field, field);
    CHECK_MSG(strstr(e.text, words), "%s", e.text);
}

static void test_refused(void)
{
    struct err e = {0};
    job();
    refused(ERR_INVALID, "memory.offload_dir", "is missing");
    set_dir();
    CHECK_MSG(!family_check(&spec, &e), "%s", e.text);
    spec.memory.time_chunk = 8;
    refused(ERR_UNSUPPORTED, "memory.offload", "memory.time_chunk");
    job();
    CHECK(!spec_intern(&spec, "cuda", 4, &spec.resources.device));
    CHECK_MSG(!family_check(&spec, &e), "%s", e.text);
    set_dir();
    refused(ERR_INVALID, "memory.offload_dir", "leave it out");
    job();
    spec.memory.offload = OFFLOAD_NONE;
    CHECK_MSG(!family_check(&spec, &e), "%s", e.text);
    /* A node with an older version cannot run a job that offloads. */
    CHECK_STR(spec_needs(&spec, 6), "memory.offload");
}

int main(void)
{
    RUN(test_families);
    RUN(test_strategies);
    RUN(test_fused_tied_ranks);
    RUN(test_stages);
    RUN(test_few_layers);
    RUN(test_goldens);
    RUN(test_memory);
    RUN(test_memory_of_stages);
    RUN(test_auto);
    RUN(test_time);
    RUN(test_large);
    RUN(test_file);
    RUN(test_no_reserve);
    RUN(test_large_copy);
    RUN(test_bad_disk);
    RUN(test_training_on_full);
    RUN(test_refused);
    return test_done("offload");
}
