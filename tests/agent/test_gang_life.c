/* test_gang_life: runs seqgang in a separate process with fake ranks, both through complete
 * attempts and through every kind of early end. The test plays the part of the agent: it connects,
 * sends commands and reads the spool.
 * tests: needs seqrank */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/process.h"
#include "api/core/spool.h"
#include "worker/gang/asked.h"
#include "worker/gang/gang.h"
#include "worker/gang/proc.h"
#include "tests/lib/fake_rank.h"
#include "tests/lib/test.h"

static char dir[FILE_PATH_SIZE];
static struct gang_start start;

static void dir_make(void)
{
    char template[] = "/tmp/seqd-gang-XXXXXX";
    assert(mkdtemp(template));
    /* The path is longer than a socket address may be. The socket must nevertheless work. */
    snprintf(dir, sizeof dir, "%s/%0*d", template, 120, 7);
    assert(file_make_dir(dir, NULL) == 0);
}

static void dir_remove(void)
{
    char *slash = strrchr(dir, '/');
    *slash = 0;
    assert(file_remove(dir, NULL) == 0);
}

static void start_fill(int n_ranks)
{
    memset(&start, 0, sizeof start);
    start.abi = RANK_ABI;
    start.task = TASK_RUN;
    start.job = 7;
    start.epoch = 2;
    start.n_ranks = start.n_local = n_ranks;
    start.spec.limits.init_timeout_s = 600;
    start.spec.limits.step_timeout_s = 600;
    start.spec.text_used = 1;
    ssize_t n = readlink("/proc/self/exe", start.seqrank, sizeof start.seqrank - 1);
    assert(n > 0);
}

static void start_write(void)
{
    char path[FILE_PATH_SIZE + 16];
    struct err e;
    snprintf(path, sizeof path, "%s/start", dir);
    CHECK_MSG(gang_start_write(path, &start, &e) == 0, "%s", e.text);
}

/* Starts the gang's process. Its exit status is 0 if the attempt is over, and 1 if it could not
 * begin. */
static pid_t gang_fork(const char *what)
{
    fflush(stdout);
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid > 0) return pid;
    struct err e = {0};
    setenv("FAKE_RANK", what, 1);
    struct loop *l = loop_create(NULL, NULL, &e);
    struct gang *g = gang_create(l, dir, &e);
    if (g) loop_run(l);
    gang_destroy(g);
    loop_destroy(l);
    exit(g ? 0 : e.code == ERR_CONFLICT ? 3 : 1);
}

static int agent_connect(void)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    int dir_fd = open(dir, O_PATH | O_DIRECTORY);
    snprintf(sun.sun_path, sizeof sun.sun_path, "/proc/self/fd/%d/sock", dir_fd);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    while (connect(fd, (struct sockaddr *)&sun, sizeof sun) < 0) usleep(1000);
    close(dir_fd);
    return fd;
}

