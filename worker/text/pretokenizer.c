/* pretokenizer.c: reads each pre-tokenizer as a step. Most steps have a way to find matches,
 * and a behaviour that says how a match becomes part of pieces. A step passes its pieces to
 * the next step, one at a time. */
#include "worker/text/pretokenizer.h"

#include <stdlib.h>
#include <string.h>
#include "worker/text/pattern.h"
#include "worker/text/unicode.h"

#define STEPS 32

enum pretokenizer_kind {
    PREFIX_SPACE, /* puts a space before the text, for ByteLevel */
    METASPACE,    /* replaces spaces by `text`, and may put a `text` in front of the run */
    SPLIT
};
enum finder { BY_PATTERN, BY_TEXT, BY_SET, BY_WORDS };
enum behaviour { ISOLATED, REMOVED, MERGED_WITH_PREVIOUS, MERGED_WITH_NEXT, CONTIGUOUS };
enum scheme { ALWAYS, FIRST, NEVER };

struct pretokenizer_step {
    enum pretokenizer_kind kind;
    enum finder finder;
    enum behaviour behaviour;
    enum scheme scheme;
    bool invert;
    struct pattern *pattern;
    struct text text;               /* text that BY_TEXT and METASPACE use */
    struct rune_bits *set, *second; /* BY_SET uses only `set`. BY_WORDS uses both members:
                                     * `set` has the runes of words, and `second` has the
                                     * spaces */
    struct run_buffer out;
};

struct pretokenizer {
    struct pretokenizer_step step[STEPS];
    int n;
    bool byte_level;
};

/* ---- reading -------------------------------------------------------------------------------- */

static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static int add(struct pretokenizer *p, enum pretokenizer_kind kind, enum finder finder,
               struct pretokenizer_step **out, struct err *e)
{
    if (p->byte_level) {
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.json: pre_tokenizer: nothing may follow ByteLevel");
    }
    if (p->n == STEPS)
        return err_set(e, ERR_TOO_LARGE, "tokenizer.json: pre_tokenizer has over %d steps", STEPS);
    *out = &p->step[p->n++];
    (*out)->kind = kind;
    (*out)->finder = finder;
    return 0;
}

static int add_set(struct pretokenizer *p, enum unicode_set set, enum behaviour behaviour,
                   struct err *e)
{
    struct pretokenizer_step *s = NULL;
    if (add(p, SPLIT, BY_SET, &s, e) < 0) return -1;
    s->behaviour = behaviour;
    s->set = unicode_bits(set);
    return s->set ? 0 : buffer_full(e);
}

static int add_pattern(struct pretokenizer *p, const char *text, size_t n,
                       struct pretokenizer_step **s, struct err *e)
{
    if (add(p, SPLIT, BY_PATTERN, s, e) < 0) return -1;
    (*s)->pattern = pattern_create(text, n, e);
    return (*s)->pattern ? 0 : -1;
}

static int add_byte_level(struct pretokenizer *p, struct json j, struct err *e)
{
    static const char *const names[] = {"add_prefix_space", "use_regex"};
    struct json v[2];
    struct pretokenizer_step *s = NULL;
    bool prefix, regex;
    if (json_members(j, "pre_tokenizer", 2, names, v, e) < 0 ||
        json_bool(v[0], "pre_tokenizer.add_prefix_space", true, &prefix, e) < 0 ||
        json_bool(v[1], "pre_tokenizer.use_regex", true, &regex, e) < 0)
        return -1;
    if (prefix && add(p, PREFIX_SPACE, BY_SET, &s, e) < 0) return -1;
    if (regex && add_pattern(p, gpt2, sizeof gpt2 - 1, &s, e) < 0) return -1;
    p->byte_level = true;
    return 0;
}

static int behaviour_of(struct json j, enum behaviour missing, enum behaviour *out, struct err *e)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious",
                                        "MergedWithNext", "Contiguous"};
    *out = missing;
    if (!j.p) return 0;
    for (int i = 0; i < 5; i++) {
        if (!json_is(j, names[i])) continue;
        *out = (enum behaviour)i;
        return 0;
    }
    return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: pre_tokenizer.behavior %.*s is not known",
                   j.n > 60 ? 60 : (int)j.n, j.p);
}

