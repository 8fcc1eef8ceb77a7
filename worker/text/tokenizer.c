/* tokenizer.c: opens the parts of a tokenizer.json, and encodes text with them. The order of
 * the parts is added tokens, normalizer, pre-tokenizer, model, post-processor. It also finds
 * the places at which it is proven that a text may be divided. */
#include "worker/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/file.h"
#include "api/core/utf8.h"
#include "worker/text/added.h"
#include "worker/text/decoder.h"
#include "worker/text/model.h"
#include "worker/text/post.h"
#include "worker/text/pretokenizer.h"
#include "worker/text/rune.h"
#include "worker/text/side.h"

enum { CUT_ANSWERS = 512 };

/* A cached answer to the question whether a text may be divided between these two runes. `yes`
 * is the answer. If `asked` is false, the answer is not known yet. */
struct cut_answer {
    uint32_t before, after;
    bool asked, yes;
};

struct tokenizer {
    struct vocab vocab; /* vocabulary of the model */
    struct added *added;
    struct normalizer *normalizer;
    struct pretokenizer *pretokenizer;
    struct token_model *model;
    struct post post;
    struct token_decoder *decoder;
    struct special_ids special;
    struct hits hits; /* scratch */
    struct cut_answer answer[CUT_ANSWERS];
};

/* ---- opening -------------------------------------------------------------------------------- */

static int open_parts(struct tokenizer *t, struct json whole, struct err *e)
{
    static const char *const names[] = {"added_tokens", "normalizer", "pre_tokenizer",
                                        "model",        "decoder",    "post_processor"};
    struct json v[6];
    if (json_members(whole, "the file", 6, names, v, e) < 0 ||
        normalizer_open(v[1], &t->normalizer, e) < 0 ||
        pretokenizer_open(v[2], &t->pretokenizer, e) < 0)
        return -1;
    t->model = model_open(v[3], &t->vocab, pretokenizer_byte_level(t->pretokenizer), e);
    return !t->model || added_open(v[0], &t->vocab, t->normalizer, &t->added, e) < 0 ||
                   decoder_open(v[4], &t->decoder, e) < 0 || post_open(&t->post, v[5], e) < 0
               ? -1
               : 0;
}

struct tokenizer *tokenizer_open_text(const char *text, size_t size, struct err *e)
{
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) return buffer_full(e), NULL;
    t->special = (struct special_ids){-1, -1, -1, -1, -1};
    if (open_parts(t, (struct json){text, (int64_t)size}, e) == 0) return t;
    tokenizer_destroy(t);
    return NULL;
}

void tokenizer_destroy(struct tokenizer *t)
{
    if (!t) return;
    added_destroy(t->added);
    normalizer_destroy(t->normalizer);
    pretokenizer_destroy(t->pretokenizer);
    model_destroy(t->model);
    decoder_destroy(t->decoder);
    vocab_fini(&t->vocab);
    free(t->hits.v);
    free(t);
}

/* ---- a directory ---------------------------------------------------------------------------- */

static int read_special(struct tokenizer *t, const char *dir, struct err *e)
{
    struct special_ids *s = &t->special;
    int32_t *const ids[SIDE_TOKENS] = {[SIDE_BOS] = &s->bos,
                                       [SIDE_EOS] = &s->eos,
                                       [SIDE_UNK] = &s->unk,
                                       [SIDE_PAD] = &s->pad,
                                       [SIDE_MASK] = &s->mask};
    struct side_tokens named;
    if (side_tokens_read(&named, dir, e) < 0) return -1;
    for (int i = 0; i < SIDE_TOKENS; i++)
        if (ids[i] && named.text[i].data)
            *ids[i] = tokenizer_id(t, named.text[i].data, (size_t)named.text[i].n);
    side_tokens_fini(&named);
    return 0;
}

