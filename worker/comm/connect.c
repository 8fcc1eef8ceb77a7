/* connect.c: the rendezvous. It chooses the transport to each peer, exchanges blobs, and opens and
 * closes the transports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "worker/comm/endpoint.h"

#define BLOB_MAGIC "seqd-comm-3"

static_assert(sizeof(struct comm_blob) <= BLOB_SIZE, "a blob's limit");

/* ---- the table of transports ----------------------------------------------------------------- */

/* Transports are opened in this order, and closed in the reverse of it. */
const struct comm_ops *const comm_transports[N_TRANSPORTS] = {&comm_shm, &comm_tcp, &comm_nccl};
/* The first usable transport in this order moves the messages. Shared memory can also serve ranks
 * that share a GPU. */
static const struct comm_ops *const in_turn[N_TRANSPORTS] = {&comm_nccl, &comm_shm, &comm_tcp};

bool comm_is_local(const struct comm *c, int rank)
{
    return rank >= c->first_local && rank < c->first_local + c->n_local;
}

/* Returns the transport that the options name for messages in this memory, or NULL if they name no
 * transport for it. A transport that works in the device's stream moves only tensors. If the
 * options name a transport that moves only tensors, the transport of the host's messages is chosen
 * as with "auto". */
static const struct comm_ops *named(enum transport_id asked, enum comm_memory memory)
{
    for (int i = 0; i < N_TRANSPORTS; i++) {
        const struct comm_ops *t = comm_transports[i];
        if (t->id == asked) return memory == MEMORY_HOST && t->post ? NULL : t;
    }
    return NULL;
}

/* Returns the first usable transport for messages to peer p. Returns NULL if no transport is
 * usable; e then has the reason why the first transport is not usable. */
static const struct comm_ops *choose(const struct comm *c, int p, enum comm_memory memory,
                                     struct err *e)
{
    const struct comm_ops *only = named((enum transport_id)c->blob.transport, memory);
    struct err first = {0};
    for (int i = 0; i < N_TRANSPORTS; i++) {
        const struct comm_ops *t = in_turn[i];
        struct err why = {0};
        if (only && t != only) continue;
        if (t->usable(c, p, memory, &why)) return t;
        if (!first.code) first = why;
    }
    *e = first;
    return NULL;
}

/* Chooses the transports of the host's messages. Messages of tensors use these transports too
 * until the blobs of the other ranks are known. A transport that is asked for by name must be able
 * to move tensors. */
static int choose_host(struct comm *c, struct err *e)
{
    const enum transport_id asked = (enum transport_id)c->blob.transport;
    const struct comm_ops *only = named(asked, MEMORY_TENSORS);
    if (asked != TRANSPORT_AUTO && !only && c->n_ranks > 1)
        return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                         "this build has shared memory, TCP and NCCL only");
    for (int p = 0; p < c->n_ranks; p++) {
        if (p == c->rank) continue;
        const struct comm_ops *t = choose(c, p, MEMORY_HOST, e);
        if (!t) return -1;
        c->via[MEMORY_HOST][p] = c->via[MEMORY_TENSORS][p] = t;
        if (only && !only->usable(c, p, MEMORY_TENSORS, e)) return -1;
    }
    return 0;
}

/* Chooses the transports of tensors in devices' memory, once the blobs are known. */
static int choose_tensors(struct comm *c, struct err *e)
{
    for (int p = 0; c->be && p < c->n_ranks; p++) {
        if (p == c->rank) continue;
        const struct comm_ops *t = choose(c, p, MEMORY_TENSORS, e);
        if (!t) return -1;
        c->via[MEMORY_TENSORS][p] = t;
    }
    return 0;
}

bool comm_uses(const struct comm *c, const struct comm_ops *t)
{
    for (int p = 0; p < c->n_ranks; p++)
        if (c->via[MEMORY_HOST][p] == t || c->via[MEMORY_TENSORS][p] == t) return true;
    return false;
}

/* ---- open and close -------------------------------------------------------------------------- */

static int read_boot_id(char *out, size_t size, struct err *e)
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!f) return err_errno(e, "open /proc/sys/kernel/random/boot_id");
    bool ok = fgets(out, (int)size, f) != NULL;
    fclose(f);
    if (!ok) return err_set(e, ERR_IO, "/proc/sys/kernel/random/boot_id is empty");
    out[strcspn(out, "\n")] = 0;
    return 0;
}

static void blob_fill(struct comm *c, const struct comm_options *o)
{
    struct comm_blob *b = &c->blob;
    memcpy(b->magic, BLOB_MAGIC, sizeof BLOB_MAGIC);
    b->segment_size = c->segment_size;
    b->rank = c->rank;
    b->n_ranks = c->n_ranks;
    b->first_local = c->first_local;
    b->n_local = c->n_local;
    b->transport = o->transport;
    b->tls = o->tls;
    if (c->be) memcpy(b->gpu, c->be->id, sizeof b->gpu);
}

static int open_all(struct comm *c, const struct comm_options *o, struct err *e)
{
    blob_fill(c, o);
    if (choose_host(c, e) || read_boot_id(c->blob.boot_id, sizeof c->blob.boot_id, e)) return -1;
    for (int i = 0; i < N_TRANSPORTS; i++)
        if (comm_transports[i]->open(c, o, e)) return -1;
    return 0;
}

