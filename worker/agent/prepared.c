/* prepared.c: lists prepared data once a minute, and chooses the data to remove by the time of
 * their last use. It renames these data on the loop thread. The thread of trees.h makes the
 * list and removes the data. */
#include "worker/agent/prepared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include "api/core/log.h"
#include "api/core/rank.h"

struct prepared {
    struct trees *trees;
    struct loop_timer *timer;
    char dir[FILE_PATH_SIZE - 128];
    struct prepared_policy policy;
    bool shared;
    struct prepared_calls calls;
    void *arg;
};

/* ---- the policy ------------------------------------------------------------------------------ */

static int read_word(struct prepared_policy *p, const char *text, size_t size)
{
    char *end;
    const long long n = strtoll(text, &end, 10);
    const int shift = *end == 'M' ? 20 : *end == 'G' ? 30 : *end == 'T' ? 40 : 0;
    const int64_t unit = *end == 's' ? 1 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;
    if (end + 1 != text + size || n < 1 || n > 1000000) return -1;
    if (*end == '%' && n <= 100)
        p->percent = (int)n;
    else if (shift)
        p->size = n << shift;
    else if (unit)
        p->age_s = n * unit;
    else
        return -1;
    return 0;
}

int prepared_policy_read(struct prepared_policy *p, const char *text, struct err *e)
{
    const char *comma = strchr(text, ',');
    *p = (struct prepared_policy){0};
    if (!strcmp(text, "never")) return 0;
    if (!read_word(p, text, comma ? (size_t)(comma - text) : strlen(text)) &&
        (!comma || !read_word(p, comma + 1, strlen(comma + 1))))
        return 0;
    return err_set(e, ERR_INVALID,
                   "--keep-prepared %.40s: want a size (500M, 200G, 2T, 20%%), an age (12h, 30d), "
                   "both with a comma, or never",
                   text);
}

static int by_use(const void *a, const void *b)
{
    const struct prepared_entry *x = a, *y = b;
    return x->used_s < y->used_s ? -1 : x->used_s > y->used_s;
}

int prepared_pick(struct prepared_entry *list, int n, int64_t size, int64_t age_s, int64_t now_s)
{
    int64_t all = 0;
    int n_gone = 0;
    if (n) qsort(list, (size_t)n, sizeof *list, by_use);
    for (int i = 0; i < n; i++) all += list[i].size;
    for (int i = 0; i < n; i++) {
        const bool old = age_s && now_s - list[i].used_s > age_s, many = size && all > size;
        list[i].goes = !list[i].in_use && (old || many);
        if (!list[i].goes) continue;
        all -= list[i].size;
        n_gone++;
    }
    return n_gone;
}

/* ---- once a minute --------------------------------------------------------------------------- */

static int64_t utc_s(const struct prepared *p)
{
    return p->calls.utc_s ? p->calls.utc_s() : (int64_t)time(NULL);
}

static int64_t limit_size(const struct prepared *p)
{
    struct statvfs v;
    if (p->policy.size || !p->policy.percent || statvfs(p->dir, &v)) return p->policy.size;
    return (int64_t)(v.f_blocks * v.f_frsize) / 100 * p->policy.percent;
}

static void again(struct prepared *p)
{
    loop_timer_set(p->timer, PREPARED_SWEEP_MS);
}

static void on_removed(void *arg, const struct tree *t, int n, const struct err *e)
{
    if (e) log_warn("prepared.remove", "why=\"%s\"", e->text);
}

/* Returns true if the name is "<id>.gone". After a crash such a directory may be left. */
static bool is_gone(const char *name, char id[PREPARED_ID])
{
    const size_t n = strlen(name);
    if (n < 6 || n - 5 >= PREPARED_ID || strcmp(name + n - 5, ".gone")) return false;
    snprintf(id, PREPARED_ID, "%.*s", (int)(n - 5), name);
    return rank_prepared_id_good(id);
}

