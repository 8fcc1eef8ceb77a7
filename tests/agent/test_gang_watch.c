/* test_gang_watch: tests the arithmetic and the messages of the watchdog for hangs. Also tests a
 * spool that is torn and damaged at every byte. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/process.h"
#include "api/core/spool.h"
#include "worker/gang/watch.h"
#include "tests/lib/test.h"

static struct watch_sample sample(int64_t n_ops, int64_t cpu_ms, char state)
{
    return (struct watch_sample){.op = {.step = 3,
                                        .layer = 2,
                                        .hop = 1,
                                        .purpose = PURPOSE_RING_DKV,
                                        .peer = 0,
                                        .n_ops = n_ops},
                                 .cpu_ms = cpu_ms,
                                 .state = state};
}

static void test_quiet(void)
{
    struct watch w = {0};
    struct watch_sample s[2] = {sample(5, 100, 'S'), sample(5, 100, 'S')};
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 0); /* the number of operations has changed from 0 to 5 */
    for (int i = 0; i < 3; i++) watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 3000);
    s[1].op.n_ops++; /* the progress of any rank counts */
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 0);
    /* while a rank computes and no operation ends, only a tenth of the time is counted */
    for (int i = 0; i < 10; i++) {
        s[0].cpu_ms += 1000;
        watch_tick(&w, s, 2, 1000);
    }
    CHECK(w.quiet_ms == 1000);
    s[0].cpu_ms += 40; /* 4 % of a core counts as waiting */
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 2000);
    s[1].state = 'D'; /* the rank waits for the disk, as during a checkpoint */
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 2100);
    for (int i = 0; i < 1000; i++) { /* an operation that computes for a quarter of an hour */
        s[0].cpu_ms += 1000;
        s[0].op.n_tasks++;
        watch_tick(&w, s, 2, 1000);
        CHECK(w.quiet_ms == 0);
    }
    watch_tick(&w, s, 2, 1000); /* after this, no operation is in progress */
    CHECK(w.quiet_ms > 0);
    s[1].state = 'S';
    for (int i = 0; i < 1000; i++) { /* rank 0 writes, but gets no CPU time on this machine */
        s[0].moved += 4096;
        watch_tick(&w, s, 2, 1000);
        CHECK(w.quiet_ms == 0);
    }
    s[0].moved = 0; /* the process has ended */
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 1000);
}

/* Checks a rank that is runnable but gets only 1 % of a core, because other processes use the
 * cores. It must not count as hung. */
static void test_starved(void)
{
    struct watch w = {0};
    struct watch_sample s[2] = {sample(5, 100, 'S'), sample(5, 100, 'S')};
    watch_tick(&w, s, 2, 1000);
    s[1].runnable = true;
    for (int i = 0; i < 100; i++) {
        s[1].cpu_ms += 10;
        watch_tick(&w, s, 2, 1000);
    }
    CHECK(w.quiet_ms == 10000);
    s[0].state = 'T'; /* this rank is stopped, and the other rank waits for it */
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 11000);
    s[0].state = 'S';
    s[1].runnable = false; /* this rank used the same processor time, but sleeps in between */
    s[1].cpu_ms += 10;
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 12000);
}

static void *spin(void *arg)
{
    static volatile bool on = true;
    while (on) continue;
    return arg;
}

/* Starts a child whose main thread waits. If `spins` is set, a second thread of the child
 * spins. */
static pid_t child_begin(bool spins)
{
    pthread_t t;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid) return pid;
    if (!spins || !pthread_create(&t, NULL, spin, NULL)) pause();
    _exit(1);
}

static void child_end(pid_t pid)
{
    CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
}

/* Checks that a process counts as runnable if any of its threads is runnable. A process that
 * sleeps, is stopped or has exited does not count as runnable. */
static void test_runnable(void)
{
    struct process_stat s;
    const pid_t spins = child_begin(true), waits = child_begin(false);
    while (process_runnable(waits)) sched_yield();
    while (!process_stat(spins, &s) && s.state != 'S') sched_yield();
    CHECK(s.state == 'S' && process_runnable(spins));
    CHECK(!kill(spins, SIGSTOP));
    while (process_runnable(spins)) sched_yield();
    CHECK(!process_stat(spins, &s) && s.state == 'T');
    child_end(spins);
    child_end(waits);
    CHECK(!process_runnable(spins) && process_runnable(getpid()));
}

