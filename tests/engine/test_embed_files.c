/* test_embed_files.c: checks published embedding models. The files were saved from a base class,
 * so the names of their tensors have no prefix, and there is no head. Vectors are compared with
 * those of the packages that publish the models (golden/make_embed_golden.py). embed_qwen3 is a
 * Qwen3Model that transformers saved.
 * tests: needs golden seqrank */
#include <math.h>
#include "tests/lib/hf_save.h"
#include "tests/lib/own_model.h"
#include "worker/hf/safetensors.h"
#include "worker/hf/weights.h"
#include "worker/plan/plan.h"

enum { ROWS = 8, COLS = 32 };
static char golden_dir[1024];

static const char *golden(const char *name)
{
    static char path[2048];
    snprintf(path, sizeof path, "%s/%s", golden_dir, name);
    return path;
}

/* Makes an embed job. Its model is a golden directory, and its input is a file in that
 * directory. */
static struct order *embeds(const char *name, const char *model, const char *input)
{
    char path[128];
    struct order *o = own_order(JOB_EMBED, name, "", "");
    snprintf(path, sizeof path, "%s/%s", model, input);
    o->spec.model.path = tiny_text(&o->spec, golden(model));
    o->spec.input.source = (struct spec_source){tiny_text(&o->spec, golden(path)),
                                                tiny_text(&o->spec, "text"), DATA_JSONL, 0, -1};
    o->spec.data.seq_len = 64;
    snprintf(o->args.roots[o->args.n_roots++], sizeof *o->args.roots, "%s", golden_dir);
    return o;
}

/* Runs the job. Returns how many rows of n columns its result has. */
static int vectors(struct order *o, int n, float out[ROWS][COLS])
{
    char path[2048];
    size_t size = 0;
    if (!job_runs(o)) return 0;
    snprintf(path, sizeof path, "%s/artifacts/embeddings.npy", o->args.job_dir);
    char *npy = file_read(path, 1 << 20, &size, &e);
    const size_t row = (size_t)n * sizeof(float);
    const int rows = npy ? (int)((size - 128) / row) : 0;
    CHECK_MSG(rows > 0 && rows <= ROWS && (size - 128) % row == 0, "%zu bytes", size);
    for (int i = 0; i < rows && i < ROWS; i++) memcpy(out[i], npy + 128 + (size_t)i * row, row);
    free(npy);
    return rows;
}

/* Runs the job, and compares its vectors with the lines of a golden file. Each line has n
 * numbers. */
static void check_vectors(struct order *o, const char *file, int n)
{
    static float got[ROWS][COLS];
    const int rows = vectors(o, n, got);
    char *text = file_read(golden(file), 1 << 20, NULL, &e), *at = text;
    double worst = 0;
    int i = 0;
    CHECK_MSG(text, "%s", e.text);
    for (; at && *at && i < rows; i++, at += strspn(at, "\n"))
        for (int k = 0; k < n; k++) worst = fmax(worst, fabs(strtod(at, &at) - (double)got[i][k]));
    CHECK_MSG(i == rows && at && !*at && worst < 1e-6, "%s: %d rows, %g", file, rows, worst);
    free(text);
    free(o);
}

/* Compares the first six columns of the vectors of last tokens with the vectors of
 * transformers. */
static void test_decoder(void)
{
    static const double want[2][6] = {{-0.31934, 0.13768, -0.11359, 0.20622, -0.10633, -0.00247},
                                      {-0.12894, -0.21302, -0.18842, -0.06489, 0.32527, -0.08555}};
    static float got[ROWS][COLS];
    struct order *o = embeds("decoder", "embed_qwen3", "ids.jsonl");
    CHECK(vectors(o, 32, got) == 2);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 6; k++) /* the values have five digits */
            CHECK_MSG(fabs((double)got[i][k] - want[i][k]) < 5.1e-6, "%d %d: %g", i, k,
                      (double)got[i][k]);
    free(o);
}

