/* faults.h: collects all faults of an input, for readers that can continue after a fault.
 * A reader that gets NULL for its struct faults * stops at the first fault and returns it in its
 * struct err. */
#ifndef SEQD_CORE_FAULTS_H
#define SEQD_CORE_FAULTS_H

#include "api/core/err.h"

#define FAULTS 64 /* largest number of faults that are kept; later faults are dropped */

struct faults {
    int n; /* all faults, kept or not */
    struct err fault[FAULTS];
};

/* Adds *e. */
void faults_add(struct faults *f, const struct err *e);
/* Reports the fault *e. If f is NULL, returns -1, so that the reader stops. Otherwise adds the
 * fault to f and returns 0, so that the reader continues. */
int faults_pass(struct faults *f, const struct err *e);
/* Returns the number of kept faults. */
int faults_kept(const struct faults *f);

#endif
