/* run.c: makes the directories of a run, waits for the end of its job, copies the results, and
 * stops all programs. */
#include "daemon/run/run.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/clock.h"
#include "api/core/file.h"
#include "daemon/run/one_run.h"

enum {
    ORPHANS_MS = 5000,
    ANSWER_SIZE = 1 << 20,
    GONE_MS = 30000,   /* a node that is not up for this time has gone; SEQD_GONE_MS in tests */
    REASON_LOOKS = 20, /* a verdict is final if this many successive queries return it */
};
/* Seconds for saving. deploy/slurm/oneshot.sbatch asks Slurm for a warning before the end, and
 * SAVE_S is less than the time between the warning and the end. SAVE_TERM_S is less than Slurm's
 * KillWait, which is the 30 s between SIGTERM and SIGKILL. */
#define SAVE_S      "90"
#define SAVE_TERM_S "10"

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

/* Saves the spec in the state directory. If an earlier run has saved a spec there, checks instead
 * that both specs are equal. If the spec comes from stdin ("-"), o.spec becomes the path of the
 * saved copy. */
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
    /* the paths of sockets must be short */
    if (!tmp || *tmp != '/' || strlen(tmp) > 32) tmp = "/tmp";
    snprintf(r->dir, sizeof r->dir, "%.32s/seqd-run.XXXXXX", tmp);
    if (!mkdtemp(r->dir)) {
        const int rc = err_errno(e, "%s", r->dir);
        *r->dir = 0;
        return rc;
    }
    /* seqd reads this file when it ends (daemon/main.c) */
    snprintf(r->url, sizeof r->url, "%s/code", r->dir);
    setenv("SEQD_RUN", r->url, 1);
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
    /* An empty file prevents this seqd from reading the configuration of the machine's own
     * service. */
    return file_join(path, e, "%s/none.toml", r->dir) || file_write(path, "", 0, e) ? -1 : 0;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Finds the only job of this state directory. If there is no job yet, r->id becomes "". */
static int find_job(struct one_run *r, struct err *e)
{
    char text[256];
    if (run_ask(r, text, sizeof text, WORDS("-q", "ls", "-o", "name")))
        return err_set(e, ERR_IO, "the coordinator does not list its jobs: %s/seqd.log says more",
                       r->state);
    snprintf(r->id, sizeof r->id, "%.*s", (int)strspn(text, "0123456789"), text);
    return 0;
}

static bool field_is(struct one_run *r, const char *field, const char *want)
{
    char text[1024];
    return !run_ask(r, text, sizeof text, WORDS("-q", "show", r->id, "--field", field)) &&
           !strncmp(text, want, strlen(want)) && !text[strcspn(text, "\n") + 1];
}

static int start_waiting(struct one_run *r, struct err *e)
{
    char program[FILE_PATH_SIZE], *argv[CTL_WORDS];
    const struct child_files files = {-1, 1, 2};
    if (find_job(r, e)) return -1;
    if (*r->id) fprintf(stderr, "seqd run: job %s of %s continues\n", r->id, r->state);
    if (*r->id && field_is(r, "state", "suspended"))
        run_tell(r, "/dev/null", WORDS("-q", "resume", r->id));
    run_ctl_words(r, program, argv,
                  *r->id ? WORDS("watch", r->id) : WORDS("submit", r->o.spec, "--wait"));
    return children_start(&r->c, WAITING, SIGTERM, argv, &files, e);
}

static bool is_ended_from_outside(const struct one_run *r)
{
    const int status = r->c.child[WAITING].status;
    return !children_runs(&r->c, WAITING) && (status == 128 + SIGTERM || status == 128 + SIGINT);
}

/* Starts again the program that waits for the job, unless this process has received a signal. A
 * signal to all processes of an allocation also ends the waiting program, perhaps before this
 * process receives the signal. */
static int wait_on(struct one_run *r, struct err *e)
{
    children_wait(&r->c, LOOK_MS);
    return r->c.signal ? 0 : start_waiting(r, e);
}

/* Tells whether the job is too large for the nodes. This does not change later, because all nodes
 * have joined, unless one of them has left (has_gone). */
static bool can_never_start(struct one_run *r)
{
    struct err e;
    return (*r->id || (!find_job(r, &e) && *r->id)) && field_is(r, "state", "queued") &&
           field_is(r, "reason.code", "too_large");
}

static void say_reason(struct one_run *r)
{
    char text[1024];
    if (!run_ask(r, text, sizeof text, WORDS("-q", "show", r->id, "--field", "reason.text")))
        fprintf(stderr, "seqd run: job %s can never start here: %s", r->id, text);
    if (getenv("SLURM_JOB_ID") && !getenv("SLURM_CPUS_PER_TASK"))
        fprintf(stderr, "seqd run: Slurm gives one core of a node to a job that asks for no more: "
                        "--cpus-per-task=N or --exclusive\n");
}

/* Tells whether the agents have ended after a SIGTERM that only the agents received. Slurm sends
 * SIGTERM to the steps of its job, which are the agents, but not to this process. In that case the
 * job is saved. */
