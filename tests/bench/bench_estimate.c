/* bench_estimate: compares the estimated time of a step with its measured time, for small jobs of
 * every family and strategy. The jobs have widths from 32 to 512 and one to four ranks. They are
 * trainings, trainings with memory.time_chunk, and forward passes of score, embed, generate and
 * sampling.
 *
 * Estimates are made as in seqd: from the plan, and from measurements that `seqrank --profile`
 * makes before the jobs run. A time is the smallest of a few steps, because other programs on the
 * machine can only add to it. If the machine was not quiet while it was profiled, all rows are
 * wrong by the same factor. SEQD_BENCH_JOB=name runs only that row. SEQD_BENCH_CLOCK=cpu is for a
 * machine that is not quiet. It measures the processor time of a step, divided by the number of
 * cores. */
#include "api/core/job.h"
#include "tests/bench/peak.h"
#include "tests/lib/barrier.h"
#include "tests/lib/engine.h"
#include "worker/family/family.h"
#include "worker/model/stored.h"
#include "worker/plan/machine.h"
#include "worker/rank/profile.h"

enum { STEPS = 4, MOST = 24 };
#define WITHIN 1.5

struct row {
    const char *name;
    enum job_kind kind;
    int family, strategy, exchange, precision;
    int P, threads;
    int64_t S, layers, width, heads, kv_heads, ffn, vocab, chunk;
    int recompute;
};

