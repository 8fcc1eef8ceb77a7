/* test_seqd_json: tests request bodies. Checks which specs the bodies give, and the errors of
 * refused bodies. Writing a spec and reading the text must give the same spec. */
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/field.h"
#include "api/core/job.h"
#include "daemon/spec/json.h"
#include "tests/lib/test.h"
#include "worker/plan/check.h"
#include "worker/family/family.h"

#define CONFIG                                                                                     \
    "\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"intermediate_size\":128}}"
#define DATA "\"data\":{\"train\":[{\"path\":\"a.txt\"}],\"seq_len\":256}"
#define BASE "\"kind\":\"train\"," CONFIG "," DATA

static struct job_spec s, again;

/* Makes the malloc of a sanitizer return NULL if there is no memory, as the system's malloc does,
 * instead of ending the process. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

/* Checks that seqd ends if it is out of memory. Jansson would leave out a member for which it has
 * no memory, and a job would be stored without it. */
static void test_out_of_memory(void)
{
    json_malloc_t take;
    json_free_t give;
    int status = 0;
    json_get_alloc_funcs(&take, &give);
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        take((size_t)1 << 56); /* more memory than there is */
        _exit(0);
    }
    waitpid(pid, &status, 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static int read_text(const char *text, struct err *e)
{
    memset(e, 0, sizeof *e);
    if (json_spec_read(text, strlen(text), JSON_FOR_PEOPLE, &s, e)) return -1;
    return family_check(&s, e);
}

/* Checks the names that a command would take for something else. */
static void test_names(void)
{
    static const struct {
        const char *name, *says;
    } bad[] = {{"-", "as an option"}, {"--yes", "begins with no \"-\""}, {"12", "digits alone"}};
    char text[256];
    struct err e;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "{\"kind\":\"generate\",\"name\":\"%s\"}", bad[i].name);
        CHECK(read_text(text, &e) && !strcmp(e.field, "name"));
        CHECK_MSG(strstr(e.text, bad[i].says), "%s", e.text);
    }
}

/* Checks that whole documents are packed if a job that learns preferences does not say how, and
 * that a packing that it sets stays. In a stored spec a missing packing is the default of the
 * table. */
static void test_packing_of_pairs(void)
{
#define PAIRS(type, more)                                                                          \
    "{\"kind\":\"train\"," CONFIG                                                                  \
    ",\"data\":{\"train\":[{\"path\":\"a.jsonl\"}],\"seq_len\":256" more                           \
    "},\"train\":{\"steps\":5},\"objective\":{\"type\":\"" type "\"}}"
    static const struct {
        const char *text;
        int packing;
    } v[] = {{PAIRS("dpo", ""), PACKING_BEST_FIT},
             {PAIRS("dpo", ",\"packing\":\"none\""), PACKING_NONE},
             {PAIRS("auto", ""), PACKING_CONCAT},
             {PAIRS("causal_lm", ""), PACKING_CONCAT}};
    struct err e;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        CHECK_MSG(!read_text(v[i].text, &e), "%s", e.text);
        CHECK_MSG(s.data.packing == v[i].packing, "case %zu: %d", i, s.data.packing);
    }
    const char *said = PAIRS("dpo", ",\"packing\":\"concat\"");
    CHECK(read_text(said, &e) && strstr(e.text, "data.packing \"concat\" cuts answers"));
    CHECK(!json_spec_read(v[0].text, strlen(v[0].text), JSON_STORED, &s, &e));
    CHECK(s.data.packing == PACKING_CONCAT);
}

static void test_short_spec(void)
{
    struct err e;
    CHECK_MSG(!read_text("{" BASE ",\"train\":{\"steps\":5}}", &e), "%s", e.text);
    CHECK(s.train.steps == 5 && s.data.n_train == 1 && s.data.seq_len == 256);
    CHECK_STR(spec_text(&s, s.data.train[0].path), "a.txt");
    CHECK(s.data.train[0].format == DATA_TEXT && s.model.shape.vocab == 258);
}

/* Checks the fields that an embed job does not set. The model of the job determines their values.
 * A stored job has no unset field. */
static void test_unsaid(void)
{
    static const struct {
        const char *embed;
        int unsaid;
    } v[] = {{"", EMBED_POOLING | EMBED_NORMALIZE},
             {",\"embed\":{\"pooling\":\"last\"}", EMBED_NORMALIZE},
             {",\"embed\":{\"normalize\":true}", EMBED_POOLING},
             {",\"embed\":{\"normalize\":true,\"pooling\":\"mean\"}", 0}};
    struct err e = {0};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"kind\":\"embed\",\"data\":{\"seq_len\":8}%s}", v[i].embed);
        CHECK(!json_spec_read(text, strlen(text), JSON_FOR_PEOPLE, &s, &e));
        CHECK_MSG(s.embed.unsaid == v[i].unsaid, "%s: %d", text, s.embed.unsaid);
        CHECK(!json_spec_read(text, strlen(text), JSON_STORED, &s, &e) && !s.embed.unsaid);
    }
    CHECK(!json_spec_read("{\"kind\":\"score\"}", 16, JSON_FOR_PEOPLE, &s, &e));
    CHECK(!s.embed.unsaid);
}

/* Checks a batch whose job does not set sampling.max_tokens. In a short sequence, room must be
 * left for a prompt. In a stored spec, or if the number of a prompt's tokens is not known, the
 * default of sampling.max_tokens is used. */
static void test_unsaid_tokens(void)
{
#define BATCH(format, length, more)                                                                \
    "{\"kind\":\"generate\",\"data\":{\"seq_len\":" length                                         \
    "},\"input\":{\"path\":\"/x\",\"format\":\"" format "\"}" more "}"
    static const struct {
        const char *text;
        int64_t people, stored;
    } v[] = {{BATCH("openai_batch", "128", ""), 127, 256},
             {BATCH("openai_batch", "256", ""), 255, 256},
             {BATCH("openai_batch", "257", ""), 256, 256},
             {BATCH("openai_batch", "1", ""), 256, 256},
             {BATCH("openai_batch", "128", ",\"sampling\":{\"max_tokens\":256}"), 256, 256},
             {BATCH("jsonl", "128", ""), 256, 256}};
    struct err e = {0};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        const size_t n = strlen(v[i].text);
        CHECK_MSG(!json_spec_read(v[i].text, n, JSON_FOR_PEOPLE, &s, &e), "%s", e.text);
        CHECK_MSG(s.sampling.max_tokens == v[i].people, "%s: %lld", v[i].text,
                  (long long)s.sampling.max_tokens);
        CHECK_MSG(!json_spec_read(v[i].text, n, JSON_STORED, &s, &e), "%s", e.text);
        CHECK(s.sampling.max_tokens == v[i].stored);
    }
#undef BATCH
}

