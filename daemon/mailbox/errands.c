/* errands.c: runs errands on separate threads, and calls back on the loop's thread. The lines are
 * those of start-time fair queueing: a line's time is the processor time that it has used, and a
 * line that was empty begins at the time of the line that was served last. */
#include "daemon/mailbox/errands.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/clock.h"
#include "api/core/thread.h"

#define THREADS_MAX 8

/* the two kinds of errands in a line */
enum { SOON, LATER, KINDS };

struct errand_line {
    struct errand_line *next;
    struct errand *first[KINDS], **last[KINDS]; /* waiting errands */
    int n, n_running;                           /* unfinished errands; errands under way */
    int64_t used_us; /* processor time at which its next errand starts, as in fair queueing */
    int64_t turn;    /* number of the turn in which the line was last served */
    char name[];
};

struct errands {
    struct loop *loop;
    struct errands_options o;
    pthread_t thread[THREADS_MAX];
    atomic_bool ending;
    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t wake;
    struct errand_line *lines;
    struct errand *done, **done_last;
    int n, n_later; /* unfinished errands; errands under way that are `later` */
    int n_waiting[KINDS];
    int n_soon;            /* errands that are not later, since the last one that was */
    int64_t now_us, turns; /* start time of the errand that was taken last; number of turns */
    bool finish, ended;
};

static void answer(struct errand *x, bool dropped)
{
    for (struct errand *next; x; x = next) {
        next = x->next;
        x->done(x->arg, dropped);
    }
}

/* Calls back for the errands that are done, on the loop's thread. */
static void answer_done(void *arg)
{
    struct errands *t = arg;
    pthread_mutex_lock(&t->mutex);
    struct errand *x = t->done;
    t->done = NULL;
    t->done_last = &t->done;
    pthread_mutex_unlock(&t->mutex);
    answer(x, false);
}

/* ---- lines ----------------------------------------------------------------------------------- */

static struct errand_line *line_of(struct errands *t, const char *name)
{
    struct errand_line *l = t->lines;
    while (l && strcmp(l->name, name)) l = l->next;
    if (l) return l;
    const size_t size = strlen(name) + 1;
    if (!(l = calloc(1, sizeof *l + size))) abort();
    memcpy(l->name, name, size);
    for (int k = 0; k < KINDS; k++) l->last[k] = &l->first[k];
    l->next = t->lines;
    return t->lines = l;
}

/* Frees the empty lines whose times say nothing: a line of the same name would begin at the same
 * time. If nothing waits and nothing is under way, these are all lines. */
static void drop_lines(struct errands *t)
{
    for (struct errand_line **at = &t->lines, *l; (l = *at);) {
        if (l->n || (t->n && l->used_us > t->now_us)) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        free(l);
    }
}

/* Tells whether line a is served before line b. */
static bool is_before(const struct errand_line *a, const struct errand_line *b)
{
    if (a->n_running != b->n_running) return a->n_running < b->n_running;
    if (a->used_us != b->used_us) return a->used_us < b->used_us;
    return a->turn < b->turn;
}

static struct errand_line *best_line(const struct errands *t, int kind)
{
    struct errand_line *best = NULL;
    for (struct errand_line *l = t->lines; l; l = l->next)
        if (l->first[kind] && (!best || is_before(l, best))) best = l;
    return best;
}

/* Returns the kind of the errand that a free thread takes, or KINDS if it takes none. */
static int next_kind(const struct errands *t)
{
    const int most = t->o.n_threads > 1 ? t->o.n_threads - 1 : 1;
    const bool later = t->n_waiting[LATER] && t->n_later < most;
    if (later && (!t->n_waiting[SOON] || t->n_soon >= ERRANDS_TURNS)) return LATER;
    return t->n_waiting[SOON] ? SOON : KINDS;
}

/* Takes the next errand out of its line. Returns NULL if no errand may run now. */
static struct errand *take(struct errands *t, struct errand_line **line)
{
    const int kind = next_kind(t);
    if (kind == KINDS) return NULL;
    struct errand_line *l = best_line(t, kind);
    struct errand *x = l->first[kind];
    if (!(l->first[kind] = x->next)) l->last[kind] = &l->first[kind];
    t->n_waiting[kind]--;
    t->n_soon = kind == LATER ? 0 : t->n_soon + 1;
    t->n_later += kind == LATER;
    l->n_running++;
    l->turn = ++t->turns;
    if (l->used_us > t->now_us) t->now_us = l->used_us;
    *line = l;
    return x;
}

