/* Checks the plan. Checks the layout of parameters and buffers, and which jobs fit. The bytes that
 * are sent are compared with numbers computed by hand. */
#include <stdlib.h>
#include <string.h>
#include "api/core/device.h"
#include "api/core/job.h"
#include "tests/lib/test.h"
#include "worker/plan/plan.h"

static struct job_spec spec;

static void small_spec(int kind, int P)
{
    memset(&spec, 0, sizeof spec);
    spec.kind = kind;
    spec.model.shape = (struct model_shape){.n_layers = 3,
                                            .width = 64,
                                            .n_heads = 8,
                                            .n_kv_heads = 2,
                                            .head_dim = 8,
                                            .ffn_width = 160,
                                            .vocab = 258,
                                            .norm_eps = 1e-5,
                                            .rope_theta = 10000};
    spec.data.seq_len = 1024;
    spec.train.global_batch = 2;
    spec.sampling.max_tokens = 100;
    spec.verify.max_tokens = 512;
    spec.parallel.sp = P;
    spec.resources.threads = 2;
    spec.determinism = DET_RUN;
    spec.text_used = 1;
}

static struct plan make(int64_t limit)
{
    static struct plan p;
    struct err e = {0};
    CHECK_MSG(plan_make(&spec, limit, &p, &e) == 0, "%s: %s", e.field, e.text);
    return p;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void test_params(void)
{
    small_spec(JOB_TRAIN, 1);
    const struct model_shape *m = &spec.model.shape;
    struct param p[64];
    const int n = param_list(m, p, 64);
    CHECK(n == 9 * 3 + 3 && n == param_tensors(m));
    CHECK_STR(p[0].name, "model.embed_tokens.weight");
    CHECK_STR(p[11].name, "model.layers.1.self_attn.q_proj.weight");
    CHECK_STR(p[n - 1].name, "lm_head.weight");
    int64_t end = 0;
    for (int i = 0; i < n; i++) {
        CHECK_MSG(p[i].offset >= end && p[i].offset < end + 16, "%s", p[i].name);
        CHECK(p[i].decay == (p[i].cols > 0));
        CHECK(p[i].count == p[i].rows * (p[i].cols ? p[i].cols : 1));
        end = p[i].offset + p[i].count;
    }
    CHECK(param_count(m) >= end && param_count(m) < end + 16 && param_count(m) % 16 == 0);
    /* The tensors of every layer have the same order. The distance between corresponding tensors
     * of two layers equals the distance between the layers. */
    CHECK(p[12].offset - p[3].offset == param_section(m, 2) - param_section(m, 1));
    CHECK(p[13].offset == p[12].offset + p[12].count); /* v right after k */
    CHECK(p[17].offset == p[16].offset + p[16].count); /* up right after gate */
    CHECK(param_section(m, 4) == p[n - 2].offset && p[n - 1].offset == p[n - 2].offset + 64);
    spec.model.shape.tied = 1;
    CHECK(param_tensors(m) == 9 * 3 + 2);
}

/* Checks odd sizes. Fused tensors must be adjacent even if their counts are not multiples of
 * 16. */
static void test_params_odd(void)
{
    const struct model_shape m = {.n_layers = 2,
                                  .width = 6,
                                  .n_heads = 1,
                                  .n_kv_heads = 1,
                                  .head_dim = 2,
                                  .ffn_width = 5,
                                  .vocab = 7};
    struct param p[32];
    param_list(&m, p, 32);
    CHECK(p[4].offset == p[3].offset + 12 && p[8].offset == p[7].offset + 30);
    CHECK(p[2].offset % 16 == 0 && p[5].offset % 16 == 0 && p[7].offset % 16 == 0);
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* A range that an item occupies in the arena, the segment or the host's part. A mirrored item has
 * two ranges; stretches() returns the number of ranges. */
struct stretch {
    const char *name;
    int part; /* 0, 1, 2 */
    int64_t begin, end;
};

static int stretches(const struct plan_item *it, struct stretch out[2])
{
    int n = 0;
    if (!it->name || it->shared) return 0;
    const int part = it->in_segment ? 1 : it->in_host ? 2 : 0;
    out[n++] = (struct stretch){it->name, part, it->offset, it->offset + it->size};
    if (it->mirrored) out[n++] = (struct stretch){it->name, 2, it->mirror, it->mirror + it->size};
    return n;
}

static void check_apart(const struct plan *p)
{
    static struct stretch all[2 * PLAN_ID_N];
    const int64_t room[] = {p->arena_size - p->reference_size, p->segment_size,
                            p->reference_size ? p->reference_host_offset : p->host_size};
    int n = 0;
    for (int i = 0; i < PLAN_ID_N; i++) n += stretches(&p->item[i], all + n);
    for (int i = 0; i < n; i++) {
        const struct stretch *a = &all[i];
        CHECK_MSG(a->begin >= 0 && a->begin % 64 == 0 && a->end > a->begin, "%s", a->name);
        CHECK_MSG(a->end <= room[a->part], "%s", a->name);
        for (int j = 0; j < i; j++)
            CHECK_MSG(a->part != all[j].part || a->begin >= all[j].end || all[j].begin >= a->end,
                      "%s overlaps %s", a->name, all[j].name);
    }
}

/* Checks that buffers are within their part of the memory and do not overlap. Also checks that the
 * sizes of the classes, with rounding, add up to the total. */
static void check_layout(const struct plan *p)
{
    int64_t sum = p->rounding, by_class[PLAN_CLASS_N] = {0};
    check_apart(p);
    for (int i = 0; i < PLAN_ID_N; i++) {
        const bool lent = i == PLAN_KEPT || p->extent.logits_apart;
        const struct plan_item *a = &p->item[i], *w = &p->item[lent ? PLAN_GRAD : PLAN_WORK];
        if (!a->name) continue;
        if (a->shared)
            CHECK_MSG(a->offset >= w->offset && a->offset + a->size <= w->offset + w->size, "%s",
                      a->name);
        else if (!a->in_host)
            by_class[a->cls] += a->size;
    }
    for (int c = 0; c < PLAN_CLASS_N; c++) {
        sum += p->class_size[c];
        if (!p->reference_size) CHECK(by_class[c] == p->class_size[c]);
    }
    CHECK(sum == p->arena_size + p->segment_size && p->rounding >= 0);
}

/* Checks a device with memory of its own. An item that the host fills or reads must also have a
 * place in the host's memory. An item that no operation uses must have no place on the device. The
 * plan for the CPU must have no separate part for the host. */
static void test_own_memory(void)
{
    static const enum plan_id both[] = {PLAN_IDS, PLAN_LO, PLAN_NLL, PLAN_SUMSQ, PLAN_INV_FREQ},
                              host[] = {PLAN_ANSWER_LOGITS, PLAN_SAMPLER, PLAN_SCORE_ROWS};
    for (int own = 0; own < 2; own++)
        for (int kind = 0; kind < JOB_MERGE; kind++)
            for (int P = 1; P <= 2; P++) {
                small_spec(kind, P);
                spec.model.shape.vocab = 260;
                if (own && spec_intern(&spec, "cuda", 4, &spec.resources.device)) abort();
                const struct plan p = make(0);
                CHECK(p.own_memory == own && (p.host_size > 0) == own);
                check_layout(&p);
                for (size_t i = 0; i < sizeof both / sizeof *both; i++)
                    CHECK(!p.item[both[i]].name || p.item[both[i]].mirrored == own);
                for (size_t i = 0; i < sizeof host / sizeof *host; i++)
                    CHECK(!p.item[host[i]].name || p.item[host[i]].in_host == own);
            }
}

static void test_layout(void)
{
    for (int kind = 0; kind < JOB_MERGE; kind++)
        for (int P = 1; P <= 8; P += P == 1 ? 1 : 2)
            for (int det = DET_RUN; det <= DET_RANKS; det++) {
                if (det == DET_RANKS && (P & (P - 1))) continue;
                small_spec(kind, P);
                spec.determinism = det;
                spec.model.shape.tied = P & 1;
                const struct plan p = make(0);
                check_layout(&p);
                CHECK(p.layout == (P > 1 && det != DET_RANKS ? LAYOUT_ZIGZAG : LAYOUT_CONTIGUOUS));
                CHECK(p.strategy == (P > 1 ? STRATEGY_RSA : STRATEGY_LOCAL));
                CHECK((p.segment_size == 0) == (P == 1));
                CHECK(p.n_grad % (16 * P) == 0);
            }
}

/* Computes every number by hand: L 3, C 64, H 8, Hk 2, D 8, I 160, V 258, T = 1024 / 2. */
static void test_sizes(void)
{
    small_spec(JOB_TRAIN, 2);
    spec.memory.recompute = RECOMPUTE_NONE;
    const struct plan p = make(0);
    const int64_t layer = 64 + 64 * 64 + 2 * 16 * 64 + 64 * 64 + 64 + 2 * 160 * 64 + 64 * 160;
    CHECK(p.T == 512 && p.n_params == 2 * 258 * 64 + 3 * layer + 64);
    CHECK(p.item[PLAN_PARAMS].size == 4 * p.n_params && p.item[PLAN_ADAM_V].size == 4 * p.n_params);
    CHECK(p.item[PLAN_X].size == 4 * 512 * 64 * 4 && p.item[PLAN_X].stride == 512 * 64 * 4);
    /* These are q, kv, o, lse, the input of the MLP, gate and up. */
    CHECK(p.item[PLAN_KEPT].size == 3 * 512 * (64 + 32 + 64 + 8 + 64 + 320) * 4);
    CHECK(p.item[PLAN_DX].size == 512 * 64 * 4);
    CHECK(p.item[PLAN_RING_KV0].size == 512 * 32 * 4 &&
          p.item[PLAN_RING_DKV1].size == 512 * 32 * 4);
    /* The head needs the most: logits, the norm's output, its rstd and its gradient. */
    CHECK(p.item[PLAN_WORK].size == 512 * 258 * 4 + 512 * 64 * 4 + 512 * 4 + 512 * 64 * 4);
    CHECK(p.item[PLAN_SCRATCH].size == 2 * BE_SCRATCH_PER_THREAD);
    CHECK(!p.item[PLAN_TREE].name && !p.item[PLAN_GRAD_ACC].name);
}

static void test_recompute(void)
{
    int64_t size[RECOMPUTE_N];
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        small_spec(JOB_TRAIN, 2);
        spec.memory.recompute = r;
        const struct plan p = make(0);
        size[r] = p.arena_size + p.segment_size;
        CHECK(p.recompute == (enum recompute_id)r);
        CHECK(p.item[PLAN_KEPT].size == (r == RECOMPUTE_NONE        ? 3 * 512 * 552 * 4
                                         : r == RECOMPUTE_SELECTIVE ? 3 * 512 * 72 * 4
                                                                    : 0));
        CHECK(p.item[PLAN_X].stride > 0);
    }
    CHECK(size[RECOMPUTE_NONE] > size[RECOMPUTE_SELECTIVE]);
    CHECK(size[RECOMPUTE_SELECTIVE] > size[RECOMPUTE_FULL]);
    /* "auto" is the fastest mode that fits */
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++) {
        small_spec(JOB_TRAIN, 2);
        const struct plan p = make(size[r]);
        CHECK(p.recompute == (enum recompute_id)r && p.arena_size + p.segment_size == size[r]);
    }
}

