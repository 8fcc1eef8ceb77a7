/* bench_dsp: compares DSP with Ulysses and Megatron over links of a limited rate.
 *
 * The first part measures the wall time of the exchanges in a pair of blocks: DSP's two switches,
 * and Ulysses' all-to-alls. The ratio of the times must equal the ratio of the bytes within 10 %.
 * Attention itself is left out. Ulysses makes four exchanges in an attention: q, k and v are
 * exchanged from rows to heads, and the output from heads to rows. If it is used in both
 * attentions of the pair, it makes eight. As the description of Ulysses says, each exchange is an
 * all-to-all of one activation's slice. Both methods run with the same code and transport here.
 *
 * The second part measures whole training steps of a Transformer-2D in fp32, including attention.
 * It also measures Megatron's method, which gathers and scatters both halves of a block. The bytes
 * are read from the ledger of the step. Each time is the smallest of a few measurements. */
#include <math.h>
#include <time.h>
#include "kernels/backend.h"
#include "tests/lib/grid_train.h"
#include "worker/sp/dsp.h"

enum { MAX_P = 8, FRAMES = 32, SPACE = 1024, WIDTH = 64 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct exchange {
    int P, n_switches, n_rounds;
    double best_s;      /* the best time of all exchanges, on rank 0 */
    int64_t bytes_sent; /* bytes that rank 0 sends in one round */
};

static void body(struct ranks *g, int rank, void *arg)
{
    struct exchange *x = arg;
    struct err e = {0};
    const int64_t slice = (int64_t)FRAMES * SPACE * WIDTH / x->P;
    float *rows = calloc((size_t)(3 * slice), 4);
    struct dsp d = {.be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, &e),
                    .comm = g->comm[rank],
                    .P = x->P,
                    .r = rank,
                    .n = {SPACE, FRAMES},
                    .send = comm_segment(g->comm[rank]),
                    .recv = rows + 2 * slice,
                    .purpose = PURPOSE_SWITCH};
    if (!rows || !d.be) abort();
    struct tensor t[2];
    for (int i = 0; i < 2; i++) t[i] = tensor_f32(rows + i * slice, slice / WIDTH, WIDTH, WIDTH);
    for (int k = 0; k < x->n_rounds && !e.code; k++) {
        comm_ledger_reset(g->comm[rank]);
        const double start = now_s();
        for (int i = 0; i < x->n_switches && !e.code; i++)
            if (dsp_switch(&d, t[!(i % 2)], t[i % 2], i % 2, !(i % 2), &e)) ranks_fail(g, rank, &e);
        if (rank == 0) x->best_s = fmin(x->best_s, now_s() - start);
    }
    if (rank == 0) x->bytes_sent = comm_ledger(g->comm[rank])[PURPOSE_SWITCH].bytes_sent;
    be_close(d.be);
    free(rows);
}

static struct exchange timed(int P, int n_switches, int64_t bytes_per_ms)
{
    struct exchange x = {.P = P, .n_switches = n_switches, .n_rounds = 5, .best_s = INFINITY};
    struct ranks g;
    ranks_open(&g, P, (int64_t)FRAMES * SPACE * WIDTH / P * 4,
               &(struct comm_options){.bytes_per_ms = bytes_per_ms});
    ranks_run(&g, body, &x);
    for (int r = 0; r < P; r++)
        if (g.err[r].code) {
            fprintf(stderr, "bench_dsp: %s\n", g.err[r].text);
            exit(1);
        }
    ranks_close(&g);
    return x;
}

static void compare(int P, int64_t bytes_per_ms)
{
    static const struct {
        const char *name;
        int n;
    } them[] = {{"ulysses, one dimension", 4}, {"ulysses, both", 8}};
    const struct exchange dsp = timed(P, 2, bytes_per_ms);
    for (int i = 0; i < 2; i++) {
        const struct exchange u = timed(P, them[i].n, bytes_per_ms);
        const double bytes = (double)dsp.bytes_sent / (double)u.bytes_sent;
        const double time = dsp.best_s / u.best_s, off = time / bytes - 1;
        printf("%4d %10.0f %-24s %9.2f %9.2f %8.3f %8.3f %7.1f %%\n", P,
               (double)bytes_per_ms * 1e-3, them[i].name, dsp.best_s * 1e3, u.best_s * 1e3, bytes,
               time, 100 * off);
        printf("{\"bench\":\"dsp\",\"against\":\"%s\",\"ranks\":%d,\"mb_s\":%.0f,\"dsp_ms\":%.3f,"
               "\"its_ms\":%.3f,\"bytes\":%.4f,\"time\":%.4f}\n",
               them[i].name, P, (double)bytes_per_ms * 1e-3, dsp.best_s * 1e3, u.best_s * 1e3,
               bytes, time);
    }
}

