/* Model directories beside their weights: whose tokenizer it is, what text then means, and which
 * files and keys a checkpoint has from the directory that its job began with. */
#include <math.h>
#include <sys/stat.h>

#include "api/core/file.h"
#include "tests/gang.h"
#include "worker/data/data.h"
#include "worker/model/hf.h"
#include "worker/model/hf_files.h"
#include "worker/model/tokenizer.h"
#include "worker/train/requests.h"

static char scratch[64]; /* everything of this test lies beneath it */
static struct err e;
static struct gang g; /* 100 KiB: not on the stack */
static float *weights;

static const char *in_dir(const char *dir, const char *name)
{
    static char path[8][1536];
    static int k;
    k = (k + 1) % 8;
    const bool there = !strncmp(dir, scratch, strlen(scratch));
    snprintf(path[k], sizeof path[k], "%s%s%s%s%s", there ? "" : scratch, there ? "" : "/", dir,
             *name ? "/" : "", name);
    return path[k];
}

static void put(const char *dir, const char *name, const char *text)
{
    CHECK_MSG(!file_make_dir(in_dir(dir, ""), &e) &&
                  !file_write(in_dir(dir, name), text, strlen(text), &e),
              "%s", e.text);
}

/* The file's bytes; "" where there is none. The caller frees. */
static char *get(const char *dir, const char *name)
{
    struct err none = {0};
    char *text = file_read(in_dir(dir, name), 1 << 20, NULL, &none);
    return text ? text : strdup("");
}

static bool same_file(const char *a, const char *b, const char *name)
{
    char *x = get(a, name), *y = get(b, name);
    const bool same = *x && !strcmp(x, y);
    free(x), free(y);
    return same;
}

static bool there(const char *dir, const char *name)
{
    return file_exists(in_dir(dir, name));
}

/* A tiny model with a tokenizer of its own, and other files that model directories have. */
#define OWN_TOKENIZER "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\"}}"
static const char *const own_files[][2] = {
    {"tokenizer.json", OWN_TOKENIZER},
    {"tokenizer_config.json", "{\"chat_template\":\"{{ x }}\"}"},
    {"special_tokens_map.json", "{}"},
    {"tokenizer.model", "\x0a\x02<s>"},
    {"chat_template.jinja", "{% for m in messages %}"},
    {"generation_config.json", "{\"eos_token_id\":[7,9],\"top_p\":0.9}"},
    {"preprocessor_config.json", "{\"a\": 1}"},
    {"modeling_x.py", "print(1)\n"},
    {"README.md", "# a model\n"},
    {".gitattributes", "*.bin lfs\n"},
};
enum { N_OWN = sizeof own_files / sizeof *own_files };

static const char own_config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"], \"model_type\":\"llama\", \"hidden_size\":48,\n"
    " \"num_hidden_layers\":2, \"num_attention_heads\":6, \"num_key_value_heads\":2, "
    "\"head_dim\":8,\n"
    " \"intermediate_size\":40, \"vocab_size\":260, \"max_position_embeddings\":4096,\n"
    " \"rms_norm_eps\":1e-05, \"rope_theta\":10000.0, \"dtype\":\"bfloat16\", \"bos_token_id\":1,\n"
    " \"eos_token_id\":[7, 9], \"cls_token_id\":3, \"initializer_range\": 2.00e-2,\n"
    " \"x\":{\"b\": [1, {\"c\":\"\\u00e9\\n\"}], \"eos_token_id\":5}, \"attention_dropout\":0.1,\n"
    " \"sliding_window\":4096, \"transformers_version\":\"4.40.1\"}";

static void make_own(const char *dir)
{
    CHECK_MSG(!hf_save(in_dir(dir, ""), &tiny_shape, DT_F32, weights, &e), "%s", e.text);
    for (int i = 0; i < N_OWN; i++) put(dir, own_files[i][0], own_files[i][1]);
    put(dir, "config.json", own_config);
}

/* ---- whose tokenizer ------------------------------------------------------------------------- */

static int tokenizer_of(const char *dir)
{
    int32_t t = -1;
    CHECK_MSG(!hf_tokenizer_of(in_dir(dir, ""), &t, &e), "%s", e.text);
    return t;
}

