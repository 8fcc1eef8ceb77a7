/* Gangs over several simulated nodes, each with a spool of its own kept by the rules of api/wire.h:
 * placement, rendezvous, first causes, ends, lost nodes that come back, and a seqd restarted at any
 * point. Time is moved by hand. A gang of a node counts as running until its final record is made,
 * so that what is promised to jobs can be held against what runs. */
#include <ftw.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/log.h"
#include "daemon/attempt.h"
#include "daemon/json.h"
#include "daemon/secret.h"
#include "tests/test.h"

#define NODES 3
#define SLOTS 2
#define SPOOL 48
#define GANGS 96 /* per node, in one test */

struct gang { /* a node's part of an attempt */
    int64_t job, epoch;
    int task, n_ranks, first, n_local;
    unsigned char key[RANK_KEY_SIZE];
    int n_records, n_sent;
    int64_t acked;
    bool blobs, stopped, over, forgotten;
    struct {
        char data[sizeof(struct rank_msg) + 2048];
        size_t size;
    } record[SPOOL];
};

struct sim {
    char name[8], address[16];
    bool up;
    int n_gangs, n_assigns, n_log_acks;
    struct gang gang[GANGS];
    int n_unknown; /* asked for and not here: to be answered */
    struct wire_attempt unknown[GANGS];
};

static struct world {
    char dir[64];
    int64_t now;
    struct loop *loop;
    struct store *store;
    struct logs *logs;
    struct control *control;
    bool obeys; /* gangs end when told to stop */
    struct sim node[NODES];
} w;

static int64_t fake_clock(void *arg)
{
    return w.now;
}

static int64_t fake_utc(void)
{
    return 1000000 + w.now;
}

static struct sim *sim_of(const char *name)
{
    for (int i = 0; i < NODES; i++)
        if (!strcmp(w.node[i].name, name)) return &w.node[i];
    abort();
}

static struct gang *gang_of(struct sim *n, int64_t job, int64_t epoch)
{
    for (int i = 0; i < n->n_gangs; i++)
        if (n->gang[i].job == job && n->gang[i].epoch == epoch) return &n->gang[i];
    return NULL;
}

/* ---- what a node writes down ------------------------------------------------------------------ */

static void record(struct gang *g, int type, int rank, const void *data, size_t size,
                   const char *json)
{
    size_t n = json ? strlen(json) : 0;
    struct rank_msg head = {RANK_ABI, (uint32_t)type, rank, (uint32_t)(size + n)};
    if (g->over) return;
    CHECK(g->n_records < SPOOL);
    char *out = g->record[g->n_records].data;
    memcpy(out, &head, sizeof head);
    if (size) memcpy(out + sizeof head, data, size);
    if (n) memcpy(out + sizeof head + size, json, n);
    g->record[g->n_records++].size = sizeof head + size + n;
}

static void rec_exit(struct gang *g, int rank, int status, int signo)
{
    struct rank_exit x = {.rank = rank, .pid = 99, .exit_status = status, .signal = signo};
    record(g, RANK_EXIT, rank, &x, sizeof x, NULL);
    if (rank == RANK_GANG) g->over = true;
}

static void rec_fail(struct gang *g, int rank, enum err_code code, const char *text)
{
    struct rank_fail f = {.code = (int32_t)code};
    snprintf(f.text, sizeof f.text, "%s", text);
    record(g, RANK_FAIL, rank, &f, sizeof f, NULL);
}

static void rec_step(struct gang *g, int64_t step)
{
    struct rank_step s = {.step = step, .loss = 1, .tokens = 10, .step_us = 1000, .ledger_ok = 1};
    record(g, RANK_STEP, 0, &s, sizeof s, NULL);
}

static void rec_event(struct gang *g, int rank, int type, int64_t step, const char *json)
{
    struct rank_event ev = {.type = type, .step = step};
    record(g, RANK_EVENT, rank, &ev, sizeof ev, json);
}

static void play_prepare(struct gang *g)
{
    record(g, RANK_RESULT, 0, NULL, 0, "{\"prepared_id\":\"abc\",\"n_tokens\":1000}");
    rec_exit(g, 0, 0, 0);
    rec_exit(g, RANK_GANG, GANG_DONE, 0);
}

static void play_blobs(struct gang *g)
{
    for (int i = 0; i < g->n_local; i++) record(g, RANK_BLOB, g->first + i, "blob", 4, NULL);
}

static void play_ready(struct gang *g)
{
    for (int i = 0; i < g->n_local; i++) record(g, RANK_READY, g->first + i, NULL, 0, NULL);
}

static void play_run(struct gang *g)
{
    if (g->first == 0) {
        rec_step(g, 1);
        rec_event(g, 0, EV_CHECKPOINT, 1, "{\"path\":\"/x/step-1\"}");
        rec_step(g, 2);
        record(g, RANK_RESULT, 0, NULL, 0, "{\"loss\":1.5}");
    }
    for (int i = 0; i < g->n_local; i++) rec_exit(g, g->first + i, 0, 0);
    rec_exit(g, RANK_GANG, GANG_DONE, 0);
}

/* ---- messages ---------------------------------------------------------------------------------- */

static int32_t running(const struct sim *n) /* ranks alive on a node */
{
    int32_t ranks = 0;
    for (int i = 0; i < n->n_gangs; i++)
        if (!n->gang[i].over && n->gang[i].task == TASK_RUN) ranks += n->gang[i].n_local;
    return ranks;
}