static int no_file(const char *dir, struct err *e)
{
    static const char *const others[] = {"tokenizer.model", "vocab.txt", "vocab.json",
                                         "spiece.model", "sentencepiece.bpe.model"};
    char path[FILE_PATH_SIZE];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (file_join(path, e, "%s/%s", dir, others[i]) < 0) return -1;
        if (!file_exists(path)) continue;
        return err_set(e, ERR_NOT_FOUND,
                       "%s has %s and no tokenizer.json: convert it once in Python: "
                       "transformers.AutoTokenizer.from_pretrained(\"%s\").save_pretrained(\"%s\")",
                       dir, others[i], dir, dir);
    }
    return err_set(
        e, ERR_NOT_FOUND,
        "%s has no tokenizer.json: add that of the published model, or give token ids in "
        "place of text",
        dir);
}

/* Adds the path of the file to an error of tokenizer_open_text, and a remedy if the error has
 * no remedy yet. */
static void explain(const char *path, struct err *e)
{
    static const char name[] = "tokenizer.json";
    const bool named = !strncmp(e->text, name, sizeof name - 1);
    struct err was = *e;
    const char *text = was.text + (named ? sizeof name - 1 : 0);
    const char *fix = e->code == ERR_UNSUPPORTED && !strstr(text, ": install ")
                          ? ": give token ids in place of text, or a model whose tokenizer does "
                            "without it"
                      : e->code == ERR_INVALID && !strstr(text, "fetch it again")
                          ? ": fetch the file again"
                          : "";
    err_set(e, was.code, "%s%s%s%s", path, named ? "" : ": ", text, fix);
    err_plain(e);
}

static struct tokenizer *open_dir(const char *dir, struct err *e)
{
    struct model_text file;
    if (model_file_read(dir, "tokenizer.json", TOKENIZER_FILE_SIZE, &file, e) < 0) return NULL;
    if (!file.text) return no_file(dir, e), NULL;
    struct err why = {0};
    struct tokenizer *t = tokenizer_open_text(file.text, file.size, &why);
    model_file_free(&file);
    if (!t) {
        explain(file.path, &why);
        if (e) *e = why;
    } else if (read_special(t, dir, e) < 0) {
        tokenizer_destroy(t);
        return NULL;
    }
    return t;
}

struct tokenizer *tokenizer_open(const char *dir, struct err *e)
{
    struct gguf *const kept = model_file_keep(dir);
    struct tokenizer *const t = open_dir(dir, e);
    model_file_leave(kept);
    return t;
}

/* ---- questions ------------------------------------------------------------------------------ */

int64_t tokenizer_size(const struct tokenizer *t)
{
    const int64_t added = added_size(t->added);
    return added > t->vocab.size ? added : t->vocab.size;
}

int32_t tokenizer_id(const struct tokenizer *t, const char *content, size_t n)
{
    const int32_t id = added_find(t->added, content, n);
    return id >= 0 ? id : vocab_find(&t->vocab, content, n);
}

const char *tokenizer_content(const struct tokenizer *t, int32_t id, size_t *n)
{
    const struct added_token *a = added_by_id(t->added, id);
    if (!a) return vocab_content(&t->vocab, id, n);
    *n = (size_t)a->content.n;
    return a->content.data;
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    const struct added_token *a = added_by_id(t->added, id);
    return a && a->special;
}

const struct special_ids *tokenizer_special(const struct tokenizer *t)
{
    return &t->special;
}

/* ---- encoding ------------------------------------------------------------------------------- */

struct encoding {
    struct tokenizer *t;
    struct tokens *out;
    bool spans;       /* whether runs have the offsets of their bytes in the source text */
    bool continues;   /* whether the text does not begin a text of the caller, but begins where
                       * that text was divided */
    const char *head; /* if `continues` is set, the start of the normalized text; otherwise NULL */
};

static int span_room(struct tokens *out)
{
    int64_t begins = out->span_room, ends = out->span_room;
    const int64_t more = out->room - out->span_room;
    if (buffer_grow((void **)&out->begin, &begins, out->span_room, more, sizeof *out->begin) < 0 ||
        buffer_grow((void **)&out->end, &ends, out->span_room, more, sizeof *out->end) < 0)
        return -1;
    out->span_room = begins < ends ? begins : ends;
    return 0;
}

static int put_token(struct tokens *out, int32_t id, int64_t begin, int64_t end, struct err *e)
{
    if (buffer_grow((void **)&out->id, &out->room, out->n, 1, sizeof *out->id) < 0)
        return buffer_full(e);
    if (out->spans) {
        if (out->n >= out->span_room && span_room(out) < 0) return buffer_full(e);
        out->begin[out->n] = begin;
        out->end[out->n] = end;
    }
    out->id[out->n++] = id;
    return 0;
}