static void agent_send(int fd, enum rank_msg_type type, const void *payload, size_t size)
{
    struct rank_msg head = {RANK_ABI, (uint32_t)type, RANK_GANG, (uint32_t)size};
    struct iovec iov[2] = {{&head, sizeof head}, {(void *)payload, size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    CHECK(sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)(sizeof head + size));
}

static void send_blobs(int fd, int n_ranks)
{
    struct rank_blob *blobs = calloc((size_t)n_ranks, sizeof *blobs);
    assert(blobs);
    /* the blobs are not in rank order, because the gang must sort them */
    for (int i = 0; i < n_ranks; i++) {
        struct rank_blob *b = &blobs[n_ranks - 1 - i];
        b->rank = i;
        b->size = snprintf(b->data, sizeof b->data, "blob of %d", i);
    }
    agent_send(fd, RANK_BLOBS, blobs, (size_t)n_ranks * sizeof *blobs);
    /* sent again, so it is ignored */
    agent_send(fd, RANK_BLOBS, blobs, (size_t)n_ranks * sizeof *blobs);
    free(blobs);
}

/* The content of the spool: counts of records by type, and the records that matter to the
 * tests. */
struct seen {
    int n[RANK_EXIT + 1], n_records;
    struct rank_fail fail; /* the first failure */
    int fail_rank, first_exit_rank, first_exit_signal, first_exit_status;
    bool fail_before_exit;
    int end; /* enum gang_end of the final record, or -1 before it */
    double last_loss;
};

static void seen_add(struct seen *v, const char *record, int64_t size)
{
    struct rank_msg head;
    struct rank_exit x;
    memcpy(&head, record, sizeof head);
    CHECK(v->end < 0); /* no record follows the final one */
    v->n[head.type]++;
    v->n_records++;
    if (head.type == RANK_FAIL && v->n[RANK_FAIL] == 1) {
        memcpy(&v->fail, record + sizeof head, sizeof v->fail);
        v->fail_rank = head.rank;
        v->fail_before_exit = v->n[RANK_EXIT] == 0;
    }
    if (head.type == RANK_STEP) {
        struct rank_step s;
        memcpy(&s, record + sizeof head, sizeof s);
        v->last_loss = s.loss;
    }
    if (head.type != RANK_EXIT) return;
    memcpy(&x, record + sizeof head, sizeof x);
    CHECK(x.rank == head.rank);
    if (v->n[RANK_EXIT] == 1) {
        v->first_exit_rank = x.rank;
        v->first_exit_signal = x.signal;
        v->first_exit_status = x.exit_status;
    }
    if (x.rank == RANK_GANG) v->end = x.exit_status;
}

static struct seen spool_read(void)
{
    static char record[SPOOL_RECORD_SIZE];
    struct seen v = {.end = -1, .fail_rank = -1};
    struct spool s;
    struct err e;
    char path[FILE_PATH_SIZE + 16];
    int64_t n;
    snprintf(path, sizeof path, "%s/spool", dir);
    CHECK_MSG(spool_open_read(&s, path, &e) == 0, "%s", e.text);
    while ((n = spool_next(&s, record, &e)) > 0) seen_add(&v, record, n);
    CHECK(n == 0);
    CHECK(s.seq == v.n_records);
    spool_close(&s);
    return v;
}

/* Reads bytes from the socket until the spool has n records of a type or the gang has closed the
 * socket. */
static void wait_records(int fd, enum rank_msg_type type, int n)
{
    char nudge[16];
    struct seen v;
    do v = spool_read();
    while (v.n[type] < n && recv(fd, nudge, sizeof nudge, 0) > 0);
    CHECK_MSG(v.n[type] >= n, "%d records of type %d, want %d", v.n[type], (int)type, n);
}

static int gang_wait(pid_t pid)
{
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid);
    return status;
}

/* Waits until no rank process whose pid the gang has written exists any longer, because a kill
 * takes a moment. */
static void ranks_are_gone(int n_want)
{
    char path[FILE_PATH_SIZE + 16];
    int rank, pid, n = 0;
    long long start_time;
    snprintf(path, sizeof path, "%s/pids", dir);
    FILE *f = fopen(path, "r");
    CHECK(f);
    while (f && fscanf(f, "%d %d %lld", &rank, &pid, &start_time) == 3) {
        n++;
        while (process_alive(pid, start_time)) usleep(1000);
    }
    if (f) fclose(f);
    CHECK_MSG(n == n_want, "%d pids, want %d", n, n_want);
}

