/* screen.h: a block of lines that is redrawn in place on a terminal. */
#ifndef SEQD_CLIENT_SCREEN_H
#define SEQD_CLIENT_SCREEN_H

#include <stdbool.h>

#define SCREEN_LINES 48
#define SCREEN_BYTES 1024

struct screen {
    int n_drawn; /* number of lines that are on the terminal now */
    int n;       /* number of lines of the next frame */
    int columns; /* columns of the terminal, at most 200 */
    int rows;    /* rows of the terminal */
    char line[SCREEN_LINES][SCREEN_BYTES];
};

/* Tells whether fd is a terminal that supports cursor movements. */
bool screen_draws(int fd);
/* Returns the width of the terminal, or 80 if it is not known or is less than 20. */
int screen_columns(int fd);
void screen_begin(struct screen *s); /* asks the terminal for its size */
void screen_add(struct screen *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Replaces the last frame by this one in a single write. Each line is shortened to one column less
 * than the terminal's width. A line with colour escapes is not shortened, so the caller must keep
 * it shorter than the terminal's width. */
void screen_draw(struct screen *s);

#endif
