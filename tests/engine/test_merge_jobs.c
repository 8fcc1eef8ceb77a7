/* test_merge_jobs.c: jobs of the kind merge, run by a real seqrank: their results and files, the
 * rest of a stopped or killed attempt, and directories that do not fit.
 * tests: needs seqrank golden */
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include "api/core/file.h"
#include "api/core/manifest.h"
#include "tests/lib/adapter.h"
#include "tests/lib/adapter_write.h"
#include "tests/lib/gang.h"
#include "tests/lib/model_dir.h"
#include "worker/ckpt/ckpt.h"
#include "worker/hf/adapter.h"
#include "worker/hf/base_id.h"
#include "worker/hf/safetensors.h"

static struct gang g; /* off the stack */

static void shell(const char *command)
{
    CHECK_MSG(!system(command), "%s", command);
}

/* Copies the golden model and its adapter, and adds files that a model directory may have. */
static void make_model(void)
{
    char command[512];
    snprintf(command, sizeof command,
             "cp -r tests/golden/qwen3 '%s/model' && cp -r tests/golden/adapter/qwen3 '%s/adapter' "
             "&& rm '%s'/model/golden.safetensors '%s'/adapter/steps.safetensors",
             scratch, scratch, scratch, scratch);
    shell(command);
    put("model", "generation_config.json", "{\"eos_token_id\":[7,9]}");
    put("model", "README.md", "# a model\n");
    CHECK(!symlink("/etc/hostname", in_dir("model", "link.json")));
}

static struct order *make_order(const char *name)
{
    struct order *o = order_new(JOB_MERGE, scratch, "", name);
    struct job_spec *s = &o->spec;
    s->model.shape.width = 0; /* not described */
    s->model.path = tiny_text(s, in_dir("model", ""));
    s->model.adapter = tiny_text(s, in_dir("adapter", ""));
    s->resources.threads = 2;
    return o;
}

static bool runs(struct order *o)
{
    gang_start(&g, 1, o);
    gang_run(&g);
    return all_ok(&g);
}

static void fails(struct order *o, const char *field, const char *says)
{
    CHECK(!runs(o) && g.n_fails == 1);
    CHECK_MSG(!strcmp(g.fail.field, field) && strstr(g.fail.text, says), "%s: %s", g.fail.field,
              g.fail.text);
    CHECK(!g.n_checkpoints && !*g.result);
    CHECK_MSG(!there(o->args.job_dir, "beside"), "beside is left");
    char command[RANK_PATH_SIZE + 64];
    snprintf(command, sizeof command, "test -z \"$(ls -A '%s/checkpoints' 2>/dev/null)\"",
             o->args.job_dir);
    shell(command);
}

/* ---- a merge --------------------------------------------------------------------------------- */

/* Checks the model at hf, which has the tensors of the base, in `type`. If that is bf16, which is
 * the type of the base, just the tensors with an adapter have other elements. */
static void check_model(const char *hf, enum st_dtype type)
{
    struct err why = {0};
    struct st_file *is = st_open(in_dir(hf, "model.safetensors"), &why);
    struct st_file *of = st_open(in_dir("model", "model.safetensors"), &why);
    CHECK_MSG(is && of && st_count(is) == st_count(of), "%s", why.text);
    int n_changed = 0;
    for (int i = 0; is && of && i < st_count(of); i++) {
        const struct st_tensor *a = st_find(is, st_at(of, i)->name), *b = st_at(of, i);
        CHECK_MSG(a && a->count == b->count && a->dtype == type, "%s", b->name);
        if (a && a->dtype == b->dtype)
            n_changed += !!memcmp(st_data(is, a), st_data(of, b), (size_t)b->size);
    }
    struct st_file *added = st_open(in_dir("adapter", "adapter_model.safetensors"), &why);
    CHECK(added && st_count(added) > 0); /* A and B of each product */
    CHECK_MSG(type != ST_BF16 || 2 * n_changed == st_count(added), "%d changed", n_changed);
    st_close(is), st_close(of), st_close(added);
}

static int count_files(const char *dir)
{
    char command[1600];
    int n = -1;
    snprintf(command, sizeof command, "find '%s' -type f | wc -l", dir);
    FILE *f = popen(command, "re");
    CHECK(f && fscanf(f, "%d", &n) == 1);
    pclose(f);
    return n;
}

