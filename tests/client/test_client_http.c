/* test_client_http: runs complete verbs against a scripted server. The server is a child process
 * that answers each connection with the next reply of a list and records the requests. */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/context.h"
#include "api/core/file.h"
#include "api/core/sha256.h"
#include "client/cli.h"
#include "client/verbs.h"
#include "tests/lib/test.h"

/* ---- the server ------------------------------------------------------------------------------ */

struct server {
    pid_t pid;
    int port, asked; /* `asked` is a pipe to which the server writes the requests, in the order in
                      * which they come */
    char url[80];
};

/* Reads one request, which is its headers and Content-Length bytes. */
static size_t read_request(int fd, char *buf, size_t size)
{
    size_t n = 0, need = 0;
    while (n + 1 < size) {
        ssize_t k = read(fd, buf + n, size - 1 - n);
        if (k <= 0) break;
        n += (size_t)k;
        buf[n] = 0;
        const char *end = strstr(buf, "\r\n\r\n"), *len = strstr(buf, "Content-Length:");
        if (end)
            need = (size_t)(end + 4 - buf) + (len && len < end ? strtoul(len + 15, NULL, 10) : 0);
        if (need && n >= need) break;
    }
    buf[n] = 0;
    return n;
}

static void put(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k <= 0) return;
        p += k, n -= (size_t)k;
    }
}

/* Tells whether a request only reads a job. A client that waits for a job reads it from time to
 * time, and the number of these requests is not fixed. */
static bool looks_at_job(const char *request)
{
    return !strncmp(request, "GET /v1/jobs/12 ", 16);
}

static void (*before_reply)(void); /* called in the server before each reply; NULL for no call */

/* Sends the replies in order, and then repeats the last one. There is one exception: if a request
 * only reads a job while the next reply is a stream, the request gets the last reply of the list.
 * The stream is then sent to the next request that does more. If a reply is NULL, the server
 * closes the connection without an answer. */
static void serve(int listener, int asked, const char *const *reply, int n)
{
    static char buf[1 << 16];
    for (int i = 0;;) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) _exit(1);
        put(asked, buf, read_request(fd, buf, sizeof buf));
        const bool stream = i < n && reply[i] && strstr(reply[i], "text/event-stream");
        const bool beside = i == n || (stream && looks_at_job(buf));
        const char *say = reply[beside ? n - 1 : i];
        if (before_reply) before_reply();
        if (say) put(fd, say, strlen(say));
        i += !beside;
        shutdown(fd, SHUT_WR);
        /* until the client has read the complete reply */
        while (read(fd, buf, sizeof buf) > 0) continue;
        close(fd);
    }
}

static void server_begin(struct server *s, int listener, const char *const *reply, int n)
{
    int pipes[2];
    if (listen(listener, 8) || pipe(pipes)) abort();
    fflush(stdout);
    s->pid = fork();
    if (!s->pid) serve(listener, pipes[1], reply, n);
    close(listener);
    close(pipes[1]);
    s->asked = pipes[0];
}

static void server_start(struct server *s, const char *const *reply, int n)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) ||
        getsockname(listener, (struct sockaddr *)&a, &len))
        abort();
    s->port = ntohs(a.sin_port);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", s->port);
    server_begin(s, listener, reply, n);
}

static void server_start_unix(struct server *s, const char *path, const char *const *reply, int n)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    snprintf(s->url, sizeof s->url, "unix:%s", path);
    if (bind(listener, (struct sockaddr *)&a, sizeof a)) abort();
    server_begin(s, listener, reply, n);
}

/* Ends the server, after the verb has ended. Returns all requests that it got. */
static const char *server_end(struct server *s)
{
    static char all[1 << 16];
    size_t n = 0;
    int status;
    kill(s->pid, SIGKILL); /* other signals are still blocked by `follow` */
    for (ssize_t k; (k = read(s->asked, all + n, sizeof all - 1 - n)) > 0;) n += (size_t)k;
    all[n] = 0;
    close(s->asked);
    waitpid(s->pid, &status, 0);
    return all;
}

/* ---- running a verb -------------------------------------------------------------------------- */

static char out[1 << 16], err[1 << 16];

static void slurp(FILE *f, char *to, size_t size)
{
    rewind(f);
    to[fread(to, 1, size - 1, f)] = 0;
    fclose(f);
}

/* Runs seqctl in this process. The text that it writes to stdout and stderr is stored in `out` and
 * `err`. If s is NULL, it runs without --url. */
static int seqctl(const struct server *s, char *const *words)
{
    char *argv[20] = {"seqctl", "--url", s ? (char *)s->url : NULL};
    int argc = s ? 3 : 1, keep[2] = {dup(1), dup(2)};
    FILE *f[2] = {tmpfile(), tmpfile()};
    while (*words) argv[argc++] = *words++;
    fflush(stdout);
    dup2(fileno(f[0]), 1);
    dup2(fileno(f[1]), 2);
    int rc = cli_run(argc, argv, verbs_all);
    fflush(stdout);
    fflush(stderr);
    dup2(keep[0], 1);
    dup2(keep[1], 2);
    close(keep[0]);
    close(keep[1]);
    slurp(f[0], out, sizeof out);
    slurp(f[1], err, sizeof err);
    return rc;
}
#define SEQCTL(s, ...) seqctl(s, (char *[]){__VA_ARGS__, NULL})

#define JSON_REPLY(status, body)                                                                   \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" body
#define SSE_REPLY(body)                                                                            \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" body
#define LOG_REPLY(next, end, body)                                                                 \
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nSeqd-Next-Offset: " next                       \
    "\r\nSeqd-Log-End: " end "\r\nConnection: close\r\n\r\n" body
#define JOB(state)                                                                                 \
    "{\"id\":12,\"name\":\"t\",\"kind\":\"train\",\"state\":\"" state                              \
    "\",\"epoch\":1,\"steps\":2,"                                                                  \
    "\"created_at\":\"2026-11-21T12:00:00.000Z\",\"finished_at\":\"2026-11-21T12:01:24.000Z\"}"

static const char *spec_file(const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/test_client_spec_%d", (int)getpid());
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0) abort();
    fclose(f);
    return path;
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what)) n++;
    return n;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Checks a submit whose answer is lost twice. All three tries must have one key, so that only one
 * job exists. */
static void test_submit_retries_with_one_key(void)
{
    static const char *const reply[] = {NULL, JSON_REPLY("503 Service Unavailable", "{}"),
                                        JSON_REPLY("201 Created", JOB("queued"))};
    struct server s;
    char key[3][64] = {""};
    server_start(&s, reply, 3);
    int rc = SEQCTL(&s, "submit", (char *)spec_file("{\"kind\":\"train\"}"), "--set",
                    "train.steps=5");
    const char *asked = server_end(&s);
    CHECK_MSG(rc == CLI_OK, "rc %d: %s", rc, err);
    CHECK_STR(out, "job 12 queued\n");
    CHECK_MSG(strstr(err, "next: seqctl watch 12"), "%s", err);
    const char *p = asked;
    for (int i = 0; i < 3 && p; i++) {
        p = strstr(p, "Idempotency-Key: ");
        if (p) sscanf(p, "Idempotency-Key: %63s", key[i]), p++;
    }
    CHECK_MSG(strlen(key[0]) == 34 && key[0][0] == '"', "%s", key[0]);
    CHECK(!strcmp(key[0], key[1]) && !strcmp(key[1], key[2]));
    CHECK_MSG(count(asked, "{\"kind\": \"train\", \"train\": {\"steps\": 5}}") == 3, "%s", asked);
    CHECK(count(asked, "Content-Type: application/json") == 3);
    server_start(&s, reply + 2, 1);
    CHECK(SEQCTL(&s, "submit", (char *)spec_file("{}"), "-o", "name", "-q") == CLI_OK);
    CHECK_STR(out, "12\n");
    CHECK_STR(err, "");
    asked = server_end(&s);
    CHECK_MSG(!strstr(asked, key[0]), "two submits had one key");
}

#define BATCH_REPLY(status)                                                                        \
    JSON_REPLY(status, "{\"data\":[" JOB("queued") ",{\"id\":13,\"state\":\"queued\"}]}")

/* Checks that several specs are sent in one request. If the server answers that the first try is
 * still in progress, the request must be sent again with its key. */
