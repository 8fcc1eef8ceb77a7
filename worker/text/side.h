/* side.h: reads the special tokens, as text, from the files beside a model's tokenizer.json.
 * tokenizer_config.json is read first; special_tokens_map.json is read only for tokens that the
 * first file does not name. A token is a string, or an object with its "content"; any other value
 * names no token. */
#ifndef SEQD_TEXT_SIDE_H
#define SEQD_TEXT_SIDE_H

#include "worker/gguf/model_file.h"
#include "worker/text/json.h"

enum side_token {
    SIDE_BOS,
    SIDE_EOS,
    SIDE_UNK,
    SIDE_SEP,
    SIDE_PAD,
    SIDE_CLS,
    SIDE_MASK,
    SIDE_TOKENS
};

struct side_tokens {
    struct text text[SIDE_TOKENS]; /* owned; data is NULL if there is no such token */
};

const char *side_token_name(enum side_token i); /* "bos_token" */
/* Reads the special tokens. Fails as side_file_open does. After a failure s is empty. */
int side_tokens_read(struct side_tokens *s, const char *dir, struct err *e);
void side_tokens_fini(struct side_tokens *s);

/* Opens a file beside tokenizer.json and finds the n members `names` of its object. If there is no
 * file, all members are absent. The caller frees f. Fails as model_file_read does, or with
 * ERR_INVALID, which has the path, unless the file is a JSON object. */
int side_file_open(struct model_text *f, const char *dir, const char *name, int n,
                   const char *const names[], struct json out[], struct err *e);

#endif
