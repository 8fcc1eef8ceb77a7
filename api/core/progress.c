/* progress.c: keeps the counts of the current piece and calls the reporter when its interval has
 * passed. */
#include "api/core/progress.h"

#include "api/core/clock.h"

static void tell(struct progress *p, bool always)
{
    const int64_t now = clock_us();
    if (!always && now - p->told_us < p->every_us) return;
    p->told_us = now;
    p->now.elapsed_us = now - p->begun_us;
    if (p->tell) p->tell(p->arg, &p->now);
}

void progress_begin(struct progress *p, enum progress_unit unit, double total, double from)
{
    if (!p) return;
    p->begun = true;
    p->begun_us = clock_us();
    p->piece_at = p->at = from;
    p->piece = 0;
    p->now = (struct rank_progress){.unit = unit, .done = from, .total = total, .from = from};
    tell(p, true);
}

void progress_total(struct progress *p, double total)
{
    if (p && p->begun) p->now.total = total;
}

void progress_at(struct progress *p, double done)
{
    if (!p || !p->begun) return;
    p->at = p->now.total > 0 && done > p->now.total ? p->now.total : done;
    if (p->at > p->now.done) p->now.done = p->at;
    tell(p, false);
}

void progress_add(struct progress *p, double units)
{
    if (p) progress_at(p, p->at + units);
}

double progress_done(const struct progress *p)
{
    return p ? p->at : 0;
}

void progress_piece(struct progress *p, double at, double size)
{
    if (!p) return;
    p->piece_at = at;
    p->piece = size;
}

void progress_part(struct progress *p, double part)
{
    if (p) progress_at(p, p->piece_at + part * p->piece);
}

void progress_tokens(struct progress *p, int64_t n)
{
    if (p) p->now.tokens += n;
}

void progress_end(struct progress *p)
{
    if (!p || !p->begun) return;
    if (p->now.total <= 0) p->now.total = p->now.done;
    p->now.done = p->at = p->now.total;
    tell(p, true);
}
