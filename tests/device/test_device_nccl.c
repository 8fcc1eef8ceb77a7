/* Checks the transport over NCCL with a fake library that has the name of NCCL
 * (tests/nccl/fake.c). An order of operations that would block a CUDA stream also blocks in the
 * fake library. The tests cover every strategy, every way in which a wait can end, and the error
 * if NCCL is not available.
 * tests: needs libkernels_emulated.so libnccl_fake.so */
#include <dlfcn.h>
#include "api/core/job.h"
#include "api/core/library.h"
#include "api/core/log.h"
#include "tests/lib/device_ranks.h"
#include "tests/lib/engine.h"

enum { SENDS, ALL_REDUCES = 2, REDUCE_SCATTERS, REDUCES, ALL_GATHERS, BROADCASTS, ALL_TO_ALLS };
static struct fake {
    void (**copy)(void *, const void *, size_t);
    void (**add)(float *, const float *, size_t);
    /* `done` counts the calls of each kind by all ranks together */
    int *version, *failing, *live, *done, *slow;
} fake;

/* ---- without the library --------------------------------------------------------------------- */

/* Opens an endpoint for rank 0 of two ranks. If that fails, the result is NULL, and e has the
 * reason. */
static struct comm *listen_one(struct ranks *g, struct be *be, void *segment, struct err *e)
{
    char blob[BLOB_SIZE];
    int size;
    ranks_segment(g, 2, 4096);
    struct comm_options o = ranks_options(g, 0, 4096, NULL);
    o.transport = TRANSPORT_NCCL;
    o.be = be;
    o.segment = segment;
    return comm_listen(&o, blob, &size, e);
}

static void refuses(const char *why)
{
    struct ranks g;
    struct err e = {0};
    struct be *be = device(0, 1);
    void *segment = mirror_alloc(be, 4096);
    struct comm *c = listen_one(&g, be, segment, &e);
    CHECK(!c && e.code == ERR_UNSUPPORTED && !strcmp(e.field, "parallel.transport"));
    CHECK_MSG(strstr(e.text, why), "%s", e.text);
    comm_close(c);
    be->ops->free(be, segment, 4096);
    g.P = 0;
    ranks_close(&g);
}

static void test_without_the_library(void)
{
    struct library there = {0}; /* NCCL of this machine */
    if (library_open(&there, LIBRARY_NCCL, NULL)) refuses("install NCCL, or use \"shm\"");
    if (there.handle) dlclose(there.handle);
}

static void test_an_old_version(void)
{
    const int was = *fake.version;
    *fake.version = 21701;
    refuses("libnccl.so.2 is NCCL 2.17: install 2.18 or later");
    *fake.version = was;
}

static void test_the_host_has_no_nccl(void)
{
    struct ranks g;
    struct err e = {0};
    CHECK(!listen_one(&g, NULL, NULL, &e) && e.code == ERR_UNSUPPORTED);
    CHECK_MSG(strstr(e.text, "is for GPUs"), "%s", e.text);
    g.P = 0;
    ranks_close(&g);
}

static void open_fake(void)
{
    /* from now on, the transport finds this library by its soname "libnccl.so.2" */
    void *library = dlopen("libnccl_fake.so", RTLD_NOW);
    CHECK_MSG(library, "%s", dlerror());
    if (!library) abort();
    fake.copy = dlsym(library, "fake_nccl_copy");
    fake.add = dlsym(library, "fake_nccl_add");
    fake.done = dlsym(library, "fake_nccl_done");
    fake.version = dlsym(library, "fake_nccl_version");
    fake.failing = dlsym(library, "fake_nccl_failing");
    fake.slow = dlsym(library, "fake_nccl_slow");
    fake.live = dlsym(library, "fake_nccl_live");
}

/* The device that copies messages. Threads of several ranks use it at the same time, so it must
 * run each operation immediately instead of adding it to a list. */
