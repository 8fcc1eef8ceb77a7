/* resident.h: the memory of this process, as the kernel counts it (/proc/self/status and pagemap),
 * divided so that it can be compared with a plan.
 *
 * A rank's own memory is its arena, its segment of the memory that the node's ranks share, stacks
 * and libc. Its resident size (top, peak_rss) is larger. A receiver copies straight out of the
 * sender's segment, so pages of other ranks' segments count too, though each exists once and is in
 * its owner's plan. Pages of files also count: the program, its libraries, prepared data. */
#ifndef SEQD_RANK_RESIDENT_H
#define SEQD_RANK_RESIDENT_H

#include <stdint.h>

struct resident {
    int64_t own;         /* bytes: anonymous pages and the own segment */
    int64_t other_ranks; /* bytes of pages of other ranks' segments */
    int64_t files;
    int64_t peak; /* the largest sum of the three members above since the process began */
};
/* Reads the sizes. segment: this rank's own, of whole pages; NULL: it has none. A size that
 * the kernel does not tell is 0. */
void resident_read(const void *segment, int64_t size, struct resident *out);

#endif
