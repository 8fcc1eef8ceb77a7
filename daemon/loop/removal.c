/* removal.c: carries out a removal, from its first row to the confirmation of the last node. */
#include "daemon/loop/removal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "api/core/mem.h"
#include "api/core/removal.h"
#include "daemon/state/retain.h"

#define ROWS 200 /* rows in one commit; the writer needs some milliseconds for them */
#define NODE_WINDOW                                                                                \
    64             /* largest number of removals that a node has been asked for and has not
                         * answered */
#define WAKE_MS 20 /* time in which orders are collected, so that one query reads them all */

struct told { /* a node that is up, and its removals */
    struct told *next;
    struct removals *all;
    char node[NODE_NAME];
    struct open { /* a removal that the node was asked for and has not answered yet */
        int64_t job;
        int what;
    } open[NODE_WINDOW];
    int n_open;
    bool reading; /* the removals that the node must be asked for are being read */
    bool again;   /* the store may have more removals for this node than were read */
    bool failed;  /* a removal has failed on the node, and the node's other removals wait for the
                   * retry */
    bool gone;    /* the node went down; this struct is freed with the last answer */
    uint32_t abi; /* version that the node speaks */
};

struct removals {
    struct commits *commits;
    struct logs *logs;
    struct outbox out;
    struct trees *trees;
    struct loop_timer *wake, *retry, *pace;
    struct told *told;
    bool paused;
    bool files_busy, files_again, rows_busy, rows_again;
    int64_t files_after; /* seq of the last removal that was tried; 0 before the first removal */
    int64_t rows_begin_ms, n_moved;
};

/* ---- files of seqd --------------------------------------------------------------------------- */

static void remove_files(struct removals *r);

static void on_files_committed(void *arg, const struct err *e)
{
    struct removals *r = arg;
    r->files_busy = false;
    loop_timer_set(r->pace, 0); /* remove the rows next */
    remove_files(r);
}

static void on_files(void *arg, const struct tree *tree, int n, const struct err *e)
{
    struct removals *r = arg;
    struct store_txn *t = store_begin();
    if (e) log_error("removal.files", "text=\"%s\"", e->text);
    for (int i = 0; i < n; i++) {
        const int64_t job = tree[i].id / REMOVAL_N;
        const int what = (int)(tree[i].id % REMOVAL_N);
        if (!tree[i].code) store_removal_files(t, job, what, tree[i].size);
    }
    store_commit(r->commits->store, t, on_files_committed, r);
}

static void on_files_rows(void *arg, const struct store_rows *rows, const struct err *e)
{
    struct removals *r = arg;
    struct tree *tree;
    if (e || !rows->n_rows || r->paused) {
        r->files_busy = false;
        r->files_after = 0; /* the next timer tries failed removals again */
        if (r->files_again && !e) remove_files(r);
        return;
    }
    if (!(tree = calloc((size_t)rows->n_rows, sizeof *tree))) abort();
    for (int i = 0; i < rows->n_rows; i++) {
        const int64_t job = rows->row[i].n[1];
        tree[i].id = job * REMOVAL_N + rows->row[i].n[2];
        logs_forget(r->logs, job, tree[i].path, sizeof tree[i].path);
        r->files_after = rows->row[i].n[0];
    }
    trees_remove(r->trees, tree, rows->n_rows, on_files, r);
    free(tree);
}