/* Checks that the ring's workspace, which consists of two kv, two dkv, m and delta, depends only
 * on T. It must therefore be the same for 2 and for 64 ranks. */
static void test_workspace(void)
{
    int64_t want = 0;
    for (int P = 2; P <= 64; P *= 2) {
        small_spec(JOB_TRAIN, P);
        spec.data.seq_len = 256 * P;
        const struct plan p = make(0);
        int64_t ring = 0;
        for (int i = PLAN_RING_KV0; i <= PLAN_RING_DELTA; i++)
            if (i != PLAN_BOUNCE) ring += p.item[i].size;
        if (P == 2) want = ring;
        CHECK_MSG(ring == want && p.T == 256, "P %d: %lld, not %lld", P, (long long)ring,
                  (long long)want);
    }
}

/* Checks that logits have at most 64 MiB even for a million tokens and 128256 words. */
static void test_logits(void)
{
    small_spec(JOB_SCORE, 8);
    spec.data.seq_len = 1 << 20;
    spec.model.shape.vocab = 128256;
    struct plan p = make(0);
    CHECK(p.item[PLAN_LOGITS].size <= 64 << 20 && p.loss_chunk == 128);
    spec.memory.loss_chunk_tokens = 10;
    p = make(0);
    CHECK(p.loss_chunk == 10);
}