static bool log_has(int rank, const char *text)
{
    char path[FILE_PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/rank-%d.log", dir, rank);
    char *log = file_read(path, 1 << 20, NULL, NULL);
    bool has = log && strstr(log, text);
    free(log);
    return has;
}

/* Runs an attempt of n ranks that ends by itself. The parameter `what` tells the fake ranks how to
 * behave. */
static struct seen whole_life(const char *what, int n_ranks)
{
    dir_make();
    start_fill(n_ranks);
    start.spec.limits.step_timeout_s = !strncmp(what, "stop", 4) ? 1 : 600;
    start_write();
    pid_t pid = gang_fork(what);
    int fd = agent_connect();
    wait_records(fd, RANK_BLOB, n_ranks);
    send_blobs(fd, n_ranks);
    CHECK(gang_wait(pid) == 0);
    close(fd);
    ranks_are_gone(n_ranks);
    return spool_read();
}

static void exit_file_says(enum gang_end how)
{
    char path[FILE_PATH_SIZE + 16];
    struct rank_exit x = {0};
    size_t size = 0;
    snprintf(path, sizeof path, "%s/exit", dir);
    char *data = file_read(path, 4096, &size, NULL);
    CHECK(data && size == sizeof x);
    if (data) memcpy(&x, data, sizeof x);
    CHECK(x.rank == RANK_GANG && x.exit_status == (int)how);
    free(data);
}

static void test_done_life(void)
{
    for (int n = 1; n <= 4; n += 3) {
        struct seen v = whole_life("ok", n);
        CHECK(v.n[RANK_BLOB] == n && v.n[RANK_READY] == n && v.n[RANK_STEP] == 3);
        CHECK(v.n[RANK_EVENT] == 1 && v.n[RANK_RESULT] == 1 && v.n[RANK_FAIL] == 0);
        CHECK(v.n[RANK_EXIT] == n + 1 && v.end == GANG_DONE);
        CHECK(v.last_loss == 5.0 / 3);
        exit_file_says(GANG_DONE);
        CHECK(log_has(n - 1, "is done"));
        /* The same directory cannot run an attempt twice. */
        pid_t pid = gang_fork("ok");
        CHECK(WEXITSTATUS(gang_wait(pid)) == 3);
        CHECK(spool_read().n_records == v.n_records);
        dir_remove();
    }
}

static void test_killed_rank(void)
{
    struct seen v = whole_life("die:1", 3);
    CHECK(v.first_exit_rank == 1 && v.first_exit_signal == SIGKILL);
    /* the failures that the ranks reported themselves */
    CHECK(v.n[RANK_FAIL] == 2 && !v.fail_before_exit);
    CHECK(v.fail.code == ERR_PEER);
    CHECK_STR(v.fail.text, "rank 1 is gone");
    CHECK(v.n[RANK_EXIT] == 4 && v.end == GANG_FAILED);
    exit_file_says(GANG_FAILED);
    dir_remove();
}

static void test_failed_rank(void)
{
    struct seen v = whole_life("fail:2", 3);
    CHECK(v.fail_rank == 2 && v.fail_before_exit && v.fail.code == ERR_INVALID);
    CHECK_STR(v.fail.text, "the data is bad");
    CHECK(v.end == GANG_FAILED && v.n[RANK_EXIT] == 4);
    dir_remove();
    v = whole_life("exit3:0", 2);
    CHECK(v.first_exit_rank == 0 && v.first_exit_status == 3 && v.end == GANG_FAILED);
    dir_remove();
    v = whole_life("exit3", 1);
    CHECK(v.first_exit_status == 3 && v.n[RANK_EXIT] == 2 && v.end == GANG_FAILED);
    dir_remove();
}

static void test_hang(void)
{
    struct seen v = whole_life("stop:1", 3);
    CHECK(v.fail_before_exit && v.fail_rank == 1 && v.fail.code == ERR_TIMEOUT);
    CHECK_MSG(strstr(v.fail.text,
                     "rank 1 is the slowest (its process is stopped): step 3, layer 2, hop 1, "
                     "ring_kv, awaiting rank 0"),
              "%s", v.fail.text);
    CHECK(v.end == GANG_FAILED && v.fail.reached == 1);
    CHECK(log_has(0, "hang: rank 0 (S): step 3, layer 2, hop 1, ring_kv, awaiting rank 2"));
    CHECK(log_has(1, "hang: rank 1 (T)"));
    dir_remove();
}

/* Checks a hang if other nodes have ranks, too. The gangs of these nodes must get time to name
 * their slowest rank. */
static void test_hang_of_part(void)
{
    dir_make();
    start_fill(4);
    start.first_rank = 2, start.n_local = 2;
    start.spec.limits.step_timeout_s = 1;
    start_write();
    pid_t pid = gang_fork("wait");
    int fd = agent_connect();
    wait_records(fd, RANK_BLOB, 2);
    send_blobs(fd, 4);
    wait_records(fd, RANK_FAIL, 1);
    struct seen v = spool_read();
    CHECK(v.fail_rank == 3 && v.fail.code == ERR_TIMEOUT && v.fail.reached == 2 + 97);
    CHECK(v.n[RANK_EXIT] == 0);
    agent_send(fd, RANK_STOP, NULL, 0); /* seqd has decided */
    CHECK(gang_wait(pid) == 0);
    close(fd);
    v = spool_read();
    CHECK(v.end == GANG_STOPPED && v.n[RANK_EXIT] == 3);
    dir_remove();
}

static void test_stop(void)
{
    dir_make();
    start_fill(2);
    start_write();
    pid_t pid = gang_fork("wait");
    int fd = agent_connect();
    wait_records(fd, RANK_BLOB, 2);
    /* If the agent dies and is started again, the ranks are not affected. */
    close(fd);
    fd = agent_connect();
    send_blobs(fd, 2);
    wait_records(fd, RANK_READY, 2);
    agent_send(fd, RANK_STOP, NULL, 0);
    agent_send(fd, RANK_STOP, NULL, 0);
    CHECK(gang_wait(pid) == 0);
    close(fd);
    struct seen v = spool_read();
    CHECK(v.fail.code == ERR_ABORTED && v.n[RANK_FAIL] == 2 && v.end == GANG_STOPPED);
    exit_file_says(GANG_STOPPED);
    ranks_are_gone(2);
    dir_remove();
}

/* Checks that SAVE is passed to every rank once. When rank 0 has saved its state and exited, the
 * other ranks are told to stop. Their exit statuses must not change the result. */
static void test_save(void)
{
    dir_make();
    start_fill(2);
    start_write();
    pid_t pid = gang_fork("save");
    int fd = agent_connect();
    wait_records(fd, RANK_BLOB, 2);
    send_blobs(fd, 2);
    wait_records(fd, RANK_READY, 2);
    agent_send(fd, RANK_SAVE, NULL, 0);
    agent_send(fd, RANK_SAVE, NULL, 0);
    CHECK(gang_wait(pid) == 0);
    close(fd);
    struct seen v = spool_read();
    CHECK_MSG(v.end == GANG_SAVED, "%d", v.end);
    CHECK(v.n[RANK_EVENT] == 1 && v.first_exit_rank == 0 && v.first_exit_signal == 0);
    CHECK(v.first_exit_status == RANK_EXIT_SAVED && v.n[RANK_FAIL] == 1);
    exit_file_says(GANG_SAVED);
    ranks_are_gone(2);
    dir_remove();
}

/* Checks that the exit status for a saved state is a failure if SAVE was not sent. */
/* ---- requests of a job that serves ----------------------------------------------------------- */

static void ask(int fd, uint64_t id, const char *body, size_t size)
{
    static struct {
        struct rank_ask head;
        char body[RANK_PIECE_SIZE];
    } a;
    a.head = (struct rank_ask){.id = id, .flags = RANK_ASK_LAST, .size = (int32_t)size};
    memcpy(a.body, body, size);
    agent_send(fd, RANK_ASK, &a, sizeof a.head + size);
}

/* Starts a gang whose rank 0 serves. */
static int serve_begin(int n_ranks, pid_t *pid)
{
    dir_make();
    start_fill(n_ranks);
    start.spec.kind = JOB_SERVE;
    start_write();
    *pid = gang_fork("serve");
    const int fd = agent_connect();
    wait_records(fd, RANK_BLOB, n_ranks);
    send_blobs(fd, n_ranks);
    wait_records(fd, RANK_READY, n_ranks);
    return fd;
}

/* Waits until rank 0 is stopped. Returns its pid. */
static pid_t wait_stopped(void)
{
    char path[FILE_PATH_SIZE + 16];
    struct process_stat stat = {0};
    int rank = -1, pid = 0;
    snprintf(path, sizeof path, "%s/pids", dir);
    FILE *f = fopen(path, "r");
    while (f && rank && fscanf(f, "%d %d %*d", &rank, &pid) == 2) {
    }
    if (f) fclose(f);
    while (stat.state != 'T' && process_stat(pid, &stat) == 0) usleep(1000);
    CHECK(!rank && stat.state == 'T');
    return pid;
}

/* Checks a STOP that comes while the socket of rank 0 is full of requests: it gets the STOP after
 * them. */
static void test_queued_stop(void)
{
    static char body[RANK_PIECE_SIZE];
    pid_t pid;
    const int fd = serve_begin(2, &pid);
    memset(body, 'x', sizeof body);
    memcpy(body, "hold", 4);
    ask(fd, 1, "pause", 5);
    for (uint64_t id = 2; id < 40; id++) ask(fd, id, body, sizeof body);
    const pid_t rank = wait_stopped();
    agent_send(fd, RANK_STOP, NULL, 0);
    wait_records(fd, RANK_FAIL, 1); /* rank 1 has its STOP */
    kill(rank, SIGCONT);
    CHECK(gang_wait(pid) == 0);
    close(fd);
    const struct seen v = spool_read();
    CHECK(v.n[RANK_FAIL] == 2 && v.fail.code == ERR_ABORTED && v.end == GANG_STOPPED);
    dir_remove();
}

/* Checks that the agent gets the answers that rank 0 has sent before its end, although they are
 * more than the socket has room for. */
static void test_last_answers(void)
{
    enum { N = 40 };
    static char body[RANK_PIECE_SIZE],
        packet[sizeof(struct rank_msg) + sizeof(struct rank_answer) + RANK_PIECE_SIZE];
    struct seen v;
    pid_t pid;
    int n_answers = 0;
    const int fd = serve_begin(1, &pid);
    memset(body, 'x', sizeof body);
    for (uint64_t id = 0; id < N; id++) ask(fd, id, body, sizeof body);
    agent_send(fd, RANK_SAVE, "why", 4);
    do v = spool_read();
    while (!v.n[RANK_EXIT]);
    for (ssize_t n; (n = recv(fd, packet, sizeof packet, 0)) > 0;) n_answers += n == sizeof packet;
    CHECK_MSG(n_answers == N, "%d answers", n_answers);
    CHECK(gang_wait(pid) == 0);
    close(fd);
    CHECK(spool_read().end == GANG_SAVED);
    dir_remove();
}

/* The ends of the sockets of a struct asked that the test reads. */
struct ends {
    struct asked a;
    int rank[2], agent[2];
};

static void take(struct ends *t, uint64_t id)
{
    const struct rank_ask ask = {.id = id, .flags = RANK_ASK_LAST};
    const struct rank_msg head = {.type = RANK_ASK, .size = sizeof ask};
    asked_take(&t->a, &head, &ask);
}

/* Checks the next packet to rank 0, and that it is of this request. */
static void rank_gets(const struct ends *t, enum rank_msg_type type, uint64_t id)
{
    struct {
        struct rank_msg head;
        struct rank_ask ask; /* a DROP has its id alone */
    } got = {0};
    CHECK(recv(t->rank[1], &got, sizeof got, MSG_DONTWAIT) > 0);
    CHECK(got.head.type == (uint32_t)type && got.ask.id == id);
}

static void agent_gets_lost(const struct ends *t, uint64_t id)
{
    struct {
        struct rank_msg head;
        struct rank_answer answer;
    } got;
    CHECK(recv(t->agent[1], &got, sizeof got, MSG_DONTWAIT) == sizeof got);
    CHECK(got.head.type == RANK_ANSWER && got.answer.id == id && got.answer.status == 503);
    CHECK(got.answer.flags == RANK_ANSWER_LAST && !got.answer.size);
}

/* Checks that open requests are lost while the ranks stand still, and further ones, too. */
static void test_standing(void)
{
    struct err e;
    struct loop *l = loop_create(NULL, NULL, &e);
    struct ends t;
    char rest;
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, t.rank));
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, t.agent));
    asked_init(&t.a);
    CHECK(!asked_rank(&t.a, l, t.rank[0]) && !asked_agent(&t.a, l, t.agent[0]));
    take(&t, 1);
    rank_gets(&t, RANK_ASK, 1);
    asked_stand(&t.a, true);
    agent_gets_lost(&t, 1);
    rank_gets(&t, RANK_DROP, 1);
    take(&t, 2);
    agent_gets_lost(&t, 2);
    rank_gets(&t, RANK_DROP, 2);
    asked_stand(&t.a, false);
    take(&t, 3);
    rank_gets(&t, RANK_ASK, 3);
    CHECK(t.a.n == 1 && recv(t.agent[1], &rest, 1, MSG_DONTWAIT) < 0);
    asked_fini(&t.a);
    loop_destroy(l);
    for (int i = 0; i < 2; i++) close(t.rank[i]), close(t.agent[i]);
}

