/* JSONL: each line is a record (jsonl_record.h). Only whole lines are parsed. A line is in
 * memory as a whole and has at most LINE_SIZE bytes. All workers parse the lines that are in
 * memory and convert their text to tokens. Then the lines are added in the order in which the
 * file has them. For this reason the output does not depend on the number of workers. If lines
 * have errors, the call fails with the error of the first line that has an error, for any
 * number of workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "kernels/cpu/pool.h"
#include "worker/data/encode_text.h"
#include "worker/data/format.h"
#include "worker/data/jsonl_record.h"
#include "worker/data/preference.h"

#define LINE_SIZE ((size_t)256 << 20)
enum { BATCH = 256 }; /* Largest number of lines that are in memory at the same time. */

struct jsonl_line {
    char *at;
    size_t n;
    int64_t number, offset;  /* number of the line in the file, counted from 1, and offset of the
                              * line's first byte */
    struct jsonl_record rec; /* the record of the line; its arrays are used again for later
                              * lines */
    struct encode_cut cut;   /* ids of the line's text, if a tokenizer converts it to tokens */
    struct preference pair;  /* the record of the line, if the job learns preferences */
    struct encode_cut answer[ANSWER_N];
    struct err e; /* e.code is ERR_NONE if the line has no error */
};

struct jsonl {
    struct format_in *in;
    struct jsonl_line *line; /* owned [BATCH] */
    int n;                   /* number of lines that are in memory */
    uint32_t *id;            /* owned [room]: input_ids to encode; learn[i] tells whether id[i] may
                              * be a target */
    uint8_t *learn;
    size_t room;
    int64_t n_lines; /* number of lines of the file that were read so far */
};

/* ---- documents ------------------------------------------------------------------------------- */

static int reserve(struct jsonl *s, size_t n, struct err *e)
{
    if (n <= s->room) return 0;
    free(s->id);
    free(s->learn);
    s->room = 0;
    s->id = malloc(n * sizeof *s->id);
    s->learn = malloc(n);
    if (!s->id || !s->learn) return err_set(e, ERR_IO, "out of memory for %zu ids", n);
    s->room = n;
    return 0;
}

/* Reads whether id i may be a target. The member labels has the meaning that transformers
 * gives it: labels[i] belongs to input_ids[i], and the value -100 means that the id is not a
 * target. */
static int learn_of(const struct jsonl_record *r, size_t i, uint8_t *learn, struct err *e)
{
    *learn = 1;
    if (r->labels.given) {
        *learn = r->labels.at[i] != -100;
        if (*learn && r->labels.at[i] != r->input_ids.at[i])
            return err_set(e, ERR_INVALID,
                           "labels %zu is %lld and input_ids %zu is %lld: a label is the id itself "
                           "or -100",
                           i, (long long)r->labels.at[i], i, (long long)r->input_ids.at[i]);
    }
    if (r->loss_mask.given) {
        if (r->loss_mask.at[i] != 0 && r->loss_mask.at[i] != 1)
            return err_set(e, ERR_INVALID, "loss_mask %zu is %lld: want 0 or 1", i,
                           (long long)r->loss_mask.at[i]);
        *learn = *learn && r->loss_mask.at[i];
    }
    return 0;
}

static int put_ids(struct jsonl *s, const struct jsonl_record *r, struct err *e)
{
    const struct jsonl_ids *beside[] = {&r->labels, &r->loss_mask};
    for (int k = 0; k < 2; k++)
        if (beside[k]->given && beside[k]->n != r->input_ids.n)
            return err_set(e, ERR_INVALID, "%s has %zu elements, input_ids %zu",
                           k ? "loss_mask" : "labels", beside[k]->n, r->input_ids.n);
    if (reserve(s, r->n, e) < 0) return -1;
    for (size_t k = 0; k < r->n; k++) {
        const size_t i = r->first + k;
        const int64_t id = r->input_ids.at[i];
        if (id < 0 || id >= s->in->c->vocab)
            return err_set(e, ERR_INVALID,
                           "input_ids %zu is %lld: the model's vocabulary has %lld ids, from 0", i,
                           (long long)id, (long long)s->in->c->vocab);
        s->id[k] = (uint32_t)id;
        if (learn_of(r, i, &s->learn[k], e) < 0) return -1;
    }
    return encode_ids(s->in->c, s->id, r->n, s->learn, e);
}

static int refuse_text(const struct format_in *in, const struct jsonl_record *r, struct err *e)
{
    struct err why;
    char what[96];
    snprintf(what, sizeof what, "\"%.64s\"",
             r->text.at       ? in->text_key
             : r->messages.at ? "messages"
                              : "completion");
    job_refuse_text(in->spec, "", what, &why); /* no source is named here, because prepare.c
                                                * adds the name */
    return err_set(e, why.code, "%s", why.text);
}

