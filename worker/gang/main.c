/* seqgang DIR: runs the ranks that one attempt has on this node, as DIR/start describes
 * (protocols: api/core/rank.h, api/core/gang_start.h). seqw starts it in a new session. When
 * the attempt is over, seqgang exits with 0, even if the attempt failed. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include "api/core/cgroup.h"
#include "api/core/log.h"
#include "api/core/process.h"
#include "api/core/version.h"
#include "worker/gang/gang.h"

static void on_signal(void *arg, int signo)
{
    gang_stop(arg, GANG_ORPHANED); /* a person has sent the signal, and not seqd */
}

int main(int argc, char **argv)
{
    int signos[] = {SIGINT};
    struct err e = {0};
    process_begin();
    log_init("seqgang");
    umask(077); /* ranks inherit this mask, so only the owner may read their checkpoints,
                 * artifacts and logs */
    if (argc == 2 && !strcmp(argv[1], "--version"))
        return printf("seqgang %s\n", version_text()), 0;
    if (argc != 2 || argv[1][0] == '-') {
        fprintf(stderr, "usage: seqgang DIR      started by seqw, which writes DIR/start\n"
                        "       seqgang --version\n");
        return 2;
    }
    signal(SIGHUP, SIG_IGN);
    /* Ignore SIGTERM, which a machine or a batch system sends to every process. seqw handles
     * SIGTERM, and asks its jobs to save. */
    signal(SIGTERM, SIG_IGN);
    cgroup_join(argv[1]);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); /* the ranks inherit this */
    struct loop *l = loop_create(NULL, NULL, &e);
    struct gang *g = l ? gang_create(l, argv[1], &e) : NULL;
    if (g && loop_signals(l, signos, 1, on_signal, g, &e) == 0) loop_run(l);
    if (e.code) log_error("gang.create", "dir=%s why=\"%s\"", argv[1], e.text);
    gang_destroy(g);
    cgroup_leave(argv[1]);
    loop_destroy(l);
    return e.code ? 1 : 0;
}