static void test_saved_unasked(void)
{
    struct seen v = whole_life("exit3", 1);
    CHECK_MSG(v.end == GANG_FAILED && v.first_exit_status == RANK_EXIT_SAVED, "%d", v.end);
}

/* Checks a rank that exits without having read a STOP, so that the kernel resets its socket. The
 * rank's earlier messages must not be lost. */
static void test_last_words(void)
{
    int pair[2];
    char buf[16];
    struct proc p = {.pidfd = -1};
    assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    p.sock = pair[0];
    CHECK(proc_send(&p, RANK_STOP, NULL, 0) == 0);
    assert(send(pair[1], "why", 3, 0) == 3);
    close(pair[1]);
    CHECK(proc_receive(&p, buf, sizeof buf) == 3 && !memcmp(buf, "why", 3));
    CHECK(proc_receive(&p, buf, sizeof buf) == 0);
    close(p.sock);
}

/* Checks a rank that exits before its arguments are sent. The report must name the exit status as
 * the reason, and not the broken pipe. */
static void test_early_exit(void)
{
    int pair[2];
    struct err e = {0};
    struct proc p = {.pidfd = -1};
    assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    p.sock = pair[0];
    close(pair[1]);
    start_fill(1);
    CHECK_MSG(proc_send_args(&p, &start, false, &e) == 0, "%s", e.text);
    close(p.sock);
    p.sock = -1;
    CHECK(proc_send_args(&p, &start, false, &e) == -1 && *e.text);
    dir_make();
    snprintf(start.seqrank, sizeof start.seqrank, "/bin/false");
    start_write();
    CHECK(gang_wait(gang_fork("ok")) == 0);
    struct seen v = spool_read();
    CHECK(v.first_exit_rank == 0 && v.first_exit_status == 1);
    CHECK(v.n[RANK_FAIL] == 0 && v.end == GANG_FAILED);
    dir_remove();
}