static void test_submit_several(void)
{
    static const char *const files[] = {
        "{\"kind\":\"train\"}\n\n{\"kind\":\"score\"}\n",
        "[{\"kind\":\"train\"},\n {\"kind\":\"score\"}]",
    };
    static const char *const reply[] = {
        NULL, "HTTP/1.1 409 Conflict\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{}",
        BATCH_REPLY("201 Created")};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct server s;
        char key[3][64] = {""};
        server_start(&s, reply, 3);
        int rc = SEQCTL(&s, "submit", (char *)spec_file(files[i]), "--set", "seed=5");
        const char *asked = server_end(&s), *p = asked;
        CHECK_MSG(rc == CLI_OK, "rc %d: %s", rc, err);
        CHECK_STR(out, "job 12 queued\njob 13 queued\n");
        CHECK_MSG(count(asked, "POST /v1/jobs:batch ") == 3, "%s", asked);
        CHECK_MSG(count(asked, "{\"jobs\": [{\"kind\": \"train\", \"seed\": 5}, {\"kind\": "
                               "\"score\", \"seed\": 5}]}") == 3,
                  "%s", asked);
        for (int k = 0; k < 3 && p; k++) {
            p = strstr(p, "Idempotency-Key: ");
            if (p) sscanf(p, "Idempotency-Key: %63s", key[k]), p++;
        }
        CHECK(strlen(key[0]) == 34 && !strcmp(key[0], key[1]) && !strcmp(key[0], key[2]));
    }
    struct server s;
    server_start(&s, reply + 2, 1);
    char *path = (char *)spec_file("{\"kind\":\"train\"}\n"); /* one line, one spec */
    CHECK(SEQCTL(&s, "submit", path, path, "-q", "-o", "name") == CLI_OK);
    CHECK_STR(out, "12\n13\n");
    CHECK_STR(err, "");
    CHECK(strstr(server_end(&s), "{\"jobs\": [{\"kind\": \"train\"}, {\"kind\": \"train\"}]}"));
    server_start(&s, reply + 2, 1);
    CHECK(SEQCTL(&s, "submit", (char *)spec_file("[{}]"), "-q", "-o", "name") == CLI_OK);
    CHECK(strstr(server_end(&s), "POST /v1/jobs ")); /* a single spec is not a batch */
}

/* Checks that a file that is not a list of specs is not sent. */
static void test_submit_several_refused(void)
{
    static const char *const wrong[][2] = {
        {"[]", "holds no spec"},
        {"[{},7]", "a job spec is an object"},
        {"[[{}]]", "a job spec is an object"},
        {"{}\n{\n", "line 2, column 1: string or '}' expected"},
        {"{}\n\n{\"column\" 1}\n", "line 3, column 11: ':' expected near '1'"},
        {"{}\n{\"column 9: x\":1,\"column 9: x\":2}\n", "line 2, column 30: duplicate object key"},
        {"{}\n7\n", "a job spec is an object"},
        {"{}\n{\"a\":1,\"a\":2}\n", "line 2, column"},
    };
    const struct server s = {.url = "http://127.0.0.1:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const int rc = SEQCTL(&s, "submit", (char *)spec_file(wrong[i][0]));
        CHECK_MSG(rc == CLI_ERROR && strstr(err, wrong[i][1]), "%s: %d %s", wrong[i][0], rc, err);
    }
    CHECK(SEQCTL(&s, "plan", (char *)spec_file("[{},{}]")) == CLI_ERROR);
}

/* Checks that with unix:PATH the requests are unchanged and are sent through the socket, even if
 * the environment names a proxy. */
static void test_unix_socket(void)
{
    static const char *const reply[] = {JSON_REPLY("200 OK", JOB("queued"))};
    char path[64];
    struct server s;
    snprintf(path, sizeof path, "/tmp/test_client_%d.sock", (int)getpid());
    setenv("http_proxy", "http://127.0.0.1:1", 1);
    server_start_unix(&s, path, reply, 1);
    const int rc = SEQCTL(&s, "show", "12", "--field", "state");
    const char *asked = server_end(&s);
    unsetenv("http_proxy");
    unlink(path);
    CHECK_MSG(rc == CLI_OK, "rc %d: %s", rc, err);
    CHECK_STR(out, "queued\n");
    CHECK_MSG(!strncmp(asked, "GET /v1/jobs/12 HTTP/1.1\r\nHost: localhost\r\n", 43), "%s", asked);
    CHECK(SEQCTL(&s, "show", "12") == CLI_ERROR);
    CHECK_MSG(strstr(err, path) && strstr(err, "Is it running?"), "%s", err);
}

/* Checks that a token is sent to other machines only over https. To this machine, it may also be
 * sent over http. No form of a URL may circumvent this rule. */
static void test_token_in_the_clear(void)
{
    static const char *const reply[] = {JSON_REPLY("200 OK", JOB("queued"))};
    static const char *const urls[] = {"http://192.0.2.1:7433",
                                       "192.0.2.1:7433",
                                       "http://localhost.example.invalid:1",
                                       "http://127.0.0.1.example.invalid:1",
                                       "http://127.0.0.1:80@192.0.2.1:1",
                                       "HTTP://[::2]:1",
                                       "http://localhost@192.0.2.1"};
    char path[64];
    struct server s;
    snprintf(path, sizeof path, "/tmp/test_client_%d.token", (int)getpid());
    FILE *f = fopen(path, "w");
    CHECK(f && fputs("seqd_1_abc\n", f) > 0 && !fclose(f));
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        snprintf(s.url, sizeof s.url, "%s", urls[i]);
        CHECK(SEQCTL(&s, "show", "12", "--token-file", path) == CLI_ERROR);
        CHECK_MSG(strstr(err, "write https://"), "%s: %s", urls[i], err);
    }
    server_start(&s, reply, 1);
    CHECK(SEQCTL(&s, "show", "12", "--token-file", path, "--field", "state") == CLI_OK);
    CHECK(strstr(server_end(&s), "Authorization: Bearer seqd_1_abc\r\n"));
    unlink(path);
}

/* Checks that a refused request is not repeated, and that the message names the field and the fix,
 * without terminal escapes. */
static void test_submit_refused(void)
{
    static const char *const reply[] = {JSON_REPLY(
        "400 Bad Request",
        "{\"title\":\"Bad Request\",\"status\":400,\"code\":\"invalid\",\"detail\":"
        "\"data.seq_len is missing\\u001b[2J\",\"errors\":[{\"pointer\":\"/data/seq_len\","
        "\"detail\":\"give the tokens of one sequence\"}]}")};
    struct server s;
    server_start(&s, reply, 1);
    int rc = SEQCTL(&s, "submit", (char *)spec_file("{}"));
    server_end(&s);
    CHECK_MSG(rc == CLI_ERROR, "rc %d", rc);
    CHECK_STR(out, "");
    CHECK_MSG(strstr(err, "data.seq_len is missing?[2J (400 invalid)"), "%s", err);
    CHECK_MSG(strstr(err, "\n  data.seq_len: give the tokens of one sequence"), "%s", err);
    CHECK(!strchr(err, '\033'));
}

/* Checks an answer that has the largest possible number of faults. The message must have a line
 * for each fault. */
static void test_many_faults(void)
{
    static char body[1 << 15], reply[1 << 16];
    const char *const replies[] = {reply};
    enum { N = 101 };
    struct server s;
    char line[64];
    size_t n = (size_t)sprintf(body,
                               "{\"title\":\"Bad Request\",\"status\":400,\"code\":\"invalid\","
                               "\"detail\":\"jobs[0]: kind is missing\",\"errors\":[");
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(
            body + n,
            "%s{\"pointer\":\"/jobs/%d/kind\",\"detail\":\"jobs[%d]: kind is missing: one "
            "of train, score, generate, verify, embed\"}",
            i ? "," : "", i, i);
    snprintf(reply, sizeof reply,
             "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
             "Connection: close\r\n\r\n%s]}",
             n + 2, body);
    server_start(&s, replies, 1);
    CHECK(SEQCTL(&s, "submit", (char *)spec_file("{}")) == CLI_ERROR);
    server_end(&s);
    for (int i = 0; i < N; i++) {
        snprintf(line, sizeof line, "\n  jobs[%d]: kind is missing: one of", i);
        CHECK_MSG(strstr(err, line), "%d", i);
    }
    CHECK(
        strstr(err, "jobs[100]: kind is missing: one of train, score, generate, verify, embed\n"));
}

