/* run.c: starts seqd and the agents of one job, waits for its end, and stops them. */
#include "daemon/run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/clock.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "daemon/run/children.h"
#include "daemon/run/run_options.h"

enum { SEQD, AGENTS, WAITING, ASKING }; /* children */
enum {
    LOOK_MS = 100,
    SEQD_MS = 60000,
    PORTS = 3, /* ports to try */
    STOP_MS = 20000,
    ORPHANS_MS = 5000,
    ANSWER_SIZE = 1 << 20,
    SPEC_SIZE = 1 << 20,
    REASON_LOOKS = 20, /* a verdict that stands for this many looks is final */
};
enum { FAILED = 1, USAGE = 2, ENDS_FAILED = 10, ENDS_CANCELLED = 11 }; /* as seqctl's */
/* Seconds for saving. SAVE_S is less than the warning that deploy/slurm/oneshot.sbatch asks for.
 * SAVE_TERM_S is less than Slurm's KillWait, 30 s between SIGTERM and SIGKILL. */
#define SAVE_S      "90"
#define SAVE_TERM_S "10"

struct one_run {
    struct run_options o;
    struct children c;
    char bin[FILE_PATH_SIZE];   /* directory of seqw and seqctl, beside this program */
    char dir[64];               /* for sockets, and without --state for all files */
    char state[FILE_PATH_SIZE]; /* state directory of the job: seqd, nodes/nodeN, spec, logs */
    char url[96];               /* address of seqd, for seqctl */
    char nodes[128];            /* address that nodes dial; several nodes: the port */
    char id[24];                /* id of the job */
    int ear;                    /* pipe to srun's nodes, which stop when it closes; -1: none */
    bool keep;                  /* dir stays: its files could not be copied */
};

/* ---- programs -------------------------------------------------------------------------------- */

static int open_log(const struct one_run *r, const char *name, struct err *e)
{
    char path[FILE_PATH_SIZE];
    if (file_join(path, e, "%s/%s.log", r->state, name)) return -1;
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return fd < 0 ? err_errno(e, "%s", path) : fd;
}

/* Prints the end of a program's log: without --state the log is removed when this process ends. */
static void say_log(const struct one_run *r, const char *name)
{
    char path[FILE_PATH_SIZE], text[2049];
    if (file_join(path, NULL, "%s/%s.log", r->state, name)) return;
    FILE *f = fopen(path, "re");
    if (f && fseek(f, -2048, SEEK_END)) rewind(f);
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = 0;
    fputs(text, stderr);
}

static int start_logged(struct one_run *r, int which, int ends, const char *name,
                        char *const argv[], int in, struct err *e)
{
    const int log = open_log(r, name, e);
    if (log < 0) return -1;
    const struct child_files f = {in, log, log};
    const int rc = children_start(&r->c, which, ends, argv, &f, e);
    close(log);
    return rc;
}

/* Makes the arguments of seqctl: its path, --url, and these words, which end with NULL. */
enum { CTL_WORDS = 16 };
static void ctl_words(struct one_run *r, char program[FILE_PATH_SIZE], char *argv[CTL_WORDS],
                      const char *const *words)
{
    int n = 0;
    file_join(program, NULL, "%s/seqctl", r->bin);
    argv[n++] = program;
    argv[n++] = "--url", argv[n++] = r->url;
    while (*words && n < CTL_WORDS - 1) argv[n++] = (char *)*words++;
    argv[n] = NULL;
}

/* Runs a program to its end. *answer: its output as a file, at the beginning; the caller closes it.
 * NULL: no file can be made. Returns its exit code. */
static int run_program(struct one_run *r, char *const argv[], FILE **answer)
{
    struct err e;
    FILE *f = *answer = tmpfile();
    if (!f) return FAILED;
    const struct child_files files = {-1, fileno(f), r->o.verbose ? 2 : -1};
    if (!children_start(&r->c, ASKING, SIGTERM, argv, &files, &e))
        while (children_runs(&r->c, ASKING)) children_wait(&r->c, LOOK_MS);
    rewind(f);
    return r->c.child[ASKING].status;
}