/* Notes that an errand of the line is done, which took cost_us of processor time. */
static void put_done(struct errands *t, struct errand_line *l, struct errand *x, int64_t cost_us)
{
    l->used_us += cost_us;
    l->n_running--;
    l->n--;
    t->n--;
    t->n_later -= x->later;
    drop_lines(t);
    x->next = NULL;
    *t->done_last = x;
    t->done_last = &x->next;
}

/* ---- threads --------------------------------------------------------------------------------- */

static bool goes_on(const struct errands *t)
{
    return !errands_ending(t) || (t->finish && (t->n_waiting[SOON] || t->n_waiting[LATER]));
}

static void *run(void *arg)
{
    struct errands *t = arg;
    struct errand_line *l;
    pthread_mutex_lock(&t->mutex);
    while (goes_on(t)) {
        struct errand *x = take(t, &l);
        if (!x) {
            pthread_cond_wait(&t->wake, &t->mutex);
            continue;
        }
        pthread_mutex_unlock(&t->mutex);
        const int64_t before = clock_thread_us();
        x->work(x->arg);
        const int64_t cost = clock_thread_us() - before;
        pthread_mutex_lock(&t->mutex);
        put_done(t, l, x, cost);
        loop_post(t->loop, answer_done, t);
    }
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

static int refuse(const struct errands *t, const struct errand *x, bool ending, bool full,
                  struct err *e)
{
    if (ending) return err_set(e, ERR_PEER, "seqd is stopping: send it again");
    if (full) return err_set(e, ERR_PEER, "%d %s wait already: try again", t->o.most, t->o.what);
    return err_set(e, ERR_TOO_LARGE, "%d %s of %s wait already, the limit of a user: try again",
                   t->o.most_of_line, t->o.what, x->line ? x->line : "one line");
}

int errands_do(struct errands *t, struct errand *x, struct err *e)
{
    const int kind = x->later ? LATER : SOON;
    x->next = NULL;
    pthread_mutex_lock(&t->mutex);
    struct errand_line *l = line_of(t, x->line ? x->line : "");
    const bool ending = errands_ending(t), full = t->n >= t->o.most;
    const bool taken = !ending && !full && l->n < t->o.most_of_line;
    if (taken) {
        if (!l->n && l->used_us < t->now_us) l->used_us = t->now_us;
        *l->last[kind] = x;
        l->last[kind] = &x->next;
        l->n++;
        t->n++;
        t->n_waiting[kind]++;
        pthread_cond_signal(&t->wake);
    }
    pthread_mutex_unlock(&t->mutex);
    return taken ? 0 : refuse(t, x, ending, full, e);
}

struct errands *errands_create(struct loop *l, const struct errands_options *o)
{
    struct errands *t = calloc(1, sizeof *t);
    pthread_attr_t attr;
    if (!t) abort();
    t->loop = l;
    t->o = *o;
    if (!t->o.n_threads) t->o.n_threads = 1;
    if (!t->o.most_of_line) t->o.most_of_line = o->most;
    assert(t->o.n_threads <= THREADS_MAX);
    t->done_last = &t->done;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->wake, NULL);
    pthread_attr_init(&attr);
    if (o->stack_size) pthread_attr_setstacksize(&attr, o->stack_size);
    for (int i = 0; i < t->o.n_threads; i++) thread_must_start(&t->thread[i], &attr, run, t);
    pthread_attr_destroy(&attr);
    return t;
}

bool errands_ending(const struct errands *t)
{
    return atomic_load(&t->ending);
}

/* Drops the waiting errands. */
static void drop_waiting(struct errands *t)
{
    for (struct errand_line *l = t->lines; l; l = l->next)
        for (int k = 0; k < KINDS; k++) {
            answer(l->first[k], true);
            l->first[k] = NULL;
        }
}

void errands_end(struct errands *t, bool finish)
{
    if (!t || t->ended) return;
    t->ended = true;
    pthread_mutex_lock(&t->mutex);
    t->finish = finish;
    atomic_store(&t->ending, true);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->mutex);
    for (int i = 0; i < t->o.n_threads; i++) pthread_join(t->thread[i], NULL);
    answer(t->done, !finish);
    t->done = NULL;
    drop_waiting(t);
}

void errands_destroy(struct errands *t)
{
    if (!t) return;
    errands_end(t, false);
    for (struct errand_line *l = t->lines, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    pthread_mutex_destroy(&t->mutex);
    pthread_cond_destroy(&t->wake);
    free(t);
}
