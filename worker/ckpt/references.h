/* references.h: the file of the references of answers (worker/train/prefer.h). A job computes them
 * before its first step, and keeps them beside its checkpoints and in each of them, because they
 * cannot be computed again from later weights.
 *
 * DIR/references.bin, all numbers little-endian:
 *   char[16]      "seqd references" and a NUL
 *   u64           version, 1
 *   u64           number of references, one for each document of data.train and eval.data
 *   char[80]      id of the prepared data, padded with NULs
 *   char[72]      digest of the base (worker/hf/base_id.h), or "" if it is not known; padded
 *   char[72]      SHA-256 of the references as hex digits, padded with NULs
 *   f64 [number]  log-probability of each answer; NaN if no step and no evaluation draws the
 *                 document */
#ifndef SEQD_CKPT_REFERENCES_H
#define SEQD_CKPT_REFERENCES_H

#include <stdint.h>
#include <stdbool.h>
#include "api/core/err.h"
#include "api/core/sha256.h"

#define REFERENCES_FILE "references.bin"

struct references {
    char data_id[80], base[SHA256_HEX];
    int64_t n;
    double *x; /* [n], borrowed */
};

/* Writes the file into dir, and syncs it. Replaces the file if it exists. Fails with ERR_IO or
 * ERR_NO_SPACE. */
int references_write(const char *dir, const struct references *r, struct err *e);
/* Reads the file of a directory into r->x. r has the id and the number of the job's data. Returns 1
 * if the file was read, and 0 if there is no file, or if the file is of other data. Unless any_base
 * is set, also returns 0 if the base of the file is not known to be r->base. Fails with ERR_CORRUPT
 * if the file is damaged, and with ERR_IO. The error names the file. */
int references_read(const char *dir, const struct references *r, bool any_base, struct err *e);

#endif
