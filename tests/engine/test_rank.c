/* Checks real seqrank processes. Checks every kind of job, ranks that are killed, damaged files,
 * and the errors that ranks report.
 * tests: needs seqrank golden */
#include <errno.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "api/core/gang_start.h"
#include "api/core/sha256.h"
#include <math.h>
#include "tests/lib/gang.h"
#include "tests/lib/hf_save.h"
#include "tests/lib/param.h"
#include "worker/plan/check.h"
#include "worker/hf/hf.h"

/* the number of steps of every training in this file; a training saves a checkpoint every 3
 * steps */
#define STEPS 20

static char scratch[64]; /* the folder that has all files of this test */

/* ---- jobs ------------------------------------------------------------------------------------ */

#define N_DOCS 60
static char data_path[512], prepared_id[80];
static int64_t text_size; /* the bytes of all documents */

/* Makes a job of the given kind on n ranks. `name` is the job's directory beneath scratch. */
static struct order *make_order(enum job_kind kind, int n, const char *name)
{
    struct order *o = order_new(kind, scratch, prepared_id, name);
    struct job_spec *s = &o->spec;
    s->data.seq_len = 64;
    s->resources.ranks = n;
    s->resources.threads = 1;
    struct spec_source source = {tiny_text(s, data_path), tiny_text(s, "text"), DATA_JSONL};
    if (kind == JOB_TRAIN || kind == JOB_VERIFY) {
        s->data.n_train = 1;
        s->data.train[0] = source;
    } else if (kind == JOB_SCORE) {
        s->input.source = source;
    }
    s->train.steps = STEPS;
    s->train.global_batch = 2;
    s->checkpoint.every_steps = 3;
    s->verify.max_tokens = 50;
    return o;
}

static void check_order(struct order *o)
{
    struct err e = {0};
    CHECK_MSG(!family_check(&o->spec, &e), "%s: %s", e.field, e.text);
}

static void run(struct gang *g, struct order *o)
{
    check_order(o);
    gang_start(g, o->spec.resources.ranks, o);
    gang_run(g);
}

static void set_model(struct order *o, const char *dir)
{
    o->spec.model.path = tiny_text(&o->spec, dir);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static struct gang g; /* static because it has 100 KiB, too many for the stack */

/* Returns a number from the result's account of memory. */
static double inside(const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *memory = strstr(g.result, "\"memory\":{");
    const char *at = memory ? strstr(memory, quoted) : NULL;
    CHECK_MSG(at, "no memory.%s in %s", key, g.result);
    return at ? strtod(at + strlen(quoted), NULL) : 0;
}

/* Checks that rank 0 first reported 0 of `total` units, and at last reported `total` of them. */
static void check_told(int unit, double total)
{
    const struct rank_progress *a = &g.told[0], *z = &g.told[1];
    CHECK_MSG(g.n_told >= 2, "told %d times", g.n_told);
    CHECK(a->unit == unit && z->unit == unit && a->done == 0 && a->from == 0 && z->from == 0);
    CHECK_MSG(z->done == total && z->total == total && z->elapsed_us > 0, "%g of %g, want %g",
              z->done, z->total, total);
}

static void test_prepare(void)
{
    struct order *o = make_order(JOB_TRAIN, 1, "prepare");
    o->args.task = TASK_PREPARE;
    o->args.prepared_id[0] = 0;
    run(&g, o);
    CHECK(all_ok(&g));
    text(g.result, "prepared_id", prepared_id, sizeof prepared_id);
    CHECK(number(g.result, "n_documents") == N_DOCS);
    CHECK(number(g.result, "n_bytes") == (double)text_size);
    CHECK(number(g.result, "n_tokens") == (double)text_size + N_DOCS);
    CHECK(number(g.result, "samples_per_pass") == (double)((text_size + N_DOCS + 63) / 64));
    struct stat st;
    CHECK(!stat(data_path, &st));
    check_told(PROGRESS_BYTES, 2 * (double)st.st_size);
    double h = number(g.result, "unigram_entropy");
    CHECK_MSG(h > 1 && h < 5.5, "%g", h);
    free(o);
}

static double losses[MAX_STEPS]; /* the losses of the undisturbed run */
static char final_sha[80], model_dir[1300];

static void test_train(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "train");
    char buf[1400];
    run(&g, o);
    CHECK(all_ok(&g));
    CHECK(g.n_ready == 2 && g.n_steps == STEPS && g.n_checkpoints == 7);
    for (int i = 0; i < g.n_steps; i++) {
        const struct rank_step *s = &g.step[i];
        losses[i] = s->loss;
        CHECK(s->step == i + 1 && s->ledger_ok && s->tokens > 0 && s->targets > 0);
        CHECK(s->comm[PURPOSE_RING_KV].bytes_sent > 0);
        CHECK(!memcmp(s->comm, s->planned, sizeof s->comm));
        CHECK_MSG(s->memory_high == s->memory_planned, "%lld %lld", (long long)s->memory_high,
                  (long long)s->memory_planned);
    }
    CHECK_MSG(losses[STEPS - 1] < losses[0] - 0.3, "%g -> %g", losses[0], losses[STEPS - 1]);
    CHECK(number(g.result, "steps") == STEPS);
    CHECK(number(g.result, "loss") == losses[STEPS - 1]);
    CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    text(g.result, "weights_sha256", final_sha, sizeof final_sha);
    CHECK(strlen(final_sha) == 64);
    CHECK_STR(text(g.checkpoint, "weights_sha256", buf, sizeof buf), final_sha);
    text(g.result, "hf", model_dir, sizeof model_dir);
    snprintf(buf, sizeof buf, "%s/model.safetensors", model_dir);
    CHECK(!access(buf, R_OK));
    free(o);
}

static int64_t largest_wish; /* bytes of the largest mapping of rank 0 that asks for large pages */

static void read_wishes(struct gang *gang, const struct rank_step *s)
{
    char path[64], line[256];
    int64_t kib = 0;
    if (s->step > 1) return;
    snprintf(path, sizeof path, "/proc/%d/smaps", gang->pid[0]);
    FILE *f = fopen(path, "r");
    CHECK_MSG(f, "%s: %s", path, strerror(errno));
    while (f && fgets(line, sizeof line, f)) {
        if (!strncmp(line, "Size:", 5)) kib = atoll(line + 5);
        if (!strncmp(line, "VmFlags:", 8) && strstr(line, " hg") && kib << 10 > largest_wish)
            largest_wish = kib << 10;
    }
    if (f) fclose(f);
}

/* Checks the memory of rank 0's process. Its private memory must be the planned memory and a small
 * amount for stacks and libc. peak_rss is larger than this, because the kernel also counts files,
 * and the segments of other ranks that the process reads without copying. */
