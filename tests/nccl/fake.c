/* fake.c: a libnccl.so.2 for tests: ranks are threads of one process. A rank's groups run one after
 * another, and a group ends when each of its calls has met its peer's: so what would stand still in a
 * stream stands still here. Between two ranks the n-th send meets the n-th receive, whatever they are
 * for. Nothing blocks: as with a communicator that must not, ncclCommGetAsyncError is asked until
 * all is done. Sizes that differ are an error, where NCCL would write or hang. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "worker/comm/nccl_api.h"

enum { MOST = 16, CALLS = 2048, USAGE = 5, REMOTE = 6 };

/* What a test sets: how to copy in the device's memory, which version to be, and ranks to fail. */
void (*fake_nccl_copy)(void *to, const void *from, size_t n);
int fake_nccl_version = 22809;
int fake_nccl_failing = -1; /* this rank's next state is a remote error */
int fake_nccl_live;         /* communicators that are neither destroyed nor aborted */

struct call {
    bool send, done;
    int peer;
    void *at;
    size_t n;
};

struct ncclComm {
    struct world *world;
    int rank, n_calls;
    bool active; /* its group has been closed */
    ncclResult_t failed;
    struct call call[CALLS];
};

struct world {
    char id[sizeof(ncclUniqueId)];
    int n_ranks, n_joined;
    struct ncclComm *comm[MOST];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct world worlds[256];
static int n_worlds;
static unsigned n_ids;
static _Thread_local struct ncclComm *in_group; /* whom this thread's group is for */

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
    if (n_worlds == 256) abort();
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

/* The peer's counterpart: the first call of its open group that is for this rank and not done. */
static struct call *other_end(struct ncclComm *peer, int rank, bool send)
{
    for (int i = 0; peer && peer->active && i < peer->n_calls; i++) {
        struct call *x = &peer->call[i];
        if (x->peer == rank && x->send == send && !x->done) return x;
    }
    return NULL;
}

static bool first_for_peer(const struct ncclComm *c, int i)
{
    for (int k = 0; k < i; k++)
        if (!c->call[k].done && c->call[k].peer == c->call[i].peer &&
            c->call[k].send == c->call[i].send)
            return false;
    return true;
}

static void meet(struct ncclComm *c, struct ncclComm *peer, struct call *a, struct call *b)
{
    if (a->n != b->n) {
        c->failed = peer->failed = USAGE;
        return;
    }
    fake_nccl_copy(a->send ? b->at : a->at, a->send ? a->at : b->at, a->n);
    a->done = b->done = true;
}

static ncclResult_t progress(struct ncclComm *c)
{
    bool all = true;
    if (c->world->n_joined < c->world->n_ranks) return NCCL_IN_PROGRESS;
    for (int i = 0; c->active && i < c->n_calls && !c->failed; i++) {
        struct call *a = &c->call[i];
        struct ncclComm *peer = c->world->comm[a->peer];
        if (a->done) continue;
        struct call *b = first_for_peer(c, i) ? other_end(peer, c->rank, !a->send) : NULL;
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
    *state = progress(comm);
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
    in_group = NULL;
    return NCCL_OK;
}

ncclResult_t ncclGroupEnd(void)
{
    if (!in_group) return NCCL_OK;
    pthread_mutex_lock(&lock);
    in_group->active = true;
    in_group = NULL;
    pthread_mutex_unlock(&lock);
    return NCCL_IN_PROGRESS;
}

static ncclResult_t call(bool send, void *at, size_t n, int peer, ncclComm_t c)
{
    if (c->active || peer < 0 || peer >= c->world->n_ranks) return USAGE;
    if (!in_group) c->n_calls = 0;
    if (c->n_calls == CALLS) return USAGE;
    in_group = c;
    c->call[c->n_calls++] = (struct call){.send = send, .peer = peer, .at = at, .n = n};
    return NCCL_OK;
}

ncclResult_t ncclSend(const void *from, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return type == NCCL_BYTES ? call(true, (void *)from, n, peer, comm) : USAGE;
}

ncclResult_t ncclRecv(void *to, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return type == NCCL_BYTES ? call(false, to, n, peer, comm) : USAGE;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == REMOTE ? "remote process exited" : "invalid usage";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    return "the fake says no more";
}
