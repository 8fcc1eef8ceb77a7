/* trees.c: walks trees with openat and unlinkat on one thread, and gives results to the loop thread
 * in the order of the requests. */
#include "api/trees.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/thread.h"

#define DEPTH_MAX                                                                                  \
    32 /* largest number of levels; each has an open descriptor. A job's directory
                      * has 5 levels */

struct tree_request {
    struct tree_request *next;
    struct trees *all;
    enum { MEASURE, REMOVE, LIST } what;
    int n;
    struct tree *tree; /* owned; n entries */
    struct err err;
    trees_done *done;
    void *arg;
};

struct trees {
    struct loop *loop;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool stop;
    struct tree_request *first, **last;         /* asked */
    struct tree_request *out_first, **out_last; /* done, in order */
};

/* ---- the walk -------------------------------------------------------------------------------- */

struct tree_walk {
    const struct trees *all;
    bool remove;
    int64_t size;
    struct err *e;
};

static bool stopping(const struct trees *t)
{
    struct trees *all = (struct trees *)t;
    pthread_mutex_lock(&all->mutex);
    const bool stop = all->stop;
    pthread_mutex_unlock(&all->mutex);
    return stop;
}

static int walk_entry(struct tree_walk *w, int dir, const char *name, int depth);

static int walk_dir(struct tree_walk *w, int fd, int depth)
{
    int rc = 0;
    DIR *d = fdopendir(fd);
    if (!d) {
        err_errno(w->e, "open a directory");
        close(fd);
        return -1;
    }
    for (struct dirent *ent; !rc && (ent = readdir(d));)
        if (strcmp(ent->d_name, ".") && strcmp(ent->d_name, ".."))
            rc = walk_entry(w, dirfd(d), ent->d_name, depth + 1);
    closedir(d);
    return rc;
}

/* Measures or removes one entry. An entry that has vanished is not a failure, because a gang may
 * end while its directory is measured. */
static int walk_entry(struct tree_walk *w, int dir, const char *name, int depth)
{
    struct stat st;
    if (stopping(w->all)) return err_set(w->e, ERR_ABORTED, "the program stops");
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : err_errno(w->e, "stat %s", name);
    const bool is_dir = S_ISDIR(st.st_mode);
    if (is_dir && depth == DEPTH_MAX)
        return err_set(w->e, ERR_TOO_LARGE, "%s lies deeper than %d directories", name, DEPTH_MAX);
    if (is_dir) {
        const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) return errno == ENOENT ? 0 : err_errno(w->e, "open %s", name);
        if (walk_dir(w, fd, depth)) return -1;
    }
    w->size += (int64_t)st.st_blocks * 512;
    if (!w->remove || !unlinkat(dir, name, is_dir ? AT_REMOVEDIR : 0) || errno == ENOENT) return 0;
    return err_errno(w->e, "remove %s", name);
}

