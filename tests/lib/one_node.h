/* one_node.h: runs seqd's control with one simulated node. The node keeps its spool by the rules
 * of api/wire.h. The loop's time and the wall clock change only when the test sets them. sim.h
 * simulates many nodes. */
#ifndef SEQD_TESTS_ONE_NODE_H
#define SEQD_TESTS_ONE_NODE_H

#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/loop/control.h"
#include "daemon/loop/order.h"
#include "tests/lib/seqd.h"
#include "tests/lib/test.h"
#include "worker/plan/check.h"

/* ---- seqd and the node ----------------------------------------------------------------------- */

#define SPOOL 64

struct sim_attempt { /* a node's records of one attempt */
    int64_t job, epoch;
    int task, n_ranks;
    int n_records, n_sent; /* n_sent is the number of records that were sent in this session */
    int64_t acked;
    bool stopped, saving, blobs, forgotten;
    struct {
        char data[sizeof(struct rank_msg) + 4096];
        size_t size;
        int64_t seq;
    } record[SPOOL];
};

static struct world {
    char dir[64];
    int64_t now, utc_shift; /* utc_shift is the amount by which the wall clock was changed */
    struct loop *loop;
    struct store *store;
    struct logs *logs;
    struct control *control;
    bool up;
    uint32_t abi; /* the node's ABI; 0 means the current one */
    int n_attempts, n_assigns, n_changed;
    int64_t submitted_s; /* submitted_s of the last ASSIGN message */
    struct sim_attempt attempt[32];
    int64_t log_acked;
    int n_log_acks, log_ack_rank;
    struct msg last_expect;
    int form; /* parallel.form in the spec of the last order */
    int n_expected;
} w;

static inline int64_t fake_clock(void *arg)
{
    return w.now;
}

static inline int64_t fake_utc(void)
{
    return 10000000 + w.now + w.utc_shift;
}

static inline struct sim_attempt *attempt_of(int64_t job, int64_t epoch)
{
    for (int i = 0; i < w.n_attempts; i++)
        if (w.attempt[i].job == job && w.attempt[i].epoch == epoch) return &w.attempt[i];
    return NULL;
}

/* seqd -> node */
static inline int on_send(void *arg, const char *node, const struct msg *m)
{
    if (!w.up) return -1;
    struct sim_attempt *a = attempt_of(m->job, m->epoch);
    switch (m->type) {
    case MSG_ASSIGN:
        w.n_assigns++;
        w.submitted_s = m->submitted_s;
        if (a) return 0; /* the node ignores an order whose epoch it has already */
        a = &w.attempt[w.n_attempts++];
        memset(a, 0, sizeof *a);
        a->job = m->job, a->epoch = m->epoch, a->task = m->task, a->n_ranks = m->n_ranks;
        CHECK(m->n_local == m->n_ranks && m->spec && m->spec->data.seq_len);
        CHECK((m->task == TASK_RUN) == (*m->prepared_id != 0) || m->spec->kind == JOB_SERVE);
        w.form = m->spec->parallel.form;
        break;
    case MSG_BLOBS:
        CHECK(a && m->n_blobs == a->n_ranks);
        for (int i = 0; i < m->n_blobs; i++) CHECK(m->blobs[i].rank == i && m->blobs[i].size == 4);
        a->blobs = true;
        break;
    case MSG_STOP:
        if (a) a->stopped = true;
        break;
    case MSG_SAVE:
        if (a) a->saving = true;
        break;
    case MSG_ACK:
        if (a && m->seq > a->acked) a->acked = m->seq;
        if (m->rank >= 0) w.n_log_acks++, w.log_ack_rank = m->rank, w.log_acked = m->offset;
        break;
    case MSG_FORGET:
        if (a) a->forgotten = true;
        break;
    case MSG_EXPECT: w.n_expected = m->n_attempts; break;
    default: break;
    }
    return 0;
}

static inline void on_changed(void *arg, int64_t job)
{
    w.n_changed++;
}

static inline void open_seqd(void)
{
    struct err e = {0};
    w.loop = loop_create(fake_clock, NULL, &e);
    w.store = store_open(w.loop, w.dir, &e);
    CHECK_MSG(w.store != NULL, "%s", e.text);
    w.logs = logs_open(w.dir, &e);
    struct control_options o = {.loop = w.loop,
                                .store = w.store,
                                .logs = w.logs,
                                .secret = (const unsigned char *)"a secret of the test, 32 bytes.",
                                .send = on_send,
                                .utc_ms = fake_utc,
                                .changed = on_changed};
    w.control = control_create(&o, &e);
    CHECK_MSG(w.control != NULL, "%s", e.text);
}

static inline void on_sentinel(void *arg, const struct err *e)
{
    *(bool *)arg = true;
}

