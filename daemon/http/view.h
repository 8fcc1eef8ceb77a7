/* view.h: the state of a GET about jobs while the reader thread works on it. The files that answer
 * such requests use it. */
#ifndef SEQD_DAEMON_HTTP_VIEW_H
#define SEQD_DAEMON_HTTP_VIEW_H

#include <stdlib.h>
#include <string.h>
#include "api/core/job_state.h"
#include "api/core/jwrite.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"

struct view {
    struct routes *R;
    struct http_req *r;
    int64_t id, limit;
    struct principal who;
    char owner[USER_NAME]; /* owner of the jobs that are listed, or "" for all owners */
    int status;            /* status of the reply that shows a job */
    char *tags;            /* owns; the text of ASK_TAGGED, or NULL for other queries */
    bool counts;           /* the page also has the number of live jobs of other users */
    int64_t others[JOB_STATE_N];
    bool known; /* the job exists */
    void (*page)(struct view *v, struct jwrite *w, const struct store_row *row);
    enum store_ask ask;
    int64_t n[4];
    int64_t offset; /* position in a log */
    int32_t rank;
};

/* Begins a view of the job or list that the request names, with status 200. */
struct view *view_of(struct routes *R, struct http_req *r, const struct route_match *a);
/* Answers and ends a view whose query failed. Returns false if it has not failed. */
bool view_refuse(struct view *v, const struct err *failed);
/* Asks the store for v->ask, of v->tags or of v->owner. Frees the tags. */
void view_ask(struct view *v, store_answer *answer);
/* Asks the store for the job v->id. */
void view_ask_job(struct view *v, store_answer *answer);

#endif
