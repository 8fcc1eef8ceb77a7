/* dsp.c: counts the sends of a pair of blocks of a video transformer, for DSP and for each
 * baseline. DSP, and those baselines that the product has, are run by the product's own code. */
#include <stdlib.h>
#include "api/core/job.h"
#include "tests/paper/report.h"
#include "tests/lib/grid_train.h"
#include "tests/lib/volume_pair.h"
#include "worker/plan/volume.h"
#include "worker/program/label.h"
#include "worker/sp/dsp.h"

enum { MAX_P = EVIDENCE_RANKS, FRAMES = 16, SPACE = 16, HEADS = 8, HEAD = 8 };
enum { ROWS = FRAMES * SPACE, WIDTH = HEADS * HEAD, SIZE = ROWS * WIDTH * 4 /* M, bytes */ };
enum { PAIRS = 28, STAGES = 2 * PAIRS };

static void add(struct label_graph *g, int in, int out, int label)
{
    const signed char l = (signed char)label;
    g->op[g->n_ops++] = (struct label_op){
        .in = {in, -1, -1}, .out = out, .n_ways = 1, .way = {{{l, l, l}, l}}};
}

/* Makes n blocks. If `both` is set, blocks along space and along time alternate. If not, all
 * blocks are along space. Before and after the blocks, the activation is sharded along time. */
static void blocks(struct label_graph *g, int n, bool both)
{
    *g = (struct label_graph){.n_values = n + 1};
    for (int v = 0; v <= n; v++) /* switches in both directions send the same number of rows */
        g->value[v].moved[0][1] = g->value[v].moved[1][0] = ROWS;
    add(g, -1, 0, 1);
    for (int i = 0; i < n; i++) add(g, i, i + 1, both && i % 2 ? 0 : 1);
    add(g, n, -1, 1);
}

/* Runs one pair of blocks. The labelling determines where the sharded dimension changes, and the
 * product's code makes the changes. */
