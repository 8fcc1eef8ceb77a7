/* Runs trainings that offload activations or the optimizer by real seqrank processes. They must end
 * with the same weights as trainings that offload nothing. They have stages with different sequence
 * lengths, evaluations, and verification before the first step, and are killed and resumed.
 * memory.offload_dir must be beneath a writable root, and no file may remain in it.
 * tests: needs seqrank */
/* Not under sanitizers: test_offload and test_rank run the same code. */
#include <dirent.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/mem.h"
#include "tests/lib/gang.h"
#include "worker/plan/check.h"

enum { STEPS = 12, LAYERS = 5, ROWS = 76 /* 76 rows per rank: zigzag has 4 parts of 38 */ };

static char scratch[64], spill[96], prepared_id[80], kept_sha[80];
static struct gang g; /* static because it has 100 KiB, too many for the stack */

static void set_source(struct job_spec *s, struct spec_source *x, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    *x = (struct spec_source){tiny_text(s, path), tiny_text(s, "text"), DATA_JSONL, 0, -1};
}

/* Makes a training on 2 ranks, with 6 steps of 64 tokens and then 6 steps of 150. */
static struct order *make_order(const char *name, enum offload_id offload)
{
    struct order *o = order_new(JOB_TRAIN, scratch, prepared_id, name);
    struct job_spec *s = &o->spec;
    s->model.shape.n_layers = LAYERS;
    s->data.seq_len = 64;
    s->data.n_train = s->eval.n_data = 1;
    set_source(s, &s->data.train[0], "text.jsonl");
    set_source(s, &s->eval.data[0], "held.jsonl");
    s->eval.every_steps = 4;
    s->n_stages = 1;
    s->stages[0].from_step = 6;
    s->stages[0].seq_len = 150;
    s->parallel.sp = 2;
    s->parallel.zero = 3;
    s->train.steps = STEPS;
    s->train.global_batch = 2;
    s->checkpoint.every_steps = 3;
    s->memory.recompute = RECOMPUTE_SELECTIVE;
    s->verify.first_step = 1;
    o->args.n_writable = 1;
    snprintf(o->args.writable[0], sizeof o->args.writable[0], "%s", spill);
    if (offload == OFFLOAD_NONE) return o;
    s->memory.offload = (int32_t)offload;
    s->memory.offload_dir = tiny_text(s, spill);
    return o;
}

static void start(struct order *o)
{
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
    gang_start(&g, o->spec.resources.ranks, o);
}

static bool run_ok(struct order *o)
{
    start(o);
    gang_run(&g);
    CHECK_MSG(all_ok(&g), "%s: %s", g.fail.field, g.fail.text);
    return all_ok(&g);
}

static void write_docs(const char *name, int first, int n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    FILE *f = fopen(path, "we");
    for (int i = first; f && i < first + n; i++)
        fprintf(f, "{\"text\":\"int f%d(int x) { return x * %d; }\"}\n", i, i * 7 % 13);
    CHECK(f && !fclose(f));
}

static void test_prepare(void)
{
    write_docs("text.jsonl", 0, 90);
    write_docs("held.jsonl", 90, 9);
    struct order *o = make_order("prepare", OFFLOAD_NONE);
    o->spec.parallel.sp = 1;
    o->args.task = TASK_PREPARE;
    if (run_ok(o)) text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    free(o);
    o = make_order("kept", OFFLOAD_NONE);
    if (run_ok(o)) text(g.result, "weights_sha256", kept_sha, sizeof kept_sha);
    free(o);
}

/* Returns the size of a layer's record in the stage with the longest sequences. A record is the
 * output of attention and its log-sum-exp. */
static long long record_size(void)
{
    return mem_round(ROWS * 48 * 4, 64) + mem_round(ROWS * 6 * 4, 64);
}

static void check_result(void)
{
    char buf[80];
    CHECK_STR(text(g.result, "weights_sha256", buf, sizeof buf), kept_sha);
    CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    CHECK_MSG(strstr(g.result, "\"disk_planned\":"), "%s", g.result);
    /* There are 2 sequences of 150 tokens. 3 streams and 3 records of each sequence are
     * offloaded. */
    char want[96];
    const long long records = 3 * record_size();
    const long long bytes = 2 * (3 * ROWS * 48 * 4 + records);
    snprintf(want, sizeof want, "\"offload\":{\"bytes_out\":%lld,\"bytes_in\":%lld}", bytes, bytes);
    CHECK_MSG(strstr(g.result, want), "%s: want %s", g.result, want);
    for (int i = 0; i < g.n_steps; i++)
        CHECK(g.step[i].ledger_ok && g.step[i].memory_high == g.step[i].memory_planned);
}

static int entries(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2;
}

static void test_same_weights(void)
{
    struct order *o = make_order("away", OFFLOAD_ACTIVATIONS);
    if (run_ok(o)) check_result();
    CHECK(entries(spill) == 0);
    free(o);
}