/* Checks the chunks of a training's loss. All chunks must have the same length, which is a
 * multiple of 32, and there must be as few chunks as possible. The logits of a chunk have at most
 * 64 MiB, or the size of the head's gradient if that is larger. */
static void test_loss_chunks(void)
{
    static const struct {
        int64_t S, width, vocab, chunk;
    } rows[] = {
        {1024, 64, 258, 1024},     /* one */
        {1024, 768, 50257, 512},   /* two of 512 */
        {1100, 768, 50257, 384},   /* three chunks of 384, 384 and 332 */
        {4096, 4096, 128256, 512}, /* 251 MiB of logits, and a gradient of 2 GiB */
        /* 64 MiB allow 320 rows, but four equal chunks are better than 320, 320, 320 and 64 */
        {1024, 256, 50257, 256},
        {1024, 384, 50257, 352}, /* the size of the gradient allows three chunks */
        {1024, 64, 1 << 20, 64}, /* the logits are no larger than the gradient */
        {1024, 16, 1 << 20, 16}, /* the limit of 16 rows is below 32, so the chunk has 16 */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        small_spec(JOB_TRAIN, 1);
        spec.data.seq_len = rows[i].S;
        spec.model.shape.width = (int)rows[i].width;
        spec.model.shape.vocab = (int)rows[i].vocab;
        const struct plan p = make(0);
        CHECK_MSG(p.loss_chunk == rows[i].chunk, "%zu: chunks of %lld", i, (long long)p.loss_chunk);
        CHECK(p.item[PLAN_LOGITS].size == p.loss_chunk * rows[i].vocab * 4);
    }
}

/* Checks that under determinism "ranks" the length of a chunk of the loss does not depend on P.
 * This length must not exceed the length of a logical chunk. */
static void test_loss_chunks_of_ranks(void)
{
    static const struct {
        int64_t S, vocab, chunk;
    } rows[] = {{1000, 258, 125}, {8000, 128256, 128}, {8192, 50257, 256}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int P = 1; P <= 8; P *= 2) {
            small_spec(JOB_TRAIN, P);
            spec.determinism = DET_RANKS;
            spec.data.seq_len = rows[i].S;
            spec.model.shape.vocab = (int)rows[i].vocab;
            const struct plan p = make(0);
            CHECK_MSG(p.loss_chunk == rows[i].chunk, "%zu, P %d: chunks of %lld", i, P,
                      (long long)p.loss_chunk);
        }
}

/* Checks that an embed job is a score job without a head, so that it has neither logits nor a
 * loss. */
static void test_embed(void)
{
    small_spec(JOB_SCORE, 4);
    struct plan score = make(0);
    small_spec(JOB_EMBED, 4);
    struct plan p = make(0);
    const struct model_shape *m = &spec.model.shape;
    check_layout(&p);
    CHECK(!p.item[PLAN_LOGITS].name && score.item[PLAN_LOGITS].name && !p.item[PLAN_GRAD].name);
    CHECK(!p.comm[PURPOSE_LOSS].bytes_sent && score.comm[PURPOSE_LOSS].bytes_sent > 0);
    CHECK(p.comm[PURPOSE_RING_KV].bytes_sent == score.comm[PURPOSE_RING_KV].bytes_sent);
    CHECK(p.flops == score.flops - 2.0 * (double)(p.S * m->vocab * m->width));
    CHECK(p.arena_size <= score.arena_size);
}

