/* json.h: looks up values in a tokenizer.json, and in other files of the same directory. Only
 * strings are copied. */
#ifndef SEQD_TEXT_JSON_H
#define SEQD_TEXT_JSON_H

#include "api/core/jread.h"
#include "worker/text/buffer.h"

/* The text of one value. p is NULL if the value is absent or null. */
struct json {
    const char *p;
    int64_t n;
    const char *file; /* borrowed: name of the file in errors; NULL means "tokenizer.json" */
};

/* Looks up the members `names` of an object, and writes them to out. The parameter `where` is
 * the name of the object in error messages. */
int json_members(struct json object, const char *where, int n, const char *const names[],
                 struct json out[], struct err *e);
/* Looks up one member of an object. */
int json_member(struct json object, const char *where, const char *name, struct json *out,
                struct err *e);
/* Calls each(who, value) for every value of an array. Stops when a call returns a negative value,
 * and returns that value. */
int json_each(struct json array, const char *where,
              int (*each)(void *who, struct json value, struct err *e), void *who, struct err *e);
/* Appends the string, unescaped, to out. */
int json_text(struct json value, const char *where, struct text *out, struct err *e);
int json_bool(struct json value, const char *where, bool missing, bool *out, struct err *e);
int json_int(struct json value, const char *where, int64_t missing, int64_t *out, struct err *e);
bool json_is(struct json value, const char *s); /* returns true if the value is the string s */
/* returns the value's first character, or 0 if the value is absent */
char json_kind(struct json value);

#endif