/* Checks that a field is accepted only for the kinds of job that read it. */
static void test_kinds(void)
{
    static const struct {
        const char *text, *field;
    } v[] = {{"{\"kind\":\"score\",\"context\":{\"load\":\"/c\"}}", "context.load"},
             {"{\"kind\":\"score\",\"context\":{\"save\":false}}", "context.save"},
             {"{\"kind\":\"embed\",\"memory\":{\"time_chunk\":0}}", "memory.time_chunk"}};
    struct err e = {0};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        const size_t n = strlen(v[i].text);
        CHECK(json_spec_read(v[i].text, n, JSON_FOR_PEOPLE, &s, &e) && e.code == ERR_INVALID);
        CHECK_STR(e.field, v[i].field);
        CHECK(strstr(e.text, " does not belong to a ") != NULL);
        /* Older versions wrote the defaults of these fields into stored specs. */
        CHECK_MSG(!json_spec_read(v[i].text, n, JSON_STORED, &s, &e), "%s", e.text);
    }
}

/* Checks the number of prompts that are answered at the same time. If a job does not set this
 * number, seqd chooses it. If a stored spec lacks the field, as a spec of 0.2.0 does, the number
 * is one. */
static void test_unsaid_batch(void)
{
    static const char unsaid[] = "{\"kind\":\"generate\",\"data\":{\"seq_len\":8}}";
    static const char said[] = "{\"kind\":\"generate\",\"infer\":{\"batch\":1}}";
    struct err e = {0};
    CHECK(!json_spec_read(unsaid, sizeof unsaid - 1, JSON_FOR_PEOPLE, &s, &e) && !s.infer.batch);
    CHECK(!json_spec_read(unsaid, sizeof unsaid - 1, JSON_STORED, &s, &e) && s.infer.batch == 1);
    CHECK(!json_spec_read(said, sizeof said - 1, JSON_FOR_PEOPLE, &s, &e) && s.infer.batch == 1);
    CHECK(!json_spec_read("{\"kind\":\"score\"}", 16, JSON_FOR_PEOPLE, &s, &e));
    CHECK(s.infer.batch == 1 && !spec_needs(&s, 6));
}

static void test_every_form(void)
{
    struct err e;
    const char *text =
        "{\"kind\":\"train\",\"name\":\"n\",\"priority\":7,\"labels\":{\"team\":\"x\",\"a.b\":"
        "\"y\"},"
        "\"model\":{\"config\":{\"model_type\":\"llama\",\"hidden_size\":64,\"num_hidden_layers\":"
        "2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":128,"
        "\"tie_word_embeddings\":true,\"rope_theta\":5e5}},"
        "\"data\":{\"train\":[{\"path\":\"b/*.jsonl\",\"text_key\":\"body\"},{\"path\":\"c.dat\","
        "\"format\":\"text\"}],\"seq_len\":1e3,\"tokenizer\":\"byte\",\"packing\":\"concat\","
        "\"document_mask\":false},\"train\":{\"epochs\":2,\"global_batch_tokens\":4000},"
        "\"optim\":{\"name\":\"adamw\",\"lr\":1e-4,\"betas\":[0.9,0.99]},"
        "\"schedule\":{\"type\":\"cosine\",\"warmup_steps\":\"auto\"},"
        "\"parallel\":{\"sp\":\"auto\",\"strategy\":\"rsa\"},"
        "\"memory\":{\"loss_chunk_tokens\":\"auto\",\"mlp_chunk_tokens\":\"auto\","
        "\"recompute\":\"full\"},"
        "\"checkpoint\":{\"resume\":\"/x/"
        "step-3\",\"every_steps\":0},\"precision\":{\"params\":\"fp32\"},"
        "\"limits\":{\"step_timeout_s\":\"auto\"},\"resources\":{\"ranks\":4,\"device\":\"cpu\"},"
        "\"seed\":9,\"determinism\":\"ranks\"}";
    CHECK_MSG(!read_text(text, &e), "%s", e.text);
    CHECK(s.data.train[0].format == DATA_JSONL && s.data.train[1].format == DATA_TEXT);
    CHECK_STR(spec_text(&s, s.data.train[0].text_key), "body");
    CHECK(s.train.passes == 2 && s.train.global_batch == 4 && s.data.seq_len == 1000);
    CHECK(s.optim.beta2 == 0.99 && s.checkpoint.resume == RESUME_PATH && s.n_labels == 2);
    CHECK_STR(spec_text(&s, s.checkpoint.resume_path), "/x/step-3");
    CHECK(s.parallel.sp == 4 && s.model.shape.tied == 1 && !s.data.document_mask);
    CHECK(!s.memory.loss_chunk_tokens && s.memory.mlp_chunk_tokens == -1);
    CHECK_MSG(!read_text("{" BASE ",\"train\":{\"steps\":5}}", &e), "%s", e.text);
    CHECK(s.memory.mlp_chunk_tokens == -1);
    text = "{" BASE ",\"train\":{\"steps\":5},\"memory\":{\"mlp_chunk_tokens\":0}}";
    CHECK_MSG(!read_text(text, &e), "%s", e.text);
    CHECK(s.memory.mlp_chunk_tokens == 0);
    /* A vocabulary of token ids, without bytes. */
    text =
        "{\"kind\":\"train\",\"model\":{\"config\":{\"model_type\":\"llama\",\"hidden_size\":64,"
        "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"intermediate_size\":128,"
        "\"vocab_size\":65}},\"data\":{\"train\":[{\"path\":\"char.bin\",\"format\":\"nanogpt\"}],"
        "\"seq_len\":64},\"train\":{\"steps\":2}}";
    CHECK_MSG(!read_text(text, &e), "%s", e.text);
    CHECK(s.model.shape.vocab == 65 && !job_reads_bytes(&s));
}

/* Each row has a text, the field that its error names, and words that must be in the error's
 * sentence. */
