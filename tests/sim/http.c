/* http.c: implements daemon/http/http.h without sockets, and simulates its clients. The clients
 * submit jobs and batches of jobs with a key. If they get no answer, they submit again with this
 * key. They also cancel, suspend, resume, restart and read jobs, and drain nodes. Replies are
 * passed to the checker, unless the network loses them. */
#include "daemon/http/http.h"
#include "daemon/http/door.h"
#include <unistd.h>
#include "api/core/job.h"
#include "daemon/http/routes.h"
#include "tests/sim/oom.h"
#include "tests/sim/sim.h"

enum { OPEN_MAX = 24, SPEC_SIZE = 512, BATCH_JOBS = 4, BODY_SIZE = BATCH_JOBS * SPEC_SIZE + 32 };

enum what {
    SUBMIT,
    CANCEL,
    RESTART,
    SHOW,
    LIST,
    EVENTS,
    METRICS,
    CHECKPOINTS,
    NODES,
    PLAN,
    HOLD,
    CORDON
};

struct order { /* a submission, which is kept until the client knows that it is done */
    char key[24], body[BODY_SIZE];
    int n; /* the number of jobs of a batch, or 0 for a single job */
    bool done, under_way;
    int64_t next_ms;
};

struct http_req {
    struct http_req *next;
    enum what what;
    const char *method, *body;
    char path[64], query_name[16], query[32], location[64];
    http_answered *answered;
    void *answered_arg;
    int64_t answered_at_ms;
    int64_t job;
    struct order *order;
    /* `orphan` means that the client has disconnected; `lost` means that the answer will not reach
     * the client */
    bool orphan, lost;
};

static struct order orders[SIM_JOBS];
static int n_orders, n_ordered, n_jobs; /* n_ordered counts the jobs of all orders */
static int64_t jobs[SIM_JOBS], cursors[SIM_JOBS], metric_cursors[SIM_JOBS];
static struct http_req *open_requests, *probe;
static int n_open, n_resumed;
static struct http_req *node_order; /* only one order about nodes is sent at a time, so that its
                                     * answer determines the state of the node */

void clients_reset(void)
{
    n_orders = n_ordered = n_jobs = n_resumed = 0;
    clients_cut();
}

int clients_jobs(void)
{
    return n_jobs;
}

/* ---- http.h ---------------------------------------------------------------------------------- */

const char *http_method(const struct http_req *r)
{
    return r->method;
}

const char *http_path(const struct http_req *r)
{
    return r->path;
}

const char *http_query(const struct http_req *r, const char *name)
{
    return *r->query_name && !strcmp(r->query_name, name) ? r->query : NULL;
}

const char *http_query_name(const struct http_req *r, int i)
{
    return !i && *r->query_name ? r->query_name : NULL;
}

const char *http_header(const struct http_req *r, const char *name)
{
    return r->order && !strcmp(name, "idempotency-key") ? r->order->key : NULL;
}

/* Returns the peer of a request. It is always the user that runs seqd, connected by the Unix
 * socket. */
const struct http_peer *http_peer(const struct http_req *r)
{
    static struct http_peer peer;
    peer = (struct http_peer){.kind = HTTP_PEER_UNIX, .uid = geteuid()};
    return &peer;
}

const char *http_body(const struct http_req *r, size_t *size)
{
    *size = r->body ? strlen(r->body) : 0;
    return r->body ? r->body : "";
}

int64_t http_id(const struct http_req *r)
{
    return 1;
}

void http_set_header(struct http_req *r, const char *name, const char *value)
{
    if (!strcmp(name, "Location")) snprintf(r->location, sizeof r->location, "%s", value);
}

const char *http_answer_header(const struct http_req *r, const char *name)
{
    return *r->location && !strcmp(name, "Location") ? r->location : NULL;
}

bool http_odd_type(const struct http_req *r)
{
    return false;
}

void http_on_answer(struct http_req *r, http_answered *call, void *arg, int64_t at_ms)
{
    r->answered = call;
    r->answered_arg = arg;
    r->answered_at_ms = at_ms;
}

struct http_out *http_stream_open(struct http_req *r, int status, const char *type, int64_t size,
                                  const struct http_stream_calls *calls, void *arg)
{
    http_reply(r, 503, "text/plain", "", 0);
    return NULL;
}

size_t http_stream_room(struct http_out *s)
{
    return 0;
}

