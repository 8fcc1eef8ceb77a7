/* test_agent_life: runs seqw and seqgang as real processes with fake ranks. The test plays the
 * part of seqd and checks every message. Records must come in order, and a repeated record must
 * have the same bytes. Logs must have no gaps, and must be complete before the final record. No
 * record may follow the final one.
 * tests: needs libfake_nvml.so seqgang seqw */
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/job.h"
#include "api/core/process.h"
#include "api/core/removal.h"
#include "api/rpc.h"
#include "api/wire.h"
#include "tests/lib/profile.h"
#include "tests/lib/fake_rank.h"
#include "tests/lib/test.h"
#include "worker/agent/cores.h"
#include "worker/agent/probe.h"

enum { RECORDS = 256, LOG_SIZE = 1 << 16, MAX_RANKS = 4 };

/* The state of one attempt as seqd sees it. */
struct view {
    int64_t job, epoch;
    int64_t seq; /* records held */
    uint32_t sums[RECORDS];
    int n[RANK_EXIT + 1];
    int end; /* enum gang_end, -1 before */
    bool oom;
    int n_unknown;
    struct rank_fail fail;
    char result[256]; /* the last result */
    char log[MAX_RANKS][LOG_SIZE];
    /* log_got also counts bytes that were sent again */
    int64_t log_size[MAX_RANKS], log_got[MAX_RANKS];
    bool ack;
};

struct seqd {
    struct loop *loop;
    struct rpc_server *server;
    struct rpc_stream *stream;
    struct arena arena;
    char dir[64], address[96];
    struct msg hello;
    struct profile profile;
    int n_profiles;
    struct wire_attempt listed[8];
    int n_hellos, n_heartbeats, n_answers, n_leavings;
    struct msg leaving;
    struct disk_use disk; /* as the agent last reported it */
    /* the number of HELLO messages that will be refused, beginning with the next one */
    int refusals;
    bool before;       /* this seqd has the version WIRE_ABI_BEFORE and does not report it */
    uint32_t said[8];  /* ABI of the first hellos */
    struct msg answer; /* the last DESCRIBED or FETCHED */
    char chunk[WIRE_CHUNK];
    struct view *views[8];
    int n_views;
    struct msg part; /* the last piece of an answer to a request */
    char reply[1 << 20];
    size_t reply_size; /* bytes of all pieces since the last ask */
    int n_over;        /* requests whose last piece has come */
};
static struct seqd d;
static struct gpu gpus[GPU_MAX]; /* as the agent last reported them */
static int n_gpus;
/* the failure that the agent reports for an attempt that never began */
static struct rank_fail refused;
static int refused_rank;
static struct job_spec spec;

static void give_up(void *arg)
{
    printf("gave up waiting\n");
    fflush(stdout);
    abort();
}

/* Runs the loop until the condition is true. The limit on iterations ends a test that would
 * hang. */
#define UNTIL(cond)                                                                                \
    do {                                                                                           \
        struct loop_timer *limit_ = loop_timer_create(d.loop, give_up, NULL);                      \
        loop_timer_set(limit_, 60000);                                                             \
        while (!(cond)) loop_turn(d.loop, 10);                                                     \
        loop_timer_destroy(limit_);                                                                \
    } while (0)

static void tell(const struct msg *m)
{
    struct arena a;
    size_t size;
    arena_init(&a, 16 << 20);
    void *data = wire_pack(m, &a, &size);
    assert(data && d.stream);
    CHECK(rpc_send(d.stream, data, size) == 0);
    arena_fini(&a);
}

static struct view *view_of(int64_t job, int64_t epoch)
{
    for (int i = 0; i < d.n_views; i++)
        if (d.views[i]->job == job && d.views[i]->epoch == epoch) return d.views[i];
    assert(d.n_views < 8);
    struct view *v = calloc(1, sizeof *v);
    assert(v);
    v->job = job;
    v->epoch = epoch;
    v->end = -1;
    return d.views[d.n_views++] = v;
}

static uint32_t sum(const void *data, size_t size)
{
    const uint8_t *p = data;
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < size; i++) h = (h ^ p[i]) * 16777619u;
    return h;
}

static void on_report(const struct msg *m)
{
    struct view *v = view_of(m->job, m->epoch);
    struct rank_msg head;
    struct rank_exit x = {0};
    memcpy(&head, m->data, sizeof head);
    if (head.type == RANK_EXIT) memcpy(&x, (const char *)m->data + sizeof head, sizeof x);
    if (m->seq == 0) {
        if (head.type == RANK_FAIL) {
            memcpy(&refused, (const char *)m->data + sizeof head, sizeof refused);
            refused_rank = head.rank;
        }
        if (head.type == RANK_EXIT && x.exit_status == GANG_UNKNOWN) v->n_unknown++;
        return;
    }
    assert(m->seq < RECORDS);
    if (m->seq <= v->seq) { /* a record that is sent again in a new session */
        CHECK(v->sums[m->seq] == sum(m->data, m->size));
        return;
    }
    CHECK_MSG(m->seq == v->seq + 1, "record %lld after %lld", (long long)m->seq, (long long)v->seq);
    CHECK(v->end < 0);
    v->seq = m->seq;
    v->sums[m->seq] = sum(m->data, m->size);
    v->n[head.type]++;
    v->oom = v->oom || m->oom;
    if (head.type == RANK_FAIL && v->n[RANK_FAIL] == 1)
        memcpy(&v->fail, (const char *)m->data + sizeof head, sizeof v->fail);
    if (head.type == RANK_RESULT)
        snprintf(v->result, sizeof v->result, "%.*s", (int)head.size,
                 (const char *)m->data + sizeof head);
    if (head.type == RANK_EXIT && head.rank == RANK_GANG) v->end = x.exit_status;
    if (v->ack)
        tell(&(struct msg){
            .type = MSG_ACK, .job = v->job, .epoch = v->epoch, .seq = v->seq, .rank = -1});
}

static void on_log(const struct msg *m)
{
    struct view *v = view_of(m->job, m->epoch);
    assert(m->rank < MAX_RANKS);
    int64_t *have = &v->log_size[m->rank];
    v->log_got[m->rank] += (int64_t)m->size;
    CHECK(v->end < 0 || m->offset + (int64_t)m->size <= *have); /* complete before the end */
    CHECK_MSG(m->offset <= *have, "log gap: at %lld, have %lld", (long long)m->offset,
              (long long)*have);
    assert(m->offset + (int64_t)m->size < LOG_SIZE);
    for (size_t i = 0; i < m->size; i++) {
        int64_t at = m->offset + (int64_t)i;
        char c = ((const char *)m->data)[i];
        CHECK(at >= *have || v->log[m->rank][at] == c);
        v->log[m->rank][at] = c;
    }
    if (m->offset + (int64_t)m->size > *have) *have = m->offset + (int64_t)m->size;
    if (v->ack)
        tell(&(struct msg){
            .type = MSG_ACK, .job = v->job, .epoch = v->epoch, .rank = m->rank, .offset = *have});
}

static void take_gpus(const struct msg *m)
{
    n_gpus = m->n_gpus;
    memcpy(gpus, m->gpus, (size_t)m->n_gpus * sizeof *gpus);
}

static void on_opened(void *arg, struct rpc_stream *s)
{
    d.stream = s;
}

static void on_closed(void *arg, struct rpc_stream *s, const char *why)
{
    if (d.stream == s) d.stream = NULL;
}

static void welcome(const struct msg *m)
{
    const uint32_t abi = d.before ? 0 : WIRE_ABI;
    if (d.before && m->abi != WIRE_ABI_BEFORE) {
        tell(&(struct msg){.type = MSG_REFUSED, .retry_ms = 3600000, .reason = "another version"});
    } else if (d.refusals) {
        d.refusals--;
        tell(&(struct msg){.type = MSG_REFUSED, .retry_ms = 1, .reason = "not now", .abi = abi});
    } else {
        tell(&(struct msg){.type = MSG_WELCOME, .heartbeat_ms = 100, .abi = abi});
    }
}

static void on_message(void *arg, struct rpc_stream *s, const void *data, size_t size)
{
    struct msg m;
    struct err e = {0};
    CHECK_MSG(wire_unpack(data, size, &d.arena, &m, &e) == 0, "%s", e.text);
    switch (m.type) {
    case MSG_HELLO:
        d.hello = m;
        assert(m.n_attempts <= 8);
        for (int i = 0; i < m.n_attempts; i++) d.listed[i] = m.attempts[i];
        if (d.n_hellos < 8) d.said[d.n_hellos] = m.abi;
        d.n_hellos++;
        take_gpus(&m);
        welcome(&m);
        break;
    case MSG_HEARTBEAT:
        d.n_heartbeats++;
        if (m.disk.size) d.disk = m.disk;
        take_gpus(&m);
        break;
    case MSG_PROFILE: d.profile = m.profile, d.n_profiles++; break;
    case MSG_LEAVING: d.leaving = m, d.n_leavings++; break;
    case MSG_REPORT: on_report(&m); break;
    case MSG_LOG: on_log(&m); break;
    case MSG_ANSWER:
        d.part = m;
        CHECK(d.reply_size + m.size < sizeof d.reply && m.size <= WIRE_WINDOW);
        if (m.size) memcpy(d.reply + d.reply_size, m.data, m.size);
        d.reply_size += m.size;
        d.n_over += !m.more;
        break;
    case MSG_DESCRIBED:
    case MSG_REMOVED:
    case MSG_FETCHED:
        d.answer = m;
        if (m.size) memcpy(d.chunk, m.data, m.size);
        d.n_answers++;
        break;
    default: CHECK_MSG(0, "message of type %d", (int)m.type);
    }
    arena_reset(&d.arena);
}

static const struct rpc_calls calls = {on_opened, on_message, on_closed};

static void server_start(void)
{
    struct err e = {0};
    d.server = rpc_serve(d.loop, d.address, &calls, NULL, &e);
    CHECK_MSG(d.server, "%s", e.text);
}

static void server_stop(void)
{
    rpc_server_destroy(d.server);
    d.server = NULL;
    d.stream = NULL;
}

/* Makes a directory with bin/seqgang, bin/seqrank (this very test) and state/, and starts a
 * server. */
static void setup(void)
{
    char self[PATH_MAX], to[PATH_MAX + 64], from[128];
    memset(&d, 0, sizeof d);
    setenv("SEQD_NVML", "none", 1);
    snprintf(d.dir, sizeof d.dir, "/tmp/seqd-agent-XXXXXX");
    assert(mkdtemp(d.dir));
    snprintf(d.address, sizeof d.address, "unix:%s/seqd.sock", d.dir);
    snprintf(to, sizeof to, "%s/bin", d.dir);
    assert(mkdir(to, 0700) == 0);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert(n > 0);
    self[n] = 0;
    snprintf(from, sizeof from, "%s/bin/seqrank", d.dir);
    assert(symlink(self, from) == 0);
    *strrchr(self, '/') = 0; /* build/MODE/tests */
    snprintf(to, sizeof to, "%s/../seqgang", self);
    snprintf(from, sizeof from, "%s/bin/seqgang", d.dir);
    assert(symlink(to, from) == 0);
    d.loop = loop_create(NULL, NULL, NULL);
    arena_init(&d.arena, 16 << 20);
    server_start();
}

