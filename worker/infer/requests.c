/* requests.c: reads the body of a request by a table of its members, and writes the error if
 * it refuses the request. */
#include "worker/infer/requests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/field.h"
#include "api/core/job.h"
#include "api/core/jread.h"
#include "api/core/nearest.h"
#include "api/core/sha256.h"
#include "api/core/utf8.h"
#include "worker/infer/neutral.h"
#include "worker/infer/request_body.h"
#include "worker/infer/request_text.h"

int request_init(struct request *r, int64_t room, struct err *e)
{
    *r = (struct request){.room = room, .token_room = room};
    r->tokens = malloc((size_t)(room + 1) * sizeof *r->tokens);
    r->text = malloc((size_t)room + 1);
    if (r->tokens && r->text) return 0;
    request_fini(r);
    return err_set(e, ERR_IO, "out of memory for a prompt of %lld bytes", (long long)room);
}

static void free_scratch(struct request *r)
{
    free(r->text);
    text_tokens_fini(&r->cut);
    text_fini(&r->talk);
    jinja_output_fini(&r->written);
    r->text = NULL;
    r->room = 0;
}

static void free_steering(struct request *r)
{
    grammar_destroy(r->grammar);
    free(r->bias);
    r->grammar = NULL;
    r->bias = NULL;
    r->n_bias = 0;
}

void request_fini(struct request *r)
{
    free_scratch(r);
    free(r->tokens);
    free_steering(r);
    r->tokens = NULL;
}

void request_trim(struct request *r)
{
    int32_t *less = realloc(r->tokens, (size_t)(r->n_tokens + 1) * sizeof *less);
    if (less) r->tokens = less;
    r->token_room = r->n_tokens;
    free_scratch(r);
}

/* Sets all options to those of the job. */
void request_defaults(struct request *r, const struct job_spec *spec)
{
    free_steering(r);
    r->id[0] = 0;
    r->n_tokens = 0;
    r->sample = (struct sample_options){.temperature = spec->sampling.temperature,
                                        .top_k = spec->sampling.top_k,
                                        .top_p = spec->sampling.top_p,
                                        .min_p = spec->sampling.min_p,
                                        .repetition = spec->sampling.repetition_penalty,
                                        .frequency = spec->sampling.frequency_penalty,
                                        .presence = spec->sampling.presence_penalty};
    r->key = (struct sample_key){.seed = spec->sampling.seed};
    r->max_tokens = spec->sampling.max_tokens;
    r->min_tokens = spec->sampling.min_tokens;
    r->n = spec->sampling.n;
    r->logprobs = spec->sampling.logprobs;
    r->ignore_eos = spec->sampling.ignore_eos;
    r->echo = 0;
    r->is_chat = r->serves = r->stream = r->usage = r->too_long = false;
    r->calls = r->one_call = false;
    r->adapter = ADAPTER_BASE;
    r->refused = (struct err){0};
    stop_init(&r->stop);
    for (int i = 0; i < SPEC_STOPS; i++) {
        const char *s = spec_text(spec, spec->sampling.stop[i]);
        if (*s) stop_add(&r->stop, s, strlen(s));
    }
}

/* Checks the length of a prompt in tokens. The length in bytes was checked when the job was
 * submitted. */
static int check_length(const struct request *r, const struct job_spec *spec, struct err *e)
{
    const int64_t n = r->n_tokens + r->max_tokens;
    if (!r->tokenizer || n <= spec->data.seq_len) return 0;
    return err_field(e, ERR_TOO_LARGE, "data.seq_len",
                     "the prompt has %lld tokens, with sampling.max_tokens %lld: data.seq_len %lld "
                     "holds less; make it %lld",
                     (long long)r->n_tokens, (long long)r->max_tokens,
                     (long long)spec->data.seq_len, (long long)n);
}

