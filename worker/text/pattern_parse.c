/* pattern_parse.c: reads a regular expression by recursive descent, collects its sets of runes, and
 * refuses other constructs by name. */
#include "worker/text/pattern_parse.h"

#include <stdlib.h>
#include <string.h>
#include "worker/text/pattern.h"
#include "worker/text/unicode.h"

#define SETS   192 /* Largest number of different classes of one pattern. */
#define ITEMS  2048
#define GROUPS 64 /* Largest number of nested groups. */

struct item {
    int set;       /* index of a class; -1 if `word` is copied instead */
    char word[16]; /* "(?:", "|", ")", "*+", "{1,3}" */
};

struct pattern_parse {
    const char *p, *end, *start;
    struct err *e;
    struct rune_set set[SETS];
    int n_sets, n_items;
    struct item item[ITEMS];
    bool fold[GROUPS]; /* for each open group, whether case is ignored */
    int depth;
    bool can_repeat; /* whether the last item may be followed by a quantifier */
    /* the last item, if it is a literal letter whose case is ignored; otherwise 0 */
    uint32_t last;
};

static int refuse(struct pattern_parse *r, const char *what)
{
    return err_set(r->e, ERR_UNSUPPORTED, "tokenizer.json: pattern at byte %d (\"%.*s\"): %s",
                   (int)(r->p - r->start), r->end - r->p > 16 ? 16 : (int)(r->end - r->p), r->p,
                   what);
}

static int put_word(struct pattern_parse *r, const char *word, size_t n)
{
    if (r->n_items == ITEMS) return refuse(r, "it has more than 2048 parts");
    struct item *i = &r->item[r->n_items++];
    i->set = -1;
    memcpy(i->word, word, n);
    i->word[n] = 0;
    return 0;
}

static bool same_set(const struct rune_set *a, const struct rune_set *b)
{
    return a->n == b->n && !memcmp(a->range, b->range, (size_t)a->n * 2 * sizeof *a->range);
}

/* Adds an item for the set, and takes ownership of s. */
static int put_set(struct pattern_parse *r, struct rune_set *s)
{
    int i = 0;
    while (i < r->n_sets && !same_set(&r->set[i], s)) i++;
    if (i < r->n_sets) {
        rune_set_fini(s);
    } else if (r->n_sets == SETS) {
        rune_set_fini(s);
        return refuse(r, "it has more than 192 different classes");
    } else {
        r->set[r->n_sets++] = *s;
    }
    if (put_word(r, "", 0) < 0) return -1;
    r->item[r->n_items - 1].set = i;
    r->can_repeat = true;
    return 0;
}

static bool take(struct pattern_parse *r, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n)) return false;
    r->p += n;
    return true;
}

/* ---- escapes -------------------------------------------------------------------------------- */

/* Reads \p{Name}, \P{Name} or \p{^Name}. Before the call, p is at the opening brace. */
static int property(struct pattern_parse *r, struct rune_set *s, bool negate)
{
    struct rune_set own = {0};
    const char *from = r->p;
    if (!take(r, "{")) return refuse(r, "a property wants braces, as in \\p{L}");
    if (take(r, "^")) negate = !negate;
    const char *name = r->p;
    while (r->p < r->end && *r->p != '}') r->p++;
    const size_t n = (size_t)(r->p - name);
    int rc = r->p < r->end ? unicode_class(&own, name, n) : 1;
    /* Refuse names that begin with a lower-case letter, such as "space", because they are used
     * only inside this folder. */
    if (rc == 0 && n > 2 && (*name < 'A' || *name > 'Z')) rc = 1;
    if (rc == 0 && negate) rc = rune_set_negate(&own);
    if (rc == 0) rc = rune_set_merge(s, &own);
    rune_set_fini(&own);
    if (rc == 0) return r->p++, 0;
    if (rc < 0) return buffer_full(r->e);
    r->p = from;
    return refuse(r, "this property of characters is not known");
}

static int named(struct pattern_parse *r, struct rune_set *s, const char *name, bool negate)
{
    struct rune_set own = {0};
    int rc = unicode_class(&own, name, strlen(name));
    if (rc == 0 && negate) rc = rune_set_negate(&own);
    if (rc == 0) rc = rune_set_merge(s, &own);
    rune_set_fini(&own);
    return rc < 0 ? buffer_full(r->e) : 0;
}

