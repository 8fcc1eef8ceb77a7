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
    ROWS = 512, /* of a product's operands, and tokens of attention */
    HEADS = 8,
    HEAD = 64,
    WIDTH = HEADS * HEAD,
    HOP_BIG = 1 << 20, /* bytes */
    HOP_SMALL = 64,
    MIN_ROUNDS = 3,
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- rates ----------------------------------------------------------------------------------- */

struct bench {
    struct be *be;
    char *memory; /* room for every operand below */
    int64_t lo[ROWS], hi[ROWS];
    double slice_s;
};

static int64_t room(void)
{
    return 16 * ROWS * (int64_t)WIDTH * 4;
}

static struct tensor operand(struct bench *b, int i, enum dtype t, int64_t cols)
{
    return tensor_of(t, b->memory + i * 2 * ROWS * (int64_t)WIDTH * 4, ROWS, cols, cols);
}

static void run_gemm(struct bench *b, enum dtype t)
{
    const struct gemm_args g = {.a = operand(b, 0, t, WIDTH),
                                .b = operand(b, 1, t, WIDTH),
                                .c = operand(b, 2, t, WIDTH),
                                .trans_b = true};
    b->be->ops->gemm(b->be, &g);
}

static void run_attention(struct bench *b, enum dtype t)
{
    float *m = (float *)operand(b, 3, DT_F32, WIDTH).data, *l = m + HEADS * ROWS;
    const struct attn_fwd_args a = {.q = operand(b, 0, t, WIDTH),
                                    .kv = operand(b, 1, t, 2 * WIDTH),
                                    .o = operand(b, 2, DT_F32, WIDTH),
                                    .m = m,
                                    .l = l,
                                    .ml_ld = ROWS,
                                    .lo = b->lo,
                                    .hi = b->hi,
                                    .n_heads = HEADS,
                                    .n_kv_heads = HEADS,
                                    .head_dim = HEAD,
                                    .scale = 0.125f};
    for (int i = 0; i < HEADS * ROWS; i++) m[i] = -INFINITY, l[i] = 0;
    memset(a.o.data, 0, (size_t)(ROWS * WIDTH) * 4);
    b->be->ops->attn_fwd(b->be, &a);
}

static double rate(struct bench *b, void (*run)(struct bench *, enum dtype), enum dtype t,
                   double flops)
{
    const double end = now_s() + b->slice_s;
    double best = INFINITY;
    memset(b->memory, 0, (size_t)room());
    for (int n = 0; n < MIN_ROUNDS || now_s() < end; n++) {
        const double start = now_s();
        run(b, t);
        if (b->be->ops->sync) b->be->ops->sync(b->be, NULL);
        best = fmin(best, now_s() - start);
    }
    return flops / best;
}

static int measure_rates(double slice_s, struct profile *out, struct err *e)
{
    struct bench *b = calloc(1, sizeof *b);
    if (!b || !(b->memory = calloc(1, (size_t)room()))) abort();
    b->slice_s = slice_s;
    for (int i = 0; i < ROWS; i++) b->hi[i] = i + 1;
    b->be = be_open(&(struct be_options){.device = "cpu", .n_threads = 1}, e);
    if (b->be) {
        const double product = 2.0 * ROWS * WIDTH * ROWS;
        const double pairs = ROWS * (ROWS + 1) / 2.0 * WIDTH * 4;
        out->gemm_f32 = rate(b, run_gemm, DT_F32, product);
        out->gemm_bf16 = rate(b, run_gemm, DT_BF16, product);
        out->attn_f32 = rate(b, run_attention, DT_F32, pairs);
        out->attn_bf16 = rate(b, run_attention, DT_BF16, pairs);
    }
    const int rc = b->be ? 0 : -1;
    be_close(b->be);
    free(b->memory);
    free(b);
    return rc;
}

/* ---- a link ---------------------------------------------------------------------------------- */

struct pair {
    struct comm *comm[2];
    struct rank_blob blob[2];
    double slice_s, best[2]; /* of a small and a large message, rank 0's */
};
struct end {
    struct pair *pair;
    int rank;
    struct err err;
};

/* Rank 0 says when it has enough: by a message of one byte more, which the other expects too. */
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
        out[0] = x->rank == 0 && start > stop; /* the last one, for both */
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

static int run_pair(struct pair *p, struct profile *out, struct err *e)
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
    struct pair p = {.slice_s = slice_s};
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
    if (measure_rates(slice_s, out, e) || measure_link(slice_s, out, e)) return -1;
    return profile_check(out, e);
}

int profile_main(void)
{
    char line[512];
    struct profile p;
    struct err e = {0};
    if (profile_measure(40, &p, &e) || profile_write(&p, line, sizeof line) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    return puts(line) < 0 || fflush(stdout) ? 1 : 0;
}
