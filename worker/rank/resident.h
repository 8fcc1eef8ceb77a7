/* resident.h: reads the memory of this process as the kernel counts it (/proc/self/status and
 * pagemap), divided so that it can be compared with a plan.
 *
 * A rank's own memory is its arena, its segment of the memory that the node's ranks share, stacks
 * and libc. Its resident size (top, peak_rss) is larger for two reasons. A receiver copies
 * directly out of the sender's segment. So pages of other ranks' segments count as well, although
 * such a page exists only once and is in the plan of the rank that owns the segment. Pages of
 * files (the program, its libraries, prepared data) count as well. */
#ifndef SEQD_RANK_RESIDENT_H
#define SEQD_RANK_RESIDENT_H

#include <stdint.h>

struct resident {
    int64_t own;         /* bytes of anonymous pages and of this rank's own segment */
    int64_t other_ranks; /* bytes of pages of other ranks' segments */
    int64_t files;
    int64_t peak; /* the largest value that the sum of the three members above has had since the
                   * process began */
};
/* Reads the sizes. segment is this rank's own segment, which consists of whole pages, or NULL if
 * the rank has no segment. A size that the kernel does not report is 0. */
void resident_read(const void *segment, int64_t size, struct resident *out);

#endif
