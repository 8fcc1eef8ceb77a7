/* npy.h: the header of a NumPy array file, versions 1 to 3. */
#ifndef SEQD_DATA_NPY_H
#define SEQD_DATA_NPY_H

#include "worker/data/ids.h"

struct npy {
    struct ids_type type;
    int64_t n; /* numbers in the array */
};

/* Parses the dictionary of the header, which has size bytes of text. It is a Python literal with
 * the keys 'descr', 'fortran_order' and 'shape' and no other key. Fails with ERR_CORRUPT for any
 * other text. Fails with ERR_INVALID if the array is not one-dimensional, or if its elements are
 * not integers. */
int format_npy_parse(const char *text, size_t size, struct npy *out, struct err *e);

#endif
