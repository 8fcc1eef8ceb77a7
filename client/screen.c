/* screen.c: moves the cursor up over the last frame, and writes the next frame from a single
 * buffer. */
#include "client/screen.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "client/text.h"

bool screen_draws(int fd)
{
    const char *term = getenv("TERM");
    return isatty(fd) && !(term && !strcmp(term, "dumb"));
}

int screen_columns(int fd)
{
    struct winsize w = {0};
    return !ioctl(fd, TIOCGWINSZ, &w) && w.ws_col >= 20 ? w.ws_col : 80;
}

void screen_begin(struct screen *s)
{
    struct winsize w = {0};
    s->n = 0;
    s->columns = screen_columns(STDOUT_FILENO);
    s->rows = 24;
    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_row) s->rows = w.ws_row;
    if (s->columns > 200) s->columns = 200;
}

void screen_add(struct screen *s, const char *fmt, ...)
{
    va_list ap;
    if (s->n == SCREEN_LINES) return;
    va_start(ap, fmt);
    vsnprintf(s->line[s->n++], SCREEN_BYTES, fmt, ap);
    va_end(ap);
}

void screen_draw(struct screen *s)
{
    static char frame[SCREEN_LINES * (SCREEN_BYTES + 8) + 64]; /* too large for a stack */
    size_t o = 0;
    if (s->n_drawn) o += (size_t)snprintf(frame, sizeof frame, "\033[%dA", s->n_drawn);
    for (int i = 0; i < s->n; i++) {
        size_t n = strchr(s->line[i], '\033') ? strlen(s->line[i])
                                              : text_cut(s->line[i], s->columns - 1);
        o += (size_t)snprintf(frame + o, sizeof frame - o, "%.*s\033[K\n", (int)n, s->line[i]);
    }
    o += (size_t)snprintf(frame + o, sizeof frame - o,
                          "\033[J"); /* erases the lines of an older frame below */
    fflush(stdout);
    for (size_t done = 0; done < o;) {
        ssize_t k = write(STDOUT_FILENO, frame + done, o - done);
        if (k <= 0) return;
        done += (size_t)k;
    }
    s->n_drawn = s->n;
}