/* Checks that the job may read a record of this kind. */
static int check_kind(const struct format_in *in, const struct jsonl_record *r, struct err *e)
{
    const bool completion = in->loss_on == LOSS_ON_COMPLETION;
    const bool assistant = in->loss_on == LOSS_ON_ASSISTANT;
    const bool pair = jsonl_record_talk(r), talk = r->messages.at || pair;
    if (in->c->text && in->c->text->before && !r->text.at)
        return err_set(e, ERR_INVALID,
                       "%s: the model's prompt stands before texts alone: give \"%s\", or set "
                       "embed.prompts to false",
                       r->input_ids.given ? "input_ids"
                       : talk             ? "a conversation"
                                          : "a prompt and its completion",
                       in->text_key);
    if (r->input_ids.given) {
        if ((!completion && !assistant) || r->labels.given || r->loss_mask.given) return 0;
        return err_set(e, ERR_INVALID,
                       "the record has input_ids without labels or loss_mask, and data.loss_on is "
                       "\"%s\": give "
                       "one of these lists, or leave data.loss_on out",
                       completion ? "completion" : "assistant");
    }
    if (!in->c->text && !job_reads_bytes(in->spec)) return refuse_text(in, r, e);
    if (r->messages.at && completion)
        return err_set(
            e, ERR_INVALID,
            "the record is a conversation, and data.loss_on is \"completion\": want \"prompt\" and "
            "\"completion\", or data.loss_on \"assistant\"");
    if (talk && !in->c->text)
        return chat_model_refuse(pair ? "\"prompt\"" : "\"messages\"", true,
                                 pair ? "give the texts as strings" : "give the whole text", e);
    if (talk) return 0;
    if (assistant)
        return err_set(e, ERR_INVALID,
                       "the record is not a conversation, and data.loss_on is \"assistant\": want "
                       "\"messages\"");
    if (r->text.at && completion)
        return err_set(
            e, ERR_INVALID,
            "the record is a text, and data.loss_on is \"completion\": want \"prompt\" and "
            "\"completion\"");
    return 0;
}

static int cut_record(const struct format_in *in, struct encode_text *t,
                      const struct jsonl_record *r, struct encode_cut *out, struct err *e)
{
    const struct encode_part parts[] = {{r->prompt.text.at, r->prompt.text.len},
                                        {r->completion.text.at, r->completion.text.len}};
    const struct encode_part turns[] = {{r->prompt.turns.at, r->prompt.turns.len},
                                        {r->completion.turns.at, r->completion.turns.len}};
    const struct encode_part messages = {r->messages.at, r->messages.len};
    const bool all = in->loss_on == LOSS_ON_ALL;
    if (r->input_ids.given) return 0;
    if (r->messages.at) return encode_chat(t, &messages, all, out, e);
    if (jsonl_record_talk(r)) return encode_answer(t, &turns[0], &turns[1], all, out, e);
    if (r->text.at) return encode_text(t, r->text.at, r->text.len, 0, out, e);
    return encode_pair(t, &parts[0], &parts[1], in->loss_on == LOSS_ON_COMPLETION, out, e);
}

static int put_bytes(struct encode *c, const struct jsonl_record *r, bool given, struct err *e)
{
    if (r->text.at) return encode_bytes(c, r->text.at, r->text.len, true, e);
    if (encode_bytes(c, r->prompt.text.at, r->prompt.text.len, !given, e) < 0) return -1;
    return encode_bytes(c, r->completion.text.at, r->completion.text.len, true, e);
}

static int put_record(struct jsonl *s, const struct jsonl_line *l, struct err *e)
{
    const struct jsonl_record *r = &l->rec;
    const bool given = s->in->loss_on == LOSS_ON_COMPLETION;
    struct encode *c = s->in->c;
    c->mark = c->n_tokens;
    const int rc = r->input_ids.given ? put_ids(s, r, e)
                   : c->text          ? encode_put(c, &l->cut, e)
                                      : put_bytes(c, r, given, e);
    const bool text = !r->input_ids.given && !r->messages.at && !jsonl_record_talk(r);
    return rc < 0 ? -1 : encode_end(c, text, (uint64_t)l->number, (uint64_t)l->offset, e);
}

/* ---- preferences ----------------------------------------------------------------------------- */

static void cut_pair(const struct format_in *in, struct jsonl_line *l, int worker)
{
    struct err why;
    if (preference_parse(&l->pair, l->at, l->n, &l->e) < 0) return;
    if (in->c->text) {
        preference_cut(&l->pair, &in->c->text[worker], l->answer, &l->e);
    } else if (!job_reads_bytes(in->spec)) {
        job_refuse_text(in->spec, "", "\"chosen\"", &why); /* prepare.c adds the source */
        err_set(&l->e, why.code, "%s", why.text);
    } else if (l->pair.answer[ANSWER_CHOSEN].list) {
        chat_model_refuse("\"chosen\"", true, "give the texts as strings", &l->e);
    }
}

