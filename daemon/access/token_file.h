/* token_file.h: the token of seqd --dev, for its own user: STATE/token (0600), and a context for
 * seqctl (api/core/context.h). */
#ifndef SEQD_DAEMON_ACCESS_TOKEN_FILE_H
#define SEQD_DAEMON_ACCESS_TOKEN_FILE_H

#include "daemon/access/auth.h"

/* Keeps the file's token if it is valid and an admin's. Otherwise makes an admin's token that does
 * not expire. url: the address of REST; NULL: no context is written. A context that cannot be
 * written is only logged. fails: ERR_IO and ERR_NO_SPACE naming the file; as auth_make. */
int token_file_write(struct auth *a, const char *state_dir, const char *url, struct err *e);

#endif
