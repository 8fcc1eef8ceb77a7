/* link.c: sends and receives messages of one packet each, checks the received order, and looks for
 * STOP and SAVE without blocking. */
#include "worker/rank/link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "api/core/assert.h"
#include "api/core/jwrite.h"

void link_init(struct link *k, int fd)
{
    *k = (struct link){.fd = fd, .rank = -1};
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Receives one packet, which has a header and a payload. The message must have the type `want`,
 * and its payload must have exactly `size` bytes. */
static int receive(struct link *k, enum rank_msg_type want, void *payload, size_t size,
                   struct err *e)
{
    struct rank_msg h = {0};
    struct iovec iov[2] = {{&h, sizeof h}, {payload, size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t got;
    do {
        k->saving = k->saving || h.type == RANK_SAVE;
        got = recvmsg(k->fd, &m, 0);
    } while ((got < 0 && errno == EINTR) ||
             (got >= (ssize_t)sizeof h && h.abi == RANK_ABI && h.type == RANK_SAVE));
    if (got < 0) return err_errno(e, "read from seqgang");
    if (got == 0) {
        k->stopped = true;
        return err_set(e, ERR_PEER, "seqgang closed the connection");
    }
    if ((size_t)got < sizeof h || h.abi != RANK_ABI)
        return err_set(e, ERR_PEER,
                       "seqgang speaks protocol %u and this seqrank %u: install both together",
                       (size_t)got < sizeof h ? 0 : h.abi, RANK_ABI);
    if (h.type == RANK_STOP) {
        k->stopped = true;
        return err_set(e, ERR_ABORTED, "stopped before the ring was open");
    }
    if (h.type != (uint32_t)want || h.size != size || (size_t)got != sizeof h + size ||
        (m.msg_flags & MSG_TRUNC))
        return err_set(e, ERR_PEER, "seqgang sent message %u of %u bytes; want %d of %zu", h.type,
                       h.size, (int)want, size);
    return 0;
}

/* Returns true if the string has a NUL within its array. This must be checked, because the
 * struct comes from another process, and its array may have no NUL. */
static bool terminated(const char *s, size_t size)
{
    return memchr(s, 0, size) != NULL;
}

static int check_args(const struct rank_args *a, struct err *e)
{
    if (a->n_ranks < 1 || a->n_ranks > JOB_MAX_RANKS || a->rank < 0 || a->rank >= a->n_ranks)
        return err_set(e, ERR_INVALID, "rank %d of %d: want 0 <= rank < ranks <= %d", a->rank,
                       a->n_ranks, JOB_MAX_RANKS);
    bool all_here = !a->n_local && !a->first_local;
    if (!all_here && (a->n_local < 1 || a->n_local > a->n_ranks || a->first_local < 0 ||
                      a->first_local > a->n_ranks - a->n_local || a->rank < a->first_local ||
                      a->rank >= a->first_local + a->n_local))
        return err_set(e, ERR_INVALID, "rank %d is not of the %d ranks here from %d of %d", a->rank,
                       a->n_local, a->first_local, a->n_ranks);
    if (a->task != TASK_PREPARE && a->task != TASK_RUN)
        return err_set(e, ERR_INVALID, "task %d is unknown", a->task);
    if (a->n_roots < 0 || a->n_roots > RANK_ROOTS)
        return err_set(e, ERR_INVALID, "%d roots: want at most %d", a->n_roots, RANK_ROOTS);
    if (a->n_grants < 0 || a->n_grants > RANK_GRANTS || a->n_writable < 0 ||
        a->n_writable > RANK_ROOTS)
        return err_set(e, ERR_INVALID, "%d grants, %d writable roots: want at most %d, %d",
                       a->n_grants, a->n_writable, RANK_GRANTS, RANK_ROOTS);
    bool ok = terminated(a->address, sizeof a->address) &&
              terminated(a->prepared_dir, sizeof a->prepared_dir) &&
              terminated(a->prepared_id, sizeof a->prepared_id) &&
              terminated(a->job_dir, sizeof a->job_dir);
    for (int i = 0; i < a->n_roots; i++) ok = ok && terminated(a->roots[i], sizeof a->roots[i]);
    for (int i = 0; i < a->n_writable; i++)
        ok = ok && terminated(a->writable[i], sizeof a->writable[i]);
    for (int i = 0; i < a->n_grants; i++) ok = ok && terminated(a->grants[i], sizeof a->grants[i]);
    if (!ok) return err_set(e, ERR_INVALID, "a path of the arguments has no end");
    if (*a->prepared_id && !rank_prepared_id_good(a->prepared_id))
        return err_set(e, ERR_INVALID, "'%s' is not an id of prepared data: want hex digits",
                       a->prepared_id);
    return 0;
}

int link_receive_order(struct link *k, struct link_order *o, struct err *e)
{
    if (receive(k, RANK_ARGS, o, sizeof *o, e)) return -1;
    if (check_args(&o->args, e)) return -1;
    if (o->spec.text_used < 1 || o->spec.text_used > SPEC_TEXT_SIZE ||
        o->spec.text[o->spec.text_used - 1] != 0)
        return err_set(e, ERR_INVALID, "the job spec's string table is broken");
    k->rank = o->args.rank;
    return 0;
}

int link_receive_blobs(struct link *k, struct rank_blob *out, int n, struct err *e)
{
    assert(n >= 1 && n <= JOB_MAX_RANKS);
    if (receive(k, RANK_BLOBS, out, (size_t)n * sizeof *out, e)) return -1;
    for (int i = 0; i < n; i++)
        if (out[i].rank != i || out[i].size < 0 || out[i].size > BLOB_SIZE)
            return err_set(e, ERR_PEER, "blob %d says rank %d, %d bytes: want rank %d", i,
                           out[i].rank, out[i].size, i);
    return 0;
}

/* Receives a message that has come. Returns the number of its bytes, 0 if the socket was closed,
 * and -1 if there is none or on an error. */
static ssize_t take_one(struct link *k, struct rank_msg *h)
{
    struct iovec iov[2] = {{h, sizeof *h}, {k->room, k->take ? LINK_ROOM : 0}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = k->take ? 2 : 1};
    ssize_t got;
    do got = recvmsg(k->fd, &m, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got;
}

/* Takes SAVE with `size` bytes, of which k->room has the reason if there is one. */
static void take_save(struct link *k, size_t size)
{
    k->saving = true;
    if (!k->take || !size || size > sizeof k->why) return;
    memcpy(k->why, k->room, size);
    k->why[size - 1] = 0;
}

bool link_stopped(struct link *k)
{
    while (!k->stopped) {
        struct rank_msg h = {0};
        const ssize_t got = take_one(k, &h);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
        const bool alone = got == sizeof h;
        /* The rank must stop if the socket was closed, if it is broken, or if STOP was
         * received. Without k->take, messages other than STOP and SAVE are ignored, because they
         * have no meaning at this time. */
        if (got <= 0 || (alone && h.type == RANK_STOP)) k->stopped = true;
        if (got >= (ssize_t)sizeof h && h.type == RANK_SAVE)
            take_save(k, (size_t)got - sizeof h);
        else if (k->take && got > (ssize_t)sizeof h && (size_t)got == sizeof h + h.size)
            k->take(k->take_arg, &h, k->room);
    }
    return true;
}

void link_wait(struct link *k, int wait_ms, bool room)
{
    struct pollfd p = {.fd = k->fd, .events = (short)(POLLIN | (room ? POLLOUT : 0))};
    /* poll comes before the messages are taken: afterwards it would wait for the next one. A signal
     * ends the wait early, which does no harm. */
    if (wait_ms > 0 && !k->stopped) poll(&p, 1, wait_ms);
    link_stopped(k);
}

bool link_saving(struct link *k)
{
    link_stopped(k);
    return k->saving;
}

/* ---- sending --------------------------------------------------------------------------------- */

static int transmit(struct link *k, enum rank_msg_type type, const void *a, size_t a_size,
                    const void *b, size_t b_size, struct err *e)
{
    struct rank_msg h = {RANK_ABI, (uint32_t)type, k->rank, (uint32_t)(a_size + b_size)};
    struct iovec iov[3] = {{&h, sizeof h}, {(void *)a, a_size}, {(void *)b, b_size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 3};
    ssize_t sent;
    do sent = sendmsg(k->fd, &m, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent < 0) return err_errno(e, "write to seqgang");
    return 0;
}

int link_send_answer(struct link *k, const struct rank_answer *a, const char *bytes, struct err *e)
{
    const uint32_t size = (uint32_t)(sizeof *a + (size_t)a->size);
    struct rank_msg h = {RANK_ABI, RANK_ANSWER, k->rank, size};
    struct iovec iov[3] = {
        {&h, sizeof h}, {(void *)a, sizeof *a}, {(void *)bytes, (size_t)a->size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 3};
    ssize_t sent;
    do sent = sendmsg(k->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0) return 1;
    /* ENOBUFS: the kernel has no memory for the message at this time */
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return 0;
    return err_errno(e, "write to seqgang");
}

int link_send_blob(struct link *k, const char *blob, int size, struct err *e)
{
    assert(size >= 0 && size <= BLOB_SIZE);
    return transmit(k, RANK_BLOB, blob, (size_t)size, NULL, 0, e);
}

int link_send_ready(struct link *k, struct err *e)
{
    return transmit(k, RANK_READY, NULL, 0, NULL, 0, e);
}

int link_send_step(struct link *k, const struct rank_step *s, struct err *e)
{
    return transmit(k, RANK_STEP, s, sizeof *s, NULL, 0, e);
}

int link_send_progress(struct link *k, const struct rank_progress *p, struct err *e)
{
    return transmit(k, RANK_PROGRESS, p, sizeof *p, NULL, 0, e);
}

int link_send_serving(struct link *k, const struct rank_serving *s, struct err *e)
{
    return transmit(k, RANK_SERVING, s, sizeof *s, NULL, 0, e);
}

int link_send_event(struct link *k, enum job_event type, int64_t step, const char *json,
                    struct err *e)
{
    struct rank_event ev = {.type = (int32_t)type, .step = step};
    return transmit(k, RANK_EVENT, &ev, sizeof ev, json, strlen(json), e);
}

int link_send_note(struct link *k, const char *code, const char *text, struct err *e)
{
    char json[64 + 6 * sizeof e->text]; /* a byte may become \u00XX */
    struct jwrite w;
    jwrite_init(&w, json, sizeof json);
    jwrite_object(&w, NULL);
    jwrite_str(&w, "code", code);
    jwrite_str(&w, "text", text);
    jwrite_end(&w);
    if (jwrite_finish(&w) < 0) return err_set(e, ERR_TOO_LARGE, "a note is too long: %s", code);
    return link_send_event(k, EV_NOTE, 0, json, e);
}

int link_send_result(struct link *k, const char *json, struct err *e)
{
    assert(strlen(json) <= RANK_RESULT_SIZE);
    return transmit(k, RANK_RESULT, json, strlen(json), NULL, 0, e);
}

void link_send_fail(struct link *k, const struct err *why)
{
    struct rank_fail f = {.code = (int32_t)why->code};
    memcpy(f.field, why->field, sizeof f.field);
    memcpy(f.text, why->text, sizeof f.text);
    transmit(k, RANK_FAIL, &f, sizeof f, NULL, 0, NULL);
}