static void teardown(void)
{
    rpc_server_destroy(d.server);
    loop_destroy(d.loop);
    arena_fini(&d.arena);
    for (int i = 0; i < d.n_views; i++) free(d.views[i]);
    CHECK(file_remove(d.dir, NULL) == 0);
}

static const char *config_text; /* text of a file for --config, or NULL for none */

static int agent_start(const char *orphan_ms)
{
    char self[PATH_MAX], program[PATH_MAX + 32], state[128], bin[128];
    extern char **environ;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(program, sizeof program, "%s/../seqw", self);
    snprintf(state, sizeof state, "%s/state", d.dir);
    snprintf(bin, sizeof bin, "%s/bin", d.dir);
    char *argv[] = {"seqw",
                    "--connect",
                    d.address,
                    "--state",
                    state,
                    "--bin",
                    bin,
                    "--name",
                    "n1",
                    "--root",
                    d.dir,
                    "--writable-root",
                    d.dir,
                    "--slots",
                    "4",
                    "--orphan-ms",
                    (char *)orphan_ms,
                    NULL,
                    NULL,
                    NULL};
    char config[128];
    snprintf(config, sizeof config, "%s/seqw.toml", d.dir);
    if (config_text) {
        CHECK(!file_write(config, config_text, strlen(config_text), NULL));
        argv[17] = "--config";
        argv[18] = config;
    }
    int pid = -1;
    int rc = posix_spawn(&pid, program, NULL, NULL, argv, environ);
    assert(rc == 0);
    return pid;
}

/* Waits until the child has exited. The loop runs in the meantime, so that the child can still
 * send messages. Returns the child's wait status. */
static int agent_wait(int pid)
{
    int status = 0;
    UNTIL(waitpid(pid, &status, WNOHANG) == pid);
    return status;
}

static void agent_kill(int pid)
{
    kill(pid, SIGKILL);
    agent_wait(pid);
    UNTIL(!d.stream);
}

/* Sends an ASSIGN. name is the mode of the fake ranks. */
static void assign(int64_t job, int64_t epoch, const char *name, int n_ranks)
{
    memset(&spec, 0, sizeof spec);
    spec_defaults(&spec);
    CHECK(spec_intern(&spec, name, strlen(name), &spec.name) == 0);
    tell(&(struct msg){.type = MSG_ASSIGN,
                       .job = job,
                       .epoch = epoch,
                       .task = TASK_RUN,
                       .n_ranks = n_ranks,
                       .n_local = n_ranks,
                       .spec = &spec});
}

static void blobs(int64_t job, int64_t epoch, int n_ranks)
{
    static struct rank_blob all[MAX_RANKS];
    for (int i = 0; i < n_ranks; i++) {
        all[i].rank = i;
        all[i].size = snprintf(all[i].data, sizeof all[i].data, "blob of %d", i);
    }
    tell(&(struct msg){
        .type = MSG_BLOBS, .job = job, .epoch = epoch, .n_blobs = n_ranks, .blobs = all});
}

static void about(enum msg_type type, int64_t job, int64_t epoch)
{
    tell(&(struct msg){.type = type, .job = job, .epoch = epoch, .reason = "sent by the test"});
}

static void expect(int64_t job, int64_t epoch)
{
    struct wire_attempt one = {.job = job, .epoch = epoch};
    tell(&(struct msg){.type = MSG_EXPECT, .n_attempts = job ? 1 : 0, .attempts = &one});
}

/* Returns an attempt whose ranks have joined and now wait. */
static struct view *running(int64_t job, int64_t epoch, const char *name, int n_ranks)
{
    UNTIL(d.n_hellos && d.stream);
    assign(job, epoch, name, n_ranks);
    struct view *v = view_of(job, epoch);
    UNTIL(v->n[RANK_BLOB] == n_ranks);
    blobs(job, epoch, n_ranks);
    UNTIL(v->n[RANK_READY] == n_ranks);
    return v;
}

static char *in_dir(const char *fmt, long long job, long long epoch)
{
    static char path[256];
    int n = snprintf(path, sizeof path, "%s/state/", d.dir);
    snprintf(path + n, sizeof path - (size_t)n, fmt, job, epoch);
    return path;
}

struct pids {
    int n, pid[MAX_RANKS];
    long long start[MAX_RANKS];
};

static struct pids pids_read(int64_t job, int64_t epoch)
{
    struct pids p = {0};
    int rank;
    FILE *f = fopen(in_dir("gangs/%lld-e%lld/pids", job, epoch), "r");
    CHECK(f);
    while (f && p.n < MAX_RANKS && fscanf(f, "%d %d %lld", &rank, &p.pid[p.n], &p.start[p.n]) == 3)
        p.n++;
    if (f) fclose(f);
    return p;
}

static int n_alive(const struct pids *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) n += process_alive(p->pid[i], p->start[i]);
    return n;
}

static int parent_of(int pid)
{
    char path[64], text[512], state;
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (!fgets(text, sizeof text, f) ||
        sscanf(strrchr(text, ')') + 1, " %c %d", &state, &parent) != 2)
        parent = 0;
    fclose(f);
    return parent;
}

static void terminate(int pid)
{
    for (int i = 0; i < d.n_views; i++)
        if (d.views[i]->end >= 0) about(MSG_FORGET, d.views[i]->job, d.views[i]->epoch);
    kill(pid, SIGINT);
    int status = agent_wait(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void test_whole_life(void)
{
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 2, "ok", 2);
    CHECK_STR(d.hello.node, "n1");
    CHECK(d.hello.n_slots == 4 && d.hello.n_cores > 0 && d.hello.memory_size > 0);
    CHECK(d.hello.abi == WIRE_ABI && d.hello.n_attempts == 0);
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_DONE && v->n[RANK_STEP] == 3 && v->n[RANK_RESULT] == 1);
    CHECK(v->n[RANK_EXIT] == 3 && v->n[RANK_FAIL] == 0);
    CHECK(strstr(v->log[0], "rank 0 is done") && strstr(v->log[1], "rank 1 is done"));
    /* An acknowledgement that repeats an earlier one means that seqd could not store the bytes
     * after that position. */
    const int64_t got = v->log_got[1];
    tell(&(struct msg){.type = MSG_ACK, .job = 7, .epoch = 2, .rank = 1, .offset = 0});
    UNTIL(v->log_got[1] == got + v->log_size[1]);
    UNTIL(file_exists(in_dir("gangs/%lld-e%lld/exit", 7, 2)));
    /* ASSIGN is sent again and ignored, because nothing may follow the final record */
    assign(7, 2, "ok", 2);
    about(MSG_FORGET, 7, 2);
    UNTIL(!file_exists(in_dir("gangs/%lld-e%lld", 7, 2)));
    /* An epoch is begun only once, and an older epoch never. */
    assign(7, 2, "ok", 2);
    UNTIL(v->n_unknown == 1);
    assign(7, 1, "ok", 2);
    UNTIL(view_of(7, 1)->n_unknown == 1);
    about(MSG_STOP, 99, 1);
    UNTIL(view_of(99, 1)->n_unknown == 1);
    expect(98, 1);
    UNTIL(view_of(98, 1)->n_unknown == 1);
    UNTIL(d.n_heartbeats >= 1);
    UNTIL(d.disk.size > 0);
    CHECK(d.disk.free > 0 && d.disk.free <= d.disk.size && d.disk.jobs > 0);
    terminate(pid);
    teardown();
}

/* Checks that the node's end time is sent in each session, and when it changes. Also checks that
 * SAVE is passed to the gang, and that the agent answers it if there is no gang. */
static void test_leaving(void)
{
    char config[128];
    setup();
    config_text = "end-time = 1900000000\nleave-margin = \"90s\"\n";
    int pid = agent_start("0");
    UNTIL(d.n_leavings == 1);
    CHECK(d.leaving.end_s == 1900000000 && d.leaving.margin_s == 90);
    rpc_stream_close(d.stream);
    UNTIL(d.n_leavings == 2);
    snprintf(config, sizeof config, "%s/seqw.toml", d.dir);
    CHECK(!file_write(config, "end-time = 0\n", 13, NULL));
    kill(pid, SIGHUP);
    UNTIL(d.n_leavings == 3);
    CHECK(d.leaving.end_s == 0);
    config_text = NULL;
    assign(7, 1, "save", 2);
    struct view *v = view_of(7, 1);
    UNTIL(v->n[RANK_BLOB] == 2);
    blobs(7, 1, 2);
    UNTIL(v->n[RANK_READY] == 2);
    about(MSG_SAVE, 7, 1);
    UNTIL(v->end == GANG_SAVED);
    about(MSG_FORGET, 7, 1);
    about(MSG_SAVE, 97, 1);
    UNTIL(view_of(97, 1)->n_unknown == 1);
    terminate(pid);
    teardown();
}

/* Sends a request to the attempt, in pieces as seqd sends it. */
static void request(int64_t job, int64_t epoch, int64_t id, const char *body, size_t size)
{
    struct msg m = {.type = MSG_ASK,
                    .job = job,
                    .epoch = epoch,
                    .request = id,
                    .endpoint = SERVE_CHAT,
                    .named = -1,
                    .model = "mine",
                    .user = "ann"};
    d.reply_size = 0;
    for (size_t at = 0; at < size; at += m.size) {
        m.size = size - at < WIRE_CHUNK ? size - at : WIRE_CHUNK;
        m.data = body + at;
        m.more = at + m.size < size;
        tell(&m);
    }
}

/* Waits for the end of the next request. Returns its status. */
static int request_end(int64_t job, int64_t id)
{
    const int before = d.n_over;
    UNTIL(d.n_over > before);
    CHECK(d.part.request == id && d.part.job == job);
    d.reply[d.reply_size] = 0;
    return d.part.status;
}

static int request_text(int64_t id, const char *body)
{
    request(7, 2, id, body, strlen(body));
    return request_end(7, id);
}

/* A text that must be in no file of the node. */
#define SECRET "the-prompt-that-no-file-has"

/* Tells whether a file in the node's state directory contains SECRET. */
static bool is_kept(void)
{
    char command[256];
    snprintf(command, sizeof command, "grep -rqs '%s' %s/state", SECRET, d.dir);
    return system(command) == 0;
}

/* Checks that an answer larger than the window is sent as the client reads it, and that other
 * requests are not delayed by it. */
static void check_window(void)
{
    static char body[300000];
    memset(body, 'x', sizeof body);
    memcpy(body, SECRET, sizeof SECRET - 1);
    request(7, 2, 21, body, sizeof body);
    UNTIL(d.reply_size == WIRE_WINDOW);
    CHECK(d.part.more && d.part.request == 21);
    CHECK(request_text(22, "drops") == 200);
    CHECK_STR(d.reply, "0 drops, model mine, endpoint 1, user ann");
    memcpy(d.reply, body, WIRE_WINDOW); /* the second answer has overwritten the first */
    d.reply_size = WIRE_WINDOW;
    while (d.reply_size < sizeof body) {
        const size_t had = d.reply_size;
        tell(&(struct msg){
            .type = MSG_CREDIT, .job = 7, .epoch = 2, .request = 21, .total = WIRE_WINDOW / 2});
        UNTIL(d.reply_size > had);
    }
    CHECK(d.reply_size == sizeof body && !d.part.more && !memcmp(d.reply, body, sizeof body));
}

