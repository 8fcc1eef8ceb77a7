/* chat.h: renders a conversation with a chat template. The result is the text that a model reads
 * for `messages`, and the spans of that text that are turns of the assistant.
 *
 * The variables are those of transformers' apply_chat_template: messages, tools and documents
 * (null if the conversation has none), add_generation_prompt, the special tokens that the caller
 * gives, and any other member of the conversation. A message may have its reasoning under
 * reasoning_content, thinking or reasoning. The template gets it under the first two names. */
#ifndef SEQD_TEXT_CHAT_H
#define SEQD_TEXT_CHAT_H

#include "worker/jinja/template.h"

struct chat_tokens { /* special tokens by name ("bos_token"); borrowed */
    const char *const *name, *const *value;
    int n;
};

/* Returns the time that strftime_now has in a job submitted at this second. It is midnight of that
 * day, UTC, so that every attempt writes the same text. */
static inline int64_t chat_day(int64_t submitted_s)
{
    return submitted_s / 86400 * 86400;
}

/* Renders json [size], an object with "messages". prompt means that the text ends with the start
 * of the assistant's next turn.
 * Fails as jinja_render does. Also fails with ERR_INVALID in these cases, and the error has the
 * field: messages are not a list of objects; a part of a content is an image or something else
 * that is not text ("messages[i].content[k].type"); there are tools that the template does not
 * name ("tools"), or calls of tools that it does not mention; the template prints a list or a
 * mapping as Python does; the template fails by itself, and a content is not a string
 * ("messages[i].content" of the first such content). */
int chat_render(const struct template *t, const char *json, int64_t size,
                const struct chat_tokens *tokens, bool prompt, int64_t now_s,
                struct template_output *o, struct err *e);

/* Renders as chat_render does, without a prompt, but does not join the parts of a content. o->span
 * gets the assistant's turns. If the template has the tag {% generation %}, a turn is the text
 * inside it. Otherwise a turn is the text that the template adds, after its prompt for the
 * assistant, for a message with the role assistant. Such a turn is found only if the output of the
 * messages before it, with the prompt, is a prefix of the output with the turn, and if the output
 * with the turn is a prefix of the whole output. Also fails with ERR_INVALID if a turn cannot be
 * found, or if a content has parts that the template does not read ("messages[i].content"). Fails
 * with ERR_UNSUPPORTED if {% generation %} is inside a macro, a filter or a set. */
int chat_render_spans(const struct template *t, const char *json, int64_t size,
                      const struct chat_tokens *tokens, int64_t now_s, struct template_output *o,
                      struct err *e);

#endif