static int hex(struct pattern_parse *r, int min, int max, uint32_t *rune)
{
    int n = 0;
    uint32_t v = 0;
    for (; n < max && r->p < r->end; n++, r->p++) {
        const char c = *r->p;
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0) break;
        v = v * 16 + (uint32_t)d;
    }
    *rune = v;
    return n < min || v >= RUNES ? refuse(r, "a hexadecimal number of a character is wanted") : 0;
}

/* Reads an escape after a backslash. If the escape is a character, stores it in *rune and returns
 * 0. If it is a class, adds the class to s and returns 1. Returns -1 after a failure. */
static int escape(struct pattern_parse *r, struct rune_set *s, uint32_t *rune)
{
    static const char from[] = "nrtfvae", to[] = "\n\r\t\f\v\a\033";
    if (r->p == r->end) return refuse(r, "it ends in a backslash");
    const char c = *r->p++;
    const char *at = strchr(from, c);
    switch (c) {
    case 'p':
    case 'P': return property(r, s, c == 'P') < 0 ? -1 : 1;
    case 's':
    case 'S': return named(r, s, "space", c == 'S') < 0 ? -1 : 1;
    case 'w':
    case 'W': return named(r, s, "word", c == 'W') < 0 ? -1 : 1;
    case 'd':
    case 'D': return named(r, s, "Nd", c == 'D') < 0 ? -1 : 1;
    case 'u': return hex(r, 4, 4, rune);
    case 'x':
        if (!take(r, "{")) {
            if (hex(r, 2, 2, rune) < 0) return -1;
            return *rune < 0x80 ? 0 : refuse(r, "this byte is not a character");
        }
        if (hex(r, 1, 6, rune) < 0) return -1;
        return take(r, "}") ? 0 : refuse(r, "the brace of \\x{..} is not closed");
    default: break;
    }
    if (at && c) return *rune = (uint32_t)to[at - from], 0;
    if ((unsigned char)c < 0x80 &&
        !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')))
        return *rune = (uint32_t)c, 0;
    r->p -= 2;
    return refuse(r, "this escape is not known");
}

static uint32_t next_rune(struct pattern_parse *r)
{
    int n;
    const uint32_t c = rune_get(r->p, &n);
    r->p += n;
    return c;
}

static bool letter(uint32_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Adds the range from first to last. If the group ignores case, also adds the other cases of the
 * range's letters. */
static int add_range(struct pattern_parse *r, struct rune_set *s, uint32_t first, uint32_t last)
{
    if (rune_set_add(s, first, last) < 0) return buffer_full(r->e);
    rune_set_sort(s);
    if (!r->fold[r->depth]) return 0;
    if (last >= 0x80) return refuse(r, "(?i) is known for ASCII alone");
    for (uint32_t c = first; c <= last; c++)
        if (letter(c) && unicode_fold(s, c) < 0) return buffer_full(r->e);
    return 0;
}

/* ---- [classes] ------------------------------------------------------------------------------ */

static int class_of(struct pattern_parse *r, struct rune_set *s, int depth);

/* Reads one member of a class. If the member is a rune, stores the rune in *rune and returns
 * 0. If the member is itself a class, adds the runes of that class to s and returns 1. Returns
 * -1 after a failure. */
static int member(struct pattern_parse *r, struct rune_set *s, uint32_t *rune)
{
    if (take(r, "\\")) {
        const char *at = r->p;
        const int rc = escape(r, s, rune);
        if (rc == 1 && r->fold[r->depth] && *at != 's' && *at != 'd')
            return refuse(r, "(?i) is known for ASCII alone");
        return rc;
    }
    *rune = next_rune(r);
    return 0;
}

static int nested(struct pattern_parse *r, struct rune_set *s, int depth)
{
    struct rune_set own = {0};
    int rc = depth < 8 ? class_of(r, &own, depth + 1)
                       : refuse(r, "classes within classes are not known");
    if (rc == 0 && rune_set_merge(s, &own) < 0) rc = buffer_full(r->e);
    rune_set_fini(&own);
    return rc;
}

/* Reads a member or a range of runes. */
static int members(struct pattern_parse *r, struct rune_set *s)
{
    uint32_t first, last;
    int rc = member(r, s, &first);
    if (rc) return rc < 0 ? -1 : 0;
    last = first;
    if (r->end - r->p > 1 && r->p[0] == '-' && r->p[1] != ']') {
        r->p++;
        rc = member(r, s, &last);
        if (rc < 0) return -1;
        if (rc || last < first) return refuse(r, "a range wants two characters in order");
    }
    return add_range(r, s, first, last);
}

/* Sets s to the intersection of s and other. */
static int intersect(struct rune_set *s, struct rune_set *other)
{
    return rune_set_negate(s) < 0 || rune_set_negate(other) < 0 || rune_set_merge(s, other) < 0 ||
                   rune_set_negate(s) < 0
               ? -1
               : 0;
}

/* Reads the members of a class up to && or the end of the class. */
static int operand(struct pattern_parse *r, struct rune_set *s, int depth)
{
    const char *first = r->p;
    for (;;) {
        if (r->p == r->end) return refuse(r, "a class is not closed");
        if (*r->p == ']' || (r->end - r->p > 1 && r->p[0] == '&' && r->p[1] == '&')) break;
        if (r->end - r->p > 1 && r->p[0] == '[' && r->p[1] == ':')
            return refuse(r, "classes in [: :] are not known");
        if (take(r, "[") ? nested(r, s, depth) < 0 : members(r, s) < 0) return -1;
    }
    rune_set_sort(s);
    return r->p == first ? refuse(r, "a class is empty") : 0;
}

/* Reads a class. Before the call, p is after the opening bracket. */
static int class_of(struct pattern_parse *r, struct rune_set *s, int depth)
{
    const bool negate = take(r, "^");
    if (operand(r, s, depth) < 0) return -1;
    while (take(r, "&&")) {
        struct rune_set own = {0};
        int rc = operand(r, &own, depth);
        if (rc == 0 && intersect(s, &own) < 0) rc = buffer_full(r->e);
        rune_set_fini(&own);
        if (rc < 0) return -1;
    }
    r->p++;
    if (negate && r->fold[r->depth])
        return refuse(r, "(?i) is not known with a class that is negated");
    return negate && rune_set_negate(s) < 0 ? buffer_full(r->e) : 0;
}

/* ---- groups and quantifiers ----------------------------------------------------------------- */

static int open_group(struct pattern_parse *r)
{
    static const char *const kinds[] = {"(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"};
    bool fold = r->fold[r->depth];
    const char *word = "(?:", *at = r->p;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!take(r, kinds[i])) continue;
        word = kinds[i];
        break;
    }
    if (r->p == at) {
        if (take(r, "(?i:"))
            fold = true;
        else if (take(r, "(?-i:"))
            fold = false;
        else if (r->end - r->p > 1 && r->p[1] == '?')
            return refuse(r, "this group is not known");
        else
            r->p++;
    }
    if (r->depth + 1 == GROUPS) return refuse(r, "groups are nested too deeply");
    r->fold[++r->depth] = fold;
    r->can_repeat = false;
    return put_word(r, word, strlen(word));
}

