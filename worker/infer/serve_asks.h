/* serve_asks.h: the requests that rank 0 of a serve job has, from their first bytes to the last
 * bytes of their answers.
 *
 * seqgang sends a request in pieces (RANK_ASK). A request whose pieces are complete is read, waits
 * for a free slot, is answered, and is forgotten when its answer is sent. The answer has memory of
 * its own, so that a client that reads slowly stops no pass. A request is at most RANK_BODY_SIZE
 * bytes, and the requests that come or wait are at most RANK_BODIES_SIZE bytes together. */
#ifndef SEQD_INFER_SERVE_ASKS_H
#define SEQD_INFER_SERVE_ASKS_H

#include "api/core/rank.h"
#include "worker/infer/requests.h"
#include "worker/infer/serve_stream.h"

/* Largest body of tokenize or detokenize. Rank 0 converts it between two passes, which wait for
 * it. */
#define SERVE_TOKENS_SIZE (4LL << 20)

enum serve_state {
    SERVE_COMES,   /* pieces are missing */
    SERVE_WHOLE,   /* all pieces are here */
    SERVE_READ,    /* a thread reads its long body, or it waits for the end of that thread */
    SERVE_SPLIT,   /* its prompts are requests of their own (serve_list.h) */
    SERVE_HELD,    /* a prompt of a list that was read, while others of the list were not */
    SERVE_WAITS,   /* it was read, and waits for a slot */
    SERVE_AT_WORK, /* a slot answers it */
    SERVE_ENDED,   /* the answer is complete, but for its sending */
    SERVE_IGNORED  /* it was answered before its last piece came */
};

struct serve_request {
    struct rank_ask ask; /* the first piece */
    enum serve_state state;
    struct text body;       /* owned */
    struct request request; /* owned: set from SERVE_WAITS to SERVE_AT_WORK */
    int64_t turn;           /* the order in which requests became complete */
    uint32_t owner;         /* number of its user (serve_owners.h); 0 before it is needed */
    int n_passed;           /* requests that began before it although they came later */
    int slot;               /* of a request at work */
    int64_t created;        /* seconds since 1970, for the answer */
    bool base64;            /* vectors are sent as base64 */
    int status;             /* HTTP status of the answer; 0 if there is no answer yet */
    bool begun, closed;     /* set when the first and the last piece of the answer were sent */
    struct text out;        /* owned: the part of the answer that was made */
    int64_t n_sent;         /* bytes of `out` that were sent */
    int64_t n_tokens;       /* tokens of the prompts and of the answers, when they are complete */
    struct serve_cursor cursor;
    bool lists;                  /* set if its body was found to have a list of prompts */
    struct serve_list *list;     /* owned: set from SERVE_SPLIT on */
    struct serve_request *whole; /* for a prompt of a list: the request with the list, which has its
                                  * answer; else NULL */
    int part;                    /* index of the prompt in the list, or 0 */
    struct serve_request *next;
};

/* The messages of the gang. */
struct serve_door {
    struct serve_asks *asks; /* gets the requests */
    /* Waits until a message has come, at most wait_ms, and gives the messages that have come to
     * `asks`. If `room` is set, also returns when pieces can be sent. Does not wait if wait_ms is
     * 0. */
    int (*receive)(void *arg, int wait_ms, bool room, struct err *e);
    /* Sends a piece of an answer, with a->size bytes, without waiting. Returns 1 if it was sent, 0
     * if there is no room for it now, and -1 on an error. */
    int (*answer)(void *arg, const struct rank_answer *a, const char *bytes, struct err *e);
    /* Returns the reason for which the job should end when it has answered, or NULL. */
    const char *(*draining)(void *arg);
    int64_t (*now_us)(void *arg); /* a clock that does not go back */
    void *arg;
    /* Sends the counts of the work to seqd. NULL if no one wants them. */
    int (*report)(void *arg, const struct rank_serving *now, struct err *e);
};

struct serve_asks {
    struct serve_request *first, **last; /* owned, in the order of their first pieces */
    int64_t n_bytes;                     /* of all bodies */
    int64_t body_size, bodies_size;      /* the most bytes of a body, and of all bodies */
    int64_t n_turns;
    uint64_t dropped; /* a bit for each slot whose request was dropped */
    int64_t n_dropped;
};

struct serve_asks *serve_asks_create(void); /* returns NULL if there is no memory */
void serve_asks_destroy(struct serve_asks *s);
/* Takes a piece of a request with a->size bytes. If it does not fit in memory, the request gets an
 * answer with an error. */
void serve_asks_take(struct serve_asks *s, const struct rank_ask *a, const char *bytes);
/* Forgets a request. If it is at work, sets the bit of its slot in s->dropped. */
void serve_asks_drop(struct serve_asks *s, uint64_t id);

/* Returns the complete request with the lowest turn that has this state, or NULL. */
struct serve_request *serve_asks_next(const struct serve_asks *s, enum serve_state state);
/* Returns the request with this state that follows q in the order of turns, or NULL. The first one
 * follows NULL. */
struct serve_request *serve_asks_after(const struct serve_asks *s, enum serve_state state,
                                       const struct serve_request *q);
/* Returns the request with this id if part is -1, else this prompt of its list. Returns NULL if
 * there is none. */
struct serve_request *serve_asks_find(struct serve_asks *s, uint64_t id, int part);
/* Tells whether there is a request whose answer is not sent. */
bool serve_asks_open(const struct serve_asks *s);
/* Returns how many requests have this state. Prompts of lists do not count. A request that is split
 * counts as waiting until its first prompt begins, and from then on as at work. */
int serve_asks_count(const struct serve_asks *s, enum serve_state state);
/* Returns the request that this slot answers, or NULL if it was dropped. */
struct serve_request *serve_asks_at(const struct serve_asks *s, int slot);
/* Gives a slot to a request that waits. */
void serve_asks_begin(struct serve_request *q, int slot);
/* Frees the body of a request that was read. */
void serve_asks_free_body(struct serve_asks *s, struct serve_request *q);
/* Appends bytes to the answer. If there is no memory, returns -1 and ends the request: with an
 * error alone if no byte was sent, else with an error after the bytes that there are. Returns -1
 * also for a request that has ended. */
int serve_asks_put(struct serve_request *q, const char *bytes, int64_t n);
/* Ends the answer of a request with an error in the form of the API. */
void serve_asks_refuse(struct serve_request *q, int status, const char *code, const struct err *e);
/* Does the same for a request of any kind. With one prompt of a list, the whole request ends. */
void serve_asks_fail(struct serve_asks *s, struct serve_request *q, int status, const char *code,
                     const struct err *e);

/* Adds prompt number `part` of a list, which is complete but for its body. Returns NULL if there is
 * no memory. */
struct serve_request *serve_asks_add_part(struct serve_asks *s, struct serve_request *whole,
                                          int part);
/* Lets the prompts of a list wait for slots. All of them were read. */
void serve_asks_begin_parts(struct serve_asks *s, const struct serve_request *whole);
/* Ends the prompts of a list, because the answer of the request has ended. */
void serve_asks_end_parts(struct serve_asks *s, const struct serve_request *whole);
/* Returns the request whose answer gets the answer of q. q may be NULL. */
static inline struct serve_request *serve_asks_whole(struct serve_request *q)
{
    return q && q->whole ? q->whole : q;
}
/* Sends the answers that there are, as far as there is room, and frees the requests whose answers
 * are sent. Sets *more if bytes are left. */
int serve_asks_send(struct serve_asks *s, const struct serve_door *door, bool *more, struct err *e);

#endif
