/* digests.h: compares the files of a checkpoint with its manifest. Large files are hashed in
 * parallel. tested: tests/engine/test_ckpt.c */
#ifndef SEQD_CKPT_DIGESTS_H
#define SEQD_CKPT_DIGESTS_H

#include "api/core/manifest.h"

/* Makes the checks of manifest_check with MANIFEST_DIGESTS. If several files are damaged, the
 * error is about the damaged file that comes first in the manifest. */
int digests_check(struct manifest *m, const char *dir, struct err *e);

#endif
