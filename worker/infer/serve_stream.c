/* serve_stream.c: reads the tokens that a work has chosen so far. With a tokenizer the text is that
 * of its decoder. Without one each token is a byte, and bytes that may become a character are held
 * back. */
#include "worker/infer/serve_stream.h"

#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/hf/tokenizer.h"
#include "worker/infer/reply_calls.h"
#include "worker/infer/sample.h"
#include "worker/text/buffer.h"

/* A continuation, which is being made or has ended. */
struct source {
    struct infer_tokens tokens; /* borrowed */
    int64_t n_tokens;           /* number of the tokens that can be sent */
    const char *text;           /* with a tokenizer: the text, of which `size` bytes can be sent */
    int64_t begin, size;
    const int64_t *token_end; /* ends of the prompt's tokens, and then of the continuation's */
    enum infer_finish finish;
    bool ended;
    bool waits; /* no part can be sent now */
};

/* Returns the number of bytes at the end of the text that may become a stop string. */
static int64_t held_back(const struct stop *stop)
{
    int most = 0;
    for (int i = 0; i < stop->n; i++)
        if (stop->string[i].state > most) most = stop->string[i].state;
    return most;
}

/* Returns the number of bytes at the end of bytes [n] that may begin a character. */
static int64_t begun_character(const unsigned char *bytes, int64_t n)
{
    for (int64_t k = 1; k <= 3 && k <= n; k++) {
        const unsigned char b = bytes[n - k];
        if ((b & 0xC0) == 0x80) continue;
        const int64_t size = b >= 0xF0 ? 4 : b >= 0xE0 ? 3 : b >= 0xC0 ? 2 : 1;
        return b < 0xF8 && size > k ? k : 0;
    }
    return 0;
}

/* Returns the number of tokens of the prompt that the next part repeats. */
static int64_t n_echoed(const struct serve_cursor *c, const struct request *r)
{
    return r->echo && !c->begun ? r->n_tokens : 0;
}

/* Writes the bytes of the echoed prompt and of the tokens [c->n_tokens, n) to the text. Returns
 * their number, or -1 if there is no memory for them and for three times as much. */
static int64_t put_bytes(const struct serve_cursor *c, const struct request *r, const int32_t *id,
                         int64_t n, struct text *text)
{
    const int64_t echoed = n_echoed(c, r), from = c->n_tokens;
    const int64_t room = 4 * (echoed + n - from) + 2;
    if (buffer_grow((void **)&text->data, &text->room, 0, room, 1) < 0) return -1;
    unsigned char *const bytes = (unsigned char *)text->data;
    const size_t before = sample_bytes(r->tokens, echoed, bytes);
    return (int64_t)(before + sample_bytes(id + from, n - from, bytes + before));
}

/* Shortens the tokens of s so that their bytes, after those of an echoed prompt, are whole
 * characters. If the prompt ends in the middle of a character that is not complete, the part waits.
 */
static int keep_whole(const struct serve_cursor *c, const struct request *r, struct text *text,
                      struct source *s)
{
    const int64_t n = put_bytes(c, r, s->tokens.id, s->n_tokens, text);
    if (n < 0) return -1;
    int64_t rest = begun_character((unsigned char *)text->data, n);
    while (rest && s->n_tokens > c->n_tokens) rest -= s->tokens.id[--s->n_tokens] != TOKEN_EOD;
    s->waits = rest > 0;
    return 0;
}

static void read_ended(const struct infer_choice *c, struct source *s)
{
    *s = (struct source){.tokens = c->tokens,
                         .n_tokens = c->n_text,
                         .text = c->text,
                         .begin = c->begin,
                         .size = c->size,
                         .token_end = c->token_end,
                         .finish = c->finish,
                         .ended = true};
}

/* Reads the continuation that is being made. Returns -1 if there is no memory. */
static int read_begun(const struct serve_cursor *c, const struct infer *in,
                      const struct infer_work *w, struct text *text, struct source *s)
{
    const struct request *r = &w->request;
    const bool logprobs = w->logprob && r->logprobs >= 0;
    *s = (struct source){.tokens = {.n = w->n,
                                    .id = w->tokens,
                                    .logprob = logprobs ? w->logprob : NULL,
                                    .top = w->top,
                                    .n_top = logprobs ? r->logprobs : 0}};
    if (in->tokenizer) {
        const struct spell *p = &w->spell;
        s->text = p->all.data;
        s->begin = p->begin;
        s->size = p->late ? p->begin : p->fed - held_back(&r->stop);
        s->token_end = p->end;
        s->n_tokens = c->n_tokens;
        while (s->n_tokens < w->n && p->end[p->n_prompt + s->n_tokens] <= s->size) s->n_tokens++;
        if (p->late) s->n_tokens = 0;
        return 0;
    }
    s->n_tokens = w->n - held_back(&r->stop);
    if (s->n_tokens < c->n_tokens) s->n_tokens = c->n_tokens;
    return job_reads_bytes(in->spec) ? keep_whole(c, r, text, s) : 0;
}

