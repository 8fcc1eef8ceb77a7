/* Checks plans of every family, which are made from the family's programs. Every byte must belong
 * to an item. The traffic of all families, and the records and flops of the decoder, are compared
 * with formulas written by hand. Hostile shapes are tried, too. */
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/mem.h"
#include "tests/lib/shapes.h"
#include "tests/lib/test.h"
#include "worker/family/family.h"
#include "worker/plan/plan.h"

static struct job_spec spec;

static void small_spec(int family, int kind, int sp)
{
    memset(&spec, 0, sizeof spec);
    spec.kind = kind;
    spec.model.shape = shape_of(family);
    spec.data.seq_len = 48;
    spec.data.frames = 5;
    spec.data.height = 6;
    spec.data.width = 4;
    spec.train.global_batch = 3;
    spec.sampling.max_tokens = 20;
    spec.verify.max_tokens = 32;
    spec.parallel.sp = sp;
    spec.resources.threads = 1;
    spec.determinism = DET_RUN;
    spec.memory.recompute = RECOMPUTE_NONE;
    spec.text_used = 1;
}

static struct plan *make(void)
{
    static struct plan p;
    struct err e = {0};
    CHECK_MSG(plan_make(&spec, 0, &p, &e) == 0, "family %d: %s: %s", spec.model.shape.family,
              e.field, e.text);
    return &p;
}

/* ---- every byte accounted for ---------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const struct plan_item *x = a, *y = b;
    if (x->in_segment != y->in_segment) return x->in_segment - y->in_segment;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void check_sizes(const struct plan *p)
{
    struct plan_item all[PLAN_ID_N];
    int64_t class_size[PLAN_CLASS_N] = {0}, sum = p->rounding;
    int n = 0;
    for (int i = 0; i < PLAN_ID_N; i++) {
        const struct plan_item *it = &p->item[i];
        if (!it->name) continue;
        CHECK_MSG(it->offset % 64 == 0 && it->size > 0, "%s", it->name);
        if (it->shared) {
            const struct plan_item *work = &p->item[PLAN_WORK];
            CHECK_MSG(it->offset >= work->offset &&
                          it->offset + it->size <= work->offset + work->size,
                      "%s", it->name);
            continue;
        }
        class_size[it->cls] += it->size;
        all[n++] = *it;
    }
    /* The reference of a verify job has all of these classes a second time. */
    for (int i = 0; i < PLAN_CLASS_N; i++) {
        CHECK_MSG(p->reference_size ? class_size[i] <= p->class_size[i]
                                    : class_size[i] == p->class_size[i],
                  "class %s", plan_class_name((enum plan_class)i));
        sum += p->class_size[i];
    }
    CHECK_MSG(sum == p->arena_size + p->segment_size, "%lld of %lld bytes", (long long)sum,
              (long long)(p->arena_size + p->segment_size));
    qsort(all, (size_t)n, sizeof *all, by_offset);
    for (int i = 1; i < n; i++)
        CHECK_MSG(all[i].in_segment != all[i - 1].in_segment ||
                      all[i].offset >= all[i - 1].offset + all[i - 1].size,
                  "%s and %s", all[i - 1].name, all[i].name);
}

/* Checks that records, streams and shared values end where their items end. */
static void check_records(const struct plan *p)
{
    static struct sections s;
    const struct model_shape *m = &spec.model.shape;
    plan_sections(m, p, &s);
    int64_t kept = 0, cache = 0;
    for (int b = 1; b <= m->n_layers; b++) {
        const int kind = family_layer_kind(m, b - 1);
        CHECK(plan_record(m, p, b) == kept && plan_cache(m, p, b) == cache);
        CHECK(s.layer[kind].at.work_size <= p->item[PLAN_WORK].size);
        kept += s.layer[kind].at.kept_size;
        cache += s.layer[kind].at.cache_size;
    }
    CHECK(plan_record(m, p, 0) == kept);
    CHECK(p->item[PLAN_KEPT].size == kept + s.in.at.kept_size);
    CHECK(p->item[PLAN_CACHES].size == cache);
    CHECK(p->item[PLAN_X].size ==
          p->stream_size * (p->n_streams - 1) +
              p->T * s.family.in.value[s.family.in.result].cols * p->extent.unit);
    CHECK(p->item[PLAN_SHARED].size == plan_shared(&s.family.in, p, s.family.in.n_shared, false));
}

