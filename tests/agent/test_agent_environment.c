/* test_agent_environment: tests which part of seqw's environment is passed on to a rank, and by
 * which address ranks are reached. */
#include "tests/lib/test.h"

#include <stdbool.h>

#include "worker/agent/environment.h"
#include "worker/agent/probe.h"

static bool passes(char *variable)
{
    char *from[] = {"LANG=C", variable, "TZ=UTC", NULL};
    char **out = environment_for_ranks(from);
    const bool yes = out[1] == variable;
    CHECK(out[0] == from[0] && out[yes ? 2 : 1] == from[2] && !out[yes ? 3 : 2]);
    free(out);
    return yes;
}

static void test_list(void)
{
    static char *const in[] = {"PATH=/bin",         "SEQD_LOG=debug", "SEQD_CUDA_BLAS=0",
                               "NCCL_DEBUG=INFO",   "CUDA_X=",        "HOME=/",
                               "LD_LIBRARY_PATH=/x"};
    static char *const out[] = {"LD_PRELOAD=/x.so",
                                "PATHS=/bin",
                                "SEQD=1",
                                "SEQD_TOKEN=t",
                                "SEQD_CUDA_=1",
                                "NOTIFY_SOCKET=@x",
                                "WATCHDOG_USEC=1",
                                "CREDENTIALS_DIRECTORY=/run/c",
                                "AWS_SECRET_ACCESS_KEY=k",
                                "SSH_AUTH_SOCK=/tmp/s",
                                "LISTEN_FDS=1",
                                "PAT",
                                "",
                                "=",
                                "SEQCTL_TOKEN=t"};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) CHECK_MSG(passes(in[i]), "%s", in[i]);
    for (size_t i = 0; i < sizeof out / sizeof *out; i++) CHECK_MSG(!passes(out[i]), "%s", out[i]);
    char *none[] = {NULL};
    char **got = environment_for_ranks(none);
    CHECK(!got[0]);
    free(got);
}

/* The loopback interface is on every machine, and has 127.0.0.1. */
static void test_interface(void)
{
    char at[RANK_ADDRESS_SIZE];
    struct err e = {0};
    CHECK(!probe_interface("lo", at, &e) && !strcmp(at, "127.0.0.1"));
    CHECK(probe_interface("l", at, &e) && e.code == ERR_INVALID);
    CHECK(probe_interface("none0", at, &e) && e.code == ERR_INVALID);
    CHECK_MSG(strstr(e.text, "--interface none0 has no address here; these have one: lo"), "%s",
              e.text);
    CHECK(!strstr(strstr(e.text, " lo") + 3, " lo")); /* also where lo has two addresses */
}

int main(void)
{
    RUN(test_list);
    RUN(test_interface);
    return test_done("agent_environment");
}