static const char *const refused[][3] = {
    {"{" BASE ",\"train\":{\"stepz\":5}}", "train.stepz", "did you mean train.steps"},
    {"{" BASE ",\"train\":{\"steps\":5},\"optim\":{\"lrr\":1}}", "optim.lrr", "optim.lr"},
    {"{" BASE ",\"trian\":{\"steps\":5}}", "trian", "did you mean train"},
#define SOURCE(source)                                                                             \
    "{\"kind\":\"train\"," CONFIG ",\"data\":{\"train\":[" source "]},\"train\":{\"steps\":5}}"
    {SOURCE("{\"path\":\"x/a.parquet\"}"), "data.train.0.path",
     "x/a.parquet is a Parquet file, which is not read: convert it: seqctl push --convert "
     "x/a.parquet"},
    {SOURCE("{\"path\":\"a.jsonl\"},{\"path\":\"a.jsonl.gz\"}"), "data.train.1.path", "gunzip"},
    {SOURCE("{\"path\":\"a.json\"}"), "data.train.0.path",
     "jq -c '.[]' a.json > a.json.jsonl; or set"},
    {SOURCE("{\"path\":\"a.csv\"}"), "data.train.0.path", "read_csv('a.csv')"},
    {SOURCE("{\"path\":\"a.arrow\"}"), "data.train.0.path", "Arrow"},
    {SOURCE("{\"path\":\"a.pdf\"}"), "data.train.0.path", "pdftotext a.pdf"},
    {SOURCE("{\"path\":\"a.dat\"}"), "data.train.0.path",
     "a.dat: the suffix .dat says no format: set data.train.0.format"},
    {SOURCE("{\"path\":\"a/*\"}"), "data.train.0.path",
     "a pattern without a suffix says no format"},
    {SOURCE("{\"path\":\"s3://b/a.parquet\"}"), "data.train.0.path", "aws s3 cp"},
    {SOURCE("{\"path\":\"hf://datasets/o/n\",\"format\":\"text\"}"), "data.train.0.path",
     "hf download --repo-type dataset o/n"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"my-data.v2\":\"hf://o/"
     "n\"}}}",
     "model.adapters.my-data.v2", "hf download o/n"},
    {"{\"kind\":\"score\",\"model\":{\"path\":\"https://huggingface.co/o/n\"}}", "model.path",
     "hf download o/n"},
    {"{" BASE ",\"train\":{\"steps\":5,\"num_train_epochs\":1}}", "train.num_train_epochs",
     "seqd's is train.passes"},
    {"{" BASE ",\"train\":{\"steps\":5,\"max_length\":512}}", "train.max_length",
     "seqd's is data.seq_len, which with objective.type dpo holds the prompt twice and both "
     "answers"},
    {"{" BASE ",\"train\":{\"steps\":5},\"objective\":{\"beta\":0.3}}", "objective.beta",
     "objective.beta 0.3 goes with objective.type \"dpo\" alone"},
    {"{" BASE ",\"lora\":{\"r\":8}}", "lora", "seqd's is adapter.type"},
    {"{" BASE ",\"adapter\":{\"lora_r\":8}}", "adapter.lora_r", "seqd's is adapter.rank"},
    {"{" BASE ",\"qlora\":true}", "qlora", "seqd's is adapter.type \"lora\", with model.weights"},
    {"{" BASE ",\"train\":{\"steps\":5},\"objective\":{\"type\":\"orpo\"}}", "objective.type",
     "\"orpo\" is not in this version: pairs of answers are learnt by objective.type dpo"},
    {"{" BASE ",\"train\":{\"steps\":5},\"objective\":{\"type\":\"DPO\"}}", "objective.type",
     "\"DPO\" is written \"dpo\" here"},
    {"{" BASE ",\"train\":{\"steps\":5},\"eval\":{\"steps\":5}}", "eval.steps",
     "seqd's is eval.every_steps"},
    {"{\"kind\":\"train\"," CONFIG ",\"data\":{\"eval\":[{\"path\":\"a\"}]}}", "data.eval",
     "seqd's is eval.data"},
    {SOURCE("{\"dataset\":\"a\"}"), "data.train.0.dataset", "seqd's is data.train.path"},
    {"{" BASE ",\"train\":{\"steps\":5},\"objective\":{\"type\":\"lora\"}}", "objective.type",
     "\"lora\" is not one of: auto, causal_lm, masked_lm, rectified_flow, iddpm, dpo: write "
     "\"causal_lm\", or leave it out, and set adapter.type to \"lora\""},
    {"{\"kind\":\"sft\"}", "kind", "verify, embed, merge, serve: write \"train\""},
    {"{\"kind\":\"trian\"}", "kind", "did you mean \"train\"?"},
    {"{" BASE ",\"precision\":{\"params\":\"bfloat16\"}}", "precision.params",
     "is not one of: fp32, bf16, fp16: write \"bf16\""},
    {"{" BASE ",\"precision\":\"bf16\"}", "precision",
     "must be an object, as {\"params\": ...}, not a string"},
    {"{" BASE ",\"memory\":{\"recompute\":true}}", "memory.recompute",
     "must be a word in quotes (auto, none, selective, full), not true"},
    {"{\"kind\":\"train\",\"data\":{\"loss_on\":\"assistant_only\"}}", "data.loss_on",
     "did you mean \"assistant\"?"},
    {"{" BASE ",\"memory\":{\"offload_optimizer\":true}}", "memory.offload_optimizer",
     "seqd's is memory.offload \"optimizer\""},
    {"{" BASE ",\"eval\":{\"dataset\":\"x\"}}", "eval.dataset", "seqd's is eval.data"},
    {"{" BASE ",\"eval\":{\"path\":\"x\"}}", "eval.path", "seqd's is eval.data.path"},
    {"{" BASE ",\"eval\":{\"every\":1}}", "eval.every", "did you mean eval.every_steps?"},
    {"{" BASE ",\"train\":{\"max_new_tokens\":1}}", "train.max_new_tokens",
     "seqd's is sampling.max_tokens, which a train job does not have: leave it out"},
    {"{\"kind\":\"generate\"," CONFIG ",\"data\":{\"path\":\"a\"}}", "data.path",
     "seqd's is data.train.path (input.path in score, generate and embed jobs)"},
    {"{\"kind\":\"generate\"," CONFIG ",\"sampling\":{\"max_length\":5}}", "sampling.max_length",
     "seqd's is sampling.max_tokens, of new tokens alone"},
    {"{\"kind\":\"train\",\"data\":{\"train\":\"a.txt\"}}", "data.train",
     "must be an array of sources, as [{\"path\": \"FILE\"}], not a string"},
    {"{" BASE ",\"train\":{\"steps\":5},\"objective\":{\"rpo_alpha\":1}}", "objective.rpo_alpha",
     "seqd's is objective.sft_weight"},
    {"{\"kind\":\"train\"," CONFIG ",\"data\":{\"train\":[{\"path\":\"a\",\"formt\":\"text\"}]}}",
     "data.train.0.formt", "unknown field"},
    {"{" BASE ",\"train\":{\"steps\":\"5\"}}", "train.steps", "must be an integer, not a string"},
    {"{" BASE ",\"train\":{\"steps\":1.5}}", "train.steps", "integer"},
    {"{" BASE ",\"train\":{\"steps\":0}}", "train.steps", "between 1 and"},
    {"{" BASE ",\"train\":{\"steps\":5},\"memory\":{\"mlp_chunk_tokens\":-2}}",
     "memory.mlp_chunk_tokens", "between 0 and"},
    {"{" BASE ",\"train\":{\"steps\":5},\"memory\":{\"mlp_chunk_tokens\":\"half\"}}",
     "memory.mlp_chunk_tokens", "auto"},
    {"{\"kind\":\"generate\"," CONFIG ",\"infer\":{\"batch\":65}}", "infer.batch",
     "between 0 and 64"},
    {"{\"kind\":\"generate\"," CONFIG ",\"infer\":{\"batch\":\"all\"}}", "infer.batch",
     "an integer or \"auto\""},
    {"{\"kind\":\"generate\"," CONFIG ",\"memory\":{\"mlp_chunk_tokens\":64}}",
     "memory.mlp_chunk_tokens", "generate"},
    {"{" BASE ",\"train\":{\"steps\":1e300}}", "train.steps", "between 1 and"},
    {"{" BASE ",\"train\":{\"steps\":null}}", "train.steps", "leave it out"},
    {"{" BASE ",\"train\":{\"steps\":5,\"passes\":1}}", "train.steps", "give one"},
    {"{" BASE ",\"train\":{\"passes\":1,\"epochs\":1}}", "train.epochs", "give one"},
    {"{" BASE ",\"train\":[]}", "train", "must be an object"},
    {"{" BASE ",\"train\":{\"steps\":5,\"global_batch_tokens\":300}}", "train.global_batch_tokens",
     "not a multiple"},
    {"{" BASE ",\"train\":{\"steps\":5,\"global_batch_tokens\":256,\"global_batch\":1}}",
     "train.global_batch_tokens", "give one"},
    {"{" BASE ",\"train\":{\"steps\":5},\"parallel\":{\"strategy\":\"ulises\"}}",
     "parallel.strategy", "auto, local, rsa"},
    {"{" BASE ",\"train\":{\"steps\":5},\"precision\":{\"params\":\"fp8\"}}", "precision.params",
     "fp32"},
    {"{" BASE ",\"train\":{\"steps\":5},\"optim\":{\"betas\":[0.9]}}", "optim.betas",
     "must have two"},
    {"{" BASE ",\"train\":{\"steps\":5},\"optim\":{\"betas\":[0.9,\"x\"]}}", "optim.betas.1",
     "number"},
    {"{" BASE ",\"train\":{\"steps\":5},\"data.seq_len\":5}", "data.seq_len", "unknown field"},
    {"{" BASE ",\"train\":{\"steps\":5},\"model.has_config\":true}", "model.has_config", "unknown"},
    {"{\"kind\":\"train\",\"model\":{\"config\":{\"tokenizer\":\"own\"}}}",
     "model.config.tokenizer", "unknown"},
    {"{\"kind\":\"train\",\"model\":{\"config\":{\"objective\":\"auto\"}}}",
     "model.config.objective", "unknown"},
    {"{" BASE ",\"train\":{\"steps\":5},\"checkpoint\":{\"resume_path\":\"x\"}}",
     "checkpoint.resume_path", "unknown"},
    {"{" BASE ",\"train\":{\"steps\":5},\"sampling\":{\"seed\":1}}", "sampling.seed",
     "does not belong to a train job"},
    {"{" BASE ",\"train\":{\"steps\":5},\"input\":{\"path\":\"x\"}}", "input", "does not belong"},
    {"{" BASE ",\"train\":{\"steps\":5},\"labels\":{\"a\":1}}", "labels", "string"},
    {"{" BASE ",\"train\":{\"steps\":5},\"adapter\":{\"targets\":[\"mlp\",3]}}",
     "adapter.targets.1", "string"},
    {"{" BASE ",\"train\":{\"steps\":5},\"adapter\":{\"targets\":[]}}", "adapter.targets",
     "leave it out for all-linear"},
    {"{" BASE ",\"train\":{\"steps\":5},\"adapter\":{\"r\":8}}", "adapter.r",
     "seqd's is adapter.rank"},
    {"{" BASE ",\"train\":{\"steps\":5},\"adapter\":{\"use_dora\":true}}", "adapter.use_dora",
     "not in this version: adapters are LoRA, whose products have no magnitude"},
    {"{" BASE ",\"train\":{\"steps\":5},\"load_in_4bit\":true}", "load_in_4bit",
     "seqd's is model.weights \"int4\""},
    {"{" BASE ",\"train\":{\"steps\":5},\"name\":\"12\"}", "name", "add a letter, as in run-12"},
    {"{" BASE ",\"train\":{\"steps\":5},\"seed\":true}", "seed", "integer"},
    {"{" BASE ",\"train\":{\"steps\":5},\"seed\":-1}", "seed", "between"},
    {"{\"kind\":\"sing\"}", "kind", "train, score, generate, verify"},
    {"{\"kind\":7}", "kind", "word"},
    {"{}", "kind", "missing"},
    {"{\"kind\":\"train\"," CONFIG ",\"data\":{\"train\":\"a.txt\",\"seq_len\":5}}", "data.train",
     "array"},
    {"{\"kind\":\"train\",\"model\":{\"path\":\"/m\",\"config\":{\"hidden_size\":64}}," DATA
     ",\"train\":{\"steps\":5}}",
     "model.config", "leave model.config out"},
    {"{\"kind\":\"score\"," CONFIG ",\"data\":{\"seq_len\":512},\"input\":{\"path\":\"x\","
     "\"prompt\":\"y\"}}",
     "input.prompt", "does not belong to a score job"},
    {"{\"kind\":\"generate\"," CONFIG ",\"input\":{\"prompt\":\"a\",\"path\":\"b\"}}", "input",
     "either"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/"
     "m\",\"adapters\":{}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":"
     "\"openai_batch\"}}",
     "model.adapters", "model.adapters is empty: give"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/"
     "m\",\"adapters\":[]},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":"
     "\"openai_batch\"}}",
     "model.adapters", "must be an object of paths by name"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"a\":\"/x\",\"b\":\"/"
     "x\",\"c\":\"/x\",\"d\":\"/x\",\"e\":\"/x\",\"f\":\"/x\",\"g\":\"/x\",\"h\":\"/x\",\"i\":\"/"
     "x\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":\"openai_batch\"}"
     "}",
     "model.adapters", "9 adapters, and at most 8"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"\":\"/"
     "x\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":\"openai_batch\"}"
     "}",
     "model.adapters", "an empty name"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/"
     "m\",\"adapters\":{\"a\":\"\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\","
     "\"format\":\"openai_batch\"}}",
     "model.adapters.a", "is empty: give the path"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/"
     "m\",\"adapters\":{\"a\":3}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\","
     "\"format\":\"openai_batch\"}}",
     "model.adapters.a", "must be a string"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"a\":{\"path\":\"/"
     "x\"}}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":\"openai_"
     "batch\"}"
     "}",
     "model.adapters.a", "must be a string"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"A\":\"/"
     "x\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":\"openai_batch\"}"
     "}",
     "model.adapters", "name 1 has the byte 0x41"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"a\":\"/x\",\"a\":\"/"
     "y\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":\"openai_batch\"}"
     "}",
     "", "duplicate"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"a\":\"/"
     "x\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":\"jsonl\"}}",
     "model.adapters", "other prompts name none"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"a\":\"/"
     "x\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":\"openai_batch\"}"
     ","
     "\"adapter\":{\"type\":"
     "\"lora\"}}",
     "adapter.type", "beside model.adapters, each of which"},
    {"{\"kind\":\"score\",\"model\":{\"path\":\"/m\",\"adapters\":{\"a\":\"/"
     "x\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.txt\"}}",
     "model.adapters", "a score job has one adapter: name it in model.adapter"},
    {"{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapter\":\"/y\",\"adapters\":{\"a\":\"/"
     "x\"}},\"data\":{\"seq_len\":512},\"input\":{\"path\":\"a.jsonl\",\"format\":\"openai_batch\"}"
     "}",
     "model.adapters", "beside model.adapter: requests choose"},
    {"[]", "", "must be a JSON object"},
    {"{\"kind\":\"train\",\"kind\":\"score\"}", "", "duplicate"},
    {"{\"kind\":\"train\",}", "", "line 1"},
    {"{\"kind\":\"tr\\u0000ain\"}", "", "JSON"},
    {"{\"kind\":\"train\"} x", "", "JSON"},
    {"", "", "JSON"},
    {"{\"seed\":123456789012345678901234567890,\"kind\":\"train\"}", "", "JSON"},
    {"{\"kind\":\"\xff\xfe\"}", "", "JSON"},
};

