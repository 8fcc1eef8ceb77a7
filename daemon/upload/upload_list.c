/* upload_list.c: reads and writes the list of an upload by tables of its members, and checks their
 * values. */
#include "daemon/upload/upload_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/beneath.h"
#include "api/core/jwrite.h"
#include "api/core/record.h"

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

/* ---- the members ----------------------------------------------------------------------------- */

static const void *file_get(const void *record, int i)
{
    const struct upload_list *l = record;
    return i < l->n ? &l->file[i] : NULL;
}

static void *file_add(void *record, int i)
{
    struct upload_list *l = record;
    /* the member "files" occurs a second time, or has too many files */
    if (i != l->n || i == UPLOAD_FILES) return NULL;
    struct upload_file *f = &l->file[l->n++];
    *f = (struct upload_file){.size = -1};
    return f;
}

/* Returns file i of an upload that is shown with its files. */
static const void *shown_get(const void *record, int i)
{
    const struct upload_shown *v = record;
    return v->all ? file_get(v->all, i) : NULL;
}

static bool shows_files(const void *record)
{
    return ((const struct upload_shown *)record)->all;
}

static const char *const state_words[] = {
    [UPLOAD_RECEIVING] = "receiving", [UPLOAD_COMPLETE] = "complete", NULL};

/* clang-format off */
#define INT(m)            INT_AT(#m, m)
#define TEXT(m)           TEXT_AT(#m, m)
#define INT_AT(path, m)   {path, FIELD_INT, AT(m), INT64_MIN, INT64_MAX, .when = record_always}
#define TEXT_AT(path, m)  {path, FIELD_TEXT, AT(m), .size = sizeof OF(m), .when = record_always}
#define OF(member) ((struct upload_file *)0)->member
#define AT(member) offsetof(struct upload_file, member)
#define LISTED TEXT(path), INT(size), TEXT(sha256)
static const struct field file_rows[] = {LISTED, RECORD_CLOSED};
static const struct field shown_file_rows[] = {LISTED, INT(received), {NULL}};
#undef OF
#undef AT
#define OF(member) ((struct upload_list *)0)->member
#define AT(member) offsetof(struct upload_list, member)
static const struct field_list file_list = {file_rows, file_get, file_add, NULL};
#define FILES {"files", FIELD_LIST, .list = &file_list, .when = record_always}
static const struct field body_rows[] = {TEXT(name), FILES, RECORD_CLOSED};
static const struct field stored_rows[] = {INT(id), TEXT(name), TEXT(owner), INT(created_ms), FILES, RECORD_CLOSED};
#undef OF
#undef AT
#define OF(member) ((struct upload_shown *)0)->member
#define AT(member) offsetof(struct upload_shown, member)
static const struct field_list shown_list = {shown_file_rows, shown_get, NULL, NULL};
static const struct field shown_rows[] = {
    INT_AT("id", of.id), TEXT_AT("name", of.name), TEXT_AT("owner", of.owner),
    {"state", FIELD_WORD, AT(state), .words = state_words, .when = record_always},
    TEXT(created_at), INT(size), INT(received),
    {"path", FIELD_OWNED, AT(path), .when = record_always, .or_null = true},
    {"files", FIELD_LIST, .list = &shown_list, .when = shows_files},
    {NULL}
};
/* clang-format on */

/* ---- reading --------------------------------------------------------------------------------- */

/* Writes the error for a fault that the tables have found in the JSON text. */
static int refuse_text(const struct upload_list *l, const struct err *why, struct err *e)
{
    if (!*why->field)
        return err_set(e, ERR_INVALID, "the body is not one JSON object {\"name\", \"files\"}: %s",
                       why->text);
    if (strcmp(why->field, "files"))
        return err_field(e, ERR_INVALID, why->field, "%s: %s", why->field, why->text);
    if (l->n == UPLOAD_FILES)
        return err_field(e, ERR_TOO_LARGE, "files",
                         "files has more than %d members: send them as several uploads",
                         UPLOAD_FILES);
    return err_field(e, ERR_INVALID, "files", "files: want a list of {path, size, sha256}");
}

/* Names of the version before may begin with '-'. */
static int check_name(const char *name, bool stored, struct err *e)
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strlen(name);
    const bool first = name[0] != '.' && (stored || name[0] != '-');
    if (n && n < UPLOAD_NAME && first && strspn(name, good) == n) return 0;
    return err_field(e, ERR_INVALID, "name",
                     "name: want 1 to %d letters, digits, '.', '_' or '-', no dot or '-' in front",
                     UPLOAD_NAME - 1);
}

static int wrong(int file, const char *field, const char *want, struct err *e)
{
    char path[64];
    snprintf(path, sizeof path, "files.%d.%s", file, field);
    return err_field(e, ERR_INVALID, path, "%s: want %s", path, want);
}

/* Checks file k. The files before it have been checked already. */
static int check_file(const struct upload_list *l, int k, struct err *e)
{
    const struct upload_file *f = &l->file[k];
    if (!beneath_name_good(f->path))
        return wrong(k, "path", "a relative path without . and .. among its parts", e);
    if (f->size < 0 || f->size > UPLOAD_MAX) return wrong(k, "size", "bytes, from 0 to 2^50", e);
    if (strspn(f->sha256, "0123456789abcdef") != SHA256_HEX - 1)
        return wrong(k, "sha256", "64 hexadecimal digits in lower case", e);
    for (int i = 0; i < k; i++)
        if (beneath_rest(l->file[i].path, f->path) || beneath_rest(f->path, l->file[i].path))
            return wrong(k, "path", "each file once, and no file beneath another", e);
    return 0;
}

/* Checks all files, and sums their sizes. */
static int check_files(struct upload_list *l, struct err *e)
{
    if (!l->n) return err_field(e, ERR_INVALID, "files", "files: want at least one");
    for (int i = 0; i < l->n; i++) {
        if (check_file(l, i, e)) return -1;
        l->size += l->file[i].size;
        if (l->size > UPLOAD_MAX)
            return err_field(e, ERR_TOO_LARGE, "files", "files has more than 2^50 bytes together");
    }
    return 0;
}

int upload_list_read(struct upload_list *l, const char *text, size_t size, bool stored,
                     struct err *e)
{
    struct err why = {0};
    l->name[0] = l->owner[0] = 0;
    l->id = l->created_ms = l->size = 0;
    l->n = 0;
    if (record_parse(text, size, stored ? stored_rows : body_rows, l, &why))
        return refuse_text(l, &why, e);
    return check_files(l, e) ? -1 : check_name(l->name, stored, e);
}

/* ---- writing --------------------------------------------------------------------------------- */

size_t upload_list_room(const struct upload_list *l)
{
    return 1024 + (size_t)l->n * (6 * UPLOAD_PATH + 128);
}

int64_t upload_list_write(const struct upload_list *l, char *out, size_t size)
{
    struct jwrite w;
    jwrite_init(&w, out, size);
    record_write(&w, NULL, stored_rows, l);
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

void upload_show(const struct upload_shown *v, struct jwrite *w)
{
    record_write(w, NULL, shown_rows, v);
}