static void assign(struct sim *n, const struct msg *m)
{
    struct gang *g = gang_of(n, m->job, m->epoch);
    n->n_assigns++;
    if (g) { /* again: only the same thing */
        CHECK(!memcmp(g->key, m->key, sizeof g->key) && g->first == m->first_rank);
        return;
    }
    CHECK(n->n_gangs < GANGS);
    g = &n->gang[n->n_gangs++];
    *g = (struct gang){.job = m->job, .epoch = m->epoch, .task = m->task, .n_ranks = m->n_ranks};
    g->first = m->first_rank;
    g->n_local = m->n_local;
    memcpy(g->key, m->key, sizeof g->key);
    for (int i = 0; i < n->n_gangs - 1; i++) /* a newer epoch fences off the older ones */
        if (n->gang[i].job == m->job && !n->gang[i].over)
            rec_exit(&n->gang[i], RANK_GANG, GANG_STOPPED, 0);
    CHECK_MSG(running(n) <= SLOTS, "%d ranks on %s, which has %d slots", running(n), n->name,
              SLOTS);
}

static void not_here(struct sim *n, int64_t job, int64_t epoch)
{
    if (n->n_unknown < GANGS)
        n->unknown[n->n_unknown++] = (struct wire_attempt){.job = job, .epoch = epoch};
}

static void expect(struct sim *n, const struct msg *m)
{
    for (int k = 0; k < m->n_attempts; k++)
        if (!gang_of(n, m->attempts[k].job, m->attempts[k].epoch))
            not_here(n, m->attempts[k].job, m->attempts[k].epoch);
    for (int i = 0; i < n->n_gangs; i++) {
        struct gang *g = &n->gang[i];
        bool listed = false;
        for (int k = 0; k < m->n_attempts; k++)
            listed |= m->attempts[k].job == g->job && m->attempts[k].epoch == g->epoch;
        if (!listed && !g->over && w.obeys) rec_exit(g, RANK_GANG, GANG_STOPPED, 0);
    }
}

static int on_send(void *arg, const char *name, const struct msg *m)
{
    struct sim *n = sim_of(name);
    if (!n->up) return -1;
    struct gang *g = gang_of(n, m->job, m->epoch);
    switch (m->type) {
    case MSG_ASSIGN: assign(n, m); break;
    case MSG_BLOBS:
        CHECK(g && m->n_blobs == g->n_ranks);
        for (int i = 0; i < m->n_blobs; i++) CHECK(m->blobs[i].rank == i && m->blobs[i].size == 4);
        if (g) g->blobs = true;
        break;
    case MSG_STOP:
        if (!g) not_here(n, m->job, m->epoch);
        if (!g) break;
        g->stopped = true;
        if (w.obeys && !g->over) rec_exit(g, RANK_GANG, GANG_STOPPED, 0);
        break;
    case MSG_ACK:
        if (g && m->seq > g->acked) g->acked = m->seq;
        if (m->rank >= 0) n->n_log_acks++;
        break;
    case MSG_FORGET:
        if (!g) break;
        CHECK(g->over);
        g->forgotten = true;
        break;
    case MSG_EXPECT: expect(n, m); break;
    default: break;
    }
    return 0;
}

static void send_spool(struct sim *n, struct gang *g)
{
    for (; n->up && g->n_sent < g->n_records; g->n_sent++) {
        bool final = g->over && g->n_sent == g->n_records - 1;
        if (g->n_sent < g->acked && !final) continue;
        struct msg m = {.type = MSG_REPORT, .job = g->job, .epoch = g->epoch};
        m.seq = g->n_sent + 1;
        m.data = g->record[g->n_sent].data;
        m.size = g->record[g->n_sent].size;
        control_link_calls.message(w.control, n->name, &m);
    }
}

static void send_all(struct sim *n)
{
    struct {
        struct rank_msg head;
        struct rank_exit x;
    } end = {{RANK_ABI, RANK_EXIT, RANK_GANG, sizeof end.x},
             {.rank = RANK_GANG, .exit_status = GANG_UNKNOWN}};
    for (int i = 0; i < n->n_unknown && n->up; i++) {
        struct msg m = {.type = MSG_REPORT, .data = &end, .size = sizeof end};
        m.job = n->unknown[i].job, m.epoch = n->unknown[i].epoch;
        control_link_calls.message(w.control, n->name, &m);
    }
    n->n_unknown = 0;
    for (int i = 0; i < n->n_gangs; i++)
        if (!n->gang[i].forgotten) send_spool(n, &n->gang[i]);
}

static void hello(struct sim *n)
{
    struct wire_attempt list[GANGS];
    struct msg m = {.type = MSG_HELLO, .n_slots = SLOTS, .attempts = list};
    snprintf(m.node, sizeof m.node, "%s", n->name);
    snprintf(m.address, sizeof m.address, "%s", n->address);
    for (int i = 0; i < n->n_gangs; i++) {
        struct gang *g = &n->gang[i];
        g->n_sent = 0;
        int32_t slots = g->over || g->task == TASK_PREPARE ? 0 : g->n_local;
        if (!g->forgotten) list[m.n_attempts++] = (struct wire_attempt){g->job, g->epoch, slots};
    }
    n->up = true;
    control_link_calls.up(w.control, n->name, &m);
}

static void goodbye(struct sim *n)
{
    n->up = false;
    control_link_calls.down(w.control, n->name, "the test said so");
}

/* ---- seqd ---------------------------------------------------------------------------------------- */

