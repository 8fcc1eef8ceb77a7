/* safetensors_write.c: writes the header, and then each tensor piece by piece. If digests are
 * asked for, one thread hashes and another thread writes while the caller reads the next
 * pieces. */
#include "worker/hf/safetensors.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/jwrite.h"
#include "api/core/thread.h"

static int64_t size_of(const struct st_out *o)
{
    int64_t n = st_dtype_size(o->dtype);
    for (int i = 0; i < o->n_dims; i++) n *= o->dims[i];
    return n;
}

/* Compares two items in the order of the official writer. It sorts by type, with the last type
 * first, and then by name. */
static int by_rule(const void *a, const void *b)
{
    const struct st_out *x = *(const struct st_out *const *)a,
                        *y = *(const struct st_out *const *)b;
    if (x->dtype != y->dtype) return x->dtype > y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Writes the header, and returns its length. If `size` is 0, writes no bytes and only returns
 * the length. */
static int64_t header_json(const struct st_out *const *items, int n, char *out, size_t size)
{
    struct jwrite w;
    int64_t at = 0;
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_object(&w, "__metadata__");
    jwrite_str(&w, "format", "pt");
    jwrite_end(&w);
    for (int i = 0; i < n; i++) {
        jwrite_object(&w, items[i]->name);
        jwrite_str(&w, "dtype", st_dtype_name(items[i]->dtype));
        jwrite_array(&w, "shape");
        for (int d = 0; d < items[i]->n_dims; d++) jwrite_int(&w, NULL, items[i]->dims[d]);
        jwrite_end(&w);
        jwrite_array(&w, "data_offsets");
        jwrite_int(&w, NULL, at);
        jwrite_int(&w, NULL, at += size_of(items[i]));
        jwrite_end(&w);
        jwrite_end(&w);
    }
    jwrite_end(&w);
    jwrite_finish(&w);
    return (int64_t)w.len;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

enum {
    PIECES = 8,                             /* largest number of pieces that wait for the
                                             * slower task; together these pieces have 4 MiB */
    PIECE_SIZE = ST_CHUNK * sizeof(int64_t) /* largest size of a piece in bytes */
};

struct st_piece {
    const void *at; /* borrowed until all tasks have processed it */
    int64_t size;
    bool of_tensor; /* whether the digest of tensors includes this piece */
};

struct st_writer;

struct st_task { /* a task, which processes all pieces in order */
    struct st_writer *w;
    int (*take)(struct st_writer *w, const struct st_piece *p);
    pthread_t thread;
    bool runs;    /* whether the task has a separate thread; otherwise the caller's thread does
                   * the work of the task */
    int64_t done; /* number of pieces that the task has processed */
};

enum { TASK_HASH, TASK_WRITE, TASK_N };

struct st_writer {
    struct file_out out;
    bool hashed;     /* set if the caller asks for digests */
    bool of_tensors; /* set if the caller also asks for the digest of tensors */
    struct sha256 file, tensors;
    struct err e; /* the error of TASK_WRITE; it is set before rc */
    struct st_task task[TASK_N];
    pthread_mutex_t lock; /* guards all members below, and the member `done` of each task that
                           * has a thread */
    pthread_cond_t moved;
    struct st_piece piece[PIECES];
    int64_t n; /* number of pieces that put_piece has added */
    bool ended;
    int rc;
};

static int take_hash(struct st_writer *w, const struct st_piece *p)
{
    if (!w->hashed) return 0;
    if (p->of_tensor && w->of_tensors)
        sha256_add_two(&w->file, &w->tensors, p->at, (size_t)p->size);
    else
        sha256_add(&w->file, p->at, (size_t)p->size);
    return 0;
}

/* Writes a piece, unless an earlier piece could not be written. */
static int take_write(struct st_writer *w, const struct st_piece *p)
{
    return w->rc ? w->rc : file_out_add(&w->out, p->at, (size_t)p->size, &w->e);
}

static void *task_main(void *arg)
{
    struct st_task *t = arg;
    struct st_writer *w = t->w;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (t->done == w->n && !w->ended) pthread_cond_wait(&w->moved, &w->lock);
        if (t->done == w->n) break;
        const struct st_piece p = w->piece[t->done % PIECES];
        pthread_mutex_unlock(&w->lock);
        const int rc = t->take(w, &p);
        pthread_mutex_lock(&w->lock);
        if (rc) w->rc = rc;
        t->done++;
        pthread_cond_broadcast(&w->moved);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Starts the threads of the tasks with all signals blocked, so that the caller's thread gets the
 * signals. If a thread does not start, the caller does the work of its task. */
static void tasks_start(struct st_writer *w)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (struct st_task *t = w->task; t < w->task + TASK_N; t++) {
        t->done = w->n;
        t->runs = thread_start(&t->thread, NULL, task_main, t, NULL) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Waits until the tasks have processed the last piece, and ends the tasks. */
static int tasks_end(struct st_writer *w, struct err *e)
{
    pthread_mutex_lock(&w->lock);
    w->ended = true;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    for (struct st_task *t = w->task; t < w->task + TASK_N; t++)
        if (t->runs) pthread_join(t->thread, NULL);
    if (w->rc && e) *e = w->e;
    return w->rc;
}

/* Returns true if there is a task that has not yet processed the piece whose place the next
 * piece needs. */
static bool is_full(const struct st_writer *w)
{
    for (const struct st_task *t = w->task; t < w->task + TASK_N; t++)
        if (t->runs && w->n - t->done == PIECES) return true;
    return false;
}

/* Waits until there is a place for the next piece. If an earlier piece could not be written,
 * fails with the error of that piece. */
static int wait_place(struct st_writer *w, struct err *e)
{
    pthread_mutex_lock(&w->lock);
    while (!w->rc && is_full(w)) pthread_cond_wait(&w->moved, &w->lock);
    const int rc = w->rc;
    pthread_mutex_unlock(&w->lock);
    if (rc && e) *e = w->e;
    return rc;
}

/* Adds a piece for all tasks. Call wait_place before each call. */
static int put_piece(struct st_writer *w, const struct st_piece *p, struct err *e)
{
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    w->piece[w->n++ % PIECES] = *p;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    for (struct st_task *t = w->task; t < w->task + TASK_N && !rc; t++)
        if (!t->runs) rc = t->take(w, p);
    if (rc && e) *e = w->e;
    return rc;
}

/* ---- a file ---------------------------------------------------------------------------------- */

static int write_header(struct st_writer *w, const struct st_out *const *items, int n,
                        struct err *e)
{
    int64_t len = header_json(items, n, NULL, 0), padded = (len + 7) / 8 * 8;
    uint8_t head[8];
    char *text = malloc((size_t)padded + 1);
    if (!text) return err_set(e, ERR_IO, "%s: out of memory", w->out.path);
    header_json(items, n, text, (size_t)len + 1);
    memset(text + len, ' ', (size_t)(padded - len));
    for (int i = 0; i < 8; i++) head[i] = (uint8_t)((uint64_t)padded >> 8 * i);
    int64_t all = 8 + padded;
    for (int i = 0; i < n; i++) all += size_of(items[i]);
    int rc = file_out_expect(&w->out, all, e);
    if (rc == 0) rc = put_piece(w, &(struct st_piece){head, 8, false}, e);
    if (rc == 0) rc = put_piece(w, &(struct st_piece){text, padded, false}, e);
    free(text);
    return rc;
}

/* Writes a tensor piece by piece, so that all tasks share one pass over memory. If the tensor has
 * no data, o->read fills a piece in `room`. */
static int write_tensor(struct st_writer *w, const struct st_out *o, char *room, struct err *e)
{
    const int64_t unit = st_dtype_size(o->dtype), count = size_of(o) / unit;
    for (int64_t at = 0; at < count; at += ST_CHUNK) {
        const int64_t n = count - at < ST_CHUNK ? count - at : ST_CHUNK;
        if (wait_place(w, e) < 0) return -1;
        char *to = room + w->n % PIECES * PIECE_SIZE;
        if (!o->data && o->read(o->arg, at, n, to, e) < 0) return -1;
        const struct st_piece p = {o->data ? (const char *)o->data + at * unit : to, n * unit,
                                   !o->passed};
        if (put_piece(w, &p, e) < 0) return -1;
    }
    return 0;
}

static int write_tensors(struct st_writer *w, const struct st_out *const *items, int n, char *room,
                         struct err *e)
{
    int rc = 0;
    if (w->hashed) tasks_start(w);
    for (int i = 0; rc == 0 && i < n; i++) rc = write_tensor(w, items[i], room, e);
    return tasks_end(w, rc == 0 ? e : NULL) < 0 ? -1 : rc;
}

static int write_all(struct st_writer *w, const struct st_out *const *items, int n, struct err *e)
{
    char *room = malloc((size_t)PIECES * PIECE_SIZE);
    int rc = room ? 0 : err_set(e, ERR_IO, "%s: out of memory", w->out.path);
    if (rc == 0) rc = write_header(w, items, n, e);
    if (rc == 0) rc = write_tensors(w, items, n, room, e);
    free(room);
    return rc == 0 ? file_out_close(&w->out, NULL, e) : rc;
}

static int write_file(struct st_writer *w, const char *path, const struct st_out *const *items,
                      int n, struct err *e)
{
    char tmp[FILE_PATH_SIZE];
    if (file_join(tmp, e, "%s.tmp", path) < 0 || file_out_open(&w->out, tmp, e) < 0) return -1;
    w->out.unhashed = true; /* st_writer itself hashes the file if digests are wanted */
    if (write_all(w, items, n, e) < 0) {
        file_out_abort(&w->out);
        return -1;
    }
    if (rename(tmp, path) == 0) return 0;
    err_errno(e, "rename %s", path);
    unlink(tmp);
    return -1;
}

static void writer_init(struct st_writer *w, const struct st_digest *out)
{
    *w = (struct st_writer){.hashed = out, .of_tensors = out && out->of_tensors};
    w->task[TASK_HASH] = (struct st_task){.w = w, .take = take_hash};
    w->task[TASK_WRITE] = (struct st_task){.w = w, .take = take_write};
    sha256_init(&w->file);
    sha256_init(&w->tensors);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->moved, NULL);
}

static void writer_fini(struct st_writer *w)
{
    pthread_cond_destroy(&w->moved);
    pthread_mutex_destroy(&w->lock);
}

int st_write_hashed(const char *path, const struct st_out *items, int n, struct st_digest *out,
                    struct err *e)
{
    struct st_writer w;
    const struct st_out **sorted = calloc(n ? (size_t)n : 1, sizeof *sorted);
    if (!sorted) return err_set(e, ERR_IO, "%s: out of memory", path);
    for (int i = 0; i < n; i++) sorted[i] = &items[i];
    qsort(sorted, (size_t)n, sizeof *sorted, by_rule);
    writer_init(&w, out);
    const int rc = write_file(&w, path, sorted, n, e);
    writer_fini(&w);
    free(sorted);
    if (!out) return rc;
    sha256_hex(&w.file, out->file);
    sha256_hex(&w.tensors, out->tensors);
    out->size = w.out.size;
    return rc;
}

int st_write(const char *path, const struct st_out *items, int n, struct err *e)
{
    return st_write_hashed(path, items, n, NULL, e);
}