/* Runs a program, and reads its answer into out, NUL-terminated. Returns its exit code. */
static int ask_program(struct one_run *r, char *out, size_t size, char *const argv[])
{
    FILE *f;
    const int rc = run_program(r, argv, &f);
    const size_t n = f ? fread(out, 1, size - 1, f) : 0;
    out[n] = 0;
    if (f) fclose(f);
    return rc;
}

static int ask(struct one_run *r, char *out, size_t size, const char *const *words)
{
    char program[FILE_PATH_SIZE], *argv[CTL_WORDS];
    ctl_words(r, program, argv, words);
    return ask_program(r, out, size, argv);
}

/* Runs seqctl; its answer goes to a file, or to our stderr. */
static int tell(struct one_run *r, const char *path, const char *const *words)
{
    char program[FILE_PATH_SIZE], *argv[CTL_WORDS];
    struct err e = {0};
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : 2;
    if (fd < 0) return err_errno(&e, "%s", path), fprintf(stderr, "seqd run: %s\n", e.text), FAILED;
    ctl_words(r, program, argv, words);
    const struct child_files files = {-1, fd, 2};
    if (!children_start(&r->c, ASKING, SIGTERM, argv, &files, &e))
        while (children_runs(&r->c, ASKING)) children_wait(&r->c, LOOK_MS);
    if (path) close(fd);
    return r->c.child[ASKING].status;
}
#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- where ----------------------------------------------------------------------------------- */

static int find_bin(struct one_run *r, struct err *e)
{
    const ssize_t n = readlink("/proc/self/exe", r->bin, sizeof r->bin - 16);
    char path[FILE_PATH_SIZE];
    if (n <= 0) return err_errno(e, "find this program");
    r->bin[n] = 0;
    *strrchr(r->bin, '/') = 0;
    static const char *const needed[] = {"seqw", "seqgang", "seqrank", "seqctl"};
    for (int i = 0; i < 4; i++)
        if (file_join(path, e, "%s/%s", r->bin, needed[i]) || access(path, X_OK))
            return err_errno(e, "%s, which must lie beside seqd", path);
    return 0;
}

/* Saves the spec in the state directory, or checks that it equals the one saved there by an earlier
 * run. After "-" (stdin), o.spec is the path of the saved copy. */
static int keep_spec(struct one_run *r, struct err *e)
{
    char path[FILE_PATH_SIZE];
    const bool of_stdin = !strcmp(r->o.spec, "-");
    char *text = malloc(SPEC_SIZE + 1), *old;
    FILE *f = of_stdin ? stdin : fopen(r->o.spec, "re");
    size_t size, old_size;
    int rc = 0;
    if (!text) abort();
    if (!f) {
        free(text);
        return err_errno(e, "%s", r->o.spec);
    }
    size = fread(text, 1, SPEC_SIZE + 1, f);
    if (ferror(f)) rc = err_errno(e, "%s", r->o.spec);
    if (!of_stdin) fclose(f);
    if (!rc && size > SPEC_SIZE)
        rc = err_set(e, ERR_TOO_LARGE, "%s is larger than 1 MiB, the limit of a job spec",
                     r->o.spec);
    if (!rc) rc = file_join(path, e, "%s/spec", r->state);
    if (!rc && file_exists(path)) {
        old = file_read(path, SPEC_SIZE, &old_size, e);
        if (!old || old_size != size || memcmp(old, text, size))
            rc = err_set(e, ERR_CONFLICT,
                         "--state %s is of another job than %s: give each job a directory of its "
                         "own, or remove that one",
                         r->o.state, r->o.spec);
        free(old);
    } else if (!rc) {
        rc = file_write_private(path, text, size, e);
    }
    free(text);
    if (!rc && of_stdin) memcpy(r->o.spec, path, strlen(path) + 1);
    return rc;
}