static void test_encoder(void)
{
    struct order *o = embeds("encoder", "embed_bert", "texts.jsonl");
    o->spec.embed.pooling = POOLING_MEAN;
    check_vectors(o, "embed_bert/vectors_whole.txt", 16);
}

/* Checks settings that the job leaves out. They must be read from the files of the model
 * directory. */
static void test_published(void)
{
    static const struct {
        const char *file, *text, *field, *word;
    } bad[] = {
        {"modules.json", "[{\"type\":\"sentence_transformers.models.Dense\",\"path\":\"2_Dense\"}]",
         "model.path", "has Dense"},
        {"modules.json", "[{\"type\":\"mine.Whitening\",\"path\":\"\"}]", "model.path",
         "a module of another kind"},
        {"1_Pooling/config.json", "{\"pooling_mode_max_tokens\":true}", "embed.pooling", "\"max\""},
        {"1_Pooling/config.json",
         "{\"pooling_mode_max_tokens\":true,\"pooling_mode_cls_token\":true}", "embed.pooling",
         "\"several\""},
        {"1_Pooling/config.json", "{\"pooling_mode\":\"median\"}", "embed.pooling", "\"unknown\""},
    };
    static const char modules[] = "[{\"type\":\"a.Transformer\",\"path\":\"\"},{\"type\":\"b."
                                  "Pooling\",\"path\":\"1_Pooling\"}]";
    struct order *o = embeds("published", "embed_bert", "texts.jsonl");
    o->spec.embed.unsaid = EMBED_POOLING | EMBED_NORMALIZE;
    check_vectors(o, "embed_bert/vectors_whole.txt", 16);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct model_shape m;
        put("bad", "modules.json", modules);
        put("bad/1_Pooling", "config.json", "{\"pooling_mode\":\"cls\"}");
        put("bad", "config_sentence_transformers.json", "{\"default_prompt_name\":null}");
        char *config = file_read(golden("embed_bert/config.json"), 1 << 20, NULL, &e);
        put("bad", "config.json", config);
        free(config);
        o = own_order(JOB_EMBED, "bad", "", "x");
        CHECK_MSG(!hf_read_dir(in_dir("bad", ""), &m, &e), "%s", e.text);
        o->spec.embed.unsaid = EMBED_POOLING | EMBED_NORMALIZE;
        o->spec.model.path = tiny_text(&o->spec, "/m");
        o->spec.model.shape = m;
        o->spec.model.shape.weightless = 0;
        o->spec.data.seq_len = 64;
        CHECK_MSG(!family_check(&o->spec, &e), "%s", e.text);
        CHECK(o->spec.embed.pooling == POOLING_CLS && !o->spec.embed.normalize);
        put("bad", bad[i].file, bad[i].text);
        CHECK_MSG(!hf_read_dir(in_dir("bad", ""), &m, &e), "%s", e.text);
        m.weightless = 0;
        o->spec.model.shape = m;
        o->spec.embed.unsaid = EMBED_POOLING | EMBED_NORMALIZE;
        CHECK(family_check(&o->spec, &e) == -1);
        CHECK_MSG(!strcmp(e.field, bad[i].field) && strstr(e.text, bad[i].word), "%s: %s", e.field,
                  e.text);
        free(o);
    }
}

/* Makes an embed job of embed_bert with the settings that the package sentence-transformers
 * uses. */
static struct order *as_published(const char *name, const char *model)
{
    struct order *o = embeds(name, model, "texts.jsonl");
    o->spec.embed.pooling = POOLING_MEAN;
    o->spec.data.seq_len = 24;
    o->spec.data.overlong = OVERLONG_TRUNCATE;
    return o;
}

/* Checks texts that are too long. They must be truncated as in the package, which keeps the
 * special tokens at the end of a text. */
static void test_truncated(void)
{
    check_vectors(as_published("truncated", "embed_bert"), "embed_bert/vectors.txt", 16);
    CHECK(number(g.result, "truncated") == 1);
}

/* ---- prompts --------------------------------------------------------------------------------- */

