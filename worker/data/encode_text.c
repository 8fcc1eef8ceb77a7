/* encode_text.c: opens the tokenizer and the chat template once. Converts texts, pairs of
 * prompt and completion, conversations, and answers to conversations to ids. */
#include "worker/data/encode_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/jread.h"
#include "worker/gguf/model_file.h"
#include "worker/hf/files.h"
#include "worker/hf/tokenizer.h"
#include "worker/text/buffer.h"

/* ---- the tokenizer --------------------------------------------------------------------------- */

/* Sets e->field to "model.path", which is the field that names the directory. Returns -1. */
static int of_model(struct err *e)
{
    if (e) strcpy(e->field, "model.path");
    return -1;
}

static int open_tokenizer(struct encode_text *t, struct err *e)
{
    if (t->tokenizer) return 0;
    t->tokenizer = tokenizer_open(t->dir, e);
    if (!t->tokenizer) return of_model(e);
    t->ids.spans = true;
    t->end = t->ends ? tokenizer_special(t->tokenizer)->eos : -1;
    if (t->end < 0) t->end = t->listed_end;
    return 0;
}

/* Reads a text. If the text cannot be made from the keys of a GGUF file, *out has no text and
 * the call succeeds, because data that consist of ids need no tokenizer. For data that need a
 * tokenizer, open_tokenizer reports the reason. */
static int read_text(const char *dir, const char *name, struct model_text *out, struct err *e)
{
    struct err why = {0};
    if (model_file_read(dir, name, TOKENIZER_FILE_SIZE, out, &why) == 0) return 0;
    if (model_file_unmade(dir, &why)) return 0;
    if (e) *e = why;
    return of_model(e);
}

/* Adds the name and the digest of a text that influences the ids, and frees the text. *of gets the
 * digest, or "" if there is no text. */
static void add_text(struct model_text *t, const char *name, struct sha256 *into,
                     char of[SHA256_HEX])
{
    *of = 0;
    if (t->text) {
        struct sha256 s;
        sha256_init(&s);
        sha256_add(&s, t->text, t->size);
        sha256_hex(&s, of);
    }
    model_file_free(t);
    sha256_add(into, name, strlen(name) + 1);
    sha256_add(into, of, strlen(of) + 1);
}

static int add_file(const char *dir, const char *name, struct sha256 *into, char of[SHA256_HEX],
                    struct err *e)
{
    struct model_text t;
    if (read_text(dir, name, &t, e) < 0) return -1;
    add_text(&t, name, into, of);
    return 0;
}

static void open_chat(struct encode_text *t)
{
    if (t->chat_tried) return;
    t->chat_tried = true;
    t->chat_open = chat_model_open(&t->chat, t->dir, &t->no_chat) == 0;
}

/* Opens the template and adds its digest. If the template cannot be used, this is not an error
 * here, because the data may have no conversation. If there is no template, adds nothing. In
 * that case the id of the prepared data is the id that versions of seqd without templates
 * compute. */
static int add_chat(struct encode_text *t, struct sha256 *into, struct err *e)
{
    char of[SHA256_HEX], day[32];
    struct model_text text;
    if (read_text(t->dir, "chat_template.jinja", &text, e) < 0) return -1;
    if (text.text) add_text(&text, "chat_template.jinja", into, of);
    open_chat(t);
    if (!t->chat_open || !t->chat.t || !jinja_mentions(t->chat.t, "strftime_now")) return 0;
    const int n = snprintf(day, sizeof day, "day %lld", (long long)chat_day(t->submitted_s));
    sha256_add(into, day, (size_t)n + 1);
    return 0;
}

static int digest(struct encode_text *t, bool conversations, struct sha256 *into,
                  char of[SHA256_HEX], struct err *e)
{
    char other[SHA256_HEX], end[32];
    struct token_ends ends = {0};
    if (add_file(t->dir, "tokenizer.json", into, of, e) < 0 ||
        add_file(t->dir, "tokenizer_config.json", into, other, e) < 0 ||
        add_file(t->dir, "special_tokens_map.json", into, other, e) < 0)
        return -1;
    if (t->ends && hf_read_ends(t->dir, &ends, e) < 0) return of_model(e);
    t->listed_end = ends.n ? ends.id[0] : -1;
    const int n = snprintf(end, sizeof end, "end %d %d", t->ends, (int)t->listed_end);
    sha256_add(into, end, (size_t)n + 1);
    if (t->before) sha256_add(into, t->before, strlen(t->before) + 1);
    if (conversations && add_chat(t, into, e) < 0) return -1;
    if (!*of) strcpy(of, "none");
    return 0;
}

