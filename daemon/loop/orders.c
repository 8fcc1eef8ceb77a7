/* orders.c: stores the jobs of an order as ranges of ids, and carries out the order. */
#include "daemon/loop/orders.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/log.h"

enum { AGAIN_MS = 1000 }; /* until a slice is repeated */

/* One order of the slice that is under way. */
struct slice_order {
    struct many_order *m;
    int64_t job;
    bool withdrawn;
    bool folded; /* the order has changed the job */
};

struct many_order {
    struct many_order *next;
    struct orders *o;
    int64_t id;
    enum orders_what what;
    char who[USER_NAME];
    int64_t *job; /* owned; ascending */
    int n, at;    /* jobs; jobs of the slices so far */
    int waiting;  /* orders of this slice without an answer */
    int64_t n_done;
    /* orders of the slice that are still to be given; withdrawn ones are given again */
    struct slice_order slice[ORDERS_SLICE];
    int n_slice;
    /* The first slice after a start. Some of its jobs may have accepted the order before, and are
     * counted by the commits of that time. */
    bool continued;
    struct loop_timer *again;
    orders_added *added;
    void *arg;
};

struct orders {
    struct commits *all;
    struct many_order *first;
    int64_t last_id;
    struct loop_timer *load; /* asks the store for the orders again */
    bool loaded, stopped;
};

const struct orders_row orders_rows[ORDERS_N] = {
    [ORDERS_CANCEL] = {"cancel", "cancelled", order_cancel},
    [ORDERS_SUSPEND] = {"suspend", "suspended", order_suspend},
    [ORDERS_RESUME] = {"resume", "resumed", order_resume},
};

/* ---- ids ------------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Writes ascending ids as "1-1000,1002", malloc'd. */
static char *write_ids(const int64_t *job, int n)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (!f) abort();
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && job[end] == job[end - 1] + 1;) end++;
        fprintf(f, "%s%lld", i ? "," : "", (long long)job[i]);
        if (end > i + 1) fprintf(f, "-%lld", (long long)job[end - 1]);
    }
    if (ferror(f) || fclose(f)) abort(); /* out of memory */
    return text;
}

/* Reads the n ids of such a text, malloc'd. Returns NULL if the text is damaged. */
static int64_t *read_ids(const char *text, int n)
{
    int64_t *job = calloc((size_t)n + 1, sizeof *job);
    int i = 0;
    if (!job) abort();
    while (*text) {
        char *end;
        const int64_t from = strtoll(text, &end, 10);
        const int64_t to = *end == '-' ? strtoll(end + 1, &end, 10) : from;
        if (end == text || from > to || to - from >= n - i || (*end && *end != ',')) break;
        for (int64_t id = from; id <= to; id++) job[i++] = id;
        text = end + (*end == ',');
    }
    if (!*text && i == n) return job;
    free(job);
    return NULL;
}

/* ---- an order -------------------------------------------------------------------------------- */

static void turn(void *arg);

static struct many_order *make(struct orders *o, int64_t id, int what, const char *who)
{
    struct many_order *m = calloc(1, sizeof *m);
    if (!m) abort();
    m->o = o;
    m->id = id;
    m->what = (enum orders_what)what;
    snprintf(m->who, sizeof m->who, "%s", who);
    m->again = loop_timer_create(o->all->loop, turn, m);
    m->next = o->first;
    o->first = m;
    return m;
}

static void drop(struct many_order *m)
{
    struct many_order **at = &m->o->first;
    while (*at != m) at = &(*at)->next;
    *at = m->next;
    loop_timer_destroy(m->again);
    free(m->job);
    free(m);
}

/* Notes how far the order is. A note is committed after the orders of its slice. */
static void note(struct many_order *m)
{
    struct store_txn *t = store_begin();
    const struct commits *all = m->o->all;
    store_order_set(t, m->id, m->at, m->n_done, m->at == m->n ? all->utc_ms() : 0);
    store_commit(all->store, t, NULL, NULL);
}

/* Begins a slice. */
static void cut_slice(struct many_order *m)
{
    for (; m->n_slice < ORDERS_SLICE && m->at + m->n_slice < m->n; m->n_slice++)
        m->slice[m->n_slice] = (struct slice_order){.m = m, .job = m->job[m->at + m->n_slice]};
}

/* Keeps those orders of the slice that were withdrawn, because the disk is full or another program
 * has locked the database. The slice is over if there are none. */
static bool is_over(struct many_order *m)
{
    int n = 0;
    for (int i = 0; i < m->n_slice; i++)
        if (m->slice[i].withdrawn) m->slice[n++] = m->slice[i];
    m->n_slice = n;
    return !n;
}

static void end_slice(struct many_order *m)
{
    if (m->o->stopped) return;
    if (!is_over(m)) {
        loop_timer_set(m->again, AGAIN_MS);
        return;
    }
    m->continued = false;
    m->at = m->n - m->at > ORDERS_SLICE ? m->at + ORDERS_SLICE : m->n;
    note(m);
    if (m->at < m->n) {
        loop_post(m->o->all->loop, turn, m);
        return;
    }
    log_info("orders.done", "order=%lld what=%s jobs=%d done=%lld", (long long)m->id,
             orders_rows[m->what].name, m->n, (long long)m->n_done);
    drop(m);
}

