/* profile.c: times each operation at several sizes on one thread, and messages of two sizes
 * between two threads that use the transport. */
#include "worker/rank/profile.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "kernels/backend.h"
#include "worker/comm/comm.h"

enum {
    ROWS = 512,        /* number of rows of a product's operands, and number of tokens of
                        * attention */
    COLS = 256,        /* number of columns of a product, and largest number of queries of
                        * attention */
    HOP_BIG = 1 << 20, /* bytes */
    HOP_SMALL = 64,
    MIN_ROUNDS = 2,
    OPERANDS = 8,
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns the CPU time of this thread only, so that the time of other programs on the machine
 * is not counted. */
static double own_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- rates ----------------------------------------------------------------------------------- */

struct bench {
    struct be *be;
    float *memory; /* room for each of the operands; all values are between -1/2 and 1/2 */
    double slope[COLS];
    int64_t lo[ROWS], hi[ROWS];
    double slice_s;
};

/* One measurement. The member `size` is the size of a head, or the width of a product. */
struct figure {
    enum dtype t;
    int64_t size;
    bool back;
};

static struct tensor operand(const struct bench *b, int i, enum dtype t, int64_t cols)
{
    return tensor_of(t, b->memory + (int64_t)i * ROWS * 2 * COLS, ROWS, cols, cols);
}

static int64_t heads(const struct figure *f)
{
    return COLS / f->size < 4 ? COLS / f->size : 4;
}

static void run_gemm(struct bench *b, const struct figure *f)
{
    struct tensor w = operand(b, 1, f->t, f->size);
    w.rows = f->size;
    b->be->ops->gemm(b->be, &(struct gemm_args){.a = operand(b, 0, f->t, f->size),
                                                .b = w,
                                                .c = operand(b, 2, f->t, f->size),
                                                .trans_b = true});
}

/* Runs attention. The running maxima and sums of the previous run are not cleared, because they do
 * not change the time of a run. */
static void run_attention(struct bench *b, const struct figure *f)
{
    const int64_t H = heads(f), C = H * f->size;
    float *m = operand(b, 7, DT_F32, 1).data, *l = m + H * ROWS;
    const struct tensor q = operand(b, 0, f->t, C), kv = operand(b, 1, f->t, 2 * C);
    if (f->back)
        b->be->ops->attn_bwd(b->be, &(struct attn_bwd_args){.q = q,
                                                            .kv = kv,
                                                            .d_o = operand(b, 2, f->t, C),
                                                            .dq = operand(b, 3, DT_F32, C),
                                                            .dkv = operand(b, 4, DT_F32, 2 * C),
                                                            .lse = m,
                                                            .delta = l,
                                                            .ml_ld = ROWS,
                                                            .lo = b->lo,
                                                            .hi = b->hi,
                                                            .n_heads = H,
                                                            .n_kv_heads = H,
                                                            .head_dim = f->size,
                                                            .scale = 0.125f});
    else
        b->be->ops->attn_fwd(b->be, &(struct attn_fwd_args){.q = q,
                                                            .kv = kv,
                                                            .o = operand(b, 3, DT_F32, C),
                                                            .m = m,
                                                            .l = l,
                                                            .ml_ld = ROWS,
                                                            .lo = b->lo,
                                                            .hi = b->hi,
                                                            .n_heads = H,
                                                            .n_kv_heads = H,
                                                            .head_dim = f->size,
                                                            .scale = 0.125f});
}

static void run_linear(struct bench *b, const struct figure *f)
{
    const int64_t H = heads(f), C = H * f->size;
    float *state = operand(b, 7, DT_F32, 1).data;
    const struct linear_args in = {.q = operand(b, 0, f->t, C),
                                   .k = operand(b, 1, f->t, C),
                                   .v = operand(b, 2, f->t, C),
                                   .slope = b->slope,
                                   .lo = b->lo,
                                   .hi = b->hi,
                                   .n_heads = H,
                                   .key_dim = f->size,
                                   .value_dim = f->size,
                                   .scale = 1};
    if (f->back)
        b->be->ops->linear_bwd(b->be, &(struct linear_bwd_args){.in = in,
                                                                .d_o = operand(b, 3, f->t, C),
                                                                .dq = operand(b, 4, DT_F32, C),
                                                                .dk = operand(b, 5, DT_F32, C),
                                                                .dv = operand(b, 6, DT_F32, C),
                                                                .dm = state});
    else
        b->be->ops->linear_fwd(
            b->be, &(struct linear_fwd_args){.in = in, .o = operand(b, 3, f->t, C), .m = state});
}

static void run_norm(struct bench *b, const struct figure *f)
{
    const struct tensor x = operand(b, 0, f->t, f->size);
    b->be->ops->norm_fwd(b->be, &(struct norm_fwd_args){.x = x,
                                                        .y = operand(b, 1, f->t, f->size),
                                                        .rstd = operand(b, 7, DT_F32, 1).data,
                                                        .groups = 1,
                                                        .rms = true,
                                                        .eps = 1e-5f});
}

static void run_point(struct bench *b, const struct figure *f)
{
    b->be->ops->act_fwd(b->be, &(struct act_fwd_args){.fn = ACT_SILU,
                                                      .x = operand(b, 0, f->t, f->size),
                                                      .y = operand(b, 1, f->t, f->size)});
}

static void run_turn(struct bench *b, const struct figure *f)
{
    struct tensor theta = operand(b, 2, f->t, f->size);
    theta.rows = 1;
    b->be->ops->lrpe_fwd(b->be, &(struct lrpe_fwd_args){.x = operand(b, 0, f->t, f->size),
                                                        .y = operand(b, 1, f->t, 2 * f->size),
                                                        .theta = theta,
                                                        .pos = b->hi,
                                                        .n_heads = 1,
                                                        .head_dim = f->size});
}

static void run_update(struct bench *b, const struct figure *f)
{
    b->be->ops->adamw(b->be, &(struct adamw_args){.p = operand(b, 0, DT_F32, 1).data,
                                                  .m = operand(b, 1, DT_F32, 1).data,
                                                  .v = operand(b, 7, DT_F32, 1).data,
                                                  .g = operand(b, 3, DT_F32, 1).data,
                                                  .n = ROWS * f->size,
                                                  .lr = 1e-3,
                                                  .beta1 = 0.9,
                                                  .beta2 = 0.95,
                                                  .eps = 1e-8,
                                                  .clip = 1,
                                                  .t = 1});
}

static void refill(struct bench *b)
{
    for (int64_t i = 0; i < (int64_t)OPERANDS * ROWS * 2 * COLS; i++)
        b->memory[i] = (float)(i * 7919 % 1000) * 1e-3f - 0.5f;
    /* These operands must be positive. If a run reads the bytes of an operand as bf16, they
     * are valid numbers, too. */
    float *positive = operand(b, 7, DT_F32, 1).data;
    for (int64_t i = 0; i < (int64_t)ROWS * 2 * COLS; i++) positive[i] += 1;
}

/* Repeats a run until a slice of time is over, and returns the rate of the fastest run. The
 * parameter `work` is the number of flops or elements of one run. */
static double rate(struct bench *b, void (*run)(struct bench *, const struct figure *),
                   const struct figure *f, double work)
{
    const double end = now_s() + b->slice_s;
    double best = INFINITY;
    refill(b);
    for (int n = 0; n < MIN_ROUNDS || now_s() < end; n++) {
        const double start = own_s();
        run(b, f);
        if (b->be->ops->sync) b->be->ops->sync(b->be, NULL);
        best = fmin(best, own_s() - start);
    }
    return work / best;
}

static void measure_sizes(struct bench *b, struct profile *out)
{
    const double rows = ROWS, pairs = rows * (rows + 1) / 2;
    for (int i = 0; i < PROFILE_SIZES; i++) {
        const double w = profile_widths[i], d = profile_heads[i];
        for (enum dtype t = DT_F32; t <= DT_BF16; t++) {
            const bool half = t == DT_BF16;
            struct figure f = {t, (int64_t)w, false};
            (half ? out->gemm_bf16 : out->gemm_f32)[i] = rate(b, run_gemm, &f, 2 * rows * w * w);
            f.size = (int64_t)d;
            const double flops = pairs * (double)heads(&f) * d * 4;
            (half ? out->attn_bf16 : out->attn_f32)[i] = rate(b, run_attention, &f, flops);
            f.back = true;
            (half ? out->attn_back_bf16 : out->attn_back_f32)[i] = rate(b, run_attention, &f,
                                                                        2 * flops);
        }
        struct figure f = {DT_F32, (int64_t)d, false};
        const double flops = rows * (double)heads(&f) * d * d * 4;
        out->linear[i] = rate(b, run_linear, &f, flops);
        f.back = true;
        out->linear_back[i] = rate(b, run_linear, &f, 2 * flops);
    }
}

static int measure_rates(double slice_s, struct profile *out, struct err *e)
{
    static const struct figure points = {DT_F32, 64, false};
    const double n = ROWS * 64;
    struct bench *b = calloc(1, sizeof *b);
    if (!b || !(b->memory = malloc((size_t)OPERANDS * ROWS * 2 * COLS * 4))) abort();
    b->slice_s = slice_s;
    for (int i = 0; i < ROWS; i++) b->hi[i] = i + 1;
    for (int i = 0; i < COLS; i++) b->slope[i] = 0.01;
    b->be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, e);
    if (b->be) {
        measure_sizes(b, out);
        out->norm = rate(b, run_norm, &points, n);
        out->point = rate(b, run_point, &points, n);
        out->turn = rate(b, run_turn, &points, n);
        out->update = rate(b, run_update, &points, n);
    }
    const int rc = b->be ? 0 : -1;
    be_close(b->be);
    free(b->memory);
    free(b);
    return rc;
}

