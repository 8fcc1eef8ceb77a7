/* test_records: checks JSONL records of every kind, their masks, and faults in records. Also
 * checks sources of several formats in one directory. */
#include "api/core/job.h"
#include "tests/lib/files.h"

/* ---- JSONL ----------------------------------------------------------------------------------- */

static void check_mask(struct data *d, const char *want)
{
    uint8_t learn[64];
    const int64_t n = (int64_t)strlen(want);
    CHECK(data_read_mask(d, 0, n, learn, &e) == 0);
    for (int64_t i = 0; i < n; i++)
        CHECK_MSG(learn[i] == want[i] - '0', "token %lld: %d", (long long)i, learn[i]);
    for (int64_t i = 0; i < n; i++) /* reads the tokens again, one by one */
        CHECK(data_read_mask(d, i, 1, learn, &e) == 0 && *learn == want[i] - '0');
}

static void jsonl(const char *text, enum loss_on_id loss_on)
{
    puts_file("r.jsonl", text);
    one_source("r.jsonl", DATA_JSONL, 300, -1);
    spec->data.loss_on = loss_on;
}

static void test_prompt_completion(void)
{
    static const char text[] = "{\"prompt\":\"ab\",\"completion\":\"c\",\"id\":[7]}\n"
                               "{\"completion\":\"xy\\u00e9z\",\"prompt\":\"\"}\n"
                               "{\"prompt\":\"\",\"completion\":\"\"}\n"
                               "{\"prompt\":\"pqr\",\"completion\":\"\"}\n";
    static const int64_t ids[] = {'a',  'b', 'c', 256, 'x', 'y', 0xc3,
                                  0xa9, 'z', 256, 'p', 'q', 'r', 256};
    static const uint64_t ends[] = {4, 10, 14};
    jsonl(text, LOSS_ON_COMPLETION);
    struct data *d = prepare_open();
    check_data(d, ids, 14, ends, 3);
    check_mask(d, "00111111110001");
    CHECK(data_stats(d)->n_masked == 5 && data_masked(d) && data_stats(d)->n_skipped == 1);
    check_origin(d, 1, 2, strlen("{\"prompt\":\"ab\",\"completion\":\"c\",\"id\":[7]}\n"));
    check_origin(d, 2, 4, strlen(text) - strlen("{\"prompt\":\"pqr\",\"completion\":\"\"}\n"));
    char id[80];
    snprintf(id, sizeof id, "%s", data_stats(d)->id);
    data_close(d);
    jsonl(text, LOSS_ON_AUTO);
    d = prepare_open();
    check_data(d, ids, 14, ends, 3);
    CHECK(!data_masked(d) && data_stats(d)->n_masked == 0 && strcmp(id, data_stats(d)->id));
    CHECK(size_of(d, "loss.bin") == -1);
    check_mask(d, "11111111111111");
    data_close(d);
}

static void test_input_ids(void)
{
    static const int64_t ids[] = {1, 2, 3, 299, 4, 0, 6, 7, 8, 9};
    static const uint64_t ends[] = {3, 4, 6, 10};
    jsonl("{\"input_ids\":[1,2,3]}\n{\"input_ids\":[299],\"labels\":[299]}\n{\"input_ids\":[]}\n"
          "{\"labels\":[-100,0],\"input_ids\":[4,0]}\n"
          "{\"input_ids\":[6,7,8,9],\"loss_mask\":[0,1,true,false],\"labels\":[6,-100,8,-100]}",
          LOSS_ON_AUTO);
    struct data *d = prepare_open();
    check_data(d, ids, 10, ends, 4);
    check_mask(d, "1111010010");
    check_origin(d, 3, 5,
                 0 + strlen("{\"input_ids\":[1,2,3]}\n"
                            "{\"input_ids\":[299],\"labels\":[299]}\n"
                            "{\"input_ids\":[]}\n"
                            "{\"labels\":[-100,0],\"input_ids\":[4,0]}\n"));
    data_close(d);
}

/* Checks records that tokenizers of transformers have padded. An id that attention_mask hides is
 * not a token. */