static void test_exit_codes(void)
{
    static const struct {
        const char *reply;
        int want;
    } cases[] = {
        {JSON_REPLY("404 Not Found", "{\"detail\":\"no job 12\",\"code\":\"not_found\"}"),
         CLI_NOT_FOUND},
        {JSON_REPLY("409 Conflict", "{\"detail\":\"is final\",\"code\":\"conflict\"}"),
         CLI_CONFLICT},
        {JSON_REPLY("500 Internal Server Error", "{\"detail\":\"x\",\"request_id\":\"r7\"}"),
         CLI_ERROR},
        {JSON_REPLY("404 Not Found", "<html>"), CLI_NOT_FOUND},
        {JSON_REPLY("200 OK", "not json"), CLI_ERROR},
        {JSON_REPLY("200 OK", JOB("running")), CLI_OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct server s;
        server_start(&s, &cases[i].reply, 1);
        int rc = SEQCTL(&s, "cancel", "12");
        server_end(&s);
        CHECK_MSG(rc == cases[i].want, "case %zu: rc %d: %s", i, rc, err);
        CHECK(!*err == (rc == CLI_OK));
    }
    struct server none = {.url = "http://127.0.0.1:1"};
    CHECK(SEQCTL(&none, "ls") == CLI_ERROR);
    CHECK_MSG(strstr(err, "cannot reach seqd at http://127.0.0.1:1"), "%s", err);
}

/* Checks a stream that breaks in the middle of event 3. The next connection asks for the events
 * after event 2. */
static void test_events_resume(void)
{
    static const char *const reply[] = {
        SSE_REPLY(
            "retry: 3000\n\nid: 1\ndata: {\"seq\":1}\n\nid: 2\ndata: {\"seq\":2}\n\nid: 3\nda"),
        NULL,
        SSE_REPLY(
            "id: 3\ndata: {\"seq\":3}\n\nid: 3\nevent: end\ndata: {\"state\":\"succeeded\"}\n\n")};
    struct server s;
    server_start(&s, reply, 3);
    int rc = SEQCTL(&s, "events", "12", "-f", "-o", "jsonl");
    const char *asked = server_end(&s);
    CHECK_MSG(rc == CLI_OK, "rc %d: %s", rc, err);
    CHECK_STR(out, "{\"seq\": 1}\n{\"seq\": 2}\n{\"seq\": 3}\n");
    CHECK_MSG(count(asked, "Last-Event-ID: 2\r\n") == 2, "%s", asked);
    CHECK(count(asked, "Last-Event-ID") == 2);
    CHECK(count(asked, "Accept: text/event-stream") == 3);
}

/* the URL of a second server, and the state directory that names this server, or "" */
static char moved_to[80], moved_in[128];

/* Makes the environment name the second server, or makes the state directory name the new address
 * of a restarted server. */
static void move(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s/address", moved_in);
    const bool moved = *moved_in ? !file_write(path, moved_to, strlen(moved_to), NULL)
                                 : !context_set_current(moved_to, NULL);
    if (!moved) abort();
}

/* Checks that a broken stream is continued at the same server, even if seqctl login or contexts
 * choose a different server in the meantime. A seqd that is named by its state directory is an
 * exception: it is found at its new address. */
static void test_follow_keeps_server(void)
{
    static const char *const broken[] = {SSE_REPLY("id: 1\ndata: {\"seq\":1}\n\nid: 2\nda"),
                                         SSE_REPLY("event: end\ndata: {}\n\n")};
    static const char *const other[] = {SSE_REPLY("event: end\ndata: {}\n\n")};
    char dir[64] = "/tmp/test-client-XXXXXX", path[128];
    CHECK(mkdtemp(dir) != NULL);
    setenv("XDG_CONFIG_HOME", dir, 1);
    for (int named = 0; named < 2; named++) {
        struct server here, there, state = {0};
        server_start(&there, other, 1);
        snprintf(moved_to, sizeof moved_to, "%s", there.url);
        snprintf(moved_in, sizeof moved_in, "%s", named ? dir : "");
        before_reply = move;
        server_start(&here, broken, 2);
        before_reply = NULL;
        snprintf(path, sizeof path, "%s/address", dir);
        CHECK(!context_set_current(here.url, NULL));
        CHECK(!file_write(path, here.url, strlen(here.url), NULL));
        snprintf(state.url, sizeof state.url, "%s", dir);
        const int rc = SEQCTL(named ? &state : NULL, "events", "12", "-f", "-o", "jsonl");
        CHECK_MSG(rc == CLI_OK, "rc %d: %s", rc, err);
        CHECK_STR(out, "{\"seq\": 1}\n");
        CHECK(count(server_end(&here), "GET ") == (named ? 1 : 2));
        const char *asked = server_end(&there);
        CHECK_MSG(count(asked, "Last-Event-ID: 1\r\n") == named, "%s", asked);
        CHECK(count(asked, "GET ") == named);
    }
    unsetenv("XDG_CONFIG_HOME");
    CHECK(!file_remove(dir, NULL));
}

/* Checks that streams and waits continue while the server, or a proxy in front of it, is busy. A
 * request is made again when Retry-After allows it. A refusal is final. If seqd may have carried
 * out an order, the order is sent again only if it has a key. */
static void test_busy(void)
{
    static const char *const stream[] = {
        JSON_REPLY("502 Bad Gateway", "<html>"), JSON_REPLY("504 Gateway Timeout", "<html>"),
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{}",
        JSON_REPLY("503 Service Unavailable", "{}"),
        SSE_REPLY("id: 1\ndata: {\"seq\":1}\n\nevent: end\ndata: {}\n\n")};
    static const char *const wait[] = {
        JSON_REPLY("201 Created", JOB("queued")), SSE_REPLY("id: 1\nevent: end\ndata: {}\n\n"),
        JSON_REPLY("502 Bad Gateway", "<html>"), JSON_REPLY("200 OK", JOB("succeeded"))};
    static const char *const log[] = {JSON_REPLY("503 Service Unavailable", "{}"),
                                      LOG_REPLY("6", "true", "hello\n")};
    struct server s;
    server_start(&s, stream, 5);
    CHECK_MSG(SEQCTL(&s, "events", "12", "-f", "-o", "jsonl") == CLI_OK, "%s", err);
    CHECK_STR(out, "{\"seq\": 1}\n");
    CHECK_MSG(count(err, "seqd is busy (502), trying again") == 1 && strstr(err, "connected again"),
              "%s", err);
    CHECK(count(server_end(&s), "GET /v1/jobs/12/events ") == 5);
    server_start(&s, wait, 4);
    CHECK_MSG(SEQCTL(&s, "submit", (char *)spec_file("{}"), "--wait", "-q") == CLI_OK, "%s", err);
    CHECK(count(server_end(&s), "GET /v1/jobs/12 ") == 2);
    server_start(&s, log, 2);
    CHECK_MSG(SEQCTL(&s, "logs", "12") == CLI_OK, "%s", err);
    CHECK_STR(out, "hello\n");
    server_end(&s);
    server_start(&s, log, 1);
    CHECK(SEQCTL(&s, "show", "12") == CLI_ERROR);
    CHECK(count(server_end(&s), "GET ") == 5);
    server_start(&s, stream, 1);
    CHECK(SEQCTL(&s, "cancel", "12") == CLI_ERROR);
    CHECK(count(server_end(&s), "POST ") == 1);
}

static void test_wait_verdicts(void)
{
    static const struct {
        const char *job;
        int want;
        const char *says;
    } cases[] = {
        {JOB("succeeded"), CLI_OK, "job 12 succeeded after 1m 24s"},
        {JOB("cancelled"), CLI_JOB_CANCELLED, "job 12 cancelled"},
        {"{\"id\":12,\"state\":\"failed\",\"error\":{\"field\":\"data.train.0\",\"text\":\"no such "
         "file\",\"rank\":1,\"node\":\"local\"}}",
         CLI_JOB_FAILED, "data.train.0: no such file (rank 1 on local)"},
        /* a sentence that begins with its field */
        {"{\"id\":12,\"state\":\"failed\",\"error\":{\"field\":\"data.train.0\",\"text\":"
         "\"data.train.0: no such file\",\"rank\":1,\"node\":\"local\"}}",
         CLI_JOB_FAILED, "\n  data.train.0: no such file (rank 1 on local)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char job[1024];
        snprintf(job, sizeof job, "%s%s", JSON_REPLY("200 OK", ""), cases[i].job);
        const char *reply[] = {JSON_REPLY("201 Created", JOB("queued")),
                               SSE_REPLY("id: 1\nevent: end\ndata: {}\n\n"), job};
        struct server s;
        server_start(&s, reply, 3);
        int rc = SEQCTL(&s, "submit", (char *)spec_file("{}"), "--wait");
        server_end(&s);
        CHECK_MSG(rc == cases[i].want, "case %zu: rc %d: %s", i, rc, err);
        CHECK_MSG(strstr(err, cases[i].says), "case %zu: %s", i, err);
        server_start(&s, reply, 3);
        rc = SEQCTL(&s, "submit", (char *)spec_file("{}"), "--wait", "-q");
        server_end(&s);
        CHECK_MSG(rc == cases[i].want, "case %zu: rc %d: %s", i, rc, err);
        CHECK_STR(err, rc == CLI_JOB_FAILED ? "seqctl: job 12 failed: data.train.0: no such file "
                                              "(rank 1 on local)\n"
                                            : "");
    }
}

/* Checks that wait waits for all jobs it is given, and follows their streams one after another. */
static void test_wait_for_several(void)
{
    static const char *const reply[] = {
        BATCH_REPLY("201 Created"), SSE_REPLY("id: 1\nevent: end\ndata: {}\n\n"),
        SSE_REPLY("id: 1\nevent: end\ndata: {}\n\n"), JSON_REPLY("200 OK", JOB("cancelled"))};
    static const char two[] = "[{\"kind\":\"train\"},{\"kind\":\"train\"}]";
    for (int i = 0; i < 2; i++) {
        struct server s;
        server_start(&s, reply, 4);
        const int rc = SEQCTL(&s, "submit", (char *)spec_file(two), "-w", "-o",
                              i ? "jsonl" : "table");
        const char *asked = server_end(&s);
        CHECK_MSG(rc == CLI_JOB_CANCELLED, "rc %d: %s", rc, err);
        CHECK(strstr(asked, "GET /v1/jobs/12/events ") && strstr(asked, "GET /v1/jobs/13/events "));
        CHECK(count(err, "job 12 cancelled") == 2);
        if (i)
            CHECK_MSG(count(out, "\"state\": \"cancelled\"") == 2 && count(out, "\n") == 2, "%s",
                      out);
        else
            CHECK_STR(out, "job 12 queued\njob 13 queued\n");
    }
}

/* Checks a stream that never ends. If --timeout ends seqctl, its exit code must be 124. If a
 * signal ends it, the exit code must be 130. */
static void test_leave(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    struct server s;
    /* this server accepts connections and does not answer */
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&a, sizeof a) || listen(listener, 8) ||
        getsockname(listener, (struct sockaddr *)&a, &len))
        abort();
    snprintf(s.url, sizeof s.url, "http://127.0.0.1:%d", ntohs(a.sin_port));
    CHECK(SEQCTL(&s, "events", "12", "-f", "--timeout", "0") == CLI_TIMEOUT);
    CHECK_MSG(strstr(err, "runs on"), "%s", err);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGINT); /* the signal is pending, and the first wait receives it */
    CHECK(SEQCTL(&s, "events", "12", "-f") == CLI_DETACHED);
    CHECK_MSG(strstr(err, "detached; job 12 runs on; seqctl watch 12"), "%s", err);
    close(listener);
}