int encode_text_digest(struct encode_text *t, bool conversations, struct sha256 *into,
                       char of[SHA256_HEX], struct err *e)
{
    struct gguf *const kept = model_file_keep(t->dir);
    const int rc = digest(t, conversations, into, of, e);
    model_file_leave(kept);
    return rc;
}

struct encode_text encode_text_like(const struct encode_text *t)
{
    return (struct encode_text){.dir = t->dir,
                                .ends = t->ends,
                                .before = t->before,
                                .submitted_s = t->submitted_s,
                                .listed_end = t->listed_end};
}

void encode_text_forget(struct encode_text *t)
{
    t->ids.n = 0;
}

void encode_text_fini(struct encode_text *t)
{
    tokenizer_destroy(t->tokenizer);
    text_tokens_fini(&t->ids);
    text_fini(&t->pair);
    if (t->chat_open) chat_model_close(&t->chat);
    jinja_output_fini(&t->turns);
    jinja_output_fini(&t->asked);
    free(t->bytes);
    free(t->learn);
    *t = (struct encode_text){0};
}

/* ---- documents ------------------------------------------------------------------------------- */

static int reserve(struct encode_text *t, int64_t n, struct err *e)
{
    if (n <= t->room) return 0;
    const int64_t room = n + n / 2;
    uint32_t *bytes = realloc(t->bytes, (size_t)room * sizeof *bytes);
    if (bytes) t->bytes = bytes;
    uint8_t *learn = realloc(t->learn, (size_t)room);
    if (learn) t->learn = learn;
    if (!bytes || !learn) return err_set(e, ERR_IO, "out of memory for %lld tokens", (long long)n);
    t->room = room;
    return 0;
}

/* Counts the bytes of every token. A token has the bytes before its end that belong to no earlier
 * token. Also marks the tokens that may be targets. Returns the number of bytes after the last
 * token. */
static int64_t measure(struct encode_text *t, int64_t first, size_t n, size_t given)
{
    const struct tokens *ids = &t->ids;
    int64_t covered = 0;
    bool learn = !given;
    for (int64_t i = first; i < ids->n; i++) {
        const int64_t end = ids->end[i] > covered ? ids->end[i] : covered;
        t->bytes[i] = (uint32_t)(end - covered);
        covered = end;
        learn = learn || end > (int64_t)given;
        t->learn[i] = learn;
    }
    return (int64_t)n - covered;
}

/* Converts a part of a text to tokens and appends them to t->ids. If `special` is true, also
 * appends the post-processor's ids. */
static int cut_part(struct encode_text *t, const struct text_part *part, size_t given, bool special,
                    struct encode_cut *out, struct err *e)
{
    const int64_t first = t->ids.n;
    *out = (struct encode_cut){.by = t, .at = first};
    if (!part->n) return 0;
    if (tokenizer_encode_part(t->tokenizer, part, special, &t->ids, e) < 0) return -1;
    if (reserve(t, t->ids.n, e) < 0) return -1;
    out->rest = measure(t, first, part->n, given);
    out->n = t->ids.n - first;
    return 0;
}

/* Converts a whole text to tokens. Bytes after the last token are counted as bytes of the last
 * token, so that the counts of all tokens add up to the size of the text. */
static int cut(struct encode_text *t, const char *text, size_t n, size_t given, bool special,
               struct encode_cut *out, struct err *e)
{
    const struct text_part all = {.text = text, .n = n, .begins = true, .ends = true};
    if (cut_part(t, &all, given, special, out, e) < 0) return -1;
    if (out->n) t->bytes[out->at + out->n - 1] += (uint32_t)out->rest;
    return 0;
}

