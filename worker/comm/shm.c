/* The shared-memory transport, for ranks of one host. They share one memfd:
 *
 *   page 0                                  struct shm_head (api/core/rank.h), made by seqgang
 *   shm_slot [n_local dst][n_local src][CHANNEL_N][DEPTH]
 *   n_local segments of host_size bytes, each page-aligned
 *
 * If the ranks' devices have memory of their own, messages of tensors are in segments of that
 * memory. Every rank attaches the other ranks' segments by the handles in their blobs. Messages of
 * tensors use the slots too. The receiver's device copies the message, and the receiver
 * acknowledges the message after the copy.
 *
 * A slot is a mailbox for one message. DEPTH slots are used cyclically, so that a sender can have
 * DEPTH messages under way while it computes. The sender writes the offset of the message's bytes
 * in its own segment and then sets `posted` to the message's number. The receiver copies the bytes
 * once, straight to their destination, and then sets `acked` to the message's number. After each
 * of these two writes, the rank that has written wakes the other rank if that rank sleeps.
 * Messages are numbered from 1 for each (sender, receiver, channel). Message k uses slot k mod
 * DEPTH, once message k - DEPTH has been received.
 *
 * Doors are the page's futex words, one for each rank of the attempt. A rank sleeps on its own
 * door (comm.c). */
#include "worker/comm/comm.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/choices.h"
#include "api/core/mem.h"
#include "worker/comm/endpoint.h"

enum { PAGE_SIZE = 4096, DEPTH = 8 };
static_assert(sizeof(struct shm_head) <= PAGE_SIZE, "the head is one page");

struct shm_slot {
    /* atomic: number of the last message put into this slot; written by the sender */
    uint64_t posted;
    int64_t offset; /* offset of the message's bytes in the sender's segment */
    int64_t size;
    /* time (injected delay) from which the message is visible; 0 for immediately */
    int64_t visible_ns;
    int32_t purpose, pad;
    uint64_t acked; /* atomic: number of the last message copied out; written by the receiver */
    char fill[16];
};
static_assert(sizeof(struct shm_slot) == 64, "one cache line");

struct shm {
    int memfd;
    void *map;
    int64_t map_size;
    bool owns_map;
    struct shm_slot *slots;
    char *segments;
    /* bytes from the start of one segment to the start of the next segment */
    int64_t segment_stride;
    /* peers' segments in device memory; NULL if a peer has no segment in device memory */
    char *device[JOB_MAX_RANKS];
};

/* ---- open and close -------------------------------------------------------------------------- */

static int64_t slots_size(int n_ranks)
{
    return mem_round((int64_t)n_ranks * n_ranks * CHANNEL_N * DEPTH *
                         (int64_t)sizeof(struct shm_slot),
                     PAGE_SIZE);
}

int64_t comm_shm_size(int n_ranks, int64_t segment_size)
{
    return PAGE_SIZE + slots_size(n_ranks) + n_ranks * mem_round(segment_size, PAGE_SIZE);
}

/* Maps the memfd. Every rank grows the memfd by writing its last byte, which never shrinks the
 * memfd. So the order of ranks does not matter, and a rank with a different plan cannot remove
 * pages that other ranks use. No rank uses the segments before shm_connect has compared the
 * sizes. */
static int map_open(struct comm *c, const struct comm_options *o, struct err *e)
{
    struct shm *s = c->shm;
    struct stat st;
    s->map_size = comm_shm_size(c->n_local, c->host_size);
    if (pwrite(s->memfd, "", 1, s->map_size - 1) != 1)
        return err_errno(e, "grow the shared segment to %lld bytes", (long long)s->map_size);
    if (fstat(s->memfd, &st)) return err_errno(e, "fstat of the shared segment");
    c->blob.memfd_dev = st.st_dev;
    c->blob.memfd_ino = st.st_ino;
    s->map = o->map;
    if (!s->map) {
        void *p = mmap(NULL, (size_t)s->map_size, PROT_READ | PROT_WRITE, MAP_SHARED, s->memfd, 0);
        if (p == MAP_FAILED)
            return err_errno(e, "map %lld bytes of shared segment", (long long)s->map_size);
        s->map = p;
        s->owns_map = true;
    }
    const struct shm_head *head = s->map;
    if (head->magic != SHM_MAGIC || head->n_ranks != (uint32_t)o->n_ranks)
        return err_set(e, ERR_PEER,
                       "the shared segment is not one for %d ranks (magic %08x, %u ranks)",
                       o->n_ranks, head->magic, head->n_ranks);
    return 0;
}

