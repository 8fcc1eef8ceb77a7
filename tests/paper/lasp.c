/* lasp.c: counts the bytes that Linear Attention Sequence Parallelism sends. Their number does not
 * grow with the length of the sequence. They are counted in runs that compute sequences of 8K to
 * 512K tokens. */
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "tests/paper/report.h"
#include "tests/lib/ranks.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/plan.h"
#include "tests/paper/published.h"
#include "worker/sp/linear.h"

enum { P = 4, H = 2, D = 16, STATE = H * D * D };

struct lasp_run {
    enum exchange_id exchange;
    int64_t S;
};

static float *numbers(int64_t n)
{
    float *x = malloc((size_t)n * 4);
    if (!x) abort();
    for (int64_t i = 0; i < n; i++) x[i] = (float)((i * 7919 % 1000) - 500) / 500;
    return x;
}

static void layer(struct ranks *g, int rank, void *arg)
{
    const struct lasp_run *r = arg;
    struct err e = {0};
    const int64_t T = r->S / P, W = H * D;
    const double slope[H] = {
        /* the first head has no decay and the second almost none, so that all earlier tokens
         * influence the states that arrive */
        0, 1e-4};
    float *seg = comm_segment(g->comm[rank]), *rows = numbers(8 * T * W);
    struct tensor x[8];
    for (int i = 0; i < 8; i++) x[i] = tensor_f32(rows + i * T * W, T, W, W);
    int64_t *lo = calloc((size_t)T, 8), *hi = malloc((size_t)T * 8);
    float *own = numbers(STATE), *state = numbers(STATE);
    struct sp_linear sp = {.ops = linear_find(r->exchange, P),
                           .comm = g->comm[rank],
                           .buf = {.send = {seg, seg + STATE},
                                   .recv = {seg + 2 * STATE, seg + 3 * STATE},
                                   .all = seg + 4 * STATE,
                                   .m = own},
                           .state_dtype = DT_F32,
                           .pieces = r->exchange == EXCHANGE_SCAN ? 4 : 1};
    const struct sp_linear_shape shape = {H, D, D, 1, slope};
    sp.be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e);
    if (!lo || !hi || !sp.be) abort();
    for (int64_t i = 0; i < T; i++) hi[i] = rank * T + i + 1;
    const struct linear_fwd f = {.shape = shape, x[0], x[1], x[2], x[3], state, lo, hi};
    const struct linear_bwd b = {
        .shape = shape, x[0], x[1], x[2], x[4], x[5], x[6], x[7], state, lo, hi};
    if (shard_init(&sp.shard, r->S, P, rank, LAYOUT_CONTIGUOUS, false, &e) ||
        sp.ops->fwd(&sp, &f, &e) || linear_settle(&sp, &e))
        ranks_fail(g, rank, &e);
    evidence_phase(g, rank);
    if (!e.code && (sp.ops->bwd(&sp, &b, &e) || linear_settle(&sp, &e))) ranks_fail(g, rank, &e);
    evidence_phase(g, rank);
    be_close(sp.be);
    free(rows), free(lo), free(hi), free(own), free(state);
}

/* The number of states that a rank must send forward and backward in each exchange, according to
 * the exchange's paper. In a chain, the last rank sends nothing forward, and the first rank sends
 * nothing backward. */
static const struct exchange {
    enum exchange_id id;
    const char *name, *source, *text;
    int states;
    bool chain;
} exchanges[] = {
    {EXCHANGE_RING, "ring (LASP)", "2404.02882", "1 state, whatever S", 1, true},
    {EXCHANGE_ALL_GATHER, "all-gather (LASP-2)", "2502.07563", "P-1 states, whatever S", P - 1,
     false},
    {EXCHANGE_SCAN, "scan (ZeCO)", "2507.01004", "1 state, whatever S", 1, true},
};
#define N_EXCHANGES ((int)(sizeof exchanges / sizeof *exchanges))

/* Returns the bytes that all ranks sent forward. */
static int64_t exchange_row(const struct exchange *x, int64_t S)
{
    struct lasp_run run = {x->id, S};
    char what[128];
    int64_t want[EVIDENCE_RANKS][EVIDENCE_PHASES];
    struct evidence *e = evidence_ledger(P, (4 + P) * STATE * 4, layer, &run);
    for (int i = 0; i < P; i++) {
        want[i][0] = x->chain && i == P - 1 ? 0 : x->states * STATE * 4;
        want[i][1] = x->chain && i == 0 ? 0 : x->states * STATE * 4;
    }
    snprintf(what, sizeof what, "%s, S %lldK on %d ranks: sent by a rank for a layer", x->name,
             (long long)S / 1024, P);
    const struct row row = {.what = what,
                            .source = x->source,
                            .claimed_text = x->text,
                            .note = x->chain ? "rank 0 sends forward alone, rank P-1 backward alone"
                                             : NULL};
    report_bytes(&row, e, want);
    const int64_t sum = evidence_value(e);
    evidence_free(e);
    return sum;
}

static int64_t others(enum published_system s, int64_t S)
{
    struct published_send x[PUBLISHED_SENDS];
    const int64_t slice = S / P * H * D * 4, size[] = {slice, slice, slice};
    return published_sum(x, published_sends(s, false, x), P, size).forward;
}

