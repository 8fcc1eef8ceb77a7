/* emu_copies.cc: copies that a thread begins and waits for (cp.async). In blocks with an even
 * index the bytes arrive when the thread waits for their group, and are NaN before that. In blocks
 * with an odd index they arrive immediately. A device may do either. */
#include "kernels/cuda/emu.h"
#include "kernels/cuda/emu_race.h"

#define THREADS 1024 /* largest number of threads of a block */
#define COPIES  512  /* largest number of copies of a thread that are under way */

struct copy {
    char *to;
    const char *from;
    int size, have;
    unsigned group;
};

static struct {
    int n;
    unsigned group; /* group that is being issued */
    struct copy of[COPIES];
} threads[THREADS];

static void arrive(const struct copy *c)
{
    memset(c->to, 0, (size_t)c->size);
    memcpy(c->to, c->from, (size_t)c->have);
}

void emu_copies_begin(void)
{
    for (int i = 0; i < THREADS; i++) threads[i].n = 0, threads[i].group = 0;
}

void emu_copy_async(void *to, const void *from, int size, int have)
{
    auto *t = &threads[emu_thread()];
    const struct copy c = {(char *)to, (const char *)from, size, have, t->group};
    if (t->n == COPIES) emu_fail("too many copies under way");
    if ((uintptr_t)to % (uintptr_t)size || (uintptr_t)from % (uintptr_t)size)
        emu_fail("a copy is not aligned");
    race_copy(to, (size_t)size, t->group + 1);
    if (emu_is_odd_block()) {
        arrive(&c);
        return;
    }
    memset(to, 0xff, (size_t)size);
    t->of[t->n++] = c;
}

void emu_copies_commit(void)
{
    threads[emu_thread()].group++;
}

void emu_copies_wait(int n)
{
    auto *t = &threads[emu_thread()];
    int left = 0;
    for (int i = 0; i < t->n; i++)
        if (t->of[i].group + (unsigned)n < t->group)
            arrive(&t->of[i]);
        else
            t->of[left++] = t->of[i];
    t->n = left;
    if (t->group > (unsigned)n) race_copied(t->group - (unsigned)n);
}
