/* context.c: keeps each context as JSON in a file whose name is the escaped URL. The file
 * `current` has the URL of the current context. */
#include "api/core/context.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/record.h"

#define MAX_FILE 8192
#define SUFFIX   ".json"

static int directory(char out[FILE_PATH_SIZE], struct err *e)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (xdg && *xdg == '/') return file_join(out, e, "%s/seqctl", xdg);
    if (home && *home == '/') return file_join(out, e, "%s/.config/seqctl", home);
    return err_set(e, ERR_INVALID, "HOME is not set: there is no place for tokens");
}

/* Makes a file name from the URL: each byte other than a letter, a digit, "." or "-" is replaced
 * by "_" and two hexadecimal digits. Different URLs have different names. */
int context_file(const char *url, char out[FILE_PATH_SIZE], struct err *e)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-";
    char dir[FILE_PATH_SIZE], name[256];
    size_t n = 0;
    for (const char *p = url; *p; p++) {
        if (n + 4 > sizeof name - sizeof SUFFIX)
            return err_set(e, ERR_TOO_LARGE, "the URL %.60s... is too long", url);
        if (strchr(plain, *p))
            name[n++] = *p;
        else
            n += (size_t)snprintf(name + n, 4, "_%02x", (unsigned char)*p);
    }
    name[n] = 0;
    if (directory(dir, e)) return -1;
    return file_join(out, e, "%s/%s" SUFFIX, dir, name);
}

#define AT(member) offsetof(struct server_context, member)
static const struct field rows[] = {
    {"url", FIELD_TEXT, AT(url), .size = CONTEXT_URL, .when = record_always},
    {"token", FIELD_TEXT, AT(token), .size = CONTEXT_TOKEN, .when = record_always},
    {"ca", FIELD_TEXT, AT(ca), .size = CONTEXT_CA},
    {NULL},
};

static int parse(const char *text, size_t size, struct server_context *c)
{
    struct jread j;
    jread_init(&j, text, size);
    if (jread_next(&j) != J_OBJECT || record_read(&j, rows, c, NULL)) return -1;
    /* The token must be one line, because it is sent in a header. */
    for (const char *p = c->token; *p; p++)
        if (*p < 0x21 || *p > 0x7e) return -1;
    return 0;
}

static int read_file(const char *path, struct server_context *c, struct err *e)
{
    struct stat st;
    size_t size;
    *c = (struct server_context){0};
    if (stat(path, &st))
        return errno == ENOENT ? err_set(e, ERR_NOT_FOUND, "there is no %s", path)
                               : err_errno(e, "%s", path);
    if (st.st_mode & 077)
        return err_set(e, ERR_INVALID, "%s may be read by others: chmod 600 it", path);
    char *text = file_read(path, MAX_FILE, &size, e);
    if (!text) return -1;
    int rc = parse(text, size, c);
    if (rc) err_set(e, ERR_CORRUPT, "%s is damaged: run seqctl login again", path);
    explicit_bzero(text, size);
    free(text);
    return rc;
}

int context_read(const char *url, struct server_context *c, struct err *e)
{
    char path[FILE_PATH_SIZE];
    return context_file(url, path, e) ? -1 : read_file(path, c, e);
}

int context_write(const struct server_context *c, struct err *e)
{
    char dir[FILE_PATH_SIZE], path[FILE_PATH_SIZE], text[MAX_FILE];
    struct jwrite w;
    if (directory(dir, e) || context_file(c->url, path, e) || file_make_dir(dir, e)) return -1;
    if (chmod(dir, 0700)) return err_errno(e, "%s", dir);
    jwrite_init(&w, text, sizeof text);
    record_write(&w, NULL, rows, c);
    const int64_t n = jwrite_finish(&w);
    const int rc = n < 0 ? err_set(e, ERR_TOO_LARGE, "%s would be too large", path)
                         : file_write_private(path, text, (size_t)n, e);
    explicit_bzero(text, sizeof text);
    return rc;
}

int context_remove(const char *url, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (context_file(url, path, e)) return -1;
    if (!unlink(path)) return 0;
    if (errno == ENOENT) return err_set(e, ERR_NOT_FOUND, "nothing is known of %s", url);
    return err_errno(e, "%s", path);
}

void context_current(char out[CONTEXT_URL])
{
    char dir[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    size_t size;
    *out = 0;
    if (directory(dir, NULL) || file_join(path, NULL, "%s/current", dir)) return;
    char *text = file_read(path, CONTEXT_URL - 1, &size, NULL);
    if (!text) return;
    snprintf(out, CONTEXT_URL, "%.*s", (int)strcspn(text, " \r\n"), text);
    free(text);
}

int context_set_current(const char *url, struct err *e)
{
    char dir[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    if (directory(dir, e) || file_make_dir(dir, e) || file_join(path, e, "%s/current", dir))
        return -1;
    return file_write_private(path, url, strlen(url), e);
}

int context_each(void (*call)(void *arg, const struct server_context *c), void *arg, struct err *e)
{
    char dir[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    if (directory(dir, e)) return -1;
    DIR *d = opendir(dir);
    if (!d) return errno == ENOENT ? 0 : err_errno(e, "%s", dir);
    for (const struct dirent *f; (f = readdir(d));) {
        const size_t n = strlen(f->d_name), tail = strlen(SUFFIX);
        struct server_context c;
        if (n <= tail || strcmp(f->d_name + n - tail, SUFFIX)) continue;
        if (!file_join(path, NULL, "%s/%s", dir, f->d_name) && !read_file(path, &c, NULL))
            call(arg, &c);
        explicit_bzero(&c, sizeof c);
    }
    closedir(d);
    return 0;
}