static bool shm_usable(const struct comm *me, int peer, enum comm_memory memory, struct err *why)
{
    (void)memory;
    if (comm_is_local(me, peer)) return true;
    err_field(why, ERR_UNSUPPORTED, "parallel.transport",
              "no transport connects ranks %d and %d: \"shm\" needs both on one host (use "
              "\"auto\")",
              me->rank, peer);
    return false;
}

static int segment_open(struct comm *c, const struct comm_options *o, struct err *e)
{
    struct shm *s = calloc(1, sizeof *s);
    if (!s) return err_set(e, ERR_IO, "no memory for the shared segment");
    c->shm = s;
    s->memfd = fcntl(o->memfd, F_DUPFD_CLOEXEC, 3);
    if (s->memfd < 0) return err_errno(e, "duplicate the shared segment's descriptor %d", o->memfd);
    if (map_open(c, o, e)) return -1;
    s->slots = (struct shm_slot *)((char *)s->map + PAGE_SIZE);
    s->segments = (char *)s->map + PAGE_SIZE + slots_size(c->n_local);
    s->segment_stride = mem_round(c->host_size, PAGE_SIZE);
    c->head = s->map;
    c->host = s->segments + (c->rank - c->first_local) * s->segment_stride;
    if (!c->be) c->segment = c->host;
    if (!c->be || !c->segment || o->transport == TRANSPORT_NCCL) return 0;
    c->blob.shared = !c->be->ops->share(c->be, c->segment, &c->blob.handle, &c->why_not);
    return 0;
}

static void shm_close(struct comm *c)
{
    struct shm *s = c->shm;
    if (!s) return;
    for (int p = 0; p < c->n_ranks; p++)
        if (s->device[p]) c->be->ops->detach(c->be, s->device[p]);
    if (s->owns_map) munmap(s->map, (size_t)s->map_size);
    if (s->memfd >= 0) close(s->memfd);
    free(s);
}

static int shm_connect(struct comm *c, const struct comm_blob *all, struct err *e)
{
    const struct comm_blob *own = &c->blob;
    for (int p = 0; p < c->n_ranks; p++) {
        const struct comm_blob *b = &all[p];
        if (c->via[MEMORY_HOST][p] != &comm_shm) continue;
        if (strcmp(b->boot_id, own->boot_id))
            return err_set(e, ERR_UNSUPPORTED,
                           "no transport connects ranks %d and %d: \"shm\" needs both on one host",
                           c->rank, p);
        if (b->memfd_dev != own->memfd_dev || b->memfd_ino != own->memfd_ino)
            return err_set(
                e, ERR_UNSUPPORTED,
                "no transport connects ranks %d and %d: they hold different shared segments",
                c->rank, p);
        if (!c->be || !c->segment || c->via[MEMORY_TENSORS][p] != &comm_shm) continue;
        if (!own->shared || !b->shared)
            return err_field(e, ERR_UNSUPPORTED, "parallel.transport",
                             "ranks %d and %d have no GPU each, and cannot share memory: %s",
                             c->rank, p, own->shared ? "the other one says why" : c->why_not.text);
        c->shm->device[p] = c->be->ops->attach(c->be, &b->handle, e);
        if (!c->shm->device[p]) return -1;
    }
    return 0;
}

/* ---- doors ----------------------------------------------------------------------------------- */

/* Bit 0 of a door is set while the door's rank sleeps or is about to sleep. The other bits count
 * how often the door was moved. */
enum { DOOR_SLEEPS = 1, DOOR_ONE = 2 };