/* Checks that the next part of a log is requested at the offset that the server gives. Reading
 * must end when the server marks the end. */
static void test_logs(void)
{
    static const char *const reply[] = {LOG_REPLY("6", "false", "hello\n"),
                                        LOG_REPLY("11", "true", "you\033\n")};
    struct server s;
    server_start(&s, reply, 2);
    int rc = SEQCTL(&s, "logs", "12", "--rank", "1");
    const char *asked = server_end(&s);
    CHECK_MSG(rc == CLI_OK, "rc %d: %s", rc, err);
    CHECK_STR(out, "hello\nyou\033\n"); /* stdout is not a terminal, so the bytes are unchanged */
    CHECK_MSG(count(asked, "rank=1&offset=0") == 1 && count(asked, "rank=1&offset=6") == 1, "%s",
              asked);
}

/* Checks a followed log that breaks off in the middle of a message and continues in a second
 * attempt. */
static void test_logs_follow(void)
{
    static const char *const reply[] = {
        SSE_REPLY("event: gap\ndata: {\"what\":\"logs\"}\n\n"
                  "id: 1.6\ndata: {\"epoch\":1,\"text\":\"hello\\n\"}\n\nid: 1.10\ndata: {\"epo"),
        SSE_REPLY("id: 1.10\ndata: {\"epoch\":1,\"text\":\"you\\n\"}\n\n"
                  "id: 2.6\ndata: {\"epoch\":2,\"text\":\"again\\n\"}\n\n"
                  "event: end\ndata: {\"state\":\"succeeded\"}\n\n")};
    struct server s;
    server_start(&s, reply, 2);
    int rc = SEQCTL(&s, "logs", "12", "-f", "--rank", "1");
    const char *asked = server_end(&s);
    CHECK_MSG(rc == CLI_OK, "rc %d: %s", rc, err);
    CHECK_STR(out, "hello\nyou\nagain\n");
    CHECK(strstr(err, "attempt 2") && strstr(err, "succeeded"));
    CHECK(strstr(err, "some of it was removed: its logs"));
    CHECK_MSG(count(asked, "Last-Event-ID: 1.6\r\n") == 1, "%s", asked);
}

/* Checks `watch`, which must read the job, follow two streams, and read the job again. It prints
 * lines, because stdout is not a terminal. */
static void test_watch_lines(void)
{
    static const char *const reply[] = {
        JSON_REPLY("200 OK", JOB("running")), SSE_REPLY("id: 1\nevent: end\ndata: {}\n\n"),
        SSE_REPLY("id: 1\nevent: end\ndata: {}\n\n"), JSON_REPLY("200 OK", JOB("succeeded"))};
    struct server s;
    server_start(&s, reply, 4);
    int rc = SEQCTL(&s, "watch", "12");
    const char *asked = server_end(&s);
    CHECK_MSG(rc == CLI_OK, "rc %d: %s", rc, err);
    CHECK(count(asked, "/v1/jobs/12/events") == 1 && count(asked, "/v1/jobs/12/metrics") == 1);
    CHECK_MSG(strstr(err, "job 12 succeeded"), "%s", err);
}

static void test_ls(void)
{
    static const char *const reply[] = {JSON_REPLY(
        "200 OK", "{\"data\":[" JOB("running") "],\"next_cursor\":null,\"has_more\":false}")};
    struct server s;
    server_start(&s, reply, 1);
    CHECK(SEQCTL(&s, "ls", "--state", "a b&c") == CLI_OK);
    const char *asked = server_end(&s);
    CHECK_MSG(strstr(asked, "limit=50&state=a%20b%26c "), "%s", asked);
    CHECK_MSG(strstr(out, "12  t     train  running"), "%s", out);
}

#define LIST(jobs)       JSON_REPLY("200 OK", "{\"data\":[" jobs "],\"has_more\":false}")
#define NAMED(id, state) "{\"id\":" id ",\"name\":\"my run\",\"state\":\"" state "\"}"

/* Checks that a name means the live job with that name. If no live job has the name, it means the
 * newest job with the name. If several live jobs have the name, the name is refused. */
static void test_names(void)
{
    static const char *const live[] = {LIST(NAMED("7", "running")), JSON_REPLY("200 OK", JOB("x"))};
    static const char *const ended[] = {LIST(""),
                                        LIST(NAMED("9", "failed") "," NAMED("3", "failed")),
                                        JSON_REPLY("200 OK", JOB("x"))};
    static const char *const many[] = {LIST(NAMED("9", "queued") "," NAMED("7", "running"))};
    static const char *const none[] = {LIST(""), LIST("")};
    struct server s;
    server_start(&s, live, 2);
    CHECK(SEQCTL(&s, "show", "my run") == CLI_OK);
    const char *asked = server_end(&s);
    CHECK_MSG(strstr(asked, "&name=my%20run&state=queued,starting,running,stopping,suspended ") &&
                  strstr(asked, "GET /v1/jobs/7 "),
              "%s", asked);
    server_start(&s, ended, 3);
    CHECK(SEQCTL(&s, "show", "my run") == CLI_OK);
    CHECK(strstr(server_end(&s), "GET /v1/jobs/9 "));
    server_start(&s, many, 1);
    CHECK(SEQCTL(&s, "cancel", "my run") == CLI_CONFLICT);
    CHECK_MSG(strstr(err, "several live jobs: 9 (queued), 7 (running); give an id"), "%s", err);
    CHECK(!strstr(server_end(&s), "POST"));
    server_start(&s, none, 2);
    CHECK(SEQCTL(&s, "events", "my run") == CLI_NOT_FOUND);
    CHECK_MSG(strstr(err, "no job has the id or name \"my run\""), "%s", err);
    server_end(&s);
}