static void test_recognised(void)
{
    static const char *const tokenizers[] = {
        "tokenizer.json", "tokenizer.model",  "tokenizer_config.json", "vocab.json",
        "merges.txt",     "vocab.txt",        "tekken.json",           "spiece.model",
        "x.tiktoken",     "tokenization_x.py"};
    char text[TOKENIZER_SIZE + 2];
    CHECK(!hf_save(in_dir("ours", ""), &tiny_shape, DT_F32, weights, &e));
    CHECK(tokenizer_of("ours") == TOKENIZER_BYTE);
    char *own = get("ours", "tokenizer.json");
    snprintf(text, sizeof text, "%s ", own);
    put("ours", "tokenizer.json", text); /* nearly is not */
    CHECK(tokenizer_of("ours") == TOKENIZER_OWN);
    own[strlen(own) / 2] ^= 1;
    put("ours", "tokenizer.json", own);
    CHECK(tokenizer_of("ours") == TOKENIZER_OWN);
    free(own);
    for (size_t i = 0; i < sizeof tokenizers / sizeof *tokenizers; i++) {
        CHECK(!file_remove(in_dir("bare", ""), &e));
        put("bare", "generation_config.json", "{}");
        put("bare", "vocabulary.md", "");
        CHECK(tokenizer_of("bare") == TOKENIZER_NONE);
        put("bare", tokenizers[i], "{}");
        CHECK_MSG(tokenizer_of("bare") == TOKENIZER_OWN, "%s", tokenizers[i]);
    }
    /* A link: whose file it leads to is not looked up. */
    CHECK(!file_remove(in_dir("bare", ""), &e));
    put("bare", "x", "");
    CHECK(!symlink(in_dir("ours", "tokenizer.json"), in_dir("bare", "tokenizer.json")));
    CHECK(tokenizer_of("bare") == TOKENIZER_OWN);
}

static void test_described(void)
{
    char text[4096];
    make_own("own");
    CHECK_MSG(hf_describe(in_dir("own", ""), text, sizeof text, &e) > 0, "%s", e.text);
    CHECK_MSG(strstr(text, "\"tokenizer\":\"own\""), "%s", text);
    CHECK(!hf_save(in_dir("ours2", ""), &tiny_shape, DT_F32, weights, &e));
    CHECK(hf_describe(in_dir("ours2", ""), text, sizeof text, &e) > 0);
    CHECK_MSG(strstr(text, "\"tokenizer\":\"byte\""), "%s", text);
}

