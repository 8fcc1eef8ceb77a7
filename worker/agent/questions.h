/* questions.h: answers the questions of seqd for which seqrank must run on this node. There
 * are four such questions. They ask for the contents of a model directory, for the models
 * beneath the roots, for the existence of the files that a job names, and for the files from
 * which the samples of a step came. Several of these programs may run at the same time, and
 * the loop does not wait for them. If a program takes too long, the answer is an error.
 * tested: tests/agent/test_agent_life.c */
#ifndef SEQD_AGENT_QUESTIONS_H
#define SEQD_AGENT_QUESTIONS_H

#include "api/core/loop.h"
#include "api/wire.h"

struct state_dir;

struct questions_options {
    struct loop *loop;
    struct state_dir *state_dir;
    const char *rank_program; /* seqrank */
    int sandbox;              /* enum sandbox_mode, for the programs */
    const char *node;         /* name of this node, for use in error messages */
    /* Called on the loop, once for each question that is not dropped. m is MSG_DESCRIBED or
     * MSG_FETCHED. */
    void (*send)(void *arg, const struct msg *m);
    void *arg;
};

struct questions;
/* Creates an object that answers questions. Everything to which the options point is borrowed
 * until questions_destroy. */
struct questions *questions_create(const struct questions_options *o);
void questions_destroy(struct questions *q); /* kills programs without answering; accepts NULL */
/* Drops the questions of a session that is over, so that they are not answered. In the next
 * session seqd may count questions from 1 again. In that case it would mistake an answer to an
 * old question for the answer to a new question. */
void questions_drop(struct questions *q);
void questions_describe(struct questions *q, const struct msg *m);
void questions_trace(struct questions *q, const struct msg *m);

#endif