static void test_resident(void)
{
    static const enum job_kind kinds[] = {JOB_TRAIN, JOB_SCORE};
    const double room = 1 << 20;
    CHECK(!prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)); /* a page of 2 MiB would count for a stack */
    for (int i = 0; i < 2; i++) {
        struct order *o = make_order(kinds[i], 3, i ? "held_score" : "held_train");
        struct job_spec *s = &o->spec;
        s->model.shape.width = 96;
        s->model.shape.n_heads = s->model.shape.n_kv_heads = 12;
        s->data.seq_len = 2048;
        /* every block is sent all around the ring */
        s->data.document_mask = s->data.reset_positions = 0;
        s->train.steps = 2;
        largest_wish = 0;
        check_order(o);
        gang_start(&g, 3, o);
        g.on_step = read_wishes;
        gang_run(&g);
        CHECK(all_ok(&g));
        const double planned = inside("planned"), own = inside("own");
        const double others = inside("other_ranks"), files = inside("files");
        CHECK(planned > 4 * room && planned == inside("high"));
        if (!SANITIZED)
            CHECK_MSG(own > 0.5 * planned && own < planned + room, "%.0f bytes, planned %.0f", own,
                      planned);
        CHECK_MSG(others > room && others < planned, "%.0f bytes of other ranks", others);
        if (kinds[i] == JOB_TRAIN) /* the arena, minus the segment that other ranks read */
            CHECK_MSG(largest_wish > 0.5 * planned, "%lld of %.0f bytes ask for large pages",
                      (long long)largest_wish, planned);
        const double peak = inside("peak_rss");
        CHECK_MSG(peak > planned + room && peak < own + others + files + room,
                  "peak %.0f, own %.0f, others %.0f, files %.0f", peak, own, others, files);
        free(o);
    }
    CHECK(!prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
}

/* Checks a node that does not have the prepared data. The job must prepare the data once, and log
 * that it did. If the sources have changed, the job must be refused. */
static void test_prepared_elsewhere(void)
{
    static char digest[80];
    struct order *o = make_order(JOB_TRAIN, 2, "elsewhere");
    run(&g, o);
    CHECK(all_ok(&g) && g.n_notes == 0);
    text(g.result, "weights_sha256", digest, sizeof digest);
    free(o);
    o = make_order(JOB_TRAIN, 2, "elsewhere2");
    snprintf(o->args.prepared_dir, sizeof o->args.prepared_dir, "%s/prepared2", scratch);
    mkdir(o->args.prepared_dir, 0700);
    o->args.n_local = 2;
    run(&g, o);
    CHECK(all_ok(&g));
    /* The first rank logs the preparation, unless the second rank has finished it first. */
    CHECK(g.n_notes == 2 || g.n_notes == 0);
    char again[80];
    CHECK_STR(text(g.result, "weights_sha256", again, sizeof again), digest);
    struct order *one = make_order(JOB_TRAIN, 1, "elsewhere3");
    snprintf(one->args.prepared_dir, sizeof one->args.prepared_dir, "%s/prepared3", scratch);
    mkdir(one->args.prepared_dir, 0700);
    one->args.n_local = 1;
    run(&g, one);
    CHECK(all_ok(&g) && g.n_notes == 2);
    free(one);
    o->args.prepared_id[0] = o->args.prepared_id[0] == 'a' ? 'b' : 'a';
    run(&g, o);
    CHECK(g.n_fails > 0 && g.fail.code == ERR_CONFLICT);
    CHECK_MSG(strstr(g.fail.text, "not those the job was prepared from"), "%s", g.fail.text);
    CHECK_STR(g.fail.field, "data.train");
    free(o);
}

/* Checks processes that are connected by plain and by encrypted sockets. Their weights must be the
 * same as those of processes with shared memory. */
static void test_train_over_sockets(void)
{
    for (int tls = 0; tls < 2; tls++) {
        struct order *o = make_order(JOB_TRAIN, 2, tls ? "tls" : "tcp");
        char buf[80];
        o->spec.parallel.transport = TRANSPORT_TCP;
        o->spec.parallel.tls = tls;
        snprintf(o->args.address, sizeof o->args.address, "127.0.0.1");
        memset(o->args.key, 17, sizeof o->args.key);
        run(&g, o);
        if (tls && g.fail.code == ERR_UNSUPPORTED) { /* this is a build without OpenSSL */
            CHECK_STR(g.fail.field, "parallel.tls");
        } else {
            CHECK(all_ok(&g) && g.n_steps == STEPS);
            CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
            CHECK_STR(text(g.result, "weights_sha256", buf, sizeof buf), final_sha);
        }
        free(o);
    }
}

/* Checks kill -9 of a rank right after a checkpoint. The abort flag must end the remaining ranks.
 * The next attempt must resume, and must end with the same weights as a training without a
 * kill. */
static void test_kill_and_resume(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "killed");
    char sha[80];
    check_order(o);
    gang_start(&g, 2, o);
    g.kill_rank = 1;
    gang_run(&g);
    CHECK(WIFSIGNALED(g.status[1]) && WTERMSIG(g.status[1]) == SIGKILL);
    CHECK(WIFEXITED(g.status[0]) && WEXITSTATUS(g.status[0]) == 1);
    CHECK_MSG(g.n_fails == 1 && g.fail.code == ERR_ABORTED, "%d %s", g.n_fails, g.fail.text);
    CHECK(g.n_steps >= 3 && g.n_steps < STEPS && !g.result[0]);
    o->args.epoch = 2;
    run(&g, o);
    CHECK(all_ok(&g));
    CHECK(g.n_steps > 0 && g.step[0].step > 3 && g.step[g.n_steps - 1].step == STEPS);
    for (int i = 0; i < g.n_steps; i++)
        CHECK_MSG(g.step[i].loss == losses[g.step[i].step - 1], "step %lld: %.17g, not %.17g",
                  (long long)g.step[i].step, g.step[i].loss, losses[g.step[i].step - 1]);
    CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), final_sha);
    o->args.epoch = 3; /* no step is left, and the result must be the same */
    run(&g, o);
    CHECK(all_ok(&g) && g.n_steps == 0);
    CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), final_sha);
    CHECK(number(g.result, "loss") == losses[STEPS - 1]);
    free(o);
}

/* Checks damaged checkpoints. The training must skip them, resume from an older checkpoint, and
 * end with the same weights. */
static void test_damaged_checkpoint(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "damaged");
    char path[2 * RANK_PATH_SIZE], sha[80];
    o->spec.checkpoint.keep = 7;
    run(&g, o);
    CHECK(all_ok(&g) && g.n_checkpoints == 7);
    for (int step = 15; step <= STEPS; step += step < 18 ? 3 : 2) {
        snprintf(path, sizeof path, "%s/checkpoints/step-%08d/%s", o->args.job_dir, step,
                 step == 15   ? "hf/model.safetensors"
                 : step == 18 ? "MANIFEST.json"
                              : "optim.safetensors");
        CHECK_MSG(!truncate(path, 400), "%s", path);
    }
    o->args.epoch = 2;
    run(&g, o);
    CHECK(all_ok(&g));
    CHECK_MSG(g.n_steps && g.step[0].step == 13, "began at %lld", (long long)g.step[0].step);
    CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), final_sha);
    free(o);
}

