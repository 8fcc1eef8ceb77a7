/* fake_rank.h: a rank without an engine, for tests of seqgang and seqw. It uses the socket
 * protocol of api/core/rank.h. The job's name or the environment variable FAKE_RANK tells it how
 * to behave.
 *
 *     int main(int argc, char **argv) { if (fake_rank_is(argv)) return fake_rank_main(); ... }
 *
 * seqgang executes the program that struct gang_start.seqrank names. In these tests, that program
 * is the test itself, which seqgang runs with argv[0] set to "seqrank". */
#ifndef SEQD_TESTS_FAKE_RANK_H
#define SEQD_TESTS_FAKE_RANK_H

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include "api/core/job.h"
#include "api/core/job_state.h"
#include "api/core/rank.h"

struct fake_order {
    struct rank_args args;
    struct job_spec spec;
};

static inline bool fake_rank_is(char **argv)
{
    return !strcmp(argv[0], "seqrank");
}

static inline void fake_send(int rank, enum rank_msg_type type, const void *payload, size_t size)
{
    struct rank_msg head = {RANK_ABI, (uint32_t)type, rank, (uint32_t)size};
    struct iovec iov[2] = {{&head, sizeof head}, {(void *)payload, size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    if (sendmsg(RANK_SOCKET_FD, &m, MSG_NOSIGNAL) < 0) _exit(9);
}

/* Receives the payload of the next packet. If the packet does not have this type and size, the
 * rank exits. */
static inline void fake_receive(enum rank_msg_type type, void *payload, size_t size)
{
    struct rank_msg head;
    struct iovec iov[2] = {{&head, sizeof head}, {payload, size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    ssize_t n = recvmsg(RANK_SOCKET_FD, &m, 0);
    if (n != (ssize_t)(sizeof head + size) || head.type != (uint32_t)type || head.abi != RANK_ABI)
        _exit(10);
}

static inline void fake_fail(int rank, enum err_code code, const char *text)
{
    struct rank_fail f = {.code = (int32_t)code};
    snprintf(f.text, sizeof f.text, "%s", text);
    fake_send(rank, RANK_FAIL, &f, sizeof f);
    _exit(1);
}

/* Waits as the transport does: the rank sleeps on its door until the abort flag is set. */
static inline void fake_wait_abort(struct shm_head *h, int rank)
{
    for (;;) {
        uint32_t door = __atomic_load_n(&h->door[rank], __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&h->abort, __ATOMIC_SEQ_CST)) break;
        syscall(SYS_futex, &h->door[rank], FUTEX_WAIT, door, NULL, NULL, 0);
    }
}

static inline void fake_step(int rank, int64_t step)
{
    struct rank_step s = {
        .step = step, .loss = 5.0 / (double)step, .tokens = 64, .step_us = 1000, .ledger_ok = 1};
    if (rank == 0) fake_send(rank, RANK_STEP, &s, sizeof s);
}

static inline void fake_event(int rank, int type, const char *json)
{
    struct {
        struct rank_event head;
        char json[256];
    } ev = {.head = {.type = type}};
    snprintf(ev.json, sizeof ev.json, "%s", json);
    fake_send(rank, RANK_EVENT, &ev, sizeof ev.head + strlen(json));
}

/* The job's name or FAKE_RANK. It tells the ranks which failure to play, for example "die". A word
 * without a number is played by every rank. With a number, as in "die:2", only that rank plays it,
 * and all other ranks play "wait". fake_does tells whether a rank has to play a given word. */
static const char *fake_plan = "";

static inline bool fake_does(const char *what, int rank)
{
    const char *env = fake_plan;
    size_t n = strlen(what);
    if (strncmp(env, what, n) != 0) return false;
    return env[n] == 0 || (env[n] == ':' && atoi(env + n + 1) == rank);
}

static inline void fake_ring(const struct rank_args *a)
{
    static struct rank_blob blobs[JOB_MAX_RANKS];
    char blob[32];
    snprintf(blob, sizeof blob, "blob of %d", a->rank);
    fake_send(a->rank, RANK_BLOB, blob, strlen(blob));
    fake_receive(RANK_BLOBS, blobs, (size_t)a->n_ranks * sizeof blobs[0]);
    for (int i = 0; i < a->n_ranks; i++) {
        snprintf(blob, sizeof blob, "blob of %d", i);
        if (blobs[i].rank != i || (size_t)blobs[i].size != strlen(blob) ||
            memcmp(blobs[i].data, blob, strlen(blob)) != 0)
            _exit(11);
    }
    fake_send(a->rank, RANK_READY, NULL, 0);
}

/* ---- serving --------------------------------------------------------------------------------- */

static inline void fake_answer(uint64_t id, int status, uint32_t flags, const void *body, size_t n)
{
    static struct {
        struct rank_answer head;
        char body[RANK_PIECE_SIZE];
    } a;
    a.head = (struct rank_answer){.id = id, .status = status, .flags = flags, .size = (int32_t)n};
    if (n) memcpy(a.body, body, n);
    fake_send(0, RANK_ANSWER, &a, sizeof a.head + n);
}

/* The state of a fake rank 0 that serves. It has the body of one request at a time. */
struct fake_server {
    char body[1 << 20];
    size_t size;
    int n_drops;
};

/* Answers a request. A body that contains "hold" gets no answer, "die" kills the rank, "pause"
 * stops it until SIGCONT, and "drops" is answered with the number of DROP messages. Other bodies
 * are sent back: as events if they contain "stream". */
static inline void fake_reply(struct fake_server *s, const struct rank_ask *ask)
{
    char text[128];
    s->body[s->size] = 0;
    if (strstr(s->body, "hold")) return;
    if (strstr(s->body, "die")) raise(SIGKILL);
    if (strstr(s->body, "pause")) raise(SIGSTOP);
    if (strstr(s->body, "drops")) {
        snprintf(text, sizeof text, "%d drops, model %.20s, endpoint %u, user %.20s", s->n_drops,
                 ask->model, ask->endpoint, ask->user);
        fake_answer(ask->id, 200, RANK_ANSWER_LAST, text, strlen(text));
        return;
    }
    const uint32_t stream = strstr(s->body, "stream") ? RANK_ANSWER_STREAM : 0;
    for (size_t at = 0, n; at < s->size; at += n) {
        n = s->size - at < RANK_PIECE_SIZE ? s->size - at : RANK_PIECE_SIZE;
        const uint32_t last = at + n == s->size ? RANK_ANSWER_LAST : 0;
        fake_answer(ask->id, at ? 0 : 200, stream | last, s->body + at, n);
    }
}

/* Ends after SAVE, with its reason in the result. */
static inline void fake_saved(const char *why, size_t size)
{
    char json[64 + RANK_WHY_SIZE];
    const int n = snprintf(json, sizeof json, "{\"requests\":1,\"why\":\"%.*s\"}", (int)size, why);
    fake_send(0, RANK_RESULT, json, (size_t)n);
    _exit(RANK_EXIT_SAVED);
}

/* Answers requests until STOP, or until SAVE, after which it has nothing left to answer. */
static inline void fake_serve(void)
{
    static struct fake_server s;
    static char packet[sizeof(struct rank_msg) + sizeof(struct rank_ask) + RANK_PIECE_SIZE];
    struct rank_msg head;
    struct rank_ask ask;
    for (;;) {
        const ssize_t n = recv(RANK_SOCKET_FD, packet, sizeof packet, 0);
        if (n < (ssize_t)sizeof head) _exit(14);
        memcpy(&head, packet, sizeof head);
        if (head.type == RANK_STOP) fake_fail(0, ERR_ABORTED, "stopped");
        if (head.type == RANK_DROP) s.n_drops++;
        if (head.type == RANK_SAVE) fake_saved(packet + sizeof head, head.size);
        if (head.type != RANK_ASK) continue;
        memcpy(&ask, packet + sizeof head, sizeof ask);
        if (n != (ssize_t)(sizeof head + sizeof ask) + ask.size) _exit(15);
        if (s.size + (size_t)ask.size >= sizeof s.body) _exit(16);
        memcpy(s.body + s.size, packet + sizeof head + sizeof ask, (size_t)ask.size);
        s.size += (size_t)ask.size;
        if (!(ask.flags & RANK_ASK_LAST)) continue;
        fake_reply(&s, &ask);
        s.size = 0;
    }
}

static inline int fake_rank_main(void)
{
    static struct fake_order o;
    fake_receive(RANK_ARGS, &o, sizeof o);
    int rank = o.args.rank;
    if (getenv("FAKE_RANK")) fake_plan = getenv("FAKE_RANK");
    if (o.spec.name) fake_plan = spec_text(&o.spec, o.spec.name);
    struct shm_head *h = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, RANK_MEMFD, 0);
    if (h == MAP_FAILED || h->magic != SHM_MAGIC || (int)h->n_ranks != o.args.n_ranks) _exit(12);
    printf("rank %d of job %lld starts\n", rank, (long long)o.args.job);
    if (fake_does("args", rank)) {
        unsigned key = 0;
        for (int i = 0; i < RANK_KEY_SIZE; i++) key = key * 31 + o.args.key[i];
        printf("%d ranks from %d of %d at %s, key %u, of %lld\n", o.args.n_local,
               o.args.first_local, o.args.n_ranks, o.args.address, key,
               (long long)o.args.submitted_s);
        printf("sees GPUs \"%s\"\n", getenv("CUDA_VISIBLE_DEVICES"));
    }
    fflush(stdout);
    if (fake_does("nonsense", rank)) {
        if (send(RANK_SOCKET_FD, "nonsense", 8, 0) < 0) _exit(13);
        for (;;) pause();
    }
    if (o.args.task == TASK_RUN) fake_ring(&o.args);
    h->lastop[rank] = (struct rank_lastop){.step = 3,
                                           .layer = 2,
                                           .hop = 1,
                                           .purpose = PURPOSE_RING_KV,
                                           .peer = rank ? rank - 1 : o.args.n_ranks - 1,
                                           .n_ops = 100 - rank};
    if (fake_does("ok", rank)) {
        for (int64_t step = 1; step <= 3; step++) fake_step(rank, step);
        if (rank == 0) fake_event(rank, EV_ARTIFACT, "{\"name\":\"a.bin\"}");
        if (rank == 0) fake_send(rank, RANK_RESULT, "{\"loss\":1.5}", 12);
        printf("rank %d is done\n", rank);
        fflush(stdout);
        return 0;
    }
    if (fake_does("die", rank)) raise(SIGKILL);
    if (fake_does("fail", rank)) fake_fail(rank, ERR_INVALID, "the data is bad");
    if (fake_does("full", rank)) fake_fail(rank, ERR_NO_SPACE, "write x: No space left on device");
    if (fake_does("exit3", rank)) _exit(3);
    if (!strcmp(fake_plan, "save") && rank == 0) {
        fake_receive(RANK_SAVE, NULL, 0);
        fake_event(rank, EV_CHECKPOINT, "{}");
        _exit(RANK_EXIT_SAVED);
    }
    if (!strcmp(fake_plan, "serve") && rank == 0) fake_serve();
    if (fake_does("stop", rank)) raise(SIGSTOP);
    if (fake_does("deaf", rank))
        for (;;) pause();
    if (fake_does("fork", rank) && fork() == 0) { /* leaves a stray process when the rank exits */
        printf("stray %d\n", getpid());
        fflush(stdout);
        setsid();
        for (;;) pause();
    }
    fake_wait_abort(h, rank);
    char text[64];
    struct rank_msg head = {0};
    bool stopped = recv(RANK_SOCKET_FD, &head, sizeof head, MSG_DONTWAIT) == sizeof head &&
                   head.type == RANK_STOP;
    snprintf(text, sizeof text, stopped ? "stopped" : "rank %d is gone", (int)h->abort_rank);
    fake_fail(rank, stopped ? ERR_ABORTED : ERR_PEER, text);
    return 1;
}

#endif
