/* Jobs through their whole life against a simulated node that keeps its spool by the rules of
 * api/wire.h: submits, preparation, rendezvous, failures of every class, cancels, lost nodes, and a
 * seqd that is restarted after any record. Time is moved by hand. */
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#include "api/core/log.h"
#include "daemon/control.h"
#include "daemon/json.h"
#include "tests/bad_disk.h"
#include "tests/seqd.h"
#include "tests/test.h"

/* ---- the world ------------------------------------------------------------------------------- */

#define SPOOL 64

struct sim_attempt { /* what a node keeps of one attempt */
    int64_t job, epoch;
    int task, n_ranks;
    int n_records, n_sent; /* sent in this session */
    int64_t acked;
    bool stopped, blobs, forgotten;
    struct {
        char data[sizeof(struct rank_msg) + 4096];
        size_t size;
        int64_t seq;
    } record[SPOOL];
};

static struct world {
    char dir[64];
    int64_t now, utc_shift; /* shift: the wall clock was set */
    struct loop *loop;
    struct store *store;
    struct logs *logs;
    struct control *control;
    bool up;
    int n_attempts, n_assigns, n_changed;
    struct sim_attempt attempt[32];
    int64_t log_acked;
    int n_log_acks, log_ack_rank;
    struct msg last_expect;
    int form; /* of the last order's spec */
    int n_expected;
} w;

static int64_t fake_clock(void *arg)
{
    return w.now;
}

static int64_t fake_utc(void)
{
    return 10000000 + w.now + w.utc_shift;
}

static struct sim_attempt *attempt_of(int64_t job, int64_t epoch)
{
    for (int i = 0; i < w.n_attempts; i++)
        if (w.attempt[i].job == job && w.attempt[i].epoch == epoch) return &w.attempt[i];
    return NULL;
}

