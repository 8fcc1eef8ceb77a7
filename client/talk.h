/* talk.h: a conversation with a job that serves: its turns, the body of the next request, and the
 * answer as its events arrive. Does no I/O. */
#ifndef SEQD_CLIENT_TALK_H
#define SEQD_CLIENT_TALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct talk_turn {
    const char *role; /* "user" or "assistant" */
    char *text;       /* owned */
};

struct talk {
    /* Set by the caller, who keeps the strings. */
    const char *model;
    const char *system;      /* the first message, or NULL */
    const char *temperature; /* a number as text, or NULL for the job's own */
    int64_t max_tokens;      /* -1 for the job's own */
    bool raw;                /* each question is a text that the model continues, without turns */

    struct talk_turn *turn; /* owned */
    size_t n_turns, room;

    /* The answer to the last question. */
    char *answer; /* owned, ends with NUL */
    size_t size, answer_room;
    char *error; /* owned; the sentence of an error, or NULL */
    char error_code[32];
    char finish[24]; /* why the answer ended: "stop", "length"; "" before its end */
    bool done;       /* the stream has ended as it should */
};

void talk_fini(struct talk *t);
/* Forgets all turns. The system message stays. */
void talk_reset(struct talk *t);
/* Adds a question, and begins an answer. Returns the body of the request, which the caller frees,
 * or NULL if a text is not UTF-8; the question is not added then. */
char *talk_ask(struct talk *t, const char *question);
/* Returns the path of the requests. */
const char *talk_path(const struct talk *t);
/* Takes the data of one event of the answer. Returns the number of bytes by which t->answer has
 * grown. An event that is not as OpenAI's API has it becomes the error. */
size_t talk_take(struct talk *t, const char *data, size_t size);
/* Ends the answer. An answer with text is kept as a turn, also if it is not whole. Without text the
 * question is forgotten, so that it can be asked again. */
void talk_end(struct talk *t);

#endif