static void test_refused(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct err e;
        CHECK_MSG(read_text(refused[i][0], &e) == -1, "case %zu passed: %s", i, refused[i][0]);
        CHECK_STR(e.field, refused[i][1]);
        CHECK_MSG(strstr(e.text, refused[i][2]), "case %zu says \"%s\"", i, e.text);
        CHECK(e.code == ERR_INVALID);
    }
}

static void test_nul_in_body(void)
{
    static const char body[] = "{\"kind\":\"train\"\0}";
    struct err e;
    CHECK(json_spec_read(body, sizeof body - 1, JSON_FOR_PEOPLE, &s, &e) == -1);
}

static void test_depth_and_size(void)
{
    struct err e;
    size_t n = 1 << 20;
    char *big = malloc(n + 64);
    memset(big, '[', n);
    CHECK(json_spec_read(big, n, JSON_FOR_PEOPLE, &s, &e) == -1 && strstr(e.text, "deeper"));
    int at = sprintf(big, "{\"kind\":\"train\",\"name\":\"");
    memset(big + at, 'x', n);
    strcpy(big + at + n - 64, "\"}");
    CHECK(json_spec_read(big, strlen(big), JSON_FOR_PEOPLE, &s, &e) == -1);
    CHECK(e.code == ERR_TOO_LARGE && !strcmp(e.field, "name"));
    /* an array of half a million zeros where a number is expected */
    at = sprintf(big, "{\"kind\":\"train\",\"seed\":[0");
    for (; at < (int)n - 8; at += 2) memcpy(big + at, ",0", 2);
    strcpy(big + at, "]}");
    CHECK(json_spec_read(big, strlen(big), JSON_FOR_PEOPLE, &s, &e) == -1);
    CHECK_STR(e.field, "seed");
    /* a key that is longer than any field */
    at = sprintf(big, "{\"kind\":\"train\",\"");
    memset(big + at, 'k', 5000);
    strcpy(big + at + 5000, "\":1}");
    CHECK(json_spec_read(big, strlen(big), JSON_FOR_PEOPLE, &s, &e) == -1);
    CHECK(strstr(e.text, "unknown field"));
    /* Nesting inside of strings does not count. */
    CHECK(!read_text("{" BASE
                     ",\"name\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\",\"train\":"
                     "{\"steps\":1}}",
                     &e));
    free(big);
}

