/* request_chat.c: reads the conversation of a request with its tools. */
#include "api/core/job.h"
#include "worker/infer/request_body.h"
#include "worker/infer/request_text.h"

static bool is_empty(const struct request_part *p)
{
    struct jread j;
    jread_init(&j, p->json, (size_t)p->size);
    jread_next(&j);
    return jread_next(&j) == J_ARRAY_END;
}

static int check_tools(struct request_body *b)
{
    if (!b->tools.json || is_empty(&b->tools)) return 0;
    return err_field(b->e, ERR_UNSUPPORTED, "tools",
                     "tools: an answer is text and calls nothing: leave tools out, or write them "
                     "into a message");
}

int request_take_conversation(struct request_body *b)
{
    const struct request_talk talk = {b->messages, b->kwargs};
    if (check_tools(b)) return -1;
    /* An empty list is refused later, in the way of a missing list. */
    if (!b->messages.json || is_empty(&b->messages)) return 0;
    return request_text_of_messages(b->r, b->spec, &talk, b->e);
}