static void open_seqd(void)
{
    static unsigned char secret[SECRET_SIZE];
    struct err e = {0};
    w.loop = loop_create(fake_clock, NULL, &e);
    w.store = store_open(w.loop, w.dir, &e);
    CHECK_MSG(w.store && !secret_open(w.dir, secret, &e), "%s", e.text);
    w.logs = logs_open(w.dir, &e);
    struct control_options o = {.loop = w.loop,
                                .store = w.store,
                                .logs = w.logs,
                                .secret = secret,
                                .send = on_send,
                                .utc_ms = fake_utc};
    w.control = control_create(&o, &e);
    CHECK_MSG(w.control != NULL, "%s", e.text);
}

static void close_seqd(void)
{
    store_close(w.store);
    control_destroy(w.control);
    logs_close(w.logs);
    loop_destroy(w.loop);
}

static void on_sentinel(void *arg, const struct err *e)
{
    *(bool *)arg = true;
}

/* Until everything asked for so far is committed and acted upon. */
static void settle(void)
{
    for (int i = 0; i < 4; i++) {
        bool done = false;
        loop_turn(w.loop, 0);
        store_commit(w.store, store_begin(), on_sentinel, &done);
        while (!done) loop_turn(w.loop, 10);
    }
}

static void pass(int64_t ms)
{
    w.now += ms;
    settle();
}

