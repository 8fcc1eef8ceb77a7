/* spread.h: places the switches in a section. If the values of a section are rows of a grid
 * [space, time], the section is written as if one rank had all rows. This code then places a
 * SWITCH before each operation that sees rows along the dimension along which its input is spread.
 * family_write() of worker/family calls it. */
#ifndef SEQD_PROGRAM_SPREAD_H
#define SEQD_PROGRAM_SPREAD_H

#include "worker/program/program.h"

/* The part of a section that may be spread along a dimension other than the residual stream's. */
enum spread_stage {
    SPREAD_OPERATIONS, /* each operation may be spread along its own dimension */
    /* the whole section is spread along one dimension; the residual stream is switched */
    SPREAD_SECTION
};

/* Changes values on ROWS_T to values on ROWS_ALT, and adds SWITCHes. Chooses the switches such
 * that the smallest number of elements is moved. If several choices move equally many elements, it
 * makes the choice with the smallest number of switches (label.h). The input and the result of the
 * section are always on ROWS_T. If the result is switched, the switched value gets the name and
 * the keep_id of the old result. A switch moves the same number of elements in both directions,
 * for every grid and number of ranks. So one choice is the best for all grids and numbers of
 * ranks. A switch is placed right after the operation that writes its input. */
void prog_spread(struct program *p, enum spread_stage stage);

#endif
