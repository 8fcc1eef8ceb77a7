/* sim.h: runs seqd's control with simulated nodes. Each node keeps a spool of its own by the rules
 * of api/wire.h. The time changes only when the test sets it. A gang counts as running until its
 * final record is made. The test can therefore compare the running gangs with seqd's promises to
 * jobs.
 *
 *     begin(); hello(A); submit(2, 0); play_prepare(gang_of(A, 1, 1)); send_spool(A, ...);
 *     settle(); ... finish();
 *
 * A node with GPUs (struct sim.gpu) checks that seqd never gives one of its GPUs to two gangs at
 * the same time. */
#ifndef SEQD_TESTS_SIM_H
#define SEQD_TESTS_SIM_H

#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/log.h"
#include "daemon/access/secret.h"
#include "daemon/loop/control.h"
#include "daemon/loop/order.h"
#include "daemon/spec/json.h"
#include "daemon/state/attempt.h"
#include "tests/lib/scratch.h"
#include "tests/lib/seqd.h"
#include "tests/lib/test.h"
#include "worker/plan/check.h"

/* a test that needs many nodes with few gangs defines NODES and these sizes itself */
#ifndef NODES
#define NODES 3
#define SLOTS 2
#define SPOOL 48
#define GANGS 96 /* the number of gangs that each node can have during one test */
#endif

struct gang { /* the part of an attempt that runs on one node */
    int64_t job, epoch;
    int task, n_ranks, first, n_local;
    unsigned char key[RANK_KEY_SIZE];
    int n_uuids;
    char uuid[JOB_MAX_RANKS][GPU_UUID_SIZE]; /* the GPUs of its ranks */
    int n_records, n_sent;
    int64_t acked;
    bool blobs, stopped, over, forgotten;
    struct {
        char data[sizeof(struct rank_msg) + 2048];
        size_t size;
    } record[SPOOL];
};

struct sim {
    char name[8], address[24];
    unsigned char instance[WIRE_INSTANCE_SIZE];
    bool up, emulated;
    int64_t shared;
    uint32_t abi;        /* 0 means WIRE_ABI */
    int64_t memory_size; /* 0 means that the node does not report it */
    int n_gpus;
    struct gpu gpu[GPU_MAX];
    int n_gangs, n_assigns, n_log_acks;
    struct gang gang[GANGS];
    /* attempts that seqd expects on the node and that the node does not have. The node must answer
     * for them. */
    int n_unknown;
    struct wire_attempt unknown[GANGS];
};

static struct world {
    char dir[64];
    int64_t now, utc_shift; /* utc_shift is the amount by which the wall clock was changed */
    const struct retain_policy *policy;
    struct loop *loop;
    struct store *store;
    struct logs *logs;
    struct control *control;
    bool obeys; /* gangs exit when they are told to stop */
    /* some nodes send messages about attempts that they do not have */
    bool strangers;
    /* pass_costs_ms is the time that a scheduling pass takes, and passes is the number of passes
     * seen so far */
    int64_t pass_costs_ms, passes;
    /* a function that is called with each message that seqd sends, or NULL */
    void (*hear)(const char *name, const struct msg *m);
    struct sim node[NODES];
} w;

static inline int64_t fake_clock(void *arg)
{
    const int64_t passes = w.control ? control_passes(w.control) : 0;
    if (passes != w.passes) w.now += w.pass_costs_ms;
    w.passes = passes;
    return w.now;
}

static inline int64_t fake_utc(void)
{
    return 1000000 + w.now + w.utc_shift;
}

static inline struct sim *sim_of(const char *name)
{
    for (int i = 0; i < NODES; i++)
        if (!strcmp(w.node[i].name, name)) return &w.node[i];
    return NULL; /* a test may send HELLO under a name that belongs to no simulated node */
}

static inline struct gang *gang_of(struct sim *n, int64_t job, int64_t epoch)
{
    for (int i = 0; i < n->n_gangs; i++)
        if (n->gang[i].job == job && n->gang[i].epoch == epoch) return &n->gang[i];
    return NULL;
}

/* ---- records of a node ----------------------------------------------------------------------- */

