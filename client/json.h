/* json.h: JSON values for the client. Only json.c uses Jansson. The prefix is jv because Jansson
 * itself uses json_. Paths are dotted ("last_metrics.loss"). A path that is NULL or "" stands for
 * the value itself. A number in a path is the index of an array's element. Readers do not fail; if
 * there is no such value, they return the fallback. */
#ifndef SEQD_CLIENT_JSON_H
#define SEQD_CLIENT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct jv;

/* Parses strictly: duplicate keys, trailing bytes and a depth beyond 64 are refused. The caller
 * owns the value. Returns NULL after a failure. The error is ERR_TOO_LARGE if the depth is too
 * large, and otherwise ERR_INVALID. */
struct jv *jv_parse(const char *text, size_t size, struct err *e);
/* Parses as jv_parse does. The text begins at `line` of its file, counted from 1, so that errors
 * can name lines of the file. */
struct jv *jv_parse_at(const char *text, size_t size, int line, struct err *e);
void jv_free(struct jv *v); /* v may be NULL */

/* Finds the value at path, which is borrowed from v. Returns NULL if v has no such path, or if the
 * value is JSON null. */
const struct jv *jv_get(const struct jv *v, const char *path);
const char *jv_str(const struct jv *v, const char *path, const char *fallback);
int64_t jv_int(const struct jv *v, const char *path, int64_t fallback); /* truncates reals */
double jv_num(const struct jv *v, const char *path, double fallback);
bool jv_bool(const struct jv *v, const char *path, bool fallback);
bool jv_is_object(const struct jv *v);
bool jv_is_array(const struct jv *v);

/* Counts the elements of an array, or the members of an object, which keep the order of the text.
 * Any other value has the length 0. */
size_t jv_len(const struct jv *v);
const struct jv *jv_at(const struct jv *v, size_t i, const char **key); /* key may be NULL */

/* Sets path to a value that is given as text. The text is JSON if it parses as JSON, and otherwise
 * a string. The missing objects of the path are made, and a number in the path indexes an array.
 * Fails with ERR_INVALID if an inner part of the path is not an object, if the path is empty or
 * has a part of 128 bytes or more, or if the text is not UTF-8. */
int jv_set(struct jv *v, const char *path, const char *text, struct err *e);
int jv_set_str(struct jv *v, const char *path, const char *text, struct err *e);

/* Removes the value at path. Fails with ERR_NOT_FOUND if v has no such path. */
int jv_unset(struct jv *v, const char *path, struct err *e);

/* ---- values that are built: the caller owns them until they are put somewhere ---------------- */

struct jv *jv_object(void);
struct jv *jv_array(void);
/* NULL if the text is not UTF-8 or contains a NUL */
struct jv *jv_string(const char *text, size_t size);
struct jv *jv_integer(int64_t n);
struct jv *jv_boolean(bool on);
struct jv *jv_null(void);
/* returns a second reference to v; from then on v must not be changed */
struct jv *jv_share(const struct jv *v);
/* jv_put and jv_add own the parameter `value` after the call, even if they fail. They return -1 if
 * `value` is NULL, or if the key exists already or is not UTF-8. */
int jv_put(struct jv *object, const char *key, struct jv *value);
int jv_add(struct jv *array, struct jv *value);

enum jv_style {
    JV_COMPACT = 0, /* one line */
    JV_INDENT = 1,
    JV_ASCII = 2 /* escapes all characters that are not ASCII, so that the text is safe for a
                  * terminal */
};
char *jv_dump(const struct jv *v, int style); /* the caller frees it; it is never NULL */
/* Writes a scalar as plain text without quotes, and any other value as compact JSON. The caller
 * frees it. */
char *jv_text(const struct jv *v);

#endif
