/* Checks which transport each pair of ranks chooses. The two ranks are on one node or on two.
 * Ranks have no device, share one GPU, or have one GPU each. NCCL (tests/nccl/fake.c) is available
 * or not. This file defines the devices, which share memory and compute nothing.
 * tests: needs libnccl_fake.so */
#include <dlfcn.h>
#include <limits.h>
#include <string.h>
#include "api/core/log.h"
#include "tests/lib/ranks.h"
#include "worker/comm/endpoint.h"

enum { MOST = 3, SIZE = 4096, BEFORE_2_18 = 21701 };
static int *nccl_version;

enum gang_devices { HOST, NO_GPU, GPU_EACH, ONE_GPU };
enum gang_nccl {
    WITH_NCCL,
    NO_NCCL,
    LACKS_1,
    OTHER_1
}; /* With LACKS_1, rank 1 has no NCCL. With OTHER_1, rank 1 has a different version of NCCL than
    * rank 0. */

static const struct row {
    enum transport_id asked;
    /* P ranks, with n_local ranks on each node; the last node may have fewer */
    int P, n_local;
    enum gang_devices devices;
    enum gang_nccl nccl;
    /* for each peer of rank 0, "transport of messages / transport of tensors"; if opening fails,
     * the error of rank 0 */
    const char *want;
    bool no_sharing; /* the memory of the devices cannot be shared */
    bool hosts;      /* NCCL_HOSTID is set */
} rows[] = {
    {TRANSPORT_AUTO, 1, 1, HOST, NO_NCCL, ""},
    {TRANSPORT_AUTO, 3, 3, HOST, NO_NCCL, " shm/shm shm/shm"},
    {TRANSPORT_AUTO, 3, 2, HOST, NO_NCCL, " shm/shm tcp/tcp"},
    {TRANSPORT_AUTO, 3, 1, HOST, WITH_NCCL, " tcp/tcp tcp/tcp"},
    {TRANSPORT_SHM, 3, 3, HOST, NO_NCCL, " shm/shm shm/shm"},
    {TRANSPORT_SHM, 3, 2, HOST, NO_NCCL,
     "no transport connects ranks 0 and 2: \"shm\" needs both on one host (use \"auto\")"},
    {TRANSPORT_TCP, 3, 3, HOST, NO_NCCL, " tcp/tcp tcp/tcp"},
    {TRANSPORT_TCP, 3, 2, HOST, NO_NCCL, " tcp/tcp tcp/tcp"},
    {TRANSPORT_NCCL, 1, 1, HOST, NO_NCCL,
     "\"nccl\" is for GPUs: use \"auto\" on resources.device \"cpu\""},
    {TRANSPORT_NCCL, 3, 2, HOST, WITH_NCCL,
     "\"nccl\" is for GPUs: use \"auto\" on resources.device \"cpu\""},
    {TRANSPORT_N, 2, 2, HOST, NO_NCCL, "this build has shared memory, TCP and NCCL only"},
    {TRANSPORT_N, 2, 1, GPU_EACH, WITH_NCCL, "this build has shared memory, TCP and NCCL only"},

    {TRANSPORT_AUTO, 1, 1, GPU_EACH, WITH_NCCL, ""},
    {TRANSPORT_AUTO, 3, 3, NO_GPU, WITH_NCCL, " shm/shm shm/shm"},
    {TRANSPORT_AUTO, 3, 3, GPU_EACH, WITH_NCCL, " shm/nccl shm/nccl"},
    {TRANSPORT_AUTO, 3, 2, GPU_EACH, WITH_NCCL, " shm/nccl tcp/nccl"},
    {TRANSPORT_AUTO, 3, 1, GPU_EACH, WITH_NCCL, " tcp/nccl tcp/nccl"},
    {TRANSPORT_AUTO, 3, 3, GPU_EACH, NO_NCCL, " shm/shm shm/shm"},
    {TRANSPORT_AUTO, 3, 3, GPU_EACH, LACKS_1, " shm/shm shm/shm"},
    {TRANSPORT_AUTO, 3, 3, GPU_EACH, OTHER_1, " shm/shm shm/shm"},
    {TRANSPORT_AUTO, 3, 3, ONE_GPU, WITH_NCCL, " shm/shm shm/shm"},
    {TRANSPORT_AUTO, 3, 3, ONE_GPU, WITH_NCCL, " shm/nccl shm/nccl", .hosts = true},
    {TRANSPORT_AUTO, 3, 3, GPU_EACH, WITH_NCCL, " shm/nccl shm/nccl", .no_sharing = true},
    {TRANSPORT_AUTO, 3, 3, ONE_GPU, WITH_NCCL,
     "ranks 0 and 1 have no GPU each, and cannot share memory: no sharing here",
     .no_sharing = true},
    {TRANSPORT_AUTO, 3, 2, NO_GPU, WITH_NCCL,
     "ranks 0 and 2 are on two nodes, and their devices' memory needs NCCL: these devices have "
     "none"},
    {TRANSPORT_AUTO, 3, 2, GPU_EACH, NO_NCCL,
     "ranks 0 and 2 are on two nodes, and their devices' memory needs NCCL: \"nccl\": "
     "libnccl.so.2 is NCCL 2.17: install 2.18 or later"},
    {TRANSPORT_AUTO, 3, 2, GPU_EACH, LACKS_1,
     "ranks 0 and 2 are on two nodes, and their devices' memory needs NCCL: \"nccl\": rank 0 has "
     "NCCL 22809, rank 1 has 0 (0: none): install one version of libnccl.so.2 on every node"},
    {TRANSPORT_AUTO, 3, 1, GPU_EACH, OTHER_1,
     "ranks 0 and 1 are on two nodes, and their devices' memory needs NCCL: \"nccl\": rank 0 has "
     "NCCL 22809, rank 1 has 22810 (0: none): install one version of libnccl.so.2 on every node"},
    {TRANSPORT_AUTO, 3, 2, ONE_GPU, WITH_NCCL,
     "ranks 0 and 2 are on two nodes, and their devices' memory needs NCCL: ranks 0 and 1 are on "
     "one GPU, which NCCL refuses: use \"shm\", or as many GPUs as ranks"},
    {TRANSPORT_AUTO, 3, 2, ONE_GPU, WITH_NCCL,
     "ranks 0 and 2 are on two nodes, and their devices' memory needs NCCL: no sharing here",
     .no_sharing = true},

    {TRANSPORT_SHM, 3, 3, GPU_EACH, WITH_NCCL, " shm/shm shm/shm"},
    {TRANSPORT_SHM, 3, 2, GPU_EACH, WITH_NCCL,
     "no transport connects ranks 0 and 2: \"shm\" needs both on one host (use \"auto\")"},
    {TRANSPORT_SHM, 3, 3, GPU_EACH, WITH_NCCL,
     "ranks 0 and 1 have no GPU each, and cannot share memory: no sharing here",
     .no_sharing = true},
    {TRANSPORT_TCP, 1, 1, GPU_EACH, WITH_NCCL, ""},
    {TRANSPORT_TCP, 3, 3, GPU_EACH, WITH_NCCL,
     "\"tcp\" does not reach the memory of this job's devices: use \"auto\""},
    {TRANSPORT_TCP, 3, 1, NO_GPU, NO_NCCL,
     "\"tcp\" does not reach the memory of this job's devices: use \"auto\""},

    {TRANSPORT_NCCL, 1, 1, GPU_EACH, NO_NCCL, ""},
    {TRANSPORT_NCCL, 3, 3, GPU_EACH, WITH_NCCL, " shm/nccl shm/nccl"},
    {TRANSPORT_NCCL, 3, 2, GPU_EACH, WITH_NCCL, " shm/nccl tcp/nccl"},
    {TRANSPORT_NCCL, 3, 2, NO_GPU, WITH_NCCL, " shm/nccl tcp/nccl"},
    {TRANSPORT_NCCL, 3, 3, GPU_EACH, WITH_NCCL, " shm/nccl shm/nccl", .no_sharing = true},
    {TRANSPORT_NCCL, 3, 3, GPU_EACH, NO_NCCL,
     "\"nccl\": libnccl.so.2 is NCCL 2.17: install 2.18 or later"},
    {TRANSPORT_NCCL, 3, 2, GPU_EACH, OTHER_1,
     "\"nccl\": rank 0 has NCCL 22809, rank 1 has 22810 (0: none): install one version of "
     "libnccl.so.2 on every node"},
    {TRANSPORT_NCCL, 3, 2, ONE_GPU, WITH_NCCL,
     "ranks 0 and 1 are on one GPU, which NCCL refuses: use \"shm\", or as many GPUs as ranks"},
};

