/* seqrank: one rank of one job. seqgang starts it with a socket as fd 3 and the shared segment
 * as fd 4 (protocol: api/core/rank.h). seqrank is also started without a gang, for example to
 * describe a model directory. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>
#include "api/core/beneath.h"
#include "api/core/file.h"
#include "api/core/limits.h"
#include "api/core/log.h"
#include "api/core/process.h"
#include "api/core/sandbox.h"
#include "api/core/version.h"
#include "worker/hf/adapter.h"
#include "worker/hf/hf.h"
#include "worker/rank/files.h"
#include "worker/rank/link.h"
#include "worker/rank/models.h"
#include "worker/rank/profile.h"
#include "worker/rank/report.h"
#include "worker/rank/run.h"
#include "worker/rank/trace.h"

static const char usage[] =
    "usage: seqrank                  one rank: started by seqgang, which passes fds 3 and 4\n"
    "       seqrank --describe DIR [ROOT ...] [--grant=DIR ...]\n"
    "                                print the sizes of the model in DIR as JSON; its links stay\n"
    "                                beneath the ROOT it lies in; of private directories it reads\n"
    "                                those that are granted\n"
    "       seqrank --describe-adapter DIR [ROOT ...] [--grant=DIR ...]\n"
    "                                print the rank, the factor and the products of the adapter "
    "in\n"
    "                                DIR as JSON\n"
    "       seqrank --check DIR [ROOT ...]\n"
    "                                print what the model directory DIR holds, and everything\n"
    "                                that is wrong with it, as JSON\n"
    "       seqrank --models [--first=N] ROOT ...\n"
    "                                the same of every model directory beneath the ROOTs, from\n"
    "                                number N on\n"
    "       seqrank --files [ROOT ...] [--grant=DIR ...] --file=FIELD:FORMAT:PATH ...\n"
    "                                has each PATH, a file or a pattern, a file beneath a ROOT?\n"
    "       seqrank --profile        measure this machine, print it as JSON\n"
    "       seqrank --trace DIR KEY=VALUE ...\n"
    "                                what a step of a job learnt from, as JSON. DIR: prepared "
    "data;\n"
    "                                seq_len=N step=N global_batch=N [seed=N packing=WORD\n"
    "                                overlong=WORD set=train|eval first=N count=N "
    "max_fragments=N]\n"
    "       seqrank --version | --help\n";

/* Returns the path of a word: an absolute path, or that of --grant= and --writable=. Returns
 * NULL if the word has none. */
static const char *path_of(const char *word)
{
    static const char *const before[] = {"--grant=", "--writable="};
    for (int i = 0; i < 2; i++)
        if (!strncmp(word, before[i], strlen(before[i]))) return word + strlen(before[i]);
    return *word == '/' ? word : NULL;
}

/* Adds the DIR of each --grant=DIR to the roots. Also grants DIR to this process, so that
 * files in DIR may be read even if DIR is private. */
static void take_grants(int argc, char **argv)
{
    static const char grant[] = "--grant=";
    for (int i = 2; i < argc; i++) {
        if (strncmp(argv[i], grant, sizeof grant - 1)) continue;
        argv[i] += sizeof grant - 1;
        beneath_grant(argv[i]);
    }
}

/* Enters the sandbox of a process that answers a question of seqw. The absolute paths after the
 * third word are roots, or paths beneath them. */
static int enter_sandbox(int argc, char **argv)
{
    const char *roots[RANK_ROOTS + RANK_GRANTS + 2], *paths[RANK_GRANTS + RANK_ROOTS];
    struct sandbox_reader r = {
        .state = argv[2] + sizeof RANK_CONFINED - 1, .roots = roots, .paths = paths};
    char program[FILE_PATH_SIZE] = "";
    struct err e = {0};
    for (int i = 3; i < argc; i++) {
        const char *path = path_of(argv[i]);
        /* prepared data lie in the state directory */
        const bool whole = path && (path != argv[i] || !strcmp(argv[1], "--trace"));
        if (whole && r.n_paths < RANK_GRANTS + RANK_ROOTS) paths[r.n_paths++] = path;
        if (path && !whole && r.n_roots < RANK_ROOTS + RANK_GRANTS + 2) roots[r.n_roots++] = path;
    }
    if (readlink("/proc/self/exe", program, sizeof program - 1) > 0) r.program = program;
    if (!r.program) err_errno(&e, "find this program");
    if (!e.code) sandbox_enter_reader(&r, &e);
    if (e.code) fprintf(stderr, "%s\n", e.text);
    return e.code ? -1 : 0;
}

typedef int64_t describe_call(const char *dir, char *out, size_t size, struct err *e);

static int describe(describe_call *call, const char *dir, const char *const *roots, int n_roots)
{
    char json[SPEC_CONFIG_SIZE];
    struct err e = {0};
    beneath_confine(roots, n_roots);
    if (beneath_private(dir))
        beneath_refuse(dir, &e);
    else
        call(dir, json, sizeof json, &e);
    if (e.code) {
        fprintf(stderr, "%s\n", e.text);
        return e.code == ERR_INTERNAL ? 1 : RANK_EXIT_REFUSED;
    }
    return fputs(json, stdout) < 0 || fflush(stdout) ? 1 : 0; /* one line, with its newline */
}

