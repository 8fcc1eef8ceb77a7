/* token_file.h: writes the token that seqd --dev makes for its own user to STATE/token (0600), and
 * a context for seqctl (api/core/context.h). */
#ifndef SEQD_DAEMON_ACCESS_TOKEN_FILE_H
#define SEQD_DAEMON_ACCESS_TOKEN_FILE_H

#include "daemon/access/auth.h"

/* Keeps the file's token if it is valid and an admin's. Otherwise makes an admin's token that does
 * not expire. url is the address of REST; if it is NULL, no context is written. A context that
 * cannot be written is only logged. Fails as auth_make does, or with ERR_IO or ERR_NO_SPACE, and
 * the error names the file. */
int token_file_write(struct auth *a, const char *state_dir, const char *url, struct err *e);

#endif
