/* run_options.c: reads the options of `seqd run`, and the nodes of Slurm's allocation. */
#include "daemon/run/run_options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "api/address.h"
#include "api/core/limits.h"

#define AT(field) OPTION_TARGET(struct run_options, field)

/* clang-format off */
static const struct option_entry rows[] = {
    {"state", OPTION_TEXT, OPTION_COMMAND, "DIR", NULL, 0, 0, AT(state), NULL,
     "Of this one job, on a disk that all nodes share: run again, it continues from its newest "
     "checkpoint (default: temporary, removed at the end)."},
    {"output", OPTION_TEXT, OPTION_COMMAND, "DIR", NULL, 0, 0, AT(output), NULL,
     "Results go there before the end: job.json, metrics.jsonl, checkpoint, artifacts."},
    {"nodes", OPTION_NUMBER, OPTION_COMMAND, "N", NULL, 1, NODE_MAX, AT(nodes), NULL,
     "Nodes of the allocation; beyond one, srun starts an agent on each (default: all of the "
     "allocation, SLURM_JOB_NUM_NODES; without Slurm 1)."},
    {"slots", OPTION_NUMBER, OPTION_COMMAND, "N", NULL, 1, 4096, AT(slots), NULL,
     "Ranks that a node may run at once (default: its GPUs, else its cores, as seqw --auto finds)."},
    {"root", OPTION_TEXTS, OPTION_COMMAND, "DIR", NULL, 0, 0, AT(root), NULL,
     "The job may read files beneath DIR; up to 8 times (default: the current directory)."},
    {"address", OPTION_TEXT, OPTION_COMMAND, "ADDR", NULL, 0, 0, AT(address), NULL,
     "Numeric: where other nodes reach this one (default: as srun tells them)."},
    {"wait", OPTION_NUMBER, OPTION_COMMAND, "S", "300", 1, 86400, AT(wait_s), NULL,
     "Seconds until all nodes must be up."},
    {"verbose", OPTION_FLAG, OPTION_COMMAND, NULL, NULL, 0, 0, AT(verbose), NULL,
     "Say what seqctl says when it is asked, too."},
    {"help", OPTION_ANSWER, OPTION_COMMAND, NULL, NULL, 0, 0, AT(help), NULL, "This text."},
};
/* clang-format on */

static const struct option_table table = {
    .program = "seqd run",
    .usage =
        "usage: seqd run SPEC|- [options]\n"
        "A coordinator, its nodes and one job, in the foreground: on this machine, or on the\n"
        "nodes of an allocation of Slurm. Nothing is left of it but what it was asked for.\n\n",
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
    const int rc = option_line(&table, argc - named, argv + named, o, &from, e);
    if (rc) return rc;
    if (!named)
        return err_set(e, ERR_INVALID, "want a spec: seqd run SPEC [options], see seqd run --help");
    if (strlen(argv[1]) >= sizeof o->spec)
        return err_set(e, ERR_INVALID, "%.80s...: the path is too long", argv[1]);
    memcpy(o->spec, argv[1], strlen(argv[1]) + 1);
    if (*o->address && !address_is_numeric(o->address))
        return err_set(e, ERR_INVALID, "--address %s: want a numeric IP address", o->address);
    if (!o->nodes && nodes_of_slurm(o, e)) return -1;
    return root_here(o, e);
}