/* ---- a link ---------------------------------------------------------------------------------- */

struct profile_pair {
    struct comm *comm[2];
    struct rank_blob blob[2];
    double slice_s, best[2]; /* slice_s is the time of a slice; best has the smallest times for
                              * a small and for a large message, on rank 0; all are in seconds */
};
struct end {
    struct profile_pair *pair;
    int rank;
    struct err err;
};

/* Times messages of one size. Rank 0 sets the first byte of the last message, so that the
 * other rank knows that this message is the last. */
static int hops(struct end *x, int which, int64_t size, char *in)
{
    struct comm *c = x->pair->comm[x->rank];
    const double stop = now_s() + x->pair->slice_s;
    char *out = comm_segment(c);
    double best = INFINITY;
    for (bool last = false; !last;) {
        struct comm_ticket t;
        const struct comm_xfer xfer = {.purpose = PURPOSE_CONTROL,
                                       .channel = CHANNEL_KV,
                                       .send_to = !x->rank,
                                       .recv_from = !x->rank,
                                       .send = out,
                                       .recv = in,
                                       .send_size = size,
                                       .recv_size = size};
        const double start = now_s();
        out[0] = x->rank == 0 && start > stop; /* the first byte is 1 in the last message */
        if (comm_sendrecv(c, &xfer, &t, &x->err) || comm_wait(c, &t, &x->err)) return -1;
        best = fmin(best, now_s() - start);
        last = x->rank == 0 ? out[0] : in[0];
    }
    if (x->rank == 0) x->pair->best[which] = best;
    return 0;
}