/* Checks two ranks, of which one fails. The other rank neither reads its socket nor exits, and
 * must be killed after the grace period. */
static void test_deaf_rank(void)
{
    dir_make();
    start_fill(2);
    start_write();
    pid_t pid = gang_fork("deaf:0");
    int fd = agent_connect();
    wait_records(fd, RANK_BLOB, 2);
    send_blobs(fd, 2);
    wait_records(fd, RANK_READY, 2);
    agent_send(fd, RANK_STOP, NULL, 0);
    CHECK(gang_wait(pid) == 0);
    close(fd);
    struct seen v = spool_read();
    CHECK(v.n[RANK_FAIL] == 1 && v.fail_rank == 1 && v.n[RANK_EXIT] == 3 && v.end == GANG_STOPPED);
    ranks_are_gone(2);
    dir_remove();
}

static void test_nonsense(void)
{
    dir_make();
    start_fill(1);
    start_write();
    CHECK(gang_wait(gang_fork("nonsense")) == 0);
    struct seen v = spool_read();
    CHECK(v.fail.code == ERR_PEER && v.fail_rank == 0 && v.end == GANG_FAILED);
    CHECK_MSG(strstr(v.fail.text, "8 bytes"), "%s", v.fail.text);
    dir_remove();
}

static void test_orphan(void)
{
    dir_make();
    start_fill(2);
    start.task = TASK_PREPARE; /* there is no rendezvous, so the ranks wait immediately */
    start.orphan_ms = 1;
    start_write();
    CHECK(gang_wait(gang_fork("wait")) == 0); /* no agent connects */
    struct seen v = spool_read();
    CHECK(v.end == GANG_ORPHANED && v.n[RANK_EXIT] == 3);
    dir_remove();
}

