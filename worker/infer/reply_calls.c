/* reply_calls.c: divides the text of an answer into text and calls, and writes both. */
#include "worker/infer/reply_calls.h"

#include <stdio.h>
#include <string.h>
#include "worker/text/buffer.h"

static void write_call(struct jwrite *w, const struct reply_call_id *id,
                       const struct calls_piece *call, int64_t index, bool numbered)
{
    char name[96];
    snprintf(name, sizeof name, "call_%llx_%llx_%lld_%lld", (unsigned long long)id->created,
             (unsigned long long)id->number, (long long)id->choice, (long long)index);
    jwrite_object(w, NULL);
    if (numbered) jwrite_int(w, "index", index);
    jwrite_str(w, "id", name);
    jwrite_str(w, "type", "function");
    jwrite_object(w, "function");
    jwrite_strn(w, "name", call->name, (size_t)call->name_size);
    jwrite_strn(w, "arguments", call->arguments, (size_t)call->arguments_size);
    jwrite_end(w);
    jwrite_end(w);
}

/* Goes through the pieces of a whole text. Writes the calls to w, if w is not NULL, and appends the
 * text to `rest`, if that is not NULL. Returns the number of calls, or -1 if there is no memory. */
static int64_t each_piece(struct jwrite *w, const struct request *r, const struct reply_call_id *id,
                          const char *text, int64_t size, struct text *rest)
{
    struct calls_piece piece = {.next = 0};
    int64_t n = 0;
    for (bool after = false;; after = piece.kind == CALLS_CALL) {
        calls_next(text, piece.next, size, after, true, &piece);
        if (piece.kind == CALLS_NONE) return n;
        if (piece.kind == CALLS_TEXT) {
            if (rest && text_add(rest, piece.text, piece.size) < 0) return -1;
            continue;
        }
        if (w && !(r->one_call && n)) write_call(w, id, &piece, n, false);
        n++;
    }
}

int reply_calls_write(struct jwrite *w, const struct request *r, const struct reply_call_id *id,
                      const char *text, int64_t size, struct text *scratch)
{
    scratch->n = 0;
    const int64_t n = each_piece(NULL, r, id, text, size, scratch);
    if (n < 0) return -1;
    if (n && !scratch->n)
        jwrite_null(w, "content");
    else
        jwrite_strn(w, "content", scratch->n ? scratch->data : "", (size_t)scratch->n);
    if (!n) return 0;
    jwrite_array(w, "tool_calls");
    each_piece(w, r, id, text, size, NULL);
    jwrite_end(w);
    return 0;
}

void reply_calls_delta(struct jwrite *w, const struct reply_call_id *id,
                       const struct calls_piece *call, int64_t index)
{
    jwrite_array(w, "tool_calls");
    write_call(w, id, call, index, true);
    jwrite_end(w);
}

const char *reply_calls_name(const char *finish, int64_t n_calls)
{
    return n_calls && !strcmp(finish, "stop") ? "tool_calls" : finish;
}

const char *reply_calls_finish(const struct request *r, const char *finish, const char *text,
                               int64_t size)
{
    if (!r->calls) return finish;
    return reply_calls_name(finish, each_piece(NULL, r, NULL, text, size, NULL));
}