/* Checks a training that is killed and resumed. Its directory is given relative to the root. */
static void test_kill_and_resume(void)
{
    struct order *o = make_order("killed", OFFLOAD_ACTIVATIONS);
    o->spec.memory.offload_dir = tiny_text(&o->spec, ".");
    start(o);
    g.kill_rank = 1;
    gang_run(&g);
    CHECK(g.n_steps >= 3 && g.n_steps < STEPS && !g.result[0] && entries(spill) == 0);
    o->args.epoch = 2;
    if (run_ok(o)) check_result();
    CHECK(g.n_steps > 0 && g.step[0].step > 3);
    free(o);
}

/* Makes a training whose gradients are sharded as `zero` says. */
static struct order *order_of(const char *name, enum offload_id offload, int zero)
{
    struct order *o = make_order(name, offload);
    o->spec.parallel.zero = zero;
    o->spec.model.shape.tied = zero == 0;
    return o;
}

/* Checks trainings whose optimizer is offloaded, which are killed and resumed with another value of
 * the field. */
static void test_optimizer(void)
{
    static const struct {
        enum offload_id first, then;
        int zero;
    } all[] = {{OFFLOAD_OPTIMIZER, OFFLOAD_ALL, 0},
               {OFFLOAD_ALL, OFFLOAD_NONE, 1},
               {OFFLOAD_NONE, OFFLOAD_OPTIMIZER, 3}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char name[24], kept[80] = "", buf[80];
        snprintf(name, sizeof name, "whole%zu", i);
        struct order *o = order_of(name, OFFLOAD_NONE, all[i].zero);
        if (run_ok(o)) text(g.result, "weights_sha256", kept, sizeof kept);
        free(o);
        snprintf(name, sizeof name, "state%zu", i);
        o = order_of(name, all[i].first, all[i].zero);
        start(o);
        g.kill_rank = 1;
        gang_run(&g);
        CHECK(g.n_steps >= 3 && g.n_steps < STEPS && !g.result[0] && entries(spill) == 0);
        free(o);
        o = order_of(name, all[i].then, all[i].zero);
        o->args.epoch = 2;
        if (run_ok(o)) {
            CHECK_STR(text(g.result, "weights_sha256", buf, sizeof buf), kept);
            CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
            CHECK(g.n_steps > 0 && g.step[0].step > 3);
            CHECK(!strstr(g.result, "\"offload\":{") == (all[i].then == OFFLOAD_NONE));
        }
        for (int k = 0; k < g.n_steps; k++)
            CHECK(g.step[k].ledger_ok && g.step[k].memory_high == g.step[k].memory_planned);
        free(o);
    }
}

static void refused(struct order *o, enum err_code code, const char *words)
{
    start(o);
    gang_run(&g);
    CHECK_MSG(g.n_fails >= 1 && g.fail.code == (int)code, "code %d: %s", g.fail.code, g.fail.text);
    CHECK_STR(g.fail.field, "memory.offload_dir");
    CHECK_MSG(strstr(g.fail.text, words), "%s", g.fail.text);
    free(o);
}

static void test_directory(void)
{
    char path[128], to[] = "/tmp";
    struct order *o = make_order("bad", OFFLOAD_ACTIVATIONS);
    o->args.n_writable = 0;
    refused(o, ERR_NOT_FOUND, "none of this node's 0 writable roots");
    o = make_order("bad", OFFLOAD_ACTIVATIONS);
    o->spec.memory.offload_dir = tiny_text(&o->spec, scratch);
    refused(o, ERR_NOT_FOUND, "none of this node's 1 writable roots");
    o = make_order("bad", OFFLOAD_ACTIVATIONS);
    o->spec.memory.offload_dir = tiny_text(&o->spec, "missing");
    refused(o, ERR_NOT_FOUND, "No such file");
    snprintf(path, sizeof path, "%s/link", spill);
    CHECK(!symlink(to, path));
    o = make_order("bad", OFFLOAD_ACTIVATIONS);
    o->spec.memory.offload_dir = tiny_text(&o->spec, path);
    refused(o, ERR_INVALID, "memory.offload_dir: open");
    snprintf(path, sizeof path, "%s/../", spill);
    o = make_order("bad", OFFLOAD_ACTIVATIONS);
    o->spec.memory.offload_dir = tiny_text(&o->spec, path);
    refused(o, ERR_NOT_FOUND, "writable roots");
}

int main(int argc, char **argv)
{
    struct err e = {0};
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_offload_jobs.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    snprintf(spill, sizeof spill, "%s/spill", scratch);
    mkdir(spill, 0700);
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    RUN(test_prepare);
    RUN(test_same_weights);
    RUN(test_kill_and_resume);
    RUN(test_optimizer);
    RUN(test_directory);
    if (getenv("KEEP"))
        printf("  kept %s\n", scratch);
    else if (file_remove(scratch, &e))
        printf("  %s\n", e.text);
    return test_done("offload_jobs");
}