static bool have_left(const struct one_run *r)
{
    return *r->o.state && children_runs(&r->c, SEQD) && !children_runs(&r->c, AGENTS) &&
           !r->c.child[AGENTS].status;
}

static int64_t gone_ms(void)
{
    const char *text = getenv("SEQD_GONE_MS");
    return text && atoi(text) > 0 ? atoi(text) : GONE_MS;
}

/* Tells whether a node of another process has not been up for gone_ms. An engine may end one of the
 * processes alone. */
static bool has_gone(struct one_run *r, int64_t *since_ms)
{
    if (r->o.node_rank < 0) return false;
    const int64_t n = run_nodes_up(r);
    if (n < 0) return false;
    if (n >= r->o.nodes)
        *since_ms = 0;
    else if (!*since_ms)
        *since_ms = clock_ms();
    return *since_ms && clock_ms() - *since_ms > gone_ms();
}

static int wait_job(struct one_run *r, struct err *e)
{
    int64_t look_ms = clock_ms(), since_ms = 0;
    int never = 0;
    while (!r->c.signal) {
        if (!children_runs(&r->c, SEQD) || !children_runs(&r->c, AGENTS)) break;
        if (is_ended_from_outside(r) && wait_on(r, e)) return -1;
        if (!children_runs(&r->c, WAITING)) break;
        children_wait(&r->c, LOOK_MS);
        if (clock_ms() < look_ms || !children_runs(&r->c, WAITING)) continue;
        look_ms = clock_ms() + (never ? LOOK_MS : 2000);
        if (has_gone(r, &since_ms)) {
            fprintf(stderr, "seqd run: a node has gone for %lld s\n", (long long)gone_ms() / 1000);
            return -1;
        }
        /* while a node is away, the job that it has left cannot start for that reason alone */
        never = !since_ms && can_never_start(r) ? never + 1 : 0;
        if (never < REASON_LOOKS) continue;
        children_stop(&r->c, WAITING, 0);
        say_reason(r);
        run_tell(r, "/dev/null", WORDS("-q", "cancel", r->id));
        return FAILED;
    }
    if (!children_runs(&r->c, WAITING) && !is_ended_from_outside(r))
        return r->c.child[WAITING].status;
    if (r->c.signal || have_left(r)) return -1;
    const char *gone = children_runs(&r->c, SEQD) ? "nodes" : "seqd";
    run_say_log(r, gone);
    return err_set(e, ERR_IO, "the %s has ended before the job: its log is above",
                   *gone == 's' ? "coordinator" : "agent of a node");
}

/* Returns the exit code for a job in this state, or -1 if the job has not ended. */
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

/* If the state directory is kept, suspends the job, so that the job saves. If the job cannot save,
 * it continues later from its last checkpoint. Returns -1 if a later run can continue the job. If
 * the job has ended by itself, returns its exit code. */
