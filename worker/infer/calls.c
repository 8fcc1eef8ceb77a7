/* calls.c: looks for the tags of a call, and reads the object between them. Text that may become a
 * tag waits for more. */
#include "worker/infer/calls.h"

#include <string.h>
#include "api/core/jread.h"

#define BEGIN_SIZE ((int64_t)sizeof CALLS_BEGIN - 1)
#define END_SIZE   ((int64_t)sizeof CALLS_END - 1)

/* Returns the offset of a tag in text [from, size), or -1. */
static int64_t find(const char *text, int64_t from, int64_t size, const char *tag, int64_t tag_size)
{
    if (size - from < tag_size) return -1;
    const char *at = memmem(text + from, (size_t)(size - from), tag, (size_t)tag_size);
    return at ? at - text : -1;
}

/* Reads the object of a call. Returns false if the text is none. */
static bool read_call(const char *text, int64_t size, struct calls_piece *out)
{
    struct jread j;
    enum jtok t;
    out->name = out->arguments = NULL;
    jread_init(&j, text, (size_t)size);
    if (jread_next(&j) != J_OBJECT) return false;
    while ((t = jread_next(&j)) == J_KEY) {
        const bool name = jread_is(&j, "name"), arguments = jread_is(&j, "arguments");
        if (!name && !arguments) {
            if (jread_skip(&j)) return false;
            continue;
        }
        if (jread_next(&j) != (name ? J_STRING : J_OBJECT) || (name ? out->name : out->arguments))
            return false;
        if (name && (j.escaped || !j.len)) return false;
        if (name) {
            out->name = j.text;
            out->name_size = (int64_t)j.len;
            continue;
        }
        out->arguments = j.p - 1;
        if (jread_skip(&j)) return false;
        out->arguments_size = j.p - out->arguments;
    }
    return t == J_OBJECT_END && jread_next(&j) == J_END && out->name && out->arguments;
}

/* Returns how many bytes at the end of the text may be the beginning of the tag. */
static int64_t begun_tag(const char *text, int64_t from, int64_t size)
{
    int64_t n = size - from < BEGIN_SIZE - 1 ? size - from : BEGIN_SIZE - 1;
    while (n > 0 && memcmp(text + size - n, CALLS_BEGIN, (size_t)n) != 0) n--;
    return n;
}

static void put_text(struct calls_piece *out, const char *text, int64_t from, int64_t to)
{
    *out = (struct calls_piece){.kind = to > from ? CALLS_TEXT : CALLS_NONE,
                                .next = to,
                                .text = text + from,
                                .size = to - from};
}

/* Finds the piece that begins with a tag at `from`. */
static void next_block(const char *text, int64_t from, int64_t size, bool ended,
                       struct calls_piece *out)
{
    const int64_t inside = from + BEGIN_SIZE, end = find(text, inside, size, CALLS_END, END_SIZE);
    const int64_t next = end < 0 ? size : end + END_SIZE;
    if (end < 0 && !ended) {
        put_text(out, text, from, from);
    } else if (read_call(text + inside, (end < 0 ? size : end) - inside, out)) {
        out->kind = CALLS_CALL;
        out->next = next;
        out->size = 0;
    } else {
        put_text(out, text, from, next);
    }
}

void calls_next(const char *text, int64_t from, int64_t size, bool after_call, bool ended,
                struct calls_piece *out)
{
    *out = (struct calls_piece){.next = from};
    while (after_call && from < size && strchr(" \t\r\n", text[from]) && text[from]) from++;
    const int64_t tag = find(text, from, size, CALLS_BEGIN, BEGIN_SIZE);
    if (tag == from)
        next_block(text, from, size, ended, out);
    else if (tag > from)
        put_text(out, text, from, tag);
    else
        put_text(out, text, from, ended ? size : size - begun_tag(text, from, size));
}
