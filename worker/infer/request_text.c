/* request_text.c: converts a text to tokens by the model's tokenizer, or uses each byte of the
 * text as a token. It also renders conversations by the chat template. */
#include "worker/infer/request_text.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "worker/text/buffer.h"

int request_text_refuse(const struct request *r, const struct job_spec *spec, const char *field,
                        struct err *e)
{
    if (!r->no_tokenizer || r->no_tokenizer->code == ERR_NONE)
        return job_refuse_text(spec, field, field, e);
    return err_field(e, r->no_tokenizer->code, field, "%s is text, and %s", field,
                     r->no_tokenizer->text);
}

bool request_text_reads(const struct request *r, const struct job_spec *spec)
{
    return r->tokenizer || job_reads_bytes(spec);
}

static int reserve_tokens(struct request *r, int64_t n, struct err *e)
{
    if (n <= r->token_room) return 0;
    int32_t *more = realloc(r->tokens, (size_t)(n + 1) * sizeof *more);
    if (!more) return err_set(e, ERR_IO, "out of memory for a prompt of %lld tokens", (long long)n);
    r->tokens = more;
    r->token_room = n;
    return 0;
}

/* Converts a text to tokens. If add_special is true, adds the ids that the tokenizer's
 * post-processor puts around a text. */
static int cut_text(struct request *r, const struct job_spec *spec, const char *text, int64_t size,
                    bool add_special, struct err *e)
{
    const int64_t V = spec->model.shape.vocab;
    r->cut.n = 0;
    if (tokenizer_encode(r->tokenizer, text, (size_t)size, add_special, &r->cut, e) < 0 ||
        reserve_tokens(r, r->cut.n, e) < 0)
        return -1;
    for (int64_t i = 0; i < r->cut.n; i++) {
        if (r->cut.id[i] >= V)
            return err_set(
                e, ERR_INVALID,
                "the tokenizer of model.path makes the id %d of it: the model's vocabulary "
                "has %lld ids, from 0",
                (int)r->cut.id[i], (long long)V);
        r->tokens[i] = r->cut.id[i];
    }
    r->n_tokens = r->cut.n;
    return 0;
}

int request_text_take(struct request *r, const struct job_spec *spec, const char *text,
                      int64_t size, bool add_special, struct err *e)
{
    if (!request_text_reads(r, spec)) return request_text_refuse(r, spec, "prompt", e);
    if (r->tokenizer) {
        if (cut_text(r, spec, text, size, add_special, e) == 0) return 0;
        return err_about(e, "prompt");
    }
    assert(size <= r->room);
    for (int64_t i = 0; i < size; i++) r->tokens[i] = (unsigned char)text[i];
    r->n_tokens = size;
    return 0;
}

/* ---- conversations --------------------------------------------------------------------------- */

int request_text_chats(const struct request *r, const struct job_spec *spec, struct err *e)
{
    static const char instead[] = "ask /v1/completions with the whole prompt";
    int rc = -1;
    if (!request_text_reads(r, spec)) return request_text_refuse(r, spec, "messages", e);
    if (r->tokenizer && r->chat.model && r->chat.model->t) return 0;
    if (!r->tokenizer || !r->chat.why || r->chat.why->code == ERR_NONE)
        rc = chat_model_refuse("messages", !r->tokenizer, instead, e);
    else
        rc = err_field(e, r->chat.why->code, "model.path", "%s", r->chat.why->text);
    /* the field of a served request is a member of its body */
    if (r->serves && e) strcpy(e->field, "messages");
    return rc;
}

static int add_part(struct text *t, const char *name, struct request_part part)
{
    if (!part.json) return 0;
    if (text_add(t, name, (int64_t)strlen(name)) < 0) return -1;
    return text_add(t, part.json, part.size);
}

/* Renders the chat template. */
static int write_messages(struct request *r, const struct request_talk *talk, struct err *e)
{
    const struct chat_model *m = r->chat.model;
    struct text *t = &r->talk;
    t->n = 0;
    if (add_part(t, "{\"messages\":", talk->messages) < 0 ||
        add_part(t, ",\"tools\":", talk->tools) < 0 ||
        add_part(t, ",\"chat_template_kwargs\":", talk->kwargs) < 0 || text_add(t, "}", 1) < 0)
        return buffer_full(e);
    return chat_render(m->t, t->data, t->n, &m->tokens, true, chat_day(r->chat.submitted_s),
                       &r->written, e);
}

int request_text_of_messages(struct request *r, const struct job_spec *spec,
                             const struct request_talk *talk, struct err *e)
{
    if (write_messages(r, talk, e)) {
        if (!*e->field) strcpy(e->field, "messages");
        return -1;
    }
    if (cut_text(r, spec, r->written.text, r->written.size, false, e) == 0) return 0;
    return err_about(e, "messages");
}