static int save_job(struct one_run *r)
{
    char text[1024], state[64];
    struct err e;
    if (!*r->o.state || !children_runs(&r->c, SEQD) || !children_runs(&r->c, AGENTS)) return -1;
    if (!*r->id && (find_job(r, &e) || !*r->id)) return -1;
    fprintf(stderr, "seqd run: job %s saves its state\n", r->id);
    const int bad = run_ask(r, text, sizeof text,
                            WORDS("-q", "suspend", r->id, "--wait", "--timeout",
                                  r->c.signal == SIGUSR1 ? SAVE_S : SAVE_TERM_S));
    if (run_ask(r, state, sizeof state, WORDS("-q", "show", r->id, "--field", "state"))) *state = 0;
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

/* Tells whether the program that submits or watches the job has been started. Before that there is
 * no job whose results could be lost. */
static bool was_submitted(const struct one_run *r)
{
    return children_runs(&r->c, WAITING) || r->c.child[WAITING].status >= 0;
}

/* Copies files of the job, if it has any. `noun` is a verb of seqctl, such as "artifacts", with
 * which the files are listed. `option` is an option of seqctl pull, or NULL. Returns 0, or the
 * exit code of a failure. */
static int bring_files(struct one_run *r, const char *noun, const char *path, const char *option)
{
    char text[4096];
    const int bad = run_ask(r, text, sizeof text, WORDS("-q", noun, r->id, "-o", "name"));
    if (bad) fprintf(stderr, "seqd run: the %s of job %s cannot be listed\n", noun, r->id);
    return bad || !*text ? bad : run_tell(r, NULL, WORDS("-q", "pull", r->id, path, option));
}

/* Copies the job's JSON and files into --output. If copying fails, they remain in the state
 * directory. */
static int bring(struct one_run *r, struct err *e)
{
    char path[FILE_PATH_SIZE];
    int bad = 0;
    if (!*r->o.output || !was_submitted(r)) return 0;
    r->keep = !*r->o.state;
    if (!*r->id && find_job(r, e)) return -1;
    if (*r->id) {
        if (file_join(path, e, "%s/job.json", r->o.output)) return -1;
        bad |= run_tell(r, path, WORDS("-q", "show", r->id, "-o", "json"));
        if (file_join(path, e, "%s/metrics.jsonl", r->o.output)) return -1;
        bad |= run_tell(r, path, WORDS("-q", "metrics", r->id, "-o", "jsonl"));
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

/* Tells the nodes of other processes the exit code: seqd sends it to them when it ends. */
static void end_ranks(struct one_run *r, int code)
{
    char text[16];
    struct err e;
    const int n = snprintf(text, sizeof text, "%d\n", code);
    if (file_write(getenv("SEQD_RUN"), text, (size_t)n, &e))
        fprintf(stderr, "seqd run: %s\n", e.text);
    children_stop(&r->c, SEQD, 2 * STOP_MS);
}

/* Stops all programs. The agents are stopped first, so that seqd receives the ends of their
 * gangs; if they have processes of their own, seqd stops them. */
static void stop_all(struct one_run *r, int code)
{
    struct err e;
    children_stop(&r->c, ASKING, STOP_MS);
    children_stop(&r->c, WAITING, 0);
    if (r->o.node_rank == 0 && children_runs(&r->c, SEQD)) end_ranks(r, code);
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

/* Returns the seconds from SIGTERM until Slurm kills the rest of this job and requeues it. Returns
 * 0 if Slurm does not requeue the job, or if Slurm did not start it. */
static int64_t slurm_kill_s(struct one_run *r)
{
    const char *job = getenv("SLURM_JOB_ID"), *at;
    char *show[] = {"scontrol", "-o", "show", "job", (char *)job, NULL};
    char *config[] = {"scontrol", "show", "config", NULL};
    char *text = malloc(ANSWER_SIZE);
    int64_t s = 0;
    if (!text) abort();
    if (job && *job && !run_ask_program(r, text, ANSWER_SIZE, show) && strstr(text, " Requeue=1") &&
        strstr(text, " BatchFlag=1") && !run_ask_program(r, text, ANSWER_SIZE, config) &&
        (at = strstr(text, "KillWait ")) && (at = strchr(at, '=')))
        s = strtol(at + 1, NULL, 10);
    free(text);
    return s > 0 && s <= 3600 ? s : 0;
}

/* Waits until Slurm kills and requeues this job. If the job ended by itself before that, Slurm
 * would count it as failed. */
static void wait_for_slurm(struct one_run *r)
{
    const int64_t s = slurm_kill_s(r), until_ms = clock_ms() + s * 1000;
    if (s)
        fprintf(stderr, "seqd run: job %s waits %lld s for Slurm to requeue it\n", r->id,
                (long long)s);
    while (s && clock_ms() < until_ms) children_wait(&r->c, LOOK_MS);
}

/* Runs the job. Returns the exit code, -1 if this process received a signal, or -2 with *e after a
 * failure. */
static int run_job(struct one_run *r, struct err *e)
{
    if (find_bin(r, e) || make_places(r, e)) return -2;
    if (r->o.node_rank >= 0 && run_make_key(r, e)) return -2;
    if (r->o.node_rank > 0) {
        const int code = run_rank(r, e);
        return code < 0 ? -2 : code;
    }
    if (keep_spec(r, e)) {
        fprintf(stderr, "seqd run: %s\n", e->text);
        return USAGE;
    }
    if (*r->o.output && file_make_dir(r->o.output, e)) return -2;
    if (r->o.node_rank == 0 && run_find_master(r, e)) return -2;
    if (r->c.signal) return -1;
    if (run_start_seqd(r, e)) return -2;
    if (!r->c.signal && run_start_nodes(r, e)) return -2;
    if (run_wait_nodes(r, e)) return -2;
    if (r->c.signal) return -1;
    if (start_waiting(r, e)) return -2;
    int rc = wait_job(r, e);
    if (rc == -1 && (r->c.signal || r->o.node_rank == 0)) rc = save_job(r);
    return e->code ? -2 : rc;
}

/* Returns the exit code of this process. rc is that of run_job. */
static int code_to_exit(const struct one_run *r, int rc)
{
    if (rc >= 0) return rc;
    if (rc == -2) return FAILED;
    if (*r->o.state) return RUN_AGAIN;
    return r->c.signal ? 128 + r->c.signal : FAILED;
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
    children_init(&r.c);
    rc = run_job(&r, &e);
    if (rc == -2) fprintf(stderr, "seqd run: %s\n", e.text);
    const bool first = r.o.node_rank <= 0;
    if (first && (rc >= 0 || (rc == -1 && !*r.o.state)) && rc != USAGE && bring(&r, &worse)) {
        fprintf(stderr, "seqd run: %s\n", worse.text);
        if (!rc) rc = FAILED;
    }
    const int asked = r.c.signal;
    const int code = code_to_exit(&r, rc);
    stop_all(&r, code);
    if (rc == -1 && *r.o.state && r.o.node_rank < 0 && (!asked || asked == SIGTERM))
        wait_for_slurm(&r);
    return code;
}
