/* bench_queue: measures a long queue. First the time of a scheduling pass over 10,000 GPU jobs of
 * 16 shapes on 256 and on 4,096 full nodes; then seqd's memory and processor time after a restart
 * with queued jobs.
 *
 *   bench_queue            10,000 and 100,000 jobs in the queue of the restart
 *   bench_queue N          N jobs
 *   bench_queue pass       the passes alone */
#define NODES 3
#define SLOTS 2
#define SPOOL 4
#define GANGS 4
#include <malloc.h>
#include <sys/wait.h>
#include <time.h>
#include "daemon/loop/pass.h"
#include "tests/lib/sim.h"

enum { WIDE = 256, GPUS = 8, QUEUED = 10000, SHAPES = 16, PASSES = 20 };

static double clock_ms(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

static void add_node(struct cluster *k, int i)
{
    char name[NODE_NAME];
    snprintf(name, sizeof name, "rack-%03d-node-%03d", i / 16, i);
    struct node *n = node_expect(&k->nodes, name, 0);
    n->abi = WIRE_ABI;
    n->up = n->joined = true;
    n->n_slots = 8;
    n->memory_size = (int64_t)1 << 40;
    snprintf(n->address, sizeof n->address, "10.0.%d.%d", i / 250, i % 250 + 1);
    n->n_gpus = GPUS;
    for (int g = 0; g < GPUS; g++) {
        n->gpu[g].memory_size = n->gpu[g].memory_free = (int64_t)80 << 30;
        snprintf(n->gpu[g].uuid, sizeof n->gpu[g].uuid, "GPU-%03d-%d", i, g);
    }
}

static struct job *make_job(int64_t id, int ranks, int64_t gpu_size)
{
    static struct job_spec s;
    s = (struct job_spec){.kind = JOB_TRAIN, .text_used = 1};
    if (spec_intern(&s, "cuda", 4, &s.resources.device)) abort();
    s.resources.ranks = s.parallel.sp = ranks;
    s.parallel.dp = 1;
    struct job *j = job_create(id, &s);
    if (!j) abort();
    char plan[128];
    snprintf(plan, sizeof plan, "{\"memory\":{\"total_bytes\":%lld,\"host_bytes\":1000000}}",
             (long long)gpu_size);
    job_set_plan(j, strdup(plan));
    snprintf(j->owner, sizeof j->owner, "user%lld", (long long)id % 7);
    snprintf(j->prepared_id, sizeof j->prepared_id, "data");
    return j;
}

static void add_running(struct cluster *k, int i)
{
    struct job *j = make_job(i + 1, GPUS, 1000);
    j->state = JOB_RUNNING;
    j->task = TASK_RUN;
    j->n_places = 1;
    j->places = calloc(1, sizeof *j->places);
    j->away_ms = calloc(1, sizeof *j->away_ms);
    j->gpus = calloc(GPUS, sizeof *j->gpus);
    if (!j->places || !j->away_ms || !j->gpus) abort();
    memcpy(j->places->node, k->nodes.node[i].name, NODE_NAME);
    j->places->n_ranks = GPUS;
    for (int g = 0; g < GPUS; g++) memcpy(j->gpus[g], k->nodes.node[i].gpu[g].uuid, GPU_UUID_SIZE);
    jobs_add(&k->jobs, j);
}

/* The pass has n nodes, of which the first n_down are down. If `held` is set, each queued job has a
 * checkpoint on one of the nodes. */
static void bench_pass(int n, int n_down, bool held)
{
    struct cluster *k = calloc(1, sizeof *k);
    struct sched_pass *p = pass_create(0);
    double best = 1e9, sum = 0;
    if (!k) abort();
    cluster_init(k);
    for (int i = 0; i < n; i++) add_node(k, i);
    for (int i = 0; i < n; i++) add_running(k, i);
    for (int i = 0; i < n_down; i++) k->nodes.node[i].up = false;
    for (int i = 0; i < QUEUED; i++) {
        const int shape = i % SHAPES;
        struct job *j = make_job(1000 + i, 1 << shape % 4, (int64_t)(shape / 4 + 1) << 30);
        if (held) memcpy(j->checkpoint_node, k->nodes.node[i * 7 % n].name, NODE_NAME);
        if (held) j->checkpoint_step = i;
        jobs_add(&k->jobs, j);
    }
    for (int i = 0; i < PASSES; i++) {
        const double from = clock_ms(CLOCK_THREAD_CPUTIME_ID);
        CHECK(pass_pick(p, k, 1000) == QUEUED);
        const double took = clock_ms(CLOCK_THREAD_CPUTIME_ID) - from;
        if (took < best) best = took;
        sum += took;
        if (sum > 5000) break;
    }
    printf("pass, %d GPU jobs of %d shapes%s, %d nodes, %d of them down: %.2f ms of "
           "processor at best\n",
           QUEUED, SHAPES, held ? " with checkpoints" : "", n, n_down, best);
    pass_destroy(p);
    cluster_fini(k);
    free(k);
}

/* ---- a restart ------------------------------------------------------------------------------- */

/* About the size of a plan of 8 ranks. */
static const char *long_plan(void)
{
    static char plan[3000];
    if (*plan) return plan;
    int n = snprintf(plan, sizeof plan,
                     "{\"memory\":{\"total_bytes\":100000000,\"host_bytes\":1000000},\"text\":\"");
    memset(plan + n, 'x', 2500);
    strcpy(plan + n + 2500, "\"}");
    return plan;
}

static double resident_mib(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[128];
    long kib = 0;
    if (!f) return 0;
    while (fgets(line, sizeof line, f) && sscanf(line, "VmRSS: %ld", &kib) != 1) {
    }
    fclose(f);
    return (double)kib / 1024;
}

static void submit_many(int n)
{
    const double from = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < n; i++) {
        char json[1024];
        snprintf(json, sizeof json,
                 "{\"kind\":\"train\",\"name\":\"train-%d\",\"labels\":{\"team\":\"a\"},"
                 "\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
                 "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":"
                 "[{\"path\":\"/data/corpus/part-%d.jsonl\"}],\"seq_len\":128},"
                 "\"train\":{\"passes\":1},\"seed\":%d,"
                 "\"resources\":{\"device\":\"emulated\",\"ranks\":%d}}",
                 i, i, i, 1 << i % 4);
        submit_text(json, long_plan());
        if (i % 500 == 499) settle();
    }
    settle();
    printf("submit, each of %d: %.3f ms of processor\n", n,
           (clock_ms(CLOCK_PROCESS_CPUTIME_ID) - from) / n);
}