void request_of_prompt(struct request *r, const struct job_spec *spec, const char *prompt,
                       int64_t size, int64_t i)
{
    request_defaults(r, spec);
    r->key.request = i;
    snprintf(r->id, sizeof r->id, "%lld", (long long)i);
    struct err why = {0};
    if (request_text_take(r, spec, prompt, size, true, &why) < 0 || check_length(r, spec, &why) < 0)
        r->refused = why;
}

/* ---- the body of a request ------------------------------------------------------------------- */

/* for each member, the urls with which it is allowed */
enum request_api { API_TEXT = 1, API_CHAT = 2, API_BOTH = 3 };

/* Members that have the same type and range as a field of the job spec. */
static const struct request_number {
    const char *name;
    const char *path;
    size_t offset;
    enum request_api api; /* url with which the member is allowed; 0 means that both urls are
                           * allowed */
    /* `also` is a further accepted value, which has the meaning of the value `means`; if
     * `also` is equal to `means`, there is no further value */
    double also, means;
} numbers[] = {
    {"temperature", "sampling.temperature", offsetof(struct request, sample.temperature)},
    {"top_k", "sampling.top_k", offsetof(struct request, sample.top_k), 0, -1, 0},   /* -1: all */
    {"top_p", "sampling.top_p", offsetof(struct request, sample.top_p), 0, 0, 1e-9}, /* 0: best */
    {"min_p", "sampling.min_p", offsetof(struct request, sample.min_p)},
    {"repetition_penalty", "sampling.repetition_penalty",
     offsetof(struct request, sample.repetition)},
    {"frequency_penalty", "sampling.frequency_penalty", offsetof(struct request, sample.frequency)},
    {"presence_penalty", "sampling.presence_penalty", offsetof(struct request, sample.presence)},
    {"seed", "sampling.seed", offsetof(struct request, key.seed)},
    {"max_tokens", "sampling.max_tokens", offsetof(struct request, max_tokens)},
    {"min_tokens", "sampling.min_tokens", offsetof(struct request, min_tokens)},
    {"n", "sampling.n", offsetof(struct request, n)},
    {"logprobs", "sampling.logprobs", offsetof(struct request, logprobs), API_TEXT},
    {"max_completion_tokens", "sampling.max_tokens", offsetof(struct request, max_tokens),
     API_CHAT},
    {"ignore_eos", "sampling.ignore_eos", offsetof(struct request, ignore_eos)},
};
#define N_NUMBERS (sizeof numbers / sizeof *numbers)

static int take_bool(struct request_body *b, const char *name, enum jtok t, int32_t *out)
{
    if (t != J_TRUE && t != J_FALSE)
        return err_field(b->e, ERR_INVALID, name, "%s must be true or false", name);
    *out = t == J_TRUE;
    return 0;
}

static int take_number(struct request_body *b, const struct request_number *m, enum jtok t)
{
    const struct field *f = spec_field(m->path);
    char *at = (char *)b->r + m->offset;
    const bool length = m->offset == offsetof(struct request, max_tokens);
    const double lo = length ? 0 : f->min; /* 0 tokens are allowed, because a request with echo
                                            * may ask for no new tokens */
    int64_t i = 0;
    double v = 0;
    if (length && b->length)
        return err_field(b->e, ERR_INVALID, m->name,
                         "max_tokens and max_completion_tokens are one: leave one of them out");
    b->length |= length;
    if (f->type == FIELD_BOOL) return take_bool(b, m->name, t, (int32_t *)at);
    if (t != J_NUMBER || jread_double(&b->j, &v) ||
        (f->type != FIELD_DOUBLE && jread_int(&b->j, &i)))
        return err_field(b->e, ERR_INVALID, m->name, "%s must be %s", m->name,
                         f->type == FIELD_DOUBLE ? "a number" : "an integer");
    if (m->also != m->means && v == m->also) {
        v = m->means;
        i = (int64_t)v;
    }
    if (!(v >= lo && v <= f->max) && v != f->fallback)
        return err_field(b->e, ERR_INVALID, m->name,
                         "%s is %.16g: it must lie between %.16g and %.16g", m->name, v, lo,
                         f->max);
    if (f->type == FIELD_DOUBLE)
        *(double *)at = v;
    else if (f->type == FIELD_INT)
        *(int64_t *)at = i;
    else
        *(int32_t *)at = (int32_t)i;
    return 0;
}

