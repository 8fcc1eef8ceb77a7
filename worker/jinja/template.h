/* template.h: renders chat templates of the Hub. It is an interpreter, with limits, for the part
 * of Jinja that these templates use.
 *
 * A template either fails, or renders to exactly the bytes that jinja2 3.1 renders in
 * transformers. In transformers a template runs in an ImmutableSandboxedEnvironment with
 * trim_blocks, lstrip_blocks, break and continue, the generation tag, and transformers' tojson,
 * raise_exception and strftime_now. Strings have the characters of Unicode 14 (Python 3.11).
 *
 * If a template uses include, import, extends, block or autoescape, it is refused when it is
 * compiled. It is also refused if it uses a filter, test, method or function of jinja2 or Python
 * that is not implemented here. The error has the line and the name. Integers have 64 bits.
 * Printing a value whose text in Python contains an address (a function, a generator) is an
 * error.
 *
 * No state is global. A compiled template is read only, and several threads may render it. */
#ifndef SEQD_JINJA_TEMPLATE_H
#define SEQD_JINJA_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define TEMPLATE_SOURCE (256 * 1024)        /* largest size of a source in bytes */
#define TEMPLATE_NEST   64                  /* largest number of nested tags, brackets and calls */
#define TEMPLATE_OUTPUT ((int64_t)16 << 20) /* largest size of an output in bytes */
/* Largest number of bytes that one rendering allocates. They are freed at the end of the
 * rendering. */
#define TEMPLATE_MEMORY ((int64_t)256 << 20)
/* Largest number of bytes of one compiled template. */
#define TEMPLATE_COMPILE ((int64_t)64 << 20)
/* HEAP_STEPS of heap.h limits the steps of a rendering. */

struct template;

/* Compiles a template. The text is not needed after the call. Returns NULL on failure, and the
 * error has the number of the line. The error is ERR_INVALID if jinja2 also refuses the
 * template, or if the template has an integer that does not fit 64 bits. It is ERR_UNSUPPORTED
 * if only this interpreter refuses the template. It is ERR_TOO_LARGE if a limit is exceeded. */
struct template *jinja_create(const char *text, int64_t size, struct err *e);
void jinja_destroy(struct template *t);
bool jinja_has_generation(const struct template *t); /* returns true if the template has {%
                                                      * generation %} */
/* Returns true if the source of the template has the name of this variable. If the result is
 * false, the template cannot use the variable. Always returns true for loop, caller, kwargs
 * and varargs. */
bool jinja_names(const struct template *t, const char *name);
/* Returns true if the source contains the text `word`. */
bool jinja_mentions(const struct template *t, const char *word);

/* Bytes [begin, end) of an output. If the text was captured by a block such as set or filter,
 * the place of the text in the output is not known, and end is -1. */
struct template_span {
    int64_t begin, end;
};

struct template_output {
    char *text; /* owned; not NUL-terminated */
    int64_t size, room;
    struct template_span *span; /* owned, [n_spans]: the texts inside {% generation %} tags */
    int64_t n_spans, span_room;
};
void jinja_output_fini(struct template_output *o);

/* Renders into o, which is emptied first. The parameter json [size] is the text of a JSON
 * object whose members are the variables. now_s is the time that strftime_now reads, in
 * seconds since 1970, UTC. On failure o is empty, and the error has the number of a line of
 * the template. If the template calls raise_exception, the error is ERR_INVALID with the
 * argument of that call. The error is also ERR_INVALID if Python would raise an error or if
 * the variables cannot be read. It is ERR_TOO_LARGE if a limit is exceeded or if an integer
 * does not fit 64 bits, and ERR_UNSUPPORTED for a text format that is not implemented. */
int jinja_render(const struct template *t, const char *json, int64_t size, int64_t now_s,
                 struct template_output *o, struct err *e);

#endif
