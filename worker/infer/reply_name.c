/* reply_name.c: names tokens by their text in the middle of a text, by their bytes, or by their
 * ids. */
#include "worker/infer/reply_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/utf8.h"
#include "worker/hf/tokenizer.h"
#include "worker/text/buffer.h"

char *reply_name_byte(char out[32], int32_t id)
{
    if (id > 0 && id < 0x80)
        snprintf(out, 32, "%c", (int)id);
    else if (id < 256)
        snprintf(out, 32, "bytes:\\x%02x", (unsigned)id);
    else if (id == TOKEN_EOD || id == TOKEN_PAD)
        snprintf(out, 32, "%s", id == TOKEN_EOD ? "<|eod|>" : "<|pad|>");
    else
        snprintf(out, 32, "<|token-%d|>", (int)id);
    return out;
}

/* Returns true if s can be a name, which means that s consists of whole characters and that no
 * character is NUL. */
static bool whole_characters(const struct text *s)
{
    int64_t i = 0;
    for (int k; i < s->n && s->data[i] && (k = utf8_len(s->data + i, s->data + s->n)) > 0;) i += k;
    return i == s->n;
}

/* Writes to `out` the name that consists of the token's id. Returns -1 if there is no memory. */
static int name_number(struct text *out, int32_t id)
{
    char number[32];
    out->n = 0;
    return text_add(out, number, snprintf(number, sizeof number, "<|token-%d|>", (int)id));
}

static int name_bytes(struct text *out)
{
    const struct text raw = *out;
    char byte[8];
    *out = (struct text){0};
    int rc = text_add(out, "bytes:", 6);
    for (int64_t i = 0; rc == 0 && i < raw.n; i++) {
        snprintf(byte, sizeof byte, "\\x%02x", (unsigned char)raw.data[i]);
        rc = text_add(out, byte, 4);
    }
    free(raw.data);
    return rc;
}

/* Makes the name of a token. The name is not compared with names of other tokens. */
static int name_token(const struct reply *p, int32_t id, struct text *out)
{
    char byte[32];
    out->n = 0;
    if (!p->ids) return text_add(out, byte, (int64_t)strlen(reply_name_byte(byte, id)));
    if (p->tokenizer && tokenizer_piece(p->tokenizer, id, out, NULL) < 0) return -1;
    if (!out->n) return name_number(out, id);
    return whole_characters(out) ? 0 : name_bytes(out);
}

/* Returns the name. If the parameter `rc` is negative, there was no memory for the name. In
 * that case returns "" and sets p->full. */
static const char *full_name(struct reply *p, int rc, const struct text *name)
{
    p->full |= rc < 0;
    return rc < 0 ? "" : name->data;
}

const char *reply_name(struct reply *p, int32_t id)
{
    return full_name(p, name_token(p, id, &p->name), &p->name);
}

const char *reply_name_own(struct reply *p, int32_t own)
{
    p->others.n = 0;
    return full_name(p, name_token(p, own, &p->own_name), &p->own_name);
}

static bool same_text(const char *s, int64_t n, const struct text *t)
{
    return n == t->n && !memcmp(s, t->data, (size_t)n);
}

static int take_name(struct reply *p, int32_t id, int32_t own)
{
    if (name_token(p, id, &p->name) < 0) return -1;
    bool taken = id != own && same_text(p->own_name.data, p->own_name.n, &p->name);
    for (int64_t at = 0, n; !taken && at < p->others.n; at += (int64_t)sizeof n + n) {
        memcpy(&n, p->others.data + at, sizeof n);
        taken = same_text(p->others.data + at + sizeof n, n, &p->name);
    }
    if (taken && name_number(&p->name, id) < 0) return -1;
    if (text_add(&p->others, (const char *)&p->name.n, sizeof p->name.n) < 0) return -1;
    return text_add(&p->others, p->name.data, p->name.n);
}

const char *reply_name_other(struct reply *p, int32_t id, int32_t own)
{
    return full_name(p, p->full ? -1 : take_name(p, id, own), &p->name);
}