static void test_cache(void)
{
    small_spec(JOB_GENERATE, 3);
    spec.data.seq_len = 0;
    memcpy(spec.text + 1, "Once upon a time", 17);
    spec.input.prompt = 1;
    spec.text_used = 18;
    const struct plan p = make(0);
    CHECK(p.S == 16 && p.T == 6); /* in zigzag six segments of 3 */
    /* 100 tokens are 7 blocks of 16, a rank gets at most 3 blocks, and one spare row is added */
    CHECK(p.cache_rows == 6 + 48 + 1 && p.n_decode == 100);
    CHECK(p.item[PLAN_CACHES].cls == PLAN_CACHE && p.item[PLAN_CACHES].size == 3 * 55 * 32 * 4);
    CHECK(!p.item[PLAN_GRAD].name && !p.item[PLAN_ADAM_M].name && !p.item[PLAN_DX].name);
}

/* Checks several prompts at a time. Each prompt has a cache and the state that is kept between its
 * tokens. Activations have room for one row of each prompt. */
static void test_batch(void)
{
    static const enum plan_id each[] = {PLAN_CONTEXT_BEHIND, PLAN_ANSWER_LOGITS, PLAN_SAMPLER,
                                        PLAN_ANSWER_TOKENS};
    struct plan p[2];
    for (int linear = 0; linear < 2; linear++) {
        for (int i = 0; i < 2; i++) {
            small_spec(JOB_GENERATE, 3);
            spec.data.seq_len = 16;
            spec.infer.batch = i ? 16 : 1;
            if (linear) spec.model.shape.family = FAMILY_TNL, spec.model.shape.layer_mask[0] = 7;
            if (linear) spec.model.shape.n_kv_heads = spec.model.shape.n_heads;
            CHECK(!family_complete(&spec.model.shape, NULL));
            p[i] = make(0);
            check_layout(&p[i]);
            CHECK(p[i].batch == spec.infer.batch);
        }
        CHECK(p[1].item[PLAN_CACHES].size == 16 * p[0].item[PLAN_CACHES].size);
        for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
            const struct plan_item *one = &p[0].item[each[i]], *all = &p[1].item[each[i]];
            CHECK_MSG(all->size == 15 * all->stride + one->size && all->stride >= one->size,
                      "%s: %lld and %lld", one->name, (long long)one->size, (long long)all->size);
        }
        /* a prompt has fewer rows than there are prompts */
        CHECK(p[0].T < 16 && p[1].T == p[0].T);
        CHECK(p[1].stream_size > p[0].stream_size && p[1].extent.rows[ROWS_T] == 16);
        CHECK(p[1].item[PLAN_PARAMS].size == p[0].item[PLAN_PARAMS].size);
    }
}

static spec_ref put(const char *text)
{
    const spec_ref at = (spec_ref)spec.text_used;
    strcpy(spec.text + at, text);
    spec.text_used += (int)strlen(text) + 1;
    return at;
}

static void many_prompts(int ranks)
{
    small_spec(JOB_GENERATE, ranks);
    spec.data.seq_len = 300;
    spec.model.shape.ffn_width = 4096; /* caches are small compared with these weights */
    spec.input.source.path = put("prompts.jsonl");
    spec.input.source.format = DATA_JSONL;
    spec.resources.device = put("cpu");
    spec.infer.batch = 0; /* auto */
}

/* Checks that the largest number of prompts that fits is chosen. With exactly the memory for n
 * prompts, n must be chosen. With one byte less, n - 1 must be chosen. If even one prompt does not
 * fit, there must be no plan. */
static void test_batch_that_fits(void)
{
    char json[1 << 16];
    struct err e;
    for (int ranks = 1; ranks <= 3; ranks++) {
        int64_t size[JOB_AUTO_BATCH + 1] = {0};
        for (int n = 1; n <= JOB_AUTO_BATCH; n++) {
            many_prompts(ranks);
            spec.infer.batch = n;
            const struct plan p = make(0);
            CHECK(p.batch == n && !strstr(p.reason, "at once"));
            size[n] = p.arena_size + p.segment_size;
        }
        many_prompts(ranks);
        CHECK(make(0).batch == JOB_AUTO_BATCH);
        for (int n = 1; n <= JOB_AUTO_BATCH; n++) {
            const struct plan p = make(size[n]);
            CHECK_MSG(p.batch == n && p.arena_size + p.segment_size == size[n],
                      "%d ranks: %d prompts in the room of %d", ranks, p.batch, n);
            check_layout(&p);
            if (n > 1) CHECK(make(size[n] - 1).batch == n - 1);
        }
        struct plan p = make(size[5]);
        CHECK_MSG(strstr(p.reason, "; 5 prompts at once: more would not fit"), "%s", p.reason);
        CHECK(plan_json(&spec, &p, json, sizeof json) > 0 && strstr(json, "\"batch\":5,"));
        CHECK(plan_make(&spec, size[1] - 1, &p, &e) == -1 && e.code == ERR_DOES_NOT_FIT);
        CHECK(p.batch == 1);
    }
}

/* Checks that no more prompts are chosen than are useful. If n prompts are answered at once, the
 * bytes that are read for each token are 1/n of the weights and the cache of one prompt. Up to the
 * chosen number, adding a prompt must save at least 1/32 of these bytes. Above the chosen number,
 * adding a prompt must save less. All caches together are at most as large as the weights, or as
 * an eighth of the memory if that is larger. */
