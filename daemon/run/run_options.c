/* run_options.c: reads the options of `seqd run`, and the nodes of Slurm's allocation. */
#include "daemon/run/run_options.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/limits.h"
#include "api/core/sandbox.h"
#include "api/join_key.h"

#define AT(field) OPTION_TARGET(struct run_options, field)

/* clang-format off */
static const struct option_entry rows[] = {
    {"state", OPTION_TEXT, OPTION_COMMAND, "DIR", NULL, 0, 0, AT(state), NULL,
     "Of this one job, on a disk that all nodes share: run again, it continues from its newest "
     "checkpoint (default: temporary, removed at the end)."},
    {"output", OPTION_TEXT, OPTION_COMMAND, "DIR", NULL, 0, 0, AT(output), NULL,
     "Results go there before the end: job.json, metrics.jsonl, checkpoint, artifacts."},
    {"nodes", OPTION_NUMBER, OPTION_COMMAND, "N", NULL, 1, NODE_MAX, AT(nodes), NULL,
     "Nodes of the job. Without --node-rank srun starts an agent on each (default: all of the "
     "allocation, SLURM_JOB_NUM_NODES; without Slurm 1)."},
    {"node-rank", OPTION_NUMBER, OPTION_COMMAND, "R", NULL, 0, NODE_MAX - 1, AT(node_rank), NULL,
     "This process is one of --nodes processes, each started on its node with the same command by "
     "any engine: 0 coordinates, the others dial it."},
    {"master", OPTION_TEXT, OPTION_COMMAND, "HOST[:PORT]", NULL, 0, 0, AT(master), NULL,
     "Where rank 0 is: a name, tried again until it resolves, or an address, as [fd00::1]:7434 "
     "(default port 7434)."},
    {"join-key", OPTION_TEXT, OPTION_COMMAND, "FILE", NULL, 0, 0, AT(join_key), NULL,
     "With --node-rank: 32 or more random bytes that all ranks have, readable by their owner alone; "
     "by it they prove themselves to each other."},
    {"auto", OPTION_TEXT, OPTION_COMMAND, "[=NAME]", NULL, 0, 0, AT(engine), NULL,
     "--nodes, --node-rank and --master as the engine's variables have them: SLURM_*, "
     "JOB_COMPLETION_INDEX (kubernetes), PET_* (kubeflow), LWS_*, SKYPILOT_*, DSTACK_*, FLUX_*. "
     "What is given here outranks them."},
    {"slots", OPTION_NUMBER, OPTION_COMMAND, "N", NULL, 1, 4096, AT(slots), NULL,
     "Ranks that a node may run at once (default: its GPUs, else its cores, as seqw --auto finds)."},
    {"root", OPTION_TEXTS, OPTION_COMMAND, "DIR", NULL, 0, 0, AT(root), NULL,
     "The job may read files beneath DIR; up to 8 times (default: the current directory)."},
    {"address", OPTION_TEXT, OPTION_COMMAND, "ADDR", NULL, 0, 0, AT(address), NULL,
     "Numeric: where other nodes reach this one (default: as srun tells them)."},
    {"interface", OPTION_TEXT, OPTION_COMMAND, "NAME", NULL, 0, 0, AT(interface), NULL,
     "The network interface of each node by which ranks reach each other, as ib0 (default: the one "
     "towards rank 0)."},
    {"sandbox", OPTION_TEXT, OPTION_COMMAND, "MODE", "auto", 0, 0, AT(sandbox), sandbox_modes,
     "What a rank may reach beside its own files, as of `seqw --sandbox`: auto, require or off."},
    {"wait", OPTION_NUMBER, OPTION_COMMAND, "S", "300", 1, 86400, AT(wait_s), NULL,
     "Seconds until all nodes must be up, and for which other ranks wait for rank 0."},
    {"verbose", OPTION_FLAG, OPTION_COMMAND, NULL, NULL, 0, 0, AT(verbose), NULL,
     "Say what seqctl says when it is asked, too."},
    {"help", OPTION_ANSWER, OPTION_COMMAND, NULL, NULL, 0, 0, AT(help), NULL, "This text."},
};
/* clang-format on */

static const struct option_table table = {
    .program = "seqd run",
    .usage = "usage: seqd run SPEC|- [options]\n"
             "A coordinator, its nodes and one job, in the foreground: on this machine, or on the\n"
             "nodes of an allocation of Slurm. Nothing is left of it but what it was asked for.\n"
             "Under any engine that starts a process on each node: the same command on each, with\n"
             "--nodes, --node-rank, --master and --join-key, or with --auto and --join-key.\n\n",
    .notes =
        "Exit codes: the job's (0 succeeded, 10 failed, 11 cancelled), 2 for wrong options, 1\n"
        "for other failures. SIGTERM, SIGINT and SIGUSR1 stop it: the job saves, and 75 where\n"
        "--state keeps it: it continues when this is run again; else 128 and the signal's number.\n"
        "A job that ends before it is saved gives its own exit code.\n"
        "In a batch job of Slurm that can be requeued it waits after SIGTERM to be killed, at "
        "most\n"
        "KillWait: Slurm requeues what it had to kill.\n",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .size = sizeof(struct run_options),
};

/* Finds the fully qualified name of this host, as /etc/hosts or DNS has it. */
static void self_name(char out[ENGINE_HOST_SIZE])
{
    const struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (gethostname(out, ENGINE_HOST_SIZE)) *out = 0;
    out[ENGINE_HOST_SIZE - 1] = 0;
    if (*out && !getaddrinfo(out, NULL, &hints, &list) && list->ai_canonname)
        snprintf(out, ENGINE_HOST_SIZE, "%s", list->ai_canonname);
    if (list) freeaddrinfo(list);
}

