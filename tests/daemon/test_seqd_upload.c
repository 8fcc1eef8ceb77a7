/* test_seqd_upload: tests uploads. The first tests call the functions of the upload directory.
 * They check uploads that break off at every position, every wrong request, a disk that fills up,
 * and a seqd that is killed at any moment. The later tests use the routes. */
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "api/core/file.h"
#include "api/core/sha256.h"
#include "daemon/upload/upload_dir.h"
#include "daemon/upload/upload_list.h"
#include "daemon/upload/uploads.h"
#include "tests/lib/rest.h"

/* If this is not 0, every pwrite fails with this errno, as on a bad disk. */
static int disk_errno;
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t offset)
{
    if (!disk_errno) return syscall(SYS_pwrite64, fd, bytes, n, offset);
    errno = disk_errno;
    return -1;
}

/* If this is not NULL, the removal of every path that contains this text fails, as on a bad
 * disk. */
static const char *stuck;
int remove(const char *path)
{
    if (stuck && strstr(path, stuck)) {
        errno = EIO;
        return -1;
    }
    return !unlink(path) || (errno == EISDIR && !rmdir(path)) ? 0 : -1;
}

static char dir[128];
static struct upload_dir *d;
static struct err e;
static int64_t at;
static const struct principal all = {.role = ROLE_OPERATOR};

static struct upload_dir_options options = {
    .dir = dir, .max = 1000000, .user_max = 500000, .expire_ms = 1000};

static void open_dir(void)
{
    d = upload_dir_open(&options, 0, &e);
    CHECK_MSG(d != NULL, "%s", e.text);
}