#define FP32 PRECISION_FP32
#define BF16 PRECISION_BF16
static const struct row rows[] = {
    {"llama", JOB_TRAIN, FAMILY_LLAMA, STRATEGY_LOCAL, 0, FP32, 1, 2, 1024, 4, 256, 4, 2, 768, 258},
    {"llama_ring", JOB_TRAIN, FAMILY_LLAMA, STRATEGY_RSA, 0, FP32, 2, 1, 2048, 4, 256, 4, 2, 768,
     258},
    {"llama_bf16", JOB_TRAIN, FAMILY_LLAMA, STRATEGY_RSA, 0, BF16, 2, 1, 2048, 2, 512, 8, 8, 1024,
     1000},
    {"llama_narrow", JOB_TRAIN, FAMILY_LLAMA, STRATEGY_RSA, 0, FP32, 4, 1, 2048, 2, 64, 4, 4, 128,
     258},
    {"ulysses", JOB_TRAIN, FAMILY_LLAMA, STRATEGY_ULYSSES, 0, FP32, 2, 1, 2048, 4, 192, 3, 3, 512,
     258},
    {"usp", JOB_TRAIN, FAMILY_LLAMA, STRATEGY_USP, 0, FP32, 4, 1, 2048, 4, 256, 4, 2, 768, 258},
    {"bert", JOB_TRAIN, FAMILY_BERT, STRATEGY_RSA, 0, FP32, 2, 1, 1024, 3, 128, 4, 4, 512, 500},
    {"lasp", JOB_TRAIN, FAMILY_TNL, STRATEGY_LASP, EXCHANGE_RING, FP32, 2, 1, 4096, 4, 256, 4, 4,
     512, 258},
    {"lasp_narrow", JOB_TRAIN, FAMILY_TNL, STRATEGY_LASP, EXCHANGE_RING, FP32, 2, 1, 16384, 2, 32,
     2, 2, 64, 258},
    {"lasp_heads_8", JOB_TRAIN, FAMILY_TNL, STRATEGY_LASP, EXCHANGE_RING, FP32, 4, 1, 8192, 2, 32,
     4, 4, 64, 258},
    {"lasp_gather", JOB_TRAIN, FAMILY_RETNET, STRATEGY_LASP, EXCHANGE_ALL_GATHER, FP32, 4, 1, 4096,
     3, 96, 3, 3, 192, 258},
    {"lasp_bf16", JOB_TRAIN, FAMILY_LINEAR, STRATEGY_LASP, EXCHANGE_SCAN, BF16, 2, 1, 4096, 2, 128,
     2, 2, 256, 258},
    {"lasp_full", JOB_TRAIN, FAMILY_TNL, STRATEGY_LASP, EXCHANGE_RING, FP32, 2, 1, 4096, 3, 128, 2,
     2, 256, 258, 0, RECOMPUTE_FULL},
    {"walk", JOB_TRAIN, FAMILY_TNL, STRATEGY_LASP, EXCHANGE_RING, FP32, 2, 1, 65536, 2, 32, 2, 2,
     64, 258, 4096},
    {"hybrid", JOB_TRAIN, FAMILY_MINIMAX, STRATEGY_LASP, EXCHANGE_RING, FP32, 2, 1, 2048, 2, 128, 4,
     2, 128, 258},
    {"dsp", JOB_TRAIN, FAMILY_STDIT3, STRATEGY_DSP, 0, FP32, 2, 1, 16, 4, 144, 2, 2, 576, 0},
    {"dsp_latte", JOB_TRAIN, FAMILY_LATTE, STRATEGY_DSP, 0, FP32, 4, 1, 16, 4, 96, 4, 4, 384, 0},
    {"score", JOB_SCORE, FAMILY_LLAMA, STRATEGY_RSA, 0, FP32, 2, 1, 4096, 4, 256, 4, 2, 768, 258},
    {"score_lasp", JOB_SCORE, FAMILY_TNL, STRATEGY_LASP, EXCHANGE_RING, FP32, 2, 1, 8192, 3, 64, 2,
     2, 128, 258},
    {"embed", JOB_EMBED, FAMILY_BERT, STRATEGY_RSA, 0, FP32, 2, 1, 1024, 3, 128, 4, 4, 512, 500},
    {"prefill", JOB_GENERATE, FAMILY_LLAMA, STRATEGY_LOCAL, 0, BF16, 1, 2, 2048, 4, 256, 4, 2, 768,
     258},
    {"sample", JOB_GENERATE, FAMILY_STDIT3, STRATEGY_DSP, 0, FP32, 2, 1, 16, 4, 144, 2, 2, 576, 0},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* ---- jobs ------------------------------------------------------------------------------------ */

static bool diffusion(const struct row *r)
{
    return r->strategy == STRATEGY_DSP;
}

static void set_diffusion(struct job_spec *s, const struct row *r)
{
    struct model_shape *m = &s->model.shape;
    m->in_channels = 4;
    m->out_channels = 8;
    m->patch_t = 1;
    m->patch_h = m->patch_w = 2;
    m->max_pos = 4096;
    if (r->family == FAMILY_LATTE) m->type_vocab = 11;
    if (r->family != FAMILY_LATTE) m->caption_channels = 64, m->text_len = 16;
    s->data.frames = r->S;
    s->data.height = s->data.width = 16;
    s->data.seq_len = 0;
}

static void set_spec(struct job_spec *s, const struct row *r)
{
    struct err e = {0};
    engine_spec(s, r->S);
    s->kind = r->kind;
    s->model.shape = (struct model_shape){.family = r->family,
                                          .n_layers = r->layers,
                                          .width = r->width,
                                          .n_heads = r->heads,
                                          .n_kv_heads = r->kv_heads,
                                          .head_dim = r->width / r->heads,
                                          .ffn_width = r->ffn,
                                          .vocab = r->vocab,
                                          .max_pos = 8192,
                                          .norm_eps = 1e-5,
                                          .rope_theta = 10000};
    struct model_shape *m = &s->model.shape;
    if (r->family == FAMILY_TNL) m->layer_mask[0] = 1;
    if (r->family == FAMILY_MINIMAX)
        m->layer_mask[0] = 1, m->n_experts = 4, m->experts_per_token = 2;
    if (r->family == FAMILY_BERT) m->tied = 1, m->type_vocab = 2;
    if (r->family == FAMILY_LINEAR) m->feature_map = ACT_ELU1, m->normalise = 1;
    if (diffusion(r)) set_diffusion(s, r);
    if (family_complete(m, &e)) fprintf(stderr, "%s: %s\n", r->name, e.text), exit(1);
    s->parallel.strategy = r->strategy;
    s->parallel.exchange = r->exchange;
    s->parallel.sp = r->P;
    s->parallel.dp = 1;
    s->parallel.zero = 1;
    s->precision.params = r->precision;
    s->memory.time_chunk = r->chunk;
    s->memory.recompute = r->recompute;
    s->resources.threads = r->threads;
    s->resources.ranks = r->P;
    s->sampling.max_tokens = r->kind == JOB_GENERATE ? 16 : 0;
    s->train.steps = STEPS + 1;
}

/* Makes one document of S tokens. In BERT, each token attends to the whole document. */
static int batch(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    const struct synth *y = arg;
    if (synth_batch(arg, sh, n, b, e)) return -1;
    for (int64_t i = 0; b->types && i < sh->T; i++) {
        b->types[i] = 0;
        if (b->hi[i]) b->hi[i] = y->S;
    }
    return 0;
}

static int grid_of(void *arg, int64_t n, int64_t grid[2], struct err *e)
{
    const struct synth *y = arg;
    grid[0] = 64;
    grid[1] = y->S;
    return 0;
}

static int picture(void *arg, const struct shard *sh, int64_t n, struct batch *b, struct err *e)
{
    struct batch_latents *l = &b->latents;
    const int64_t T = sh->T, cols = 4 * 4;
    b->n_targets = 64 * ((const struct synth *)arg)->S * cols;
    b->n_tokens = b->n_targets / cols;
    for (int64_t i = 0; i < T * cols; i++) {
        l->patches[i] = (float)(i % 17) * 0.1f - 0.8f;
        if (l->target) l->target[i] = (float)(i % 13) * 0.1f - 0.6f;
    }
    for (int64_t i = 0; i < T * 4; i++)
        if (l->weight) l->weight[i] = 1;
    for (int i = 0; i < 2; i++)
        if (b->group[i]) memset(b->group[i], 0, (size_t)T * sizeof *b->group[i]);
    l->n_text = l->text ? 16 : 0;
    for (int64_t i = 0; l->text && i < 16 * 64; i++) l->text[i] = (float)(i % 7) * 0.1f;
    l->grid[0] = ((const struct synth *)arg)->S;
    l->grid[1] = l->grid[2] = 8;
    l->height = l->width = 128;
    l->t = 500;
    l->fps = 24;
    return 0;
}

/* ---- times ----------------------------------------------------------------------------------- */

static bool by_cpu; /* time of all ranks on the cores that they have */

static double now_s(const struct row *r)
{
    struct timespec t;
    const double cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (!by_cpu) return peak_now_s();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / fmin(cores, r->P * r->threads);
}

struct clock {
    const struct row *row;
    double start, best;
};

static void step_begins(struct train *t, int rank, void *arg)
{
    struct clock *c = arg;
    if (rank == 0) c->start = now_s(c->row);
}

static void step_ended(struct train *t, int rank, void *arg)
{
    struct clock *c = arg;
    if (rank == 0 && t->step > 1) /* the first step is not counted, because its pages are cold */
        c->best = fmin(c->best, now_s(c->row) - c->start);
}

static double train_seconds(struct job_spec *s, const struct row *r, struct synth *y)
{
    struct clock c = {.row = r, .best = INFINITY};
    struct engine_run run = {.P = r->P,
                             .steps = STEPS + 1,
                             .source = {batch, synth_targets, y},
                             .before_step = step_begins,
                             .after_step = step_ended,
                             .arg = &c};
    if (diffusion(r)) run.source = (struct train_source){picture, synth_targets, y, grid_of};
    engine_go(&run, s);
    engine_free(&run);
    return c.best;
}

struct pass {
    const struct row *row;
    struct job_spec *spec;
    struct synth *y;
    struct plan plan;
    struct engine_memory mem[JOB_MAX_RANKS];
    double best;
};

/* Runs one step, as the plan defines it: a window with its losses, a document, or a prompt. */
static int one_pass(struct pass *x, struct model *m, struct err *e)
{
    const bool diff = diffusion(x->row);
    if ((diff ? picture : batch)(x->y, &m->sp.shard, 0, &m->batch, e)) return -1;
    if (model_forward(m, &m->batch, e)) return -1;
    double nll;
    if (x->row->kind == JOB_SCORE && model_nll(m, &m->batch, &nll, e)) return -1;
    return m->comm ? barrier(m->comm, e) : 0;
}

static void pass_body(struct ranks *g, int rank, void *arg)
{
    struct pass *x = arg;
    struct err e = {0};
    struct model *m = calloc(1, sizeof *m);
    struct comm *c = g ? g->comm[rank] : NULL;
    const struct model_options o = {.shape = &x->spec->model.shape,
                                    .plan = &x->plan,
                                    .arena = x->mem[rank].arena,
                                    .segment = c ? comm_segment(c) : NULL,
                                    .be = x->mem[rank].be,
                                    .comm = c,
                                    .rank = rank,
                                    .n_ranks = x->plan.n_ranks};
    if (!m || model_init(m, &o, &e)) abort();
    model_random(m, 1);
    stored_turn(m);
    if (diffusion(x->row) && model_set_grid(m, 64, x->y->S, &e)) abort();
    for (int k = 0; k <= STEPS; k++) {
        const double start = now_s(x->row);
        if (one_pass(x, m, &e)) fprintf(stderr, "%s: %s\n", x->row->name, e.text), exit(1);
        if (rank == 0 && k) x->best = fmin(x->best, now_s(x->row) - start);
    }
    free(m);
}

static double pass_seconds(struct job_spec *s, const struct row *r, struct synth *y)
{
    static struct pass x;
    struct err e = {0};
    x = (struct pass){.row = r, .spec = s, .y = y, .best = INFINITY};
    if (plan_make(s, 0, &x.plan, &e)) fprintf(stderr, "%s: %s\n", r->name, e.text), exit(1);
    engine_ranks(s, &x.plan, NULL, NULL, x.mem, pass_body, &x);
    return x.best;
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool bench(const struct row *r, const struct machine *m)
{
    static struct job_spec s;
    static struct plan p;
    struct estimate t;
    struct err e = {0};
    struct synth y = {.S = r->S, .vocab = (int32_t)r->vocab};
    set_spec(&s, r);
    if (plan_make(&s, 0, &p, &e)) fprintf(stderr, "%s: %s\n", r->name, e.text), exit(1);
    machine_estimate(m, &s, &p, &t);
    const double took = r->kind == JOB_TRAIN ? train_seconds(&s, r, &y) : pass_seconds(&s, r, &y);
    const double ratio = took / t.step_s;
    const bool within = ratio <= WITHIN && ratio >= 1 / WITHIN;
    printf("%-14s %3d %6lld %5lld %11.3f %11.3f %11.3f %8.2f%s\n", r->name, r->P, (long long)r->S,
           (long long)r->width, t.step_s * 1e3, t.exchange_s * 1e3, took * 1e3, ratio,
           within ? "" : "  !");
    printf("{\"bench\":\"estimate\",\"job\":\"%s\",\"ranks\":%d,\"seq_len\":%lld,\"width\":%lld,"
           "\"estimate_s\":%.6g,\"step_s\":%.6g,\"ratio\":%.3f}\n",
           r->name, r->P, (long long)r->S, (long long)r->width, t.step_s, took, ratio);
    return within;
}

int main(void)
{
    const char *one = getenv("SEQD_BENCH_JOB");
    by_cpu = getenv("SEQD_BENCH_CLOCK") != NULL;
    engine_as_job = true;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct profile profile;
    struct machine m;
    struct err e = {0};
    int n = 0, n_within = 0;
    if (profile_measure(PROFILE_SLICE_MS, &profile, &e)) fprintf(stderr, "%s\n", e.text), exit(1);
    machine_of_profile(&profile, (int32_t)sysconf(_SC_NPROCESSORS_ONLN), &m);
    printf("\na step, estimated and measured\n%-14s %3s %6s %5s %11s %11s %11s %8s\n", "job", "P",
           "S", "width", "estimate ms", "of exchange", "took ms", "took/est");
    for (int i = 0; i < N_ROWS; i++) {
        if (one && strcmp(one, rows[i].name) != 0) continue;
        n_within += bench(&rows[i], &m);
        n++;
    }
    printf("%d of %d within a factor of %.1f\n", n_within, n, WITHIN);
    return n_within == n ? 0 : 1;
}
