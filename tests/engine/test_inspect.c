/* test_inspect.c: checks the inspection of bad model directories, for example with truncated
 * files, loops of links, or false values. Each fault must be reported by a sentence that names the
 * file and the tensor or key. One report must have all faults of a directory. */
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "tests/lib/model_dir.h"
#include "worker/hf/inspect.h"
#include "worker/hf/safetensors.h"

static struct faults f;
static struct hf_summary s;

static void inspect(const char *dir)
{
    f.n = 0;
    hf_inspect(in_dir(dir, ""), &s, &f);
    for (int i = 0; i < faults_kept(&f); i++) {
        CHECK(f.fault[i].code && *f.fault[i].text);
        if (getenv("V")) printf("    %s\n", f.fault[i].text);
    }
}

/* Tells whether one fault has both texts. */
static bool says(const char *a, const char *b)
{
    for (int i = 0; i < faults_kept(&f); i++)
        if (strstr(f.fault[i].text, a) && strstr(f.fault[i].text, b)) return true;
    return false;
}

static void check_says(const char *dir, const char *a, const char *b)
{
    CHECK_MSG(says(a, b), "%s: no fault of %d names %s and %s; the first: %s", dir, f.n, a, b,
              f.n ? f.fault[0].text : "none");
}

/* Writes a safetensors file that consists of the header size, the header and zero bytes of data.
 * If header_size is 0, the header's real size is written. */
static void put_weights(const char *dir, const char *name, const char *header, size_t data,
                        uint64_t header_size)
{
    const uint64_t n = header_size ? header_size : strlen(header);
    CHECK(!file_make_dir(in_dir(dir, ""), &e));
    FILE *out = fopen(in_dir(dir, name), "we");
    for (int i = 0; out && i < 8; i++) fputc((int)(n >> 8 * i & 255), out);
    CHECK(out && fputs(header, out) >= 0);
    for (size_t i = 0; out && i < data; i++) fputc(0, out);
    CHECK(out && !fclose(out));
}

static void put_index(const char *dir, const char *map)
{
    char text[2048];
    snprintf(text, sizeof text, "{\"metadata\":{},\"weight_map\":{%s}}", map);
    put(dir, "model.safetensors.index.json", text);
}

static void test_good(void)
{
    make_own("good");
    inspect("good");
    CHECK_MSG(!f.n, "%d: %s", f.n, f.fault[0].text);
    CHECK(s.known && s.n_params > 0 && s.weights_size == 4 * s.n_params && s.ends.n == 2);
    CHECK_STR(s.family, "llama");
    put("good", "generation_config.json", "{\"eos_token_id\":260}");
    inspect("good");
    CHECK(f.n == 1 && s.loads); /* an id that ends texts and never occurs */
    check_says("good", "eos_token_id 260", "mend generation_config.json");
    CHECK_STR(s.dtypes, "F32");
    CHECK(s.tokenizer == TOKENIZER_OWN);
}

/* Checks a directory in which config.json, two shards, a tensor and the ends of texts are wrong.
 * All of these faults must be reported. */
static void test_all_at_once(void)
{
    put("all", "config.json",
        "{\"model_type\":\"llama\",\"hidden_size\":-4,\"rope_theta\":\"x\",\"wings\":2,"
        "\"hidden_act\":\"gelu\",\"vocab_size\":300}");
    put_index("all", "\"a\":\"1.safetensors\",\"b\":\"2.safetensors\",\"c\":\"3.safetensors\"");
    put_weights(
        "all", "1.safetensors",
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]},"
        "\"d\":{\"dtype\":\"F8_E4M3\",\"shape\":[4],\"data_offsets\":[4,8]},"
        "\"e\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[8,9]}}",
        9, 0);
    put_weights("all", "3.safetensors", "{", 0, 0);
    put("all", "generation_config.json", "{\"eos_token_id\":\"x\"}");
    inspect("all");
    check_says("all", "config.json", "hidden_size");
    check_says("all", "config.json", "rope_theta");
    check_says("all", "config.json", "wings: is not a key of this family: remove it, if");
    check_says("all", "config.json", "hidden_act: \"gelu\" is not supported, only \"silu\": use");
    check_says("all", "1.safetensors", "tensor \"a\"");
    check_says("all", "1.safetensors", "tensor \"d\" has element type F8_E4M3; convert");
    check_says("all", "1.safetensors", "tensor \"e\": the product of its shape overflows");
    check_says("all", "2.safetensors", "No such file");
    check_says("all", "3.safetensors", "its header is empty: fetch the file again");
    check_says("all", "generation_config.json", "eos_token_id");
    CHECK_MSG(f.n == 10 && !s.known, "%d faults", f.n);
}