/* seqd -> node */
static int on_send(void *arg, const char *node, const struct msg *m)
{
    if (!w.up) return -1;
    struct sim_attempt *a = attempt_of(m->job, m->epoch);
    switch (m->type) {
    case MSG_ASSIGN:
        w.n_assigns++;
        if (a) return 0; /* the same epoch again is ignored */
        a = &w.attempt[w.n_attempts++];
        memset(a, 0, sizeof *a);
        a->job = m->job, a->epoch = m->epoch, a->task = m->task, a->n_ranks = m->n_ranks;
        CHECK(m->n_local == m->n_ranks && m->spec && m->spec->data.seq_len);
        CHECK((m->task == TASK_RUN) == (*m->prepared_id != 0));
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

static void on_changed(void *arg, int64_t job)
{
    w.n_changed++;
}

static void open_seqd(void)
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

static void on_sentinel(void *arg, const struct err *e)
{
    *(bool *)arg = true;
}

/* Runs the loop until everything asked for so far is committed and acted upon: a commit that is
 * answered after all others, several times, because an answer may cause another commit. */
static void settle(void)
{
    for (int i = 0; i < 6; i++) {
        bool done = false;
        loop_turn(w.loop, 0);
        store_commit(w.store, store_begin(), on_sentinel, &done);
        while (!done) loop_turn(w.loop, 10);
    }
}

static void close_seqd(void)
{
    store_close(w.store);
    control_destroy(w.control);
    logs_close(w.logs);
    loop_destroy(w.loop);
}

static void begin(void)
{
    memset(&w, 0, sizeof w);
    snprintf(w.dir, sizeof w.dir, "/tmp/seqd-control-XXXXXX");
    CHECK(mkdtemp(w.dir) != NULL);
    w.now = 1000;
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

/* ---- the node's side --------------------------------------------------------------------------- */

static void hello(void)
{
    struct wire_attempt list[32];
    struct msg m = {.type = MSG_HELLO, .n_slots = 4, .n_cores = 2, .memory_size = 1 << 30};
    snprintf(m.node, sizeof m.node, "n1");
    for (int i = 0; i < w.n_attempts; i++)
        if (!w.attempt[i].forgotten)
            list[m.n_attempts++] = (struct wire_attempt){w.attempt[i].job, w.attempt[i].epoch};
    m.attempts = list;
    w.up = true;
    control_link_calls.up(w.control, "n1", &m);
    for (int i = 0; i < w.n_attempts; i++) w.attempt[i].n_sent = 0;
}

static void goodbye(void)
{
    w.up = false;
    control_link_calls.down(w.control, "n1", "the test said so", 0);
}

/* Sends what has not been sent in this session, from behind the last ACK. */
static void send_spool(struct sim_attempt *a)
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

static void record(struct sim_attempt *a, int type, int rank, const void *data, size_t size,
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

static void rec_exit(struct sim_attempt *a, int rank, int status, int signo)
{
    struct rank_exit x = {.rank = rank, .pid = 99, .exit_status = status, .signal = signo};
    record(a, RANK_EXIT, rank, &x, sizeof x, NULL);
}

static void rec_fail(struct sim_attempt *a, int rank, enum err_code code, const char *text)
{
    struct rank_fail f = {.code = (int32_t)code};
    snprintf(f.text, sizeof f.text, "%s", text);
    record(a, RANK_FAIL, rank, &f, sizeof f, NULL);
}

static void rec_step(struct sim_attempt *a, int64_t step)
{
    struct rank_step s = {.step = step, .loss = 5.0 / (double)step, .tokens = 10, .step_us = 1000};
    s.comm[PURPOSE_RING_KV].bytes_sent = 8;
    s.planned[PURPOSE_RING_KV].bytes_sent = 8;
    s.ledger_ok = 1;
    record(a, RANK_STEP, 0, &s, sizeof s, NULL);
}

static void rec_progress(struct sim_attempt *a, double done, double total)
{
    struct rank_progress p = {.unit = PROGRESS_REQUESTS, .done = done, .total = total, .from = 1};
    p.tokens = 30;
    p.elapsed_us = 2000000;
    record(a, RANK_PROGRESS, 0, &p, sizeof p, NULL);
}

static void rec_event(struct sim_attempt *a, int type, int64_t step, const char *json)
{
    struct rank_event ev = {.type = type, .step = step};
    record(a, RANK_EVENT, 0, &ev, sizeof ev, json);
}

static void play_prepare(struct sim_attempt *a)
{
    record(a, RANK_RESULT, 0, NULL, 0,
           "{\"prepared_id\":\"abc\",\"n_tokens\":1000,\n\"unigram_entropy\":2.5}");
    rec_exit(a, 0, 0, 0);
    rec_exit(a, RANK_GANG, GANG_DONE, 0);
}

static void play_start(struct sim_attempt *a)
{
    for (int i = 0; i < a->n_ranks; i++) record(a, RANK_BLOB, i, "blob", 4, NULL);
    for (int i = 0; i < a->n_ranks; i++) record(a, RANK_READY, i, NULL, 0, NULL);
}

static void play_train(struct sim_attempt *a)
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

/* ---- the client's side ------------------------------------------------------------------------- */

static const char spec_text_json[] =
    "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":\"/x\"}],"
    "\"seq_len\":100},\"train\":{\"passes\":1},\"resources\":{\"ranks\":2},\"limits\":{"
    "\"restarts\":1}}";

static int64_t got_id;
static enum err_code got_code;

static void on_done(void *arg, const struct job *j, const struct err *e)
{
    got_id = j ? j->id : 0;
    got_code = e ? e->code : ERR_NONE;
}

static int64_t submit(const char *key, const char *fingerprint)
{
    static struct job_spec s;
    struct err e;
    CHECK(!json_spec_read(spec_text_json, strlen(spec_text_json), JSON_FOR_PEOPLE, &s, &e));
    CHECK(!job_check(&s, &e));
    got_id = -1;
    control_submit(
        w.control,
        &(struct control_submit){.spec = &s, .plan = "{}", .key = key, .fingerprint = fingerprint},
        on_done, NULL);
    settle();
    return got_id;
}

static char stored_state[16], stored_doc[8192], stored_result[256];
static int n_events, n_metric_rows;
static bool answered;

static void on_row(void *arg, const struct store_rows *rows, const struct err *failed)
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

static void on_count(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    *(int *)arg = rows->n_rows;
}

static char listed_steps[64];

static void on_steps(void *arg, const struct store_rows *rows, const struct err *failed)
{
    char *out = arg;
    answered = true;
    *out = 0;
    for (int i = 0; i < rows->n_rows; i++)
        out += sprintf(out, "%d ", atoi(strstr(rows->row[i].text[0], "\"step\":") + 7));
}

static void ask(enum store_ask what, int64_t job, store_answer *answer, void *arg)
{
    answered = false;
    store_read(w.store, what,
               (const int64_t[4]){job, 0, 1000, what == ASK_CHECKPOINTS ? EV_CHECKPOINT : -1}, NULL,
               answer, arg);
    while (!answered) loop_turn(w.loop, 10);
}

static const char *state_of(int64_t job)
{
    settle();
    ask(ASK_JOB, job, on_row, NULL);
    const struct job *j = control_job(w.control, job);
    if (j) CHECK_STR(stored_state, job_state_name(j->state)); /* doc and fold agree */
    return stored_state;
}

/* Submits, comes up, prepares: returns the attempt that runs. */
static struct sim_attempt *to_run(void)
{
    int64_t id = submit(NULL, NULL);
    CHECK(id == 1);
    CHECK_STR(state_of(id), "queued");
    CHECK_STR(control_job(w.control, id)->reason_code, "no_node");
    hello();
    settle();
    struct sim_attempt *a = attempt_of(id, 1);
    CHECK(a && a->task == TASK_PREPARE && a->n_ranks == 1);
    CHECK(control_reserved(w.control, "n1") == 0); /* preparing holds no slot */
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

static void tell_log(struct sim_attempt *a, int rank, int64_t offset, const char *text)
{
    struct msg m = {.type = MSG_LOG, .job = a->job, .epoch = a->epoch, .rank = rank};
    m.offset = offset;
    m.data = text;
    m.size = strlen(text);
    control_link_calls.message(w.control, "n1", &m);
}

/* ---- tests --------------------------------------------------------------------------------------- */

/* Bytes of a log that could not be kept are asked for again: nothing else would bring them. */
static void test_log_that_was_not_kept(void)
{
    char path[160], text[32] = "";
    struct err e;
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    settle();
    snprintf(path, sizeof path, "%s/jobs/1", w.dir);
    FILE *f = fopen(path, "w"); /* where its directory should be */
    CHECK(f && !fclose(f));
    tell_log(a, 0, 0, "one\n");
    tell_log(a, 0, 4, "two\n");
    CHECK(w.n_log_acks == 0);
    CHECK(!unlink(path));
    w.now += 1000;
    loop_turn(w.loop, 0);
    CHECK(w.n_log_acks == 2 && w.log_acked == 0); /* of both ranks */
    tell_log(a, 0, 0, "one\ntwo\n");
    w.now += 1000;
    loop_turn(w.loop, 0);
    CHECK(w.n_log_acks == 3 && w.log_ack_rank == 0 && w.log_acked == 8);
    CHECK(logs_read(w.logs, 1, 2, 0, 0, text, sizeof text, &e) == 8 && !strcmp(text, "one\ntwo\n"));
    finish();
}

/* What is listed is there: no step that was removed, none twice. */
static void test_removed_checkpoints(void)
{
    int n_listed, n_told;
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_event(a, EV_CHECKPOINT, 2, "{\"path\":\"/x/step-2\"}");
    rec_event(a, EV_CHECKPOINT, 4, "{\"path\":\"/x/step-4\"}");
    rec_event(a, EV_CHECKPOINT_REMOVED, 2,
              "{\"path\":\"/x/step-2\",\"reason\":\"checkpoint.keep\"}");
    rec_event(a, EV_CHECKPOINT, 6, "{\"path\":\"/x/step-6\"}");
    rec_event(a, EV_CHECKPOINT, 4, "{\"path\":\"/x/step-4\"}"); /* written again */
    send_spool(a);
    settle();
    CHECK(control_job(w.control, 1)->state == JOB_RUNNING);
    ask(ASK_CHECKPOINTS, 1, on_count, &n_listed);
    ask(ASK_EVENTS, 1, on_count, &n_told);
    CHECK_MSG(n_listed == 2 && n_told == 10, "%d, %d", n_listed, n_told);
    rec_event(a, EV_CHECKPOINT_REMOVED, 4, "{}");
    rec_event(a, EV_CHECKPOINT, 2, "{\"path\":\"/x/step-2\"}"); /* there again */
    send_spool(a);
    settle();
    ask(ASK_CHECKPOINTS, 1, on_steps, listed_steps);
    CHECK_STR(listed_steps, "6 2 ");
    finish();
}

static void on_spec(void *arg, const struct store_rows *rows, const struct err *failed)
{
    answered = true;
    snprintf(arg, 8192, "%s", rows->n_rows ? rows->row[0].text[1] : "");
}

/* Fields of another version are still there when this one has written the spec. */
static void test_spec_of_another_version(void)
{
    static char spec[8192];
    sqlite3 *db;
    char path[128];
    begin();
    CHECK(submit(NULL, NULL) == 1);
    close_seqd();
    snprintf(path, sizeof path, "%s/seqd.db", w.dir);
    CHECK(!sqlite3_open(path, &db) &&
          !sqlite3_exec(db, "UPDATE jobs SET spec = json_set(spec, '$.wings', 2)", 0, 0, 0));
    sqlite3_close(db);
    open_seqd();
    hello();
    settle();
    struct sim_attempt *a = attempt_of(1, 1);
    CHECK(a && a->task == TASK_PREPARE);
    play_prepare(a);
    send_spool(a);
    settle();
    ask(ASK_JOB, 1, on_spec, spec);
    CHECK(strstr(spec, "\"wings\":2") && strstr(spec, "\"steps\":10"));
    finish();
}

/* A job that memory knows to have ended stays until that end is on disk: an older event's commit
 * that is answered meanwhile does not take it away, and followers are not told of the end. */
static void test_end_before_its_commit(void)
{
    begin();
    CHECK(submit(NULL, NULL) == 1);
    hello();
    settle();
    struct sim_attempt *a = attempt_of(1, 1);
    CHECK(a && a->task == TASK_PREPARE);
    play_prepare(a);
    bad_disk_hold();
    send_spool(a); /* its end: one commit */
    bad_disk_wait_held();
    w.up = false; /* nothing else happens */
    control_cancel(w.control, 1, on_done, NULL);
    CHECK(control_job(w.control, 1)->state == JOB_CANCELLED);
    bad_disk_let_one();
    while (control_job(w.control, 1) && control_job(w.control, 1)->attempt) loop_turn(w.loop, 5);
    bad_disk_wait_held(); /* the cancel */
    CHECK(control_job(w.control, 1) != NULL);
    ask(ASK_JOB, 1, on_row, NULL);
    CHECK_STR(stored_state, "queued");
    bad_disk_release();
    CHECK_STR(state_of(1), "cancelled");
    CHECK(!control_job(w.control, 1) && got_id == 1);
    finish();
}

static void test_life(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    CHECK(a->blobs);
    CHECK_STR(state_of(1), "running");
    CHECK(a->acked == 4);
    play_train(a);
    send_spool(a);
    CHECK_STR(state_of(1), "succeeded");
    CHECK(!control_job(w.control, 1) && control_n_live(w.control) == 0);
    CHECK(a->forgotten && a->acked == a->n_records);
    CHECK(control_reserved(w.control, "n1") == 0);
    CHECK_STR(stored_result, "{\"loss\":1.5}");
    CHECK(strstr(stored_doc, "\"checkpoint_step\":2") && strstr(stored_doc, "\"step\":3"));
    ask(ASK_EVENTS, 1, on_count, &n_events);
    CHECK_MSG(n_events == 8, "%d events",
              n_events); /* submit assign prepared assign ready ckpt art done */
    ask(ASK_METRICS, 1, on_count, &n_metric_rows);
    CHECK(n_metric_rows >= 1);
    /* A report of the past changes nothing and is let go of. */
    a->forgotten = false;
    struct msg late = {.type = MSG_REPORT, .job = 1, .epoch = 2, .seq = a->n_records};
    late.data = a->record[a->n_records - 1].data;
    late.size = a->record[a->n_records - 1].size;
    control_link_calls.message(w.control, "n1", &late);
    CHECK(a->forgotten);
    finish();
}

static const char *stored_progress(void)
{
    static char out[256];
    ask(ASK_JOB, 1, on_row, NULL);
    const char *at = strstr(stored_doc, "\"progress\":");
    snprintf(out, sizeof out, "%s", at ? at + 11 : "none");
    const size_t n = strcspn(out, "}");
    out[strncmp(out, "null", 4) ? n + (out[n] != 0) : 4] = 0;
    return out;
}

static void flush(void)
{
    control_flush(w.control, (struct job *)control_job(w.control, 1));
    settle();
}

/* How far a job is stands in its document, committed like its steps: by what rank 0 says, or by
 * steps; with a speed only while it goes on; of numbers that cannot be, nothing. */
static void test_progress(void)
{
    begin();
    struct sim_attempt *a = to_run();
    CHECK_STR(stored_progress(), "{\"unit\":\"steps\",\"done\":0,\"total\":10,\"fraction\":0,"
                                 "\"rate\":null,\"tokens_s\":null,\"eta_s\":null}");
    play_start(a);
    rec_progress(a, 2, 5);
    send_spool(a);
    flush();
    CHECK_STR(stored_progress(), "{\"unit\":\"requests\",\"done\":2,\"total\":5,\"fraction\":0.4,"
                                 "\"rate\":0.5,\"tokens_s\":15,\"eta_s\":6}");
    rec_progress(a, 3, 2);
    rec_progress(a, NAN, 5);
    rec_progress(a, 0.5, 5);
    rec_progress(a, 2, -5);
    rec_progress(a, 2, INFINITY);
    struct rank_progress other = {.unit = PROGRESS_UNIT_N, .done = 3, .total = 5};
    record(a, RANK_PROGRESS, 0, &other, sizeof other, NULL);
    other.unit = 0;
    record(a, RANK_PROGRESS, 1, &other, sizeof other, NULL); /* for rank 0 alone to say */
    record(a, RANK_PROGRESS, 0, &other, sizeof other - 1, NULL);
    send_spool(a);
    flush();
    CHECK(strstr(stored_progress(), "\"done\":2,\"total\":5"));
    rec_step(a, 4);
    rec_step(a, 5);
    send_spool(a);
    flush();
    CHECK_STR(stored_progress(), "{\"unit\":\"steps\",\"done\":5,\"total\":10,\"fraction\":0.5,"
                                 "\"rate\":1000,\"tokens_s\":10000,\"eta_s\":0.005}");
    rec_exit(a, 0, 0, 9);
    rec_exit(a, 1, 0, 9);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting"); /* the next attempt, from its checkpoint */
    CHECK_STR(stored_progress(), "{\"unit\":\"steps\",\"done\":5,\"total\":10,\"fraction\":0.5,"
                                 "\"rate\":null,\"tokens_s\":null,\"eta_s\":null}");
    finish();
}

/* What "auto" waited for stands in the order of the ranks, and after a restart. */
static void test_form(void)
{
    static const char *const said[] = {
        "{\"prepared_id\":\"abc\",\"n_tokens\":1000,\"forms\":{\"samples\":2,"
        "\"blockwise\":{\"messages\":8,\"bytes\":800000},\"all_gather\":{\"messages\":8,"
        "\"bytes\":400}}}",
        "{\"prepared_id\":\"abc\",\"n_tokens\":1000,\"forms\":{\"samples\":2,"
        "\"blockwise\":{\"messages\":8,\"bytes\":800000},\"all_gather\":{\"messages\":16,"
        "\"bytes\":800000}}}"};
    for (int i = 0; i < 2; i++) {
        begin();
        submit(NULL, NULL);
        hello();
        settle();
        CHECK(w.form == FORM_AUTO && w.n_attempts == 1);
        record(&w.attempt[0], RANK_RESULT, 0, NULL, 0, said[i]);
        rec_exit(&w.attempt[0], 0, 0, 0);
        rec_exit(&w.attempt[0], RANK_GANG, GANG_DONE, 0);
        send_spool(&w.attempt[0]);
        settle();
        CHECK(w.form == (i ? FORM_BLOCKWISE : FORM_ALL_GATHER) && w.n_attempts == 2);
        const struct job *j = control_job(w.control, 1);
        CHECK(j->spec->parallel.form == w.form);
        /* the plan that is shown is that of the form which runs */
        if (!i) CHECK(j->plan && strstr(j->plan, "\"form\":\"all_gather\""));
        goodbye();
        close_seqd();
        open_seqd();
        j = control_job(w.control, 1);
        CHECK(j && j->spec->parallel.form == w.form);
        if (!i) CHECK(j->plan && strstr(j->plan, "\"form\":\"all_gather\""));
        finish();
    }
}

static void test_sigkill_is_infrastructure(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_exit(a, 1, 0, SIGKILL);
    rec_fail(a, 0, ERR_ABORTED, "aborted: rank 1 died");
    rec_exit(a, 0, 1, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "stopping");
    CHECK(a->stopped &&
          control_reserved(w.control, "n1") == 2); /* nothing is free before STOPPED */
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting"); /* the first retry is at once */
    const struct job *j = control_job(w.control, 1);
    CHECK(j->epoch == 3 && j->restarts == 0 && j->err_cause == CAUSE_INFRASTRUCTURE);
    CHECK(j->err_rank == 1 && strstr(j->err.text, "signal 9"));
    finish();
}

static void test_failures_of_the_job(void)
{
    static const struct {
        enum err_code code;
        const char *state;
        int cause;
        bool stepped;
    } cases[] = {{ERR_INVALID, "failed", CAUSE_FINAL, true},
                 {ERR_NOT_FOUND, "failed", CAUSE_FINAL, true},
                 {ERR_DOES_NOT_FIT, "failed", CAUSE_FINAL, true},
                 {ERR_CORRUPT, "failed", CAUSE_FINAL, true},
                 {ERR_INTERNAL, "starting", CAUSE_USER, true},
                 {ERR_TIMEOUT, "starting", CAUSE_USER, true},
                 {ERR_INTERNAL, "starting", CAUSE_INFRASTRUCTURE, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        struct sim_attempt *a = to_run();
        play_start(a);
        if (cases[i].stepped) rec_step(a, 1);
        rec_fail(a, 1, cases[i].code, "the rank's own sentence");
        rec_exit(a, 1, 1, 0);
        rec_exit(a, RANK_GANG, GANG_FAILED, 0);
        send_spool(a);
        CHECK_STR(state_of(1), cases[i].state);
        CHECK(strstr(stored_doc, "the rank's own sentence"));
        CHECK(strstr(stored_doc, cause_name(cases[i].cause)));
        const struct job *j = control_job(w.control, 1);
        if (j) CHECK(j->restarts == (cases[i].cause == CAUSE_USER));
        finish();
    }
}

/* A rank that says "my peer is gone" before its peer's death is known does not take the blame. */
static void test_consequence_waits_for_cause(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_fail(a, 0, ERR_PEER, "rank 1 is silent");
    rec_exit(a, 0, 1, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "running");
    rec_exit(a, 1, 0, SIGKILL);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK(control_job(w.control, 1)->err_rank == 1);
    CHECK(control_job(w.control, 1)->restarts == 0);
    finish();

    begin(); /* and when no better cause comes, it is the cause */
    a = to_run();
    play_start(a);
    rec_fail(a, 0, ERR_PEER, "rank 1 is silent");
    rec_exit(a, 0, 1, 0);
    rec_exit(a, RANK_GANG, GANG_FAILED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK_STR(control_job(w.control, 1)->err.text, "rank 1 is silent");
    finish();
}

static void cancel(int64_t id)
{
    got_code = ERR_INTERNAL;
    control_cancel(w.control, id, on_done, NULL);
    settle();
}

static void test_cancel(void)
{
    begin();
    CHECK(submit(NULL, NULL) == 1);
    cancel(1);
    CHECK(got_code == ERR_NONE);
    CHECK_STR(state_of(1), "cancelled");
    cancel(1);
    CHECK(got_code == ERR_NOT_FOUND);
    finish();

    for (int when = 0; when < 3; when++) { /* starting, running, and after a death */
        begin();
        struct sim_attempt *a = to_run();
        if (when) play_start(a);
        if (when == 2) rec_exit(a, 1, 0, SIGKILL);
        send_spool(a);
        cancel(1);
        CHECK(got_code == ERR_NONE);
        CHECK_STR(state_of(1), "stopping");
        CHECK(a->stopped);
        cancel(1);
        CHECK(got_code == ERR_NONE); /* twice is once */
        a->stopped = false;
        w.now += 6000; /* a STOP that had no effect is sent again */
        settle();
        CHECK(a->stopped);
        rec_exit(a, RANK_GANG, GANG_STOPPED, 0);
        send_spool(a);
        CHECK_STR(state_of(1), "cancelled");
        CHECK(a->forgotten);
        finish();
    }
}

static void test_node_lost(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    CHECK_STR(state_of(1), "running");
    goodbye();
    w.now += NODE_LOST_MS - 1001;
    settle();
    CHECK_STR(state_of(1), "running"); /* an outage is harmless */
    w.now += 3000;
    settle();
    CHECK_STR(state_of(1), "queued");
    CHECK(control_job(w.control, 1)->restarts == 0);
    /* It comes back with the old attempt: not expected any more; a new one is placed. */
    hello();
    settle();
    CHECK(w.n_expected == 0);
    CHECK(attempt_of(1, 3) && attempt_of(1, 3)->task == TASK_RUN);
    play_train(a); /* what the old one still says counts for nothing */
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK(a->forgotten);
    finish();
}

/* Data lies on the node that prepared it: another node prepares it again before it runs. */
static void test_other_node_prepares_again(void)
{
    begin();
    to_run();
    goodbye();
    w.now += NODE_LOST_MS + 2000;
    settle();
    struct msg m = {.type = MSG_HELLO, .n_slots = 4};
    snprintf(m.node, sizeof m.node, "n2");
    w.up = true;
    control_link_calls.up(w.control, "n2", &m);
    settle();
    struct sim_attempt *a = attempt_of(1, 3);
    CHECK(a && a->task == TASK_PREPARE);
    CHECK_STR(control_job(w.control, 1)->node, "n2");
    finish();
}

static void test_short_outage(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    send_spool(a);
    settle();
    goodbye();
    w.now += 3000;
    settle();
    play_train(a);
    hello();
    send_spool(a);
    CHECK_STR(state_of(1), "succeeded");
    CHECK(w.n_assigns == 2);
    finish();
}

static void test_unknown_attempt(void)
{
    begin();
    struct sim_attempt *a = to_run();
    rec_exit(a, RANK_GANG, GANG_UNKNOWN, 0);
    a->record[0].seq = 0; /* from no spool */
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK(control_job(w.control, 1)->epoch == 3);
    CHECK(control_job(w.control, 1)->restarts == 0);
    finish();
}

/* Ctrl-C of seqd --dev: seqw stops its gangs. The job goes on later and has not failed. */
static void test_stopped_by_agent(void)
{
    begin();
    struct sim_attempt *a = to_run();
    play_start(a);
    rec_fail(a, 0, ERR_ABORTED, "rank 0 stopped, as told");
    rec_exit(a, 0, 1, 0);
    rec_exit(a, 1, 1, 0);
    rec_exit(a, RANK_GANG, GANG_STOPPED, 0);
    send_spool(a);
    CHECK_STR(state_of(1), "starting");
    CHECK(control_job(w.control, 1)->restarts == 0);
    CHECK(control_job(w.control, 1)->err_cause == CAUSE_INFRASTRUCTURE);
    finish();
}

static void test_start_timeout(void)
{
    begin();
    struct sim_attempt *a = to_run();
    w.now += 601 * 1000;
    control_link_calls.message(w.control, "n1", &(struct msg){.type = MSG_HEARTBEAT});
    settle();
    CHECK_STR(state_of(1), "stopping");
    CHECK(a->stopped);
    finish();
}

/* seqd is restarted after each record of a whole run: no rank is started twice, nothing is counted
 * twice, the end is the same. */
static void test_restart_after_each_record(void)
{
    int total = 3 + 4 + 9; /* records of the preparation, the start, the run */
    for (int stop = 0; stop <= total && !test_failures_now; stop++) {
        begin();
        CHECK(submit(NULL, NULL) == 1);
        hello();
        settle();
        int sent = 0;
        bool done = false;
        while (!done) {
            struct sim_attempt *a = attempt_of(1, 2) ? attempt_of(1, 2) : attempt_of(1, 1);
            CHECK(a != NULL);
            if (!a) break;
            if (!a->n_records && a->task == TASK_PREPARE)
                play_prepare(a);
            else if (!a->n_records)
                play_start(a), play_train(a);
            int n = a->n_records;
            if (sent <= stop && sent + n > stop) { /* the restart falls into this attempt */
                a->n_records = stop - sent;
                send_spool(a);
                settle();
                goodbye();
                close_seqd();
                open_seqd();
                w.now += 500;
                a->n_records = n;
                hello();
                settle();
            }
            sent += n;
            send_spool(a);
            settle();
            done = a->task == TASK_RUN;
        }
        CHECK_STR(state_of(1), "succeeded");
        CHECK_MSG(w.n_attempts == 2, "stop %d: %d attempts", stop, w.n_attempts);
        ask(ASK_EVENTS, 1, on_count, &n_events);
        CHECK_MSG(n_events == 8, "stop %d: %d events", stop, n_events);
        CHECK_STR(stored_result, "{\"loss\":1.5}");
        CHECK(attempt_of(1, 2)->forgotten);
        finish();
    }
}

/* A committed ASSIGN whose message was lost with the session is sent again. */
static void test_lost_assign(void)
{
    begin();
    struct sim_attempt *a = to_run();
    CHECK(a == &w.attempt[1]);
    w.n_attempts = 1; /* the node never heard of it */
    goodbye();
    close_seqd();
    open_seqd();
    hello();
    settle();
    CHECK(attempt_of(1, 2) != NULL && w.n_expected == 1);
    CHECK(control_job(w.control, 1)->epoch == 2);
    finish();
}

static void test_logs(void)
{
    char back[64];
    begin();
    to_run();
    struct msg m = {.type = MSG_LOG, .job = 1, .epoch = 2, .rank = 1, .data = "hello ", .size = 6};
    control_link_calls.message(w.control, "n1", &m);
    m.offset = 3, m.data = "lo world", m.size = 8; /* overlaps: a new session began there */
    control_link_calls.message(w.control, "n1", &m);
    m.offset = 99;
    control_link_calls.message(w.control, "n1", &m); /* a gap is refused */
    CHECK(w.log_acked == 0);                         /* not before it is on disk */
    w.now += 1001;
    settle();
    CHECK(w.log_acked == 11);
    struct err e;
    CHECK(logs_read(w.logs, 1, 2, 1, 0, back, sizeof back, &e) == 11);
    CHECK(!memcmp(back, "hello world", 11));
    CHECK(logs_read(w.logs, 1, 2, 0, 0, back, sizeof back, &e) == -1 && e.code == ERR_NOT_FOUND);
    CHECK(logs_last_epoch(w.logs, 1, 1) == 2);
    finish();
}

/* A delay is measured by the monotonic clock: setting the wall clock does not change it. */
static void test_backoff_and_the_wall_clock(void)
{
    for (int restarted = 0; restarted < 2; restarted++)
        for (int set = -1; set <= 1; set++) {
            begin();
            for (int epoch = 2; epoch < 5; epoch++) { /* the third failure waits for 2 s */
                struct sim_attempt *a = epoch == 2 ? to_run() : attempt_of(1, epoch);
                CHECK(a != NULL);
                rec_exit(a, 0, 0, SIGKILL);
                rec_exit(a, RANK_GANG, GANG_FAILED, 0);
                send_spool(a);
                settle();
                if (epoch == 3) {
                    w.now += 1001;
                    settle();
                }
            }
            CHECK_STR(state_of(1), "queued");
            CHECK(control_job(w.control, 1)->n_failures == 3);
            w.utc_shift = set * 3600000LL; /* an hour back, not at all, an hour on */
            if (restarted) {
                goodbye();
                close_seqd();
                open_seqd();
                hello();
                settle();
            }
            w.now += 1001;
            settle();
            const bool over = restarted && set > 0; /* what it says then is that the time is over */
            CHECK_STR(state_of(1), over ? "starting" : "queued");
            CHECK(over || strstr(control_job(w.control, 1)->reason, "waits 1.0 s more"));
            w.now += 1001;
            settle();
            CHECK_STR(state_of(1), "starting");
            finish();
        }
}

static void test_idempotency_key(void)
{
    begin();
    CHECK(submit("k", "f") == 1);
    CHECK(submit("k", "f") == 0 && got_code == ERR_CONFLICT); /* routes look the key up first */
    CHECK(control_n_live(w.control) == 1);
    CHECK(submit("other", "f") == 3);
    finish();
}

static void test_damaged_reports(void)
{
    begin();
    struct sim_attempt *a = to_run();
    struct rank_msg head = {RANK_ABI, RANK_STEP, 0, 4};
    struct msg m = {.type = MSG_REPORT, .job = 1, .epoch = 2, .seq = 1, .data = &head, .size = 3};
    control_link_calls.message(w.control, "n1", &m); /* shorter than its head */
    m.size = sizeof head;
    control_link_calls.message(w.control, "n1", &m); /* says 4 bytes, has none */
    head.size = 0;
    for (uint32_t type = 0; type < 20;
         type++) { /* every type without its payload, and unknown ones */
        head.type = type;
        head.rank = (int32_t)type - 3;
        m.seq = type + 1;
        control_link_calls.message(w.control, "n1", &m);
    }
    const char *state = state_of(1);
    CHECK(!strcmp(state, "starting"));
    CHECK(a->epoch == 2);
    finish();
}

int main(void)
{
    seqd_test_init();
    bad_disk_install();
    RUN(test_life);
    RUN(test_progress);
    RUN(test_end_before_its_commit);
    RUN(test_log_that_was_not_kept);
    RUN(test_spec_of_another_version);
    RUN(test_removed_checkpoints);
    RUN(test_form);
    RUN(test_sigkill_is_infrastructure);
    RUN(test_failures_of_the_job);
    RUN(test_consequence_waits_for_cause);
    RUN(test_cancel);
    RUN(test_node_lost);
    RUN(test_other_node_prepares_again);
    RUN(test_short_outage);
    RUN(test_unknown_attempt);
    RUN(test_stopped_by_agent);
    RUN(test_start_timeout);
    RUN(test_restart_after_each_record);
    RUN(test_lost_assign);
    RUN(test_logs);
    RUN(test_backoff_and_the_wall_clock);
    RUN(test_idempotency_key);
    RUN(test_damaged_reports);
    return test_done("seqd_control");
}