int encode_text_part(struct encode_text *t, const struct text_part *part, struct encode_cut *out,
                     struct err *e)
{
    return open_tokenizer(t, e) < 0 ? -1 : cut_part(t, part, 0, true, out, e);
}

int encode_text_cut(struct encode_text *t, const char *text, size_t n, size_t from, int64_t *at,
                    struct err *e)
{
    if (open_tokenizer(t, e) < 0) return -1;
    *at = tokenizer_cut(t->tokenizer, text, n, from);
    return 0;
}

static int join(struct text *t, const struct encode_part *parts, int n, struct err *e)
{
    t->n = 0;
    for (int i = 0; i < n; i++)
        if (text_add(t, parts[i].at, (int64_t)parts[i].n) < 0) return buffer_full(e);
    return 0;
}

int encode_text(struct encode_text *t, const char *text, size_t n, size_t given,
                struct encode_cut *out, struct err *e)
{
    const size_t before = t->before ? strlen(t->before) : 0;
    const struct encode_part parts[] = {{t->before, before}, {text, n}};
    if (open_tokenizer(t, e) < 0) return -1;
    if (!before) return cut(t, text, n, given, true, out, e);
    if (join(&t->pair, parts, 2, e) < 0) return -1;
    return cut(t, t->pair.data, (size_t)t->pair.n, given ? before + given : 0, true, out, e);
}

int encode_pair(struct encode_text *t, const struct encode_part *prompt,
                const struct encode_part *completion, bool given, struct encode_cut *out,
                struct err *e)
{
    const struct encode_part parts[] = {*prompt, *completion};
    if (open_tokenizer(t, e) < 0 || join(&t->pair, parts, 2, e) < 0) return -1;
    return cut(t, t->pair.data, (size_t)t->pair.n, given ? prompt->n : 0, true, out, e);
}

/* ---- conversations --------------------------------------------------------------------------- */

/* Fails if the model has no chat template. `what` names the messages, and `texts` says which texts
 * to give instead. */
static int check_chat(struct encode_text *t, const char *what, const char *texts, struct err *e)
{
    open_chat(t);
    if (!t->chat_open) {
        if (e) *e = t->no_chat;
        return of_model(e);
    }
    if (t->chat.t) return 0;
    return chat_model_refuse(what, false, texts, e);
}

/* Marks the tokens that contain a byte of an assistant's turn as targets, beginning with token
 * `first`. Turns do not overlap, but a turn may be empty. */
static void learn_turns(struct encode_text *t, int64_t first)
{
    const struct template_output *o = &t->turns;
    const struct tokens *ids = &t->ids;
    int64_t k = 0;
    for (int64_t i = first; i < ids->n; i++) {
        const int64_t begin = ids->begin[i], end = ids->end[i] > begin ? ids->end[i] : begin + 1;
        while (k < o->n_spans && (o->span[k].end <= begin || o->span[k].begin == o->span[k].end))
            k++;
        t->learn[i] = k < o->n_spans && o->span[k].begin < end;
    }
}

/* Renders the conversation that t->pair has as JSON, and converts it to tokens. The tokens of the
 * assistant's turns become targets. If all is true, every token becomes a target. The places of
 * turns before message `first` need not be known. */
static int cut_chat(struct encode_text *t, int64_t first, bool all, struct encode_cut *out,
                    struct err *e)
{
    if (chat_render_spans(t->chat.t, t->pair.data, t->pair.n, &t->chat.tokens, first,
                          chat_day(t->submitted_s), &t->turns, e) < 0) {
        if (e) *e->field = 0;
        return -1;
    }
    if (cut(t, t->turns.text, (size_t)t->turns.size, 0, false, out, e) < 0) return -1;
    if (!all) learn_turns(t, out->at);
    return 0;
}

int encode_chat(struct encode_text *t, const struct encode_part *messages, bool all,
                struct encode_cut *out, struct err *e)
{
    static const char open[] = "{\"messages\":", close[] = "}";
    const struct encode_part parts[] = {{open, sizeof open - 1}, *messages, {close, 1}};
    if (open_tokenizer(t, e) < 0 ||
        check_chat(t, "\"messages\"",
                   "give the whole text (\"text\", or \"prompt\" and \"completion\")", e) < 0)
        return -1;
    return join(&t->pair, parts, 3, e) < 0 ? -1 : cut_chat(t, 0, all, out, e);
}

