/* digests.h: compares the files of a checkpoint with its manifest, hashing large files in
 * parallel. tested: tests/engine/test_ckpt.c */
#ifndef SEQD_CKPT_DIGESTS_H
#define SEQD_CKPT_DIGESTS_H

#include "api/core/manifest.h"

/* Checks as manifest_check does with MANIFEST_DIGESTS. The error is that of the manifest's first
 * damaged file. */
int digests_check(struct manifest *m, const char *dir, struct err *e);

#endif
