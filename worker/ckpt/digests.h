/* digests.h: compares the files of a checkpoint with its manifest, and hashes the large ones at one
 * time. tested: tests/engine/test_ckpt.c */
#ifndef SEQD_CKPT_DIGESTS_H
#define SEQD_CKPT_DIGESTS_H

#include "api/core/manifest.h"

/* Checks a manifest as manifest_check by digests does. It fails as that does, by the first file of
 * the manifest that is damaged. */
int digests_check(struct manifest *m, const char *dir, struct err *e);

#endif
