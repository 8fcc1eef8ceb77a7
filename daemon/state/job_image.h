/* job_image.h: a job that waits for its first run, as bytes. A start of seqd reads these bytes in
 * microseconds, where to read the job's spec and to fold its events again takes some hundred.
 *
 * An image is a copy of the fold, which is the truth. It has the build id of its program, and no
 * other program reads it, so it needs no versions: a changed struct, fold or rule of specs is
 * another build. */
#ifndef SEQD_DAEMON_STATE_JOB_IMAGE_H
#define SEQD_DAEMON_STATE_JOB_IMAGE_H

#include "daemon/state/jobs.h"

/* Returns the image of the job, malloc'd. Returns NULL if the job has none: only jobs that have
 * never run, have not failed, and whose spec rests (job_rest) have images. */
uint8_t *job_image_write(const struct job *j, size_t *size);
/* Returns the job, as a replay of its events would make it. Returns NULL if another program wrote
 * the image, if it is of another job, or if it is damaged. */
struct job *job_image_read(int64_t id, const uint8_t *image, size_t size);

#endif