static struct be *mover;

static void mover_open(void)
{
    struct err e = {0};
    mover = be_open(
        &(struct be_options){
            .device = "emulated", .n_threads = 1, .scratch_later = true, .no_graphs = true},
        &e);
    CHECK_MSG(mover, "%s", e.text);
    if (!mover) abort();
}

static void device_copy(void *to, const void *from, size_t n)
{
    mover->ops->copy(mover, to, from, (int64_t)n);
}

static void device_add(float *y, const float *x, size_t n)
{
    mover->ops->add(mover, &(struct add_args){.y = y, .x = x, .n = (int64_t)n});
}

/* ---- two ranks that a test directs ----------------------------------------------------------- */

enum { SIZE = 4096 };

struct pair {
    struct ranks g;
    struct ranks_device on[2];
    struct be_ops ops;
    void *in[2];
    struct err said[2];
};

/* Opens two ranks. silence_ms is the longest time that NCCL may wait. The hop timeout, for which
 * the transports of the host would wait, is 40 times as long. */
static void pair_open(struct pair *p, int64_t silence_ms)
{
    *p = (struct pair){.ops = *device(0, 1)->ops};
    for (int r = 0; r < 2; r++) {
        p->on[r] = (struct ranks_device){device(r, 1), mirror_alloc(device(r, 1), SIZE)};
        p->in[r] = mirror_alloc(device(r, 1), SIZE);
    }
    ranks_open_on(&p->g, 2, SIZE,
                  &(struct comm_options){.transport = TRANSPORT_NCCL,
                                         .hop_timeout_ms = 40 * silence_ms,
                                         .silence_ms = silence_ms},
                  p->on);
}

static void pair_close(struct pair *p)
{
    ranks_close(&p->g);
    CHECK(*fake.live == 0);
    for (int r = 0; r < 2; r++) {
        device(r, 1)->ops->free(device(r, 1), p->on[r].segment, SIZE);
        device(r, 1)->ops->free(device(r, 1), p->in[r], SIZE);
    }
}

static struct comm_xfer hop(const struct pair *p, int rank, bool sends, bool receives)
{
    return (struct comm_xfer){.purpose = PURPOSE_RING_KV,
                              .channel = CHANNEL_KV,
                              .send_to = sends ? !rank : -1,
                              .recv_from = receives ? !rank : -1,
                              .send = p->on[rank].segment,
                              .recv = p->in[rank],
                              .send_size = sends ? SIZE : 0,
                              .recv_size = receives ? SIZE : 0};
}

static void place(struct comm *c)
{
    *comm_where(c) = (struct comm_where){.step = 12, .layer = 3, .hop = 1};
}

/* On both ranks, sends a message and then receives one, as two separate operations. Neither rank
 * can complete this on a stream, because both sends wait for a receive. */
static void crossed_body(struct ranks *g, int rank, void *arg)
{
    struct pair *p = arg;
    struct comm_ticket t[2];
    const struct comm_xfer out = hop(p, rank, true, false), in = hop(p, rank, false, true);
    place(g->comm[rank]);
    if (comm_sendrecv(g->comm[rank], &out, &t[0], &p->said[rank])) return;
    if (comm_sendrecv(g->comm[rank], &in, &t[1], &p->said[rank])) return;
    if (!comm_wait(g->comm[rank], &t[0], &p->said[rank]))
        comm_wait(g->comm[rank], &t[1], &p->said[rank]);
}

static void test_an_order_that_stands_still_is_found(void)
{
    struct pair p;
    pair_open(&p, 50);
    ranks_run(&p.g, crossed_body, &p);
    int n_late = 0;
    for (int r = 0; r < 2; r++)
        n_late += p.said[r].code == ERR_TIMEOUT &&
                  strstr(p.said[r].text, "waited 50 ms for rank ") &&
                  strstr(p.said[r].text, "step 12, layer 3, hop 1: rank ");
    CHECK_MSG(n_late >= 1 && p.said[0].code && p.said[1].code, "%s; %s", p.said[0].text,
              p.said[1].text);
    pair_close(&p);
}