/* Makes the directory "prompted", which is embed_bert with these prompts. */
static void make_prompted(const char *prompts)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "model.safetensors", "modules.json"};
    put("prompted", "config_sentence_transformers.json", prompts);
    put("prompted/1_Pooling", "config.json", "{\"pooling_mode\":\"mean\"}");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[128];
        size_t n;
        snprintf(path, sizeof path, "embed_bert/%s", files[i]);
        char *text = file_read(golden(path), 1 << 20, &n, &e);
        CHECK_MSG(text && !file_write(in_dir("prompted", files[i]), text, n, &e), "%s", e.text);
        free(text);
    }
}

/* Makes a job of the directory "prompted", which has been described. */
static struct order *prompted(const char *name)
{
    struct order *o = as_published(name, "embed_bert");
    o->spec.model.path = tiny_text(&o->spec, in_dir("prompted", ""));
    CHECK_MSG(!hf_read_dir(in_dir("prompted", ""), &o->spec.model.shape, &e), "%s", e.text);
    return o;
}

/* Checks prompts that are put before every text, as in the package. If the job names a prompt, it
 * must be used, and otherwise the default prompt. */
static void test_prompts(void)
{
    struct order *o = as_published("query", "embed_bert");
    o->spec.embed.prompt_name = tiny_text(&o->spec, "query");
    check_vectors(o, "embed_bert/vectors_query.txt", 16);
    o = as_published("document", "embed_bert"); /* the prompt "document" has no text */
    o->spec.embed.prompt_name = tiny_text(&o->spec, "document");
    check_vectors(o, "embed_bert/vectors.txt", 16);
    make_prompted(
        "{\"default_prompt_name\":\"q\",\"prompts\":{\"p\":\"\",\"q\":\"find the text: \"}}");
    o = prompted("by-default");
    CHECK(o->spec.model.shape.prompted);
    check_vectors(o, "embed_bert/vectors_query.txt", 16);
    o = prompted("none");
    o->spec.embed.prompts = 0;
    check_vectors(o, "embed_bert/vectors.txt", 16);
}

/* Checks the error for a name that no prompt has. Also checks the error for records that are not
 * texts. */
