/* test_seqd_serve: sends requests of OpenAI's API to seqd while the test plays the node of a job
 * that serves. Checks the routing by model, the pieces and credits, the losses, and the errors. */
#include <signal.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "daemon/http/http.h"
#include "daemon/loop/serving.h"
#include "daemon/state/attempt.h"
#include "tests/lib/rest.h"

#define COMPLETIONS "/openai/v1/completions"

static const char serve_json[] =
    "{\"kind\":\"serve\",\"name\":\"mine\",\"model\":{\"config\":{\"hidden_size\":64,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{"
    "\"seq_len\":128},\"sampling\":{\"max_tokens\":32}}";

/* The messages to the node. */
static struct {
    int64_t job, epoch, seq; /* of the last ASSIGN */
    struct msg ask;          /* the last ASK, without its data */
    char body[4 << 20];      /* the body of the request */
    size_t size;
    size_t first_size;                     /* size of the first whole body */
    char why[512];                         /* the reason of SAVE */
    int n_asks, n_drops, n_saves, n_stops; /* n_asks counts bodies */
    int64_t credit;
} told;

static void on_told(const char *node, const struct msg *m)
{
    if (m->type == MSG_ASSIGN && (m->job != told.job || m->epoch != told.epoch)) told.seq = 0;
    if (m->type == MSG_ASSIGN) told.job = m->job, told.epoch = m->epoch;
    told.n_drops += m->type == MSG_DROP;
    told.n_saves += m->type == MSG_SAVE;
    if (m->type == MSG_SAVE) snprintf(told.why, sizeof told.why, "%s", m->reason);
    told.n_stops += m->type == MSG_STOP;
    if (m->type == MSG_CREDIT) told.credit += m->total;
    if (m->type != MSG_ASK) return;
    if (m->request != told.ask.request) told.size = 0;
    CHECK(told.size + m->size < sizeof told.body && m->size <= WIRE_CHUNK);
    memcpy(told.body + told.size, m->data, m->size);
    told.size += m->size;
    told.ask = *m;
    if (!m->more && !told.n_asks++) told.first_size = told.size;
}

#define UNTIL(cond)                                                                                \
    while (!(cond)) loop_turn(w.loop, 5)

static void report_of(int rank, enum rank_msg_type type, const void *payload, size_t size)
{
    char record[1024];
    const struct rank_msg head = {RANK_ABI, (uint32_t)type, rank, (uint32_t)size};
    memcpy(record, &head, sizeof head);
    if (size) memcpy(record + sizeof head, payload, size);
    control_link_calls.message(w.control, "n1",
                               &(struct msg){.type = MSG_REPORT,
                                             .job = told.job,
                                             .epoch = told.epoch,
                                             .seq = ++told.seq,
                                             .rank = rank,
                                             .data = record,
                                             .size = sizeof head + size});
}

static void report(enum rank_msg_type type, const void *payload, size_t size)
{
    report_of(0, type, payload, size);
}

static bool job_is(int64_t id, enum job_state state)
{
    const struct job *j = control_job(w.control, id);
    return j && j->state == state;
}

static void report_loaded(void)
{
    static const char json[] = "{\"code\":\"" RANK_NOTE_SERVES "\",\"text\":\"x\"}";
    char ev[sizeof(struct rank_event) + sizeof json - 1];
    memcpy(ev, &(struct rank_event){.type = EV_NOTE}, sizeof(struct rank_event));
    memcpy(ev + sizeof(struct rank_event), json, sizeof json - 1);
    report(RANK_EVENT, ev, sizeof ev);
}

/* Plays the start of a job, but for the load of its model. */
static void load_job(int64_t id)
{
    UNTIL(told.job == id);
    report(RANK_BLOB, "blob", 4);
    report(RANK_READY, NULL, 0);
    UNTIL(job_is(id, JOB_RUNNING));
}

/* Starts a server with a job that serves and is running, and loads its model. */
static void begin_loading(void)
{
    memset(&told, 0, sizeof told);
    rest_told = on_told;
    begin();
    node_joins_as("n1", 4);
    CHECK_MSG(post("/v1/jobs", serve_json) == 201, "%s", reply);
    CHECK(post(COMPLETIONS, "{\"model\":\"mine\"}") == 503 && strstr(reply, "Retry-After: 1"));
    load_job(1);
}

static void begin_serving(void)
{
    begin_loading();
    report_loaded();
}