static void setup(void)
{
    snprintf(dir, sizeof dir, "/tmp/seqd-upload-XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    open_dir();
}

static void teardown(void)
{
    upload_dir_close(d);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void again(void)
{
    upload_dir_close(d);
    open_dir();
}

static const char *digest_of(const char *bytes, size_t n)
{
    static char hex[4][SHA256_HEX];
    static int next;
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, bytes, n);
    sha256_hex(&sha, hex[next = (next + 1) % 4]);
    return hex[next];
}

static const char *list_of(const char *name, const char *path, const char *bytes, size_t n)
{
    static char text[2048];
    snprintf(text, sizeof text,
             "{\"name\":\"%s\",\"files\":[{\"path\":\"%s\",\"size\":%zu,\"sha256\":\"%s\"}]}", name,
             path, n, digest_of(bytes, n));
    return text;
}

static int create_as(const char *owner, const char *text, int64_t *id)
{
    bool made;
    return upload_dir_create(d, owner, text, strlen(text), 0, id, &made, &e);
}

static int64_t make(const char *name, const char *path, const char *bytes)
{
    int64_t id = -1;
    CHECK_MSG(!create_as("", list_of(name, path, bytes, strlen(bytes)), &id), "%s", e.text);
    return id;
}

static int put(int64_t id, int64_t offset, const char *bytes, size_t n)
{
    return upload_dir_write(d, id, 0, offset, bytes, n, 0, &at, &e);
}

static bool holds(const char *path, const char *bytes)
{
    char full[256];
    size_t n = 0;
    snprintf(full, sizeof full, "%s/files/%s", dir, path);
    char *have = file_read(full, 1 << 20, &n, NULL);
    const bool same = have && n == strlen(bytes) && !memcmp(have, bytes, n);
    free(have);
    return same;
}

static const char body[] = "the bytes of an input, of no great size";

/* ---- the directory --------------------------------------------------------------------------- */

/* Checks an upload that is interrupted at every border, with and without a restart of seqd after
 * the interruption. */
static void test_every_border(void)
{
    const size_t n = sizeof body - 1;
    for (size_t cut = 0; cut <= n; cut++)
        for (int restart = 0; restart < 2; restart++) {
            int64_t id, same;
            setup();
            id = make("in", "a/b/c.txt", body);
            CHECK(!put(id, 0, body, cut) && at == (int64_t)cut);
            if (restart) again();
            same = make("in", "a/b/c.txt", body);
            CHECK(same == id); /* the same upload is found again and can be continued */
            char *json = upload_dir_show(d, id, &e), want[32];
            snprintf(want, sizeof want, "\"received\":%zu", cut);
            CHECK(json && strstr(json, want) && strstr(json, "\"state\":\"receiving\""));
            free(json);
            CHECK(cut == n || upload_dir_commit(d, id, &e)); /* the upload is not complete */
            CHECK(!holds("in/a/b/c.txt", body));
            CHECK(cut == 0 || put(id, 0, body, 1)); /* the file does not end there */
            CHECK(at == (int64_t)cut || cut == 0);
            if (cut == 0) { /* one byte was accepted */
                CHECK(!put(id, 0, body, 1) && at == 1 && !put(id, 1, body + 1, n - 1));
            } else {
                CHECK(!put(id, (int64_t)cut, body + cut, n - cut) && at == (int64_t)n);
            }
            if (restart) again();
            CHECK_MSG(!upload_dir_commit(d, id, &e), "%s", e.text);
            CHECK(holds("in/a/b/c.txt", body));
            again();
            CHECK(make("in", "a/b/c.txt", body) == id && holds("in/a/b/c.txt", body));
            CHECK(!upload_dir_commit(d, id, &e)); /* a second commit has nothing to do */
            CHECK(!put(id, (int64_t)n, "", 0) && at == (int64_t)n);
            CHECK(!upload_dir_remove(d, id, &e) && !holds("in/a/b/c.txt", body));
            CHECK(upload_dir_remove(d, id, &e) && e.code == ERR_NOT_FOUND);
            teardown();
        }
}

/* Checks that the document of an upload has every member in order: when the upload has begun, when
 * it is complete, and in the list of uploads. */
static void test_shown(void)
{
#define HEAD_OF(state, received)                                                                   \
    "{\"id\":1,\"name\":\"in\",\"owner\":\"ann\",\"state\":\"" state "\",\"created_at\":\""        \
    "1970-01-01T00:00:00.000Z\",\"size\":39,\"received\":" received ",\"path\":"
#define FILE_OF(received)                                                                          \
    ",\"files\":[{\"path\":\"a/b\",\"size\":39,\"sha256\":\"%s\",\"received\":" received "}]}"
    static const struct principal ann = {.user = "ann"};
    int64_t id;
    char want[1024];
    const char *sha256 = digest_of(body, sizeof body - 1);
    setup();
    CHECK(!create_as("ann", list_of("in", "a/b", body, sizeof body - 1), &id) && id == 1);
    CHECK(!put(id, 0, body, 10));
    char *json = upload_dir_show(d, id, &e);
    snprintf(want, sizeof want, HEAD_OF("receiving", "10") "null" FILE_OF("10"), sha256);
    CHECK_STR(json, want);
    free(json);
    CHECK(!put(id, 10, body + 10, sizeof body - 11) && !upload_dir_commit(d, id, &e));
    for (int i = 0; i < 2; i++, again()) {
        json = upload_dir_show(d, id, &e);
        snprintf(want, sizeof want, HEAD_OF("complete", "39") "\"%s/files/in\"" FILE_OF("39"), dir,
                 sha256);
        CHECK_STR(json, want);
        free(json);
        json = upload_dir_list(d, &ann);
        snprintf(want, sizeof want,
                 "{\"data\":[" HEAD_OF("complete", "39") "\"%s/files/in\"}],"
                                                         "\"next_cursor\":null,\"has_more\":false}",
                 dir);
        CHECK_STR(json, want);
        free(json);
    }
    teardown();
}

static void test_lies(void)
{
    setup();
    int64_t id = make("in", "x", body), other;
    const size_t n = strlen(body);
    char wrong[sizeof body];
    memcpy(wrong, body, sizeof wrong);
    wrong[5] ^= 1;
    /* the fault is found at the last byte */
    CHECK(put(id, 0, wrong, n) && e.code == ERR_CORRUPT && at == 0);
    CHECK(!put(id, 0, wrong, 10));
    again(); /* no digest was computed during the upload, so the commit finds the fault */
    CHECK(!put(id, 10, body + 10, n - 10));
    CHECK(upload_dir_commit(d, id, &e) && e.code == ERR_CORRUPT && strstr(e.text, "x does not"));
    CHECK(upload_dir_commit(d, id, &e) && e.code == ERR_CONFLICT && strstr(e.text, "0 of"));
    CHECK(put(id, 0, "more than the list has, by far, and then some", 45) && e.code == ERR_INVALID);
    CHECK(put(id, -1, "x", 1) && put(id, 7, "x", 1) && e.code == ERR_CONFLICT && at == 0);
    CHECK(upload_dir_write(d, id, 1, 0, "x", 1, 0, &at, &e) && e.code == ERR_NOT_FOUND);
    CHECK(upload_dir_write(d, id, -1, 0, "x", 1, 0, &at, &e) && e.code == ERR_NOT_FOUND);
    CHECK(put(99, 0, "x", 1) && e.code == ERR_NOT_FOUND && at == -1);
    CHECK(create_as("", list_of("in", "y", body, n), &other) && e.code == ERR_CONFLICT);
    CHECK(create_as("bob", list_of("in", "x", body, n), &other) && e.code == ERR_CONFLICT);
    CHECK(!put(id, 0, body, n) && !upload_dir_commit(d, id, &e) && holds("in/x", body));
    CHECK(create_as("", list_of("in", "y", body, n), &other) && e.code == ERR_CONFLICT);
    teardown();
}

static void test_lists(void)
{
#define H       "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define F(path) "{\"path\":\"" path "\",\"size\":1,\"sha256\":\"" H "\"}"
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"name\":\"a\"}",
        "{\"name\":\"a\",\"files\":[]}",
        "{\"name\":\"a\",\"files\":[{}]}",
        "{\"name\":\"\",\"files\":[" F("x") "]}",
        "{\"name\":\".a\",\"files\":[" F("x") "]}",
        "{\"name\":\"-a\",\"files\":[" F("x") "]}",
        "{\"name\":\"a/b\",\"files\":[" F("x") "]}",
        "{\"name\":\"a\",\"id\":7,\"files\":[" F("x") "]}",
        "{\"name\":\"a\",\"owner\":\"root\",\"files\":[" F("x") "]}",
        "{\"name\":\"a\",\"files\":[" F("x") "]} ,",
        "{\"name\":\"a\",\"files\":[" F("../x") "]}",
        "{\"name\":\"a\",\"files\":[" F("/x") "]}",
        "{\"name\":\"a\",\"files\":[" F("x/") "]}",
        "{\"name\":\"a\",\"files\":[" F("x\\u0000") "]}",
        "{\"name\":\"a\",\"files\":[" F("x\\n") "]}",
        "{\"name\":\"a\",\"files\":[" F("x") "," F("x") "]}",
        "{\"name\":\"a\",\"files\":[" F("x") "," F("x/y") "]}",
        "{\"name\":\"a\",\"files\":[" F("x/y") "," F("x") "]}",
        "{\"name\":\"a\",\"files\":[{\"path\":\"x\",\"size\":-1,\"sha256\":\"" H "\"}]}",
        "{\"name\":\"a\",\"files\":[{\"path\":\"x\",\"size\":2e15,\"sha256\":\"" H "\"}]}",
        "{\"name\":\"a\",\"files\":[{\"path\":\"x\",\"size\":1,\"sha256\":\"12\"}]}",
        "{\"name\":\"a\",\"files\":[{\"path\":\"x\",\"size\":1}]}",
    };
    int64_t id;
    setup();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(create_as("", bad[i], &id) && e.code == ERR_INVALID && *e.text, "%s", bad[i]);
    CHECK(!create_as("", "{\"files\":[" F("x/y") "," F("x.y") "],\"name\":\"a\"}", &id));
    teardown();
}