/* Checks STOP between steps. The rest of the training runs on a different number of ranks. The
 * result must be the same as without a STOP, up to fp32 rounding. */
static void test_stop_and_resume_elsewhere(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "stopped");
    check_order(o);
    gang_start(&g, 2, o);
    g.stop_at_step = 4;
    gang_run(&g);
    CHECK(g.n_fails >= 1 && g.fail.code == ERR_ABORTED);
    CHECK(g.n_steps >= 4 && g.n_steps < STEPS);
    free(o);
    o = make_order(JOB_TRAIN, 3, "stopped");
    o->args.epoch = 2;
    run(&g, o);
    CHECK(all_ok(&g) && g.n_steps >= STEPS / 2);
    for (int i = 0; i < g.n_steps; i++) {
        double want = losses[g.step[i].step - 1], rel = (g.step[i].loss - want) / want;
        /* rel must be within 1e-6 on the first step after the resume, and within 1e-5 later. */
        CHECK_MSG(rel < (i ? 1e-5 : 1e-6) && rel > (i ? -1e-5 : -1e-6), "step %lld: %g",
                  (long long)g.step[i].step, rel);
    }
    free(o);
}

/* Checks SAVE. All ranks must exit after the same step, in whatever order they read the request.
 * They must save a checkpoint of that step, although no interval requires one. When the training
 * is resumed, it must end with the same bits as a training without SAVE. In every step, the ranks
 * must send the planned number of bytes. */
static void test_save_and_resume(void)
{
    char sha[80];
    for (int n = 1; n <= 3; n++) {
        char name[32];
        snprintf(name, sizeof name, "saved-%d", n);
        struct order *o = make_order(JOB_TRAIN, n, name);
        o->spec.checkpoint.every_steps = 0;
        check_order(o);
        gang_start(&g, n, o);
        g.save_at_step = 4;
        gang_run(&g);
        for (int i = 0; i < n; i++)
            CHECK_MSG(WIFEXITED(g.status[i]) && WEXITSTATUS(g.status[i]) == RANK_EXIT_SAVED,
                      "rank %d of %d: %x %s", i, n, g.status[i], g.fail.text);
        const int64_t last = g.step[g.n_steps - 1].step;
        CHECK(g.n_fails == 0 && g.n_checkpoints == 1 && last >= 4 && last < STEPS && !*g.result);
        CHECK(gang_event(&g, EV_CHECKPOINT, 0)->step == last);
        o->args.epoch = 2;
        run(&g, o);
        CHECK(all_ok(&g) && g.n_steps == STEPS - last && g.step[0].step == last + 1);
        for (int i = 0; i < g.n_steps; i++) {
            const struct rank_step *s = &g.step[i];
            CHECK_MSG(n != 2 || s->loss == losses[s->step - 1], "step %lld: %.17g, not %.17g",
                      (long long)s->step, s->loss, losses[s->step - 1]);
            CHECK(s->ledger_ok && !memcmp(s->comm, s->planned, sizeof s->comm));
        }
        text(g.result, "weights_sha256", sha, sizeof sha);
        if (n == 2) CHECK_STR(sha, final_sha);
        free(o);
    }
}

/* Checks SAVE in the last step, which changes nothing, because the training is then complete. */
static void test_save_at_the_end(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "saved-late");
    check_order(o);
    gang_start(&g, 2, o);
    g.save_at_step = STEPS;
    gang_run(&g);
    for (int i = 0; i < 2; i++)
        CHECK_MSG(!g.status[i], "rank %d: %x %s", i, g.status[i], g.fail.text);
    CHECK(g.n_fails == 0 && g.n_steps == STEPS && *g.result);
    free(o);
}

static void test_score(void)
{
    double nll[MAX_RANKS + 1];
    for (int n = 1; n <= 3; n++) {
        struct order *o = make_order(JOB_SCORE, n, "score");
        char buf[64];
        set_model(o, model_dir);
        run(&g, o);
        CHECK(all_ok(&g));
        nll[n] = number(g.result, "nll");
        double tokens = number(g.result, "tokens"), bpb = number(g.result, "bits_per_byte");
        /* The watchdog also sees the progress of a single rank, even while the rank computes. */
        CHECK(g.n_ops[0] > 10);
        CHECK_MSG(g.n_tasks[0] > 100, "%lld", (long long)g.n_tasks[0]);
        CHECK(tokens > 1000 && nll[n] / tokens < losses[0]);
        CHECK(bpb > 0 && bpb < 8);
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        check_told(PROGRESS_TOKENS, (double)text_size + N_DOCS);
        CHECK(g.n_artifacts == 1);
        CHECK_STR(text(g.artifact, "name", buf, sizeof buf), "score.jsonl");
        double rel = (nll[n] - nll[1]) / nll[1];
        CHECK_MSG(rel < 1e-6 && rel > -1e-6, "%d ranks: %g", n, rel);
        free(o);
    }
}

static void test_generate(void)
{
    char first[4096], again[4096], buf[1300], sha[80];
    for (int n = 1; n <= 4; n++) {
        struct order *o = make_order(JOB_GENERATE, n, "generate");
        o->spec.data.seq_len = 0;
        o->spec.sampling.max_tokens = 40;
        o->spec.input.prompt = tiny_text(&o->spec, "int ");
        set_model(o, model_dir);
        run(&g, o);
        CHECK(all_ok(&g));
        text(g.result, "text", n == 1 ? first : again, sizeof first);
        if (n > 1) CHECK_STR(again, first);
        CHECK(number(g.result, "n_tokens") > 0);
        check_told(PROGRESS_REQUESTS, 1);
        CHECK((double)g.told[1].tokens == number(g.result, "n_tokens"));
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        text(g.artifact, "sha256", sha, sizeof sha);
        char hex[SHA256_HEX];
        snprintf(buf, sizeof buf, "%s/artifacts/generate.jsonl", o->args.job_dir);
        CHECK(!sha256_file(buf, hex, NULL, NULL));
        CHECK_STR(hex, sha);
        free(o);
    }
}

static void test_verify(void)
{
    char buf[256];
    for (int n = 2; n <= 4; n++) {
        struct order *o = make_order(JOB_VERIFY, n, "verify");
        o->spec.verify.keep_grads = n == 2;
        run(&g, o);
        CHECK(all_ok(&g));
        CHECK(flag(g.result, "equal"));
        CHECK(number(g.result, "n_tensors") == 9 * 2 + 3);
        CHECK(g.told[1].total > 50 && g.told[1].done == g.told[1].total); /* max_tokens, padded */
        CHECK(g.n_artifacts == (n == 2 ? 3 : 1)); /* gradients, if the job asks for them */
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        free(o);
    }
}

