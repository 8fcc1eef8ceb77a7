/* bench_in_time: measures one training step of LASP in time, on sequences of up to 4,194,304
 * tokens. Two ranks together hold a window of 8192 tokens at a time. It prints the time and the
 * memory. Only one window is in memory, so the memory does not depend on the length of the
 * sequence. The model is a tiny TransNormerLLM. SEQD_BENCH_TOKENS=n runs only that length. */
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include "api/core/job.h"
#include "tests/lib/engine.h"
#include "worker/family/family.h"

enum { P = 2, CHUNK = 4096 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void bench(int64_t S)
{
    struct job_spec s;
    struct synth y = {.S = S, .vocab = 258};
    struct engine_run r = {.source = {synth_batch, synth_targets, &y}, .P = P, .steps = 1};
    engine_spec(&s, S);
    s.model.shape = (struct model_shape){.family = FAMILY_TNL,
                                         .n_layers = 2,
                                         .width = 32,
                                         .n_heads = 2,
                                         .n_kv_heads = 2,
                                         .head_dim = 16,
                                         .ffn_width = 64,
                                         .vocab = 258,
                                         .layer_mask = {1}};
    if (family_complete(&s.model.shape, NULL)) abort();
    s.memory.time_chunk = CHUNK;
    double start_s = now_s();
    engine_go(&r, &s);
    double step_s = now_s() - start_s, rate = (double)S / step_s;
    const int64_t memory = r.plan.arena_size + r.plan.segment_size;
    const int64_t borders = (r.plan.n_windows - 1) * r.plan.carry_size;
    printf("%10lld %8lld %12.3f %12.3f %10.1f %12.0f %10.4f\n", (long long)S,
           (long long)r.plan.n_windows, (double)memory / 1048576, (double)borders / 1048576, step_s,
           rate, r.loss[0]);
    printf("{\"bench\":\"in_time\",\"ranks\":%d,\"tokens\":%lld,\"chunk\":%d,\"windows\":%lld,"
           "\"memory\":%lld,\"borders\":%lld,\"step_s\":%.2f,\"tokens_s\":%.0f,\"loss\":%.5f}\n",
           P, (long long)S, CHUNK, (long long)r.plan.n_windows, (long long)memory,
           (long long)borders, step_s, rate, r.loss[0]);
    engine_free(&r);
}

int main(void)
{
    const char *one = getenv("SEQD_BENCH_TOKENS");
    engine_as_job = true;
    printf("\na step of a tiny TransNormerLLM on %d ranks, windows of %d tokens a rank\n", P,
           CHUNK);
    printf("%10s %8s %12s %12s %10s %12s %10s\n", "tokens", "windows", "MiB a rank", "of borders",
           "s", "tokens/s", "loss");
    if (one) {
        bench(atoll(one));
        return 0;
    }
    for (int64_t S = 65536; S <= 4194304; S *= 8) bench(S);
    return 0;
}