static inline void record(struct gang *g, int type, int rank, const void *data, size_t size,
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

static inline void rec_exit(struct gang *g, int rank, int status, int signo)
{
    struct rank_exit x = {.rank = rank, .pid = 99, .exit_status = status, .signal = signo};
    record(g, RANK_EXIT, rank, &x, sizeof x, NULL);
    if (rank == RANK_GANG) g->over = true;
}

static inline void rec_fail(struct gang *g, int rank, enum err_code code, const char *text)
{
    struct rank_fail f = {.code = (int32_t)code};
    snprintf(f.text, sizeof f.text, "%s", text);
    record(g, RANK_FAIL, rank, &f, sizeof f, NULL);
}

static inline void rec_step(struct gang *g, int64_t step)
{
    struct rank_step s = {.step = step, .loss = 1, .tokens = 10, .step_us = 1000, .ledger_ok = 1};
    record(g, RANK_STEP, 0, &s, sizeof s, NULL);
}

static inline void rec_event(struct gang *g, int rank, int type, int64_t step, const char *json)
{
    struct rank_event ev = {.type = type, .step = step};
    record(g, RANK_EVENT, rank, &ev, sizeof ev, json);
}

static inline void play_prepare(struct gang *g)
{
    record(g, RANK_RESULT, 0, NULL, 0, "{\"prepared_id\":\"abc\",\"n_tokens\":1000}");
    rec_exit(g, 0, 0, 0);
    rec_exit(g, RANK_GANG, GANG_DONE, 0);
}

static inline void play_blobs(struct gang *g)
{
    for (int i = 0; i < g->n_local; i++) record(g, RANK_BLOB, g->first + i, "blob", 4, NULL);
}

static inline void play_ready(struct gang *g)
{
    for (int i = 0; i < g->n_local; i++) record(g, RANK_READY, g->first + i, NULL, 0, NULL);
}

static inline void play_run(struct gang *g)
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

/* ---- messages -------------------------------------------------------------------------------- */

static inline int32_t running(const struct sim *n) /* counts the ranks that are alive on a node */
{
    int32_t ranks = 0;
    for (int i = 0; i < n->n_gangs; i++)
        if (!n->gang[i].over && n->gang[i].task == TASK_RUN && !n->gang[i].n_uuids)
            ranks += n->gang[i].n_local;
    return ranks;
}

/* Checks every GPU of the gang: the node has it, it is healthy, and no other gang of the node has
 * it. */
static inline void check_gpus(const struct sim *n, const struct gang *g)
{
    for (int i = 0; i < g->n_uuids; i++) {
        const int at = gpu_find(n->gpu, n->n_gpus, g->uuid[i]);
        CHECK_MSG(at >= 0 && n->gpu[at].health == GPU_OK, "GPU %s of %s", g->uuid[i], n->name);
        for (int k = 0; k < i; k++) CHECK(strcmp(g->uuid[i], g->uuid[k]) != 0);
        for (int k = 0; k < n->n_gangs; k++) {
            const struct gang *o = &n->gang[k];
            for (int u = 0; u < o->n_uuids && o != g && !o->over; u++)
                CHECK_MSG(strcmp(o->uuid[u], g->uuid[i]) != 0, "GPU %s of %s is given twice",
                          g->uuid[i], n->name);
        }
    }
}

static inline void assign(struct sim *n, const struct msg *m)
{
    struct gang *g = gang_of(n, m->job, m->epoch);
    n->n_assigns++;
    if (g) { /* if the same order is sent again, it must not differ */
        CHECK(!memcmp(g->key, m->key, sizeof g->key) && g->first == m->first_rank);
        CHECK(g->n_uuids == m->n_uuids);
        for (int i = 0; i < m->n_uuids; i++) CHECK_STR(g->uuid[i], m->uuids[i]);
        return;
    }
    CHECK(n->n_gangs < GANGS);
    g = &n->gang[n->n_gangs++];
    *g = (struct gang){.job = m->job, .epoch = m->epoch, .task = m->task, .n_ranks = m->n_ranks};
    g->first = m->first_rank;
    g->n_local = m->n_local;
    memcpy(g->key, m->key, sizeof g->key);
    g->n_uuids = m->n_uuids;
    for (int i = 0; i < m->n_uuids; i++) memcpy(g->uuid[i], m->uuids[i], GPU_UUID_SIZE);
    for (int i = 0; i < n->n_gangs - 1; i++) /* a newer epoch ends the gangs of all older ones */
        if (n->gang[i].job == m->job && !n->gang[i].over)
            rec_exit(&n->gang[i], RANK_GANG, GANG_STOPPED, 0);
    check_gpus(n, g);
    CHECK_MSG(running(n) <= SLOTS, "%d ranks on %s, which has %d slots", running(n), n->name,
              SLOTS);
}

static inline void not_here(struct sim *n, int64_t job, int64_t epoch)
{
    if (n->n_unknown < GANGS)
        n->unknown[n->n_unknown++] = (struct wire_attempt){.job = job, .epoch = epoch};
}

static inline void expect(struct sim *n, const struct msg *m)
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

static inline int on_send(void *arg, const char *name, const struct msg *m)
{
    struct sim *n = sim_of(name);
    if (w.hear) w.hear(name, m);
    if (!n || !n->up) return -1;
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

static inline void send_spool(struct sim *n, struct gang *g)
{
    for (; n->up && g->n_sent < g->n_records; g->n_sent++) {
        bool final = g->over && g->n_sent == g->n_records - 1;
        if ((g->n_sent < g->acked && !final) || g->forgotten) continue;
        struct msg m = {.type = MSG_REPORT, .job = g->job, .epoch = g->epoch};
        m.seq = g->n_sent + 1;
        m.data = g->record[g->n_sent].data;
        m.size = g->record[g->n_sent].size;
        control_link_calls.message(w.control, n->name, &m);
    }
}

static inline void send_all(struct sim *n)
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

static inline void hello(struct sim *n)
{
    struct wire_attempt list[GANGS];
    struct msg m = {
        .type = MSG_HELLO, .abi = n->abi ? n->abi : WIRE_ABI, .n_slots = SLOTS, .attempts = list};
    n->n_unknown = 0; /* these questions were asked by an earlier session */
    m.gpus = n->gpu, m.n_gpus = n->n_gpus, m.emulated = n->emulated;
    m.memory_size = n->memory_size, m.shared = n->shared;
    memcpy(m.instance, n->instance, sizeof m.instance);
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

static inline void heartbeat(struct sim *n)
{
    struct msg m = {.type = MSG_HEARTBEAT, .gpus = n->gpu, .n_gpus = n->n_gpus};
    control_link_calls.message(w.control, n->name, &m);
}

static inline void goodbye(struct sim *n)
{
    n->up = false;
    control_link_calls.down(w.control, n->name, "the test said so", 0);
}

/* ---- seqd ------------------------------------------------------------------------------------ */

static inline void open_seqd_with(loop_clock *clock)
{
    static unsigned char secret[SECRET_SIZE];
    struct err e = {0};
    w.loop = loop_create(clock, NULL, &e);
    w.store = store_open(w.loop, w.dir, &e);
    CHECK_MSG(w.store && !secret_open(w.dir, secret, &e), "%s", e.text);
    w.logs = logs_open(w.dir, &e);
    struct control_options o = {.loop = w.loop,
                                .store = w.store,
                                .logs = w.logs,
                                .secret = secret,
                                .send = on_send,
                                .policy = w.policy,
                                .utc_ms = fake_utc};
    w.control = control_create(&o, &e);
    CHECK_MSG(w.control != NULL, "%s", e.text);
}

static inline void open_seqd(void)
{
    open_seqd_with(fake_clock);
}

/* Checks that seqd has dropped no message from a node. A message must not be dropped because its
 * report is late, is repeated, or comes from a gang that has ended. */
static inline void check_dropped(void)
{
    const struct nodes *t = control_nodes(w.control);
    for (int i = 0; i < t->n && !w.strangers; i++)
        CHECK_MSG(!t->node[i].n_dropped, "node %s: %lld messages were dropped", t->node[i].name,
                  (long long)t->node[i].n_dropped);
}

static inline void close_seqd(void)
{
    check_dropped();
    store_close(w.store);
    control_destroy(w.control);
    w.control = NULL;
    logs_close(w.logs);
    loop_destroy(w.loop);
}

static inline void on_sentinel(void *arg, const struct err *e)
{
    *(bool *)arg = true;
}

/* Runs the loop until seqd has committed every request made so far and has acted on it. */
static inline void settle(void)
{
    for (int i = 0; i < 4; i++) {
        bool done = false;
        loop_turn(w.loop, 0);
        store_commit(w.store, store_begin(), on_sentinel, &done);
        while (!done) loop_turn(w.loop, 10);
    }
}

static inline void pass(int64_t ms)
{
    w.now += ms;
    settle();
}

static inline void begin(void)
{
    memset(&w, 0, sizeof w);
    /* is in memory if possible, because there are thousands of commits */
    scratch_dir(w.dir, sizeof w.dir, "gangs");
    w.now = 1000;
    w.obeys = true;
    for (int i = 0; i < NODES; i++) {
        if (i < 26) snprintf(w.node[i].name, sizeof w.node[i].name, "%c", 'a' + i);
        if (i >= 26) snprintf(w.node[i].name, sizeof w.node[i].name, "n%d", i);
        snprintf(w.node[i].address, sizeof w.node[i].address, "10.0.%d.%d", i / 250, i % 250 + 1);
    }
    open_seqd();
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    return remove(path);
}

static inline void finish(void)
{
    close_seqd();
    nftw(w.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int64_t got_id;

static inline void on_done(void *arg, const struct job *j, const struct err *e)
{
    got_id = j ? j->id : 0;
}

/* the node that holds the checkpoint of step 20 with which a submitted job starts, or NULL */
static const char *submit_source;

/* Submits the job of a spec. The answer comes to on_done. */
static inline void submit_text(const char *json, const char *plan)
{
    static struct job_spec s;
    struct err e;
    CHECK_MSG(!json_spec_read(json, strlen(json), JSON_FOR_PEOPLE, &s, &e), "%s", e.text);
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    commit_submit(control_commits(w.control),
                  &(struct commit_new){.spec = &s,
                                       .plan = plan,
                                       .source = submit_source,
                                       .source_step = submit_source ? 20 : 0},
                  on_done, NULL);
}

/* Submits a job, and does not wait until it is committed. Tests with many jobs use it. */
static inline void submit_begin(const char *device, int ranks, int restarts, const char *plan)
{
    char json[1024];
    snprintf(
        json, sizeof json,
        "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":"
        "\"/x\"}],\"seq_len\":100},\"train\":{\"passes\":1},\"resources\":{\"device\":\"%s\","
        "\"ranks\":%d},\"limits\":{\"restarts\":%d}}",
        device, ranks, restarts);
    submit_text(json, plan);
}

/* Submits the job of a spec, and returns its id. */
static inline int64_t submit_json(const char *json)
{
    submit_text(json, "{}");
    settle();
    return got_id;
}

static inline int64_t submit_on(const char *device, int ranks, int restarts, const char *plan)
{
    submit_begin(device, ranks, restarts, plan);
    settle();
    return got_id;
}

static inline int64_t submit(int ranks, int restarts)
{
    return submit_on("cpu", ranks, restarts, "{}");
}

static inline const struct job *job(int64_t id)
{
    return control_job(w.control, id);
}

static char stored[16384];
static bool answered;

static inline void on_row(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    CHECK(rows->n_rows == 1);
    snprintf(stored, sizeof stored, "%s", rows->row[0].text[0]);
}

static inline const char *doc(int64_t id)
{
    settle();
    answered = false;
    store_read(w.store, ASK_JOB, (const int64_t[4]){id}, NULL, on_row, NULL);
    while (!answered) loop_turn(w.loop, 10);
    return stored;
}

static inline bool is(int64_t id, const char *state)
{
    char want[64];
    snprintf(want, sizeof want, "\"state\":\"%s\"", state);
    return strstr(doc(id), want) != NULL;
}

/* Collects all events of a job in one text. */
static inline void on_events(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    stored[0] = 0;
    for (int i = 0; i < rows->n_rows; i++) {
        size_t n = strlen(stored);
        snprintf(stored + n, sizeof stored - n, "%s %s\n",
                 job_event_name((enum job_event)rows->row[i].n[3]), rows->row[i].text[0]);
    }
}

static inline const char *events(int64_t id)
{
    answered = false;
    store_read(w.store, ASK_EVENTS, (const int64_t[4]){id, 0, 1000, -1}, NULL, on_events, NULL);
    while (!answered) loop_turn(w.loop, 10);
    return stored;
}

static inline int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++) n++;
    return n;
}

#define A (&w.node[0])
#define B (&w.node[1])
#define C (&w.node[2])

#endif
