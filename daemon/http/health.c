/* health.c: routes about seqd itself. They tell whether seqd is alive, whether it is ready, its
 * version, and the protocol that it speaks. */
#include <stdio.h>
#include <stdlib.h>
#include "api/core/jwrite.h"
#include "api/core/version.h"
#include "daemon/http/reply.h"
#include "daemon/http/routes.h"
#include "openapi_yaml.h"

struct ready_view {
    struct routes *R;
    struct http_req *r;
};

/* Answers immediately. The answer shows that the HTTP thread and the loop are alive, because both
 * handle it. */
void route_livez(struct routes *R, struct http_req *r, const struct route_match *a)
{
    reply_json(r, 200, "{\"status\":\"ok\"}");
}

static void ready_verbose(const struct control *c, char *out, size_t size)
{
    const struct nodes *t = control_nodes(c);
    struct store_health h;
    struct jwrite w;
    int up = 0;
    for (int i = 0; i < t->n; i++) up += t->node[i].up;
    store_health(control_store((struct control *)c), &h);
    jwrite_init(&w, out, size);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "status", "ok");
    jwrite_object(&w, "checks");
    jwrite_str(&w, "store", "answers");
    jwrite_str(&w, "writer",
               h.locked ? "waits: another program has locked seqd.db"
               : h.commit_ms > STORE_SLOW_MS || h.stuck_ms > STORE_SLOW_MS ? "slow"
                                                                           : "commits");
    jwrite_str(&w, "database",
               h.checked == STORE_SOUND        ? "sound"
               : h.checked == STORE_UNREADABLE ? "could not be read: see the log"
                                               : "is being checked");
    jwrite_str(&w, "disk", h.full ? "full: new jobs are refused" : "has room");
    jwrite_str(&w, "replay", "done");
    jwrite_str(&w, "http", "listens");
    jwrite_str(&w, "link", "listens");
    jwrite_end(&w);
    if (h.commit_ms >= 0)
        jwrite_int(&w, "last_commit_ms", h.commit_ms);
    else
        jwrite_null(&w, "last_commit_ms");
    if (h.check_age_ms >= 0)
        jwrite_int(&w, "database_check_age_ms", h.check_age_ms);
    else
        jwrite_null(&w, "database_check_age_ms");
    jwrite_int(&w, "commits_waiting", h.n_waiting);
    jwrite_int(&w, "wal_bytes", h.wal_size);
    jwrite_int(&w, "live_jobs", control_n_live(c));
    jwrite_int(&w, "nodes_up", up);
    if (*control_cluster(c)->no_node) jwrite_str(&w, "no_node", control_cluster(c)->no_node);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) abort();
}

static void on_ready(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct ready_view *v = arg;
    char text[4096] = "{\"status\":\"ok\"}";
    if (failed) reply_fail(v->r, failed);
    if (!failed && http_query(v->r, "verbose")) ready_verbose(v->R->control, text, sizeof text);
    if (!failed) reply_json(v->r, 200, text);
    free(v);
}

/* Asks the store whether it answers. Requests are served only after the replay and after both
 * sockets are bound. So only the store can fail now, because its reader may fail or its writer may
 * hang in a sync. */
void route_readyz(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct store_health h;
    struct err e;
    store_health(control_store(R->control), &h);
    if (h.stuck_ms <= STORE_STUCK_MS) {
        struct ready_view *v = malloc(sizeof *v);
        if (!v) abort();
        *v = (struct ready_view){R, r};
        store_read(control_store(R->control), ASK_JOB, (const int64_t[4]){0}, NULL, on_ready, v);
        return;
    }
    err_set(&e, ERR_TIMEOUT, "the store has committed nothing for %lld s, and %d requests wait%s",
            (long long)h.stuck_ms / 1000, h.n_waiting,
            h.locked ? ": another program has locked seqd.db"
            : h.full ? ": its disk is full"
                     : "");
    reply_fail(r, &e);
}

void route_version(struct routes *R, struct http_req *r, const struct route_match *a)
{
    char out[128];
    snprintf(out, sizeof out, "{\"version\":\"%s\",\"revision\":\"%s\",\"api\":\"v1\"}",
             SEQD_VERSION, version_revision());
    reply_json(r, 200, out);
}

const char *routes_document(void)
{
    return openapi_yaml;
}

void route_openapi(struct routes *R, struct http_req *r, const struct route_match *a)
{
    http_reply(r, 200, "application/yaml", openapi_yaml, sizeof openapi_yaml - 1);
}
