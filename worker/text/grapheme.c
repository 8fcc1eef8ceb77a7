/* grapheme.c: decides for each rune whether the cluster ends before it. The decision depends
 * on the runes of the cluster before this rune. */
#include "worker/text/grapheme.h"

#include <stdbool.h>
#include "worker/text/unicode.h"

/* The state of a cluster: its last rune, and properties of the runes before its last rune. */
struct grapheme {
    enum unicode_break last;
    bool consonant, linked; /* `consonant` is true if the cluster begins a conjunct; `linked`
                             * is true if a linker has followed the consonant */
    bool picture, joiner;   /* `picture` is true if the cluster is a picture with extenders;
                             * `joiner` is true if a joiner has followed the extenders */
};

static void take(struct grapheme *c, enum unicode_break k)
{
    const bool both = k == BREAK_EXTEND || k == BREAK_LINKER;
    const bool consonant = c->consonant && (both || k == BREAK_JOINER);
    c->linked = consonant && (c->linked || k == BREAK_LINKER);
    c->consonant = k == BREAK_CONSONANT || consonant;
    c->joiner = c->picture && k == BREAK_JOINER;
    c->picture = k == BREAK_PICTURE || (c->picture && (both || k == BREAK_NONJOINER));
    c->last = k;
}

static bool hangul(enum unicode_break a, enum unicode_break b)
{
    if (a == BREAK_L) return b == BREAK_L || b == BREAK_V || b == BREAK_LV || b == BREAK_LVT;
    if (a == BREAK_LV || a == BREAK_V) return b == BREAK_V || b == BREAK_T;
    return (a == BREAK_LVT || a == BREAK_T) && b == BREAK_T;
}

/* Returns true if a rune of class k continues the cluster according to rules GB3 to GB11. */
static bool joins(const struct grapheme *c, enum unicode_break k)
{
    if (c->last == BREAK_CR || c->last == BREAK_LF || c->last == BREAK_CONTROL)
        return c->last == BREAK_CR && k == BREAK_LF;
    switch (k) {
    case BREAK_CR:
    case BREAK_LF:
    case BREAK_CONTROL: return false;
    case BREAK_EXTEND:
    case BREAK_LINKER:
    case BREAK_JOINER:
    case BREAK_NONJOINER:
    case BREAK_SPACING: return true;
    default: break;
    }
    return c->last == BREAK_PREPEND || hangul(c->last, k) || (k == BREAK_CONSONANT && c->linked) ||
           (k == BREAK_PICTURE && c->joiner);
}

int64_t grapheme_end(const char *s, int64_t n, int64_t at)
{
    struct grapheme c = {0};
    int size;
    take(&c, unicode_break(rune_get(s + at, &size)));
    for (at += size; at < n; at += size) {
        const enum unicode_break k = unicode_break(rune_get(s + at, &size));
        if (!joins(&c, k)) break;
        take(&c, k);
    }
    return at;
}
