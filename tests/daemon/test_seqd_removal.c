/* test_seqd_removal: tests removals. Removed data must be deleted on seqd and on all nodes, and
 * other data must be unchanged. This must also hold after a crash, and for a node that was not
 * connected. */
#include <dirent.h>
#include "api/core/removal.h"
#include "daemon/loop/removal.h"
#include "tests/lib/sim.h"

#define A (&w.node[0])
#define B (&w.node[1])

/* ---- orders to nodes, and their answers ------------------------------------------------------ */

static struct heard {
    char node[8];
    int64_t job;
    int32_t what;
} heard[512];
static int n_heard;

static void hear(const char *name, const struct msg *m)
{
    struct sim *n = sim_of(name);
    if (m->type != MSG_REMOVE || !n || !n->up) return;
    CHECK(n_heard < 512);
    struct heard *h = &heard[n_heard++];
    snprintf(h->node, sizeof h->node, "%s", name);
    h->job = m->job;
    h->what = m->what;
}

static void answer(const struct heard *h, int64_t size, const char *error)
{
    struct msg m = {.type = MSG_REMOVED, .job = h->job, .what = h->what, .total = size};
    if (error) err_set(&m.err, ERR_IO, "%s", error);
    control_link_calls.message(w.control, h->node, &m);
}

/* Answers all orders that the node was sent. Returns their number. */
static int answer_all(const struct sim *n, int64_t size)
{
    int n_told = 0;
    for (int i = 0; i < n_heard; i++) {
        const struct heard h = heard[i];
        if (strcmp(h.node, n->name) || !h.job) continue;
        heard[i].job = 0;
        answer(&h, size, NULL);
        n_told++;
    }
    return n_told;
}

/* ---- the store ------------------------------------------------------------------------------- */

static char shown[65536];
static int64_t state;
static int n_rows;
static bool read_done;

static void on_shown(void *arg, const struct store_rows *rows, const struct err *e)
{
    CHECK(!e);
    n_rows = rows->n_rows;
    shown[0] = 0;
    state = n_rows ? rows->row[0].n[3] : -1;
    if (n_rows && rows->row[0].text[0]) snprintf(shown, sizeof shown, "%s", rows->row[0].text[0]);
    read_done = true;
}

static void ask(enum store_ask what, int64_t a, int64_t b, int64_t c, int64_t d)
{
    read_done = false;
    store_read(w.store, what, (const int64_t[4]){a, b, c, d}, NULL, on_shown, NULL);
    while (!read_done) loop_turn(w.loop, 10);
}

static int64_t removal(int64_t job, int what)
{
    ask(ASK_REMOVAL, job, what, 0, 0);
    return state;
}

/* Runs the loop and lets time pass until the removal is in the wanted state. */
static void until(int64_t job, int what, int want)
{
    for (int i = 0; i < 2000 && removal(job, what) != want; i++) pass(10);
    CHECK_MSG(state == want, "removal of job %lld: state %lld, want %d: %s", (long long)job,
              (long long)state, want, shown);
}

/* Runs the loop until nodes have received n orders. Before each order, seqd reads the store. */
static void until_heard(int n)
{
    for (int i = 0; i < 200 && n_heard < n; i++) loop_turn(w.loop, 10);
    CHECK_MSG(n_heard == n, "%d told, want %d", n_heard, n);
}

static bool known(int64_t job)
{
    ask(ASK_JOB, job, 0, 0, 0);
    return n_rows > 0;
}

