/* token_file.h: writes the token of seqd --dev to STATE/token (0600). The token is for the user
 * who runs seqd. Also writes a context for seqctl (api/core/context.h). */
#ifndef SEQD_DAEMON_ACCESS_TOKEN_FILE_H
#define SEQD_DAEMON_ACCESS_TOKEN_FILE_H

#include "daemon/access/auth.h"

/* Keeps the token in the file if it is a valid token of an admin. Otherwise makes an admin's token
 * that does not expire. `url` is the address of REST. If it is NULL, no context is written. If a
 * context cannot be written, that is only logged. Fails as auth_make does. Also fails with ERR_IO
 * or ERR_NO_SPACE, and then the error names the file. */
int token_file_write(struct auth *a, const char *state_dir, const char *url, struct err *e);

#endif