static void test_ends(void)
{
    static const struct {
        const char *generation, *config;
        int n, first; /* n -1: refused */
    } v[] = {
        {"{\"eos_token_id\":[7,9]}", "{\"eos_token_id\":1}", 2, 7},
        {"{\"a\":[{\"eos_token_id\":3}],\"eos_token_id\":5}", "{}", 1, 5},
        {"{\"eos_token_id\":null}", "{\"eos_token_id\":1}", 1, 1},
        {"{}", "{\"x\":1}", 0, 0},
        {"{\"eos_token_id\":\"a\"}", "{}", -1, 0},
        {"{\"eos_token_id\":[1,-2]}", "{}", -1, 0},
        {"{\"eos_token_id\":[1", "{}", -1, 0},
        {"{\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", "{}", -1, 0},
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct token_ends ends;
        e = (struct err){0};
        put("ends", "generation_config.json", v[i].generation);
        put("ends", "config.json", v[i].config);
        const int rc = hf_read_ends(in_dir("ends", ""), &ends, &e);
        CHECK_MSG(rc == (v[i].n < 0 ? -1 : 0), "%s: %s", v[i].generation, e.text);
        if (rc)
            CHECK_MSG(strstr(e.text, "generation_config.json"), "%s", e.text);
        else
            CHECK(ends.n == v[i].n && ends.id[0] == v[i].first);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static int save(const char *to, const char *from, bool bytes, enum dtype dtype,
                const struct model_shape *m)
{
    const struct hf_flat flat = {"", weights, dtype};
    const struct hf_beside b = {.from = from ? in_dir(from, "") : NULL, .bytes = bytes};
    e = (struct err){0};
    return hf_save_flat(in_dir(to, ""), m, &flat, &b, &e);
}

static int n_pieces;

static void count_piece(void *arg)
{
    (void)arg;
    n_pieces++;
}

static int take(const char *from, const char *to, struct hf_files *taken)
{
    const struct hf_take t = {in_dir(from, ""), in_dir(to, ""), true, count_piece, NULL};
    n_pieces = 0;
    return hf_take_files(&t, taken, &e);
}

static void test_files(void)
{
    static const char *const not_taken[] = {"model-00001-of-00002.safetensors",
                                            "model.safetensors.index.json",
                                            "pytorch_model.bin",
                                            "pytorch_model.bin.index.json",
                                            "consolidated.00.pth",
                                            "optimizer.pt",
                                            "model.Q4.GGUF",
                                            "model.onnx",
                                            "flax_model.msgpack",
                                            "tf_model.h5",
                                            "a..b",
                                            "caf\xc3\xa9.json"};
    struct hf_files taken;
    make_own("files");
    for (size_t i = 0; i < sizeof not_taken / sizeof *not_taken; i++)
        put("files", not_taken[i], "weights");
    put("files", "big.json", "");
    put("files", "limit.json", "");
    CHECK(!truncate(in_dir("files", "big.json"), HF_FILE_SIZE + 1)); /* sparse */
    CHECK(!truncate(in_dir("files", "limit.json"), 1 << 20));
    CHECK(!symlink("/etc/hostname", in_dir("files", "link.json")));
    CHECK(!mkfifo(in_dir("files", "pipe.json"), 0600));
    put("files/folder", "tokenizer.json", "{}");
    CHECK_MSG(!take("files", "taken", &taken), "%s", e.text);
    CHECK_MSG(taken.n == N_OWN + 1, "%d files", taken.n); /* and limit.json, in 16 pieces */
    CHECK_MSG(n_pieces >= 2 * N_OWN + 16, "%d pieces", n_pieces);
    CHECK_MSG(taken.n_left == 5 && strstr(taken.left, "(a link)") &&
                  strstr(taken.left, "big.json (over 64 MiB)"),
              "%d: %s", taken.n_left, taken.left);
    for (int i = 0; i < N_OWN; i++)
        CHECK_MSG(same_file("files", "taken", own_files[i][0]), "%s", own_files[i][0]);
    CHECK(!there("taken", "config.json") && !there("taken", "model.safetensors"));
    CHECK(there("taken", "limit.json") && !there("taken", "folder") &&
          !there("taken", "link.json"));
    for (size_t i = 0; i < sizeof not_taken / sizeof *not_taken; i++)
        CHECK_MSG(!there("taken", not_taken[i]), "%s", not_taken[i]);
    CHECK(take("nowhere", "taken2", &taken) == -1);
    CHECK(e.code == ERR_NOT_FOUND);
    for (int i = 0; i < HF_FILES + 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "file-%03d", i);
        put("many", name, "x");
    }
    CHECK(!take("many", "few", &taken));
    CHECK(taken.n < HF_FILES && taken.n + taken.n_left == HF_FILES + 5);
}

/* The keys that say something else than before, and no others. */
static void check_config(const char *dir, const char *const *has, const char *const *hasnt)
{
    char *text = get(dir, "config.json");
    for (; *has; has++) CHECK_MSG(strstr(text, *has), "%s: no %s in %s", dir, *has, text);
    for (; *hasnt; hasnt++) CHECK_MSG(!strstr(text, *hasnt), "%s: %s in %s", dir, *hasnt, text);
    free(text);
}

#define KEPT                                                                                       \
    "\"initializer_range\":2.00e-2", "{\"b\": [1, {\"c\":\"\\u00e9\\n\"}], \"eos_token_id\":5}",   \
        "\"attention_dropout\":0.1", "\"transformers_version\":\"4.40.1\"",                        \
        "\"architectures\":[\"LlamaForCausalLM\"]"

static void test_passes_through(void)
{
    static const char *const kept[] = {KEPT,
                                       "\"bos_token_id\":1",
                                       "\"eos_token_id\":[7, 9]",
                                       "\"cls_token_id\":3",
                                       "\"dtype\":\"float32\"",
                                       "\"rope_theta\":10000.0",
                                       "\"sliding_window\":4096",
                                       NULL};
    static const char *const lost[] = {"pad_token_id", "256", "torch_dtype", NULL};
    struct model_shape m = tiny_shape, back;
    make_own("own");
    CHECK_MSG(!save("hf", "own", false, DT_F32, &m), "%s", e.text);
    for (int i = 0; i < N_OWN; i++)
        CHECK_MSG(same_file("own", "hf", own_files[i][0]), "%s", own_files[i][0]);
    check_config("hf", kept, lost);
    CHECK(!hf_config_read(in_dir("hf", ""), &back, &e) && !hf_shape_diff(&back, &m));
    CHECK(tokenizer_of("hf") == TOKENIZER_OWN);
    /* From there again: nothing moves. */
    CHECK(!save("hf2", "hf", false, DT_F32, &m) && same_file("hf", "hf2", "config.json"));
    for (int i = 0; i < N_OWN; i++) CHECK(same_file("own", "hf2", own_files[i][0]));
    /* What the job has changed: rope_theta in every spelling, the dtype. */
    m.rope_theta = 5e4;
    CHECK(!save("hf3", "own", false, DT_F32, &m));
    check_config("hf3", (const char *const[]){KEPT, "\"rope_theta\":50000", NULL},
                 (const char *const[]){"10000", NULL});
    put("v5", "config.json",
        "{\"model_type\":\"llama\",\"hidden_size\":48,\"num_hidden_layers\":2,\"head_dim\":8,"
        "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"intermediate_size\":40,"
        "\"vocab_size\":260,\"rms_norm_eps\":1e-05,\"rope_parameters\":{\"rope_theta\":10000.0,"
        "\"rope_type\":\"default\"},\"torch_dtype\":\"bfloat16\"}");
    CHECK_MSG(!save("hf5", "v5", false, DT_F32, &m), "%s", e.text);
    CHECK(!hf_config_read(in_dir("hf5", ""), &back, &e) && back.rope_theta == 5e4);
    check_config("hf5", (const char *const[]){"\"torch_dtype\":\"float32\"", NULL},
                 (const char *const[]){"\"rope_theta\":50000,\"torch", "eos_token_id", NULL});
    /* Another model's keys are not taken over. */
    m.ffn_width = 44;
    CHECK(save("hf6", "own", false, DT_F32, &m) == -1 && e.code == ERR_CONFLICT);
    CHECK_MSG(strstr(e.text, "intermediate_size"), "%s", e.text);
}

/* A job that has read text as bytes has changed what the tokenizer and its ids say. */
static void test_bytes_take_its_place(void)
{
    static const char *const now[] = {KEPT, "\"eos_token_id\":256", "\"bos_token_id\":256",
                                      "\"pad_token_id\":257", NULL};
    static const char *const lost[] = {"[7, 9]", "cls_token_id", NULL};
    const struct model_shape m = tiny_shape;
    make_own("own");
    CHECK_MSG(!save("bytes", "own", true, DT_F32, &m), "%s", e.text);
    CHECK(tokenizer_of("bytes") == TOKENIZER_BYTE);
    check_config("bytes", now, lost);
    for (int i = 0; i < N_OWN; i++) {
        const char *name = own_files[i][0];
        if (!hf_is_tokenizer(name)) CHECK_MSG(same_file("own", "bytes", name), "%s", name);
        if (hf_is_tokenizer(name)) CHECK_MSG(!same_file("own", "bytes", name), "%s", name);
    }
    CHECK(!there("bytes", "tokenizer.model") && !there("bytes", "chat_template.jinja"));
    /* What already was the byte tokenizer's stays as it is, changes by hand included. */
    put("bytes", "tokenizer_config.json", "{\"chat_template\":\"mine\"}");
    CHECK(!save("bytes2", "bytes", true, DT_F32, &m));
    CHECK(same_file("bytes", "bytes2", "tokenizer_config.json"));
    CHECK(same_file("bytes", "bytes2", "config.json"));
    /* New weights: the byte tokenizer where text was read, none and no ids where it was not. */
    CHECK(!save("new", NULL, true, DT_F32, &m) && tokenizer_of("new") == TOKENIZER_BYTE);
    CHECK(!save("ids", NULL, false, DT_F32, &m) && tokenizer_of("ids") == TOKENIZER_NONE);
    CHECK(!there("ids", "generation_config.json"));
    check_config("ids", (const char *const[]){"\"eos_token_id\":null", NULL},
                 (const char *const[]){"256,", NULL});
}

/* ---- text ------------------------------------------------------------------------------------ */

static void refuses(struct job_spec *s, const char *field, const char *word)
{
    e = (struct err){0};
    CHECK_MSG(job_check(s, &e) == -1, "%s passed", field);
    CHECK_MSG(e.code == ERR_UNSUPPORTED && !strcmp(e.field, field) && strstr(e.text, word) &&
                  strstr(e.text, "input_ids") && strstr(e.text, "data.tokenizer \"byte\""),
              "%s: %s", e.field, e.text);
}

static struct job_spec *own_spec(enum job_kind kind, int tokenizer)
{
    static struct job_spec s;
    spec_defaults(&s);
    s.kind = kind;
    s.model.path = tiny_text(&s, "/m");
    s.model.shape = tiny_shape;
    s.model.shape.tokenizer = tokenizer;
    s.data.seq_len = 300;
    if (kind == JOB_TRAIN) s.train.steps = 1;
    return &s;
}

/* What is known before a file is read. */
static void test_rules(void)
{
    for (int tokenizer = TOKENIZER_OWN; tokenizer <= TOKENIZER_NONE; tokenizer++) {
        const char *why = tokenizer == TOKENIZER_OWN ? "of its own" : "has no tokenizer";
        for (int format = 0; format < DATA_FORMAT_N; format++) {
            if (format == DATA_OPENAI_BATCH || format == DATA_LATENTS) continue;
            for (int eval = 0; eval < 2; eval++) {
                struct job_spec *s = own_spec(JOB_TRAIN, tokenizer);
                s->data.n_train = 1;
                s->data.train[0] = (struct spec_source){
                    .path = tiny_text(s, "a"), .format = eval ? DATA_JSONL : format, .eod = -1};
                s->eval.n_data = 1;
                s->eval.data[0] = s->data.train[0];
                s->eval.data[0].format = format;
                if (format == DATA_TEXT)
                    refuses(s, eval ? "eval.data.0" : "data.train.0", why);
                else
                    CHECK_MSG(!job_check(s, &e) && s->data.tokenizer == TOKENIZER_AUTO, "%s",
                              e.text);
            }
        }
        for (int kind = JOB_SCORE; kind <= JOB_EMBED; kind++) {
            if (kind == JOB_VERIFY) continue;
            struct job_spec *s = own_spec(kind, tokenizer);
            s->input.source = (struct spec_source){.path = tiny_text(s, "a"), .eod = -1};
            refuses(s, "input", why);
            s->input.source.format = kind == JOB_GENERATE ? DATA_OPENAI_BATCH : DATA_JSONL;
            s->sampling.max_tokens = 4;
            CHECK_MSG(!job_check(s, &e), "%s", e.text);
            if (kind != JOB_GENERATE) continue;
            s->sampling.stop[1] = tiny_text(s, "x");
            refuses(s, "sampling.stop.1", why);
            s->input.source.format = DATA_JSONL; /* prompts are strings */
            refuses(s, "input", why);
            s->input.source.path = 0;
            s->input.source.format = DATA_TEXT;
            s->input.prompt = tiny_text(s, "hello");
            refuses(s, "input.prompt", why);
            s->data.tokenizer = TOKENIZER_BYTE; /* by name */
            CHECK_MSG(!job_check(s, &e), "%s", e.text);
        }
    }
    struct job_spec *s = own_spec(JOB_GENERATE, TOKENIZER_BYTE);
    s->input.prompt = tiny_text(s, "hello");
    s->sampling.max_tokens = 4;
    CHECK(!job_check(s, &e) && s->data.tokenizer == TOKENIZER_BYTE);
}

/* A mask of the byte tokenizer in a model that knows other ids. */
static void test_mask_token(void)
{
    struct job_spec *s = own_spec(JOB_TRAIN, TOKENIZER_OWN);
    s->model.shape.family = FAMILY_BERT;
    s->model.shape.n_kv_heads = 6;
    s->data.n_train = 1;
    s->data.train[0] = (struct spec_source){
        .path = tiny_text(s, "a"), .format = DATA_NPY, .eod = -1};
    e = (struct err){0};
    CHECK(job_check(s, &e) == -1 && !strcmp(e.field, "objective.mask_token"));
    s->objective.mask_token = 103;
    CHECK_MSG(!job_check(s, &e), "%s", e.text);
    s->objective.mask_token = 258;
    s->data.tokenizer = TOKENIZER_BYTE;
    CHECK_MSG(!job_check(s, &e), "%s", e.text);
}

static int prepare(struct job_spec *s, const char *file, bool eval)
{
    const char *roots[] = {scratch};
    struct data_stats st;
    s->data.n_train = 1;
    s->data.train[0] = (struct spec_source){
        .path = tiny_text(s, eval ? "ids.jsonl" : file), .format = DATA_JSONL, .eod = -1};
    s->eval.n_data = eval;
    s->eval.data[0] = s->data.train[0];
    s->eval.data[0].path = tiny_text(s, file);
    e = (struct err){0};
    mkdir(in_dir("prepared2", ""), 0700);
    return data_prepare(s, roots, 1, in_dir("prepared2", ""), NULL, &st, &e);
}

static void test_data(void)
{
    static const char *const files[][2] = {
        {"text.jsonl", "{\"input_ids\":[1,2]}\n{\"text\":\"abc\"}\n"},
        {"pair.jsonl", "\n{\"prompt\":\"abc\",\"completion\":\"d\"}\n"}};
    put("", "ids.jsonl", "{\"input_ids\":[1,2,3]}\n{\"input_ids\":[258,4]}\n");
    CHECK_MSG(!prepare(own_spec(JOB_TRAIN, TOKENIZER_OWN), "ids.jsonl", true), "%s", e.text);
    for (int i = 0; i < 2; i++) {
        put("", files[i][0], files[i][1]);
        for (int eval = 0; eval < 2; eval++) {
            /* Refused by its line; the same where another job has prepared it. */
            for (int again = 0; again < 2; again++) {
                CHECK(prepare(own_spec(JOB_TRAIN, TOKENIZER_OWN), files[i][0], eval) == -1);
                CHECK_MSG(e.code == ERR_UNSUPPORTED && strstr(e.text, "data.tokenizer \"byte\"") &&
                              !strncmp(e.field, eval ? "eval.data.0" : "data.train.0", 11),
                          "%s: %s", e.field, e.text);
                CHECK_MSG(again || strstr(e.text, "line 2"), "%s", e.text);
                CHECK_MSG(!prepare(own_spec(JOB_TRAIN, TOKENIZER_AUTO), files[i][0], eval), "%s",
                          e.text);
            }
            struct job_spec *s = own_spec(JOB_TRAIN, TOKENIZER_OWN);
            s->data.tokenizer = TOKENIZER_BYTE;
            CHECK_MSG(!prepare(s, files[i][0], eval), "%s", e.text);
        }
    }
}

static void test_requests(void)
{
    static const struct {
        const char *body, *field; /* NULL: it is done */
    } v[] = {{"\"prompt\":[1,2,3]", NULL},
             {"\"prompt\":\"abc\"", "prompt"},
             {"\"prompt\":[1],\"stop\":\"a\"", "stop"},
             {"\"prompt\":[1],\"stop\":[\"a\"]", "stop"},
             {"\"prompt\":[1],\"stop\":null", NULL}};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        for (int own = 0; own < 2; own++) {
            struct job_spec *s = own_spec(JOB_GENERATE, own ? TOKENIZER_OWN : TOKENIZER_BYTE);
            char line[256];
            struct request r;
            s->sampling.max_tokens = 4;
            const int n = snprintf(line, sizeof line,
                                   "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":"
                                   "\"/v1/completions\",\"body\":{%s,\"max_tokens\":2}}",
                                   v[i].body);
            CHECK(!request_init(&r, n, &e));
            request_of_line(&r, s, line, n);
            const bool ok = !own || !v[i].field;
            CHECK_MSG((r.refused.code == ERR_NONE) == ok, "%s: %s", v[i].body, r.refused.text);
            if (!ok) CHECK(!strcmp(r.refused.field, v[i].field) && strstr(r.refused.text, "byte"));
            request_fini(&r);
        }
}

static void test_all_bytes(void)
{
    const struct data_stats v[] = {
        {.n_tokens = 12, .n_documents = 2, .n_bytes = 10},
        {.n_tokens = 15, .n_documents = 3, .n_bytes = 10}, /* one of ids: 3 of them */
        {.n_tokens = 15, .n_documents = 3},
        {.eval_tokens = 12, .eval_documents = 2, .eval_bytes = 10}};
    CHECK(data_all_bytes(&v[0], SET_TRAIN) && !data_all_bytes(&v[0], SET_EVAL));
    CHECK(!data_all_bytes(&v[1], SET_TRAIN) && !data_all_bytes(&v[2], SET_TRAIN));
    CHECK(data_all_bytes(&v[3], SET_EVAL) && !data_all_bytes(&v[3], SET_TRAIN));
}

/* ---- whole jobs ------------------------------------------------------------------------------ */

/* From a directory, which the rank describes itself. */
static struct order *own_order(enum job_kind kind, const char *name, const char *model)
{
    struct order *o = order_new(kind, scratch, "", name);
    struct job_spec *s = &o->spec;
    const struct spec_source ids = {tiny_text(s, in_dir("", "train.jsonl")), tiny_text(s, "text"),
                                    DATA_JSONL, 0, -1};
    s->model.shape = own_spec(kind, TOKENIZER_AUTO)->model.shape;
    s->model.shape.width = 0; /* not described */
    s->model.path = tiny_text(s, in_dir(model, ""));
    s->data.seq_len = 32;
    s->resources.ranks = s->resources.threads = 1;
    s->train.steps = 6;
    s->checkpoint.every_steps = 2;
    s->checkpoint.keep = 1;
    if (kind == JOB_TRAIN) {
        s->data.n_train = s->eval.n_data = 1;
        s->data.train[0] = s->eval.data[0] = ids;
        s->eval.at_end = 1;
    } else {
        s->input.source = ids;
    }
    return o;
}

static bool task_runs(struct order *o, int task)
{
    o->args.task = task;
    gang_start(&g, o->spec.resources.ranks, o);
    gang_run(&g);
    return !g.n_fails && g.result[0];
}

/* Its data, if it has any and they are not prepared, and then itself. */
static bool job_runs(struct order *o)
{
    CHECK_MSG(!job_check(&o->spec, &e), "%s: %s", e.field, e.text);
    if (o->spec.kind != JOB_GENERATE && !o->args.prepared_id[0]) {
        if (!task_runs(o, TASK_PREPARE)) return all_ok(&g);
        text(g.result, "prepared_id", o->args.prepared_id, sizeof o->args.prepared_id);
    }
    task_runs(o, TASK_RUN);
    return all_ok(&g);
}

static void check_passed(const char *hf)
{
    for (int i = 0; i < N_OWN; i++)
        CHECK_MSG(same_file("own", hf, own_files[i][0]), "%s", own_files[i][0]);
    check_config(hf, (const char *const[]){KEPT, "\"eos_token_id\":[7, 9]", NULL},
                 (const char *const[]){"256", NULL});
}

static char first_hf[1300];

/* Tokens in, the model's own files out; also when the job is killed, its model directory has changed,
 * and it goes on from a checkpoint that it removes meanwhile. */
static void test_train_on_ids(void)
{
    char ids[4096] = "";
    for (int i = 0, n = 0; i < 40; i++)
        n += snprintf(ids + n, sizeof ids - (size_t)n, "{\"input_ids\":[%d,%d,%d,%d,%d,%d]}\n", i,
                      259, i + 1, 200, i + 2, 258);
    put("", "train.jsonl", ids);
    make_own("own");
    make_own("own2");
    struct order *o = own_order(JOB_TRAIN, "train", "own2");
    CHECK(!job_check(&o->spec, &e) && task_runs(o, TASK_PREPARE));
    text(g.result, "prepared_id", o->args.prepared_id, sizeof o->args.prepared_id);
    o->args.task = TASK_RUN;
    gang_start(&g, 1, o);
    g.kill_rank = 0;
    gang_run(&g);
    CHECK(WIFSIGNALED(g.status[0]) && g.n_checkpoints >= 1);
    CHECK(!rename(in_dir("own2", "tokenizer.json"), in_dir("own2", "gone")));
    put("own2", "README.md", "changed");
    o->args.epoch = 2;
    if (job_runs(o)) {
        CHECK(g.n_notes == 0 && g.step[0].step > 2);
        const struct gang_event *ev = gang_event(&g, EV_EVAL, 0);
        CHECK(ev && number(ev->json, "loss") > 0);
        CHECK_MSG(ev && !strstr(ev->json, "bits_per_byte"), "%s", ev ? ev->json : "");
        text(g.result, "hf", first_hf, sizeof first_hf);
        check_passed(first_hf);
    }
    free(o);
    /* That directory is a model.path like the first. */
    o = own_order(JOB_TRAIN, "train2", first_hf);
    if (job_runs(o)) {
        char hf[1300];
        check_passed(text(g.result, "hf", hf, sizeof hf));
    }
    free(o);
}

/* Its tokenizer is not run: text is an error of the job, of a field, before any step. */
static void test_train_on_text(void)
{
    char hf[1300];
    put("", "text.jsonl", "{\"text\":\"some text, and some more of the text\"}\n");
    make_own("own");
    struct order *o = own_order(JOB_TRAIN, "text", "own");
    o->spec.data.train[0].path = tiny_text(&o->spec, in_dir("", "text.jsonl"));
    o->spec.eval.n_data = 0;
    CHECK(!job_check(&o->spec, &e) && !task_runs(o, TASK_PREPARE));
    CHECK_MSG(g.n_fails == 1 && g.fail.code == ERR_UNSUPPORTED && g.n_steps == 0, "%s",
              g.fail.text);
    CHECK_MSG(!strncmp(g.fail.field, "data.train.0", 12) && strstr(g.fail.text, "line 1"), "%s: %s",
              g.fail.field, g.fail.text);
    o->spec.data.tokenizer = TOKENIZER_BYTE; /* by name: it learns bytes, and its files say so */
    if (job_runs(o)) {
        text(g.result, "hf", hf, sizeof hf);
        CHECK(tokenizer_of(hf) == TOKENIZER_BYTE && same_file("own", hf, "README.md"));
        check_config(hf, (const char *const[]){KEPT, "\"eos_token_id\":256", NULL},
                     (const char *const[]){"[7, 9]", NULL});
    }
    free(o);
}

static void test_left_out(void)
{
    char hf[1300];
    make_own("linked");
    CHECK(!symlink("README.md", in_dir("linked", "LICENSE")));
    CHECK(!rename(in_dir("linked", "config.json"), in_dir("linked", "c")) &&
          !symlink("c", in_dir("linked", "config.json"))); /* which is read all the same */
    struct order *o = own_order(JOB_TRAIN, "linked-job", "linked");
    o->spec.eval.n_data = 0;
    if (job_runs(o)) {
        const struct gang_event *ev = gang_event(&g, EV_NOTE, 0);
        CHECK_MSG(ev && strstr(ev->json, "files_left_out") && strstr(ev->json, "LICENSE (a link)"),
                  "%s", ev ? ev->json : "no note");
        CHECK(ev && !strstr(ev->json, "config.json"));
        check_config(text(g.result, "hf", hf, sizeof hf), (const char *const[]){KEPT, NULL},
                     (const char *const[]){"256", NULL});
    }
    free(o);
}

static void test_score_of_ids(void)
{
    char buf[64];
    struct order *o = own_order(JOB_SCORE, "score", "own");
    o->spec.data.seq_len = 300; /* all of it */
    if (job_runs(o)) {
        CHECK(number(g.result, "tokens") == 40 * 5 && number(g.result, "nll") > 0);
        CHECK_STR(text(g.result, "ledger", buf, sizeof buf), "equal");
        CHECK_MSG(strstr(g.result, "\"bits_per_byte\":null"), "%s", g.result);
    }
    free(o);
    /* Text among them: the bytes of all are not known. */
    put("", "mixed.jsonl", "{\"text\":\"abcabcabc\"}\n{\"input_ids\":[5,6,7,8,9]}\n");
    CHECK(!hf_save(in_dir("ours", ""), &tiny_shape, DT_F32, weights, &e));
    o = own_order(JOB_SCORE, "mixed", "ours");
    o->spec.input.source.path = tiny_text(&o->spec, in_dir("", "mixed.jsonl"));
    if (job_runs(o)) CHECK_MSG(strstr(g.result, "\"bits_per_byte\":null"), "%s", g.result);
    free(o);
}

/* The one answer of a job that asks with ids; NULL: it failed. The caller frees. */
static char *ask(const char *name, int ranks, int min_tokens)
{
    char line[256], ledger[32];
    struct order *o = own_order(JOB_GENERATE, name, "own3");
    snprintf(line, sizeof line,
             "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":"
             "{\"prompt\":[5,259,6],\"max_tokens\":4,\"min_tokens\":%d,\"logprobs\":1}}\n",
             min_tokens);
    put("", "ask.jsonl", line);
    o->spec.input.source.path = tiny_text(&o->spec, in_dir("", "ask.jsonl"));
    o->spec.input.source.format = DATA_OPENAI_BATCH;
    o->spec.sampling.max_tokens = 4;
    o->spec.resources.ranks = ranks;
    char *answer = job_runs(o) ? get(o->args.job_dir, "artifacts/results.jsonl") : NULL;
    if (answer) CHECK_STR(text(g.result, "ledger", ledger, sizeof ledger), "equal");
    free(o);
    return answer;
}

/* Tokens of an answer. */
static int ids_of(const char *answer, int64_t *first)
{
    static const char key[] = "\"token_ids\":[";
    const char *p = answer ? strstr(answer, key) : NULL;
    CHECK_MSG(p && strstr(answer, "\"text\":\"\""), "%s", answer ? answer : "no answer");
    if (!p) return -1;
    p += strlen(key);
    *first = *p == ']' ? -1 : atoll(p);
    int n = *p != ']';
    for (; *p != ']'; p++) n += *p == ',';
    return n;
}

/* Ids in, ids out; a text ends where the model's directory says, on every rank. */
static void test_generate_from_ids(void)
{
    char eos[64];
    int64_t first, other;
    make_own("own3");
    char *answer = ask("goes-on", 1, 0);
    CHECK(ids_of(answer, &first) == 4);
    CHECK(answer && strstr(answer, "<|token-") && strstr(answer, "\"finish_reason\":\"length\""));
    free(answer);
    snprintf(eos, sizeof eos, "{\"eos_token_id\":[300,%lld]}", (long long)first);
    put("own3", "generation_config.json", eos);
    for (int ranks = 1; ranks <= 2; ranks++) {
        answer = ask(ranks == 1 ? "ends" : "ends2", ranks, 0);
        CHECK(ids_of(answer, &other) == 0 && strstr(answer, "\"finish_reason\":\"stop\""));
        free(answer);
    }
    answer = ask("longer", 2, 2);
    CHECK(ids_of(answer, &other) >= 2 && other != first);
    free(answer);
}

int main(int argc, char **argv)
{
    (void)argc;
    gang_program(argv[0]);
    snprintf(scratch, sizeof scratch, "/tmp/test_model_files.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    setenv("SEQD_LOG", getenv("V") ? "info" : "error", 0);
    weights = calloc((size_t)param_count(&tiny_shape), sizeof *weights);
    for (int64_t i = 0; i < param_count(&tiny_shape); i++)
        weights[i] = (float)(i * 2654435761u % 1000) / 4000 - 0.125f;
    RUN(test_recognised);
    RUN(test_described);
    RUN(test_ends);
    RUN(test_files);
    RUN(test_passes_through);
    RUN(test_bytes_take_its_place);
    RUN(test_rules);
    RUN(test_mask_token);
    RUN(test_data);
    RUN(test_requests);
    RUN(test_all_bytes);
    RUN(test_train_on_ids);
    RUN(test_train_on_text);
    RUN(test_left_out);
    RUN(test_score_of_ids);
    RUN(test_generate_from_ids);
    free(weights);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("model_files");
}
