/* images.h: stores the images of jobs that wait (job_image.h), some hundred in a commit, so that
 * the next start of seqd is fast even after a kill. */
#ifndef SEQD_DAEMON_LOOP_IMAGES_H
#define SEQD_DAEMON_LOOP_IMAGES_H

#include "daemon/loop/commit.h"

/* A job gets its image when it has waited for this time. Most jobs start before. */
#define IMAGES_AFTER_MS 10000
/* Buckets of the table of jobs in a commit. The table has 0.5 to 2 jobs a bucket, and an image has
 * less than 1 KiB. */
#define IMAGES_BUCKETS 512

/* Begins with zeros. */
struct images {
    int bucket;  /* position in the table of jobs */
    bool writes; /* a commit of images is under way */
};

/* Looks at some jobs, and stores the images that they lack. Call it once a second. */
void images_tick(struct images *m, struct commits *all);

#endif
