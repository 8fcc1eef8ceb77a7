/* test_seqd_edit: tests a job's version and entity tag, the status 304, and PATCH. Checks the
 * changes that a PATCH makes, the users who are refused, and the values of If-Match that are
 * accepted. */
#include "api/core/job.h"
#include "daemon/http/etag.h"
#include "tests/lib/rest.h"

static int ask(const char *method, const char *path, const char *headers, const char *body)
{
    static char out[32768];
    snprintf(out, sizeof out,
             "%s %s HTTP/1.1\r\n" HEAD "Content-Type: application/json\r\nContent-Length: "
             "%zu\r\n%s\r\n%s",
             method, path, strlen(body), headers, body);
    return talk(out);
}

static int patch(const char *if_match, const char *body)
{
    char header[9000] = "";
    if (if_match) snprintf(header, sizeof header, "If-Match: %s\r\n", if_match);
    return ask("PATCH", "/v1/jobs/1", header, body);
}

/* Returns the tag of the last answer. */
static const char *tag_of_reply(void)
{
    static char tag[ETAG_SIZE];
    const char *at = strstr(reply, "ETag: ");
    *tag = 0;
    if (at) sscanf(at + 6, "%63[^\r]", tag);
    return tag;
}

static long long version_of_reply(void)
{
    const char *at = strstr(reply, "\"version\":");
    return at ? atoll(at + 10) : -1;
}

/* ---- tags ------------------------------------------------------------------------------------ */

static const struct {
    const char *text;
    int matches; /* -1 if it is malformed */
} lists[] = {
    {"\"7\"", 1},
    {"\"7-0123456789abcdef\"", 1},
    {"*", 1},
    {"\"6\", \"7\"", 1},
    {" \t\"6\"\t,\t\"7-x\" ", 1},
    {"\"a,b\",\"7\"", 1},
    {"\"8\"", 0},
    {"\"70\"", 0},
    {"\"07\"", 0},
    {"\"-7\"", 0},
    {"\"\"", 0},
    {"W/\"7\"", 0}, /* a change needs a strong tag */
    {"W/\"7\", \"7\"", 1},
    {"\"99999999999999999999999999999999\"", 0},
    {"7", -1},
    {"", -1},
    {",", -1},
    {"\"7", -1},
    {"\"7\",", -1},
    {"\"7\" \"8\"", -1},
    {"\"7\"x", -1},
    {"w/\"7\"", -1},
    {"*, \"7\"", -1},
    {"\"7\", *", -1},
};

static void test_lists(void)
{
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        bool bad;
        const bool match = etag_match(lists[i].text, 7, &bad);
        CHECK_MSG((bad ? -1 : match) == lists[i].matches, "%s: %d %d", lists[i].text, match, bad);
    }
    char a[ETAG_SIZE], b[ETAG_SIZE];
    CHECK(strcmp(etag_of("{\"version\":7,\"x\":1}", a), etag_of("{\"version\":7,\"x\":2}", b)));
    CHECK(!strncmp(a, "\"7-", 3) && !strcmp(a, etag_of("{\"version\":7,\"x\":1}", b)));
    CHECK(etag_version("{\"name\":\"\\\"version\\\":3\",\"version\":9}") == 9);
}

/* ---- 304 ------------------------------------------------------------------------------------- */

static int get_unless(const char *tags)
{
    char header[256];
    snprintf(header, sizeof header, "If-None-Match: %s\r\n", tags);
    return ask("GET", "/v1/jobs/1", header, "");
}

static void test_not_modified(void)
{
    char tag[ETAG_SIZE], list[160];
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    while (get("/v1/jobs/1") == 200 && !strstr(reply, "\"code\":\"no_node\"") &&
           strstr(reply, "\"reason\":null"))
        loop_turn(w.loop, 5); /* the first pass has noted why the job waits */
    snprintf(tag, sizeof tag, "%s", tag_of_reply());
    CHECK_MSG(!strncmp(tag, "\"1-", 3), "%s", tag);
    CHECK(get_unless(tag) == 304 && !strcmp(tag_of_reply(), tag) && strstr(reply, "\r\n\r\n"));
    CHECK_MSG(!strstr(reply, "{"), "%s", reply);
    snprintf(list, sizeof list, "\"x\", W/%s", tag);
    CHECK(get_unless(list) == 304 && get_unless("*") == 304);
    CHECK(get_unless("\"1\"") == 200 && get_unless("\"x\"") == 200 && get_unless("") == 200);
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    CHECK(get_unless(tag) == 200 && strcmp(tag_of_reply(), tag));
    CHECK(ask("POST", "/v1/jobs/1:cancel", "If-None-Match: *\r\n", "") == 200);
    finish();
}

/* ---- PATCH ----------------------------------------------------------------------------------- */

static void test_edit(void)
{
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(patch("\"1\"", "{\"priority\":77}") == 200);
    CHECK_MSG(version_of_reply() == 2 && strstr(reply, "\"priority\":77,"), "%s", reply);
    CHECK(strstr(reply, "\"labels\":{\"node\":\"evil\",\"state\":\"fake\"}"));
    CHECK(patch(tag_of_reply(), "{\"labels\":{\"team\":\"x\",\"node\":null}}") == 200);
    CHECK(version_of_reply() == 3 && strstr(reply, "\"priority\":77,"));
    CHECK(strstr(reply, "\"team\":\"x\"") && !strstr(reply, "evil"));
    CHECK(get("/v1/jobs/1/events") == 200);
    CHECK(strstr(reply,
                 "\"type\":\"edit\",\"data\":{\"by\":\"tester\",\"detail\":{\"priority\":77}"));
    /* Filters must find the job by its new fields, also after a restart. */
    for (int i = 0; i < 2; i++) {
        CHECK(get("/v1/jobs?label.team=x") == 200 && strstr(reply, "\"id\":1,"));
        CHECK(get("/v1/jobs?label.node=evil") == 200 && strstr(reply, "\"data\":[]"));
        CHECK(get("/v1/jobs?name=t&state=queued") == 200 && strstr(reply, "\"id\":1,"));
        CHECK(get("/v1/jobs/1") == 200 && version_of_reply() == 3);
        CHECK(strstr(reply, "\"priority\":77,") && strstr(reply, "\"team\":\"x\""));
        close_server();
        begin_in(false, 0);
    }
    CHECK(patch("\"3\"", "{\"labels\":{\"state\":null,\"team\":null}}") == 200);
    CHECK(version_of_reply() == 4 && strstr(reply, "\"labels\":{}"));
    finish();
}