static void test_no_prompt(void)
{
    static const struct {
        const char *record, *name, *field, *word;
    } bad[] = {
        {"{\"text\":\"x\"}\n", "absent", "embed.prompt_name", "it has \"query\", \"document\""},
        {"{\"input_ids\":[5,6]}\n", "query", "input.path", "input_ids: the model's prompt"},
        {"{\"prompt\":\"a\",\"completion\":\"b\"}\n", "query", "input.path",
         "completion: the model's"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct order *o = as_published("no-prompt", "embed_bert");
        put("", "records", bad[i].record);
        o->spec.input.source.path = tiny_text(&o->spec, in_dir("", "records"));
        o->spec.embed.prompt_name = tiny_text(&o->spec, bad[i].name);
        CHECK(!prepares(o));
        fails(bad[i].field, bad[i].word);
        free(o);
    }
    struct order *o = as_published("text", "embed_bert");
    o->spec.input.source.format = DATA_TEXT;
    o->spec.embed.prompt_name = tiny_text(&o->spec, "query");
    CHECK(!prepares(o));
    fails("embed.prompts", "this input is not");
    free(o);
    /* A default that names no prompt must be refused in jobs that use the default, and must not
     * matter in other jobs. */
    make_prompted("{\"default_prompt_name\":\"q\",\"prompts\":{\"p\":\"x\"}}");
    o = prompted("no-default");
    CHECK(o->spec.model.shape.prompted && !prepares(o));
    fails("model.path", "default_prompt_name \"q\" is none of its prompts: it has \"p\"");
    free(o);
    o = prompted("no-default");
    o->spec.embed.prompts = 0;
    CHECK(prepares(o));
    free(o);
}

/* Checks settings that contradict each other, and a mean that leaves out the prompt. */
static void test_prompts_refused(void)
{
    make_prompted("{\"default_prompt_name\":\"q\",\"prompts\":{\"q\":\"x\"}}");
    struct order *o = prompted("refused");
    CHECK_MSG(!family_check(&o->spec, &e), "%s", e.text);
    o->spec.model.shape.prompt_apart = 1;
    CHECK(family_check(&o->spec, &e) == -1);
    CHECK_MSG(!strcmp(e.field, "embed.pooling") && strstr(e.text, "include_prompt"), "%s", e.text);
    o->spec.embed.prompts = 0;
    CHECK_MSG(!family_check(&o->spec, &e), "%s", e.text);
    o->spec.embed.prompt_name = tiny_text(&o->spec, "q");
    CHECK(family_check(&o->spec, &e) == -1 && !strcmp(e.field, "embed.prompt_name"));
    o->spec.embed.prompts = 1;
    /* with this pooling only the first row is used, so leaving out rows of the prompt has no
     * effect */
    o->spec.embed.pooling = POOLING_CLS;
    CHECK_MSG(!family_check(&o->spec, &e), "%s", e.text);
    o->spec.model.path = 0;
    CHECK(family_check(&o->spec, &e) == -1);
    CHECK_MSG(!strcmp(e.field, "embed.prompt_name"), "%s: %s", e.field, e.text);
    free(o);
    put("prompted/1_Pooling", "config.json",
        "{\"pooling_mode\":\"mean\",\"include_prompt\":false}");
    o = prompted("apart");
    CHECK(o->spec.model.shape.prompt_apart);
    free(o);
}

/* Checks that jobs that compute the head refuse a file without a head. */
static void test_refused(void)
{
    static const int kinds[] = {JOB_TRAIN, JOB_VERIFY};
    struct model_shape m;
    CHECK_MSG(!hf_read_dir(golden("embed_bert"), &m, &e) && m.headless && m.unprefixed, "%s",
              e.text);
    for (int i = 0; i < 2; i++) {
        struct order *o = own_order(JOB_TRAIN, "refused", "", "x");
        o->spec.kind = kinds[i];
        o->spec.model.path = tiny_text(&o->spec, "/models/m");
        o->spec.model.shape = m;
        o->spec.data.seq_len = 64;
        CHECK(family_check(&o->spec, &e) == -1);
        CHECK_MSG(!strcmp(e.field, "model.path") &&
                      strstr(e.text, "no tensor cls.predictions.transform.dense.weight"),
                  "%s: %s", e.field, e.text);
        o->spec.model.init = MODEL_INIT_RANDOM; /* the weights are not read */
        CHECK_MSG(!family_check(&o->spec, &e), "%s", e.text);
        free(o);
    }
    /* If the head is tied to the embedding, the file has a head, because no tensor is missing. */
    CHECK_MSG(!hf_read_dir(golden("embed_qwen3"), &m, &e) && !m.headless && m.unprefixed, "%s",
              e.text);
}

/* Checks that an embed job has no head in its plan or in its memory, and that it does not read the
 * head of a file. */
static void test_planned(void)
{
    static struct plan p[2];
    char answer[4096];
    const int64_t head = shape.vocab * shape.width;
    make_model("own", VOCAB);
    for (int i = 0; i < 2; i++) {
        struct order *o = own_order(i ? JOB_EMBED : JOB_SCORE, i ? "e" : "s", "own", "x");
        o->spec.model.shape = shape;
        CHECK_MSG(!family_check(&o->spec, &e) && !plan_make(&o->spec, 0, &p[i], &e), "%s", e.text);
        free(o);
    }
    CHECK(p[0].n_params == p[1].n_params + head);
    put("", "x", "{\"body\":\"some text\"}\n{\"body\":\"and more\"}\n");
    struct order *o = own_order(JOB_EMBED, "own-e", "own", "x");
    if (job_runs(o)) CHECK(number(g.result, "documents") == 2);
    free(o);
    CHECK(hf_describe(in_dir("own", ""), answer, sizeof answer, &e) > 0);
    CHECK_MSG(!strstr(answer, "headless") && !strstr(answer, "unprefixed"), "%s", answer);
}

/* Checks records without tokens. They have no vector. A note must have the number of these
 * records, and each line of the result must have the index of its record. */
static void test_skipped(void)
{
    put("", "x",
        "{\"body\":\"some text\"}\n{\"input_ids\":[]}\n{\"input_ids\":[]}\n"
        "{\"body\":\"and more\"}\n");
    struct order *o = own_order(JOB_EMBED, "own-skip", "own", "x");
    CHECK(prepares(o) && number(g.result, "skipped_records") == 2);
    const struct gang_event *note = gang_event(&g, EV_NOTE, 0);
    CHECK_MSG(g.n_notes == 1 && note && strstr(note->json, "\"data\"") &&
                  strstr(note->json, "2 empty records were skipped: they have no vector"),
              "%s", note ? note->json : "no note");
    if (job_runs(o)) {
        char *ids = get(o->args.job_dir, "artifacts/embeddings.ids.jsonl");
        CHECK(strstr(ids, "\"record\":1,") && strstr(ids, "\"record\":4,") &&
              !strstr(ids, "\"record\":2,"));
        free(ids);
    }
    free(o);
    put("", "x", "{\"body\":\"some text\"}\n");
    o = own_order(JOB_EMBED, "own-none", "own", "x");
    CHECK(prepares(o) && g.n_notes == 0);
    free(o);
}

/* ---- names ----------------------------------------------------------------------------------- */

static void test_names(void)
{
    struct model_shape m;
    struct st_file *f;
    float *x = calloc((size_t)param_count(&shape), sizeof *x), one[64] = {0};
    memcpy(x, own_weights, (size_t)param_count(&shape) * sizeof *x);
    for (int bare = 0; bare < 2; bare++) {
        const char *dir = bare ? "bare" : "whole",
                   *norm = bare ? "norm.weight" : "model.norm.weight";
        m = shape;
        m.unprefixed = bare;
        CHECK(!hf_save(in_dir(dir, ""), &m, DT_F32, x, &e));
        CHECK_MSG(!hf_read_dir(in_dir(dir, ""), &m, &e) && m.unprefixed == bare, "%s", e.text);
        f = st_open(in_dir(dir, "model.safetensors"), &e);
        CHECK(f && st_find(f, norm) && st_find(f, "lm_head.weight"));
        st_close(f);
        memset(x, 0, (size_t)param_count(&shape) * sizeof *x);
        CHECK_MSG(!hf_load(in_dir(dir, ""), &m, DT_F32, x, &e), "%s", e.text);
        CHECK(!memcmp(x, own_weights, (size_t)param_count(&shape) * sizeof *x));
    }
    const struct st_out mixed[] = {
        {.name = "embed_tokens.weight", .dtype = ST_F32, .n_dims = 1, .dims = {64}, .data = one},
        {.name = "model.norm.weight", .dtype = ST_F32, .n_dims = 1, .dims = {64}, .data = one}};
    CHECK(!st_write(in_dir("bare", "model.safetensors"), mixed, 2, &e));
    CHECK(hf_read_dir(in_dir("bare", ""), &m, &e) == -1);
    CHECK_MSG(strstr(e.text, "\"model.norm.weight\" and \"embed_tokens.weight\""), "%s", e.text);
    free(x);
}

int main(int argc, char **argv)
{
    char here[900];
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_embed_files.XXXXXX");
    if (!mkdtemp(scratch) || !getcwd(here, sizeof here)) return 1;
    snprintf(golden_dir, sizeof golden_dir, "%s/tests/golden", here);
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    make_model("own", VOCAB);
    RUN(test_decoder);
    RUN(test_encoder);
    RUN(test_published);
    RUN(test_truncated);
    RUN(test_prompts);
    RUN(test_no_prompt);
    RUN(test_prompts_refused);
    RUN(test_refused);
    RUN(test_planned);
    RUN(test_skipped);
    RUN(test_names);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("embed_files");
}
