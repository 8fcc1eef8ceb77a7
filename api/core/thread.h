/* thread.h: starts threads. The error names the reason why a thread did not start, such as a limit
 * on processes (ulimit -u, TasksMax, a container's limit of pids). libc only. */
#ifndef SEQD_CORE_THREAD_H
#define SEQD_CORE_THREAD_H

#include <pthread.h>
#include "api/core/err.h"

/* Starts a thread. If attr is NULL, default attributes are used. Fails with ERR_PEER, which lets
 * the caller try again; the error names the limit. */
int thread_start(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg,
                 struct err *e);
/* Starts a thread that the program needs. On failure it writes the error as the program's last
 * words and exits with status 1. The parent process then waits longer before each restart of this
 * program. */
void thread_must_start(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

/* Environment variable that names the file of the last words. The parent process reads the
 * file. */
#define LAST_WORDS_ENV  "SEQD_LAST_WORDS"
#define LAST_WORDS_SIZE 512
/* Writes the last words, which tell why this program ends before its work has begun. */
void thread_last_words(const char *text);

#endif
