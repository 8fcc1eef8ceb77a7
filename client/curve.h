/* curve.h: a curve that is drawn with braille dots (2 x 4 to a character), or with '*' if the
 * terminal does not use UTF-8. It accepts any number of points; if there are more than
 * CURVE_POINTS, neighbours are averaged. */
#ifndef SEQD_CLIENT_CURVE_H
#define SEQD_CLIENT_CURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CURVE_POINTS  2048
#define CURVE_COLUMNS 200
#define CURVE_ROWS    40

struct curve {
    int n;
    int64_t per_point; /* number of samples that each point averages: 1, 2, 4 ... */
    int64_t in_last;   /* number of samples that the last point averages so far */
    double x[CURVE_POINTS], y[CURVE_POINTS];
};

void curve_init(struct curve *c);
/* Adds a point. A point that is not finite is left out. If a job was resumed from a checkpoint, x
 * is smaller than before. In that case the points at x and after x are dropped first. */
void curve_add(struct curve *c, double x, double y);
/* Draws into lines[0 .. rows-1]. Each line becomes a NUL-terminated string of `columns`
 * characters. The x axis ends at x_max or at the last point, whichever is larger. *y_low and
 * *y_high get the range of the y axis. */
#define CURVE_LINE (CURVE_COLUMNS * 3 + 1)
void curve_draw(const struct curve *c, int columns, int rows, double x_max, bool utf8,
                char lines[][CURVE_LINE], double *y_low, double *y_high);

#endif
