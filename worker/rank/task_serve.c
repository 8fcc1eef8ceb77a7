/* task_serve.c: runs a serve job. */
#include "worker/rank/run.h"

int task_serve(struct run *r, struct err *e)
{
    (void)r;
    return err_field(e, ERR_UNSUPPORTED, "kind",
                     "this version only plans serve jobs: submit the requests as a generate job");
}