static void test_padded(void)
{
    static const char text[] =
        "{\"attention_mask\":[0,0,1,1,1,0],\"input_ids\":[999,1,5,6,7,1],"
        "\"labels\":[-100,-100,-100,6,7,-100],\"position_ids\":[1,1,0,1,2,1],"
        "\"token_type_ids\":[3,0,0,0,0,0],\"special_tokens_mask\":[1,1,0,0,0,1],"
        "\"offset_mapping\":[[0,0],[0,0],[0,1],[1,2],[2,3],[0,0]],\"words\":[1,2],"
        "\"id\":7,\"source\":\"x\",\"meta\":{\"a\":[1,2,3,4,5,6]},\"none\":null}\n"
        "{\"input_ids\":[1,1],\"attention_mask\":[0,0],\"list\":[1]}\n"
        "{\"input_ids\":[8,1],\"attention_mask\":[true,false],\"loss_mask\":[1,1]}\n"
        "{\"input_ids\":[9,2],\"attention_mask\":[1,1],\"position_ids\":[0,1]}\n"
        "{\"input_ids\":[],\"attention_mask\":[],\"list\":[]}\n"
        "{\"input_ids\":[3],\"attention_mask\":null}\n";
    static const int64_t ids[] = {5, 6, 7, 8, 9, 2, 3};
    static const uint64_t ends[] = {3, 4, 6, 7};
    jsonl(text, LOSS_ON_AUTO);
    struct data *d = prepare_open();
    check_data(d, ids, 7, ends, 4);
    check_mask(d, "0111111");
    CHECK(data_stats(d)->n_skipped == 2);
    data_close(d);
    puts_file("r.jsonl", "{\"text\":\"ab\",\"attention_mask\":[[1]],\"list\":[1,2]}\n");
    d = prepare_open(); /* in a record with a text, these members are ignored */
    CHECK(data_stats(d)->n_tokens == 3);
    data_close(d);
}

static void test_padded_refused(void)
{
    static const struct {
        const char *beside, *want;
        enum err_code code;
    } bad[] = {
        {"\"attention_mask\":[1,0,1]", "attention_mask 1 is 0 and lies between ones",
         ERR_UNSUPPORTED},
        {"\"attention_mask\":[1,2,1]", "attention_mask 1 is 2: want 0 or 1", ERR_INVALID},
        {"\"attention_mask\":[1,1]", "attention_mask has 2 elements, input_ids 3", ERR_INVALID},
        {"\"attention_mask\":[[1],[1],[1]]", "\"attention_mask\" 0 is not a number", ERR_INVALID},
        {"\"attention_mask\":[1,1,1],\"attention_mask\":[1,1,1]", "occurs twice", ERR_INVALID},
        {"\"position_ids\":[0,1,0]", "position_ids 2 is 0", ERR_UNSUPPORTED},
        {"\"position_ids\":[1,2,3]", "position_ids 0 is 1", ERR_UNSUPPORTED},
        {"\"attention_mask\":[0,1,1],\"position_ids\":[0,1,2]", "position_ids 1 is 1",
         ERR_UNSUPPORTED},
        {"\"token_type_ids\":[0,0,1]", "token_type_ids 2 is 1", ERR_UNSUPPORTED},
        {"\"assistant_masks\":[0,1,1]",
         "\"assistant_masks\" is a list of 3 elements, as input_ids is, and is not read: take it "
         "out, or write the tokens to learn as \"labels\" or \"loss_mask\"",
         ERR_UNSUPPORTED},
        {"\"tokens\":[\"a\",\"b\",\"c\"]", "\"tokens\" is a list of 3 elements", ERR_UNSUPPORTED}};
    char text[256];
    /* before input_ids, and after it */
    for (size_t i = 0; i < 2 * (sizeof bad / sizeof *bad); i++) {
        const char *beside = bad[i / 2].beside, *ids = "\"input_ids\":[4,5,6]";
        snprintf(text, sizeof text, "{\"input_ids\":[1]}\n{%s,%s}\n", i % 2 ? ids : beside,
                 i % 2 ? beside : ids);
        jsonl(text, LOSS_ON_AUTO);
        refused(bad[i / 2].code, bad[i / 2].want);
        CHECK(strstr(e.text, "r.jsonl line 2: ") != NULL);
    }
}

