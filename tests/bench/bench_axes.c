/* bench_axes: the time of a training step on four ranks of one thread each. Each axis by which the
 * ranks can be divided is compared with a ring of all four ranks. Every division trains the same
 * four sequences in a step. If it has fewer than four rings, it accumulates gradients. The time of
 * a division is the time of the fastest of a few steps. The divisions are measured alternately, so
 * that other load of the machine affects all of them alike. On two cores, time in which a rank
 * waits is visible only if no other rank can compute in that time. */
#include "api/core/job.h"
#include "tests/bench/peak.h"
#include "tests/lib/engine.h"

enum { STEPS = 2, ROUNDS = 3, SEQUENCES = 4, RANKS = 4 };

static struct job_spec spec;

struct way {
    const char *name;
    int dp, pp, sp, tp;
    enum strategy_id strategy;
    int ulysses, zero, group;
    int64_t piece; /* memory.mlp_chunk_tokens */
    enum recompute_id recompute;
    bool offload; /* to a file in /tmp */
    /* out */
    double best_s;
    /* bytes that are planned for a rank, and bytes that the busiest rank sends in a step */
    int64_t memory, sent;
};

static struct way ways[] = {
    {"sp 4", .sp = 4},
    {"sp 4, ulysses", .sp = 4, .strategy = STRATEGY_ULYSSES},
    {"sp 4, groups of 2 in a ring", .sp = 4, .strategy = STRATEGY_USP, .ulysses = 2},
    {"dp 2 sp 2", .dp = 2, .sp = 2},
    {"dp 4", .dp = 4},
    {"pp 2 sp 2", .pp = 2, .sp = 2},
    {"pp 4", .pp = 4},
    {"sp 2 tp 2", .sp = 2, .tp = 2},
    {"tp 4", .tp = 4},
    {"sp 4, zero 3", .sp = 4, .zero = 3},
    {"dp 2 sp 2, zero 3", .dp = 2, .sp = 2, .zero = 3},
    {"dp 2 sp 2, zero 3 in groups of 2", .dp = 2, .sp = 2, .zero = 3, .group = 2},
    {"sp 4, pieces of 64 rows", .sp = 4, .piece = 64},
    {"sp 4, all recomputed", .sp = 4, .recompute = RECOMPUTE_FULL},
    {"sp 4, all recomputed, offloaded", .sp = 4, .recompute = RECOMPUTE_FULL, .offload = true},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

struct clock {
    double start, best;
    int64_t sent[RANKS];
};

static void step_begins(struct train *t, int rank, void *arg)
{
    struct clock *c = arg;
    if (rank == 0) c->start = peak_now_s();
}

static void step_ended(struct train *t, int rank, void *arg)
{
    struct clock *c = arg;
    const struct comm_count *n = comm_ledger(t->model.job);
    c->sent[rank] = 0;
    for (int p = 0; p < PURPOSE_N; p++) c->sent[rank] += n[p].bytes_sent;
    if (rank == 0 && t->step > 1) /* the first step is not counted, because its pages are cold */
        c->best = fmin(c->best, peak_now_s() - c->start);
}

static void run(struct way *w, int64_t S)
{
    struct synth y = {.S = S, .vocab = 258};
    struct clock c = {.best = INFINITY};
    engine_spec(&spec, S);
    spec.model.shape = (struct model_shape){.n_layers = 4,
                                            .width = 256,
                                            .n_heads = 4,
                                            .n_kv_heads = 4,
                                            .head_dim = 64,
                                            .ffn_width = 768,
                                            .vocab = 258,
                                            .norm_eps = 1e-5,
                                            .rope_theta = 10000};
    spec.train.steps = STEPS + 1;
    spec.train.global_batch = SEQUENCES;
    spec.parallel.strategy = w->strategy;
    spec.parallel.ulysses = w->ulysses;
    spec.parallel.zero = w->zero;
    spec.parallel.zero_group = w->group;
    spec.memory.mlp_chunk_tokens = w->piece;
    spec.memory.recompute = w->recompute;
    spec.memory.offload = w->offload ? OFFLOAD_ACTIVATIONS : OFFLOAD_NONE;
    struct engine_run r = {.P = w->sp ? w->sp : 1,
                           .dp = w->dp,
                           .pp = w->pp,
                           .tp = w->tp,
                           .steps = STEPS + 1,
                           .source = {synth_batch, synth_targets, &y},
                           .before_step = step_begins,
                           .after_step = step_ended,
                           .arg = &c};
    engine_go(&r, &spec);
    w->best_s = w->best_s > 0 ? fmin(w->best_s, c.best) : c.best;
    w->memory = r.plan.arena_size + r.plan.segment_size;
    for (int i = 0; i < RANKS; i++)
        if (c.sent[i] > w->sent) w->sent = c.sent[i];
    engine_free(&r);
}

static void print_way(const struct way *w, int64_t S)
{
    const double tokens = (double)(SEQUENCES * S) / w->best_s;
    printf("%-34s %9.1f %9.0f %8.2f %10.2f %10.2f\n", w->name, w->best_s * 1e3, tokens,
           ways[0].best_s / w->best_s, (double)w->memory / 1048576, (double)w->sent / 1048576);
    printf("{\"bench\":\"axes\",\"way\":\"%s\",\"seq_len\":%lld,\"step_ms\":%.2f,\"tokens_s\":%.0f,"
           "\"of_sp\":%.3f,\"memory\":%lld,\"sent\":%lld}\n",
           w->name, (long long)S, w->best_s * 1e3, tokens, ways[0].best_s / w->best_s,
           (long long)w->memory, (long long)w->sent);
}

static void table(int64_t S)
{
    for (int i = 0; i < N_WAYS; i++) ways[i].best_s = 0, ways[i].sent = 0;
    for (int k = 0; k < ROUNDS; k++)
        for (int i = 0; i < N_WAYS; i++) run(&ways[i], S);
    printf("\na step of %d sequences of %lld tokens, %d ranks of one thread, fp32\n", SEQUENCES,
           (long long)S, RANKS);
    printf("%-34s %9s %9s %8s %10s %10s\n", "", "ms", "tokens/s", "of sp 4", "MiB a rank",
           "MiB sent");
    for (int i = 0; i < N_WAYS; i++) print_way(&ways[i], S);
}

int main(void)
{
    engine_as_job = true;
    table(512);
    table(2048);
    return 0;
}