static int add_split(struct pretokenizer *p, struct json j, struct err *e)
{
    static const char *const names[] = {"pattern", "behavior", "invert"}, *const kinds[] = {
                                                                              "String", "Regex"};
    struct json v[3], of[2];
    struct text text = {0};
    struct pretokenizer_step *s = NULL;
    if (json_members(j, "pre_tokenizer", 3, names, v, e) < 0 ||
        json_members(v[0], "pre_tokenizer.pattern", 2, kinds, of, e) < 0 ||
        json_text(of[of[1].p ? 1 : 0], "pre_tokenizer.pattern", &text, e) < 0)
        return text_fini(&text), -1;
    int rc;
    if (of[1].p) {
        rc = add_pattern(p, text.data, (size_t)text.n, &s, e);
        text_fini(&text);
    } else if ((rc = add(p, SPLIT, BY_TEXT, &s, e)) == 0) {
        s->text = text; /* the step takes ownership of the text */
        if (!text.n)
            rc = err_set(e, ERR_UNSUPPORTED, "tokenizer.json: pre_tokenizer: Split at \"\"");
    } else {
        text_fini(&text);
    }
    if (rc < 0) return -1;
    return json_bool(v[2], "pre_tokenizer.invert", false, &s->invert, e) < 0
               ? -1
               : behaviour_of(v[1], ISOLATED, &s->behaviour, e);
}

static int scheme_of(struct json scheme, struct json prefix, enum scheme *out, struct err *e)
{
    bool add_prefix;
    *out = ALWAYS;
    if (json_bool(prefix, "pre_tokenizer.add_prefix_space", true, &add_prefix, e) < 0) return -1;
    if (json_is(scheme, "first"))
        *out = FIRST;
    else if (json_is(scheme, "never"))
        *out = NEVER;
    else if (scheme.p && !json_is(scheme, "always"))
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.json: pre_tokenizer.prepend_scheme %.*s is not known",
                       scheme.n > 60 ? 60 : (int)scheme.n, scheme.p);
    if (!add_prefix && scheme.p && *out != NEVER)
        return err_set(e, ERR_INVALID,
                       "tokenizer.json: pre_tokenizer: add_prefix_space false with prepend_scheme");
    if (!add_prefix) *out = NEVER;
    return 0;
}

static int add_metaspace(struct pretokenizer *p, struct json j, struct err *e)
{
    static const char *const names[] = {"replacement", "prepend_scheme", "add_prefix_space",
                                        "split"};
    struct json v[4];
    struct pretokenizer_step *s = NULL, *after = NULL;
    bool split;
    if (add(p, METASPACE, BY_TEXT, &s, e) < 0 ||
        json_members(j, "pre_tokenizer", 4, names, v, e) < 0 ||
        json_text(v[0], "pre_tokenizer.replacement", &s->text, e) < 0 ||
        scheme_of(v[1], v[2], &s->scheme, e) < 0 ||
        json_bool(v[3], "pre_tokenizer.split", true, &split, e) < 0)
        return -1;
    if (!s->text.n || rune_size((unsigned char)s->text.data[0]) != s->text.n)
        return err_set(e, ERR_INVALID,
                       "tokenizer.json: pre_tokenizer.replacement: want one character");
    if (!split) return 0;
    if (add(p, SPLIT, BY_TEXT, &after, e) < 0) return -1;
    after->behaviour = MERGED_WITH_NEXT;
    return text_add(&after->text, s->text.data, s->text.n) < 0 ? buffer_full(e) : 0;
}

static int add_words(struct pretokenizer *p, struct err *e)
{
    struct pretokenizer_step *s = NULL;
    if (add(p, SPLIT, BY_WORDS, &s, e) < 0) return -1;
    s->behaviour = REMOVED;
    s->invert = true;
    s->set = unicode_bits(UNICODE_WORD);
    s->second = unicode_bits(UNICODE_SPACE);
    return s->set && s->second ? 0 : buffer_full(e);
}

static int add_other(struct pretokenizer *p, struct json j, struct json type, struct err *e)
{
    static const char *const names[] = {"individual_digits", "behavior"};
    struct json v[2];
    enum behaviour b;
    bool each;
    if (json_members(j, "pre_tokenizer", 2, names, v, e) < 0) return -1;
    if (json_is(type, "Digits")) {
        if (json_bool(v[0], "pre_tokenizer.individual_digits", false, &each, e) < 0) return -1;
        return add_set(p, UNICODE_NUMERIC, each ? ISOLATED : CONTIGUOUS, e);
    }
    if (json_is(type, "Punctuation")) {
        if (behaviour_of(v[1], ISOLATED, &b, e) < 0) return -1;
        return add_set(p, UNICODE_PUNCTUATION, b, e);
    }
    return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: pre_tokenizer %.*s is not known",
                   type.n > 60 ? 60 : (int)type.n, type.p ? type.p : "without a type");
}