/* Writes a model. The rows of its weights consist of whole blocks, and so do the parts of these
 * rows that the ranks of parallel.tp have. */
static void make_blocks(struct model_shape *m, char dir[600])
{
    struct err e = {0};
    m->width = 64, m->n_heads = 4, m->n_kv_heads = 2, m->head_dim = 16, m->ffn_width = 128;
    float *w = calloc((size_t)param_count(m), sizeof *w);
    for (int64_t i = 0; w && i < param_count(m); i++) w[i] = (float)(i * i % 9973 - 4986) / 32768;
    snprintf(dir, 600, "%s/blocks-model", scratch);
    CHECK_MSG(w && !hf_save(dir, m, DT_F32, w, &e), "%s", e.text);
    free(w);
}

/* Checks verify jobs with weights in blocks if no rank has all weights. In this case the reference
 * reads or draws its own weights. */
static void test_verify_blocks(void)
{
    char buf[256], dir[600];
    for (int i = 0; i < 8; i++) {
        struct order *o = make_order(JOB_VERIFY, i & 1 ? 2 : 4, "blocks");
        make_blocks(&o->spec.model.shape, dir);
        o->spec.parallel.tp = i & 1 ? 2 : 1;
        o->spec.parallel.pp = i & 1 ? 1 : 2;
        o->spec.parallel.sp = i & 1 ? 1 : 2;
        o->spec.model.weights = i & 2 ? WEIGHTS_INT8 : WEIGHTS_INT4;
        if (i & 4) set_model(o, dir);
        run(&g, o);
        CHECK_MSG(all_ok(&g) && flag(g.result, "equal"), "%d: %s", i, g.fail.text);
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        CHECK(inside("high") == inside("planned"));
        free(o);
    }
}

/* Checks trainings of adapters whose base is in blocks, and sharded (zero 3) before or after a
 * save. They must have the bits of a training in which each rank has the whole base. */
static void test_train_blocks(void)
{
    char buf[256], dir[600], want[80] = "";
    double loss[STEPS] = {0};
    for (int i = 0; i < 6; i++) {
        const int way = i % 3; /* 0: never sharded; 1: before the save; 2: after it */
        snprintf(buf, sizeof buf, "train-blocks-%d", i);
        struct order *o = make_order(JOB_TRAIN, 2, buf);
        make_blocks(&o->spec.model.shape, dir);
        o->spec.model.weights = i < 3 ? WEIGHTS_INT8 : WEIGHTS_INT4;
        if (i < 3) set_model(o, dir);
        o->spec.adapter.type = ADAPTER_LORA;
        o->spec.checkpoint.every_steps = 0;
        o->spec.train.global_batch = 1;
        o->spec.parallel.zero = way == 1 ? 3 : 0;
        o->spec.verify.first_step = way == 1;
        check_order(o);
        gang_start(&g, 2, o);
        g.save_at_step = way ? 2 : 0;
        gang_run(&g);
        for (int k = 0; k < g.n_steps; k++)
            CHECK(g.step[k].ledger_ok && g.step[k].memory_high == g.step[k].memory_planned);
        if (way == 1) {
            const struct gang_event *ev = gang_event(&g, EV_VERIFIED, 0);
            CHECK(ev && number(ev->json, "loss_rel") <= number(ev->json, "allowed_loss_rel"));
        }
        for (int k = 0; way == 0 && k < g.n_steps; k++) loss[k] = g.step[k].loss;
        if (way) {
            CHECK_MSG(g.n_fails == 0 && g.n_checkpoints == 1 && !*g.result, "%s", g.fail.text);
            o->spec.parallel.zero = way == 2 ? 3 : 1;
            o->spec.verify.first_step = 0;
            o->args.epoch = 2;
            run(&g, o);
            CHECK(g.n_steps > 0);
        }
        CHECK_MSG(all_ok(&g), "%d: %s", i, g.fail.text);
        for (int k = 0; k < g.n_steps; k++)
            CHECK_MSG(g.step[k].loss == loss[g.step[k].step - 1], "%d: step %d: %.17g", i, k,
                      g.step[k].loss);
        text(g.result, "weights_sha256", buf, sizeof buf);
        if (way)
            CHECK_STR(buf, want);
        else
            snprintf(want, sizeof want, "%.79s", buf);
        free(o);
    }
}

/* Checks a tolerance of zero, which two ranks cannot satisfy. The job must end with a RESULT and
 * an error. */
static void test_verify_refuses(void)
{
    struct order *o = make_order(JOB_VERIFY, 2, "verify");
    o->spec.verify.grad_rel_l2 = 0;
    run(&g, o);
    CHECK(WEXITSTATUS(g.status[0]) == 1 && g.fail.code == ERR_CORRUPT);
    CHECK_MSG(strstr(g.fail.text, "2 ranks do not equal 1 rank"), "%s", g.fail.text);
    CHECK_MSG(strstr(g.fail.text, "worst tensor model."), "%s", g.fail.text);
    CHECK(g.result[0] && !flag(g.result, "equal"));
    free(o);
}

/* Runs an order that is invalid, or whose file or machine is invalid. The rank must end with an
 * error that names the field. */
static void expect_fail(struct order *o, enum err_code code, const char *field, const char *part)
{
    run(&g, o);
    CHECK_MSG(g.n_fails >= 1 && g.fail.code == (int)code, "code %d: %s", g.fail.code, g.fail.text);
    CHECK_STR(g.fail.field, field);
    CHECK_MSG(strstr(g.fail.text, part), "\"%s\" has no \"%s\"", g.fail.text, part);
    CHECK(!g.result[0]);
    for (int i = 0; i < g.n; i++) CHECK(WIFEXITED(g.status[i]) && WEXITSTATUS(g.status[i]) == 1);
    free(o);
}

static void test_bad_input(void)
{
    struct order *o = make_order(JOB_SCORE, 2, "bad");
    set_model(o, "/etc");
    expect_fail(o, ERR_INVALID, "model.path", "beneath none");
    o = make_order(JOB_SCORE, 1, "bad");
    set_model(o, "no/such/model");
    expect_fail(o, ERR_NOT_FOUND, "model.path", "does not exist");
    o = make_order(JOB_TRAIN, 2, "bad");
    o->args.memory_limit = 4096;
    expect_fail(o, ERR_DOES_NOT_FIT, "resources.memory_mib", "limit 4.0 KiB");
    o = make_order(JOB_GENERATE, 1, "bad");
    o->spec.input.source.path = tiny_text(&o->spec, data_path);
    o->spec.sampling.max_tokens = 8;
    expect_fail(o, ERR_TOO_LARGE, "data.seq_len", "raise data.seq_len");
    o = make_order(JOB_TRAIN, 1, "bad");
    o->spec.checkpoint.resume = RESUME_PATH;
    o->spec.checkpoint.resume_path = tiny_text(&o->spec, model_dir);
    expect_fail(o, ERR_CORRUPT, "checkpoint.resume", "MANIFEST.json");
}