static void begin(void)
{
    memset(&w, 0, sizeof w);
    /* Thousands of commits: where there is memory for files, they need no disk. */
    snprintf(w.dir, sizeof w.dir, "%s/seqd-gangs-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    CHECK(mkdtemp(w.dir) != NULL);
    w.now = 1000;
    w.obeys = true;
    for (int i = 0; i < NODES; i++) {
        snprintf(w.node[i].name, sizeof w.node[i].name, "%c", 'a' + i);
        snprintf(w.node[i].address, sizeof w.node[i].address, "10.0.0.%d", i + 1);
    }
    open_seqd();
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    return remove(path);
}

static void finish(void)
{
    close_seqd();
    nftw(w.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int64_t got_id;

static void on_done(void *arg, const struct job *j, const struct err *e)
{
    got_id = j ? j->id : 0;
}

static int64_t submit(int ranks, int restarts)
{
    static struct job_spec s;
    struct err e;
    char json[1024];
    snprintf(
        json, sizeof json,
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":"
        "\"/x\"}],\"seq_len\":100},\"train\":{\"passes\":1},\"resources\":{\"ranks\":%d},"
        "\"limits\":{\"restarts\":%d}}",
        ranks, restarts);
    CHECK_MSG(!json_spec_read(json, strlen(json), JSON_FOR_PEOPLE, &s, &e), "%s", e.text);
    CHECK_MSG(!job_check(&s, &e), "%s", e.text);
    control_submit(w.control, &(struct control_submit){.spec = &s, .plan = "{}"}, on_done, NULL);
    settle();
    return got_id;
}

static const struct job *job(int64_t id)
{
    return control_job(w.control, id);
}

static char stored[16384];
static bool answered;

static void on_row(void *arg, const struct store_rows *rows)
{
    answered = true;
    CHECK(rows->n_rows == 1);
    snprintf(stored, sizeof stored, "%s", rows->row[0].text[0]);
}

static const char *doc(int64_t id)
{
    settle();
    answered = false;
    store_read(w.store, ASK_JOB, (const int64_t[4]){id}, NULL, on_row, NULL);
    while (!answered) loop_turn(w.loop, 10);
    return stored;
}

static bool is(int64_t id, const char *state)
{
    char want[64];
    snprintf(want, sizeof want, "\"state\":\"%s\"", state);
    return strstr(doc(id), want) != NULL;
}

/* All events of a job, as text. */
static void on_events(void *arg, const struct store_rows *rows)
{
    answered = true;
    stored[0] = 0;
    for (int i = 0; i < rows->n_rows; i++) {
        size_t n = strlen(stored);
        snprintf(stored + n, sizeof stored - n, "%s %s\n",
                 job_event_name((enum job_event)rows->row[i].n[3]), rows->row[i].text[0]);
    }
}

static const char *events(int64_t id)
{
    answered = false;
    store_read(w.store, ASK_EVENTS, (const int64_t[4]){id, 0, 1000, -1}, NULL, on_events, NULL);
    while (!answered) loop_turn(w.loop, 10);
    return stored;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

#define A (&w.node[0])
#define B (&w.node[1])
#define C (&w.node[2])

/* A job of 4 ranks on a and b, whose gangs have been assigned: epoch 2. */
static void to_run(struct gang **a, struct gang **b, int restarts)
{
    hello(A);
    hello(B);
    CHECK(submit(4, restarts) == 1);
    struct gang *p = gang_of(A, 1, 1);
    CHECK(p && p->task == TASK_PREPARE && p->n_ranks == 1);
    play_prepare(p);
    send_spool(A, p);
    settle();
    *a = gang_of(A, 1, 2);
    *b = gang_of(B, 1, 2);
    CHECK(*a && *b);
    CHECK((*a)->first == 0 && (*a)->n_local == 2 && (*a)->n_ranks == 4);
    CHECK((*b)->first == 2 && (*b)->n_local == 2 && (*b)->n_ranks == 4);
    CHECK(control_reserved(w.control, "a") == 2 && control_reserved(w.control, "b") == 2);
}

static void to_ready(struct gang **a, struct gang **b, int restarts)
{
    to_run(a, b, restarts);
    play_blobs(*a), send_spool(A, *a);
    CHECK(!(*a)->blobs && !(*b)->blobs);
    play_blobs(*b), send_spool(B, *b);
    CHECK((*a)->blobs && (*b)->blobs);
    play_ready(*a), send_spool(A, *a);
    CHECK(is(1, "starting"));
    play_ready(*b), send_spool(B, *b);
    CHECK(is(1, "running"));
}

/* ---- tests --------------------------------------------------------------------------------------- */

static void test_life(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    CHECK(a->acked == 4 && b->acked == 4);
    CHECK(strstr(doc(1), "\"nodes\":[{\"node\":\"a\",\"first_rank\":0,\"ranks\":2},"
                         "{\"node\":\"b\",\"first_rank\":2,\"ranks\":2}]"));
    play_run(a), send_spool(A, a);
    CHECK(is(1, "running") && !a->forgotten);
    pass(1001);
    CHECK(a->acked == a->n_records - 1); /* its end is not enough: it must be told again */
    play_run(b), send_spool(B, b);
    CHECK(is(1, "succeeded"));
    CHECK(a->forgotten && b->forgotten && a->acked == a->n_records && b->acked == b->n_records);
    CHECK(control_reserved(w.control, "a") == 0 && control_reserved(w.control, "b") == 0);
    finish();
}

/* A node that is slow to report is not waited for: what rank 0 says proves the ring. */
static void test_late_ready(void)
{
    struct gang *a, *b;
    begin();
    to_run(&a, &b, 0);
    play_blobs(a), play_blobs(b);
    send_spool(A, a), send_spool(B, b);
    play_ready(a), play_run(a), send_spool(A, a);
    CHECK(is(1, "running"));
    CHECK(job(1)->step == 2 && job(1)->checkpoint_step == 1);
    play_ready(b), play_run(b), send_spool(B, b);
    CHECK(is(1, "succeeded"));
    finish();
}

/* Ranks next to a death tell of it before its own node does, and are not blamed. */
static void test_first_cause(void)
{
    for (int order = 0; order < 3; order++) {
        struct gang *a, *b;
        begin();
        to_ready(&a, &b, 0);
        rec_fail(a, 0, ERR_PEER, "rank 3 has gone");
        rec_fail(a, 1, ERR_ABORTED, "rank 0 is gone");
        rec_exit(a, 0, 1, 0), rec_exit(a, 1, 1, 0);
        rec_exit(a, RANK_GANG, GANG_FAILED, 0);
        rec_exit(b, 3, 0, SIGKILL);
        rec_fail(b, 2, ERR_PEER, "rank 3 has gone");
        rec_exit(b, 2, 1, 0);
        if (order == 0) send_spool(A, a), settle(), send_spool(B, b);
        if (order == 1) send_spool(B, b), settle(), send_spool(A, a);
        if (order == 2) { /* one by one */
            int n = a->n_records;
            a->n_records = 1, send_spool(A, a), settle();
            CHECK(is(1, "running"));
            send_spool(B, b), settle();
            a->n_records = n, send_spool(A, a);
        }
        CHECK_MSG(is(1, "stopping"), "order %d", order);
        CHECK(job(1)->err_rank == 3 && !strcmp(job(1)->err_node, "b"));
        CHECK(strstr(job(1)->err.text, "signal 9") && job(1)->err_cause == CAUSE_INFRASTRUCTURE);
        CHECK(control_reserved(w.control, "a") == 2); /* free when all have confirmed */
        rec_exit(b, RANK_GANG, GANG_FAILED, 0), send_spool(B, b);
        CHECK(is(1, "starting") && job(1)->epoch == 3 && job(1)->restarts == 0);
        CHECK(a->forgotten && b->forgotten);
        finish();
    }
}

/* The network between two nodes fails: nobody died, everybody misses somebody. */
static void test_partition(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    rec_fail(a, 1, ERR_PEER, "rank 2 has been silent for 2.0 s");
    rec_exit(a, 1, 1, 0), rec_exit(a, 0, 1, 0);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0), send_spool(A, a);
    CHECK(is(1, "running"));
    rec_fail(b, 2, ERR_PEER, "rank 1 has been silent for 2.0 s");
    rec_exit(b, 2, 1, 0), rec_exit(b, 3, 1, 0);
    rec_exit(b, RANK_GANG, GANG_FAILED, 0), send_spool(B, b);
    settle();
    CHECK(job(1)->epoch == 3 && job(1)->err_cause == CAUSE_INFRASTRUCTURE);
    CHECK(job(1)->restarts == 0 && !strcmp(job(1)->err_node, "a"));
    CHECK_STR(job(1)->err.text, "rank 2 has been silent for 2.0 s");
    finish();

    begin(); /* one side alone: after SUSPECT_MS it is believed, and the other is stopped */
    to_ready(&a, &b, 0);
    w.obeys = false;
    rec_fail(a, 1, ERR_PEER, "rank 2 has been silent for 2.0 s");
    rec_exit(a, 1, 1, 0), rec_exit(a, 0, 1, 0);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0), send_spool(A, a);
    CHECK(is(1, "running") && !b->stopped);
    pass(SUSPECT_MS + 1001);
    CHECK(is(1, "stopping") && b->stopped);
    b->stopped = false;
    pass(6000); /* a STOP that had no effect is sent again */
    CHECK(b->stopped && control_reserved(w.control, "a") == 2);
    rec_exit(b, RANK_GANG, GANG_STOPPED, 0), send_spool(B, b);
    CHECK(is(1, "starting") && job(1)->epoch == 3);
    finish();

    begin(); /* and a node whose agent is gone as well is what its peers missed */
    to_ready(&a, &b, 0);
    goodbye(B);
    rec_fail(a, 1, ERR_PEER, "rank 2 has been silent for 2.0 s");
    rec_exit(a, RANK_GANG, GANG_FAILED, 0), send_spool(A, a);
    pass(SUSPECT_MS + 1001);
    CHECK(is(1, "stopping") && !strcmp(job(1)->err_node, "b"));
    CHECK_STR(job(1)->err.text, "node b is not connected: rank 2 has been silent for 2.0 s");
    finish();
}

static void rec_hang(struct gang *g, int rank, int64_t behind, const char *text)
{
    struct rank_fail f = {.code = ERR_TIMEOUT, .behind = behind};
    snprintf(f.text, sizeof f.text, "%s", text);
    record(g, RANK_FAIL, rank, &f, sizeof f, NULL);
}

/* Every gang finds a rank of its own behind in a hang: the one furthest behind is it. */
static void test_hang(void)
{
    for (int first = 0; first < 2; first++) {
        struct gang *a, *b;
        begin();
        to_ready(&a, &b, 1);
        rec_hang(a, 0, 90, "rank 0 is behind");
        rec_hang(b, 3, 1, "rank 3 is behind (its process is stopped)");
        if (first == 0) send_spool(A, a), settle(), pass(1500), send_spool(B, b);
        if (first == 1) send_spool(B, b), settle(), pass(1500), send_spool(A, a);
        rec_fail(a, 1, ERR_PEER, "rank 3 has been silent for 30 s"), send_spool(A, a);
        CHECK(is(1, "running") && !a->stopped && !b->stopped);
        pass(HANG_WAIT_MS);
        CHECK(a->stopped && b->stopped && job(1)->err_rank == 3 && !strcmp(job(1)->err_node, "b"));
        CHECK(strstr(events(1), "\nhang {") && strstr(job(1)->err.text, "is stopped"));
        send_spool(A, a), send_spool(B, b);
        CHECK(is(1, "starting") && job(1)->epoch == 3 && job(1)->restarts == 1);
        finish();
    }
}

/* A gang that was killed with its agent: found lost when the agent is back. */
static void test_gang_lost(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    goodbye(B);
    rec_exit(b, RANK_GANG, GANG_LOST, 0);
    hello(B);
    send_all(B);
    settle();
    send_all(A);
    CHECK(is(1, "starting") && job(1)->epoch == 3);
    CHECK_STR(job(1)->err.text, "node b: the gang died; its ranks are dead");
    finish();
}

static void test_node_lost(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    rec_step(a, 1);
    rec_event(a, 0, EV_CHECKPOINT, 1, "{}");
    send_spool(A, a), settle();
    w.obeys = false;
    goodbye(B);
    pass(NODE_LOST_MS + 1001);
    CHECK(is(1, "stopping") && a->stopped);
    CHECK(!strcmp(job(1)->err_node, "b") && job(1)->err_cause == CAUSE_INFRASTRUCTURE);
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0), send_spool(A, a);
    CHECK(is(1, "queued"));
    CHECK(control_reserved(w.control, "a") == 0);
    hello(C);
    pass(1001);
    struct gang *c = gang_of(C, 1, 3);
    CHECK(c && c->first == 2 && gang_of(A, 1, 3)->first == 0); /* rank 0 where the checkpoint is */
    /* It comes back and still runs what was given up: no slot of it is free, whatever it says. */
    hello(B);
    settle();
    CHECK(control_reserved(w.control, "b") == 2 && !b->over);
    CHECK(submit(2, 0) == 2);
    struct gang *p = gang_of(A, 2, 1) ? gang_of(A, 2, 1) : gang_of(B, 2, 1);
    if (!p) p = gang_of(C, 2, 1);
    play_prepare(p);
    send_all(A), send_all(B), send_all(C);
    pass(1001);
    CHECK_STR(job(2)->reason_code, "waiting_for_slots");
    play_run(b), send_spool(B, b); /* what it says counts for nothing but its end */
    settle();
    CHECK(b->forgotten &&
          control_reserved(w.control, "b") == (job(2)->n_places && *job(2)->node == 'b' ? 2 : 0));
    CHECK(is(1, "starting") && job(1)->step == 1);
    finish();
}

/* seqd is away while the node is given up: what was fenced stays fenced. */
static void test_lost_and_restarted(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    w.obeys = false;
    goodbye(B);
    pass(NODE_LOST_MS + 1001);
    CHECK(is(1, "stopping"));
    A->up = false;
    close_seqd();
    open_seqd();
    hello(A), hello(B);
    settle();
    send_all(B);
    CHECK(is(1, "stopping") && !job(1)->attempt->parts[0].ended && job(1)->attempt->parts[1].lost);
    CHECK(control_reserved(w.control, "b") == 4); /* of the job, and of what runs there besides */
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0), send_spool(A, a);
    settle();
    CHECK(job(1)->state == JOB_QUEUED && control_reserved(w.control, "b") == 2);
    rec_exit(b, RANK_GANG, GANG_STOPPED, 0), send_spool(B, b);
    CHECK(is(1, "starting") && job(1)->epoch == 3);
    finish();
}