/* Checks that the fault of a key names the key, its value and the fix. */
static void test_values(void)
{
    static const struct {
        const char *keys, *says;
    } v[] = {
        {"\"hidden_size\":\"64\"", "hidden_size must be an integer from 2 to 1048576, not \"64\""},
        {"\"hidden_size\":48.5", "hidden_size must be an integer from 2 to 1048576, not 48.5"},
        {"\"hidden_size\":{\"a\":1}",
         "hidden_size must be an integer from 2 to 1048576, not an object"},
        {"\"hidden_size\":true", "hidden_size must be an integer from 2 to 1048576, not true"},
        {"\"hidden_size\":false", "hidden_size must be an integer from 2 to 1048576, not false"},
        {"\"rms_norm_eps\":\"a\\u001bb\"", "not \"a\\u001bb\""},
        {"\"rms_norm_eps\":\"a\xc2\x9b"
         "31m\x7f\"",
         "not \"a??31m?\""},
        {"\"rope_scaling\":{\"a\\u001b[2J\\u009b\":1}",
         "rope_scaling: a?[2J?? is not supported: use a model that does without it"},
        /* a colon in a quoted value must not be read as the end of a key's name or as the
         * beginning of a fix */
        {"\"hidden_act\":\"mi: sh\"",
         "hidden_act: \"mi: sh\" is not supported, only \"silu\": use a "
         "model that does without it"},
        {"\"hidden_act\":\"a wings: b\",\"wings\":2",
         "wings: is not a key of this family: remove it, if the model computes the same without "
         "it"},
        {"\"quantization_config\":{\"quant_method\":\"a:b\"}",
         "quant_method \"a:b\" is not supported: save the weights as bf16"},
        {"\"hidden_act\":null", "hidden_act must be a string, not null"},
        {"\"tie_word_embeddings\":\"yes\"", "must be true or false, not \"yes\""},
        {"\"hidden_act\":\"mish\"", "hidden_act: \"mish\" is not supported, only \"silu\": use a "
                                    "model that does without it"},
        {"\"num_key_value_heads\":4",
         "num_key_value_heads 4 does not divide num_attention_heads 6: "
         "change one of them"},
        {"\"wings\":2", "wings: is not a key of this family: remove it, if the model computes the "
                        "same without it"},
        {"\"is_encoder_decoder\":true", "true is not supported: use a model that does without it"},
    };
    char text[1024];
    make_own("values");
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        snprintf(text, sizeof text,
                 "{\"model_type\":\"llama\",%s\"num_hidden_layers\":2,\"num_attention_heads\":6,%s"
                 "\"intermediate_size\":40,\"vocab_size\":260,%s}",
                 strstr(v[i].keys, "hidden_size") ? "" : "\"hidden_size\":48,",
                 strstr(v[i].keys, "num_key") ? "\"head_dim\":8," : "\"num_key_value_heads\":2,",
                 v[i].keys);
        put("values", "config.json", text);
        inspect("values");
        check_says(v[i].keys, "config.json: ", v[i].says);
    }
    put("values", "config.json", "{\"model_type\":\"llama\",\n \"hidden_size\":48,,\n}");
    inspect("values");
    check_says("values", "config.json: JSON byte 41 (line 2, column 19): ",
               "mend the file there, or fetch it again");
    /* then config.json is searched for the ends of texts */
    put("values", "generation_config.json", "{}");
    inspect("values");
    CHECK_MSG(f.n == 1 && !s.ends_known, "%d faults", f.n);
    put("values", "config.json", "{\"model_type\":\"ma\\u001b[2Jmba\"}");
    inspect("values");
    check_says("values", "model_type \"\" is not supported", "config.json");
}

/* Checks a directory in which some weights cannot be read. The report must have the size of the
 * weights that can be read, and the reason of the failure. */
