/* lex.h: splits the source of a chat template into tokens, by the rules of jinja2's lexer with
 * trim_blocks and lstrip_blocks. These two options remove one newline after a block tag, and
 * the white space before a block tag that begins its line. A "-" at the beginning of a tag
 * removes all white space before the tag, and a "-" at its end removes all white space after
 * it. A "+" keeps this white space. */
#ifndef SEQD_JINJA_LEX_H
#define SEQD_JINJA_LEX_H

#include "worker/jinja/value.h"

enum token_type {
    T_END, /* end of the source */
    T_DATA,
    T_PRINT,     /* {{ */
    T_PRINT_END, /* }} */
    T_BLOCK,     /* {% */
    T_BLOCK_END, /* %} */
    T_NAME,
    T_CONST, /* a string, an integer or a float */
    T_OP     /* an operator; the member op has its bytes, such as OP2('=', '=') */
};

#define OP1(a)    ((a) << 8)
#define OP2(a, b) ((a) << 8 | (b))

struct token {
    uint8_t type;
    uint16_t op;
    int line;
    struct str text;      /* text of T_DATA and T_NAME, borrowed from the source */
    struct pyvalue value; /* value of T_CONST */
};

struct template_tokens {
    struct token *t; /* the last token is T_END */
    int64_t n, room;
};

/* Splits the source, whose newlines must be \n. The tokens borrow the source. Fails with
 * ERR_INVALID for a token that cannot be read, with ERR_UNSUPPORTED for \N{...} in a string,
 * or with ERR_TOO_LARGE if a limit is exceeded. The error has the number of the line. */
void jinja_lex(struct heap *h, struct template_tokens *out, const char *source, int64_t size);

#endif
