/* context.h: the token and the certificates that seqctl uses for a server. There is one private
 * file for each URL in $XDG_CONFIG_HOME/seqctl, or in ~/.config/seqctl if that variable is not an
 * absolute path. seqctl login and seqd --dev write such a file, so that seqctl needs no option for
 * the server. libc only. */
#ifndef SEQD_CORE_CONTEXT_H
#define SEQD_CORE_CONTEXT_H

#include <stddef.h>
#include "api/core/err.h"
#include "api/core/file.h"

#define CONTEXT_URL   512
#define CONTEXT_TOKEN 256
#define CONTEXT_CA    1024

struct server_context {
    char url[CONTEXT_URL];
    char token[CONTEXT_TOKEN];
    char ca[CONTEXT_CA]; /* file of certificates to trust; "" means the system's certificates */
};

/* Writes the path of the file of a URL's context, which need not exist. The file is one line of
 * JSON. Fails with ERR_INVALID if there is no home directory, and with ERR_TOO_LARGE for a long
 * URL. */
int context_file(const char *url, char out[FILE_PATH_SIZE], struct err *e);
/* Reads the context of a URL. Fails with ERR_NOT_FOUND if the URL has no context, with ERR_CORRUPT
 * if the file is damaged, and with ERR_TOO_LARGE if the URL is too long. Fails with ERR_INVALID if
 * there is no home directory, or if group or others have any permission on the file. Other
 * failures are those of file_read. */
int context_read(const char *url, struct server_context *c, struct err *e);
/* Writes the context: makes its directory (0700) and its file (0600). Fails with ERR_INVALID if
 * there is no home directory, with ERR_TOO_LARGE for a long URL, and otherwise as err_errno
 * does. */
int context_write(const struct server_context *c, struct err *e);
int context_remove(const char *url, struct err *e); /* fails with ERR_NOT_FOUND if the URL has no
                                                     * context */
/* Writes the URL that seqctl uses if its user names none, or "" if there is no such URL. */
void context_current(char out[CONTEXT_URL]);
int context_set_current(const char *url, struct err *e);
/* Calls `call` with each context that can be read, in no particular order. *c is overwritten after
 * the call returns. */
int context_each(void (*call)(void *arg, const struct server_context *c), void *arg, struct err *e);

#endif