static void test_not_read(void)
{
    make_own("half");
    inspect("half");
    CHECK(!s.weights_fault.code);
    CHECK(!truncate(in_dir("half", "model.safetensors"), 1000));
    inspect("half");
    CHECK(!s.weights_size && strstr(s.weights_fault.text, "truncated"));
    put("shards", "config.json", own_config);
    put_index("shards", "\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"");
    put_weights("shards", "1.safetensors",
                "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, 0);
    inspect("shards");
    CHECK(s.weights_size == 8 && strstr(s.weights_fault.text, "2.safetensors"));
    /* config.json has more faults than a report holds, and the weights have one fault */
    char keys[2048] = "{\"model_type\":\"llama\"";
    for (int i = 0; i < FAULTS + 4; i++) sprintf(keys + strlen(keys), ",\"wing%d\":1", i);
    put("shards", "config.json", strcat(keys, "}"));
    inspect("shards");
    CHECK_MSG(f.n > FAULTS + 4 && strstr(s.weights_fault.text, "2.safetensors"), "%d: %s", f.n,
              s.weights_fault.text);
}

/* Checks a directory whose files can be opened but not listed. The report must say that the kind
 * of its tokenizer is unknown, and give the reason. */
static void test_unlisted(void)
{
    const uid_t user = geteuid();
    make_own("unlisted");
    CHECK(!chmod(in_dir("unlisted", "config.json"), 0644));
    CHECK(!chmod(in_dir("unlisted", "model.safetensors"), 0644));
    CHECK(!chmod(in_dir("", ""), 0711) && !chmod(in_dir("unlisted", ""), 0111));
    if (!user) CHECK(!seteuid(65534)); /* the superuser may list everything */
    inspect("unlisted");
    if (!user) CHECK(!seteuid(user));
    CHECK(s.known);
    CHECK_MSG(f.n == 1 && strstr(s.tokenizer_fault.text, "Permission denied"), "%d: %s", f.n,
              s.tokenizer_fault.text);
    CHECK(!chmod(in_dir("unlisted", ""), 0755));
}

/* Checks tensors that do not fit the model's shape. Each of them must cause one fault, which names
 * the tensor's file. */
static void test_tensors(void)
{
    struct st_file *w;
    make_own("tensors");
    put("tensors", "config.json",
        "{\"model_type\":\"llama\",\"hidden_size\":48,\"num_hidden_layers\":3,"
        "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":8,"
        "\"intermediate_size\":44,\"vocab_size\":260,\"tie_word_embeddings\":true}");
    inspect("tensors");
    check_says("tensors", "model.safetensors: model.layers.2.mlp.up_proj.weight is missing",
               "mend config.json");
    check_says("tensors",
               "model.safetensors: model.layers.0.mlp.gate_proj.weight is [40,48], want "
               "[44,48]",
               "two models");
    /* the model is tied, so its missing head is not a fault */
    CHECK_MSG(f.n == 9 + 6, "%d faults", f.n);
    w = st_open(in_dir("tensors", "model.safetensors"), &e);
    CHECK(w && s.weights_size > 0);
    st_close(w);
    /* more faults than are kept; all of them are counted */
    put("tensors", "config.json",
        "{\"model_type\":\"llama\",\"hidden_size\":48,\"num_hidden_layers\":30,"
        "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":8,"
        "\"intermediate_size\":40,\"vocab_size\":260}");
    inspect("tensors");
    CHECK(f.n == 28 * 9 && faults_kept(&f) == FAULTS);
    put("tensors", "config.json",
        "{\"model_type\":\"llama\",\"hidden_size\":48,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"head_dim\":8,"
        "\"intermediate_size\":40,\"vocab_size\":260,\"eos_token_id\":260}");
    put("tensors", "generation_config.json", "{}");
    inspect("tensors");
    check_says("tensors", "model.layers.1.self_attn.q_proj.weight is unexpected", "config.json");
    check_says("tensors", "eos_token_id 260",
               "vocab_size 260, so that no text ends at it: mend "
               "config.json");
    CHECK(!s.loads);
    CHECK_MSG(f.n == 9 + 1, "%d faults", f.n);
}

/* Checks directories without weights, or with weights that are not supported. The report of each
 * directory must have one fault, which names the fix. */
static void test_absent(void)
{
    inspect("absent");
    check_says("absent", "absent cannot be looked at: No such file",
               "give the path of a directory");
    CHECK_MSG(f.n == 1 && s.unreadable, "%d faults", f.n);
    make_own("pickles");
    CHECK(!rename(in_dir("pickles", "model.safetensors"), in_dir("pickles", "pytorch_model.bin")));
    inspect("pickles");
    check_says("pickles", "no model.safetensors, but pytorch_model.bin, which is not read",
               "convert it once in that directory: python3 -c \"import glob, torch");
    check_says("pickles", "items()}, 'model.safetensors')\"", "pickles");
    CHECK_MSG(f.n == 1 && !says("fetch the file again", ""), "%d faults", f.n);
    CHECK(!unlink(in_dir("pickles", "pytorch_model.bin")));
    inspect("pickles");
    check_says("pickles", "no index of shards: add them, or give model.init \"random\"", "pickles");
    CHECK_MSG(f.n == 1 && !says("fetch the file again", ""), "%d faults", f.n);
}

/* Checks that an index that cannot be read causes exactly one fault. Then removes the index. */
static void check_no_index(const char *why)
{
    inspect("index");
    check_says("index", "model.safetensors.index.json", why);
    CHECK_MSG(f.n == 1 && !s.loads && strstr(s.weights_fault.text, why), "%d faults, loads %d", f.n,
              s.loads);
    CHECK(!remove(in_dir("index", "model.safetensors.index.json")));
}

/* Checks an index that cannot be read, and the contents of indexes. */
static void test_index(void)
{
    static const struct {
        const char *map, *a, *b;
    } v[] = {
        {"\"a\":\"../good/model.safetensors\"", "index.json", "not a plain file name"},
        {"\"a\":\"/etc/passwd\"", "index.json", "not a plain file name"},
        {"\"a\":\"\"", "index.json", "not a plain file name"},
        {"\"a\":\"1\\n.safetensors\"", "index.json", "not a plain file name"},
        {"\"a\\u001b[2J\":\"1.safetensors\"", "index.json", "control character"},
        {"\"a\":5", "index.json", "the file of a is not a string"},
        {"\"a\":\"model.safetensors.index.json\"", "model.safetensors.index.json", "a header of"},
        {"\"a\":\"loop\"", "/loop", "Too many levels"},
        {"\"a\":\"folder\"", "/folder", "regular file"},
        {"\"a\":\"pipe\"", "/pipe", "regular file"},
        {"\"model.norm.weight\":\"1.safetensors\"", "model.norm.weight is not in 1.safetensors",
         "model.safetensors.index.json"},
    };
    put("index", "config.json", own_config);
    CHECK(!symlink("loop", in_dir("index", "loop")) && !mkdir(in_dir("index", "folder"), 0700));
    CHECK(!mkfifo(in_dir("index", "pipe"), 0600));
    put_weights("index", "1.safetensors", "{}", 0, 0);
    CHECK(!symlink("gone", in_dir("index", "model.safetensors.index.json")));
    check_no_index("No such file or directory: fetch the file again");
    CHECK(!mkdir(in_dir("index", "model.safetensors.index.json"), 0700));
    check_no_index("regular file");
    CHECK(!mkfifo(in_dir("index", "model.safetensors.index.json"), 0600));
    check_no_index("regular file");
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        put_index("index", v[i].map);
        inspect("index");
        check_says(v[i].map, v[i].a, v[i].b);
    }
    put("index", "model.safetensors.index.json",
        "{\"weight_map\":{\"a\":\"1\"},\"weight_map\":{}}");
    inspect("index");
    check_says("index", "weight_map occurs twice", "index.json");
}

/* Checks the faults within one file. */
static void test_file(void)
{
    static const struct {
        const char *header;
        size_t data;
        uint64_t size;
        const char *a, *b;
    } v[] = {
        {"{}", 0, UINT64_MAX, "model.safetensors", "the format's limit"},
        {"{}", 0, 50000000, "model.safetensors", "truncated inside its header"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 15, 0, "tensor \"t\"",
         "beyond the end of the file"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 17, 0,
         "model.safetensors", "17 bytes of tensors, the header describes 16"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[8,24]}}", 24, 0, "tensor \"t\"",
         "leaves a hole"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", 16, 0,
         "tensor \"t\"", "shape"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,16]}}", 16, 0,
         "tensor \"t\"", "shape"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807],\"data_offsets\":[0,16]}}", 16,
         0, "tensor \"t\"", "its size overflows"},
        {"{\"t\\u001b[2J\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, 0,
         "the name of tensor 0 holds a control character", "fetch the file again"},
        {"{\"t\":{\"t\":{\"t\":{\"t\":{\"t\":{\"t\":{\"t\":{\"t\":{\"t\":1}}}}}}}}}", 0, 0,
         "tensor \"t\"", "missing"},
    };
    put("file", "config.json", own_config);
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        put_weights("file", "model.safetensors", v[i].header, v[i].data, v[i].size);
        inspect("file");
        check_says(v[i].header, v[i].a, v[i].b);
        CHECK_MSG(f.n == 1 && s.known, "%s: %d faults", v[i].header, f.n);
    }
}