static void on_ordered(void *arg, const struct job *j, const struct err *e)
{
    struct slice_order *s = arg;
    struct many_order *m = s->m;
    if (!e && (s->folded || !m->continued)) m->n_done++;
    s->withdrawn = store_withdrawn(e);
    if (e && e->code == ERR_PEER) m->o->stopped = true; /* the store is closed */
    if (!--m->waiting) end_slice(m);
}

/* Gives the orders of one slice, or gives those again that were withdrawn. */
static void turn(void *arg)
{
    struct many_order *m = arg;
    if (!m->n_slice) cut_slice(m);
    const int n = m->n_slice; /* the last answer may come in its call */
    /* Count one more than there are orders. Otherwise an order that is refused inside its call
     * could end the slice too early. */
    m->waiting = n + 1;
    m->o->all->many = m->id; /* each commit counts itself, so that the count outlives seqd */
    for (int i = 0; i < n; i++) {
        const int64_t n_before = m->o->all->n_many;
        orders_rows[m->what].call(m->o->all, m->slice[i].job, m->who, on_ordered, &m->slice[i]);
        m->slice[i].folded = m->o->all->n_many > n_before;
    }
    m->o->all->many = 0;
    if (!--m->waiting) end_slice(m);
}

/* ---- new orders ------------------------------------------------------------------------------ */

static int refuse(const struct orders *o, const char *who, struct err *e)
{
    int n = 0, own = 0;
    for (const struct many_order *m = o->first; m; m = m->next) n++, own += !strcmp(m->who, who);
    if (!o->loaded || o->stopped)
        return err_set(e, ERR_PEER, "seqd is starting or stopping: send it again");
    if (own >= ORDERS_USER)
        return err_set(
            e, ERR_TOO_LARGE,
            "%s has %d orders about many jobs under way, the limit of a user: come again "
            "when one is finished",
            who, own);
    if (n < ORDERS_MAX) return 0;
    return err_set(e, ERR_TOO_LARGE,
                   "%d orders about many jobs are under way, the limit: come again soon", n);
}

static void on_added(void *arg, const struct err *e)
{
    struct many_order *m = arg;
    m->added(m->arg, m->id, e);
    if (e)
        drop(m);
    else
        loop_post(m->o->all->loop, turn, m);
}

void orders_add(struct orders *o, const struct orders_new *n, orders_added *added, void *arg)
{
    struct err e;
    if (refuse(o, n->who, &e)) {
        free(n->job);
        added(arg, 0, &e);
        return;
    }
    struct many_order *m = make(o, ++o->last_id, n->what, n->who);
    struct store_txn *t = store_begin();
    const int64_t now = o->all->utc_ms();
    store_client(t, NULL);
    m->job = n->job;
    m->n = n->n;
    m->added = added;
    m->arg = arg;
    qsort(m->job, (size_t)m->n, sizeof *m->job, by_id);
    char *ids = write_ids(m->job, m->n);
    store_order_add(t, &(struct store_order){m->id, now, (int)m->what, m->n, m->who, ids});
    store_orders_forget(t, now - ORDERS_KEEP_MS);
    store_commit(o->all->store, t, on_added, m);
    free(ids);
}

/* ---- after a start --------------------------------------------------------------------------- */

/* Continues the order of a row of ASK_ORDERS. */
static void continue_row(struct orders *o, const struct store_row *row)
{
    const int64_t n = row->n[3], at = row->n[5];
    const bool good = row->n[2] >= 0 && row->n[2] < ORDERS_N && n >= 0 && n < INT32_MAX &&
                      at >= 0 && at <= n;
    int64_t *job = good ? read_ids(row->text[1], (int)n) : NULL;
    if (!job) {
        log_error("orders.damaged", "order=%lld text=\"its row is damaged, and is left as it is\"",
                  (long long)row->n[0]);
        return;
    }
    struct many_order *m = make(o, row->n[0], (int)row->n[2], row->text[0]);
    m->job = job;
    m->n = (int)n;
    m->at = (int)at;
    m->n_done = row->n[4];
    m->continued = true;
    log_info("orders.continue", "order=%lld what=%s jobs=%d from=%d", (long long)m->id,
             orders_rows[m->what].name, m->n, m->at);
    loop_post(o->all->loop, turn, m);
}

static void on_loaded(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct orders *o = arg;
    if (failed) {
        log_error("orders.load", "text=\"%s\"", failed->text);
        if (failed->code != ERR_PEER) loop_timer_set(o->load, AGAIN_MS);
        return;
    }
    for (int i = 0; i < rows->n_rows; i++) {
        const struct store_row *row = &rows->row[i];
        if (row->n[0] > o->last_id) o->last_id = row->n[0];
        if (*row->text[1]) continue_row(o, row);
    }
    o->loaded = true;
}

static void load(void *arg)
{
    struct orders *o = arg;
    store_read(o->all->store, ASK_ORDERS, (const int64_t[4]){0}, NULL, on_loaded, o);
}

struct orders *orders_create(struct commits *all)
{
    struct orders *o = calloc(1, sizeof *o);
    if (!o) abort();
    o->all = all;
    o->load = loop_timer_create(all->loop, load, o);
    load(o);
    return o;
}

void orders_destroy(struct orders *o)
{
    if (!o) return;
    while (o->first) drop(o->first);
    loop_timer_destroy(o->load);
    free(o);
}