/* Writes the trained model with one NaN in a tensor. */
static void make_nan(const char *tensor, char dir[600])
{
    struct order *o = make_order(JOB_TRAIN, 1, "nan");
    struct err e = {0};
    const struct model_shape *m = &o->spec.model.shape;
    float *w = calloc((size_t)param_count(m), sizeof *w);
    snprintf(dir, 600, "%s/nan-model", scratch);
    CHECK_MSG(w && !hf_load(model_dir, m, DT_F32, w, &e), "%s", e.text);
    if (w) w[param_named(m, tensor).offset + 7] = NAN;
    CHECK_MSG(w && !hf_save(dir, m, DT_F32, w, &e), "%s", e.text);
    free(w), free(o);
}

/* Checks a weight that is NaN. The job must fail, and the error must name the weight and the step
 * or window. A NaN in q_proj makes rows of attention NaN. Such rows must not be treated as rows
 * that see no key. */
static void test_not_finite(void)
{
    static const char q[] = "model.layers.0.self_attn.q_proj.weight";
    char dir[600], where[200];
    make_nan(q, dir);
    snprintf(where, sizeof where, "since tensor %s of the weights holds one", q);
    struct order *o = make_order(JOB_TRAIN, 2, "nan");
    set_model(o, dir);
    expect_fail(o, ERR_CORRUPT, "model.path", "step 1");
    o = make_order(JOB_SCORE, 2, "nan");
    set_model(o, dir);
    expect_fail(o, ERR_CORRUPT, "model.path", where);
    CHECK(strstr(g.fail.text, "the loss of window 0 is NaN or infinity, "));
    o = make_order(JOB_SCORE, 1, "nan");
    o->spec.kind = JOB_EMBED;
    set_model(o, dir);
    expect_fail(o, ERR_CORRUPT, "model.path", where);
    o = make_order(JOB_GENERATE, 2, "nan");
    o->spec.data.seq_len = 0;
    o->spec.input.prompt = tiny_text(&o->spec, "x y z");
    set_model(o, dir);
    expect_fail(o, ERR_CORRUPT, "model.path", where);
}

/* Checks that a job refuses a checkpoint of a job with a different schedule, and that the error
 * names the fix. */
static void test_resume_of_another(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "other");
    char dir[1300];
    snprintf(dir, sizeof dir, "%.*s", (int)(strlen(model_dir) - 3), model_dir);
    o->spec.checkpoint.resume = RESUME_PATH;
    o->spec.checkpoint.resume_path = tiny_text(&o->spec, dir);
    o->spec.optim.lr = 1e-3;
    expect_fail(o, ERR_CONFLICT, "optim.lr", "this job has 0.001: give the same");
}

/* Checks checkpoint.changes, with which a job with a different learning rate and more steps can
 * continue from a checkpoint. */
static void test_continue_with_changes(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "changes");
    char dir[1300];
    snprintf(dir, sizeof dir, "%.*s", (int)(strlen(model_dir) - 3), model_dir);
    o->spec.checkpoint.resume = RESUME_PATH;
    o->spec.checkpoint.resume_path = tiny_text(&o->spec, dir);
    o->spec.checkpoint.changes = 1;
    o->spec.optim.lr = 1e-3;
    o->spec.train.steps = STEPS + 3;
    run(&g, o);
    CHECK_MSG(all_ok(&g) && g.n_steps == 3, "%d steps", g.n_steps);
    CHECK(g.step[0].step == STEPS + 1);
    CHECK_MSG(g.step[0].loss < losses[0] * 0.9, "loss %g after %g", g.step[0].loss, losses[0]);
    free(o);
}

/* ---- 16 bits --------------------------------------------------------------------------------- */

static struct order *half_order(enum job_kind kind, int n, enum precision_id p, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s-%s", p == PRECISION_FP16 ? "fp16" : "bf16", what);
    struct order *o = make_order(kind, n, name);
    o->spec.precision.params = (int32_t)p;
    return o;
}

/* Checks that the last loss of a training in 16 bits is within 1 % of the last loss in fp32. If
 * the training is killed and resumed, it must end with the same bits. */
static void train_half(enum precision_id p, char dir[1300])
{
    char want[80], sha[80];
    struct order *o = half_order(JOB_TRAIN, 2, p, "train");
    run(&g, o);
    CHECK(all_ok(&g) && g.n_steps == STEPS);
    const double rel = g.step[STEPS - 1].loss / losses[STEPS - 1] - 1;
    CHECK_MSG(rel < 0.01 && rel > -0.01, "loss %g, in fp32 %g", g.step[STEPS - 1].loss,
              losses[STEPS - 1]);
    for (int i = 0; i < g.n_steps; i++)
        CHECK(g.step[i].ledger_ok && g.step[i].memory_high == g.step[i].memory_planned);
    text(g.result, "weights_sha256", want, sizeof want);
    text(g.result, "hf", dir, 1300);
    CHECK(strcmp(want, final_sha));
    free(o);
    o = half_order(JOB_TRAIN, 2, p, "killed");
    check_order(o);
    gang_start(&g, 2, o);
    g.kill_rank = 1;
    gang_run(&g);
    CHECK(WIFSIGNALED(g.status[1]) && g.n_steps < STEPS);
    o->args.epoch = 2;
    run(&g, o);
    CHECK(all_ok(&g) && g.n_steps > 0 && g.step[0].step > 3);
    CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), want);
    free(o);
}

static double score_of(const char *dir, enum precision_id precision, int n)
{
    struct order *o = half_order(JOB_SCORE, n, precision, "score");
    char buf[64];
    set_model(o, dir);
    run(&g, o);
    CHECK(all_ok(&g));
    CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    const double nll = number(g.result, "nll");
    free(o);
    return nll;
}

