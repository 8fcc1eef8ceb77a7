/* fake.c: a libnccl.so.2 for tests, whose ranks are threads of one process. The groups of a rank
 * run one after another. A group ends when each of its calls has been matched by a call of the
 * peer. Calls that would hang in a CUDA stream therefore hang in this library, too. Between two
 * ranks the n-th send is matched with the n-th receive, whatever data they carry. The n-th
 * collective of a rank is matched with the n-th collective of every other rank. Sums are added
 * from the last rank to the first, which differs from the order of every tree. No call blocks. As
 * with a nonblocking communicator of NCCL, ncclCommGetAsyncError must be called until all calls
 * have completed. Sizes, types or collectives that do not match are an error, although NCCL would
 * write wrong data or hang. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "worker/comm/nccl_api.h"

enum { MOST = 16, CALLS = 512, USAGE = 5, REMOTE = 6 };
enum { SEND, RECV, ALL_REDUCE, REDUCE_SCATTER, REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL, KINDS };

/* Settings that a test may change: the function that copies in the device's memory, the version of
 * the library, and the rank whose calls fail. */
void (*fake_nccl_copy)(void *to, const void *from, size_t n);
void (*fake_nccl_add)(float *y, const float *x, size_t n);
int fake_nccl_version = 22809;
int fake_nccl_failing = -1; /* the next state of this rank is a remote error */
int fake_nccl_slow;         /* states of a new communicator that say "in progress" */
int fake_nccl_live;         /* communicators that have been neither destroyed nor aborted */
/* the number of calls of each kind that have ended, counted for each rank */
int fake_nccl_done[KINDS];

struct call {
    int kind, peer; /* `peer` is the rank to send to or receive from, or the root of a
                     * collective */
    bool done;
    const void *from;
    void *to;
    size_t n;
    ncclDataType_t type;
};

struct ncclComm {
    struct world *world;
    int rank, n_calls, n_early;
    bool active; /* its group has been closed */
    /* the place where split stores this rank's new communicator; NULL if this rank gets none */
    ncclComm_t *part;
    int color, key;
    ncclResult_t failed;
    struct call call[CALLS];
};

