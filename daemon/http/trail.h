/* trail.h: writes the rows of the audit log, and adds the answers of requests to them. The row of a
 * change is committed in the group of the change, before it (admit.h), so that one submit is one
 * commit. The status of the answer, and the object that the request made, are added later, so that
 * no request has to wait for them. The next commit of a row adds them. If there is no such commit
 * within a second, a separate commit has the rows and the statuses that wait. If seqd is killed
 * before that, a row keeps the status 0, and the row of a request that changed nothing may be
 * missing. All functions are called on the loop thread. */
#ifndef SEQD_DAEMON_HTTP_TRAIL_H
#define SEQD_DAEMON_HTTP_TRAIL_H

#include "daemon/http/http.h"
#include "daemon/loop/control.h"

struct trail;

struct trail *trail_create(struct loop *l, struct store *s);
void trail_destroy(struct trail *t); /* t may be NULL */
/* Commits the answers that are not committed yet. Answers that are given after this call are not
 * added. Must be called before store_close. */
void trail_stop(struct trail *t);
/* Commits `row`, together with the answers that are not committed yet. If may_wait is set, the row
 * waits for the next commit of the store, which is that of the change. The answer to r is added
 * later, unless `row` has a status already. */
void trail_note(struct trail *t, struct http_req *r, const struct store_audit *row, bool may_wait);
/* Call it before the log is read. `done` is called when all rows and answers so far are on disk,
 * including the rows that other commits contain. After trail_stop, `done` is called
 * immediately. */
void trail_flush(struct trail *t, store_done *done, void *arg);

#endif
