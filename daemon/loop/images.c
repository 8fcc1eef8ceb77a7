/* images.c: walks over the table of jobs, a part in each tick. */
#include "daemon/loop/images.h"

#include "daemon/state/job_image.h"

struct image_walk {
    struct commits *all;
    struct store_txn *t; /* NULL without an image */
    int64_t before_ms;
};

static void look(void *arg, struct job *j)
{
    struct image_walk *w = arg;
    size_t size;
    if (j->imaged == j->seq || j->created_ms > w->before_ms) return;
    uint8_t *image = job_image_write(j, &size);
    if (!image) return;
    if (!w->t) w->t = store_begin();
    store_image_set(w->t, j->id, j->seq, image, size);
    j->imaged = j->seq;
}

static void on_stored(void *arg, const struct err *e)
{
    struct images *m = arg;
    m->writes = false;
}

void images_tick(struct images *m, struct commits *all)
{
    struct image_walk w = {.all = all, .before_ms = all->utc_ms() - IMAGES_AFTER_MS};
    if (m->writes || store_full(all->store)) return;
    jobs_each_some(&all->cluster->jobs, &m->bucket, IMAGES_BUCKETS, look, &w);
    if (!w.t) return;
    m->writes = true;
    store_client(w.t, NULL); /* withdrawn without harm while the disk is full */
    store_commit(all->store, w.t, on_stored, m);
}