static void test_too_many(void)
{
    static char text[8192];
    struct err e;
    int n = sprintf(text, "{\"kind\":\"train\"," CONFIG ",\"data\":{\"seq_len\":8,\"train\":[");
    for (int i = 0; i <= SPEC_SOURCES; i++)
        n += sprintf(text + n, "%s{\"path\":\"a\"}", i ? "," : "");
    sprintf(text + n, "]},\"train\":{\"steps\":1}}");
    CHECK(read_text(text, &e) == -1 && !strcmp(e.field, "data.train") &&
          strstr(e.text, "at most 32"));
    n = sprintf(text, "{\"kind\":\"train\",\"labels\":{");
    for (int i = 0; i <= SPEC_LABELS; i++)
        n += sprintf(text + n, "%s\"k%d\":\"v\"", i ? "," : "", i);
    sprintf(text + n, "}}");
    CHECK(read_text(text, &e) == -1 && !strcmp(e.field, "labels"));
    static const struct {
        int key, value; /* bytes */
        char byte;      /* a byte of the key */
        bool ok;
    } labels[] = {{63, 255, 'a', true}, {64, 1, 'a', false}, {0, 1, 'a', false},
                  {1, 256, 'a', false}, {1, 1, ' ', false},  {1, 1, '<', false}};
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        n = sprintf(text, "{" BASE ",\"train\":{\"steps\":5},\"labels\":{\"");
        for (int k = 0; k < labels[i].key; k++) text[n++] = labels[i].byte;
        n += sprintf(text + n, "\":\"");
        for (int k = 0; k < labels[i].value; k++) text[n++] = 'v';
        sprintf(text + n, "\"}}");
        const bool ok = !read_text(text, &e);
        CHECK_MSG(ok == labels[i].ok && (ok || !strcmp(e.field, "labels")), "label %zu: %s", i,
                  ok ? "read" : e.text);
    }
}

static bool same_text(spec_ref a, spec_ref b)
{
    return !strcmp(spec_text(&s, a), spec_text(&again, b));
}

static void check_source(const struct spec_source *a, const struct spec_source *b)
{
    CHECK(same_text(a->path, b->path) && same_text(a->text_key, b->text_key));
    CHECK(a->format == b->format && a->weight == b->weight && a->eod == b->eod);
}

static void check_same(void)
{
    for (const struct field *f = spec_fields; f->path; f++) {
        const char *a = (char *)&s + f->offset, *b = (char *)&again + f->offset;
        size_t size = f->type == FIELD_INT || f->type == FIELD_DOUBLE ? 8 : 4;
        if (f->type == FIELD_STRING)
            CHECK_MSG(same_text(*(spec_ref *)a, *(spec_ref *)b), "%s differs", f->path);
        else
            CHECK_MSG(!memcmp(a, b, size), "%s differs", f->path);
    }
    CHECK_STR(s.model.config, again.model.config);
    CHECK(!memcmp(&s.model.shape, &again.model.shape, sizeof s.model.shape));
    CHECK(s.n_labels == again.n_labels && s.data.n_train == again.data.n_train);
    for (int i = 0; i < s.n_labels; i++)
        CHECK(same_text(s.labels[i].key, again.labels[i].key) &&
              same_text(s.labels[i].value, again.labels[i].value));
    CHECK(s.eval.n_data == again.eval.n_data && s.n_stages == again.n_stages);
    for (int i = 0; i < s.data.n_train; i++) check_source(&s.data.train[i], &again.data.train[i]);
    for (int i = 0; i < s.eval.n_data; i++) check_source(&s.eval.data[i], &again.eval.data[i]);
    CHECK(!memcmp(s.stages, again.stages, sizeof s.stages));
    check_source(&s.input.source, &again.input.source);
}

