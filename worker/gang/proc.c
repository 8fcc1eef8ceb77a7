/* proc.c: forks seqrank with its socket, log and shared segment in fixed descriptors, records its
 * pid, and reaps it by a pidfd. */
#include "worker/gang/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/assert.h"
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/process.h"
#include "worker/gang/confine.h"

enum { SPARE_FD = 10 }; /* larger than every descriptor number that the child uses */

struct rank_child { /* the descriptors and settings of a rank */
    const char *program, *gpu;
    const cpu_set_t *cpus; /* NULL if it is not bound */
    const struct confine *confine;
    int sock, memfd, log_fd;
};

/* Called in the child, which becomes seqrank. All functions that are called here are safe
 * after the fork, because the parent has only one thread. */
static void child_exec(const struct rank_child *c, int gang_pid)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* This setting remains in force after the exec. If the gang has died before this call,
     * getppid no longer returns the gang's pid. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != gang_pid) _exit(127);
    /* Ignore SIGTERM and SIGINT. When a machine or a container ends, these signals are sent to
     * every process. Jobs must be able to save in that case, so only seqgang may end a rank. */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    setsid();
    const int sock = fcntl(c->sock, F_DUPFD, SPARE_FD);
    const int memfd = fcntl(c->memfd, F_DUPFD, SPARE_FD), log_fd = c->log_fd;
    int null_fd = open("/dev/null", O_RDONLY);
    if (sock < 0 || memfd < 0 || null_fd < 0) _exit(127);
    if (dup2(null_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
        dup2(log_fd, STDERR_FILENO) < 0 || dup2(sock, RANK_SOCKET_FD) < 0 ||
        dup2(memfd, RANK_MEMFD) < 0)
        _exit(127);
    /* the rules are in a descriptor, which must be open still */
    if (confine_enter(c->confine)) {
        dprintf(STDERR_FILENO, "cannot enter the sandbox: %s\n", strerror(errno));
        _exit(127);
    }
    closefrom(RANK_MEMFD + 1);
    /* Name the GPU by its UUID, because an index need not mean the same GPU in seqgang and in
     * the rank. For a rank without a GPU, the variable is empty, so that CUDA shows no GPU to
     * the rank. */
    if (setenv("CUDA_VISIBLE_DEVICES", c->gpu, 1) < 0) _exit(127);
    /* Ignore a failure. If these CPUs are no longer allowed, the rank can run on any allowed
     * CPU. */
    if (c->cpus) sched_setaffinity(0, sizeof *c->cpus, c->cpus);
    execl(c->program, "seqrank", (char *)NULL);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", c->program, strerror(errno));
    _exit(127);
}

static int pids_add(struct proc *p, const char *dir, struct err *e)
{
    char path[FILE_PATH_SIZE];
    struct process_stat s;
    if (process_stat(p->pid, &s) < 0) return err_errno(e, "/proc/%d/stat", p->pid);
    p->start_time = s.start_time;
    if (file_join(path, e, "%s/pids", dir) < 0) return -1;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return err_errno(e, "open %s", path);
    int n = dprintf(fd, "%d %d %lld\n", p->rank, p->pid, (long long)p->start_time);
    close(fd);
    return n < 0 ? err_errno(e, "write %s", path) : 0;
}

int proc_start(struct proc *p, int rank, const struct proc_start *s, struct err *e)
{
    const struct gang_start *start = s->record;
    const char *dir = s->dir;
    char path[FILE_PATH_SIZE];
    cpu_set_t cpus[JOB_MAX_RANKS];
    int pair[2], gang_pid = getpid();
    *p = (struct proc){.rank = rank, .pidfd = -1, .sock = -1};
    if (file_join(path, e, "%s/rank-%d.log", dir, rank) < 0) return -1;
    int log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0) return err_errno(e, "open %s", path);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        err_errno(e, "socketpair");
        close(log_fd);
        return -1;
    }
    const int i = rank - start->first_rank;
    const cpu_set_t *own = gang_cpus_read(dir, cpus, start->n_local) ? &cpus[i] : NULL;
    const struct rank_child c = {start->seqrank, start->gpus[i], own,   s->confine,
                                 pair[1],        s->memfd,       log_fd};
    p->pid = fork();
    if (p->pid == 0) child_exec(&c, gang_pid);
    int saved = errno;
    close(pair[1]);
    close(log_fd);
    p->sock = pair[0];
    errno = saved;
    if (p->pid < 0) return err_errno(e, "fork");
    p->pidfd = pidfd_open(p->pid, 0);
    if (p->pidfd < 0) return err_errno(e, "pidfd_open");
    return pids_add(p, dir, e);
}

