/* serve_thread.h: a thread of rank 0 that reads long bodies of a serve job, while the rank leads
 * its passes. It does one work at a time. */
#ifndef SEQD_INFER_SERVE_THREAD_H
#define SEQD_INFER_SERVE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

struct serve_thread {
    pthread_t id;
    void (*work)(void *arg);
    void *arg;
    bool begun; /* set from serve_thread_begin to serve_thread_end */
    int ended;  /* atomic: set by the thread at the end of its work */
};

/* Calls work(arg) in the thread. Without a thread, as where the system has none left, calls it
 * before the return. The thread must be idle. */
void serve_thread_begin(struct serve_thread *t, void (*work)(void *arg), void *arg);
/* Tells whether the work has ended, and then makes the thread idle. `waits`: waits for the end.
 * Returns false if the thread is idle. */
bool serve_thread_end(struct serve_thread *t, bool waits);

#endif