/* Checks the counts of a real process. They must include its writes, and must not change while the
 * process sleeps. */
static void test_moved(void)
{
    char buf[8192] = "";
    const int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    const int64_t before = process_moved(getpid());
    CHECK(write(fd, buf, sizeof buf) == sizeof buf);
    const int64_t after = process_moved(getpid());
    /* before is 0 on a kernel without these counts */
    CHECK(!before || after >= before + (int64_t)sizeof buf);
    CHECK(process_moved(1 << 30) == 0);
    close(fd);
}

/* Checks a step on a GPU, which uses no CPU. Only a tenth of its time is counted. If a rank is
 * stopped, all of the time is counted. */
static void test_on_gpu(void)
{
    struct watch w = {0};
    struct watch_sample s[2] = {sample(5, 100, 'S'), sample(5, 100, 'S')};
    s[0].on_gpu = s[1].on_gpu = true;
    watch_tick(&w, s, 2, 1000);
    for (int i = 0; i < 10; i++) watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 1000);
    s[1].state = 'T';
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 2000);
    s[0].state = s[1].state = 'Z'; /* both ranks have ended */
    watch_tick(&w, s, 2, 1000);
    CHECK(w.quiet_ms == 3000);
}

static void test_behind(void)
{
    struct watch_sample s[3] = {sample(9, 0, 'S'), sample(7, 0, 'S'), sample(8, 0, 'S')};
    CHECK(watch_slowest(s, 3) == 1);
    s[2].state = 'T';
    CHECK(watch_slowest(s, 3) == 2);
    s[2].state = 'S';
    s[1].state = 'Z'; /* this rank has ended, so no rank waits for it */
    CHECK(watch_slowest(s, 3) == 2);
    s[0].state = s[2].state = 'Z';
    CHECK(watch_slowest(s, 3) == 0);
}

static void test_sentence(void)
{
    struct watch w = {.quiet_ms = 31000};
    struct watch_sample s[2] = {sample(9, 0, 'S'), sample(7, 0, 'S')};
    char text[512];
    watch_sentence(&w, s, 2, 4, text, sizeof text);
    CHECK_MSG(strstr(text,
                     "no rank has moved for 31 s; rank 5 is the slowest: step 3, layer 2, hop 1, "
                     "ring_dkv, awaiting rank 0, after 7 operations"),
              "%s", text);
    s[1].op.n_ops = 0;
    watch_where(&s[1].op, text, sizeof text);
    CHECK_STR(text, "before its first operation");
    s[1].op = (struct rank_lastop){
        .step = 8, .layer = -1, .hop = -1, .purpose = -1, .peer = -1, .n_ops = 3};
    watch_where(&s[1].op, text, sizeof text);
    CHECK_STR(text, "step 8, no transfer");
    s[1].op.purpose = 99; /* a value that a rank may have left there */
    watch_where(&s[1].op, text, sizeof text);
    CHECK_STR(text, "step 8, no transfer");
}

static char path[] = "/tmp/seqd-spool-XXXXXX";

static void spool_fill(int n)
{
    struct spool s;
    struct err e;
    unlink(path);
    CHECK_MSG(spool_open(&s, path, NULL, &e) == 0, "%s", e.text);
    for (int i = 0; i < n; i++) {
        char payload[32];
        int size = snprintf(payload, sizeof payload, "payload %d", i);
        CHECK(spool_add(&s, (struct rank_msg){.type = RANK_BLOB, .rank = i}, payload, (size_t)size,
                        i == 1, &e) == 0);
        CHECK(s.seq == i + 1);
    }
    spool_close(&s);
}

static int spool_count(void)
{
    static char record[SPOOL_RECORD_SIZE];
    struct spool s;
    struct err e;
    CHECK(spool_open_read(&s, path, &e) == 0);
    while (spool_next(&s, record, &e) > 0) {
        struct rank_msg head;
        memcpy(&head, record, sizeof head);
        CHECK(head.rank == s.seq - 1 && head.abi == RANK_ABI && head.type == RANK_BLOB);
    }
    int n = (int)s.seq;
    spool_close(&s);
    return n;
}