static void check_half(enum precision_id p)
{
    char dir[1300], buf[1300];
    train_half(p, dir);
    /* A job in 16 bits can read weights in fp32, and a job in fp32 can read weights in 16 bits.
     * Means over a thousand tokens differ by less than one rounding, which is 2^-9 in bf16 and
     * 2^-12 in fp16. With the same weights and a different number of ranks, they differ by even
     * less. */
    const double fp32 = score_of(model_dir, PRECISION_FP32, 1),
                 u = p == PRECISION_FP16 ? 0x1p-12 : 0x1p-9;
    const double rounded = score_of(model_dir, p, 2);
    const double half = score_of(dir, p, 1), wide = score_of(dir, PRECISION_FP32, 3);
    CHECK_MSG(fabs(rounded / fp32 - 1) < u && rounded != fp32, "%.9g, not %.9g", rounded, fp32);
    CHECK_MSG(fabs(wide / half - 1) < u && wide != half, "%.9g, not %.9g", wide, half);
    struct order *o = half_order(JOB_VERIFY, 3, p, "verify");
    run(&g, o);
    CHECK(all_ok(&g) && flag(g.result, "equal"));
    free(o);
    o = half_order(JOB_GENERATE, 2, p, "generate");
    o->spec.data.seq_len = 0;
    o->spec.sampling.max_tokens = 20;
    o->spec.input.prompt = tiny_text(&o->spec, "int ");
    set_model(o, dir);
    run(&g, o);
    CHECK(all_ok(&g) && number(g.result, "n_tokens") > 0);
    CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
    free(o);
    /* A job may begin with the weights of fp32, but not with a checkpoint from the middle of a
     * training in fp32. */
    o = half_order(JOB_TRAIN, 2, p, "from-fp32");
    set_model(o, model_dir);
    run(&g, o);
    CHECK(all_ok(&g) && fabs(g.step[0].loss / losses[STEPS - 1] - 1) < 0.1);
    snprintf(buf, sizeof buf, "%.*s", (int)(strrchr(model_dir, '/') - model_dir), model_dir);
    o->spec.checkpoint.resume = RESUME_PATH;
    o->spec.checkpoint.resume_path = tiny_text(&o->spec, buf);
    snprintf(o->args.job_dir, sizeof o->args.job_dir, "%s/not-%d", scratch, p);
    mkdir(o->args.job_dir, 0700);
    expect_fail(o, ERR_CONFLICT, "precision.params", "was made with precision.params");
}

static void test_half(void)
{
    check_half(PRECISION_BF16), check_half(PRECISION_FP16);
}

/* Writes the trained model with an embedding that is nearly 0. The first norm divides by it, so
 * the gradient that passes back through the norm exceeds the range of fp16 at the first loss
 * scales. */
static void make_loud(char dir[600])
{
    struct order *o = make_order(JOB_TRAIN, 1, "loud");
    struct err e = {0};
    struct param p;
    const struct model_shape *m = &o->spec.model.shape;
    float *w = calloc((size_t)param_count(m), sizeof *w);
    snprintf(dir, 600, "%s/loud-model", scratch);
    CHECK_MSG(w && !hf_load(model_dir, m, DT_F32, w, &e), "%s", e.text);
    param_get(m, 0, &p);
    for (int64_t i = 0; w && i < p.count; i++) w[p.offset + i] *= 0x1p-9f;
    CHECK_MSG(w && !hf_save(dir, m, DT_F32, w, &e), "%s", e.text);
    free(w), free(o);
}

static struct order *loud_order(int n, const char *name, const char *dir)
{
    struct order *o = half_order(JOB_TRAIN, n, PRECISION_FP16, name);
    o->spec.determinism = DET_RANKS;
    set_model(o, dir);
    return o;
}

/* Checks gradients that overflow. Steps with such gradients are skipped and reported, and the loss
 * scale is reduced until no gradient overflows. A training that is killed after skipped steps is
 * resumed on a different number of ranks. It must continue with the same loss scale and end with
 * the same bits. */
static void test_loss_scale(void)
{
    char dir[600], want[80], sha[80], path[1300 + 32];
    struct err e = {0};
    make_loud(dir);
    struct order *o = loud_order(1, "loud", dir);
    run(&g, o);
    const double overflows = number(g.result, "overflows"), scale = number(g.result, "loss_scale");
    CHECK(all_ok(&g) && g.n_steps == STEPS);
    CHECK_MSG(overflows >= 1 && overflows < STEPS / 2, "%g overflows", overflows);
    CHECK(scale == ldexp(1, 16 - (int)overflows) && g.n_notes == overflows);
    CHECK(number(g.result, "skipped_steps") == overflows);
    const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
    CHECK(note && strstr(note->json, "step_skipped") && strstr(note->json, "loss scale of 65536"));
    CHECK(g.step[STEPS - 1].loss < g.step[0].loss);
    text(g.result, "weights_sha256", want, sizeof want);
    text(g.result, "checkpoint", path, sizeof path);
    snprintf(path + strlen(path), 32, "/train_state.json");
    char *state = file_read(path, 1 << 16, NULL, &e);
    CHECK_MSG(state && number(state, "adam_t") == STEPS - overflows, "%s", e.text);
    free(state), free(o);
    o = loud_order(2, "loud-killed", dir);
    check_order(o);
    gang_start(&g, 2, o);
    g.kill_rank = 1;
    gang_run(&g);
    CHECK(WIFSIGNALED(g.status[1]) && g.n_steps < STEPS);
    struct order *one = loud_order(1, "loud-killed", dir);
    one->args.epoch = 2;
    run(&g, one);
    CHECK(all_ok(&g) && g.n_steps > 0 && g.step[0].step > 3);
    CHECK(number(g.result, "overflows") == overflows && number(g.result, "loss_scale") == scale);
    CHECK_STR(text(g.result, "weights_sha256", sha, sizeof sha), want);
    free(o), free(one);
    /* the training ends before the scale is small enough, so no update is made */
    o = loud_order(2, "loud-short", dir);
    o->spec.train.steps = (int64_t)overflows;
    o->spec.schedule.warmup_steps = o->spec.checkpoint.every_steps = 0;
    expect_fail(o, ERR_INVALID, "precision.params", "updated the weights");
    CHECK(g.n_checkpoints == 0);
}

/* Checks that all ranks end if seqgang ends while they wait for blobs. */
static void test_gang_gone(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "gone");
    check_order(o);
    gang_start(&g, 2, o);
    for (int i = 0; i < 2; i++) shutdown(g.fd[i], SHUT_WR);
    g.silent_blobs = true;
    gang_run(&g);
    for (int i = 0; i < 2; i++) CHECK(WIFEXITED(g.status[i]) && WEXITSTATUS(g.status[i]) == 1);
    free(o);
}

/* Checks a gang that is killed. PR_SET_PDEATHSIG must end its ranks, at whatever point they are.
 * When the gang has ended, the ranks become children of this process, so that it gets their exit
 * statuses. */