static void answer_of_total(int32_t total, int status, const char *bytes, size_t size, bool stream,
                            bool more)
{
    control_link_calls.message(w.control, "n1",
                               &(struct msg){.type = MSG_ANSWER,
                                             .job = told.ask.job,
                                             .epoch = told.ask.epoch,
                                             .total = total,
                                             .request = told.ask.request,
                                             .status = status,
                                             .stream = stream,
                                             .more = more,
                                             .data = bytes,
                                             .size = size});
}

static void answer(int status, const char *bytes, size_t size, bool stream, bool more)
{
    answer_of_total(more ? 0 : 7, status, bytes, size, stream, more);
}

/* Sends a request, and waits until the node has it. */
static int ask_begin(const char *body)
{
    const int n = told.n_asks, fd = post_begin(COMPLETIONS, "", body);
    UNTIL(told.n_asks > n);
    return fd;
}

static void test_completion(void)
{
    static const char body[] = "{\"prompt\":\"a\",\"model\":\"mine\"}";
    begin_serving();
    int fd = ask_begin(body);
    CHECK(told.size == strlen(body) && !memcmp(told.body, body, told.size));
    CHECK(told.ask.endpoint == SERVE_COMPLETIONS && told.ask.named == -1);
    CHECK_STR(told.ask.model, "mine");
    CHECK_STR(told.ask.user, "tester");
    answer(200, "{\"ok\":1}", 8, false, false);
    CHECK(answer_of(fd) == 200 && strstr(reply, "Content-Length: 8") &&
          strstr(reply, "{\"ok\":1}"));
    /* by the job's id, with an error of the job */
    fd = ask_begin("{\"model\":\"1\"}");
    answer(429, "{\"error\":1}", 11, false, false);
    CHECK(answer_of(fd) == 429 && strstr(reply, "Retry-After: 1") &&
          strstr(reply, "{\"error\":1}"));
    CHECK(!told.n_drops && !told.credit);
    finish();
}

/* Checks a request that names an adapter. The job's spec gets one whose name is the job's name,
 * because the node's side of adapters is not needed here. */
static void test_adapter(void)
{
    begin_serving();
    struct job_spec *s = job_spec_edit((struct job *)control_job(w.control, 1));
    s->model.adapters[0].name = s->name;
    const int fd = ask_begin("{\"model\":\"mine:mine\"}");
    CHECK(told.ask.named == 0);
    CHECK_STR(told.ask.model, "mine:mine");
    answer(200, "{}", 2, false, false);
    CHECK(answer_of(fd) == 200);
    CHECK(get("/openai/v1/models") == 200 && strstr(reply, "\"id\":\"mine\"") &&
          strstr(reply, "\"id\":\"mine:mine\""));
    CHECK(post(COMPLETIONS, "{\"model\":\"mine:other\"}") == 404);
    finish();
}

/* Checks an answer in pieces: the node gets credit as the client reads. */
static void test_stream(void)
{
    static char piece[WIRE_WINDOW];
    begin_serving();
    int fd = ask_begin("{\"model\":\"mine\",\"stream\":true}");
    memset(piece, 'x', sizeof piece);
    answer(200, "data: 1\n\n", 9, true, true);
    clear();
    CHECK(receive(fd, "data: 1\n\n") && strstr(reply, "text/event-stream") && !told.credit);
    answer(0, piece, sizeof piece - 9, false, true);
    UNTIL(told.credit || !receive(fd, "x"));
    while (told.credit < WIRE_WINDOW / 2) receive(fd, "x\r\n");
    answer(0, "data: [DONE]\n\n", 14, false, false);
    CHECK(receive(fd, "[DONE]"));
    close(fd);
    CHECK(!told.n_drops);
    finish();
}

/* Checks that a request ends with its client. */
static void test_gone(void)
{
    begin_serving();
    int fd = ask_begin("{\"model\":\"mine\"}");
    close(fd); /* before the answer begins */
    UNTIL(told.n_drops == 1);
    answer(200, "late", 4, false, false); /* ignored */
    fd = ask_begin("{\"model\":\"mine\"}");
    answer(200, "data: 1\n\n", 9, true, true);
    clear();
    CHECK(receive(fd, "data: 1"));
    close(fd);
    UNTIL(told.n_drops == 2);
    CHECK(get("/openai/v1/models") == 200);
    finish();
}