/* Checks names that no job has. Every verb that needs a job must end with the exit code of this
 * error, and must make no further requests. */
static void test_names_of_no_job(void)
{
    static const struct {
        const char *reply;
        int want;
    } cases[] = {
        {LIST(""), CLI_NOT_FOUND},
        {LIST(NAMED("9", "queued") "," NAMED("7", "running")), CLI_CONFLICT},
        {JSON_REPLY("500 Internal Server Error", "{\"detail\":\"x\"}"), CLI_ERROR},
    };
    int n = 0;
    for (int i = 0; verbs_all[i]; i++) {
        const struct verb *v = verbs_all[i];
        if (strncmp(v->operands, "ID", 2)) continue;
        n++;
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            struct server s;
            server_start(&s, &cases[k].reply, 1);
            const int rc = SEQCTL(&s, (char *)v->name, v->options & OPT_YES ? "-y" : "-q", "my run",
                                  v->min_args > 1 ? "1" : NULL);
            const char *asked = server_end(&s);
            CHECK_MSG(rc == cases[k].want, "%s, case %zu: %d, %s", v->name, k, rc, err);
            CHECK_MSG(!strstr(asked, " /v1/jobs/"), "%s: %s", v->name, asked);
        }
    }
    CHECK(n >= 14);
}

/* Checks that rm looks up names only once, before it asks for confirmation, and then removes the
 * jobs that it has found. */
static void test_rm_by_name(void)
{
    static const char *const reply[] = {LIST(NAMED("7", "failed")),
                                        JSON_REPLY("202 Accepted", "{\"job\":7}"), LIST("")};
    struct server s;
    server_start(&s, reply, 3);
    CHECK(SEQCTL(&s, "rm", "my run", "-y", "-o", "name") == CLI_OK);
    CHECK_STR(out, "7\n");
    const char *asked = server_end(&s);
    CHECK_MSG(count(asked, "GET ") == 1 && strstr(asked, "DELETE /v1/jobs/7 "), "%s", asked);
}

/* Checks that all of several ids are cancelled, even if an earlier one fails. If a filter selects
 * several jobs and there is no terminal for a question, they are cancelled only with --yes. */
static void test_cancel(void)
{
#define COUNT(matched, cancelled)                                                                  \
    JSON_REPLY("200 OK", "{\"matched\":" matched ",\"cancelled\":" cancelled "}")
    static const char *const three[] = {
        JSON_REPLY("202 Accepted", JOB("cancelled")),
        JSON_REPLY("404 Not Found", "{\"detail\":\"no job 4\",\"code\":\"not_found\"}"),
        JSON_REPLY("202 Accepted", JOB("stopping"))};
    static const char *const filter[] = {COUNT("2", "0"), COUNT("2", "2")};
    struct server s;
    server_start(&s, three, 3);
    CHECK(SEQCTL(&s, "cancel", "3", "4", "5") == CLI_NOT_FOUND);
    CHECK_STR(out, "job 3 cancelled\njob 5 stopping\n");
    CHECK(strstr(server_end(&s), "POST /v1/jobs/5:cancel "));
    server_start(&s, filter, 1);
    CHECK(SEQCTL(&s, "cancel", "--state", "queued,running", "--label", "team=x y") == CLI_USAGE);
    CHECK_MSG(strstr(err, "2 jobs match: add --yes"), "%s", err);
    const char *asked = server_end(&s);
    CHECK_MSG(count(asked, "POST /v1/jobs:cancel ") == 1 &&
                  strstr(asked, "{\"state\": [\"queued\", \"running\"], \"labels\": {\"team\": \"x "
                                "y\"}, \"dry_run\": true}"),
              "%s", asked);
    server_start(&s, filter, 2);
    CHECK(SEQCTL(&s, "cancel", "--name", "n", "-y") == CLI_OK);
    CHECK_STR(out, "cancelled 2 of 2 jobs\n");
    CHECK(strstr(server_end(&s), "{\"name\": \"n\", \"dry_run\": false}"));
    struct server no = {.url = "http://127.0.0.1:1"};
    CHECK(SEQCTL(&no, "cancel") == CLI_USAGE);
    CHECK(SEQCTL(&no, "cancel", "3", "--state", "queued") == CLI_USAGE);
    CHECK(SEQCTL(&no, "cancel", "--state", "queued", "--wait") == CLI_USAGE);
    CHECK(SEQCTL(&no, "cancel", "--label", "team") == CLI_USAGE && strstr(err, "KEY=VALUE"));
    CHECK(SEQCTL(&no, "cancel", "-l", "a=1", "-l", "a=2") == CLI_USAGE);
    CHECK(SEQCTL(&no, "ls", "--label", "=x") == CLI_USAGE);
}

/* Runs seqctl chat m with `input` as its stdin. */
static int chat(const struct server *s, const char *input)
{
    const int keep = dup(0);
    FILE *f = tmpfile();
    fputs(input, f);
    rewind(f);
    dup2(fileno(f), 0);
    const int rc = SEQCTL(s, "chat", "m", "--max-tokens", "8");
    dup2(keep, 0);
    close(keep);
    fclose(f);
    return rc;
}

#define DELTA(text) "data: {\"choices\":[{\"delta\":{\"content\":\"" text "\"}}]}\n\n"
#define MODEL       JSON_REPLY("200 OK", "{\"id\":\"m\"}")

/* Checks a chat from a pipe: a busy job is asked again, a question has the turns before it, and the
 * first error ends the chat. */
static void test_chat(void)
{
    static const char *const replies[] = {
        MODEL,
        "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n{}",
        SSE_REPLY(DELTA("one ") DELTA("two") "data: [DONE]\n\n"),
        SSE_REPLY(
            DELTA("thr") "data: {\"error\":{\"message\":\"it is lost\",\"code\":\"gone\"}}\n\n"),
    };
    struct server s;
    server_start(&s, replies, 4);
    int rc = chat(&s, "a\n\n  \nb\nc\n");
    const char *asked = server_end(&s);
    CHECK_MSG(rc == CLI_ERROR, "rc %d", rc);
    CHECK_STR(out, "one two\nthr\n");
    CHECK_STR(err, "seqctl: it is lost (gone)\n");
    CHECK_MSG(count(asked, "POST /openai/v1/chat/completions ") == 3, "%s", asked);
    CHECK_MSG(strstr(asked, "{\"role\": \"assistant\", \"content\": \"one two\"}, {\"role\": "
                            "\"user\", \"content\": \"b\"}], \"max_tokens\": 8"),
              "%s", asked);
    CHECK(!strstr(asked, "\"content\": \"c\""));
}

