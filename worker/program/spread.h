/* spread.h: the compiler of switches. A section whose values are rows of a grid [space, time] is
 * written as if one rank had all of it. This compiler places a SWITCH before an operation that
 * sees rows along the dimension along which its input is spread. It is meant for worker/family,
 * where family_write() calls it. */
#ifndef SEQD_PROGRAM_SPREAD_H
#define SEQD_PROGRAM_SPREAD_H

#include "worker/program/program.h"

/* The parts of a section that may be spread differently. */
enum spread_stage {
    SPREAD_OPERATIONS, /* each operation may be spread along another dimension */
    SPREAD_SECTION     /* a whole section; the residual stream is switched */
};

/* Turns values on ROWS_T into values on ROWS_ALT and adds SWITCHes, such that the fewest elements
 * move, and among such choices with the fewest switches (label.h). The section's input and its
 * result are always on ROWS_T: if the result is switched, the switched value takes over the name
 * and the keep_id of the value that was the result. Both directions of a switch move the same
 * number of elements, whatever the grid and the number of ranks are, so one placement is the best
 * for all grids and numbers of ranks. A switch is placed right after the operation that writes its
 * input. */
void prog_spread(struct program *p, enum spread_stage stage);

#endif