/* Checks that a lost request is answered, before and after its answer has begun. */
static void test_lost(void)
{
    begin_serving();
    int fd = ask_begin("{\"model\":\"mine\"}");
    answer(503, NULL, 0, false, false);
    CHECK(answer_of(fd) == 503 && strstr(reply, "Retry-After: 1") && strstr(reply, "server_error"));
    CHECK(told.n_drops == 1); /* pieces may still be on their way */
    fd = ask_begin("{\"model\":\"mine\"}");
    answer(200, "data: 1\n\n", 9, true, true);
    const int second = ask_begin("{\"model\":\"mine\"}");
    control_link_calls.down(w.control, "n1", "the test", 0);
    CHECK(answer_of(fd) == 200 && strstr(reply, "data: 1") && strstr(reply, "data: {\"error\""));
    CHECK(answer_of(second) == 503 && strstr(reply, "Retry-After: 1"));
    CHECK(post(COMPLETIONS, "{\"model\":\"mine\"}") == 503);
    CHECK(get("/openai/v1/models") == 200 && strstr(reply, "\"data\":[]"));
    finish();
}

/* Checks that the first cancel drains and the second ends. */
static void test_cancel(void)
{
    struct rank_exit x = {.rank = RANK_GANG, .exit_status = GANG_SAVED};
    begin_serving();
    const int first = ask_begin("{\"model\":\"mine\"}");
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    UNTIL(told.n_saves == 1);
    CHECK(!told.n_stops);
    CHECK_STR(told.why, "the job was cancelled");
    do CHECK(get("/v1/jobs/1") == 200);
    while (!strstr(reply, "\"drains_until\":\"20"));
    CHECK(strstr(reply, "\"state\":\"stopping\"") && strstr(reply, "\"open\":1"));
    CHECK(post(COMPLETIONS, "{\"model\":\"mine\"}") == 503 && strstr(reply, "stopping"));
    told.n_asks = 0;
    answer(200, "{\"ok\":1}", 8, false, false);
    CHECK(answer_of(first) == 200);
    report(RANK_RESULT, "{\"requests\":1}", 14);
    report(RANK_EXIT, &(struct rank_exit){.exit_status = RANK_EXIT_SAVED}, sizeof x);
    report_of(RANK_GANG, RANK_EXIT, &x, sizeof x);
    UNTIL(!control_job(w.control, 1));
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"state\":\"succeeded\""));
    CHECK(strstr(reply, "\"requests\":1") && !strstr(reply, "save_failed"));
    finish();
}