static void try_plan(int family, int kind, int sp, int variant)
{
    static char json[1 << 17];
    const bool ranks = variant & 1;
    small_spec(family, kind, sp);
    spec.determinism = ranks ? DET_RANKS : DET_RUN;
    spec.precision.params = variant & 2 ? PRECISION_BF16 : PRECISION_FP32;
    spec.memory.recompute = 1 + variant % 3;
    spec.parallel.zero = kind == JOB_TRAIN ? variant % 4 : 0;
    spec.verify.first_step = variant == 5;
    const struct plan *p = make();
    check_sizes(p);
    check_records(p);
    CHECK(p->flops > 0 && strlen(p->reason) > 10);
    CHECK(plan_json(&spec, p, json, sizeof json) > 0 && strlen(json) < 65536 / 2);
}

static void test_sizes(void)
{
    for (int family = 0; family < FAMILY_N; family++)
        for (int sp = 1; sp <= 4; sp *= 2)
            for (int variant = 0; variant < 6; variant++) {
                const enum task_id task = family_row(&(struct model_shape){.family = family})->task;
                try_plan(family, JOB_TRAIN, sp, variant);
                try_plan(family, JOB_VERIFY, sp, variant);
                if (task == MODEL_CAUSAL_LM) try_plan(family, JOB_SCORE, sp, variant);
                if (task == MODEL_CAUSAL_LM) try_plan(family, JOB_GENERATE, sp, variant);
                if (task == MODEL_MASKED_LM) try_plan(family, JOB_EMBED, sp, variant);
            }
}

/* ---- the decoder, written out ---------------------------------------------------------------- */

/* Returns the bytes of T rows of cols values of `unit` bytes, rounded up to whole cache lines. */
static int64_t lines(int64_t T, int64_t cols, int64_t unit)
{
    return mem_round(T * cols * unit, MEM_ALIGN);
}

/* Returns the bytes that a layer keeps. In mode "none" it keeps q, kv, o, lse, the MLP's input,
 * gate and up. In mode "selective" it keeps o and lse. In mode "full" it keeps nothing. */
static int64_t kept_of_layer(const struct plan *p, const struct model_shape *m)
{
    const int64_t T = p->T, u = p->extent.unit, HD = m->n_heads * m->head_dim;
    const int64_t ring = lines(T, HD, u) + lines(T, m->n_heads, 4);
    const int64_t rest = lines(T, HD, u) + lines(T, 2 * m->n_kv_heads * m->head_dim, u) +
                         lines(T, m->width, u) + lines(T, 2 * m->ffn_width, u);
    if (p->kind != JOB_TRAIN && p->kind != JOB_VERIFY) return 0;
    return p->recompute == RECOMPUTE_NONE        ? ring + rest
           : p->recompute == RECOMPUTE_SELECTIVE ? ring
                                                 : 0;
}

/* Returns the flops, with two for each multiply-add. Causal attention computes half of the S x S
 * pairs. If there is a window, it computes only the pairs within the window. */
static double flops_of(const struct plan *p, const struct model_shape *m, int64_t window)
{
    const double C = (double)m->width, HD = (double)(m->n_heads * m->head_dim), S = (double)p->S;
    const double KD = (double)(m->n_kv_heads * m->head_dim), I = (double)m->ffn_width;
    const double W = window && window < p->S ? (double)window : S;
    const bool headless = p->kind == JOB_GENERATE || p->kind == JOB_EMBED;
    const double head = headless ? 0 : 2 * S * (double)m->vocab * C;
    const double layer = 2 * S * C * (2 * HD + 2 * KD + 3 * I) + 2 * (2 * S * W - W * W) * HD;
    const bool back = p->kind == JOB_TRAIN || p->kind == JOB_VERIFY;
    return (head + m->n_layers * layer) * (back ? 3 : 1) * (double)p->micro_batches;
}

static void test_decoder(void)
{
    for (int kind = 0; kind < JOB_MERGE; kind++)
        for (int variant = 0; variant < 24; variant++) {
            small_spec(FAMILY_LLAMA, kind, 1 << variant % 3);
            struct model_shape *m = &spec.model.shape;
            m->tied = variant & 1;
            m->window = variant % 5 == 4 ? 7 : 0;
            spec.determinism = variant % 4 == 1 ? DET_RANKS : DET_RUN;
            spec.precision.params = variant & 2 ? PRECISION_BF16 : PRECISION_FP32;
            spec.memory.recompute = 1 + variant / 8;
            spec.parallel.zero = variant % 4;
            const struct plan *p = make();
            const int64_t KV = 2 * m->n_kv_heads * m->head_dim, u = p->extent.unit;
            CHECK(u == (variant & 2 ? 2 : 4));
            CHECK_MSG(p->flops == flops_of(p, m, m->window), "kind %d variant %d: %.17g, %.17g",
                      kind, variant, p->flops, flops_of(p, m, m->window));
            CHECK_MSG(p->item[PLAN_KEPT].size == m->n_layers * kept_of_layer(p, m),
                      "kind %d variant %d: %lld kept", kind, variant,
                      (long long)p->item[PLAN_KEPT].size);
            CHECK(p->item[PLAN_CACHES].size ==
                  (kind == JOB_GENERATE ? m->n_layers * lines(p->cache_rows, KV, u) : 0));
            /* A pass without backward needs one residual stream. In every kind of job, one
             * gradient of the stream is enough. */
            const bool back = kind == JOB_TRAIN || kind == JOB_VERIFY;
            CHECK(p->n_streams == (back ? m->n_layers + 1 : 1) && p->n_dx == 1);
        }
}