static int events_of(int64_t job)
{
    ask(ASK_EVENTS, job, 0, 1000, -1);
    return n_rows;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static int order_code;
static char order_text[1024];
static bool ordered;

static void on_ordered(void *arg, const struct job *j, const struct err *e)
{
    order_code = e ? (int)e->code : 0;
    snprintf(order_text, sizeof order_text, "%s", e ? e->text : "");
    ordered = true;
}

static int order(int64_t job, int what)
{
    ordered = false;
    removals_order(control_removals(w.control),
                   &(struct store_removal){job, fake_utc(), what, "delete", "me"}, on_ordered,
                   NULL);
    while (!ordered) loop_turn(w.loop, 10);
    return order_code;
}

/* Makes a job that has run on A, with steps, a checkpoint and a log. */
static int64_t ended_job(void)
{
    const int64_t id = submit(1, 0);
    play_prepare(gang_of(A, id, 1));
    send_spool(A, gang_of(A, id, 1));
    settle();
    struct gang *g = gang_of(A, id, 2);
    play_blobs(g), send_spool(A, g), settle();
    struct msg m = {.type = MSG_LOG, .job = id, .epoch = 2, .data = "a line\n", .size = 7};
    control_link_calls.message(w.control, A->name, &m);
    play_ready(g), play_run(g), send_spool(A, g), settle();
    CHECK_MSG(!job(id) && is(id, "succeeded"), "%s", stored);
    return id;
}

static bool has_dir(int64_t job)
{
    char path[128];
    snprintf(path, sizeof path, "%s/jobs/%lld", w.dir, (long long)job);
    return !access(path, F_OK);
}

/* Entries of <state>/jobs. */
static int n_dirs(void)
{
    char path[128];
    int n = 0;
    snprintf(path, sizeof path, "%s/jobs", w.dir);
    DIR *d = opendir(path);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2;
}

static void restart_seqd(void)
{
    close_seqd();
    for (int i = 0; i < NODES; i++) w.node[i].up = false;
    open_seqd();
}

static void begin_removal(void)
{
    begin();
    n_heard = 0;
    w.hear = hear;
    hello(A);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_all_of_it(void)
{
    begin_removal();
    const int64_t first = ended_job(), second = ended_job();
    const int kept = events_of(second);
    CHECK(has_dir(first) && has_dir(second) && kept > 5);
    CHECK(order(first, REMOVAL_JOB) == 0);
    /* the job no longer exists when the order is answered */
    CHECK(!known(first) && events_of(first) == 0);
    until(first, REMOVAL_JOB, REMOVAL_NODES);
    CHECK(!has_dir(first) && has_dir(second) && n_dirs() == 1);
    until_heard(1);
    CHECK(heard[0].job == first && heard[0].what == REMOVAL_JOB);
    CHECK_STR(heard[0].node, A->name);
    CHECK(strstr(shown, "\"waits_for\":[{\"node\":\"a\",\"error\":null}]"));
    /* a second order has no effect, because the removal is already in progress */
    CHECK(order(first, REMOVAL_JOB) == 0);
    CHECK(answer_all(A, 4096) >= 1);
    until(first, REMOVAL_JOB, REMOVAL_DONE);
    CHECK_MSG(strstr(shown, "\"files\":4096") && strstr(shown, "\"state\":\"done\"") &&
                  strstr(shown, "\"who\":\"me\"") && !strstr(shown, "\"done_at\":null") &&
                  !strstr(shown, "\"rows\":0") && strstr(shown, "\"waits_for\":[]"),
              "%s", shown);
    CHECK(known(second) && events_of(second) == kept);
    CHECK(order(first, REMOVAL_JOB) == 0 && removal(first, REMOVAL_JOB) == REMOVAL_DONE);
    finish();
}

/* Checks that the ids of a removed job and of its events are never used again, even if it was the
 * newest job. */
static void test_ids(void)
{
    begin_removal();
    const int64_t id = ended_job(), last = store_last_event(w.store);
    CHECK(order(id, REMOVAL_JOB) == 0);
    until(id, REMOVAL_JOB, REMOVAL_NODES);
    until_heard(1);
    answer_all(A, 0);
    until(id, REMOVAL_JOB, REMOVAL_DONE);
    restart_seqd();
    CHECK(store_last_job(w.store) == id && store_last_event(w.store) > last);
    CHECK(submit(1, 0) == id + 1);
    CHECK(removal(id, REMOVAL_JOB) == REMOVAL_DONE);
    finish();
}

static int64_t submit_model(const char *path)
{
    char json[512];
    snprintf(
        json, sizeof json,
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":"
        "2,\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\""
        ":\"/x\"}],\"seq_len\":100},\"train\":{\"passes\":1},\"checkpoint\":{\"resume\":\"%s\"}}",
        path);
    return submit_json(json);
}

static int64_t submit_adapted(int64_t of)
{
    char json[512];
    snprintf(
        json, sizeof json,
        "{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"a.1\":\"/a\","
        "\"b.data.x\":\"/s/jobs/%lld/checkpoints/step-1/adapter\"}},\"data\":{\"seq_len\":100},"
        "\"input\":{\"path\":\"/x\",\"format\":\"openai_batch\"}}",
        (long long)of);
    return submit_json(json);
}

/* Checks that the refusal names the list that has the adapter. */
static void test_adapters(void)
{
    begin_removal();
    const int64_t id = ended_job(), user = submit_adapted(id);
    CHECK(user > id);
    CHECK(order(id, REMOVAL_JOB) == ERR_CONFLICT);
    CHECK_MSG(strstr(order_text, "as its model.adapters: "), "%s", order_text);
    finish();
}

static void test_refusals(void)
{
    char path[128];
    begin_removal();
    CHECK(order(1, REMOVAL_JOB) == ERR_NOT_FOUND);
    const int64_t id = ended_job(), live = submit(1, 0);
    CHECK(order(live, REMOVAL_JOB) == ERR_CONFLICT && strstr(order_text, "cancel it"));
    CHECK(order(live, REMOVAL_METRICS) == ERR_CONFLICT && known(live));
    snprintf(path, sizeof path, "/state/jobs/%lld0/checkpoints/step-1", (long long)id);
    /* this job uses the model of job 10, and not the model of job 1 */
    const int64_t other = submit_model(path);
    CHECK(other > 0);
    snprintf(path, sizeof path, "/state/jobs/%lld/checkpoints/step-1", (long long)id);
    const int64_t user = submit_model(path);
    CHECK(order(id, REMOVAL_JOB) == ERR_CONFLICT && strstr(order_text, "checkpoint.resume"));
    CHECK(order(id, REMOVAL_CHECKPOINTS) == ERR_CONFLICT);
    CHECK(order(id, REMOVAL_METRICS) == 0); /* the live job reads no metrics */
    until(id, REMOVAL_METRICS, REMOVAL_DONE);
    CHECK(known(id) && events_of(id) > 5 && n_heard == 0);
    order_cancel(control_commits(w.control), user, "u", on_done, NULL);
    settle();
    send_all(A), settle();
    CHECK_MSG(!job(user), "%s", doc(user));
    CHECK(order(id, REMOVAL_JOB) == 0);
    finish();
}

/* Checks a node that was disconnected, and a node that was running while seqd was stopped. Both
 * must get the orders to remove. */
/* Checks a node of the previous version. It must not get orders to remove. Until it is upgraded,
 * each removal must name its version as the reason for the delay. */
static void test_old_node(void)
{
    begin_removal();
    const int64_t id = ended_job();
    goodbye(A);
    A->abi = WIRE_ABI_BEFORE;
    hello(A), settle();
    CHECK(order(id, REMOVAL_JOB) == 0);
    for (int i = 0; i < 2000 && !strstr(shown, "protocol 6"); i++) {
        pass(10);
        removal(id, REMOVAL_JOB);
    }
    CHECK_MSG(strstr(shown,
                     "\"waits_for\":[{\"node\":\"a\",\"error\":\"it speaks protocol 6, which "
                     "has no removals: upgrade seqw there\"}]"),
              "%s", shown);
    CHECK(n_heard == 0);
    goodbye(A);
    A->abi = WIRE_ABI;
    hello(A), until_heard(1);
    answer_all(A, 7);
    until(id, REMOVAL_JOB, REMOVAL_DONE);
    finish();
}

static void test_away(void)
{
    begin_removal();
    const int64_t id = ended_job();
    goodbye(A);
    CHECK(order(id, REMOVAL_JOB) == 0);
    until(id, REMOVAL_JOB, REMOVAL_NODES);
    CHECK(n_heard == 0);
    hello(A), until_heard(1);
    n_heard = 0; /* the node's answer is lost with the session */
    goodbye(A), hello(A), until_heard(1);
    n_heard = 0;
    restart_seqd();
    hello(B), settle();
    CHECK(n_heard == 0 && removal(id, REMOVAL_JOB) == REMOVAL_NODES);
    hello(A), until_heard(1);
    CHECK(heard[0].job == id);
    answer_all(A, 1);
    until(id, REMOVAL_JOB, REMOVAL_DONE);
    CHECK(strstr(shown, "\"files\":1"));
    finish();
}

/* Checks answers that a node may not give. A node may answer only for itself, and only about
 * removals that it was ordered to make. */
static void test_strange_answers(void)
{
    begin_removal();
    w.strangers = true;
    hello(B);
    const int64_t id = ended_job();
    answer(&(struct heard){"a", id, REMOVAL_JOB}, 5, NULL);
    settle();
    CHECK(removal(id, REMOVAL_JOB) == -1 && known(id));
    CHECK(order(id, REMOVAL_JOB) == 0);
    until(id, REMOVAL_JOB, REMOVAL_NODES);
    answer(&(struct heard){"b", id, REMOVAL_JOB}, 5, NULL);
    pass(100);
    CHECK(removal(id, REMOVAL_JOB) == REMOVAL_NODES && strstr(shown, "\"files\":0"));
    finish();
}

/* Checks a removal that a node began in an earlier session. In the new session, the node answers
 * both the earlier order and the new order for this removal. The second answer must not count as
 * the answer to a different removal. */
static void test_answered_twice(void)
{
    begin_removal();
    const int64_t first = ended_job(), second = ended_job();
    w.strangers = true; /* there is one answer more than there were requests */
    CHECK(order(first, REMOVAL_JOB) == 0 && order(second, REMOVAL_JOB) == 0);
    until(first, REMOVAL_JOB, REMOVAL_NODES), until(second, REMOVAL_JOB, REMOVAL_NODES);
    until_heard(2);
    const struct heard one = heard[0], other = heard[1];
    answer(&one, 5, NULL), answer(&one, 0, NULL);
    answer(&other, 7, NULL);
    until(one.job, REMOVAL_JOB, REMOVAL_DONE);
    CHECK_MSG(strstr(shown, "\"files\":5"), "%s", shown);
    until(other.job, REMOVAL_JOB, REMOVAL_DONE);
    CHECK_MSG(strstr(shown, "\"files\":7"), "%s", shown);
    finish();
}

static void test_failed(void)
{
    begin_removal();
    const int64_t id = ended_job();
    CHECK(order(id, REMOVAL_JOB) == 0);
    until(id, REMOVAL_JOB, REMOVAL_NODES);
    until_heard(1);
    answer(&heard[0], 0, "remove step-1: input/output error");
    heard[0].job = 0;
    pass(1000);
    CHECK(removal(id, REMOVAL_JOB) == REMOVAL_NODES && n_heard == 1);
    CHECK(strstr(shown, "\"error\":\"remove step-1: input/output error\""));
    pass(REMOVAL_RETRY_MS), pass(100);
    until_heard(2);
    answer_all(A, 7);
    until(id, REMOVAL_JOB, REMOVAL_DONE);
    finish();
}

/* Checks that each part of a job can be removed separately, and that all other parts are kept. */
static void test_parts(void)
{
    begin_removal();
    const int64_t id = ended_job();
    const int all = events_of(id);
    CHECK(order(id, REMOVAL_LOGS) == 0);
    until(id, REMOVAL_LOGS, REMOVAL_DONE);
    CHECK(!has_dir(id) && events_of(id) == all);
    ask(ASK_METRICS, id, 0, 10, 0);
    CHECK(n_rows >= 1);
    CHECK(order(id, REMOVAL_METRICS) == 0);
    until(id, REMOVAL_METRICS, REMOVAL_DONE);
    ask(ASK_METRICS, id, 0, 10, 0);
    CHECK(n_rows == 0 && events_of(id) == all);
    ask(ASK_CHECKPOINTS, id, 0, 10, 0);
    CHECK(n_rows == 1);
    CHECK(order(id, REMOVAL_EVENTS) == 0);
    until(id, REMOVAL_EVENTS, REMOVAL_DONE);
    CHECK(events_of(id) > 0 && events_of(id) < all && strstr(events(id), "assign") &&
          strstr(events(id), "checkpoint") && !strstr(events(id), "ready"));
    CHECK(order(id, REMOVAL_CHECKPOINTS) == 0);
    until(id, REMOVAL_CHECKPOINTS, REMOVAL_NODES);
    until_heard(1);
    CHECK(heard[0].what == REMOVAL_CHECKPOINTS);
    answer_all(A, 9);
    until(id, REMOVAL_CHECKPOINTS, REMOVAL_DONE);
    ask(ASK_CHECKPOINTS, id, 0, 10, 0);
    CHECK(n_rows == 0 && known(id));
    CHECK(order(id, REMOVAL_JOB) == 0); /* the node is still known */
    until(id, REMOVAL_JOB, REMOVAL_NODES);
    until_heard(2);
    CHECK(answer_all(A, 1) == 1);
    until(id, REMOVAL_JOB, REMOVAL_DONE);
    CHECK(!known(id));
    finish();
}

/* Checks more removals than are sent to one node at a time, and more rows than one commit removes.
 * Other requests must be answered before the removals end. */
static void test_many(void)
{
    enum { JOBS = 150 };
    begin_removal();
    const int64_t from = ended_job();
    for (int i = 0; i < JOBS; i++) { /* the job is like one of ended_job, but has more rows */
        struct store_txn *t = store_begin();
        const int64_t id = 1000 + i;
        store_job_new(t, id, 5, "{}", NULL, "\"state\":\"failed\"", "u");
        store_event_add(
            t, &(struct store_event){100000 + i * 10, id, 1, 5, EV_ASSIGN, "{\"node\":\"a\"}"});
        for (int k = 1; k < 10; k++)
            store_event_add(t, &(struct store_event){100000 + i * 10 + k, id, 1, 5, EV_NOTE, "{}"});
        for (int k = 0; k < 20; k++) store_metrics_add(t, id, "[{\"step\":1}]");
        store_job_set(t, id, JOB_FAILED, "\"state\":\"failed\"");
        store_commit(w.store, t, NULL, NULL);
    }
    settle();
    for (int i = 0; i < JOBS; i++) CHECK(order(1000 + i, REMOVAL_JOB) == 0);
    CHECK(n_heard <= 64);
    int told = 0;
    for (int i = 0; i < 3000 && told < JOBS; i++) {
        pass(10);
        told += answer_all(A, 1);
        n_heard = 0;
    }
    CHECK_MSG(told == JOBS, "%d told", told);
    for (int i = 0; i < JOBS; i++) until(1000 + i, REMOVAL_JOB, REMOVAL_DONE);
    ask(ASK_REMOVALS, 0, 1000, 1, 0);
    CHECK(n_rows == 0);
    ask(ASK_REMOVALS, 0, 1000, 0, 0);
    CHECK(n_rows == JOBS);
    CHECK(known(from) && events_of(from) > 5);
    ask(ASK_EVENTS, 1000, 0, 1000, -1);
    CHECK(n_rows == 0);
    finish();
}

/* Checks that rows that are not JSON do not prevent the removal of the job. */
static void test_damaged_rows(void)
{
    begin_removal();
    struct store_txn *t = store_begin();
    store_job_new(t, 50, 5, "not JSON", "nor this", "x", "u");
    store_event_add(t, &(struct store_event){1000, 50, 1, 5, EV_ASSIGN, "{\"node\":"});
    store_event_add(t, &(struct store_event){1001, 50, 2, 5, EV_ASSIGN,
                                             "{\"node\":\"a\",\"nodes\":[{\"node\":\"b\"},7]}"});
    store_event_add(t, &(struct store_event){1002, 50, 2, 5, 99, ""});
    store_job_set(t, 50, JOB_FAILED, "x");
    store_commit(w.store, t, NULL, NULL);
    hello(B), settle();
    CHECK(order(50, REMOVAL_JOB) == 0);
    until(50, REMOVAL_JOB, REMOVAL_NODES);
    until_heard(2);
    CHECK(answer_all(A, 1) == 1 && answer_all(B, 1) == 1);
    until(50, REMOVAL_JOB, REMOVAL_DONE);
    finish();
}

int main(void)
{
    RUN(test_all_of_it);
    RUN(test_ids);
    RUN(test_refusals);
    RUN(test_adapters);
    RUN(test_old_node);
    RUN(test_away);
    RUN(test_strange_answers);
    RUN(test_answered_twice);
    RUN(test_failed);
    RUN(test_parts);
    RUN(test_many);
    RUN(test_damaged_rows);
    return test_done("seqd_removal");
}