static int close_group(struct pattern_parse *r)
{
    if (!r->depth) return refuse(r, "a group is closed that is not open");
    r->p++;
    r->depth--;
    r->can_repeat = true;
    return put_word(r, ")", 1);
}

/* Returns the length of {n}, {n,} or {n,m}, or 0 if the text is not such a quantifier. */
static size_t braces(const struct pattern_parse *r)
{
    const char *p = r->p + 1;
    const char *digits = p;
    while (p < r->end && *p >= '0' && *p <= '9') p++;
    if (p == digits || p - digits > 4) return 0;
    if (p < r->end && *p == ',') {
        digits = ++p;
        while (p < r->end && *p >= '0' && *p <= '9') p++;
        if (p - digits > 4) return 0;
    }
    return p < r->end && *p == '}' ? (size_t)(p + 1 - r->p) : 0;
}

static int quantifier(struct pattern_parse *r)
{
    size_t n = *r->p == '{' ? braces(r) : 1;
    if (!n || !r->can_repeat) return refuse(r, "this quantifier is not known here");
    const char after = r->p + n < r->end ? r->p[n] : 0;
    /* After braces, + and ? do not have the meaning that they have after other quantifiers. */
    if (*r->p == '{' && (after == '+' || after == '?'))
        return refuse(r, "a quantifier follows a quantifier");
    if (after == '+' || after == '?') n++;
    if (put_word(r, r->p, n) < 0) return -1;
    r->p += n;
    r->can_repeat = false;
    r->last = 0;
    return 0;
}

