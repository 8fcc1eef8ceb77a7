/* job_reply.c: answers with a job and its ETag, or with 404. */
#include "daemon/http/job_reply.h"

#include <stdlib.h>
#include <string.h>
#include "daemon/http/etag.h"
#include "daemon/http/job_json.h"
#include "daemon/http/range.h"
#include "daemon/http/reply.h"

void job_reply(struct http_req *r, int status, const char *json, bool unchanged)
{
    char etag[ETAG_SIZE];
    const char *tags = http_header(r, "if-none-match");
    http_set_header(r, "ETag", etag_of(json, etag));
    if (tags) unchanged = range_none_match(tags, etag);
    if (unchanged && status == 200 && !strcmp(http_method(r), "GET"))
        http_reply(r, 304, "application/json", "", 0);
    else
        reply_json(r, status, json);
}

void job_reply_row(const struct control *c, struct http_req *r, int64_t id,
                   const struct store_row *row, bool unchanged)
{
    char *json = job_json(c, id, row);
    job_reply(r, 200, json, unchanged);
    free(json);
}

void job_reply_none(struct http_req *r, int64_t id, const struct err *failed)
{
    struct err e;
    if (failed) {
        reply_fail(r, failed);
        return;
    }
    err_set(&e, ERR_NOT_FOUND, "there is no job %lld", (long long)id);
    reply_fail(r, &e);
}
