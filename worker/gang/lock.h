/* lock.h: the lock of an attempt's directory, which one seqgang holds until it ends. */
#ifndef SEQD_GANG_LOCK_H
#define SEQD_GANG_LOCK_H

#include "api/core/err.h"

/* Takes the lock, and checks that no gang ran in this directory before. Returns the descriptor of
 * the lock, which the caller owns. Fails with ERR_CONFLICT if a gang runs here or ran here, and
 * otherwise as err_errno does. */
int lock_take(const char *dir, struct err *e);

#endif
