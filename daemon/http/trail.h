/* trail.h: completes rows of the audit log with the answers of their requests. A row is written
 * before its change is made (admit.h). The status of the answer, and the object that it made,
 * follow in the log's next commit, or within a second in a commit of their own. So no request
 * waits for them. A row keeps the status 0 if seqd is killed before that. Loop thread. */
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
/* Flushes the log before it is read. done is called when all rows and answers noted so far are on
 * disk, also those that other commits carry; after trail_stop it is called at once. */
void trail_flush(struct trail *t, store_done *done, void *arg);

#endif