/* Checks that the connect of one rank fails with a timeout if its peer never connects. */
static void test_a_rank_that_does_not_connect(void)
{
    struct ranks g;
    struct err e = {0};
    struct rank_blob blobs[2];
    void *segment[2];
    ranks_segment(&g, 2, SIZE);
    for (int r = 0; r < 2; r++) {
        struct comm_options o = ranks_options(&g, r, SIZE,
                                              &(struct comm_options){.transport = TRANSPORT_NCCL,
                                                                     .hop_timeout_ms = 2000,
                                                                     .silence_ms = 50});
        o.be = device(r, 1);
        o.segment = segment[r] = mirror_alloc(o.be, SIZE);
        blobs[r].rank = r;
        g.comm[r] = comm_listen(&o, blobs[r].data, &blobs[r].size, &e);
        CHECK_MSG(g.comm[r], "%s", e.text);
    }
    CHECK(comm_connect(g.comm[0], blobs, 2, &e) && e.code == ERR_TIMEOUT);
    CHECK_MSG(strstr(e.text, "rank 0 waited 50 ms for rank 1"), "%s", e.text);
    ranks_close(&g);
    CHECK(*fake.live == 0);
    for (int r = 0; r < 2; r++) device(r, 1)->ops->free(device(r, 1), segment[r], SIZE);
}

/* Checks that connecting has connect_ms, and not the time after which a peer is lost. The library
 * is asked at least 500 times, with a pause of 20 us, which is more than 5 ms. */
static void test_a_slow_connection(void)
{
    struct ranks g;
    struct ranks_device on[2];
    for (int r = 0; r < 2; r++)
        on[r] = (struct ranks_device){device(r, 1), mirror_alloc(device(r, 1), SIZE)};
    *fake.slow = 500;
    ranks_open_on(&g, 2, SIZE,
                  &(struct comm_options){.transport = TRANSPORT_NCCL,
                                         .hop_timeout_ms = 60000,
                                         .silence_ms = 5,
                                         .connect_ms = 60000},
                  on);
    *fake.slow = 0;
    ranks_check(&g);
    ranks_close(&g);
    CHECK(*fake.live == 0);
    for (int r = 0; r < 2; r++) device(r, 1)->ops->free(device(r, 1), on[r].segment, SIZE);
}

static void batch_body(struct ranks *g, int rank, void *arg)
{
    struct pair *p = arg;
    struct comm_ticket t[2];
    struct comm *c = g->comm[rank];
    struct err *e = &p->said[rank];
    const struct comm_xfer out = hop(p, rank, true, false), in = hop(p, rank, false, true);
    if (comm_batch_begin(c, e) || comm_sendrecv(c, &out, &t[0], e) ||
        comm_sendrecv(c, &in, &t[1], e) || comm_batch_end(c, e) || comm_wait(c, &t[1], e) ||
        comm_wait(c, &t[0], e))
        ranks_fail(g, rank, e);
}

static void test_a_batch_is_one_exchange(void)
{
    struct pair p;
    pair_open(&p, 60000);
    ranks_run(&p.g, batch_body, &p);
    ranks_check(&p.g);
    pair_close(&p);
}

/* Rank 1 waits for rank 0, which never sends or receives. The abort flag must end the wait of rank
 * 1. */
static void abort_body(struct ranks *g, int rank, void *arg)
{
    struct pair *p = arg;
    struct comm_ticket t;
    const struct comm_xfer x = hop(p, rank, true, true);
    if (rank == 0) {
        while (!__atomic_load_n(&g->head->lastop[1].n_ops, __ATOMIC_ACQUIRE)) sched_yield();
        ranks_abort(g, 0);
        return;
    }
    place(g->comm[1]);
    if (!comm_sendrecv(g->comm[1], &x, &t, &p->said[1])) comm_wait(g->comm[1], &t, &p->said[1]);
}

