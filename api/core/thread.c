/* thread.c: starts threads, and writes the last words of a program that cannot start one. */
#include "api/core/thread.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/log.h"

int thread_start(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg,
                 struct err *e)
{
    const int rc = pthread_create(t, attr, run, arg);
    if (!rc) return 0;
    return err_set(e, ERR_PEER,
                   "start a thread: %s: raise the limit of processes (ulimit -u, TasksMax of a "
                   "unit, the pids limit of a container)",
                   strerror(rc));
}

void thread_must_start(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg)
{
    struct err e;
    if (!thread_start(t, attr, run, arg, &e)) return;
    log_error("thread.start", "text=\"%s\"", e.text);
    thread_last_words(e.text);
    _exit(1);
}

void thread_last_words(const char *text)
{
    const char *path = getenv(LAST_WORDS_ENV);
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    if (fd < 0) return;
    const ssize_t ignored = write(fd, text, strlen(text));
    (void)ignored;
    close(fd);
}
