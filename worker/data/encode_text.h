/* encode_text.h: cuts text with the tokenizer of a model directory, and conversations also with
 * its chat template.
 *
 * A document is a whole text. Its ids are those of tokenizer_encode, with the ids that the
 * post-processor of tokenizer.json puts around a text (such as a BOS), and then the end id, unless
 * the text ends with it already. The end id is that of eos_token in tokenizer_config.json, or else
 * in special_tokens_map.json, or else the first eos_token_id of generation_config.json or
 * config.json. If none of these exists, no end id is added. An embed job adds no end id, because
 * for it the post-processor's result is the whole document.
 *
 * A conversation is exactly the output of the template: no id of the post-processor and no end id
 * is added, as in transformers' apply_chat_template. In the template strftime_now is midnight
 * (UTC) of the day on which the job was submitted. */
#ifndef SEQD_DATA_ENCODE_TEXT_H
#define SEQD_DATA_ENCODE_TEXT_H

#include "api/core/sha256.h"
#include "worker/data/encode.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

struct encode_text {             /* state of one worker */
    const char *dir;             /* borrowed: the model directory */
    bool ends;                   /* documents get an end id */
    const char *before;          /* borrowed: prefix of every text; NULL if there is none */
    int64_t submitted_s;         /* as in struct rank_args */
    struct tokenizer *tokenizer; /* owned; opened when the first text is cut */
    int32_t listed_end;          /* the first eos_token_id of generation_config.json or
                                  * config.json; -1 if there is none */
    int32_t end;                 /* end id of a document; -1 if there is none */
    bool chat_open, chat_tried;
    struct chat_model chat; /* owned; opened for the digest or for the first conversation */
    struct err no_chat;     /* the reason why chat is not open */
    struct text pair;       /* owned scratch */
    struct template_output turns;
    /* The tokens of texts that were cut but not added yet, one text after the other; owned. */
    struct tokens ids;
    uint32_t *bytes; /* text bytes of each id */
    uint8_t *learn;  /* 1 if the id may be a target */
    int64_t room;    /* number of allocated elements of bytes and learn */
};

/* The tokens that a worker made from a text, which are elements [at, at + n) of the worker's
 * arrays. They are valid until encode_text_forget. */
struct encode_cut {
    const struct encode_text *by;
    int64_t at, n;
    int64_t rest; /* bytes of a part of a text that follow the part's last token */
};

/* Adds to `into` all inputs that determine the ids of text: the digests of tokenizer.json,
 * tokenizer_config.json and special_tokens_map.json, the end ids that the directory names, and
 * t->before. If conversations are read, it also adds the digest of chat_template.jinja, and the
 * day if the template asks for it. *of gets the digest of tokenizer.json, or "none" if there is no
 * such file. In that case text is refused later, when it is read. Call this function before any
 * text is encoded. Fails with ERR_IO, ERR_INVALID or ERR_TOO_LARGE, with field "model.path". */
int encode_text_digest(struct encode_text *t, bool conversations, struct sha256 *into,
                       char of[SHA256_HEX], struct err *e);
/* Returns another worker with the settings of t. Call encode_text_digest on t first. The new
 * worker opens its files when it needs them. */
struct encode_text encode_text_like(const struct encode_text *t);
/* Forgets the tokens of all texts that were cut. Call it when the tokens have been added. */
void encode_text_forget(struct encode_text *t);
void encode_text_fini(struct encode_text *t);

/* Cuts the text of a document, with t->before in front of it. A token may be a target if it ends
 * after the first `given` bytes; if given is 0, every token may. Workers may cut at the same time;
 * the caller calls encode_put in the order of the documents. Fails as tokenizer_open does, with
 * field "model.path", or as tokenizer_encode does. */
int encode_text(struct encode_text *t, const char *text, size_t n, size_t given,
                struct encode_cut *out, struct err *e);
/* Cuts a part of a document's text (tokenizer.h). Bytes after the part's last token belong to the
 * next token, which may lie in another part. Fails as encode_text does. */
int encode_text_part(struct encode_text *t, const struct text_part *part, struct encode_cut *out,
                     struct err *e);
/* Calls tokenizer_cut with the tokenizer of t, whose result is stored in *at. Fails as
 * tokenizer_open does, with field "model.path". */
int encode_text_cut(struct encode_text *t, const char *text, size_t n, size_t from, int64_t *at,
                    struct err *e);
/* encode_pair cuts prompt and completion as one text, as encode_text does. A token that ends in
 * the prompt may not be a target. */
struct encode_part {
    const char *at;
    size_t n;
};
int encode_pair(struct encode_text *t, const struct encode_part *prompt,
                const struct encode_part *completion, bool given, struct encode_cut *out,
                struct err *e);
/* Cuts a conversation, given as the JSON text of its list of messages. A token may be a target if
 * a part of it lies in a turn of the assistant (chat_render_spans); if all is true, every token
 * may. Fails as encode_text does. Also fails as chat_model_open does, with field "model.path", and
 * as chat_render_spans does; in the latter case e->field is empty, and the text of the error names
 * the field of the message. For a directory without a chat template fails with ERR_UNSUPPORTED and
 * field "model.path". */
int encode_chat(struct encode_text *t, const struct encode_part *messages, bool all,
                struct encode_cut *out, struct err *e);

#endif
