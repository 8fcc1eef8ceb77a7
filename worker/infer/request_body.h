/* request_body.h: the reader of a request's body, which batches and served requests share. */
#ifndef SEQD_INFER_REQUEST_BODY_H
#define SEQD_INFER_REQUEST_BODY_H

#include "api/core/jread.h"
#include "worker/infer/requests.h"

#define REQUEST_BIAS 1024 /* most ids of logit_bias */

struct request_part { /* the JSON text of a member; json is NULL if it is not given */
    const char *json;
    int64_t size;
};

struct request_body {
    struct request *r;
    const struct job_spec *spec;
    struct jread j;
    uint64_t seen;                 /* one bit for each member, in the order of members[] */
    int64_t best_of, top_logprobs; /* -1 if they are not given */
    bool length;                   /* set if max_tokens was given, by either of its names */
    bool options;                  /* set if stream_options was given */
    struct request_part messages, tools, kwargs, format;
    char choice_word[16];       /* tool_choice, if it is a string */
    struct request_part choice; /* tool_choice, if it is an object */
    struct err *e;
};

/* Sets all options of r to those of the job. */
void request_defaults(struct request *r, const struct job_spec *spec);
struct request_body request_body_begin(struct request *r, const struct job_spec *spec);
/* Reads logit_bias, whose first token is t. */
int request_take_bias(struct request_body *b, enum jtok t);
/* Reads tools and tool_choice. Leaves b->tools without text if the template is not told of them. */
int request_take_tools(struct request_body *b);
/* Renders the messages with their tools. */
int request_take_conversation(struct request_body *b);
/* Prepares the vocabulary for a grammar, which the member `field` asks for. */
int request_prepare_grammar(struct request_body *b, const char *field);
/* Reads the parts of the body that depend on several members: the conversation with its tools, and
 * response_format. */
int request_take_parts(struct request_body *b);
/* Reads the object that begins at b->j. */
int request_body_take(struct request_body *b);
/* Checks the rules that concern several members. */
int request_body_check(struct request_body *b);
/* Sets the members of the request that depend on whether the body has a seed. Before the body is
 * read, r->key.seed must be -1. */
void request_body_end(struct request_body *b);

#endif
