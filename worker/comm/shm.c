/* The shared-memory transport: ranks of one host, one memfd.
 *
 *   page 0                                  struct shm_head (api/core/rank.h), made by seqgang
 *   shm_slot [n_ranks dst][n_ranks src][CHANNEL_N]
 *   n_ranks segments of segment_size bytes, each page-aligned
 *
 * A slot is a mailbox of one message. The sender writes where its bytes lie in its own segment and
 * then `posted` = the message's number; the receiver copies them out once, straight to their
 * destination, and then writes `acked` = that number. Each side then moves the other's door and
 * wakes it. Numbers count up per (sender, receiver, channel), so later messages wait their turn
 * without a queue.
 *
 * Whoever waits for one ticket moves all its outstanding ones: it copies every message that has
 * arrived and posts every send whose slot is free. So two ranks may wait for their tickets in any
 * order without one holding up the other.
 *
 * Sleeping: read the own door, look at everything, and only if nothing is complete sleep while the
 * door still has that value. Who changes something moves the door afterwards, so no wake is lost.
 */
#include "worker/comm/comm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "api/core/mem.h"
#include "worker/comm/endpoint.h"

enum {
    PAGE_SIZE = 4096,
    SPINS = 200,
    YIELDS = 20,
    N_OPS = 2 * JOB_MAX_RANKS /* a collective's P-1 and the ring's two, with room */
};
static_assert(sizeof(struct shm_head) <= PAGE_SIZE, "the head is one page");

struct shm_slot {
    uint64_t posted; /* atomic: number of the last message put here; by the sender */
    int64_t offset;  /* of its bytes in the sender's segment */
    int64_t size;
    int64_t visible_ns; /* not before this time (injected delay); 0: at once */
    int32_t purpose, pad;
    uint64_t acked; /* atomic: number of the last message copied out; by the receiver */
    char fill[16];
};
static_assert(sizeof(struct shm_slot) == 64, "one cache line");

struct shm_blob {
    char transport[16];
    char boot_id[48]; /* which host */
    uint64_t memfd_dev, memfd_ino;
    int64_t segment_size;
    int32_t rank, n_ranks;
};

struct shm_op { /* one ticket */
    bool live, send_done, recv_done;
    struct comm_xfer x;
    struct comm_where where;
    uint64_t send_number, recv_number;
};

struct shm {
    struct comm base;
    int memfd;
    void *map;
    int64_t map_size;
    bool owns_map;
    struct shm_head *head;
    struct shm_slot *slots;
    char *segments;
    int64_t segment_stride; /* bytes from one rank's segment to the next */
    int64_t hop_timeout_ms, delay_max_us;
    uint64_t delay_seed;
    struct shm_blob blob;
    uint64_t n_sent[JOB_MAX_RANKS][CHANNEL_N], n_received[JOB_MAX_RANKS][CHANNEL_N];
    int n_ops; /* no live op at or above this index */
    struct shm_op op[N_OPS];
};

/* ---- open and close -------------------------------------------------------------------------- */

static int64_t slots_size(int n_ranks)
{
    return mem_round((int64_t)n_ranks * n_ranks * CHANNEL_N * (int64_t)sizeof(struct shm_slot),
                     PAGE_SIZE);
}

int64_t comm_shm_size(int n_ranks, int64_t segment_size)
{
    return PAGE_SIZE + slots_size(n_ranks) + n_ranks * mem_round(segment_size, PAGE_SIZE);
}

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

/* Every rank grows the memfd by writing its last byte: that only ever grows it, so it does not
 * matter who comes first, and one with another plan cannot cut off the pages of the others before
 * shm_connect has compared the sizes. Nobody uses the segments before that. */
static int shm_map(struct shm *c, const struct comm_options *o, struct err *e)
{
    struct stat st;
    c->map_size = comm_shm_size(o->n_ranks, o->segment_size);
    if (pwrite(c->memfd, "", 1, c->map_size - 1) != 1)
        return err_errno(e, "grow the shared segment to %lld bytes", (long long)c->map_size);
    if (fstat(c->memfd, &st)) return err_errno(e, "fstat of the shared segment");
    c->blob.memfd_dev = st.st_dev;
    c->blob.memfd_ino = st.st_ino;
    c->map = o->map;
    if (!c->map) {
        void *p = mmap(NULL, (size_t)c->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, c->memfd, 0);
        if (p == MAP_FAILED)
            return err_errno(e, "map %lld bytes of shared segment", (long long)c->map_size);
        c->map = p;
        c->owns_map = true;
    }
    c->head = c->map;
    if (c->head->magic != SHM_MAGIC || c->head->n_ranks != (uint32_t)o->n_ranks)
        return err_set(e, ERR_PEER,
                       "the shared segment is not one for %d ranks (magic %08x, %u ranks)",
                       o->n_ranks, c->head->magic, c->head->n_ranks);
    c->slots = (struct shm_slot *)((char *)c->map + PAGE_SIZE);
    c->segments = (char *)c->map + PAGE_SIZE + slots_size(o->n_ranks);
    c->segment_stride = mem_round(o->segment_size, PAGE_SIZE);
    return 0;
}

