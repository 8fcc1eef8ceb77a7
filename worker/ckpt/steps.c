/* steps.c: parses names of checkpoint directories, sorts the directories so that the newest
 * comes first, replaces the link `best`, and prunes. A directory is renamed before it is
 * removed. */
#include "worker/ckpt/steps.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/manifest.h"

/* ---- names ----------------------------------------------------------------------------------- */

static bool parse_number(const char **at, int64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9') return false;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return !errno;
}

bool steps_parse(const char *name, enum step_dir_kind *kind, int64_t *step, int64_t *epoch)
{
    int64_t n = -1;
    if (strncmp(name, "step-", 5)) return false;
    name += 5;
    if (!parse_number(&name, step)) return false;
    *kind = !*name ? STEP_WHOLE : !strcmp(name, ".bad") ? STEP_BAD : STEP_TMP;
    if (*kind == STEP_TMP) {
        if (strncmp(name, ".e", 2)) return false;
        name += 2;
        if (!parse_number(&name, &n) || strcmp(name, ".tmp")) return false;
    }
    if (epoch) *epoch = n;
    return true;
}

/* ---- listing --------------------------------------------------------------------------------- */

enum { MAX_STEPS = 65536 };

static int newest_first(const void *a, const void *b)
{
    const struct step_dir *x = a, *y = b;
    return (x->step < y->step) - (x->step > y->step);
}

struct list {
    struct step_dir *dir;
    int n, room;
};

static int list_add(struct list *l, const struct step_dir *d, const char *parent, struct err *e)
{
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 32;
        void *more = l->room > MAX_STEPS ? NULL : realloc(l->dir, (size_t)l->room * sizeof *l->dir);
        if (!more) return err_set(e, ERR_TOO_LARGE, "%s holds too many checkpoints", parent);
        l->dir = more;
    }
    l->dir[l->n++] = *d;
    return 0;
}

static int take(struct list *l, const char *parent, const char *name,
                const struct steps_aside *aside, struct err *e)
{
    char path[FILE_PATH_SIZE];
    enum step_dir_kind kind;
    struct step_dir d;
    if (!steps_parse(name, &kind, &d.step, &d.epoch)) return 0;
    snprintf(d.name, sizeof d.name, "%.63s", name);
    if (kind == STEP_WHOLE) return list_add(l, &d, parent, e);
    if (!aside) return 0;
    if (file_join(path, e, "%s/%s", parent, name) < 0) return -1;
    return aside->call(aside->arg, kind, &d, path, e);
}

int steps_list(const char *dir, const struct steps_aside *aside, struct step_dir **out, int *n,
               struct err *e)
{
    DIR *d = opendir(dir);
    struct list l = {0};
    struct dirent *ent;
    int rc = 0;
    *out = NULL;
    *n = 0;
    if (!d) return errno == ENOENT ? 0 : err_errno(e, "open %s", dir);
    while (rc == 0 && (ent = readdir(d))) rc = take(&l, dir, ent->d_name, aside, e);
    closedir(d);
    if (rc < 0) {
        free(l.dir);
        return rc;
    }
    if (l.n) qsort(l.dir, (size_t)l.n, sizeof *l.dir, newest_first);
    *out = l.dir;
    *n = l.n;
    return 0;
}

/* ---- the best -------------------------------------------------------------------------------- */

int ckpt_mark_best(const char *job_dir, int64_t step, struct err *e)
{
    char dir[FILE_PATH_SIZE], link[FILE_PATH_SIZE], tmp[FILE_PATH_SIZE], to[64];
    snprintf(to, sizeof to, MANIFEST_STEP, (long long)step);
    if (file_join(dir, e, "%s/checkpoints", job_dir) < 0 ||
        file_join(link, e, "%s/best", dir) < 0 || file_join(tmp, e, "%s/best.tmp", dir) < 0)
        return -1;
    if (file_remove(tmp, e) < 0) return -1;
    if (symlink(to, tmp) < 0) return err_errno(e, "make %s", tmp);
    if (rename(tmp, link) < 0) return err_errno(e, "rename %s", link);
    return file_sync_dir(dir, e);
}

int64_t ckpt_best(const char *job_dir)
{
    char link[FILE_PATH_SIZE], manifest[FILE_PATH_SIZE], to[64];
    enum step_dir_kind kind;
    int64_t step;
    if (file_join(link, NULL, "%s/checkpoints/best", job_dir) < 0 ||
        file_join(manifest, NULL, "%s/MANIFEST.json", link) < 0)
        return -1;
    const ssize_t n = readlink(link, to, sizeof to - 1);
    if (n <= 0) return -1;
    to[n] = 0;
    if (!steps_parse(to, &kind, &step, NULL) || kind != STEP_WHOLE) return -1;
    return file_exists(manifest) ? step : -1;
}

/* ---- pruning --------------------------------------------------------------------------------- */

struct pruning {
    int64_t epoch;
    int64_t newest; /* newest complete step; -1 if there is none */
};

/* Removes a checkpoint. It is renamed first, so that only a .tmp directory remains if the
 * process is killed during the removal. */
static int remove_step(const char *path, struct err *e)
{
    char gone[FILE_PATH_SIZE];
    if (file_join(gone, e, "%s.e0.tmp", path) < 0 || file_remove(gone, e) < 0) return -1;
    if (rename(path, gone) < 0) return err_errno(e, "rename %s", path);
    return file_remove(gone, e);
}

static int remove_aside(void *arg, enum step_dir_kind kind, const struct step_dir *d,
                        const char *path, struct err *e)
{
    const struct pruning *p = arg;
    const bool old = kind == STEP_TMP ? d->epoch < p->epoch : d->step <= p->newest;
    return old ? file_remove(path, e) : 0;
}

static bool complete(const char *dir, const struct step_dir *d, char path[FILE_PATH_SIZE])
{
    struct manifest m;
    if (file_join(path, NULL, "%s/%s", dir, d->name) < 0) return false;
    return manifest_check(&m, path, MANIFEST_SIZES, NULL) == 0 && m.step == d->step;
}

static int prune_listed(const char *dir, const struct step_dir *steps, int n,
                        const struct ckpt_keep *keep, int64_t best, struct pruning *p,
                        struct err *e)
{
    char path[FILE_PATH_SIZE];
    int n_complete = 0;
    for (int i = 0; i < n; i++) {
        if (!complete(dir, &steps[i], path)) continue;
        if (p->newest < 0) p->newest = steps[i].step;
        if (++n_complete <= keep->newest || n_complete == 1 || steps[i].step == best ||
            (keep->every > 0 && steps[i].step % keep->every == 0))
            continue;
        if (keep->removing && keep->removing(keep->arg, steps[i].step, path, e)) return -1;
        if (remove_step(path, e) < 0) return -1;
    }
    return 0;
}

int ckpt_prune(const char *job_dir, const struct ckpt_keep *keep, int64_t epoch, struct err *e)
{
    char dir[FILE_PATH_SIZE];
    struct step_dir *steps;
    struct pruning p = {.epoch = epoch, .newest = -1};
    const struct steps_aside aside = {remove_aside, &p};
    int n;
    if (file_join(dir, e, "%s/checkpoints", job_dir) < 0) return -1;
    if (steps_list(dir, NULL, &steps, &n, e) < 0) return -1;
    int rc = prune_listed(dir, steps, n, keep, ckpt_best(job_dir), &p, e);
    free(steps);
    if (rc < 0 || steps_list(dir, &aside, &steps, &n, e) < 0) return -1;
    free(steps);
    return 0;
}