/* Checks chats that end before or within their first answer. */
static void test_chat_refused(void)
{
    static const struct {
        const char *replies[2];
        int want;
        const char *says;
    } cases[] = {
        {{JSON_REPLY("404 Not Found",
                     "{\"error\":{\"message\":\"no such job\",\"code\":\"model_not_found\"}}")},
         CLI_NOT_FOUND,
         "seqctl: no such job (404 model_not_found)\n"},
        {{MODEL, JSON_REPLY("400 Bad Request",
                            "{\"error\":{\"message\":\"too long\",\"type\":\"invalid\"}}")},
         CLI_ERROR,
         "seqctl: too long (400 invalid)\n"},
        {{MODEL, SSE_REPLY(DELTA("a"))},
         CLI_ERROR,
         "seqctl: the connection ended before the answer: ask again\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct server s;
        server_start(&s, cases[i].replies, cases[i].replies[1] ? 2 : 1);
        const int rc = chat(&s, "a\nb\n");
        server_end(&s);
        CHECK_MSG(rc == cases[i].want, "case %zu: rc %d", i, rc);
        CHECK_STR(err, cases[i].says);
    }
}

/* Checks the exit code of cancel and suspend with --wait. It must be 0 only if the job is then
 * cancelled or suspended. If the job ended before, the code must not be 0, even if the job
 * succeeded. */
static void test_ends_first(void)
{
    static const struct {
        const char *verb, *state, *says;
        int want;
    } cases[] = {
        {"cancel", JOB("cancelled"), "", CLI_OK},
        {"cancel", JOB("succeeded"), "succeeded before it was cancelled", CLI_CONFLICT},
        {"cancel", JOB("failed"), "", CLI_JOB_FAILED},
        {"cancel", "{\"id\":12,\"kind\":\"serve\",\"state\":\"succeeded\"}", "", CLI_OK},
        {"suspend", JOB("suspended"), "", CLI_OK},
        {"suspend", JOB("succeeded"), "succeeded before it was suspended", CLI_CONFLICT},
        {"suspend", JOB("failed"), "", CLI_JOB_FAILED},
        {"suspend", JOB("cancelled"), "", CLI_JOB_CANCELLED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char job[1024];
        snprintf(job, sizeof job, "%s%s", JSON_REPLY("200 OK", ""), cases[i].state);
        const char *cancel[] = {JSON_REPLY("202 Accepted", JOB("stopping")),
                                SSE_REPLY("id: 1\nevent: end\ndata: {}\n\n"), job};
        const char *suspend[] = {cancel[0], job};
        const bool follows = !strcmp(cases[i].verb, "cancel");
        struct server s;
        server_start(&s, follows ? cancel : suspend, follows ? 3 : 2);
        const int rc = SEQCTL(&s, (char *)cases[i].verb, "12", "--wait");
        server_end(&s);
        CHECK_MSG(rc == cases[i].want, "case %zu: rc %d: %s", i, rc, err);
        CHECK_MSG(strstr(err, cases[i].says), "case %zu: %s", i, err);
    }
}

/* Checks a job that has ended before the action is requested. */
static void test_ended_already(void)
{
    static const struct {
        const char *state;
        int want;
    } cases[] = {{JOB("succeeded"), CLI_CONFLICT},
                 {JOB("failed"), CLI_JOB_FAILED},
                 {JOB("cancelled"), CLI_JOB_CANCELLED},
                 {"{\"id\":12,\"state\":\"stopping\"}", CLI_CONFLICT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char job[1024];
        snprintf(job, sizeof job, "%s%s", JSON_REPLY("200 OK", ""), cases[i].state);
        const char *replies[] = {
            JSON_REPLY("409 Conflict",
                       "{\"detail\":\"only a live job can be suspended\",\"code\":\"conflict\"}"),
            job};
        struct server s;
        server_start(&s, replies, 2);
        const int rc = SEQCTL(&s, "suspend", "12", "--wait");
        server_end(&s);
        CHECK_MSG(rc == cases[i].want, "case %zu: rc %d: %s", i, rc, err);
        CHECK_MSG(strstr(err, "only a live job"), "case %zu: %s", i, err);
    }
}

/* Checks that `continue` begins at the newest checkpoint and prints the differences, and that
 * `retry` uses the spec unchanged. */
static void test_continue(void)
{
#define ENDED(state, steps)                                                                        \
    "{\"id\":12,\"kind\":\"train\",\"state\":\"" state                                             \
    "\",\"finished_at\":\"2026-11-21T12:01:24.000Z\","                                             \
    "\"spec_effective\":{\"kind\":\"train\",\"train\":{\"steps\":" steps                           \
    "},\"labels\":{\"a.b\":\"c\"},\"data\":{\"train\":[{\"path\":\"d.txt\"}]},"                    \
    "\"optim\":{\"lr\":0.5},\"checkpoint\":{\"resume\":\"auto\"}}}"
#define CHECKPOINTS                                                                                \
    LIST("{\"step\":10,\"path\":\"/j/step-10\"},{\"step\":20,\"path\":\"/j/step-20\"},"            \
         "{\"step\":15,\"path\":\"/j/step-15\"}")
    static const char *const good[] = {JSON_REPLY("200 OK", ENDED("succeeded", "20")), CHECKPOINTS,
                                       JSON_REPLY("201 Created", JOB("queued"))};
    static const char *const failed[] = {JSON_REPLY("200 OK", ENDED("failed", "40")), CHECKPOINTS,
                                         JSON_REPLY("201 Created", JOB("queued"))};
    static const char *const none[] = {JSON_REPLY("200 OK", ENDED("failed", "20")), LIST("")};
    static const char *const runs[] = {
        JSON_REPLY("200 OK", "{\"id\":12,\"kind\":\"train\",\"state\":\"running\"}"), CHECKPOINTS};
    static const char *const score[] = {
        JSON_REPLY("200 OK", "{\"id\":12,\"kind\":\"score\",\"state\":\"succeeded\"}"), LIST("")};
    struct server s;
    server_start(&s, good, 3);
    CHECK_MSG(SEQCTL(&s, "continue", "12", "--set", "train.steps=40", "--set", "optim.lr=0.25",
                     "--set", "eval.data=[{\"path\":\"e.txt\"}]", "--unset", "labels") == CLI_OK,
              "%s", err);
    const char *asked = server_end(&s);
    char cwd[1024], want[1100];
    CHECK(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "{\"path\": \"%s/e.txt\"}", cwd);
    CHECK_MSG(strstr(asked, want) && strstr(asked, "[{\"path\": \"d.txt\"}]"), "%s", asked);
    CHECK_MSG(strstr(asked, "\"train\": {\"steps\": 40}") && strstr(asked, "\"lr\": 0.25") &&
                  strstr(asked, "{\"resume\": \"job:12/step-20\", \"changes\": true}") &&
                  !strstr(asked, "labels"),
              "%s", asked);
    CHECK_MSG(strstr(err,
                     "from job 12, step 20, with its optimizer:\n  train.steps              20 -> "
                     "40\n  labels                   {\"a.b\": \"c\"} -> -\n  optim.lr"),
              "%s", err);
    /* --set and --unset are done from left to right. */
    server_start(&s, good, 3);
    CHECK_MSG(SEQCTL(&s, "continue", "12", "--set", "labels.x=1", "--unset", "labels", "--set",
                     "labels.d=e", "--unset", "optim.lr", "--set", "train.steps=40") == CLI_OK,
              "%s", err);
    asked = server_end(&s);
    CHECK_MSG(strstr(asked, "\"labels\": {\"d\": \"e\"}") && !strstr(asked, "\"lr\""), "%s", asked);
    server_start(&s, good, 2);
    CHECK(SEQCTL(&s, "continue", "12") == CLI_USAGE);
    CHECK_MSG(strstr(err, "give more, --set train.steps=40"), "%s", err);
    CHECK(!strstr(server_end(&s), "POST"));
    static const struct {
        const char *const *reply;
        const char *verb, *says;
    } refused[] = {{none, "continue", "has no checkpoint"},
                   {runs, "continue", "cancel it first"},
                   {score, "continue", "only a training"},
                   {runs, "retry", "is running: only one that failed"},
                   {good, "retry", "is succeeded: only one"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        server_start(&s, refused[i].reply, 2);
        CHECK(SEQCTL(&s, (char *)refused[i].verb, "12") == CLI_CONFLICT);
        CHECK_MSG(strstr(err, refused[i].says), "%zu: %s", i, err);
        server_end(&s);
    }
    server_start(&s, failed, 3);
    CHECK(SEQCTL(&s, "retry", "12") == CLI_OK);
    asked = server_end(&s);
    CHECK_MSG(strstr(asked, "{\"resume\": \"job:12/step-20\", \"changes\": false}") &&
                  strstr(asked, "\"a.b\": \"c\""),
              "%s", asked);
}

/* Checks that `merge` asks for the byte tokenizer if the training may have read its text by it, and
 * not if it has read token ids. */
static void test_merge_tokenizer(void)
{
#define OF_DATA(list)                                                                              \
    JSON_REPLY("200 OK",                                                                           \
               "{\"id\":12,\"kind\":\"train\",\"state\":\"succeeded\",\"finished_at\":"            \
               "\"2026-11-21T12:01:24.000Z\",\"spec_effective\":{\"model\":{\"path\":"             \
               "\"m\"},\"adapter\":{\"type\":\"lora\"},\"data\":{\"tokenizer\":\"byte\","          \
               "\"train\":[" list "]}}}")
    static const struct {
        const char *reply;
        bool bytes;
    } of[] = {
        {OF_DATA("{\"path\":\"a\",\"format\":\"text\"}"), true},
        {OF_DATA("{\"path\":\"a\",\"format\":\"npy\"}"), false},
        {OF_DATA("{\"path\":\"a\",\"format\":\"npy\"},{\"format\":\"jsonl\"}"), true},
        {OF_DATA("{\"path\":\"a\",\"format\":\"npy\"}],\"x\":[{\"format\":\"text\"}"), false}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const char *const replies[] = {of[i].reply, CHECKPOINTS,
                                       JSON_REPLY("201 Created", JOB("queued"))};
        struct server s;
        server_start(&s, replies, 3);
        CHECK_MSG(SEQCTL(&s, "merge", "12") == CLI_OK, "%s", err);
        const char *asked = strstr(server_end(&s), "POST");
        CHECK_MSG(asked && !strstr(asked, "\"byte\"") == !of[i].bytes, "%zu: %s", i, asked);
    }
}

/* Checks that `merge` submits a job with the model, the rule of RoPE and the precision of the
 * training and with the adapter of its newest checkpoint, and that it refuses other jobs. */
static void test_merge(void)
{
#define TRAINED(state, spec)                                                                       \
    JSON_REPLY("200 OK", "{\"id\":12,\"kind\":\"train\",\"state\":\"" state "\",\"finished_at\":"  \
                         "\"2026-11-21T12:01:24.000Z\",\"spec_effective\":{" spec "}}")
#define ADAPTER "\"adapter\":{\"type\":\"lora\",\"rank\":4}"
    static const char trained[] = TRAINED(
        "failed", "\"kind\":\"train\",\"model\":{\"path\":\"job:9/step-5/hf\",\"weights\":\"int8\","
                  "\"rope\":{\"factor\":2}},\"precision\":{\"params\":\"bf16\"},"
                  "\"resources\":{\"ranks\":2,\"threads\":3},\"seed\":7,"
                  "\"stages\":[{\"from_step\":1,\"rope_theta\":100},{\"from_step\":19,"
                  "\"rope_theta\":200},{\"from_step\":20,\"rope_theta\":300}]," ADAPTER);
    static const char *const good[] = {trained, CHECKPOINTS, LIST("{\"step\":4},{\"step\":5}"),
                                       JSON_REPLY("201 Created", JOB("queued"))};
    struct server s;
    server_start(&s, good, 4);
    CHECK_MSG(SEQCTL(&s, "merge", "12", "-n", "tuned", "--set", "output.path=/x") == CLI_OK, "%s",
              err);
    const char *asked = strstr(server_end(&s), "POST");
    static const char *const parts[] = {"\"kind\": \"merge\"",
                                        "\"path\": \"job:9/step-5/hf\"",
                                        "\"adapter\": \"job:12/step-20\"",
                                        "\"rope\": {\"factor\": 2, \"theta\": 200}",
                                        "\"precision\": {\"params\": \"bf16\"}",
                                        "\"resources\": {\"threads\": 3}",
                                        "\"name\": \"tuned\"",
                                        "\"output\": {\"path\": \"/x\"}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        CHECK_MSG(asked && strstr(asked, parts[i]), "%s in %s", parts[i], asked);
    CHECK_MSG(asked && !strstr(asked, "int8") && !strstr(asked, "seed") && !strstr(asked, "stages"),
              "%s", asked);
    static const struct {
        const char *reply, *says;
    } refused[] = {
        {JSON_REPLY("200 OK", "{\"id\":12,\"kind\":\"score\",\"state\":\"succeeded\"}"),
         "job 12 is of kind score: only a training has an adapter"},
        {TRAINED("succeeded", "\"model\":{\"path\":\"m\"}"), "seqctl pull 12 DIR --part hf"},
        {TRAINED("succeeded", "\"model\":{\"config\":{}}," ADAPTER), "checkpoint.merge true"},
        {TRAINED("succeeded", "\"model\":{\"path\":\"m\",\"init\":\"random\"}," ADAPTER),
         "checkpoint.merge true"},
        {JSON_REPLY("200 OK", "{\"id\":12,\"kind\":\"train\",\"state\":\"running\","
                              "\"spec_effective\":{\"model\":{\"path\":\"m\"}," ADAPTER "}}"),
         "job 12 is running: cancel it first, or wait until it has ended"},
        {TRAINED("failed", "\"model\":{\"path\":\"m\"}," ADAPTER), "job 12 has no checkpoint"}};
    static const char *const gone[] = {trained, CHECKPOINTS, LIST("{\"step\":4}")};
    server_start(&s, gone, 3);
    CHECK(SEQCTL(&s, "merge", "12") == CLI_CONFLICT);
    CHECK_MSG(strstr(err, "job:9/step-5/hf, the model of job 12, is gone: name a copy of it by "
                          "--set model.path=PATH"),
              "%s", err);
    CHECK(!strstr(server_end(&s), "POST"));
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *const replies[] = {refused[i].reply, LIST("")};
        server_start(&s, replies, 2);
        CHECK(SEQCTL(&s, "merge", "12") == CLI_CONFLICT);
        CHECK_MSG(strstr(err, refused[i].says), "%zu: %s", i, err);
        CHECK(!strstr(server_end(&s), "POST"));
    }
}

/* Checks which job of the same name `continue` names if the job has no checkpoint: a training that
 * has ended. A job whose checkpoints cannot be listed has none. */
static void test_continue_other(void)
{
#define ALSO(id, kind)                                                                             \
    ",{\"id\":" id ",\"kind\":\"" kind "\",\"finished_at\":\"2026-11-21T12:01:24.000Z\"}"
#define ALL                                                                                        \
    LIST("{\"id\":13,\"kind\":\"train\",\"finished_at\":null}" ALSO("12", "train")                 \
             ALSO("11", "merge") ALSO("10", "train") ALSO("9", "train") ALSO("7", "train"))
    static const char *const named[] = {
        JSON_REPLY("200 OK",
                   "{\"id\":12,\"kind\":\"train\",\"name\":\"a b\",\"state\":\"failed\"}"),
        LIST(""),
        ALL,
        JSON_REPLY("404 Not Found", "{\"detail\":\"no job 10\"}"),
        LIST(""),
        CHECKPOINTS};
    struct server s;
    server_start(&s, named, 6);
    CHECK(SEQCTL(&s, "continue", "12") == CLI_CONFLICT);
    CHECK_MSG(strstr(err,
                     "job 12 has no checkpoint: job 7, which is \"a b\" too, has one of step 20: "
                     "seqctl continue 7") &&
                  !strstr(err, "no job 10"),
              "%s", err);
    const char *asked = server_end(&s);
    CHECK_MSG(strstr(asked, "/v1/jobs?limit=10&name=a%20b ") && count(asked, "checkpoints") == 4,
              "%s", asked);
#undef ALSO
#undef ALL
}

/* Checks lists that have several pages. The lists of checkpoints and of artifacts must be read to
 * the last page, and so must the list that `continue` reads. */
static void test_products_of_several_pages(void)
{
#define PAGE(rows, more)                                                                           \
    JSON_REPLY("200 OK", "{\"data\":[" rows "],\"next_cursor\":\"7 8\",\"has_more\":" more "}")
    static const char *const steps[] = {PAGE("{\"step\":1,\"path\":\"/j/step-1\"}", "true"),
                                        PAGE("{\"step\":2,\"path\":\"/j/step-2\"}", "false")};
    static const char *const files[] = {PAGE("{\"name\":\"a\"}", "true"),
                                        PAGE("{\"name\":\"b\"}", "true"), PAGE("", "true")};
    struct server s;
    server_start(&s, steps, 2);
    CHECK(SEQCTL(&s, "checkpoints", "12", "-o", "name") == CLI_OK);
    CHECK_STR(out, "/j/step-1\n/j/step-2\n");
    const char *asked = server_end(&s);
    CHECK_MSG(count(asked, "/v1/jobs/12/checkpoints?limit=1000") == 2 &&
                  strstr(asked, "&cursor=7%208 "),
              "%s", asked);
    server_start(&s, files, 3); /* an empty page ends the list */
    CHECK(SEQCTL(&s, "artifacts", "12", "-o", "json") == CLI_OK);
    CHECK_MSG(strstr(out, "\"a\"") && strstr(out, "\"b\"") && strstr(out, "\"has_more\": false"),
              "%s", out);
    CHECK(count(server_end(&s), "/v1/jobs/12/artifacts?limit=1000") == 3);
}

/* Checks a download that breaks off. It must leave no file that looks complete, and must be
 * continued where it stopped. A file whose digest is not the listed one must not be kept. */
#define PARTS(status, size, body)                                                                  \
    "HTTP/1.1 " status "\r\nContent-Length: " size "\r\nConnection: close\r\n\r\n" body
#define LISTED(sha) JSON_REPLY("200 OK", "{\"data\":[{\"name\":\"a/b\",\"sha256\":\"" sha "\"}]}")

static void test_artifact_broken(void)
{
    char sha[SHA256_HEX], good[512];
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, "half and whole", 14);
    sha256_hex(&h, sha);
    snprintf(good, sizeof good, LISTED("%s"), sha);
    const char *const reply[] = {
        PARTS("200 OK", "14", "half"), /* breaks */
        good, PARTS("206 Partial Content", "10", " and whole"), good,
        PARTS("200 OK", "14", "half and wrong"), good, /* another digest */
        /* this answer breaks off; after it, the server does not support ranges */
        PARTS("200 OK", "14", "half"), good, PARTS("200 OK", "14", "half and whole"), good};
    struct server s;
    char file[64], part[80], text[32] = "";
    snprintf(file, sizeof file, "/tmp/test_client_artifact_%d", (int)getpid());
    snprintf(part, sizeof part, "%s.part", file);
    server_start(&s, reply, 10);
    CHECK(SEQCTL(&s, "artifacts", "12", "a/b", "--file", file) == CLI_ERROR);
    CHECK(access(file, F_OK) < 0 && !access(part, F_OK));
    CHECK(SEQCTL(&s, "artifacts", "12", "a/b", "--file", file) == CLI_OK);
    CHECK(!access(file, F_OK) && access(part, F_OK) < 0);
    unlink(file);
    CHECK(SEQCTL(&s, "artifacts", "12", "a/b", "--file", file) == CLI_ERROR);
    CHECK(strstr(err, "digest") && access(file, F_OK) < 0 && access(part, F_OK) < 0);
    CHECK(SEQCTL(&s, "artifacts", "12", "a/b", "--file", file) == CLI_ERROR);
    CHECK(SEQCTL(&s, "artifacts", "12", "a/b", "--file", file) == CLI_OK);
    const char *asked = server_end(&s);
    CHECK_MSG(strstr(asked, "/artifacts/a%2Fb "), "%s", asked);
    CHECK_MSG(count(asked, "Range: bytes=4-\r\n") == 2, "%s", asked);
    FILE *f = fopen(file, "r");
    CHECK(f && fgets(text, sizeof text, f) && !strcmp(text, "half and whole"));
    if (f) fclose(f);
    unlink(file);
}

/* Checks artifacts without a digest in the list. A download must then begin from the first byte.
 * Without a digest, seqctl cannot tell whether bytes of an earlier download belong to the same
 * file. If the list has a digest when the download begins and none when it ends, no file must be
 * left. */
static void test_artifact_growing(void)
{
    static const char *const reply[] = {LISTED(""),
                                        PARTS("200 OK", "5", "whole"),
                                        LISTED(""),
                                        LISTED("12"),
                                        PARTS("206 Partial Content", "5", "whole"),
                                        LISTED("")};
    struct server s;
    char file[64], part[80];
    snprintf(file, sizeof file, "/tmp/test_client_artifact_%d", (int)getpid());
    snprintf(part, sizeof part, "%s.part", file);
    CHECK(!file_write(part, "other", 5, NULL));
    server_start(&s, reply, 3);
    CHECK_MSG(SEQCTL(&s, "artifacts", "12", "a/b", "--file", file) == CLI_OK, "%s", err);
    CHECK(strstr(err, "beginning again") && !strstr(server_end(&s), "Range:"));
    char *text = file_read(file, 64, NULL, NULL);
    CHECK_STR(text ? text : "", "whole");
    free(text);
    unlink(file);
    CHECK(!file_write(part, "other", 5, NULL));
    server_start(&s, reply + 3, 3);
    CHECK(SEQCTL(&s, "artifacts", "12", "a/b", "--file", file) == CLI_ERROR);
    CHECK_MSG(strstr(err, "digest"), "%s", err);
    CHECK(strstr(server_end(&s), "Range: bytes=5-\r\n"));
    CHECK(access(file, F_OK) < 0 && access(part, F_OK) < 0);
}

#define MODELS(nodes, next)                                                                        \
    JSON_REPLY("200 OK", "{\"data\":[" nodes "],\"next_cursor\":\"" next "\",\"has_more\":true}")
#define NODE_LIST(node, models, error)                                                             \
    "{\"node\":\"" node "\",\"models\":[" models "],\"incomplete\":null,\"error\":" error "}"

/* Checks lists of models over several pages. A node that was busy once is asked again. A list that
 * was not read to its end is an error that names the node. */
static void test_models(void)
{
    static const char *const reply[] = {
        MODELS(NODE_LIST("n1", "{\"path\":\"/a\"}", "null") "," NODE_LIST("n2", "", "\"busy\""),
               "n2:0,n2~"),
        MODELS(NODE_LIST("n2", "{\"path\":\"/b\"}", "null") "," NODE_LIST("n3", "", "\"gone\""),
               "n2:1"),
        MODELS(NODE_LIST("n2", "", "\"busy\""), "n2:1")};
    struct server s;
    server_start(&s, reply, 3);
    int rc = SEQCTL(&s, "model", "ls", "-o", "name");
    const char *asked = server_end(&s);
    CHECK_MSG(rc == CLI_ERROR, "%d: %s", rc, err);
    CHECK_STR(out, "/a\n/b\n");
    CHECK_MSG(strstr(err, "not read to its end on n3, n2: ask again"), "%s", err);
    CHECK_MSG(count(err, "n2: busy") == 1 && count(err, "n3: gone") == 1, "%s", err);
    CHECK_MSG(strstr(asked, "GET /v1/models ") &&
                  strstr(asked, "/v1/models?cursor=n2%3A0%2Cn2~ ") &&
                  strstr(asked, "/v1/models?cursor=n2%3A1 "),
              "%s", asked);
    static const char *const good[] = {
        MODELS(NODE_LIST("n2", "", "\"busy\""), "n2:0"),
        JSON_REPLY("200 OK",
                   "{\"data\":[" NODE_LIST("n2", "{\"path\":\"/c\"}",
                                           "null") "],\"next_cursor\":null,\"has_more\":false}")};
    server_start(&s, good, 2);
    rc = SEQCTL(&s, "model", "ls", "-o", "name");
    server_end(&s);
    CHECK_MSG(rc == CLI_OK, "%d: %s", rc, err);
    CHECK_STR(out, "/c\n");
    CHECK_STR(err, "");
    static const char *const bare[] = {JSON_REPLY(
        "200 OK",
        "{\"data\":[{\"node\":\"n1\",\"models\":[],\"incomplete\":null,"
        "\"error\":\"node n1 has no roots\",\"no_roots\":true}," NODE_LIST(
            "n2", "{\"path\":\"/c\"}", "null") "],\"next_cursor\":null,\"has_more\":false}")};
    server_start(&s, bare, 1);
    rc = SEQCTL(&s, "model", "ls", "-o", "name");
    server_end(&s);
    CHECK_MSG(rc == CLI_OK, "%d: %s", rc, err);
    CHECK_STR(out, "/c\n");
    CHECK_STR(err, "n1: node n1 has no roots\n");
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    RUN(test_submit_retries_with_one_key);
    RUN(test_submit_several);
    RUN(test_submit_several_refused);
    RUN(test_unix_socket);
    RUN(test_token_in_the_clear);
    RUN(test_submit_refused);
    RUN(test_many_faults);
    RUN(test_exit_codes);
    RUN(test_events_resume);
    RUN(test_follow_keeps_server);
    RUN(test_busy);
    RUN(test_wait_verdicts);
    RUN(test_wait_for_several);
    RUN(test_leave);
    RUN(test_logs);
    RUN(test_logs_follow);
    RUN(test_watch_lines);
    RUN(test_ls);
    RUN(test_names);
    RUN(test_names_of_no_job);
    RUN(test_rm_by_name);
    RUN(test_cancel);
    RUN(test_chat);
    RUN(test_chat_refused);
    RUN(test_ends_first);
    RUN(test_ended_already);
    RUN(test_continue_other);
    RUN(test_continue);
    RUN(test_merge);
    RUN(test_merge_tokenizer);
    RUN(test_products_of_several_pages);
    RUN(test_models);
    RUN(test_artifact_broken);
    RUN(test_artifact_growing);
    unlink(spec_file(""));
    return test_done("client_http");
}
