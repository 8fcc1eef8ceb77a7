/* test_seqd_checkpoint: tests checkpoints over REST. A node has the checkpoint, and clients read
 * its list of files, its files and its tar, with ranges that begin and end at every position. Also
 * tests a checkpoint that is replaced or removed while it is read, a node that is not connected,
 * and a node that sends wrong answers. The test plays the part of the node, and has the node's
 * files in memory. */
#include "api/core/jwrite.h"
#include "api/core/manifest.h"
#include "api/core/sha256.h"
#include "daemon/http/tar.h"
#include "daemon/http/transfer.h"
#include "tests/lib/rest.h"

#define BIG (3 * WIRE_CHUNK + 77)
static unsigned char weights[BIG];
static char manifest[8192];
static int64_t manifest_size;

static struct node_file {
    const char *name;
    const void *bytes;
    int64_t size, stamp;
} files[] = {{"hf/config.json", "{\"a\":1}", 7, 11},
             {"hf/model.safetensors", weights, BIG, 12},
             {"train_state.json", "", 0, 13},
             {"MANIFEST.json", manifest, 0, 14}};
enum { N_FILES = sizeof files / sizeof *files };

static int n_fetches;   /* answered */
static int lie_at = -1; /* index of the fetch before which `lie` is called */
static void (*lie)(void);

static void digest(const void *bytes, size_t n, char hex[SHA256_HEX])
{
    struct sha256 sha;
    sha256_init(&sha);
    sha256_add(&sha, bytes, n);
    sha256_hex(&sha, hex);
}

static void write_manifest(int64_t step)
{
    char hex[SHA256_HEX];
    struct jwrite j;
    jwrite_init(&j, manifest, sizeof manifest);
    jwrite_object(&j, NULL);
    jwrite_int(&j, "version", 1);
    jwrite_int(&j, "step", step);
    jwrite_int(&j, "epoch", 1);
    jwrite_str(&j, "weights_sha256", "ab");
    jwrite_array(&j, "files");
    for (int i = N_FILES - 2; i >= 0; i--) { /* the files may be listed in any order */
        digest(files[i].bytes, (size_t)files[i].size, hex);
        jwrite_object(&j, NULL);
        jwrite_str(&j, "path", files[i].name);
        jwrite_int(&j, "size", files[i].size);
        jwrite_str(&j, "sha256", hex);
        jwrite_end(&j);
    }
    jwrite_end(&j);
    digest(manifest, j.len, hex);
    jwrite_str(&j, "sha256", hex);
    jwrite_end(&j);
    manifest_size = jwrite_finish(&j);
    files[N_FILES - 1].size = manifest_size;
}

static void answer_fetch(void)
{
    struct msg m = {.type = MSG_FETCHED, .request = w.fetch.request, .offset = w.fetch.offset};
    const struct node_file *f = NULL;
    if (n_fetches++ == lie_at && lie) lie();
    for (int i = 0; i < N_FILES; i++) {
        char path[128];
        const bool artifact = strncmp(w.fetch.path, "checkpoints/", 12) != 0;
        snprintf(path, sizeof path, "%s%s", artifact ? "" : "checkpoints/step-00000005/",
                 files[i].name);
        if (!strcmp(path, w.fetch.path) && files[i].size >= 0) f = &files[i];
    }
    w.fetch.type = 0;
    if (f) {
        m.total = f->size;
        m.stamp = f->stamp;
        m.data = (const char *)f->bytes + m.offset;
        m.size = m.offset >= f->size               ? 0
                 : f->size - m.offset < WIRE_CHUNK ? (size_t)(f->size - m.offset)
                                                   : WIRE_CHUNK;
    } else {
        err_set(&m.err, ERR_NOT_FOUND, "open %.40s: No such file or directory", w.fetch.path);
    }
    control_link_calls.message(w.control, "n1", &m);
}

/* Sends a GET. The node answers until the client has the whole reply. */
static int get_from(const char *path, const char *headers)
{
    char out[512];
    int fd = dial();
    clear();
    w.fetch.type = 0;
    n_fetches = 0;
    snprintf(out, sizeof out, "GET %s HTTP/1.1\r\n" HEAD "%s\r\n", path, headers);
    send_all(fd, out, strlen(out));
    for (bool open = true; open;) {
        struct pollfd p = {fd, POLLIN, 0};
        loop_turn(w.loop, 1);
        if (w.fetch.type) answer_fetch();
        if (poll(&p, 1, 0) <= 0) continue;
        ssize_t n = recv(fd, reply + reply_len, sizeof reply - 1 - reply_len, 0);
        if (n > 0) reply_len += (size_t)n;
        open = n > 0;
    }
    close(fd);
    reply[reply_len] = 0;
    return status_of();
}

