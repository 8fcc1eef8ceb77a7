/* disk.c: asks the thread of trees.h at intervals to measure the directories of jobs and of
 * prepared data. */
#include "worker/agent/disk.h"

#include <stdio.h>
#include <stdlib.h>
#include "api/core/log.h"

struct disk_watch {
    struct trees *trees;
    struct loop_timer *timer;
    char dir[FILE_PATH_SIZE - 16];
    struct disk_use use;
};

/* Stores the sizes of the directories. A directory that could not be read is not counted. */
static void on_measured(void *arg, const struct tree *t, int n, const struct err *e)
{
    struct disk_watch *d = arg;
    if (e) log_warn("disk.measure", "why=\"%s\"", e->text);
    d->use = (struct disk_use){t[0].size, t[1].size, t[0].disk_size, t[0].disk_free};
    if (d->use.free > d->use.size) d->use.free = d->use.size;
    loop_timer_set(d->timer, DISK_MEASURE_MS);
}

static void measure(void *arg)
{
    struct disk_watch *d = arg;
    struct tree t[2] = {{.id = 0}, {.id = 1}};
    snprintf(t[0].path, sizeof t[0].path, "%s/jobs", d->dir);
    snprintf(t[1].path, sizeof t[1].path, "%s/prepared", d->dir);
    trees_measure(d->trees, t, 2, on_measured, d);
}

struct disk_watch *disk_watch_create(struct loop *l, struct trees *t, const char *dir)
{
    struct disk_watch *d = calloc(1, sizeof *d);
    if (!d) abort();
    d->trees = t;
    snprintf(d->dir, sizeof d->dir, "%s", dir);
    d->timer = loop_timer_create(l, measure, d);
    loop_timer_set(d->timer, 0);
    return d;
}

void disk_watch_destroy(struct disk_watch *d)
{
    if (!d) return;
    loop_timer_destroy(d->timer);
    free(d);
}

struct disk_use disk_watch_use(const struct disk_watch *d)
{
    return d->use;
}
