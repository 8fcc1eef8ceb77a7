/* served.h: joins the parts of a streamed answer of OpenAI's API. */
#ifndef SEQD_TESTS_SERVED_H
#define SEQD_TESTS_SERVED_H

#include <stdio.h>
#include <string.h>

/* Appends the value of a member, a text or the inside of a list, to out. */
static inline void served_add(char *out, const char *text, const char *name, char close)
{
    const char *at = strstr(text, name);
    if (!at) return;
    at += strlen(name);
    const char *to = at;
    while (*to && *to != close) to += to[0] == '\\' && to[1] ? 2 : 1;
    strncat(out, *out && close == ']' && to > at ? "," : "", 1);
    strncat(out, at, (size_t)(to - at));
}

/* Joins the members of one continuation. */
struct served {
    char text[1024], ids[1024], logprobs[4096], offsets[1024], finish[64];
};

static inline void served_join(struct served *s, const char *choice)
{
    served_add(s->text, choice, "\"text\":\"", '"');
    served_add(s->text, choice, "\"content\":\"", '"');
    served_add(s->ids, choice, "\"token_ids\":[", ']');
    served_add(s->logprobs, choice, "\"token_logprobs\":[", ']');
    served_add(s->offsets, choice, "\"text_offset\":[", ']');
    served_add(s->finish, choice, "\"finish_reason\":\"", '"');
}

/* Returns the part of the text that has continuation `index`. */
static inline const char *served_choice(const char *text, int index)
{
    char name[32];
    snprintf(name, sizeof name, "{\"index\":%d,", index);
    const char *at = text ? strstr(text, name) : NULL;
    return at ? at : "";
}

#endif