/* Checks that the error for a fault of the text names the file and its member. */
static void test_list_fields(void)
{
#define BAD(file) "{\"name\":\"a\",\"files\":[" F("x") "," file "]}"
    static const char *const bad[][3] = {
        {BAD("{\"path\":1}"), "files.1.path",
         "files.1.path: the member path is damaged: want text"},
        {BAD("{\"path\":\"y\",\"size\":\"1\"}"), "files.1.size", "want an integer"},
        {BAD("{\"path\":\"y\",\"mode\":7}"), "files.1", "none of path, size, sha256"},
        {BAD("{\"path\":\"../y\",\"size\":1}"), "files.1.path", "without . and .."},
        {BAD("{\"path\" 1}"), "files.1", "files.1: JSON byte "},
        {BAD("7"), "files", "files: want a list of {path, size, sha256}"},
        {"{\"files\":7}", "files", "files: want a list of {path, size, sha256}"},
        {"{\"files\":[" F("x") "],\"files\":[" F("y") "]}", "files", "want a list"},
        {"{\"name\":7}", "name", "name: the member name is damaged"},
        {"{\"mode\":7}", "",
         "is not one JSON object {\"name\", \"files\"}: an object has a member"},
    };
    static char many[(UPLOAD_FILES + 1) * 3 + 32];
    int64_t id;
    setup();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(create_as("", bad[i][0], &id) && e.code == ERR_INVALID);
        CHECK_STR(e.field, bad[i][1]);
        CHECK_MSG(strstr(e.text, bad[i][2]), "%s: %s", bad[i][0], e.text);
    }
    strcpy(many, "{\"files\":[{}");
    for (int i = 0; i < UPLOAD_FILES; i++) strcat(many, ",{}");
    strcat(many, "]}");
    CHECK(create_as("", many, &id) && e.code == ERR_TOO_LARGE && strstr(e.text, "1000 members"));
    CHECK_STR(e.field, "files");
    teardown();
#undef BAD
}

static void test_quota(void)
{
    static char big[400001];
    int64_t id, other;
    memset(big, 'x', sizeof big - 1);
    setup();
    CHECK(!create_as("ann", list_of("a", "x", big, 400000), &id));
    CHECK(create_as("ann", list_of("b", "x", big, 100001), &other) && e.code == ERR_TOO_LARGE);
    CHECK(strstr(e.text, "--user-uploads-max") && strstr(e.field, "files"));
    CHECK(!create_as("ann", list_of("b", "x", big, 100000), &other));
    CHECK(!create_as("bob", list_of("c", "x", big, 400000), &other));
    CHECK(create_as("eve", list_of("d", "x", big, 100001), &other) && e.code == ERR_TOO_LARGE);
    CHECK(strstr(e.text, "--uploads-max"));
    again(); /* after a restart, the bytes of incomplete uploads must still count toward the limits
              * of their owners */
    CHECK(create_as("eve", list_of("d", "x", big, 100001), &other) && e.code == ERR_TOO_LARGE);
    CHECK(create_as("ann", list_of("d", "x", big, 1), &other) && strstr(e.text, "your uploads"));
    CHECK(!upload_dir_remove(d, id, &e));
    CHECK(!create_as("eve", list_of("d", "x", big, 100001), &other));
    teardown();
    options.max = INT64_MAX / 2;
    options.user_max = INT64_MAX / 2;
    setup();
    static const char huge[] =
        "{\"name\":\"a\",\"files\":[{\"path\":\"x\",\"size\":1125899906842624,"
        "\"sha256\":\"" H "\"}]}";
    CHECK(create_as("", huge, &id) && e.code == ERR_NO_SPACE);
    teardown();
    options.max = 1000000;
    options.user_max = 500000;
}