static int nodes_of_slurm(struct run_options *o, struct err *e)
{
    const char *text = getenv("SLURM_JOB_NUM_NODES");
    char *end;
    o->nodes = 1;
    if (!text || !*text) return 0;
    errno = 0;
    const long long n = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n < 1 || n > NODE_MAX)
        return err_set(e, ERR_INVALID,
                       "SLURM_JOB_NUM_NODES=%.80s: want a number from 1 to %d: unset it, or give "
                       "--nodes",
                       text, NODE_MAX);
    o->nodes = n;
    return 0;
}

/* Fills in the options that the command line lacks, by the variables of the engine. */
static int from_engine(struct run_options *o, const struct option_sources *from, struct err *e)
{
    struct engine_found f;
    char self[ENGINE_HOST_SIZE];
    if (!option_given(&table, from, "auto")) return 0;
    self_name(self);
    if (engine_find(&f, o->engine, environ, self, e)) return -1;
    if (!o->nodes) o->nodes = f.nodes;
    if (o->node_rank < 0) o->node_rank = f.rank;
    if (!*o->master && *f.host)
        snprintf(o->master, sizeof o->master, "%s", f.host), o->port = f.port;
    if (!o->nodes)
        return err_set(e, ERR_INVALID,
                       "--auto: %s does not tell how many nodes the job has: give --nodes N",
                       f.name);
    return *o->master || o->nodes == 1
               ? 0
               : err_set(e, ERR_INVALID,
                         "--auto: %s does not tell where rank 0 is: give --master HOST", f.name);
}

/* Splits HOST, HOST:PORT, V6 and [V6]:PORT. */
static int split_master(struct run_options *o, struct err *e)
{
    const char *text = o->master, *end = *text == '[' ? strchr(text, ']') : NULL;
    const char *colon = end ? strchr(end, ':') : strchr(text, ':');
    if (!end && colon && strchr(colon + 1, ':')) colon = NULL; /* an address of IPv6 */
    const size_t n = end ? (size_t)(end - text - 1) : colon ? (size_t)(colon - text) : strlen(text);
    char *stop = NULL;
    const long port = colon ? strtol(colon + 1, &stop, 10) : o->port ? o->port : JOIN_KEY_PORT;
    const bool odd = end && end[1] && end + 1 != colon;
    if (!n || n >= sizeof o->host || odd || port < 1 || port > 65535 ||
        (colon && (colon[1] < '0' || colon[1] > '9' || *stop)))
        return err_set(e, ERR_INVALID,
                       "--master %.80s: want HOST, HOST:PORT or [V6]:PORT, with a port from 1 to "
                       "65535",
                       o->master);
    snprintf(o->host, sizeof o->host, "%.*s", (int)n, text + (end != NULL));
    o->port = (int)port;
    return 0;
}

/* Checks the options of a run whose nodes have processes of their own. */
static int check_rank(struct run_options *o, struct err *e)
{
    if (o->node_rank < 0 && (*o->join_key || *o->master))
        return err_set(e, ERR_INVALID, "--%s is for a run with --node-rank R or --auto",
                       *o->join_key ? "join-key" : "master");
    if (o->node_rank < 0) return 0;
    if (!o->nodes)
        return err_set(e, ERR_INVALID, "--node-rank %lld: give --nodes N, too",
                       (long long)o->node_rank);
    if (o->node_rank >= o->nodes)
        return err_set(e, ERR_INVALID, "--node-rank %lld: ranks of --nodes %lld are 0 to %lld",
                       (long long)o->node_rank, (long long)o->nodes, (long long)o->nodes - 1);
    if (o->nodes == 1) return o->node_rank = -1, 0;
    if (!*o->master)
        return err_set(e, ERR_INVALID, "--node-rank: give --master HOST, where rank 0 is");
    if (!*o->join_key)
        return err_set(e, ERR_INVALID,
                       "--node-rank: give --join-key FILE, with 32 or more random bytes that all "
                       "ranks have");
    struct join_key key;
    const int rc = join_key_read(o->join_key, &key, e);
    explicit_bzero(&key, sizeof key);
    return rc ? rc : split_master(o, e);
}

static int root_here(struct run_options *o, struct err *e)
{
    if (o->root.n) return 0;
    if (!getcwd(o->root.text[0], sizeof o->root.text[0]))
        return err_errno(e, "the current directory: give --root DIR");
    o->root.n = 1;
    return 0;
}

int run_options_read(struct run_options *o, int argc, char **argv, struct err *e)
{
    struct option_sources from;
    const bool named = argc > 1 && (*argv[1] != '-' || !argv[1][1]);
    option_defaults(&table, o, &from);
    o->node_rank = -1;
    const int rc = option_line(&table, argc - named, argv + named, o, &from, e);
    if (rc) return rc;
    if (!named)
        return err_set(e, ERR_INVALID, "want a spec: seqd run SPEC [options], see seqd run --help");
    if (strlen(argv[1]) >= sizeof o->spec)
        return err_set(e, ERR_INVALID, "%.80s...: the path is too long", argv[1]);
    memcpy(o->spec, argv[1], strlen(argv[1]) + 1);
    if (*o->address && !address_is_numeric(o->address))
        return err_set(e, ERR_INVALID, "--address %s: want a numeric IP address", o->address);
    if (*o->address && *o->interface)
        return err_set(e, ERR_INVALID, "give --address or --interface, not both");
    if (from_engine(o, &from, e) || check_rank(o, e)) return -1;
    if (!o->nodes && nodes_of_slurm(o, e)) return -1;
    return root_here(o, e);
}
