/* seqw: the agent of one node. It connects to seqd, starts gangs, and relays their records and
 * logs. */
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/notify.h"
#include "api/core/process.h"
#include "api/core/sandbox.h"
#include "api/core/thread.h"
#include "worker/agent/agent.h"
#include "worker/agent/attempt.h"
#include "worker/agent/gpus.h"
#include "worker/agent/nvml.h"
#include "worker/agent/options.h"
#include "worker/agent/probe.h"

struct seqw {
    struct seqw_options o;
    char bin_dir[PATH_MAX], host[64];
    char address[RANK_ADDRESS_SIZE]; /* that of --interface, or "" */
    struct allocation allocation;    /* used with --auto */
    int64_t begun_s;                 /* UTC */
    struct loop *loop;
    struct agent *agent; /* NULL until the agent is created; a signal may be delivered before
                          * the agent is created */
    struct notify *notify;
};

/* Reads the environment variables that tests set. `seqd --dev` passes these variables on to
 * the seqw that it starts. */
static void environment_read(struct agent_options *o)
{
    const char *nvml = getenv("SEQD_NVML"), *emulated = getenv("SEQD_EMULATED");
    const char *pins = getenv("SEQD_PINS"), *look_ms = getenv("SEQD_LOOK_MS");
    const char *still_ms = getenv("SEQD_STILL_MS");
    if (o->pins && pins) o->pins = pins;
    o->nvml = !nvml ? NVML_LIBRARY : strcmp(nvml, "none") ? nvml : NULL;
    o->look_ms = look_ms && atoi(look_ms) > 0 ? atoi(look_ms) : GPUS_LOOK_MS;
    o->still_ms = still_ms && atoi(still_ms) > 0 ? atoi(still_ms) : ATTEMPT_STILL_MS;
    o->emulated = emulated && !strcmp(emulated, "1");
}

/* Writes the status text. Returns true, which means that seqw makes progress. It is always
 * true, because the loop that calls this function does all work of seqw. */
static bool on_tick(void *arg, char *status, size_t size)
{
    const struct seqw *w = arg;
    int n;
    const bool up = agent_connected(w->agent, &n);
    snprintf(status, size, "%s %.120s, %d attempts", up ? "session with" : "no session with",
             w->o.connect, n);
    return true;
}

/* Returns the time at which this node ends. It is the value of --end-time. If that option is
 * not given, it is the end of the allocation (--auto). Returns 0 if the time is not known. The
 * options have been checked already. */
static int64_t end_of(const struct seqw *w, int64_t *margin_s)
{
    const int64_t found = w->o.end_time ? 0 : w->allocation.end.n;
    options_margin_s(&w->o, margin_s, NULL);
    if (!found) return w->o.end_time;
    *margin_s = allocation_margin_s(found, w->begun_s, *margin_s);
    return found;
}

static void on_reload(struct seqw *w)
{
    struct err e;
    int64_t margin_s;
    notify_reloading(w->notify);
    if (options_reload(&w->o, &e))
        log_error("settings.kept", "text=\"%s; the options stay as they were\"", e.text);
    else
        log_info("settings.read", "signal=SIGHUP");
    agent_set_orphan(w->agent, w->o.orphan_ms);
    const int64_t end_s = end_of(w, &margin_s);
    agent_set_end(w->agent, end_s, margin_s);
    notify_ready(w->notify);
}

static void on_stop(struct seqw *w, int signo)
{
    int64_t grace_s;
    options_grace_s(&w->o, &grace_s, NULL);
    notify_stopping(w->notify);
    if (signo == SIGTERM)
        agent_leave(w->agent, grace_s * 1000, "SIGTERM");
    else
        agent_quit(w->agent, "SIGINT");
}

static void on_signal(void *arg, int signo)
{
    struct seqw *w = arg;
    if (!w->agent) return;
    if (signo == SIGCHLD)
        agent_reap(w->agent);
    else if (signo == SIGHUP)
        on_reload(w);
    else if (signo == SIGUSR1)
        log_info("agent.leave", "why=SIGUSR1 text=\"gangs run on\""), loop_stop(w->loop);
    else
        on_stop(w, signo);
}

/* Returns the directory of this program's file. seqgang and seqrank are in the same directory. */
static const char *bin_default(struct seqw *w)
{
    ssize_t n = readlink("/proc/self/exe", w->bin_dir, sizeof w->bin_dir - 1);
    if (n > 0) *strrchr(w->bin_dir, '/') = 0;
    return w->bin_dir;
}

