/* seqw: the agent of one node. Dials seqd, starts gangs, relays what they say. */
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "api/core/log.h"
#include "api/core/version.h"
#include "worker/agent/agent.h"
#include "worker/agent/nvml.h"

static const char usage[] =
    "usage: seqw --connect ADDRESS --state DIR [options]\n"
    "  --connect ADDRESS   seqd's cluster address: unix:/path or 127.0.0.1:port, or, where every\n"
    "                      machine of the network is trusted, insecure:HOST:port\n"
    "  --state DIR         attempts, checkpoints and prepared data live here\n"
    "  --name NAME         of this node (default: the host's name)\n"
    "  --address ADDR      numeric: where ranks here listen for those of other nodes (default: "
    "this\n"
    "                      machine's address towards seqd)\n"
    "  --slots N           ranks that may run here at once (default 8)\n"
    "  --root DIR          jobs may read files beneath DIR; up to 8 times\n"
    "  --bin DIR           where seqgang and seqrank are (default: beside seqw)\n"
    "  --orphan-ms MS      stop everything and leave after so long without seqd (default 0: "
    "never)\n"
    "SIGTERM stops all gangs, waits for their end, and exits 0. Gangs survive a seqw that is "
    "killed:\n"
    "the next one on the same state directory adopts them.\n"
    "GPUs are found through the driver's " NVML_LIBRARY ". In the environment:\n"
    "  SEQD_NVML=FILE      another library in its place, as tests have; none: offer no GPU\n"
    "  SEQD_EMULATED=1     take jobs of the device \"emulated\", which is for tests and slow\n";

static char bin_dir[PATH_MAX], host[64];

static int number(const char *text, long long min, long long max, const char *option,
                  long long *out)
{
    char *end;
    *out = strtoll(text, &end, 10);
    if (*text && !*end && *out >= min && *out <= max) return 0;
    fprintf(stderr, "seqw: %s %s: want a number from %lld to %lld\n", option, text, min, max);
    return -1;
}

static int options_parse(int argc, char **argv, struct agent_options *o)
{
    static const struct option longs[] = {{"connect", required_argument, NULL, 'c'},
                                          {"state", required_argument, NULL, 's'},
                                          {"address", required_argument, NULL, 'a'},
                                          {"name", required_argument, NULL, 'n'},
                                          {"slots", required_argument, NULL, 'l'},
                                          {"root", required_argument, NULL, 'r'},
                                          {"bin", required_argument, NULL, 'b'},
                                          {"orphan-ms", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'v'},
                                          {NULL, 0, NULL, 0}};
    long long n;
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        if (c == 'c')
            o->connect = optarg;
        else if (c == 's')
            o->state = optarg;
        else if (c == 'n')
            o->name = optarg;
        else if (c == 'a')
            o->address = optarg;
        else if (c == 'b')
            o->bin = optarg;
        else if (c == 'r' && o->n_roots < RANK_ROOTS)
            o->roots[o->n_roots++] = optarg;
        else if (c == 'r')
            return fprintf(stderr, "seqw: at most %d --root\n", RANK_ROOTS), 2;
        else if (c == 'l' && number(optarg, 0, 4096, "--slots", &n) == 0)
            o->n_slots = (int)n;
        else if (c == 'o' && number(optarg, 0, 1 << 30, "--orphan-ms", &n) == 0)
            o->orphan_ms = n;
        else if (c == 'v')
            return printf("seqw %s\n", version_text()), exit(0), 0;
        else if (c == 'h')
            return fputs(usage, stdout), exit(0), 0;
        else
            return 2;
    }
    if (optind == argc && o->connect && o->state) return 0;
    fputs(usage, stderr);
    return 2;
}

/* For tests, which also come through a seqd --dev. */
static void environment_read(struct agent_options *o)
{
    const char *nvml = getenv("SEQD_NVML"), *emulated = getenv("SEQD_EMULATED");
    o->nvml = !nvml ? NVML_LIBRARY : strcmp(nvml, "none") ? nvml : NULL;
    o->emulated = emulated && !strcmp(emulated, "1");
}

/* arg: where main keeps the agent, which begins to exist a little after its signals. */
static void on_signal(void *arg, int signo)
{
    struct agent **a = arg;
    if (!*a) return;
    if (signo == SIGCHLD)
        agent_reap(*a);
    else
        agent_quit(*a, signo == SIGTERM ? "SIGTERM" : "SIGINT");
}

/* The directory of this very program, for its siblings. */
static const char *bin_default(void)
{
    ssize_t n = readlink("/proc/self/exe", bin_dir, sizeof bin_dir - 1);
    if (n > 0) *strrchr(bin_dir, '/') = 0;
    return bin_dir;
}

int main(int argc, char **argv)
{
    int signos[] = {SIGTERM, SIGINT, SIGCHLD};
    struct err e = {0};
    struct agent *a = NULL;
    log_init("seqw");
    gethostname(host, sizeof host - 1);
    struct agent_options o = {.name = host, .n_slots = 8, .bin = bin_default()};
    int rc = options_parse(argc, argv, &o);
    if (rc) return rc;
    environment_read(&o);
    umask(077);
    signal(SIGPIPE, SIG_IGN);
    struct loop *l = loop_create(NULL, NULL, &e);
    if (l && loop_signals(l, signos, 3, on_signal, &a, &e) == 0) a = agent_create(l, &o, &e);
    if (a)
        loop_run(l);
    else
        log_error("agent.create", "why=\"%s\"", e.text);
    rc = a ? 0 : 1;
    agent_destroy(a);
    loop_destroy(l);
    return rc;
}