static void test_merge(void)
{
    static const enum st_dtype types[PRECISION_N] = {ST_F32, ST_BF16, ST_F16};
    for (int p = 0; p < PRECISION_N; p++) {
        char name[24], hf[1300], digest[80], said[80];
        snprintf(name, sizeof name, "merge%d", p);
        struct order *o = make_order(name);
        o->spec.precision.params = p;
        CHECK(runs(o));
        text(g.result, "hf", hf, sizeof hf);
        check_model(hf, types[p]);
        CHECK(same_file(hf, "model", "generation_config.json"));
        CHECK(same_file(hf, "model", "README.md") && !there(hf, "link.json"));
        CHECK(count_files(hf) == 4 && !there(o->args.job_dir, "beside"));
        text(g.result, "weights_sha256", digest, sizeof digest);
        text(g.checkpoint, "weights_sha256", said, sizeof said);
        CHECK_STR(digest, said);
        CHECK(g.n_checkpoints == 1 && g.n_artifacts == 0 && g.n_notes == 1);
        CHECK_MSG(strstr(gang_event(&g, EV_NOTE, 0)->json, "link.json (a link)"), "%s",
                  gang_event(&g, EV_NOTE, 0)->json);
        CHECK(number(g.checkpoint, "step") == CKPT_MERGED_STEP);
        CHECK(number(g.result, "parameters") > 0 && number(g.result, "adapter_parameters") > 0);
        struct jread j;
        enum jtok t;
        CHECK(member(g.result, "memory", &j, &t) && t == J_OBJECT);
        const char *memory = strstr(g.result, "\"memory\":") + strlen("\"memory\":");
        CHECK_MSG(number(memory, "planned") == number(memory, "high") &&
                      number(memory, "planned") > 0,
                  "%s", g.result);
        CHECK(g.n_told >= 2 && g.told[1].unit == PROGRESS_BYTES);
        CHECK_MSG(g.told[1].done == g.told[1].total && g.told[0].done == 0, "%g of %g",
                  g.told[1].done, g.told[1].total);
        free(o);
    }
}

/* Writes an adapter of all products of a model, as a training would. Returns the model's shape with
 * the adapter. */
static const struct model_shape *write_adapter(const char *model, const char *to)
{
    static struct job_spec s;
    struct err why = {0};
    spec_defaults(&s);
    CHECK_MSG(!hf_read_dir(model, &s.model.shape, &why) && !family_complete(&s.model.shape, &why),
              "%s", why.text);
    adapter_shape(&s);
    CHECK_MSG(!rules_freeze(&s, &why), "%s", why.text);
    adapter_write(to, &s.model.shape);
    return &s.model.shape;
}

/* Finds matrix "lora_A" or "lora_B" of a weight. */
static bool find_matrix(const struct model_shape *m, const char *name, const char *part,
                        struct param *out)
{
    char want[sizeof out->name + 16];
    const char *end = strstr(name, ".weight");
    snprintf(want, sizeof want, "%.*s.%s.weight", end ? (int)(end - name) : 0, name, part);
    for (int i = 0; i < param_tensors(m); i++) {
        param_get(m, i, out);
        if (!strcmp(out->name, want)) return true;
    }
    return false;
}

/* Compares a tensor of the merged model with W + scale B A, in float64, of the model and the
 * adapter. An element is the sum of a weight and of 3 products, times the factor, which has a
 * rounding of its own: 9 roundings of numbers below 2, each of at most 2^-24. */
static void check_tensor(const struct model_shape *m, const struct param *p, const float *of,
                         const float *is)
{
    struct param a = {0}, b = {0};
    const int64_t rank = m->adapter.rank;
    const bool adapted = find_matrix(m, p->name, "lora_A", &a) &&
                         find_matrix(m, p->name, "lora_B", &b);
    int64_t n_changed = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const double w = of[p->offset + i], got = is[p->offset + i];
        double sum = 0;
        for (int64_t k = 0; adapted && k < rank; k++)
            sum += (double)of[b.offset + i / p->cols * rank + k] *
                   of[a.offset + k * p->cols + i % p->cols];
        const double want = w + m->adapter.scale * sum;
        n_changed += got != w;
        CHECK_MSG(adapted ? fabs(want) < 2 && fabs(want - got) <= 9 * 0x1p-24 : got == w,
                  "%s: %.9g, want %.9g", p->name, got, want);
    }
    CHECK_MSG(!adapted || 2 * n_changed > p->count, "%s: %lld changed", p->name,
              (long long)n_changed);
}