/* Runs the loop until seqd has committed every request made so far and has acted on it. To detect
 * this, it makes an empty commit, which is answered after all earlier commits. It makes several
 * empty commits in succession, because an answer may cause a new commit. */
static inline void settle(void)
{
    for (int i = 0; i < 6; i++) {
        bool done = false;
        loop_turn(w.loop, 0);
        store_commit(w.store, store_begin(), on_sentinel, &done);
        while (!done) loop_turn(w.loop, 10);
    }
}

static inline void close_seqd(void)
{
    store_close(w.store);
    control_destroy(w.control);
    logs_close(w.logs);
    loop_destroy(w.loop);
}

static inline void begin(void)
{
    memset(&w, 0, sizeof w);
    snprintf(w.dir, sizeof w.dir, "/tmp/seqd-control-XXXXXX");
    CHECK(mkdtemp(w.dir) != NULL);
    w.now = 1000;
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

/* ---- the node's side ------------------------------------------------------------------------- */

static inline void hello(void)
{
    struct wire_attempt list[32];
    struct msg m = {.type = MSG_HELLO, .n_slots = 4, .n_cores = 2, .memory_size = 1 << 30};
    m.abi = w.abi ? w.abi : WIRE_ABI;
    snprintf(m.node, sizeof m.node, "n1");
    for (int i = 0; i < w.n_attempts; i++)
        if (!w.attempt[i].forgotten)
            list[m.n_attempts++] = (struct wire_attempt){w.attempt[i].job, w.attempt[i].epoch, 0,
                                                         0};
    m.attempts = list;
    w.up = true;
    control_link_calls.up(w.control, "n1", &m);
    for (int i = 0; i < w.n_attempts; i++) w.attempt[i].n_sent = 0;
}

static inline void goodbye(void)
{
    w.up = false;
    control_link_calls.down(w.control, "n1", "the test said so", 0);
}

/* Sends the records that seqd has not yet acknowledged, except those that were already sent in
 * this session. */
static inline void send_spool(struct sim_attempt *a)
{
    for (; a->n_sent < a->n_records; a->n_sent++) {
        if (a->record[a->n_sent].seq && a->record[a->n_sent].seq <= a->acked) continue;
        struct msg m = {.type = MSG_REPORT, .job = a->job, .epoch = a->epoch};
        m.seq = a->record[a->n_sent].seq;
        m.data = a->record[a->n_sent].data;
        m.size = a->record[a->n_sent].size;
        control_link_calls.message(w.control, "n1", &m);
    }
}

static inline void record(struct sim_attempt *a, int type, int rank, const void *data, size_t size,
                          const char *json)
{
    struct rank_msg head = {RANK_ABI, (uint32_t)type, rank, 0};
    CHECK(a->n_records < SPOOL);
    char *out = a->record[a->n_records].data;
    size_t n = json ? strlen(json) : 0;
    head.size = (uint32_t)(size + n);
    memcpy(out, &head, sizeof head);
    if (size) memcpy(out + sizeof head, data, size);
    if (n) memcpy(out + sizeof head + size, json, n);
    a->record[a->n_records].size = sizeof head + size + n;
    a->record[a->n_records].seq = a->n_records + 1;
    a->n_records++;
}

static inline void rec_exit(struct sim_attempt *a, int rank, int status, int signo)
{
    struct rank_exit x = {.rank = rank, .pid = 99, .exit_status = status, .signal = signo};
    record(a, RANK_EXIT, rank, &x, sizeof x, NULL);
}

static inline void rec_fail(struct sim_attempt *a, int rank, enum err_code code, const char *text)
{
    struct rank_fail f = {.code = (int32_t)code};
    snprintf(f.text, sizeof f.text, "%s", text);
    record(a, RANK_FAIL, rank, &f, sizeof f, NULL);
}

static inline void rec_step(struct sim_attempt *a, int64_t step)
{
    struct rank_step s = {.step = step, .loss = 5.0 / (double)step, .tokens = 10, .step_us = 1000};
    s.comm[PURPOSE_RING_KV].bytes_sent = 8;
    s.planned[PURPOSE_RING_KV].bytes_sent = 8;
    s.ledger_ok = 1;
    record(a, RANK_STEP, 0, &s, sizeof s, NULL);
}

static inline void rec_progress(struct sim_attempt *a, double done, double total)
{
    struct rank_progress p = {.unit = PROGRESS_REQUESTS, .done = done, .total = total, .from = 1};
    p.tokens = 30;
    p.elapsed_us = 2000000;
    record(a, RANK_PROGRESS, 0, &p, sizeof p, NULL);
}

static inline void rec_event(struct sim_attempt *a, int type, int64_t step, const char *json)
{
    struct rank_event ev = {.type = type, .step = step};
    record(a, RANK_EVENT, 0, &ev, sizeof ev, json);
}

static inline void rec_serving(struct sim_attempt *a)
{
    rec_event(a, EV_NOTE, 0, "{\"code\":\"" RANK_NOTE_SERVES "\",\"text\":\"x\"}");
}

static inline void play_prepare(struct sim_attempt *a)
{
    record(a, RANK_RESULT, 0, NULL, 0,
           "{\"prepared_id\":\"abc\",\"n_tokens\":1000,\n\"unigram_entropy\":2.5}");
    rec_exit(a, 0, 0, 0);
    rec_exit(a, RANK_GANG, GANG_DONE, 0);
}

static inline void play_start(struct sim_attempt *a)
{
    for (int i = 0; i < a->n_ranks; i++) record(a, RANK_BLOB, i, "blob", 4, NULL);
    for (int i = 0; i < a->n_ranks; i++) record(a, RANK_READY, i, NULL, 0, NULL);
}

static inline void play_train(struct sim_attempt *a)
{
    rec_step(a, 1);
    rec_step(a, 2);
    rec_event(a, EV_CHECKPOINT, 2, "{\"path\":\"/x/step-2\"}");
    rec_step(a, 3);
    rec_event(a, EV_ARTIFACT, 0, "{\"name\":\"a.json\",\"size\":3}");
    record(a, RANK_RESULT, 0, NULL, 0, "{\"loss\":1.5}");
    for (int i = 0; i < a->n_ranks; i++) rec_exit(a, i, 0, 0);
    rec_exit(a, RANK_GANG, GANG_DONE, 0);
}

/* ---- the client's side ----------------------------------------------------------------------- */

/* The job that submit makes. */
static const char *spec_text_json =
    "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":\"/x\"}],"
    "\"seq_len\":100},\"train\":{\"passes\":1},\"resources\":{\"ranks\":2},\"limits\":{"
    "\"restarts\":1}}";

static int64_t got_id;
static enum err_code got_code;

static inline void on_done(void *arg, const struct job *j, const struct err *e)
{
    got_id = j ? j->id : 0;
    got_code = e ? e->code : ERR_NONE;
}

static inline int64_t submit(const char *key, const char *fingerprint)
{
    static struct job_spec s;
    struct err e;
    CHECK(!json_spec_read(spec_text_json, strlen(spec_text_json), JSON_FOR_PEOPLE, &s, &e));
    CHECK(!family_check(&s, &e));
    got_id = -1;
    commit_submit(
        control_commits(w.control),
        &(struct commit_new){.spec = &s, .plan = "{}", .key = key, .fingerprint = fingerprint},
        on_done, NULL);
    settle();
    return got_id;
}

static char stored_state[16], stored_doc[8192], stored_result[256];
static bool answered;

static inline void on_row(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    stored_state[0] = stored_result[0] = 0;
    if (!rows->n_rows) return;
    snprintf(stored_doc, sizeof stored_doc, "%s", rows->row[0].text[0]);
    if (rows->row[0].text[3])
        snprintf(stored_result, sizeof stored_result, "%s", rows->row[0].text[3]);
    const char *at = strstr(stored_doc, "\"state\":\"");
    sscanf(at + 9, "%15[a-z]", stored_state);
}

static inline void on_count(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    *(int *)arg = rows->n_rows;
}

static inline void ask(enum store_ask what, int64_t job, store_answer *answer, void *arg)
{
    answered = false;
    store_read(w.store, what,
               (const int64_t[4]){job, 0, 1000, what == ASK_CHECKPOINTS ? EV_CHECKPOINT : -1}, NULL,
               answer, arg);
    while (!answered) loop_turn(w.loop, 10);
}

static inline const char *state_of(int64_t job)
{
    settle();
    ask(ASK_JOB, job, on_row, NULL);
    const struct job *j = control_job(w.control, job);
    /* the state in the stored document must be the state that the fold computed */
    if (j) CHECK_STR(stored_state, job_state_name(j->state));
    return stored_state;
}

/* Submits a job, connects the node, and prepares the data. Returns the running attempt. */
static inline struct sim_attempt *to_run(void)
{
    int64_t id = submit(NULL, NULL);
    CHECK(id == 1);
    CHECK_STR(state_of(id), "queued");
    CHECK_STR(control_job(w.control, id)->reason_code, "no_node");
    hello();
    settle();
    struct sim_attempt *a = attempt_of(id, 1);
    CHECK(a && a->task == TASK_PREPARE && a->n_ranks == 1);
    CHECK(control_reserved(w.control, "n1") == 0); /* a job that is preparing data holds no slot */
    play_prepare(a);
    send_spool(a);
    settle();
    CHECK(a->forgotten && a->acked >= 1);
    a = attempt_of(id, 2);
    CHECK(a && a->task == TASK_RUN && a->n_ranks == 2);
    CHECK(control_reserved(w.control, "n1") == 2);
    CHECK(control_job(w.control, id)->steps == 10);
    return a;
}

#endif