/* Checks directories whose config.json is missing or bad. */
static void test_config(void)
{
    char *huge = malloc((5 << 20) + 1), deep[1024] = "{\"model_type\":\"llama\",\"_x\":";
    CHECK(!mkdir(in_dir("none", ""), 0700));
    inspect("none");
    check_says("none", "has no config.json", "give a directory");
    check_says("none", "has no model.safetensors", "add them");
    CHECK(!s.known && !s.n_params && !*s.family);
    put("lora", "adapter_config.json", "{}");
    put("lora", "adapter_model.safetensors", "");
    inspect("lora");
    check_says("lora", "lora has no config.json, but an adapter_config.json",
               "give this adapter in model.adapter, and the model");
    CHECK_MSG(f.n == 1 && !s.known, "%d faults", f.n);
    inspect("nowhere");
    CHECK(f.n == 1);
    memset(deep + strlen(deep), '[', 500);
    put("deep", "config.json", deep);
    inspect("deep");
    check_says("deep", "config.json", "deep");
    memset(huge, ' ', 5 << 20);
    huge[0] = '{', huge[(5 << 20) - 1] = '}', huge[5 << 20] = 0;
    put("huge", "config.json", huge);
    inspect("huge");
    check_says("huge", "config.json", "bytes");
    free(huge);
    CHECK(!mkdir(in_dir("fifo", ""), 0700) && !mkfifo(in_dir("fifo", "config.json"), 0600));
    inspect("fifo");
    check_says("fifo", "config.json", "regular file");
    put("cut", "config.json", "{\"model_type\":\"llama\",\"hidden_size\":48,\"num_att");
    inspect("cut");
    check_says("cut", "config.json", "JSON");
    put("foreign", "config.json", "{\"model_type\":\"mamba2\",\"hidden_size\":48}");
    inspect("foreign");
    check_says("foreign", "model_type \"mamba2\" is not supported", "config.json");
    CHECK_STR(s.model_type, "mamba2");
}