/* Checks requests to a job that serves: their answers, requests that are dropped, and requests
 * that are lost with the session, with an attempt that is not here and with the rank. */
static void test_serve(void)
{
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 2, "serve", 2);
    CHECK(request_text(11, SECRET " stream") == 200 && d.part.stream);
    CHECK_STR(d.reply, SECRET " stream");
    check_window();
    request(7, 2, 31, "hold", 4);
    tell(&(struct msg){.type = MSG_DROP, .job = 7, .epoch = 2, .request = 31});
    CHECK(request_text(32, "drops") == 200 && !strncmp(d.reply, "1 drops", 7));
    /* the session ends with an open request */
    request(7, 2, 33, "hold", 4);
    CHECK(request_text(34, "drops") == 200 && !strncmp(d.reply, "1 drops", 7));
    rpc_stream_close(d.stream);
    UNTIL(d.n_hellos == 2 && d.stream);
    CHECK(request_text(35, "drops") == 200 && !strncmp(d.reply, "2 drops", 7));
    request(9, 1, 36, "x", 1);
    CHECK(request_end(9, 36) == 503 && !d.reply_size && !d.part.more);
    /* the agent dies with an open request, and the gang tells the rank */
    request(7, 2, 37, "hold", 4);
    CHECK(request_text(38, "drops") == 200);
    agent_kill(pid);
    pid = agent_start("0");
    UNTIL(d.n_hellos == 3 && d.stream);
    do CHECK(request_text(39, "drops") == 200 || !d.reply_size); /* until the agent has the gang */
    while (strncmp(d.reply, "3 drops", 7));
    request(7, 2, 40, "hold", 4);
    request(7, 2, 41, "die", 3);
    UNTIL(d.n_over > 0 && d.part.request == 40 && d.part.status == 503);
    UNTIL(v->end == GANG_FAILED);
    CHECK(!is_kept());
    terminate(pid);
    teardown();
}

/* Checks the bound of the bytes that wait for all clients together: an answer that does not fit is
 * lost, the others continue, and a dropped one makes room. */
static void test_serve_full(void)
{
    static char body[300000];
    setup();
    setenv("SEQD_ANSWERS_SIZE", "600000", 1);
    const int pid = agent_start("0");
    unsetenv("SEQD_ANSWERS_SIZE");
    running(7, 2, "serve", 1);
    memset(body, 'x', sizeof body);
    for (int id = 51; id < 53; id++) {
        request(7, 2, id, body, sizeof body);
        UNTIL(d.reply_size == WIRE_WINDOW);
    }
    request(7, 2, 53, body, sizeof body);
    CHECK(request_end(7, 53) == 503 && d.reply_size < sizeof body);
    tell(&(struct msg){.type = MSG_DROP, .job = 7, .epoch = 2, .request = 51});
    request(7, 2, 54, body, sizeof body);
    UNTIL(d.reply_size == WIRE_WINDOW && d.part.request == 54);
    CHECK(request_text(55, "drops") == 200);
    terminate(pid);
    teardown();
}

/* Checks that a job that serves ends by SAVE with its result. Its end is told when a slow client
 * has the whole answer, or at STOP. */
static void test_serve_drain(void)
{
    static char body[300000];
    setup();
    int pid = agent_start("0");
    for (int64_t epoch = 2; epoch < 4; epoch++) {
        struct view *v = running(7, epoch, "serve", 1);
        memset(body, 'x', sizeof body);
        request(7, epoch, 21, body, sizeof body);
        UNTIL(d.reply_size == WIRE_WINDOW);
        tell(&(struct msg){.type = MSG_SAVE, .job = 7, .epoch = epoch, .reason = "the test"});
        UNTIL(file_exists(in_dir("gangs/%lld-e%lld/exit", 7, epoch)));
        for (int i = 0; i < 3; i++) { /* the agent has seen the end */
            request(9, 1, 22, "x", 1);
            CHECK(request_end(9, 22) == 503 && !d.reply_size);
        }
        CHECK(v->n[RANK_RESULT] == 1);
        CHECK_STR(v->result, "{\"requests\":1,\"why\":\"the test\"}");
        d.reply[0] = 'x';
        d.reply_size = WIRE_WINDOW;
        d.n_over = 0;
        const size_t most = epoch == 2 ? sizeof body : WIRE_WINDOW;
        while (d.reply_size < most) {
            const size_t had = d.reply_size;
            CHECK(v->end < 0 && !d.n_over);
            tell(&(struct msg){.type = MSG_CREDIT,
                               .job = 7,
                               .epoch = epoch,
                               .request = 21,
                               .total = WIRE_WINDOW / 2});
            UNTIL(d.reply_size > had || d.n_over);
        }
        CHECK(d.n_over == (epoch == 2) && !memcmp(d.reply, body, most));
        if (epoch == 3) about(MSG_STOP, 7, epoch);
        UNTIL(v->end == GANG_SAVED);
        about(MSG_FORGET, 7, epoch);
    }
    terminate(pid);
    teardown();
}

static void leave_asked(int pid, int n)
{
    kill(pid, SIGTERM);
    UNTIL(d.n_leavings == n);
    const int64_t in_s = d.leaving.end_s - time(NULL);
    CHECK(in_s <= 31 && in_s >= -60 && d.leaving.margin_s == WIRE_MAX_TIME_S);
}

static void ended_well(int pid)
{
    const int status = agent_wait(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Checks that after SIGTERM no attempt begins, jobs save, and the agent ends when seqd has sent
 * FORGET for the last attempt. */
static void test_sigterm_saves(void)
{
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 1, "save", 2);
    leave_asked(pid, 1);
    assign(8, 1, "ok", 2);
    UNTIL(view_of(8, 1)->n_unknown == 1);
    /* the session breaks in the meantime, so the agent sends LEAVING again */
    rpc_stream_close(d.stream);
    UNTIL(d.n_leavings == 2);
    CHECK(v->end < 0 && d.hello.n_attempts == 1 && waitpid(pid, NULL, WNOHANG) == 0);
    about(MSG_SAVE, 7, 1);
    UNTIL(v->end == GANG_SAVED);
    about(MSG_FORGET, 7, 1);
    ended_well(pid);
    pid = agent_start("0"); /* without a job the agent ends at once */
    UNTIL(d.n_hellos == 3 && d.stream);
    kill(pid, SIGTERM);
    ended_well(pid);
    teardown();
}

/* Checks the four cases in which an agent stops its jobs at once. The first is a second SIGTERM.
 * The second is a SIGTERM without a grace period. The third is a SIGTERM while seqd has the
 * previous version, in which it cannot let jobs save. The fourth is QUIT, which seqd sends when it
 * ends, so that it cannot receive LEAVING. */
static void test_sigterm_stops(void)
{
    enum { TWICE, NO_GRACE, BEFORE, ORDER, N };
    for (int i = 0; i < N; i++) {
        setup();
        d.before = i == BEFORE;
        config_text = i == NO_GRACE ? "stop-grace = \"0\"\n" : NULL;
        int pid = agent_start("0");
        config_text = NULL;
        UNTIL(!d.before || d.n_hellos == 2);
        struct view *v = running(7, 1, "wait", 2);
        if (i == TWICE) leave_asked(pid, 1);
        if (i == ORDER)
            tell(&(struct msg){.type = MSG_QUIT, .reason = "seqd ends"});
        else
            kill(pid, SIGTERM);
        UNTIL(v->end >= 0);
        CHECK(v->end == GANG_STOPPED && v->n[RANK_EXIT] == 3);
        CHECK(d.n_leavings == (i == TWICE ? 2 : i == NO_GRACE));
        about(MSG_FORGET, 7, 1);
        ended_well(pid);
        teardown();
    }
}

/* Checks that a signal that is sent to every process of a machine or of an allocation ends neither
 * ranks nor their gang. */
static void test_signals_to_all(void)
{
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 1, "save", 2);
    const struct pids p = pids_read(7, 1);
    CHECK(p.n == 2);
    for (int i = 0; i < p.n; i++) kill(p.pid[i], SIGTERM), kill(p.pid[i], SIGINT);
    kill(parent_of(p.pid[0]), SIGTERM);
    about(MSG_SAVE, 7, 1);
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_SAVED && v->n[RANK_EXIT] == 3);
    terminate(pid);
    teardown();
}

/* Sets the text with which the driver describes this machine from now on. */
static void machine_is(const char *text)
{
    char path[128], part[160];
    snprintf(path, sizeof path, "%s/nvml", d.dir);
    snprintf(part, sizeof part, "%s.part", path);
    CHECK(file_write(part, text, strlen(text), NULL) == 0);
    CHECK(rename(part, path) == 0); /* the file is replaced in one step */
}

static const char *in_here(const char *name)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", d.dir, name);
    return path;
}

static void fake_nvml(const char *text)
{
    char self[PATH_MAX], library[PATH_MAX + 32], path[128];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert(n > 0);
    self[n] = 0;
    *strrchr(self, '/') = 0;
    snprintf(library, sizeof library, "%s/../libfake_nvml.so", self);
    CHECK(file_write(in_here("bin/" GPU_KERNELS), "", 0, NULL) == 0);
    snprintf(path, sizeof path, "%s/nvml", d.dir);
    setenv("SEQD_NVML", library, 1);
    setenv("FAKE_NVML", path, 1);
    setenv("SEQD_LOOK_MS", "50", 1);
    machine_is(text);
}

#define THREE                                                                                      \
    "gpu GPU-a H100 81559 free=80000\n"                                                            \
    "gpu GPU-b H100 81559 procs=2\n"                                                               \
    "gpu GPU-c A30 24576\n"                                                                        \
    "far GPU-a GPU-c nvlink\n"                                                                     \
    "far GPU-a GPU-b 10\n"

/* Checks that the node's GPUs are in its HELLO, and that every change is in a heartbeat. */
static void test_gpus(void)
{
    setup();
    fake_nvml(THREE);
    int pid = agent_start("0");
    UNTIL(d.n_hellos);
    CHECK(n_gpus == 3);
    CHECK_STR(gpus[0].uuid, "GPU-a");
    CHECK_STR(gpus[2].name, "A30");
    CHECK_STR(gpus[1].bus, "00000000:02:00.0");
    CHECK(gpus[0].memory_size == 81559ll << 20 && gpus[0].memory_free == 80000ll << 20);
    CHECK(gpus[0].major == 9 && gpus[0].minor == 0);
    CHECK(gpus[0].n_processes == 0 && gpus[1].n_processes == 2);
    CHECK(gpus[0].far[2] == 0 && gpus[2].far[0] == 0); /* NVLink */
    CHECK(gpus[0].far[1] == GPU_FAR_SWITCH && gpus[1].far[2] == GPU_FAR_SYSTEM);
    for (int i = 0; i < 3; i++) CHECK(gpus[i].health == GPU_OK && gpus[i].far[i] == 0);
    /* Xid 31 is an error that a program causes. Xid 79 makes the GPU unfit. The memory of GPU-b is
     * failing. */
    machine_is("gpu GPU-a H100 81559\ngpu GPU-b H100 81559 ecc=3\ngpu GPU-c A30 24576\n"
               "xid 1 GPU-a 31\nxid 2 GPU-c 79\n");
    UNTIL(gpus[2].health == GPU_XID && gpus[1].health == GPU_ECC);
    CHECK(gpus[2].xid == 79 && gpus[1].ecc_errors == 3);
    CHECK(gpus[0].health == GPU_OK && gpus[0].xid == 0);
    /* The driver no longer lists one of the GPUs. The GPU keeps its place in the agent's list. */
    machine_is("gpu GPU-b H100 81559 mig=1\ngpu GPU-c A30 24576\n");
    UNTIL(gpus[0].health == GPU_LOST && gpus[1].health == GPU_MIG);
    CHECK(n_gpus == 3 && gpus[2].health == GPU_XID);
    CHECK_STR(gpus[0].uuid, "GPU-a");
    machine_is("gpu GPU-a H100 81559\ngpu GPU-b H100 81559\ngpu GPU-c A30 24576\n"
               "gpu GPU-d V100 16384 cc=7\n");
    UNTIL(gpus[0].health == GPU_OK && gpus[1].health == GPU_OK && n_gpus == 4);
    CHECK(gpus[3].health == GPU_OLD && gpus[0].far[3] == GPU_FAR_SYSTEM);
    terminate(pid);
    teardown();
}