static const char *body(size_t *n)
{
    const char *at = memmem(reply, reply_len, "\r\n\r\n", 4);
    *n = at ? reply_len - (size_t)(at + 4 - reply) : 0;
    return at ? at + 4 : "";
}

static bool header_is(const char *name, char *out, size_t size)
{
    char key[64];
    snprintf(key, sizeof key, "\r\n%s: ", name);
    const char *at = strstr(reply, key);
    if (!at) return false;
    at += strlen(key);
    snprintf(out, size, "%.*s", (int)strcspn(at, "\r"), at);
    return true;
}

static void add_event(int64_t seq, int64_t epoch, enum job_event type, const char *data)
{
    struct store_txn *t = store_begin();
    store_event_add(t, &(struct store_event){
                           .seq = seq, .job = 1, .epoch = epoch, .type = (int)type, .data = data});
    commit(t);
}

/* Makes job 1. Its attempt 1 was on n1 and wrote the checkpoint of step 5. Its attempt 2 is on a
 * different node. */
static void begin_job(void)
{
    for (size_t i = 0; i < sizeof weights; i++) weights[i] = (unsigned char)(i * 31 + (i >> 9));
    for (int i = 0; i < N_FILES; i++) files[i].stamp = 11 + i;
    files[0].size = 7, files[1].size = BIG, files[2].size = 0;
    write_manifest(5);
    lie = NULL;
    rest_away = false;
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    const int64_t seq = store_last_event(w.store) + 100;
    add_event(seq, 1, EV_ASSIGN, "{\"node\":\"n1\",\"ranks\":1}");
    add_event(seq + 1, 1, EV_CHECKPOINT, "{\"step\":5,\"detail\":{\"step\":5,\"path\":\"/x\"}}");
    add_event(seq + 2, 2, EV_ASSIGN, "{\"node\":\"n2\",\"ranks\":1}");
    add_event(seq + 3, 2, EV_CHECKPOINT, "{\"step\":7}");
    add_event(seq + 4, 2, EV_CHECKPOINT_REMOVED, "{\"step\":7}");
    node_joins();
}

#define AT "/v1/jobs/1/checkpoints/5"

static void test_list(void)
{
    char hex[SHA256_HEX], want[256], etag[96], again[96];
    begin_job();
    CHECK_MSG(get_from(AT, "") == 200, "%s", reply);
    CHECK(strstr(reply, "\"step\":5,\"epoch\":1,\"node\":\"n1\""));
    digest(manifest, (size_t)manifest_size, hex);
    snprintf(want, sizeof want,
             "\"files\":[{\"name\":\"MANIFEST.json\",\"size\":%lld,\"sha256\":\"%s\"}",
             (long long)manifest_size, hex);
    CHECK_MSG(strstr(reply, want), "%s", reply); /* in the order of the names */
    CHECK(strstr(reply, "{\"name\":\"hf/config.json\",\"size\":7,"));
    CHECK(header_is("ETag", etag, sizeof etag));
    CHECK(get_from(AT "?path=hf", "") == 200 && !strstr(reply, "train_state"));
    CHECK(strstr(reply, "hf/model.safetensors") && !strstr(reply, "MANIFEST"));
    CHECK(header_is("ETag", again, sizeof again) && strcmp(etag, again));
    CHECK(get_from(AT "?path=h", "") == 404 && get_from(AT "?path=hf/", "") == 400);
    CHECK(get_from(AT "?path=../x", "") == 400 && strstr(reply, "\"pointer\":\"/path\""));
    CHECK(get_from("/v1/jobs/1/checkpoints/6", "") == 404);
    CHECK(get_from("/v1/jobs/1/checkpoints/7", "") == 404 && strstr(reply, "was removed"));
    CHECK(get_from("/v1/jobs/2/checkpoints/5", "") == 404);
    finish();
}

