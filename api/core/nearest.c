/* nearest.c: computes the optimal string alignment distance, which counts insertions, deletions,
 * substitutions and swaps of neighbours. */
#include "api/core/nearest.h"

#include <string.h>

int nearest_most(const char *word)
{
    return (int)strlen(word) / 3;
}

int nearest_distance(const char *a, const char *b)
{
    enum { MAX = NEAREST_FAR };
    size_t n = strlen(a), m = strlen(b);
    if (n >= MAX || m >= MAX) return MAX;
    unsigned char d[3][MAX + 1];
    for (size_t j = 0; j <= m; j++) d[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned char *row = d[i % 3], *up = d[(i + 2) % 3], *up2 = d[(i + 1) % 3];
        row[0] = (unsigned char)i;
        for (size_t j = 1; j <= m; j++) {
            int best = up[j - 1] + (a[i - 1] != b[j - 1]);
            if (up[j] + 1 < best) best = up[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                up2[j - 2] + 1 < best)
                best = up2[j - 2] + 1;
            row[j] = (unsigned char)best;
        }
    }
    return d[n % 3][m];
}