static int encode_piece(void *who, const struct text_run *r, struct err *e)
{
    struct encoding *c = who;
    struct hits *h = &c->t->hits;
    h->n = 0;
    if (model_encode(c->t->model, r->text, r->n, h, e) < 0) return -1;
    for (int64_t i = 0; i < h->n; i++) {
        const int64_t begin = h->v[i].begin, end = h->v[i].end;
        const int64_t from = c->out->spans ? run_from(r, begin < r->n ? begin : r->n - 1) : 0;
        const int64_t to = c->out->spans && end > begin ? run_to(r, end - 1) : from;
        if (put_token(c->out, h->v[i].id, from, to, e) < 0) return -1;
    }
    return 0;
}

/* Encodes a normalized added token, or text between such tokens. */
static int encode_normal(void *who, const struct text_run *r, int32_t id, struct err *e)
{
    struct encoding *c = who;
    if (id < 0)
        return pretokenizer_apply(c->t->pretokenizer, r, c->spans, r->text == c->head, encode_piece,
                                  c, e);
    return put_token(c->out, id, run_from(r, 0), run_to(r, r->n - 1), e);
}

/* Encodes an added token that is not normalized, or text between such tokens. */
static int encode_raw(void *who, const struct text_run *r, int32_t id, struct err *e)
{
    struct encoding *c = who;
    struct text_run normal = *r;
    if (id >= 0) return put_token(c->out, id, run_from(r, 0), run_to(r, r->n - 1), e);
    const bool continues = c->continues && r->base == 0;
    if (c->t->normalizer && normalizer_apply(c->t->normalizer, &normal, c->spans, continues, e) < 0)
        return -1;
    c->head = continues ? normal.text : NULL;
    return added_split(c->t->added, true, &normal, encode_normal, c, e);
}

static int check_text(const char *text, size_t n, int64_t offset, struct err *e)
{
    if (n > TOKENIZER_TEXT_SIZE)
        return err_set(e, ERR_TOO_LARGE, "a text of %zu bytes: at most %lld are encoded at once", n,
                       TOKENIZER_TEXT_SIZE);
    for (size_t i = 0; i < n;) {
        const int k = (unsigned char)text[i] < 0x80 ? 1 : utf8_len(text + i, text + n);
        if (!k)
            return err_set(e, ERR_INVALID, "byte %lld of the text is not UTF-8",
                           (long long)offset + (long long)i);
        i += (size_t)k;
    }
    return 0;
}

int tokenizer_n_after(const struct tokenizer *t)
{
    return t->post.n_after;
}

int tokenizer_encode_part(struct tokenizer *t, const struct text_part *part, bool add_special,
                          struct tokens *out, struct err *e)
{
    const bool place = out->spans || pretokenizer_needs_place(t->pretokenizer);
    struct encoding c = {t, out, place, !part->begins, NULL};
    const int64_t n = (int64_t)part->n, had = out->n;
    const struct text_run all = {.text = part->text, .n = n};
    const struct post *p = &t->post;
    int rc = check_text(part->text, part->n, part->offset, e);
    for (int i = 0; rc == 0 && add_special && part->begins && i < p->n_before; i++)
        rc = put_token(out, p->before[i], 0, 0, e);
    if (rc == 0) rc = added_split(t->added, false, &all, encode_raw, &c, e);
    for (int i = 0; rc == 0 && add_special && part->ends && i < p->n_after; i++)
        rc = put_token(out, p->after[i], n, n, e);
    if (rc < 0) out->n = had;
    return rc;
}

int tokenizer_encode(struct tokenizer *t, const char *text, size_t n, bool add_special,
                     struct tokens *out, struct err *e)
{
    const struct text_part all = {.text = text, .n = n, .begins = true, .ends = true};
    return tokenizer_encode_part(t, &all, add_special, out, e);
}

/* ---- cuts ----------------------------------------------------------------------------------- */

/* Returns true if every step from text to ids allows that a text is divided between the runes
 * a and b. Each step is asked about the runes into which earlier steps have changed a and b. */
