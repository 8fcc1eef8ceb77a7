/* stop.h: finds the strings that end a text in a stream of bytes, even across the borders of
 * tokens.
 *     stop_init(&s); stop_add(&s, "aab", 3);        once
 *     stop_begin(&s);                               for every text
 *     n = stop_feed(&s, byte)                       > 0: the text ends here, and its last n bytes
 *                                                   are the stop string
 *
 * The method is that of Knuth, Morris and Pratt (1977). Each string has a state: the length of
 * the longest suffix of the text that is a prefix of the string. No byte is read twice. If
 * several of the added strings end at the same byte, the longest of these strings is reported. */
#ifndef SEQD_INFER_STOP_H
#define SEQD_INFER_STOP_H

#include <stddef.h>
#include <stdint.h>
#include "api/core/limits.h"

#define STOP_STRINGS 16 /* strings of a request; a job has at most SPEC_STOPS */

struct stop {
    int n;
    struct stop_string {
        int size, state;
        unsigned char text[STOP_SIZE];
        uint16_t border[STOP_SIZE]; /* length of the longest proper suffix of text[0..i] that is a
                                     * prefix of text */
    } string[STOP_STRINGS];
};

void stop_init(struct stop *s);
/* Adds a string. Returns -1 if the string is empty or longer than STOP_SIZE, or if STOP_STRINGS
 * strings have been added already. */
int stop_add(struct stop *s, const char *text, size_t size);
void stop_begin(struct stop *s);
/* Adds one byte to the text. The parameter `byte` is -1 for a token that is not a byte. If a
 * stop string ends with this byte, returns the length of the string. Otherwise returns 0. */
int stop_feed(struct stop *s, int byte);

#endif