/* Makes sure that a rank dies with its gang, gains no privilege, and passes its descriptors to no
 * other process. */
static int guard(struct err *e)
{
    pid_t parent = getppid();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL)) return err_errno(e, "prctl PR_SET_PDEATHSIG");
    if (getppid() != parent) return err_set(e, ERR_ABORTED, "seqgang died while this rank started");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return err_errno(e, "prctl PR_SET_NO_NEW_PRIVS");
    for (int fd = RANK_SOCKET_FD; fd <= RANK_MEMFD; fd++)
        if (fcntl(fd, F_SETFD, FD_CLOEXEC))
            return err_errno(e, "fd %d: seqrank is started by seqgang", fd);
    return 0;
}

/* Confines a rank. It may read the directories that seqd grants, its job's directory, and the
 * prepared data that it was told to use. */
static void confine(const struct rank_args *a)
{
    const char *roots[RANK_ROOTS + RANK_GRANTS];
    char prepared[FILE_PATH_SIZE];
    int n = 0;
    for (int i = 0; i < a->n_roots; i++) roots[n++] = a->roots[i];
    for (int i = 0; i < a->n_grants; i++) beneath_grant(roots[n++] = a->grants[i]);
    beneath_grant(a->job_dir);
    if (*a->prepared_id && !file_join(prepared, NULL, "%s/%s", a->prepared_dir, a->prepared_id))
        beneath_grant(prepared);
    beneath_confine(roots, n);
}

static int run_order(struct link *k, struct link_order *o, struct err *e)
{
    const struct rank_args *a = &o->args;
    confine(a);
    if (!run_job(k, o, e)) return 0;
    /* Adds the job's name to the error. The cause of these errors is searched for in the logs
     * of the node, of its peers, of the network or of the driver. This search needs the name
     * of the job. */
    if (e->code == ERR_PEER || e->code == ERR_DEVICE || e->code == ERR_TIMEOUT ||
        e->code == ERR_INTERNAL)
        err_prefix(e, "job %lld, epoch %lld", (long long)a->job, (long long)a->epoch);
    log_line(e->code == ERR_ABORTED ? LOG_INFO : LOG_ERROR, "rank.fail",
             "job=%lld epoch=%lld rank=%d code=%s field=%s text=\"%s\"", (long long)a->job,
             (long long)a->epoch, k->rank, err_name(e->code), e->field, e->text);
    return -1;
}

static int receive_order(struct link *k, struct link_order *o, struct err *e)
{
    if (!link_receive_order(k, o, e)) return 0;
    log_error("rank.fail", "code=%s text=\"%s\"", err_name(e->code), e->text);
    return -1;
}

static int serve(void)
{
    struct err e = {0};
    struct link k;
    struct link_order *order = NULL;
    if (guard(&e)) {
        fprintf(stderr, "seqrank: %s\n%s", e.text, usage);
        return 2;
    }
    link_init(&k, RANK_SOCKET_FD);
    order = malloc(sizeof *order);
    int rc = order ? 0 : err_set(&e, ERR_IO, "out of memory");
    if (!rc) rc = receive_order(&k, order, &e);
    if (!rc) rc = run_order(&k, order, &e);
    free(order);
    if (rc && k.saved) return RANK_EXIT_SAVED;
    if (rc) link_send_fail(&k, &e);
    return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
    /* No other process of this user reads the memory of this one. */
    prctl(PR_SET_DUMPABLE, 0);
    process_begin();
    log_init("seqrank");
    if (argc == 1) return serve();
    if (argc >= 3 && !strncmp(argv[2], RANK_CONFINED, sizeof RANK_CONFINED - 1)) {
        if (enter_sandbox(argc, argv)) return 1;
        memmove(argv + 2, argv + 3, (size_t)(argc-- - 2) * sizeof *argv);
    }
    take_grants(argc, argv);
    if (argc >= 3 && !strcmp(argv[1], "--describe"))
        return describe(hf_describe, argv[2], (const char *const *)argv + 3, argc - 3);
    if (argc >= 3 && !strcmp(argv[1], "--describe-adapter"))
        return describe(adapter_describe, argv[2], (const char *const *)argv + 3, argc - 3);
    if (argc >= 3 && !strcmp(argv[1], "--check"))
        return report_main(argv[2], (const char *const *)argv + 3, argc - 3);
    if (argc >= 3 && !strcmp(argv[1], "--models"))
        return models_main((const char *const *)argv + 2, argc - 2);
    if (argc >= 3 && !strcmp(argv[1], "--files"))
        return files_main((const char *const *)argv + 2, argc - 2);
    if (argc == 2 && !strcmp(argv[1], "--profile")) return profile_main();
    if (argc >= 3 && !strcmp(argv[1], "--trace")) return trace_main(argc - 2, argv + 2);
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("seqrank %s\n", version_text());
        return 0;
    }
    bool help = argc == 2 && !strcmp(argv[1], "--help");
    fputs(usage, help ? stdout : stderr);
    return help ? 0 : 2;
}