/* ---- traffic, written out -------------------------------------------------------------------- */

/* bytes of a state: 4 heads, whose keys and values have 4 columns each, in fp32 */
enum { SIGMA = 4 * 4 * 4 * 4 };

static int64_t sent(const struct plan *p, int rank, enum purpose purpose)
{
    struct comm_count c[PURPOSE_N];
    plan_comm(&spec.model.shape, p, rank, c);
    return c[purpose].bytes_sent;
}

/* Checks the bytes of states. In RetNet Dv = 2 Dk, so a state of RetNet has 2 SIGMA bytes. */
static void test_states(void)
{
    for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++)
        for (int x = EXCHANGE_RING; x < EXCHANGE_N; x++) {
            small_spec(FAMILY_RETNET, JOB_TRAIN, 4);
            spec.parallel.exchange = x;
            spec.memory.recompute = mode;
            const struct plan *p = make();
            const int64_t dv = spec.model.shape.value_dim ? spec.model.shape.value_dim : 4;
            const int64_t all = 4 * 3 * SIGMA / 4 * dv; /* 4 layers and 3 samples */
            CHECK(p->strategy == STRATEGY_LASP && p->layout == LAYOUT_CONTIGUOUS);
            for (int r = 0; r < 4; r++) {
                const bool gather = x == EXCHANGE_ALL_GATHER;
                CHECK_MSG(sent(p, r, PURPOSE_STATE) == (gather  ? 3 * all
                                                        : r < 3 ? all
                                                                : 0),
                          "exchange %d rank %d: %lld", x, r, (long long)sent(p, r, PURPOSE_STATE));
                CHECK_MSG(sent(p, r, PURPOSE_DSTATE) == (gather  ? 3 * all
                                                         : r > 0 ? all
                                                                 : 0),
                          "exchange %d rank %d: %lld back", x, r,
                          (long long)sent(p, r, PURPOSE_DSTATE));
                CHECK(sent(p, r, PURPOSE_RING_KV) == 0);
            }
        }
}

/* Checks the delta rule in two layers, with 4 heads of 6 x 5 and maps of 6 x 6. The convolution of
 * 44 columns passes two rows from each rank to the next, whatever exchange is used for the
 * states. */
static void test_maps(void)
{
    const int64_t state = 4 * 4 * 6 * 5, map = 4 * 4 * 6 * 6, halo = 4 * 2 * 44;
    const int64_t times = 2 * 3; /* 2 layers and 3 samples */
    for (int x = EXCHANGE_RING; x < EXCHANGE_N; x++)
        for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
            small_spec(FAMILY_QWEN3_5, JOB_TRAIN, 4);
            spec.parallel.exchange = x;
            spec.memory.recompute = mode;
            const struct plan *p = make();
            const bool gather = x == EXCHANGE_ALL_GATHER;
            for (int r = 0; r < 4; r++)
                for (int back = 0; back < 2; back++) {
                    const bool sends = back ? r > 0 : r < 3;
                    const int64_t passed = gather ? 3 * (state + map) : sends ? state : 0;
                    const int64_t want = times * (passed + (sends ? halo : 0));
                    const int64_t got = sent(p, r, back ? PURPOSE_DSTATE : PURPOSE_STATE);
                    CHECK_MSG(got == want, "exchange %d rank %d back %d: %lld, by hand %lld", x, r,
                              back, (long long)got, (long long)want);
                }
            CHECK(p->item[PLAN_CARRY_ALL].size == (gather ? 4 * (state + map) : 0));
            CHECK(p->item[PLAN_CARRY_MAP].size == (x == EXCHANGE_SCAN ? map : 0));
        }
}

/* Checks that under determinism "ranks" all_gather sends a state for each of the eight logical
 * chunks. */