static void test_batch_of_worth(void)
{
    static const int64_t limits[] = {0, 1 << 26, 1 << 28, (int64_t)1 << 34, (int64_t)1 << 42};
    static const char *const why[] = {"the most", "more would bring little beside their caches",
                                      "caches of more would be larger than the weights and than an "
                                      "eighth of the memory"};
    int seen[3] = {0};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        int before = JOB_AUTO_BATCH;
        for (int64_t S = 64; S <= 1 << 20; S *= 2) {
            char text[128];
            many_prompts(1);
            spec.data.seq_len = S;
            spec.infer.batch = 1;
            const struct plan one = make(0);
            const int64_t cache = one.item[PLAN_CACHES].size;
            const double C = (double)cache, W = (double)one.item[PLAN_PARAMS].size;
            const double room = limits[i] > 8 * W ? (double)limits[i] / 8 : W;
            int worth = 1, want;
            while (worth < JOB_AUTO_BATCH &&
                   W / worth - W / (worth + 1) >= (W / worth + C) / 32 * (1 - 1e-12))
                worth++;
            for (want = worth; want > 1 && want * C > room;) want--;
            many_prompts(1);
            spec.data.seq_len = S;
            spec.infer.batch = want;
            const struct plan all = make(0);
            if (limits[i] && all.arena_size + all.segment_size > limits[i]) break;
            spec.infer.batch = 0;
            const struct plan p = make(limits[i]);
            CHECK_MSG(p.batch == want && want <= before, "%lld tokens: %d prompts, not %d",
                      (long long)S, p.batch, want);
            CHECK(p.batch == 1 || p.item[PLAN_CACHES].size <= room);
            const int by = want < worth ? 2 : want < JOB_AUTO_BATCH;
            snprintf(text, sizeof text, "; %d prompt%s at once: %s", want, want > 1 ? "s" : "",
                     why[by]);
            CHECK_MSG(strstr(p.reason, text), "%s: %s", text, p.reason);
            seen[by]++;
            before = want;
        }
    }
    CHECK_MSG(seen[0] && seen[1] && seen[2], "%d, %d, %d", seen[0], seen[1], seen[2]);
}

/* Checks that "auto" chooses 1 if the job would refuse any other value of infer.batch. */
static void test_batch_of_one(void)
{
    many_prompts(2);
    spec.input.source.format = DATA_OPENAI_BATCH;
    CHECK(make(0).batch == JOB_AUTO_BATCH);
    many_prompts(2);
    spec.input.source.format = DATA_TEXT;
    CHECK(make(0).batch == 1);
    many_prompts(2);
    spec.input.source.path = 0;
    spec.input.prompt = put("one");
    CHECK(make(0).batch == 1);
    many_prompts(2);
    spec.context.save = 1;
    CHECK(make(0).batch == 1);
    many_prompts(2);
    spec.resources.device = put("cuda");
    CHECK(make(0).batch == 1);
    many_prompts(2);
    spec.model.shape.rope.kind = ROPE_DYNAMIC;
    spec.model.shape.rope.factor = 2;
    spec.model.shape.max_pos = 4096;
    CHECK(make(0).batch == 1);
    small_spec(JOB_SCORE, 2);
    spec.infer.batch = 0;
    CHECK(make(0).batch == 1);
}

static void test_reference(void)
{
    small_spec(JOB_VERIFY, 4);
    const struct plan p = make(0);
    struct plan ref;
    CHECK(plan_reference(&spec, &p, &ref, NULL) == 0);
    CHECK(p.S == 512 && p.T == 128 && ref.T == 512 && ref.n_ranks == 1);
    CHECK(ref.arena_size == p.reference_size && ref.segment_size == 0);
    CHECK(p.reference_offset + p.reference_size == p.arena_size);
    CHECK(!ref.item[PLAN_PARAMS].name && !ref.item[PLAN_SCRATCH].name && ref.item[PLAN_GRAD].name);
    CHECK(!p.item[PLAN_ADAM_M].name);
    check_layout(&ref);
}

/* ---- communication --------------------------------------------------------------------------- */

static bool is(struct comm_count c, int64_t messages, int64_t bytes)
{
    return c.bytes_sent == bytes && c.bytes_received == bytes && c.messages_sent == messages &&
           c.messages_received == messages;
}

/* Checks bytes by hand. P is 4 and T is 256. A row of keys and values has 2*2*8 floats, which are
 * 128 bytes, so a hop has 32768 bytes. There are 3 layers and 2 micro-batches. */