/* Checks the numbers of uploads: one user cannot fill the table, and a removed or expired upload
 * no longer counts. */
static void test_counts(void)
{
    static const char *const users[] = {"ann", "bob", "eve", "joe"};
    char name[32];
    int64_t id, first = 0;
    setup();
    for (int i = 0; i < UPLOADS_USER; i++) {
        snprintf(name, sizeof name, "a%d", i);
        CHECK_MSG(!create_as("ann", list_of(name, "x", "y", 1), &id), "%d: %s", i, e.text);
        if (!i) first = id;
    }
    CHECK(create_as("ann", list_of("b", "x", "y", 1), &id) && e.code == ERR_TOO_LARGE);
    CHECK(!*e.field && strstr(e.text, "you have 250 uploads, the limit of a user: remove one"));
    CHECK(!create_as("ann", list_of("a0", "x", "y", 1), &id) && id == first); /* it is there */
    again();
    CHECK(create_as("ann", list_of("b", "x", "y", 1), &id) && e.code == ERR_TOO_LARGE);
    CHECK(!upload_dir_remove(d, first, &e));
    CHECK(!create_as("ann", list_of("b", "x", "y", 1), &id));
    for (int i = 0; i < UPLOADS_COUNT - UPLOADS_USER; i++) {
        snprintf(name, sizeof name, "o%d", i);
        CHECK(!create_as(users[1 + i / UPLOADS_USER], list_of(name, "x", "y", 1), &id));
    }
    CHECK(create_as("zoe", list_of("z", "x", "y", 1), &id) && e.code == ERR_NO_SPACE);
    CHECK(strstr(e.text, "1000 uploads of all users"));
    upload_dir_sweep(d, 5000);
    CHECK(!create_as("zoe", list_of("z", "x", "y", 1), &id));
    teardown();
}

static void test_expiry(void)
{
    setup();
    const int64_t part = make("part", "x", body), whole = make("whole", "x", body);
    CHECK(!put(whole, 0, body, strlen(body)) && !upload_dir_commit(d, whole, &e));
    upload_dir_sweep(d, 999);
    /* one more byte keeps the upload from expiring */
    CHECK(!upload_dir_write(d, part, 0, 0, body, 5, 900, &at, &e));
    upload_dir_sweep(d, 1899);
    CHECK(!put(part, 5, body + 5, 1));
    upload_dir_write(d, part, 0, 6, body + 6, 1, 1000, &at, &e);
    upload_dir_sweep(d, 2000);
    CHECK(put(part, 7, body + 7, 1) && e.code == ERR_NOT_FOUND);
    CHECK(holds("whole/x", body));
    char *json = upload_dir_list(d, &all);
    CHECK(strstr(json, "\"whole\"") && !strstr(json, "\"part\"") && strstr(json, "/files/whole"));
    free(json);
    teardown();
}

/* Checks a full disk, which a limit on the size of files simulates. A write ends after a part of
 * its bytes. */
static void test_full_disk(void)
{
    static char big[100001];
    memset(big, 'z', sizeof big - 1);
    for (int64_t room = 0; room < 100000; room += 24999) {
        setup();
        const int64_t id = make("in", "x", big);
        struct rlimit old, limit;
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &old);
        limit = old;
        limit.rlim_cur = (rlim_t)room;
        CHECK(!setrlimit(RLIMIT_FSIZE, &limit));
        const int rc = put(id, 0, big, 100000);
        setrlimit(RLIMIT_FSIZE, &old);
        CHECK(rc && at == 0); /* no byte of the upload is kept */
        again();
        CHECK(!put(id, 0, big, 100000) && !upload_dir_commit(d, id, &e) && holds("in/x", big));
        teardown();
    }
}

/* Checks a disk that is full, read-only or over its quota. The error must name the file, the
 * reason and the fix. */
static void test_no_space(void)
{
    static const int why[] = {ENOSPC, EDQUOT, EROFS};
    for (int i = 0; i < 3; i++) {
        setup();
        const int64_t id = make("in", "x", "abcdef");
        CHECK(!put(id, 0, "abc", 3));
        disk_errno = why[i];
        CHECK(put(id, 3, "def", 3) && at == 3 && e.code == ERR_NO_SPACE);
        disk_errno = 0;
        CHECK_MSG(strstr(e.text, "write x: ") && strstr(e.text, strerror(why[i])) &&
                      strstr(e.text, "make room on the disk of /tmp/seqd-upload-") &&
                      strstr(e.text, "from byte 3"),
                  "%s", e.text);
        CHECK(!put(id, 3, "def", 3) && !upload_dir_commit(d, id, &e) && holds("in/x", "abcdef"));
        teardown();
    }
}

/* Checks a child that is killed anywhere in create, write, commit and remove. Afterwards the
 * upload is complete or absent, and the same requests succeed. */
/* Checks that a restart keeps an upload whose list it cannot read, so that the upload is there
 * again when the list can be read. */
