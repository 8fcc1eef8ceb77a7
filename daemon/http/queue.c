/* queue.c: GET /v1/queue, the jobs that wait, in the order of the last scheduling pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/jwrite.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "daemon/state/attempt.h"
#include "daemon/state/doc.h"

enum { LIMIT_NORMAL = 100, LIMIT_MOST = 1000 };

/* A page of the queue. Its text is written at once, and sent when all that it shows is on disk. */
struct queue_page {
    struct routes *R;
    struct http_req *r;
    const char *owner;   /* the user whose jobs are shown; NULL shows all jobs */
    int64_t limit, from; /* the page begins after this position */
    int64_t n_rows, n_all, last;
    bool more;
    size_t room;
    char *text; /* owns */
};

/* Tells whether the job waits in the committed state. */
static bool waits(const struct job *j)
{
    return j->state == JOB_QUEUED || (j->attempt && !attempt_shown(j));
}

static void put_reason(struct jwrite *w, const struct job *j)
{
    if (!*j->reason_code) {
        jwrite_null(w, "reason");
        return;
    }
    jwrite_object(w, "reason");
    jwrite_str(w, "code", j->reason_code);
    jwrite_str(w, "text", j->reason);
    jwrite_end(w);
}

static void put_job(struct jwrite *w, struct job *j, int64_t position, int64_t starts_ms)
{
    const bool rests = !j->spec;
    const struct job_spec *s = job_spec(j);
    jwrite_object(w, NULL);
    jwrite_int(w, "position", position);
    jwrite_int(w, "id", j->id);
    jwrite_str(w, "name", spec_text(s, s->name));
    jwrite_str(w, "kind", spec_kind_name(s->kind));
    if (*j->owner)
        jwrite_str(w, "owner", j->owner);
    else
        jwrite_null(w, "owner");
    jwrite_int(w, "priority", s->priority);
    jwrite_int(w, "ranks", s->resources.ranks);
    jwrite_str(w, "device", spec_text(s, s->resources.device));
    doc_put_time(w, "created_at", j->created_ms);
    doc_put_time(w, "predicted_start", starts_ms);
    put_reason(w, j);
    jwrite_end(w);
    if (rests) job_rest(j);
}

/* Returns the bytes that a job may take in the answer: 512 for its numbers and keys, and six for
 * each byte of its texts. */
static size_t row_size(const struct job *j)
{
    return 512 + 6 * (strlen(j->reason) + sizeof j->owner + 256);
}

static void sent(void *arg, const struct err *e)
{
    struct queue_page *p = arg;
    if (e)
        reply_fail(p->r, e);
    else
        reply_json(p->r, 200, p->text);
    free(p->text);
    free(p);
}

/* Returns the number of jobs before the page that are shown, and the size of its text. */
static size_t measure(const struct queue_page *p)
{
    const struct control *c = p->R->control;
    size_t size = 512;
    int64_t id, position = 0, n = 0;
    for (int i = 0; (id = control_queued(c, i)) && n < p->limit; i++) {
        const struct job *j = control_job(c, id);
        if (!j || !waits(j) || ++position <= p->from) continue;
        if (p->owner && strcmp(p->owner, j->owner)) continue;
        size += row_size(j);
        n++;
    }
    return size;
}

static void write_rows(struct queue_page *p, struct jwrite *w)
{
    struct control *c = p->R->control;
    int64_t id;
    for (int i = 0; (id = control_queued(c, i)); i++) {
        struct job *j = jobs_find(&control_commits(c)->cluster->jobs, id);
        if (!j || !waits(j)) continue;
        const bool shown = ++p->n_all > p->from && (!p->owner || !strcmp(p->owner, j->owner));
        if (shown && p->n_rows == p->limit) p->more = true;
        if (!shown || p->n_rows == p->limit) continue;
        put_job(w, j, p->n_all, control_predicted_ms(c, id));
        p->last = p->n_all;
        p->n_rows++;
    }
}

static void write_page(struct queue_page *p)
{
    char next[32];
    struct jwrite w;
    const size_t size = measure(p);
    if (!(p->text = malloc(size))) abort();
    jwrite_init(&w, p->text, size);
    jwrite_object(&w, NULL);
    jwrite_array(&w, "data");
    write_rows(p, &w);
    jwrite_end(&w);
    snprintf(next, sizeof next, "%lld", (long long)p->last);
    if (p->more)
        jwrite_str(&w, "next_cursor", next);
    else
        jwrite_null(&w, "next_cursor");
    jwrite_bool(&w, "has_more", p->more);
    jwrite_int(&w, "waiting", p->n_all);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
}

/* Shows the queue. An operator sees all jobs that wait. Every other user sees the user's own jobs,
 * with their positions among all. */
void route_queue(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct queue_page *p = calloc(1, sizeof *p);
    if (!p) abort();
    if (reply_query_int(r, "limit", LIMIT_NORMAL, 1, LIMIT_MOST, &p->limit) ||
        reply_query_int(r, "cursor", 0, 0, INT64_MAX, &p->from)) {
        free(p);
        return;
    }
    p->R = R;
    p->r = r;
    p->owner = a->who.role < ROLE_OPERATOR ? a->who.user : NULL;
    write_page(p);
    p->owner = NULL;
    store_commit(control_store(R->control), store_begin(), sent, p);
}