#define AWAY                                                                                       \
    "node a, which holds its checkpoint of step 1, is down; to begin anew elsewhere: seqctl "      \
    "restart 1"

static void test_waits_for_checkpoints(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    hello(C);
    rec_step(a, 1);
    rec_event(a, 0, EV_CHECKPOINT, 1, "{}"), send_spool(A, a), settle();
    goodbye(A);
    pass(NODE_LOST_MS + 1001);
    send_all(B);
    pass(1001);
    CHECK(is(1, "queued"));
    CHECK_STR(job(1)->reason, AWAY);
    B->up = C->up = false;
    close_seqd(),
        open_seqd(); /* a restarted seqd has not seen that node, and knows it all the same */
    hello(B), hello(C);
    pass(1001);
    CHECK(is(1, "queued"));
    CHECK_STR(job(1)->reason, AWAY);
    rec_exit(a, RANK_GANG, GANG_LOST, 0);
    hello(A);
    send_all(A);
    settle();
    CHECK(is(1, "starting") && gang_of(A, 1, 3) && gang_of(A, 1, 3)->first == 0);
    finish();
}

static void on_restart(void *arg, const struct job *j, const struct err *e)
{
    *(enum err_code *)arg = j ? ERR_NONE : e->code;
}

static enum err_code restart(int64_t id)
{
    enum err_code code = ERR_N;
    control_restart(w.control, id, on_restart, &code);
    settle();
    return code;
}

