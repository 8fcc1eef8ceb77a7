/* record.h: a record is a struct that is stored as a JSON object. A table of its members (field.h)
 * writes and reads it, so that a new member is one new row. libc only.
 *
 * Members are written in the order of the rows and read in any order. A member without a row is
 * skipped, because a newer version may have written it. But a closed table, which ends with
 * RECORD_CLOSED instead of {NULL}, refuses such a member. If a member is missing, the struct is
 * unchanged; but if the row of the member has `needed`, the record is refused. A table has at most
 * 64 rows. tested: tests/core/test_record.c, tests/golden/records */
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
/* Reads the rest of an object, whose J_OBJECT was the last token, into the record. Fails with
 * ERR_CORRUPT. The error's field is the member that is wrong or missing, "LIST.INDEX.MEMBER" for a
 * member in a list, and "" for invalid JSON or for a member that a closed table refuses. */
int record_read(struct jread *j, const struct field *rows, void *record, struct err *e);
/* Reads a text that consists of one object. Fails with ERR_CORRUPT. */
int record_parse(const char *text, size_t size, const struct field *rows, void *record,
                 struct err *e);
/* Returns true. Rows whose members are always written have this function as `when`. */
bool record_always(const void *record);

#endif