/* Checks that a change of the priority changes the order of the queue. */
static void test_order(void)
{
    begin();
    for (int i = 0; i < 2; i++) CHECK(post("/v1/jobs", job_json) == 201);
    CHECK(ask("PATCH", "/v1/jobs/2", "If-Match: \"1\"\r\n", "{\"priority\":90}") == 200);
    const struct job *first = control_job(w.control, 1), *second = control_job(w.control, 2);
    CHECK(job_spec(first)->priority == 50 && job_spec(second)->priority == 90);
    finish();
}

static void test_refused(void)
{
    static const struct {
        const char *body, *pointer, *says;
    } bad[] = {
        {"{}", "", "nothing changes"},
        {"", "", "not valid JSON"},
        {"[1]", "", "must be a JSON object"},
        {"{\"priority\":101}", "/priority", "between 0 and 100"},
        {"{\"priority\":-1}", "/priority", "priority"},
        {"{\"priority\":null}", "/priority", "priority"},
        {"{\"priority\":\"7\"}", "/priority", "priority"},
        {"{\"priority\":7,\"priority\":8}", "", "duplicate"},
        {"{\"state\":\"succeeded\"}", "/state", "only priority and labels"},
        {"{\"owner\":\"bob\"}", "/owner", "only priority and labels"},
        {"{\"train\":{\"steps\":9}}", "/train", "only priority and labels"},
        {"{\"labels\":7}", "/labels", "null removes it"},
        {"{\"labels\":{\"a b\":\"x\"}}", "/labels", "a-z"},
        {"{\"labels\":{\"\":\"x\"}}", "/labels", "a-z"},
        {"{\"labels\":{\"a\":7}}", "/labels", "string"},
    };
    char body[8192];
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const int status = patch("\"1\"", bad[i].body);
        char pointer[64];
        snprintf(pointer, sizeof pointer, "\"pointer\":\"%s\"", bad[i].pointer);
        CHECK_MSG(status == 400 && strstr(reply, pointer) && strstr(reply, bad[i].says),
                  "%s: %d %s", bad[i].body, status, reply);
    }
    snprintf(body, sizeof body, "{\"labels\":{\"a\":\"%05000d\"}}", 7);
    CHECK(patch("\"1\"", body) == 413 && strstr(reply, "4095 bytes"));
    CHECK(patch(NULL, "{\"priority\":7}") == 428 && strstr(reply, "If-Match is missing"));
    CHECK(patch("\"0\"", "{\"priority\":7}") == 412 && strstr(reply, "of version 1 now"));
    CHECK(patch("W/\"1\"", "{\"priority\":7}") == 412);
    CHECK(patch("7", "{\"priority\":7}") == 400 && strstr(reply, "no list of tags"));
    memset(body, '"', 6001);
    body[6001] = 0;
    CHECK(patch(body, "{\"priority\":7}") == 400);
    memset(body, 'a', 8190);
    body[0] = '"', body[8190] = 0;
    CHECK(patch(body, "{\"priority\":7}") == 431);
    CHECK(ask("PATCH", "/v1/jobs/2", "If-Match: *\r\n", "{\"priority\":7}") == 404);
    CHECK(get("/v1/jobs/1") == 200 && version_of_reply() == 1 && strstr(reply, "\"priority\":50,"));
    CHECK(patch("*", "{\"priority\":7}") == 200);
    CHECK(post("/v1/jobs/1:cancel", "") == 202);
    CHECK(patch("*", "{\"priority\":8}") == 409 && strstr(reply, "has ended"));
    finish();
}

/* Checks the type of the body of a PATCH. A PATCH of a job must accept only JSON, and a PATCH of
 * an upload must accept only bytes. */
static void test_types(void)
{
    static const char head[] = "PATCH %s HTTP/1.1\r\n" HEAD "If-Match: *\r\nContent-Type: %s\r\n"
                               "Content-Length: 14\r\n\r\n{\"priority\":7}";
    static const struct {
        const char *path, *type;
        int status;
    } rows[] = {
        {"/v1/jobs/1", "application/merge-patch+json", 200},
        {"/v1/jobs/1", "application/json; charset=utf-8", 200},
        {"/v1/jobs/1", "application/offset+octet-stream", 415},
        {"/v1/jobs/1", "text/plain", 415},
        {"/v1/uploads/1", "application/merge-patch+json", 415},
        {"/v1/uploads/1", "application/json", 415},
    };
    char out[1024];
    begin();
    CHECK(post("/v1/jobs", job_json) == 201);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(out, sizeof out, head, rows[i].path, rows[i].type);
        const int status = talk(out);
        CHECK_MSG(status == rows[i].status, "%s %s: %d", rows[i].path, rows[i].type, status);
    }
    finish();
}

int main(void)
{
    seqd_test_init();
    RUN(test_lists);
    RUN(test_not_modified);
    RUN(test_edit);
    RUN(test_order);
    RUN(test_refused);
    RUN(test_types);
    return test_done("seqd_edit");
}
