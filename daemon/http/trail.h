/* trail.h: completes rows of the audit log with the answers to their requests. A row is written
 * before its change is made (admit.h). The status of the answer, and the object that the request
 * made, are added later, so that no request has to wait for them. The next commit of the log adds
 * them; if there is none within a second, a separate commit does. If seqd is killed before that,
 * the row keeps the status 0. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_HTTP_TRAIL_H
#define SEQD_DAEMON_HTTP_TRAIL_H

#include "daemon/http/http.h"
#include "daemon/loop/control.h"

struct trail;

struct trail *trail_create(struct loop *l, struct store *s);
void trail_destroy(struct trail *t); /* t may be NULL */
/* Commits the statuses of answers that are not committed yet. An answer that is given after this
 * call is not noted. Must be called before store_close. */
void trail_stop(struct trail *t);
/* Commits row, together with the statuses of answers that are not committed yet. The answer to r
 * will be added later, unless row has a status already. */
void trail_note(struct trail *t, struct http_req *r, const struct store_audit *row);
/* Flushes the log before it is read. done is called when all rows and answers that have been noted
 * so far are on disk, including those that other commits carry. After trail_stop it is called at
 * once. */
void trail_flush(struct trail *t, store_done *done, void *arg);

#endif