/* ---- devices that share memory, or do not ---------------------------------------------------- */

static bool can_share;

static int share(struct be *be, void *p, struct be_handle *out, struct err *e)
{
    (void)be;
    if (!can_share) return err_set(e, ERR_UNSUPPORTED, "no sharing here");
    memcpy(out, &p, sizeof p);
    return 0;
}

static void *attach(struct be *be, const struct be_handle *h, struct err *e)
{
    void *p;
    (void)be;
    (void)e;
    memcpy(&p, h, sizeof p);
    return p;
}

static void detach(struct be *be, void *p)
{
    (void)be;
    (void)p;
}

static const struct be_ops ops = {.share = share, .attach = attach, .detach = detach};

/* ---- a row ----------------------------------------------------------------------------------- */

struct gang {
    struct ranks g;
    struct be be[MOST];
    char segment[MOST][SIZE];
    struct rank_blob blobs[MOST];
};

static int version_of(const struct row *x, int rank)
{
    if (x->nccl == NO_NCCL || (x->nccl == LACKS_1 && rank == 1)) return BEFORE_2_18;
    return 22809 + (x->nccl == OTHER_1 && rank == 1);
}

/* Opens the endpoint of a rank. Returns -1 if that is refused. */
static int listen_on(struct gang *a, const struct row *x, int rank, struct err *e)
{
    struct comm_options o = ranks_options(&a->g, rank, SIZE, NULL);
    o.transport = x->asked;
    a->be[rank] = (struct be){.ops = &ops, .own_memory = true};
    if (x->devices > NO_GPU)
        a->be[rank].id[0] = (unsigned char)(x->devices == ONE_GPU ? 1 : rank + 1);
    if (x->devices != HOST) o.be = &a->be[rank], o.segment = a->segment[rank];
    *nccl_version = version_of(x, rank);
    a->blobs[rank].rank = rank;
    a->g.comm[rank] = comm_listen(&o, a->blobs[rank].data, &a->blobs[rank].size, e);
    return a->g.comm[rank] ? 0 : -1;
}

