/* test_merge.c: merges of adapters that read model and adapter from their files. Every element must
 * be that of hf_load and adapter_load, of every form of files. The merged model must have the bits
 * that a merge of weights in memory has. Its plan must not grow with the model, and must be the
 * memory that is used.
 * tests: needs golden */
#include <float.h>
#include <math.h>
#include "tests/lib/adapter.h"
#include "tests/lib/adapter_write.h"
#include "tests/lib/datadir.h"
#include "tests/lib/hf_save.h"

#include "api/core/manifest.h"
#include "api/core/mem.h"
#include "worker/ckpt/ckpt.h"
#include "worker/family/config.h"
#include "worker/hf/adapter.h"
#include "worker/hf/elements.h"
#include "worker/hf/safetensors.h"
#include "worker/plan/adapter_facts.h"
#include "worker/plan/check.h"
#include "worker/plan/merge_sizes.h"
#include "worker/plan/report.h"

/* ---- a model and its adapter ----------------------------------------------------------------- */

static char model[FILE_PATH_SIZE], adapter[FILE_PATH_SIZE];
static float *weights; /* all elements of both, in the flat layout */

static const struct model_shape *shape(void)
{
    return &spec->model.shape;
}

static void describe(void)
{
    char json[SPEC_CONFIG_SIZE];
    struct adapter_facts facts;
    const int64_t n = adapter_describe(adapter, json, sizeof json, &e);
    CHECK_MSG(n > 0 && !adapter_facts_read(json, (size_t)n, &facts, &e) &&
                  !adapter_facts_fill(spec, &facts, &e),
              "%s: %s", adapter, e.text);
}

/* Returns the model of a golden adapter. It has the adapter's name, unless that has whole
 * modules. */
static const char *base_of(const char *name)
{
    if (!strcmp(name, "phi3_both")) return "phi3";
    return strcmp(name, "mixtral_head") ? name : "mixtral";
}

/* Takes a golden model, or the GGUF file `name`, with its golden adapter. If it has none, an
 * adapter is written, which has the embedding and the head whole if they are two tensors. */
static void take(const char *name, enum precision_id precision)
{
    const bool gguf = strstr(name, ".gguf");
    spec_defaults(spec);
    snprintf(model, sizeof model, "tests/golden/%s%s", gguf ? "gguf/" : "", base_of(name));
    snprintf(adapter, sizeof adapter, "tests/golden/adapter/%s", name);
    e = (struct err){0};
    CHECK_MSG(!hf_read_dir(model, &spec->model.shape, &e), "%s: %s", name, e.text);
    spec->precision.params = precision;
    CHECK(!spec_intern(spec, model, strlen(model), &spec->model.path));
    if (!file_exists(adapter)) {
        CHECK_MSG(!family_complete(&spec->model.shape, &e), "%s", e.text);
        if (!shape()->tied) adapter_saves(spec, ADAPTER_SAVES_EMBEDDING | ADAPTER_SAVES_HEAD);
        adapter_shape(spec);
        CHECK_MSG(!rules_freeze(spec, &e), "%s", e.text);
        snprintf(adapter, sizeof adapter, "%s", in_dir("adapter"));
        adapter_write(adapter, shape());
        adapter_saves(spec, 0);
        spec->adapter.rank = spec->adapter.type = 0;
        spec->adapter.alpha = 0;
    }
    spec->kind = JOB_MERGE;
    CHECK(!spec_intern(spec, adapter, strlen(adapter), &spec->model.adapter));
    describe();
    CHECK_MSG(!family_check(spec, &e), "%s: %s: %s", name, e.field, e.text);
    weights = realloc(weights, (size_t)param_count(shape()) * sizeof *weights);
    const struct hf_sink to = {.take = adapter_keep, .arg = weights};
    CHECK_MSG(!hf_load(model, shape(), DT_F32, weights, &e) &&
                  !adapter_load(adapter, shape(), &to, &e),
              "%s: %s", name, e.text);
}

/* ---- other forms of directories -------------------------------------------------------------- */

/* Copies a directory to dir/NAME, so that the copy can be changed. */
static void copy_to(const char *name, char path[FILE_PATH_SIZE])
{
    char command[FILE_PATH_SIZE * 3];
    snprintf(command, sizeof command, "rm -rf '%s' && cp -r '%s' '%s'", in_dir(name), path,
             in_dir(name));
    CHECK(!system(command));
    snprintf(path, FILE_PATH_SIZE, "%s", in_dir(name));
}

