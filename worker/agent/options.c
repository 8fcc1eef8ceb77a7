/* options.c: the table of seqw's options, and those checks of options that a row of the table
 * cannot express. */
#include "worker/agent/options.h"

#include <stdio.h>
#include <string.h>
#include "api/core/duration.h"
#include "api/core/file.h"
#include "api/core/log.h"
#include "api/core/sandbox.h"
#include "api/core/version.h"
#include "api/settings.h"
#include "api/wire.h"
#include "worker/agent/nvml.h"
#include "worker/agent/prepared.h"

#define AT(field) OPTION_TARGET(struct seqw_options, field)

/* clang-format off */
static const struct option_entry rows[] = {
    {"config", OPTION_TEXT, OPTION_COMMAND, "FILE", NULL, 0, 0, AT(config), NULL,
     "Options as TOML, each under its name here (default without --connect, where it exists: "
     OPTIONS_FILE "). The command line overrides the file; SIGHUP reads it again."},
    {"check-config", OPTION_FLAG, OPTION_COMMAND, NULL, NULL, 0, 0, AT(check_config), NULL,
     "Say what is wrong with the options and the file, and exit."},
    {"connect", OPTION_TEXT, OPTION_RESTART, "ADDRESS", NULL, 0, 0, AT(connect), NULL,
     "seqd's cluster address: unix:/path, or HOST:port over TLS, where HOST is an address or a name; "
     "commas part several, of which each is tried in turn. insecure:HOST:port is plain, for tests and "
     "networks where every machine is trusted."},
    {"join-token-file", OPTION_TEXT, OPTION_RESTART, "FILE", NULL, 0, 0, AT(token_file), NULL,
     "The token of `seqctl nodes token` by which this node joins over TLS; needed once."},
    {"join-key", OPTION_TEXT, OPTION_RESTART, "FILE", NULL, 0, 0, AT(key_file), NULL,
     "Instead of a token: 32 or more random bytes that seqd --join-key has, too (0600). The name is "
     "rank-N then."},
    {"auto", OPTION_FLAG, OPTION_RESTART, NULL, NULL, 0, 0, AT(automatic), NULL,
     "Cores, memory, GPUs, slots and the name are what an engine gave, and not all that is seen: by "
     "SLURM_* variables, CUDA_VISIBLE_DEVICES and this process's control groups and CPU set. What "
     "is given here outranks it."},
    {"state", OPTION_TEXT, OPTION_RESTART, "DIR", NULL, 0, 0, AT(state), NULL,
     "Attempts, checkpoints and prepared data live here."},
    {"shared", OPTION_TEXT, OPTION_RESTART, "DIR", NULL, 0, 0, AT(shared), NULL,
     "Checkpoints, results and prepared data live here instead: a directory of NFS, Lustre or the "
     "like that other nodes give, too. Their jobs continue there when this node is gone."},
    {"name", OPTION_TEXT, OPTION_RESTART, "NAME", NULL, 0, 0, AT(name), NULL,
     "Of this node (default: the host's name; with --auto in a step of Slurm: "
     "NODE.JOB.STEP)."},
    {"address", OPTION_TEXT, OPTION_RESTART, "ADDR", NULL, 0, 0, AT(address), NULL,
     "Numeric: where ranks here listen for those of other nodes (default: this machine's address "
     "towards seqd)."},
    {"interface", OPTION_TEXT, OPTION_RESTART, "NAME", NULL, 0, 0, AT(interface), NULL,
     "Instead of --address: the network interface that ranks of other nodes are reached by, as ib0. "
     "NCCL takes it, too, unless NCCL_SOCKET_IFNAME is set."},
    {"slots", OPTION_NUMBER, OPTION_RESTART, "N", "8", 0, 4096, AT(slots), NULL,
     "Ranks that may run here at once (with --auto: one for each GPU, else for each core)."},
    {"sandbox", OPTION_TEXT, OPTION_RESTART, "MODE", "auto", 0, 0, AT(sandbox), sandbox_modes,
     "What a rank may reach beside its own files: auto, what the kernel can restrict, and all for "
     "ranks on GPUs; require, nothing, or no job starts; off, all."},
    {"no-pin", OPTION_FLAG, OPTION_RESTART, NULL, NULL, 0, 0, AT(no_pin), NULL,
     "Leave it to the system which cores ranks run on. Without it a rank on the CPU is bound to as "
     "many cores as it has threads, of one NUMA node where that can be, and shares none with "
     "another rank; where too few are free, or a control group limits the CPU time, none is bound."},
    {"root", OPTION_TEXTS, OPTION_RESTART, "DIR", NULL, 0, 0, AT(root), NULL,
     "Jobs may read files beneath DIR; up to 8 times."},
    {"writable-root", OPTION_TEXTS, OPTION_RESTART, "DIR", NULL, 0, 0, AT(writable), NULL,
     "Jobs may publish results beneath DIR, by output.path, and keep what they offload there, by "
     "memory.offload_dir; up to 8 times."},
    {"bin", OPTION_TEXT, OPTION_RESTART, "DIR", NULL, 0, 0, AT(bin), NULL,
     "Where seqgang and seqrank are (default: beside seqw)."},
    {"orphan-ms", OPTION_NUMBER, OPTION_RELOADS, "MS", "86400000", 0, 1 << 30, AT(orphan_ms), NULL,
     "Stop everything and leave after so long without seqd; 0: never."},
    {"end-time", OPTION_NUMBER, OPTION_RELOADS, "UNIX_S", "0", 0, WIRE_MAX_TIME_S, AT(end_time), NULL,
     "When this node ends, as of a batch system's allocation: seconds since 1970, as `date +%s` "
     "prints them; 0: it is not known to end, but for what --auto finds."},
    {"leave-margin", OPTION_TEXT, OPTION_RELOADS, "T", "2m", 0, 0, AT(leave_margin), NULL,
     "How long before its end its jobs are to save and stop, as 90s or 5m: twice what a checkpoint "
     "takes, and a step. Of an end that --auto finds at most a quarter of what was left at start."},
    {"stop-grace", OPTION_TEXT, OPTION_RELOADS, "T", "30s", 0, 0, AT(stop_grace), NULL,
     "How long after SIGTERM its jobs may take to save and go to other nodes, as 30s or 5m; 0: they "
     "stop at once. Give whatever kills it after SIGTERM ten seconds more."},
    {"keep-prepared", OPTION_TEXT, OPTION_RESTART, "K", PREPARED_KEEP, 0, 0, AT(keep_prepared), NULL,
     "Prepared data that no attempt uses: at most this much of the disk (200G, 20%), used within "
     "an age (30d), both with a comma, or never to remove any."},
    {"log", OPTION_TEXT, OPTION_RELOADS, "LEVEL", NULL, 0, 0, AT(log), log_levels,
     "debug, info, warn or error (default: $SEQD_LOG, else info)."},
    {"help", OPTION_ANSWER, OPTION_COMMAND, NULL, NULL, 0, 0, AT(help), NULL, "This text."},
    {"version", OPTION_ANSWER, OPTION_COMMAND, NULL, NULL, 0, 0, AT(version), NULL,
     "The version and the revision."},
};
/* clang-format on */

