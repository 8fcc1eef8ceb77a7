/* fence.h: keeps an attempt that seqd has given up from publishing checkpoints. It may run on when
 * its node has lost seqd alone, while a later attempt of the job runs on another node that shares
 * the job's directory (seqw --shared).
 *
 *   <job_dir>/epoch   the newest epoch whose attempt began here, as text
 *
 * An attempt first raises the fence, and then looks for the newest checkpoint. To raise it means
 * to set `epoch`, and then to move aside every step-N.eE.tmp of an older epoch E. An attempt that
 * saves first makes its .tmp directory, and then checks the fence. So for each checkpoint of an
 * older attempt one of three cases holds: it was published before the fence was raised, its .tmp
 * directory was moved aside, so that the rename that would publish it fails, or the check finds
 * the newer epoch.
 *
 * `epoch` is replaced only by link and rename, and no lock is used, so that this holds on a network
 * file system, too. tested: tests/engine/test_fence.c */
#ifndef SEQD_CKPT_FENCE_H
#define SEQD_CKPT_FENCE_H

#include <stdint.h>
#include "api/core/err.h"

/* Raises the fence for the attempt of this epoch. Fails with ERR_ABORTED if an attempt of a later
 * epoch has raised it. Other failures are those of err_errno. */
int fence_raise(const char *job_dir, int64_t epoch, struct err *e);
/* Fails with ERR_ABORTED if an attempt of a later epoch has raised the fence, and with ERR_IO if
 * the file is not there, as when another file system or none is mounted there. */
int fence_check(const char *job_dir, int64_t epoch, struct err *e);

#endif
