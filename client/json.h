/* json.h: JSON values for the client. The only user of Jansson is json.c; the prefix is jv because
 * Jansson itself owns json_. Paths are dotted ("last_metrics.loss"); a path NULL or "" is the value
 * itself, and a number in a path indexes an array. Readers never fail: they return the fallback. */
#ifndef SEQD_CLIENT_JSON_H
#define SEQD_CLIENT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

struct jv;

/* Parses strictly: duplicate keys, trailing bytes and depth beyond 64 are refused. The caller owns
 * the value. Returns NULL with e: ERR_TOO_LARGE for the depth, else ERR_INVALID. */
struct jv *jv_parse(const char *text, size_t size, struct err *e);
/* Parses as jv_parse does a text that begins at `line` of its file, counted from 1: errors name
 * lines of the file. */
struct jv *jv_parse_at(const char *text, size_t size, int line, struct err *e);
void jv_free(struct jv *v); /* NULL allowed */

/* Finds a value, borrowed from v. NULL: there is no such path, or it is JSON null. */
const struct jv *jv_get(const struct jv *v, const char *path);
const char *jv_str(const struct jv *v, const char *path, const char *fallback);
int64_t jv_int(const struct jv *v, const char *path, int64_t fallback); /* truncates reals */
double jv_num(const struct jv *v, const char *path, double fallback);
bool jv_bool(const struct jv *v, const char *path, bool fallback);
bool jv_is_object(const struct jv *v);
bool jv_is_array(const struct jv *v);

/* Counts the members of an object, which stay in the order written, or the elements of an array;
 * any other value has none. */
size_t jv_len(const struct jv *v);
const struct jv *jv_at(const struct jv *v, size_t i, const char **key); /* key NULL allowed */

/* Sets path to a value given as text: JSON if it parses as JSON, else a string. Missing objects on
 * the way are made; a number on the way indexes an array. fails: ERR_INVALID when something on the
 * way is not an object, for a path that is empty or has a part of 128 bytes or more, and for text
 * that is not UTF-8. */
int jv_set(struct jv *v, const char *path, const char *text, struct err *e);
int jv_set_str(struct jv *v, const char *path, const char *text, struct err *e);

/* Removes the value at path. fails: ERR_NOT_FOUND when there is none. */
int jv_unset(struct jv *v, const char *path, struct err *e);

/* ---- values that are built: the caller owns them until they are put somewhere ---------------- */

struct jv *jv_object(void);
struct jv *jv_array(void);
struct jv *jv_string(const char *text, size_t size); /* NULL: not UTF-8, or with a NUL */
struct jv *jv_integer(int64_t n);
struct jv *jv_boolean(bool on);
struct jv *jv_null(void);
struct jv *jv_share(const struct jv *v); /* returns another reference to v: change neither */
/* jv_put and jv_add take value, even when they fail: -1 when value is NULL, or the key is there
 * already or is not UTF-8. */
int jv_put(struct jv *object, const char *key, struct jv *value);
int jv_add(struct jv *array, struct jv *value);

enum jv_style {
    JV_COMPACT = 0, /* one line */
    JV_INDENT = 1,
    JV_ASCII = 2 /* everything beyond ASCII escaped: safe for a terminal */
};
char *jv_dump(const struct jv *v, int style); /* the caller frees; never NULL */
/* Writes a scalar as plain text without quotes, any other value as compact JSON. The caller frees
 * it. */
char *jv_text(const struct jv *v);

#endif
