/* routes.h: the REST surface: one table of routes (checked against api/openapi.yaml by
 * tests/daemon/test_seqd_rest.c), and the one place where an error code becomes an HTTP status.
 *
 *   routes.c   table, dispatch, problems          submit.c    POST of jobs and plans
 *   views.c    what can be looked at              follow.c    event and metric streams
 *   download.c bytes of an artifact, from its node
 *   origin.c   the files that a step learnt from, from the node that has its data */
#ifndef SEQD_DAEMON_HTTP_ROUTES_H
#define SEQD_DAEMON_HTTP_ROUTES_H

#include "daemon/control.h"
#include "daemon/http/http.h"

struct routes;
struct follows;

struct route_args {
    int64_t id;           /* {id} */
    int64_t n;            /* {n}: a step */
    const char *name;     /* {name}: the rest of the path */
    char node[NODE_NAME]; /* {node} */
};

typedef void route_call(struct routes *R, struct http_req *r, const struct route_args *a);

struct route {
    const char *method, *path; /* "/v1/jobs/{id}" */
    const char *params;        /* query parameters it knows, separated by blanks */
    route_call *call;
};
extern const struct route route_table[]; /* ends with method NULL */

struct routes {
    struct control *control;
    struct follows *follows;
    const char *version;
    struct posting *in_flight; /* submit.c: those that hold an Idempotency-Key */
};

void routes_handle(void *arg, struct http_req *r); /* http_handler; arg is struct routes */

const char *routes_document(void); /* api/openapi.yaml, as compiled in */

/* ---- for the route files --------------------------------------------------------------------- */

int route_status(enum err_code code);
/* extra: members to add ("\"plan\":{...}"), or NULL. */
void route_problem(struct http_req *r, int status, const struct err *e, const char *extra);
void route_fail(struct http_req *r, const struct err *e); /* by its code */
void route_json(struct http_req *r, int status, const char *json);
/* An integer parameter between lo and hi. -1 after having answered 400. */
int route_int(struct http_req *r, const char *name, int64_t fallback, int64_t lo, int64_t hi,
              int64_t *out);
bool route_wants_stream(const struct http_req *r); /* Accept: text/event-stream */
/* The whole of a job, malloc'd: what is committed, from its row of ASK_JOB. */
char *route_job_json(const struct control *c, int64_t id, const struct store_row *row);
/* The same of a job that was committed just now and that nothing has happened to since. */
char *route_new_json(const struct job *j);

route_call route_submit, route_plan; /* submit.c */
route_call route_jobs, route_job, route_cancel, route_restart, route_logs, route_artifacts,
    route_checkpoints, route_events, route_metrics, route_nodes, route_release, route_livez,
    route_readyz, route_version, route_openapi; /* views.c */
route_call route_download;                      /* download.c */
route_call route_step_data;                     /* origin.c */

/* ---- follow.c -------------------------------------------------------------------------------- */

struct follows *follows_create(struct loop *l);
void follows_destroy(struct follows *f);
void follows_changed(void *arg, int64_t job); /* control_options.changed */
void follows_logged(void *arg, int64_t job);  /* control_options.logged */
enum follow_what { FOLLOW_EVENTS, FOLLOW_METRICS, FOLLOW_LOG };
struct follow_log {
    int rank;
    bool one_epoch;        /* end with this attempt; else go on with the next ones */
    int64_t epoch, offset; /* epoch 0: the first there is */
};
/* Last-Event-ID of the request says where to begin. log: NULL but for FOLLOW_LOG. */
void follow_start(struct follows *f, struct control *c, struct http_req *r, int64_t job,
                  enum follow_what what, const struct follow_log *log);

#endif