static void round_trip(enum json_form form)
{
    char *out = malloc(JSON_SPEC_SIZE);
    struct err e = {0};
    int64_t n = json_spec_write(&s, form, out, JSON_SPEC_SIZE);
    CHECK(n > 0);
    CHECK_MSG(!json_spec_read(out, (size_t)n, form, &again, &e), "%s: %s", e.text, out);
    CHECK_MSG(!family_check(&again, &e), "%s", e.text);
    check_same();
    CHECK(json_spec_write(&s, form, out, 10) == -1);
    free(out);
}

static void test_round_trip(void)
{
    static const char *const texts[] = {
        "{\"kind\":\"train\"," CONFIG
        ",\"data\":{\"seq_len\":64,\"packing\":\"best_fit\",\"train\":["
        "{\"path\":\"a.jsonl\",\"weight\":0.7,\"text_key\":\"t\"},{\"path\":\"b.bin\",\"weight\":0."
        "3,\"eod\":7},"
        "{\"path\":\"c.npy\",\"weight\":1},{\"path\":\"d.idx\",\"weight\":2},{\"path\":\"e.bin\","
        "\"format\":\"nanogpt\",\"weight\":0.01}]},"
        "\"eval\":{\"data\":[{\"path\":\"v.jsonl\"}],\"every_steps\":5},"
        "\"stages\":[{\"from_step\":3,\"seq_len\":128},{\"from_step\":6,\"lr\":0.001,\"rope_"
        "theta\":5e5}],"
        "\"schedule\":{\"type\":\"wsd\"},\"precision\":{\"params\":\"bf16\"},\"train\":{\"steps\":"
        "9,"
        "\"global_batch\":4},\"parallel\":{\"sp\":2,\"dp\":2,\"zero\":3}}",
        "{\"kind\":\"generate\"," CONFIG
        ",\"input\":{\"prompt\":\"a\"},\"sampling\":{\"stop\":[\"x\",\"yz\"],"
        "\"temperature\":0.7,\"top_p\":0.9,\"logprobs\":3}}",
        "{" BASE
        ",\"train\":{\"passes\":5},\"name\":\"a \\\"b\\\" \\u00e9\\n\",\"labels\":{\"k\":\"\"},"
        "\"checkpoint\":{\"resume\":\"none\"},\"resources\":{\"ranks\":3}}",
        "{" BASE ",\"train\":{\"tokens\":99999},\"schedule\":{\"warmup_steps\":0},\"checkpoint\":{"
        "\"resume\":\"/a/b\"},\"optim\":{\"lr\":0.1,\"eps\":1e-17}}",
        "{\"kind\":\"verify\"," CONFIG "," DATA
        ",\"train\":{\"steps\":5},\"verify\":{\"max_tokens\":"
        "100}}",
        "{\"kind\":\"score\"," CONFIG
        ",\"data\":{\"seq_len\":512},\"input\":{\"path\":\"x.jsonl\"}}",
        "{\"kind\":\"generate\"," CONFIG ",\"input\":{\"prompt\":\"once\"},\"sampling\":{"
        "\"temperature\":0.7}}",
        "{\"kind\":\"generate\"," CONFIG
        ",\"input\":{\"path\":\"p.txt\"},\"data\":{\"seq_len\":512}}",
        "{\"kind\":\"generate\",\"model\":{\"path\":\"/m\",\"adapters\":{\"b\":\"/"
        "x\",\"a.1-_\":\"job:7\"}},"
        "\"data\":{\"seq_len\":512},\"input\":{\"path\":\"p.jsonl\",\"format\":\"openai_batch\"}}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err e;
        CHECK_MSG(!read_text(texts[i], &e), "case %zu: %s", i, e.text);
        round_trip(JSON_FOR_PEOPLE);
        round_trip(JSON_STORED);
    }
    /* Values that seqd has computed must be kept over a restart: the shape of a model that is
     * given by its path, and the number of steps of a job that sets the number of passes. */
    struct err e;
    CHECK(!read_text(
        "{\"kind\":\"train\",\"model\":{\"path\":\"/m\"}," DATA ",\"train\":{\"passes\":1}}", &e));
    s.model.shape = (struct model_shape){.n_layers = 3,
                                         .width = 32,
                                         .n_heads = 2,
                                         .n_kv_heads = 1,
                                         .head_dim = 16,
                                         .ffn_width = 64,
                                         .vocab = 300,
                                         .max_pos = 77,
                                         .norm_eps = 1e-6,
                                         .rope_theta = 123,
                                         .tokenizer = TOKENIZER_BYTE,
                                         .trained_on = OBJECTIVE_CAUSAL_LM};
    s.train.steps = 12;
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    round_trip(JSON_STORED);
}

/* ---- model.config ---------------------------------------------------------------------------- */

#define SIZES                                                                                      \
    "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"                        \
    "\"intermediate_size\":128"
#define DIT "\"hidden_size\":64,\"depth\":2,\"num_heads\":4,\"mlp_ratio\":4"

static int read_config(const char *config, enum json_form form, struct err *e)
{
    char text[4096];
    const bool latents = strstr(config, "depth") != NULL;
    snprintf(
        text, sizeof text,
        "{\"kind\":\"train\",\"train\":{\"steps\":5},\"model\":{\"config\":{%s}},\"data\":{%s}}",
        config,
        latents ? "\"frames\":2,\"height\":8,\"width\":8,\"train\":[{\"path\":\"a.jsonl\","
                  "\"format\":\"latents\"}]"
                : "\"seq_len\":64,\"train\":[{\"path\":\"a\"}]");
    *e = (struct err){0};
    return json_spec_read(text, strlen(text), form, &s, e) || family_check(&s, e) ? -1 : 0;
}

/* Checks that a job's model.config may have every model_type that a config.json may have, together
 * with the keys of that model_type. */