/* Writes every `step`th tensor of f, from the first one on. */
static void write_some(const char *path, const struct st_file *f, int first, int step)
{
    struct st_out *items = calloc((size_t)st_count(f) + 1, sizeof *items);
    int n = 0;
    if (!items) abort();
    for (int i = first; i < st_count(f); i += step) {
        const struct st_tensor *t = st_at(f, i);
        items[n] = (struct st_out){
            .name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = st_data(f, t)};
        memcpy(items[n++].dims, t->dims, sizeof t->dims);
    }
    CHECK_MSG(!st_write(path, items, n, &e), "%s", e.text);
    free(items);
}

/* Writes the tensors of a file again, without the first one. */
static void drop_tensor(const char *path)
{
    struct st_file *f = st_open(path, &e);
    CHECK_MSG(f, "%s", e.text);
    write_some(path, f, 1, 1);
    st_close(f);
}

/* Divides the model into two files, each of which has every second tensor, and an index. */
static void divide(void)
{
    static const char name[] = "model-0000%d-of-00002.safetensors";
    char path[FILE_PATH_SIZE + 64], part[64];
    copy_to("shards", model);
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    struct st_file *f = st_open(path, &e);
    CHECK_MSG(f && !unlink(path), "%s", e.text);
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", model);
    FILE *index = fopen(path, "we");
    fprintf(index, "{\"weight_map\":{");
    for (int i = 0; i < st_count(f); i++) {
        snprintf(part, sizeof part, name, 1 + i % 2);
        fprintf(index, "%s\"%s\":\"%s\"", i ? "," : "", st_at(f, i)->name, part);
    }
    fprintf(index, "}}");
    CHECK(!fclose(index));
    for (int i = 0; i < 2; i++) {
        snprintf(part, sizeof part, name, 1 + i);
        snprintf(path, sizeof path, "%s/%s", model, part);
        write_some(path, f, i, 2);
    }
    st_close(f);
}

/* ---- elements -------------------------------------------------------------------------------- */

static const char *const names[] = {
    "llama3",  "gpt2",       "phi3",       "qwen3",         "mixtral",   "qwen3_mixed",
    "gemma3",  "qwen3_next", "gpt_oss",    "gpt_oss_mxfp4", "bert",      "modernbert",
    "qwen3_5", "llama.gguf", "qwen2.gguf", "gemma3.gguf",   "phi3_both", "mixtral_head"};
enum { NAMES = sizeof names / sizeof *names };

static float *room_of_blocks(void)
{
    struct merge_sizes z;
    merge_sizes(shape(), &z);
    return z.block ? malloc((size_t)z.block * 2 * sizeof(float)) : NULL;
}

/* Reads all tensors in pieces of `step` elements, the last one first if `back` is set. */
static void check_elements(const char *name, int64_t step, bool back)
{
    float *room = room_of_blocks(), *x = malloc((size_t)step * sizeof *x);
    struct hf_elements *h = hf_elements_open(model, adapter, shape(), room, &e);
    const int n = param_tensors(shape());
    CHECK_MSG(h, "%s: %s", name, e.text);
    for (int i = 0; h && i < n; i++) {
        struct param p;
        param_get(shape(), back ? n - 1 - i : i, &p);
        for (int64_t at = 0; at < p.count; at += step) {
            const int64_t k = p.count - at < step ? p.count - at : step;
            const int rc = hf_elements_read(h, p.offset + at, k, x, &e);
            CHECK_MSG(!rc && !memcmp(x, weights + p.offset + at, (size_t)k * sizeof *x),
                      "%s: %s at %lld: %s", name, p.name, (long long)at, e.text);
        }
    }
    hf_elements_close(h);
    free(x), free(room);
}

static void test_elements(void)
{
    for (int i = 0; i < NAMES; i++) {
        take(names[i], PRECISION_FP32);
        check_elements(names[i], ST_CHUNK, false);
        check_elements(names[i], 37, true);
        if (strstr(names[i], ".gguf")) continue;
        divide();
        check_elements(names[i], ST_CHUNK, false);
    }
}

/* ---- the merged model ------------------------------------------------------------------------ */

static int read_files(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *err)
{
    CHECK(which == CKPT_WEIGHTS);
    return hf_elements_read(arg, offset, n, out, err);
}