static int make_places(struct one_run *r, struct err *e)
{
    const char *tmp = getenv("TMPDIR");
    char path[FILE_PATH_SIZE];
    int mended;
    if (!tmp || *tmp != '/' || strlen(tmp) > 32) tmp = "/tmp"; /* paths of sockets must be short */
    snprintf(r->dir, sizeof r->dir, "%.32s/seqd-run.XXXXXX", tmp);
    if (!mkdtemp(r->dir)) {
        const int rc = err_errno(e, "%s", r->dir);
        *r->dir = 0;
        return rc;
    }
    snprintf(r->url, sizeof r->url, "unix:%s/rest.sock", r->dir);
    snprintf(r->nodes, sizeof r->nodes, "unix:%s/node.sock", r->dir);
    if (*r->o.state) {
        if (file_make_private_dir(r->o.state, &mended, e)) return -1;
        if (!realpath(r->o.state, r->state)) return err_errno(e, "--state %s", r->o.state);
    } else if (file_join(r->state, e, "%s/state", r->dir) ||
               file_make_private_dir(r->state, &mended, e)) {
        return -1;
    }
    if (file_join(path, e, "%s/nodes", r->state) || file_make_private_dir(path, &mended, e))
        return -1;
    /* An empty file hides the configuration of the machine's own service from this one. */
    return file_join(path, e, "%s/none.toml", r->dir) || file_write(path, "", 0, e) ? -1 : 0;
}

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

/* Chooses a port that is free now. */
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
    const unsigned char *port = (const unsigned char *)&a + 2; /* port, in both families */
    snprintf(r->nodes, sizeof r->nodes, "%d", port[0] << 8 | port[1]);
    close(fd);
    return 0;
}

static int try_seqd(struct one_run *r, struct err *e)
{
    char program[FILE_PATH_SIZE], config[96], state[FILE_PATH_SIZE], listen[224];
    if (r->o.nodes > 1 && choose_port(r, e)) return -1;
    const bool v6 = strchr(r->o.address, ':');
    snprintf(listen, sizeof listen, "%s%s%s:%s", v6 ? "[" : "",
             *r->o.address ? r->o.address : "0.0.0.0", v6 ? "]" : "", r->nodes);
    snprintf(config, sizeof config, "%s/none.toml", r->dir);
    if (file_join(program, e, "%s/seqd", r->bin) || file_join(state, e, "%s/seqd", r->state))
        return -1;
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
                          r->o.nodes > 1 ? listen : r->nodes,
                          NULL};
    if (start_logged(r, SEQD, RUN_END, "seqd", argv, -1, e)) return -1;
    const int64_t until_ms = clock_ms() + SEQD_MS;
    while (!answers(r) && children_runs(&r->c, SEQD) && !r->c.signal && clock_ms() < until_ms)
        children_wait(&r->c, 20);
    return 0;
}

/* Starts seqd. Another program may take the port before seqd listens: then it tries another
 * port. */
