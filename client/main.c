/* main.c: seqctl, the client of seqd, for people and scripts. */
#include "api/core/process.h"
#include "client/cli.h"
#include "client/verbs.h"

int main(int argc, char **argv)
{
    process_begin();
    return cli_run(argc, argv, verbs_all);
}