static void test_killed_gang(void)
{
    dir_make();
    start_fill(3);
    start_write();
    pid_t pid = gang_fork("wait");
    int fd = agent_connect();
    wait_records(fd, RANK_BLOB, 3);
    send_blobs(fd, 3);
    wait_records(fd, RANK_READY, 3);
    kill(pid, SIGKILL);
    CHECK(WTERMSIG(gang_wait(pid)) == SIGKILL);
    ranks_are_gone(3);
    char nudge[4];
    /* the agent sees the end of the connection, too */
    while (recv(fd, nudge, sizeof nudge, 0) > 0) continue;
    close(fd);
    struct seen v = spool_read();
    CHECK(v.end == -1 && v.n[RANK_READY] == 3);
    /* ranks have run here, so the directory is never used again */
    CHECK(WEXITSTATUS(gang_wait(gang_fork("ok"))) == 3);
    dir_remove();
}

static void test_strays(void)
{
    dir_make();
    start_fill(1);
    start.task = TASK_PREPARE;
    start_write();
    pid_t pid = gang_fork("fork");
    int fd = agent_connect();
    while (!log_has(0, "stray ")) usleep(1000);
    char path[FILE_PATH_SIZE + 16];
    snprintf(path, sizeof path, "%s/rank-0.log", dir);
    char *log = file_read(path, 1 << 20, NULL, NULL);
    int stray = log ? atoi(strstr(log, "stray ") + 6) : 0;
    free(log);
    struct process_stat before;
    CHECK(stray > 0 && process_stat(stray, &before) == 0);
    agent_send(fd, RANK_STOP, NULL, 0);
    CHECK(gang_wait(pid) == 0);
    close(fd);
    CHECK(!process_alive(stray, before.start_time));
    CHECK(spool_read().end == GANG_STOPPED);
    dir_remove();
}

