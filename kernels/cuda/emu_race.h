/* emu_race.h: finds accesses to shared memory that no synchronisation orders. It is built only with
 * SEQD_EMU_RACE, and then the kernels' sources are compiled with -fsanitize=thread, whose calls
 * come here instead of to the sanitizer's library (tests/planted.sh). Without SEQD_EMU_RACE the
 * functions are empty.
 *
 * A thread of the block keeps a clock for every thread, up to which it knows that thread's
 * accesses. Barriers pass the clocks on. An access must come after the last write, and a write also
 * after the reads since then. Asynchronous work counts as threads of its own: the copies of a
 * thread (cp.async), the products of a warp, and each copy of a strip. A thread knows that such
 * work is over when it has waited for it.
 *
 * A second set of clocks has the writes that are visible to products and to copies of strips,
 * which access memory by the asynchronous proxy. A fence makes all that the thread knows
 * visible. A third set has the reads that are known to be over. A shuffle, a vote or a product
 * of a warp orders the reads of its lanes before it, because each lane needs the others to
 * continue, but it does not make their writes visible. */
#ifndef SEQD_CUDA_EMU_RACE_H
#define SEQD_CUDA_EMU_RACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef SEQD_EMU_RACE
#define RACE_HOOK(declaration) declaration;
#else
#define RACE_HOOK(declaration)                                                                     \
    static inline declaration                                                                      \
    {                                                                                              \
    }
#endif

/* Called at the start of a block that has smem bytes of dynamic shared memory. */
RACE_HOOK(void race_begin(size_t smem))
/* The threads [from, to) that have not ended have met at a barrier. */
RACE_HOOK(void race_meet(int from, int to))
RACE_HOOK(void race_gone(int thread))
/* The lanes of the warp that begins at thread `from` have met at an instruction of the warp. */
RACE_HOOK(void race_meet_reads(int from))
/* Barriers that threads arrive at and wait for. race_over ends a phase. `of` is the barrier's
 * address. */
RACE_HOOK(void race_arrive(const void *of))
RACE_HOOK(void race_over(const void *of))
RACE_HOOK(void race_waited(const void *of))
/* A barrier in memory is made, and used by a thread. */
RACE_HOOK(void race_made(const void *barrier))
RACE_HOOK(void race_used(const void *barrier))
/* Writes by this thread that products will read, and the fence after them. */
RACE_HOOK(void race_put(const void *at, size_t size))
RACE_HOOK(void race_fence(void))
/* Copies of a thread. The clock of a copy is its group's, from 1 on. race_copied: all groups up to
 * this clock have been waited for. */
RACE_HOOK(void race_copy(const void *to, size_t size, unsigned clock))
RACE_HOOK(void race_copied(unsigned clock))
/* A copy of a strip, which barrier `of` counts. */
RACE_HOOK(void race_strip(const void *to, size_t size, const void *of))
/* A product of this warp reads shared memory. The clock is its batch's, from 1 on. race_multiplied:
 * this thread has waited for all batches up to this clock. */
RACE_HOOK(void race_operand(const void *at, size_t size, unsigned clock))
RACE_HOOK(void race_multiplied(unsigned clock))

#undef RACE_HOOK
#endif
