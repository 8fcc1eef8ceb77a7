/* cluster.c: starts the coordinator and the nodes of one `seqd run`. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/clock.h"
#include "daemon/run/one_run.h"
#include "daemon/run/run.h"

enum {
    SEQD_MS = 60000,
    PORTS = 3, /* ports to try */
    TOKEN_SIZE = 512,
};

/* ---- the coordinator ------------------------------------------------------------------------- */

static bool answers(const struct one_run *r)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", r->url + strlen("unix:"));
    const bool yes = fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a);
    if (fd >= 0) close(fd);
    return yes;
}

/* Chooses a port that is free at this moment. */
static int choose_port(struct one_run *r, struct err *e)
{
    const bool v6 = strchr(r->o.address, ':');
    struct sockaddr_storage a = {.ss_family = v6 ? AF_INET6 : AF_INET};
    socklen_t size = sizeof a;
    const int fd = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, v6 ? 28 : 16) ||
        getsockname(fd, (struct sockaddr *)&a, &size)) {
        err_errno(e, "find a free port");
        if (fd >= 0) close(fd);
        return -1;
    }
    /* the port, which has the same offset in both families */
    const unsigned char *port = (const unsigned char *)&a + 2;
    snprintf(r->nodes, sizeof r->nodes, "%d", port[0] << 8 | port[1]);
    close(fd);
    return 0;
}

/* Writes the address on which seqd listens for nodes. Rank 0 listens on all addresses of this
 * machine, at a port that all ranks know, so a port that is in use is an error. */
static int listen_address(struct one_run *r, char *out, size_t size, struct err *e)
{
    const bool v6 = strchr(r->o.address, ':');
    if (r->o.node_rank == 0) {
        const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0) close(fd);
        snprintf(out, size, "%s:%d", fd >= 0 ? "[::]" : "0.0.0.0", r->o.port);
        if (!address_free_check(out, e)) return 0;
        return err_prefix(e, "rank 0 cannot listen: give another port, as --master %s:%d",
                          r->o.host, r->o.port + 1);
    }
    if (r->o.nodes > 1 && choose_port(r, e)) return -1;
    if (r->o.nodes > 1)
        snprintf(out, size, "%s%s%s:%s", v6 ? "[" : "", *r->o.address ? r->o.address : "0.0.0.0",
                 v6 ? "]" : "", r->nodes);
    else
        snprintf(out, size, "%s", r->nodes);
    return 0;
}

static int try_seqd(struct one_run *r, struct err *e)
{
    char program[FILE_PATH_SIZE], config[96], state[FILE_PATH_SIZE], listen[224], n_keyed[24];
    if (listen_address(r, listen, sizeof listen, e)) return -1;
    snprintf(config, sizeof config, "%s/none.toml", r->dir);
    if (file_join(program, e, "%s/seqd", r->bin) || file_join(state, e, "%s/seqd", r->state))
        return -1;
    snprintf(n_keyed, sizeof n_keyed, "%lld", (long long)r->o.nodes - 1);
    const bool keyed = r->o.node_rank == 0;
    char *const argv[] = {program,
                          "--config",
                          config,
                          "--state",
                          state,
                          "--listen",
                          "127.0.0.1:0",
                          "--socket",
                          r->url + strlen("unix:"),
                          "--node-address",
                          listen,
                          keyed ? "--join-key" : NULL,
                          r->key,
                          "--join-key-nodes",
                          n_keyed,
                          NULL};
    if (run_start_logged(r, SEQD, RUN_END, "seqd", argv, -1, e)) return -1;
    const int64_t until_ms = clock_ms() + SEQD_MS;
    while (!answers(r) && children_runs(&r->c, SEQD) && !r->c.signal && clock_ms() < until_ms)
        children_wait(&r->c, 20);
    return 0;
}

