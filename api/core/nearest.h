/* nearest.h: how far one word is from another, for "did you mean". */
#ifndef SEQD_CORE_NEAREST_H
#define SEQD_CORE_NEAREST_H

#define NEAREST_FAR 64 /* words of this length or more are at this distance */

/* Returns Levenshtein's distance, with a swap of neighbours counted as one (optimal string
 * alignment). */
int nearest_distance(const char *a, const char *b);
/* Returns the largest distance at which another word may still be meant: a third of the word's
 * length. */
int nearest_most(const char *word);

#endif
