/* test_allocation: tests how the allocation of a batch system is found, with made-up control
 * groups, environments and GPUs. */
#include "tests/lib/test.h"

#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "worker/agent/allocation.h"
#include "worker/agent/limits.h"

#define GIB ((int64_t)1 << 30)

static char root[] = "/tmp/seqd-allocation.XXXXXX";

static void put(const char *path, const char *text)
{
    char whole[512], dir[512];
    struct err e;
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    snprintf(dir, sizeof dir, "%s", whole);
    *strrchr(dir, '/') = 0;
    CHECK(file_make_dir(dir, &e) == 0 && file_write(whole, text, strlen(text), &e) == 0);
}

static void clear(void)
{
    struct err e;
    CHECK(file_remove(root, &e) == 0 && mkdir(root, 0700) == 0);
}

/* env ends with a NULL. */
static int find(struct allocation *a, struct err *e, ...)
{
    char *env[16];
    int n = 0;
    va_list l;
    va_start(l, e);
    while ((env[n] = va_arg(l, char *))) n++;
    va_end(l);
    const struct allocation_world w = {root, env, 16, 64 * GIB};
    return allocation_find(a, &w, e);
}

static void test_no_engine(void)
{
    struct allocation a;
    struct err e;
    clear();
    CHECK(limits_memory(root) == INT64_MAX && limits_cores(root) == INT32_MAX);
    CHECK(find(&a, &e, "LANG=C", NULL) == 0);
    CHECK(a.cores.n == 16 && !strcmp(a.cores.from, "the CPU set"));
    CHECK(a.memory.n == 64 * GIB && !strcmp(a.memory.from, "the machine"));
    CHECK(a.gpus == ALLOCATION_ALL && !*a.name && !a.end.n);
}

static void test_groups_v2(void)
{
    struct allocation a;
    struct err e;
    clear();
    put("proc/self/cgroup", "0::/pods/one/box\n");
    put("sys/fs/cgroup/pods/memory.max", "8589934592\n");
    /* the smallest limit is in the middle */
    put("sys/fs/cgroup/pods/one/memory.max", "4294967296\n");
    put("sys/fs/cgroup/pods/one/box/memory.max", "max\n");
    put("sys/fs/cgroup/pods/one/box/cpu.max", "350000 100000\n");
    put("sys/fs/cgroup/pods/cpu.max", "max 100000\n");
    CHECK(limits_memory(root) == 4 * GIB && limits_cores(root) == 3);
    CHECK(find(&a, &e, NULL) == 0);
    CHECK(a.cores.n == 3 && a.memory.n == 4 * GIB && !strcmp(a.memory.from, "the control group"));
    put("sys/fs/cgroup/pods/one/cpu.max", "50000 100000\n"); /* half a core */
    CHECK(limits_cores(root) == 1);
    /* A container is told the path of its control group on the host, but only its own group is
     * mounted in the container. */
    clear();
    put("proc/self/cgroup", "0::/../../kubepods/pod1\n");
    put("sys/fs/cgroup/memory.max", "1073741824");
    put("sys/fs/cgroup/cpu.max", "200000 100000");
    CHECK(limits_memory(root) == GIB && limits_cores(root) == 2);
    put("proc/self/cgroup", "0::/not/there\n");
    CHECK(limits_memory(root) == GIB);
    put("sys/fs/cgroup/memory.max", "-5\n");
    put("sys/fs/cgroup/cpu.max", "1e30 0\n");
    CHECK(limits_memory(root) == INT64_MAX && limits_cores(root) == INT32_MAX);
    put("proc/self/cgroup", "garbage\n0:\n::\n0::\n");
    CHECK(limits_memory(root) == INT64_MAX);
}