static void test_model_types(void)
{
    static const struct {
        const char *config;
        int family;
    } types[] = {
        {SIZES, FAMILY_LLAMA},
        {"\"model_type\":\"llama\"," SIZES ",\"sliding_window\":8", FAMILY_LLAMA},
        {"\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":8,\"num_key_value_heads\":2",
         FAMILY_LLAMA},
        {"\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":null", FAMILY_LLAMA},
        {"\"model_type\":\"qwen3\"," SIZES ",\"use_sliding_window\":false", FAMILY_LLAMA},
        {"\"model_type\":\"bert\"," SIZES ",\"vocab_size\":259,\"layer_norm_eps\":1e-12",
         FAMILY_BERT},
        {"\"model_type\":\"transnormer\"," SIZES, FAMILY_TNL},
        {"\"model_type\":\"linear_attn\"," SIZES ",\"feature_map\":\"elu\"", FAMILY_LINEAR},
        {"\"model_type\":\"retnet\"," SIZES ",\"expand_v\":2", FAMILY_RETNET},
        {"\"model_type\":\"minimax\"," SIZES ",\"num_local_experts\":4,\"num_experts_per_tok\":2,"
         "\"layer_types\":[\"linear_attention\",\"full_attention\"]",
         FAMILY_MINIMAX},
        {"\"model_type\":\"STDiT\",\"caption_channels\":32,\"model_max_length\":8," DIT,
         FAMILY_STDIT},
        {"\"model_type\":\"stdit\",\"caption_channels\":32,\"model_max_length\":8," DIT,
         FAMILY_STDIT},
        {"\"model_type\":\"STDiT3\",\"caption_channels\":32,\"model_max_length\":8," DIT,
         FAMILY_STDIT3},
        {"\"model_type\":\"Latte\",\"num_classes\":10," DIT, FAMILY_LATTE},
        {"\"model_type\":\"transformer_2d\"," DIT, FAMILY_T2D},
        {"\"model_type\":\"roberta\"," SIZES ",\"vocab_size\":259,\"pad_token_id\":4",
         FAMILY_ROBERTA},
        {"\"model_type\":\"modernbert\"," SIZES ",\"vocab_size\":259,\"local_attention\":8,"
         "\"attention_bias\":true,\"decoder_bias\":false,\"local_rope_theta\":500",
         FAMILY_MODERNBERT},
        {"\"model_type\":\"xlm-roberta\"," SIZES ",\"vocab_size\":259,\"first_position\":5",
         FAMILY_ROBERTA},
    };
    struct err e;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        CHECK_MSG(!read_config(types[i].config, JSON_FOR_PEOPLE, &e), "%s: %s", types[i].config,
                  e.text);
        CHECK_MSG(s.model.shape.family == types[i].family, "%s", types[i].config);
        round_trip(JSON_FOR_PEOPLE);
        round_trip(JSON_STORED);
    }
    CHECK(!read_config(types[1].config, JSON_FOR_PEOPLE, &e) && s.model.shape.window == 8);
    CHECK(!read_config(types[2].config, JSON_FOR_PEOPLE, &e) && s.model.shape.window == 8);
    CHECK(s.model.shape.n_kv_heads == 2 && s.model.shape.head_dim == 16);
    CHECK(!read_config(types[3].config, JSON_FOR_PEOPLE, &e) && s.model.shape.window == 0);
    CHECK(!read_config(types[4].config, JSON_FOR_PEOPLE, &e) && s.model.shape.qk_norm == 1);
    CHECK(!read_config(types[9].config, JSON_FOR_PEOPLE, &e) && s.model.shape.layer_mask[0] == 1);
    CHECK(!read_config(types[12].config, JSON_FOR_PEOPLE, &e) && s.model.shape.n_layers == 4);
}

/* Checks keys of config.json. Keys that change nothing must be accepted. All other keys must have
 * an effect or be refused. A single error must name all refused keys. */
static void test_config_keys(void)
{
    struct err e;
    CHECK_MSG(!read_config(SIZES
                           ",\"model_type\":\"llama\",\"architectures\":"
                           "[\"LlamaForCausalLM\"],\"torch_dtype\":"
                           "\"bfloat16\",\"transformers_version\":\"4.40.1\",\"_name_or_path\":"
                           "\"x\",\"use_cache\":true,\"rope_scaling\":null,\"head_dim\":null,"
                           "\"vocab_size\":300.0",
                           JSON_FOR_PEOPLE, &e),
              "%s", e.text);
    CHECK(s.model.shape.vocab == 300 && !strstr(s.model.config, "torch"));
    CHECK(read_config(SIZES ",\"hiden_size\":3,\"use_mrope\":true,\"num_local_experts\":8,"
                            "\"wings\":2",
                      JSON_FOR_PEOPLE, &e));
    CHECK_STR(e.field, "model.config");
    CHECK_STR(e.text, "model.config asks for 4 things that are not supported: hiden_size: unknown "
                      "key: did you mean hidden_size?; use_mrope: true is not supported; "
                      "num_local_experts: is not a key of this family; wings: unknown key");
    CHECK(read_config(SIZES ",\"use_mrope\":true", JSON_FOR_PEOPLE, &e));
    CHECK(e.code == ERR_UNSUPPORTED);
    CHECK_STR(e.field, "model.config.use_mrope");
    CHECK(read_config("\"model_type\":\"gptj\"," SIZES, JSON_FOR_PEOPLE, &e));
    CHECK_STR(e.field, "model.config.model_type");
    CHECK(strstr(e.text, "llama, mistral, qwen3, qwen2") && strstr(e.text, "STDiT3"));
    /* JSON forbids a key that occurs twice */
    CHECK(read_config(SIZES ",\"num_hidden_layers\":2", JSON_FOR_PEOPLE, &e));
    CHECK(read_config("\"model_type\":\"linear_attn\"," SIZES ",\"num_heads\":4", JSON_FOR_PEOPLE,
                      &e));
    CHECK_STR(e.text, "model.config.num_heads occurs twice, also as num_attention_heads");
    CHECK(read_config(SIZES ",\"\":1,\"a b\":2,\"\u00e9\":3", JSON_FOR_PEOPLE, &e));
    CHECK_STR(e.text, "model.config.(not a word): unknown key");
    CHECK(read_config("\"hidden_size\":64", JSON_FOR_PEOPLE, &e));
    CHECK_STR(e.field, "model.config.num_hidden_layers");
    CHECK(read_config("\"num_hidden_layers\":2,\"num_attention_heads\":4", JSON_FOR_PEOPLE, &e));
    CHECK_STR(e.field, "model.config.hidden_size");
    CHECK(read_config("\"hidden_size\":0,\"num_hidden_layers\":2,\"num_attention_heads\":4",
                      JSON_FOR_PEOPLE, &e));
    CHECK_STR(e.field, "model.config.hidden_size");
}

/* Checks a spec that the previous version stored. Such a spec has the sizes of all families. If
 * the model is a directory, the sizes that its family lacks are 0. */
