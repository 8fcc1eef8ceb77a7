/* test_agent_environment: tests which part of seqw's environment is passed on to a rank. */
#include "tests/lib/test.h"

#include <stdbool.h>

#include "worker/agent/environment.h"

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

int main(void)
{
    RUN(test_list);
    return test_done("agent_environment");
}
