/* DELETE and the list of removals, as clients see them. */
#include "api/core/job_state.h"
#include "api/core/removal.h"
#include "daemon/order.h"
#include "tests/lib/rest.h"

static int delete (const char *path)
{
    char out[512];
    const int fd = dial();
    snprintf(out, sizeof out, "DELETE %s HTTP/1.1\r\n" HEAD "\r\n", path);
    send_all(fd, out, strlen(out));
    return answer_of(fd);
}

static void test_delete(void)
{
    begin();
    CHECK(delete ("/v1/jobs/1") == 404);
    CHECK(post("/v1/jobs", job_json) == 201 && post("/v1/jobs", job_json) == 201);
    CHECK(delete ("/v1/jobs/1") == 409 && strstr(reply, "cancel it"));
    CHECK(post("/v1/jobs/1:cancel", "") == 202 && get("/v1/jobs/1") == 200);
    CHECK(strstr(reply, "\"state\":\"cancelled\""));
    const int status = delete ("/v1/jobs/1");
    CHECK_MSG((status == 202 || status == 200) && strstr(reply, "\"job\":1,\"what\":\"job\""), "%s",
              reply);
    CHECK(get("/v1/jobs/1") == 404 && get("/v1/jobs/1/events") == 404);
    CHECK(get("/v1/jobs/1/metrics") == 404 && get("/v1/jobs/1/logs") == 404);
    CHECK(get("/v1/jobs/1/checkpoints") == 404 && get("/v1/jobs/1/artifacts/x") == 404);
    CHECK(post("/v1/jobs/1:cancel", "") == 404);
    CHECK(get("/v1/jobs") == 200 && strstr(reply, "\"id\":2") && !strstr(reply, "\"id\":1,"));
    while (delete ("/v1/jobs/1") == 202) loop_turn(w.loop, 5); /* no node has anything of it */
    CHECK(status_of() == 200 && strstr(reply, "\"state\":\"done\""));
    CHECK(get("/v1/removals") == 200 && strstr(reply, "\"why\":\"delete\"") &&
          strstr(reply, "\"has_more\":false"));
    CHECK(get("/v1/removals?state=pending") == 200 && strstr(reply, "\"data\":[]"));
    CHECK(get("/v1/removals?state=gone") == 400 && get("/v1/removals?limit=0") == 400);
    CHECK(get("/v1/jobs/2") == 200);
    finish();
}

static void test_pages(void)
{
    begin();
    for (int i = 1; i <= 3; i++) {
        char path[64];
        CHECK(post("/v1/jobs", job_json) == 201);
        snprintf(path, sizeof path, "/v1/jobs/%d:cancel", i);
        CHECK(post(path, "") == 202);
        snprintf(path, sizeof path, "/v1/jobs/%d", i);
        CHECK(delete (path) / 100 == 2);
    }
    CHECK(get("/v1/removals?limit=2") == 200 && strstr(reply, "\"job\":3") &&
          strstr(reply, "\"next_cursor\":\"2\"") && strstr(reply, "\"has_more\":true"));
    CHECK(get("/v1/removals?limit=2&cursor=2") == 200 && strstr(reply, "\"job\":1") &&
          !strstr(reply, "\"job\":2") && strstr(reply, "\"has_more\":false"));
    finish();
}

/* The key of a job that is gone is a new job's. */
static void test_key(void)
{
    static const char key[] = "Idempotency-Key: \"k1\"\r\n";
    begin();
    CHECK(post_with("/v1/jobs", key, job_json) == 201 && strstr(reply, "\"id\":1,"));
    CHECK(post("/v1/jobs/1:cancel", "") == 202 && delete ("/v1/jobs/1") / 100 == 2);
    CHECK(post_with("/v1/jobs", key, job_json) == 201 && strstr(reply, "\"id\":2,"));
    finish();
}

int main(void)
{
    json_init();
    RUN(test_delete);
    RUN(test_pages);
    RUN(test_key);
    return test_done("seqd_removed");
}
