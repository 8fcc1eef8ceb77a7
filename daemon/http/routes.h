/* routes.h: the REST interface. One table has all routes and their handlers.
 * tests/daemon/test_seqd_rest.c compares the table with api/openapi.yaml. */
#ifndef SEQD_DAEMON_HTTP_ROUTES_H
#define SEQD_DAEMON_HTTP_ROUTES_H

#include "daemon/http/http.h"
#include "daemon/loop/control.h"
#include "daemon/state/principal.h"

struct auth;
struct follows;
struct joins;
struct errands;
struct routes;
struct trail;
struct uploads;

struct route_match {
    int64_t id;           /* {id} */
    int64_t n;            /* {n}, a step or the id of an upload */
    const char *name;     /* {name}, which is the rest of the path */
    char node[NODE_NAME]; /* {node} or {token} */
    struct principal who; /* the user of the request */
};

typedef void route_call(struct routes *R, struct http_req *r, const struct route_match *a);

/* The record that a request leaves in the audit log (admit.h). */
enum route_deed {
    ROUTE_READS,  /* no record */
    ROUTE_SHOWS,  /* makes a record only if the prompts or results of a different user are read */
    ROUTE_CHANGES /* makes one record of each request */
};

struct route {
    const char *method, *path; /* "/v1/jobs/{id}" */
    /* query parameters, separated by blanks; "a*" stands for every name that begins with "a" */
    const char *params;
    enum role needs; /* lowest role that may call the route; ROLE_NONE allows everyone */
    enum route_deed deed;
    route_call *call;
};
extern const struct route route_table[]; /* ends with method NULL */

struct routes {
    struct auth *auth;
    struct control *control;
    struct follows *follows;
    struct joins *joins;           /* NULL if nodes need no certificates */
    struct submit_key *keys;       /* key.c: keys of the requests that are under way */
    struct errands *planner;       /* plans all specs */
    struct plan_cache *plans;      /* the plans that were made last */
    struct spec_batch *batches;    /* batch.c: the batches that are under way */
    struct orders *orders;         /* orders about many jobs */
    struct uploads *uploads;       /* NULL if seqd takes no uploads */
    const char *state_dir;         /* canonical path, or NULL if it is not known, as in tests */
    struct transfer *transfers;    /* transfer.c: the newest first */
    struct openai_request *openai; /* openai.c: the newest first */
    struct loop_timer *openai_guard;
    struct trail *trail;
};

void routes_handle(void *arg, struct http_req *r); /* the http_handler; arg is a struct routes */

const char *routes_document(void); /* returns the text of api/openapi.yaml, which is compiled in */

/* Answers with a job as it is on disk, or with 404 (views.c). */
void view_job(struct routes *R, struct http_req *r, int64_t id, int status);

/* ---- handlers, by file ----------------------------------------------------------------------- */

route_call route_submit, route_plan;                                            /* submit.c */
route_call route_batch;                                                         /* batch.c */
route_call route_job, route_cancel, route_suspend, route_resume, route_restart; /* views.c */
route_call route_jobs, route_events, route_feed, route_metrics, route_artifacts,
    route_checkpoints;                                                            /* pages.c */
route_call route_logs;                                                            /* rank_log.c */
route_call route_cancel_many, route_suspend_many, route_resume_many, route_order; /* cancel.c */
route_call route_edit;                                                            /* edit.c */
route_call route_queue;                                                           /* queue.c */
route_call route_usage, route_usage_users;                                        /* usage.c */
route_call route_prune;                                                           /* prune.c */
route_call route_remove, route_removals;                                          /* removals.c */
route_call route_models;                                                          /* models.c */
route_call route_nodes, route_release, route_cordon, route_drain, route_uncordon; /* nodes.c */
route_call route_join_token, route_join_tokens, route_join_token_revoke,
    route_node_revoke;                                              /* joins.c */
route_call route_livez, route_readyz, route_version, route_openapi; /* health.c */
route_call route_page, route_docs;                                  /* page.c */
route_call route_tokens, route_token_make, route_token_revoke, route_tokens_revoke,
    route_me;                                                             /* tokens.c */
route_call route_prometheus;                                              /* prometheus.c */
route_call route_audit;                                                   /* audit.c */
route_call route_backup, route_backup_get;                                /* backup.c */
route_call route_download;                                                /* download.c */
route_call route_step_data;                                               /* origin.c */
route_call route_checkpoint, route_checkpoint_file, route_checkpoint_tar; /* checkpoint.c */

route_call route_openai_models, route_openai_model, route_openai_completions, route_openai_chat,
    route_openai_embeddings, route_openai_tokenize, route_openai_detokenize; /* openai.c */

route_call route_uploads, route_upload_new, route_upload, route_upload_write, route_upload_commit,
    route_upload_remove; /* upload.c */

#endif