static void test_gang_killed(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "orphan");
    struct gang *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ready[2], status = 0;
    check_order(o);
    CHECK(!prctl(PR_SET_CHILD_SUBREAPER, 1) && !pipe(ready));
    pid_t gang = fork();
    if (gang == 0) {
        char blob[sizeof(struct rank_msg) + BLOB_SIZE];
        gang_start(shared, 2, o);
        for (int r = 0; r < 2; r++) /* both ranks now wait for BLOBS */
            if (recv(shared->fd[r], blob, sizeof blob, 0) <= 0) _exit(1);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    char x;
    close(ready[1]);
    CHECK(read(ready[0], &x, 1) == 1);
    kill(gang, SIGKILL);
    CHECK(waitpid(gang, &status, 0) == gang);
    for (int r = 0; r < 2; r++) {
        CHECK(waitpid(shared->pid[r], &status, 0) == shared->pid[r]);
        /* The rank was ended by the signal, or has exited a moment earlier because its socket was
         * closed. */
        CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 1);
    }
    close(ready[0]);
    munmap(shared, sizeof *shared);
    free(o);
}

#ifdef SEQD_MUTANTS
/* Checks that the environment variable that chooses an injected fault reaches the ranks, and that
 * the job reports which tensor is wrong. */
static void test_mutant_by_name(void)
{
    static const char *const names[] = {"grad_over_p",    "stale_kv",    "hop_off_by_one",
                                        "zigzag_swapped", "label_shift", "doc_crossed",
                                        "local_position"};
    if (!prepared_id[0]) test_prepare();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct order *o = make_order(JOB_VERIFY, 3, "mutant");
        setenv("SEQD_MUTANT", names[i], 1);
        run(&g, o);
        unsetenv("SEQD_MUTANT");
        CHECK_MSG(g.fail.code == ERR_CORRUPT && strstr(g.fail.text, "worst tensor model."),
                  "%s: %s", names[i], g.fail.text);
        printf("mutant %s %s a verify job\n", names[i],
               g.fail.code == ERR_CORRUPT ? "caught" : "missed");
        CHECK(g.result[0] && !flag(g.result, "equal"));
        free(o);
    }
}
#endif

static void test_other_build(void)
{
    struct order *o = make_order(JOB_TRAIN, 1, "abi");
    int pair[2];
    g = (struct gang){.n = 1, .kill_rank = -1};
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    g.memfd = memfd_create("ring", MFD_CLOEXEC);
    CHECK(!ftruncate(g.memfd, 8192));
    g.head = mmap(NULL, sizeof *g.head, PROT_READ | PROT_WRITE, MAP_SHARED, g.memfd, 0);
    spawn(&g, 0, pair);
    close(pair[1]);
    g.fd[0] = pair[0];
    struct rank_msg h = {RANK_ABI + 1, RANK_ARGS, 0, 0};
    CHECK(send(g.fd[0], &h, sizeof h, MSG_NOSIGNAL) == sizeof h);
    gang_run(&g);
    CHECK(g.n_fails == 1 && g.fail.code == ERR_PEER && strstr(g.fail.text, "install both"));
    free(o);
}

/* Checks that a rank's message about other ranks names the job, because a log has the lines of
 * many jobs. */
static void test_peer_fault_names_the_job(void)
{
    struct order *o = make_order(JOB_TRAIN, 2, "blobs");
    o->args.job = 41;
    o->args.epoch = 3;
    gang_start(&g, 2, o);
    g.short_blobs = true;
    gang_run(&g);
    CHECK(g.n_fails == 2 && g.fail.code == ERR_PEER);
    CHECK_MSG(!strncmp(g.fail.text, "job 41, epoch 3: blob ", 22), "%s", g.fail.text);
    free(o);
}

static int shell(const char *args, char *out, size_t size)
{
    char cmd[4096];
    snprintf(cmd, sizeof cmd, "%s %s 2>&1", program, args);
    FILE *f = popen(cmd, "re");
    size_t n = f ? fread(out, 1, size - 1, f) : 0;
    out[n] = 0;
    return f ? WEXITSTATUS(pclose(f)) : -1;
}

static void test_describe(void)
{
    char out[4096], args[1400];
    snprintf(args, sizeof args, "--describe %s", model_dir);
    CHECK(shell(args, out, sizeof out) == 0);
    CHECK_MSG(strstr(out, "\"num_hidden_layers\":2"), "%s", out);
    CHECK(shell("--describe /no/such/dir", out, sizeof out) == RANK_EXIT_REFUSED);
    CHECK_MSG(strstr(out, "/no/such/dir"), "%s", out);
    snprintf(args, sizeof args, "--check %s", model_dir);
    CHECK(shell(args, out, sizeof out) == 0);
    CHECK_MSG(
        strstr(out, "\"loads\":true,\"model_type\":\"llama\"") &&
            strstr(
                out,
                "\"tokenizer\":{\"kind\":\"byte\",\"size\":258,\"loads\":true,\"fault\":null}") &&
            strstr(out, "\"n_faults\":0"),
        "%s", out);
    CHECK(shell("--check /no/such/dir", out, sizeof out) == 1);
    CHECK_MSG(strstr(out, "\"loads\":false") && strstr(out, "cannot be looked at: No such file"),
              "%s", out);
    CHECK(shell("--version", out, sizeof out) == 0 && !strncmp(out, "seqrank ", 8));
    CHECK(shell("--help", out, sizeof out) == 0);
    CHECK(shell("--nonsense", out, sizeof out) == 2);
}

static void test_describe_adapter(void)
{
    static const char golden[] = "tests/golden/adapter/qwen3";
    static const char begin[] =
        "{\"rank\":3,\"alpha\":5,\"rslora\":false,\"dropout\":0,\"layers\":2,"
        "\"targets\":[";
    char out[4096], args[1400];
    snprintf(args, sizeof args, "--describe-adapter %s", golden);
    CHECK(shell(args, out, sizeof out) == 0);
    CHECK_MSG(!strncmp(out, begin, sizeof begin - 1), "%s", out);
    CHECK(shell("--describe-adapter /no/such/dir", out, sizeof out) == RANK_EXIT_REFUSED);
    CHECK_MSG(strstr(out, "/no/such/dir"), "%s", out);
    snprintf(args, sizeof args, "--describe-adapter %s", model_dir);
    CHECK(shell(args, out, sizeof out) == RANK_EXIT_REFUSED);
    CHECK_MSG(strstr(out, "is the directory of a model, and of no adapter"), "%s", out);
    snprintf(args, sizeof args, "--describe %s", golden);
    CHECK(shell(args, out, sizeof out) == RANK_EXIT_REFUSED);
    CHECK_MSG(strstr(out, "in model.adapter"), "%s", out);
}

/* Checks specs that do not describe their adapter, and partly not their model either. The rank
 * reads the directory then. */