void shm_door_move(struct comm *c, int rank)
{
    uint32_t *door = &c->head->door[rank];
    if (__atomic_fetch_add(door, DOOR_ONE, __ATOMIC_SEQ_CST) & DOOR_SLEEPS)
        syscall(SYS_futex, door, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* Wakes a rank if it sleeps. Call it after a sequentially consistent store. A rank sets the bit of
 * its door before it sleeps, and then looks at its tickets once more. So either this function sees
 * the bit, or the rank sees the store. While all ranks are awake, this function neither writes a
 * door nor makes a system call. */
static void wake(struct comm *c, int rank)
{
    if (__atomic_load_n(&c->head->door[rank], __ATOMIC_SEQ_CST) & DOOR_SLEEPS)
        shm_door_move(c, rank);
}

uint32_t shm_door_watch(struct comm *c)
{
    return __atomic_or_fetch(&c->head->door[c->rank], DOOR_SLEEPS, __ATOMIC_SEQ_CST);
}

void shm_door_sleep(struct comm *c, uint32_t seen, int64_t ns)
{
    if (ns <= 0) return;
    struct timespec t = {ns / 1000000000, ns % 1000000000};
    syscall(SYS_futex, &c->head->door[c->rank], FUTEX_WAIT, seen, &t, NULL, 0);
}

void shm_door_leave(struct comm *c)
{
    __atomic_fetch_and(&c->head->door[c->rank], ~(uint32_t)DOOR_SLEEPS, __ATOMIC_RELAXED);
}

/* ---- moving messages ------------------------------------------------------------------------- */

static struct shm_slot *slot_of(struct comm *c, int src, int dst, enum comm_channel channel,
                                uint64_t number)
{
    int64_t s = src - c->first_local, d = dst - c->first_local;
    return &c->shm->slots[((d * c->n_local + s) * CHANNEL_N + channel) * DEPTH + number % DEPTH];
}

/* Returns the number of the message that used the slot before message `number`, or 0 if message
 * `number` is the slot's first. */
static uint64_t number_before(uint64_t number)
{
    return number > DEPTH ? number - DEPTH : 0;
}

static int64_t segment_size(const struct comm *c, const struct comm_op *op)
{
    return comm_on_device(c, op) ? c->segment_size : c->host_size;
}

/* Puts the message into its slot if the slot's previous message has been received. */
static bool shm_send_try(struct comm *c, struct comm_op *op)
{
    struct shm_slot *s = slot_of(c, c->rank, op->x.send_to, op->x.channel, op->send_number);
    uint64_t acked = __atomic_load_n(&s->acked, __ATOMIC_SEQ_CST);
    if (acked >= op->send_number) return true;
    uint64_t posted = __atomic_load_n(&s->posted, __ATOMIC_RELAXED); /* only we write it */
    if (posted == op->send_number || acked != number_before(op->send_number)) return false;
    const char *from = op->x.send, *segment = comm_on_device(c, op) ? c->segment : c->host;
    assert(!op->x.send_size ||
           (from >= segment && from + op->x.send_size <= segment + segment_size(c, op)));
    s->offset = op->x.send_size ? from - segment : 0;
    s->size = op->x.send_size;
    s->purpose = (int32_t)op->x.purpose;
    s->visible_ns = op->visible_ns;
    __atomic_store_n(&s->posted, op->send_number, __ATOMIC_SEQ_CST);
    wake(c, op->x.send_to);
    return false;
}

static int take(struct comm *c, const struct comm_op *op, const struct shm_slot *s, struct err *e)
{
    const int peer = op->x.recv_from;
    if (comm_on_device(c, op)) {
        c->be->ops->copy(c->be, op->x.recv, c->shm->device[peer] + s->offset, s->size);
        return c->be->ops->sync(c->be, e);
    }
    const char *segment = c->shm->segments + (peer - c->first_local) * c->shm->segment_stride;
    memcpy(op->x.recv, segment + s->offset, (size_t)s->size);
    return 0;
}

/* Copies the message if it has arrived. If the message is delayed, lowers *wake_ns to the time at
 * which it becomes visible. */
static int shm_recv_try(struct comm *c, struct comm_op *op, bool *done, int64_t *wake_ns,
                        struct err *e)
{
    int peer = op->x.recv_from;
    struct shm_slot *s = slot_of(c, peer, c->rank, op->x.channel, op->recv_number);
    if (__atomic_load_n(&s->posted, __ATOMIC_SEQ_CST) != op->recv_number ||
        __atomic_load_n(&s->acked, __ATOMIC_RELAXED) != number_before(op->recv_number))
        return 0;
    if (s->visible_ns && s->visible_ns > comm_now_ns()) {
        if (s->visible_ns < *wake_ns) *wake_ns = s->visible_ns;
        return 0;
    }
    if (comm_check_message(c, op, s->size, s->purpose, e)) return -1;
    if (s->offset < 0 || s->offset > segment_size(c, op) - s->size)
        return err_set(e, ERR_PEER, "rank %d sends %lld bytes at %lld of its segment of %lld", peer,
                       (long long)s->size, (long long)s->offset, (long long)segment_size(c, op));
    if (s->size && take(c, op, s, e)) return -1;
    __atomic_store_n(&s->acked, op->recv_number, __ATOMIC_SEQ_CST);
    wake(c, peer);
    *done = true;
    return 0;
}

const struct comm_ops comm_shm = {
    .name = "shm",
    .id = TRANSPORT_SHM,
    .usable = shm_usable,
    .open = segment_open,
    .connect = shm_connect,
    .send_try = shm_send_try,
    .recv_try = shm_recv_try,
    .close = shm_close,
};