int http_stream_write(struct http_out *s, const void *data, size_t size)
{
    return -1;
}

void http_stream_end(struct http_out *s, bool whole)
{
}

/* ---- answers --------------------------------------------------------------------------------- */

static void remember(int64_t job)
{
    for (int i = 0; i < n_jobs; i++)
        if (jobs[i] == job) return;
    if (n_jobs == SIM_JOBS) return;
    cursors[n_jobs] = metric_cursors[n_jobs] = 0;
    jobs[n_jobs++] = job;
}

static int64_t number_at(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    return at ? strtoll(at + strlen(key), NULL, 10) : 0;
}

/* Checks that the ids of a batch are consecutive, and that all answers to the batch have the same
 * ids. */
static void batch_submitted(const struct order *o, const char *body)
{
    const int64_t first = number_at(body, "{\"id\":");
    const char *at = body;
    for (int i = 0; i < o->n; i++, at++) {
        char key[40];
        at = strstr(at, "{\"id\":");
        const int64_t id = at ? number_at(at, "{\"id\":") : 0;
        if (id != first + i) {
            sim_broken("batch", first, "%s: job %d is %lld, the first one %lld", o->key, i,
                       (long long)id, (long long)first);
            return;
        }
        snprintf(key, sizeof key, "%s.%d", o->key, i);
        sim_note(id, "client: %s is job %lld", key, (long long)id);
        check_submitted(key, id);
        remember(id);
    }
}

static void submitted(struct http_req *r, int status, const char *body)
{
    struct order *o = r->order;
    const int64_t id = number_at(body, "\"id\":");
    if (status != 201) {
        sim_note(0, "client: %s is answered %d", o->key, status);
        /* no GPU is present now */
        const bool no_gpu = strstr(o->body, "\"cuda\"") && status == 400;
        const bool no_room = sim_tight && strstr(body, "does_not_fit"); /* few nodes have joined */
        if (status == 422 || (status == 400 && !no_gpu && !no_room))
            sim_broken("submit", 0, "%s: %d %.300s", o->key, status, body);
        o->done = no_gpu || no_room;
        return;
    }
    o->done = true;
    if (o->n) {
        batch_submitted(o, body);
        return;
    }
    sim_note(id, "client: %s is job %lld", o->key, (long long)id);
    check_submitted(o->key, id);
    remember(id);
}

static int64_t *cursor_of(struct http_req *r)
{
    for (int i = 0; i < n_jobs; i++)
        if (jobs[i] == r->job) return r->what == METRICS ? &metric_cursors[i] : &cursors[i];
    return NULL;
}

static void page_read(struct http_req *r, const char *body)
{
    int64_t *cursor = cursor_of(r);
    const char *next = strstr(body, "\"next_cursor\":\"");
    check_page(r->job, body, r->what == METRICS);
    if (cursor && next && sim_below(2)) *cursor = strtoll(next + 15, NULL, 10);
    if (cursor && !next) *cursor = 0;
}

static void take_answer(struct http_req *r, int status, const char *body)
{
    switch (r->what) {
    case SUBMIT: submitted(r, status, body); return;
    case CANCEL:
        if (status == 202) check_cancelled(r->job);
        /* fall through */
    case RESTART:
    case HOLD:
    case SHOW:
        if (status == 200 || status == 202) check_shown(body);
        if (status == 404) sim_broken("lost", r->job, "job %lld is not found", (long long)r->job);
        return;
    case EVENTS:
    case METRICS:
        if (status == 200) page_read(r, body);
        return;
    case CORDON:
        if (status == 200) check_cordoned((int)r->job, !strstr(r->path, ":uncordon"));
        return;
    default: return;
    }
}

static void request_free(struct http_req *r)
{
    struct http_req **at = &open_requests;
    while (*at && *at != r) at = &(*at)->next;
    if (*at) *at = r->next, n_open--;
    if (r == node_order) node_order = NULL;
    free(r);
}

void http_reply(struct http_req *r, int status, const char *type, const char *body, size_t size)
{
    if (r->answered) r->answered(r->answered_arg, r->answered_at_ms, r, status);
    char *copy = sim_malloc(size + 1);
    if (!copy) abort();
    memcpy(copy, body, size);
    copy[size] = 0;
    if (r == probe) oom.told->status = status;
    if (r->order && !r->orphan) r->order->under_way = false;
    if (status == 500 && !r->orphan)
        sim_note(r->job, "client: %s is answered 500 %.200s", r->path, copy);
    if (!r->orphan && !r->lost) take_answer(r, status, copy);
    free(copy);
    request_free(r);
}

