/* grammar_compile.h: the compilation of a schema. It is private to worker/infer/grammar*.c. */
#ifndef SEQD_INFER_GRAMMAR_COMPILE_H
#define SEQD_INFER_GRAMMAR_COMPILE_H

#include <stddef.h>
#include "worker/infer/grammar_nodes.h"

#define GRAMMAR_DEFS 256 /* most names of $defs */

struct grammar_def {
    const char *name; /* [size], as it stands in the schema */
    size_t size;
    const char *at; /* its schema */
    int32_t node;   /* -1 before it is compiled */
    bool open;      /* set while it is compiled */
};

struct grammar_compiler {
    struct grammar *g;
    const char *end; /* end of the schema's text, which is valid JSON */
    struct err *e;
    int depth;
    int n_defs;
    struct grammar_def def[GRAMMAR_DEFS];
    char place[160]; /* place of the schema that is read, for errors */
};

/* Compiles the schema that begins at `at`. Returns its node, or -1 after an error. */
int32_t grammar_compile(struct grammar_compiler *c, const char *at);
/* Compiles the schema of an object. The arguments are the places of the values of properties,
 * required and additionalProperties, or NULL. */
int32_t grammar_compile_object(struct grammar_compiler *c, const char *properties,
                               const char *required, const char *additional);
/* Compiles a whole schema into g. Returns its node, or -1 after an error. */
int32_t grammar_add_schema(struct grammar *g, const char *json, int64_t size, struct err *e);
/* Sets the error with the place of the schema. Returns -1. */
int grammar_refuse(struct grammar_compiler *c, enum err_code code, const char *why);

#endif