static int refuse_list(struct request_body *b)
{
    return err_field(b->e, ERR_INVALID, "prompt",
                     b->r->serves ? "prompt must be a string, a list of token ids, a list of "
                                    "strings, or a list of lists of token ids"
                                  : "prompt must be one string or one list of token ids: make one "
                                    "request of every prompt");
}

/* Reads ids up to the end of their list. `t` is the first token after the start of the list. */
static int take_ids(struct request_body *b, enum jtok t)
{
    const int64_t V = b->spec->model.shape.vocab;
    struct request *r = b->r;
    int64_t id;
    for (; t != J_ARRAY_END; t = jread_next(&b->j)) {
        if (t != J_NUMBER || jread_int(&b->j, &id)) return refuse_list(b);
        if (id < 0 || id >= V)
            return err_field(b->e, ERR_INVALID, "prompt",
                             "prompt holds the token %lld: the vocabulary has %lld", (long long)id,
                             (long long)V);
        /* this holds because each id takes at least two bytes of the line */
        assert(r->n_tokens < r->room);
        r->tokens[r->n_tokens++] = (int32_t)id;
    }
    return 0;
}

static int take_string(struct request_body *b)
{
    return request_text_take(b->r, b->spec, b->r->text, (int64_t)jread_unescape(&b->j, b->r->text),
                             true, b->e);
}

/* Reads a list of ids. A served request may also have a list with one prompt in it, because
 * clients send their only prompt so. */
static int take_list(struct request_body *b)
{
    const enum jtok t = jread_next(&b->j);
    if (!b->r->serves || (t != J_STRING && t != J_ARRAY)) return take_ids(b, t);
    if (t == J_STRING ? take_string(b) : take_ids(b, jread_next(&b->j))) return -1;
    return jread_next(&b->j) == J_ARRAY_END ? 0 : refuse_list(b);
}

static int take_prompt(struct request_body *b, enum jtok t)
{
    b->r->n_tokens = 0;
    if (t == J_ARRAY) return take_list(b);
    if (t != J_STRING)
        return err_field(b->e, ERR_INVALID, "prompt",
                         "prompt must be a string or a list of token ids");
    return take_string(b);
}

/* ---- conversations --------------------------------------------------------------------------- */

/* Notes the place of a value, which is read after all members. */
static int take_part(struct request_body *b, enum jtok t, const char *name, enum jtok want,
                     struct request_part *out)
{
    const char *begin = b->j.p - 1;
    if (t != want)
        return err_field(b->e, ERR_INVALID, name, "%s must be %s", name,
                         want == J_ARRAY ? "a list" : "an object");
    if (jread_skip(&b->j)) return -1;
    *out = (struct request_part){begin, b->j.p - begin};
    return 0;
}

static int take_messages(struct request_body *b, enum jtok t)
{
    b->r->n_tokens = 0;
    if (request_text_chats(b->r, b->spec, b->e)) return -1;
    if (t != J_ARRAY)
        return err_field(b->e, ERR_INVALID, "messages",
                         "messages must be a list of objects with role and content");
    return take_part(b, t, "messages", J_ARRAY, &b->messages);
}

static int take_kwargs(struct request_body *b, enum jtok t)
{
    return take_part(b, t, "chat_template_kwargs", J_OBJECT, &b->kwargs);
}

static int take_tools(struct request_body *b, enum jtok t)
{
    return take_part(b, t, "tools", J_ARRAY, &b->tools);
}

static int take_choice(struct request_body *b, enum jtok t)
{
    if (t == J_OBJECT) return take_part(b, t, "tool_choice", J_OBJECT, &b->choice);
    if (t == J_STRING && !jread_copy(&b->j, b->choice_word, sizeof b->choice_word)) return 0;
    return err_field(b->e, ERR_INVALID, "tool_choice", "tool_choice must be a word or an object");
}

