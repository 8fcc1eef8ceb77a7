/* side.c: reads the special tokens from tokenizer_config.json, and then from
 * special_tokens_map.json. */
#include "worker/text/side.h"

#include <stdlib.h>
#include <string.h>

/* FILE_SIZE is large because tokenizer_config.json may repeat every added token. */
enum { FILE_SIZE = 16 << 20 };

static const char *const token_names[SIDE_TOKENS] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

const char *side_token_name(enum side_token i)
{
    return token_names[i];
}

int side_file_open(struct model_text *f, const char *dir, const char *name, int n,
                   const char *const names[], struct json out[], struct err *e)
{
    memset(out, 0, (size_t)n * sizeof *out);
    if (model_file_read(dir, name, FILE_SIZE, f, e) < 0) return -1;
    if (!f->text) return 0;
    const struct json whole = {.p = f->text, .n = (int64_t)f->size, .file = f->path};
    if (json_members(whole, "the file", n, names, out, e) == 0) return 0;
    model_file_free(f);
    return -1;
}

/* Reads a token. out->data remains NULL if j is neither a string nor an object. */
static int read_token(struct json j, const char *name, struct text *out, struct err *e)
{
    if (json_kind(j) == '{' && json_member(j, name, "content", &j, e) < 0) return -1;
    return json_kind(j) == '"' ? json_text(j, name, out, e) : 0;
}

static int read_file(struct side_tokens *s, const char *dir, const char *name, struct err *e)
{
    struct model_text f;
    struct json v[SIDE_TOKENS];
    if (side_file_open(&f, dir, name, SIDE_TOKENS, token_names, v, e) < 0) return -1;
    int rc = 0;
    for (int i = 0; rc == 0 && i < SIDE_TOKENS; i++)
        if (!s->text[i].data) rc = read_token(v[i], token_names[i], &s->text[i], e);
    model_file_free(&f);
    return rc;
}

int side_tokens_read(struct side_tokens *s, const char *dir, struct err *e)
{
    *s = (struct side_tokens){0};
    if (read_file(s, dir, "tokenizer_config.json", e) == 0 &&
        read_file(s, dir, "special_tokens_map.json", e) == 0)
        return 0;
    side_tokens_fini(s);
    return -1;
}

void side_tokens_fini(struct side_tokens *s)
{
    for (int i = 0; i < SIDE_TOKENS; i++) text_fini(&s->text[i]);
}
