/* secret.h: the one secret of a state directory, and the keys that follow from it.
 *
 * The key of an attempt lets its ranks know each other. It is HMAC-SHA256(secret, job, epoch), so
 * a restarted seqd that sends an ASSIGN again computes the same key. The key is never stored
 * beside the job and is of no use for any other attempt. It is sent to agents and ranks, and is in
 * no log, event or REST answer. */
#ifndef SEQD_DAEMON_ACCESS_SECRET_H
#define SEQD_DAEMON_ACCESS_SECRET_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

#define SECRET_SIZE 32

/* Reads <state>/secret. The first time, makes that file of random bytes, with mode 0600 and
 * durably. Fails with ERR_CORRUPT if the file is shorter than a secret, ERR_TOO_LARGE if it is
 * longer, ERR_INVALID if other users may read it or if it is not a regular file, ERR_NO_SPACE or
 * ERR_IO. */
int secret_open(const char *state_dir, unsigned char out[SECRET_SIZE], struct err *e);
void secret_attempt_key(const unsigned char secret[SECRET_SIZE], int64_t job, int64_t epoch,
                        unsigned char out[RANK_KEY_SIZE]);

#endif