static void test_unreadable(void)
{
    char list[160];
    size_t size;
    setup();
    const int64_t id = make("in", "x/y", body);
    CHECK(!put(id, 0, body, strlen(body)) && !upload_dir_commit(d, id, &e));
    snprintf(list, sizeof list, "%s/lists/in.json", dir);
    char *text = file_read(list, 1 << 20, &size, &e);
    CHECK(text && !file_write(list, "{", 1, &e));
    again();
    CHECK(file_exists(list) && holds("in/x/y", body));
    CHECK(!file_write(list, text, size, &e));
    again();
    CHECK(make("in", "x/y", body) == id && !upload_dir_commit(d, id, &e));
    free(text);
    teardown();
}

static void test_killed(void)
{
    for (int round = 0; round < 60; round++) {
        setup();
        upload_dir_close(d);
        fflush(NULL);
        const pid_t pid = fork();
        if (!pid) {
            for (int i = 0;; i++) {
                int64_t id;
                open_dir();
                if (create_as("", list_of("in", "x/y", body, strlen(body)), &id)) _exit(1);
                put(id, 0, body, 7);
                put(id, 7, body + 7, strlen(body) - 7);
                if (upload_dir_commit(d, id, &e)) _exit(2);
                if (i % 2 && upload_dir_remove(d, id, &e)) _exit(3);
                upload_dir_close(d);
            }
        }
        usleep((useconds_t)(1000 + round * 379 % 30000));
        kill(pid, SIGKILL);
        int status = 0;
        waitpid(pid, &status, 0);
        CHECK_MSG(WIFSIGNALED(status), "exit %d", WEXITSTATUS(status));
        open_dir();
        char *json = upload_dir_list(d, &all);
        const bool complete = strstr(json, "\"complete\"") != NULL;
        CHECK(complete == holds("in/x/y", body));
        free(json);
        const int64_t id = make("in", "x/y", body);
        upload_dir_write(d, id, 0, -1, "", 0, 0, &at, &e);
        if (at >= 0 && !complete) CHECK(!put(id, at, body + at, strlen(body) - (size_t)at));
        CHECK_MSG(!upload_dir_commit(d, id, &e) && holds("in/x/y", body), "%s", e.text);
        teardown();
    }
}

static void test_locked(void)
{
    setup();
    CHECK(!upload_dir_open(&options, 0, &e) && e.code == ERR_CONFLICT);
    teardown();
}

/* ---- routes ---------------------------------------------------------------------------------- */

static int patch(const char *path, const char *headers, const char *bytes, size_t n)
{
    char head[1024];
    int fd = dial();
    const int k = snprintf(head, sizeof head,
                           "PATCH %s HTTP/1.1\r\n" HEAD "Content-Length: %zu\r\n%s\r\n", path, n,
                           headers);
    send_all(fd, head, (size_t)k);
    send_all(fd, bytes, n);
    return answer_of(fd);
}

#define OCTETS "Content-Type: application/offset+octet-stream\r\n"

static void test_routes(void)
{
    static char big[(1 << 20) + 2];
    memset(big, 'b', sizeof big - 1);
    begin();
    CHECK(get("/v1/uploads") == 400 && strstr(reply, "--uploads"));
    snprintf(dir, sizeof dir, "%s/up", w.dir);
    options.max = options.user_max = 10 << 20;
    w.routes.uploads = uploads_open(w.loop, &options, &e);
    CHECK(w.routes.uploads != NULL);
    CHECK(get("/v1/uploads") == 200 && strstr(reply, "\"data\":[]"));
    const char *list = list_of("in", "x", big, sizeof big - 1);
    CHECK(post("/v1/uploads", list) == 201 && strstr(reply, "\"id\":1"));
    CHECK(post("/v1/uploads", list) == 200 && strstr(reply, "\"received\":0"));
    CHECK(post("/v1/uploads", "{\"name\":\"..\"}") == 400);
    CHECK(get("/v1/uploads/1") == 200 && get("/v1/uploads/2") == 404);
    CHECK(patch("/v1/uploads/1", OCTETS "Upload-Offset: 0\r\n", big, 1 << 20) == 200);
    CHECK(strstr(reply, "Upload-Offset: 1048576\r\n") && strstr(reply, "{\"offset\":1048576}"));
    CHECK(patch("/v1/uploads/1", OCTETS "Upload-Offset: 0\r\n", big, 5) == 409);
    CHECK(strstr(reply, "Upload-Offset: 1048576\r\n"));
    CHECK(patch("/v1/uploads/1", OCTETS "Upload-Offset: 0\r\n", big, (1 << 20) + 1) == 413);
    disk_errno = ENOSPC;
    CHECK(patch("/v1/uploads/1", OCTETS "Upload-Offset: 1048576\r\n", "b", 1) == 507);
    CHECK(strstr(reply, "\"code\":\"no_space\"") && strstr(reply, "Upload-Offset: 1048576\r\n"));
    disk_errno = 0;
    CHECK(patch("/v1/uploads/1", OCTETS "Upload-Offset: x\r\n", big, 1) == 400);
    CHECK(patch("/v1/uploads/1", OCTETS, big, 1) == 400);
    CHECK(patch("/v1/uploads/1?file=1", OCTETS "Upload-Offset: 0\r\n", big, 1) == 404);
    CHECK(patch("/v1/uploads/1?file=-1", OCTETS "Upload-Offset: 0\r\n", big, 1) == 400);
    /* This route accepts only one content type, and no other route accepts this type. */
    CHECK(patch("/v1/uploads/1", "Content-Type: application/json\r\nUpload-Offset: 1048576\r\n",
                big, 1) == 415);
    CHECK(post("/v1/jobs", job_json) == 201 && patch("/v1/jobs/1", OCTETS, big, 1) == 415);
    CHECK(patch("/v1/jobs/../uploads/1", OCTETS, big, 1) == 400);
    CHECK(talk("POST /v1/uploads HTTP/1.1\r\n" HEAD OCTETS "Content-Length: 2\r\n\r\n{}") == 415);
    CHECK(post("/v1/uploads/1:commit", "") == 409 && strstr(reply, "send the rest"));
    CHECK(patch("/v1/uploads/1", OCTETS "Upload-Offset: 1048576\r\n", "B", 1) == 409);
    CHECK(strstr(reply, "digest") && strstr(reply, "Upload-Offset: 0\r\n"));
    CHECK(patch("/v1/uploads/1", OCTETS "Upload-Offset: 0\r\n", big, 1 << 20) == 200);
    CHECK(patch("/v1/uploads/1", OCTETS "Upload-Offset: 1048576\r\n", "b", 1) == 200);
    CHECK(post("/v1/uploads/1:commit", "") == 200 && strstr(reply, "\"state\":\"complete\""));
    CHECK(strstr(reply, "/up/files/in\""));
    CHECK(talk("DELETE /v1/uploads/1 HTTP/1.1\r\n" HEAD "\r\n") == 200);
    CHECK(get("/v1/uploads/1") == 404);
    uploads_close(w.routes.uploads);
    finish();
}