static const struct option_table table = {
    .program = "seqw",
    .usage = "usage: seqw --connect ADDRESS --state DIR [options]\n",
    .notes =
        "After SIGTERM nothing begins here, jobs save and go to other nodes, and seqw exits 0 as "
        "soon\n"
        "as they have; after --stop-grace, at a second SIGTERM, and at SIGINT it stops all gangs "
        "and\n"
        "exits 0. After SIGUSR1, or a kill, gangs run on: the next seqw on the same state "
        "directory\n"
        "adopts them. SIGHUP changes rows with [SIGHUP].\n"
        "GPUs are found through the driver's " NVML_LIBRARY ". In the environment:\n"
        "  SEQD_NVML=FILE      another library in its place, as tests have; none: offer no GPU\n"
        "  SEQD_LOOK_MS=N      look at them so often, as tests do\n"
        "  SEQD_STILL_MS=N     end a seqgang that has not run for so long, as tests do\n"
        "  SEQD_PINS=NAME      agents with other names share no cores with this one, as in tests\n"
        "  SEQD_EMULATED=1     take jobs of the device \"emulated\", which is for tests and slow\n",
    .rows = rows,
    .n_rows = sizeof rows / sizeof *rows,
    .size = sizeof(struct seqw_options),
};

int options_margin_s(const struct seqw_options *o, int64_t *out_s, struct err *e)
{
    if (!duration_parse(o->leave_margin, 0, 7 * 86400, out_s, e)) return 0;
    return err_prefix(e, "--leave-margin");
}

int options_grace_s(const struct seqw_options *o, int64_t *out_s, struct err *e)
{
    if (!duration_parse(o->stop_grace, 0, 86400, out_s, e)) return 0;
    return err_prefix(e, "--stop-grace");
}

/* Makes those checks of options that the rows of the table cannot express. */
static int check(const void *target, struct err *e)
{
    const struct seqw_options *o = target;
    if (!*o->connect) return err_set(e, ERR_INVALID, "give --connect ADDRESS: see seqw --help");
    struct prepared_policy keep;
    int64_t margin_s, grace_s;
    if (options_margin_s(o, &margin_s, e) || options_grace_s(o, &grace_s, e)) return -1;
    if (!*o->state) return err_set(e, ERR_INVALID, "give --state DIR: see seqw --help");
    if (*o->token_file && *o->key_file)
        return err_set(e, ERR_INVALID, "give --join-token-file or --join-key, not both");
    if (*o->address && *o->interface)
        return err_set(e, ERR_INVALID, "give --address or --interface, not both");
    return prepared_policy_read(&keep, o->keep_prepared, e);
}

static const char *config_file(const void *target)
{
    const struct seqw_options *o = target;
    if (*o->config) return o->config;
    return !*o->connect && file_exists(OPTIONS_FILE) ? OPTIONS_FILE : NULL;
}

int options_read(struct seqw_options *o, int argc, char **argv, struct err *e)
{
    struct option_sources from;
    int rc = settings_read(&table, argc, argv, config_file, o, &from, e);
    if (rc > 0 && o->version) printf("seqw %s\n", version_text());
    if (rc) return rc;
    if (check(o, e)) return -1;
    if (o->check_config) return printf("seqw: the options are right\n"), 1;
    o->slots_given = option_given(&table, &from, "slots");
    o->argc = argc;
    o->argv = argv;
    log_level_set(o->log);
    return 0;
}

int options_reload(struct seqw_options *o, struct err *e)
{
    if (settings_reload(&table, o->argc, o->argv, config_file, check, o, e) < 0) return -1;
    log_level_set(o->log);
    return 0;
}