static void check_sums(const char *base, const char *added, const char *hf,
                       const struct model_shape *m)
{
    struct err why = {0};
    struct param p;
    const size_t n = (size_t)param_count(m);
    float *of = calloc(n, sizeof *of), *is = calloc(n, sizeof *is);
    const struct hf_sink to = {.take = adapter_keep, .arg = of};
    CHECK_MSG(of && is && !hf_load(base, m, DT_F32, of, &why) &&
                  !adapter_load(added, m, &to, &why) && !hf_load(hf, m, DT_F32, is, &why),
              "%s", why.text);
    for (int i = 0; i < param_tensors(m); i++) {
        param_get(m, i, &p);
        if (!p.adapter) check_tensor(m, &p, of, is);
    }
    free(of), free(is);
}

/* Checks that a GGUF file is a base, too, and becomes a directory with safetensors. */
static void test_gguf(void)
{
    char command[512], hf[1300];
    struct err why = {0};
    snprintf(command, sizeof command, "cp tests/golden/gguf/qwen2.gguf '%s'", scratch);
    shell(command);
    const struct model_shape *m = write_adapter(in_dir("qwen2.gguf", ""), in_dir("of-gguf", ""));
    struct order *o = make_order("gguf");
    o->spec.model.path = tiny_text(&o->spec, in_dir("qwen2.gguf", ""));
    o->spec.model.adapter = tiny_text(&o->spec, in_dir("of-gguf", ""));
    CHECK(runs(o));
    text(g.result, "hf", hf, sizeof hf);
    struct model_shape is, of;
    CHECK_MSG(!hf_read_dir(hf, &is, &why) && !hf_read_dir(in_dir("qwen2.gguf", ""), &of, &why),
              "%s", why.text);
    CHECK(!hf_shape_diff(&is, &of) && there(hf, "model.safetensors"));
    check_sums(in_dir("qwen2.gguf", ""), in_dir("of-gguf", ""), hf, m);
    free(o);
}

/* ---- the base -------------------------------------------------------------------------------- */

static void test_base(void)
{
    struct err why = {0};
    struct base_id id = {.name = "/models/other"};
    memset(id.sha256, 'a', sizeof id.sha256 - 1);
    CHECK(!base_id_write(in_dir("adapter", ""), &id, &why));
    struct order *o = make_order("other");
    fails(o, "model.path", "/models/other");
    put("adapter", BASE_ID_FILE, "{\"version\":1}");
    fails(o, "model.adapter", "does not name the base");
    CHECK(!unlink(in_dir("adapter", BASE_ID_FILE)));
    free(o);
}

static void test_refused(void)
{
    struct order *o = make_order("refused");
    o->spec.model.path = tiny_text(&o->spec, "/etc");
    fails(o, "model.path", "beneath none");
    free(o);
    o = make_order("refused");
    o->spec.model.adapter = tiny_text(&o->spec, in_dir("model", ""));
    fails(o, "model.adapter", "directory of a model");
    free(o);
    o = make_order("refused");
    o->spec.adapter.type = ADAPTER_LORA;
    o->spec.adapter.rank = 4;
    fails(o, "adapter.rank", "set adapter.rank 3");
    free(o);
    o = make_order("refused");
    CHECK(!rename(in_dir("adapter", "adapter_model.safetensors"), in_dir("adapter", "away")));
    fails(o, "model.adapter", "adapter_model.safetensors");
    CHECK(!rename(in_dir("adapter", "away"), in_dir("adapter", "adapter_model.safetensors")));
    free(o);
}

/* ---- stopped and killed ---------------------------------------------------------------------- */

static void test_stopped(void)
{
    struct order *o = make_order("stopped");
    gang_start(&g, 1, o);
    send_packet(&g, 0, RANK_STOP, NULL, 0);
    gang_run(&g);
    CHECK_MSG(g.n_fails == 1 && g.fail.code == ERR_ABORTED, "%s", g.fail.text);
    CHECK(!there(o->args.job_dir, "beside") && !*g.result && !g.n_checkpoints);
    CHECK_MSG(count_files(o->args.job_dir) == 0, "files are left");
    o->args.epoch = 2;
    CHECK(runs(o));
    free(o);
}

/* Lets a rank write no file. */
static void no_files(int rank, int n)
{
    const struct rlimit none = {0, 0};
    (void)rank, (void)n;
    setrlimit(RLIMIT_FSIZE, &none);
}

/* Checks the reports of an attempt that found the merged model of another. It reports that model,
 * and writes no file of its own. */