static int walk_path(const struct trees *all, const char *path, bool remove, int64_t *size,
                     struct err *e)
{
    struct tree_walk w = {.all = all, .remove = remove, .e = e};
    const int rc = walk_entry(&w, AT_FDCWD, path, 0);
    *size += w.size;
    return rc;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static int remove_tree(const struct trees *all, struct tree *t, struct err *e)
{
    char gone[FILE_PATH_SIZE];
    if (file_join(gone, e, "%s.gone", t->path) < 0 || walk_path(all, gone, true, &t->size, e))
        return -1;
    if (!rename(t->path, gone)) return walk_path(all, gone, true, &t->size, e);
    return errno == ENOENT ? 0 : err_errno(e, "rename %s", t->path);
}

static int sync_parent(const char *path, struct err *e)
{
    char dir[FILE_PATH_SIZE];
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = 0;
    return file_exists(dir) ? file_sync_dir(dir, e) : 0;
}

static void list_entry(struct tree_request *q, const char *dir, const char *name)
{
    struct stat st;
    struct tree *t = &q->tree[q->n];
    struct err e;
    *t = (struct tree){0};
    if (file_join(t->path, &e, "%s/%s", dir, name) < 0 || lstat(t->path, &st)) return;
    t->used_s = st.st_mtime;
    if (walk_path(q->all, t->path, false, &t->size, &e)) t->code = (int32_t)e.code;
    q->n++;
}

/* Replaces the directory of the request by the directory's entries. */
static void list(struct tree_request *q)
{
    char dir[FILE_PATH_SIZE];
    snprintf(dir, sizeof dir, "%s", q->tree[0].path);
    q->n = 0;
    DIR *d = opendir(dir);
    if (!d) {
        err_errno(&q->err, "open %s", dir);
        return;
    }
    if (!(q->tree = realloc(q->tree, TREES_LIST * sizeof *q->tree))) abort();
    for (struct dirent *ent; q->n < TREES_LIST && !stopping(q->all) && (ent = readdir(d));)
        if (strcmp(ent->d_name, ".") && strcmp(ent->d_name, "..")) list_entry(q, dir, ent->d_name);
    closedir(d);
}

/* Fills in the size of the disk, and the number of bytes that users other than root may still
 * write to it. */
static void look_at_disk(struct tree *t)
{
    struct statvfs v;
    t->disk_size = t->disk_free = 0;
    if (statvfs(t->path, &v)) return;
    t->disk_size = (int64_t)v.f_blocks * (int64_t)v.f_frsize;
    t->disk_free = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
}

static void run(struct tree_request *q)
{
    struct err e;
    if (q->what == LIST) {
        list(q);
        return;
    }
    const bool remove = q->what == REMOVE;
    for (int i = 0; i < q->n; i++) {
        struct tree *t = &q->tree[i];
        t->size = t->code = 0;
        if (!remove) look_at_disk(t);
        e = (struct err){0};
        if (!(remove ? remove_tree(q->all, t, &e)
                     : walk_path(q->all, t->path, false, &t->size, &e)))
            continue;
        t->code = (int32_t)e.code;
        err_prefix(&e, "%.200s", t->path);
        if (!q->err.code) q->err = e;
    }
    e = (struct err){0};
    if (!remove || !sync_parent(q->tree[0].path, &e)) return;
    for (int i = 0; i < q->n; i++) q->tree[i].code = (int32_t)e.code;
    q->err = e;
}

static void request_free(struct tree_request *q)
{
    free(q->tree);
    free(q);
}

/* Gives the answers, on the loop's thread. */
static void give_all(void *arg)
{
    struct trees *t = arg;
    pthread_mutex_lock(&t->mutex);
    struct tree_request *q = t->out_first;
    t->out_first = NULL;
    t->out_last = &t->out_first;
    pthread_mutex_unlock(&t->mutex);
    for (struct tree_request *next; q; q = next) {
        next = q->next;
        q->done(q->arg, q->tree, q->n, q->err.code ? &q->err : NULL);
        request_free(q);
    }
}

static void *thread_main(void *arg)
{
    struct trees *t = arg;
    pthread_mutex_lock(&t->mutex);
    for (;;) {
        while (!t->first && !t->stop) pthread_cond_wait(&t->wake, &t->mutex);
        if (t->stop) break;
        struct tree_request *q = t->first;
        t->first = q->next;
        if (!t->first) t->last = &t->first;
        pthread_mutex_unlock(&t->mutex);
        run(q);
        q->next = NULL;
        pthread_mutex_lock(&t->mutex);
        const bool first = !t->out_first;
        *t->out_last = q;
        t->out_last = &q->next;
        if (first && !t->stop) loop_post(t->loop, give_all, t);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void ask(struct trees *t, const struct tree *tree, int n, int what, trees_done *done,
                void *arg)
{
    struct tree_request *q = calloc(1, sizeof *q);
    assert(n >= 1 && n <= TREES_BATCH);
    if (!q || !(q->tree = malloc((size_t)n * sizeof *tree))) abort();
    memcpy(q->tree, tree, (size_t)n * sizeof *tree);
    q->all = t;
    q->what = what;
    q->n = n;
    q->done = done;
    q->arg = arg;
    pthread_mutex_lock(&t->mutex);
    *t->last = q;
    t->last = &q->next;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mutex);
}

void trees_remove(struct trees *t, const struct tree *tree, int n, trees_done *done, void *arg)
{
    ask(t, tree, n, REMOVE, done, arg);
}

void trees_measure(struct trees *t, const struct tree *tree, int n, trees_done *done, void *arg)
{
    ask(t, tree, n, MEASURE, done, arg);
}

void trees_list(struct trees *t, const struct tree *tree, trees_done *done, void *arg)
{
    ask(t, tree, 1, LIST, done, arg);
}

struct trees *trees_create(struct loop *l)
{
    struct trees *t = calloc(1, sizeof *t);
    if (!t) abort();
    t->loop = l;
    t->last = &t->first;
    t->out_last = &t->out_first;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->wake, NULL);
    thread_must_start(&t->thread, NULL, thread_main, t);
    return t;
}

static void free_all(struct tree_request *q)
{
    for (struct tree_request *next; q; q = next) {
        next = q->next;
        request_free(q);
    }
}

void trees_destroy(struct trees *t)
{
    if (!t) return;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_signal(&t->wake);
    pthread_mutex_unlock(&t->mutex);
    pthread_join(t->thread, NULL);
    free_all(t->first);
    free_all(t->out_first);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}
