/* chat.h: writes a conversation with a chat template: the text that a model reads for `messages`,
 * and the spans of that text that are turns of the assistant.
 *
 * The variables are those of transformers' apply_chat_template: messages, tools and documents
 * (null when the conversation has none), add_generation_prompt, the special tokens that the
 * caller gives, and any other member of the conversation. A message may have its reasoning under
 * reasoning_content, thinking or reasoning. The template gets it under the first two. */
#ifndef SEQD_TEXT_CHAT_H
#define SEQD_TEXT_CHAT_H

#include "worker/jinja/template.h"

struct chat_tokens { /* special tokens by name ("bos_token"); borrowed */
    const char *const *name, *const *value;
    int n;
};

/* Returns the time for strftime_now in a job submitted at this second: midnight of its day, UTC,
 * so that every attempt writes the same. */
static inline int64_t chat_day(int64_t submitted_s)
{
    return submitted_s / 86400 * 86400;
}

/* Renders json[size], an object with "messages". prompt: the text ends with the start of the
 * assistant's next turn.
 * fails: as jinja_render; ERR_INVALID, with the field, for messages that are not a list of
 * objects, for an image or another part that is not text ("messages[i].content[k].type"), for
 * tools if the template does not name them ("tools"), for calls of tools if it does not mention
 * them, for a list or a mapping that it prints as Python does, and for the first content that is
 * not a string if the template fails by itself ("messages[i].content"). */
int chat_render(const struct template *t, const char *json, int64_t size,
                const struct chat_tokens *tokens, bool prompt, int64_t now_s,
                struct template_output *o, struct err *e);

/* Renders as chat_render does, without a prompt, but does not join the parts of a content.
 * o->span: the assistant's turns. If the template has the tag {% generation %}, a turn is the text
 * inside it. Otherwise a turn is the text that the template adds, after its own prompt, for a
 * message with the role assistant.
 * fails: also ERR_INVALID for parts that the template does not read ("messages[i].content"), and
 * if the turns cannot be found. For each turn, the output of the messages before it, with the
 * prompt, must be a prefix of the output with the turn, and that must be a prefix of the whole
 * output. ERR_UNSUPPORTED if {% generation %} is inside a macro, a filter or a set. */
int chat_render_spans(const struct template *t, const char *json, int64_t size,
                      const struct chat_tokens *tokens, int64_t now_s, struct template_output *o,
                      struct err *e);

#endif