int run_start_seqd(struct one_run *r, struct err *e)
{
    for (int n = 0; n < (r->o.nodes > 1 && r->o.node_rank < 0 ? PORTS : 1); n++) {
        if (try_seqd(r, e)) return -1;
        if (r->c.signal || (children_runs(&r->c, SEQD) && answers(r))) return 0;
        children_stop(&r->c, SEQD, STOP_MS);
    }
    run_say_log(r, "seqd");
    return err_set(e, ERR_IO, "the coordinator does not start: its log is above");
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* A script that srun starts on each node. It reads the token from stdin, because other users
 * could see an argument or an environment variable. At the end of stdin the script stops seqw. If
 * srun stopped the script, it would use SIGKILL. If all processes get a SIGTERM, only seqw acts
 * on it, and ends. Without --state the node's directory is temporary, too. $1 is seqw, $2 is the
 * port, $3 is the host or "", and $4 is the state directory or "". The options of seqw follow. */
static char agent_script[] =
    "umask 077; seqw=$1 port=$2 host=${3:-$SLURM_LAUNCH_NODE_IPADDR} state=$4 pid=; shift 4\n"
    "dir=$(mktemp -d \"${TMPDIR:-/tmp}/seqd-run.XXXXXX\") || exit 1\n"
    "trap 'rm -rf \"$dir\"' EXIT; trap : TERM INT HUP\n"
    "IFS= read -r token || exit 1\n"
    "printf '%s\\n' \"$token\" >\"$dir/token\"; : >\"$dir/none.toml\"\n"
    "case $host in *:*) host=\"[$host]\" ;; esac\n"
    "\"$seqw\" --config \"$dir/none.toml\" --auto --connect \"$host:$port\""
    " --name \"node$SLURM_NODEID\" --state \"${state:-$dir}/node$SLURM_NODEID\""
    " --join-token-file \"$dir/token\" \"$@\" </dev/null &\n"
    "pid=$!; exec 3<&0\n"
    "(while read -r _; do :; done; kill -INT $pid 2>/dev/null) <&3 &\n"
    "ear=$!; wait $pid; rc=$?\n"
    "while kill -0 $pid 2>/dev/null; do wait $pid; rc=$?; done\n"
    "kill $ear 2>/dev/null; exit $rc\n";

void run_agent_words(const struct one_run *r, char **argv, int n)
{
    static char slots[24];
    snprintf(slots, sizeof slots, "%lld", (long long)r->o.slots);
    if (r->o.slots) argv[n++] = "--slots", argv[n++] = slots;
    argv[n++] = "--sandbox", argv[n++] = (char *)r->o.sandbox;
    if (*r->o.interface) argv[n++] = "--interface", argv[n++] = (char *)r->o.interface;
    for (int i = 0; i < r->o.root.n; i++)
        argv[n++] = "--root", argv[n++] = (char *)r->o.root.text[i];
    argv[n] = NULL;
}

static int start_local(struct one_run *r, struct err *e)
{
    char program[FILE_PATH_SIZE], config[96], state[FILE_PATH_SIZE];
    snprintf(config, sizeof config, "%s/none.toml", r->dir);
    if (file_join(program, e, "%s/seqw", r->bin)) return -1;
    if (file_join(state, e, "%s/nodes/node0", r->state)) return -1;
    char *argv[32 + 2 * OPTION_LIST] = {program,     "--config", config,        "--auto",
                                        "--connect", r->nodes,   "--name",      "node0",
                                        "--state",   state,      "--orphan-ms", "60000"};
    run_agent_words(r, argv, 12);
    return run_start_logged(r, AGENTS, RUN_END, "nodes", argv, -1, e);
}

/* Asks the coordinator for a token. */
static int ask_token(struct one_run *r, const char *names, int64_t n, char token[TOKEN_SIZE],
                     struct err *e)
{
    char uses[24];
    snprintf(uses, sizeof uses, "%lld", (long long)n);
    if (!run_ask(r, token, TOKEN_SIZE,
                 WORDS("-q", "nodes", "token", "--names", names, "--uses", uses, "--ttl", "1h")))
        return 0;
    return err_set(e, ERR_IO, "the coordinator gives no token for nodes: %s/seqd.log says more",
                   r->state);
}

/* Starts rank 0's own agent, which joins by a token, because the key is for the other ranks. */
static int start_first(struct one_run *r, struct err *e)
{
    char program[FILE_PATH_SIZE], config[96], state[FILE_PATH_SIZE], token[TOKEN_SIZE], path[96];
    snprintf(config, sizeof config, "%s/none.toml", r->dir);
    snprintf(path, sizeof path, "%s/token", r->dir);
    if (file_join(program, e, "%s/seqw", r->bin)) return -1;
    if (file_join(state, e, "%s/nodes/rank-0", r->state)) return -1;
    if (ask_token(r, "rank-0", 1, token, e) || file_write_private(path, token, strlen(token), e))
        return -1;
    explicit_bzero(token, sizeof token);
    char *argv[40 + 2 * OPTION_LIST] = {
        program,       "--config", config,    "--auto", "--connect",         r->nodes,
        "--name",      "rank-0",   "--state", state,    "--join-token-file", path,
        "--orphan-ms", "60000"};
    run_agent_words(r, argv, 14);
    return run_start_logged(r, AGENTS, RUN_END, "nodes", argv, -1, e);
}

/* Writes the token into a pipe, from which srun reads it later. */
static int token_pipe(struct one_run *r, struct err *e)
{
    char token[TOKEN_SIZE];
    int fd[2];
    if (ask_token(r, "node*", r->o.nodes, token, e)) return -1;
    const ssize_t n = (ssize_t)strlen(token);
    if (pipe2(fd, O_CLOEXEC)) return err_errno(e, "make a pipe");
    const bool bad = write(fd[1], token, (size_t)n) != n;
    explicit_bzero(token, sizeof token);
    r->ear = fd[1];
    if (!bad) return fd[0];
    close(fd[0]);
    return err_set(e, ERR_IO, "the token for nodes could not be passed on");
}

static int start_everywhere(struct one_run *r, struct err *e)
{
    char program[FILE_PATH_SIZE], state[FILE_PATH_SIZE] = "", nodes[32], tasks[32];
    if (file_join(program, e, "%s/seqw", r->bin)) return -1;
    if (*r->o.state && file_join(state, e, "%s/nodes", r->state)) return -1;
    const int in = token_pipe(r, e);
    if (in < 0) return -1;
    snprintf(nodes, sizeof nodes, "--nodes=%lld", (long long)r->o.nodes);
    snprintf(tasks, sizeof tasks, "--ntasks=%lld", (long long)r->o.nodes);
    /* Run one task on each node, and give it all of the job's share of that node. */
    char *argv[48 + 2 * OPTION_LIST] = {
        "srun",    nodes,        tasks, "--ntasks-per-node=1", "--overlap", "--cpu-bind=none",
        "--label", "sh",         "-c",  agent_script,          "seqw",      program,
        r->nodes,  r->o.address, state, "--orphan-ms",         "60000"};
    run_agent_words(r, argv, 17);
    const int rc = run_start_logged(r, AGENTS, SIGTERM, "nodes", argv, in, e);
    close(in);
    return rc;
}

int run_start_nodes(struct one_run *r, struct err *e)
{
    if (r->o.node_rank == 0) return start_first(r, e);
    return r->o.nodes > 1 ? start_everywhere(r, e) : start_local(r, e);
}

/* The output of seqctl has one line for each node, and may be long. */
int64_t run_nodes_up(struct one_run *r)
{
    char program[FILE_PATH_SIZE], *argv[CTL_WORDS], *line = NULL;
    size_t size = 0;
    int64_t n = 0;
    FILE *f;
    run_ctl_words(r, program, argv, WORDS("nodes", "-o", "jsonl"));
    const int rc = run_program(r, argv, &f);
    while (f && !rc && getline(&line, &size, f) > 0) n += strstr(line, "\"state\": \"up\"") != NULL;
    free(line);
    if (f) fclose(f);
    return f && !rc ? n : -1;
}

int run_wait_nodes(struct one_run *r, struct err *e)
{
    const int64_t until_ms = clock_ms() + r->o.wait_s * 1000;
    int64_t n = 0;
    while (!r->c.signal && children_runs(&r->c, AGENTS) && children_runs(&r->c, SEQD)) {
        if ((n = run_nodes_up(r)) >= r->o.nodes || clock_ms() > until_ms) break;
        children_wait(&r->c, LOOK_MS);
    }
    if (r->c.signal || n >= r->o.nodes) return 0;
    run_say_log(r, "nodes");
    return err_set(e, ERR_TIMEOUT, "%lld of %lld nodes are up%s: what they say is above",
                   (long long)(n > 0 ? n : 0), (long long)r->o.nodes,
                   children_runs(&r->c, AGENTS) ? " after --wait" : ", and agents have ended");
}