static bool prove_cut(struct tokenizer *t, uint32_t a, uint32_t b)
{
    if (!added_cut(t->added, false, a, b) || !normalizer_cut(t->normalizer, &a, &b) ||
        !added_cut(t->added, true, a, b))
        return false;
    const enum piece_cut cut = pretokenizer_cut(t->pretokenizer, &a, &b);
    return cut == CUT_PIECES || (cut == CUT_INSIDE && model_cut(t->model, a, b));
}

static bool can_cut(struct tokenizer *t, uint32_t a, uint32_t b)
{
    struct cut_answer *c = &t->answer[(a * 2 + (b == '\n')) % CUT_ANSWERS];
    if (!c->asked || c->before != a || c->after != b)
        *c = (struct cut_answer){a, b, true, prove_cut(t, a, b)};
    return c->yes;
}

/* Finds the character that ends before text[at]. Returns false if the bytes before text[at]
 * are not UTF-8. */
static bool rune_ending(const char *text, size_t at, uint32_t *c)
{
    size_t n = 1;
    int size;
    while (n < 4 && n < at && ((unsigned char)text[at - n] & 0xc0) == 0x80) n++;
    if (utf8_len(text + at - n, text + at) != (int)n) return false;
    *c = rune_get(text + at - n, &size);
    return true;
}

int64_t tokenizer_cut(struct tokenizer *t, const char *text, size_t n, size_t from)
{
    uint32_t before;
    for (size_t i = from ? from : 1; i < n; i++)
        if ((text[i] == ' ' || text[i] == '\n') && rune_ending(text, i, &before) &&
            can_cut(t, before, (unsigned char)text[i]))
            return (int64_t)i;
    return -1;
}

/* ---- decoding ------------------------------------------------------------------------------- */

struct detokenizer {
    const struct tokenizer *t;
    struct decoding *decoding;
    bool skip_special;
};

struct detokenizer *detokenizer_create(struct tokenizer *t, bool skip_special)
{
    struct detokenizer *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    *d = (struct detokenizer){t, decoding_create(t->decoder), skip_special};
    if (d->decoding) return d;
    free(d);
    return NULL;
}

void detokenizer_destroy(struct detokenizer *d)
{
    if (!d) return;
    decoding_destroy(d->decoding);
    free(d);
}

int detokenizer_put(struct detokenizer *d, int32_t id, struct text *out, struct err *e)
{
    const struct added_token *a = added_by_id(d->t->added, id);
    size_t n = 0;
    if (a && a->skipped && d->skip_special) return 0;
    const char *s = a ? a->form.data : vocab_content(&d->t->vocab, id, &n);
    if (a) n = (size_t)a->form.n;
    if (!s) return 0;
    return decoding_put(d->decoding, s, (int64_t)n, out) < 0 ? buffer_full(e) : 0;
}

int tokenizer_piece(const struct tokenizer *t, int32_t id, struct text *out, struct err *e)
{
    const struct added_token *a = added_by_id(t->added, id);
    size_t n = 0;
    const char *s = a ? a->form.data : vocab_content(&t->vocab, id, &n);
    if (a) n = (size_t)a->form.n;
    return s && decoder_piece(t->decoder, s, (int64_t)n, out) < 0 ? buffer_full(e) : 0;
}

int detokenizer_finish(struct detokenizer *d, struct text *out, struct err *e)
{
    return decoding_finish(d->decoding, out) < 0 ? buffer_full(e) : 0;
}

int tokenizer_decode(struct tokenizer *t, const int32_t *id, int64_t n, bool skip_special,
                     struct text *out, struct err *e)
{
    struct detokenizer *d = detokenizer_create(t, skip_special);
    const int64_t had = out->n;
    int rc = d ? 0 : buffer_full(e);
    for (int64_t i = 0; rc == 0 && i < n; i++) rc = detokenizer_put(d, id[i], out, e);
    if (rc == 0) rc = detokenizer_finish(d, out, e);
    if (rc == 0 && text_add(out, "", 0) < 0) rc = buffer_full(e);
    detokenizer_destroy(d);
    if (rc < 0) out->n = had;
    return rc;
}
