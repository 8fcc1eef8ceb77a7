/* request_wire.c: writes the request as a struct without addresses, and after it the arrays whose
 * lengths it has. */
#include "worker/infer/request_wire.h"

#include <stdlib.h>
#include <string.h>

/* The request as it is sent. */
struct sent {
    struct request r;
    int64_t grammar_size; /* 0 if there is no grammar */
};

static int64_t tokens_size(const struct request *r)
{
    return r->n_tokens * (int64_t)sizeof *r->tokens;
}

static int64_t bias_size(const struct request *r)
{
    return r->n_bias * (int64_t)sizeof *r->bias;
}

static int64_t grammar_size(const struct request *r)
{
    return r->grammar ? grammar_size_packed(r->grammar) : 0;
}

int64_t request_wire_size(const struct request *r)
{
    return (int64_t)sizeof(struct sent) + tokens_size(r) + bias_size(r) + grammar_size(r);
}

/* Forgets what belongs to this rank alone. */
static void forget_own(struct request *r)
{
    r->tokens = NULL;
    r->text = NULL;
    r->room = 0;
    r->token_room = r->n_tokens;
    r->tokenizer = NULL;
    r->no_tokenizer = NULL;
    r->chat = (struct request_chat){0};
    r->vocabulary = NULL;
    r->grammar = NULL;
    r->bias = NULL;
    r->cut = (struct tokens){0};
    r->talk = (struct text){0};
    r->written = (struct template_output){0};
    r->refused = (struct err){0};
}

static char *put(char *out, const void *from, int64_t size)
{
    if (size) memcpy(out, from, (size_t)size);
    return out + size;
}

void request_wire_write(const struct request *r, char *out)
{
    struct sent s;
    memset(&s, 0, sizeof s);
    s.r = *r;
    s.grammar_size = grammar_size(r);
    forget_own(&s.r);
    out = put(out, &s, sizeof s);
    out = put(out, r->tokens, tokens_size(r));
    out = put(out, r->bias, bias_size(r));
    if (r->grammar) grammar_pack(r->grammar, out);
}

/* Returns a copy of an array. */
static void *take(const char **bytes, int64_t size)
{
    void *to = malloc((size_t)size + 1);
    if (to && size) memcpy(to, *bytes, (size_t)size);
    *bytes += size;
    return to;
}

int request_wire_read(struct request *r, const char *bytes, struct err *e)
{
    struct sent s;
    memcpy(&s, bytes, sizeof s);
    bytes += sizeof s;
    *r = s.r;
    r->tokens = take(&bytes, tokens_size(r));
    r->bias = take(&bytes, bias_size(r));
    if (s.grammar_size) r->grammar = grammar_unpack(bytes, e);
    if (r->tokens && r->bias && (r->grammar || !s.grammar_size)) return 0;
    request_fini(r);
    return err_set(e, ERR_IO, "out of memory for a request of %lld tokens", (long long)r->n_tokens);
}