/* The node with the checkpoint does not come back: the job begins anew elsewhere when it is told to,
 * and not before; what it was told outlives seqd. */
static void test_restart_without_checkpoint(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    hello(C);
    CHECK(restart(1) == ERR_CONFLICT && restart(9) == ERR_NOT_FOUND); /* it runs */
    rec_step(a, 1);
    rec_event(a, 0, EV_CHECKPOINT, 1, "{}"), send_spool(A, a), settle();
    goodbye(A);
    pass(NODE_LOST_MS + 1001);
    send_all(B);
    pass(1001);
    CHECK(is(1, "queued"));
    CHECK_STR(job(1)->reason, AWAY);
    CHECK(restart(1) == ERR_NONE && job(1)->checkpoint_step == 0 && !*job(1)->checkpoint_node);
    B->up = C->up = false;
    close_seqd(), open_seqd();
    CHECK(restart(1) == ERR_CONFLICT); /* nothing is left to give up */
    hello(B), hello(C);
    pass(1001);
    CHECK(!is(1, "queued") && strcmp(job(1)->node, "a") != 0);
    finish();
}

/* Two ends in any order around restarts of seqd after every record: the same job. */
static void test_restart_after_each_record(void)
{
    int n_a = 9 + 2 * 1, total = 2 * n_a;
    for (int stop = 0; stop <= total && !test_failures_now; stop++) {
        struct gang *a, *b;
        begin();
        to_run(&a, &b, 0);
        bool restarted = false;
        for (int phase = 0, sent = 0; phase < 6; phase++) {
            struct sim *n = phase % 2 ? A : B; /* b first: ends come in both orders */
            struct gang *g = phase % 2 ? a : b;
            if (phase / 2 == 0) play_blobs(g);
            if (phase / 2 == 1) play_ready(g);
            if (phase / 2 == 2) play_run(g);
            for (int end = g->n_records; g->n_sent < end; sent++) {
                g->n_records = g->n_sent + 1;
                bool over = g->over;
                g->over = over && g->n_records == end;
                send_spool(n, g);
                g->n_records = end;
                g->over = over;
                if (restarted || sent != stop) continue;
                settle();
                int at = g->n_sent;
                restarted = true;
                close_seqd();
                open_seqd();
                hello(A), hello(B);
                settle();
                /* The other node's spool is complete up to now; this one's up to the record. */
                struct sim *other = n == A ? B : A;
                send_all(other);
                g->n_records = at;
                g->over = over && at == end;
                send_spool(n, g);
                g->n_records = end;
                g->over = over;
            }
        }
        CHECK_MSG(is(1, "succeeded"), "restart after record %d: %s", stop, stored);
        CHECK(a->forgotten && b->forgotten);
        CHECK(A->n_gangs == 2 && B->n_gangs == 1);
        events(1);
        CHECK_MSG(count(stored, "\n") == 7, "restart after record %d: %s", stop, stored);
        finish();
    }
}

static void test_lost_assign(void)
{
    struct gang *a, *b;
    begin();
    to_run(&a, &b, 0);
    unsigned char key[RANK_KEY_SIZE], nothing[RANK_KEY_SIZE] = {0};
    memcpy(key, a->key, sizeof key);
    CHECK(!memcmp(key, b->key, sizeof key) && memcmp(key, nothing, sizeof key));
    CHECK(memcmp(key, gang_of(A, 1, 1)->key, sizeof key));
    B->n_gangs = 0; /* b never heard of it */
    A->up = B->up = false;
    close_seqd();
    open_seqd();
    hello(A), hello(B);
    settle();
    b = gang_of(B, 1, 2);
    CHECK(b && b->first == 2 && !memcmp(b->key, key, sizeof key) && A->n_assigns == 2);
    /* Nothing that people read has it. */
    char hex[8];
    snprintf(hex, sizeof hex, "%02x%02x%02x", key[0], key[1], key[2]);
    CHECK(!strstr(doc(1), hex) && !strstr(events(1), hex));
    finish();
}

