/* decoder.c: runs decoders as stages. Each stage stores the bytes that a later token could
 * still change, and passes all other bytes to the next stage. */
#include "worker/text/decoder.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/utf8.h"
#include "worker/text/bytes.h"
#include "worker/text/rune.h"

#define STAGES      16
#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

enum decoder_kind {
    JOIN,
    BYTE_LEVEL,
    REPLACE,
    BYTE_FALLBACK,
    FUSE,
    STRIP,
    METASPACE,
    WORDPIECE,
    SUFFIX
};

struct decoder_stage {
    enum decoder_kind kind;
    struct text text, content; /* REPLACE replaces `text` by `content`; METASPACE, STRIP,
                                * WORDPIECE and SUFFIX use only `text` */
    int64_t start, stop;       /* STRIP */
    bool prefix, cleanup;      /* `prefix` is used by METASPACE, and `cleanup` by WORDPIECE */
};

struct token_decoder {
    struct decoder_stage stage[STAGES];
    int n;
    bool fused; /* whether an earlier stage joins all tokens */
};

struct decoder_state {
    int64_t n_tokens; /* number of tokens that have begun so far */
    int64_t cut;      /* for STRIP, the number of characters that were removed from the
                       * beginning of this token so far; -1 if no further characters are
                       * removed */
    struct text held; /* bytes that a later token may still change */
    struct text work; /* scratch */
};

struct decoding {
    const struct token_decoder *d;
    struct decoder_state state[STAGES];
};

/* ---- reading -------------------------------------------------------------------------------- */

static int refuse_fused(const char *what, struct err *e)
{
    return err_set(e, ERR_UNSUPPORTED,
                   "tokenizer.json: decoder: %s may not follow Fuse or ByteLevel", what);
}

static int one_rune(const struct decoder_stage *s, const char *where, struct err *e)
{
    if (s->text.n && rune_size((unsigned char)s->text.data[0]) == s->text.n) return 0;
    return err_set(e, ERR_INVALID, "tokenizer.json: decoder: %s: want one character", where);
}

static int read_replace(struct token_decoder *d, struct decoder_stage *s, struct json j,
                        struct err *e)
{
    static const char *const names[] = {"pattern", "content"}, *const kinds[] = {"String", "Regex"};
    struct json v[2], of[2];
    if (json_members(j, "decoder", 2, names, v, e) < 0 ||
        json_members(v[0], "decoder.pattern", 2, kinds, of, e) < 0)
        return -1;
    if (of[1].p)
        return err_set(e, ERR_UNSUPPORTED,
                       "tokenizer.json: decoder: Replace of a Regex is not known");
    if (json_text(of[0], "decoder.pattern", &s->text, e) < 0 ||
        json_text(v[1], "decoder.content", &s->content, e) < 0)
        return -1;
    if (!s->text.n)
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: decoder: Replace of \"\" is not known");
    if (d->fused && rune_size((unsigned char)s->text.data[0]) != s->text.n)
        return refuse_fused("Replace of more than one character", e);
    return 0;
}

static int read_strip(struct token_decoder *d, struct decoder_stage *s, struct json j,
                      struct err *e)
{
    static const char *const names[] = {"content", "start", "stop"};
    struct json v[3];
    if (json_members(j, "decoder", 3, names, v, e) < 0 ||
        json_text(v[0], "decoder.content", &s->text, e) < 0 ||
        json_int(v[1], "decoder.start", 0, &s->start, e) < 0 ||
        json_int(v[2], "decoder.stop", 0, &s->stop, e) < 0)
        return -1;
    if (one_rune(s, "Strip.content", e) < 0) return -1;
    return d->fused && s->stop ? refuse_fused("Strip at the end", e) : 0;
}

static int read_metaspace(struct decoder_stage *s, struct json j, struct err *e)
{
    static const char *const names[] = {"replacement", "prepend_scheme", "add_prefix_space"};
    struct json v[3];
    bool add;
    if (json_members(j, "decoder", 3, names, v, e) < 0 ||
        json_text(v[0], "decoder.replacement", &s->text, e) < 0 ||
        json_bool(v[2], "decoder.add_prefix_space", true, &add, e) < 0)
        return -1;
    s->prefix = add && !json_is(v[1], "never");
    return one_rune(s, "Metaspace.replacement", e);
}

