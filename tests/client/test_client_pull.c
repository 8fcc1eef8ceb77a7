/* test_client_pull: runs seqctl pull with a bad server. The server closes the connection after
 * every possible number of bytes, sends wrong names, sizes and digests, or changes its answer in
 * the middle. In some cases, files already exist in the directory. Checks that no byte is written
 * outside of the directory. */
#include <arpa/inet.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/sha256.h"
#include "client/cli.h"
#include "client/verbs.h"
#include "tests/lib/test.h"

static const struct verb *const verbs[] = {&verb_pull, NULL};

static struct {
    char dir[64], out[160], url[64];
    int listener;
    pid_t pid;
    const char *name, *bytes, *sha256; /* the only file of the list except MANIFEST.json */
    int64_t size;                      /* the size in the list */
    /* bytes of a body after which the server breaks off, or -1 for never */
    int cut;
    bool ignores_range; /* the server sends the whole file */
    /* the list of artifacts has a page with a file "first" before the page with the other files */
    bool paged;
    bool artifacts; /* the server has a list of artifacts, in which the file has no digest */
    size_t grown;   /* bytes of the file that exist now */
    size_t grows;   /* the number of bytes by which the file grows with each request, or 0 */
} t;

static char list[2048], say[4096], hex_of[SHA256_HEX];
#define MANIFEST_TEXT "{\"a manifest\":1}"

static const char *digest(const char *bytes, size_t n)
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, bytes, n);
    sha256_hex(&sha, hex_of);
    return hex_of;
}

/* ---- the server ------------------------------------------------------------------------------ */

static void put(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return;
        p += k, n -= (size_t)k;
    }
}

static void send_body(int fd, const char *request, const char *bytes, size_t n)
{
    const char *range = t.ignores_range ? NULL : strstr(request, "Range: bytes=");
    const size_t from = range ? strtoul(range + 13, NULL, 10) : 0;
    if (t.grows) {
        n = t.grown < n ? t.grown : n;
        t.grown += t.grows;
    }
    const size_t left = n - from;
    int len = snprintf(say, sizeof say,
                       "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                       range ? "206 Partial Content" : "200 OK", left);
    put(fd, say, (size_t)len);
    put(fd, bytes + from, t.cut >= 0 && (size_t)t.cut < left ? (size_t)t.cut : left);
}

static const char first_page[] =
    "{\"data\":[{\"name\":\"first\",\"size\":3}],\"next_cursor\":\"9\",\"has_more\":true}";

static void serve_one(int fd)
{
    char request[4096];
    size_t n = 0;
    while (n + 1 < sizeof request) {
        ssize_t k = recv(fd, request + n, sizeof request - 1 - n, 0);
        if (k <= 0) return;
        request[n += (size_t)k] = 0;
        if (strstr(request, "\r\n\r\n")) break;
    }
    if (strstr(request, "/files/MANIFEST.json")) {
        put(fd, say,
            (size_t)snprintf(say, sizeof say,
                             "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: "
                             "close\r\n\r\n%s",
                             strlen(MANIFEST_TEXT), MANIFEST_TEXT));
    } else if (strstr(request, "/files/") || strstr(request, "/artifacts/")) {
        send_body(fd, request, t.bytes, strlen(t.bytes));
    } else {
        const char *page = t.paged && !strstr(request, "&cursor=9 ") ? first_page : list;
        put(fd, say,
            (size_t)snprintf(say, sizeof say,
                             "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                             "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                             strlen(page), page));
    }
}

static void server_begin(void)
{
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof sa;
    char manifest[SHA256_HEX];
    memcpy(manifest, digest(MANIFEST_TEXT, strlen(MANIFEST_TEXT)), sizeof manifest);
    snprintf(list, sizeof list,
             "{\"job\":1,\"step\":5,\"files\":[{\"name\":\"MANIFEST.json\",\"size\":%zu,\"sha256\":"
             "\"%s\"},{\"name\":\"%s\",\"size\":%lld,\"sha256\":\"%s\"}]}",
             strlen(MANIFEST_TEXT), manifest, t.name, (long long)t.size, t.sha256);
    if (t.artifacts)
        snprintf(list, sizeof list, "{\"data\":[{\"name\":\"%s\",\"size\":%lld}]}", t.name,
                 (long long)t.size);
    t.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(!bind(t.listener, (struct sockaddr *)&sa, sizeof sa) && !listen(t.listener, 16));
    getsockname(t.listener, (struct sockaddr *)&sa, &n);
    snprintf(t.url, sizeof t.url, "http://127.0.0.1:%d", ntohs(sa.sin_port));
    if ((t.pid = fork())) return;
    for (;;) {
        int fd = accept(t.listener, NULL, NULL);
        if (fd < 0) _exit(1);
        serve_one(fd);
        shutdown(fd, SHUT_WR);
        while (read(fd, say, sizeof say) > 0) continue;
        close(fd);
    }
}

static void server_end(void)
{
    kill(t.pid, SIGKILL);
    waitpid(t.pid, NULL, 0);
    close(t.listener);
}

static int pull(void)
{
    server_begin();
    char *argv[] = {"seqctl", "pull", t.artifacts ? "1" : "1/step-5",    t.out, "-q",
                    "--url",  t.url,  t.artifacts ? "--artifacts" : NULL};
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid) {
        if (!freopen("/dev/null", "w", stderr)) _exit(99);
        _exit(cli_run(7 + t.artifacts, argv, verbs));
    }
    int status = -1;
    waitpid(pid, &status, 0);
    server_end();
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- the directory --------------------------------------------------------------------------- */

static int n_seen;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    return remove(path);
}

