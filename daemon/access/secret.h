/* secret.h: the one secret of a state directory, and the keys that follow from it.
 *
 * With the key of an attempt each rank of the attempt proves to the other ranks that it belongs to
 * the attempt. The key is HMAC-SHA256(secret, job, epoch), so a restarted seqd computes the same
 * key for the ASSIGN that it sends again. The key is never stored with the job and serves no other
 * attempt. It is sent to agents and ranks, but is in no log, event or REST answer. */
#ifndef SEQD_DAEMON_ACCESS_SECRET_H
#define SEQD_DAEMON_ACCESS_SECRET_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

#define SECRET_SIZE 32

/* Reads <state>/secret. If that file does not exist, makes it durably of random bytes, with mode
 * 0600. Fails with ERR_CORRUPT if the file is shorter than a secret, and with ERR_TOO_LARGE if it
 * is longer. Fails with ERR_INVALID if other users may read the file or if it is not a regular
 * file. Also fails with ERR_NO_SPACE or ERR_IO. */
int secret_open(const char *state_dir, unsigned char out[SECRET_SIZE], struct err *e);
void secret_attempt_key(const unsigned char secret[SECRET_SIZE], int64_t job, int64_t epoch,
                        unsigned char out[RANK_KEY_SIZE]);

#endif
