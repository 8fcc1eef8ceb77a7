/* resident.h: reads the memory of this process as the kernel counts it (/proc/self/status and
 * pagemap), in parts that can be compared with a plan.
 *
 * A rank's own memory is its arena, its segment of the memory that the node's ranks share,
 * stacks and libc. Its resident size (top, peak_rss) is larger for two reasons. First, a
 * receiver copies directly out of the sender's segment, so the kernel counts pages of other
 * ranks' segments as well. Each of these pages exists only once, and is in the plan of the
 * rank that owns the segment. Second, pages of files are counted as well (the program, its
 * libraries, prepared data). */
#ifndef SEQD_RANK_RESIDENT_H
#define SEQD_RANK_RESIDENT_H

#include <stdint.h>

struct resident {
    int64_t own;         /* number of bytes of anonymous pages and of pages of this rank's own
                          * segment */
    int64_t other_ranks; /* number of bytes of pages that belong to the segments of other ranks */
    int64_t files;
    int64_t peak; /* largest sum of the three members above since the process began */
};
/* Reads the sizes. segment is this rank's own segment, whose size is a multiple of the page
 * size. `segment` is NULL if the rank has no segment. If the kernel does not report a size,
 * the size is 0. */
void resident_read(const void *segment, int64_t size, struct resident *out);

#endif
