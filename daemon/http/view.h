/* view.h: a GET about jobs while the reader thread works on it; used by the files that answer
 * it. */
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
    char *tags;            /* owns; the text of ASK_TAGGED, else NULL */
    bool counts;           /* the page also tells how many jobs of other users are live */
    int64_t others[JOB_STATE_N];
    bool known; /* the job exists */
    void (*page)(struct view *v, struct jwrite *w, const struct store_row *row);
    enum store_ask ask;
    int64_t n[4];
    int64_t offset; /* position in a log */
    int32_t rank;
};

static inline struct view *view_of(struct routes *R, struct http_req *r,
                                   const struct route_match *a)
{
    struct view *v = calloc(1, sizeof *v);
    if (!v) abort();
    v->R = R;
    v->r = r;
    v->id = a->id;
    v->who = a->who;
    v->status = 200;
    return v;
}

/* Answers and ends a view whose query failed. */
static inline bool refuse_view(struct view *v, const struct err *failed)
{
    if (!failed) return false;
    reply_fail(v->r, failed);
    free(v->tags);
    free(v);
    return true;
}

static inline void ask_store(struct view *v, store_answer *answer)
{
    const char *owner = *v->owner ? v->owner : NULL;
    store_read(control_store(v->R->control), v->ask, v->n, v->tags ? v->tags : owner, answer, v);
    free(v->tags);
    v->tags = NULL;
}

static inline void ask_job(struct view *v, store_answer *answer)
{
    v->ask = ASK_JOB;
    memcpy(v->n, (const int64_t[4]){v->id}, sizeof v->n);
    ask_store(v, answer);
}

#endif
