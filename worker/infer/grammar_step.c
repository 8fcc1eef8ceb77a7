/* grammar_step.c: the machine of a grammar. A byte goes to the frame at the top of each way. A
 * frame that cannot take it, but whose value is complete, gives it to the frame below. */
#include <string.h>
#include "api/core/assert.h"
#include "worker/infer/grammar_nodes.h"

/* the result of giving a byte to a frame */
enum taken {
    TAKEN_NOT,   /* no text continues so */
    TAKEN,       /* the frame has it */
    TAKEN_LAST,  /* the frame has it, and its value is complete */
    TAKEN_BELOW, /* the value was complete before it: the frame below gets it */
    TAKEN_VALUE  /* it is the first byte of a value of the node *want */
};

#define INTEGER_DIGITS  18
#define FRACTION_DIGITS 20
#define EXPONENT_DIGITS 2

/* ---- characters ------------------------------------------------------------------------------ */

/* The bytes that may follow in a character: bytes from lo to hi, after which the state is
 * `next`. */
static const struct {
    uint8_t lo, hi, next;
} utf8_row[] = {{0},
                {0x80, 0xbf, 0},
                {0x80, 0xbf, 1},
                {0x80, 0xbf, 2},
                {0xa0, 0xbf, 1},
                {0x80, 0x9f, 1},
                {0x90, 0xbf, 2},
                {0x80, 0x8f, 2}};