static int start_seqd(struct one_run *r, struct err *e)
{
    for (int n = 0; n < (r->o.nodes > 1 ? PORTS : 1); n++) {
        if (try_seqd(r, e)) return -1;
        if (r->c.signal || (children_runs(&r->c, SEQD) && answers(r))) return 0;
        children_stop(&r->c, SEQD, STOP_MS);
    }
    say_log(r, "seqd");
    return err_set(e, ERR_IO, "the coordinator does not start: its log is above");
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* srun starts this on each node. The token comes by stdin, where no list of processes and no
 * environment shows it. The end of stdin tells the script to stop: srun's own way is SIGKILL. If
 * all processes get a SIGTERM, seqw alone acts on it, once, and leaves. Without --state the node's
 * directory is temporary, too.
 * $1 seqw, $2 the port, $3 the host or "", $4 the state directory or "", then seqw's options. */
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

/* Adds the options that agents have everywhere. */
static int agent_words(const struct one_run *r, char **argv, int n)
{
    static char slots[24];
    argv[n++] = "--orphan-ms", argv[n++] = "60000";
    snprintf(slots, sizeof slots, "%lld", (long long)r->o.slots);
    if (r->o.slots) argv[n++] = "--slots", argv[n++] = slots;
    for (int i = 0; i < r->o.root.n; i++)
        argv[n++] = "--root", argv[n++] = (char *)r->o.root.text[i];
    argv[n] = NULL;
    return n;
}

static int start_local(struct one_run *r, struct err *e)
{
    char program[FILE_PATH_SIZE], config[96], state[FILE_PATH_SIZE];
    snprintf(config, sizeof config, "%s/none.toml", r->dir);
    if (file_join(program, e, "%s/seqw", r->bin)) return -1;
    if (file_join(state, e, "%s/nodes/node0", r->state)) return -1;
    char *argv[32 + 2 * OPTION_LIST] = {program,  "--config", config,  "--auto",  "--connect",
                                        r->nodes, "--name",   "node0", "--state", state};
    agent_words(r, argv, 10);
    return start_logged(r, AGENTS, RUN_END, "nodes", argv, -1, e);
}

/* Puts the token into a pipe, which holds it until srun reads. */
static int token_pipe(struct one_run *r, struct err *e)
{
    char token[512], uses[24];
    int fd[2];
    snprintf(uses, sizeof uses, "%lld", (long long)r->o.nodes);
    if (ask(r, token, sizeof token,
            WORDS("-q", "nodes", "token", "--names", "node*", "--uses", uses, "--ttl", "1h")))
        return err_set(e, ERR_IO, "the coordinator gives no token for nodes: %s/seqd.log says more",
                       r->state);
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
    /* Runs one task on each node, with the job's whole share of that node. */
    char *argv[48 + 2 * OPTION_LIST] = {
        "srun",    nodes,        tasks, "--ntasks-per-node=1", "--overlap", "--cpu-bind=none",
        "--label", "sh",         "-c",  agent_script,          "seqw",      program,
        r->nodes,  r->o.address, state};
    agent_words(r, argv, 15);
    const int rc = start_logged(r, AGENTS, SIGTERM, "nodes", argv, in, e);
    close(in);
    return rc;
}

/* Counts the nodes that are up, each of which is a line of the answer, of any length. */
static int64_t n_up(struct one_run *r)
{
    char program[FILE_PATH_SIZE], *argv[CTL_WORDS], *line = NULL;
    size_t size = 0;
    int64_t n = 0;
    FILE *f;
    ctl_words(r, program, argv, WORDS("nodes", "-o", "jsonl"));
    const int rc = run_program(r, argv, &f);
    while (f && !rc && getline(&line, &size, f) > 0) n += strstr(line, "\"state\": \"up\"") != NULL;
    free(line);
    if (f) fclose(f);
    return n;
}

static int wait_nodes(struct one_run *r, struct err *e)
{
    const int64_t until_ms = clock_ms() + r->o.wait_s * 1000;
    int64_t n = 0;
    while (!r->c.signal && children_runs(&r->c, AGENTS) && children_runs(&r->c, SEQD)) {
        if ((n = n_up(r)) >= r->o.nodes || clock_ms() > until_ms) break;
        children_wait(&r->c, LOOK_MS);
    }
    if (r->c.signal || n >= r->o.nodes) return 0;
    say_log(r, "nodes");
    return err_set(e, ERR_TIMEOUT, "%lld of %lld nodes are up%s: what they say is above",
                   (long long)n, (long long)r->o.nodes,
                   children_runs(&r->c, AGENTS) ? " after --wait" : ", and agents have ended");
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Finds the one job of this state; "": there is none yet. */
static int find_job(struct one_run *r, struct err *e)
{
    char text[256];
    if (ask(r, text, sizeof text, WORDS("-q", "ls", "-o", "name")))
        return err_set(e, ERR_IO, "the coordinator does not list its jobs: %s/seqd.log says more",
                       r->state);
    snprintf(r->id, sizeof r->id, "%.*s", (int)strspn(text, "0123456789"), text);
    return 0;
}

static bool field_is(struct one_run *r, const char *field, const char *want)
{
    char text[1024];
    return !ask(r, text, sizeof text, WORDS("-q", "show", r->id, "--field", field)) &&
           !strncmp(text, want, strlen(want)) && !text[strcspn(text, "\n") + 1];
}

static int start_waiting(struct one_run *r, struct err *e)
{
    char program[FILE_PATH_SIZE], *argv[CTL_WORDS];
    const struct child_files files = {-1, 1, 2};
    if (find_job(r, e)) return -1;
    if (*r->id) fprintf(stderr, "seqd run: job %s of %s continues\n", r->id, r->state);
    if (*r->id && field_is(r, "state", "suspended"))
        tell(r, "/dev/null", WORDS("-q", "resume", r->id));
    ctl_words(r, program, argv,
              *r->id ? WORDS("watch", r->id) : WORDS("submit", r->o.spec, "--wait"));
    return children_start(&r->c, WAITING, SIGTERM, argv, &files, e);
}

static bool is_ended_from_outside(const struct one_run *r)
{
    const int status = r->c.child[WAITING].status;
    return !children_runs(&r->c, WAITING) && (status == 128 + SIGTERM || status == 128 + SIGINT);
}

/* Starts the program that waits again, unless a signal came here. A signal to all processes of an
 * allocation also ends that program, perhaps before it arrives here. */
static int wait_on(struct one_run *r, struct err *e)
{
    children_wait(&r->c, LOOK_MS);
    return r->c.signal ? 0 : start_waiting(r, e);
}

/* Tells whether the job is too large for the nodes. It stays so, as all nodes are here. */
static bool can_never_start(struct one_run *r)
{
    struct err e;
    return (*r->id || (!find_job(r, &e) && *r->id)) && field_is(r, "state", "queued") &&
           field_is(r, "reason.code", "too_large");
}

static void say_reason(struct one_run *r)
{
    char text[1024];
    if (!ask(r, text, sizeof text, WORDS("-q", "show", r->id, "--field", "reason.text")))
        fprintf(stderr, "seqd run: job %s can never start here: %s", r->id, text);
}

/* Tells whether the agents have left after a SIGTERM that only they got, as from Slurm to the steps
 * of a job: the job is saved. */
static bool have_left(const struct one_run *r)
{
    return *r->o.state && children_runs(&r->c, SEQD) && !children_runs(&r->c, AGENTS) &&
           !r->c.child[AGENTS].status;
}

static int wait_job(struct one_run *r, struct err *e)
{
    int64_t look_ms = clock_ms();
    int never = 0;
    while (!r->c.signal) {
        if (!children_runs(&r->c, SEQD) || !children_runs(&r->c, AGENTS)) break;
        if (is_ended_from_outside(r) && wait_on(r, e)) return -1;
        if (!children_runs(&r->c, WAITING)) break;
        children_wait(&r->c, LOOK_MS);
        if (clock_ms() < look_ms || !children_runs(&r->c, WAITING)) continue;
        look_ms = clock_ms() + (never ? LOOK_MS : 2000);
        never = can_never_start(r) ? never + 1 : 0;
        if (never < REASON_LOOKS) continue;
        children_stop(&r->c, WAITING, 0);
        say_reason(r);
        tell(r, "/dev/null", WORDS("-q", "cancel", r->id));
        return FAILED;
    }
    if (!children_runs(&r->c, WAITING) && !is_ended_from_outside(r))
        return r->c.child[WAITING].status;
    if (r->c.signal || have_left(r)) return -1;
    const char *gone = children_runs(&r->c, SEQD) ? "nodes" : "seqd";
    say_log(r, gone);
    return err_set(e, ERR_IO, "the %s has ended before the job: its log is above",
                   *gone == 's' ? "coordinator" : "agent of a node");
}

/* Returns the exit code of a job in this state; -1: the job has not ended. */
static int code_of(const char *state)
{
    static const struct {
        const char *state;
        int code;
    } ends[] = {{"succeeded", 0}, {"failed", ENDS_FAILED}, {"cancelled", ENDS_CANCELLED}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (!strcmp(state, ends[i].state)) return ends[i].code;
    return -1;
}

/* Suspends the job, which then saves, if the state directory is kept. A job that cannot save
 * continues later from its last checkpoint. Returns -1: another run continues the job; else the
 * exit code of a job that had ended by itself. */
static int save_job(struct one_run *r)
{
    char text[1024], state[64];
    struct err e;
    if (!*r->o.state || !children_runs(&r->c, SEQD) || !children_runs(&r->c, AGENTS)) return -1;
    if (!*r->id && (find_job(r, &e) || !*r->id)) return -1;
    fprintf(stderr, "seqd run: job %s saves its state\n", r->id);
    const int bad = ask(r, text, sizeof text,
                        WORDS("-q", "suspend", r->id, "--wait", "--timeout",
                              r->c.signal == SIGUSR1 ? SAVE_S : SAVE_TERM_S));
    if (ask(r, state, sizeof state, WORDS("-q", "show", r->id, "--field", "state"))) *state = 0;
    state[strcspn(state, "\n")] = 0;
    const int code = code_of(state);
    if (code >= 0)
        fprintf(stderr, "seqd run: job %s %s before it was saved\n", r->id, state);
    else if (!bad || !strcmp(state, "suspended"))
        fprintf(stderr, "seqd run: job %s is suspended: run this again to continue it\n", r->id);
    else
        fprintf(stderr,
                "seqd run: job %s was not saved in time (it is %s): run this again to continue it "
                "from its last checkpoint\n",
                r->id, *state ? state : "gone");
    return code;
}

/* ---- after the job --------------------------------------------------------------------------- */

/* Tells whether the program that submits or watches the job was started. Before it there is no job
 * with results to lose. */
static bool was_submitted(const struct one_run *r)
{
    return children_runs(&r->c, WAITING) || r->c.child[WAITING].status >= 0;
}

/* Copies files of the job, if there are any. noun: the verb of seqctl that lists them. option: for
 * seqctl pull, or NULL. Returns 0, or the exit code of a failure. */
static int bring_files(struct one_run *r, const char *noun, const char *path, const char *option)
{
    char text[4096];
    const int bad = ask(r, text, sizeof text, WORDS("-q", noun, r->id, "-o", "name"));
    if (bad) fprintf(stderr, "seqd run: the %s of job %s cannot be listed\n", noun, r->id);
    return bad || !*text ? bad : tell(r, NULL, WORDS("-q", "pull", r->id, path, option));
}

/* Copies the job's own JSON and files into --output. After a failure they stay in the state. */
static int bring(struct one_run *r, struct err *e)
{
    char path[FILE_PATH_SIZE];
    int bad = 0;
    if (!*r->o.output || !was_submitted(r)) return 0;
    r->keep = !*r->o.state;
    if (!*r->id && find_job(r, e)) return -1;
    if (*r->id) {
        if (file_join(path, e, "%s/job.json", r->o.output)) return -1;
        bad |= tell(r, path, WORDS("-q", "show", r->id, "-o", "json"));
        if (file_join(path, e, "%s/metrics.jsonl", r->o.output)) return -1;
        bad |= tell(r, path, WORDS("-q", "metrics", r->id, "-o", "jsonl"));
        if (file_join(path, e, "%s/checkpoint", r->o.output)) return -1;
        bad |= bring_files(r, "checkpoints", path, NULL);
        if (file_join(path, e, "%s/artifacts", r->o.output)) return -1;
        bad |= bring_files(r, "artifacts", path, "--artifacts");
    }
    if (bad)
        return err_set(e, ERR_IO, "not all of the job's results are in %s: they are in %s",
                       r->o.output, r->state);
    r->keep = false;
    if (*r->id) fprintf(stderr, "seqd run: results are in %s\n", r->o.output);
    return 0;
}

/* Stops the agents first: seqd receives the end of their gangs. */
static void stop_all(struct one_run *r)
{
    struct err e;
    children_stop(&r->c, ASKING, STOP_MS);
    children_stop(&r->c, WAITING, 0);
    const int64_t until_ms = clock_ms() + STOP_MS;
    if (r->ear >= 0) close(r->ear);
    while (r->ear >= 0 && children_runs(&r->c, AGENTS) && clock_ms() < until_ms)
        children_wait(&r->c, LOOK_MS);
    children_stop(&r->c, AGENTS, STOP_MS);
    children_stop(&r->c, SEQD, STOP_MS);
    children_end(&r->c, ORPHANS_MS);
    if (r->keep)
        fprintf(stderr, "seqd run: kept %s\n", r->dir);
    else if (*r->dir && file_remove(r->dir, &e))
        fprintf(stderr, "seqd run: %s\n", e.text);
}

/* Returns the seconds from SIGTERM until Slurm kills the rest of this job and requeues it. 0:
 * Slurm does not requeue it, or did not start it. */
static int64_t slurm_kill_s(struct one_run *r)
{
    const char *job = getenv("SLURM_JOB_ID"), *at;
    char *show[] = {"scontrol", "-o", "show", "job", (char *)job, NULL};
    char *config[] = {"scontrol", "show", "config", NULL};
    char *text = malloc(ANSWER_SIZE);
    int64_t s = 0;
    if (!text) abort();
    if (job && *job && !ask_program(r, text, ANSWER_SIZE, show) && strstr(text, " Requeue=1") &&
        strstr(text, " BatchFlag=1") && !ask_program(r, text, ANSWER_SIZE, config) &&
        (at = strstr(text, "KillWait ")) && (at = strchr(at, '=')))
        s = strtol(at + 1, NULL, 10);
    free(text);
    return s > 0 && s <= 3600 ? s : 0;
}

/* Waits until Slurm kills this job, which it then requeues. A job that ends by itself counts as
 * failed. */
static void wait_for_slurm(struct one_run *r)
{
    const int64_t s = slurm_kill_s(r), until_ms = clock_ms() + s * 1000;
    if (s)
        fprintf(stderr, "seqd run: job %s waits %lld s for Slurm to requeue it\n", r->id,
                (long long)s);
    while (s && clock_ms() < until_ms) children_wait(&r->c, LOOK_MS);
}

/* Runs the job. Returns the exit code, -1 when a signal came, or -2 with *e. */
static int run_job(struct one_run *r, struct err *e)
{
    if (find_bin(r, e) || make_places(r, e)) return -2;
    if (keep_spec(r, e)) {
        fprintf(stderr, "seqd run: %s\n", e->text);
        return USAGE;
    }
    if (*r->o.output && file_make_dir(r->o.output, e)) return -2;
    if (start_seqd(r, e)) return -2;
    if (!r->c.signal && (r->o.nodes > 1 ? start_everywhere(r, e) : start_local(r, e))) return -2;
    if (wait_nodes(r, e)) return -2;
    if (r->c.signal) return -1;
    if (start_waiting(r, e)) return -2;
    int rc = wait_job(r, e);
    if (rc == -1 && r->c.signal) rc = save_job(r);
    return e->code ? -2 : rc;
}

int run_main(int argc, char **argv)
{
    static struct one_run r = {.ear = -1};
    struct err e = {0}, worse = {0};
    int rc = run_options_read(&r.o, argc, argv, &e);
    if (rc < 0) fprintf(stderr, "seqd run: %s\n", e.text);
    if (rc) return rc < 0 ? USAGE : 0;
    static const char *const others[] = {"SEQD_URL", "SEQD_TOKEN_FILE", "SEQD_TOKEN", "SEQD_CA"};
    for (int i = 0; i < 4; i++) unsetenv(others[i]);
    setenv("SEQD_RUN", "1", 1);
    children_init(&r.c);
    rc = run_job(&r, &e);
    if (rc == -2) fprintf(stderr, "seqd run: %s\n", e.text);
    if ((rc >= 0 || (rc == -1 && !*r.o.state)) && rc != USAGE && bring(&r, &worse)) {
        fprintf(stderr, "seqd run: %s\n", worse.text);
        if (!rc) rc = FAILED;
    }
    const int asked = r.c.signal;
    stop_all(&r);
    if (rc == -2) return FAILED;
    if (rc >= 0) return rc;
    if (!*r.o.state) return 128 + asked;
    if (!asked || asked == SIGTERM) wait_for_slurm(&r);
    return RUN_AGAIN;
}