static void test_abort(void)
{
    struct pair p;
    pair_open(&p, 60000);
    ranks_run(&p.g, abort_body, &p);
    CHECK(p.said[1].code == ERR_ABORTED);
    CHECK_STR(p.said[1].text, "step 12, layer 3, hop 1: rank 1 stopped in ring_kv: rank 0 is gone");
    pair_close(&p);
}

/* ---- transfers that the device never completes ----------------------------------------------- */

static bool begun_alone(struct be *be, int mark)
{
    return mark % 2 == 0;
}

static void ring_body(struct ranks *g, int rank, void *arg)
{
    struct pair *p = arg;
    struct comm_ticket t;
    const struct comm_xfer x = hop(p, rank, true, true);
    place(g->comm[rank]);
    if (comm_sendrecv(g->comm[rank], &x, &t, &p->said[rank]) ||
        comm_wait(g->comm[rank], &t, &p->said[rank]))
        ranks_fail(g, rank, &p->said[rank]);
}

static void test_a_transfer_that_does_not_end(void)
{
    struct pair p;
    struct err e = {0};
    pair_open(&p, 1000);
    const struct be_ops *was = device(1, 1)->ops;
    p.ops.transfer_passed = begun_alone;
    device(1, 1)->ops = &p.ops;
    ranks_run(&p.g, ring_body, &p); /* returns, because the host is not blocked */
    ranks_check(&p.g);
    CHECK(!comm_watch(p.g.comm[0], &e));
    while (!comm_watch(p.g.comm[1], &e)) sched_yield();
    CHECK(e.code == ERR_TIMEOUT);
    CHECK_MSG(strstr(e.text, "step 12, layer 3, hop 1: rank 1 waited 1000 ms for rank 0 to send "
                             "ring_kv (last seen at step 12"),
              "%s", e.text);
    device(1, 1)->ops = was;
    pair_close(&p);
}

static void test_an_asynchronous_error(void)
{
    struct pair p;
    struct err e = {0};
    pair_open(&p, 60000);
    ranks_run(&p.g, ring_body, &p);
    *fake.failing = 1;
    CHECK(comm_watch(p.g.comm[1], &e) && e.code == ERR_PEER);
    CHECK_MSG(strstr(e.text, "rank 1 stopped in ring_kv: NCCL: remote process exited"), "%s",
              e.text);
    *fake.failing = -1;
    struct comm_ticket t = {0};
    struct err again = {0}; /* a later call must report the first failure, too */
    const struct comm_xfer x = hop(&p, 1, true, true);
    CHECK(comm_sendrecv(p.g.comm[1], &x, &t, &again) && !strcmp(e.text, again.text));
    pair_close(&p);
}

/* ---- collectives of NCCL's own --------------------------------------------------------------- */

/* Runs collectives on P ranks, and checks how often each function of NCCL was called. `want` has
 * the numbers of calls of one rank. */
static void own_of(int P, bool even, int n_free, const int want[ALL_TO_ALLS + 1])
{
    memset(fake.done, 0, (ALL_TO_ALLS + 1) * sizeof *fake.done);
    sums_of(P, N_SUM, even, n_free);
    for (int k = ALL_REDUCES; k <= ALL_TO_ALLS; k++)
        CHECK_MSG(fake.done[k] == P * want[k], "P %d, kind %d: %d by all, want %d by each", P, k,
                  fake.done[k], want[k]);
}

/* Checks which calls of NCCL a collective uses. If all parts have the same size, it must be one
 * collective of NCCL. If they have several sizes, it must be one call for each rank that has a
 * part. NCCL may compute sums only if all ranks allow any order of additions. */
