/* view.c: begins and ends views, and asks the store for their rows. */
#include "daemon/http/view.h"

#include <stdlib.h>
#include <string.h>
#include "daemon/http/reply.h"

struct view *view_of(struct routes *R, struct http_req *r, const struct route_match *a)
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

bool view_refuse(struct view *v, const struct err *failed)
{
    if (!failed) return false;
    reply_fail(v->r, failed);
    free(v->tags);
    free(v);
    return true;
}

void view_ask(struct view *v, store_answer *answer)
{
    const char *owner = *v->owner ? v->owner : NULL;
    store_read(control_store(v->R->control), v->ask, v->n, v->tags ? v->tags : owner, answer, v);
    free(v->tags);
    v->tags = NULL;
}

void view_ask_job(struct view *v, store_answer *answer)
{
    v->ask = ASK_JOB;
    memcpy(v->n, (const int64_t[4]){v->id}, sizeof v->n);
    view_ask(v, answer);
}
