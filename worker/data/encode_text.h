/* encode_text.h: converts text to tokens with the tokenizer of a model directory. A conversation
 * is first converted to text by the directory's chat template.
 *
 * A document is a whole text. Its ids are the ids of tokenizer_encode, including the ids that the
 * post-processor of tokenizer.json puts around a text (such as a BOS). The end id is added after
 * these ids, unless the last of them is the end id. The end id is the id of eos_token in
 * tokenizer_config.json. If that file has no eos_token, it is the id of eos_token in
 * special_tokens_map.json. If neither file has an eos_token, it is the first eos_token_id of
 * generation_config.json or config.json. If no file has an end id, none is added. An embed job
 * adds no end id, because the post-processor's result is the whole document of such a job.
 *
 * A conversation becomes exactly the output of the template. No id of the post-processor and no
 * end id is added, as in transformers' apply_chat_template. The template's strftime_now gives
 * midnight (UTC) of the day on which the job was submitted. */
#ifndef SEQD_DATA_ENCODE_TEXT_H
#define SEQD_DATA_ENCODE_TEXT_H

#include "api/core/sha256.h"
#include "worker/data/encode.h"
#include "worker/text/chat_model.h"
#include "worker/text/tokenizer.h"

struct encode_text {             /* state of one worker */
    const char *dir;             /* borrowed: the model directory */
    bool ends;                   /* whether an end id is added to documents */
    const char *before;          /* borrowed: prefix of every text; NULL if there is none */
    int64_t submitted_s;         /* time at which the job was submitted, as in struct rank_args */
    struct tokenizer *tokenizer; /* owned; opened when the first text is converted to tokens */
    int32_t listed_end;          /* the first eos_token_id of generation_config.json or
                                  * config.json; -1 if these files list no such id */
    int32_t end;                 /* end id of a document; -1 if there is none */
    bool chat_open, chat_tried;
    struct chat_model chat; /* owned; opened for the digest or for the first conversation */
    struct err no_chat;     /* the reason why chat is not open */
    struct text pair;       /* owned scratch */
    struct template_output turns, asked; /* owned: a conversation, and its prompt alone */
    /* Owned: the tokens of texts that were converted to tokens but not added to the encoder
     * yet. The tokens of each text follow those of the text before it. */
    struct tokens ids;
    uint32_t *bytes; /* number of text bytes of each id */
    uint8_t *learn;  /* 1 if the id may be a target */
    int64_t room;    /* number of allocated elements of bytes and learn */
};

/* The tokens that a worker made from one text. They are elements [at, at + n) of the worker's
 * arrays. They are valid until encode_text_forget. */
struct encode_cut {
    const struct encode_text *by;
    int64_t at, n;
    int64_t rest; /* for a part of a text, the number of bytes after the part's last token */
};

/* Adds to `into` all inputs that determine the ids of text. They are the digests of
 * tokenizer.json, tokenizer_config.json and special_tokens_map.json, the end ids that the
 * directory names, and t->before. If conversations are read, it also adds the digest of
 * chat_template.jinja, and the day if the template asks for it. *of gets the digest of
 * tokenizer.json. If there is no such file, *of gets "none", and text is refused later, when it is
 * read. Call this function before any text is encoded. Fails with ERR_IO, ERR_INVALID or
 * ERR_TOO_LARGE. The field of the error is "model.path". */
int encode_text_digest(struct encode_text *t, bool conversations, struct sha256 *into,
                       char of[SHA256_HEX], struct err *e);
/* Returns another worker with the settings of t. Call encode_text_digest on t first. The new
 * worker opens the tokenizer's files when they are needed. */
struct encode_text encode_text_like(const struct encode_text *t);
/* Removes the tokens of all texts from the worker. Call it when the tokens have been added to
 * the encoder. */
void encode_text_forget(struct encode_text *t);
void encode_text_fini(struct encode_text *t);

/* Converts the text of a document, with t->before in front of the text, to tokens. A token may
 * be a target if it ends after the first `given` bytes. If given is 0, every token may be a
 * target. Several workers may call this function at the same time. The caller calls encode_put
 * in the order of the documents. Fails as tokenizer_open does, with field "model.path", or as
 * tokenizer_encode does. */
int encode_text(struct encode_text *t, const char *text, size_t n, size_t given,
                struct encode_cut *out, struct err *e);
/* Converts a part of a document's text (tokenizer.h) to tokens. Bytes after the part's last
 * token belong to the next token, which may end in a later part. Fails as encode_text does. */
int encode_text_part(struct encode_text *t, const struct text_part *part, struct encode_cut *out,
                     struct err *e);
/* Calls tokenizer_cut with the tokenizer of t, and stores the result in *at. Fails as
 * tokenizer_open does, with field "model.path". */
int encode_text_cut(struct encode_text *t, const char *text, size_t n, size_t from, int64_t *at,
                    struct err *e);
/* encode_pair joins prompt and completion to one text and converts it to tokens as encode_text
 * does. A token that ends in the prompt may not be a target. */
struct encode_part {
    const char *at;
    size_t n;
};
int encode_pair(struct encode_text *t, const struct encode_part *prompt,
                const struct encode_part *completion, bool given, struct encode_cut *out,
                struct err *e);
/* Converts a conversation to tokens. `messages` is the JSON text of its list of messages. A
 * token may be a target if a part of the token is in a turn of the assistant
 * (chat_render_spans). If all is true, every token may be a target. Fails as encode_text does.
 * Fails as chat_model_open does, with field "model.path". Also fails as chat_render_spans
 * does; in that case e->field is empty, and the text of the error names the field of the
 * message. If the directory has no chat template, fails with ERR_UNSUPPORTED and field
 * "model.path". */
int encode_chat(struct encode_text *t, const struct encode_part *messages, bool all,
                struct encode_cut *out, struct err *e);
/* Converts a conversation and an answer to it to tokens. `prompt` and `answer` are the JSON texts
 * of the elements of their lists of messages, without brackets. A token may be a target if a part
 * of the token is in a turn of the assistant, and if it ends after the text of the prompt. That
 * text is what chat_render makes of the prompt's messages, with the start of the assistant's next
 * turn. Turns of the prompt need no place (chat_render_spans). If all is true, every token may be
 * a target. Fails as encode_chat does. Also fails with ERR_INVALID if the conversation's text does
 * not begin with the prompt's text; the error names the role of the answer's first turn if it is
 * not the assistant's. */
int encode_answer(struct encode_text *t, const struct encode_part *prompt,
                  const struct encode_part *answer, bool all, struct encode_cut *out,
                  struct err *e);

#endif
