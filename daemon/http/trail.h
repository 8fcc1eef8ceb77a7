/* trail.h: how the requests were answered that the audit log has a row of. A row is written before
 * its change is made (admit.h); the status of the answer, and the object that it made, follow in
 * the log's next commit, or within a second in one of their own, so that no request waits for them.
 * A row that seqd was killed before keeps the status 0. Loop thread. */
#ifndef SEQD_DAEMON_HTTP_TRAIL_H
#define SEQD_DAEMON_HTTP_TRAIL_H

#include "daemon/http/http.h"
#include "daemon/loop/control.h"

struct trail;

struct trail *trail_create(struct loop *l, struct store *s);
void trail_destroy(struct trail *t); /* NULL allowed */
/* Writes the answers that wait; answers from here on are not noted. Call it before store_close. */
void trail_stop(struct trail *t);
/* Commits row, with the answers that wait; the answer to r will follow unless row has a status. */
void trail_note(struct trail *t, struct http_req *r, const struct store_audit *row);
/* Flushes before the log is read: done is called, now or later, when the answers that waited are on
 * disk. */
void trail_flush(struct trail *t, store_done *done, void *arg);

#endif
