/* files.c: reads FIELD:FORMAT:PATH, expands the path beneath the roots as a preparation does, and
 * opens the first file; or opens a directory beneath a writable root. */
#include "worker/rank/files.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/rank.h"
#include "worker/data/format.h"
#include "worker/data/source.h"
#include "worker/rank/roots.h"

static const char file_word[] = "--file=", writable_word[] = "--writable=";
enum { FILE_WORD = sizeof file_word - 1, WRITABLE_WORD = sizeof writable_word - 1 };

struct roots {
    const char *dir[RANK_ROOTS + RANK_GRANTS], *writable[RANK_ROOTS];
    int n, n_writable;
};

struct wanted {
    char field[64], format[32];
    const char *path;
};

static bool is_file(const char *word)
{
    return !strncmp(word, file_word, FILE_WORD);
}

/* Copies the part of text before the first colon to out. Returns the rest after the colon, or NULL
 * if there is no colon. */
static const char *take_part(const char *text, char *out, size_t size)
{
    const char *colon = strchr(text, ':');
    const size_t n = colon ? (size_t)(colon - text) : size;
    if (n >= size) return NULL;
    memcpy(out, text, n);
    out[n] = 0;
    return colon + 1;
}

static int take_file(const char *word, struct wanted *f)
{
    const char *rest = take_part(word + FILE_WORD, f->field, sizeof f->field);
    f->path = rest ? take_part(rest, f->format, sizeof f->format) : NULL;
    return f->path ? 0 : -1;
}

/* Returns the format with this name, or -1 if no format has this name or if a preparation does
 * not read the format. */
static int format_of(const char *name)
{
    int i = DATA_FORMAT_N - 1;
    while (i >= 0 && (!format_row(i) || strcmp(format_row(i)->name, name))) i--;
    return i;
}

/* Checks that there is a file for the path. Also opens the first file, because it may be a
 * directory or lead outside the roots. */
static int check_file(const struct wanted *f, const struct roots *r, struct err *e)
{
    struct source_list list = {0};
    char index[FILE_PATH_SIZE];
    const char *path = format_index(format_of(f->format), f->path, index, e);
    int rc = path ? source_expand(&list, path, r->dir, r->n, 0, f->field, e) : -1;
    if (!rc) {
        const int fd = source_open(r->dir[list.file[0].root], list.file[0].path, e);
        if (fd >= 0) close(fd);
        rc = fd < 0 ? -1 : 0;
    }
    source_list_fini(&list);
    return rc;
}

/* Checks that a directory is there in which the job may make files. */
static int check_writable(const struct wanted *f, const struct roots *r, struct err *e)
{
    const int fd = roots_writable(f->path, r->writable, r->n_writable, f->field, e);
    if (fd < 0) return -1;
    const int bad = faccessat(fd, ".", W_OK | X_OK, AT_EACCESS);
    if (bad) err_errno(e, "%s: write to %s", f->field, f->path);
    close(fd);
    return bad;
}

static int check(const struct wanted *f, const struct roots *r, struct err *e)
{
    return strcmp(f->format, RANK_WRITABLE) ? check_file(f, r, e) : check_writable(f, r, e);
}

/* Takes a root. Returns -1 if there are too many. */
static int take_root(struct roots *r, const char *word)
{
    const bool writable = !strncmp(word, writable_word, WRITABLE_WORD);
    if (writable ? r->n_writable == RANK_ROOTS : r->n == RANK_ROOTS + RANK_GRANTS) return -1;
    if (writable)
        r->writable[r->n_writable++] = word + WRITABLE_WORD;
    else
        r->dir[r->n++] = word;
    return 0;
}

int files_main(const char *const *argv, int n)
{
    struct roots r = {.n = 0};
    struct wanted f;
    struct err e = {0};
    for (int i = 0; i < n; i++)
        if (!is_file(argv[i]) && take_root(&r, argv[i])) return 2;
    beneath_confine(r.dir, r.n);
    for (int i = 0; i < n; i++) {
        if (!is_file(argv[i])) continue;
        if (take_file(argv[i], &f)) return 2;
        if (!check(&f, &r, &e)) continue;
        err_prefix(&e, "%s", f.field);
        fprintf(stderr, "%s\n", e.text);
        if (e.code == ERR_INTERNAL) return 1;
        return puts(f.field) < 0 || fflush(stdout) ? 1 : RANK_EXIT_REFUSED;
    }
    return 0;
}
