/* field.h: one row of a table of a document's scalar fields (spec_fields, hardware_fields). */
#ifndef SEQD_CORE_FIELD_H
#define SEQD_CORE_FIELD_H

#include <stddef.h>
#include <stdint.h>

enum field_type {
    FIELD_INT,   /* int64_t member */
    FIELD_INT32, /* int32_t member */
    FIELD_DOUBLE,
    FIELD_BOOL,   /* int32_t member */
    FIELD_ENUM,   /* int32_t member, words[] */
    FIELD_STRING, /* spec_ref member */
};

/* A word of a FIELD_ENUM that is newer than its field. */
struct field_word {
    const char *word;
    uint32_t since;   /* as below */
    const char *text; /* with its field, for a sentence: objective.type "iddpm" */
};

struct field {
    const char *path; /* dotted JSON path: "data.seq_len"; array elements: "optim.betas.0" */
    enum field_type type;
    size_t offset;   /* into struct job_spec, or that of the table (spec_source, model_shape) */
    double min, max; /* FIELD_INT*, FIELD_DOUBLE: inclusive */
    const char *const *words; /* FIELD_ENUM: NULL-terminated, index = value */
    double fallback;          /* default of numbers, bools and enums */
    const char *text;         /* default of strings */
    const char *help;         /* one sentence with the unit */
    uint32_t kinds;           /* bit per job_kind in which the field may appear; 0: never in JSON */
    uint32_t since;           /* the first WIRE_ABI that has it (api/wire.h); 0: all have it */
    const struct field_word *newer; /* FIELD_ENUM: ends with word NULL; NULL: no word is newer */
};

#endif
