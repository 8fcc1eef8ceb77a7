/* field.h: one row of a table: a scalar field of a document (spec_fields, hardware_fields), or a
 * member of a record that is stored (record.h). */
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
    /* of records alone */
    FIELD_FLAG,   /* bool member */
    FIELD_WORD,   /* int32_t member, min + index into words[]; an unknown word reads as fallback */
    FIELD_TEXT,   /* char[size] member */
    FIELD_OWNED,  /* char * member, of malloc; the owner of the record frees it */
    FIELD_RAW,    /* char[size] member: the JSON text of an object or a list */
    FIELD_FIXED,  /* no member: always the number min, any other is refused */
    FIELD_OBJECT, /* an object of the rows `of`, with members of the same struct */
    FIELD_LIST,   /* elements */
};

struct field;

/* Elements of a FIELD_LIST. They are objects with the rows `of`. If the first of these rows has
 * the path "", they are plain values. */
struct field_list {
    const struct field *of;
    const void *(*get)(const void *record, int i); /* element i, for the writer; NULL: there is
                                                    * none */
    void *(*add)(void *record, int i);        /* room for element i, for the reader; NULL: there is
                                               * none */
    bool (*holds)(const void *record, int i); /* tells whether element i, just read, is valid */
};

/* A word of a FIELD_ENUM that is newer than its field. */
struct field_word {
    const char *word;
    uint32_t since;   /* the first WIRE_ABI that has it */
    const char *text; /* the word with its field, for errors: objective.type "iddpm" */
};

/* The values of a `guard` field with which an update waits for all gradients
 * (worker/plan/update.h): for an ENUM, FIELD_WAITS_FOR of each such word, joined by |; else one of
 * the other two. */
#define FIELD_WAITS_FOR(word) (1u << (word))
#define FIELD_WAITS_IF_SET    (1u << 30) /* every value but the default */
#define FIELD_WAITS_NEVER     (1u << 31)

struct field {
    const char *path; /* dotted JSON path: "data.seq_len"; array elements: "optim.betas.0" */
    enum field_type type;
    size_t offset;   /* in struct job_spec or the struct of the table (spec_source, model_shape) */
    double min, max; /* FIELD_INT*, FIELD_DOUBLE: inclusive */
    const char *const *words;       /* FIELD_ENUM: NULL-terminated, index = value */
    double fallback;                /* default of numbers, bools and enums */
    const char *text;               /* default of strings */
    const char *help;               /* one sentence with the unit */
    uint32_t kinds;                 /* bits of the job_kinds whose specs may have it; 0: none */
    uint32_t since;                 /* the first WIRE_ABI that has it (api/wire.h); 0: every ABI */
    const struct field_word *newer; /* FIELD_ENUM: ends with word NULL; NULL: no word is newer */
    uint32_t waits;                 /* fields of the guard: FIELD_WAITS_*; 0: other fields */
    const char *unsaid; /* "auto": the value if a person leaves the field out; NULL: fallback. In
                         * stored specs and messages a missing field means fallback. */
    /* of records alone */
    size_t size;                      /* FIELD_TEXT, FIELD_RAW: bytes of the member */
    bool (*when)(const void *record); /* tells whether to write it; NULL: if not 0 and not empty */
    bool needed;                      /* a record without this member is refused */
    bool or_null; /* FIELD_DOUBLE, FIELD_OWNED: null leaves the member unchanged; an OWNED that is
                   * NULL is written as null */
    const struct field *of;        /* FIELD_OBJECT */
    const struct field_list *list; /* FIELD_LIST */
    bool closed; /* in the last row, which has no path: a record with a member of no row is
                  * refused */
};

static inline bool field_allows(const struct field *f, double v)
{
    return v >= f->min && v <= f->max; /* refuses NaN, too */
}

/* Checks a number against the range of its field. fails: with `code`. */
static inline int field_check(const struct field *f, double v, enum err_code code, struct err *e)
{
    if (field_allows(f, v)) return 0;
    return err_field(e, code, f->path, "%s is %.17g: it must lie between %.17g and %.17g", f->path,
                     v, f->min, f->max);
}

#endif
