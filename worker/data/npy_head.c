/* npy_head.c: prints the dictionary of dtype and shape, padded to NPY_HEAD bytes. */
#include "worker/data/npy_head.h"

#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"

void npy_head(char out[NPY_HEAD], const char *descr, int64_t rows, int64_t cols)
{
    char shape[48], text[NPY_HEAD];
    if (cols)
        snprintf(shape, sizeof shape, "(%lld, %lld)", (long long)rows, (long long)cols);
    else
        snprintf(shape, sizeof shape, "(%lld,)", (long long)rows);
    int n = snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                     descr, shape);
    assert(n > 0 && n < NPY_HEAD - 11);
    memset(out, ' ', NPY_HEAD);
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = NPY_HEAD - 10; /* bytes of the dictionary that follows, as a little-endian number */
    out[9] = 0;
    memcpy(out + 10, text, (size_t)n);
    out[NPY_HEAD - 1] = '\n';
}