static void test_groups_v1(void)
{
    clear();
    put("proc/self/cgroup",
        "5:cpu,cpuacct:/slurm/job_7\n4:memory:/slurm/job_7/step_0\n1:cpuset:/x\n"
        "0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "2147483648\n");
    put("sys/fs/cgroup/memory/slurm/job_7/step_0/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us", "400000\n");
    put("sys/fs/cgroup/cpu,cpuacct/slurm/job_7/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    CHECK(limits_memory(root) == 2 * GIB && limits_cores(root) == 4);
}

static void test_kills(void)
{
    clear();
    CHECK(limits_oom_kills(root) == -1);
    put("proc/vmstat", "nr_free_pages 7\noom_kill 2\n");
    CHECK(limits_oom_kills(root) == 2);
    put("proc/self/cgroup", "4:memory:/slurm/job_7\n0::/\n");
    put("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    CHECK(limits_oom_kills(root) == 5);
    put("sys/fs/cgroup/memory/slurm/job_7/memory.oom_control", "under_oom 0\noom_kill 6\n");
    CHECK(limits_oom_kills(root) == 6);
    put("proc/self/cgroup", "0::/pods/one\n");
    CHECK(limits_oom_kills(root) == 2); /* a group that does not count */
    put("sys/fs/cgroup/memory.events", "low 0\noom 8\noom_kill 7\n");
    CHECK(limits_oom_kills(root) == 7);
    put("sys/fs/cgroup/pods/one/memory.events", "low 0\noom 10\noom_kill 9\noom_group_kill 1\n");
    CHECK(limits_oom_kills(root) == 9);
    put("proc/self/cgroup", "0::/../../kubepods/pod1\n");
    CHECK(limits_oom_kills(root) == 7);
}

static void test_slurm(void)
{
    struct allocation a;
    struct err e;
    clear();
    CHECK(find(&a, &e, "SLURM_JOB_ID=4711", "SLURM_STEP_ID=2", "SLURM_LOCALID=0",
               "SLURMD_NODENAME=gpu-3", "SLURM_CPUS_PER_TASK=4", "SLURM_CPUS_ON_NODE=8",
               "SLURM_MEM_PER_NODE=1000", "SLURM_JOB_END_TIME=1900000000", NULL) == 0);
    CHECK(a.cores.n == 4 && !strcmp(a.cores.from, "SLURM_CPUS_PER_TASK"));
    CHECK(a.memory.n == (int64_t)1000 << 20 && !strcmp(a.memory.from, "SLURM_MEM_PER_NODE"));
    CHECK(!strcmp(a.name, "gpu-3.4711.2") && a.end.n == 1900000000);
    CHECK(a.gpus == ALLOCATION_NONE); /* others' */
    CHECK(find(&a, &e, "SLURM_MEM_PER_CPU=512", "SLURM_CPUS_ON_NODE=4", "SLURM_MEM_PER_NODE=0",
               NULL) == 0);
    CHECK(a.memory.n == 2 * GIB && !strcmp(a.memory.from, "SLURM_MEM_PER_CPU") && a.cores.n == 4);
    /* A batch script has no step number. The second task on a node gets a different name from the
     * first. */
    CHECK(find(&a, &e, "SLURM_JOB_ID=1", "SLURMD_NODENAME=n", "SLURM_LOCALID=1", NULL) == 0);
    CHECK(!strcmp(a.name, "n.1.1"));
    /* If a name is long, its job and step are kept. */
    CHECK(find(&a, &e, "SLURM_JOB_ID=4294967295", "SLURM_STEP_ID=7",
               "SLURMD_NODENAME=a23456789b23456789c23456789d23456789e23456789f23456789g23456789",
               NULL) == 0);
    CHECK(strlen(a.name) == ALLOCATION_NAME - 1 && strstr(a.name, ".4294967295.7"));
    /* The control group has less memory than Slurm reports. */
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.max", "536870912");
    CHECK(find(&a, &e, "SLURM_MEM_PER_NODE=1000", NULL) == 0 && a.memory.n == GIB / 2);
}

static void refuses(char *variable, const char *what)
{
    struct allocation a;
    struct err e = {0};
    CHECK_MSG(find(&a, &e, "SLURMD_NODENAME=n", variable, NULL) < 0, "%s", variable);
    CHECK_MSG(e.code == ERR_INVALID && strstr(e.text, what), "%s: %s", variable, e.text);
}

static void test_margin(void)
{
    CHECK(allocation_margin_s(10000, 1000, 120) == 120);
    CHECK(allocation_margin_s(1100, 1000, 120) == 25);
    CHECK(allocation_margin_s(1000, 1000, 120) == 0 && allocation_margin_s(1, 1000, 120) == 0);
}

static void test_hostile(void)
{
    static const char *const numbers[] = {
        "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU",
        "SLURM_JOB_END_TIME",  "SLURM_JOB_ID",       "SLURM_STEP_ID"};
    static const char *const values[] = {"-1",   "1e30", "4x", " 4", "99999999999999999999",
                                         "0x10", "nan"};
    char variable[128];
    clear();
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            snprintf(variable, sizeof variable, "%s=%s", numbers[i], values[k]);
            refuses(variable, numbers[i]);
        }
    refuses("SLURM_CPUS_ON_NODE=0", "SLURM_CPUS_ON_NODE");
}

static void test_hostile_words(void)
{
    struct allocation a;
    struct err e;
    char many[256] = "CUDA_VISIBLE_DEVICES=0", longer[512] = "CUDA_VISIBLE_DEVICES=GPU-";
    clear();
    CHECK(find(&a, &e, "SLURMD_NODENAME=a b", NULL) < 0 && strstr(e.text, "SLURMD_NODENAME=a b"));
    CHECK(find(&a, &e, "SLURMD_NODENAME=../x", NULL) < 0);
    for (int i = 1; i <= GPU_MAX; i++) snprintf(strchr(many, 0), 16, ",%d", i);
    memset(strchr(longer, 0), 'a', 300);
    char *const bad[] = {"CUDA_VISIBLE_DEVICES=0,,1",
                         "CUDA_VISIBLE_DEVICES=0,",
                         "CUDA_VISIBLE_DEVICES=0 1",
                         "CUDA_VISIBLE_DEVICES=1e3",
                         "CUDA_VISIBLE_DEVICES=0,-1",
                         "CUDA_VISIBLE_DEVICES=9999999",
                         "CUDA_VISIBLE_DEVICES=GPU-*",
                         "SLURM_JOB_GPUS=GPU-1",
                         "SLURM_STEP_GPUS=0-3",
                         many,
                         longer};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_MSG(find(&a, &e, bad[i], NULL) < 0, "%s", bad[i]);
        CHECK_MSG(!strncmp(e.text, bad[i], strcspn(bad[i], "=")), "%s", e.text);
    }
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

static const struct gpu four[] = {{.uuid = "GPU-aa00-1"},
                                  {.uuid = "GPU-aa11-2"},
                                  {.uuid = "GPU-bb00-3"},
                                  {.uuid = "GPU-cc00-4", .health = GPU_MIG}};

/* Returns the indices of the matched GPUs as digits, or the error. */
static const char *matched(char *variable, int n)
{
    static char text[1024];
    struct allocation a;
    struct err e;
    int at[GPU_MAX], m;
    if (find(&a, &e, "SLURM_JOB_ID=1", variable, NULL) < 0 ||
        (m = allocation_match(&a, four, n, at, &e)) < 0) {
        snprintf(text, sizeof text, "%s", e.text);
        return text;
    }
    for (int i = 0; i < m; i++) text[i] = (char)('0' + at[i]);
    text[m] = 0;
    return text;
}

static void test_gpus(void)
{
    static const struct {
        char *variable;
        int n; /* the number of GPUs that the driver shows */
        const char *want;
    } cases[] = {
        {"CUDA_VISIBLE_DEVICES=0", 2, "0"},
        {"CUDA_VISIBLE_DEVICES=2,0", 4, "20"},
        {"CUDA_VISIBLE_DEVICES=GPU-bb00-3", 4, "2"},
        {"CUDA_VISIBLE_DEVICES=GPU-bb", 4, "2"},
        {"CUDA_VISIBLE_DEVICES=GPU-aa1,0", 4, "10"},
        {"CUDA_VISIBLE_DEVICES=GPU-aa", 4,
         "CUDA_VISIBLE_DEVICES: \"GPU-aa\" begins the UUID of several GPUs: write more of it"},
        {"CUDA_VISIBLE_DEVICES=2", 2,
         "CUDA_VISIBLE_DEVICES: \"2\" is none of the 2 GPUs that the driver shows here"},
        {"CUDA_VISIBLE_DEVICES=0,GPU-aa00", 4,
         "CUDA_VISIBLE_DEVICES: \"GPU-aa00\" is a GPU named before it: name each once"},
        {"CUDA_VISIBLE_DEVICES=", 4, ""},
        {"CUDA_VISIBLE_DEVICES=-1", 4, ""},
        {"CUDA_VISIBLE_DEVICES=NoDevFiles", 4, ""},
        {"CUDA_VISIBLE_DEVICES=MIG-GPU-cc00-4/1/0,MIG-GPU-cc00-4/2/0", 4, "3"},
        {"CUDA_VISIBLE_DEVICES=MIG-8f1c-22", 4, "3"},
        /* The step has GPUs 5 and 7 of the machine. The driver shows only these two. */
        {"SLURM_STEP_GPUS=5,7", 2, "01"},
        {"SLURM_JOB_GPUS=1,2", 4, "12"}, /* the driver shows all GPUs */
        {"SLURM_JOB_GPUS=5", 4,
         "SLURM_JOB_GPUS: \"5\" is none of the 4 GPUs that the driver shows here"},
        {"SLURM_JOB_GPUS=", 4, ""},
        {"NOTHING=", 4, ""},
    };
    clear();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = matched(cases[i].variable, cases[i].n);
        CHECK_MSG(!strcmp(got, cases[i].want), "%s: %s", cases[i].variable, got);
    }
}

static void test_slots(void)
{
    struct allocation a;
    struct err e;
    clear();
    CHECK(find(&a, &e, "SLURM_CPUS_ON_NODE=6", NULL) == 0);
    CHECK(allocation_slots(&a, four, 4, 4096).n == 3); /* no rank gets the GPU that is divided */
    CHECK(allocation_slots(&a, four + 3, 1, 4096).n == 6);
    CHECK(allocation_slots(&a, NULL, 0, 4096).n == 6 && allocation_slots(&a, NULL, 0, 2).n == 2);
}

int main(void)
{
    struct err e;
    CHECK(mkdtemp(root));
    RUN(test_no_engine);
    RUN(test_groups_v2);
    RUN(test_groups_v1);
    RUN(test_kills);
    RUN(test_slurm);
    RUN(test_margin);
    RUN(test_hostile);
    RUN(test_hostile_words);
    RUN(test_gpus);
    RUN(test_slots);
    file_remove(root, &e);
    return test_done("allocation");
}
