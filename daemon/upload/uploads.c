/* uploads.c: hands the file work of uploads to a thread, and keeps their names for the loop. */
#include "daemon/upload/uploads.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct uploads {
    struct errands *thread;
    struct upload_dir *dir; /* once the thread runs, only the thread uses it */
    struct loop_timer *timer;
    struct upload_op sweep;
    struct upload_name complete[UPLOADS_COUNT]; /* the list that only the loop uses */
    int n_complete;
};

static int64_t utc_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int find(const struct uploads *u, const char *name)
{
    for (int i = 0; i < u->n_complete; i++)
        if (!strcmp(u->complete[i].name, name)) return i;
    return -1;
}

const struct upload_name *uploads_at(const struct uploads *u, int i)
{
    return i < u->n_complete ? &u->complete[i] : NULL;
}

const struct upload_name *uploads_find(const struct uploads *u, int64_t id)
{
    for (int i = 0; i < u->n_complete; i++)
        if (u->complete[i].id == id) return &u->complete[i];
    return NULL;
}

const char *uploads_owner(const struct uploads *u, const char *name)
{
    const int i = find(u, name);
    return i < 0 ? NULL : u->complete[i].owner;
}

/* Updates the list of uploads that jobs may name. Adds a completed upload, and drops a removed
 * upload. */
static void note(struct uploads *u, const struct upload_op *op)
{
    if (op->err.code || (op->what != UPLOAD_COMMIT && op->what != UPLOAD_REMOVE)) return;
    const int i = find(u, op->name.name);
    if (op->what == UPLOAD_COMMIT && i < 0 && u->n_complete < UPLOADS_COUNT)
        u->complete[u->n_complete++] = op->name;
    if (op->what == UPLOAD_REMOVE && i >= 0) u->complete[i] = u->complete[--u->n_complete];
}

/* Tells whether the user may use the upload, and stores the upload's name in op. Returns true for
 * a missing upload, because upload_dir refuses it later. */
static bool is_its(const struct upload_dir *d, struct upload_op *op)
{
    const bool names_one = op->what == UPLOAD_WRITE || op->what == UPLOAD_COMMIT ||
                           op->what == UPLOAD_REMOVE || op->what == UPLOAD_SHOW;
    return !names_one || !upload_dir_name(d, op->id, &op->name) ||
           principal_owns(&op->who, op->name.owner);
}

/* Does the work of a request, on the thread. */
static void work(void *arg)
{
    struct upload_op *op = arg;
    struct upload_dir *d = op->of->dir;
    struct err *e = &op->err;
    const int64_t now = utc_ms();
    int rc = 0;
    if (!is_its(d, op)) {
        op->at = -1;
        err_set(e, ERR_NOT_FOUND, "there is no upload %lld of %s: it expired, or was removed",
                (long long)op->id, op->who.user);
        return;
    }
    switch (op->what) {
    case UPLOAD_CREATE:
        rc = upload_dir_create(d, op->who.user, op->body, op->size, now, &op->id, &op->made, e);
        break;
    case UPLOAD_WRITE:
        rc = upload_dir_write(d, op->id, op->file, op->offset, op->body, op->size, now, &op->at, e);
        break;
    case UPLOAD_COMMIT: rc = upload_dir_commit(d, op->id, e); break;
    case UPLOAD_REMOVE: upload_dir_remove(d, op->id, e); break;
    case UPLOAD_LIST: op->json = upload_dir_list(d, &op->who); break;
    case UPLOAD_SWEEP: upload_dir_sweep(d, now); break;
    case UPLOAD_SHOW: break;
    }
    const bool shown = op->what == UPLOAD_CREATE || op->what == UPLOAD_COMMIT ||
                       op->what == UPLOAD_SHOW;
    if (!rc && shown) op->json = upload_dir_show(d, op->id, e);
}

static void on_done(void *arg, bool dropped)
{
    struct upload_op *op = arg;
    (void)dropped; /* never true, because uploads_close finishes all requests */
    note(op->of, op);
    op->call(op->arg, op);
}

int uploads_do(struct uploads *u, struct upload_op *op, struct err *e)
{
    op->err = (struct err){0};
    op->of = u;
    op->errand = (struct errand){.work = work, .done = on_done, .arg = op, .line = op->who.user};
    return errands_do(u->thread, &op->errand, e);
}

static void on_swept(void *arg, struct upload_op *op)
{
    struct uploads *u = arg;
    loop_timer_set(u->timer, UPLOADS_SWEEP_MS);
}

static void on_timer(void *arg)
{
    struct uploads *u = arg;
    if (uploads_do(u, &u->sweep, NULL)) on_swept(u, &u->sweep);
}

struct uploads *uploads_open(struct loop *l, const struct upload_dir_options *o, struct err *e)
{
    struct uploads *u = calloc(1, sizeof *u);
    if (!u) abort();
    if (!(u->dir = upload_dir_open(o, utc_ms(), e))) {
        free(u);
        return NULL;
    }
    while (upload_dir_complete(u->dir, u->n_complete, &u->complete[u->n_complete]))
        if (++u->n_complete == UPLOADS_COUNT) break;
    u->sweep = (struct upload_op){.what = UPLOAD_SWEEP, .call = on_swept, .arg = u};
    u->timer = loop_timer_create(l, on_timer, u);
    loop_timer_set(u->timer, UPLOADS_SWEEP_MS);
    u->thread = errands_create(l, &(struct errands_options){.most = UPLOADS_WAITING,
                                                            .most_of_line = UPLOADS_USER_WAITING,
                                                            .what = "requests of uploads"});
    return u;
}

const char *uploads_files(const struct uploads *u)
{
    return upload_dir_files(u->dir);
}

void uploads_close(struct uploads *u)
{
    if (!u) return;
    errands_end(u->thread, true);
    upload_dir_close(u->dir);
    loop_timer_destroy(u->timer);
    errands_destroy(u->thread);
    free(u);
}
