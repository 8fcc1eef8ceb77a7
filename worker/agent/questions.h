/* questions.h: what seqd asks of a node and seqrank answers: what a model directory has, which
 * models lie beneath the roots, which files a step learnt from. A few at a time; the loop runs on
 * meanwhile, and a program that takes too long answers an error.
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
    const char *node;         /* its name, for sentences */
    /* On the loop, once for each question: MSG_DESCRIBED or MSG_FETCHED. */
    void (*send)(void *arg, const struct msg *m);
    void *arg;
};

struct questions;
/* Borrows what the options point to until questions_destroy. */
struct questions *questions_create(const struct questions_options *o);
void questions_destroy(struct questions *q); /* kills what runs; answers no more. NULL allowed */
void questions_describe(struct questions *q, const struct msg *m);
void questions_trace(struct questions *q, const struct msg *m);

#endif
