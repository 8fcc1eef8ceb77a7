/* npy.h: the header of a NumPy array file, versions 1 to 3. */
#ifndef SEQD_DATA_NPY_H
#define SEQD_DATA_NPY_H

#include "worker/data/ids.h"

struct npy {
    struct ids_type type;
    int64_t n; /* numbers in the array */
};

/* Parses the dictionary of the header, which is size bytes of text: a Python literal with 'descr',
 * 'fortran_order' and 'shape' and no other key. Fails with ERR_CORRUPT for any other text, or with
 * ERR_INVALID for an array that is not one-dimensional or not of integers. */
int format_npy_parse(const char *text, size_t size, struct npy *out, struct err *e);

#endif