static int add_one(void *who, struct json j, struct err *e)
{
    struct pretokenizer *p = who;
    struct json type, all;
    if (json_member(j, "pre_tokenizer", "type", &type, e) < 0) return -1;
    if (json_is(type, "Sequence")) {
        if (json_member(j, "pre_tokenizer", "pretokenizers", &all, e) < 0) return -1;
        return json_each(all, "pre_tokenizer.pretokenizers", add_one, p, e);
    }
    if (json_is(type, "ByteLevel")) return add_byte_level(p, j, e);
    if (json_is(type, "Split")) return add_split(p, j, e);
    if (json_is(type, "Metaspace")) return add_metaspace(p, j, e);
    if (json_is(type, "Whitespace")) return add_words(p, e);
    if (json_is(type, "WhitespaceSplit")) return add_set(p, UNICODE_SPACE, REMOVED, e);
    if (json_is(type, "BertPreTokenizer")) {
        if (add_set(p, UNICODE_SPACE, REMOVED, e) < 0) return -1;
        return add_set(p, UNICODE_PUNCTUATION, ISOLATED, e);
    }
    return add_other(p, j, type, e);
}

int pretokenizer_open(struct json j, struct pretokenizer **out, struct err *e)
{
    *out = NULL;
    if (!j.p) return 0;
    *out = calloc(1, sizeof **out);
    return *out ? add_one(*out, j, e) : buffer_full(e);
}

void pretokenizer_destroy(struct pretokenizer *p)
{
    if (!p) return;
    for (int i = 0; i < p->n; i++) {
        pattern_destroy(p->step[i].pattern);
        text_fini(&p->step[i].text);
        free(p->step[i].set);
        free(p->step[i].second);
        text_run_buffer_fini(&p->step[i].out);
    }
    free(p);
}

bool pretokenizer_byte_level(const struct pretokenizer *p)
{
    return p && p->byte_level;
}

bool pretokenizer_needs_place(const struct pretokenizer *p)
{
    for (int i = 0; p && i < p->n; i++)
        if (p->step[i].kind == METASPACE && p->step[i].scheme == FIRST) return true;
    return false;
}

/* ---- matches -------------------------------------------------------------------------------- */

static int next_in_set(const struct pretokenizer_step *s, const struct text_run *r, int64_t at,
                       int64_t *begin, int64_t *end)
{
    int size;
    for (; at < r->n; at += size) {
        if (!rune_in(s->set, rune_get(r->text + at, &size))) continue;
        *begin = at;
        *end = at + size;
        return 1;
    }
    return 0;
}

/* Returns 0 for a space, 1 for a character of a word, and 2 for any other character. */
static int word_class(const struct pretokenizer_step *s, const struct text_run *r, int64_t at,
                      int *size)
{
    const uint32_t c = rune_get(r->text + at, size);
    return rune_in(s->set, c) ? 1 : rune_in(s->second, c) ? 0 : 2;
}

static int next_word(const struct pretokenizer_step *s, const struct text_run *r, int64_t at,
                     int64_t *begin, int64_t *end)
{
    int size, class = 0;
    while (at < r->n && !(class = word_class(s, r, at, &size))) at += size;
    if (at == r->n) return 0;
    *begin = at;
    while (at < r->n && word_class(s, r, at, &size) == class) at += size;
    *end = at;
    return 1;
}

static int next_match(struct pretokenizer_step *s, const struct text_run *r, int64_t at,
                      int64_t *begin, int64_t *end, struct err *e)
{
    const char *found;
    switch (s->finder) {
    case BY_PATTERN: return pattern_next(s->pattern, begin, end, e);
    case BY_SET: return next_in_set(s, r, at, begin, end);
    case BY_WORDS: return next_word(s, r, at, begin, end);
    default: break;
    }
    found = at < r->n ? memmem(r->text + at, (size_t)(r->n - at), s->text.data, (size_t)s->text.n)
                      : NULL;
    if (!found) return 0;
    *begin = found - r->text;
    *end = *begin + s->text.n;
    return 1;
}

/* ---- running -------------------------------------------------------------------------------- */