static void test_file(void)
{
    char etag[96], hex[SHA256_HEX + 2], header[256], text[SHA256_HEX];
    size_t n;
    begin_job();
    CHECK(get_from(AT "/files/hf/model.safetensors", "") == 200);
    CHECK(!memcmp(body(&n), weights, BIG) && n == BIG);
    digest(weights, BIG, text);
    snprintf(hex, sizeof hex, "\"%s\"", text);
    CHECK(header_is("ETag", etag, sizeof etag) && !strcmp(etag, hex));
    static const int64_t cuts[] = {0, 1, 65535, 65536, 65537, 131072, BIG - 1};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        snprintf(header, sizeof header, "Range: bytes=%lld-\r\nIf-Range: %s\r\n",
                 (long long)cuts[i], etag);
        CHECK(get_from(AT "/files/hf/model.safetensors", header) == 206);
        CHECK(!memcmp(body(&n), weights + cuts[i], (size_t)(BIG - cuts[i])));
        CHECK(n == (size_t)(BIG - cuts[i]));
    }
    CHECK(get_from(AT "/files/hf/model.safetensors", "Range: bytes=7-9\r\nIf-Range: \"x\"\r\n") ==
          200);
    CHECK(get_from(AT "/files/hf/model.safetensors", "Range: bytes=-5\r\n") == 206);
    CHECK(!memcmp(body(&n), weights + BIG - 5, 5) && n == 5);
    snprintf(header, sizeof header, "Range: bytes=%d-\r\n", BIG);
    CHECK(get_from(AT "/files/hf/model.safetensors", header) == 416);
    snprintf(header, sizeof header, "If-None-Match: %s\r\n", etag);
    CHECK(get_from(AT "/files/hf/model.safetensors", header) == 304 && n_fetches == 1);
    CHECK(get_from(AT "/files/train_state.json", "") == 200);
    CHECK(body(&n) && !n && strstr(reply, "Content-Length: 0\r\n"));
    CHECK(get_from(AT "/files/MANIFEST.json", "") == 200);
    CHECK(!memcmp(body(&n), manifest, (size_t)manifest_size) && n == (size_t)manifest_size);
    CHECK(get_from(AT "/files/none", "") == 404 && get_from(AT "/files//etc/passwd", "") == 404);
    finish();
}

/* Checks ranges of the tar that begin at a border of its blocks, or at the byte before or after
 * it, and have no end. The answer must be the rest of the tar from there on. */
static void test_tar(void)
{
    static char all[1 << 19];
    char etag[96], header[256];
    size_t n, n_all;
    begin_job();
    CHECK(get_from(AT ".tar", "") == 200);
    const char *b = body(&n_all);
    memcpy(all, b, n_all);
    CHECK(n_all % TAR_BLOCK == 0 && !memcmp(all, "step-00000005/MANIFEST.json", 28));
    CHECK(memmem(all, n_all, weights, BIG) != NULL);
    CHECK(header_is("ETag", etag, sizeof etag));
    CHECK(strstr(reply, "filename=\"job-1-step-00000005.tar\""));
    for (size_t at = 0; at < n_all; at += TAR_BLOCK * (at < 4096 ? 1 : 31)) {
        for (int d = -1; d <= 1; d++) {
            if (!at && d < 0) continue;
            snprintf(header, sizeof header, "Range: bytes=%zu-\r\nIf-Range: %s\r\n", at + (size_t)d,
                     etag);
            CHECK(get_from(AT ".tar", header) == 206);
            b = body(&n);
            CHECK(n == n_all - at - (size_t)d && !memcmp(b, all + at + d, n));
        }
    }
    CHECK(get_from(AT ".tar?path=hf", "") == 200 && !memmem(reply, reply_len, "train_state", 11));
    finish();
}

static void replaced(void)
{
    files[1].stamp++;
}

static void removed(void)
{
    files[1].size = -1;
}

static void shorter(void)
{
    files[1].size--;
}

static void away(void)
{
    rest_away = true;
    control_link_calls.down(w.control, "n1", "gone", 0);
}

/* Checks a file that changes or disappears at its third chunk. The reply must end early. */
static void test_cut(void)
{
    static void (*const all[])(void) = {replaced, removed, shorter, away};
    static const char *const paths[] = {AT "/files/hf/model.safetensors", AT ".tar"};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 2; k++) {
            size_t n, want;
            char text[32] = "";
            begin_job();
            lie = all[i];
            /* The node sends wrong data after the manifest and two chunks of the file. For the
             * tar, it has sent two more files before that: the manifest again, and the config. */
            lie_at = 1 + 2 + (k ? 2 : 0);
            CHECK_MSG(get_from(paths[k], "") == 200, "%s", reply);
            CHECK(header_is("Content-Length", text, sizeof text));
            want = (size_t)atoll(text);
            body(&n);
            CHECK_MSG(n < want && n > WIRE_CHUNK, "case %d: %zu of %zu", i, n, want);
            finish();
        }
}

