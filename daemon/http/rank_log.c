/* rank_log.c: GET /v1/jobs/{id}/logs, which sends pieces of a rank's log, or streams it. */
#include <stdio.h>
#include "daemon/http/follow.h"
#include "daemon/http/job_reply.h"
#include "daemon/http/view.h"

#define LOG_READ_MAX 65536

static void send_log(struct view *v)
{
    const struct job *j = control_job(v->R->control, v->id);
    struct logs *logs = control_logs(v->R->control);
    int64_t epoch = v->n[0];
    struct err e;
    char *buf = malloc(LOG_READ_MAX), next[32];
    if (!buf) abort();
    if (!epoch) epoch = logs_last_epoch(logs, v->id, v->rank);
    int64_t n = logs_read(logs, v->id, epoch, v->rank, v->offset, buf, (size_t)v->limit, &e);
    /* If the first log of a live job has not arrived yet, answer with an empty log instead of an
     * error. */
    bool coming = n < 0 && e.code == ERR_NOT_FOUND && j && (!epoch || epoch >= j->epoch);
    if (n < 0 && !coming) {
        reply_fail(v->r, &e);
    } else {
        if (n < 0) n = 0;
        bool over = !j || (epoch && epoch < j->epoch) ||
                    (epoch == j->epoch && !j->attempt && epoch);
        snprintf(next, sizeof next, "%lld", (long long)(v->offset + n));
        http_set_header(v->r, "Seqd-Next-Offset", next);
        if (over && n < v->limit) http_set_header(v->r, "Seqd-Log-End", "true");
        http_reply(v->r, 200, "text/plain; charset=utf-8", buf, (size_t)n);
    }
    free(buf);
    free(v);
}

static void on_log_job(void *arg, const struct store_rows *rows, const struct err *failed)
{
    struct view *v = arg;
    if (view_refuse(v, failed)) return;
    if (rows->n_rows) {
        v->n[0] = v->n[1];
        send_log(v);
        return;
    }
    job_reply_none(v->r, v->id, NULL);
    free(v);
}

void route_logs(struct routes *R, struct http_req *r, const struct route_match *a)
{
    struct view *v = view_of(R, r, a);
    int64_t rank, epoch;
    if (reply_query_int(r, "rank", 0, 0, JOB_MAX_RANKS - 1, &rank) ||
        reply_query_int(r, "epoch", 0, 0, INT64_MAX, &epoch) ||
        reply_query_int(r, "offset", 0, 0, INT64_MAX / 2, &v->offset) ||
        reply_query_int(r, "limit", LOG_READ_MAX, 1, LOG_READ_MAX, &v->limit)) {
        free(v);
        return;
    }
    if (reply_wants_stream(r)) {
        const struct follow_log log = {(int)rank, epoch > 0, epoch, epoch > 0 ? v->offset : 0};
        free(v);
        follow_start(R, r, a, FOLLOW_LOG, &log);
        return;
    }
    v->rank = (int32_t)rank;
    v->n[0] = epoch;
    if (control_job(R->control, a->id)) {
        send_log(v);
        return;
    }
    v->ask = ASK_JOB;
    store_read(control_store(R->control), ASK_JOB, (const int64_t[4]){a->id}, NULL, on_log_job, v);
    v->n[1] = epoch;
}