static int read_memory(void *arg, int which, int64_t offset, int64_t n, float *out, struct err *err)
{
    (void)which, (void)err;
    memcpy(out, (const float *)arg + offset, (size_t)n * sizeof *out);
    return 0;
}

static const enum dtype dtypes[PRECISION_N] = {DT_F32, DT_BF16, DT_F16};

/* Merges into dir/NAME by a flow. Returns the digest of the weights in info. */
static void save(const char *to, const struct ckpt_flow *flow, float *room, void *blocks,
                 int64_t *used, struct ckpt_info *info)
{
    const struct ckpt_arrays a = {
        .dtype = dtypes[spec->precision.params], .flow = *flow, .room = {room, blocks, used}};
    CHECK_MSG(!file_make_dir(in_dir(to), &e) &&
                  !ckpt_save_merged(in_dir(to), 3, shape(), &a, info, &e),
              "%s: %s", to, e.text);
    CHECK(info->step == CKPT_MERGED_STEP);
}

/* Checks that both directories have the same files, and that these are the manifest's. */
static void check_same(const char *name, const struct ckpt_info *a, const struct ckpt_info *b)
{
    char command[2 * CKPT_PATH_SIZE + 64];
    struct manifest m;
    snprintf(command, sizeof command, "diff -r '%s/hf' '%s/hf'", a->path, b->path);
    CHECK_MSG(!system(command) && !strcmp(a->weights_sha256, b->weights_sha256), "%s", name);
    CHECK_MSG(!manifest_check(&m, a->path, MANIFEST_DIGESTS, &e), "%s: %s", name, e.text);
    for (int i = 0; i < m.n_files; i++) CHECK(!strncmp(m.file[i].path, "hf/", 3));
    snprintf(command, sizeof command, "test \"$(find '%s' -type f | wc -l)\" = %d", a->path,
             m.n_files + 1);
    CHECK_MSG(!system(command), "%s", name);
}

/* Compares a tensor of a merged model with elements of the model that peft merges. A merged element
 * is the sum of a weight and of at most 4 products, times the factor, which has a rounding of its
 * own: 11 roundings of numbers below 2, each of at most 2^-24. */
static void check_part(const char *name, const struct st_tensor *t, const float *is,
                       const struct st_tensor *part, const double *want)
{
    const int64_t step = (t->count + 63) / 64 | 1;
    CHECK_MSG(part->count == (t->count + step - 1) / step, "%s: %s", name, t->name);
    for (int64_t k = 0; k < part->count; k++)
        CHECK_MSG(fabs(want[k]) < 2 && fabs(want[k] - (double)is[k * step]) <= 11 * 0x1p-24,
                  "%s: %s: %.9g, and peft has %.9g", name, t->name, (double)is[k * step], want[k]);
}

/* Compares the merged model in fp32 with the golden one of peft, if there is one. */
static void check_peft(const char *name, const char *merged)
{
    char golden[FILE_PATH_SIZE], path[FILE_PATH_SIZE];
    snprintf(golden, sizeof golden, "tests/golden/adapter/%s/merged.safetensors", name);
    if (!file_exists(golden) || spec->precision.params != PRECISION_FP32) return;
    CHECK(!file_join(path, &e, "%s/hf/model.safetensors", merged));
    struct st_file *of = st_open(golden, &e), *is = st_open(path, &e);
    CHECK_MSG(of && is && st_count(of) == st_count(is), "%s: %s", name, e.text);
    for (int i = 0; of && is && i < st_count(of); i++) {
        const struct st_tensor *part = st_at(of, i), *t = st_find(is, part->name);
        CHECK_MSG(t && t->dtype == ST_F32 && part->dtype == ST_F64, "%s: %s", name, part->name);
        if (t) check_part(name, t, st_data(is, t), part, st_data(of, part));
    }
    st_close(of), st_close(is);
}