/* ---- answers --------------------------------------------------------------------------------- */

static int join_messages(struct encode_text *t, const struct encode_part *first,
                         const struct encode_part *more, struct err *e)
{
    static const char open[] = "{\"messages\":[", close[] = "]}";
    const struct encode_part parts[] = {
        {open, sizeof open - 1}, *first, {",", first->n && more->n}, *more, {close, 2}};
    return join(&t->pair, parts, 5, e);
}

/* Counts the messages of the conversation that t->pair has as JSON. */
static int64_t count_messages(const struct encode_text *t)
{
    struct jread j;
    int64_t n = 0;
    jread_init(&j, t->pair.data, (size_t)t->pair.n);
    for (int i = 0; i < 3; i++) jread_next(&j); /* the object, its key and the list */
    while (jread_next(&j) == J_OBJECT && !jread_skip(&j)) n++;
    return n;
}

/* Renders the prompt with the start of the assistant's turn, and counts its messages. */
static int render_prompt(struct encode_text *t, const struct encode_part *prompt, int64_t *n,
                         struct err *e)
{
    *n = 0;
    t->asked.size = 0;
    if (!prompt->n) return 0;
    if (join_messages(t, prompt, &(struct encode_part){"", 0}, e) < 0) return -1;
    *n = count_messages(t);
    if (chat_render(t->chat.t, t->pair.data, t->pair.n, &t->chat.tokens, true,
                    chat_day(t->submitted_s), &t->asked, e) == 0)
        return 0;
    if (e) *e->field = 0;
    return -1;
}

/* Fails if the answer begins with a turn of another role than the assistant's, which is the turn
 * that the prompt's text has begun. */
static int check_begins(const struct encode_part *answer, struct err *e)
{
    struct jread j;
    jread_init(&j, answer->at, answer->n);
    if (jread_next(&j) != J_OBJECT) return 0;
    while (jread_next(&j) == J_KEY) {
        const bool role = jread_is(&j, "role");
        if (role && jread_next(&j) == J_STRING && !jread_is(&j, "assistant"))
            return err_set(
                e, ERR_INVALID,
                "the answer begins with a turn of the role \"%.*s\", and the turn after the prompt "
                "is the assistant's: begin it with a turn of the role \"assistant\", and "
                "move the turns before it to the end of the prompt",
                (int)(j.len < 32 ? j.len : 32), j.text);
        if (role || jread_skip(&j)) return 0;
    }
    return 0;
}

/* Makes the tokens of the prompt no targets. The prompt and its conversation were rendered
 * before. */
static int forget_prompt(struct encode_text *t, const struct encode_part *answer, int64_t first,
                         struct err *e)
{
    const struct template_output *all = &t->turns, *own = &t->asked;
    const bool begins = !own->size || (own->size <= all->size &&
                                       !memcmp(own->text, all->text, (size_t)own->size));
    if (!begins && check_begins(answer, e)) return -1;
    if (!begins)
        return err_set(e, ERR_INVALID,
                       "the chat template writes the prompt otherwise when an answer follows, so "
                       "the answer's place cannot be told: give the record's texts as strings, or "
                       "a prompt that ends before a turn of the assistant");
    for (int64_t i = first; i < t->ids.n; i++)
        if (t->ids.end[i] <= own->size) t->learn[i] = 0;
    return 0;
}

int encode_answer(struct encode_text *t, const struct encode_part *prompt,
                  const struct encode_part *answer, bool all, struct encode_cut *out, struct err *e)
{
    int64_t first = 0;
    if (open_tokenizer(t, e) < 0 ||
        check_chat(t, "the answer", "give the record's texts as strings", e) < 0)
        return -1;
    if (!all && render_prompt(t, prompt, &first, e) < 0) return -1;
    if (join_messages(t, prompt, answer, e) < 0 || cut_chat(t, first, all, out, e) < 0) return -1;
    return prompt->n && !all ? forget_prompt(t, answer, out->at, e) : 0;
}