struct world {
    char id[sizeof(ncclUniqueId)];
    int n_ranks, n_joined;
    struct ncclComm *comm[MOST];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct world worlds[1024];
static int n_worlds;
static unsigned n_ids;
/* the communicators that this thread's group uses */
static _Thread_local struct ncclComm *in_group[2];

ncclResult_t ncclGetVersion(int *version)
{
    *version = fake_nccl_version;
    return NCCL_OK;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    pthread_mutex_lock(&lock);
    memset(id, 0, sizeof *id);
    n_ids++;
    memcpy(id->internal, &n_ids, sizeof n_ids);
    pthread_mutex_unlock(&lock);
    return NCCL_OK;
}

static struct world *world_of(const ncclUniqueId *id, int n_ranks)
{
    for (int i = 0; i < n_worlds; i++)
        if (!memcmp(worlds[i].id, id, sizeof *id)) return &worlds[i];
    if (n_worlds == 1024) abort();
    struct world *w = &worlds[n_worlds++];
    memcpy(w->id, id, sizeof *id);
    w->n_ranks = n_ranks;
    return w;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    if (n_ranks > MOST || config->magic != NCCL_MAGIC || config->blocking) return USAGE;
    pthread_mutex_lock(&lock);
    struct world *w = world_of(&id, n_ranks);
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c || w->comm[rank]) abort();
    c->world = w, c->rank = rank;
    w->comm[rank] = c;
    w->n_joined++;
    fake_nccl_live++;
    *comm = c;
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

/* When all ranks have called split, makes a world for each color. The ranks of a world are ordered
 * by key. */
static void split(struct world *w)
{
    for (int r = 0; r < w->n_ranks; r++)
        if (!w->comm[r] || !w->comm[r]->part) return;
    for (int r = 0; r < w->n_ranks; r++) {
        struct ncclComm *of = w->comm[r], *c = calloc(1, sizeof *c);
        ncclUniqueId id = {0};
        int n = 0;
        for (int q = 0; q < w->n_ranks; q++) n += w->comm[q]->color == of->color;
        memcpy(id.internal, w->id, sizeof n_ids);
        memcpy(id.internal + sizeof n_ids, "split", 5);
        memcpy(id.internal + 16, &of->color, sizeof of->color);
        c->world = world_of(&id, n), c->rank = of->key;
        if (of->key < 0 || of->key >= n || c->world->comm[of->key]) abort();
        c->world->comm[of->key] = c;
        c->world->n_joined++;
        fake_nccl_live++;
        *of->part = c;
    }
    for (int r = 0; r < w->n_ranks; r++) w->comm[r]->part = NULL;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *part,
                           ncclConfig_t *config)
{
    if (config || comm->active || comm->part) return USAGE;
    pthread_mutex_lock(&lock);
    *part = NULL;
    comm->part = part, comm->color = color, comm->key = key;
    split(comm->world);
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

/* Returns the matching call of the peer. It is the first call in the peer's open group that is for
 * this rank and has not completed. */
static struct call *other_end(struct ncclComm *peer, int rank, int kind)
{
    for (int i = 0; peer && peer->active && i < peer->n_calls; i++) {
        struct call *x = &peer->call[i];
        if (x->peer == rank && x->kind == kind && !x->done) return x;
    }
    return NULL;
}

static bool first_for_peer(const struct ncclComm *c, int i)
{
    for (int k = 0; k < i; k++)
        if (!c->call[k].done && c->call[k].peer == c->call[i].peer &&
            c->call[k].kind == c->call[i].kind)
            return false;
    return true;
}

static void meet(struct ncclComm *c, struct ncclComm *peer, struct call *a, struct call *b)
{
    if (a->n != b->n) {
        c->failed = peer->failed = USAGE;
        return;
    }
    const struct call *send = a->kind == SEND ? a : b, *recv = a->kind == SEND ? b : a;
    fake_nccl_copy(recv->to, send->from, a->n);
    a->done = b->done = true;
    fake_nccl_done[SEND]++, fake_nccl_done[RECV]++;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static struct call *first_collective(struct ncclComm *c)
{
    for (int i = 0; c && c->active && i < c->n_calls; i++)
        if (c->call[i].kind > RECV && !c->call[i].done) return &c->call[i];
    return NULL;
}

static size_t width(ncclDataType_t type)
{
    return type == NCCL_FLOATS ? 4 : 1;
}

static void move(void *to, const void *from, size_t n)
{
    if (to != from) fake_nccl_copy(to, from, n);
}

/* Adds n floats of all x, from position `skip` on, and writes the sums to `to`. If the floats of
 * some x are in `to` itself, they are read before they are overwritten. */
static void sum(struct call **x, int P, void *to, size_t skip, size_t n)
{
    int own = P - 1;
    for (int r = 0; r < P; r++)
        if ((const float *)x[r]->from + skip == to) own = r;
    move(to, (const float *)x[own]->from + skip, n * 4);
    for (int r = P; r-- > 0;)
        if (r != own) fake_nccl_add(to, (const float *)x[r]->from + skip, n);
}

static void move_all(struct call **x, int P)
{
    const struct call *a = x[0];
    const size_t size = a->n * width(a->type);
    for (int r = 0; r < P; r++)
        for (int q = 0; q < P; q++) {
            char *to = (char *)x[r]->to + (size_t)q * size;
            if (a->kind == ALL_GATHER) move(to, x[q]->from, size);
            if (a->kind == ALL_TO_ALL)
                fake_nccl_copy(to, (const char *)x[q]->from + (size_t)r * size, size);
        }
    for (int r = 0; r < P; r++) {
        if (a->kind == BROADCAST) move(x[r]->to, x[a->peer]->from, size);
        if (a->kind == REDUCE_SCATTER) sum(x, P, x[r]->to, (size_t)r * a->n, a->n);
    }
    if (a->kind == REDUCE) sum(x, P, x[a->peer]->to, 0, a->n);
    if (a->kind == ALL_REDUCE) sum(x, P, x[0]->to, 0, a->n);
    for (int r = 1; r < P && a->kind == ALL_REDUCE; r++) move(x[r]->to, x[0]->to, size);
}

/* Carries out collective a of c if all ranks have called it. */
static void gather(struct ncclComm *c, struct call *a)
{
    struct call *x[MOST] = {a};
    const int P = c->world->n_ranks;
    bool same = true;
    if (a != first_collective(c)) return;
    for (int r = 0; r < P; r++) {
        if (!c->world->comm[r]) c->failed = REMOTE;
        x[r] = first_collective(c->world->comm[r]);
        if (!x[r]) return;
        same &= x[r]->kind == a->kind && x[r]->n == a->n && x[r]->type == a->type &&
                x[r]->peer == a->peer;
    }
    if (same) move_all(x, P);
    for (int r = 0; r < P; r++) {
        if (!same) c->world->comm[r]->failed = USAGE;
        x[r]->done = true;
        fake_nccl_done[a->kind]++;
    }
}

static ncclResult_t progress(struct ncclComm *c)
{
    bool all = true;
    if (c->world->n_joined < c->world->n_ranks || c->part) return NCCL_IN_PROGRESS;
    for (int i = 0; c->active && i < c->n_calls && !c->failed; i++) {
        struct call *a = &c->call[i];
        if (a->done) continue;
        if (a->kind > RECV) {
            gather(c, a);
            all &= a->done;
            continue;
        }
        struct ncclComm *peer = c->world->comm[a->peer];
        struct call *b = first_for_peer(c, i)
                             ? other_end(peer, c->rank, a->kind == SEND ? RECV : SEND)
                             : NULL;
        if (b) meet(c, peer, a, b);
        if (!peer) c->failed = REMOTE; /* it has gone */
        all &= a->done;
    }
    if (c->failed) return c->failed;
    if (!all) return NCCL_IN_PROGRESS;
    c->active = false;
    return NCCL_OK;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    pthread_mutex_lock(&lock);
    if (fake_nccl_failing == comm->rank) comm->failed = REMOTE;
    *state = comm->n_early++ < fake_nccl_slow ? NCCL_IN_PROGRESS : progress(comm);
    pthread_mutex_unlock(&lock);
    return NCCL_OK;
}

static ncclResult_t leave(struct ncclComm *c)
{
    pthread_mutex_lock(&lock);
    c->world->comm[c->rank] = NULL;
    fake_nccl_live--;
    free(c);
    pthread_mutex_unlock(&lock);
    return NCCL_OK;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    return comm->failed;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    return leave(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return leave(comm);
}

ncclResult_t ncclGroupStart(void)
{
    in_group[0] = in_group[1] = NULL;
    return NCCL_OK;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!in_group[0]) return NCCL_OK;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2 && in_group[i]; i++) in_group[i]->active = true;
    in_group[0] = in_group[1] = NULL;
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

static ncclResult_t call(ncclComm_t c, struct call x)
{
    int i = 0;
    while (i < 2 && in_group[i] && in_group[i] != c) i++;
    if (i == 2 || c->active || x.peer < 0 || x.peer >= c->world->n_ranks) return USAGE;
    if (!in_group[i]) c->n_calls = 0;
    if (c->n_calls == CALLS) return USAGE;
    in_group[i] = c;
    c->call[c->n_calls++] = x;
    return NCCL_OK;
}

ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    if (type != NCCL_BYTES || peer == comm->rank) return USAGE;
    return call(comm, (struct call){.kind = SEND, .peer = peer, .from = from, .n = n});
}

ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    if (type != NCCL_BYTES || peer == comm->rank) return USAGE;
    return call(comm, (struct call){.kind = RECV, .peer = peer, .to = to, .n = n});
}

/* Begins a collective from n_from elements to n_to elements. The two ranges must not overlap,
 * unless the collective is in place, which means that x.from equals the address at_from. */
static ncclResult_t collective(int kind, struct call x, int op, size_t n_from, size_t n_to,
                               const void *at_from, ncclComm_t comm)
{
    const char *from = x.from, *to = x.to;
    const size_t size = width(x.type);
    const bool apart = from + n_from * size <= to || to + n_to * size <= from;
    if (x.type != (kind <= REDUCE ? NCCL_FLOATS : NCCL_BYTES) || op != NCCL_SUM) return USAGE;
    if (!x.n || (!apart && from != at_from)) return USAGE;
    x.kind = kind;
    return call(comm, x);
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALL_REDUCE, (struct call){.from = from, .to = to, .n = n, .type = type}, op,
                      n, n, to, comm);
}