/* Checks that the order to drain tells why. */
static void test_reasons(void)
{
    static const struct {
        const char *path, *body, *why;
    } row[] = {{"/v1/jobs/1:suspend", "", "the job was suspended"},
               {"/v1/nodes/n1:drain", "{}", "a node of the job is drained"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        begin_serving();
        const int fd = ask_begin("{\"model\":\"mine\"}");
        CHECK_MSG(post(row[i].path, row[i].body) / 100 == 2, "%s", reply);
        UNTIL(told.n_saves == 1);
        CHECK_STR(told.why, row[i].why);
        answer(200, "{}", 2, false, false);
        CHECK(answer_of(fd) == 200);
        finish();
    }
}

static void test_cancel_twice(void)
{
    begin_serving();
    const int fd = ask_begin("{\"model\":\"mine\"}");
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    UNTIL(told.n_saves == 1);
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    UNTIL(told.n_stops == 1);
    CHECK(answer_of(fd) == 503);
    finish();
}

static void on_nothing(void *arg)
{
}

static void on_some(void *arg, const struct msg *m, bool first)
{
}

static void open_more(struct served **r, int n, const char *user)
{
    static const struct served_calls calls = {on_some, on_nothing};
    const struct served_body body = {.bytes = "{}", .size = 2};
    struct msg ask = {.named = -1};
    snprintf(ask.user, sizeof ask.user, "%s", user);
    for (int i = 0; i < n; i++)
        r[i] = serving_open(control_servings(w.control), control_job(w.control, 1), &ask, &body,
                            &calls, NULL);
}

/* Checks the limits on open requests, of one user and of all. */
static void test_open(void)
{
    struct served *r[SERVINGS_OPEN];
    begin_serving();
    open_more(r, SERVINGS_USER - 1, "tester");
    const int fd = ask_begin("{\"model\":\"mine\"}");
    CHECK(post(COMPLETIONS, "{\"model\":\"mine\"}") == 429 && strstr(reply, "unavailable"));
    CHECK(strstr(reply, "tester has 250 open requests") && strstr(reply, "Retry-After: 1"));
    CHECK(get("/openai/v1/models/mine") == 200);
    open_more(r + SERVINGS_USER - 1, SERVINGS_OPEN - SERVINGS_USER - 1, "another");
    close(fd);
    UNTIL(told.n_drops == 1);
    close(ask_begin("{\"model\":\"mine\"}")); /* there is room again */
    UNTIL(told.n_drops == 2);
    open_more(r + SERVINGS_OPEN - 2, 2, "a third");
    CHECK(post(COMPLETIONS, "{\"model\":\"mine\"}") == 429 && strstr(reply, "jobs have 500"));
    for (int i = 0; i < SERVINGS_OPEN; i++) serving_close(r[i]);
    finish();
}

/* Checks requests that seqd itself answers. */
static void test_refused(void)
{
    static const struct {
        const char *body;
        int status;
        const char *says, *code;
    } bad[] = {
        {"", 400, "object", "invalid"},
        {"{", 400, "not JSON", "invalid"},
        {"[1]", 400, "object", "invalid"},
        {"{\"prompt\":\"a\"}", 400, "model is missing", "invalid"},
        {"{\"model\":7}", 400, "\"param\":\"model\"", "invalid"},
        {"{\"model\":\"other\"}", 404, "\"param\":\"model\"", "model_not_found"},
        {"{\"model\":\"mine:law\"}", 404, "mine:law", "model_not_found"},
        {"{\"model\":\"2\"}", 404, "GET /openai/v1/models", "model_not_found"},
    };
    char text[AUTH_TOKEN_SIZE], out[512], code[64];
    begin_serving();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(code, sizeof code, "\"code\":\"%s\"", bad[i].code);
        const int status = post(COMPLETIONS, bad[i].body);
        CHECK_MSG(status == bad[i].status && strstr(reply, bad[i].says) && strstr(reply, code),
                  "%s: %s", bad[i].body, reply);
        CHECK(strstr(reply, "\r\n\r\n{\"error\":{"));
    }
    CHECK(get("/openai/v1/models") == 200 &&
          strstr(reply, "{\"id\":\"mine\",\"object\":\"model\""));
    CHECK(get("/openai/v1/models/mine") == 200 && strstr(reply, "\"owned_by\":\"tester\""));
    CHECK(get("/openai/v1/models/x") == 404 && get("/openai/v1/nothing") == 404);
    /* another user has no such model */
    rest_token("another", ROLE_USER, 0, text);
    snprintf(out, sizeof out,
             "POST " COMPLETIONS " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
             "Authorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 16\r\n"
             "\r\n{\"model\":\"mine\"}",
             text);
    CHECK(talk(out) == 404 && strstr(reply, "model_not_found"));
    CHECK(talk("GET /openai/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") ==
              401 &&
          strstr(reply, "authentication_error"));
    CHECK(!told.n_asks);
    finish();
}