struct comm *comm_listen(const struct comm_options *o, char blob[BLOB_SIZE], int *blob_size,
                         struct err *e)
{
    assert(o->n_ranks >= 1 && o->n_ranks <= JOB_MAX_RANKS && o->rank >= 0 && o->rank < o->n_ranks);
    int first = o->n_local ? o->first_local : 0, n = o->n_local ? o->n_local : o->n_ranks;
    assert(first >= 0 && first <= o->rank && o->rank < first + n && first + n <= o->n_ranks);
    struct comm *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_IO, "no memory for the endpoint of rank %d", o->rank);
        return NULL;
    }
    c->rank = o->rank;
    c->n_ranks = o->n_ranks;
    c->of = axes_rank_block(o->rank, o->n_ranks);
    c->first_local = first;
    c->n_local = n;
    c->view_size = o->view_size ? o->view_size : o->n_ranks;
    c->segment_size = c->host_size = o->segment_size;
    if (o->be && o->be->own_memory) {
        c->be = o->be;
        c->segment = o->segment;
        c->host_size = comm_bounce_size(o->n_ranks);
    }
    c->where = (struct comm_where){.layer = -1, .hop = -1};
    c->hop_timeout_ms = o->hop_timeout_ms;
    c->delay_seed = o->delay_seed;
    c->delay_max_us = o->delay_max_us;
    c->latency_us = o->latency_us;
    c->bytes_per_ms = o->bytes_per_ms;
    if (open_all(c, o, e)) {
        comm_close(c);
        return NULL;
    }
    memcpy(blob, &c->blob, sizeof c->blob);
    *blob_size = (int)sizeof c->blob;
    return c;
}

/* Checks that b is the blob that rank p of this attempt would publish. */
static int blob_check(const struct comm *c, const struct comm_blob *b, int p, struct err *e)
{
    const struct comm_blob *own = &c->blob;
    int first = b->first_local, n = b->n_local;
    if (b->rank != p || b->n_ranks != c->n_ranks || b->segment_size != own->segment_size ||
        b->transport != own->transport || b->tls != own->tls)
        return err_set(e, ERR_PEER,
                       "rank %d of %d with a segment of %lld bytes, transport %d, tls %d; rank %d "
                       "says rank %d of %d with %lld, %d, %d: their plans differ",
                       c->rank, c->n_ranks, (long long)own->segment_size, own->transport, own->tls,
                       p, b->rank, b->n_ranks, (long long)b->segment_size, b->transport, b->tls);
    bool same = first == c->first_local && n == c->n_local;
    bool apart = n > 0 && n <= c->n_ranks && first >= 0 && first <= p && p < first + (int64_t)n &&
                 (first >= c->first_local + c->n_local || first + (int64_t)n <= c->first_local);
    if (comm_is_local(c, p) ? !same : !apart)
        return err_set(e, ERR_PEER,
                       "rank %d shares its node with %d ranks from %d on, rank %d with %d from %d "
                       "on: that cannot be",
                       c->rank, c->n_local, c->first_local, p, n, first);
    return 0;
}

static int read_blobs(struct comm *c, const struct rank_blob *blobs, struct comm_blob *all,
                      struct err *e)
{
    for (int p = 0; p < c->n_ranks; p++) {
        struct comm_blob *b = &all[p];
        if (blobs[p].rank != p || blobs[p].size != (int)sizeof *b)
            return err_set(e, ERR_PEER, "blob %d: rank %d with %d bytes, want rank %d with %d", p,
                           blobs[p].rank, blobs[p].size, p, (int)sizeof *b);
        memcpy(b, blobs[p].data, sizeof *b);
        b->boot_id[sizeof b->boot_id - 1] = b->address[sizeof b->address - 1] = 0;
        if (memcmp(b->magic, BLOB_MAGIC, sizeof BLOB_MAGIC))
            return err_set(e, ERR_PEER, "rank %d speaks another protocol: install one version", p);
        if (blob_check(c, b, p, e)) return -1;
    }
    return 0;
}

int comm_connect(struct comm *c, const struct rank_blob *blobs, int n, struct err *e)
{
    int rc = -1;
    if (n != c->n_ranks)
        return err_set(e, ERR_PEER, "rank %d got %d blobs for %d ranks", c->rank, n, c->n_ranks);
    struct comm_blob *all = calloc((size_t)n, sizeof *all);
    if (!all) return err_set(e, ERR_IO, "no memory for %d blobs", n);
    if (read_blobs(c, blobs, all, e)) goto out;
    c->all = all;
    if (choose_tensors(c, e)) goto out;
    for (int i = 0; i < N_TRANSPORTS; i++)
        if (comm_transports[i]->connect(c, all, e)) goto out;
    rc = 0;
out:
    c->all = NULL;
    free(all);
    return rc;
}

int comm_blob_port(const struct rank_blob *blob)
{
    struct comm_blob b;
    if (blob->size != (int32_t)sizeof b) return 0;
    memcpy(&b, blob->data, sizeof b);
    return b.port > 0 && b.port <= UINT16_MAX ? b.port : 0;
}

/* Stops all transports, so that they later close without a goodbye. If tickets are outstanding,
 * the rank has failed, so comm_close calls this function. */
void comm_halt(struct comm *c)
{
    for (int i = 0; i < N_TRANSPORTS; i++)
        if (comm_transports[i]->halt) comm_transports[i]->halt(c);
}

void comm_close(struct comm *c)
{
    if (!c) return;
    assert(!c->base); /* a view is freed with its endpoint */
    while (c->views) {
        struct comm *v = c->views;
        c->views = v->views;
        free(v);
    }
    if (c->n_ops) comm_halt(c);
    for (int i = N_TRANSPORTS; i-- > 0;) comm_transports[i]->close(c);
    free(c);
}
