/* grammar.h: the texts that a request allows (response_format, tool_choice), as a machine that
 * takes a text byte by byte.
 *
 * A grammar is compiled from a JSON schema, once for a request, with at most GRAMMAR_TEXT bytes of
 * schema and GRAMMAR_NODES nodes. A name of $defs is compiled once, wherever it is used, so that
 * the time is linear in the schema's size. The machine has a stack of at most GRAMMAR_DEPTH
 * frames: a value without a schema nests no deeper. If a text fits several schemas of an anyOf, the
 * machine follows all of them, at most GRAMMAR_WAYS together. Their schemas have at most
 * GRAMMAR_FRAMES frames in sum, and values without a schema nest no deeper when the sum is reached.
 *
 * The texts are a part of those that the schema allows:
 *   - properties stand in the order of the schema, those that it does not name after all that it
 *     requires. Their names have no escapes
 *   - an object with properties has no others, unless additionalProperties allows them
 *   - white space is a line feed, spaces, or a line feed and spaces, GRAMMAR_SPACE bytes at most.
 *     It stands after { [ , : and before } and ]
 *   - a number has at most 18 digits before the point, 20 after it, and 2 in its exponent
 *   - an escape \u is no surrogate and not NUL; these characters stand as they are
 * A text ends when its value is complete. It begins without white space and ends without it. */
#ifndef SEQD_INFER_GRAMMAR_H
#define SEQD_INFER_GRAMMAR_H

#include <stdbool.h>
#include <stdint.h>
#include "api/core/err.h"

#define GRAMMAR_TEXT       (256 * 1024) /* largest schema in bytes */
#define GRAMMAR_NODES      4096         /* most schemas and literals in a grammar, of each */
#define GRAMMAR_PROPERTIES 256          /* most properties of an object */
#define GRAMMAR_DEPTH      64
#define GRAMMAR_WAYS       16
#define GRAMMAR_FRAMES     128 /* most frames of all ways together that schemas ask for */
#define GRAMMAR_SPACE      32

struct grammar;

/* Each function returns NULL on a failure. json [size] is a schema. Fails with ERR_INVALID for a
 * schema that is wrong or that no text fits, with ERR_UNSUPPORTED for a keyword that is not
 * implemented, with ERR_TOO_LARGE over a limit, and with ERR_IO if there is no memory. The error
 * names the keyword and its place. */
struct grammar *grammar_of_schema(const char *json, int64_t size, struct err *e);
struct grammar *grammar_of_object(struct err *e); /* any JSON object */
/* A function that an answer may call. */
struct grammar_tool {
    const char *name, *schema; /* borrowed; schema is NULL if the function has no parameters */
    int64_t name_size, schema_size;
};
/* The call of one of the tools [n] in the form of calls.h. Their names have no characters that JSON
 * escapes. The tools are sorted. */
struct grammar *grammar_of_calls(struct grammar_tool *tools, int n, struct err *e);
void grammar_destroy(struct grammar *g);
/* Returns the bytes [*n] of all names and literals, without what stands between them. g owns
 * them. */
const char *grammar_bytes(const struct grammar *g, int64_t *n);

/* Copy a grammar to bytes [grammar_size_packed], and back in a process of the same build.
 * grammar_unpack returns NULL with ERR_IO if there is no memory. */
int64_t grammar_size_packed(const struct grammar *g);
void grammar_pack(const struct grammar *g, char *out);
struct grammar *grammar_unpack(const char *bytes, struct err *e);

struct grammar_frame {
    int32_t node;
    uint8_t state;
    uint8_t utf8;  /* state of the character in a string; 0 between characters */
    uint8_t space; /* bytes of white space at this place */
    uint8_t pad;
    int32_t a, b, pos; /* by the kind of the node */
};
/* One way to read the text. The frame at the top takes the next byte. */
struct grammar_way {
    int32_t depth;
    struct grammar_frame frame[GRAMMAR_DEPTH];
};
/* The ways to read the bytes so far. None are left after a byte that no way takes. */
struct grammar_state {
    int32_t n;
    bool full; /* set if the ways before the last byte had GRAMMAR_FRAMES frames */
    struct grammar_way way[GRAMMAR_WAYS + 1]; /* the last is scratch */
};

void grammar_begin(const struct grammar *g, struct grammar_state *s);
/* Sets *to to the state after a byte. Returns false if no text continues so; *to is then empty. */
bool grammar_step(const struct grammar *g, const struct grammar_state *from, unsigned char byte,
                  struct grammar_state *to);
/* Tells whether the text can end here. */
bool grammar_complete(const struct grammar *g, const struct grammar_state *s);
/* Tells whether the text must end here. */
bool grammar_ended(const struct grammar_state *s);
/* Returns n if all texts of at most n characters that a JSON string has without escapes may follow,
 * and no longer ones. Returns INT32_MAX if all such texts may follow, and -1 if it depends on the
 * characters. */
int32_t grammar_string_room(const struct grammar *g, const struct grammar_state *s);

#endif