static void test_collectives_of_its_own(void)
{
    for (int P = 2; P <= 4; P++) {
        own_of(P, true, P,
               (int[]){[ALL_REDUCES] = 1, [REDUCE_SCATTERS] = 1, [ALL_GATHERS] = 2, 1, 0});
        own_of(P, false, P, (int[]){[ALL_REDUCES] = 1, [REDUCES] = P, [BROADCASTS] = 2 * P + 1, 0});
        own_of(P, true, P - 1, (int[]){[ALL_GATHERS] = 2, 1, 0});
        own_of(P, false, 0, (int[]){[BROADCASTS] = 2 * P + 1, 0});
    }
    setenv("SEQD_COLLECTIVES", "messages", 1);
    own_of(3, true, 3, (int[ALL_TO_ALLS + 1]){0});
    unsetenv("SEQD_COLLECTIVES");
}

/* The state of a test with views. Two views of two ranks each run collectives. At the same time,
 * there are collectives of all ranks, and messages in a ring of all ranks. Each of two further
 * views consists of one rank of the first view and one rank of the second view. */
struct views {
    int64_t bounce;
    struct ranks_device on[4];
    float *x[4], *in[4];
};

enum { N_VIEW = 4 * 16 };

static int view_round(struct views *w, struct comm *all, struct comm *v, int rank, struct err *e)
{
    const int64_t half = N_VIEW / 2, cut[] = {0, half, N_VIEW};
    void *bounce = w->on[rank].segment;
    float *x = w->x[rank];
    /* this view is not a block of view_size ranks, so its collectives are made of messages */
    struct comm *across = comm_group(all, axes_rank_across(rank, 2, 4));
    struct comm_ticket t;
    const struct comm_xfer ring = {.purpose = PURPOSE_RING_KV,
                                   .channel = CHANNEL_KV,
                                   .send_to = (rank + 1) % 4,
                                   .recv_from = (rank + 3) % 4,
                                   .send = (char *)bounce + w->bounce,
                                   .recv = w->in[rank],
                                   .send_size = 64,
                                   .recv_size = 64};
    return comm_sum_f32(v, PURPOSE_GRAD, x, N_VIEW, bounce, e) ||
           comm_sendrecv(all, &ring, &t, e) ||
           comm_reduce_scatter(v, PURPOSE_GRAD, x, cut, bounce, e) ||
           comm_all_gather(v, PURPOSE_PARAM, x + cut[rank % 2], x, cut, 4, bounce, e) ||
           comm_sum_f32(all, PURPOSE_GRAD, x, N_VIEW, bounce, e) ||
           comm_reduce_scatter(across, PURPOSE_GRAD, x, cut, bounce, e) ||
           comm_all_gather(across, PURPOSE_GRAD, x + cut[rank / 2], x, cut, 4, bounce, e) ||
           comm_wait(all, &t, e);
}

static void views_body(struct ranks *g, int rank, void *arg)
{
    struct views *w = arg;
    struct comm *all = g->comm[rank], *v = comm_group(all, axes_rank_block(rank, 2));
    struct be *be = device(rank, 1);
    struct err e = {0};
    float x[N_VIEW], in[16];
    for (int i = 0; i < N_VIEW; i++) x[i] = (float)(i + (1 << 2 * rank));
    be->ops->upload(be, w->x[rank], x, sizeof x);
    be->ops->upload(be, (char *)w->on[rank].segment + w->bounce, x, 64);
    if (view_round(w, all, v, rank, &e)) {
        ranks_fail(g, rank, &e);
        return;
    }
    be->ops->download(be, x, w->x[rank], sizeof x);
    be->ops->download(be, in, w->in[rank], 64);
    /* Rank r starts with i + 4^r. After the first sum, both ranks of a view have the same numbers,
     * so the second sum doubles them. The sum over all four ranks adds the number of each view
     * twice. The sum over a crossing view doubles this result. */
    for (int i = 0; i < N_VIEW; i++)
        CHECK_MSG(x[i] == (float)(2 * 2 * 2 * (4 * i + 1 + 4 + 16 + 64)), "rank %d: x[%d] = %g",
                  rank, i, x[i]);
    CHECK(in[0] == (float)(1 << 2 * ((rank + 3) % 4)));
}

