/* digests.h: the files of a checkpoint against its manifest, the large ones hashed at one time.
 * tested: tests/engine/test_ckpt.c */
#ifndef SEQD_CKPT_DIGESTS_H
#define SEQD_CKPT_DIGESTS_H

#include "api/core/manifest.h"

/* manifest_check by digests: it fails as that does, by the first file of the manifest that is
 * damaged. */
int digests_check(struct manifest *m, const char *dir, struct err *e);

#endif