static void test_adapter_alone(void)
{
    char dir[1300];
    double nll[3];
    struct order *o = make_order(JOB_TRAIN, 1, "adapter");
    set_model(o, model_dir);
    o->spec.adapter.type = ADAPTER_LORA;
    o->spec.adapter.rank = 3;
    o->spec.adapter.alpha = 5;
    o->spec.train.steps = 2;
    run(&g, o);
    CHECK(all_ok(&g));
    text(g.result, "adapter", dir, sizeof dir);
    free(o);
    for (int i = 0; i < 3; i++) {
        o = make_order(JOB_SCORE, 2, "score");
        set_model(o, model_dir);
        o->spec.model.adapter = tiny_text(&o->spec, dir);
        o->spec.adapter.type = i ? ADAPTER_NONE : ADAPTER_LORA;
        o->spec.adapter.rank = i ? 0 : 3;
        o->spec.adapter.alpha = i ? 0 : 5;
        if (!i) check_order(o);
        if (i == 2) o->spec.model.shape.width = 0;
        gang_start(&g, 2, o);
        gang_run(&g);
        CHECK(all_ok(&g));
        nll[i] = number(g.result, "nll");
        free(o);
    }
    CHECK_MSG(nll[0] == nll[1] && nll[0] == nll[2], "%.17g %.17g %.17g", nll[0], nll[1], nll[2]);
    o = make_order(JOB_SCORE, 1, "score");
    set_model(o, model_dir);
    o->spec.model.adapter = tiny_text(&o->spec, model_dir);
    gang_start(&g, 1, o);
    gang_run(&g);
    CHECK_MSG(!strcmp(g.fail.field, "model.adapter") && strstr(g.fail.text, "directory of a model"),
              "%s: %s", g.fail.field, g.fail.text);
    free(o);
}

/* Checks `seqrank --files`, which lists files as a preparation finds them. */
static void test_files(void)
{
    static const struct {
        const char *file;
        int status;
        const char *says;
    } rows[] = {
        {"data.train.0.path:jsonl:text.jsonl", 0, ""},
        {"data.train.0.path:jsonl:%s/text.jsonl", 0, ""},
        {"input.path:text:*.jsonl", 0, ""},
        {"input.path:openai_batch:text.jsonl", 0, ""},
        {"input.path:text:no:colon", RANK_EXIT_REFUSED, "input.path: no:colon matches no file"},
        {"eval.data.31.path:text:no*", RANK_EXIT_REFUSED, "eval.data.31.path: no* matches no file"},
        {"input.path:text:..", RANK_EXIT_REFUSED, "input.path: \"..\" is not allowed in a path"},
        {"input.path:text:/etc/passwd", RANK_EXIT_REFUSED, "/etc/passwd lies beneath no data root"},
        {"input.path:text:/etc/nothing", RANK_EXIT_REFUSED, "nothing lies beneath no data root"},
        {"input.path:text:%s/set", RANK_EXIT_REFUSED, "is a directory"},
        {"data.train.0.path:megatron:set/m", 0, ""},
        {"data.train.0.path:megatron:set/m.bin", 0, ""},
        {"data.train.0.path:megatron:set/none", RANK_EXIT_REFUSED, "set/none.idx matches no file"},
        {"data.train.0.path:text:set/m", RANK_EXIT_REFUSED, "set/m matches no file"},
        {"memory.offload_dir:writable:set", 0, ""},
        {"memory.offload_dir:writable:%s/set", 0, ""},
        {"memory.offload_dir:writable:none", RANK_EXIT_REFUSED, "memory.offload_dir: open "},
        {"memory.offload_dir:writable:text.jsonl", RANK_EXIT_REFUSED, "Not a directory"},
        {"memory.offload_dir:writable:/tmp", RANK_EXIT_REFUSED,
         "memory.offload_dir: /tmp lies beneath none of this node's 1 writable roots: "
         "--writable-root of seqw, or of seqd --dev"},
        {"data.train.0.path", 2, ""},
        {"data.train.0.path:text", 2, ""},
    };
    char out[4096], file[300], args[1400], path[200];
    snprintf(path, sizeof path, "%s/set", scratch);
    CHECK(!mkdir(path, 0700));
    snprintf(path, sizeof path, "%s/set/m.idx", scratch);
    CHECK(!file_write(path, "", 0, NULL));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *root = strstr(rows[i].file, "%s");
        snprintf(file, sizeof file, "%.*s%s%s", root ? (int)(root - rows[i].file) : 0, rows[i].file,
                 root ? scratch : "", root ? root + 2 : rows[i].file);
        snprintf(args, sizeof args,
                 "--files '%s' '--writable=%s' --file=data.train.1.path:text:text.jsonl "
                 "'--file=%s'",
                 scratch, scratch, file);
        CHECK_MSG(shell(args, out, sizeof out) == rows[i].status, "%s: %s", file, out);
        CHECK_MSG(rows[i].says[0] ? strstr(out, rows[i].says) != NULL : !out[0], "%s: %s", file,
                  out);
        if (rows[i].status != RANK_EXIT_REFUSED) continue;
        snprintf(args, sizeof args, "\n%.*s\n", (int)strcspn(file, ":"), file); /* on stdout */
        CHECK_MSG(strstr(out, args) && !strstr(out, args)[strlen(args)], "%s: %s", file, out);
    }
    CHECK(shell("--files --file=input.path:text:x", out, sizeof out) == RANK_EXIT_REFUSED);
    CHECK_MSG(strstr(out, "input.path: x lies beneath no data root"), "%s", out);
}

/* Writes a text with a structure that a small model learns within a few steps. */
static void write_text(void)
{
    snprintf(data_path, sizeof data_path, "%s/text.jsonl", scratch);
    FILE *f = fopen(data_path, "we");
    for (int i = 0; f && i < N_DOCS; i++) {
        char doc[64];
        text_size += snprintf(doc, sizeof doc, "int f%d(int x) { return x * %d; }", i, i * 7 % 13);
        fprintf(f, "{\"text\":\"%s\"}\n", doc);
    }
    CHECK(f && !fclose(f));
}

int main(int argc, char **argv)
{
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_rank.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    write_text();
    RUN(test_prepare);
    RUN(test_train);
    RUN(test_resident);
    RUN(test_prepared_elsewhere);
    RUN(test_train_over_sockets);
    RUN(test_kill_and_resume);
    RUN(test_damaged_checkpoint);
    RUN(test_stop_and_resume_elsewhere);
    RUN(test_save_and_resume);
    RUN(test_save_at_the_end);
    RUN(test_score);
    RUN(test_generate);
    RUN(test_verify);
    RUN(test_verify_blocks);
    RUN(test_train_blocks);
    RUN(test_verify_refuses);
    RUN(test_bad_input);
    RUN(test_resume_of_another);
    RUN(test_continue_with_changes);
    RUN(test_not_finite);
    RUN(test_half);
    RUN(test_loss_scale);
    RUN(test_gang_gone);
    RUN(test_gang_killed);
    RUN(test_other_build);
    RUN(test_peer_fault_names_the_job);
    RUN(test_describe);
    RUN(test_describe_adapter);
    RUN(test_adapter_alone);
    RUN(test_files);
#ifdef SEQD_MUTANTS
    RUN(test_mutant_by_name);
#endif
    struct err e = {0};
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("rank");
}