/* Returns true if there is a single character that folds to these two letters. For example,
 * U+00DF folds to "ss". */
static bool folds_together(uint32_t a, uint32_t b)
{
    static const char pairs[] = "ss ff fi fl st";
    const char two[3] = {(char)(a | 0x20), (char)(b | 0x20), 0};
    return strstr(pairs, two) != NULL;
}

static int one_rune(struct pattern_parse *r, uint32_t c)
{
    struct rune_set s = {0};
    if (r->fold[r->depth] && letter(c)) {
        if (r->last && folds_together(r->last, c))
            return refuse(r, "(?i) is not known with letters that one character folds to");
    }
    r->last = r->fold[r->depth] && letter(c) ? c : 0;
    if (add_range(r, &s, c, c) < 0) {
        rune_set_fini(&s);
        return -1;
    }
    return put_set(r, &s);
}

static int one_class(struct pattern_parse *r, bool brackets)
{
    struct rune_set s = {0};
    uint32_t c = 0;
    int rc;
    r->last = 0;
    if (brackets) {
        rc = class_of(r, &s, 0) < 0 ? -1 : 1;
    } else {
        rc = escape(r, &s, &c);
        if (rc == 1 && r->fold[r->depth])
            rc = refuse(r, "(?i) is not known with a property of characters");
    }
    if (rc == 1) return put_set(r, &s);
    rune_set_fini(&s);
    return rc < 0 ? -1 : one_rune(r, c);
}

static int any_rune(struct pattern_parse *r)
{
    struct rune_set s = {0};
    r->last = 0;
    if (rune_set_add(&s, '\n', '\n') < 0 || rune_set_negate(&s) < 0) return buffer_full(r->e);
    return put_set(r, &s);
}

/* ---- anchors -------------------------------------------------------------------------------- */

static int put_named(struct pattern_parse *r, const char *name, uint32_t rune)
{
    struct rune_set s = {0};
    if (name ? named(r, &s, name, false) < 0 : rune_set_add(&s, rune, rune) < 0) {
        rune_set_fini(&s);
        return buffer_full(r->e);
    }
    return put_set(r, &s);
}

/* Writes the parts of the parameter `text`, which are separated by commas. For the part "w",
 * writes the set of word characters. For the part "n", writes the set that has only the
 * newline. Any other part is copied. */
static int put_anchor(struct pattern_parse *r, const char *text)
{
    while (*text) {
        const size_t n = strcspn(text, ",");
        int rc;
        if (n == 1 && *text == 'w')
            rc = put_named(r, "word", 0);
        else if (n == 1 && *text == 'n')
            rc = put_named(r, NULL, '\n');
        else
            rc = put_word(r, text, n);
        if (rc < 0) return -1;
        text += n + (text[n] == ',');
    }
    r->can_repeat = false;
    r->last = 0;
    return 0;
}

/* Reads an anchor. Returns 1 if there is no anchor. */
static int anchor(struct pattern_parse *r)
{
    /* ^ matches at the beginning of each line */
    if (take(r, "^")) return put_anchor(r, "(?:\\A|(?<=,n,)(?!\\z))");
    if (take(r, "$")) return put_anchor(r, "(?:\\z|(?=,n,))");
    if (take(r, "\\A")) return put_anchor(r, "\\A");
    if (take(r, "\\z")) return put_anchor(r, "\\z");
    if (take(r, "\\b")) return put_anchor(r, "(?:(?<=,w,)(?!,w,)|(?<!,w,)(?=,w,))");
    if (take(r, "\\B")) return put_anchor(r, "(?:(?<=,w,)(?=,w,)|(?<!,w,)(?!,w,))");
    return 1;
}

static int part(struct pattern_parse *r)
{
    const int rc = anchor(r);
    if (rc <= 0) return rc;
    switch (*r->p) {
    case '(': r->last = 0; return open_group(r);
    case ')': r->last = 0; return close_group(r);
    case '|':
        r->p++;
        r->last = 0;
        r->can_repeat = false;
        return put_word(r, "|", 1);
    case '*':
    case '+':
    case '?':
    case '{': return quantifier(r);
    case '[': r->p++; return one_class(r, true);
    case '\\': r->p++; return one_class(r, false);
    case '.': r->p++; return any_rune(r);
    default: return one_rune(r, next_rune(r));
    }
}

/* ---- classes of runes ----------------------------------------------------------------------- */