/* Checks masks of loss.bin. The bit of the first masked token is at every position in a byte. */
static void test_mask_places(void)
{
    for (int before = 0; before < 18; before++) {
        char text[512] = "", want[64] = "";
        size_t n = (size_t)snprintf(text, sizeof text, "{\"input_ids\":[");
        for (int i = 0; i < before + 3; i++)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", i ? "," : "", i);
        n += (size_t)snprintf(text + n, sizeof text - n, "],\"loss_mask\":[");
        for (int i = 0; i < before + 3; i++) {
            want[i] = (char)('0' + (i != before));
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%c", i ? "," : "", want[i]);
        }
        snprintf(text + n, sizeof text - n, "]}\n");
        jsonl(text, LOSS_ON_AUTO);
        struct data *d = prepare_open();
        check_mask(d, want);
        CHECK(size_of(d, "loss.bin") == (before + 3 + 7) / 8);
        data_close(d);
    }
}

static void test_jsonl_hostile(void)
{
    static const struct {
        const char *text, *want;
        int loss_on;
    } bad[] = {
        {"{\"input_ids\":[1,300]}", "line 1: input_ids 1 is 300: the model's vocabulary has 300",
         0},
        {"{\"input_ids\":[-1]}", "line 1: input_ids 0 is -1", 0},
        {"{\"input_ids\":[1.5]}", "line 1: \"input_ids\" 0 is not a whole number", 0},
        {"{\"input_ids\":[1e30]}", "not a whole number", 0},
        {"{\"input_ids\":[99999999999999999999]}", "not a whole number", 0},
        {"{\"input_ids\":[[1]]}", "is not a number", 0},
        {"{\"input_ids\":[\"1\"]}", "is not a number", 0},
        {"{\"input_ids\":{}}", "is not an array", 0},
        {"{\"input_ids\":[1", "line 1: JSON byte", 0},
        {"{\"input_ids\":[1],\"input_ids\":[1]}", "occurs twice", 0},
        {"{\"input_ids\":[1],\"labels\":[1,2]}", "labels has 2 elements, input_ids 1", 0},
        {"{\"input_ids\":[1],\"loss_mask\":[]}", "loss_mask has 0 elements", 0},
        {"{\"input_ids\":[1],\"loss_mask\":[2]}", "loss_mask 0 is 2", 0},
        {"{\"input_ids\":[1,2],\"labels\":[1,3]}", "labels 1 is 3 and input_ids 1 is 2", 0},
        {"{\"input_ids\":[1],\"text\":\"x\"}", "which is to be learnt", 0},
        {"{\"prompt\":\"a\",\"completion\":\"b\",\"text\":\"x\"}", "which is to be learnt", 0},
        {"{\"prompt\":\"a\",\"completion\":\"b\",\"input_ids\":[1]}", "which is to be learnt", 0},
        {"{\"prompt\":\"a\"}", "\"prompt\" needs \"completion\" beside it", 0},
        {"{\"prompt\":[1]}", "\"prompt\" 0 is no message: want an object", 0},
        {"{\"prompt\":[{}]}", "\"prompt\" needs \"completion\" beside it", 0},
        {"{\"prompt\":[],\"prompt\":\"a\"}", "the member \"prompt\" occurs twice", 0},
        {"{\"prompt\":[{}],\"completion\":\"a\"}", "are a string and a list: write both as", 0},
        {"{\"prompt\":\"a\",\"completion\":[{}]}", "are a string and a list", 0},
        {"{\"prompt\":[{}],\"completion\":[{}],\"text\":\"x\"}", "which is to be learnt", 0},
        {"{\"conversations\":[{\"value\":\"a\",\"from\":\"human\"}]}",
         "convert it with jq -c '{messages: [.conversations[] | {role:", 0},
        {"{\"conversations\":[{\"role\":\"user\"}],\"id\":1}", "jq -c '.messages = .conversations'",
         0},
        {"{\"conversations\":[],\"id\":1}", "the member \"text\" is missing", 0},
        {"{\"question\":\"a\",\"answer\":\"b\"}",
         "jq -c '{prompt: .question, completion: .answer}'", 0},
        {"{\"chosen\":\"a\",\"prompt\":\"b\"}", "\"prompt\" needs \"completion\" beside it", 0},
        {"{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"c\"}",
         "the record is a preference, of \"chosen\" and \"rejected\", which only a training with "
         "objective.type \"dpo\" reads: set that, or give \"text\"",
         0},
        {"{\"prompt\":[{}],\"chosen\":[{}],\"rejected\":[]}", "objective.type \"dpo\"", 0},
        {"{\"chosen\":[],\"rejected\":[]}", "objective.type \"dpo\"", LOSS_ON_COMPLETION},
        {"{\"completion\":\"a\"}", "\"completion\" needs \"prompt\" beside it", 0},
        {"{\"prompt\":\"a\",\"completion\":7}",
         "the member \"completion\" is a number: write it as", 0},
        {"{\"labels\":[1]}", "the member \"text\" is missing", 0},
        {"{\"text\":\"x\"}", "line 1: the record is a text, and data.loss_on", LOSS_ON_COMPLETION},
        {"{\"input_ids\":[1]}", "without labels or loss_mask", LOSS_ON_COMPLETION}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        jsonl(bad[i].text, bad[i].loss_on);
        refused(ERR_INVALID, bad[i].want);
        CHECK(strstr(e.text, "r.jsonl line 1: ") != NULL);
    }
}