static void check_merged(const char *name, enum precision_id precision)
{
    struct plan p;
    struct ckpt_info from_files, from_memory;
    int64_t used = 0, high = 0;
    take(name, precision);
    CHECK_MSG(!plan_make(spec, 0, &p, &e), "%s: %s", name, e.text);
    char *arena = malloc((size_t)p.arena_size);
    void *at[PLAN_ID_N] = {0};
    for (int i = PLAN_MERGE_ADAPTER; i <= PLAN_MERGE_FILE; i++)
        if (p.item[i].size) at[i] = arena + p.item[i].offset;
    struct hf_elements *h = hf_elements_open(model, adapter, shape(), at[PLAN_MERGE_BLOCKS], &e);
    CHECK_MSG(h, "%s: %s", name, e.text);
    save("files", &(struct ckpt_flow){.read = read_files, .arg = h}, at[PLAN_MERGE_ADAPTER],
         at[PLAN_MERGE_FILE], &used, &from_files);
    save("memory", &(struct ckpt_flow){.read = read_memory, .arg = weights}, NULL, NULL, NULL,
         &from_memory);
    check_same(name, &from_files, &from_memory);
    check_peft(name, from_files.path);
    const int64_t blocks = hf_elements_used(h), unit = precision == PRECISION_FP32 ? 4 : 2;
    const int64_t sizes[] = {4 * used, 4 * blocks, unit * blocks};
    for (int i = 0; i < 3; i++) high += mem_round(sizes[i], MEM_ALIGN);
    CHECK_MSG(mem_round(high, PLAN_PAGE) == p.arena_size && p.segment_size == 0,
              "%s: %lld of %lld bytes", name, (long long)high, (long long)p.arena_size);
    hf_elements_close(h);
    free(arena);
    CHECK(!file_remove(in_dir("files"), &e) && !file_remove(in_dir("memory"), &e));
}

/* Tells whether a model has elements that are too large for the precision. */
static bool is_beyond(const char *name, enum precision_id precision)
{
    return precision == PRECISION_FP16 && !strcmp(name, "gpt_oss_mxfp4");
}

