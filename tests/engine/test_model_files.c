/* Checks the files of model directories that do not hold weights. Checks whether a directory's
 * tokenizer is the model's own or the byte tokenizer, and which files and keys a checkpoint copies
 * from the directory with which its job began. */
#include <sys/stat.h>
#include "tests/lib/hf_save.h"
#include "tests/lib/model_dir.h"
#include "worker/hf/tokenizer.h"

/* ---- the tokenizer's owner ------------------------------------------------------------------- */

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
    put("ours", "tokenizer.json", text); /* a file that differs slightly is not ours */
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
    /* A tokenizer that is a link counts as the model's own, because the owner of its target is not
     * looked up. */
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
    CHECK_MSG(!strstr(text, "weightless"), "%s", text);
    CHECK(!unlink(in_dir("ours2", "model.safetensors")));
    CHECK(hf_describe(in_dir("ours2", ""), text, sizeof text, &e) > 0);
    CHECK_MSG(strstr(text, "\"weightless\":true"), "%s", text);
    put("ours2", "model.safetensors.index.json", "{\"weight_map\":{}}"); /* weights, all missing */
    CHECK(hf_describe(in_dir("ours2", ""), text, sizeof text, &e) < 0);
    CHECK_MSG(strstr(e.text, "is missing"), "%s", e.text);
}

static void test_ends(void)
{
    static const struct {
        const char *generation, *config;
        int n, first; /* if n is -1, the directory is refused */
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
    return hf_save_flat(in_dir(to, ""), m, &flat, &b, NULL, &e);
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
    CHECK_MSG(taken.n == N_OWN + 1, "%d files", taken.n); /* includes limit.json, in 16 pieces */
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
    CHECK(!config_read_dir(in_dir("hf", ""), &back, &e) && !hf_shape_diff(&back, &m));
    CHECK(tokenizer_of("hf") == TOKENIZER_OWN);
    /* If the saved directory is saved a second time, no file changes. */
    CHECK(!save("hf2", "hf", false, DT_F32, &m) && same_file("hf", "hf2", "config.json"));
    for (int i = 0; i < N_OWN; i++) CHECK(same_file("own", "hf2", own_files[i][0]));
    /* The job has changed some keys: rope_theta, in every spelling, and the dtype. */
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
    CHECK(!config_read_dir(in_dir("hf5", ""), &back, &e) && back.rope_theta == 5e4);
    check_config("hf5", (const char *const[]){"\"torch_dtype\":\"float32\"", NULL},
                 (const char *const[]){"\"rope_theta\":50000,\"torch", "eos_token_id", NULL});
    /* If there are two bases of RoPE, the key is the base of layers without a window. */
    struct model_shape two;
    put("v5", "config.json",
        "{\"model_type\":\"gemma3_text\",\"hidden_size\":48,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":8,"
        "\"intermediate_size\":40,\"vocab_size\":260,\"rope_parameters\":{"
        "\"full_attention\":{\"factor\":8.0,\"rope_theta\":1e6,\"rope_type\":\"linear\"},"
        "\"sliding_attention\":{\"rope_theta\":30000.0,\"rope_type\":\"default\"}}}");
    CHECK_MSG(!config_read_dir(in_dir("v5", ""), &two, &e), "%s", e.text);
    CHECK(two.rope_theta == 1e6 && two.rope_local == 3e4);
    two.rope_theta = 5e4;
    CHECK_MSG(!save("hf6", "v5", false, DT_F32, &two), "%s", e.text);
    CHECK(!config_read_dir(in_dir("hf6", ""), &back, &e) && !hf_shape_diff(&two, &back));
    check_config("hf6",
                 (const char *const[]){"\"full_attention\":{\"factor\":8.0,\"rope_theta\":50000,",
                                       "\"rope_theta\":30000.0", NULL},
                 (const char *const[]){"\"rope_parameters\":{\"rope_theta\"", "1e6", NULL});
    /* If the job has changed the rule of RoPE, the rule of the job is written as in a new file,
     * and the keys of the old rule are removed. */
    two.rope = (struct shape_rope){
        .kind = ROPE_YARN, .factor = 4, .original = 2048, .no_truncate = 1, .beta_slow = 2};
    CHECK_MSG(!save("hf7", "v5", false, DT_F32, &two), "%s", e.text);
    CHECK(!config_read_dir(in_dir("hf7", ""), &back, &e) && !hf_shape_diff(&two, &back));
    CHECK(back.rope.kind == ROPE_YARN && back.rope_theta == 5e4 && back.rope_local == 3e4);
    check_config("hf7", (const char *const[]){"\"rope_scaling\":{\"rope_type\":\"yarn\"", NULL},
                 (const char *const[]){"rope_parameters", "linear", NULL});
    /* The key is written under the name that the family uses, whether or not the old file had the
     * key. */
    for (int said = 0; said < 2; said++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"model_type\":\"modernbert\",\"hidden_size\":48,\"num_hidden_layers\":2,"
                 "\"num_attention_heads\":6,\"intermediate_size\":40,\"vocab_size\":260%s}",
                 said ? ",\"global_rope_theta\":20000" : "");
        put("v4", "config.json", text);
        CHECK_MSG(!config_read_dir(in_dir("v4", ""), &two, &e), "%s", e.text);
        CHECK(two.rope_theta == (said ? 2e4 : 16e4));
        two.rope_theta = 5e4;
        CHECK_MSG(!save("hf8", "v4", false, DT_F32, &two), "%s", e.text);
        CHECK(!config_read_dir(in_dir("hf8", ""), &back, &e) && !hf_shape_diff(&two, &back));
        check_config("hf8", (const char *const[]){"\"global_rope_theta\":50000", NULL},
                     (const char *const[]){"20000", "\"rope_theta\"", NULL});
    }
    /* The keys of a different model are not copied. */
    m.ffn_width = 44;
    CHECK(save("hf6", "own", false, DT_F32, &m) == -1 && e.code == ERR_CONFLICT);
    CHECK_MSG(strstr(e.text, "intermediate_size"), "%s", e.text);
}

/* Checks a job that has read text as bytes. After such a job, the old tokenizer and its ids are no
 * longer valid for the model. */
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
    /* A file that already belongs to the byte tokenizer is unchanged, including changes by
     * hand. */
    put("bytes", "tokenizer_config.json", "{\"chat_template\":\"mine\"}");
    CHECK(!save("bytes2", "bytes", true, DT_F32, &m));
    CHECK(same_file("bytes", "bytes2", "tokenizer_config.json"));
    CHECK(same_file("bytes", "bytes2", "config.json"));
    /* The directory of new weights gets the byte tokenizer if the job has read text. Otherwise it
     * gets neither a tokenizer nor ids. */
    CHECK(!save("new", NULL, true, DT_F32, &m) && tokenizer_of("new") == TOKENIZER_BYTE);
    CHECK(!save("ids", NULL, false, DT_F32, &m) && tokenizer_of("ids") == TOKENIZER_NONE);
    CHECK(!there("ids", "generation_config.json"));
    check_config("ids", (const char *const[]){"\"eos_token_id\":null", NULL},
                 (const char *const[]){"256,", NULL});
}

int main(void)
{
    model_dir_begin("test_model_files");
    RUN(test_recognised);
    RUN(test_described);
    RUN(test_ends);
    RUN(test_files);
    RUN(test_passes_through);
    RUN(test_bytes_take_its_place);
    model_dir_end();
    return test_done("model_files");
}