static void test_spool_torn(void)
{
    spool_fill(3);
    int fd = open(path, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    close(fd);
    int whole = 3;
    for (off_t cut = size; cut >= 0; cut--) {
        struct rank_msg last;
        struct spool s;
        struct err e;
        CHECK(truncate(path, cut) == 0);
        int n = spool_count();
        /* a record is complete or missing, and a missing record never comes back */
        CHECK(n == whole || n == whole - 1);
        whole = n;
        /* the spool continues after the complete records */
        CHECK(spool_open(&s, path, &last, &e) == 0);
        CHECK(s.seq == n && (n ? last.rank == n - 1 : last.type == 0));
        spool_close(&s);
    }
    CHECK(whole == 0);
}

static void test_spool_damaged(void)
{
    spool_fill(3);
    int fd = open(path, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    for (off_t at = 0; at < size; at++) {
        uint8_t byte;
        CHECK(pread(fd, &byte, 1, at) == 1);
        byte ^= 0x10;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        int n = spool_count();
        CHECK_MSG(n == at / (size / 3), "byte %lld: %d records", (long long)at, n);
        byte ^= 0x10;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
    }
    close(fd);
    CHECK(spool_count() == 3);
}

/* Runs in a child process whose file sizes are limited. Returns 0 if 64 failures and 65 exits can
 * still be written after the last step that fitted. */
static int spool_limited(void)
{
    static char steps[4000], fail[sizeof(struct rank_fail)];
    const struct rlimit limit = {4 * SPOOL_RESERVE, 4 * SPOOL_RESERVE};
    struct rank_exit x = {.rank = RANK_GANG};
    struct spool s;
    struct err e = {0};
    unlink(path);
    process_begin();
    if (setrlimit(RLIMIT_FSIZE, &limit) || spool_open(&s, path, NULL, &e)) return 1;
    while (!spool_add(&s, (struct rank_msg){.type = RANK_STEP}, steps, sizeof steps, false, &e))
        if (s.seq > 1000) return 2;
    if (e.code != ERR_TOO_LARGE || !strstr(e.text, "RLIMIT_FSIZE")) return 3;
    const int64_t seq = s.seq;
    for (int r = 0; r < 64; r++)
        if (spool_add(&s, (struct rank_msg){.type = RANK_FAIL}, fail, sizeof fail, false, &e))
            return 4;
    for (int r = 0; r < 65; r++)
        if (spool_add(&s, (struct rank_msg){.type = RANK_EXIT}, &x, sizeof x, true, &e)) return 5;
    spool_close(&s);
    const bool whole = !spool_open(&s, path, NULL, &e) && s.seq == seq + 129;
    spool_close(&s);
    return whole ? 0 : 6;
}

static void test_spool_limited(void)
{
    int status = -1;
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid) _exit(spool_limited());
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_MSG(WIFEXITED(status) && !WEXITSTATUS(status), "status %x", (unsigned)status);
}

static void test_spool_follow(void)
{
    static char record[SPOOL_RECORD_SIZE], big[SPOOL_RECORD_SIZE - sizeof(struct rank_msg)];
    struct spool w, r;
    struct err e;
    unlink(path);
    CHECK(spool_open_read(&r, path, &e) < 0 && e.code == ERR_NOT_FOUND);
    CHECK(spool_open(&w, path, NULL, &e) == 0);
    CHECK(spool_open_read(&r, path, &e) == 0);
    CHECK(spool_next(&r, record, &e) == 0);
    CHECK(spool_add(&w, (struct rank_msg){.type = RANK_READY, .rank = 0}, NULL, 0, false, &e) == 0);
    CHECK(spool_next(&r, record, &e) == sizeof(struct rank_msg) && r.seq == 1);
    CHECK(spool_next(&r, record, &e) == 0 && r.seq == 1);
    memset(big, 7, sizeof big);
    CHECK(spool_add(&w, (struct rank_msg){.type = RANK_RESULT}, big, sizeof big, false, &e) == 0);
    CHECK(spool_next(&r, record, &e) == SPOOL_RECORD_SIZE);
    CHECK(!memcmp(record + sizeof(struct rank_msg), big, sizeof big));
    spool_close(&r);
    spool_close(&w);
}

int main(void)
{
    int fd = mkstemp(path);
    assert(fd >= 0);
    close(fd);
    RUN(test_quiet);
    RUN(test_starved);
    RUN(test_runnable);
    RUN(test_moved);
    RUN(test_on_gpu);
    RUN(test_behind);
    RUN(test_sentence);
    RUN(test_spool_torn);
    RUN(test_spool_damaged);
    RUN(test_spool_limited);
    RUN(test_spool_follow);
    unlink(path);
    return test_done("watch");
}
