/* npy_head.h: writes the head of a .npy file (format 1.0). numpy.load can read a file that
 * consists of this head and the bytes of the array. */
#ifndef SEQD_DATA_NPY_HEAD_H
#define SEQD_DATA_NPY_HEAD_H

#include <stdint.h>

/* Number of bytes of the head. It is a multiple of 64, as the format requires. */
#define NPY_HEAD 128

/* Writes the head. descr is "<f4" or "<f8". The array is a matrix in C order, or a vector if
 * cols is 0. */
void npy_head(char out[NPY_HEAD], const char *descr, int64_t rows, int64_t cols);

#endif
