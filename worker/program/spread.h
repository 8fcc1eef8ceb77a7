/* spread.h: the compiler of switches: a section whose values are rows of a grid [space, time] is
 * written as if one rank held all of it; SWITCH operations are placed where an operation sees rows
 * along the dimension that its input is spread along. Inside worker/family: family_write() calls
 * it. */
#ifndef SEQD_PROGRAM_SPREAD_H
#define SEQD_PROGRAM_SPREAD_H

#include "worker/program/program.h"

/* The operations that may be spread apart from each other. */
enum spread_stage {
    SPREAD_OPERATIONS, /* each may be spread along another dimension */
    SPREAD_SECTION     /* all of a section: the residual is switched */
};

/* Values on ROWS_T may become values on ROWS_ALT, and SWITCHes are added, so that the fewest
 * elements move and then with the fewest switches (label.h). The section's input and its result
 * stay on ROWS_T: a switched result takes over the name and the keep_id of the value that was the
 * result. Both directions of a switch move the same number of elements, whatever the grid and the
 * number of ranks: one placement is the best for all grids and numbers of ranks. A switch stands
 * right after the operation that writes its input. */
void prog_spread(struct program *p, enum spread_stage stage);

#endif