static void test_views(void)
{
    struct ranks g;
    struct views w = {.bounce = comm_bounce_size(4)};
    const int64_t size = w.bounce + 64;
    memset(fake.done, 0, (ALL_TO_ALLS + 1) * sizeof *fake.done);
    for (int r = 0; r < 4; r++) {
        struct be *be = device(r, 1);
        be->any_order = true;
        w.on[r] = (struct ranks_device){be, mirror_alloc(be, size)};
        w.x[r] = mirror_alloc(be, N_VIEW * 4);
        w.in[r] = mirror_alloc(be, 64);
    }
    ranks_open_on(&g, 4, size, &(struct comm_options){.view_size = 2}, w.on);
    CHECK(*fake.live == 8);
    ranks_run(&g, views_body, &w);
    ranks_check(&g);
    CHECK(fake.done[ALL_REDUCES] == 8 && fake.done[REDUCE_SCATTERS] == 4 &&
          fake.done[ALL_GATHERS] == 4 && fake.done[SENDS] == 4 + 8);
    ranks_close(&g);
    CHECK(*fake.live == 0);
    for (int r = 0; r < 4; r++) {
        struct be *be = device(r, 1);
        be->any_order = false;
        be->ops->free(be, w.on[r].segment, size);
        be->ops->free(be, w.x[r], N_VIEW * 4);
        be->ops->free(be, w.in[r], 64);
    }
}

/* Rank 1 calls a collective, and rank 0 does not. The test checks that rank 1's wait ends. */
static void alone_body(struct ranks *g, int rank, void *arg)
{
    struct pair *p = arg;
    place(g->comm[rank]);
    if (rank == 1)
        comm_broadcast_tensor(g->comm[1], PURPOSE_STATE, 0, p->in[1], SIZE, NULL, &p->said[1]);
}

static void test_a_collective_that_somebody_misses(void)
{
    struct pair p;
    pair_open(&p, 50);
    ranks_run(&p.g, alone_body, &p);
    CHECK(p.said[1].code == ERR_TIMEOUT);
    CHECK_STR(p.said[1].text,
              "step 12, layer 3, hop 1: rank 1 waited 50 ms for ranks 0 to 1 to end "
              "state (rank 0 never seen: step 0, layer 0, hop 0: rank 0)");
    pair_close(&p);
}

/* ---- which transport ------------------------------------------------------------------------- */

/* Connects two ranks, of which rank 0 is on GPU `a` and rank 1 on GPU `b`. Returns the error of
 * rank 0. */
static struct err meet(enum transport_id asked, int a, int b, bool *by_nccl)
{
    struct ranks g;
    struct ranks_device on[2];
    static struct rank_blob blobs[2];
    struct err e = {0};
    const int live = *fake.live;
    ranks_segment(&g, 2, 1 << 20);
    for (int r = 0; r < 2; r++) {
        on[r] = (struct ranks_device){device(r, 1), mirror_alloc(device(r, 1), SIZE)};
        on[r].be->id[0] = (unsigned char)(r ? b : a);
        struct comm_options o = ranks_options(&g, r, SIZE, NULL);
        o.transport = asked;
        o.be = on[r].be;
        o.segment = on[r].segment;
        blobs[r].rank = r;
        g.comm[r] = comm_listen(&o, blobs[r].data, &blobs[r].size, &e);
    }
    ranks_connect(&g, blobs);
    e = g.err[0];
    *by_nccl = *fake.live > live;
    for (int r = 0; r < 2; r++) {
        comm_close(g.comm[r]);
        g.comm[r] = NULL;
        on[r].be->id[0] = 0;
        on[r].be->ops->free(on[r].be, on[r].segment, SIZE);
    }
    g.P = 0;
    ranks_close(&g);
    return e;
}