static void print_choice(const struct comm *c, char *out, size_t size)
{
    out[0] = 0;
    for (int p = 0; p < c->n_ranks; p++) {
        const size_t n = strlen(out);
        if (p == c->rank) continue;
        snprintf(out + n, size - n, " %s/%s", c->via[MEMORY_HOST][p]->name,
                 c->via[MEMORY_TENSORS][p]->name);
    }
}

/* Checks that both ranks of a pair have chosen the same transport, and that a pair has an open
 * socket if its transport uses sockets. */
static void check_pairs(const struct ranks *g, int row)
{
    for (int p = 0; p < g->P; p++) {
        bool tcp = false;
        for (int q = 0; q < g->P; q++) tcp |= g->comm[p]->via[MEMORY_HOST][q] == &comm_tcp;
        CHECK_MSG(g->comm[p]->shm && tcp == (g->comm[p]->tcp != NULL), "row %d, rank %d", row, p);
    }
    for (int p = 0; p < g->P; p++)
        for (int q = 0; q < p; q++)
            for (int m = 0; m < MEMORY_N; m++)
                CHECK_MSG(g->comm[p]->via[m][q] == g->comm[q]->via[m][p], "row %d, ranks %d and %d",
                          row, q, p);
}

static void check_row(int i)
{
    static struct gang a;
    const struct row *x = &rows[i];
    struct err e = {0};
    char got[128] = "";
    can_share = !x->no_sharing;
    if (x->hosts) setenv("NCCL_HOSTID", "a", 1);
    ranks_segments(&a.g, x->P, x->n_local, 1 << 20);
    int r = 0;
    while (r < x->P && !listen_on(&a, x, r, &e)) r++;
    if (r == x->P) {
        ranks_connect(&a.g, a.blobs);
        e = a.g.err[0];
    }
    if (!e.code) {
        ranks_check(&a.g);
        print_choice(a.g.comm[0], got, sizeof got);
        check_pairs(&a.g, i);
    }
    CHECK_MSG(!strcmp(e.code ? e.text : got, x->want), "row %d: got \"%s\", want \"%s\"", i,
              e.code ? e.text : got, x->want);
    if (e.code) CHECK(e.code == ERR_UNSUPPORTED && !strcmp(e.field, "parallel.transport"));
    if (x->hosts) unsetenv("NCCL_HOSTID");
    ranks_close(&a.g);
}

static void test_choice(void)
{
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) check_row(i);
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/');
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.*s/../libnccl_fake.so", slash ? (int)(slash - argv[0]) : 1,
             slash ? argv[0] : ".");
    /* The library is opened by its path, because a sanitizer's dlopen does not search the folders
     * of the program. After that the program finds the library by its soname "libnccl.so.2". */
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        printf("%s: %s\n", path, dlerror());
        return 1;
    }
    nccl_version = dlsym(library, "fake_nccl_version");
    unsetenv("NCCL_HOSTID");
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    log_init("test");
    RUN(test_choice);
    return test_done("transport_choice");
}