struct walk {
    struct pretokenizer *p;
    piece_fn *each;
    void *who;
    bool spans;
    bool continues; /* whether the run does not begin a text, but begins where a text was
                     * divided */
};

static int walk(const struct walk *w, int step, const struct text_run *r, struct err *e);

/* A piece that a split has found but has not yet passed to the next step. */
struct pending {
    int64_t begin, end;
    bool any, was_match;
};

static int give(const struct walk *w, int step, const struct text_run *r, struct pending *q,
                struct err *e)
{
    if (!q->any) return 0;
    q->any = false;
    const struct text_run part = run_part(r, q->begin, q->end);
    return walk(w, step + 1, &part, e);
}

/* Processes the next stretch of r, which is a match, or the text between two matches. */
static int stretch(const struct walk *w, int step, const struct text_run *r, struct pending *q,
                   int64_t begin, int64_t end, bool match, struct err *e)
{
    const enum behaviour b = w->p->step[step].behaviour;
    bool join = false;
    if (b == REMOVED && match) return 0;
    if (b == CONTIGUOUS) join = q->any && match == q->was_match;
    if (b == MERGED_WITH_PREVIOUS) join = q->any && match && !q->was_match;
    /* If this stretch is text that follows a match, join the match and the text to one piece. */
    if (b == MERGED_WITH_NEXT) join = q->any && q->was_match && !match;
    if (!join && give(w, step, r, q, e) < 0) return -1;
    *q = (struct pending){join ? q->begin : begin, end, true, match};
    return 0;
}

static int split(const struct walk *w, int step, const struct text_run *r, struct err *e)
{
    struct pretokenizer_step *s = &w->p->step[step];
    struct pending q = {0};
    int64_t at = 0, begin, end;
    int rc;
    if (s->finder == BY_PATTERN && pattern_begin(s->pattern, r->text, r->n, e) < 0) return -1;
    while ((rc = next_match(s, r, at, &begin, &end, e)) > 0) {
        if (begin > at && stretch(w, step, r, &q, at, begin, s->invert, e) < 0) return -1;
        if (stretch(w, step, r, &q, begin, end, !s->invert, e) < 0) return -1;
        at = end;
    }
    if (rc < 0) return -1;
    if (at < r->n && stretch(w, step, r, &q, at, r->n, s->invert, e) < 0) return -1;
    return give(w, step, r, &q, e);
}

/* Returns true if the run continues the text that comes before the place at which the caller
 * has divided the text. A piece that a split has made is treated as a separate text. */
static bool continues(const struct walk *w, int step)
{
    for (int i = 0; i < step; i++)
        if (w->p->step[i].kind == SPLIT) return false;
    return w->continues;
}

static int prefix_space(const struct walk *w, int step, const struct text_run *r, struct err *e)
{
    struct run_buffer *out = &w->p->step[step].out;
    if (r->text[0] == ' ' || continues(w, step)) return walk(w, step + 1, r, e);
    const int64_t first = rune_size((unsigned char)r->text[0]);
    out->text.n = 0;
    out->spans = w->spans;
    if (text_run_put(out, " ", 1, run_from(r, 0), run_to(r, first - 1)) < 0 ||
        text_run_copy(out, r, 0, r->n) < 0)
        return buffer_full(e);
    const struct text_run next = text_run_of(out);
    return walk(w, step + 1, &next, e);
}

static int metaspace(const struct walk *w, int step, const struct text_run *r, struct err *e)
{
    struct pretokenizer_step *s = &w->p->step[step];
    struct run_buffer *out = &s->out;
    const int64_t first = rune_size((unsigned char)r->text[0]);
    const bool begins = r->text[0] == ' ' ||
                        (r->n >= s->text.n && !memcmp(r->text, s->text.data, (size_t)s->text.n));
    int rc = 0;
    out->text.n = 0;
    out->spans = w->spans;
    const bool first_run = run_from(r, 0) == 0 && !w->continues;
    if (!begins && !continues(w, step) &&
        (s->scheme == ALWAYS || (s->scheme == FIRST && first_run)))
        rc = text_run_put(out, s->text.data, s->text.n, run_from(r, 0), run_to(r, first - 1));
    for (int64_t i = 0; rc == 0 && i < r->n;) {
        const char *space = memchr(r->text + i, ' ', (size_t)(r->n - i));
        const int64_t end = space ? space - r->text : r->n;
        rc = text_run_copy(out, r, i, end);
        if (rc == 0 && space)
            rc = text_run_put(out, s->text.data, s->text.n, run_from(r, end), run_to(r, end));
        i = end + 1;
    }
    if (rc < 0) return buffer_full(e);
    const struct text_run next = text_run_of(out);
    return walk(w, step + 1, &next, e);
}