static int see_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    n_seen += type != FTW_D;
    return 0;
}

static int files_beneath(const char *dir)
{
    n_seen = 0;
    nftw(dir, see_one, 16, FTW_PHYS);
    return n_seen;
}

static void setup(const char *bytes)
{
    static char sha[SHA256_HEX];
    memset(&t, 0, sizeof t);
    snprintf(t.dir, sizeof t.dir, "/tmp/seqd-pull-XXXXXX");
    CHECK(mkdtemp(t.dir) != NULL);
    snprintf(t.out, sizeof t.out, "%s/out", t.dir);
    t.bytes = bytes;
    t.size = (int64_t)strlen(bytes);
    memcpy(sha, digest(bytes, strlen(bytes)), sizeof sha);
    t.sha256 = sha;
    t.name = "hf/x";
    t.cut = -1;
}

static void teardown(void)
{
    nftw(t.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static char *in_out(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", t.out, name);
    return path;
}

static bool holds(const char *name, const char *text)
{
    size_t n = 0;
    char *have = file_read(in_out(name), 1 << 20, &n, NULL);
    const bool same = have && n == strlen(text) && !memcmp(have, text, n);
    free(have);
    return same;
}

static void write_out(const char *name, const char *text)
{
    struct err e;
    mkdir(t.out, 0777);
    if (strchr(name, '/')) mkdir(in_out("hf"), 0777);
    CHECK_MSG(!file_write(in_out(name), text, strlen(text), &e), "%s", e.text);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const char body[] = "0123456789abcdef0123456789ABCDEF!";

/* Checks answers that each end after `cut` bytes. Together they must give the complete file. */
static void test_broken(void)
{
    for (int cut = 1; cut < (int)sizeof body; cut += cut < 3 ? 1 : 7) {
        setup(body);
        t.cut = cut;
        CHECK(pull() == CLI_OK);
        CHECK(holds("hf/x", body) && files_beneath(t.out) == 2);
        teardown();
    }
}

/* Checks a partial file of every size from an earlier pull. If the bytes of the partial file are
 * right, its download must be continued. If they are wrong, pull must detect this. */
static void test_resume(void)
{
    for (int n = 0; n <= (int)sizeof body + 1; n++) {
        char left[64] = "";
        setup(body);
        snprintf(left, sizeof left, "%.*s", n,
                 n >= (int)sizeof body ? "too long: 0123456789abcdef0123456789ABCDEF!" : body);
        write_out("hf/x.part", left);
        CHECK_MSG(pull() == CLI_OK && holds("hf/x", body), "%d", n);
        CHECK(files_beneath(t.out) == 2);
        teardown();
    }
    setup(body);
    write_out("hf/x.part", "wrong bytes");
    CHECK(pull() == CLI_ERROR && files_beneath(t.out) == 0);
    CHECK(pull() == CLI_OK && holds("hf/x", body));
    teardown();
    setup(body);
    /* the file has been replaced, so the server sends the whole file, which is used */
    t.ignores_range = true;
    write_out("hf/x.part", "wrong bytes");
    CHECK(pull() == CLI_OK && holds("hf/x", body));
    teardown();
}

static void test_present(void)
{
    setup(body);
    write_out("hf/x", body);
    t.cut = 0; /* the server would send no byte, so the file must not be requested */
    CHECK(pull() == CLI_OK && holds("MANIFEST.json", MANIFEST_TEXT));
    teardown();
    setup(body);
    write_out("hf/x", "another one");
    write_out("MANIFEST.json", "of another");
    write_out("mine", "stays");
    t.cut = 0;
    CHECK(pull() == CLI_ERROR); /* no checkpoint may be left that has parts of two */
    CHECK(holds("hf/x", "another one") && access(in_out("MANIFEST.json"), F_OK));
    t.cut = -1;
    CHECK(pull() == CLI_OK && holds("hf/x", body) && holds("mine", "stays"));
    CHECK(holds("MANIFEST.json", MANIFEST_TEXT));
    teardown();
}

/* Checks that no file is written for a server that sends bad names. */
static void test_names(void)
{
    static const char *const bad[] = {"../x", "/tmp/x",  "hf/../../x", "hf//x", "./x",
                                      "hf/.", "hf/x\\n", "",           "..",    "hf/"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setup(body);
        t.name = bad[i];
        CHECK_MSG(pull() == CLI_ERROR && files_beneath(t.dir) == 0, "%s", bad[i]);
        teardown();
    }
}

static void test_links(void)
{
    char outside[128];
    for (int i = 0; i < 4; i++) {
        setup(body);
        snprintf(outside, sizeof outside, "%s/outside", t.dir);
        CHECK(!mkdir(outside, 0777) && !mkdir(t.out, 0777));
        if (i == 0) CHECK(!symlink("../outside", in_out("hf")));
        if (i) CHECK(!mkdir(in_out("hf"), 0777));
        if (i == 1) CHECK(!symlink("../../outside/x", in_out("hf/x")));
        if (i == 2) CHECK(!symlink("../../outside/x", in_out("hf/x.part")));
        if (i == 3) CHECK(!mkfifo(in_out("hf/x"), 0666));
        CHECK_MSG(pull() == CLI_ERROR && files_beneath(outside) == 0, "case %d", i);
        teardown();
    }
}

static void test_lies(void)
{
    setup(body);
    t.sha256 = digest("other", 5); /* hex_of is overwritten by the next call, so keep a copy */
    char sha[SHA256_HEX];
    memcpy(sha, t.sha256, sizeof sha);
    t.sha256 = sha;
    CHECK(pull() == CLI_ERROR && files_beneath(t.out) == 0);
    teardown();
    setup(body);
    t.sha256 = ""; /* every file of a checkpoint must have a digest */
    CHECK(pull() == CLI_ERROR && access(in_out("hf/x"), F_OK));
    teardown();
    setup(body);
    t.size += 5; /* the list promises more bytes than the server sends */
    CHECK(pull() == CLI_ERROR && access(in_out("hf/x"), F_OK));
    teardown();
    setup(body);
    /* the server sends more bytes than the list promises, which must not fill the disk */
    t.size -= 5;
    CHECK(pull() == CLI_ERROR && access(in_out("hf/x"), F_OK));
    CHECK(files_beneath(t.out) == 0);
    teardown();
}

/* Checks a file without a digest, which is still being written. All bytes that exist must be
 * fetched, whatever sizes the list and the directory have for the file. This must also hold if the
 * file grows between two requests and if answers end early. */
static void test_growing(void)
{
    /* The file grows by 5 bytes with each request. A reader of 3 bytes per request has the
     * complete file only after its writer has stopped. A reader of 7 bytes per request has all
     * bytes when the file has 20 bytes. */
    static const struct {
        int cut, n;
    } ways[] = {{-1, 10}, {3, 33}, {7, 20}};
    for (int way = 0; way < 12; way++) {
        char want[64];
        setup(body);
        t.artifacts = true;
        t.cut = ways[way % 3].cut;
        t.size = way * 7; /* sizes that are smaller, and larger, than the file */
        t.grows = way < 3 ? 5 : 0;
        t.grown = 10;
        if (way / 3 == 2) write_out("hf/x", "0123");
        if (way / 3 == 3) write_out("hf/x.part", "wrong bytes");
        snprintf(want, sizeof want, "%.*s", way < 3 ? ways[way].n : 33, body);
        CHECK_MSG(pull() == CLI_OK && holds("hf/x", want), "way %d", way);
        CHECK(files_beneath(t.out) == 1);
        teardown();
    }
}

/* Checks that the files of a second page are fetched, too. */
static void test_pages(void)
{
    setup(body);
    t.artifacts = t.paged = true;
    CHECK(pull() == CLI_OK && holds("first", body) && holds("hf/x", body));
    CHECK(files_beneath(t.out) == 2);
    teardown();
}

int main(void)
{
    RUN(test_broken);
    RUN(test_resume);
    RUN(test_present);
    RUN(test_names);
    RUN(test_links);
    RUN(test_lies);
    RUN(test_growing);
    RUN(test_pages);
    return test_done("client_pull");
}
