/* upload_list.c: reads, checks and writes the list of an upload. */
#include "daemon/upload/upload_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/beneath.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"

struct upload_list *upload_list_new(void)
{
    struct upload_list *l = calloc(1, sizeof *l + UPLOAD_FILES * sizeof *l->file);
    if (!l) abort();
    return l;
}

struct upload_list *upload_list_fit(struct upload_list *l)
{
    l = realloc(l, sizeof *l + (size_t)l->n * sizeof *l->file);
    if (!l) abort();
    return l;
}

static int check_name(const char *name, struct err *e)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strlen(name);
    if (n && n < UPLOAD_NAME && name[0] != '.' && strspn(name, good) == n) return 0;
    return err_field(e, ERR_INVALID, "name",
                     "name: want 1 to %d letters, digits, '.', '_' or '-', no dot in front",
                     UPLOAD_NAME - 1);
}

static int wrong(const struct upload_list *l, const char *field, const char *what, struct err *e)
{
    char path[64];
    snprintf(path, sizeof path, "files.%d%s%s", l->n, *field ? "." : "", field);
    return err_field(e, ERR_INVALID, path, "%s: want %s", path, what);
}

static int read_text(struct jread *j, char *out, size_t size)
{
    return jread_next(j) == J_STRING ? jread_copy(j, out, size) : -1;
}

static int read_number(struct jread *j, int64_t *out)
{
    return jread_next(j) == J_NUMBER ? jread_int(j, out) : -1;
}

static int check_file(const struct upload_list *l, const struct upload_file *f, struct err *e)
{
    if (!beneath_name_good(f->path))
        return wrong(l, "path", "a relative path without . and .. among its parts", e);
    if (f->size < 0 || f->size > UPLOAD_MAX) return wrong(l, "size", "bytes, from 0 to 2^50", e);
    if (strspn(f->sha256, "0123456789abcdef") != SHA256_HEX - 1)
        return wrong(l, "sha256", "64 hexadecimal digits in lower case", e);
    for (int i = 0; i < l->n; i++)
        if (beneath_rest(l->file[i].path, f->path) || beneath_rest(f->path, l->file[i].path))
            return wrong(l, "path", "each file once, and no file beneath another", e);
    return 0;
}

static int read_file(struct upload_list *l, struct jread *j, struct err *e)
{
    struct upload_file *f = &l->file[l->n];
    enum jtok t;
    if (l->n == UPLOAD_FILES)
        return err_field(e, ERR_TOO_LARGE, "files",
                         "files has more than %d members: send them as several uploads",
                         UPLOAD_FILES);
    *f = (struct upload_file){.size = -1};
    while ((t = jread_next(j)) == J_KEY) {
        int rc;
        if (jread_is(j, "path"))
            rc = read_text(j, f->path, sizeof f->path);
        else if (jread_is(j, "size"))
            rc = read_number(j, &f->size);
        else if (jread_is(j, "sha256"))
            rc = read_text(j, f->sha256, sizeof f->sha256);
        else
            return wrong(l, "", "path, size and sha256, and nothing else", e);
        if (rc) return wrong(l, "", "path, size and sha256 as text, number and text", e);
    }
    if (t != J_OBJECT_END)
        return err_field(e, ERR_INVALID, "files", "files cannot be read: %s", j->err.text);
    if (check_file(l, f, e)) return -1;
    l->n++;
    l->size += f->size;
    if (l->size > UPLOAD_MAX)
        return err_field(e, ERR_TOO_LARGE, "files", "files has more than 2^50 bytes together");
    return 0;
}

static int read_files(struct upload_list *l, struct jread *j, struct err *e)
{
    enum jtok t;
    if (l->n || jread_next(j) != J_ARRAY)
        return err_field(e, ERR_INVALID, "files", "files: want a list");
    while ((t = jread_next(j)) == J_OBJECT)
        if (read_file(l, j, e)) return -1;
    if (t == J_ARRAY_END) return 0;
    return err_field(e, ERR_INVALID, "files", "files: want a list of {path, size, sha256}");
}

