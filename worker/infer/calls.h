/* calls.h: finds the calls of tools in the text of an answer, in the form of Hermes and Qwen:
 *
 *     <tool_call>{"name": "f", "arguments": {...}}</tool_call>
 *
 * with white space around the object. A block that is not such an object is text. White space after
 * a call is left out. The end of the text may stand in the place of the last </tool_call>. */
#ifndef SEQD_INFER_CALLS_H
#define SEQD_INFER_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#define CALLS_BEGIN "<tool_call>"
#define CALLS_END   "</tool_call>"

enum calls_kind {
    CALLS_NONE, /* no piece is known before more text comes, or none is left */
    CALLS_TEXT,
    CALLS_CALL
};
struct calls_piece {
    enum calls_kind kind;
    int64_t next;          /* offset after the piece */
    const char *text;      /* [size] */
    const char *name;      /* [name_size], borrowed from the text as the next one */
    const char *arguments; /* [arguments_size]: the JSON text of an object */
    int64_t size, name_size, arguments_size;
};

/* Finds the piece of text [size] that begins at `from`. after_call tells whether the piece before
 * it is a call, and `ended` whether the text is complete. */
void calls_next(const char *text, int64_t from, int64_t size, bool after_call, bool ended,
                struct calls_piece *out);

#endif