static void shm_close(struct comm *base)
{
    struct shm *c = (struct shm *)base;
    if (c->owns_map) munmap(c->map, (size_t)c->map_size);
    if (c->memfd >= 0) close(c->memfd);
    free(c);
}

static struct comm *shm_listen(const struct comm_options *o, char blob[BLOB_SIZE], int *size,
                               struct err *e)
{
    struct shm *c = calloc(1, sizeof *c);
    if (!c) {
        err_set(e, ERR_IO, "no memory for the shm endpoint");
        return NULL;
    }
    c->base = (struct comm){
        .ops = &comm_shm,
        .rank = o->rank,
        .n_ranks = o->n_ranks,
        .segment_size = o->segment_size,
        .where = {.layer = -1, .hop = -1},
    };
    c->hop_timeout_ms = o->hop_timeout_ms;
    c->delay_seed = o->delay_seed;
    c->delay_max_us = o->delay_max_us;
    c->memfd = fcntl(o->memfd, F_DUPFD_CLOEXEC, 3);
    if (c->memfd < 0) {
        err_errno(e, "duplicate the shared segment's descriptor %d", o->memfd);
        goto fail;
    }
    if (shm_map(c, o, e)) goto fail;
    c->base.segment = c->segments + o->rank * c->segment_stride;
    snprintf(c->blob.transport, sizeof c->blob.transport, "%s", comm_shm.name);
    if (read_boot_id(c->blob.boot_id, sizeof c->blob.boot_id, e)) goto fail;
    c->blob.segment_size = o->segment_size;
    c->blob.rank = o->rank;
    c->blob.n_ranks = o->n_ranks;
    static_assert(sizeof c->blob <= BLOB_SIZE, "a blob's limit");
    memcpy(blob, &c->blob, sizeof c->blob);
    *size = (int)sizeof c->blob;
    return &c->base;
fail:
    shm_close(&c->base);
    return NULL;
}

static int shm_connect(struct comm *base, const struct rank_blob *blobs, int n, struct err *e)
{
    struct shm *c = (struct shm *)base;
    const struct shm_blob *own = &c->blob;
    for (int i = 0; i < n; i++) {
        struct shm_blob b;
        if (blobs[i].rank != i || blobs[i].size != (int)sizeof b)
            return err_set(e, ERR_PEER, "blob %d: rank %d with %d bytes, want rank %d with %d", i,
                           blobs[i].rank, blobs[i].size, i, (int)sizeof b);
        memcpy(&b, blobs[i].data, sizeof b);
        b.transport[sizeof b.transport - 1] = b.boot_id[sizeof b.boot_id - 1] = 0;
        if (strcmp(b.transport, own->transport) || strcmp(b.boot_id, own->boot_id))
            return err_set(e, ERR_UNSUPPORTED,
                           "no transport connects ranks %d and %d: \"shm\" needs both on one host",
                           own->rank, i);
        if (b.memfd_dev != own->memfd_dev || b.memfd_ino != own->memfd_ino)
            return err_set(
                e, ERR_UNSUPPORTED,
                "no transport connects ranks %d and %d: they hold different shared segments",
                own->rank, i);
        if (b.rank != i || b.n_ranks != n || b.segment_size != own->segment_size)
            return err_set(
                e, ERR_PEER,
                "rank %d of %d with a segment of %lld bytes; rank %d says rank %d of %d with "
                "%lld: their plans differ",
                own->rank, n, (long long)own->segment_size, i, b.rank, b.n_ranks,
                (long long)b.segment_size);
    }
    return 0;
}