/* ---- upload: in specs ------------------------------------------------------------------------ */

static void push_one(const char *name, const char *path, const char *bytes)
{
    CHECK(post("/v1/uploads", list_of(name, path, bytes, strlen(bytes))) == 201);
    const int id = atoi(strstr(reply, "\"id\":") + 5);
    char target[64];
    snprintf(target, sizeof target, "/v1/uploads/%d", id);
    CHECK(patch(target, OCTETS "Upload-Offset: 0\r\n", bytes, strlen(bytes)) == 200);
    snprintf(target, sizeof target, "/v1/uploads/%d:commit", id);
    CHECK(post(target, "") == 200);
}

static int submit_with(const char *data, const char *more)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,"
             "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
             "\"data\":{\"train\":[{\"path\":\"/x\"},{\"path\":\"%s\"}],\"seq_len\":100},"
             "\"train\":{\"steps\":5}%s}",
             data, more);
    return post("/v1/jobs", text);
}

static void test_in_specs(void)
{
    char want[256];
    begin();
    CHECK(submit_with("upload:in/x", "") == 400 && strstr(reply, "--uploads"));
    snprintf(dir, sizeof dir, "%s/up", w.dir);
    w.routes.uploads = uploads_open(w.loop, &options, &e);
    push_one("in", "x", body);
    CHECK_MSG(submit_with("upload:in/x", "") == 201, "%s", reply);
    snprintf(want, sizeof want, "\"path\":\"%s/up/files/in/x\"", w.dir);
    CHECK_MSG(strstr(reply, want), "%s", reply);
    /* a path of an upload may be a glob, like any other path */
    CHECK(submit_with("upload:in/*.txt", "") == 201);
    CHECK(submit_with("upload:in", "") == 400);
    CHECK_MSG(strstr(reply, "upload:in is a directory, even if one file was pushed: name its "
                            "files, as upload:in/*.jsonl"),
              "%s", reply);
    static const char *const bad[] = {"upload:",   "upload:none/x", "upload:in/../../x",
                                      "upload:/x", "upload:in//x",  "upload:.."};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(submit_with(bad[i], "") == 400, "%s", bad[i]);
        CHECK_MSG(strstr(reply, "\"pointer\":\"/data/train/1/path\""), "%s", reply);
    }
    CHECK(submit_with("/y", ",\"checkpoint\":{\"resume\":\"upload:none\"}") == 400);
    CHECK(strstr(reply, "/checkpoint/resume") && strstr(reply, "seqctl push"));
    CHECK(submit_with("/y", ",\"eval\":{\"data\":[{\"path\":\"upload:none/x\"}]}") == 400);
    CHECK(strstr(reply, "/eval/data/0/path"));
    uploads_close(w.routes.uploads); /* after a restart the names are known */
    w.routes.uploads = uploads_open(w.loop, &options, &e);
    CHECK(submit_with("upload:in/x", "") == 201);
    CHECK(talk("DELETE /v1/uploads/1 HTTP/1.1\r\n" HEAD "\r\n") == 409); /* live jobs name it */
    CHECK(post("/v1/jobs:cancel", "{\"state\":[\"queued\"]}") == 200);
    CHECK(talk("DELETE /v1/uploads/1 HTTP/1.1\r\n" HEAD "\r\n") == 200);
    CHECK(submit_with("upload:in/x", "") == 400);
    uploads_close(w.routes.uploads);
    finish();
}