/* ---- training steps -------------------------------------------------------------------------- */

enum { STEPS = 4 };

struct step_time {
    double start_s, best_s; /* rank 0 */
    int64_t bytes_sent;     /* as grid_moved() counts it, in one step, on rank 0 */
};

static void step_begins(struct train *t, int rank, void *arg)
{
    if (rank == 0) ((struct step_time *)arg)->start_s = now_s();
}

static void step_ended(struct train *t, int rank, void *arg)
{
    struct step_time *s = arg;
    if (rank) return;
    s->best_s = fmin(s->best_s, now_s() - s->start_s);
    s->bytes_sent = grid_moved(t).bytes_sent;
}

static struct step_time timed_step(struct grid_data *d, enum grid_way way, int P,
                                   int64_t bytes_per_ms)
{
    struct step_time t = {.best_s = INFINITY};
    struct job_spec *s = malloc(sizeof *s);
    if (!s) abort();
    grid_spec(d, way, s);
    struct engine_run r = {.steps = STEPS,
                           .bytes_per_ms = bytes_per_ms,
                           .before_step = step_begins,
                           .after_step = step_ended,
                           .arg = &t};
    grid_go(d, &r, s, P);
    engine_free(&r);
    free(s);
    return t;
}

static void compare_steps(struct grid_data *d, int P, int64_t bytes_per_ms)
{
    static const char *const names[] = {[GRID_HEADS_SPACE] = "ulysses, one dimension",
                                        [GRID_HEADS_BOTH] = "ulysses, both",
                                        [GRID_TENSOR] = "megatron, both halves"};
    const struct step_time dsp = timed_step(d, GRID_SWITCHES, P, bytes_per_ms);
    for (int way = GRID_HEADS_SPACE; way <= GRID_TENSOR; way++) {
        const struct step_time u = timed_step(d, (enum grid_way)way, P, bytes_per_ms);
        const double bytes = (double)dsp.bytes_sent / (double)u.bytes_sent;
        printf("%4d %10.0f %-24s %9.2f %9.2f %8.3f %8.3f\n", P, (double)bytes_per_ms * 1e-3,
               names[way], dsp.best_s * 1e3, u.best_s * 1e3, bytes, dsp.best_s / u.best_s);
        printf("{\"bench\":\"dsp_step\",\"against\":\"%s\",\"ranks\":%d,\"mb_s\":%.0f,"
               "\"dsp_ms\":%.3f,\"its_ms\":%.3f,\"bytes\":%.4f,\"time\":%.4f}\n",
               names[way], P, (double)bytes_per_ms * 1e-3, dsp.best_s * 1e3, u.best_s * 1e3, bytes,
               dsp.best_s / u.best_s);
    }
}

static void steps(void)
{
    static const struct grid_model model = {16, 32, 64, 4, 8};
    struct grid_data d;
    grid_open(&d, &model);
    printf(
        "training steps of %d layers, %d columns, %d heads, %d frames x %d places; 0: no limit\n",
        model.n_layers, (int)model.width, model.n_heads, (int)model.frames,
        (int)(model.side * model.side / 4));
    printf("%4s %10s %-24s %9s %9s %8s %8s\n", "P", "MB/s", "against", "DSP ms", "its ms", "bytes",
           "time");
    for (int P = 2; P <= 4; P *= 2) {
        compare_steps(&d, P, 50000);
        compare_steps(&d, P, 0);
    }
    grid_close(&d);
}

int main(void)
{
    setenv("SEQD_LOG", "error", 0);
    printf("a pair of blocks, %d frames x %d places x %d, over links of a limited rate\n", FRAMES,
           SPACE, WIDTH);
    printf("%4s %10s %-24s %9s %9s %8s %8s %9s\n", "P", "MB/s", "against", "DSP ms", "its ms",
           "bytes", "time", "off by");
    for (int P = 2; P <= MAX_P; P *= 2) compare(P, 50000);
    compare(4, 1000000); /* at 1 GB/s the time of copies begins to matter */
    steps();
    return 0;
}