static int read_member(struct upload_list *l, struct jread *j, bool stored, struct err *e)
{
    int rc = -1;
    if (jread_is(j, "files")) return read_files(l, j, e);
    if (jread_is(j, "name"))
        rc = read_text(j, l->name, sizeof l->name);
    else if (stored && jread_is(j, "owner"))
        rc = read_text(j, l->owner, sizeof l->owner);
    else if (stored && jread_is(j, "id"))
        rc = read_number(j, &l->id);
    else if (stored && jread_is(j, "created_ms"))
        rc = read_number(j, &l->created_ms);
    else
        return err_set(e, ERR_INVALID, "an upload has name and files, and nothing else");
    return rc ? err_set(e, ERR_INVALID, "an upload's name is text of at most %d bytes",
                        UPLOAD_NAME - 1)
              : 0;
}

int upload_list_read(struct upload_list *l, const char *text, size_t size, bool stored,
                     struct err *e)
{
    struct jread j;
    enum jtok t = J_ERROR;
    l->name[0] = l->owner[0] = 0;
    l->id = l->created_ms = l->size = 0;
    l->n = 0;
    jread_init(&j, text, size);
    if (jread_next(&j) == J_OBJECT)
        while ((t = jread_next(&j)) == J_KEY)
            if (read_member(l, &j, stored, e)) return -1;
    if (t != J_OBJECT_END || jread_next(&j) != J_END)
        return err_set(e, ERR_INVALID, "the body is not one JSON object {\"name\", \"files\"}: %s",
                       j.err.text);
    if (!l->n) return err_field(e, ERR_INVALID, "files", "files: want at least one");
    return check_name(l->name, e);
}

size_t upload_list_room(const struct upload_list *l)
{
    return 1024 + (size_t)l->n * (6 * UPLOAD_PATH + 128);
}

int64_t upload_list_write(const struct upload_list *l, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "id", l->id);
    jwrite_str(&w, "name", l->name);
    jwrite_str(&w, "owner", l->owner);
    jwrite_int(&w, "created_ms", l->created_ms);
    jwrite_array(&w, "files");
    for (int i = 0; i < l->n; i++) {
        jwrite_object(&w, NULL);
        jwrite_str(&w, "path", l->file[i].path);
        jwrite_int(&w, "size", l->file[i].size);
        jwrite_str(&w, "sha256", l->file[i].sha256);
        jwrite_end(&w);
    }
    jwrite_end(&w);
    jwrite_end(&w);
    return jwrite_finish(&w);
}

bool upload_list_same(const struct upload_list *a, const struct upload_list *b)
{
    if (a->n != b->n || strcmp(a->owner, b->owner)) return false;
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->file[i].path, b->file[i].path) || a->file[i].size != b->file[i].size ||
            strcmp(a->file[i].sha256, b->file[i].sha256))
            return false;
    return true;
}

void upload_list_show(const struct upload_list *l, const struct upload_shown *v, struct jwrite *w)
{
    jwrite_object(w, NULL);
    jwrite_int(w, "id", l->id);
    jwrite_str(w, "name", l->name);
    jwrite_str(w, "owner", l->owner);
    jwrite_str(w, "state", v->done ? "complete" : "receiving");
    jwrite_str(w, "created_at", v->created_at);
    jwrite_int(w, "size", l->size);
    jwrite_int(w, "received", v->received);
    if (v->path)
        jwrite_str(w, "path", v->path);
    else
        jwrite_null(w, "path");
    if (v->files) jwrite_array(w, "files");
    for (int i = 0; v->files && i < l->n; i++) {
        jwrite_object(w, NULL);
        jwrite_str(w, "path", l->file[i].path);
        jwrite_int(w, "size", l->file[i].size);
        jwrite_str(w, "sha256", l->file[i].sha256);
        jwrite_int(w, "received", v->done ? l->file[i].size : v->at[i]);
        jwrite_end(w);
    }
    if (v->files) jwrite_end(w);
    jwrite_end(w);
}