/* Checks a removed upload of which some files could not be removed. No job may name it. A restart
 * must remove the files. */
static void test_files_that_stay(void)
{
    char gone[256];
    begin();
    snprintf(dir, sizeof dir, "%s/up", w.dir);
    snprintf(gone, sizeof gone, "%s/parts/1.gone", dir);
    w.routes.uploads = uploads_open(w.loop, &options, &e);
    push_one("in", "x", body);
    CHECK(uploads_find(w.routes.uploads, 1) && uploads_owner(w.routes.uploads, "in"));
    stuck = ".gone";
    CHECK_MSG(talk("DELETE /v1/uploads/1 HTTP/1.1\r\n" HEAD "\r\n") == 200, "%s", reply);
    CHECK(file_exists(gone));
    CHECK(!uploads_find(w.routes.uploads, 1) && !uploads_owner(w.routes.uploads, "in"));
    CHECK(submit_with("upload:in/x", "") == 400 && get("/v1/uploads/1") == 404);
    stuck = NULL;
    push_one("in", "x", body); /* the name is free */
    CHECK(submit_with("upload:in/x", "") == 201 && file_exists(gone));
    uploads_close(w.routes.uploads);
    w.routes.uploads = uploads_open(w.loop, &options, &e);
    CHECK(!file_exists(gone) && submit_with("upload:in/x", "") == 201);
    uploads_close(w.routes.uploads);
    finish();
}

/* ---- users ----------------------------------------------------------------------------------- */

static char ann[AUTH_TOKEN_SIZE], bob[AUTH_TOKEN_SIZE], olga[AUTH_TOKEN_SIZE];

static int ask_as(const char *token, const char *method, const char *path, const char *headers,
                  const char *text)
{
    static char out[8192];
    snprintf(out, sizeof out,
             "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
             "%s\r\n%sContent-Length: %zu\r\n\r\n%s",
             method, path, token, headers, strlen(text), text);
    return talk(out);
}

#define JSON "Content-Type: application/json\r\n"

static int plan_as(const char *token, const char *path)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,"
             "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128}},"
             "\"data\":{\"train\":[{\"path\":\"%s\"}],\"seq_len\":100},\"train\":{\"steps\":5}}",
             path);
    return ask_as(token, "POST", "/v1/jobs", JSON, text);
}

/* Checks that the path of another user's upload is refused, however the path is written. A path in
 * seqd's state directory must be refused, too. */
static void by_path(bool complete)
{
    static const char *const ways[] = {"%s/files/in/x",          "%s//files/./in/x",
                                       "%s/files/../files/in/x", "%s/files/*/x",
                                       "%s/files/i[n]/x",        "%s/files/none/x"};
    char path[512];
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(path, sizeof path, ways[i], dir);
        CHECK_MSG(plan_as(bob, path) == 400, "%s", path);
        CHECK_MSG(strstr(reply, "name one of yours by upload:NAME"), "%s", reply);
        CHECK_MSG(strstr(reply, "\"pointer\":\"/data/train/0/path\""), "%s", reply);
        CHECK_MSG(plan_as(ann, path) == (complete && i < 3 ? 201 : 400), "%s", path);
    }
    w.routes.state_dir = w.dir;
    snprintf(path, sizeof path, "%s/token", w.dir);
    CHECK(plan_as(olga, path) == 400 && strstr(reply, "seqd's state, which no job reads"));
    snprintf(path, sizeof path, "%s/node/jobs/3/checkpoints/step-00000001/x", w.dir);
    CHECK(plan_as(ann, path) == 400 && strstr(reply, "has no such job"));
    snprintf(path, sizeof path, "%s-beside", w.dir);
    CHECK(plan_as(bob, path) == 201);
    CHECK(plan_as(bob, "job:1") == 400 && strstr(reply, "job 1 has no checkpoint"));
    CHECK(plan_as(bob, "job:77/artifacts/x") == 400 && strstr(reply, "has no such job"));
    CHECK(plan_as(bob, "job:1/../2") == 400 && strstr(reply, "want job:ID"));
}

/* Checks that for this user another user's upload seems not to exist, whether it is complete or
 * not. */
