/* unicode.h: sets and maps of characters, in the form that the package `tokenizers` uses. The
 * parts of the package use different versions of Unicode. For that reason
 * tests/golden/make_unicode.py runs every code point through the package to make the tables. */
#ifndef SEQD_TEXT_UNICODE_H
#define SEQD_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "worker/text/rune.h"

/* Sorted, disjoint ranges of runes, as pairs of first and last. */
struct rune_set {
    uint32_t *range;
    int64_t n, room; /* pairs */
};
/* returns -1 if memory is out */
int rune_set_add(struct rune_set *s, uint32_t first, uint32_t last);
int rune_set_merge(struct rune_set *s, const struct rune_set *other);
int rune_set_negate(struct rune_set *s);
void rune_set_sort(struct rune_set *s); /* called after ranges were added out of order */
void rune_set_fini(struct rune_set *s);

/* Adds the runes of a class that regular expressions can name. The class is a category ("Lu"),
 * the first letter of categories ("L"), a script ("Han"), or "space" or "word" (\s and \w).
 * Returns 1 if there is no class with this name, and -1 if memory is out. */
int unicode_class(struct rune_set *s, const char *name, size_t n);
/* Adds the runes that match the ASCII letter c when case is ignored. */
int unicode_fold(struct rune_set *s, uint32_t c);

/* Sets of pre-tokenizers and normalizers. */
enum unicode_set {
    UNICODE_SPACE,        /* White_Space */
    UNICODE_NUMERIC,      /* for Digits */
    UNICODE_PUNCTUATION,  /* used by Punctuation and BertPreTokenizer; includes the symbols of
                           * ASCII */
    UNICODE_WORD,         /* used by Whitespace and by the option single_word */
    UNICODE_MARK,         /* for StripAccents */
    UNICODE_BERT_MARK,    /* used by strip_accents of BertNormalizer */
    UNICODE_BERT_CONTROL, /* used by clean_text of BertNormalizer; includes U+0000 and U+FFFD */
    UNICODE_SETS
};
/* One bit for each rune. */
struct rune_bits {
    uint64_t word[RUNES / 64];
};
struct rune_bits *unicode_bits(enum unicode_set set); /* returns NULL if memory is out; the caller
                                                       * frees it with free() */
static inline bool rune_in(const struct rune_bits *b, uint32_t c)
{
    return b->word[c / 64] >> (c % 64) & 1;
}

/* The class of a character for grapheme clusters. The numbers in unicode_tables.inc are the
 * values of this enum. */
enum unicode_break {
    BREAK_OTHER,
    BREAK_CONTROL,
    BREAK_EXTEND,
    BREAK_LINKER, /* linker of conjuncts; it also extends a cluster */
    BREAK_JOINER, /* U+200D */
    BREAK_SPACING,
    BREAK_PREPEND,
    BREAK_CONSONANT, /* consonant of a conjunct */
    BREAK_PICTURE,
    BREAK_L,
    BREAK_V,
    BREAK_T,
    BREAK_LV,
    BREAK_LVT,
    BREAK_CR,
    BREAK_LF,
    BREAK_NONJOINER /* U+200C; it extends a cluster, but not a conjunct */
};
enum unicode_break unicode_break(uint32_t c);

/* Writes the lowercase of c to out. Returns its number of runes, which is 1 or 2. */
int unicode_lower(uint32_t c, uint32_t out[2]);

#define UNICODE_DECOMPOSED 18 /* number of runes of the longest decomposition */
/* Writes the full decomposition of c. Returns its number of runes. If c has no decomposition,
 * writes c itself and returns 1. */
int unicode_decompose(uint32_t c, bool compatible, uint32_t out[UNICODE_DECOMPOSED]);
int unicode_combining(uint32_t c);                /* returns c's canonical combining class */
uint32_t unicode_compose(uint32_t a, uint32_t b); /* returns 0 if a and b do not compose */
/* Returns a bit for each rune. The bit is set if a normal form may change the rune, or if the
 * rune may combine or change places with a neighbouring rune. A rune whose bit is not set is
 * not changed by the normal form, whatever runes are next to it. The parameter `composed` is
 * true for NFC and NFKC. */
struct rune_bits *unicode_unstable(bool compatible, bool composed);

#endif
