/* nccl_use.c: compares the blobs of all ranks. NCCL is used if all ranks have the same version of
 * NCCL and no two ranks share a GPU. If NCCL_HOSTID is set, ranks may share a GPU. */
#include "worker/comm/nccl_use.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/choices.h"
#include "worker/comm/endpoint.h"

static bool on_gpu(const struct comm_blob *b)
{
    static const unsigned char none[sizeof b->gpu];
    return memcmp(b->gpu, none, sizeof none) != 0;
}

int nccl_refuse_host(struct err *e)
{
    return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                     "\"nccl\" is for GPUs: use \"auto\" on resources.device \"cpu\"");
}

bool nccl_offered(const struct comm *c)
{
    const bool asked = c->blob.transport == TRANSPORT_NCCL;
    return c->be && c->n_ranks > 1 &&
           (asked || (c->blob.transport == TRANSPORT_AUTO && on_gpu(&c->blob)));
}

/* Checks that all ranks have the same version of NCCL, and that no two ranks share a GPU. */
static int check_ranks(const struct comm *c, struct err *e)
{
    /* NCCL treats ranks with different NCCL_HOSTID as being on different hosts, even if they use
     * one GPU. */
    const bool hosts = getenv("NCCL_HOSTID") != NULL;
    const struct comm_blob *own = &c->blob;
    for (int p = 0; p < c->n_ranks; p++) {
        const struct comm_blob *b = &c->all[p];
        if (b->nccl_version != own->nccl_version || !own->nccl_version)
            return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                             "\"nccl\": rank %d has NCCL %d, rank %d has %d (0: none): install one "
                             "version of libnccl.so.2 on every node",
                             c->rank, own->nccl_version, p, b->nccl_version);
        for (int q = 0; on_gpu(b) && q < p && !hosts; q++)
            if (!memcmp(b->gpu, c->all[q].gpu, sizeof b->gpu))
                return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                                 "ranks %d and %d are on one GPU, which NCCL refuses: use \"shm\", "
                                 "or as many GPUs as ranks",
                                 q, p);
    }
    return 0;
}

bool nccl_usable(const struct comm *me, int peer, enum comm_memory memory, struct err *why)
{
    struct err no = {0};
    if (!me->be || memory == MEMORY_HOST) {
        nccl_refuse_host(why);
        return false;
    }
    if (!me->all || (me->nccl && !check_ranks(me, &no))) return true;
    if (me->blob.transport == TRANSPORT_NCCL)
        *why = no;
    else
        err_field(why, ERR_UNSUPPORTED, "parallel.transport",
                  "ranks %d and %d are on two nodes, and their devices' memory needs NCCL: %s",
                  me->rank, peer,
                  me->why_not.code ? me->why_not.text
                  : no.code        ? no.text
                                   : "these devices have none");
    return false;
}