void clients_cut(void)
{
    for (struct http_req *r = open_requests, *next; r; r = next) {
        next = r->next;
        r->orphan = true;
        r->next = NULL;
        if (r->order) r->order->under_way = false;
    }
    open_requests = node_order = NULL;
    n_open = 0;
}

/* Do nothing, because no client here asks a job that serves. */
void http_drop_body(struct http_req *r)
{
    (void)r;
}

void http_known(struct http_req *r, int64_t token)
{
    (void)r, (void)token;
}

void http_on_gone(struct http_req *r, http_gone *call, void *arg)
{
    (void)r, (void)call, (void)arg;
}

/* Writes zeros, because every client is a user of the Unix socket. */
void door_network(const struct http_peer *peer, unsigned char out[16])
{
    memset(out, 0, 16);
}

/* ---- questions ------------------------------------------------------------------------------- */

static void handle(void *arg)
{
    struct http_req *r = arg;
    routes_handle(seqd_routes(), r);
}

static struct http_req *ask(enum what what, const char *method, int64_t job, const char *path)
{
    struct http_req *r = sim_calloc(1, sizeof *r);
    if (!r) abort();
    *r = (struct http_req){.what = what, .method = method, .job = job, .next = open_requests};
    snprintf(r->path, sizeof r->path, path, (long long)job);
    r->lost = sim_chance(50000);
    open_requests = r;
    n_open++;
    return r;
}

static void send_off(struct http_req *r)
{
    loop_post(seqd_loop(), handle, r);
}

/* Writes a spec that the cluster can run. Returns its length. */
static size_t write_spec(char *out, size_t size, const char *name)
{
    static const int sizes[] = {1, 1, 1, 2, 2, 3, 4};
    const bool gpus = nodes_gpus() && !sim_below(3);
    int ranks = sizes[sim_below(7)];
    const int wall_s = sim_below(5) ? 0 : 3 + sim_below(40);
    if (gpus && ranks > nodes_gpus()) ranks = nodes_gpus();
    const int n = snprintf(
        out, size,
        "{\"kind\":\"train\",\"name\":\"%s\",\"model\":{\"config\":{\"hidden_size\":%d,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
        "\"data\":{\"train\":[{\"path\":\"/x\"}],\"seq_len\":100},\"train\":{\"passes\":1},"
        "\"resources\":{\"device\":\"%s\",\"ranks\":%d},\"priority\":%d,"
        "\"limits\":{\"restarts\":%d,\"wall_s\":%d}}",
        name, sim_tight ? 768 : 64, gpus ? "cuda" : "cpu", ranks, sim_below(3), sim_below(4),
        wall_s);
    if (n < 0 || (size_t)n >= size) abort();
    return (size_t)n;
}

/* Writes a batch. The names of its jobs tell the checker which jobs it has, and how many. */
static void write_batch(struct order *o, int number)
{
    char name[32], *at = o->body + sprintf(o->body, "{\"jobs\":[");
    for (int i = 0; i < o->n; i++) {
        snprintf(name, sizeof name, "batch-%d-%d", number, o->n);
        if (i) *at++ = ',';
        at += write_spec(at, SPEC_SIZE, name);
    }
    strcpy(at, "]}");
}

static void write_order(struct order *o, int number)
{
    *o = (struct order){0};
    snprintf(o->key, sizeof o->key, "key-%d", number);
    if (!sim_below(8)) o->n = 1 + sim_below(BATCH_JOBS);
    if (o->n)
        write_batch(o, number);
    else
        write_spec(o->body, sizeof o->body, "");
    n_ordered += o->n ? o->n : 1;
}

static void submit_one(void)
{
    struct order *o = NULL;
    for (int i = 0; i < n_orders && !o; i++)
        if (!orders[i].done && !orders[i].under_way && orders[i].next_ms <= sim_now) o = &orders[i];
    /* From time to time, an order that is already done is sent again. It must get the answer that
     * it got before. */
    if (!o && n_orders && !sim_below(6)) o = &orders[sim_below(n_orders)];
    if (!o && n_ordered + BATCH_JOBS <= SIM_JOBS) {
        o = &orders[n_orders++];
        write_order(o, n_orders);
    }
    if (!o || o->under_way) return;
    o->under_way = true;
    o->next_ms = sim_now + 500;
    struct http_req *r = ask(SUBMIT, "POST", 0, o->n ? "/v1/jobs:batch" : "/v1/jobs");
    r->order = o;
    r->body = o->body;
    send_off(r);
}