static void check_found(struct order *o, const char *digest)
{
    char text_of[80];
    put("killed/beside", "old.json", "{}");
    gang_env = no_files;
    CHECK(runs(o));
    gang_env = NULL;
    CHECK_STR(text(g.result, "weights_sha256", text_of, sizeof text_of), digest);
    CHECK_STR(text(g.checkpoint, "weights_sha256", text_of, sizeof text_of), digest);
    CHECK(g.n_checkpoints == 1 && number(g.checkpoint, "step") == CKPT_MERGED_STEP);
    CHECK(number(g.result, "parameters") > 0 && g.n_told > 0);
    CHECK_MSG(g.told[0].done == g.told[0].total && g.told[1].done == g.told[1].total &&
                  g.told[1].total > 0,
              "%g of %g", g.told[1].done, g.told[1].total);
    const char *memory = strstr(g.result, "\"memory\":");
    CHECK_MSG(memory && number(memory + strlen("\"memory\":"), "planned") ==
                            number(memory + strlen("\"memory\":"), "high"),
              "%s", g.result);
    CHECK(!there(o->args.job_dir, "beside"));
}

/* Checks attempts after one that was killed while it wrote, after one that was killed when it had
 * named its directory, and after a disk has lost a part of that directory. */
static void test_killed(void)
{
    char hf[1300], first[80], last[80];
    struct order *o = make_order("killed");
    put("killed/checkpoints/step-00000001.e1.tmp/hf", "model.safetensors", "half a mod");
    put("killed/beside", "old.json", "{}");
    o->args.epoch = 2;
    gang_start(&g, 1, o);
    g.kill_rank = 0;
    gang_run(&g);
    CHECK(g.n_checkpoints == 1);
    CHECK(!there("killed/checkpoints/step-00000001.e1.tmp", ""));
    text(g.checkpoint, "weights_sha256", first, sizeof first);
    o->args.epoch = 3;
    check_found(o, first);
    text(g.result, "hf", hf, sizeof hf);
    check_model(hf, ST_F32);
    CHECK(!there(hf, "old.json") && count_files(o->args.job_dir) == 5);
    CHECK(!truncate(in_dir(hf, "model.safetensors"), 100));
    o->args.epoch = 4;
    CHECK(runs(o));
    text(g.result, "weights_sha256", last, sizeof last);
    CHECK_STR(last, first);
    check_model(hf, ST_F32);
    free(o);
}

/* ---- published ------------------------------------------------------------------------------- */

static void test_published(void)
{
    char hf[1300], command[4000];
    struct order *o = make_order("published");
    mkdir(in_dir("shared", ""), 0700);
    o->args.n_writable = 1;
    snprintf(o->args.writable[0], sizeof o->args.writable[0], "%s", in_dir("shared", ""));
    o->spec.output.path = tiny_text(&o->spec, "tuned");
    CHECK(runs(o));
    text(g.result, "hf", hf, sizeof hf);
    snprintf(command, sizeof command, "diff -r '%s' '%s'", hf, in_dir("shared", "tuned/hf"));
    shell(command);
    CHECK(count_files(in_dir("shared", "tuned")) == 5); /* with the owner's name */
    free(o);
}

/* Checks an attempt that cannot publish: it reports no checkpoint, after which the failures of the
 * job would not be counted. The next attempt publishes what this one has merged. */
static void test_unpublished(void)
{
    char hf[1300], command[4000];
    struct order *o = make_order("unpublished");
    put("shared/kept", ".seqd-job", "seqd job 7, submitted 0\n");
    put("shared/kept", "hf", "a file");
    o->args.n_writable = 1;
    snprintf(o->args.writable[0], sizeof o->args.writable[0], "%s", in_dir("shared", ""));
    o->spec.output.path = tiny_text(&o->spec, "kept");
    CHECK(!runs(o) && g.n_fails == 1);
    CHECK_MSG(strstr(g.fail.text, "output.path") && !g.n_checkpoints && !*g.result, "%s",
              g.fail.text);
    CHECK(!unlink(in_dir("shared", "kept/hf")));
    o->args.epoch = 2;
    CHECK(runs(o) && g.n_checkpoints == 1);
    text(g.result, "hf", hf, sizeof hf);
    snprintf(command, sizeof command, "diff -r '%s' '%s'", hf, in_dir("shared", "kept/hf"));
    shell(command);
    free(o);
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_merge_jobs.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    make_model();
    RUN(test_merge);
    RUN(test_gguf);
    RUN(test_base);
    RUN(test_refused);
    RUN(test_stopped);
    RUN(test_killed);
    RUN(test_published);
    RUN(test_unpublished);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("merge_jobs");
}