static void pair(struct ranks *g, int rank, void *arg)
{
    const int P = *(const int *)arg;
    struct err e = {0};
    const int64_t n[2] = {SPACE, FRAMES}, slice = (int64_t)ROWS * WIDTH / P;
    static _Thread_local struct label_graph graph;
    struct label_cost cost;
    int way[LABEL_OPS], at = 1;
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
    blocks(&graph, 2, true);
    if (!label_solve(&graph, way, &cost)) abort();
    for (int i = 0; i < graph.n_ops && !e.code; i++) {
        /* at the end, the activation is switched back to the dimension with which the next pair
         * begins */
        const int to = graph.op[i].way[way[i]].in[0];
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

/* Layers of a grid cannot be divided by parallel.tp. */
#define NO_JOB "no job runs it on a grid: tests and benches alone"

/* The product's own baselines. `of` is the number of DSP's bytes divided by the number of a
 * baseline's bytes. */
enum base { ULYSSES, MEGATRON, RING, BASE_N };
static const struct baseline {
    const char *name, *source, *text;
    enum base base;
    int over; /* the claim is 1 / over, or 1 / (over N) */
    bool by_N;
    double (*of)(const int64_t v[], int n);
    const char *differs, *note;
} baselines[] = {
    {"Ulysses in one attention", "2403.10266, text", "at least 50 % less", ULYSSES, 2, false, once,
     NULL},
    {"Ulysses in both attentions", "2403.10266, abstract", "less than 25 %", ULYSSES, 4, false,
     twice, "exactly a quarter, not less; one layer of Ulysses, taken twice"},
    {"Megatron-SP", "2403.10266, table", "2M/N to 8M", MEGATRON, 4, true, once, NULL, NO_JOB},
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
                            .note = b->note,
                            .differs = b->differs};
    snprintf(what, sizeof what, "DSP to %s, N %d", b->name, P);
    report_number(&row, both, 2, b->of);
}

/* Counts the all-to-alls that the published code of a baseline lists. Returns the bytes of a
 * rank. */
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

/* Counts complete training steps of a Transformer-2D, forward and backward. */
static void steps(int P, struct grid_data *d)
{
    const struct {
        const char *name, *source, *text, *differs;
        double claimed;
    } them[] = {
        [GRID_HEADS_SPACE] = {"Ulysses in one attention", "2403.10266, text", "at least 50 % less",
                              NULL, 0.5},
        [GRID_HEADS_BOTH] = {"Ulysses in both attentions", "2403.10266, abstract", "less than 25 %",
                             "exactly a quarter, not less", 0.25},
        [GRID_TENSOR] = {"Megatron-SP", "2403.10266, table", "2M/N to 8M", NULL, 1.0 / (4 * P)}};
    struct job_spec *s = malloc(sizeof *s);
    if (!s) abort();
    grid_spec(d, GRID_SWITCHES, s);
    struct evidence *dsp = evidence_steps(d, s, P);
    for (int way = GRID_HEADS_SPACE; way <= GRID_TENSOR; way++) {
        char what[128];
        grid_spec(d, (enum grid_way)way, s);
        struct evidence *its = evidence_steps(d, s, P), *const both[] = {dsp, its};
        const struct row row = {
            .what = what,
            .source = them[way].source,
            .claimed = them[way].claimed,
            .claimed_text = them[way].text,
            .note = way == GRID_TENSOR
                        ? "bytes of both halves of every block in a whole step; " NO_JOB
                        : "bytes of attention in a whole step",
            .differs = them[way].differs};
        snprintf(what, sizeof what, "DSP to %s, N %d, training steps", them[way].name, P);
        report_number(&row, both, 2, once);
        evidence_free(its);
    }
    evidence_free(dsp);
    free(s);
}

static void all_steps(void)
{
    static const struct grid_model model = {FRAMES, 8, WIDTH, 4, HEADS};
    struct grid_data d;
    grid_open(&d, &model);
    for (int P = 2; P <= MAX_P; P *= 2) steps(P, &d);
    grid_close(&d);
}

/* Reports how often the sharded dimension must change, which is a result of the labelling. */
static void switches(void)
{
    static struct label_graph graph;
    static const struct row pairs_of_both = {
        .what = "changes of the sharded dimension, 28 pairs of (space, time) blocks",
        .source = "2403.10266",
        .claimed = 2 * PAIRS,
        .claimed_text = "2 a pair = 56",
        .note = "sharded along time at entry and exit"};
    static const struct row space_alone = {.what = "the same where every block sees space alone",
                                           .source = "2403.10266",
                                           .claimed_text = "0"};
    blocks(&graph, STAGES, true);
    struct evidence *e = evidence_switches(&graph);
    report_number(&pairs_of_both, &e, 1, NULL);
    evidence_free(e);
    blocks(&graph, STAGES, false);
    e = evidence_switches(&graph);
    report_number(&space_alone, &e, 1, NULL);
    evidence_free(e);
}

/* Counts the switches that the program compiler has placed in a Transformer-2D, as a training runs
 * them. */
static void step_switches(void)
{
    static const struct row row = {
        .what = "those in a training step of a Transformer-2D of 28 such pairs, N 2",
        .source = "2403.10266",
        .claimed = 2 * 2 * PAIRS,
        .claimed_text = "2 a pair = 56, forward, and as many backward",
        .note = "messages of a rank to the other, by the ledger"};
    static const struct grid_model deep = {2, 4, 8, STAGES, 2};
    struct grid_data d;
    struct job_spec *s = malloc(sizeof *s);
    if (!s) abort();
    grid_open(&d, &deep);
    grid_spec(&d, GRID_SWITCHES, s);
    struct evidence *e = evidence_step_switches(&d, s, 2);
    report_number(&row, &e, 1, NULL);
    evidence_free(e);
    grid_close(&d);
    free(s);
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
        "Megatron-SP is attention and MLP of both blocks. All but the ring also run whole training "
        "steps of a Transformer-2D of four blocks, on the same grid; a job has Ulysses by "
        "parallel.form \"ulysses\" and \"ulysses_both\".");
    FILE *f = report_data("dsp_bytes");
    report_table();
    for (int P = 2; P <= MAX_P; P *= 2) pairs(P, f);
    all_steps();
    switches();
    step_switches();
    fclose(f);
    report_picture("dsp_bytes", "Bytes a rank sends for a pair of blocks, by ranks");
}