static void read_one(void)
{
    static const char *const paths[] = {"/v1/jobs/%lld/events", "/v1/jobs/%lld/metrics",
                                        "/v1/jobs/%lld/checkpoints"};
    const int64_t job = jobs[sim_below(n_jobs)];
    const int how = sim_below(8);
    struct http_req *r;
    if (how == 0) {
        r = ask(LIST, "GET", 0, "/v1/jobs");
    } else if (how == 1) {
        r = ask(NODES, "GET", 0, "/v1/nodes");
    } else if (how < 5) {
        r = ask(SHOW, "GET", job, "/v1/jobs/%lld");
    } else {
        r = ask(EVENTS + (how - 5), "GET", job, paths[how - 5]);
        const int64_t *cursor = how < 7 ? cursor_of(r) : NULL;
        if (cursor && *cursor) {
            snprintf(r->query_name, sizeof r->query_name, "cursor");
            snprintf(r->query, sizeof r->query, "%lld", (long long)*cursor);
        }
    }
    send_off(r);
}

static void order_node(int node, const char *what)
{
    if (node_order) return;
    node_order = ask(CORDON, "POST", node, "");
    snprintf(node_order->path, sizeof node_order->path, "/v1/nodes/%s:%s", node_name(node), what);
    check_cordoned(node, false); /* its result is not known until the answer comes */
    send_off(node_order);
}

static void order_one(void)
{
    static const char *const holds[] = {"/v1/jobs/%lld:suspend", "/v1/jobs/%lld:resume"};
    static const char *const words[] = {"drain", "cordon", "uncordon", "uncordon"};
    const int64_t job = jobs[sim_below(n_jobs)];
    if (!sim_below(3))
        send_off(ask(HOLD, "POST", job, holds[sim_below(2)]));
    else if (!sim_below(4))
        order_node(sim_below(SIM_NODES), words[sim_below(4)]);
    else if (sim_below(3))
        send_off(ask(CANCEL, "POST", job, "/v1/jobs/%lld:cancel"));
    else
        send_off(ask(RESTART, "POST", job, "/v1/jobs/%lld:restart"));
}

void clients_probe(int i)
{
    static const enum what whats[] = {SUBMIT, CANCEL, SHOW, LIST, EVENTS, METRICS};
    static const char *const paths[] = {
        "/v1/jobs", "/v1/jobs/%lld:cancel", "/v1/jobs/%lld",
        "/v1/jobs", "/v1/jobs/%lld/events", "/v1/jobs/%lld/metrics"};
    static struct order o;
    probe = ask(whats[i], i < 2 ? "POST" : "GET", i == 1 ? jobs[n_jobs - 1] : jobs[0], paths[i]);
    probe->lost = true;
    if (!i) {
        snprintf(o.key, sizeof o.key, "probe");
        write_spec(o.body, sizeof o.body, "");
        probe->order = &o;
        probe->body = o.body;
    }
    oom.aside++;
    send_off(probe);
    oom.aside--;
}

void clients_turn(bool submit)
{
    if (!seqd_up() || n_open >= OPEN_MAX) return;
    bool waits = false; /* an order whose answer was lost is sent until its result is known */
    for (int i = 0; i < n_orders && !waits; i++)
        waits = !orders[i].done && !orders[i].under_way && orders[i].next_ms <= sim_now;
    if ((submit && !sim_below(25)) || waits) submit_one();
    if (n_jobs && !sim_below(8)) read_one();
    if (n_jobs && submit && !sim_below(150)) order_one();
    if (sim_calm && !sim_below(4)) order_node(sim_below(SIM_NODES), "uncordon");
    if (!sim_calm || !n_jobs) return;
    /* At the end, all suspended jobs are resumed. A job whose checkpoint will never be available
     * is restarted. */
    const int64_t job = jobs[n_resumed++ % n_jobs];
    send_off(ask(HOLD, "POST", job, "/v1/jobs/%lld:resume"));
    if (check_waits_for_liar(job)) send_off(ask(RESTART, "POST", job, "/v1/jobs/%lld:restart"));
}
