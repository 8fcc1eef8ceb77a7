/* Training against a float64 oracle, across numbers of ranks, and to the bit under "ranks". */
#include "tests/engine.h"

static struct job_spec spec; /* 75 KiB: off the stack */

/* ---- golden: 20 steps of tests/golden/make_golden.py (float64, PyTorch) ------------------------ */

struct golden {
    char *file;
    int64_t S, B, steps, n_params;
    const int32_t *samples; /* per sample ids, targets, pos, lo: S each */
    const double *loss, *norm;
    const float *initial, *final;
};

static int golden_batch(void *arg, const struct shard *sh, int64_t n, struct batch *b,
                        struct err *e)
{
    const struct golden *g = arg;
    const int32_t *s = g->samples + n * 4 * g->S;
    b->n_tokens = g->S;
    for (int64_t i = 0; i < sh->T; i++) {
        const int64_t p = shard_pos(sh, i);
        const bool pad = p >= g->S;
        b->ids[i] = pad ? 257 : s[p];
        b->targets[i] = pad ? -1 : s[g->S + p];
        b->pos[i] = pad ? 0 : s[2 * g->S + p];
        b->lo[i] = pad ? 0 : s[3 * g->S + p];
        b->hi[i] = pad ? 0 : p + 1;
    }
    return 0;
}

static int64_t golden_targets(void *arg, int64_t n)
{
    const struct golden *g = arg;
    int64_t count = 0;
    for (int64_t i = 0; i < g->S; i++) count += g->samples[(n * 4 + 1) * g->S + i] >= 0;
    return count;
}

static void golden_spec(const int64_t h[14], const double d[9])
{
    engine_spec(&spec, h[8]);
    spec.model.shape = (struct model_shape){.n_layers = (int32_t)h[0],
                                            .width = h[1],
                                            .n_heads = h[2],
                                            .n_kv_heads = h[3],
                                            .head_dim = h[4],
                                            .ffn_width = h[5],
                                            .vocab = h[6],
                                            .tied = (int32_t)h[7],
                                            .norm_eps = d[0],
                                            .rope_theta = d[1]};
    spec.train.global_batch = h[9];
    spec.train.steps = h[10];
    spec.schedule.warmup_steps = h[11];
    spec.optim.lr = d[2];
    spec.optim.beta1 = d[3];
    spec.optim.beta2 = d[4];
    spec.optim.eps = d[5];
    spec.optim.weight_decay = d[6];
    spec.optim.max_grad_norm = d[7];
    spec.schedule.min_lr_ratio = d[8];
}

static bool golden_open(struct golden *g, const char *name)
{
    char path[256];
    *g = (struct golden){0};
    snprintf(path, sizeof path, "tests/golden/%s", name);
    FILE *f = fopen(path, "rb");
    CHECK_MSG(f, "%s: run from the repository's root", path);
    if (!f) return false;
    fseek(f, 0, SEEK_END);
    const long size = ftell(f);
    rewind(f);
    g->file = malloc((size_t)size);
    const bool ok = g->file && fread(g->file, 1, (size_t)size, f) == (size_t)size &&
                    !memcmp(g->file, "SEQDGOLD", 8);
    fclose(f);
    CHECK_MSG(ok, "%s is not a golden file", path);
    if (!ok) return false;
    const int64_t *h = (const int64_t *)(g->file + 8);
    golden_spec(h, (const double *)(g->file + 8 + 14 * 8));
    g->S = h[8], g->B = h[9], g->steps = h[10], g->n_params = h[12];
    g->samples = (const int32_t *)(g->file + 8 + 14 * 8 + 9 * 8);
    g->loss = (const double *)(g->samples + g->steps * g->B * 4 * g->S);
    g->norm = g->loss + g->steps;
    g->initial = (const float *)(g->norm + g->steps);
    g->final = g->initial + g->n_params;
    CHECK((const char *)(g->final + g->n_params) == g->file + size);
    return true;
}

/* The file's tensors follow each other without gaps; ours are aligned. */
static float *spread(const float *packed)
{
    float *out = calloc((size_t)param_count(&spec.model.shape), 4);
    struct param p;
    if (!out) abort();
    for (int i = 0; i < param_tensors(&spec.model.shape); i++, packed += p.count) {
        param_get(&spec.model.shape, i, &p);
        memcpy(out + p.offset, packed, (size_t)p.count * 4);
    }
    return out;
}

static void check_golden(const struct golden *g, const struct engine_run *r)
{
    for (int64_t k = 0; k < g->steps; k++) {
        CHECK_MSG(fabs(r->loss[k] - g->loss[k]) <= 1e-5 * g->loss[k], "P %d step %lld: %.9g, %.9g",
                  r->P, (long long)k, r->loss[k], g->loss[k]);
        CHECK_MSG(fabs(r->norm[k] - g->norm[k]) <= 1e-4 * g->norm[k],
                  "P %d step %lld norm: %.9g, %.9g", r->P, (long long)k, r->norm[k], g->norm[k]);
    }
    float *want = spread(g->final);
    struct param p;
    for (int i = 0; i < param_tensors(&spec.model.shape); i++) {
        param_get(&spec.model.shape, i, &p);
        const double d = rel_l2(r->weights + p.offset, want + p.offset, p.count);
        CHECK_MSG(d <= 1e-4, "P %d %s: rel-L2 %.3g", r->P, p.name, d);
    }
    free(want);
}

static void run_golden(const char *name)
{
    static const struct {
        int P, determinism, recompute, threads;
    } ways[] = {{1, DET_RUN, RECOMPUTE_NONE, 1},
                {1, DET_RANKS, RECOMPUTE_FULL, 2},
                {2, DET_RUN, RECOMPUTE_SELECTIVE, 1},
                {3, DET_RUN, RECOMPUTE_FULL, 1},
                {4, DET_RANKS, RECOMPUTE_NONE, 1}};
    struct golden g;
    if (!golden_open(&g, name)) return;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        float *initial = spread(g.initial);
        spec.determinism = ways[i].determinism;
        spec.memory.recompute = ways[i].recompute;
        spec.resources.threads = ways[i].threads;
        spec.memory.loss_chunk_tokens = i % 2 ? 7 : 0;
        struct engine_run r = {.P = ways[i].P,
                               .steps = g.steps,
                               .initial = initial,
                               .source = {golden_batch, golden_targets, &g}};
        engine_go(&r, &spec);
        if (r.weights) check_golden(&g, &r);
        engine_free(&r);
        free(initial);
    }
    free(g.file);
}

static void test_golden_untied(void)
{
    run_golden("llama_untied.bin");
}

static void test_golden_tied(void)
{
    run_golden("llama_tied.bin");
}

int main(void)
{
    RUN(test_golden_untied);
    RUN(test_golden_tied);
    return test_done("train");
}
