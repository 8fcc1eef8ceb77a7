/* nearest.h: the edit distance between two words, for "did you mean". */
#ifndef SEQD_CORE_NEAREST_H
#define SEQD_CORE_NEAREST_H

#define NEAREST_FAR 64 /* the distance that is returned if a word has this length or more */

/* Returns Levenshtein's distance, in which a swap of two neighbours counts as one change (optimal
 * string alignment). */
int nearest_distance(const char *a, const char *b);
/* Returns the largest distance at which a known word is still suggested for this word: about a
 * third of the word's length. */
int nearest_most(const char *word);

#endif
