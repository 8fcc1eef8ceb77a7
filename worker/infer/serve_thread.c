/* serve_thread.c: starts a thread for each work, because long bodies are rare, and joins it. */
#include "worker/infer/serve_thread.h"

#include <signal.h>

static void *run(void *arg)
{
    struct serve_thread *t = arg;
    t->work(t->arg);
    __atomic_store_n(&t->ended, 2, __ATOMIC_RELEASE);
    return NULL;
}

void serve_thread_begin(struct serve_thread *t, void (*work)(void *arg), void *arg)
{
    sigset_t all, before;
    *t = (struct serve_thread){.work = work, .arg = arg, .begun = true};
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the rank's own thread */
    const int rc = pthread_create(&t->id, NULL, run, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!rc) return;
    work(arg);
    t->ended = 1; /* there is no thread to join */
}

bool serve_thread_end(struct serve_thread *t, bool waits)
{
    if (!t->begun) return false;
    const int ended = __atomic_load_n(&t->ended, __ATOMIC_ACQUIRE);
    if (!ended && !waits) return false;
    if (ended != 1) pthread_join(t->id, NULL);
    t->begun = false;
    return true;
}