static void test_merged(void)
{
    for (int i = 0; i < NAMES; i++)
        for (int k = 0; k < PRECISION_N; k++)
            if (k == PRECISION_FP32 || (!small_leaves(i + k, 3) && !is_beyond(names[i], k)))
                check_merged(names[i], k);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static int64_t plan_of(int64_t layers, int64_t width, int64_t rank)
{
    struct plan p;
    struct merge_sizes z;
    take("llama3", PRECISION_BF16);
    spec->model.shape.n_layers = layers;
    spec->model.shape.width = width;
    spec->adapter.rank = rank;
    spec->model.shape.adapter.rank = spec->model.shape.freeze.n_kinds = 0;
    CHECK_MSG(!rules_adapter(spec, &e) && !rules_freeze(spec, &e), "%s", e.text);
    CHECK_MSG(!plan_make(spec, 0, &p, &e), "%s", e.text);
    merge_sizes(shape(), &z);
    CHECK(p.flops == z.flops && p.n_ranks == 1);
    for (int i = 0; i < PURPOSE_N; i++) CHECK(!p.comm[i].bytes_sent && !p.comm[i].messages_sent);
    return p.arena_size;
}

/* Checks the numbers of elements against the list of tensors. */
static void test_sizes(void)
{
    for (int i = 0; i < NAMES; i++) {
        struct merge_sizes z;
        struct param p;
        int64_t base = 0, added = 0, saved = 0;
        take(names[i], PRECISION_FP32);
        merge_sizes(shape(), &z);
        for (int k = 0; k < param_tensors(shape()); k++) {
            param_get(shape(), k, &p);
            *(p.adapter ? &added : &base) += p.count;
            saved += p.saved ? p.count : 0;
        }
        CHECK_MSG(z.elements == base && z.adapters == added && z.saved == saved, "%s", names[i]);
    }
}

/* Checks that the memory does not grow with the layers, and is a small part of the model. */
static void test_plan(void)
{
    const int64_t few = plan_of(2, 4096, 16), many = plan_of(60, 4096, 16);
    CHECK_MSG(few == many && few < 8 << 20, "%lld, %lld bytes", (long long)few, (long long)many);
    CHECK(plan_of(2, 4096, 64) > few);
    struct plan p;
    take("llama3", PRECISION_FP32);
    CHECK(plan_make(spec, 1, &p, &e) && e.code == ERR_DOES_NOT_FIT);
    CHECK_MSG(!strstr(e.text, "memory.") && !strstr(e.text, "parallel."), "%s", e.text);
}

/* Checks that the plan counts the parameters of the model without its adapter, and names the type
 * of the result. */
static void test_plan_text(void)
{
    static char json[1 << 15];
    char want[64];
    struct merge_sizes z;
    struct plan p;
    take("llama3", PRECISION_BF16);
    merge_sizes(shape(), &z);
    CHECK(z.adapters > 0 && !plan_make(spec, 0, &p, &e));
    CHECK(plan_json(spec, &p, json, sizeof json) > 0);
    snprintf(want, sizeof want, "\"parameters\":%lld,", (long long)z.elements);
    CHECK_MSG(strstr(json, want) && strstr(json, "writes it in bf16: precision.params"), "%s",
              json);
}

/* ---- refused --------------------------------------------------------------------------------- */

static void refused(const char *what, const char *says)
{
    float *room = room_of_blocks();
    e = (struct err){0};
    struct hf_elements *h = hf_elements_open(model, adapter, shape(), room, &e);
    CHECK_MSG(!h && strstr(e.text, says), "%s: %s", what, e.text);
    hf_elements_close(h);
    free(room);
}

static void cut(const char *file, off_t size)
{
    char path[FILE_PATH_SIZE + 64];
    snprintf(path, sizeof path, "%s", file);
    CHECK(!truncate(path, size));
}

static void test_refused(void)
{
    char file[FILE_PATH_SIZE + 64];
    take("qwen3", PRECISION_FP32);
    copy_to("base", model);
    snprintf(file, sizeof file, "%s/model.safetensors", model);
    drop_tensor(file);
    refused("a model without a tensor", "is missing");
    cut(file, 1000);
    refused("half a model", "model.safetensors");
    take("qwen3", PRECISION_FP32);
    copy_to("own", adapter);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", adapter);
    drop_tensor(file);
    refused("an adapter without a tensor", "is missing");
    cut(file, 1000);
    refused("half an adapter", "adapter_model.safetensors");
    snprintf(adapter, sizeof adapter, "tests/golden/adapter/llama3");
    refused("an adapter of another model", "");
    snprintf(adapter, sizeof adapter, "tests/golden/qwen3");
    refused("no adapter", "adapter_config.json");
    take("qwen3", PRECISION_FP32);
    snprintf(model, sizeof model, "tests/golden/llama3");
    refused("another model", "does not fit its config.json");
}

/* Checks a file that loses its end while it is read. */
static void test_cut(void)
{
    take("qwen3", PRECISION_FP32);
    copy_to("base", model);
    struct hf_elements *h = hf_elements_open(model, adapter, shape(), NULL, &e);
    char file[FILE_PATH_SIZE + 64];
    struct ckpt_info info;
    const struct ckpt_arrays a = {.dtype = DT_F32, .flow = {.read = read_files, .arg = h}};
    CHECK_MSG(h, "%s", e.text);
    snprintf(file, sizeof file, "%s/model.safetensors", model);
    cut(file, 20000);
    CHECK(!file_make_dir(in_dir("job"), &e));
    CHECK(ckpt_save_merged(in_dir("job"), 3, shape(), &a, &info, &e));
    CHECK_MSG(e.code == ERR_CORRUPT && strstr(e.text, "model.safetensors"), "%s", e.text);
    CHECK_MSG(rmdir(in_dir("job/checkpoints")) == 0, "something is left");
    hf_elements_close(h);
}

/* ---- elements that are not finite ------------------------------------------------------------ */

/* Merges a model after its first tensor whose name ends with `end` has got `value` as its last
 * element. Returns the code of the error. */
static enum err_code merge_with(const char *name, enum precision_id precision, const char *end,
                                float value)
{
    struct param p = {0};
    struct ckpt_info info;
    take(name, precision);
    for (int i = 0; i < param_tensors(shape()); i++) {
        param_get(shape(), i, &p);
        if (strlen(p.name) >= strlen(end) && !strcmp(p.name + strlen(p.name) - strlen(end), end))
            break;
    }
    CHECK_MSG(strstr(p.name, end), "%s has no %s", name, end);
    weights[p.offset + p.count - 1] = value;
    if (value == FLT_MAX) spec->model.shape.adapter.scale = 1e9; /* the product overflows fp32 */
    const struct ckpt_arrays a = {.dtype = dtypes[precision],
                                  .flow = {.read = read_memory, .arg = weights}};
    e = (struct err){0};
    CHECK(!file_make_dir(in_dir("job"), &e));
    const int rc = ckpt_save_merged(in_dir("job"), 3, shape(), &a, &info, &e);
    if (rc) CHECK_MSG(rmdir(in_dir("job/checkpoints")) == 0, "%s: something is left", name);
    CHECK(!file_remove(in_dir("job"), &e) && !rc == !e.code);
    return e.code;
}

static void test_not_finite(void)
{
    static const struct {
        const char *name, *end, *field;
        float value;
        enum precision_id precision;
    } of[] = {{"qwen3", "q_proj.lora_A.weight", "model.adapter", NAN, PRECISION_FP32},
              {"qwen3", "q_proj.lora_B.weight", "model.adapter", -INFINITY, PRECISION_BF16},
              {"qwen3", "o_proj.lora_B.weight", "model.adapter", FLT_MAX, PRECISION_FP32},
              {"mixtral_head", "lm_head.weight", "model.adapter", NAN, PRECISION_BF16},
              {"qwen3", "q_proj.weight", "precision.params", 65520, PRECISION_FP16},
              {"qwen3", "norm.weight", "precision.params", -65520, PRECISION_FP16},
              {"mixtral_head", "lm_head.weight", "precision.params", 1e5f, PRECISION_FP16},
              {"qwen3", "norm.weight", "precision.params", 0x1.ffp127f, PRECISION_BF16},
              {"qwen3", "norm.weight", NULL, 0x1.fep127f, PRECISION_BF16},
              {"qwen3", "norm.weight", NULL, 65519, PRECISION_FP16},
              {"qwen3", "norm.weight", NULL, 0x1.ffp127f, PRECISION_FP32},
              /* these are the model's own */
              {"qwen3", "norm.weight", NULL, INFINITY, PRECISION_FP16},
              {"qwen3", "q_proj.weight", NULL, NAN, PRECISION_FP32}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const enum err_code code = merge_with(of[i].name, of[i].precision, of[i].end, of[i].value);
        char module[64];
        snprintf(module, sizeof module, "%.*s", (int)strcspn(of[i].end, "."), of[i].end);
        CHECK_MSG(code == (of[i].field ? ERR_INVALID : ERR_NONE) &&
                      (!of[i].field || (!strcmp(e.field, of[i].field) && strstr(e.text, module))),
                  "%s: %s of %g: %s: %s", of[i].name, of[i].end, (double)of[i].value, e.field,
                  e.text);
    }
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void refused_job(const char *field, const char *says)
{
    e = (struct err){0};
    CHECK_MSG(family_check(spec, &e) && !strcmp(e.field, field) && strstr(e.text, says), "%s: %s",
              e.field, e.text);
}

static void test_fields(void)
{
    take("qwen3", PRECISION_FP32);
    CHECK(spec->resources.ranks == 1 && spec->parallel.sp == 1 && spec->parallel.dp == 1);
    struct job_spec *again = malloc(sizeof *again);
    if (!again) abort();
    *again = *spec;
    CHECK(!family_check(again, &e) && !memcmp(again, spec, sizeof *spec));
    free(again);
    spec->resources.ranks = 2;
    refused_job("resources.ranks", "one rank");
    take("qwen3", PRECISION_FP32);
    CHECK(!spec_intern(spec, "cuda", 4, &spec->resources.device));
    refused_job("resources.device", "CPU");
    take("qwen3", PRECISION_FP32);
    spec->model.adapter = 0;
    refused_job("model.adapter", "is missing");
    spec->model.path = 0;
    refused_job("model.path", "checkpoint.merge");
    take("qwen3", PRECISION_FP32);
    spec->data.tokenizer = TOKENIZER_BYTE;
    if (shape()->vocab < JOB_BYTE_VOCAB) refused_job("model.config.vocab_size", "byte");
}

/* Checks a model without a head. An adapter that has the head whole needs it, others do not. */
static void test_head(void)
{
    take("mixtral_head", PRECISION_FP32);
    CHECK(shape()->adapter.saves & ADAPTER_SAVES_HEAD);
    spec->model.shape.headless = 1;
    refused_job("model.path", "give the directory of the model that has its head");
    CHECK(e.code == ERR_UNSUPPORTED);
    take("mixtral", PRECISION_FP32);
    spec->model.shape.headless = 1;
    CHECK_MSG(!family_check(spec, &e) && shape()->no_head, "%s: %s", e.field, e.text);
}

int main(void)
{
    datadir_begin("merge");
    RUN(test_elements);
    RUN(test_merged);
    RUN(test_sizes);
    RUN(test_plan);
    RUN(test_plan_text);
    RUN(test_refused);
    RUN(test_cut);
    RUN(test_not_finite);
    RUN(test_fields);
    RUN(test_head);
    free(weights);
    return datadir_end("merge");
}