/* Makes the text of the part. */
static int make_text(const struct serve_cursor *c, const struct infer *in, const struct request *r,
                     const struct source *s, struct text *text, struct reply_chunk *k)
{
    if (in->tokenizer) {
        const int64_t from = c->n_bytes > s->begin || r->echo ? c->n_bytes : s->begin;
        k->text = s->text + from;
        k->size = (size_t)(s->size > from ? s->size - from : 0);
        return 0;
    }
    k->text = "";
    if (!job_reads_bytes(in->spec)) return 0;
    /* the bytes, and then their UTF-8 */
    const int64_t n_bytes = put_bytes(c, r, s->tokens.id, s->n_tokens, text);
    if (n_bytes < 0) return -1;
    k->text = text->data + n_bytes;
    k->size = sample_utf8((unsigned char *)text->data, (size_t)n_bytes, text->data + n_bytes);
    return 0;
}

/* Makes the tokens of the part, which are those from the cursor to s->n_tokens. */
static void cut_tokens(const struct serve_cursor *c, const struct source *s, struct reply_chunk *k)
{
    const int64_t from = c->n_tokens;
    assert(s->n_tokens >= from);
    k->tokens = (struct infer_tokens){
        .n = s->n_tokens - from, .id = s->tokens.id + from, .n_top = s->tokens.n_top};
    if (!s->tokens.logprob) return;
    k->tokens.logprob = s->tokens.logprob + from;
    k->tokens.top = s->tokens.top + from * s->tokens.n_top;
}

/* Makes the part of the chunk that repeats the prompt. Its log-probabilities are known when the
 * first token is chosen. */
static void echo_prompt(const struct serve_cursor *c, const struct infer_work *w,
                        const struct infer_answer *a, struct reply_chunk *k)
{
    const struct request *r = &w->request;
    if (!n_echoed(c, r)) return;
    k->prompt = a->prompt;
    k->prompt.n = r->n_tokens;
    k->prompt.id = r->tokens;
}

static int64_t count_bytes(const int32_t *id, int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t i = from; i < to; i++) n += id[i] != TOKEN_EOD;
    return n;
}

static void move(struct serve_cursor *c, const struct infer *in, const struct request *r,
                 const struct source *s)
{
    if (in->tokenizer)
        c->n_bytes = s->size > s->begin ? s->size : s->begin;
    else
        c->n_bytes += count_bytes(r->tokens, 0, n_echoed(c, r)) +
                      count_bytes(s->tokens.id, c->n_tokens, s->n_tokens);
    c->begun = true;
    c->n_tokens = s->n_tokens;
    if (!s->ended) return;
    c->choice++;
    c->n_tokens = c->n_bytes = c->n_calls = 0;
    c->begun = c->after_call = false;
}

/* Cuts the text to be sent down to its next piece, which is text or a call. Returns true if no
 * piece is left of a text that has ended. */
static bool cut_piece(struct serve_cursor *c, const struct request *r, struct source *s,
                      struct reply_chunk *out)
{
    int64_t from = c->n_bytes > s->begin ? c->n_bytes : s->begin;
    struct calls_piece *piece = &c->piece;
    do {
        calls_next(s->text, from, s->size, c->after_call, s->ended, piece);
        from = piece->next;
        if (piece->kind != CALLS_NONE) c->after_call = piece->kind == CALLS_CALL;
    } while (piece->kind == CALLS_CALL && r->one_call && c->n_calls);
    s->size = from;
    if (piece->kind == CALLS_CALL) {
        out->call = piece;
        out->call_index = c->n_calls++;
    }
    return s->ended && piece->kind == CALLS_NONE;
}

/* Does the work of serve_stream_next for a request with tools. */
static void cut_calls(struct serve_cursor *c, const struct request *r, struct source *s,
                      struct reply_chunk *out)
{
    const int64_t most = s->n_tokens;
    const bool last = cut_piece(c, r, s, out);
    if (!last) {
        s->ended = false;
        s->n_tokens = c->n_tokens;
        while (s->n_tokens < most && s->token_end[r->n_tokens + s->n_tokens] <= s->size)
            s->n_tokens++;
    }
    out->size = out->call || last ? 0 : (size_t)c->piece.size;
    out->text = out->call || last ? "" : c->piece.text;
}

int serve_stream_next(struct serve_cursor *c, const struct infer *in, const struct infer_work *w,
                      const struct infer_answer *a, struct text *text, struct reply_chunk *out)
{
    const struct request *r = &w->request;
    struct source s;
    /* while the prompt is computed, w->spell has the text of the slot's last request */
    if (c->choice == a->n || w->prefills) return 0;
    if (w->done || c->choice < w->sequence)
        read_ended(&a->choice[c->choice], &s);
    else if (read_begun(c, in, w, text, &s))
        return -1;
    *out = (struct reply_chunk){.index = c->choice,
                                .begins = !c->begun,
                                .n_before = c->n_tokens,
                                .token_end = s.token_end,
                                .begin = !in->tokenizer ? c->n_bytes
                                         : r->echo      ? 0
                                                        : s.begin};
    if (s.waits) return 0;
    if (r->calls)
        cut_calls(c, r, &s, out);
    else if (make_text(c, in, r, &s, text, out))
        return -1;
    cut_tokens(c, &s, out);
    echo_prompt(c, w, a, out);
    const bool names = s.tokens.logprob || !job_reads_bytes(in->spec);
    if (!s.ended && !out->call && !out->size && !(names && out->tokens.n + out->prompt.n)) return 0;
    if (s.ended) out->finish = reply_calls_name(infer_finish_name(s.finish), c->n_calls);
    move(c, in, r, &s);
    return 1;
}
