/* dsp.c: what a pair of blocks of a video transformer sends, by DSP and by each baseline. DSP, and
 * the baselines that the product has, run as the product runs them. */
#include <stdlib.h>
#include "api/core/job.h"
#include "tests/paper/report.h"
#include "tests/lib/ranks.h"
#include "worker/plan/volume.h"
#include "worker/sp/dsp.h"

enum { MAX_P = EVIDENCE_RANKS, FRAMES = 16, SPACE = 16, HEADS = 8, HEAD = 8 };
enum { ROWS = FRAMES * SPACE, WIDTH = HEADS * HEAD, SIZE = ROWS * WIDTH * 4 /* M, bytes */ };
enum { PAIRS = 28, STAGES = 2 * PAIRS };

/* Blocks along space and time in turns, or along space alone. */
static void blocks(struct dsp_stage *stage, int n, bool both)
{
    for (int i = 0; i < n; i++)
        stage[i] = (struct dsp_stage){.whole = both && i % 2 ? 2 : 1, .size = {SPACE, FRAMES}};
}

/* One pair: the planner of switches says where the dimension changes, the product changes it. */
static void pair(struct ranks *g, int rank, void *arg)
{
    const int P = *(const int *)arg;
    struct err e = {0};
    const int64_t n[2] = {SPACE, FRAMES}, slice = (int64_t)ROWS * WIDTH / P;
    struct dsp_stage stage[2];
    int label[2], at = 1;
    float *rows = calloc((size_t)(2 * slice), 4), *recv = calloc((size_t)slice, 4);
    struct dsp d = {.comm = g->comm[rank],
                    .P = P,
                    .r = rank,
                    .n = {SPACE, FRAMES},
                    .send = comm_segment(g->comm[rank]),
                    .recv = recv,
                    .purpose = PURPOSE_SWITCH};
    d.be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    if (!rows || !recv || !d.be || dsp_rows(n, P, false, 0) * WIDTH != slice) abort();
    const struct tensor x[2] = {tensor_f32(rows, slice / WIDTH, WIDTH, WIDTH),
                                tensor_f32(rows + slice, slice / WIDTH, WIDTH, WIDTH)};
    blocks(stage, 2, true);
    if (dsp_label(stage, 2, 2, P, at, at, label, NULL) < 0) abort();
    for (int i = 0; i <= 2 && !e.code; i++) {
        const int to = i < 2 ? label[i] : 1; /* home at the end: the next pair begins there */
        if (to != at && dsp_switch(&d, x[to], x[at], at, to, &e)) ranks_fail(g, rank, &e);
        at = to;
    }
    evidence_phase(g, rank);
    be_close(d.be);
    free(rows), free(recv);
}

static struct evidence *count_layer(int strategy, int form, int P)
{
    const struct layer l = {strategy, form, P, ROWS / P, HEADS, HEADS, HEAD};
    return count_attention(&l);
}

static double once(const int64_t v[], int n)
{
    return (double)v[0] / (double)v[n - 1];
}

static double twice(const int64_t v[], int n)
{
    return (double)v[0] / (2.0 * (double)v[n - 1]);
}

/* The product's own baselines; of: DSP's bytes to a baseline's. */
enum base { ULYSSES, MEGATRON, RING, BASE_N };
static const struct baseline {
    const char *name, *source, *text;
    enum base base;
    int over; /* claimed is 1 / over, or 1 / (over N) */
    bool by_N;
    double (*of)(const int64_t v[], int n);
    const char *differs;
} baselines[] = {
    {"Ulysses in one attention", "2403.10266, text", "at least 50 % less", ULYSSES, 2, false, once,
     NULL},
    {"Ulysses in both attentions", "2403.10266, abstract", "less than 25 %", ULYSSES, 4, false,
     twice, "exactly a quarter, not less; one layer of Ulysses, taken twice"},
    {"Megatron-SP", "2403.10266, table", "2M/N to 8M", MEGATRON, 4, true, once, NULL},
    {"ring attention in one attention", "2403.10266, table", "2M/N to 2M", RING, 1, true, once,
     NULL},
};
#define N_BASELINES ((int)(sizeof baselines / sizeof *baselines))

static void ratio(const struct baseline *b, int P, struct evidence *dsp, struct evidence *base)
{
    char what[128];
    struct evidence *const both[] = {dsp, base};
    const struct row row = {.what = what,
                            .source = b->source,
                            .claimed = 1.0 / (b->over * (b->by_N ? P : 1)),
                            .claimed_text = b->text,
                            .differs = b->differs};
    snprintf(what, sizeof what, "DSP to %s, N %d", b->name, P);
    report_number(&row, both, 2, b->of);
}