/* Checks that a GPU is unfit if there are no kernels for it. A GPU with an Xid is unfit for the
 * next seqw, too, until an operator removes its record. */
static void test_unfit_gpus(void)
{
    setup();
    fake_nvml(THREE);
    int pid = agent_start("0");
    UNTIL(d.n_hellos);
    machine_is(THREE "xid 1 GPU-c 79\n");
    UNTIL(gpus[2].health == GPU_XID);
    CHECK(unlink(in_here("bin/" GPU_KERNELS)) == 0);
    UNTIL(gpus[0].health == GPU_BARE && gpus[1].health == GPU_BARE && gpus[2].health == GPU_XID);
    CHECK(file_write(in_here("bin/" GPU_KERNELS), "", 0, NULL) == 0);
    UNTIL(gpus[0].health == GPU_OK);
    terminate(pid);
    const int n_hellos = d.n_hellos;
    machine_is(THREE);
    pid = agent_start("0");
    UNTIL(d.n_hellos > n_hellos);
    CHECK(gpus[2].health == GPU_XID && gpus[2].xid == 79 && gpus[0].health == GPU_OK);
    CHECK(unlink(in_here("state/" GPU_XIDS)) == 0);
    UNTIL(gpus[2].health == GPU_OK);
    /* A record of an earlier boot has no effect. */
    terminate(pid);
    const char old[] = "0000 GPU-a 79\n";
    CHECK(file_write(in_here("state/" GPU_XIDS), old, sizeof old - 1, NULL) == 0);
    const int n = d.n_hellos;
    pid = agent_start("0");
    UNTIL(d.n_hellos > n);
    CHECK(gpus[0].health == GPU_OK);
    terminate(pid);
    teardown();
}

/* ---- cores ----------------------------------------------------------------------------------- */

static struct cores cores;
static cpu_set_t own_cpus;

static void cores_here(void)
{
    struct err e;
    CHECK(!sched_getaffinity(0, sizeof own_cpus, &own_cpus));
    if (cores_find(&cores, &own_cpus, NULL, &e) || probe_cores() < CPU_COUNT(&own_cpus))
        cores.n = 0; /* no rank is bound */
}

/* Checks that the ranks of a job run on the cores that the policy chooses, which are not in
 * `used`. Then adds their cores to `used`. */
static void check_bound(int64_t job, cpu_set_t *used)
{
    cpu_set_t want[MAX_RANKS], is;
    const struct pids p = pids_read(job, 1);
    const bool bound = cores_choose(&cores, used, p.n, 1, want);
    for (int i = 0; i < p.n; i++) {
        CHECK(!sched_getaffinity(p.pid[i], sizeof is, &is));
        CHECK_MSG(CPU_EQUAL(&is, bound ? &want[i] : &own_cpus), "job %lld, rank %d", (long long)job,
                  i);
        if (bound) CPU_OR(used, used, &want[i]);
    }
}

static void stop(int64_t job)
{
    about(MSG_STOP, job, 1);
    UNTIL(view_of(job, 1)->end >= 0);
}

/* Checks that two jobs have different cores as long as there are enough cores, even if the agent
 * was killed between their starts. When a job has ended, the next job must get its cores. */
static void test_bound_ranks(void)
{
    char apart[32];
    cpu_set_t used, none;
    setup();
    cores_here();
    CPU_ZERO(&used);
    CPU_ZERO(&none);
    snprintf(apart, sizeof apart, "-%d", getpid());
    setenv("SEQD_PINS", apart, 1); /* other tests run at the same time as this one */
    int pid = agent_start("0");
    running(1, 1, "wait", 1);
    check_bound(1, &used);
    agent_kill(pid);
    d.n_hellos = 0;
    pid = agent_start("0");
    running(2, 1, "wait", 1);
    check_bound(2, &used);
    running(3, 1, "wait", 2);
    check_bound(3, &used);
    for (int job = 1; job <= 3; job++) stop(job);
    running(4, 1, "wait", 2);
    check_bound(4, &none);
    stop(4);
    terminate(pid);
    config_text = "no-pin = true\n";
    d.n_hellos = 0;
    pid = agent_start("0");
    cores.n = 0;
    running(5, 1, "wait", 1);
    check_bound(5, &none);
    stop(5);
    terminate(pid);
    config_text = NULL;
    unsetenv("SEQD_PINS");
    teardown();
}

/* Checks that each rank sees only its own GPU, which is given by its name, and that a job that
 * runs on the CPU sees no GPU. */
static void test_visible_gpus(void)
{
    static const char two[][GPU_UUID_SIZE] = {"GPU-c", "GPU-a"};
    setup();
    fake_nvml(THREE);
    setenv("CUDA_VISIBLE_DEVICES", "0,1,2", 1); /* the variable of seqw itself has no effect */
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    memset(&spec, 0, sizeof spec);
    spec_defaults(&spec);
    CHECK(spec_intern(&spec, "args", 4, &spec.name) == 0);
    struct msg m = {.type = MSG_ASSIGN, .task = TASK_RUN, .spec = &spec, .job = 7, .epoch = 1};
    m.n_ranks = m.n_local = m.n_uuids = 2;
    m.uuids = two;
    tell(&m);
    m.job = 8;
    m.n_uuids = 0;
    tell(&m);
    struct view *v = view_of(7, 1), *w = view_of(8, 1);
    UNTIL(v->n[RANK_BLOB] == 2 && w->n[RANK_BLOB] == 2);
    about(MSG_STOP, 7, 1);
    about(MSG_STOP, 8, 1);
    UNTIL(v->end >= 0 && w->end >= 0);
    /* If a GPU cannot be used, the failure names the rank of this GPU, and no rank is started. */
    static const char other[][GPU_UUID_SIZE] = {"GPU-b", "GPU-x"};
    m.job = 9, m.n_uuids = 2, m.uuids = other;
    tell(&m);
    UNTIL(refused.code);
    CHECK(refused.code == ERR_DEVICE && refused_rank == 1);
    CHECK_STR(refused.text, "GPU GPU-x of rank 1 on node n1: this node does not have it");
    CHECK(!file_exists(in_dir("gangs/%lld-e%lld", 9, 1)));
    CHECK_MSG(strstr(v->log[0], "sees GPUs \"GPU-c\""), "%s", v->log[0]);
    CHECK_MSG(strstr(v->log[1], "sees GPUs \"GPU-a\""), "%s", v->log[1]);
    CHECK_MSG(strstr(w->log[0], "sees GPUs \"\""), "%s", w->log[0]);
    unsetenv("CUDA_VISIBLE_DEVICES");
    terminate(pid);
    teardown();
}

static void test_killed_agent(void)
{
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 2, "wait", 3);
    struct pids p = pids_read(7, 2);
    CHECK(p.n == 3 && n_alive(&p) == 3);
    for (int round = 0; round < 3; round++) {
        agent_kill(pid);
        CHECK(n_alive(&p) == 3);
        int n_hellos = d.n_hellos;
        pid = agent_start("0");
        UNTIL(d.n_hellos > n_hellos && d.stream);
        CHECK(d.hello.n_attempts == 1 && d.listed[0].job == 7 && d.listed[0].epoch == 2);
        expect(7, 2);
    }
    CHECK(n_alive(&p) == 3);
    about(MSG_STOP, 7, 2);
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_STOPPED && v->fail.code == ERR_ABORTED && n_alive(&p) == 0);
    /* The agent is killed between the end of the attempt and FORGET. The next agent must report
     * the end again, and must not run the attempt again. */
    agent_kill(pid);
    int64_t seq = v->seq;
    memset(v->sums, 0, sizeof v->sums);
    v->seq = 0, v->end = -1; /* as if seqd had committed nothing before */
    pid = agent_start("0");
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_STOPPED && v->seq == seq);
    about(MSG_FORGET, 7, 2);
    UNTIL(!file_exists(in_dir("gangs/%lld-e%lld", 7, 2)));
    terminate(pid);
    teardown();
}

static void test_killed_gang(void)
{
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 2, "wait", 3);
    struct pids p = pids_read(7, 2);
    kill(parent_of(p.pid[0]), SIGKILL);
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_LOST && n_alive(&p) == 0 && v->n[RANK_EXIT] == 1);
    about(MSG_FORGET, 7, 2);
    /* The gang dies while no agent runs. */
    v = running(7, 3, "wait", 2);
    p = pids_read(7, 3);
    int gang = parent_of(p.pid[0]);
    agent_kill(pid);
    kill(gang, SIGKILL);
    UNTIL(n_alive(&p) == 0);
    pid = agent_start("0");
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_LOST);
    terminate(pid);
    teardown();
}

/* Checks a gang that stands still: its agent ends it, also if another agent has started it. */
static void test_still_gang(void)
{
    setup();
    setenv("SEQD_STILL_MS", "1500", 1);
    int pid = agent_start("0");
    for (int adopted = 0; adopted < 2; adopted++) {
        struct view *v = running(7, 2 + adopted, "wait", 2);
        const struct pids p = pids_read(7, 2 + adopted);
        if (adopted) {
            agent_kill(pid);
            pid = agent_start("0");
        }
        CHECK(!kill(parent_of(p.pid[0]), SIGSTOP));
        UNTIL(v->end >= 0);
        CHECK(v->end == GANG_LOST && n_alive(&p) == 0 && v->fail.code == ERR_TIMEOUT);
        CHECK_MSG(strstr(v->fail.text, "seqgang stood still for"), "%s", v->fail.text);
        about(MSG_FORGET, 7, 2 + adopted);
    }
    unsetenv("SEQD_STILL_MS");
    terminate(pid);
    teardown();
}

/* Checks a seqgang that ends before it has written anything. If it exits, or ends by a signal that
 * a program raises itself, the agent reports a failure of the node. If it was killed from outside,
 * the agent reports no failure. */