static void test_comm(void)
{
    const int64_t hop = 256 * 128;
    small_spec(JOB_TRAIN, 4);
    spec.memory.recompute = RECOMPUTE_SELECTIVE;
    struct plan p = make(0);
    CHECK(is(p.comm[PURPOSE_RING_KV], 2 * 3 * (3 + 3), 2 * 3 * (3 + 3) * hop));
    CHECK(is(p.comm[PURPOSE_RING_DKV], 2 * 3 * 3, 2 * 3 * 3 * hop));
    CHECK(p.comm[PURPOSE_GRAD].bytes_sent == 2 * 3 * (p.n_grad / 4) * 4);
    CHECK(is(p.comm[PURPOSE_LOSS], 3, 3 * 8) && is(p.comm[PURPOSE_CONTROL], 3, 3 * 16));
    CHECK(is(p.comm[PURPOSE_DECODE], 0, 0));
    spec.memory.recompute = RECOMPUTE_FULL; /* there is one forward ring more */
    p = make(0);
    CHECK(is(p.comm[PURPOSE_RING_KV], 2 * 3 * (3 + 3 + 3), 2 * 3 * (3 + 3 + 3) * hop));
    /* dKV is sent in P hops, and there is one reduction per micro-batch */
    spec.determinism = DET_RANKS;
    spec.model.shape.tied = 1;
    p = make(0);
    CHECK(is(p.comm[PURPOSE_RING_DKV], 2 * 3 * 4, 2 * 3 * 4 * hop));
    CHECK(p.comm[PURPOSE_GRAD].bytes_sent == 2 * (2 * 3 * (p.n_grad / 4) * 4));
    CHECK(p.n_grad >= p.n_params + 258 * 64); /* includes the sum of the tied embedding */
    CHECK(is(p.comm[PURPOSE_LOSS], 2 * 3, 2 * 3 * 8));
    small_spec(JOB_SCORE, 4);
    p = make(0);
    CHECK(is(p.comm[PURPOSE_RING_KV], 3 * 3, 3 * 3 * hop) && is(p.comm[PURPOSE_RING_DKV], 0, 0));
    small_spec(JOB_TRAIN, 1);
    p = make(0);
    for (int i = 0; i < PURPOSE_N; i++) CHECK(is(p.comm[i], 0, 0));
    /* One decoded token sends 3 layers x 3 peers x 8 heads x (8 + 1) floats. */
    CHECK(is(plan_decode_comm(&spec.model.shape, 4, 1), 9, 9 * 8 * 9 * 4));
    /* Five sequences in one pass send as many messages as one. */
    CHECK(is(plan_decode_comm(&spec.model.shape, 4, 5), 9, 5 * 9 * 8 * 9 * 4));
}

static void test_flops(void)
{
    small_spec(JOB_TRAIN, 2);
    const struct plan p = make(0);
    const double layer = 64.0 * (2 * 64 + 2 * 16 + 3 * 160), head = 258.0 * 64, S = 1024;
    CHECK(p.flops == 3 * 2 * (2 * S * (3 * layer + head) + 2 * S * S * 3 * 64));
}

/* ---- ZeRO ------------------------------------------------------------------------------------ */

static int64_t item(const struct plan *p, enum plan_id id)
{
    return p->item[id].name ? p->item[id].size : 0;
}

/* Checks, for each stage of ZeRO, which arrays are complete on each rank and which are sharded.
 * Every rank's plan must have room for the largest shard. */
static void check_zero_memory(int group)
{
    const int G = group ? group : 4;
    small_spec(JOB_TRAIN, 2);
    spec.parallel.dp = 2;
    spec.parallel.zero_group = group;
    spec.optim.max_grad_norm = 1;
    for (int precision = PRECISION_FP32; precision < PRECISION_N; precision++)
        for (int zero = 0; zero <= 3; zero++) {
            spec.precision.params = precision;
            spec.parallel.zero = zero;
            const struct plan p = make(0);
            const int64_t all = p.n_params * 4, act = precision ? 2 : 4;
            const int64_t shard = zero ? p.shards.shard_max * 4 : all;
            const int64_t window = zero_window(&p.shards) / act;
            check_layout(&p);
            CHECK(p.n_ranks == 4 && p.sp == 2 && p.dp == 2 && p.zero == zero && !p.fused);
            CHECK(p.micro_batches == 1 && shard >= all / G);
            CHECK(!zero || (G == 1 ? shard == all : shard < all / (G - 1)));
            CHECK(item(&p, PLAN_ADAM_M) == shard && item(&p, PLAN_ADAM_V) == shard);
            CHECK(item(&p, PLAN_MASTER) == (precision ? shard : 0));
            CHECK(item(&p, PLAN_PARAMS) == (zero == 3 ? shard / 4 : p.n_params) * act);
            CHECK(item(&p, PLAN_FETCHED) == (zero == 3 ? window * act : 0));
            CHECK(item(&p, PLAN_GRAD) == (zero >= 2 ? window : p.n_grad) * 4);
            CHECK(item(&p, PLAN_GRAD_ACC) == (zero >= 2 ? shard : 0));
            CHECK(zero < 1 || strstr(p.reason, G == 4   ? "sharded over 4 ranks"
                                               : G == 2 ? "sharded over 2 ranks, in 2 groups"
                                                        : "groups of one rank"));
        }
}

/* Checks the reason of a plan. Under determinism "ranks" bits do not depend on the number of
 * ranks, but they depend on the number of rings. The reason must say this. */
static void test_bits_said(void)
{
    for (int dp = 1; dp <= 2; dp++) {
        char words[64];
        small_spec(JOB_TRAIN, 2);
        spec.parallel.dp = dp;
        snprintf(words, sizeof words, "the bits are those of parallel.dp %d", dp);
        CHECK(!strstr(make(0).reason, "the bits"));
        spec.determinism = DET_RANKS;
        const struct plan p = make(0);
        CHECK_MSG(strstr(p.reason, words), "%s", p.reason);
    }
}

static void test_zero_memory(void)
{
    check_zero_memory(0);
    check_zero_memory(2);
    check_zero_memory(1);
}