int proc_send(struct proc *p, enum rank_msg_type type, const void *payload, size_t size)
{
    struct rank_msg head = {RANK_ABI, (uint32_t)type, p->rank, (uint32_t)size};
    struct iovec iov[2] = {{&head, sizeof head}, {(void *)payload, size}};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
    if (p->sock < 0) {
        errno = EBADF;
        return -1;
    }
    return sendmsg(p->sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -1 : 0;
}

int proc_send_args(struct proc *p, const struct gang_start *start, bool confined, struct err *e)
{
    struct {
        struct rank_args args;
        struct job_spec spec;
    } *m = calloc(1, sizeof *m);
    assert(m);
    static_assert(sizeof *m == sizeof m->args + sizeof m->spec,
                  "ARGS is the two, one after the other");
    m->args = (struct rank_args){.job = start->job,
                                 .epoch = start->epoch,
                                 .task = start->task,
                                 .rank = p->rank,
                                 .n_ranks = start->n_ranks,
                                 .first_local = start->first_rank,
                                 .n_local = start->n_local,
                                 .n_roots = start->n_roots,
                                 .n_grants = start->n_grants,
                                 .n_writable = start->n_writable,
                                 .memory_limit = start->memory_limit,
                                 .confined = confined,
                                 .shared = start->shared,
                                 .submitted_s = start->submitted_s};
    memcpy(m->args.address, start->address, sizeof m->args.address);
    memcpy(m->args.key, start->key, sizeof m->args.key);
    memcpy(m->args.roots, start->roots, sizeof m->args.roots);
    memcpy(m->args.writable, start->writable, sizeof m->args.writable);
    memcpy(m->args.grants, start->grants, sizeof m->args.grants);
    memcpy(m->args.prepared_dir, start->prepared_dir, sizeof m->args.prepared_dir);
    memcpy(m->args.prepared_id, start->prepared_id, sizeof m->args.prepared_id);
    memcpy(m->args.job_dir, start->job_dir, sizeof m->args.job_dir);
    m->spec = start->spec;
    int rc = proc_send(p, RANK_ARGS, m, sizeof *m);
    if (rc < 0 && (errno == EPIPE || errno == ECONNRESET)) rc = 0;
    if (rc < 0) err_errno(e, "send the arguments to rank %d", p->rank);
    explicit_bzero(m->args.key, sizeof m->args.key);
    free(m);
    return rc;
}

int64_t proc_receive(struct proc *p, void *buf, size_t size)
{
    if (p->sock < 0) return -1;
    ssize_t n;
    /* A rank that exits without having read RANK_STOP resets the connection. recv reports the
     * reset once, before it returns the bytes that the rank has sent. For this reason recv is
     * called again, so that the last messages of the rank are still read. */
    do n = recv(p->sock, buf, size, MSG_DONTWAIT | MSG_TRUNC);
    while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    return n < 0 && errno != EAGAIN ? 0 : n;
}

void proc_kill(struct proc *p)
{
    if (!p->gone && p->pid > 0)
        kill(p->pid, SIGKILL); /* the child is not reaped yet, so no other process has its pid */
}

struct rank_exit proc_reap(struct proc *p)
{
    int status = 0;
    pid_t pid;
    do pid = waitpid(p->pid, &status, 0);
    while (pid < 0 && errno == EINTR);
    assert(pid == p->pid);
    p->gone = true;
    return (struct rank_exit){.rank = p->rank,
                              .pid = p->pid,
                              .exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                              .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

void proc_close(struct proc *p)
{
    loop_fd_remove(p->on_exit);
    loop_fd_remove(p->on_message);
    p->on_exit = p->on_message = NULL;
    if (p->pidfd >= 0) close(p->pidfd);
    if (p->sock >= 0) close(p->sock);
    p->pidfd = p->sock = -1;
}

void proc_kill_strays(void)
{
    int pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0) {
        if (pid > 0) continue;
        char path[64];
        snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
        FILE *f = fopen(path, "re");
        if (!f) return; /* this kernel was built without the list of a process's children */
        while (fscanf(f, "%d", &pid) == 1) kill(pid, SIGKILL);
        fclose(f);
        waitpid(-1, NULL, 0);
    }
}