static int read_wordpiece(struct decoder_stage *s, struct json j, struct err *e)
{
    static const char *const names[] = {"prefix", "cleanup"};
    struct json v[2];
    if (json_members(j, "decoder", 2, names, v, e) < 0 ||
        json_text(v[0], "decoder.prefix", &s->text, e) < 0)
        return -1;
    return json_bool(v[1], "decoder.cleanup", true, &s->cleanup, e);
}

static int read_suffix(struct decoder_stage *s, struct json j, struct err *e)
{
    struct json v;
    if (json_member(j, "decoder", "suffix", &v, e) < 0) return -1;
    if (json_text(v, "decoder.suffix", &s->text, e) < 0) return -1;
    return s->text.n ? 0
                     : err_set(e, ERR_UNSUPPORTED,
                               "tokenizer.json: decoder: suffix is \"\", want a text");
}

static const struct {
    const char *name;
    enum decoder_kind kind;
    bool after_fuse; /* whether the stage may follow Fuse or ByteLevel */
} kinds[] = {{"ByteLevel", BYTE_LEVEL, false},
             {"Replace", REPLACE, true},
             {"ByteFallback", BYTE_FALLBACK, false},
             {"Fuse", FUSE, true},
             {"Strip", STRIP, true},
             {"Metaspace", METASPACE, false},
             {"WordPiece", WORDPIECE, false},
             {"BPEDecoder", SUFFIX, false}};

static int read_stage(struct token_decoder *d, struct decoder_stage *s, struct json j,
                      struct err *e)
{
    switch (s->kind) {
    case REPLACE: return read_replace(d, s, j, e);
    case STRIP: return read_strip(d, s, j, e);
    case METASPACE: return read_metaspace(s, j, e);
    case WORDPIECE: return read_wordpiece(s, j, e);
    case SUFFIX: return read_suffix(s, j, e);
    default: return 0;
    }
}

static int add_one(void *who, struct json j, struct err *e)
{
    struct token_decoder *d = who;
    struct json type, all;
    size_t k = 0;
    if (json_member(j, "decoder", "type", &type, e) < 0) return -1;
    if (json_is(type, "Sequence")) {
        if (json_member(j, "decoder", "decoders", &all, e) < 0) return -1;
        return json_each(all, "decoder.decoders", add_one, d, e);
    }
    while (k < sizeof kinds / sizeof *kinds && !json_is(type, kinds[k].name)) k++;
    if (k == sizeof kinds / sizeof *kinds) {
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.json: decoder %.*s is not known",
                       type.n > 60 ? 60 : (int)type.n, type.p ? type.p : "without a type");
    }
    if (d->n == STAGES)
        return err_set(e, ERR_TOO_LARGE, "tokenizer.json: decoder has over %d stages", STAGES);
    if (d->fused && !kinds[k].after_fuse) return refuse_fused(kinds[k].name, e);
    struct decoder_stage *s = &d->stage[d->n++];
    s->kind = kinds[k].kind;
    if (read_stage(d, s, j, e) < 0) return -1;
    d->fused |= s->kind == FUSE || s->kind == BYTE_LEVEL;
    return 0;
}

int decoder_open(struct json j, struct token_decoder **out, struct err *e)
{
    struct token_decoder *d = *out = calloc(1, sizeof *d);
    if (!d) return buffer_full(e);
    if (j.p) return add_one(d, j, e);
    d->stage[d->n++].kind = JOIN;
    return 0;
}

void decoder_destroy(struct token_decoder *d)
{
    if (!d) return;
    for (int i = 0; i < d->n; i++) {
        text_fini(&d->stage[i].text);
        text_fini(&d->stage[i].content);
    }
    free(d);
}

/* ---- decoding ------------------------------------------------------------------------------- */

struct decoding *decoding_create(const struct token_decoder *d)
{
    struct decoding *s = calloc(1, sizeof *s);
    if (s) s->d = d;
    return s;
}

void decoding_destroy(struct decoding *s)
{
    if (!s) return;
    for (int i = 0; i < STAGES; i++) {
        text_fini(&s->state[i].held);
        text_fini(&s->state[i].work);
    }
    free(s);
}

/* Passes bytes to stage `at`. The parameter `first` is true if the bytes are the beginning of
 * a token. */
static int put(struct decoding *s, int at, const char *p, int64_t n, bool first, struct text *out);

/* Returns the length of the malformed sequence at p that becomes one U+FFFD. It is the length
 * that Rust's from_utf8_lossy uses. */