static int allocation_here(struct allocation *a, struct err *e)
{
    const struct allocation_world w = {"", environ, probe_set(), probe_machine_size()};
    return allocation_find(a, &w, e);
}

/* Takes the address of the interface, and names the interface to NCCL. The '=' makes NCCL take this
 * name alone, not others that begin with it. */
static int use_interface(struct seqw *w, struct err *e)
{
    char name[sizeof w->o.interface + 1];
    if (probe_interface(w->o.interface, w->address, e)) return -1;
    snprintf(name, sizeof name, "=%s", w->o.interface);
    setenv("NCCL_SOCKET_IFNAME", name, 0);
    return 0;
}

static struct agent_options agent_options(struct seqw *w)
{
    const struct seqw_options *o = &w->o;
    struct agent_options a = {.connect = o->connect,
                              .token_file = *o->token_file ? o->token_file : NULL,
                              .key_file = *o->key_file ? o->key_file : NULL,
                              .name = *o->name              ? o->name
                                      : *w->allocation.name ? w->allocation.name
                                                            : w->host,
                              .address = *w->address   ? w->address
                                         : *o->address ? o->address
                                                       : NULL,
                              .state = o->state,
                              .shared = *o->shared ? o->shared : NULL,
                              .bin = *o->bin ? o->bin : bin_default(w),
                              .n_roots = o->root.n,
                              .n_writable = o->writable.n,
                              .n_slots = o->automatic && !o->slots_given ? -1 : (int)o->slots,
                              .allocation = o->automatic ? &w->allocation : NULL,
                              .pins = o->no_pin ? NULL : "",
                              .sandbox = sandbox_mode(o->sandbox),
                              .orphan_ms = o->orphan_ms};
    a.end_s = end_of(w, &a.margin_s);
    prepared_policy_read(&a.keep, o->keep_prepared, NULL); /* cannot fail, because options_read has
                                                            * checked it */
    for (int i = 0; i < o->root.n; i++) a.roots[i] = o->root.text[i];
    for (int i = 0; i < o->writable.n; i++) a.writable[i] = o->writable.text[i];
    gethostname(w->host, sizeof w->host - 1);
    environment_read(&a);
    return a;
}

int main(int argc, char **argv)
{
    static const int signos[] = {SIGTERM, SIGINT, SIGCHLD, SIGHUP, SIGUSR1};
    static struct seqw w;
    struct err e = {0};
    process_begin();
    log_init("seqw");
    int rc = options_read(&w.o, argc, argv, &e);
    if (rc < 0) fprintf(stderr, "seqw: %s\n", e.text), thread_last_words(e.text);
    if (rc) return rc < 0 ? 2 : 0;
    if (w.o.automatic && allocation_here(&w.allocation, &e)) {
        fprintf(stderr, "seqw: --auto: %s\n", e.text);
        return 2;
    }
    if (*w.o.interface && use_interface(&w, &e)) {
        fprintf(stderr, "seqw: %s\n", e.text);
        return 2;
    }
    w.begun_s = time(NULL);
    const struct agent_options o = agent_options(&w);
    umask(077);
    signal(SIGPIPE, SIG_IGN);
    if (file_limit() < INT64_MAX)
        log_warn("agent.file_limit",
                 "bytes=%lld text=\"RLIMIT_FSIZE (ulimit -f, LimitFSIZE=): checkpoints, prepared "
                 "data and spools of jobs fail at that size\"",
                 (long long)file_limit());
    w.loop = loop_create(NULL, NULL, &e);
    if (w.loop && loop_signals(w.loop, signos, 5, on_signal, &w, &e) == 0) {
        /* Call notify_open before any child is started, because it unsets the environment
         * variables of the service manager. */
        w.notify = notify_open(w.loop, on_tick, &w);
        w.agent = agent_create(w.loop, &o, &e);
    }
    if (w.agent) {
        notify_ready(w.notify);
        loop_run(w.loop);
    } else {
        log_error("agent.create", "why=\"%s\"", e.text);
        thread_last_words(e.text);
    }
    rc = w.agent ? agent_code(w.agent) : 1;
    notify_close(w.notify);
    agent_destroy(w.agent);
    loop_destroy(w.loop);
    return rc;
}