/* Adds the documents of both answers to the encoder. */
static int put_pair(struct jsonl *s, const struct jsonl_line *l, struct err *e)
{
    struct encode *c = s->in->c;
    for (int i = 0; i < ANSWER_N; i++) {
        c->mark = c->n_tokens;
        if (preference_put(&l->pair, (enum preference_id)i, c, &l->answer[i], e) < 0 ||
            encode_end(c, !l->pair.answer[i].list, (uint64_t)l->number, (uint64_t)l->offset, e) < 0)
            return -1;
    }
    return 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static void cut_line(void *arg, int64_t task, int worker)
{
    struct jsonl *s = arg;
    struct jsonl_line *l = &s->line[task];
    const struct format_in *in = s->in;
    l->e.code = ERR_NONE;
    l->e.field[0] = 0;
    if (job_learns_pairs(in->spec)) {
        cut_pair(in, l, worker);
        return;
    }
    if (jsonl_record_parse(&l->rec, in->text_key, l->at, l->n, &l->e) < 0 ||
        check_kind(in, &l->rec, &l->e) < 0)
        return;
    if (in->c->text) cut_record(in, &in->c->text[worker], &l->rec, &l->cut, &l->e);
}

static int put_line(struct jsonl *s, const struct jsonl_line *l, struct err *e)
{
    const bool pairs = job_learns_pairs(s->in->spec);
    if (l->e.code != ERR_NONE && e) *e = l->e;
    if (l->e.code != ERR_NONE || (pairs ? put_pair(s, l, e) : put_record(s, l, e)) < 0)
        return err_prefix(e, "%s line %lld", s->in->r->path, (long long)l->number);
    return 0;
}

/* Parses the lines that are in memory, converts their text to tokens, and adds the tokens to
 * the encoder. */
static int put_lines(struct jsonl *s, struct err *e)
{
    struct encode *c = s->in->c;
    const int n = s->n;
    for (int i = 0; c->text && i < c->n_workers; i++) encode_text_forget(&c->text[i]);
    pool_run(c->pool, cut_line, s, n);
    s->n = 0;
    for (int i = 0; i < n; i++)
        if (put_line(s, &s->line[i], e) < 0) return -1;
    return 0;
}

static int hold_line(struct jsonl *s, char *line, size_t n, int64_t offset, struct err *e)
{
    size_t blank = 0;
    s->n_lines++;
    if (s->n_lines == 1 && n >= 3 && !memcmp(line, "\xef\xbb\xbf", 3)) {
        line += 3;
        n -= 3;
    }
    while (blank < n && strchr(" \t\r", line[blank]) && line[blank]) blank++;
    if (blank == n) return 0;
    struct jsonl_line *l = &s->line[s->n++];
    l->at = line;
    l->n = n;
    l->number = s->n_lines;
    l->offset = offset;
    return s->n == BATCH ? put_lines(s, e) : 0;
}

static int read_lines(struct jsonl *s, struct err *e)
{
    struct reader *r = s->in->r;
    size_t searched = 0; /* number of bytes at the start of the buffer that are known to have no
                          * newline */
    while (!r->end || r->n) {
        char *nl = r->n > searched ? memchr(r->buf + searched, '\n', r->n - searched) : NULL;
        if (!nl && !r->end) {
            searched = r->n;
            if (r->n == r->room && reader_grow(r, LINE_SIZE, e) < 0)
                return err_prefix(e, "%s line %lld", r->path, (long long)s->n_lines + 1);
            if (reader_fill(r, e) < 0) return -1;
            continue;
        }
        /* Process all whole lines of the buffer, and then move the rest of the buffer to its
         * front. */
        char *line = r->buf, *end = r->buf + r->n;
        for (; nl; line = nl + 1, nl = memchr(line, '\n', (size_t)(end - line)))
            if (hold_line(s, line, (size_t)(nl - line), r->at + (line - r->buf), e) < 0) return -1;
        if (r->end && line < end) {
            if (hold_line(s, line, (size_t)(end - line), r->at + (line - r->buf), e) < 0) return -1;
            line = end;
        }
        if (put_lines(s, e) < 0) return -1;
        reader_drop(r, (size_t)(line - r->buf));
        searched = r->n;
    }
    return 0;
}

int format_read_jsonl(struct format_in *in, struct err *e)
{
    struct jsonl s = {.in = in, .line = calloc(BATCH, sizeof *s.line)};
    int rc = s.line ? read_lines(&s, e) : err_set(e, ERR_IO, "out of memory");
    for (int i = 0; s.line && i < BATCH; i++) jsonl_record_fini(&s.line[i].rec);
    free(s.line);
    free(s.id);
    free(s.learn);
    return rc;
}
