/* npy_head.h: writes the head of a .npy file (format 1.0), so that numpy.load reads the array
 * after it. */
#ifndef SEQD_DATA_NPY_HEAD_H
#define SEQD_DATA_NPY_HEAD_H

#include <stdint.h>

#define NPY_HEAD 128 /* bytes of the head, a multiple of 64, as the format requires */

/* Writes the head. descr is "<f4" or "<f8". The array is a matrix in C order, or a vector if cols
 * is 0. */
void npy_head(char out[NPY_HEAD], const char *descr, int64_t rows, int64_t cols);

#endif