/* ---- small tools ----------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void door_move(struct shm *c, int rank)
{
    uint32_t *door = &c->head->door[rank];
    __atomic_fetch_add(door, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, door, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void door_sleep(struct shm *c, uint32_t seen, int64_t ns)
{
    if (ns <= 0) return;
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    syscall(SYS_futex, &c->head->door[c->base.rank], FUTEX_WAIT, seen, &t, NULL, 0);
}

static struct shm_slot *slot_of(struct shm *c, int src, int dst, enum comm_channel channel)
{
    return &c->slots[((int64_t)dst * c->base.n_ranks + src) * CHANNEL_N + channel];
}

/* A delay that is a function of the message alone (splitmix64), so that a seed replays. */
static int64_t delay_ns(const struct shm *c, const struct shm_op *op)
{
    if (!c->delay_max_us) return 0;
    uint64_t z = c->delay_seed +
                 0x9e3779b97f4a7c15u *
                     (op->send_number * 65536 +
                      (uint64_t)(c->base.rank * 256 + op->x.send_to * 4 + (int)op->x.channel) + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (int64_t)(z % (uint64_t)(c->delay_max_us * 1000 + 1));
}

/* seqgang and the other ranks read this while we write: each number on its own is right. */
static void lastop_write(struct shm *c, const struct shm_op *op)
{
    struct rank_lastop *l = &c->head->lastop[c->base.rank];
    int peer = op->x.recv_from >= 0 ? op->x.recv_from : op->x.send_to;
    __atomic_store_n(&l->step, op->where.step, __ATOMIC_RELAXED);
    __atomic_store_n(&l->layer, op->where.layer, __ATOMIC_RELAXED);
    __atomic_store_n(&l->hop, op->where.hop, __ATOMIC_RELAXED);
    __atomic_store_n(&l->purpose, (int32_t)op->x.purpose, __ATOMIC_RELAXED);
    __atomic_store_n(&l->peer, peer, __ATOMIC_RELAXED);
    __atomic_fetch_add(&l->n_ops, 1, __ATOMIC_RELEASE);
}

/* "step 12, layer 3, hop 1: rank 2" */
static void where_print(char *out, size_t size, const struct comm_where *w, int rank)
{
    int n = snprintf(out, size, "step %lld", (long long)w->step);
    if (w->layer >= 0) n += snprintf(out + n, size - (size_t)n, ", layer %d", w->layer);
    if (w->hop >= 0) n += snprintf(out + n, size - (size_t)n, ", hop %d", w->hop);
    snprintf(out + n, size - (size_t)n, ": rank %d", rank);
}

/* ---- moving messages ------------------------------------------------------------------------- */

/* Puts the message into its slot if the one before it has been taken. */
static void send_try(struct shm *c, struct shm_op *op)
{
    struct shm_slot *s = slot_of(c, c->base.rank, op->x.send_to, op->x.channel);
    uint64_t acked = __atomic_load_n(&s->acked, __ATOMIC_ACQUIRE);
    if (acked >= op->send_number) {
        op->send_done = true;
        ledger_sent(&c->base.ledger, op->x.purpose, op->x.send_size);
        return;
    }
    uint64_t posted = __atomic_load_n(&s->posted, __ATOMIC_RELAXED); /* only we write it */
    if (posted == op->send_number || acked != op->send_number - 1) return;
    int64_t delay = delay_ns(c, op);
    s->offset = op->x.send_size ? (const char *)op->x.send - c->base.segment : 0;
    s->size = op->x.send_size;
    s->purpose = (int32_t)op->x.purpose;
    s->visible_ns = delay ? now_ns() + delay : 0;
    __atomic_store_n(&s->posted, op->send_number, __ATOMIC_RELEASE);
    door_move(c, op->x.send_to);
}

/* Copies the message if it is there; *wake_ns: when one that is under way will be visible. */
static int recv_try(struct shm *c, struct shm_op *op, int64_t *wake_ns, struct err *e)
{
    int peer = op->x.recv_from;
    struct shm_slot *s = slot_of(c, peer, c->base.rank, op->x.channel);
    if (__atomic_load_n(&s->posted, __ATOMIC_ACQUIRE) != op->recv_number ||
        __atomic_load_n(&s->acked, __ATOMIC_RELAXED) != op->recv_number - 1)
        return 0;
    if (s->visible_ns && s->visible_ns > now_ns()) {
        if (s->visible_ns < *wake_ns) *wake_ns = s->visible_ns;
        return 0;
    }
    char at[128];
    if (s->size != op->x.recv_size || s->purpose != (int32_t)op->x.purpose) {
        where_print(at, sizeof at, &op->where, c->base.rank);
        return err_set(
            e, ERR_PEER, "%s expects %lld bytes of %s from rank %d, which sends %lld of %s", at,
            (long long)op->x.recv_size, purpose_name(op->x.purpose), peer, (long long)s->size,
            s->purpose >= 0 && s->purpose < PURPOSE_N ? purpose_name(s->purpose) : "?");
    }
    if (s->offset < 0 || s->offset > c->base.segment_size - s->size)
        return err_set(e, ERR_PEER, "rank %d sends %lld bytes at %lld of its segment of %lld", peer,
                       (long long)s->size, (long long)s->offset, (long long)c->base.segment_size);
    if (s->size)
        memcpy(op->x.recv, c->segments + peer * c->segment_stride + s->offset, (size_t)s->size);
    __atomic_store_n(&s->acked, op->recv_number, __ATOMIC_RELEASE);
    door_move(c, peer);
    op->recv_done = true;
    ledger_received(&c->base.ledger, op->x.purpose, op->x.recv_size);
    return 0;
}

static int progress(struct shm *c, int64_t *wake_ns, struct err *e)
{
    for (int i = 0; i < c->n_ops; i++) {
        struct shm_op *op = &c->op[i];
        if (!op->live) continue;
        if (!op->send_done) send_try(c, op);
        if (!op->recv_done && recv_try(c, op, wake_ns, e)) return -1;
    }
    return 0;
}

static int shm_sendrecv(struct comm *base, const struct comm_xfer *x, struct comm_ticket *t,
                        struct err *e)
{
    struct shm *c = (struct shm *)base;
    if (x->send_to >= 0 && x->send_size)
        assert((const char *)x->send >= base->segment &&
               (const char *)x->send + x->send_size <= base->segment + base->segment_size);
    int i = 0;
    while (i < N_OPS && c->op[i].live) i++;
    assert(i < N_OPS); /* a caller that never waits */
    struct shm_op *op = &c->op[i];
    *op = (struct shm_op){.live = true, .x = *x, .where = base->where};
    op->send_done = x->send_to < 0;
    op->recv_done = x->recv_from < 0;
    if (!op->send_done) op->send_number = ++c->n_sent[x->send_to][x->channel];
    if (!op->recv_done) op->recv_number = ++c->n_received[x->recv_from][x->channel];
    if (c->n_ops <= i) c->n_ops = i + 1;
    t->slot = i;
    lastop_write(c, op);
    if (!op->send_done) send_try(c, op);
    return 0;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int aborted(struct shm *c, const struct shm_op *op, struct err *e)
{
    char at[128];
    int32_t by = __atomic_load_n(&c->head->abort_rank, __ATOMIC_RELAXED);
    where_print(at, sizeof at, &op->where, c->base.rank);
    if (by >= 0)
        return err_set(e, ERR_ABORTED, "%s stopped in %s: rank %d is gone", at,
                       purpose_name(op->x.purpose), by);
    return err_set(e, ERR_ABORTED, "%s stopped in %s, as told", at, purpose_name(op->x.purpose));
}

static int timed_out(struct shm *c, const struct shm_op *op, struct err *e)
{
    char at[128], there[128];
    int peer = op->recv_done ? op->x.send_to : op->x.recv_from;
    const struct rank_lastop *l = &c->head->lastop[peer];
    struct comm_where w = {__atomic_load_n(&l->step, __ATOMIC_RELAXED),
                           __atomic_load_n(&l->layer, __ATOMIC_RELAXED),
                           __atomic_load_n(&l->hop, __ATOMIC_RELAXED)};
    bool started = __atomic_load_n(&l->n_ops, __ATOMIC_ACQUIRE) > 0;
    where_print(at, sizeof at, &op->where, c->base.rank);
    where_print(there, sizeof there, &w, peer);
    return err_set(e, ERR_TIMEOUT, "%s waited %lld ms for rank %d to %s %s (%s%s)", at,
                   (long long)c->hop_timeout_ms, peer, op->recv_done ? "take" : "send",
                   purpose_name(op->x.purpose), started ? "last seen at " : "never seen: ", there);
}

static int wait_op(struct shm *c, struct shm_op *op, int64_t start_ns, struct err *e)
{
    int64_t deadline_ns = start_ns + c->hop_timeout_ms * 1000000;
    for (int64_t round = 0;; round++) {
        uint32_t door = __atomic_load_n(&c->head->door[c->base.rank], __ATOMIC_SEQ_CST);
        int64_t wake_ns = deadline_ns;
        if (progress(c, &wake_ns, e)) return -1;
        if (op->send_done && op->recv_done) return 0;
        if (__atomic_load_n(&c->head->abort, __ATOMIC_ACQUIRE)) return aborted(c, op, e);
        if (round < SPINS) {
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();
#endif
        } else if (round < SPINS + YIELDS) {
            sched_yield();
        } else {
            int64_t now = now_ns();
            if (now >= deadline_ns) return timed_out(c, op, e);
            door_sleep(c, door, wake_ns - now);
        }
    }
}

static int shm_wait(struct comm *base, struct comm_ticket *t, struct err *e)
{
    struct shm *c = (struct shm *)base;
    struct shm_op *op = &c->op[t->slot];
    assert(op->live);
    int64_t start_ns = now_ns();
    int rc = wait_op(c, op, start_ns, e);
    base->ledger.wait_us += (now_ns() - start_ns) / 1000;
    if (rc) return -1;
    lastop_write(c, op);
    op->live = false;
    while (c->n_ops && !c->op[c->n_ops - 1].live) c->n_ops--;
    t->slot = -1;
    return 0;
}

const struct comm_ops comm_shm = {
    .name = "shm",
    .id = TRANSPORT_SHM,
    .listen = shm_listen,
    .connect = shm_connect,
    .sendrecv = shm_sendrecv,
    .wait = shm_wait,
    .close = shm_close,
};