/* Makes a body of that size, and sends a request with it. */
static int send_large(size_t size, char **body)
{
    char head[256];
    const int fd = dial();
    CHECK((*body = malloc(size)) != NULL);
    memset(*body, ' ', size);
    memcpy(*body, "{\"model\":\"mine\"", 15);
    (*body)[size - 1] = '}';
    snprintf(head, sizeof head,
             "POST " COMPLETIONS " HTTP/1.1\r\n" HEAD "Content-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             size);
    send_all(fd, head, strlen(head));
    send_all(fd, *body, size);
    return fd;
}

/* Checks a body that is larger than other requests may have, and one that is too large. */
static void test_large(void)
{
    const size_t size = 3 << 20;
    char *body, head[256];
    begin_serving();
    const int fd = send_large(size, &body);
    UNTIL(told.n_asks == 1);
    CHECK(told.size == size && !memcmp(told.body, body, size));
    answer(413, "{}", 2, false, false);
    CHECK(answer_of(fd) == 413 && told.n_drops == 1); /* pieces may still be on their way */
    snprintf(head, sizeof head,
             "POST " COMPLETIONS " HTTP/1.1\r\n" HEAD "Content-Type: application/json\r\n"
             "Content-Length: %d\r\n\r\n",
             HTTP_OPENAI_BODY + 1);
    CHECK(talk(head) == 413 && strstr(reply, "64 MiB") && strstr(reply, "{\"error\""));
    free(body);
    const int long_fd = send_large(5 << 20, &body); /* more than the job's tokens can be */
    CHECK(answer_of(long_fd) == 413 && strstr(reply, "takes 4202496") && told.n_asks == 1);
    free(body);
    finish();
}

/* Checks an answer that comes before the whole body was sent: the client gets it, and the node is
 * told to forget the body. */
static void test_early(void)
{
    char *body;
    begin_serving();
    rest_queued = 2 << 20; /* the session is full */
    const int fd = send_large(3 << 20, &body);
    for (int i = 0; i < 50; i++) loop_turn(w.loop, 1);
    CHECK(!told.size);
    rest_queued = -1; /* room for one piece */
    UNTIL(told.size);
    CHECK(told.size == WIRE_CHUNK && told.ask.more);
    answer(413, "{\"error\":1}", 11, false, false);
    CHECK(answer_of(fd) == 413 && told.n_drops == 1 && told.size == WIRE_CHUNK);
    rest_queued = 0;
    free(body);
    finish();
}

/* Checks that a body does not wait for a larger one. */
static void test_turns(void)
{
    static const char small[] = "{\"model\":\"mine\"}";
    char *body;
    begin_serving();
    rest_queued = 2 << 20; /* the session is full */
    const int first = post_begin(COMPLETIONS, "", small);
    for (int i = 0; i < 50; i++) loop_turn(w.loop, 1);
    const int second = send_large(3 << 20, &body);
    for (int i = 0; i < 50; i++) loop_turn(w.loop, 1);
    rest_queued = 0;
    UNTIL(told.n_asks == 2);
    CHECK(told.first_size == strlen(small));
    close(first);
    close(second);
    free(body);
    finish();
}

/* Checks that an answered request is known after the progress was stored. */
static void test_answered(void)
{
    const struct rank_progress p = {.unit = PROGRESS_REQUESTS, .done = 1};
    begin_serving();
    const struct job *j = control_job(w.control, 1);
    CHECK(!job_answered(j));
    report(RANK_PROGRESS, &p, sizeof p);
    CHECK(job_answered(j) && j->attempt->has_progress);
    UNTIL(!j->attempt->has_progress);
    CHECK(job_answered(j));
    finish();
}

/* Finds a sample of /metrics. */
static bool has_sample(const char *sample)
{
    return get("/metrics") == 200 && strstr(reply, sample);
}

/* Checks the rules of a histogram: counts do not fall, and the last is the count of all. */
static void check_histogram(const char *name, int64_t count)
{
    char bucket[96], all[160];
    int64_t was = 0;
    int n = 0;
    CHECK(get("/metrics") == 200);
    snprintf(bucket, sizeof bucket, "\n%s_bucket{job=\"1\",le=\"", name);
    for (const char *p = reply; (p = strstr(p, bucket)); p++, n++) {
        const int64_t now = strtoll(strchr(p + 1, ' '), NULL, 10);
        CHECK(now >= was);
        was = now;
    }
    CHECK_MSG(n == 15 && was == count, "%s: %d buckets, %lld", name, n, (long long)was);
    snprintf(all, sizeof all, "\n%s_count{job=\"1\"} %lld\n", name, (long long)count);
    CHECK_MSG(strstr(reply, all), "%s", all);
}

/* Reports counts of rank 0, and waits until they are stored. */
static void report_counts(const struct rank_serving *s)
{
    report(RANK_SERVING, s, sizeof *s);
    UNTIL(!control_job(w.control, 1)->attempt->has_progress);
}

/* Checks the counts in the document, in /metrics, and after a restart. */
static void test_counts(void)
{
    struct rank_serving s = {.requests = 7, .tokens = 30, .elapsed_us = 1000000, .queued = 3};
    begin_serving();
    CHECK(has_sample("\nseqd_serve_open{job=\"1\"} 0\n"));
    int fd = ask_begin("{\"model\":\"mine\",\"stream\":true}");
    CHECK(has_sample("\nseqd_serve_open{job=\"1\"} 1\n"));
    answer(200, "data: 1\n\n", 9, true, true);
    answer(0, "data: 2\n\n", 9, false, true);
    answer(0, "data: [DONE]\n\n", 14, false, false);
    CHECK(answer_of(fd) == 200);
    fd = ask_begin("{\"model\":\"mine\"}");
    answer(503, NULL, 0, false, false);
    CHECK(answer_of(fd) == 503);
    report_of(1, RANK_SERVING, &s, sizeof s); /* rank 0 alone may report it */
    s.tokens = -1;
    report_counts(&s);
    CHECK(has_sample("\nseqd_serve_queued{job=\"1\"} 0\n"));
    s.tokens = 30;
    report_counts(&s);
    CHECK(has_sample("\nseqd_serve_queued{job=\"1\"} 3\n") &&
          has_sample("\nseqd_serve_requests_total{job=\"1\",outcome=\"answered\"} 7\n") &&
          has_sample("\nseqd_serve_requests_total{job=\"1\",outcome=\"lost\"} 1\n") &&
          has_sample("\nseqd_serve_tokens_total{job=\"1\"} 30\n"));
    check_histogram("seqd_serve_first_token_seconds", 1);
    check_histogram("seqd_serve_token_seconds", 2);
    check_histogram("seqd_serve_answer_seconds", 1);
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"serving\":{\"open\":0,") &&
          strstr(reply, "\"tokens_s\":30,") && strstr(reply, "\"requests\":7,") &&
          strstr(reply, "\"progress\":{\"unit\":\"requests\",\"done\":7,\"total\":null,"));
    close_server();
    begin_in(false, 0);
    CHECK(has_sample("\nseqd_serve_tokens_total{job=\"1\"} 30\n"));
    check_histogram("seqd_serve_token_seconds", 2);
    finish();
}