static void remove_files(struct removals *r)
{
    r->files_again = r->files_busy;
    if (r->files_busy || r->paused) return;
    r->files_busy = true;
    store_read(r->commits->store, ASK_REMOVAL_FILES,
               (const int64_t[4]){r->files_after, TREES_BATCH}, NULL, on_files_rows, r);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Waits four times as long as the commit of rows took, so that removals take at most a fifth of
 * the writer's time. */
static void on_rows_removed(void *arg, const struct err *e)
{
    struct removals *r = arg;
    struct loop *l = r->commits->loop;
    r->rows_busy = false;
    if (e && !r->paused) log_error("removal.rows", "text=\"%s\"", e->text);
    if (!e && (r->n_moved || r->rows_again))
        loop_timer_set(r->pace, REMOVAL_PACE * (loop_clock_ms(l) - r->rows_begin_ms));
}

static void remove_rows(void *arg)
{
    struct removals *r = arg;
    r->rows_again = r->rows_busy;
    if (r->rows_busy || r->paused) return;
    struct store_txn *t = store_begin();
    r->rows_busy = true;
    r->rows_begin_ms = loop_clock_ms(r->commits->loop);
    store_removal_rows(t, ROWS, r->commits->utc_ms(), &r->n_moved);
    store_commit(r->commits->store, t, on_rows_removed, r);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static struct told *told_find(const struct removals *r, const char *node)
{
    for (struct told *n = r->told; n; n = n->next)
        if (!n->gone && !strcmp(n->node, node)) return n;
    return NULL;
}

static void told_free(struct told *n)
{
    struct told **at = &n->all->told;
    while (*at != n) at = &(*at)->next;
    *at = n->next;
    free(n);
}

static void tell(struct told *n);

/* Does nothing while removals are under way on the node. Otherwise asks the node for its next
 * removals, or frees the struct if the node is gone. */
static void told_rest(struct told *n)
{
    if (n->reading || n->n_open) return;
    if (n->gone)
        told_free(n);
    else if (n->again && !n->failed)
        tell(n);
}

static void on_node_rows(void *arg, const struct store_rows *rows, const struct err *e)
{
    struct told *n = arg;
    n->again = n->again || rows->n_rows == NODE_WINDOW;
    for (int i = 0; i < rows->n_rows && !n->gone; i++) {
        const struct msg m = {
            .type = MSG_REMOVE, .job = rows->row[i].n[0], .what = (int32_t)rows->row[i].n[1]};
        /* Count the removal as open before it is sent, because all open removals are closed if the
         * session breaks during the send. */
        n->open[n->n_open++] = (struct open){m.job, m.what};
        if (!outbox_send(&n->all->out, n->node, &m)) continue;
        n->n_open = 0;
        n->failed = true;
        break;
    }
    /* cleared only here, because n must not be freed if the session breaks in a send above */
    n->reading = false;
    told_rest(n);
}

static void tell_old(const struct told *n)
{
    char why[128];
    struct store_txn *t = store_begin();
    snprintf(why, sizeof why, "it speaks protocol %u, which has no removals: upgrade seqw there",
             n->abi);
    store_removal_waits(t, n->node, why);
    store_commit(n->all->commits->store, t, NULL, NULL);
}

static void tell(struct told *n)
{
    if (!wire_knows(n->abi, MSG_REMOVE)) {
        if (!n->all->paused) tell_old(n);
        return;
    }
    n->again = n->reading || n->n_open;
    if (n->again || n->all->paused) return;
    n->reading = true;
    store_read(n->all->commits->store, ASK_REMOVAL_NODE, (const int64_t[4]){0, NODE_WINDOW},
               n->node, on_node_rows, n);
}

static void tell_all(struct removals *r)
{
    for (struct told *n = r->told, *next; n; n = next) {
        next = n->next;
        if (!n->gone) tell(n);
    }
}

void removals_node_up(struct removals *r, const char *node, uint32_t abi)
{
    struct told *n = told_find(r, node);
    if (n) removals_node_down(r, node);
    if (!(n = calloc(1, sizeof *n))) abort();
    n->all = r;
    n->abi = abi;
    snprintf(n->node, sizeof n->node, "%s", node);
    n->next = r->told;
    r->told = n;
    tell(n);
}

void removals_node_down(struct removals *r, const char *node)
{
    struct told *n = told_find(r, node);
    if (!n) return;
    n->gone = true;
    n->n_open = 0;
    if (!n->reading) told_free(n);
}

static void on_confirmed(void *arg, const struct err *e)
{
    struct removals *r = arg;
    loop_timer_set(r->wake, WAKE_MS);
}

static void on_cut(void *arg, const struct tree *tree, int n, const struct err *e)
{
    if (e) log_error("removal.epoch", "text=\"%s\"", e->text);
}

/* Closes the removal that is answered. Returns false if the removal is not open. This can happen
 * because the order may be sent in two sessions, and the node may answer both times. */
static bool was_open(struct told *n, int64_t job, int what)
{
    for (int i = 0; i < n->n_open; i++) {
        if (n->open[i].job != job || n->open[i].what != what) continue;
        n->open[i] = n->open[--n->n_open];
        return true;
    }
    return false;
}

bool removals_take(struct removals *r, const char *node, const struct msg *m)
{
    struct told *n = told_find(r, node);
    if (!n || !was_open(n, m->job, m->what)) return false;
    struct store_txn *t = store_begin();
    if (m->err.code)
        store_removal_error(t, m->job, m->what, node, m->err.text);
    else
        store_removal_node(t, m->job, m->what, node, m->total, r->commits->utc_ms());
    n->failed = n->failed || m->err.code;
    const bool more = !n->n_open && n->again && !n->failed;
    store_commit(r->commits->store, t, more ? on_confirmed : NULL, r);
    return true;
}

void removals_measure(struct removals *r, const int64_t *jobs, int n, trees_done *done, void *arg)
{
    struct tree *tree = calloc((size_t)n, sizeof *tree);
    if (!tree) abort();
    for (int i = 0; i < n; i++) {
        tree[i].id = jobs[i];
        logs_path(r->logs, jobs[i], tree[i].path, sizeof tree[i].path);
    }
    trees_measure(r->trees, tree, n, done, arg);
    free(tree);
}

void removals_wake(struct removals *r)
{
    loop_timer_set(r->wake, WAKE_MS);
}

void removals_cut_log(struct removals *r, int64_t job, int64_t epoch, int n_ranks)
{
    struct tree *tree = mem_scratch(TREES_BATCH * sizeof *tree);
    for (int rank = 0; rank < n_ranks;) {
        int n = 0;
        for (; n < TREES_BATCH && rank < n_ranks; n++, rank++) {
            tree[n] = (struct tree){.id = rank};
            logs_forget_log(r->logs, job, epoch, rank, tree[n].path, sizeof tree[n].path);
        }
        trees_remove(r->trees, tree, n, on_cut, r);
    }
    free(tree);
}

/* ---- orders ---------------------------------------------------------------------------------- */

struct ordering {
    struct removals *all;
    int64_t job;
    int what;
    commit_done *done;
    void *arg;
};

static void on_ordered_row(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct ordering *o = arg;
    struct err e;
    if (failed)
        e = *failed;
    else if (!rows->n_rows)
        err_set(&e, ERR_NOT_FOUND, "there is no job %lld", (long long)o->job);
    o->done(o->arg, NULL, failed || !rows->n_rows ? &e : NULL);
    free(o);
}

static void on_ordered(void *arg, const struct err *e)
{
    struct ordering *o = arg;
    if (e) {
        o->done(o->arg, NULL, e);
        free(o);
        return;
    }
    loop_timer_set(o->all->wake, WAKE_MS);
    store_read(o->all->commits->store, ASK_REMOVAL, (const int64_t[4]){o->job, o->what}, NULL,
               on_ordered_row, o);
}

/* Refuses a removal of data that must be kept for now. */
static int refuse(struct removals *r, const struct store_removal *what, struct err *e)
{
    struct jobs *jobs = &r->commits->cluster->jobs;
    const struct job *j = jobs_find(jobs, what->job);
    struct retain_uses uses;
    if (j && !job_final(j->state))
        return err_set(
            e, ERR_CONFLICT,
            "job %lld is %s: cancel it (POST /v1/jobs/%lld:cancel), and remove it when it "
            "has ended",
            (long long)what->job, job_state_name(j->state), (long long)what->job);
    if (!removal_rows[what->what].nodes) return 0;
    retain_uses_init(&uses, jobs);
    const struct retain_use *use = retain_uses_find(&uses, what->job);
    const struct job *user = use ? jobs_find(jobs, use->user) : NULL;
    if (user)
        err_set(e, ERR_CONFLICT,
                "job %lld, which is %s, reads files of job %lld as its %s: remove it when job %lld "
                "has ended",
                (long long)user->id, job_state_name(user->state), (long long)what->job, use->field,
                (long long)user->id);
    retain_uses_fini(&uses);
    return user ? -1 : 0;
}

void removals_order(struct removals *r, const struct store_removal *what, commit_done *done,
                    void *arg)
{
    struct err e;
    if (refuse(r, what, &e)) {
        /* The refusal may depend on a state that is not on disk yet, so answer only after that
         * state is committed. */
        const struct job none = {.id = what->job};
        commit_answer(r->commits, &none, &e, done, arg);
        return;
    }
    struct ordering *o = malloc(sizeof *o);
    if (!o) abort();
    *o = (struct ordering){r, what->job, what->what, done, arg};
    struct store_txn *t = store_begin();
    store_client(t, NULL);
    store_removal_add(t, what);
    store_commit(r->commits->store, t, on_ordered, o);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void on_wake(void *arg)
{
    struct removals *r = arg;
    if (r->paused) return;
    remove_files(r);
    remove_rows(r);
    tell_all(r);
}

/* Asks the nodes for all their removals again, even if they have not answered the last
 * messages. */
static void on_retry(void *arg)
{
    struct removals *r = arg;
    for (struct told *n = r->told; n; n = n->next) n->failed = false, n->n_open = 0;
    on_wake(r);
    loop_timer_set(r->retry, REMOVAL_RETRY_MS);
}

struct removals *removals_create(struct commits *all, struct logs *logs, const struct outbox *out)
{
    struct removals *r = calloc(1, sizeof *r);
    if (!r) abort();
    r->commits = all;
    r->logs = logs;
    r->out = *out;
    r->trees = trees_create(all->loop);
    r->wake = loop_timer_create(all->loop, on_wake, r);
    r->retry = loop_timer_create(all->loop, on_retry, r);
    r->pace = loop_timer_create(all->loop, remove_rows, r);
    loop_timer_set(r->wake, 0);
    loop_timer_set(r->retry, REMOVAL_RETRY_MS);
    return r;
}

void removals_pause(struct removals *r)
{
    r->paused = true;
}

void removals_destroy(struct removals *r)
{
    if (!r) return;
    trees_destroy(r->trees);
    while (r->told) told_free(r->told);
    loop_timer_destroy(r->wake);
    loop_timer_destroy(r->retry);
    loop_timer_destroy(r->pace);
    free(r);
}