ncclResult_t ncclReduceScatter(const void *from, void *to, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    const size_t P = (size_t)comm->world->n_ranks, r = (size_t)comm->rank;
    return collective(REDUCE_SCATTER, (struct call){.from = from, .to = to, .n = n, .type = type},
                      op, n * P, n, (char *)to - r * n * width(type), comm);
}

ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op,
                        int root, ncclComm_t comm, cudaStream_t stream)
{
    return collective(REDUCE,
                      (struct call){.from = from, .to = to, .n = n, .type = type, .peer = root}, op,
                      n, n, to, comm);
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    const size_t P = (size_t)comm->world->n_ranks, r = (size_t)comm->rank;
    return collective(ALL_GATHER, (struct call){.from = from, .to = to, .n = n, .type = type},
                      NCCL_SUM, n, n * P, (char *)to + r * n * width(type), comm);
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    return collective(BROADCAST,
                      (struct call){.from = from, .to = to, .n = n, .type = type, .peer = root},
                      NCCL_SUM, n, n, to, comm);
}

ncclResult_t ncclAlltoAll(const void *from, void *to, size_t n, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream)
{
    const size_t P = (size_t)comm->world->n_ranks;
    return collective(ALL_TO_ALL, (struct call){.from = from, .to = to, .n = n, .type = type},
                      NCCL_SUM, n * P, n * P, NULL, comm);
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == REMOTE ? "remote process exited" : "invalid usage";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return "the fake says no more";
}