/* Checks files that are not text. They are recognised by their first bytes, and the error must
 * name their kind. Also checks that the error names a word that JSON does not have, such as
 * NaN. */
static void test_not_text(void)
{
    static const struct {
        const char *head, *want;
        size_t size;
        bool text; /* the file is refused as text, too */
    } rows[] = {
        {"\x1f\x8b\x08\0abc", "r.jsonl is a gzip file, which is not read: convert it: name it ", 7,
         true},
        {"PAR1\x15\x04\x15", "is a Parquet file", 7, true},
        {"\xff\xfe{\0", "text in UTF-16, which is not read: convert it: iconv", 4, true},
        {"{\0\"\0a\0", "JSON in UTF-16", 6, true},
        {"[\n{\"text\":1}]\n", "one JSON array is converted by jq -c '.[]'", 14, false},
        {"{\"text\":\"a\",\"score\":NaN}", "NaN and Infinity are not JSON: write null", 25, false},
        {"{\"text\":\"a\",\"x\":[-Infinity]}", "are not JSON: write null", 29, false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put("r.jsonl", rows[i].head, rows[i].size);
        one_source("r.jsonl", DATA_JSONL, 300, -1);
        refused(ERR_INVALID, rows[i].want);
        if (!rows[i].text) continue;
        one_source("r.jsonl", DATA_TEXT, 300, -1);
        refused(ERR_INVALID, rows[i].want);
    }
    put("r.txt", "PK\3\4zip", 7);
    one_source("*.txt", DATA_TEXT, 300, -1);
    refused(ERR_INVALID, "r.txt is a ZIP archive");
    CHECK(!unlink(in_dir("r.txt")));
    one_source("org/set", DATA_TEXT, 300, -1);
    refused(ERR_NOT_FOUND, "hf download --repo-type dataset org/set");
}

/* Checks a record of ids whose line has many megabytes. */
static void test_long_ids(void)
{
    const int n = small_tests() ? 200000 : 2000000;
    char *text = malloc((size_t)n * 8 + 64), *at = text;
    at += sprintf(at, "{\"input_ids\":[");
    for (int i = 0; i < n; i++) at += sprintf(at, "%s%d", i ? "," : "", i % 65000);
    at += sprintf(at, "]}\n");
    put("r.jsonl", text, (size_t)(at - text));
    free(text);
    one_source("r.jsonl", DATA_JSONL, 65000, -1);
    struct data *d = prepare_open();
    CHECK(data_stats(d)->n_tokens == n && data_stats(d)->n_documents == 1);
    int32_t got[2];
    CHECK(data_read(d, n - 2, 2, got, &e) == 0 && got[1] == (n - 1) % 65000);
    data_close(d);
}

/* ---- mixtures of formats --------------------------------------------------------------------- */

/* Checks a job with sources of every kind, and then with an eval set. */
static void test_sets(void)
{
    static const int64_t ids[] = {5, 50256, 6, 50256};
    begin();
    add_ints(ids, 4, 2);
    end("n.bin");
    puts_file("t.txt", "text");
    puts_file("v.jsonl", "{\"text\":\"v\"}\n{\"text\":\"vv\"}\n");
    one_source("t.txt", DATA_TEXT, 50257, -1);
    source_add("n.bin", DATA_NANOGPT, NULL);
    source_in(&spec->eval.data[spec->eval.n_data++], "v.jsonl", DATA_JSONL, NULL);
    struct data *d = prepare_open();
    const struct data_stats *s = data_stats(d);
    CHECK(s->n_tokens == 9 && s->n_documents == 3 && s->n_bytes == 4);
    CHECK(s->eval_tokens == 5 && s->eval_documents == 2 && s->eval_bytes == 3);
    CHECK(s->max_token == 50256 && data_n_sources(d) == 3);
    CHECK(data_source(d, 2)->set == SET_EVAL && data_source(d, 2)->first_document == 3);
    struct data_origin at;
    CHECK(data_origin(d, 4, &at, &e) == 0 && at.source == 2 && at.record == 2);
    CHECK(strstr(data_file(d, at.file), "/v.jsonl") != NULL);
    CHECK(!*data_file(d, 3));
    char id[80];
    snprintf(id, sizeof id, "%s", s->id);
    data_close(d);
    struct data_stats st; /* the id of the data depends on weights and on the eval set */
    spec->data.train[0].weight = spec->data.train[1].weight = 1;
    CHECK(prepare(&st) == 0 && strcmp(st.id, id));
    spec->data.train[0].weight = spec->data.train[1].weight = 0;
    spec->eval.n_data = 0;
    CHECK(prepare(&st) == 0 && strcmp(st.id, id));
    spec->eval.n_data = 1;
    puts_file("v.jsonl", "\n");
    CHECK(prepare(&st) == -1 && !strcmp(e.field, "eval.data"));
    puts_file("v.jsonl", "x");
    CHECK(prepare(&st) == -1 && !strcmp(e.field, "eval.data.0.path"));
}

/* Checks data that was prepared for a large vocabulary. A job with a smaller vocabulary must be
 * refused, and the error must have the position of an id that is too large. */
static void test_vocab(void)
{
    static const int64_t ids[] = {5, 50256, 6};
    struct data_stats st;
    begin();
    add_ints(ids, 3, 2);
    end("n.bin");
    one_source("n.bin", DATA_NANOGPT, 50257, -1);
    CHECK(prepare(&st) == 0);
    spec->model.shape.vocab = 50256;
    CHECK(prepare(&st) == -1 && e.code == ERR_INVALID);
    CHECK_MSG(strstr(e.text, "n.bin: token 1 is 50256"), "%s", e.text);
    one_source("n.bin", DATA_OPENAI_BATCH, 50257, -1);
    CHECK(prepare(&st) == -1 && e.code == ERR_UNSUPPORTED && !strcmp(e.field, "data.train.0"));
}

int main(void)
{
    datadir_begin("records");
    RUN(test_prompt_completion);
    RUN(test_input_ids);
    RUN(test_padded);
    RUN(test_padded_refused);
    RUN(test_mask_places);
    RUN(test_jsonl_hostile);
    RUN(test_not_text);
    RUN(test_long_ids);
    RUN(test_sets);
    RUN(test_vocab);
    return datadir_end("records");
}