static void test_states_of_chunks(void)
{
    small_spec(FAMILY_TNL, JOB_SCORE, 2);
    spec.parallel.exchange = EXCHANGE_ALL_GATHER;
    spec.determinism = DET_RANKS;
    const struct plan *p = make();
    CHECK_MSG(sent(p, 0, PURPOSE_STATE) == 4 * 4 * SIGMA, "%lld",
              (long long)sent(p, 0, PURPOSE_STATE));
    CHECK_MSG(p->item[PLAN_STATE_ALL].size == 8 * SIGMA && p->item[PLAN_STATE_M].size == 4 * SIGMA,
              "%lld, %lld", (long long)p->item[PLAN_STATE_ALL].size,
              (long long)p->item[PLAN_STATE_M].size);
}

/* Checks the bytes of switches. Each of 2 ranks has 3 of 6 patches. Rank 0 has 3 of 5 frames, and
 * rank 1 has 2. Rank 0 sends the rows of its 3 patches in the 2 frames of rank 1. Rank 1 sends the
 * rows of its 3 patches in the 3 frames of rank 0. A row has 16 floats. Each row that was sent is
 * sent back later, so rank 0 also sends back 3 frames x 3 patches. */
static void test_switches(void)
{
    const int64_t row = 16 * 4;
    for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
        small_spec(FAMILY_STDIT3, JOB_TRAIN, 2);
        spec.memory.recompute = mode;
        const struct plan *p = make();
        int64_t spatial = 0, n = 0;
        for (int l = 0; l < spec.model.shape.n_layers; l++)
            spatial += family_layer_kind(&spec.model.shape, l) == 0;
        /* Each layer makes two switches in forward and two in backward. Under "full" it also makes
         * two switches when forward is recomputed. */
        n = 3 * spatial * (mode == RECOMPUTE_FULL ? 3 : 2);
        CHECK(p->strategy == STRATEGY_DSP && p->grid[0] == 6 && p->grid[1] == 5);
        CHECK(p->T == 3 * 5 && p->extent.rows[ROWS_ALT] == 3 * 6);
        CHECK_MSG(sent(p, 0, PURPOSE_SWITCH) == n * (3 * 2 + 3 * 3) * row,
                  "mode %d: %lld, want %lld", mode, (long long)sent(p, 0, PURPOSE_SWITCH),
                  (long long)(n * 15 * row));
        CHECK(sent(p, 1, PURPOSE_SWITCH) == n * (3 * 3 + 2 * 3) * row);
        CHECK(sent(p, 0, PURPOSE_RING_KV) == 0 && sent(p, 0, PURPOSE_STATE) == 0);
    }
}

/* Checks the tensors that forms of attention keep in addition to the tensors that the blockwise
 * ring keeps. two_pass keeps each layer's probabilities. ulysses keeps q, k, v, o and lse of all
 * rows, for this rank's heads. Under "full" these tensors exist for one layer only, in the
 * workspace. */
static void test_kept_by_ways(void)
{
    static const int families[] = {FAMILY_LLAMA, FAMILY_BERT};
    for (int i = 0; i < 2; i++)
        for (int mode = RECOMPUTE_NONE; mode <= RECOMPUTE_FULL; mode++) {
            int64_t kept[3];
            for (int way = 0; way < 3; way++) {
                small_spec(families[i], JOB_TRAIN, 2);
                spec.model.shape.qk_norm = families[i] == FAMILY_LLAMA;
                spec.memory.recompute = mode;
                spec.parallel.strategy = way < 2 ? STRATEGY_RSA : STRATEGY_ULYSSES;
                spec.parallel.form = way == 1 ? FORM_TWO_PASS : FORM_AUTO;
                kept[way] = make()->item[PLAN_KEPT].size;
            }
            const struct model_shape *m = &spec.model.shape;
            const int64_t T = make()->T, L = mode == RECOMPUTE_FULL ? 0 : m->n_layers;
            const int64_t nq = m->n_heads / 2, nk = m->n_kv_heads / 2, D = m->head_dim;
            const int64_t heads = 2 * T * (2 * nq + 2 * nk) * D * 4 + nq * 2 * T * 4;
            CHECK(kept[1] - kept[0] == L * mem_round(m->n_heads * T * 2 * T * 4, MEM_ALIGN));
            CHECK(kept[2] - kept[0] == L * mem_round(heads, MEM_ALIGN));
        }
}