static void restart(int n)
{
    const double heap = (double)mallinfo2().uordblks;
    const double rss = resident_mib(), cpu = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    open_seqd();
    const double took = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("restart with %d queued jobs: %.0f ms of processor, %.1f us each; ",
           control_n_live(w.control), took, took * 1e3 / n);
    settle();
    pass(1000);
    const double grown = resident_mib() - rss, used = (double)mallinfo2().uordblks - heap;
    printf("%.0f MiB resident, %.0f bytes each, of which %.0f are allocated\n", grown,
           grown * 1048576 / n, used / n);
    close_seqd();
}

/* Runs `call` in a process of its own, so that memory of earlier work is not counted. */
static void apart(void (*call)(int), int n)
{
    fflush(stdout);
    const pid_t pid = fork();
    int status = 0;
    if (!pid) {
        call(n);
        fflush(stdout);
        _exit(test_failures_now != 0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status) abort();
}

static void submit_and_close(int n)
{
    open_seqd();
    submit_many(n);
    close_seqd();
}

static void bench_restart(int n)
{
    begin();
    close_seqd();
    apart(submit_and_close, n);
    apart(restart, n);
    nftw(w.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv)
{
    seqd_test_init();
    const bool passes = argc < 2 || !strcmp(argv[1], "pass");
    if (passes) {
        bench_pass(WIDE, 0, false), bench_pass(WIDE, 0, true);
        bench_pass(NODE_MAX, 0, false), bench_pass(NODE_MAX, NODE_MAX / 2, false);
    }
    if (argc > 1 && !passes) bench_restart(atoi(argv[1]));
    if (argc < 2) bench_restart(10000), bench_restart(100000);
    return test_failures_now != 0;
}