static int take_parallel(struct request_body *b, enum jtok t)
{
    int32_t many = 1;
    if (take_bool(b, "parallel_tool_calls", t, &many)) return -1;
    b->r->one_call = !many;
    return 0;
}

static int take_format(struct request_body *b, enum jtok t)
{
    return take_part(b, t, "response_format", J_OBJECT, &b->format);
}

static int take_logprobs(struct request_body *b, enum jtok t)
{
    int32_t wanted = 0;
    if (take_bool(b, "logprobs", t, &wanted)) return -1;
    b->r->logprobs = wanted ? 0 : -1;
    return 0;
}

static int take_top_logprobs(struct request_body *b, enum jtok t)
{
    const struct field *f = spec_field("sampling.logprobs");
    if (t == J_NUMBER && !jread_int(&b->j, &b->top_logprobs) && b->top_logprobs >= 0 &&
        (double)b->top_logprobs <= f->max)
        return 0;
    return err_field(b->e, ERR_INVALID, "top_logprobs",
                     "top_logprobs must be an integer between 0 and %g", f->max);
}

/* ---- other members --------------------------------------------------------------------------- */

static int add_stop(struct request_body *b, enum jtok t)
{
    if (!request_text_reads(b->r, b->spec)) return request_text_refuse(b->r, b->spec, "stop", b->e);
    if (t != J_STRING)
        return err_field(b->e, ERR_INVALID, "stop", "stop must be a string or a list of strings");
    size_t size = jread_unescape(&b->j, b->r->text);
    if (stop_add(&b->r->stop, b->r->text, size))
        return err_field(b->e, ERR_INVALID, "stop",
                         "stop takes at most %d strings of 1 to %d bytes", STOP_STRINGS, STOP_SIZE);
    return 0;
}

static int take_stop(struct request_body *b, enum jtok t)
{
    stop_init(&b->r->stop);
    if (t != J_ARRAY) return add_stop(b, t);
    while ((t = jread_next(&b->j)) != J_ARRAY_END)
        if (add_stop(b, t)) return -1;
    return 0;
}

static int take_echo(struct request_body *b, enum jtok t)
{
    return take_bool(b, "echo", t, &b->r->echo);
}

static int take_stream(struct request_body *b, enum jtok t)
{
    int32_t wanted = 0;
    if (t == J_FALSE) return 0;
    if (!b->r->serves)
        return err_field(b->e, ERR_INVALID, "stream", "stream must be false in a batch");
    if (take_bool(b, "stream", t, &wanted)) return -1;
    b->r->stream = wanted;
    return 0;
}

/* Reads {"include_usage": true}. A request that is not streamed has no such options. */
static int take_stream_options(struct request_body *b, enum jtok t)
{
    int32_t wanted = 0;
    if (!b->r->serves || t != J_OBJECT)
        return err_field(b->e, ERR_INVALID, "stream_options",
                         b->r->serves ? "stream_options must be an object"
                                      : "stream_options belongs to a stream: leave it out");
    while ((t = jread_next(&b->j)) == J_KEY) {
        if (!jread_is(&b->j, "include_usage"))
            return err_field(b->e, ERR_UNSUPPORTED, "stream_options",
                             "stream_options takes include_usage alone: leave the rest out");
        t = jread_next(&b->j);
        if (t != J_NULL && take_bool(b, "stream_options.include_usage", t, &wanted)) return -1;
    }
    b->r->usage = wanted;
    b->options = true;
    return 0;
}

static int take_best_of(struct request_body *b, enum jtok t)
{
    if (t == J_NUMBER && !jread_int(&b->j, &b->best_of)) return 0;
    return err_field(b->e, ERR_INVALID, "best_of", "best_of must be an integer");
}

static int take_name(struct request_body *b, enum jtok t)
{
    if (t == J_STRING) return 0;
    return err_field(b->e, ERR_INVALID, "model", "model and user must be strings");
}