static void lengths(void)
{
    FILE *f = report_data("lasp_bytes");
    /* the short form is for `make check` */
    const int64_t longest = getenv("SEQD_PAPER_QUICK") ? 32768 : 524288;
    report_table();
    for (int64_t S = 8192; S <= longest; S *= 4) {
        int64_t mine[N_EXCHANGES];
        for (int i = 0; i < N_EXCHANGES; i++) mine[i] = exchange_row(&exchanges[i], S);
        fprintf(f, "%lld %lld %lld %lld %lld %lld\n", (long long)S, (long long)mine[0],
                (long long)mine[1], (long long)others(PUBLISHED_ULYSSES, S) * P,
                (long long)others(PUBLISHED_RING, S) * P,
                (long long)others(PUBLISHED_TP_SP, S) * P);
    }
    fclose(f);
    report_picture("lasp_bytes",
                   "Bytes of all ranks for a layer's forward, by length: LASP counted, the others "
                   "by their descriptions");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Fills in a job with a small TransNormerLLM, as a user would submit it. */
static int tnl(struct job_spec *s, int64_t seq_len, int ranks, int64_t time_chunk, struct err *e)
{
    spec_defaults(s);
    shape_defaults(&s->model.shape);
    s->kind = JOB_TRAIN;
    struct model_shape *m = &s->model.shape;
    m->family = FAMILY_TNL;
    m->n_layers = 4, m->width = 128, m->n_heads = 4, m->ffn_width = 352, m->vocab = 258;
    s->data.n_train = 1;
    spec_source_defaults(&s->data.train[0]);
    if (spec_intern(s, "/synthetic", 10, &s->data.train[0].path)) abort();
    s->data.seq_len = seq_len;
    s->train.steps = 1;
    s->parallel.strategy = STRATEGY_LASP;
    s->parallel.sp = ranks;
    s->parallel.zero = 0; /* with any other value, weights would be sharded, too */
    s->memory.time_chunk = time_chunk;
    return family_check(s, e);
}

/* The number of bytes that are kept from one window to the next for this model. They are the
 * states of 4 layers with 4 heads each, of 32 x 32 floats. */
#define STATES_OF_A_WINDOW (4 * 4 * 32 * 32 * 4)

/* Returns the ratio of the largest to the smallest. */
static double spread(const int64_t v[], int n)
{
    int64_t least = v[0], most = v[0];
    for (int i = 1; i < n; i++) {
        least = v[i] < least ? v[i] : least;
        most = v[i] > most ? v[i] : most;
    }
    return (double)most / (double)least;
}

/* Returns the number of bytes that each further window adds. v[0] is the number for one window,
 * which passes on nothing, and v[i] is the number for 2^i windows. */
static double each_window(const int64_t v[], int n)
{
    return (double)(v[n - 1] - v[1]) / (double)(((int64_t)1 << (n - 1)) - 2);
}

/* Reports the bytes of a rank for n lengths of the sequence. The first length is 8192 tokens, and
 * each further length is twice the one before. The number of ranks is doubled, too. If `chunk` is
 * not 0, there is one device instead, which has a window of `chunk` tokens at a time. */
static void memory_by_length(const struct row *row, const char *name, int n, int64_t chunk,
                             double (*of)(const int64_t v[], int n))
{
    static struct job_spec s;
    struct err e = {0};
    struct evidence *plan[16];
    FILE *f = report_data(name);
    int made = 0;
    for (; made < n; made++) {
        if (tnl(&s, (int64_t)8192 << made, chunk ? 1 : 1 << made, chunk, &e)) break;
        if (!(plan[made] = evidence_plan(&s, &e))) break;
        fprintf(f, "%lld %lld\n", (long long)8192 << made, (long long)evidence_value(plan[made]));
    }
    fclose(f);
    if (made < n) {
        report_absent(row->what, e.text);
    } else {
        report_table();
        report_number(row, plan, n, of);
    }
    while (made > 0) evidence_free(plan[--made]);
}

void paper_lasp(void)
{
    report_section(
        "LASP: bytes that do not grow with the sequence",
        "One layer of linear attention, 2 heads of 16 x 16 on 4 ranks, every token computed. "
        "The state of a layer is 2 KiB whatever the length.");
    lengths();
    const struct row ranks = {
        .what = "memory a rank, 8192 rows each, 8K to 512K tokens on 1 to 64 ranks: the largest to "
                "the smallest",
        .source = "2404.02882, figure",
        .claimed = 1,
        .tolerance = 1.0 / 34,
        .claimed_text = "flat",
        .note = "tolerance: the figure's own points with as many tokens a device, 256K on 16 to "
                "2048K on 128, lie between 34 and 35 GB"};
    memory_by_length(&ranks, "lasp_memory", 7, 0, spread);
    const int n = 10;
    const struct row windows = {
        .what = "memory of one device that walks 8192 tokens at a time, 16K to 4096K tokens: bytes "
                "for each window more",
        .claimed = STATES_OF_A_WINDOW,
        .tolerance = (double)PLAN_PAGE / ((1 << (n - 1)) - 2),
        .note = "the states at its border; tolerance: sizes are whole pages"};
    memory_by_length(&windows, "lasp_time", n, 8192, each_window);
}
