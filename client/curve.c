/* curve.c: stores the points of a curve, averaging pairs of them when it is full, and draws lines
 * between the points on a canvas of dots. */
#include "client/curve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"

void curve_init(struct curve *c)
{
    memset(c, 0, sizeof *c);
    c->per_point = 1;
}

/* Halves the number of points by averaging pairs. */
static void thin(struct curve *c)
{
    for (int i = 0; i < c->n / 2; i++) {
        c->x[i] = (c->x[2 * i] + c->x[2 * i + 1]) / 2;
        c->y[i] = (c->y[2 * i] + c->y[2 * i + 1]) / 2;
    }
    c->n /= 2;
    c->per_point *= 2;
    c->in_last = c->per_point;
}

void curve_add(struct curve *c, double x, double y)
{
    if (!isfinite(x) || !isfinite(y)) return;
    while (c->n && c->x[c->n - 1] >= x) {
        c->n--;
        c->in_last = c->per_point;
    }
    if (c->n && c->in_last < c->per_point) {
        double k = (double)++c->in_last;
        c->x[c->n - 1] += (x - c->x[c->n - 1]) / k;
        c->y[c->n - 1] += (y - c->y[c->n - 1]) / k;
        return;
    }
    if (c->n == CURVE_POINTS) thin(c);
    c->x[c->n] = x;
    c->y[c->n++] = y;
    c->in_last = 1;
}

struct canvas {
    int columns, rows; /* size in dots */
    unsigned char dot[CURVE_ROWS * 4][CURVE_COLUMNS * 2];
};

static void stroke(struct canvas *v, int x0, int y0, int x1, int y1)
{
    int n = abs(x1 - x0) > abs(y1 - y0) ? abs(x1 - x0) : abs(y1 - y0);
    for (int i = 0; i <= n; i++) {
        int x = n ? x0 + (int)lround((double)(x1 - x0) * i / n) : x0;
        int y = n ? y0 + (int)lround((double)(y1 - y0) * i / n) : y0;
        assert(x >= 0 && x < v->columns && y >= 0 && y < v->rows);
        v->dot[y][x] = 1;
    }
}

static void range(const struct curve *c, double *low, double *high)
{
    *low = INFINITY, *high = -INFINITY;
    for (int i = 0; i < c->n; i++) {
        if (c->y[i] < *low) *low = c->y[i];
        if (c->y[i] > *high) *high = c->y[i];
    }
    if (!c->n) *low = 0, *high = 1;
    if (*high - *low < 1e-9 * fabs(*high) + 1e-12) {
        double pad = fabs(*high) > 0 ? fabs(*high) * 0.05 : 0.5;
        *low -= pad, *high += pad;
    }
}

static void render(const struct canvas *v, int row, bool utf8, char *out)
{
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    for (int x = 0; x < v->columns / 2; x++) {
        unsigned m = 0;
        for (int dy = 0; dy < 4; dy++)
            for (int dx = 0; dx < 2; dx++)
                if (v->dot[row * 4 + dy][x * 2 + dx]) m |= bit[dy][dx];
        if (!utf8) {
            *out++ = m ? '*' : ' ';
        } else if (!m) {
            *out++ = ' ';
        } else { /* U+2800 + m */
            *out++ = (char)0xe2;
            *out++ = (char)(0xa0 | m >> 6);
            *out++ = (char)(0x80 | (m & 0x3f));
        }
    }
    *out = 0;
}

void curve_draw(const struct curve *c, int columns, int rows, double x_max, bool utf8,
                char lines[][CURVE_LINE], double *y_low, double *y_high)
{
    struct canvas v = {.columns = columns * 2, .rows = rows * 4};
    int last_x = 0, last_y = 0;
    assert(columns > 0 && columns <= CURVE_COLUMNS && rows > 0 && rows <= CURVE_ROWS);
    range(c, y_low, y_high);
    if (c->n && x_max < c->x[c->n - 1]) x_max = c->x[c->n - 1];
    for (int i = 0; i < c->n; i++) {
        double fx = x_max > 0 ? c->x[i] / x_max : 0, fy = (c->y[i] - *y_low) / (*y_high - *y_low);
        int x = (int)lround(fmax(fx, 0) * (v.columns - 1));
        int y = v.rows - 1 - (int)lround(fy * (v.rows - 1));
        if (i)
            stroke(&v, last_x, last_y, x, y);
        else
            stroke(&v, x, y, x, y);
        last_x = x, last_y = y;
    }
    for (int r = 0; r < rows; r++) render(&v, r, utf8, lines[r]);
}