static void test_zero_fused(void)
{
    small_spec(JOB_TRAIN, 2);
    spec.parallel.dp = 2;
    spec.parallel.zero = 3;
    spec.precision.params = PRECISION_FP16;
    spec.optim.max_grad_norm = 0;
    CHECK(!make(0).fused); /* with fp16 a step may be skipped because of its loss scale */
    spec.precision.params = PRECISION_BF16;
    struct plan p = make(0);
    CHECK(p.fused && strstr(p.reason, "fused") && item(&p, PLAN_GRAD_ACC) == 0);
    spec.train.global_batch = 4; /* a second sample for each ring */
    CHECK(!make(0).fused);
    spec.train.global_batch = 2;
    spec.guard.nonfinite = NONFINITE_SKIP;
    CHECK(!make(0).fused);
    small_spec(JOB_TRAIN, 1); /* there is no other rank with which to shard */
    spec.parallel.zero = 3;
    spec.optim.max_grad_norm = 1;
    p = make(0);
    CHECK(p.zero == 0 && !p.by_bucket && item(&p, PLAN_GRAD) >= p.n_params * 4);
}

/* Checks the bytes of all ranks. The bytes sent must equal the bytes received, and their total
 * must be the number that the algorithm needs. There are K groups of G ranks. In each group, the G
 * - 1 ranks that do not own a float send it to its owner; there are N floats. The K owners of a
 * float then sum it over the groups; each owner receives 2 (K - 1)/K of the floats that it owns.
 * After that, the sums are sent back within the groups. */
static void check_zero_comm(int group)
{
    const int W = 6, G = group ? group : W, K = W / G;
    small_spec(JOB_TRAIN, 2);
    spec.parallel.zero_group = group;
    spec.parallel.dp = 3;
    spec.train.global_batch = 6; /* two samples for each ring */
    spec.optim.max_grad_norm = 1;
    for (int tied = 0; tied <= 1; tied++)
        for (int zero = 1; zero <= 3; zero++) {
            spec.model.shape.tied = tied;
            spec.parallel.zero = zero;
            const struct plan p = make(0);
            const int64_t N = p.n_params, embed = 258 * 64,
                          head = N - embed - 3 * zero_len(&p.shards, 1);
            struct comm_count sum[PURPOSE_N] = {0}, one[PURPOSE_N];
            for (int r = 0; r < W; r++) {
                plan_comm(&spec.model.shape, &p, r, one);
                for (int i = 0; i < PURPOSE_N; i++) {
                    sum[i].bytes_sent += one[i].bytes_sent;
                    sum[i].bytes_received += one[i].bytes_received;
                    sum[i].messages_sent += one[i].messages_sent;
                    sum[i].messages_received += one[i].messages_received;
                }
                if (r == 0) CHECK(!memcmp(one, p.comm, sizeof one));
            }
            for (int i = 0; i < PURPOSE_N; i++)
                CHECK(sum[i].bytes_sent == sum[i].bytes_received &&
                      sum[i].messages_sent == sum[i].messages_received);
            const int64_t norm = zero_units(&p.shards) * 8 * (G - 1) * K;
            const int64_t twice = tied ? embed : 0, grads = zero == 1 ? N : 2 * (N + twice);
            CHECK(sum[PURPOSE_GRAD].bytes_sent == ((G - 1) * K + 2 * (K - 1)) * grads * 4 + norm);
            /* With zero 3 and for each of two samples, all weights are gathered forward, and the
             * weights of layers are gathered again backward. */
            const int64_t fetched = 2 * (embed + twice + head + 2 * (N - embed - head));
            CHECK(sum[PURPOSE_PARAM].bytes_sent == (G - 1) * K * (zero == 3 ? fetched : N) * 4);
            CHECK(sum[PURPOSE_LOSS].bytes_sent == W * (W - 1) * 8);
        }
}