static int64_t malformed(const char *p, const char *end)
{
    for (int64_t n = 3; n > 1; n--) {
        /* Check whether the n bytes are the beginning of at least one character. */
        char c[4];
        if (end - p < n) continue;
        memcpy(c, p, (size_t)n);
        for (int fill = 0; fill < 2; fill++) {
            memset(c + n, fill ? 0xbf : 0x80, (size_t)(4 - n));
            if (utf8_len(c, c + 4) > n) return n;
        }
    }
    return 1;
}

/* Returns the number of bytes at the end of p[n] that may begin a character. */
static int64_t incomplete(const char *p, int64_t n)
{
    const int64_t k = (int64_t)utf8_partial(p, (size_t)n);
    return k == 0 || k == 1 || malformed(p + n - k, p + n) == k ? k : 0;
}

/* Passes n stored bytes to the next stage, with U+FFFD in place of malformed bytes. */
static int pass_lossy(struct decoding *s, int at, int64_t n, bool first, struct text *out)
{
    struct decoder_state *st = &s->state[at];
    const char *p = st->held.data, *end = p + n;
    st->work.n = 0;
    while (p < end) {
        const int k = utf8_len(p, end);
        if (k ? text_add(&st->work, p, k) < 0 : text_add(&st->work, REPLACEMENT, 3) < 0) return -1;
        p += k ? k : malformed(p, end);
    }
    if (st->work.n && put(s, at + 1, st->work.data, st->work.n, first, out) < 0) return -1;
    memmove(st->held.data, st->held.data + n, (size_t)(st->held.n - n));
    st->held.n -= n;
    return 0;
}