/* One secret for the life of a state directory, for nobody else to read. */
static void test_secret(void)
{
    unsigned char one[SECRET_SIZE], two[SECRET_SIZE], k[4][RANK_KEY_SIZE];
    char dir[] = "/tmp/seqd-secret-XXXXXX", path[64];
    struct stat st;
    struct err e;
    CHECK(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/secret", dir);
    mode_t old = umask(0);
    CHECK(!secret_open(dir, one, &e) && !secret_open(dir, two, &e) &&
          !memcmp(one, two, sizeof one));
    umask(old);
    CHECK(!stat(path, &st) && (st.st_mode & 0777) == 0600 && st.st_size == SECRET_SIZE);
    for (int i = 0; i < 4; i++) secret_attempt_key(one, 1 + i / 2, 1 + i % 2, k[i]);
    for (int i = 0; i < 6; i++) CHECK(memcmp(k[i % 4], k[(i % 4 + 1 + i / 4) % 4], RANK_KEY_SIZE));
    CHECK(!chmod(path, 0644) && secret_open(dir, two, &e) == -1 && e.code == ERR_INVALID);
    CHECK(!chmod(path, 0600) && !truncate(path, 31));
    CHECK(secret_open(dir, two, &e) == -1 && e.code == ERR_CORRUPT);
    unlink(path);
    CHECK(!secret_open(dir, two, &e) && memcmp(one, two, sizeof one));
    unlink(path);
    rmdir(dir);
}

static void test_cancel(void)
{
    struct gang *a, *b;
    begin();
    to_ready(&a, &b, 0);
    control_cancel(w.control, 1, on_done, NULL);
    settle();
    CHECK(a->over && b->over);
    send_spool(A, a);
    CHECK(is(1, "stopping"));
    send_spool(B, b);
    CHECK(is(1, "cancelled") && a->forgotten && b->forgotten);
    finish();
}

/* A full disk is the node's fault and is named with it; other errors of a file are the job's. */
static void test_disk(void)
{
    static const struct {
        const char *text;
        int cause;
    } cases[] = {{"write /j/step-2.e2.tmp/x: No space left on device", CAUSE_INFRASTRUCTURE},
                 {"open /j/step-2.e2.tmp: Read-only file system", CAUSE_INFRASTRUCTURE},
                 {"read /data/tokens.bin: Input/output error", CAUSE_USER}};
    for (int i = 0; i < 3; i++) {
        struct gang *a, *b;
        begin();
        to_ready(&a, &b, 1);
        rec_fail(b, 2, ERR_IO, cases[i].text);
        rec_exit(b, RANK_GANG, GANG_FAILED, 0);
        send_spool(B, b), settle(), send_spool(A, a), settle();
        CHECK((int)job(1)->err_cause == cases[i].cause && !strcmp(job(1)->err_node, "b"));
        CHECK(job(1)->restarts == (cases[i].cause == CAUSE_USER) && job(1)->epoch == 3);
        CHECK(strstr(job(1)->err.text, cases[i].text));
        CHECK((strncmp(job(1)->err.text, "node b: ", 8) == 0) == (i < 2));
        finish();
    }
}

/* A node that makes its data is no late start; one that does nothing is, and is named. */
static void test_preparing(void)
{
    struct gang *a, *b;
    begin();
    to_run(&a, &b, 0);
    play_blobs(a), send_spool(A, a);
    rec_event(b, 2, EV_NOTE, 0, "{\"text\":\"x\",\"code\":\"preparing\"}"), send_spool(B, b);
    for (int i = 0; i < 3; i++) {
        pass(500 * 1000);
        CHECK(is(1, "starting") && job(1)->epoch == 2);
    }
    rec_event(b, 2, EV_NOTE, 0, "{\"code\":\"prepared\"}"), send_spool(B, b);
    pass(590 * 1000);
    CHECK(is(1, "starting") && job(1)->epoch == 2);
    w.obeys = false;
    pass(20 * 1000);
    CHECK(is(1, "stopping") && job(1)->err.code == ERR_TIMEOUT);
    CHECK_MSG(
        strstr(job(1)->err.text, "0 of 4 ranks were ready after 600 s; rank 0 on node a was not"),
        "%s", job(1)->err.text);
    finish();
}

/* A node speaks for its own ranks alone. */
static void test_not_its_rank(void)
{
    struct gang *a, *b;
    char back[16];
    struct err e;
    begin();
    to_run(&a, &b, 0);
    record(b, RANK_BLOB, 0, "evil", 4, NULL);
    rec_fail(b, 1, ERR_INVALID, "not mine to say");
    send_spool(B, b);
    CHECK(is(1, "starting"));
    struct msg m = {.type = MSG_LOG, .job = 1, .epoch = 2, .rank = 0, .data = "evil", .size = 4};
    control_link_calls.message(w.control, "b", &m);
    CHECK(logs_read(w.logs, 1, 2, 0, 0, back, sizeof back, &e) == -1);
    m.rank = 3, m.data = "good";
    control_link_calls.message(w.control, "b", &m);
    CHECK(logs_read(w.logs, 1, 2, 3, 0, back, sizeof back, &e) == 4);
    B->n_log_acks = A->n_log_acks = 0;
    pass(1001);
    CHECK(B->n_log_acks == 1 && A->n_log_acks == 0); /* to the node that has the rank */
    finish();
}

/* ---- everything at once ---------------------------------------------------------------------------- */

static unsigned seed = 11;

static int below(int n)
{
    return (int)((unsigned)rand_r(&seed) % (unsigned)n);
}

static void tally_job(const struct job *j, const char *node, int32_t *slots)
{
    bool placed = j->state == JOB_STARTING || j->state == JOB_RUNNING || j->state == JOB_STOPPING;
    for (int i = 0; placed && j->task == TASK_RUN && i < j->n_places; i++)
        if (!strcmp(j->places[i].node, node)) *slots += j->places[i].n_ranks;
}

/* What is reserved is what the jobs' states say, and enough for what runs. */
static void check_slots(int64_t last_job)
{
    for (int i = 0; i < NODES; i++) {
        const struct sim *n = &w.node[i];
        int32_t promised = 0, reserved = control_reserved(w.control, n->name);
        for (int64_t id = 1; id <= last_job; id++)
            if (job(id)) tally_job(job(id), n->name, &promised);
        const struct node *known = node_find((struct nodes *)control_nodes(w.control), n->name);
        CHECK(reserved == promised + (known ? node_stale_slots(known) : 0));
        CHECK_MSG(!n->up || running(n) <= reserved, "%s runs %d ranks, %d slots are reserved",
                  n->name, running(n), reserved);
    }
}

static int n_played, n_spread; /* runs to the end; gangs begun that are on several nodes */

/* Something happens to one gang of one node. */
static void random_progress(struct sim *n)
{
    struct gang *g = n->n_gangs ? &n->gang[n->n_gangs - 1 - below(n->n_gangs > 3 ? 3 : n->n_gangs)]
                                : NULL;
    if (!g || g->over || !n->up || g->n_records > SPOOL - 12) return;
    if (g->task == TASK_PREPARE) {
        play_prepare(g);
    } else if (!g->n_records) {
        n_spread += g->n_local < g->n_ranks;
        play_blobs(g);
    } else if (g->blobs && g->n_records == g->n_local) {
        play_ready(g);
    } else if (below(8) == 0) {
        int rank = g->first + below(g->n_local);
        if (below(2))
            rec_exit(g, rank, 0, SIGKILL);
        else
            rec_fail(g, rank, below(2) ? ERR_PEER : ERR_INTERNAL, "something");
        rec_exit(g, RANK_GANG, below(6) ? GANG_FAILED : GANG_LOST, 0);
    } else if (g->n_records >= 2 * g->n_local && below(3) == 0) {
        n_played++;
        play_run(g);
    }
    send_spool(n, g);
}

static void random_act(int64_t *last_job)
{
    struct sim *n = &w.node[below(NODES)];
    int what = below(40);
    if (what == 0 && *last_job < 12) *last_job = submit(1 + below(6), below(3));
    if (what == 1 && *last_job) control_cancel(w.control, 1 + below((int)*last_job), on_done, NULL);
    if (what == 2 && n->up) goodbye(n);
    if (what >= 3 && what < 6 && !n->up) hello(n), send_all(n);
    if (what == 6) w.now += below(6000);
    if (what == 7) w.obeys = !w.obeys;
    if (what == 8 && below(3) == 0) {
        close_seqd();
        open_seqd();
        for (int i = 0; i < NODES; i++)
            if (w.node[i].up) hello(&w.node[i]), send_all(&w.node[i]);
    }
    if (what > 8) random_progress(n);
    if (what % 4 == 0) send_all(n);
}

/* Whatever happens, no slot is promised twice and none that is in use is free; and when the faults
 * end, every job ends and every slot is free. */
static void test_random(void)
{
    int rounds = getenv("SEQD_TEST_SMALL") ? 10 : 100;
    if (getenv("SEQD_TEST_SEED")) seed = (unsigned)atoi(getenv("SEQD_TEST_SEED"));
    for (int round = 0; round < rounds && !test_failures_now; round++) {
        int64_t last_job = 0;
        begin();
        for (int i = 0; i < NODES; i++) hello(&w.node[i]);
        bool room = true;
        for (int i = 0; i < 400 && room && !test_failures_now; i++) {
            random_act(&last_job);
            loop_turn(w.loop, 0);
            if (i % 5 == 0) settle(), check_slots(last_job);
            for (int k = 0; k < NODES; k++) room = room && w.node[k].n_gangs < GANGS / 2;
        }
        w.obeys = true;
        for (int64_t id = 1; id <= last_job; id++) control_cancel(w.control, id, on_done, NULL);
        for (int i = 0; i < NODES; i++)
            if (!w.node[i].up) hello(&w.node[i]);
        for (int i = 0; i < 8; i++) {
            pass(5001);
            for (int k = 0; k < NODES; k++)
                control_link_calls.message(w.control, w.node[k].name,
                                           &(struct msg){.type = MSG_HEARTBEAT}),
                    send_all(&w.node[k]);
        }
        pass(31000); /* EXPECT once more, for what a node missed */
        for (int k = 0; k < NODES; k++) send_all(&w.node[k]);
        settle();
        CHECK_MSG(control_n_live(w.control) == 0, "round %d: %d jobs never end", round,
                  control_n_live(w.control));
        for (int i = 0; i < NODES; i++) {
            CHECK(control_reserved(w.control, w.node[i].name) == 0);
            CHECK(running(&w.node[i]) == 0);
        }
        finish();
    }
    CHECK_MSG(n_played > rounds && n_spread > rounds, "%d played, %d spread", n_played, n_spread);
}

int main(void)
{
    setenv("SEQD_LOG", "error", 0);
    log_init("test");
    json_init();
    RUN(test_life);
    RUN(test_late_ready);
    RUN(test_first_cause);
    RUN(test_partition);
    RUN(test_hang);
    RUN(test_gang_lost);
    RUN(test_node_lost);
    RUN(test_lost_and_restarted);
    RUN(test_waits_for_checkpoints);
    RUN(test_restart_without_checkpoint);
    RUN(test_restart_after_each_record);
    RUN(test_lost_assign);
    RUN(test_secret);
    RUN(test_cancel);
    RUN(test_disk);
    RUN(test_preparing);
    RUN(test_not_its_rank);
    RUN(test_random);
    return test_done("seqd_gangs");
}