static void test_zero_comm(void)
{
    check_zero_comm(0);
    for (int group = 1; group <= 3; group++) check_zero_comm(group);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void test_does_not_fit(void)
{
    struct plan p;
    struct err e = {0};
    small_spec(JOB_TRAIN, 2);
    spec.data.seq_len = 1 << 20;
    spec.model.shape.vocab = 128256;
    spec.model.shape.width = 1024;
    spec.memory.recompute = RECOMPUTE_NONE;
    CHECK(plan_make(&spec, (int64_t)1 << 30, &p, &e) == -1 && e.code == ERR_DOES_NOT_FIT);
    CHECK_STR(e.field, "resources.memory_mib");
    CHECK_MSG(strstr(e.text, "limit 1.0 GiB") && strstr(e.text, "activations"), "%s", e.text);
    CHECK(p.arena_size > (int64_t)1 << 30); /* the error still has the plan's numbers */
    small_spec(JOB_TRAIN, 1);
    const int64_t need = make(0).arena_size;
    CHECK(plan_make(&spec, need, &p, &e) == 0);
    spec.memory.recompute = RECOMPUTE_NONE;
    CHECK(plan_make(&spec, need - 1, &p, &e) == -1);
}

static void test_invalid(void)
{
    struct plan p;
    struct err e = {0};
    small_spec(JOB_TRAIN, 3);
    spec.determinism = DET_RANKS;
    CHECK(plan_make(&spec, 0, &p, &e) == -1 && e.code == ERR_INVALID);
    small_spec(JOB_TRAIN, 2);
    spec.model.shape.head_dim = 7;
    CHECK(plan_make(&spec, 0, &p, &e) == -1);
    CHECK_STR(e.field, "model.config.head_dim");
    small_spec(JOB_TRAIN, 2);
    spec.model.shape.n_kv_heads = 3;
    CHECK(plan_make(&spec, 0, &p, &e) == -1 && e.code == ERR_INVALID);
    small_spec(JOB_TRAIN, 1); /* sizes that overflow are refused and do not wrap around */
    spec.model.shape.width = spec.model.shape.ffn_width = (int64_t)1 << 31;
    spec.data.seq_len = JOB_MAX_SEQ;
    CHECK(plan_make(&spec, 0, &p, &e) == -1 && e.code == ERR_DOES_NOT_FIT);
    small_spec(JOB_TRAIN, 2);
    spec.model.shape.head_dim = JOB_MAX_HEAD + 2; /* the kernels' tiles end at this size */
    CHECK(plan_make(&spec, 0, &p, &e) == -1 && e.code == ERR_INVALID);
    CHECK_STR(e.field, "model.config.head_dim");
    for (int64_t d = JOB_MAX_LINEAR_HEAD; d <= JOB_MAX_LINEAR_HEAD + 2; d += 2) {
        small_spec(JOB_TRAIN, 2); /* the heads of linear attention may be larger */
        spec.model.shape.family = FAMILY_TNL;
        spec.parallel.strategy = STRATEGY_LASP;
        spec.model.shape.n_kv_heads = spec.model.shape.n_heads;
        spec.model.shape.head_dim = d;
        e = (struct err){0};
        const int rc = plan_make(&spec, 0, &p, &e);
        CHECK_MSG(d > JOB_MAX_LINEAR_HEAD ? rc && e.code == ERR_INVALID : !rc, "%lld: %s",
                  (long long)d, e.text);
    }
    CHECK_STR(e.field, "model.config.head_dim");
    CHECK_MSG(strstr(e.text, "514: at most 512"), "%s", e.text);
}

/* Sets every field of a spec to its largest value. The job must be refused with an error, and no
 * size may wrap around. */
static void test_hostile(void)
{
    struct plan p;
    struct err e = {0};
    /* the size of one rank's part can be computed, but the size of the reference, which runs on
     * one rank, overflows */
    small_spec(JOB_VERIFY, 64);
    spec.model.shape.n_layers = 1024;
    spec.model.shape.width = 2;
    spec.model.shape.ffn_width = 1 << 22;
    spec.data.seq_len = spec.verify.max_tokens = JOB_MAX_SEQ;
    spec.memory.recompute = RECOMPUTE_NONE;
    CHECK(plan_make(&spec, 0, &p, &e) == -1 && e.code == ERR_DOES_NOT_FIT);
    small_spec(JOB_TRAIN, 64); /* The bytes on the ring are T KV L P x 65536 samples. */
    spec.model.shape.n_layers = 1024;
    spec.model.shape.width = 64;
    spec.model.shape.n_heads = spec.model.shape.n_kv_heads = 65536;
    spec.model.shape.head_dim = JOB_MAX_HEAD;
    spec.data.seq_len = JOB_MAX_SEQ / 256;
    spec.train.global_batch = 65536;
    spec.memory.recompute = RECOMPUTE_FULL;
    CHECK(plan_make(&spec, 0, &p, &e) == -1 && e.code == ERR_DOES_NOT_FIT);
    CHECK_STR(e.field, "train.global_batch");
}

static void test_json(void)
{
    static char out[32768];
    small_spec(JOB_TRAIN, 2);
    const struct plan p = make(0);
    const int64_t n = plan_json(&spec, &p, out, sizeof out);
    CHECK(n > 0 && n == (int64_t)strlen(out));
    CHECK(strstr(out, "\"dp\":1") && strstr(out, "\"bytes_sent_by_rank\":["));
    CHECK(strstr(out, "\"layout\":\"zigzag\"") && strstr(out, "\"ring_kv\":{\"bytes_sent\":"));
    char want[64];
    snprintf(want, sizeof want, "\"total_bytes\":%lld", (long long)(p.arena_size + p.segment_size));
    CHECK(strstr(out, want));
    CHECK(plan_json(&spec, &p, out, 100) == -1);
    small_spec(JOB_TRAIN, 8);
    spec.parallel.dp = 8;
    spec.train.global_batch = 8;
    spec.parallel.zero = 3;
    const struct plan many = make(0);
    CHECK(plan_json(&spec, &many, out, 16384) > 0 &&
          strstr(out, "\"dp\":8,\"zero\":3,\"zero_group\":64"));
    char b[24];
    CHECK_STR(plan_bytes(b, 1536), "1.5 KiB");
    CHECK_STR(plan_bytes(b, 12), "12 B");
}

int main(void)
{
    RUN(test_params);
    RUN(test_params_odd);
    RUN(test_layout);
    RUN(test_own_memory);
    RUN(test_sizes);
    RUN(test_recompute);
    RUN(test_workspace);
    RUN(test_logits);
    RUN(test_loss_chunks);
    RUN(test_loss_chunks_of_ranks);
    RUN(test_embed);
    RUN(test_cache);
    RUN(test_batch);
    RUN(test_batch_that_fits);
    RUN(test_batch_of_worth);
    RUN(test_batch_of_one);
    RUN(test_reference);
    RUN(test_comm);
    RUN(test_flops);
    RUN(test_bits_said);
    RUN(test_zero_memory);
    RUN(test_zero_fused);
    RUN(test_zero_comm);
    RUN(test_does_not_fit);
    RUN(test_invalid);
    RUN(test_hostile);
    RUN(test_json);
    return test_done("plan");
}