static void test_broken_gang(void)
{
    static const struct {
        const char *script, *says; /* NULL if the agent reports no failure */
    } how[] = {
        {"#!/bin/sh\nexit 127\n", "seqgang exited with status 127 before it began"},
        {"#!/bin/sh\nkill -s ILL $$\n", "seqgang was ended by signal 4 (Illegal instruction)"},
        {"#!/bin/sh\nkill -s KILL $$\n", NULL},
    };
    char path[128];
    setup();
    snprintf(path, sizeof path, "%s/bin/seqgang", d.dir);
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    for (int i = 0; i < 3; i++) {
        CHECK(!unlink(path) && !file_write(path, how[i].script, strlen(how[i].script), NULL) &&
              !chmod(path, 0700));
        struct view *v = view_of(7, 2 + i);
        v->ack = true;
        assign(7, 2 + i, "wait", 1);
        UNTIL(v->end >= 0);
        CHECK(v->end == GANG_LOST && v->n[RANK_FAIL] == (how[i].says != NULL));
        CHECK_MSG(!how[i].says || strstr(v->fail.text, how[i].says), "%s", v->fail.text);
    }
    terminate(pid);
    teardown();
}

/* Checks that if seqgang cannot be started, its control group is removed with its directory. */
static void test_no_gang(void)
{
    char group[80], path[128];
    setup();
    snprintf(group, sizeof group, "%s/group", d.dir);
    CHECK(!mkdir(group, 0700));
    setenv("SEQD_CGROUP", group, 1);
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    snprintf(path, sizeof path, "%s/bin/seqgang", d.dir);
    CHECK(!unlink(path));
    refused = (struct rank_fail){0};
    assign(7, 2, "wait", 1);
    UNTIL(refused.code);
    CHECK_MSG(strstr(refused.text, "cannot run"), "%s", refused.text);
    CHECK(!file_exists(in_dir("gangs/%lld-e%lld", 7, 2)));
    CHECK(!rmdir(group)); /* empty */
    unsetenv("SEQD_CGROUP");
    terminate(pid);
    teardown();
}

/* Checks an attempt whose job has a damaged file of the newest epoch. The attempt must not begin,
 * and the error must name the file. Once the file holds an epoch again, the attempt begins. */
static void test_damaged_epoch(void)
{
    setup();
    int pid = agent_start("0");
    running(7, 1, "wait", 1);
    about(MSG_STOP, 7, 1);
    UNTIL(view_of(7, 1)->end >= 0);
    CHECK(!file_write(in_dir("epochs/%lld", 7, 0), "two", 3, NULL));
    refused = (struct rank_fail){0};
    assign(7, 2, "wait", 1);
    UNTIL(refused.code);
    CHECK(refused.code == ERR_CORRUPT && refused_rank == RANK_GANG);
    CHECK_MSG(strstr(refused.text, "epochs/7"), "%s", refused.text);
    CHECK(!file_exists(in_dir("gangs/%lld-e%lld", 7, 2)));
    CHECK(!file_write(in_dir("epochs/%lld", 7, 0), "1\n", 2, NULL));
    running(7, 3, "wait", 1);
    about(MSG_STOP, 7, 3);
    UNTIL(view_of(7, 3)->end >= 0);
    terminate(pid);
    teardown();
}

/* Checks an agent that cannot write the end of an attempt, for example on a full disk. It must
 * still end at SIGTERM, and the next agent must write the end of the attempt. */
static void test_sigterm_without_room(void)
{
    char spool[160], aside[176];
    setup();
    config_text = "stop-grace = \"0\"\n";
    int pid = agent_start("0");
    config_text = NULL;
    struct view *v = running(7, 2, "wait", 2);
    const struct pids p = pids_read(7, 2);
    snprintf(spool, sizeof spool, "%s", in_dir("gangs/%lld-e%lld/spool", 7, 2));
    snprintf(aside, sizeof aside, "%s.aside", spool);
    CHECK(!rename(spool, aside) && !mkdir(spool, 0700));
    kill(parent_of(p.pid[0]), SIGKILL);
    UNTIL(!n_alive(&p));
    kill(pid, SIGTERM);
    ended_well(pid);
    CHECK(v->end < 0 && !rmdir(spool) && !rename(aside, spool));
    pid = agent_start("0");
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_LOST);
    terminate(pid);
    teardown();
}

static void test_killed_rank(void)
{
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 2, "wait", 2);
    struct pids p = pids_read(7, 2);
    kill(p.pid[1], SIGKILL);
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_FAILED && n_alive(&p) == 0);
    CHECK_STR(v->fail.text, "rank 1 is gone");
    terminate(pid);
    teardown();
}

static void kills_write(int n)
{
    char text[64], path[96];
    snprintf(path, sizeof path, "%s/group/memory.events", d.dir);
    snprintf(text, sizeof text, "low 0\noom 9\noom_kill %d\noom_group_kill 0\n", n);
    CHECK(!file_write(path, text, strlen(text), NULL));
}

/* Checks that a report tells whether the kernel killed a process for lack of memory while the
 * attempt ran. Checks this for a rank, for a gang, and for an attempt that an earlier agent
 * began. */
static void test_killed_for_memory(void)
{
    static const char *const what[] = {"rank", "gang", "rank, without memory", "gang, adopted"};
    char group[80];
    setup();
    snprintf(group, sizeof group, "%s/group", d.dir);
    CHECK(!mkdir(group, 0700));
    kills_write(3);
    setenv("SEQD_CGROUP", group, 1);
    int pid = agent_start("0");
    for (int i = 0; i < 4; i++) {
        struct view *v = running(7, 2 + i, "wait", 2);
        struct pids p = pids_read(7, 2 + i);
        if (i == 3) {
            const int n_hellos = d.n_hellos;
            agent_kill(pid);
            pid = agent_start("0");
            UNTIL(d.n_hellos > n_hellos && d.stream);
            expect(7, 2 + i);
        }
        if (i != 2) kills_write(4 + i);
        kill(i % 2 ? parent_of(p.pid[0]) : p.pid[1], SIGKILL);
        UNTIL(v->end >= 0);
        CHECK_MSG(v->oom == (i != 2) && n_alive(&p) == 0, "%s: %d", what[i], v->oom);
        about(MSG_FORGET, 7, 2 + i);
    }
    unsetenv("SEQD_CGROUP");
    terminate(pid);
    teardown();
}

/* Checks that a restart of seqd does not affect the ranks, and that only data that seqd lacks is
 * sent again. */
static void test_server_restart(void)
{
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    view_of(7, 2)->ack = true;
    struct view *v = running(7, 2, "wait", 2);
    struct pids p = pids_read(7, 2);
    for (int round = 0; round < 3; round++) {
        int n_hellos = d.n_hellos;
        server_stop();
        server_start();
        UNTIL(d.n_hellos > n_hellos && d.stream);
        CHECK(d.hello.n_attempts == 1 && n_alive(&p) == 2);
        expect(7, 2);
    }
    about(MSG_STOP, 7, 2);
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_STOPPED);
    terminate(pid);
    teardown();
}

static void test_reconcile(void)
{
    setup();
    int pid = agent_start("0");
    running(7, 2, "wait", 2);
    struct pids p = pids_read(7, 2);
    running(8, 1, "wait", 1);
    struct pids q = pids_read(8, 1);
    /* If a list is sent in several messages, no attempt is stopped before the whole list has been
     * read. */
    struct wire_attempt one = {7, 2, 0}, two = {8, 1, 0};
    struct msg list = {.type = MSG_EXPECT, .n_attempts = 1, .attempts = &one, .more = true};
    tell(&list);
    list.attempts = &two, list.more = false;
    tell(&list);
    about(MSG_STOP, 97, 1); /* the answer to this comes after both messages have been read */
    UNTIL(view_of(97, 1)->n_unknown == 1);
    CHECK(n_alive(&p) == 2 && n_alive(&q) == 1 && file_exists(in_dir("gangs/%lld-e%lld", 7, 2)));
    CHECK(view_of(7, 2)->end < 0 && view_of(8, 1)->end < 0);
    /* seqd does not list job 7, so the agent stops it and forgets it without FORGET */
    expect(8, 1);
    UNTIL(n_alive(&p) == 0 && !file_exists(in_dir("gangs/%lld-e%lld", 7, 2)));
    CHECK(n_alive(&q) == 1);
    /* A newer epoch of the same job ends the older epoch. */
    struct view *v = running(8, 2, "wait", 1);
    UNTIL(view_of(8, 1)->end == GANG_STOPPED);
    CHECK(n_alive(&q) == 0 && v->end < 0);
    terminate(pid);
    UNTIL(v->end == GANG_STOPPED); /* the agent told this before it left */
    teardown();
}

/* Checks an attempt of which only ranks 2 and 3 are on this node. */
static void test_part(void)
{
    struct stat st;
    struct msg m = {.type = MSG_ASSIGN, .job = 3, .epoch = 1, .task = TASK_RUN, .spec = &spec};
    unsigned key = 0;
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    CHECK_STR(d.hello.address, "127.0.0.1"); /* seqd is on this machine */
    m.n_ranks = 4, m.first_rank = 2, m.n_local = 2, m.submitted_s = 1795000000;
    for (int i = 0; i < RANK_KEY_SIZE; i++) {
        m.key[i] = (unsigned char)(i * 11 + 1);
        key = key * 31 + m.key[i];
    }
    memset(&spec, 0, sizeof spec);
    spec_defaults(&spec);
    CHECK(spec_intern(&spec, "args", 4, &spec.name) == 0);
    tell(&m);
    struct view *v = view_of(3, 1);
    UNTIL(v->n[RANK_BLOB] == 2);
    blobs(3, 1, 4);
    UNTIL(v->n[RANK_READY] == 2);
    char want[128];
    snprintf(want, sizeof want, "2 ranks from 2 of 4 at 127.0.0.1, key %u, of 1795000000\n", key);
    UNTIL(strstr(v->log[2], want) && strstr(v->log[3], want));
    /* The start record holds the key. */
    struct pids p = pids_read(3, 1);
    CHECK(p.n == 2 && n_alive(&p) == 2);
    CHECK(stat(in_dir("gangs/%lld-e%lld/start", 3, 1), &st) == 0 && (st.st_mode & 0777) == 0600);
    server_stop();
    server_start();
    UNTIL(d.n_hellos == 2);
    CHECK(d.hello.n_attempts == 1 && d.listed[0].job == 3 && d.listed[0].slots == 2);
    /* seqd no longer expects the attempt, so the agent stops it, and reports that it no longer
     * exists */
    expect(0, 0);
    UNTIL(v->n_unknown == 1);
    CHECK(!file_exists(in_dir("gangs/%lld-e%lld", 3, 1)));
    CHECK(n_alive(&p) == 0);
    terminate(pid);
    teardown();
}

static void test_orphan(void)
{
    setup();
    int pid = agent_start("300");
    struct view *v = running(7, 2, "wait", 2);
    struct pids p = pids_read(7, 2);
    server_stop();
    int status = agent_wait(pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(n_alive(&p) == 0);
    server_start();
    pid = agent_start("0");
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_STOPPED);
    terminate(pid);
    teardown();
}

/* Checks an agent that dies while its seqgang is starting. The next agent waits for that seqgang,
 * and adopts it. */
