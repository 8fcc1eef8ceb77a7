/* talk.c: keeps the turns as texts, and makes the JSON of each request from all of them. */
#include "client/talk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "client/json.h"

static void begin_answer(struct talk *t)
{
    free(t->error);
    t->error = NULL;
    t->size = 0;
    *t->error_code = *t->finish = 0;
    t->done = false;
}

void talk_reset(struct talk *t)
{
    for (size_t i = 0; i < t->n_turns; i++) free(t->turn[i].text);
    t->n_turns = 0;
    begin_answer(t);
}

void talk_fini(struct talk *t)
{
    talk_reset(t);
    free(t->turn);
    free(t->answer);
    *t = (struct talk){0};
}

static void add_turn(struct talk *t, const char *role, const char *text)
{
    if (t->n_turns == t->room) {
        t->room = t->room ? 2 * t->room : 16;
        t->turn = realloc(t->turn, t->room * sizeof *t->turn);
        assert(t->turn);
    }
    char *copy = strdup(text);
    assert(copy);
    t->turn[t->n_turns++] = (struct talk_turn){role, copy};
}

static void drop_turn(struct talk *t)
{
    free(t->turn[--t->n_turns].text);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* jv_put and jv_add fail if a text is not UTF-8. */
static int add_message(struct jv *list, const char *role, const char *text)
{
    struct jv *m = jv_object();
    const int bad = jv_put(m, "role", jv_string(role, strlen(role))) ||
                    jv_put(m, "content", jv_string(text, strlen(text)));
    return jv_add(list, m) || bad ? -1 : 0;
}

static int put_messages(const struct talk *t, struct jv *body)
{
    struct jv *list = jv_array();
    int rc = t->system ? add_message(list, "system", t->system) : 0;
    for (size_t i = 0; i < t->n_turns; i++)
        rc |= add_message(list, t->turn[i].role, t->turn[i].text);
    return jv_put(body, "messages", list) || rc ? -1 : 0;
}

static int put_prompt(const struct talk *t, struct jv *body)
{
    const char *text = t->turn[t->n_turns - 1].text;
    return jv_put(body, "prompt", jv_string(text, strlen(text)));
}

static int put_options(const struct talk *t, struct jv *body)
{
    if (t->max_tokens >= 0 && jv_put(body, "max_tokens", jv_integer(t->max_tokens))) return -1;
    if (t->temperature && jv_set(body, "temperature", t->temperature, NULL)) return -1;
    return jv_put(body, "stream", jv_boolean(true));
}

char *talk_ask(struct talk *t, const char *question)
{
    struct jv *body = jv_object();
    char *out = NULL;
    begin_answer(t);
    add_turn(t, "user", question);
    if (jv_put(body, "model", jv_string(t->model, strlen(t->model))) ||
        (t->raw ? put_prompt(t, body) : put_messages(t, body)) || put_options(t, body))
        drop_turn(t);
    else
        out = jv_dump(body, JV_COMPACT);
    jv_free(body);
    return out;
}

const char *talk_path(const struct talk *t)
{
    return t->raw ? "/openai/v1/completions" : "/openai/v1/chat/completions";
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void fail(struct talk *t, const char *code, const char *text)
{
    if (t->error) return; /* the first error is the cause */
    t->error = strdup(text);
    assert(t->error);
    snprintf(t->error_code, sizeof t->error_code, "%s", code);
}

static void append(struct talk *t, const char *text, size_t n)
{
    while (t->size + n + 1 > t->answer_room) {
        t->answer_room = t->answer_room ? 2 * t->answer_room : 4096;
        t->answer = realloc(t->answer, t->answer_room);
        assert(t->answer);
    }
    memcpy(t->answer + t->size, text, n + 1);
    t->size += n;
}

/* Takes a piece of the answer, or its error. */
static void take(struct talk *t, const struct jv *v)
{
    if (jv_get(v, "error")) {
        fail(t, jv_str(v, "error.code", jv_str(v, "error.type", "error")),
             jv_str(v, "error.message", "the job has failed to answer"));
        return;
    }
    const char *text = jv_str(v, t->raw ? "choices.0.text" : "choices.0.delta.content", "");
    append(t, text, strlen(text));
    const char *finish = jv_str(v, "choices.0.finish_reason", NULL);
    if (finish) snprintf(t->finish, sizeof t->finish, "%s", finish);
}

size_t talk_take(struct talk *t, const char *data, size_t size)
{
    const size_t before = t->size;
    struct err e = {0};
    if (size == 6 && !memcmp(data, "[DONE]", 6)) {
        t->done = true;
        return 0;
    }
    struct jv *v = jv_parse(data, size, &e);
    if (jv_is_object(v))
        take(t, v);
    else
        fail(t, "invalid", "the answer has an event that is not a JSON object: is this seqd?");
    jv_free(v);
    return t->size - before;
}

void talk_end(struct talk *t)
{
    if (!t->size)
        drop_turn(t);
    else
        add_turn(t, "assistant", t->answer);
}