static void others_see_nothing(bool complete, const char *list)
{
    CHECK(ask_as(bob, "GET", "/v1/uploads", "", "") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(ask_as(bob, "GET", "/v1/uploads/1", "", "") == 404 && !strstr(reply, "ann"));
    CHECK(ask_as(bob, "PATCH", "/v1/uploads/1", OCTETS "Upload-Offset: 0\r\n", "x") == 404);
    CHECK(!strstr(reply, "Upload-Offset: "));
    CHECK(ask_as(bob, "POST", "/v1/uploads/1:commit", JSON, "") == 404);
    CHECK(ask_as(bob, "DELETE", "/v1/uploads/1", "", "") == 404);
    CHECK(ask_as(bob, "POST", "/v1/uploads", JSON, list) == 409 && !strstr(reply, "ann"));
    CHECK(strstr(reply, "another user has an upload"));
    CHECK(plan_as(bob, "upload:in/x") == 400 && strstr(reply, "no complete upload"));
    CHECK(plan_as(ann, "upload:in/x") == (complete ? 201 : 400));
    by_path(complete);
    CHECK(plan_as(olga, "upload:in/x") == (complete ? 201 : 400));
    CHECK(ask_as(ann, "GET", "/v1/uploads", "", "") == 200 && strstr(reply, "\"name\":\"in\""));
    CHECK(ask_as(olga, "GET", "/v1/uploads", "", "") == 200 && strstr(reply, "\"ann\""));
    CHECK(ask_as(olga, "GET", "/v1/uploads/1", "", "") == 200);
}

static void test_users(void)
{
    static char long_a[USER_NAME], long_b[USER_NAME], token_a[AUTH_TOKEN_SIZE],
        token_b[AUTH_TOKEN_SIZE];
    char list[2048];
    begin();
    rest_token("ann", ROLE_USER, 0, ann);
    rest_token("bob", ROLE_USER, 0, bob);
    rest_token("olga", ROLE_OPERATOR, 0, olga);
    snprintf(dir, sizeof dir, "%s/up", w.dir);
    w.routes.uploads = uploads_open(w.loop, &options, &e);
    snprintf(list, sizeof list, "%s", list_of("in", "x", body, strlen(body)));
    CHECK(ask_as(ann, "POST", "/v1/uploads", JSON, list) == 201);
    others_see_nothing(false, list);
    CHECK(ask_as(ann, "PATCH", "/v1/uploads/1", OCTETS "Upload-Offset: 0\r\n", body) == 200);
    CHECK(ask_as(ann, "POST", "/v1/uploads/1:commit", JSON, "") == 200);
    others_see_nothing(true, list);
    uploads_close(w.routes.uploads); /* owners survive a restart */
    w.routes.uploads = uploads_open(w.loop, &options, &e);
    others_see_nothing(true, list);
    CHECK(ask_as(bob, "DELETE", "/v1/uploads/1", "", "") == 404);
    CHECK(ask_as(ann, "DELETE", "/v1/uploads/1", "", "") == 409 && strstr(reply, "is in use: job"));
    CHECK(ask_as(olga, "POST", "/v1/jobs:cancel", JSON, "{\"state\":[\"queued\"]}") == 200);
    CHECK(ask_as(olga, "DELETE", "/v1/uploads/1", "", "") == 200);
    CHECK(ask_as(ann, "GET", "/v1/uploads/1", "", "") == 404);
    /* uses the longest names, which differ only at their ends */
    memset(long_a, 'u', USER_NAME - 1);
    memcpy(long_b, long_a, sizeof long_b);
    long_b[USER_NAME - 2] = 'v';
    rest_token(long_a, ROLE_USER, 0, token_a);
    rest_token(long_b, ROLE_USER, 0, token_b);
    CHECK(ask_as(token_a, "POST", "/v1/uploads", JSON, list) == 201);
    CHECK(ask_as(token_b, "POST", "/v1/uploads", JSON, list) == 409);
    CHECK(ask_as(token_a, "POST", "/v1/uploads", JSON, list) == 200);
    uploads_close(w.routes.uploads);
    finish();
}

/* Checks the answer to a user who has too many uploads: 429. Others may still upload. */
static void test_user_counts(void)
{
    char name[32];
    int64_t id;
    begin();
    rest_token("ann", ROLE_USER, 0, ann);
    rest_token("bob", ROLE_USER, 0, bob);
    snprintf(dir, sizeof dir, "%s/up", w.dir);
    open_dir();
    for (int i = 0; i < UPLOADS_USER; i++) {
        snprintf(name, sizeof name, "a%d", i);
        CHECK(!create_as("ann", list_of(name, "x", "y", 1), &id));
    }
    upload_dir_close(d);
    w.routes.uploads = uploads_open(w.loop, &options, &e);
    CHECK(ask_as(ann, "POST", "/v1/uploads", JSON, list_of("b", "x", "y", 1)) == 429);
    CHECK(strstr(reply, "the limit of a user: remove one first"));
    CHECK(ask_as(bob, "POST", "/v1/uploads", JSON, list_of("b", "x", "y", 1)) == 201);
    snprintf(name, sizeof name, "/v1/uploads/%lld", (long long)id);
    CHECK(ask_as(ann, "DELETE", name, "", "") == 200);
    CHECK(ask_as(ann, "POST", "/v1/uploads", JSON, list_of("c", "x", "y", 1)) == 201);
    uploads_close(w.routes.uploads);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_every_border);
    RUN(test_shown);
    RUN(test_lies);
    RUN(test_lists);
    RUN(test_list_fields);
    RUN(test_quota);
    RUN_LONG(test_counts);
    RUN(test_user_counts);
    RUN(test_expiry);
    RUN(test_full_disk);
    RUN(test_no_space);
    RUN(test_unreadable);
    RUN(test_killed);
    RUN(test_locked);
    RUN(test_routes);
    RUN(test_in_specs);
    RUN(test_files_that_stay);
    RUN(test_users);
    return test_done("seqd_upload");
}
