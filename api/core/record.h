/* record.h: a record is a struct that is stored as a JSON object. It is written and read by a
 * table of its members (field.h), so that a new member needs only a new row. libc only.
 *
 * Members are written in the order of the rows and read in any order. A member without a row is
 * skipped, because a newer version may have written it. If the table is closed, which means that
 * it ends with RECORD_CLOSED instead of {NULL}, a member without a row is refused. If a member is
 * missing, its place in the struct is unchanged, unless its row has `needed`; then the record is
 * refused. A table has at most 64 rows. tested: tests/core/test_record.c, tests/golden/records */
#ifndef SEQD_CORE_RECORD_H
#define SEQD_CORE_RECORD_H

#include "api/core/field.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"

#define RECORD_CLOSED                                                                              \
    {                                                                                              \
        .path = NULL, .closed = true                                                               \
    }

/* Writes the record as an object, after the key unless the key is NULL. */
void record_write(struct jwrite *w, const char *key, const struct field *rows, const void *record);
/* Writes only the members, into an object that the caller has begun. */
void record_write_members(struct jwrite *w, const struct field *rows, const void *record);
/* Reads an object into the record. The caller has read the object's first token, J_OBJECT. Fails
 * with ERR_CORRUPT. The error's field is the member that is wrong or missing; in a list it has the
 * form "LIST.INDEX.MEMBER". The field is "" if the JSON is invalid or if a closed table refuses a
 * member. */
int record_read(struct jread *j, const struct field *rows, void *record, struct err *e);
/* Reads a text that consists of one object. Fails with ERR_CORRUPT. */
int record_parse(const char *text, size_t size, const struct field *rows, void *record,
                 struct err *e);
/* Returns true. It is the `when` of rows whose members are always written. */
bool record_always(const void *record);

#endif