static int walk(const struct walk *w, int step, const struct text_run *r, struct err *e)
{
    if (!r->n) return 0;
    if (!w->p || step == w->p->n) return w->each(w->who, r, e);
    switch (w->p->step[step].kind) {
    case PREFIX_SPACE: return prefix_space(w, step, r, e);
    case METASPACE: return metaspace(w, step, r, e);
    default: return split(w, step, r, e);
    }
}

int pretokenizer_apply(struct pretokenizer *p, const struct text_run *r, bool spans, bool continues,
                       piece_fn *each, void *who, struct err *e)
{
    const struct walk w = {p, each, who, spans, continues};
    return walk(&w, 0, r, e);
}

/* ---- cuts ----------------------------------------------------------------------------------- */

/* Returns the effect that dividing a text has on a step that matches single runes. The
 * parameter `in_a` is true if the step matches the rune before the division. The parameter
 * `in_b` is true if the step matches the rune after the division. */
static enum piece_cut cut_beside(const struct pretokenizer_step *s, bool in_a, bool in_b)
{
    switch (s->behaviour) {
    case ISOLATED:
    case REMOVED: return in_a || in_b ? CUT_PIECES : CUT_INSIDE;
    case CONTIGUOUS: return in_a != in_b ? CUT_PIECES : CUT_INSIDE;
    case MERGED_WITH_PREVIOUS:
        if (s->invert) return CUT_NO;
        return in_a ? CUT_PIECES : in_b ? CUT_NO : CUT_INSIDE;
    case MERGED_WITH_NEXT:
        if (s->invert) return CUT_NO;
        return in_b ? CUT_PIECES : in_a ? CUT_NO : CUT_INSIDE;
    }
    return CUT_NO;
}

static enum piece_cut cut_pattern(const struct pretokenizer_step *s, uint32_t a, uint32_t b)
{
    if (pattern_joins(s->pattern, a, b)) return CUT_NO;
    const bool begins = pattern_begins(s->pattern, b);
    switch (s->behaviour) {
    case ISOLATED:
    case REMOVED: return begins ? CUT_PIECES : CUT_INSIDE;
    case MERGED_WITH_NEXT: return begins && !s->invert ? CUT_PIECES : CUT_NO;
    default: return CUT_NO;
    }
}

static enum piece_cut cut_words(const struct pretokenizer_step *s, uint32_t a, uint32_t b)
{
    const bool words = rune_in(s->set, a) && rune_in(s->set, b);
    const bool rest = !rune_in(s->set, a) && !rune_in(s->set, b) && !rune_in(s->second, a) &&
                      !rune_in(s->second, b);
    return words || rest ? CUT_INSIDE : CUT_PIECES;
}

static enum piece_cut cut_split(const struct pretokenizer_step *s, uint32_t a, uint32_t b)
{
    int size;
    switch (s->finder) {
    case BY_PATTERN: return cut_pattern(s, a, b);
    case BY_WORDS: return cut_words(s, a, b);
    case BY_SET: return cut_beside(s, rune_in(s->set, a), rune_in(s->set, b));
    case BY_TEXT: break;
    }
    if (rune_size((unsigned char)s->text.data[0]) != s->text.n) return CUT_NO;
    const uint32_t c = rune_get(s->text.data, &size);
    return cut_beside(s, a == c, b == c);
}

enum piece_cut pretokenizer_cut(const struct pretokenizer *p, uint32_t *a, uint32_t *b)
{
    bool split = false; /* whether a SPLIT step came before; if so, a piece may or may not
                         * begin where the text is divided */
    for (int i = 0; p && i < p->n; i++) {
        const struct pretokenizer_step *s = &p->step[i];
        int size;
        if (s->kind != SPLIT && split) return CUT_NO;
        if (s->kind == METASPACE) {
            if (*a == ' ') *a = rune_get(s->text.data, &size);
            if (*b == ' ') *b = rune_get(s->text.data, &size);
        }
        if (s->kind != SPLIT) continue;
        const enum piece_cut cut = cut_split(s, *a, *b);
        if (cut != CUT_INSIDE) return cut;
        split = true;
    }
    return CUT_INSIDE;
}