struct signature {
    uint64_t in[SETS / 64]; /* sets that have the rune */
};

static int by_rune(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Lists, in ascending order, the runes at which a set begins and the runes that directly follow
 * the end of a set. The caller frees the list. */
static uint32_t *borders(const struct pattern_parse *r, int64_t *n)
{
    int64_t total = 1, at = 0;
    for (int i = 0; i < r->n_sets; i++) total += 2 * r->set[i].n;
    uint32_t *b = malloc((size_t)total * sizeof *b);
    if (!b) return NULL;
    b[at++] = 0;
    for (int i = 0; i < r->n_sets; i++) {
        for (int64_t k = 0; k < 2 * r->set[i].n; k++) b[at++] = r->set[i].range[k] + (k & 1);
    }
    qsort(b, (size_t)total, sizeof *b, by_rune);
    for (*n = 0, at = 0; at < total; at++)
        if (b[at] < RUNES && (!*n || b[*n - 1] != b[at])) b[(*n)++] = b[at];
    return b;
}

static struct signature sign(const struct pattern_parse *r, uint32_t c)
{
    struct signature s = {{0}};
    for (int i = 0; i < r->n_sets; i++) {
        int64_t lo = 0, hi = r->set[i].n;
        while (lo < hi) {
            const int64_t mid = (lo + hi) / 2;
            if (r->set[i].range[2 * mid] <= c)
                lo = mid + 1;
            else
                hi = mid;
        }
        if (lo && r->set[i].range[2 * lo - 1] >= c) s.in[i / 64] |= 1ull << (i % 64);
    }
    return s;
}

/* Fills *classes, and stores the signature of each class in sig. Returns the number of classes. */
static int classify(struct pattern_parse *r, struct pattern_classes *classes,
                    struct signature sig[256])
{
    int64_t n = 0;
    int n_classes = 0;
    uint32_t *b = borders(r, &n);
    if (!b) return buffer_full(r->e);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t end = i + 1 < n ? b[i + 1] : RUNES;
        const struct signature s = sign(r, b[i]);
        int k = 0;
        while (k < n_classes && memcmp(&sig[k], &s, sizeof s)) k++;
        if (k == 256) break;
        if (k == n_classes) sig[n_classes++] = s;
        memset(classes->of + b[i], k, end - b[i]);
    }
    free(b);
    return n_classes < 256 ? n_classes : refuse(r, "it divides characters into over 255 classes");
}

static int print_set(struct text *out, int set, const struct signature *sig, int n)
{
    char word[8];
    bool any = false;
    for (int k = 0; k < n; k++) {
        if (!(sig[k].in[set / 64] >> (set % 64) & 1)) continue;
        if (!any && text_add(out, "[", 1) < 0) return -1;
        any = true;
        static const char digit[] = "0123456789abcdef";
        memcpy(word, "\\x", 2);
        word[2] = digit[k >> 4];
        word[3] = digit[k & 15];
        if (text_add(out, word, 4) < 0) return -1;
    }
    return any ? text_add(out, "]", 1) : text_add(out, "(?!)", 4);
}

static int print(struct pattern_parse *r, struct pattern_classes *classes, struct text *out)
{
    struct signature sig[256];
    const int n = classify(r, classes, sig);
    if (n < 0) return -1;
    for (int i = 0; i < r->n_items; i++) {
        const struct item *it = &r->item[i];
        const int rc = it->set < 0 ? text_add(out, it->word, (int64_t)strlen(it->word))
                                   : print_set(out, it->set, sig, n);
        if (rc < 0) return buffer_full(r->e);
    }
    pattern_pairs_read(&classes->pairs, out);
    return 0;
}

int pattern_parse(const char *text, size_t n, struct pattern_classes *classes, struct text *out,
                  struct err *e)
{
    struct pattern_parse *r = calloc(1, sizeof *r);
    int rc = 0;
    if (!r) return buffer_full(e);
    r->p = r->start = text;
    r->end = text + n;
    r->e = e;
    if (n > PATTERN_SIZE) rc = refuse(r, "it is longer than 8192 bytes");
    while (rc == 0 && r->p < r->end) rc = part(r);
    if (rc == 0 && r->depth) rc = refuse(r, "a group is not closed");
    if (rc == 0) rc = print(r, classes, out);
    for (int i = 0; i < r->n_sets; i++) rune_set_fini(&r->set[i]);
    free(r);
    return rc;
}
