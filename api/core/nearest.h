/* nearest.h: the edit distance between two words, for "did you mean". */
#ifndef SEQD_CORE_NEAREST_H
#define SEQD_CORE_NEAREST_H

#define NEAREST_FAR 64 /* the distance if a word has this length or more */

/* Returns Levenshtein's distance, with a swap of neighbours counted as one (optimal string
 * alignment). */
int nearest_distance(const char *a, const char *b);
/* Returns the largest distance at which another word may still be meant: about a third of the
 * word's length. */
int nearest_most(const char *word);

#endif
