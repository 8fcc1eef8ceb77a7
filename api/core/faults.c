/* faults.c: keeps the first FAULTS errors and counts all of them. */
#include "api/core/faults.h"

#include <stddef.h>

void faults_add(struct faults *f, const struct err *e)
{
    if (f->n < FAULTS) f->fault[f->n] = *e;
    f->n++;
}

int faults_pass(struct faults *f, const struct err *e)
{
    if (!f) return -1;
    faults_add(f, e);
    return 0;
}

int faults_kept(const struct faults *f)
{
    return f->n < FAULTS ? f->n : FAULTS;
}
