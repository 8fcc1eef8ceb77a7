/* Checks a training on a device with memory of its own, one of whose ranks is killed or stopped in
 * the middle of a step. The other ranks must exit by themselves within twice the hop timeout. Each
 * of these ranks must report an error that names the step and the rank of the reporter. No process
 * may remain, and no GPU memory may remain allocated. SEQD_TEST_DEVICE names the device; if it is
 * not set, the device is "emulated". On GPUs the ranks use NCCL if it is installed. Run this test
 * alone, because it counts the memory of other programs, too.
 * tests: needs libkernels_emulated.so seqrank */
#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "tests/lib/gang.h"
#include "worker/plan/check.h"

enum { HOP_TIMEOUT_S = 15, RANKS = 3, LOST = 1, AT_STEP = 3, SLACK_MIB = 64 };

static char scratch[64], prepared_id[80];
static const char *device;
static struct gang g; /* static because it has 100 KiB, too many for the stack */
static int how;       /* the signal: SIGKILL or SIGSTOP */
static int64_t lost_ms;

static struct order *order(const char *name, int sp)
{
    struct order *o = order_new(JOB_TRAIN, scratch, prepared_id, name);
    struct job_spec *s = &o->spec;
    char path[96];
    snprintf(path, sizeof path, "%s/text.jsonl", scratch);
    s->resources.device = tiny_text(s, device);
    s->resources.threads = 1;
    s->parallel.sp = sp;
    s->train.steps = 1000000;
    s->train.global_batch = 1;
    s->checkpoint.every_steps = 1000000;
    /* shm obeys the first limit, and NCCL the second */
    s->limits.step_timeout_s = s->limits.hop_timeout_s = HOP_TIMEOUT_S;
    s->data.seq_len = 24;
    s->data.n_train = 1;
    s->data.train[0] = (struct spec_source){tiny_text(s, path), tiny_text(s, "text"), DATA_JSONL, 0,
                                            -1};
    return o;
}

static void test_prepare(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/text.jsonl", scratch);
    FILE *f = fopen(path, "we");
    for (int i = 0; f && i < 12; i++)
        fprintf(f, "{\"text\":\"int f%d(int x) { return x; }\"}\n", i);
    CHECK(f && !fclose(f));
    struct order *o = order("prepare", 1);
    o->args.task = TASK_PREPARE;
    if (gang_runs(&g, o)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    free(o);
}

static void lose(struct gang *gang, const struct rank_step *s)
{
    if (s->step != AT_STEP) return;
    lost_ms = gang_now_ms();
    kill(gang->pid[LOST], how);
    if (how == SIGSTOP) gang->stopped = LOST;
}

/* Returns how many MiB are allocated on all GPUs together, or -1 if that is not known. */
static long memory_used(void)
{
    long sum = -1, n;
    FILE *f = strcmp(device, "cuda")
                  ? NULL
                  : popen("nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits", "re");
    while (f && fscanf(f, "%ld", &n) == 1) sum = (sum < 0 ? 0 : sum) + n;
    if (f) pclose(f);
    return sum;
}

static void memory_is_back(long before)
{
    long now = memory_used();
    for (int i = 0; i < 50 && now > before + SLACK_MIB; i++, now = memory_used()) usleep(200000);
    CHECK_MSG(now <= before + SLACK_MIB, "%ld MiB in use before, %ld after", before, now);
    if (before < 0) printf("  not held: nvidia-smi says nothing of \"%s\"\n", device);
}

/* Checks the error of each rank that was not lost. The error must name the step and the rank of
 * the reporter. The first error must also say that a rank is lost, or how long the reporter waited
 * for another rank. */
static void says_where(void)
{
    char at[32], waited[64];
    const struct rank_fail *first = &g.fail;
    for (int r = 0; r < RANKS; r++) {
        if (r == LOST) continue;
        snprintf(at, sizeof at, ": rank %d ", r);
        CHECK_MSG(strstr(g.said[r].text, "step ") && strstr(g.said[r].text, at), "rank %d: %s", r,
                  g.said[r].text);
    }
    snprintf(waited, sizeof waited, "waited %d ms for rank", HOP_TIMEOUT_S * 1000);
    const bool gone = strstr(first->text, "rank 1 is gone") || strstr(first->text, "NCCL: ");
    const bool late = first->code == ERR_TIMEOUT && strstr(first->text, "job 7, epoch 1: ") &&
                      strstr(first->text, waited);
    CHECK_MSG(how == SIGKILL ? gone : late, "%s: %s", err_name((enum err_code)first->code),
              first->text);
    printf("  %s\n", first->text);
}

static void lose_one(int signal)
{
    const long before = memory_used();
    struct err e = {0};
    struct order *o = order(signal == SIGKILL ? "killed" : "stopped", RANKS);
    if (gang_has_nccl(device)) {
        o->spec.parallel.transport = TRANSPORT_NCCL;
        gang_env = gang_nccl_env;
    }
    how = signal;
    lost_ms = 0;
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, RANKS, o);
    g.on_step = lose;
    gang_run(&g);
    CHECK(lost_ms && WIFSIGNALED(g.status[LOST]));
    for (int r = 0; r < RANKS; r++) {
        if (r == LOST) continue;
        CHECK_MSG(WIFEXITED(g.status[r]) && WEXITSTATUS(g.status[r]) == 1, "rank %d: status %x", r,
                  (unsigned)g.status[r]);
        CHECK_MSG(g.left_ms[r] - lost_ms <= 2 * HOP_TIMEOUT_S * 1000, "rank %d left after %lld ms",
                  r, (long long)(g.left_ms[r] - lost_ms));
    }
    says_where();
    memory_is_back(before);
    gang_env = NULL;
    free(o);
}

static void test_killed(void)
{
    lose_one(SIGKILL);
}

static void test_stalled(void)
{
    lose_one(SIGSTOP);
}

int main(int argc, char **argv)
{
    (void)argc;
    struct err e = {0};
    device = getenv("SEQD_TEST_DEVICE");
    if (!device) device = "emulated";
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_device_lost.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_prepare);
    RUN(test_killed);
    RUN(test_stalled);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("device_lost");
}