static void test_refused(void)
{
    begin_job();
    away();
    CHECK(get_from(AT, "") == 503 && strstr(reply, "n1 is not connected"));
    CHECK(get_from(AT ".tar", "") == 503 && get_from(AT "/files/MANIFEST.json", "") == 503);
    rest_away = false;
    node_joins();
    lie = removed, lie_at = 1; /* the file is removed between the manifest and the file */
    CHECK(get_from(AT "/files/hf/model.safetensors", "") == 404);
    files[1].size = BIG;
    lie = replaced, lie_at = 5;
    write_manifest(6); /* the manifest of a different checkpoint */
    CHECK(get_from(AT, "") == 500 && strstr(reply, "not that of the checkpoint"));
    write_manifest(5);
    manifest[manifest_size / 2] ^= 1;
    CHECK(get_from(AT, "") == 500 && strstr(reply, "damaged"));
    manifest[manifest_size / 2] ^= 1;
    files[3].size = MANIFEST_SIZE + 1;
    CHECK(get_from(AT, "") == 409);
    finish();
}

/* Checks an artifact that several attempts have published. Its name must be listed once, with the
 * data of the last publication, and the file must be read from the node of the attempt that
 * published last. */
static void test_artifacts(void)
{
    size_t n;
    begin_job();
    const int64_t seq = store_last_event(w.store) + 200;
    add_event(seq, 1, EV_ARTIFACT,
              "{\"step\":1,\"detail\":{\"name\":\"MANIFEST.json\",\"size\":1}}");
    add_event(seq + 1, 1, EV_ARTIFACT, "{\"detail\":{\"name\":\"b\",\"size\":2}}");
    add_event(seq + 2, 1, EV_ARTIFACT,
              "{\"step\":9,\"detail\":{\"name\":\"MANIFEST.json\",\"size\":3,\"sha256\":\"ab\"}}");
    add_event(seq + 3, 2, EV_ARTIFACT, "{\"detail\":{\"name\":\"b\",\"size\":4}}");
    add_event(seq + 4, 2, EV_ARTIFACT, "not JSON");
    CHECK(get_from("/v1/jobs/1/artifacts", "") == 200);
    const char *a = strstr(reply, "\"name\":\"MANIFEST.json\",\"size\":3,\"sha256\":\"ab\"");
    const char *b = strstr(reply, "\"name\":\"b\",\"size\":4");
    CHECK_MSG(a && b && a < b, "%s", reply);
    CHECK(strstr(reply, "\"step\":9") && !strstr(reply, "\"size\":1") &&
          !strstr(reply, "\"size\":2"));
    CHECK(get_from("/v1/jobs/1/artifacts?limit=1", "") == 200 && !strstr(reply, "\"b\""));
    CHECK(strstr(reply, "\"has_more\":true"));
    CHECK(get_from("/v1/jobs/1/artifacts/MANIFEST.json", "") == 200);
    CHECK(!memcmp(body(&n), manifest, (size_t)manifest_size) && n == (size_t)manifest_size);
    CHECK(get_from("/v1/jobs/1/artifacts/b", "") == 503 && strstr(reply, "n2"));
    CHECK(get_from("/v1/jobs/1/artifacts/c", "") == 404);
    finish();
}

/* Checks that at most TRANSFER_FETCHES chunks are requested from one node at a time. Further
 * transfers must wait. */
static void test_share(void)
{
    enum { N = 9 };
    int fd[N];
    rest_away = false;
    begin();
    node_joins();
    CHECK(post("/v1/jobs", job_json) == 201);
    wait_placed();
    rest_fetches = 0;
    for (int i = 0; i < N; i++) fd[i] = get_begin("/v1/jobs/1/artifacts/x");
    while (rest_fetches < TRANSFER_FETCHES) loop_turn(w.loop, 1);
    for (int i = 0; i < 200; i++) loop_turn(w.loop, 1);
    CHECK_MSG(rest_fetches == TRANSFER_FETCHES, "%d", rest_fetches);
    w.fetch.type = 0; /* the last question is answered, so the next transfer may ask */
    struct msg m = {.type = MSG_FETCHED, .request = w.fetch.request, .data = "x", .size = 1};
    m.total = 1;
    control_link_calls.message(w.control, "n1", &m);
    CHECK(rest_fetches == TRANSFER_FETCHES + 1);
    away();
    int n_whole = 0;
    for (int i = 0; i < N; i++) {
        const int status = answer_of(fd[i]);
        n_whole += status == 200;
        CHECK(status == 200 || status == 503);
    }
    CHECK(n_whole == 1 && !w.routes.transfers);
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_list);
    RUN(test_file);
    RUN(test_tar);
    RUN(test_cut);
    RUN(test_refused);
    RUN(test_artifacts);
    RUN(test_share);
    return test_done("seqd_checkpoint");
}