/* Returns the state after a byte, or -1 if the bytes are no character (RFC 3629). */
static int utf8_next(int state, unsigned char c)
{
    if (state)
        return c >= utf8_row[state].lo && c <= utf8_row[state].hi ? utf8_row[state].next : -1;
    if (c < 0x80) return 0;
    if (c < 0xc2 || c > 0xf4) return -1;
    if (c < 0xe0) return 1;
    if (c < 0xf0) return c == 0xe0 ? 4 : c == 0xed ? 5 : 2;
    return c == 0xf0 ? 6 : c == 0xf4 ? 7 : 3;
}

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static int hex_of(unsigned char c)
{
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool take_space(struct grammar_frame *f, unsigned char c)
{
    if (c != ' ' && (c != '\n' || f->space)) return false;
    return f->space++ < GRAMMAR_SPACE;
}

/* ---- strings, numbers, literals -------------------------------------------------------------- */

enum { STRING_TEXT, STRING_ESCAPE, STRING_HEX };

/* Takes a digit of \u, whose value so far is f->a. No surrogate is taken, and not NUL. */
static enum taken take_hex(struct grammar_frame *f, unsigned char c)
{
    const int v = hex_of(c);
    if (v < 0 || (f->pos == 1 && f->a == 0xd && v >= 8) || (f->pos == 3 && !f->a && !v))
        return TAKEN_NOT;
    f->a = f->a * 16 + v;
    if (++f->pos == 4) f->state = STRING_TEXT;
    return TAKEN;
}

/* Counts a character that begins, in f->b. Returns false if the string may have no more. */
static bool take_character(const struct grammar_node *node, struct grammar_frame *f)
{
    if (node->max >= 0 && f->b == node->max) return false;
    if (node->max >= 0 || f->b < node->min) f->b++; /* else the count has no meaning */
    return true;
}

static enum taken take_string(const struct grammar_node *node, struct grammar_frame *f,
                              unsigned char c)
{
    if (f->state == STRING_HEX) return take_hex(f, c);
    if (f->state == STRING_ESCAPE) {
        f->state = c == 'u' ? STRING_HEX : STRING_TEXT;
        f->a = f->pos = 0;
        return c && strchr("\"\\/bfnrtu", c) ? TAKEN : TAKEN_NOT;
    }
    const int next = utf8_next(f->utf8, c);
    if (next < 0 || c < 0x20) return TAKEN_NOT;
    if (c == '"') return f->b < node->min ? TAKEN_NOT : TAKEN_LAST;
    if (!f->utf8 && !take_character(node, f)) return TAKEN_NOT;
    f->utf8 = (uint8_t)next;
    if (c == '\\') f->state = STRING_ESCAPE;
    return TAKEN;
}

enum {
    NUMBER_SIGN,
    NUMBER_ZERO,
    NUMBER_DIGITS,
    NUMBER_POINT,
    NUMBER_FRACTION,
    NUMBER_E,
    NUMBER_E_SIGN,
    NUMBER_EXPONENT
};

static bool number_complete(const struct grammar_frame *f)
{
    return f->state == NUMBER_ZERO || f->state == NUMBER_DIGITS || f->state == NUMBER_FRACTION ||
           f->state == NUMBER_EXPONENT;
}

static enum taken number_to(struct grammar_frame *f, int state)
{
    f->state = (uint8_t)state;
    f->pos = 1;
    return TAKEN;
}

/* Takes a digit of a part of a number that has at most `most`. */
static enum taken take_digit(struct grammar_frame *f, int most)
{
    return f->pos++ < most ? TAKEN : TAKEN_NOT;
}

static enum taken take_number(const struct grammar_node *node, struct grammar_frame *f,
                              unsigned char c)
{
    const bool whole = f->state == NUMBER_ZERO || f->state == NUMBER_DIGITS;
    const bool real = node->kind == GRAMMAR_NUMBER;
    if (is_digit(c)) switch (f->state) {
        case NUMBER_SIGN: return number_to(f, c == '0' ? NUMBER_ZERO : NUMBER_DIGITS);
        case NUMBER_ZERO: return TAKEN_NOT;
        case NUMBER_DIGITS: return take_digit(f, INTEGER_DIGITS);
        case NUMBER_POINT: return number_to(f, NUMBER_FRACTION);
        case NUMBER_FRACTION: return take_digit(f, FRACTION_DIGITS);
        case NUMBER_EXPONENT: return take_digit(f, EXPONENT_DIGITS);
        default: return number_to(f, NUMBER_EXPONENT);
        }
    if (real && whole && c == '.') return number_to(f, NUMBER_POINT);
    if (real && (whole || f->state == NUMBER_FRACTION) && (c == 'e' || c == 'E'))
        return number_to(f, NUMBER_E);
    if (f->state == NUMBER_E && (c == '+' || c == '-')) return number_to(f, NUMBER_E_SIGN);
    return number_complete(f) ? TAKEN_BELOW : TAKEN_NOT;
}

/* Returns the first of the literals [lo, hi) whose byte at pos is at least c. All have the same
 * bytes before pos. The literal that ends there comes first. */
static int32_t lower_bound(const struct grammar *g, int32_t lo, int32_t hi, int32_t pos, int c)
{
    while (lo < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        const struct grammar_text t = g->literal[mid];
        if (t.size <= pos || (unsigned char)g->bytes[t.at + pos] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* Takes a byte of the literals [f->a, f->b). Sets *one when a single one is left, at its end. */
static bool narrow(const struct grammar *g, struct grammar_frame *f, unsigned char c, bool *one)
{
    const int32_t lo = lower_bound(g, f->a, f->b, f->pos, c);
    const int32_t hi = lower_bound(g, lo, f->b, f->pos, c + 1);
    if (lo == hi) return false;
    f->a = lo;
    f->b = hi;
    f->pos++;
    *one = hi - lo == 1 && g->literal[lo].size == f->pos;
    return true;
}

static enum taken take_literal(const struct grammar *g, struct grammar_frame *f, unsigned char c)
{
    bool one;
    if (narrow(g, f, c, &one)) return one ? TAKEN_LAST : TAKEN;
    return g->literal[f->a].size == f->pos ? TAKEN_BELOW : TAKEN_NOT;
}

/* ---- arrays, objects ------------------------------------------------------------------------- */

enum { ARRAY_OPEN, ARRAY_AFTER, ARRAY_COMMA };

static enum taken take_array(const struct grammar_node *node, struct grammar_frame *f,
                             unsigned char c, int32_t *want)
{
    const bool may_close = f->a >= node->min, more = node->max < 0 || f->a < node->max;
    if (f->state != ARRAY_COMMA && may_close && c == ']') return TAKEN_LAST;
    if (f->state != ARRAY_AFTER || may_close)
        if (take_space(f, c)) return TAKEN;
    if (f->state == ARRAY_AFTER) {
        if (c != ',' || !more || f->space) return TAKEN_NOT;
        f->state = ARRAY_COMMA;
        return TAKEN;
    }
    if (!more) return TAKEN_NOT;
    f->state = ARRAY_AFTER;
    f->space = 0;
    if (node->min || node->max >= 0) f->a++; /* else the count has no meaning */
    *want = node->child;
    return TAKEN_VALUE;
}

enum { OBJECT_OPEN, OBJECT_KEY, OBJECT_COLON, OBJECT_VALUE, OBJECT_AFTER, OBJECT_COMMA };

/* Returns the index after the last property that may come next, which is f->a or a later one. */
static int32_t until(const struct grammar *g, const struct grammar_node *node,
                     const struct grammar_frame *f)
{
    return f->a < node->n ? g->property[node->first + f->a].until : node->n;
}

/* Tells whether all required properties have come. */
static bool has_required(const struct grammar *g, const struct grammar_node *node,
                         const struct grammar_frame *f)
{
    const int32_t end = until(g, node, f);
    return end == f->a || !g->property[node->first + end - 1].required;
}

static bool has_free(const struct grammar *g, const struct grammar_node *node,
                     const struct grammar_frame *f)
{
    return node->child >= 0 && has_required(g, node, f);
}

static enum taken begin_key(struct grammar_frame *f, bool any)
{
    f->state = OBJECT_KEY;
    f->space = f->utf8 = 0;
    f->pos = 0;
    f->b = -1; /* no property is known yet */
    return any ? TAKEN : TAKEN_NOT;
}

/* Returns the first property of [from, end) whose name begins with the bytes [pos] of the name of
 * property `like`, and then with c. If c is -1, its name ends there. */
static int32_t find_name(const struct grammar *g, const struct grammar_node *node, int32_t from,
                         int32_t end, int32_t like, int32_t pos, int c)
{
    const struct grammar_property *p = g->property + node->first;
    for (int32_t i = from; i < end; i++) {
        const struct grammar_text t = p[i].name;
        if (c < 0 ? t.size != pos : t.size <= pos || (unsigned char)g->bytes[t.at + pos] != c)
            continue;
        if (!pos || !memcmp(g->bytes + t.at, g->bytes + p[like].name.at, (size_t)pos)) return i;
    }
    return -1;
}

/* Takes a byte of a name. f->b is the first property whose name begins with the bytes so far, -1
 * before the first byte, and node->n if there is none. With other properties allowed, all names
 * are looked at, because no other property may have the name of one that the schema has. */
static enum taken take_key(const struct grammar *g, const struct grammar_node *node,
                           struct grammar_frame *f, unsigned char c)
{
    const bool others = has_free(g, node, f), end = c == '"';
    const int32_t last = until(g, node, f), first = others ? 0 : f->a;
    const int next = utf8_next(f->utf8, c);
    if (next < 0 || c < 0x20 || c == '\\' || (end && f->utf8)) return TAKEN_NOT;
    f->utf8 = (uint8_t)next;
    const int32_t like = f->b < 0 ? 0 : f->b;
    const int32_t at = f->b == node->n ? -1
                                       : find_name(g, node, f->b < 0 ? first : f->b, last, like,
                                                   f->pos, end ? -1 : c);
    if (at < 0 && !others) return TAKEN_NOT;
    if (!end) {
        f->pos = at < 0 ? 0 : f->pos + 1;
        f->b = at < 0 ? node->n : at;
        return TAKEN;
    }
    if (at >= 0 && at < f->a) return TAKEN_NOT;
    f->state = OBJECT_COLON;
    f->pos = 0;
    f->b = at < 0 ? node->n : at;
    f->a = at < 0 ? node->n : at + 1;
    return TAKEN;
}

/* Begins the value of the property f->b. */
static enum taken object_value(const struct grammar *g, const struct grammar_node *node,
                               struct grammar_frame *f, int32_t *want)
{
    *want = f->b == node->n ? node->child : g->property[node->first + f->b].node;
    f->state = OBJECT_AFTER;
    f->space = 0;
    f->b = -1;
    return TAKEN_VALUE;
}

static enum taken take_object(const struct grammar *g, const struct grammar_node *node,
                              struct grammar_frame *f, unsigned char c, int32_t *want)
{
    if (f->state == OBJECT_KEY) return take_key(g, node, f, c);
    if (f->state == OBJECT_COLON) {
        f->state = OBJECT_VALUE;
        return c == ':' ? TAKEN : TAKEN_NOT;
    }
    const bool closes = has_required(g, node, f), any = f->a < node->n || node->child >= 0;
    if (f->state == OBJECT_VALUE) return take_space(f, c) ? TAKEN : object_value(g, node, f, want);
    if (c == '}' && closes && f->state != OBJECT_COMMA) return TAKEN_LAST;
    if ((f->state != OBJECT_AFTER || closes) && take_space(f, c)) return TAKEN;
    if (f->state != OBJECT_AFTER) return begin_key(f, c == '"' && any);
    f->state = OBJECT_COMMA;
    return c == ',' && any && !f->space ? TAKEN : TAKEN_NOT;
}

/* ---- calls ----------------------------------------------------------------------------------- */

enum { CALL_BEFORE, CALL_AFTER };

static enum taken take_call(const struct grammar *g, const struct grammar_node *node,
                            struct grammar_frame *f, unsigned char c, int32_t *want)
{
    bool one;
    if (f->state == CALL_BEFORE) {
        if (f->b - f->a == 1 && f->pos == g->literal[f->a].size) {
            *want = g->property[node->child + 1 + f->a - node->first].node;
            f->state = CALL_AFTER;
            f->a = f->b = f->pos = 0;
            return TAKEN_VALUE;
        }
        return narrow(g, f, c, &one) ? TAKEN : TAKEN_NOT;
    }
    const struct grammar_text end = g->property[node->child].name;
    if ((unsigned char)g->bytes[end.at + f->pos] != c) return TAKEN_NOT;
    return ++f->pos == end.size ? TAKEN_LAST : TAKEN;
}

/* ---- ways ------------------------------------------------------------------------------------ */

static struct grammar_frame *top(struct grammar_way *w)
{
    return &w->frame[w->depth - 1];
}

static enum taken take(const struct grammar *g, struct grammar_way *w, unsigned char c,
                       int32_t *want)
{
    struct grammar_frame *f = top(w);
    const struct grammar_node *node = &g->node[f->node];
    switch (node->kind) {
    case GRAMMAR_ROOT: *want = node->child; return f->state++ ? TAKEN_NOT : TAKEN_VALUE;
    case GRAMMAR_STRING: return take_string(node, f, c);
    case GRAMMAR_NUMBER:
    case GRAMMAR_INTEGER: return take_number(node, f, c);
    case GRAMMAR_LITERAL: return take_literal(g, f, c);
    case GRAMMAR_ARRAY: return take_array(node, f, c, want);
    case GRAMMAR_OBJECT: return take_object(g, node, f, c, want);
    default: return take_call(g, node, f, c, want);
    }
}

static void copy_way(struct grammar_way *to, const struct grammar_way *from)
{
    to->depth = from->depth;
    memcpy(to->frame, from->frame, (size_t)from->depth * sizeof *from->frame);
}

/* Compares the frames at the top first, because most ways differ there. */
static bool same_way(const struct grammar_way *x, const struct grammar_way *y)
{
    const size_t size = sizeof *x->frame, n = (size_t)x->depth;
    return x->depth == y->depth && !memcmp(&x->frame[n - 1], &y->frame[n - 1], size) &&
           !memcmp(x->frame, y->frame, (n - 1) * size);
}

/* Keeps the way at the end of s, unless it is there already. */
static void keep_way(struct grammar_state *s)
{
    for (int32_t i = 0; i < s->n; i++)
        if (same_way(&s->way[i], &s->way[s->n])) return;
    s->n++;
}

/* Pushes a frame for a value whose first byte is c. Returns false if no value begins so. */
static bool begin_value(const struct grammar *g, struct grammar_way *w, int32_t node,
                        unsigned char c)
{
    const struct grammar_node *p = &g->node[node];
    const bool holds = p->kind == GRAMMAR_OBJECT || p->kind == GRAMMAR_ARRAY;
    struct grammar_frame *f = &w->frame[w->depth];
    if (w->depth + holds >= GRAMMAR_DEPTH) return false;
    *f = (struct grammar_frame){.node = node};
    w->depth++;
    switch (p->kind) {
    case GRAMMAR_OBJECT: f->b = -1; return c == '{';
    case GRAMMAR_ARRAY: return c == '[';
    case GRAMMAR_STRING: return c == '"';
    case GRAMMAR_NUMBER:
    case GRAMMAR_INTEGER: return c == '-' || take_number(p, f, c) == TAKEN;
    default:
        f->a = p->first;
        f->b = p->first + p->n;
        bool one;
        if (!narrow(g, f, c, &one)) return false;
        if (one && p->kind == GRAMMAR_LITERAL) w->depth--;
        return true;
    }
}

/* Adds the ways in which a value of the node begins with c, after those of `from`. In a full state
 * a value without a schema is no object and no array. */
static void add_values(const struct grammar *g, struct grammar_state *s,
                       const struct grammar_way *from, int32_t node, unsigned char c)
{
    const struct grammar_node *p = &g->node[node];
    if (p->kind == GRAMMAR_UNION) {
        const int32_t i0 = s->full && node == NODE_ANY ? NODE_ANY_STRING - NODE_ANY_OBJECT : 0;
        for (int32_t i = i0; i < p->n; i++) add_values(g, s, from, g->link[p->first + i], c);
        return;
    }
    assert(s->n <= GRAMMAR_WAYS); /* grammar_measure has counted them */
    copy_way(&s->way[s->n], from);
    if (begin_value(g, &s->way[s->n], node, c)) keep_way(s);
}

static void step_way(const struct grammar *g, const struct grammar_way *from, unsigned char c,
                     struct grammar_state *to)
{
    struct grammar_way w;
    enum taken got;
    int32_t want = -1;
    copy_way(&w, from);
    while ((got = take(g, &w, c, &want)) == TAKEN_BELOW) w.depth--;
    if (got == TAKEN_NOT) return;
    if (got == TAKEN_VALUE) {
        add_values(g, to, &w, want, c);
        return;
    }
    if (got == TAKEN_LAST) w.depth--;
    assert(to->n <= GRAMMAR_WAYS);
    copy_way(&to->way[to->n], &w);
    keep_way(to);
}

void grammar_begin(const struct grammar *g, struct grammar_state *s)
{
    (void)g;
    s->n = 1;
    s->full = false;
    s->way[0].depth = 1;
    s->way[0].frame[0] = (struct grammar_frame){.node = NODE_ROOT};
}

bool grammar_step(const struct grammar *g, const struct grammar_state *from, unsigned char byte,
                  struct grammar_state *to)
{
    int32_t frames = 0;
    for (int32_t i = 0; i < from->n; i++) frames += from->way[i].depth;
    to->n = 0;
    to->full = frames >= GRAMMAR_FRAMES;
    for (int32_t i = 0; i < from->n; i++) step_way(g, &from->way[i], byte, to);
    return to->n > 0;
}

/* Tells whether the value of the frame at the top is complete, and that frame is the whole text. */
static bool way_complete(const struct grammar *g, const struct grammar_way *w)
{
    const struct grammar_frame *f = &w->frame[w->depth - 1];
    const struct grammar_node *node = &g->node[f->node];
    if (w->depth == 1) return f->state != 0;
    if (w->depth > 2) return false;
    if (node->kind == GRAMMAR_LITERAL) return g->literal[f->a].size == f->pos;
    return (node->kind == GRAMMAR_NUMBER || node->kind == GRAMMAR_INTEGER) && number_complete(f);
}

bool grammar_complete(const struct grammar *g, const struct grammar_state *s)
{
    for (int32_t i = 0; i < s->n; i++)
        if (way_complete(g, &s->way[i])) return true;
    return false;
}

bool grammar_ended(const struct grammar_state *s)
{
    return s->n == 1 && s->way[0].depth == 1 && s->way[0].frame[0].state;
}

/* Returns the most characters without escapes that one way may take next, or -1 if it may take some
 * characters but not others. */
static int32_t way_room(const struct grammar *g, const struct grammar_way *w)
{
    const struct grammar_frame *f = &w->frame[w->depth - 1];
    const struct grammar_node *node = &g->node[f->node];
    const bool string = node->kind == GRAMMAR_STRING && f->state == STRING_TEXT;
    const bool key = node->kind == GRAMMAR_OBJECT && f->state == OBJECT_KEY && has_free(g, node, f);
    if (!string && !key) return -1;
    if (f->utf8) return 0; /* the character before has to end first */
    return string && node->max >= 0 ? node->max - f->b : INT32_MAX;
}

int32_t grammar_string_room(const struct grammar *g, const struct grammar_state *s)
{
    int32_t most = -1;
    bool known = true;
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t room = way_room(g, &s->way[i]);
        known &= room >= 0;
        if (room > most) most = room;
    }
    return known || most == INT32_MAX ? most : -1;
}
