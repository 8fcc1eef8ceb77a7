/* record.h: a record is a struct that is stored as a JSON object. A table of its members (field.h)
 * writes and reads it. A new member is a row. libc only.
 *
 * Members are written in the order of the rows and read in any order. A member that no row has is
 * skipped, since a newer version wrote it. A closed table, which ends with RECORD_CLOSED in place
 * of {NULL}, refuses it. A member that is missing leaves the struct as it was, or, if its row has
 * `needed`, is refused. A table has at most 64 rows. tested: tests/core/test_record.c,
 * tests/golden/records */
#ifndef SEQD_CORE_RECORD_H
#define SEQD_CORE_RECORD_H

#include "api/core/field.h"
#include "api/core/jread.h"
#include "api/core/jwrite.h"

#define RECORD_CLOSED                                                                              \
    {                                                                                              \
        .path = NULL, .closed = true                                                               \
    }

/* Writes the record as an object, with the key unless it is NULL. */
void record_write(struct jwrite *w, const char *key, const struct field *rows, const void *record);
/* Writes the members alone, into an object that the caller has begun. */
void record_write_members(struct jwrite *w, const struct field *rows, const void *record);
/* Reads the rest of an object, whose J_OBJECT was the last token, into the record. fails:
 * ERR_CORRUPT, whose field is the member that is wrong or missing, "LIST.INDEX.MEMBER" in a list.
 * The field is "" for invalid JSON and for a member that a closed table refuses. */
int record_read(struct jread *j, const struct field *rows, void *record, struct err *e);
/* Reads a text that is an object and no more. fails: ERR_CORRUPT. */
int record_parse(const char *text, size_t size, const struct field *rows, void *record,
                 struct err *e);
/* Returns true: `when` of members that are always written. */
bool record_always(const void *record);

#endif