static void test_config_of_previous_version(void)
{
    static const char config[] = SIZES
        ",\"model_type\":\"llama\",\"num_key_value_heads\":4,\"head_dim\":16,\"vocab_size\":258,"
        "\"max_position_embeddings\":1048576,\"rms_norm_eps\":1e-05,\"rope_theta\":10000,"
        "\"tie_word_embeddings\":false,\"hidden_act\":\"identity\",\"feature_map\":\"elu1\","
        "\"qk_norm\":false,\"sliding_window\":0,\"value_dim\":0,\"rotary_dim\":0,"
        "\"type_vocab_size\":0,\"num_local_experts\":0,\"num_experts_per_tok\":0,"
        "\"linear_attn_alpha_factor\":1,\"linear_attn_beta_factor\":1,"
        "\"full_attn_alpha_factor\":1,\"full_attn_beta_factor\":1,\"mlp_alpha_factor\":1,"
        "\"mlp_beta_factor\":1,\"layer_mask\":[0,0,0,0,0,0,0,0],\"normalise\":false,"
        "\"no_scale_embedding\":false,\"in_channels\":0,\"out_channels\":0,\"patch_t\":0,"
        "\"patch_h\":0,\"patch_w\":0,\"caption_channels\":0,\"model_max_length\":0,"
        "\"input_sq_size\":0,\"space_scale\":0,\"time_scale\":0";
    static const char described[] =
        "{\"kind\":\"train\",\"model\":{\"path\":\"/"
        "m\",\"config\":{\"model_type\":\"transformer_2d\","
        "\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":4,\"head_dim\":16,\"intermediate_size\":256,\"vocab_size\":0,"
        "\"max_position_embeddings\":2048,\"rms_norm_eps\":1e-06,\"rope_theta\":10000,"
        "\"hidden_act\":\"gelu_tanh\",\"feature_map\":\"identity\",\"linear_attn_alpha_factor\":0,"
        "\"in_channels\":4,\"out_channels\":8,\"patch_t\":1,\"patch_h\":2,\"patch_w\":2,"
        "\"objective\":\"rectified_flow\"}},\"data\":{\"frames\":2,\"height\":8,\"width\":8,"
        "\"train\":"
        "[{\"path\":\"a.jsonl\",\"format\":\"latents\"}]},\"train\":{\"steps\":5}}";
    static struct model_shape same;
    struct err e;
    CHECK(!read_config(SIZES, JSON_FOR_PEOPLE, &e));
    same = s.model.shape;
    for (int form = 0; form < 2; form++) { /* a config that seqd has shown is accepted again */
        CHECK_MSG(!read_config(config, (enum json_form)form, &e), "%s", e.text);
        CHECK(!memcmp(&s.model.shape, &same, sizeof same));
    }
    CHECK_MSG(!json_spec_read(described, strlen(described), JSON_STORED, &s, &e), "%s", e.text);
    CHECK_MSG(!family_check(&s, &e), "%s", e.text);
    CHECK(s.model.shape.vocab == 0 && s.model.shape.trained_on == OBJECTIVE_RECTIFIED_FLOW);
    round_trip(JSON_STORED);
}

/* Checks that a spec that a different version of seqd has stored can be read, and that its unknown
 * keys are kept when this version writes the spec again. */
static void test_stored_by_another_version(void)
{
    static const char text[] =
        "{\"kind\":\"train\",\"name\":\"12\",\"sooner\":null,\"later\":{\"a\":[1,{\"b\":2}]},"
        "\"sampling\":{"
        "\"temperature\":2},\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"intermediate_size\":128,\"wings\":2}},\"data\":{\"train\":[{"
        "\"path\":\"/"
        "x\",\"shade\":\"blue\",\"weight\":0.5}],\"seq_len\":100},\"train\":{\"steps\":5},"
        "\"stages\":[{\"from_step\":3,\"mood\":1,\"seq_len\":200}]}";
    static char out[JSON_SPEC_SIZE];
    struct err e = {0};
    /* in a request, unknown keys are refused */
    CHECK(json_spec_read(text, strlen(text), JSON_FOR_PEOPLE, &s, &e));
    CHECK_MSG(!json_spec_read(text, strlen(text), JSON_STORED, &s, &e), "%s", e.text);
    CHECK(s.data.seq_len == 100 && s.n_stages == 1 && s.data.train[0].weight == 0.5);
    /* the keys after the unknown ones are read, too */
    CHECK(s.stages[0].seq_len == 200 && s.train.steps == 5);
    CHECK(!family_check(&s, &e));
    s.train.steps = 7;
    CHECK(json_spec_write(&s, JSON_STORED, out, sizeof out) > 0);
    char *whole = json_spec_merge(text, out);
    CHECK(whole != NULL);
    if (!whole) return;
    CHECK(strstr(whole, "\"later\":{\"a\":[1,{\"b\":2}]}") && strstr(whole, "\"wings\":2"));
    CHECK(strstr(whole, "\"shade\":\"blue\"") && strstr(whole, "\"mood\":1"));
    CHECK(strstr(whole, "\"sooner\":null") && strstr(whole, "\"steps\":7"));
    CHECK_MSG(!json_spec_read(whole, strlen(whole), JSON_STORED, &s, &e), "%s", e.text);
    CHECK(s.train.steps == 7);
    char *more = json_spec_merge(out, out); /* out already has every key of out */
    CHECK(!more);
    free(whole);
    free(more);
    CHECK(!json_spec_merge("{", "{}"));
}

static void test_canonical(void)
{
    struct err e;
    const char *a = "{\"b\": 1, \"a\": {\"y\": [1, 2], \"x\": null}}",
               *b = "{\"a\":{\"x\":null,\"y\":[1,2]},\"b\":1}";
    char *x = json_canonical(a, strlen(a), &e), *y = json_canonical(b, strlen(b), &e);
    CHECK(x && y && !strcmp(x, y));
    free(x);
    free(y);
    CHECK(!json_canonical("{", 1, &e));
}

/* Checks that a spec with random damage never causes a crash, and is never accepted with wrong
 * values. */
static void test_mutations(void)
{
    static const char text[] =
        "{" BASE
        ",\"train\":{\"steps\":5},\"labels\":{\"a\":\"b\"},\"optim\":{\"betas\":[0.9,0.95]},"
        "\"parallel\":{\"sp\":\"auto\"},\"checkpoint\":{\"resume\":\"auto\"}}";
    char copy[sizeof text];
    unsigned seed = 5;
    for (int i = 0; i < 20000; i++) {
        struct err e;
        memcpy(copy, text, sizeof text);
        for (int k = rand_r(&seed) % 4; k >= 0; k--)
            copy[(size_t)rand_r(&seed) % (sizeof text - 1)] = (char)rand_r(&seed);
        size_t n = rand_r(&seed) % 8 ? sizeof text - 1 : (size_t)rand_r(&seed) % sizeof text;
        if (!json_spec_read(copy, n, JSON_FOR_PEOPLE, &s, &e)) family_check(&s, &e);
    }
    CHECK(s.text_used <= SPEC_TEXT_SIZE);
}

int main(void)
{
    json_init();
    RUN(test_out_of_memory); /* first, because it forks */
    RUN(test_short_spec);
    RUN(test_names);
    RUN(test_packing_of_pairs);
    RUN(test_unsaid);
    RUN(test_kinds);
    RUN(test_unsaid_tokens);
    RUN(test_unsaid_batch);
    RUN(test_every_form);
    RUN(test_refused);
    RUN(test_nul_in_body);
    RUN(test_depth_and_size);
    RUN(test_too_many);
    RUN(test_round_trip);
    RUN(test_model_types);
    RUN(test_config_keys);
    RUN(test_config_of_previous_version);
    RUN(test_stored_by_another_version);
    RUN(test_canonical);
    RUN(test_mutations);
    return test_done("seqd_json");
}
