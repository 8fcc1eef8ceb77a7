/* heap.h: every allocation of this process is counted: bytes that live now, and the most since a
 * mark. */
#ifndef SEQD_PAPER_HEAP_H
#define SEQD_PAPER_HEAP_H

#include <stdint.h>

int64_t heap_live(void);
void heap_mark(void);
int64_t heap_most(void);

#endif