/* Checks a hybrid, which has both a ring in softmax layers and states in linear layers. */
static void test_hybrid(void)
{
    small_spec(FAMILY_MINIMAX, JOB_SCORE, 4);
    spec.model.shape.layer_mask[0] = 5; /* Layers 0 and 2 are linear. */
    const struct plan *p = make();
    const int64_t T = 12, kv = T * 2 * 2 * 4 * 4;
    CHECK_MSG(sent(p, 0, PURPOSE_STATE) == 2 * SIGMA && sent(p, 3, PURPOSE_STATE) == 0, "%lld",
              (long long)sent(p, 0, PURPOSE_STATE));
    CHECK(sent(p, 0, PURPOSE_RING_KV) == 2 * 3 * kv);
    /* After a prompt the last rank sends its states to the three other ranks. */
    small_spec(FAMILY_MINIMAX, JOB_GENERATE, 4);
    spec.model.shape.layer_mask[0] = 5;
    p = make();
    CHECK(sent(p, 0, PURPOSE_STATE) == 2 * SIGMA && sent(p, 3, PURPOSE_STATE) == 2 * 3 * SIGMA);
    small_spec(FAMILY_MINIMAX, JOB_GENERATE, 1);
    spec.model.shape.layer_mask[0] = 5;
    p = make();
    CHECK(p->item[PLAN_CACHES].size == 2 * (p->cache_rows * 2 * 2 * 4 * 4 + SIGMA));
}

static void test_grids(void)
{
    static struct plan at;
    struct err e = {0};
    small_spec(FAMILY_T2D, JOB_TRAIN, 2);
    const struct plan *p = make();
    CHECK(plan_at_grid(&spec, p, (int64_t[]){4, 3}, 1, &at, &e) == 0);
    CHECK(at.S == 12 && at.T == 6 && at.arena_size == p->arena_size && at.flops < p->flops);
    CHECK(plan_at_grid(&spec, p, (int64_t[]){7, 5}, 1, &at, &e) && e.code == ERR_TOO_LARGE);
    CHECK(plan_at_grid(&spec, p, (int64_t[]){0, 5}, 1, &at, &e) && e.code == ERR_INVALID);
    spec.data.width = 0;
    static struct plan none;
    CHECK(plan_make(&spec, 0, &none, &e) && !strcmp(e.field, "data.width"));
}

/* ---- hostile shapes -------------------------------------------------------------------------- */

static uint32_t seed = 1;
static int64_t draw(void)
{
    static const int64_t nasty[] = {0, 1, 2, 3, 4, 7, 8, 16, 24, 63, 64, 72, 256, 1024, 1 << 20};
    seed = seed * 1664525u + 1013904223u;
    return nasty[(seed >> 8) % (sizeof nasty / sizeof *nasty)];
}

/* Checks that any sizes lead to a plan or to an error. */
static void test_hostile(void)
{
    static struct plan p;
    int n_plans = 0;
    for (int i = 0; i < 3000; i++) {
        small_spec(i % FAMILY_N, i % 3 ? JOB_TRAIN : JOB_SCORE, 1 + i % 2);
        struct model_shape *m = &spec.model.shape;
        int64_t *const size[] = {
            &m->width,      &m->n_heads,   &m->n_kv_heads,      &m->head_dim,
            &m->ffn_width,  &m->vocab,     &m->value_dim,       &m->rotary_dim,
            &m->type_vocab, &m->n_experts, &m->in_channels,     &m->out_channels,
            &m->patch_t,    &m->patch_h,   &m->text_len,        &m->experts_per_token,
            &m->base_size,  &m->window,    &m->caption_channels};
        const int n = sizeof size / sizeof *size;
        for (int k = 0; k < 1 + i % 3; k++)
            *size[(size_t)(draw() + i * 7 + k) % (size_t)n] = draw();
        if (i % 5 == 0) m->n_layers = (int32_t)(draw() % 1025);
        m->qk_norm = i % 4 == 0;
        struct err e = {0};
        if (family_complete(m, &e) || plan_make(&spec, 0, &p, &e)) {
            CHECK_MSG(e.code && *e.text, "shape %d: no reason", i);
            continue;
        }
        n_plans++;
        check_sizes(&p);
    }
    CHECK_MSG(n_plans > 300, "only %d shapes made a plan", n_plans);
}

int main(void)
{
    RUN(test_sizes);
    RUN(test_decoder);
    RUN(test_states);
    RUN(test_maps);
    RUN(test_states_of_chunks);
    RUN(test_switches);
    RUN(test_kept_by_ways);
    RUN(test_hybrid);
    RUN(test_grids);
    RUN(test_hostile);
    return test_done("plan_program");
}
