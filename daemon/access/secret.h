/* secret.h: the one secret of a state directory, and the keys that follow from it.
 *
 * The key of an attempt lets its ranks know each other. It is HMAC-SHA256(secret, job, epoch): the
 * same when an ASSIGN is sent again by a restarted seqd, never stored beside the job, and of no use
 * for any other attempt. It goes to agents and ranks and to no log, event or REST answer. */
#ifndef SEQD_DAEMON_ACCESS_SECRET_H
#define SEQD_DAEMON_ACCESS_SECRET_H

#include <stdint.h>
#include "api/core/err.h"
#include "api/core/rank.h"

#define SECRET_SIZE 32

/* Reads <state>/secret, or makes it of random bytes (0600, durable) the first time.
 * fails: ERR_CORRUPT when it is shorter, ERR_TOO_LARGE when it is longer, ERR_INVALID when others
 * may read it or it is no file, ERR_NO_SPACE, ERR_IO. */
int secret_open(const char *state_dir, unsigned char out[SECRET_SIZE], struct err *e);
void secret_attempt_key(const unsigned char secret[SECRET_SIZE], int64_t job, int64_t epoch,
                        unsigned char out[RANK_KEY_SIZE]);

#endif