static void test_gang_on_its_way(void)
{
    setup();
    char gang[160], real[PATH_MAX + 64], text[PATH_MAX + 512];
    snprintf(gang, sizeof gang, "%s/bin/seqgang", d.dir);
    const ssize_t n = readlink(gang, real, sizeof real - 1);
    assert(n > 0 && !unlink(gang));
    real[n] = 0;
    snprintf(text, sizeof text,
             "#!/bin/sh\n: >%s/waits\nuntil [ -e %s/go ]; do sleep 0.02; done\nexec %s \"$@\"\n",
             d.dir, d.dir, real);
    CHECK(!file_write(gang, text, strlen(text), NULL) && !chmod(gang, 0700));
    snprintf(text, sizeof text, "%s/waits", d.dir);
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    assign(7, 2, "wait", 2);
    UNTIL(file_exists(text));
    agent_kill(pid);
    d.n_hellos = d.n_heartbeats = 0;
    pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    CHECK(d.hello.n_attempts == 1);
    expect(7, 2);
    struct view *v = view_of(7, 2);
    UNTIL(d.n_heartbeats >= 5 || v->end >= 0);
    CHECK(v->end < 0 && !file_exists(in_dir("gangs/%lld-e%lld/exit", 7, 2)));
    snprintf(text, sizeof text, "%s/go", d.dir);
    CHECK(!file_write(text, "", 0, NULL));
    UNTIL(v->n[RANK_BLOB] == 2);
    blobs(7, 2, 2);
    UNTIL(v->n[RANK_READY] == 2);
    about(MSG_STOP, 7, 2);
    UNTIL(v->end >= 0);
    CHECK(v->end == GANG_STOPPED);
    terminate(pid);
    teardown();
}

/* Checks an agent whose sessions are all refused. A refused session must not count as a
 * session. */
static void test_orphan_of_refusals(void)
{
    setup();
    int status = 0;
    const int pid = agent_start("2000");
    running(7, 2, "wait", 2);
    struct pids p = pids_read(7, 2);
    d.refusals = INT_MAX;
    server_stop();
    server_start();
    UNTIL(waitpid(pid, &status, WNOHANG) == pid);
    CHECK(d.refusals < INT_MAX - 2);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(n_alive(&p) == 0);
    teardown();
}

/* Reads the file `name` in the /proc directory of the process `pid`, and replaces its NUL bytes by
 * newlines. */
static const char *proc_file(int pid, const char *name)
{
    static char text[65536];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    FILE *f = fopen(path, "re");
    const size_t n = f ? fread(text + 1, 1, sizeof text - 2, f) : 0;
    if (f) fclose(f);
    text[0] = '\n';
    text[n + 1] = 0;
    for (size_t i = 0; i <= n; i++)
        if (!text[i]) text[i] = '\n';
    return text;
}

static void test_rank_environment(void)
{
    setup();
    setenv("SECRET_OF_SEQW", "token", 1);
    setenv("CREDENTIALS_DIRECTORY", "/run/credentials", 1);
    setenv("SEQD_LIBRARY_PATH", "/opt/nccl", 1);
    int pid = agent_start("0");
    running(7, 2, "wait", 2);
    struct pids p = pids_read(7, 2);
    CHECK(p.n == 2);
    for (int i = 0; i < p.n; i++) {
        const char *env = proc_file(p.pid[i], "environ");
        CHECK(strstr(env, "\nPATH=") && strstr(env, "\nSEQD_LIBRARY_PATH=/opt/nccl\n"));
        CHECK(strstr(env, "\nCUDA_VISIBLE_DEVICES="));
        CHECK(!strstr(env, "SECRET_OF_SEQW") && !strstr(env, "CREDENTIALS_DIRECTORY"));
        CHECK(strstr(proc_file(p.pid[i], "status"), "\nNoNewPrivs:\t1\n"));
    }
    unsetenv("SECRET_OF_SEQW");
    unsetenv("CREDENTIALS_DIRECTORY");
    unsetenv("SEQD_LIBRARY_PATH");
    terminate(pid);
    teardown();
}

/* Checks that ranks run in control groups, if this machine lets the test make them. */
static void test_control_group(void)
{
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    char base[96] = "", path[160], want[64];
    for (int i = 0; i < 2 && !*base; i++) {
        snprintf(path, sizeof path, "%s/cgroup.procs", roots[i]);
        if (!file_exists(path)) continue;
        snprintf(base, sizeof base, "%s/seqd-agent-%d", roots[i], (int)getpid());
        if (mkdir(base, 0755)) *base = 0;
    }
    if (!*base) {
        printf("left out: this machine lets the test make no control group\n");
        return;
    }
    setup();
    setenv("SEQD_CGROUP", base, 1);
    int pid = agent_start("0");
    running(7, 2, "wait", 2);
    struct pids p = pids_read(7, 2);
    snprintf(want, sizeof want, "seqd-agent-%d/attempt-7-e2\n", (int)getpid());
    for (int i = 0; i < p.n; i++) CHECK(strstr(proc_file(p.pid[i], "cgroup"), want));
    CHECK(!strstr(proc_file(pid, "cgroup"), "attempt-7-e2"));
    agent_kill(pid); /* the agent that starts next ends the attempt */
    const int n_hellos = d.n_hellos;
    pid = agent_start("0");
    UNTIL(d.n_hellos > n_hellos && d.stream);
    terminate(pid);
    CHECK(n_alive(&p) == 0);
    unsetenv("SEQD_CGROUP");
    snprintf(path, sizeof path, "%s/attempt-7-e2", base);
    rmdir(path); /* the group would be removed at FORGET, which this test does not send */
    CHECK(!rmdir(base));
    teardown();
}

static void ask(enum msg_type type, const char *path, int64_t offset)
{
    int n = d.n_answers;
    struct msg m = {.type = type, .job = 7, .request = n + 100, .offset = offset};
    snprintf(m.path, sizeof m.path, "%s", path);
    tell(&m);
    UNTIL(d.n_answers > n);
    CHECK(d.answer.request == n + 100);
}

static void test_fetch(void)
{
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    static char data[WIRE_CHUNK + 1000], got[WIRE_CHUNK + 1000];
    char path[300];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (char)(i * 7 + (i >> 8));
    snprintf(path, sizeof path, "%s", in_dir("jobs/%lld/artifacts", 7, 0));
    CHECK(file_make_dir(path, NULL) == 0);
    CHECK(file_write(in_dir("jobs/%lld/artifacts/a.bin", 7, 0), data, sizeof data, NULL) == 0);
    CHECK(symlink("/etc/passwd", in_dir("jobs/%lld/artifacts/link", 7, 0)) == 0);
    int64_t n = 0;
    for (ask(MSG_FETCH, "a.bin", 0); d.answer.size; ask(MSG_FETCH, "a.bin", n)) {
        CHECK(d.answer.offset == n && d.answer.err.code == ERR_NONE);
        memcpy(got + n, d.chunk, d.answer.size);
        n += (int64_t)d.answer.size;
    }
    CHECK(n == sizeof data && !memcmp(got, data, sizeof data) && d.answer.err.code == ERR_NONE);
    const char *const bad[] = {"../a.bin", "/etc/passwd", "link", ".", "..", "", "none", "a.bin/x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ask(MSG_FETCH, bad[i], 0);
        CHECK_MSG(d.answer.err.code != ERR_NONE && d.answer.size == 0, "%s", bad[i]);
    }
    terminate(pid);
    teardown();
}

static const struct msg *remove_job(int64_t job, int what)
{
    const int n = d.n_answers;
    tell(&(struct msg){.type = MSG_REMOVE, .job = job, .what = what});
    UNTIL(d.n_answers > n);
    CHECK(d.answer.type == MSG_REMOVED && d.answer.job == job && d.answer.what == what);
    return &d.answer;
}

static void put_file(const char *name, int64_t job, size_t size)
{
    static const char zeros[1 << 16];
    char path[400], dir[400];
    snprintf(path, sizeof path, "%s", in_dir(name, job, 0));
    snprintf(dir, sizeof dir, "%s", path);
    *strrchr(dir, '/') = 0;
    CHECK(file_make_dir(dir, NULL) == 0 && file_write(path, zeros, size, NULL) == 0);
}

/* Checks that the removal of a job that has ended removes all files of this job and no files of
 * other jobs, and does not follow a symbolic link. */
static void test_remove(void)
{
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 2, "ok", 2);
    UNTIL(v->end >= 0);
    about(MSG_FORGET, 7, 2);
    UNTIL(!file_exists(in_dir("gangs/%lld-e%lld", 7, 2)));
    put_file("jobs/%lld/artifacts/a.bin", 7, 1 << 16);
    put_file("jobs/%lld/checkpoints/step-1/w/x.safetensors", 7, 1 << 16);
    put_file("jobs/%lld/checkpoints/step-1/y", 77, 100);
    put_file("jobs/%lld.gone/rest", 7, 100); /* a file that is left of a removal that a crash
                                              * interrupted */
    char link[300];
    snprintf(link, sizeof link, "%s", in_dir("jobs/%lld/checkpoints/best", 7, 0));
    CHECK(symlink("../../77/checkpoints", link) == 0);
    CHECK(file_exists(in_dir("epochs/%lld", 7, 0)));
    CHECK(remove_job(7, REMOVAL_CHECKPOINTS)->err.code == ERR_NONE && d.answer.total >= 1 << 16);
    CHECK(!file_exists(in_dir("jobs/%lld/checkpoints", 7, 0)));
    CHECK(!file_exists(in_dir("jobs/%lld/checkpoints.gone", 7, 0)));
    CHECK(file_exists(in_dir("jobs/%lld/artifacts/a.bin", 7, 0)));
    CHECK(remove_job(7, REMOVAL_JOB)->err.code == ERR_NONE && d.answer.total >= 1 << 16);
    CHECK(!file_exists(in_dir("jobs/%lld", 7, 0)) && !file_exists(in_dir("jobs/%lld.gone", 7, 0)));
    CHECK(!file_exists(in_dir("epochs/%lld", 7, 0)));
    CHECK(file_exists(in_dir("jobs/%lld/checkpoints/step-1/y", 77, 0)));
    /* a second order to remove this job has nothing to do */
    CHECK(remove_job(7, REMOVAL_JOB)->err.code == ERR_NONE && d.answer.total == 0);
    /* this job was never on this node */
    CHECK(remove_job(1234, REMOVAL_JOB)->err.code == ERR_NONE);
    terminate(pid);
    teardown();
}

/* Checks a removal that seqd orders before it sends FORGET. The agent must delay the removal until
 * FORGET. A second order to remove the same job must be refused at once. A new session must begin
 * without delayed removals. */
static void test_remove_held(void)
{
    const struct msg ask_it = {.type = MSG_REMOVE, .job = 7, .what = REMOVAL_JOB};
    setup();
    int pid = agent_start("0");
    struct view *v = running(7, 2, "ok", 2);
    UNTIL(v->end >= 0);
    tell(&ask_it);
    CHECK(remove_job(7, REMOVAL_JOB)->err.code == ERR_CONFLICT);
    tell(&ask_it);
    server_stop();
    server_start();
    UNTIL(d.stream && d.n_hellos == 2);
    const int n = d.n_answers;
    tell(&ask_it);
    about(MSG_FORGET, 7, 2);
    UNTIL(d.n_answers > n);
    CHECK(d.answer.type == MSG_REMOVED && d.answer.job == 7 && d.answer.err.code == ERR_NONE);
    CHECK(!file_exists(in_dir("gangs/%lld-e%lld", 7, 2)));
    CHECK(!file_exists(in_dir("jobs/%lld", 7, 0)) && !file_exists(in_dir("epochs/%lld", 7, 0)));
    CHECK(remove_job(1234, REMOVAL_JOB)->err.code == ERR_NONE && d.n_answers == n + 2);
    terminate(pid);
    teardown();
}

