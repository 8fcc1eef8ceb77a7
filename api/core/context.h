/* context.h: the token and the certificates that seqctl has for a server: one private file for each
 * URL in $XDG_CONFIG_HOME/seqctl (else ~/.config/seqctl). seqctl login writes one, and so does
 * seqd --dev, so that seqctl needs no option for that server. libc only. */
#ifndef SEQD_CORE_CONTEXT_H
#define SEQD_CORE_CONTEXT_H

#include <stddef.h>
#include "api/core/err.h"

#define CONTEXT_URL   512
#define CONTEXT_TOKEN 256
#define CONTEXT_CA    1024

struct server_context {
    char url[CONTEXT_URL];
    char token[CONTEXT_TOKEN];
    char ca[CONTEXT_CA]; /* file of certificates to trust; "": the system's */
};

/* Reads the context of a URL. fails: ERR_NOT_FOUND if there is none; ERR_INVALID without a home,
 * or if its file gives any permission to group or others; ERR_CORRUPT if it is damaged;
 * ERR_TOO_LARGE for a long URL; else as file_read. */
int context_read(const char *url, struct server_context *c, struct err *e);
/* Makes the directory (0700) and the file (0600). fails: ERR_INVALID without a home; ERR_TOO_LARGE
 * for a long URL; else as err_errno. */
int context_write(const struct server_context *c, struct err *e);
int context_remove(const char *url, struct err *e); /* fails: ERR_NOT_FOUND */
/* Writes the URL that seqctl uses if its user names none; "": there is none. */
void context_current(char out[CONTEXT_URL]);
int context_set_current(const char *url, struct err *e);
/* Calls `call` with each context that can be read, in no order; *c is overwritten after the
 * call. */
int context_each(void (*call)(void *arg, const struct server_context *c), void *arg, struct err *e);

#endif
