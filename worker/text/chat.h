/* chat.h: renders a conversation with a chat template. The result is the text that a model reads
 * for `messages`. The result also has the spans of this text that are turns of the assistant.
 *
 * The variables are those of transformers' apply_chat_template. They are messages, tools,
 * documents, add_generation_prompt, the special tokens that the caller gives, and any other
 * member of the conversation. If the conversation has no tools, the variable tools is null. The
 * same holds for documents. The members of an object chat_template_kwargs are variables, too
 * (enable_thinking), and come before other members of the conversation. A message may have its
 * reasoning under reasoning_content, thinking or reasoning. The template always gets it under
 * the names reasoning_content and thinking. */
#ifndef SEQD_TEXT_CHAT_H
#define SEQD_TEXT_CHAT_H

#include "worker/jinja/template.h"

struct chat_tokens { /* special tokens by name ("bos_token"); borrowed */
    const char *const *name, *const *value;
    int n;
};

/* Returns the time that a template's strftime_now formats in a job that was submitted at this
 * second. It is midnight (UTC) of the day of submission, so that every attempt renders the
 * same text. */
static inline int64_t chat_day(int64_t submitted_s)
{
    return submitted_s / 86400 * 86400;
}

/* Renders json [size], an object with "messages". If the parameter `prompt` is true, the text
 * ends with the start of the assistant's next turn. Fails as jinja_render does. Also fails
 * with ERR_INVALID and the name of the field in each of these cases: messages are not a list
 * of objects; a part of a content is an image or something else that is not text
 * ("messages[i].content[k].type"); there are tools, but the template does not name them
 * ("tools"); there are calls of tools that the template does not mention; the template prints
 * a list or a mapping as Python does; the template itself reports an error, and a content is
 * not a string (the field is "messages[i].content" of the first content that is not a string). */
int chat_render(const struct template *t, const char *json, int64_t size,
                const struct chat_tokens *tokens, bool prompt, int64_t now_s,
                struct template_output *o, struct err *e);

/* Renders as chat_render does, without a prompt, but does not join the parts of a content.
 * o->span gets the assistant's turns. If the template has the tag {% generation %}, a turn is
 * the text inside that tag. Otherwise a turn is the text that a message with the role
 * assistant adds to the output, after the template's prompt for the assistant. To find this
 * text, the messages before the turn are rendered with the prompt, and the messages up to the
 * end of the turn are rendered without the prompt. Each output ends at a place in the output of
 * all messages. If it is a prefix of that output, the place is its length. If it is none, because
 * the template writes earlier turns otherwise, as without their reasoning, the place is found by
 * the text that follows the content of the output's last message: the same text must follow this
 * content in the output of all messages, and both outputs must have this content once. Text that
 * the template writes after a turn only if more follows, such as an end marker, is thus no part of
 * the turn. Only the turns of message `first` and later messages are looked for. Also fails with
 * ERR_INVALID if a turn cannot be found, if a content has parts that the template does not read
 * ("messages[i].content"), or if message `first` or a later one is of the assistant and
 * has a member "train", "weight" or "loss" that is false or 0, since its turn is not left out.
 * Fails with ERR_UNSUPPORTED if {% generation %} is inside a macro, a filter or a set. */
int chat_render_spans(const struct template *t, const char *json, int64_t size,
                      const struct chat_tokens *tokens, int64_t first, int64_t now_s,
                      struct template_output *o, struct err *e);

#endif