/* Checks that only files of checkpoints, which are beneath checkpoints/, can be fetched. After a
 * file was replaced, its stamp must have changed. */
static void test_fetch_checkpoint(void)
{
    static const char *const bad[] = {"checkpoints/",
                                      "checkpoints/step-00000005",
                                      "checkpoints/../artifacts/a.bin",
                                      "checkpoints/step-00000005/../../../../epochs/7",
                                      "checkpoints//etc/passwd",
                                      "checkpoints/step-00000005/hf",
                                      "checkpoints/step-00000005/./x",
                                      "checkpoints/step-00000005/link",
                                      "checkpoints/out/passwd",
                                      "checkpoints/step-00000005/none"};
    char path[300];
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    snprintf(path, sizeof path, "%s", in_dir("jobs/%lld/checkpoints/step-00000005/hf", 7, 0));
    CHECK(file_make_dir(path, NULL) == 0);
    snprintf(path, sizeof path, "%s", in_dir("jobs/%lld/checkpoints/step-00000005/hf/x", 7, 0));
    CHECK(file_write(path, "hello", 5, NULL) == 0);
    CHECK(!symlink("/etc/passwd", in_dir("jobs/%lld/checkpoints/step-00000005/link", 7, 0)));
    CHECK(!symlink("/etc", in_dir("jobs/%lld/checkpoints/out", 7, 0)));
    ask(MSG_FETCH, "checkpoints/step-00000005/hf/x", 1);
    CHECK(d.answer.size == 4 && !memcmp(d.chunk, "ello", 4) && d.answer.total == 5);
    const int64_t stamp = d.answer.stamp;
    ask(MSG_FETCH, "checkpoints/step-00000005/hf/x", 5);
    CHECK(d.answer.size == 0 && !d.answer.err.code && stamp && d.answer.stamp == stamp);
    /* file_write renames a new file, so the inode changes */
    CHECK(file_write(path, "Hello", 5, NULL) == 0);
    ask(MSG_FETCH, "checkpoints/step-00000005/hf/x", 0);
    CHECK(d.answer.size == 5 && d.answer.stamp != stamp);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ask(MSG_FETCH, bad[i], 0);
        CHECK_MSG(d.answer.err.code != ERR_NONE && d.answer.size == 0, "%s", bad[i]);
    }
    terminate(pid);
    teardown();
}

/* Sends more questions than may wait at the same time. Checks that each question gets exactly one
 * answer, which contains either the requested bytes or an error. */
static void test_fetch_many(void)
{
    enum { N = 300 };
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    CHECK(file_make_dir(in_dir("jobs/%lld/artifacts", 7, 0), NULL) == 0);
    CHECK(file_write(in_dir("jobs/%lld/artifacts/a.bin", 7, 0), "0123456789", 10, NULL) == 0);
    const int before = d.n_answers;
    for (int i = 0; i < N; i++) {
        struct msg m = {.type = MSG_FETCH, .job = 7, .request = 5000 + i, .offset = i % 10};
        snprintf(m.path, sizeof m.path, "a.bin");
        tell(&m);
    }
    UNTIL(d.n_answers >= before + N);
    /* if an earlier question had been answered twice, the count of answers would be too large
     * here */
    ask(MSG_FETCH, "a.bin", 3);
    CHECK(d.n_answers == before + N + 1 && d.answer.size == 7 && !memcmp(d.chunk, "3456789", 7));
    terminate(pid);
    teardown();
}

#define FAKE_DESCRIPTION                                                                           \
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":4,\"n"                     \
    "um_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":8,\"interm"                     \
    "ediate_size\":176,\"vocab_size\":258,\"max_position_embeddings\":4096,\""                     \
    "rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"tie_word_embeddings\":true,"                     \
    "\"n_params\":123456}"

#define FAKE_ADAPTER "{\"rank\":4,\"targets\":[\"q_proj\"]}"

static void test_describe(void)
{
    setup();
    int pid = agent_start("0");
    char path[160];
    UNTIL(d.n_hellos && d.stream);
    snprintf(path, sizeof path, "%s/good", d.dir);
    CHECK(mkdir(path, 0700) == 0);
    ask(MSG_DESCRIBE, path, 0);
    CHECK_MSG(d.answer.err.code == ERR_NONE, "%s", d.answer.err.text);
    CHECK_STR(d.answer.config, FAKE_DESCRIPTION); /* byte for byte, because seqd reads it */
    snprintf(path, sizeof path, "%s/bad", d.dir);
    CHECK(mkdir(path, 0700) == 0);
    ask(MSG_DESCRIBE, path, 0);
    CHECK(d.answer.err.code == ERR_INVALID);
    CHECK_STR(d.answer.err.text, "config.json: hidden_size is missing");
    CHECK_STR(d.answer.err.field, "model.path");
    /* the program dies, which is not a fault of the path */
    snprintf(path, sizeof path, "%s/dies", d.dir);
    CHECK(mkdir(path, 0700) == 0);
    ask(MSG_DESCRIBE, path, 0);
    CHECK(d.answer.err.code == ERR_INTERNAL && !*d.answer.err.field);
    CHECK_MSG(strstr(d.answer.err.text, "SIGABRT"), "%s", d.answer.err.text);
    ask(MSG_DESCRIBE, "/etc", 0);
    CHECK_MSG(strstr(d.answer.err.text, "beneath none"), "%s", d.answer.err.text);
    CHECK(symlink("/etc", in_dir("../link", 0, 0)) == 0);
    snprintf(path, sizeof path, "%s/link", d.dir);
    ask(MSG_DESCRIBE, path, 0); /* the path is a symlink, and its target counts */
    CHECK_MSG(strstr(d.answer.err.text, "beneath none"), "%s", d.answer.err.text);
    snprintf(path, sizeof path, "%s/none", d.dir);
    ask(MSG_DESCRIBE, path, 0);
    CHECK(d.answer.err.code == ERR_NOT_FOUND);
    /* Asks for all models beneath the roots. One process runs at a time, and its answer is passed
     * on unchanged. */
    struct msg m = {.type = MSG_DESCRIBE, .request = 900, .models = true};
    const int n = d.n_answers;
    tell(&m);
    m.request = 901;
    tell(&m);
    UNTIL(d.n_answers > n);
    CHECK(d.answer.type == MSG_FETCHED && d.answer.request == 901);
    CHECK_MSG(strstr(d.answer.err.text, "lists its models for another request"), "%s",
              d.answer.err.text);
    CHECK(!file_write(in_dir("../go", 0, 0), "", 0, NULL));
    UNTIL(d.n_answers > n + 1);
    CHECK(d.answer.request == 900 && !d.answer.err.code);
    snprintf(path, sizeof path, "{\"models\":[\"%s\"]}\n", d.dir);
    CHECK_MSG(d.answer.size == strlen(path) && !memcmp(d.chunk, path, strlen(path)), "%.*s",
              (int)d.answer.size, (const char *)d.chunk);
    CHECK(!d.answer.offset);
    m.request = 902;
    m.offset = 5; /* the next page */
    tell(&m);
    UNTIL(d.n_answers > n + 2);
    CHECK(d.answer.request == 902 && !d.answer.err.code && d.answer.offset == 5);
    snprintf(path, sizeof path, "{\"models\":[\"%s from --first=5\"]}\n", d.dir);
    CHECK(d.answer.size == strlen(path) && !memcmp(d.chunk, path, strlen(path)));
    terminate(pid);
    teardown();
}

/* Checks a question about the directory of an adapter. It has the same roots and grants as one
 * about a model, and its errors name model.adapter. */
static void test_describe_adapter(void)
{
    static const struct {
        const char *name;
        enum err_code code;
        const char *field, *says;
    } rows[] = {{"good", ERR_NONE, "", FAKE_ADAPTER},
                {"bad", ERR_INVALID, "model.adapter", "it is no adapter"},
                {"dies", ERR_INTERNAL, "", "SIGABRT"},
                {"none", ERR_NOT_FOUND, "model.adapter", "none"},
                {"../../etc", ERR_INVALID, "model.adapter", "beneath none"}};
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct msg m = {.type = MSG_DESCRIBE, .request = 900 + (int)i, .adapter = true};
        const int n = d.n_answers;
        snprintf(m.path, sizeof m.path, "%s/%s", d.dir, rows[i].name);
        CHECK(i > 2 || mkdir(m.path, 0700) == 0);
        tell(&m);
        UNTIL(d.n_answers > n);
        CHECK(d.answer.type == MSG_DESCRIBED && d.answer.request == m.request);
        CHECK_MSG(d.answer.err.code == rows[i].code, "%s: %s", rows[i].name, d.answer.err.text);
        CHECK_STR(d.answer.err.field, rows[i].field);
        CHECK_MSG(strstr(rows[i].code ? d.answer.err.text : d.answer.config, rows[i].says),
                  "%s: %s", rows[i].name, d.answer.err.text);
    }
    terminate(pid);
    teardown();
}

/* Asks for a description, with request id 900. The description ends only when its directory has a
 * file `go`. */
static void ask_slow(const char *name)
{
    struct msg m = {.type = MSG_DESCRIBE, .request = 900};
    snprintf(m.path, sizeof m.path, "%s/%s", d.dir, name);
    CHECK(mkdir(m.path, 0700) == 0);
    tell(&m);
}

/* Reads the pid of the slow description. It is 0 if the description has not begun. */
static int slow_pid(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s/pid", d.dir, name);
    char *text = file_read(path, 64, NULL, NULL);
    const int pid = text ? atoi(text) : 0;
    free(text);
    return pid;
}

/* Checks a restart of seqd, after which request ids begin at 1 again. The answer to a question
 * from before the restart must not be sent, even if a new question has the same id. The program
 * that works on the old question is ended, and its slot is free. */
static void test_describe_restart(void)
{
    setup();
    int pid = agent_start("0"), first;
    UNTIL(d.n_hellos && d.stream);
    ask_slow("slow-a");
    UNTIL((first = slow_pid("slow-a")));
    server_stop();
    server_start();
    UNTIL(d.n_hellos == 2 && d.stream);
    ask_slow("slow-b");
    UNTIL(slow_pid("slow-b"));
    CHECK(!file_write(in_dir("../slow-a/go", 0, 0), "", 0, NULL));
    UNTIL(kill(first, 0)); /* the process has ended and has been reaped */
    CHECK(d.n_answers == 0);
    CHECK(!file_write(in_dir("../slow-b/go", 0, 0), "", 0, NULL));
    UNTIL(d.n_answers);
    CHECK(d.answer.request == 900 && !d.answer.err.code);
    CHECK_STR(d.answer.config, "{\"slow\":\"slow-b\"}");
    ask(MSG_DESCRIBE, "/etc", 0);
    CHECK(d.n_answers == 2);
    terminate(pid);
    teardown();
}

/* Checks files of data. The field of an error must be the word that seqrank prints, even if the
 * text of the error begins with a different word. */
