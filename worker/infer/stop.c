/* stop.c: advances the state of each string by the Knuth-Morris-Pratt borders of its text. */
#include "worker/infer/stop.h"

#include <string.h>

void stop_init(struct stop *s)
{
    s->n = 0;
}

static void find_borders(struct stop_string *t)
{
    int k = 0;
    t->border[0] = 0;
    for (int i = 1; i < t->size; i++) {
        while (k && t->text[i] != t->text[k]) k = t->border[k - 1];
        k += t->text[i] == t->text[k];
        t->border[i] = (uint16_t)k;
    }
}

int stop_add(struct stop *s, const char *text, size_t size)
{
    if (!size || size > STOP_SIZE || s->n == STOP_STRINGS) return -1;
    struct stop_string *t = &s->string[s->n++];
    t->size = (int)size;
    t->state = 0;
    memcpy(t->text, text, size);
    find_borders(t);
    return 0;
}

void stop_begin(struct stop *s)
{
    for (int i = 0; i < s->n; i++) s->string[i].state = 0;
}

static int advance(struct stop_string *t, int byte)
{
    int k = t->state;
    if (k == t->size) k = t->border[k - 1]; /* the text continues after a match */
    while (k && t->text[k] != byte) k = t->border[k - 1];
    return t->state = k + (t->text[k] == byte);
}

int stop_feed(struct stop *s, int byte)
{
    int found = 0;
    for (int i = 0; i < s->n; i++) {
        struct stop_string *t = &s->string[i];
        if (advance(t, byte) == t->size && t->size > found) found = t->size;
    }
    return found;
}