static void *end_main(void *arg)
{
    struct end *x = arg;
    char *in = calloc(1, HOP_BIG);
    if (!in) abort();
    if (!comm_connect(x->pair->comm[x->rank], x->pair->blob, 2, &x->err) &&
        !hops(x, 0, HOP_SMALL, in))
        hops(x, 1, HOP_BIG, in);
    free(in);
    return NULL;
}

static int run_pair(struct profile_pair *p, struct profile *out, struct err *e)
{
    struct end ends[2] = {{p, 0}, {p, 1}};
    pthread_t other;
    if (pthread_create(&other, NULL, end_main, &ends[1])) return err_errno(e, "pthread_create");
    end_main(&ends[0]);
    pthread_join(other, NULL);
    for (int r = 0; r < 2; r++)
        if (ends[r].err.code) return *e = ends[r].err, -1;
    out->hop = p->best[0];
    out->copy = HOP_BIG / p->best[1];
    return 0;
}

static int measure_link(double slice_s, struct profile *out, struct err *e)
{
    struct profile_pair p = {.slice_s = slice_s};
    const int64_t size = comm_shm_size(2, HOP_BIG);
    const int fd = memfd_create("seqrank-profile", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, size)) return err_errno(e, "memfd");
    struct shm_head *h = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int rc = h == MAP_FAILED ? err_errno(e, "mmap") : 0;
    if (!rc) h->magic = SHM_MAGIC, h->n_ranks = 2, h->abort_rank = -1;
    for (int r = 0; !rc && r < 2; r++) {
        const struct comm_options o = {.rank = r,
                                       .n_ranks = 2,
                                       .memfd = fd,
                                       .map = h,
                                       .segment_size = HOP_BIG,
                                       .hop_timeout_ms = 5000};
        p.blob[r].rank = r;
        p.comm[r] = comm_listen(&o, p.blob[r].data, &p.blob[r].size, e);
        rc = p.comm[r] ? 0 : -1;
    }
    if (!rc) rc = run_pair(&p, out, e);
    for (int r = 0; r < 2; r++) comm_close(p.comm[r]);
    if (h != MAP_FAILED) munmap(h, (size_t)size);
    close(fd);
    return rc;
}

int profile_measure(int64_t slice_ms, struct profile *out, struct err *e)
{
    const double slice_s = (double)slice_ms * 1e-3;
    *out = (struct profile){0};
    if (measure_rates(slice_s, out, e) || measure_link(4 * slice_s, out, e)) return -1;
    return profile_check(out, e);
}

int profile_main(void)
{
    char line[2048];
    struct profile p;
    struct err e = {0};
    if (profile_measure(PROFILE_SLICE_MS, &p, &e) || profile_write(&p, line, sizeof line) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    return puts(line) < 0 || fflush(stdout) ? 1 : 0;
}