/* Their all-to-alls as their code lists them. Returns the bytes of a rank. */
static int64_t described(const char *name, int P, struct evidence *dsp, enum volume_way way)
{
    char what[128];
    const int64_t theirs = volume_pair(way, P, ROWS, WIDTH * 4);
    const struct row row = {
        .what = what, .source = "its own code", .note = "the all-to-alls that its code lists"};
    snprintf(what, sizeof what, "DSP to %s, N %d", name, P);
    report_compared(&row, dsp, P * theirs);
    return theirs;
}

static void pairs(int P, FILE *f)
{
    struct evidence *dsp = evidence_ledger(P, SIZE / P + 4096, pair, &P);
    struct evidence *base[BASE_N] = {
        [ULYSSES] = count_layer(STRATEGY_ULYSSES, FORM_AUTO, P),
        [MEGATRON] = count_tensor_blocks(P, ROWS, HEADS, HEAD),
        [RING] = count_layer(STRATEGY_RSA, FORM_BLOCKWISE, P),
    };
    int64_t want[EVIDENCE_RANKS][EVIDENCE_PHASES] = {{0}}, sent[BASE_N];
    char what[128], claimed[64];
    const struct row row = {.what = what, .source = "2403.10266, table", .claimed_text = claimed};
    for (int i = 0; i < P; i++) want[i][0] = (int64_t)2 * SIZE / P / P * (P - 1);
    snprintf(what, sizeof what, "DSP, N %d: sent by a rank for a pair of blocks, forward", P);
    snprintf(claimed, sizeof claimed, "2M/N = %d, of which (N-1)/N leaves the rank", 2 * SIZE / P);
    report_bytes(&row, dsp, want);
    for (int i = 0; i < N_BASELINES; i++) ratio(&baselines[i], P, dsp, base[baselines[i].base]);
    for (int i = 0; i < BASE_N; i++) sent[i] = evidence_sent(base[i], 0, 0);
    const int64_t newer = described("Open-Sora 1.2's own", P, dsp, VOLUME_OPEN_SORA_12);
    const int64_t older = described("Open-Sora 1.0's own", P, dsp, VOLUME_OPEN_SORA_10);
    fprintf(f, "%d %lld %lld %lld %lld %lld %lld %lld\n", P, (long long)evidence_sent(dsp, 0, 0),
            (long long)sent[ULYSSES], (long long)newer, 2 * (long long)sent[ULYSSES],
            (long long)older, (long long)sent[MEGATRON], (long long)sent[RING]);
    for (int i = 0; i < BASE_N; i++) evidence_free(base[i]);
    evidence_free(dsp);
}

/* The fewest changes of the sharded dimension, by the planner of switches. */
static void switches(void)
{
    static struct dsp_stage stage[STAGES];
    static const struct row pairs_of_both = {
        .what = "changes of the sharded dimension, 28 pairs of (space, time) blocks",
        .source = "2403.10266",
        .claimed = 2 * PAIRS,
        .claimed_text = "2 a pair = 56",
        .note = "sharded along time at entry and exit"};
    static const struct row space_alone = {.what = "the same where every block sees space alone",
                                           .source = "2403.10266",
                                           .claimed_text = "0"};
    int label[STAGES];
    blocks(stage, STAGES, true);
    struct evidence *e = evidence_switches(stage, STAGES, 4, 1, 1, label);
    report_number(&pairs_of_both, &e, 1, NULL);
    evidence_free(e);
    blocks(stage, STAGES, false);
    e = evidence_switches(stage, STAGES, 4, -1, -1, label);
    report_number(&space_alone, &e, 1, NULL);
    evidence_free(e);
}

void paper_dsp(void)
{
    report_section(
        "DSP: bytes of a pair of blocks against each baseline",
        "An activation of M bytes, 16 frames x 16 places x 64 columns, on N ranks, forward. "
        "The claims \"less than 25 %\" of the abstract and \"at "
        "least 50 %\" of the text name different baselines: Ulysses in both attentions, and in the "
        "one along the sharded dimension. Ulysses, tensor parallelism with sequence parallelism "
        "(Megatron-SP) and the ring are the product's own, run on as many rows and columns; "
        "Megatron-SP is attention and MLP of both blocks.");
    FILE *f = report_data("dsp_bytes");
    report_table();
    for (int P = 2; P <= MAX_P; P *= 2) pairs(P, f);
    switches();
    fclose(f);
    report_picture("dsp_bytes", "Bytes a rank sends for a pair of blocks, by ranks");
}
