/* routes.c: holds the table of routes, and finds the route of a request. */
#include "daemon/http/routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "daemon/http/admit.h"
#include "daemon/http/reply.h"

const struct route route_table[] = {
    {"POST", "/v1/jobs", "dry_run", ROLE_USER, ROUTE_CHANGES, route_submit},
    {"GET", "/v1/jobs", "limit cursor state owner name label.*", ROLE_USER, ROUTE_READS,
     route_jobs},
    {"POST", "/v1/jobs:batch", "dry_run", ROLE_USER, ROUTE_CHANGES, route_batch},
    {"POST", "/v1/jobs:cancel", "", ROLE_USER, ROUTE_CHANGES, route_cancel_many},
    {"POST", "/v1/jobs:suspend", "", ROLE_USER, ROUTE_CHANGES, route_suspend_many},
    {"POST", "/v1/jobs:resume", "", ROLE_USER, ROUTE_CHANGES, route_resume_many},
    {"GET", "/v1/orders/{n}", "", ROLE_USER, ROUTE_READS, route_order},
    {"GET", "/v1/jobs/{id}", "wait since_version", ROLE_USER, ROUTE_SHOWS, route_job},
    {"PATCH", "/v1/jobs/{id}", "", ROLE_USER, ROUTE_CHANGES, route_edit},
    {"DELETE", "/v1/jobs/{id}", "", ROLE_USER, ROUTE_CHANGES, route_remove},
    {"POST", "/v1/jobs/{id}:cancel", "", ROLE_USER, ROUTE_CHANGES, route_cancel},
    {"POST", "/v1/jobs/{id}:suspend", "", ROLE_USER, ROUTE_CHANGES, route_suspend},
    {"POST", "/v1/jobs/{id}:resume", "", ROLE_USER, ROUTE_CHANGES, route_resume},
    {"POST", "/v1/jobs/{id}:restart", "", ROLE_USER, ROUTE_CHANGES, route_restart},
    {"GET", "/v1/jobs/{id}/events", "limit cursor", ROLE_USER, ROUTE_READS, route_events},
    {"GET", "/v1/jobs/{id}/metrics", "limit cursor last", ROLE_USER, ROUTE_READS, route_metrics},
    {"GET", "/v1/jobs/{id}/logs", "rank epoch offset limit", ROLE_USER, ROUTE_SHOWS, route_logs},
    {"GET", "/v1/jobs/{id}/artifacts", "limit cursor", ROLE_USER, ROUTE_READS, route_artifacts},
    {"GET", "/v1/jobs/{id}/artifacts/{name}", "", ROLE_USER, ROUTE_SHOWS, route_download},
    {"GET", "/v1/jobs/{id}/checkpoints", "limit cursor", ROLE_USER, ROUTE_READS, route_checkpoints},
    {"GET", "/v1/jobs/{id}/checkpoints/{n}", "path", ROLE_USER, ROUTE_SHOWS, route_checkpoint},
    {"GET", "/v1/jobs/{id}/checkpoints/{n}.tar", "path", ROLE_USER, ROUTE_SHOWS,
     route_checkpoint_tar},
    {"GET", "/v1/jobs/{id}/checkpoints/{n}/files/{name}", "", ROLE_USER, ROUTE_SHOWS,
     route_checkpoint_file},
    {"GET", "/v1/jobs/{id}/steps/{n}/data", "sample fragments", ROLE_USER, ROUTE_SHOWS,
     route_step_data},
    {"GET", "/v1/events", "limit cursor last state owner name label.*", ROLE_USER, ROUTE_READS,
     route_feed},
    {"POST", "/v1/plan", "", ROLE_USER, ROUTE_READS, route_plan},
    {"GET", "/v1/queue", "limit cursor", ROLE_USER, ROUTE_READS, route_queue},
    {"GET", "/v1/nodes", "", ROLE_USER, ROUTE_READS, route_nodes},
    {"GET", "/v1/models", "node cursor", ROLE_USER, ROUTE_READS, route_models},
    {"GET", "/v1/uploads", "", ROLE_USER, ROUTE_READS, route_uploads},
    {"POST", "/v1/uploads", "", ROLE_USER, ROUTE_CHANGES, route_upload_new},
    {"GET", "/v1/uploads/{n}", "", ROLE_USER, ROUTE_READS, route_upload},
    {"PATCH", "/v1/uploads/{n}", "file", ROLE_USER, ROUTE_READS, route_upload_write},
    {"DELETE", "/v1/uploads/{n}", "", ROLE_USER, ROUTE_CHANGES, route_upload_remove},
    {"POST", "/v1/uploads/{n}:commit", "", ROLE_USER, ROUTE_CHANGES, route_upload_commit},
    {"POST", "/v1/nodes/tokens", "", ROLE_ADMIN, ROUTE_CHANGES, route_join_token},
    {"GET", "/v1/nodes/tokens", "", ROLE_OPERATOR, ROUTE_READS, route_join_tokens},
    {"POST", "/v1/nodes/tokens/{token}:revoke", "", ROLE_OPERATOR, ROUTE_CHANGES,
     route_join_token_revoke},
    {"POST", "/v1/nodes/{node}:revoke", "", ROLE_OPERATOR, ROUTE_CHANGES, route_node_revoke},
    {"POST", "/v1/nodes/{node}:cordon", "", ROLE_OPERATOR, ROUTE_CHANGES, route_cordon},
    {"POST", "/v1/nodes/{node}:drain", "", ROLE_OPERATOR, ROUTE_CHANGES, route_drain},
    {"POST", "/v1/nodes/{node}:uncordon", "", ROLE_OPERATOR, ROUTE_CHANGES, route_uncordon},
    {"POST", "/v1/nodes/{node}:release", "", ROLE_OPERATOR, ROUTE_CHANGES, route_release},
    {"GET", "/v1/usage", "limit cursor", ROLE_USER, ROUTE_READS, route_usage},
    {"GET", "/v1/usage/users", "limit", ROLE_USER, ROUTE_READS, route_usage_users},
    {"POST", "/v1/prune", "", ROLE_OPERATOR, ROUTE_CHANGES, route_prune},
    {"GET", "/v1/removals", "limit cursor state", ROLE_OPERATOR, ROUTE_READS, route_removals},
    {"GET", "/v1/me", "", ROLE_USER, ROUTE_READS, route_me},
    {"GET", "/v1/tokens", "limit cursor", ROLE_USER, ROUTE_READS, route_tokens},
    {"POST", "/v1/tokens", "", ROLE_USER, ROUTE_CHANGES, route_token_make},
    {"POST", "/v1/tokens:revoke", "", ROLE_USER, ROUTE_CHANGES, route_tokens_revoke},
    {"POST", "/v1/tokens/{id}:revoke", "", ROLE_USER, ROUTE_CHANGES, route_token_revoke},
    {"POST", "/v1/backup", "", ROLE_ADMIN, ROUTE_CHANGES, route_backup},
    {"GET", "/v1/backup/{name}", "", ROLE_ADMIN, ROUTE_CHANGES, route_backup_get},
    {"GET", "/v1/audit", "limit cursor user", ROLE_ADMIN, ROUTE_READS, route_audit},
    {"GET", "/openai/v1/models", "", ROLE_USER, ROUTE_READS, route_openai_models},
    {"GET", "/openai/v1/models/{name}", "", ROLE_USER, ROUTE_READS, route_openai_model},
    {"POST", "/openai/v1/completions", "", ROLE_USER, ROUTE_READS, route_openai_completions},
    {"POST", "/openai/v1/chat/completions", "", ROLE_USER, ROUTE_READS, route_openai_chat},
    {"POST", "/openai/v1/embeddings", "", ROLE_USER, ROUTE_READS, route_openai_embeddings},
    {"POST", "/openai/v1/tokenize", "", ROLE_USER, ROUTE_READS, route_openai_tokenize},
    {"POST", "/openai/v1/detokenize", "", ROLE_USER, ROUTE_READS, route_openai_detokenize},
    {"GET", "/metrics", "", ROLE_USER, ROUTE_READS, route_prometheus},
    {"GET", "/", "", ROLE_NONE, ROUTE_READS, route_page},
    {"GET", "/docs", "", ROLE_NONE, ROUTE_READS, route_docs},
    {"GET", "/livez", "", ROLE_NONE, ROUTE_READS, route_livez},
    {"GET", "/readyz", "verbose", ROLE_NONE, ROUTE_READS, route_readyz},
    {"GET", "/version", "", ROLE_NONE, ROUTE_READS, route_version},
    {"GET", "/openapi.yaml", "", ROLE_NONE, ROUTE_READS, route_openapi},
    {NULL, NULL, NULL, ROLE_NONE, ROUTE_READS, NULL},
};

