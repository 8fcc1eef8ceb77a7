/* test_seqd_engine: tests what `seqd run --auto` reads from the variables of engines. */
#include <stdbool.h>
#include <stdlib.h>
#include "daemon/run/engine.h"
#include "tests/lib/test.h"

static struct err e;

/* `env` has variables that blanks part; "~" stands for a newline in a value. */
static int find(struct engine_found *f, const char *name, const char *env, const char *self)
{
    static char text[1024];
    static char *list[32];
    int n = 0;
    snprintf(text, sizeof text, "%s", env);
    for (char *at = strtok(text, " "); at && n < 31; at = strtok(NULL, " ")) list[n++] = at;
    list[n] = NULL;
    for (int i = 0; i < n; i++)
        for (char *c = strchr(list[i], '~'); c; c = strchr(c, '~')) *c = '\n';
    return engine_find(f, name, list, self, &e);
}

static void test_engines(void)
{
    static const struct {
        const char *env, *self, *name, *host;
        int64_t nodes, rank;
        int port;
    } rows[] = {
        {"PATH=/bin SLURM_JOB_ID=7 SLURM_STEP_NUM_NODES=4 SLURM_NODEID=2 "
         "SLURM_STEP_NODELIST=gpu[007-009,12],m1",
         "", "slurm", "gpu007", 4, 2, 0},
        {"SLURM_JOB_ID=7 SLURM_STEP_NUM_NODES=2 SLURM_NODEID=0 SLURM_STEP_NODELIST=a,b[1-2]", "",
         "slurm", "a", 2, 0, 0},
        {"SLURM_JOB_ID=7 SLURM_STEP_NUM_NODES=2 SLURM_NODEID=0 SLURM_STEP_NODELIST=r[1-2]-x", "",
         "slurm", "r1-x", 2, 0, 0},
        {"JOB_COMPLETION_INDEX=3", "ring-w-0-3.ring.lab.svc", "kubernetes",
         "ring-w-0-0.ring.lab.svc", 0, 3, 0},
        {"JOB_COMPLETION_INDEX=0", "ring-0", "kubernetes", "ring-0", 0, 0, 0},
        {"JOB_COMPLETION_INDEX=3", "another", "kubernetes", "", 0, 3, 0},
        {"JOB_COMPLETION_INDEX=1 PET_NNODES=2 PET_NODE_RANK=1 PET_MASTER_ADDR=t-node-0-0.t "
         "PET_MASTER_PORT=29500",
         "", "kubeflow", "t-node-0-0.t", 2, 1, 29500},
        {"LWS_LEADER_ADDRESS=l-0.l.ns LWS_GROUP_SIZE=5 LWS_WORKER_INDEX=4", "", "lws", "l-0.l.ns",
         5, 4, 0},
        {"SKYPILOT_NUM_NODES=3 SKYPILOT_NODE_RANK=1 SKYPILOT_NODE_IPS=10.0.0.5~10.0.0.6~10.0.0.7",
         "", "skypilot", "10.0.0.5", 3, 1, 0},
        {"DSTACK_NODES_NUM=2 DSTACK_NODE_RANK=0 DSTACK_MASTER_NODE_IP=10.1.0.1", "", "dstack",
         "10.1.0.1", 2, 0, 0},
        {"FLUX_JOB_ID=f23 FLUX_JOB_NNODES=2 FLUX_TASK_RANK=1", "", "flux", "", 2, 1, 0},
        {"FLUX_JOB_ID=f23 FLUX_JOB_NNODES=2 FLUX_TASK_RANK=1 MASTER_ADDR=h MASTER_PORT=99", "",
         "flux", "h", 2, 1, 99},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct engine_found f = {0};
        CHECK_MSG(!find(&f, "", rows[i].env, rows[i].self), "row %zu: %s", i, e.text);
        CHECK_MSG(!strcmp(f.name, rows[i].name) && !strcmp(f.host, rows[i].host) &&
                      f.nodes == rows[i].nodes && f.rank == rows[i].rank && f.port == rows[i].port,
                  "row %zu: %s host %s nodes %lld rank %lld port %d", i, f.name, f.host,
                  (long long)f.nodes, (long long)f.rank, f.port);
    }
}

static void test_refusals(void)
{
    static const struct {
        const char *name, *env, *why;
    } rows[] = {
        {"", "PATH=/bin", "--auto finds no engine: it looks for kubeflow (PET_NNODES), lws"},
        {"", "SLURM_JOB_ID=", "--auto finds no engine"},
        {"", "SLURM_JOB_ID=1 SLURM_NODEID=0 FLUX_JOB_ID=2 FLUX_TASK_RANK=0",
         "finds two engines: flux (FLUX_JOB_ID), slurm (SLURM_JOB_ID): say which, as --auto=slurm"},
        {"ray", "SLURM_JOB_ID=1", "--auto=ray: want one of kubeflow"},
        {"flux", "SLURM_JOB_ID=1", "--auto=flux: the variable FLUX_JOB_ID is not set"},
        {"", "SLURM_JOB_ID=1", "slurm is found by SLURM_JOB_ID, and SLURM_NODEID is not set"},
        {"", "PET_NNODES=1:4 PET_NODE_RANK=0", "PET_NNODES=1:4: want a number from 1 to"},
        {"", "PET_NNODES=2 PET_NODE_RANK=-1", "PET_NODE_RANK=-1: want a number from 0"},
        {"", "PET_NNODES=2 PET_NODE_RANK=9999999999999999999", "want a number from 0"},
        {"", "PET_NNODES=2 PET_NODE_RANK=0 PET_MASTER_PORT=70000", "PET_MASTER_PORT=70000: want"},
    };
    char env[600] = "PET_NNODES=2 PET_NODE_RANK=0 PET_MASTER_ADDR=";
    struct engine_found f;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        CHECK_MSG(find(&f, rows[i].name, rows[i].env, "") && strstr(e.text, rows[i].why),
                  "row %zu: \"%s\" says nothing of \"%s\"", i, e.text, rows[i].why);
    }
    memset(env + strlen(env), 'x', 300);
    CHECK(find(&f, "", env, "") && strstr(e.text, "kubeflow has a host of 300 bytes"));
    /* --auto=NAME decides between two. */
    CHECK(!find(&f, "slurm",
                "SLURM_JOB_ID=1 SLURM_NODEID=1 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a "
                "FLUX_JOB_ID=2",
                "") &&
          !strcmp(f.name, "slurm"));
}

int main(void)
{
    RUN(test_engines);
    RUN(test_refusals);
    return test_done("engine");
}