static void test_files(void)
{
    static const char *const files[][2] = {
        {"data.train.0.path:text:/a", "input.path:jsonl:*: b"},
        {"data.train.0.path:text:/a", "input.path:jsonl:/none"},
        {"data.train.0.path:text:/a", "memory.offload_dir:writable:/none"},
        {"data.train.0.path:text:/dies", ""},
    };
    static const struct {
        enum err_code code;
        const char *field;
    } want[] = {{ERR_NONE, ""},
                {ERR_INVALID, "input.path"},
                {ERR_INVALID, "memory.offload_dir"},
                {ERR_INTERNAL, ""}};
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    for (int i = 0; i < 4; i++) {
        struct msg m = {
            .type = MSG_DESCRIBE, .request = 950 + i, .n_files = i < 3 ? 2 : 1, .files = files[i]};
        const int n = d.n_answers;
        tell(&m);
        UNTIL(d.n_answers > n);
        CHECK(d.answer.type == MSG_DESCRIBED && d.answer.request == 950 + i);
        CHECK_MSG(d.answer.err.code == want[i].code, "%d: %s", i, d.answer.err.text);
        CHECK_STR(d.answer.err.field, want[i].field);
    }
    terminate(pid);
    teardown();
}

static void test_second_agent(void)
{
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_hellos && d.stream);
    int status = agent_wait(agent_start("0"));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    terminate(pid);
    teardown();
}

/* Runs a job whose rank reports a full disk. */
static void fails_full(int64_t job, enum err_code code)
{
    struct view *v = running(job, 2, "full", 1);
    UNTIL(v->end == GANG_FAILED);
    CHECK_MSG(v->fail.code == (int32_t)code && strstr(v->fail.text, "No space left"), "%d %s",
              (int)v->fail.code, v->fail.text);
    about(MSG_FORGET, job, 2);
}

/* Checks the agent with a seqd of the previous version, which refuses the HELLO. The agent must
 * send the next HELLO at once, in the version of seqd. If seqd has been upgraded in the meantime,
 * the agent must use the newest version again. */
static void test_seqd_before(void)
{
    setup();
    d.before = true;
    d.refusals = 1; /* seqd refuses for a reason that has nothing to do with versions */
    int pid = agent_start("0");
    UNTIL(d.n_heartbeats);
    CHECK(d.n_hellos == 3);
    CHECK(d.said[0] == WIRE_ABI);
    CHECK(d.said[1] == WIRE_ABI_BEFORE && d.said[2] == WIRE_ABI_BEFORE);
    /* The agent must not send messages that this version of seqd lacks. An answer to REMOVE would
     * end the session. */
    tell(&(struct msg){.type = MSG_REMOVE, .job = 9});
    struct view *v = running(7, 2, "ok", 1);
    UNTIL(v->end == GANG_DONE);
    CHECK(d.n_answers == 0 && d.n_hellos == 3);
    about(MSG_FORGET, 7, 2);
    fails_full(8, ERR_IO); /* this seqd recognises a full disk only by the text of errno */
    /* After a session breaks, the agent begins with the newest version again. */
    d.n_heartbeats = 0;
    server_stop();
    server_start();
    UNTIL(d.n_heartbeats);
    CHECK(d.n_hellos == 5);
    CHECK(d.said[3] == WIRE_ABI && d.said[4] == WIRE_ABI_BEFORE);
    /* This seqd is upgraded between its refusal and the next HELLO. */
    server_stop();
    server_start();
    UNTIL(d.n_hellos == 6 && !d.stream);
    d.before = false;
    d.n_heartbeats = 0;
    UNTIL(d.n_heartbeats);
    CHECK(d.n_hellos == 8);
    CHECK(d.said[5] == WIRE_ABI && d.said[6] == WIRE_ABI_BEFORE && d.said[7] == WIRE_ABI);
    fails_full(9, ERR_NO_SPACE);
    terminate(pid);
    teardown();
}

/* Checks that a restarted agent has the instance id that it had before, that an agent with a
 * different state directory has a different id, and that a refused agent dials again. */
static void test_instance(void)
{
    unsigned char first[WIRE_INSTANCE_SIZE];
    static const unsigned char none[WIRE_INSTANCE_SIZE];
    struct stat st;
    setup();
    d.refusals = 2;
    int pid = agent_start("0");
    UNTIL(d.n_hellos == 1 && !d.stream);
    UNTIL(d.n_hellos == 3 && d.n_heartbeats);
    memcpy(first, d.hello.instance, sizeof first);
    CHECK(memcmp(first, none, sizeof first) != 0);
    CHECK(!stat(in_dir("instance", 0, 0), &st) && (st.st_mode & 0777) == 0600);
    agent_kill(pid);
    pid = agent_start("0");
    UNTIL(d.n_hellos == 4);
    CHECK(!memcmp(first, d.hello.instance, sizeof first));
    agent_kill(pid);
    static const char *const damaged[] = {"", "damaged\n",
                                          "0123456789abcdef0123456789abcdef and some more\n"};
    for (int i = 0; i < 3; i++) {
        CHECK(file_write(in_dir("instance", 0, 0), damaged[i], strlen(damaged[i]), NULL) == 0);
        pid = agent_start("0");
        UNTIL(d.n_hellos == 5 + i);
        CHECK(memcmp(first, d.hello.instance, sizeof first) != 0);
        if (i < 2) agent_kill(pid);
    }
    terminate(pid);
    teardown();
}

/* Checks that the measured profile of the machine is sent once in every session. */
static void test_profile(void)
{
    setup();
    int pid = agent_start("0");
    UNTIL(d.n_profiles == 1);
    const struct profile want = profile_of(1e11, 2e9, 5e9, 6e-6);
    CHECK(!memcmp(&d.profile, &want, sizeof want));
    rpc_stream_close(d.stream);
    UNTIL(d.n_profiles == 2);
    CHECK(!memcmp(&d.profile, &want, sizeof want));
    terminate(pid);
    teardown();
}

/* Acts as `seqrank --profile`. */
static int fake_profile(void)
{
    const struct profile p = profile_of(1e11, 2e9, 5e9, 6e-6);
    char line[2048];
    if (profile_write(&p, line, sizeof line) < 0) return 1;
    return puts(line) < 0;
}

/* Acts as a description that runs until the test ends it. */
static int fake_slow(const char *dir)
{
    char path[512], text[32];
    const int n = snprintf(text, sizeof text, "%d\n", (int)getpid());
    snprintf(path, sizeof path, "%s/pid", dir);
    if (file_write(path, text, (size_t)n, NULL)) return 1;
    snprintf(path, sizeof path, "%s/go", dir);
    while (access(path, F_OK)) usleep(1000);
    return printf("{\"slow\":\"%s\"}\n", strrchr(dir, '/') + 1) < 0;
}

/* Acts as `seqrank --describe DIR ROOT`. */
static int fake_describe(const char *dir, const char *root)
{
    if (strncmp(dir, root, strlen(root))) return puts("beneath no root"), 1;
    if (strstr(dir, "dies")) raise(SIGABRT);
    if (strstr(dir, "/slow-")) return fake_slow(dir);
    if (strstr(dir, "bad"))
        return fprintf(stderr, "config.json: hidden_size is missing\n"), RANK_EXIT_REFUSED;
    puts(FAKE_DESCRIPTION);
    return 0;
}

/* Acts as `seqrank --describe-adapter DIR ROOT`. */
static int fake_describe_adapter(const char *dir, const char *root)
{
    if (strncmp(dir, root, strlen(root))) return puts("beneath no root"), 1;
    if (strstr(dir, "dies")) raise(SIGABRT);
    if (strstr(dir, "bad")) return fprintf(stderr, "it is no adapter\n"), RANK_EXIT_REFUSED;
    return puts(FAKE_ADAPTER) < 0;
}

/* Acts as `seqrank --files ROOT --writable=ROOT --file=FIELD:FORMAT:PATH ...`. */
static int fake_files(char *const *argv, int n)
{
    if (*argv[0] != '/' || n < 2 || strncmp(argv[1], "--writable=/", 12))
        return puts("want two roots"), 1;
    for (int i = 2; i < n; i++) {
        if (strncmp(argv[i], "--file=", 7)) return puts("want a file"), 1;
        if (strstr(argv[i], "/dies")) raise(SIGABRT);
        if (strstr(argv[i], "/none"))
            return printf("%.*s\n", (int)strcspn(argv[i] + 7, ":"), argv[i] + 7),
                   fprintf(stderr, "/none: it is absent\n"), RANK_EXIT_REFUSED;
    }
    return 0;
}

/* Acts as `seqrank --models [--first=N] ROOT`. It runs until the test ends it. */
static int fake_models(char **words, int n)
{
    const char *root = words[n - 1];
    char go[512];
    snprintf(go, sizeof go, "%s/go", root);
    while (access(go, F_OK)) usleep(1000);
    return printf("{\"models\":[\"%s%s%s\"]}\n", root, n > 1 ? " from " : "", n > 1 ? *words : "") <
           0;
}

int main(int argc, char **argv)
{
    /* the fake programs do not confine themselves */
    if (argc > 3 && !strncmp(argv[2], RANK_CONFINED, sizeof RANK_CONFINED - 1))
        memmove(argv + 2, argv + 3, (size_t)(argc-- - 2) * sizeof *argv);
    if ((argc == 3 || argc == 4) && !strcmp(argv[1], "--models"))
        return fake_models(argv + 2, argc - 2);
    if (argc >= 4 && !strcmp(argv[1], "--files")) return fake_files(argv + 2, argc - 2);
    if (argc == 4 && !strcmp(argv[1], "--describe")) return fake_describe(argv[2], argv[3]);
    if (argc == 4 && !strcmp(argv[1], "--describe-adapter"))
        return fake_describe_adapter(argv[2], argv[3]);
    if (argc == 2 && !strcmp(argv[1], "--profile")) return fake_profile();
    if (fake_rank_is(argv)) return fake_rank_main();
    RUN(test_whole_life);
    RUN(test_serve);
    RUN(test_serve_full);
    RUN(test_serve_drain);
    RUN(test_leaving);
    RUN(test_sigterm_saves);
    RUN(test_sigterm_stops);
    RUN(test_signals_to_all);
    RUN(test_gpus);
    RUN(test_unfit_gpus);
    RUN(test_visible_gpus);
    RUN(test_bound_ranks);
    RUN(test_killed_agent);
    RUN(test_killed_gang);
    RUN(test_still_gang);
    RUN(test_broken_gang);
    RUN(test_no_gang);
    RUN(test_damaged_epoch);
    RUN(test_sigterm_without_room);
    RUN(test_killed_rank);
    RUN(test_killed_for_memory);
    RUN(test_server_restart);
    RUN(test_reconcile);
    RUN(test_part);
    RUN(test_gang_on_its_way);
    RUN(test_orphan);
    RUN(test_orphan_of_refusals);
    RUN(test_rank_environment);
    RUN(test_control_group);
    RUN(test_fetch);
    RUN(test_remove);
    RUN(test_remove_held);
    RUN(test_fetch_checkpoint);
    RUN(test_fetch_many);
    RUN(test_describe);
    RUN(test_describe_adapter);
    RUN(test_describe_restart);
    RUN(test_files);
    RUN(test_instance);
    RUN(test_seqd_before);
    RUN(test_profile);
    RUN(test_second_agent);
    return test_done("agent");
}