/* Lists the names of model.adapters for an error, as many as have room. */
static void list_adapters(const struct job_spec *s, char *out, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < spec_n_adapters(s) && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%s", i ? ", " : "",
                              spec_text(s, s->model.adapters[i].name));
}

static int take_model(struct request_body *b, enum jtok t)
{
    const struct job_spec *s = b->spec;
    const int n = spec_n_adapters(s);
    char names[300], given[128];
    if (take_name(b, t)) return -1;
    if (b->r->serves) return 0; /* the name has led to this job and to its adapter */
    for (int i = 0; i < n; i++)
        if (jread_is(&b->j, spec_text(s, s->model.adapters[i].name))) {
            b->r->adapter = i;
            return 0;
        }
    const char *path = spec_text(s, s->model.path), *name = spec_text(s, s->name);
    if (!n || (*path && jread_is(&b->j, path)) || (*name && jread_is(&b->j, name))) return 0;
    list_adapters(s, names, sizeof names);
    if (jread_copy(&b->j, given, sizeof given)) strcpy(given, "(a long name)");
    utf8_show(given);
    return err_field(b->e, ERR_NOT_FOUND, "model",
                     "model \"%s\" is none of model.adapters, which has %s: give one of these; "
                     "for the model without an adapter, leave model out or give the job's name",
                     given, names);
}

static const struct request_member {
    const char *name;
    int (*take)(struct request_body *, enum jtok);
    enum request_api api;
} members[] = {
    {"prompt", take_prompt, API_TEXT},
    {"messages", take_messages, API_CHAT},
    {"stop", take_stop, API_BOTH},
    {"echo", take_echo, API_TEXT},
    {"stream", take_stream, API_BOTH},
    {"best_of", take_best_of, API_TEXT},
    {"model", take_model, API_BOTH},
    {"user", take_name, API_BOTH},
    {"logprobs", take_logprobs, API_CHAT},
    {"top_logprobs", take_top_logprobs, API_CHAT},
    {"tools", take_tools, API_CHAT},
    {"tool_choice", take_choice, API_CHAT},
    {"parallel_tool_calls", take_parallel, API_CHAT},
    {"chat_template_kwargs", take_kwargs, API_CHAT},
    {"response_format", take_format, API_BOTH},
    {"logit_bias", request_take_bias, API_BOTH},
    {"stream_options", take_stream_options, API_BOTH},
};
#define N_MEMBERS (sizeof members / sizeof *members)
_Static_assert(N_MEMBERS + N_NUMBERS <= 64, "a bit of body.seen for each");

static bool api_has(const struct request_body *b, enum request_api api)
{
    return !api || (api & (b->r->is_chat ? API_CHAT : API_TEXT));
}

static size_t find_member(const struct request_body *b)
{
    for (size_t i = 0; i < N_MEMBERS; i++)
        if (api_has(b, members[i].api) && jread_is(&b->j, members[i].name)) return i;
    for (size_t i = 0; i < N_NUMBERS; i++)
        if (api_has(b, numbers[i].api) && jread_is(&b->j, numbers[i].name)) return N_MEMBERS + i;
    return N_MEMBERS + N_NUMBERS;
}

/* Returns the name of the member or the number i, or NULL. */
static const char *nth_name(size_t i)
{
    if (i < N_MEMBERS) return members[i].name;
    return i < N_MEMBERS + N_NUMBERS ? numbers[i - N_MEMBERS].name : NULL;
}

static bool nth_has(const struct request_body *b, size_t i)
{
    return api_has(b, i < N_MEMBERS ? members[i].api : numbers[i - N_MEMBERS].api);
}

