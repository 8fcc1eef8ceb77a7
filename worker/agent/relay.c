/* Records and log bytes are read from disk by offset. In a new session, records and bytes without
 * an acknowledgement are read and sent again (attempt.h). So this file keeps no copy of sent
 * bytes. All code here runs on the loop thread. */
#include "worker/agent/relay.h"

#include <stdbool.h>
#include <string.h>
#include "api/core/assert.h"
#include "worker/agent/attempt.h"
#include "worker/agent/session.h"

/* Replaces ERR_NO_SPACE by ERR_IO if the session speaks WIRE_ABI_BEFORE, because a seqd of that
 * version recognizes a full disk by ERR_IO and the words of errno. */
static void fit_record(const struct agent_session *s, char *record, size_t size)
{
    struct rank_msg head;
    struct rank_fail f;
    memcpy(&head, record, sizeof head);
    if (session_abi(s) >= WIRE_ABI || head.type != RANK_FAIL || size < sizeof head + sizeof f)
        return;
    memcpy(&f, record + sizeof head, sizeof f);
    if (f.code == ERR_NO_SPACE) f.code = ERR_IO;
    memcpy(record + sizeof head, &f, sizeof f);
}

static void send_record(struct agent_session *s, int64_t job, int64_t epoch,
                        enum rank_msg_type type, int rank, const void *payload, size_t size)
{
    struct rank_msg head = {RANK_ABI, (uint32_t)type, rank, (uint32_t)size};
    char record[sizeof head + sizeof(struct rank_fail)];
    assert(size <= sizeof(struct rank_fail));
    memcpy(record, &head, sizeof head);
    memcpy(record + sizeof head, payload, size);
    fit_record(s, record, sizeof head + size);
    session_send(s, &(struct msg){.type = MSG_REPORT,
                                  .job = job,
                                  .epoch = epoch,
                                  .rank = rank,
                                  .data = record,
                                  .size = sizeof head + size});
}

void relay_end(struct agent_session *s, int64_t job, int64_t epoch, enum gang_end how)
{
    struct rank_exit x = {.rank = RANK_GANG, .exit_status = how};
    send_record(s, job, epoch, RANK_EXIT, RANK_GANG, &x, sizeof x);
}

void relay_failure(struct agent_session *s, int64_t job, int64_t epoch, int rank,
                   const struct err *why)
{
    struct rank_fail f = {.code = (int32_t)why->code};
    memcpy(f.field, why->field, sizeof f.field);
    memcpy(f.text, why->text, sizeof f.text);
    send_record(s, job, epoch, RANK_FAIL, rank, &f, sizeof f);
}

void relay_records(struct agent_session *s, struct attempt *t, char *buf)
{
    bool final = false;
    int64_t n;
    while (!final && session_can_send(s) && (n = attempt_record(t, buf, &final)) > 0) {
        const bool oom = attempt_oom(t, buf, n);
        fit_record(s, buf, (size_t)n);
        session_send(s, &(struct msg){.type = MSG_REPORT,
                                      .job = t->job,
                                      .epoch = t->epoch,
                                      .seq = t->spool.seq,
                                      .oom = oom,
                                      .data = buf,
                                      .size = (size_t)n});
    }
}

void relay_logs(struct agent_session *s, struct attempt *first, char *buf)
{
    int64_t budget = RELAY_LOG_SIZE, n;
    for (struct attempt *t = first; t && budget > 0; t = t->next) {
        struct msg m = {.type = MSG_LOG, .job = t->job, .epoch = t->epoch, .data = buf};
        while (budget > 0 && session_can_send(s) &&
               (n = attempt_log_bytes(t, buf, (size_t)budget, &m.rank, &m.offset)) > 0) {
            m.size = (size_t)n;
            budget -= n;
            session_send(s, &m);
        }
    }
}