static void test_a_gpu_each(void)
{
    bool nccl;
    CHECK(!meet(TRANSPORT_AUTO, 1, 2, &nccl).code && nccl);
    CHECK(!meet(TRANSPORT_AUTO, 1, 1, &nccl).code && !nccl);
    CHECK(!meet(TRANSPORT_SHM, 1, 2, &nccl).code && !nccl);
    CHECK(!meet(TRANSPORT_NCCL, 1, 2, &nccl).code && nccl);
    const struct err e = meet(TRANSPORT_NCCL, 1, 1, &nccl);
    CHECK(e.code == ERR_UNSUPPORTED && !nccl);
    CHECK_STR(e.text, "ranks 0 and 1 are on one GPU, which NCCL refuses: use \"shm\", or as many "
                      "GPUs as ranks");
}

/* ---- a pipeline ------------------------------------------------------------------------------ */

static struct engine_run train_stages(int pp, int sp)
{
    static struct job_spec spec;
    static struct synth y = {.S = 32, .doc_len = 11, .vocab = 61};
    engine_spec(&spec, y.S);
    CHECK(!spec_intern(&spec, "emulated", 8, &spec.resources.device));
    spec.model.shape.n_layers = 3;
    spec.model.shape.tied = 1;
    spec.train.global_batch = 4;
    spec.parallel.layout = LAYOUT_CONTIGUOUS;
    spec.determinism = DET_RANKS;
    struct engine_run r = {.P = sp,
                           .pp = pp,
                           .steps = 1,
                           .transport = TRANSPORT_NCCL,
                           .source = {synth_batch, synth_targets, &y}};
    engine_go(&r, &spec);
    return r;
}

/* Checks that two stages can exchange messages in both directions, although NCCL runs the messages
 * of both directions in a single order. This works because, in the order of 1F1B, no message waits
 * for a message that comes after it. */
static void test_pipeline(void)
{
    static const int ways[][2] = {{2, 1}, {3, 1}, {2, 2}};
    struct engine_run one = train_stages(1, 1);
    for (int i = small_tests() ? 2 : 0; i < 3; i++) {
        const int before = fake.done[SENDS];
        struct engine_run r = train_stages(ways[i][0], ways[i][1]);
        CHECK(fake.done[SENDS] > before);
        CHECK_MSG(r.loss[0] == one.loss[0] && !memcmp(r.weights, one.weights, (size_t)one.n * 4),
                  "pp %d sp %d: other bits", ways[i][0], ways[i][1]);
        engine_free(&r);
    }
    engine_free(&one);
}

int main(void)
{
    device_name = lin_device_name = "emulated";
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    log_init("test");
    ranks_transport = TRANSPORT_NCCL;
    RUN(test_without_the_library);
    open_fake();
    mover_open();
    *fake.copy = device_copy;
    *fake.add = device_add;
    (void)device(0, 1);
    RUN(test_an_old_version);
    RUN(test_the_host_has_no_nccl);
    RUN(test_an_order_that_stands_still_is_found);
    RUN(test_a_rank_that_does_not_connect);
    RUN(test_a_slow_connection);
    RUN(test_a_batch_is_one_exchange);
    RUN(test_abort);
    RUN(test_a_transfer_that_does_not_end);
    RUN(test_an_asynchronous_error);
    RUN(test_a_collective_that_somebody_misses);
    RUN(test_collectives_of_its_own);
    RUN(test_views);
    RUN(test_a_gpu_each);
    RUN(test_pipeline);
    device_ranks();
    CHECK(fake.done[ALL_TO_ALLS] > 0);
    CHECK(*fake.live == 0);
    be_close(mover);
    return device_ranks_done("device_nccl");
}
