/* thread.h: starts threads. Its error names the reason that a thread does not start, such as a
 * limit of processes (ulimit -u, TasksMax, a container's limit of pids). libc only. */
#ifndef SEQD_CORE_THREAD_H
#define SEQD_CORE_THREAD_H

#include <pthread.h>
#include "api/core/err.h"

/* Starts a thread. attr NULL: default attributes. fails: ERR_PEER naming the limit, because the
 * next try may succeed. */
int thread_start(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg,
                 struct err *e);
/* Starts a thread that the program needs. On failure the program writes the error as its last
 * words and exits with status 1. A program that restarts it waits longer each time. */
void thread_must_start(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

#define LAST_WORDS_ENV  "SEQD_LAST_WORDS" /* names a file, which the parent process reads */
#define LAST_WORDS_SIZE 512
/* Writes the last words: the reason that this program ends before it began its work. */
void thread_last_words(const char *text);

#endif