static void test_bad_start(void)
{
    dir_make();
    start_fill(1);
    snprintf(start.seqrank, sizeof start.seqrank, "/nowhere/seqrank");
    start_write();
    CHECK(WEXITSTATUS(gang_wait(gang_fork("ok"))) == 1);
    struct seen v = spool_read();
    CHECK(v.end == GANG_FAILED && v.n[RANK_FAIL] == 1);
    CHECK_MSG(strstr(v.fail.text, "/nowhere/seqrank"), "%s", v.fail.text);
    dir_remove();
    dir_make();
    start_fill(1);
    start.n_ranks = 99;
    start_write();
    CHECK(WEXITSTATUS(gang_wait(gang_fork("ok"))) == 1);
    v = spool_read();
    CHECK(v.end == GANG_FAILED && v.fail.code == ERR_CORRUPT);
    dir_remove();
}

/* Checks a start that fails in a gang that cannot write to any file. The gang must end without a
 * record, and must not end by a signal. */
static void test_bad_start_unsaid(void)
{
    struct rlimit before, none;
    dir_make();
    start_fill(1);
    snprintf(start.seqrank, sizeof start.seqrank, "/nowhere/seqrank");
    start_write();
    assert(getrlimit(RLIMIT_FSIZE, &before) == 0);
    none = (struct rlimit){0, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    fflush(stdout);
    assert(setrlimit(RLIMIT_FSIZE, &none) == 0);
    const pid_t pid = gang_fork("ok");
    assert(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, handler);
    const int status = gang_wait(pid);
    CHECK_MSG(WIFEXITED(status) && WEXITSTATUS(status) == 1, "status %d", status);
    CHECK(spool_read().n_records == 0);
    dir_remove();
}

/* Checks that a start record has the size that version 0.2.0 accepts. If the version in the record
 * is a different one, a running gang must be adopted, but no gang must be begun. */
static void test_start_record(void)
{
    char path[FILE_PATH_SIZE + 16];
    struct err e;
    size_t size;
    bool whole = false;
    dir_make();
    start_fill(2);
    start.n_grants = 1;
    start_write();
    snprintf(path, sizeof path, "%s/start", dir);
    char *data = file_read(path, 1 << 20, &size, &e);
    CHECK(data && size == 94368);
    struct gang_start *got = gang_start_read(path, &whole, &e);
    CHECK(got && whole && got->n_grants == 1 && got->n_local == 2);
    free(got);
    snprintf(data + offsetof(struct gang_start, version), 8, "0.2.0");
    CHECK(file_write(path, data, size, &e) == 0);
    got = gang_start_read(path, &whole, &e);
    CHECK(got && !whole && got->job == 7 && got->n_local == 2);
    free(got);
    int status = 0;
    CHECK(waitpid(gang_fork("ok"), &status, 0) > 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    data[0]++; /* another ABI */
    CHECK(file_write(path, data, size, &e) == 0);
    CHECK(!gang_start_read(path, &whole, &e) && e.code == ERR_CORRUPT);
    data[0]--;
    CHECK(file_write(path, data, size - 1, &e) == 0);
    CHECK(!gang_start_read(path, &whole, &e) && e.code == ERR_CORRUPT);
    free(data);
    dir_remove();
}

int main(int argc, char **argv)
{
    if (fake_rank_is(argv)) return fake_rank_main();
    alarm(300); /* only ends a test that would hang */
    RUN(test_done_life);
    RUN(test_killed_rank);
    RUN(test_failed_rank);
    RUN(test_hang);
    RUN(test_hang_of_part);
    RUN(test_stop);
    RUN(test_save);
    RUN(test_queued_stop);
    RUN(test_last_answers);
    RUN(test_standing);
    RUN(test_saved_unasked);
    RUN(test_last_words);
    RUN(test_early_exit);
    RUN(test_deaf_rank);
    RUN(test_nonsense);
    RUN(test_orphan);
    RUN(test_killed_gang);
    RUN(test_strays);
    RUN(test_bad_start);
    RUN(test_bad_start_unsaid);
    RUN(test_start_record);
    return test_done("gang");
}