/* Checks that the result has the counts of all attempts. */
static void test_attempts(void)
{
    const struct rank_serving s = {.requests = 7, .tokens = 30, .elapsed_us = 1000000};
    const char result[] = "{\"requests\":2,\"n_tokens\":5,\"ledger\":\"equal\"}";
    struct rank_exit x = {.rank = 0, .signal = SIGKILL};
    begin_serving();
    report_counts(&s);
    report(RANK_EXIT, &x, sizeof x);
    x = (struct rank_exit){.rank = RANK_GANG, .exit_status = GANG_FAILED};
    const int64_t epoch = told.epoch;
    report_of(RANK_GANG, RANK_EXIT, &x, sizeof x);
    UNTIL(told.epoch > epoch);
    report(RANK_BLOB, "blob", 4);
    report(RANK_READY, NULL, 0);
    UNTIL(job_is(1, JOB_RUNNING));
    CHECK(has_sample("\nseqd_serve_tokens_total{job=\"1\"} 30\n"));
    CHECK(get("/v1/jobs/1") == 200 && strstr(reply, "\"unit\":\"requests\",\"done\":7,"));
    report(RANK_RESULT, result, strlen(result));
    x.exit_status = GANG_DONE;
    report_of(RANK_GANG, RANK_EXIT, &x, sizeof x);
    UNTIL(!control_job(w.control, 1));
    CHECK_MSG(get("/v1/jobs/1") == 200 &&
                  strstr(reply, "\"result\":{\"requests\":9,\"n_tokens\":35,\"ledger\":\"equal\"}"),
              "%s", reply);
    finish();
}

/* Checks bodies that are too large together. Afterwards there is room again. */
static void test_crowded(void)
{
    char *body;
    rest_bodies = 1 << 19; /* a body's first 1 MiB does not count */
    begin_serving();
    for (int i = 0; i < 3; i++) {
        CHECK(answer_of(send_large(2 << 20, &body)) == 503 && strstr(reply, "Retry-After: 1"));
        CHECK(strstr(reply, "too large together") && strstr(reply, "{\"error\""));
        free(body);
    }
    const int fd = send_large(3 << 19, &body);
    UNTIL(told.n_asks == 1);
    answer(200, "{}", 2, false, false);
    CHECK(answer_of(fd) == 200);
    rest_bodies = 0;
    free(body);
    finish();
}