/* ---- dispatch -------------------------------------------------------------------------------- */

/* Matches {node} and the text after it. A name may contain any byte, so its end is searched from
 * the end of the path. */
static bool match_node(const char *rest, const char *path, struct route_match *a)
{
    const size_t tail = strlen(rest), size = strlen(path);
    if (size <= tail || strcmp(path + size - tail, rest) || size - tail >= sizeof a->node)
        return false;
    memcpy(a->node, path, size - tail);
    a->node[size - tail] = 0;
    return true;
}

static bool match(const char *pattern, const char *path, struct route_match *a)
{
    for (; *pattern; pattern++) {
        if (!strncmp(pattern, "{node}", 6)) return match_node(pattern + 6, path, a);
        if (!strncmp(pattern, "{token}", 7)) return match_node(pattern + 7, path, a);
        if (!strncmp(pattern, "{name}", 6)) {
            a->name = path;
            return *path != 0;
        }
        bool id = !strncmp(pattern, "{id}", 4);
        if (id || !strncmp(pattern, "{n}", 3)) {
            size_t n = strspn(path, "0123456789");
            if (!n || n > 18) return false;
            *(id ? &a->id : &a->n) = strtoll(path, NULL, 10);
            path += n;
            pattern += id ? 3 : 2;
            continue;
        }
        if (*pattern != *path++) return false;
    }
    return !*path;
}

void routes_handle(void *arg, struct http_req *r)
{
    struct routes *R = arg;
    char allow[64] = "";
    struct err e;
    if (http_peer(r)->scrape && strcmp(http_path(r), "/metrics")) {
        err_set(&e, ERR_NOT_FOUND, "/metrics alone is served here (seqd --metrics-listen)");
        reply_fail(r, &e);
        return;
    }
    for (const struct route *t = route_table; t->method; t++) {
        struct route_match a = {0};
        if (!match(t->path, http_path(r), &a)) continue;
        if (!strcmp(t->method, http_method(r))) {
            admit(R, r, t, &a);
            return;
        }
        size_t n = strlen(allow);
        snprintf(allow + n, sizeof allow - n, "%s%s", n ? ", " : "", t->method);
    }
    if (*allow) {
        http_set_header(r, "Allow", allow);
        err_set(&e, ERR_INVALID, "%s knows only %s", http_path(r), allow);
        reply_problem(r, 405, &e, NULL);
        return;
    }
    err_set(&e, ERR_NOT_FOUND, "there is no path %s here: see /openapi.yaml", http_path(r));
    reply_fail(r, &e);
}
