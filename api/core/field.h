/* field.h: one row of a table. The row describes a scalar field of a document (spec_fields,
 * hardware_fields), or a member of a stored record (record.h). */
#ifndef SEQD_CORE_FIELD_H
#define SEQD_CORE_FIELD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "api/core/err.h"

enum field_type {
    FIELD_INT,   /* int64_t member */
    FIELD_INT32, /* int32_t member */
    FIELD_DOUBLE,
    FIELD_BOOL,   /* int32_t member */
    FIELD_ENUM,   /* int32_t member, words[] */
    FIELD_STRING, /* spec_ref member */
    /* only for records */
    FIELD_FLAG,   /* bool member */
    FIELD_WORD,   /* int32_t member that holds min + the index into words[]; an unknown word is
                   * read as fallback */
    FIELD_TEXT,   /* char[size] member */
    FIELD_OWNED,  /* char * member from malloc; the owner of the record frees it */
    FIELD_RAW,    /* char[size] member that holds the JSON text of an object or a list */
    FIELD_FIXED,  /* a field without a member: its value is always the number min, and any other
                   * number is refused */
    FIELD_OBJECT, /* an object that the rows `of` describe; its members are in the struct that has
                   * this field */
    FIELD_LIST,   /* elements */
};

struct field;

/* Access to the elements of a FIELD_LIST. The rows `of` describe an element. An element is an
 * object, unless the first of these rows has the path ""; then it is a plain value. */
struct field_list {
    const struct field *of;
    const void *(*get)(const void *record, int i); /* returns element i for the writer, or NULL if
                                                    * there is none */
    void *(*add)(void *record, int i);        /* returns the place of element i for the reader, or
                                               * NULL if there is no room */
    bool (*holds)(const void *record, int i); /* tells whether element i, which was just read, is
                                               * valid */
};

/* One word of a FIELD_ENUM field that was added in a later version than the field itself. */
struct field_word {
    const char *word;
    uint32_t since;   /* the first WIRE_ABI that knows the word */
    const char *text; /* field and word as errors name them, for example objective.type "iddpm" */
};

/* Tells for which values of a `guard` field an update waits for all gradients
 * (worker/plan/update.h). For a FIELD_ENUM the value is FIELD_WAITS_FOR of each word for which the
 * update waits, joined by |. For every other type the value is FIELD_WAITS_IF_SET or
 * FIELD_WAITS_NEVER. */
#define FIELD_WAITS_FOR(word) (1u << (word))
#define FIELD_WAITS_IF_SET    (1u << 30) /* every value but the default */
#define FIELD_WAITS_NEVER     (1u << 31)

struct field {
    const char *path; /* JSON path with dots, such as "data.seq_len". An element of an array has a
                       * path such as "optim.betas.0" */
    enum field_type type;
    size_t offset;   /* offset in struct job_spec, or in the struct of the table (spec_source,
                      * model_shape) */
    double min, max; /* FIELD_INT*, FIELD_DOUBLE: inclusive */
    const char *const *words;       /* FIELD_ENUM: NULL-terminated words, whose index is the
                                     * value */
    double fallback;                /* default value of numbers, bools and enums */
    const char *text;               /* default of strings */
    const char *help;               /* one sentence with the unit */
    uint32_t kinds;                 /* bits of the job_kinds whose specs may have the field; 0
                                     * means that no spec has it */
    uint32_t since;                 /* the first WIRE_ABI that knows the field (api/wire.h); 0
                                     * means every ABI */
    const struct field_word *newer; /* FIELD_ENUM: words that are newer than the field; a row whose
                                     * word is NULL ends the list. NULL if no word is newer */
    uint32_t waits;                 /* FIELD_WAITS_* for fields of the guard, 0 for other fields */
    const char *unsaid; /* value of the field if a submitted spec leaves it out: the word "auto",
                         * or fallback if this is NULL. In stored specs and messages a missing
                         * field always means fallback */
    /* only for records */
    size_t size;                      /* FIELD_TEXT, FIELD_RAW: bytes of the member */
    bool (*when)(const void *record); /* tells whether to write the member; if NULL, the member is
                                       * written unless it is 0 or empty */
    bool needed;                      /* a record without this member is refused */
    bool or_null; /* FIELD_DOUBLE, FIELD_OWNED: the JSON value null leaves the member unchanged. A
                   * FIELD_OWNED member that is NULL is written as null */
    const struct field *of;        /* FIELD_OBJECT */
    const struct field_list *list; /* FIELD_LIST */
    bool closed; /* refuses a record that has a member without a row; set in the last row, which
                  * has no path */
};

static inline bool field_allows(const struct field *f, double v)
{
    return v >= f->min && v <= f->max; /* refuses NaN, too */
}

/* Checks a number against the range of its field. Fails with `code`. */
static inline int field_check(const struct field *f, double v, enum err_code code, struct err *e)
{
    if (field_allows(f, v)) return 0;
    return err_field(e, code, f->path, "%s is %.17g: it must lie between %.17g and %.17g", f->path,
                     v, f->min, f->max);
}

#endif
