/* stop.h: strings that end a text, found in a stream of bytes whatever the borders of its tokens.
 *
 *     stop_init(&s); stop_add(&s, "aab", 3);        once
 *     stop_begin(&s);                               for every text
 *     n = stop_feed(&s, byte)                       > 0: the text ends here and n bytes of it, this
 *                                                   one included, are the stop string
 *
 * Knuth, Morris and Pratt (1977): one state per string, the longest end of the text that is a
 * beginning of the string. No byte is read twice. If several strings end at one byte, the longest
 * counts. */
#ifndef SEQD_INFER_STOP_H
#define SEQD_INFER_STOP_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/limits.h"

struct stop {
    int n;
    struct stop_string {
        int size, state;
        unsigned char text[STOP_SIZE];
        uint16_t border[STOP_SIZE]; /* the longest end of text[0..i] that is a beginning too */
    } string[SPEC_STOPS];
};

void stop_init(struct stop *s);
/* Adds a string. -1: it is empty, has over STOP_SIZE bytes, or is more than SPEC_STOPS of them. */
int stop_add(struct stop *s, const char *text, size_t size);
void stop_begin(struct stop *s);
/* Feeds one byte; -1: a token that is no byte, which no stop string contains. */
int stop_feed(struct stop *s, int byte);

#endif
