/* token_file.c: keeps the token of seqd --dev or makes a new token, and writes a context for
 * seqctl. */
#include "daemon/access/token_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/context.h"
#include "api/core/file.h"
#include "api/core/log.h"

/* Reads the token in the file into text. Returns false if there is no file, or if the file has no
 * valid token of an admin. */
static bool still_valid(struct auth *a, const char *path, char text[AUTH_TOKEN_SIZE])
{
    static const unsigned char here[AUTH_ADDRESS];
    char header[AUTH_TOKEN_SIZE + 16];
    struct principal p;
    size_t size;
    char *old = file_read(path, AUTH_TOKEN_SIZE, &size, NULL);
    if (!old) return false;
    snprintf(text, AUTH_TOKEN_SIZE, "%.*s", (int)strcspn(old, "\r\n"), old);
    free(old);
    snprintf(header, sizeof header, "Bearer %s", text);
    const bool valid = !auth_bearer(a, header, here, &p, NULL) && p.role == ROLE_ADMIN;
    explicit_bzero(header, sizeof header);
    return valid;
}

static int make(struct auth *a, const char *path, char text[AUTH_TOKEN_SIZE], struct err *e)
{
    struct auth_token k = {.role = ROLE_ADMIN, .label = "seqd --dev"};
    struct principal me;
    char line[AUTH_TOKEN_SIZE + 1];
    if (auth_uid(a, geteuid(), &me, e)) return -1;
    memcpy(k.user, me.user, sizeof k.user);
    if (auth_make(a, &k, text, NULL, NULL, e)) return -1;
    const int n = snprintf(line, sizeof line, "%s\n", text);
    return file_write_private(path, line, (size_t)n, e);
}

static void write_context(const char *url, const char *text)
{
    struct server_context c = {0};
    struct err e;
    snprintf(c.url, sizeof c.url, "%s", url);
    snprintf(c.token, sizeof c.token, "%s", text);
    if (context_write(&c, &e))
        log_warn("dev.context", "text=\"%s: seqctl needs --url and the state directory\"", e.text);
    explicit_bzero(&c, sizeof c);
}

int token_file_write(struct auth *a, const char *state_dir, const char *url, struct err *e)
{
    char path[FILE_PATH_SIZE], text[AUTH_TOKEN_SIZE];
    if (file_join(path, e, "%s/token", state_dir)) return -1;
    if (!still_valid(a, path, text) && make(a, path, text, e)) return -1;
    if (url) write_context(url, text);
    explicit_bzero(text, sizeof text);
    return 0;
}