static int refuse_unknown(struct request_body *b)
{
    char name[64];
    const char *near = NULL;
    if (jread_copy(&b->j, name, sizeof name)) strcpy(name, "(a long name)");
    int most = nearest_most(name);
    for (size_t i = 0; nth_name(i); i++) {
        const int d = nth_has(b, i) ? nearest_distance(name, nth_name(i)) : NEAREST_FAR;
        if (d > most) continue;
        most = d - 1;
        near = nth_name(i);
    }
    utf8_show(name);
    if (near)
        return err_field(b->e, ERR_INVALID, name,
                         "unknown member \"%s\", did you mean \"%s\"? Leave it out", name, near);
    return err_field(b->e, ERR_INVALID, name, "unknown member \"%s\": leave it out", name);
}

static int take_member(struct request_body *b)
{
    const size_t i = find_member(b);
    if (i == N_MEMBERS + N_NUMBERS) {
        const char *name, *why = NULL;
        if (neutral_member(&b->j, &name, &why)) return 0;
        if (why) return err_field(b->e, ERR_UNSUPPORTED, name, "%s: %s", name, why);
        return refuse_unknown(b);
    }
    const char *const known = nth_name(i);
    if (b->seen >> i & 1) return err_field(b->e, ERR_INVALID, known, "%s occurs twice", known);
    b->seen |= (uint64_t)1 << i;
    enum jtok t = jread_next(&b->j);
    if (t == J_NULL || t == J_ERROR) return 0; /* if j has an error, the caller reports it */
    return i < N_MEMBERS ? members[i].take(b, t) : take_number(b, &numbers[i - N_MEMBERS], t);
}

int request_body_take(struct request_body *b)
{
    enum jtok t = jread_next(&b->j);
    if (t != J_OBJECT) return err_field(b->e, ERR_INVALID, "body", "body must be an object");
    while ((t = jread_next(&b->j)) == J_KEY)
        if (take_member(b)) return -1;
    return b->j.err.code == ERR_NONE ? request_take_parts(b) : 0;
}

struct request_body request_body_begin(struct request *r, const struct job_spec *spec)
{
    return (struct request_body){
        .r = r, .spec = spec, .best_of = -1, .top_logprobs = -1, .e = &r->refused};
}

int64_t request_key(const char *id)
{
    struct sha256 sha;
    char hex[SHA256_HEX];
    sha256_init(&sha);
    sha256_add(&sha, id, strlen(id));
    sha256_hex(&sha, hex);
    hex[8] = 0;
    return (int64_t)strtoull(hex, NULL, 16);
}

void request_body_end(struct request_body *b)
{
    struct request *r = b->r;
    const bool own_seed = r->key.seed >= 0;
    if (b->top_logprobs >= 0) r->logprobs = (int32_t)b->top_logprobs;
    if (!own_seed) r->key.seed = b->spec->sampling.seed;
    r->key.request = own_seed ? 0 : request_key(r->id);
}

static int read_body(struct request_body *b)
{
    int rc = request_body_take(b);
    if (!rc) jread_next(&b->j); /* the end of the text */
    if (b->j.err.code != ERR_NONE) {
        /* If the JSON is invalid, report this error, because it can make members look wrong. */
        *b->e = (struct err){0};
        return err_field(b->e, ERR_INVALID, "body", "the body cannot be read: %s", b->j.err.text);
    }
    return rc || request_body_check(b) ? -1 : 0;
}

void request_of_body(struct request *r, const struct job_spec *spec, const struct request_call *c,
                     const char *body, int64_t size)
{
    struct request_body b = request_body_begin(r, spec);
    struct err none = {0};
    assert(size <= r->room);
    request_defaults(r, spec);
    r->serves = true;
    r->is_chat = c->chat;
    r->adapter = c->adapter;
    r->key.seed = -1;
    int n = 0;
    if (c->epoch) n = snprintf(r->id, sizeof r->id, "%lld-", (long long)c->epoch);
    n += snprintf(r->id + n, sizeof r->id - (size_t)n, "%llu", (unsigned long long)c->id);
    if (c->part) snprintf(r->id + n, sizeof r->id - (size_t)n, "-%d", c->part);
    jread_init(&b.j, body, (size_t)size);
    if (!read_body(&b)) r->refused = none; /* clears errors that a valid body has left */
    request_body_end(&b);
}