/* Checks that a job takes no request before its attempt has loaded the model. */
static void test_loading(void)
{
    begin_loading();
    CHECK(post(COMPLETIONS, "{\"model\":\"mine\"}") == 503 && strstr(reply, "loads its model"));
    CHECK(strstr(reply, "Retry-After: 1") && !told.n_asks);
    CHECK(get("/openai/v1/models") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/openai/v1/models/mine") == 503 && strstr(reply, "Retry-After: 1"));
    report_loaded();
    CHECK(get("/openai/v1/models/mine") == 200 && get("/openai/v1/models/1") == 200);
    /* the next attempt loads it again */
    struct job *j = (struct job *)control_job(w.control, 1);
    j->serving_epoch--;
    CHECK(get("/openai/v1/models/mine") == 503);
    finish();
}

/* ---- names, users and limits ----------------------------------------------------------------- */

/* Begins a request with a token. Returns the socket. */
static int ask_as(const char *token, const char *path, const char *body)
{
    static char out[2048];
    const int fd = dial();
    snprintf(out, sizeof out,
             "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
             "Authorization: Bearer %s\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             *body ? "POST" : "GET", path, token, strlen(body), body);
    send_all(fd, out, strlen(out));
    return fd;
}

/* Checks a job that its owner shares. As long as it is not, it is the same as none. */
static void test_shared(void)
{
    static const char body[] = "{\"model\":\"tester/mine\"}";
    char text[AUTH_TOKEN_SIZE], before[4096];
    begin_serving();
    rest_token("another", ROLE_USER, 0, text);
    CHECK(answer_of(ask_as(text, COMPLETIONS, "{\"model\":\"tester/none\"}")) == 404);
    snprintf(before, sizeof before, "%s", strstr(reply, "{\"error"));
    CHECK(answer_of(ask_as(text, COMPLETIONS, body)) == 404);
    memcpy(strstr(before, "/none"), "/mine", 5);
    CHECK_STR(strstr(reply, "{\"error"), before);
    CHECK(answer_of(ask_as(text, "/openai/v1/models", "")) == 200 && !strstr(reply, "mine"));
    job_spec_edit((struct job *)control_job(w.control, 1))->serve.shared = 1;
    CHECK(answer_of(ask_as(text, COMPLETIONS, "{\"model\":\"mine\"}")) == 404);
    CHECK(answer_of(ask_as(text, COMPLETIONS, "{\"model\":\"1\"}")) == 404);
    int fd = ask_as(text, COMPLETIONS, body);
    UNTIL(told.n_asks == 1);
    CHECK_STR(told.ask.model, "tester/mine");
    answer(200, "{}", 2, false, false);
    CHECK(answer_of(fd) == 200);
    CHECK(answer_of(ask_as(text, "/openai/v1/models", "")) == 200 &&
          strstr(reply, "\"id\":\"tester/mine\""));
    CHECK(answer_of(ask_as(text, "/openai/v1/models/tester/mine", "")) == 200);
    fd = ask_begin(body); /* the owner may say the whole name, too */
    answer(200, "{}", 2, false, false);
    CHECK(answer_of(fd) == 200);
    CHECK(get("/openai/v1/models") == 200 && strstr(reply, "\"id\":\"mine\""));
    finish();
}

static int64_t asked_job(int *fd)
{
    *fd = ask_begin("{\"model\":\"mine\"}");
    return told.ask.job;
}

/* Checks two jobs of one name: they share requests if they answer alike, and a job that drains
 * leaves them to the other. */
static void test_together(void)
{
    int fd[6];
    begin_serving();
    CHECK(post("/v1/jobs", serve_json) == 201);
    load_job(2);
    report_loaded();
    CHECK(asked_job(&fd[0]) == 2 && asked_job(&fd[1]) == 1 && asked_job(&fd[2]) == 2);
    CHECK(asked_job(&fd[3]) == 1);
    answer(200, "{}", 2, false, false);
    CHECK(answer_of(fd[3]) == 200);
    CHECK(asked_job(&fd[3]) == 1);
    /* another model under the name: the newest job alone */
    struct job_spec *s = job_spec_edit((struct job *)control_job(w.control, 1));
    s->sampling.temperature = 0.5;
    CHECK(asked_job(&fd[4]) == 2);
    CHECK(post("/v1/jobs/2:cancel", "") == 202);
    UNTIL(told.n_saves == 1);
    CHECK(asked_job(&fd[5]) == 1);
    CHECK(post(COMPLETIONS, "{\"model\":\"2\"}") == 503);
    for (int i = 0; i < 6; i++) close(fd[i]);
    const int status = post("/v1/jobs", "{\"kind\":\"serve\",\"name\":\"a:b\"}");
    CHECK_MSG(status == 400, "%d %s", status, reply);
    CHECK_MSG(strstr(reply, "name has no"), "%s", reply);
    finish();
}

/* Checks the limits of a user. */
static void test_limits(void)
{
    static const char body[] = "{\"model\":\"tester/mine\"}";
    struct users *t;
    char text[AUTH_TOKEN_SIZE];
    begin_serving();
    t = control_users(w.control);
    job_spec_edit((struct job *)control_job(w.control, 1))->serve.shared = 1;
    rest_token("another", ROLE_USER, 0, text);
    t->limits.asks = 2;
    t->limits.tokens = 100;
    for (int i = 0; i < 2; i++) {
        const int n = told.n_asks, fd = ask_as(text, COMPLETIONS, body);
        UNTIL(told.n_asks > n);
        answer(200, "{}", 2, false, false);
        CHECK(answer_of(fd) == 200 && strstr(reply, "x-ratelimit-limit-requests: 2\r\n"));
        CHECK(strstr(reply, i ? "remaining-requests: 0\r\n" : "remaining-requests: 1\r\n"));
        CHECK(strstr(reply, i ? "remaining-tokens: 93\r\n" : "remaining-tokens: 100\r\n"));
    }
    CHECK(answer_of(ask_as(text, COMPLETIONS, body)) == 429);
    CHECK(strstr(reply, "\"code\":\"rate_limit_exceeded\"") && strstr(reply, "2 requests") &&
          strstr(reply, "Retry-After: "));
    t->limits.asks = 0;
    t->limits.tokens = 14;
    CHECK(answer_of(ask_as(text, COMPLETIONS, body)) == 429 && strstr(reply, "14 tokens"));
    t->limits.tokens = 15;
    const int fd = ask_as(text, COMPLETIONS, body);
    UNTIL(told.n_asks == 3);
    close(fd);
    UNTIL(told.n_drops == 1);
    /* a stream that its client leaves counts its pieces */
    t->limits.tokens = 100;
    const int left = ask_as(text, COMPLETIONS, body);
    UNTIL(told.n_asks == 4);
    answer(200, "data: 1\n\n", 9, true, true);
    answer(0, "data: 2\n\n", 9, true, true);
    clear();
    CHECK(receive(left, "data: 2"));
    close(left);
    UNTIL(told.n_drops == 2);
    const int next = ask_as(text, COMPLETIONS, body);
    UNTIL(told.n_asks == 5);
    answer(200, "{}", 2, false, false);
    CHECK(answer_of(next) == 200);
    CHECK_MSG(strstr(reply, "remaining-tokens: 84\r\n"), "%s", reply);
    /* and so does one that the job cuts off, as at the end of a drain */
    const int cut = ask_as(text, COMPLETIONS, body);
    UNTIL(told.n_asks == 6);
    answer(200, "data: 1\n\n", 9, true, true);
    answer(0, "data: 2\n\n", 9, true, true);
    answer_of_total(0, 0, "data: {}\n\n", 10, true, false);
    CHECK(answer_of(cut) == 200);
    const int last = ask_as(text, COMPLETIONS, body);
    UNTIL(told.n_asks == 7);
    answer(200, "{}", 2, false, false);
    CHECK(answer_of(last) == 200);
    CHECK_MSG(strstr(reply, "remaining-tokens: 75\r\n"), "%s", reply);
    t->limits = (struct users_limits){0};
    finish();
}

/* Checks that requests end with their token, before and after their answers have begun. */
static void test_revoked(void)
{
    static const char body[] = "{\"model\":\"tester/mine\",\"stream\":true}";
    char text[AUTH_TOKEN_SIZE];
    struct err e;
    begin_serving();
    job_spec_edit((struct job *)control_job(w.control, 1))->serve.shared = 1;
    const int64_t id = rest_token("another", ROLE_USER, 0, text);
    const int own = ask_begin("{\"model\":\"mine\"}");
    const int first = ask_as(text, COMPLETIONS, body);
    UNTIL(told.n_asks == 2);
    answer(200, "data: 1\n\n", 9, true, true);
    const int second = ask_as(text, COMPLETIONS, body);
    UNTIL(told.n_asks == 3);
    CHECK(!auth_revoke(w.auth, id, NULL, NULL, &e));
    CHECK(answer_of(first) == 200 && strstr(reply, "data: 1") &&
          strstr(reply, "data: {\"error\":{\"message\":\"the token"));
    CHECK(answer_of(second) == 401 && strstr(reply, "revoked"));
    CHECK(told.n_drops == 2);
    close(own);
    UNTIL(told.n_drops == 3);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_loading);
    RUN(test_completion);
    RUN(test_adapter);
    RUN(test_stream);
    RUN(test_gone);
    RUN(test_lost);
    RUN(test_cancel);
    RUN(test_reasons);
    RUN(test_cancel_twice);
    RUN(test_open);
    RUN(test_refused);
    RUN(test_large);
    RUN(test_early);
    RUN(test_turns);
    RUN(test_answered);
    RUN(test_counts);
    RUN(test_attempts);
    RUN(test_crowded);
    RUN(test_shared);
    RUN(test_together);
    RUN(test_limits);
    RUN(test_revoked);
    return test_done("seqd_serve");
}