static int byte_level(struct decoding *s, int at, const char *p, int64_t n, struct text *out)
{
    struct decoder_state *st = &s->state[at];
    const int64_t had = st->held.n;
    bool first = st->n_tokens == 0;
    int size;
    for (int64_t i = 0; i < n; i += size) {
        const int byte = bytes_byte(rune_get(p + i, &size));
        if (byte < 0) { /* the character does not represent a byte, so the token is unchanged */
            st->held.n = had;
            if (text_add(&st->held, p, n) < 0) return -1;
            break;
        }
        if (text_add(&st->held, &(char){(char)byte}, 1) < 0) return -1;
    }
    if (!st->held.n) return 0;
    const int64_t ready = st->held.n - incomplete(st->held.data, st->held.n);
    if (!ready) return 0;
    st->n_tokens++;
    return pass_lossy(s, at, ready, first, out);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Returns the byte of "<0xXX>", or -1 for any other text. Rust's number parser accepts a sign,
 * too. */
static int fallback_byte(const char *p, int64_t n)
{
    if (n != 6 || memcmp(p, "<0x", 3) || p[5] != '>') return -1;
    const int low = hex_digit(p[4]), high = p[3] == '+' ? 0 : hex_digit(p[3]);
    return low < 0 || high < 0 ? -1 : high << 4 | low;
}

/* Passes the stored bytes to the next stage. If the bytes are valid UTF-8, they are passed
 * unchanged. Otherwise each byte is replaced by U+FFFD. */
static int end_fallback(struct decoding *s, int at, struct text *out)
{
    struct decoder_state *st = &s->state[at];
    const int64_t n = st->held.n;
    if (!n) return 0;
    const char *p = st->held.data, *end = p + n;
    int k;
    st->held.n = 0;
    while (p < end && (k = utf8_len(p, end))) p += k;
    if (p == end) return put(s, at + 1, st->held.data, n, true, out);
    for (int64_t i = 0; i < n; i++)
        if (put(s, at + 1, REPLACEMENT, 3, true, out) < 0) return -1;
    return 0;
}

static int byte_fallback(struct decoding *s, int at, const char *p, int64_t n, struct text *out)
{
    const int byte = fallback_byte(p, n);
    if (byte >= 0) return text_add(&s->state[at].held, &(char){(char)byte}, 1);
    return end_fallback(s, at, out) < 0 ? -1 : put(s, at + 1, p, n, true, out);
}

/* Appends p [n] to out, with `from` replaced by `to`. */
static int replaced(struct text *out, const char *p, int64_t n, const char *from, int64_t n_from,
                    const char *to, int64_t n_to)
{
    const char *end = p + n, *found;
    while (p < end && (found = memmem(p, (size_t)(end - p), from, (size_t)n_from))) {
        if (text_add(out, p, found - p) < 0 || text_add(out, to, n_to) < 0) return -1;
        p = found + n_from;
    }
    return text_add(out, p, end - p);
}

static int replace(struct decoding *s, int at, const char *p, int64_t n, bool first,
                   struct text *out)
{
    const struct decoder_stage *g = &s->d->stage[at];
    struct text *work = &s->state[at].work;
    work->n = 0;
    if (replaced(work, p, n, g->text.data, g->text.n, g->content.data, g->content.n) < 0) return -1;
    return put(s, at + 1, work->data, work->n, first, out);
}

static int strip(struct decoding *s, int at, const char *p, int64_t n, bool first, struct text *out)
{
    const struct decoder_stage *g = &s->d->stage[at];
    struct decoder_state *st = &s->state[at];
    const int64_t k = g->text.n;
    if (first) st->cut = 0;
    while (st->cut >= 0 && n) {
        const bool more = st->cut < g->start && n >= k && !memcmp(p, g->text.data, (size_t)k);
        st->cut = more ? st->cut + 1 : -1;
        if (!more) break;
        p += k;
        n -= k;
    }
    for (int64_t i = 0; i < g->stop && n >= k && !memcmp(p + n - k, g->text.data, (size_t)k); i++)
        n -= k;
    return put(s, at + 1, p, n, first, out);
}

static int metaspace(struct decoding *s, int at, const char *p, int64_t n, struct text *out)
{
    const struct decoder_stage *g = &s->d->stage[at];
    struct decoder_state *st = &s->state[at];
    const bool drop = st->n_tokens++ == 0 && g->prefix;
    st->work.n = 0;
    if (replaced(&st->work, p, n, g->text.data, g->text.n, " ", !drop) < 0) return -1;
    return put(s, at + 1, st->work.data, st->work.n, true, out);
}

/* Removes the space before English punctuation. The replacements of the table are made one
 * after the other, in the order of the table. */
static int clean(struct decoder_state *st)
{
    static const char *const pairs[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *from = pairs[i][0], *to = pairs[i][1];
        if (!memmem(st->work.data, (size_t)st->work.n, from, strlen(from))) continue;
        st->held.n = 0;
        if (replaced(&st->held, st->work.data, st->work.n, from, (int64_t)strlen(from), to,
                     (int64_t)strlen(to)) < 0)
            return -1;
        const struct text swap = st->work;
        st->work = st->held;
        st->held = swap;
    }
    st->held.n = 0;
    return 0;
}

static int wordpiece(struct decoding *s, int at, const char *p, int64_t n, struct text *out)
{
    const struct decoder_stage *g = &s->d->stage[at];
    struct decoder_state *st = &s->state[at];
    const bool begins = n >= g->text.n && !memcmp(p, g->text.data, (size_t)g->text.n);
    const bool inner = st->n_tokens++ > 0;
    const int64_t skip = inner && begins ? g->text.n : 0;
    st->work.n = 0;
    if ((inner && !begins && text_add(&st->work, " ", 1) < 0) ||
        text_add(&st->work, p + skip, n - skip) < 0 || (g->cleanup && clean(st) < 0))
        return -1;
    return put(s, at + 1, st->work.data, st->work.n, true, out);
}

/* Passes the stored token to the next stage. The suffix of the token is replaced by a space.
 * If the token is the last token, its suffix is removed instead. */
static int end_suffix(struct decoding *s, int at, bool last, struct text *out)
{
    const struct decoder_stage *g = &s->d->stage[at];
    struct decoder_state *st = &s->state[at];
    if (!st->n_tokens) return 0;
    st->work.n = 0;
    if (replaced(&st->work, st->held.data, st->held.n, g->text.data, g->text.n, " ", !last) < 0)
        return -1;
    return put(s, at + 1, st->work.data, st->work.n, true, out);
}

static int suffix(struct decoding *s, int at, const char *p, int64_t n, struct text *out)
{
    struct decoder_state *st = &s->state[at];
    if (end_suffix(s, at, false, out) < 0) return -1;
    st->n_tokens++;
    st->held.n = 0;
    return text_add(&st->held, p, n);
}

static int join(struct decoding *s, int at, const char *p, int64_t n, struct text *out)
{
    if (s->state[at].n_tokens++ && put(s, at + 1, " ", 1, true, out) < 0) return -1;
    return put(s, at + 1, p, n, true, out);
}

/* ---- one token ------------------------------------------------------------------------------ */

/* Appends the bytes that a token's characters represent. If a character represents no byte,
 * appends the token unchanged. */
static int byte_piece(const char *p, int64_t n, struct text *out)
{
    const int64_t had = out->n;
    int size;
    for (int64_t i = 0; i < n; i += size) {
        const int byte = bytes_byte(rune_get(p + i, &size));
        if (byte < 0) {
            out->n = had;
            return text_add(out, p, n);
        }
        if (text_add(out, &(char){(char)byte}, 1) < 0) return -1;
    }
    return text_add(out, "", 0);
}

static int word_piece(const struct decoder_stage *g, const char *p, int64_t n, struct text *out)
{
    const bool inner = n >= g->text.n && !memcmp(p, g->text.data, (size_t)g->text.n);
    const int64_t skip = inner ? g->text.n : 0;
    struct decoder_state st = {0};
    int rc = inner ? 0 : text_add(&st.work, " ", 1);
    if (rc == 0) rc = text_add(&st.work, p + skip, n - skip);
    if (rc == 0 && g->cleanup) rc = clean(&st);
    if (rc == 0) rc = text_add(out, st.work.data, st.work.n);
    text_fini(&st.work);
    text_fini(&st.held);
    return rc;
}

/* Applies one stage to p [n], and appends the result to out. Sets *last to true if the stages
 * after this stage do not change the result. */
static int stage_piece(const struct decoder_stage *g, const char *p, int64_t n, struct text *out,
                       bool *last)
{
    const int byte = g->kind == BYTE_FALLBACK ? fallback_byte(p, n) : -1;
    *last = g->kind == BYTE_LEVEL || byte >= 0;
    switch (g->kind) {
    case BYTE_LEVEL: return byte_piece(p, n, out);
    case BYTE_FALLBACK:
        return byte >= 0 ? text_add(out, &(char){(char)byte}, 1) : text_add(out, p, n);
    case REPLACE:
        return replaced(out, p, n, g->text.data, g->text.n, g->content.data, g->content.n);
    case METASPACE:
    case SUFFIX: return replaced(out, p, n, g->text.data, g->text.n, " ", 1);
    case WORDPIECE: return word_piece(g, p, n, out);
    case JOIN: return text_add(out, " ", 1) < 0 ? -1 : text_add(out, p, n);
    default: return text_add(out, p, n); /* STRIP and FUSE change only the ends of a text */
    }
}

int decoder_piece(const struct token_decoder *d, const char *token, int64_t n, struct text *out)
{
    struct text work[2] = {{0}};
    const char *p = token;
    bool last = false;
    int rc = 0;
    for (int at = 0; rc == 0 && at < d->n && !last; at++) {
        struct text *to = &work[at % 2];
        to->n = 0;
        rc = stage_piece(&d->stage[at], p, n, to, &last);
        p = to->data;
        n = to->n;
    }
    if (rc == 0) rc = text_add(out, p, n);
    text_fini(&work[0]);
    text_fini(&work[1]);
    return rc;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int put(struct decoding *s, int at, const char *p, int64_t n, bool first, struct text *out)
{
    if (at == s->d->n) return text_add(out, p, n);
    switch (s->d->stage[at].kind) {
    case JOIN: return join(s, at, p, n, out);
    case BYTE_LEVEL: return byte_level(s, at, p, n, out);
    case REPLACE: return replace(s, at, p, n, first, out);
    case BYTE_FALLBACK: return byte_fallback(s, at, p, n, out);
    case STRIP: return strip(s, at, p, n, first, out);
    case METASPACE: return metaspace(s, at, p, n, out);
    case WORDPIECE: return wordpiece(s, at, p, n, out);
    case SUFFIX: return suffix(s, at, p, n, out);
    default: return put(s, at + 1, p, n, s->state[at].n_tokens++ == 0, out);
    }
}

int decoding_put(struct decoding *s, const char *token, int64_t n, struct text *out)
{
    return put(s, 0, token, n, true, out);
}

int decoding_finish(struct decoding *s, struct text *out)
{
    int rc = 0;
    for (int at = 0; rc == 0 && at < s->d->n; at++) {
        struct decoder_state *st = &s->state[at];
        const enum decoder_kind kind = s->d->stage[at].kind;
        if (kind == BYTE_LEVEL && st->held.n)
            rc = pass_lossy(s, at, st->held.n, st->n_tokens == 0, out);
        if (kind == BYTE_FALLBACK) rc = end_fallback(s, at, out);
        if (kind == SUFFIX) rc = end_suffix(s, at, true, out);
    }
    for (int at = 0; at < s->d->n; at++) {
        struct decoder_state *st = &s->state[at];
        st->n_tokens = st->cut = st->held.n = 0;
    }
    return rc;
}
