/* Finds the classes that may be neighbours in a match by Glushkov's construction. It derives
 * them from the classes that may be first and last in each part of the pattern. Atomic groups
 * and lazy quantifiers only choose among the possible matches, so they add no neighbours.
 * Runes that a lookahead reads are treated as part of a match. */
#include "worker/text/pattern_pairs.h"

#include <stdlib.h>
#include <string.h>

struct pairs_part {
    struct class_bits first, last;
    bool empty; /* set if the part may match the empty string */
};

struct pairs_reading {
    const char *p, *end;
    struct pattern_pairs *out;
};

static struct pairs_part alternatives(struct pairs_reading *r, bool top);

static bool take(struct pairs_reading *r, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n)) return false;
    r->p += n;
    return true;
}

static void unite(struct class_bits *to, const struct class_bits *from)
{
    for (int i = 0; i < 4; i++) to->word[i] |= from->word[i];
}

/* Records that a class of `first` may follow a class of `last`. */
static void follow(struct pairs_reading *r, const struct class_bits *last,
                   const struct class_bits *first)
{
    for (int c = 0; c < 256; c++)
        if (class_in(last, (uint8_t)c)) unite(&r->out->after[c], first);
}

static void give_up(struct pairs_reading *r)
{
    r->out->known = false;
    r->p = r->end;
}

/* Reads a class such as [\x01\x02]. Before the call, p is after the opening bracket. */
static struct pairs_part one_set(struct pairs_reading *r)
{
    struct pairs_part s = {0};
    while (take(r, "\\x")) {
        const char digits[3] = {r->p[0], r->p[1], 0};
        const long c = strtol(digits, NULL, 16);
        s.first.word[c / 64] |= 1ull << (c % 64);
        r->p += 2;
    }
    if (!take(r, "]")) give_up(r);
    s.last = s.first;
    return s;
}

static struct pairs_part group(struct pairs_reading *r)
{
    const bool ahead = take(r, "(?=") || take(r, "(?!");
    if (!ahead && !take(r, "(?:") && !take(r, "(?>")) return give_up(r), (struct pairs_part){0};
    struct pairs_part a = alternatives(r, false);
    if (!take(r, ")")) give_up(r);
    return ahead ? (struct pairs_part){.first = a.first, .empty = true} : a;
}

/* Reads {n}, {n,} or {n,m}. Before the call, p is after the opening brace. Returns n. */
static long braces(struct pairs_reading *r)
{
    const long least = strtol(r->p, NULL, 10);
    while (r->p < r->end && *r->p != '}') r->p++;
    if (!take(r, "}")) give_up(r);
    return least;
}

/* Reads a quantifier if there is one, and returns the smallest number of repetitions that it
 * allows. Returns 1 if there is no quantifier. */
static long repeat(struct pairs_reading *r, struct pairs_part *a)
{
    if (r->p == r->end || !strchr("*+?{", *r->p)) return 1;
    const char kind = *r->p++;
    const long least = kind == '{' ? braces(r) : kind == '+';
    if (kind != '{' && r->p < r->end && (*r->p == '+' || *r->p == '?')) r->p++;
    if (kind != '?') follow(r, &a->last, &a->first);
    if (!least) a->empty = true;
    return least;
}

static struct pairs_part sequence(struct pairs_reading *r, bool top)
{
    struct pairs_part s = {.empty = true};
    struct class_bits alone = {{0}};
    int n = 0;
    for (; r->p < r->end && *r->p != '|' && *r->p != ')'; n++) {
        const bool set = take(r, "[");
        struct pairs_part a = set ? one_set(r) : group(r);
        if (repeat(r, &a) <= 1 && set) alone = a.first;
        follow(r, &s.last, &a.first);
        if (s.empty) unite(&s.first, &a.first);
        if (!a.empty) s.last = (struct class_bits){{0}};
        unite(&s.last, &a.last);
        s.empty = s.empty && a.empty;
    }
    if (top && n == 1) unite(&r->out->alone, &alone);
    return s;
}

static struct pairs_part alternatives(struct pairs_reading *r, bool top)
{
    struct pairs_part all = {0};
    do {
        const struct pairs_part s = sequence(r, top);
        unite(&all.first, &s.first);
        unite(&all.last, &s.last);
        all.empty = all.empty || s.empty;
    } while (take(r, "|"));
    return all;
}

void pattern_pairs_read(struct pattern_pairs *p, const struct text *pattern)
{
    struct pairs_reading r = {pattern->data, pattern->data + pattern->n, p};
    memset(p, 0, sizeof *p);
    p->known = true;
    const struct pairs_part all = alternatives(&r, true);
    if (r.p < r.end || all.empty) p->known = false;
}
