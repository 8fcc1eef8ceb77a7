/* space.h: checks that disks have room for files before they are written. Other processes may take
 * the room meanwhile, so a write may fail for all that. tested: tests/engine/test_publish.c */
#ifndef SEQD_RANK_SPACE_H
#define SEQD_RANK_SPACE_H

#include <stdint.h>
#include "api/core/err.h"

/* Checks that the disk of the directory `dir` has room for `size` bytes, and that the disk of the
 * open directory `copy` has room for a copy of them. If both directories are on one disk, it must
 * have room for both. If `copy` is -1, there is no copy. `what` names the files in errors. Fails
 * with ERR_NO_SPACE, with the field output.path if only the copy does not fit. Otherwise fails as
 * err_errno does. */
int space_check(const char *what, const char *dir, int copy, int64_t size, struct err *e);
/* Adds the sizes of the regular files of a directory, without those of its subdirectories. Fails as
 * err_errno does. */
int space_of_files(const char *dir, int64_t *size, struct err *e);

#endif
