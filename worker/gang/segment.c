/* segment.c: makes the segment in a memfd, and wakes the ranks that wait in it. */
#include "worker/gang/segment.h"

#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "api/core/assert.h"

enum { SHM_SIZE = 4096 };
static_assert(sizeof(struct shm_head) <= SHM_SIZE, "the head is one page");

int segment_open(struct gang_segment *s, int n_ranks, struct err *e)
{
    s->fd = memfd_create("seqd-gang", MFD_CLOEXEC);
    if (s->fd < 0) return err_errno(e, "memfd_create");
    if (ftruncate(s->fd, SHM_SIZE) < 0) return err_errno(e, "size of the shared segment");
    void *p = mmap(NULL, SHM_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, s->fd, 0);
    if (p == MAP_FAILED) return err_errno(e, "map the shared segment");
    s->n_ranks = n_ranks;
    s->head = p;
    s->head->n_ranks = (uint32_t)n_ranks;
    s->head->abort_rank = -1;
    s->head->magic = SHM_MAGIC;
    return 0;
}

void segment_close(struct gang_segment *s)
{
    if (s->head) munmap(s->head, SHM_SIZE);
    if (s->fd >= 0) close(s->fd);
    *s = SEGMENT_NONE;
}

void segment_abort(struct gang_segment *s, int blame)
{
    s->head->abort_rank = blame;
    __atomic_store_n(&s->head->abort, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < s->n_ranks; i++) {
        __atomic_add_fetch(&s->head->door[i], 1, __ATOMIC_SEQ_CST);
        syscall(SYS_futex, &s->head->door[i], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    }
}
