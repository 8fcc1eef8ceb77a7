/* template.h: chat templates of the Hub. This is an interpreter, with limits, for the part of
 * Jinja that they use.
 *
 * A template either fails or renders to the same bytes as jinja2 3.1 under transformers (an
 * ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, break and continue, the
 * generation tag, and tojson, raise_exception and strftime_now of transformers). Strings have the
 * characters of Unicode 14 (Python 3.11).
 *
 * A template is refused when it is compiled if it uses include, import, extends, block,
 * autoescape, or a filter, test, method or function of jinja2 or Python that is not implemented
 * here. The error has the line and the name. Integers have 64 bits. It is an error to print a
 * value whose text in Python has an address (a function, a generator).
 *
 * No state is global: a compiled template is read only, and several threads may render it. */
#ifndef SEQD_JINJA_TEMPLATE_H
#define SEQD_JINJA_TEMPLATE_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define TEMPLATE_SOURCE (256 * 1024)        /* bytes of a source */
#define TEMPLATE_NEST   64                  /* nested tags, brackets and calls */
#define TEMPLATE_OUTPUT ((int64_t)16 << 20) /* bytes of an output */
/* Most bytes of one rendering, which are freed at its end. */
#define TEMPLATE_MEMORY  ((int64_t)256 << 20)
#define TEMPLATE_COMPILE ((int64_t)64 << 20) /* bytes of one compiled template */
/* HEAP_STEPS of heap.h limits the steps of a rendering. */

struct template;

/* Compiles a template; does not keep the text. Returns NULL on failure, and the error has the
 * line. The error is ERR_INVALID if jinja2 refuses the template, too, or if it has an integer past
 * 64 bits. It is ERR_UNSUPPORTED if only this interpreter refuses the template, and ERR_TOO_LARGE
 * past a limit. */
struct template *jinja_create(const char *text, int64_t size, struct err *e);
void jinja_destroy(struct template *t);
bool jinja_has_generation(const struct template *t); /* it has {% generation %} */
/* Tells whether the source names this variable anywhere. Always returns true for loop, caller,
 * kwargs and varargs. A template cannot use a variable that it does not name. */
bool jinja_names(const struct template *t, const char *name);
bool jinja_mentions(const struct template *t, const char *word); /* the source has word */

/* Bytes [begin, end) of an output. end is -1 if another block captured the text, so that its place
 * is not known. */
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

/* Renders into o, which is emptied first. json is the text, of size bytes, of an object with the
 * variables. now_s is the time that strftime_now reads, in seconds since 1970, UTC. On failure o
 * is empty, and the error has the line of the template. The error is ERR_INVALID with the argument
 * of raise_exception if the template calls that, ERR_INVALID if Python would raise an error or if
 * the variables cannot be read, ERR_TOO_LARGE past a limit or for a result past 64 bits, and
 * ERR_UNSUPPORTED for a text format that is not implemented. */
int jinja_render(const struct template *t, const char *json, int64_t size, int64_t now_s,
                 struct template_output *o, struct err *e);

#endif
