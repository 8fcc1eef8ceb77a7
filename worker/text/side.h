/* side.h: reads the texts of the special tokens from files in the directory of a model's
 * tokenizer.json. tokenizer_config.json is read first. special_tokens_map.json is read only
 * for tokens that tokenizer_config.json does not name. A token is a string, or an object whose
 * "content" is the string. Any other value names no token. */
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
    struct text text[SIDE_TOKENS]; /* owned; the data of a text is NULL if the files do not
                                    * name the token */
};

const char *side_token_name(enum side_token i); /* "bos_token" */
/* Reads the special tokens. Fails as side_file_open does. After a failure s is empty. */
int side_tokens_read(struct side_tokens *s, const char *dir, struct err *e);
void side_tokens_fini(struct side_tokens *s);

/* Opens a file in the directory of a tokenizer.json and finds the n members `names` of its
 * object. If the file does not exist, all members are absent. The caller frees f. Fails as
 * model_file_read does. Also fails with ERR_INVALID if the file is not a JSON object; the
 * error has the path. */
int side_file_open(struct model_text *f, const char *dir, const char *name, int n,
                   const char *const names[], struct json out[], struct err *e);

#endif