/* Checks shards whose headers together would fill the memory. They must be refused before much
 * memory is used. */
static void test_memory(void)
{
    enum { TENSORS = 60000, SHARDS = 8 };
    char *header = malloc(TENSORS * 64 + 16), map[512] = "";
    size_t n = (size_t)sprintf(header, "{");
    for (int i = 0; i < TENSORS; i++)
        n += (size_t)sprintf(header + n,
                             "%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":"
                             "[0,0]}",
                             i ? "," : "", i);
    sprintf(header + n, "}");
    put("many", "config.json", own_config);
    for (int i = 0; i < SHARDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "%d.safetensors", i);
        put_weights("many", name, header, 0, 0);
        sprintf(map + strlen(map), "%s\"%d\":\"%s\"", i ? "," : "", i, name);
    }
    put_index("many", map);
    inspect("many");
    check_says("many", "model.safetensors.index.json", "more than 262144 tensors together");
    free(header);
}

int main(void)
{
    model_dir_begin("test_inspect");
    RUN(test_good);
    RUN(test_all_at_once);
    RUN(test_values);
    RUN(test_not_read);
    RUN(test_unlisted);
    RUN(test_tensors);
    RUN(test_absent);
    RUN(test_index);
    RUN(test_file);
    RUN(test_config);
    RUN(test_memory);
    model_dir_end();
    return test_done("inspect");
}