/* Renames the data. After that no attempt can begin to use them. */
static bool hide(const struct prepared *p, const char *id)
{
    char path[FILE_PATH_SIZE], gone[FILE_PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", p->dir, id);
    snprintf(gone, sizeof gone, "%s/%s.gone", p->dir, id);
    return !rename(path, gone);
}

/* Removes data that nodes share, unless a node has begun to use them since they were listed. They
 * get a name of their own first, because another node may make data of this id again at once. */
static void remove_shared(struct prepared *p, const char *id)
{
    char path[FILE_PATH_SIZE];
    struct tree t = {0};
    struct stat st;
    uint64_t drawn = 0;
    snprintf(path, sizeof path, "%s/%s", p->dir, id);
    if (lstat(path, &st) || utc_s(p) - st.st_mtime < PREPARED_RECENT_S ||
        getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn)
        return;
    snprintf(t.path, sizeof t.path, "%s/%s%016llx", p->dir, id, (unsigned long long)drawn);
    if (!rename(path, t.path)) trees_remove(p->trees, &t, 1, on_removed, p);
}

static void remove_id(struct prepared *p, const char *id)
{
    struct tree t = {0};
    snprintf(t.path, sizeof t.path, "%s/%s", p->dir, id);
    trees_remove(p->trees, &t, 1, on_removed, p);
}

static void remove_picked(struct prepared *p, const struct prepared_entry *list, int n)
{
    for (int i = 0; i < n; i++) {
        if (!list[i].goes) continue;
        if (p->shared) {
            remove_shared(p, list[i].id);
            continue;
        }
        if (!hide(p, list[i].id)) continue;
        log_info("prepared.remove", "id=%s size=%lld unused_s=%lld", list[i].id,
                 (long long)list[i].size, (long long)(utc_s(p) - list[i].used_s));
        remove_id(p, list[i].id);
    }
}

/* Tells whether the data may be in use, here or on another node. */
static bool is_used(struct prepared *p, const char *id, int64_t used_s)
{
    const bool here = p->calls.in_use(p->arg, id);
    if (!p->shared) return here;
    if (here) prepared_use(p, id); /* for the other nodes */
    return here || utc_s(p) - used_s < PREPARED_RECENT_S;
}

static void on_list(void *arg, const struct tree *t, int n, const struct err *e)
{
    struct prepared *p = arg;
    struct prepared_entry *list = calloc((size_t)n + 1, sizeof *list);
    int k = 0;
    if (!list) abort();
    if (e) log_warn("prepared.list", "why=\"%s\"", e->text);
    for (int i = 0; i < n; i++) {
        const char *name = strrchr(t[i].path, '/') + 1;
        char id[PREPARED_ID];
        if (is_gone(name, id)) {
            /* the rest of a removal by remove_shared has an id that no data have */
            if (!p->calls.in_use(p->arg, id)) remove_id(p, id);
            continue;
        }
        if (strlen(name) >= PREPARED_ID || !rank_prepared_id_good(name) || t[i].code) continue;
        snprintf(list[k].id, sizeof list[k].id, "%s", name);
        list[k].size = t[i].size;
        list[k].used_s = t[i].used_s;
        list[k++].in_use = is_used(p, name, t[i].used_s);
    }
    if (prepared_pick(list, k, limit_size(p), p->policy.age_s, utc_s(p))) remove_picked(p, list, k);
    free(list);
    again(p);
}

static void sweep(void *arg)
{
    struct prepared *p = arg;
    struct tree t = {0};
    snprintf(t.path, sizeof t.path, "%s", p->dir);
    trees_list(p->trees, &t, on_list, p);
}

void prepared_use(struct prepared *p, const char *id)
{
    char path[FILE_PATH_SIZE];
    if (!*id) return;
    snprintf(path, sizeof path, "%s/%s", p->dir, id);
    /* if the data are not on this node yet, the call fails, and the failure is ignored */
    utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
}

struct prepared *prepared_create(struct loop *l, struct trees *t, const char *dir,
                                 const struct prepared_policy *policy, bool shared,
                                 const struct prepared_calls *calls, void *arg)
{
    struct prepared *p = calloc(1, sizeof *p);
    if (!p) abort();
    p->trees = t;
    snprintf(p->dir, sizeof p->dir, "%s", dir);
    p->policy = *policy;
    p->shared = shared;
    p->calls = *calls;
    p->arg = arg;
    p->timer = loop_timer_create(l, sweep, p);
    again(p);
    return p;
}

void prepared_destroy(struct prepared *p)
{
    if (!p) return;
    loop_timer_destroy(p->timer);
    free(p);
}
