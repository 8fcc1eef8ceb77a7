/* heap.h: counts every allocation of this process. It returns the number of bytes that are
 * allocated now, and the largest such number since a mark. */
#ifndef SEQD_PAPER_HEAP_H
#define SEQD_PAPER_HEAP_H

#include <stdint.h>

int64_t heap_live(void);
void heap_mark(void);
int64_t heap_most(void);

#endif
