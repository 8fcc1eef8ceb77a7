/* Compares meta.json of prepared data with tests/golden/records/meta.txt, byte by byte. There are
 * texts with all members, with the members of version 0.2.0, with only the members that every file
 * has, and with unknown members. meta_edited.txt has the errors for edited texts.
 * tests: needs golden */
#include "tests/lib/stored.h"

#include "worker/data/meta.h"

static struct meta_file files[] = {{.path = "/d/a \"b\"\t\xC3\xA9.txt", .size = INT64_MAX},
                                   {.path = "c.jsonl", .size = 0, .source = 63}};

static void source_set(struct meta *m, int i, int set, char *path, int64_t n_documents)
{
    m->source[i] = (struct meta_source){
        .range = {.set = set, .weight = i / 3.0, .n_documents = n_documents},
        .path = path,
        .format = i == 1 ? INT32_MAX : 2 * (i == 2),
        .n_tokens = (int64_t)1 << (60 - i)};
    if (i)
        m->source[i].range.first_document = m->source[i - 1].range.first_document +
                                            m->source[i - 1].range.n_documents;
    m->n_sources = i + 1;
}

static void part_set(struct meta *m, enum meta_part_id id, int64_t size)
{
    m->part[id].size = size;
    digits(m->part[id].sha256, (char)('a' + id));
}

/* Sets the members of version 0.2.0. There are 5 documents with 40 tokens together, and 3
 * documents with 8 tokens together for evaluation. */
static void meta_all(struct meta *m)
{
    *m = (struct meta){.width = 4, .max_file = 1, .max_pos = INT64_MAX};
    m->stats = (struct data_stats){.n_tokens = 40,
                                   .n_documents = 5,
                                   .n_bytes = 123,
                                   .eval_tokens = 8,
                                   .eval_documents = 3,
                                   .eval_bytes = ((int64_t)1 << 53) + 1,
                                   .own_tokens = true,
                                   .n_masked = 6,
                                   .n_skipped = 7,
                                   .max_token = INT32_MAX,
                                   .unigram_entropy = 2.0 / 3};
    digits(m->tokenizer, 'f');
    part_set(m, PART_TOKENS, 4 * 48);
    part_set(m, PART_DOCUMENTS, 8 * 8);
    part_set(m, PART_LOSS, 6);
    part_set(m, PART_ORIGINS, 8 * (int64_t)sizeof(struct data_origin));
    part_set(m, PART_BYTES, 4 * 48);
    source_set(m, 0, SET_TRAIN, "a\\*.txt", 2);
    source_set(m, 1, SET_TRAIN, "c.jsonl", 3);
    source_set(m, 2, SET_EVAL, "", 3);
    for (int i = 0; i < 2; i++) digits(files[i].sha256, (char)('0' + i));
    m->n_files = 2, m->file = files;
}

/* Sets the members for one document of one token, with bytes as tokens. */
static void meta_none(struct meta *m)
{
    *m = (struct meta){.width = 2, .stats = {.n_tokens = 1, .n_documents = 1}};
    part_set(m, PART_TOKENS, 2);
    part_set(m, PART_DOCUMENTS, 8);
    part_set(m, PART_ORIGINS, (int64_t)sizeof(struct data_origin));
    m->part[PART_LOSS].size = m->part[PART_BYTES].size = -1;
    source_set(m, 0, SET_TRAIN, "a", 1);
}

static const char *meta_text(const struct meta *m)
{
    struct err e = {0};
    CHECK_MSG(!meta_write(m, dir, &e), "%s", e.text);
    return stored("meta.json");
}

/* Reads the text, writes it again, and checks that the result equals `want`. Unknown members are
 * not written. */
static void check_meta(const char *text, const char *want, bool own_tokens)
{
    static struct meta got;
    struct err e = {0};
    if (!text) return;
    put("meta.json", text);
    CHECK_MSG(!meta_read(dir, &got, &e), "%s: %s", text, e.text);
    CHECK_STR(meta_text(&got), want);
    CHECK(got.stats.own_tokens == own_tokens);
    for (int i = 0; i < PART_N; i++) CHECK((got.part[i].size == -1) == !*got.part[i].sha256);
    meta_fini(&got);
}

static void hold_meta(const char *name, const struct meta *m)
{
    char *plain = strdup(meta_text(m)), unknown[64];
    check_meta(records_hold(name, plain), plain, m->stats.own_tokens);
    snprintf(unknown, sizeof unknown, "%s.unknown", name);
    /* The objects in the member "parts" must have no unknown member here. These objects are found
     * by their last member, which is a text. */
    const char *more = edited(with_unknown(plain), "\"" STORED_UNKNOWN, "\"}", true);
    check_meta(records_hold(unknown, more), plain, m->stats.own_tokens);
    free(plain);
}

static void test_meta(void)
{
    static struct meta m;
    records_open("tests/golden/records/meta.txt");
    meta_all(&m);
    hold_meta("previous", &m);
    m.stats.n_after = 64;
    hold_meta("all", &m);
    meta_none(&m);
    hold_meta("none", &m);
    records_close();
}

static const struct edit meta_edits[] = {
    {"not_object", "{\"version\"", "[{\"version\""},
    {"cut", "\"source\":63}]}", "\"source\":63}]"},
    {"more", "\"source\":63}]}", "\"source\":63}]}{}"},
    {"of_version_3", "\"version\":2", "\"version\":3"},
    {"no_version", "\"version\":2,", ""},
    {"version_text", "\"version\":2", "\"version\":\"2\""},
    {"tokenizer_number", "\"tokenizer\":\"f", "\"tokenizer\":1,\"f\":\""},
    {"tokenizer_long", "\"tokenizer\":\"f", "\"tokenizer\":\"ff"},
    {"tokenizer_empty", "\"tokenizer\":\"f", "\"tokenizer\":\"\",\"f\":\""},
    {"no_tokenizer", "\"tokenizer\":", "\"f\":"},
    {"width_3", "\"width\":4", "\"width\":3"},
    {"width_negative", "\"width\":4", "\"width\":-4"},
    {"width_large", "\"width\":4", "\"width\":4294967300"},
    {"width_real", "\"width\":4", "\"width\":4.5"},
    {"train_list", "\"train\":{\"n_tokens\":40", "\"train\":[],\"x\":{\"n_tokens\":40"},
    {"train_real", "\"n_tokens\":40", "\"n_tokens\":40.5"},
    {"no_tokens", "\"n_tokens\":40,", ""},
    {"no_documents", "\"n_documents\":5,", "\"n_documents\":0,"},
    {"eval_negative", "\"n_documents\":3,\"n_bytes\":9", "\"n_documents\":-3,\"n_bytes\":9"},
    {"no_masked", "\"n_masked\":6,", ""},
    {"max_token_negative", "\"max_token\":2147483647", "\"max_token\":-1"},
    {"max_token_large", "\"max_token\":2147483647", "\"max_token\":2147483648"},
    {"max_file_negative", "\"max_token_file\":1", "\"max_token_file\":-1"},
    {"max_pos_text", "\"max_token_pos\":9", "\"max_token_pos\":\"9\",\"x\":9"},
    {"entropy_null", "\"unigram_entropy\":0.6", "\"unigram_entropy\":null,\"x\":0.6"},
    {"entropy_integer", "\"unigram_entropy\":0.6", "\"unigram_entropy\":1,\"x\":0.6"},
    {"after_65", "\"n_after\":64", "\"n_after\":65"},
    {"after_negative", "\"n_after\":64", "\"n_after\":-1"},
    {"parts_object", "\"parts\":[", "\"parts\":{},\"x\":["},
    {"parts_number", "\"parts\":[", "\"parts\":[1,"},
    {"parts_list", "\"parts\":[", "\"parts\":[[],"},
    {"parts_empty", "\"parts\":[", "\"parts\":[{},"},
    {"part_unknown", "loss.bin", "lost.bin"},
    {"part_name_number", "\"name\":\"loss.bin\"", "\"name\":1"},
    {"part_no_size", "\"size\":6,", ""},
    {"part_negative", "\"size\":6,", "\"size\":-1,"},
    {"part_other_size", "\"size\":6,", "\"size\":7,"},
    {"part_no_digest", "\"size\":6,\"sha256\"", "\"size\":6,\"sha512\""},
    {"part_digest_long", "\"size\":6,\"sha256\":\"", "\"size\":6,\"sha256\":\"c"},
    {"part_more", "\"size\":6,", "\"size\":6,\"of_a_later_version\":7,"},
    {"no_loss", "\"name\":\"loss.bin\"", "\"name\":\"bytes.bin\",\"size\":192},{\"name\":\"x\""},
    {"set_unknown", "\"set\":\"eval\"", "\"set\":\"test\""},
    {"set_number", "\"set\":\"eval\"", "\"set\":1"},
    {"no_set", "\"set\":\"train\",\"path\":\"a", "\"path\":\"a"},
    {"sets_turned", "\"set\":\"train\",\"path\":\"a", "\"set\":\"eval\",\"path\":\"a"},
    {"source_no_path", "\"path\":\"\",", ""},
    {"source_two_paths", "\"path\":\"\",", "\"path\":\"\",\"path\":\"\","},
    {"source_path_nul", "\"path\":\"\",", "\"path\":\"\\u0000\","},
    {"format_negative", "\"format\":2,", "\"format\":-2,"},
    {"no_format", "\"format\":2,", ""},
    {"weight_negative", "\"weight\":0,", "\"weight\":-0.5,"},
    {"weight_null", "\"weight\":0,", "\"weight\":null,"},
    {"first_document", "\"first_document\":2", "\"first_document\":3"},
    {"range_negative", "\"n_documents\":2,", "\"n_documents\":-2,"},
    {"range_large", "\"n_documents\":2,", "\"n_documents\":9223372036854775807,"},
    {"sources_empty", "\"sources\":[", "\"sources\":[],\"x\":["},
    {"files_empty", "\"files\":[", "\"files\":[],\"x\":["},
    {"file_no_path", "\"path\":\"c.jsonl\",\"sha", "\"sha"},
    {"file_negative", "\"size\":0,", "\"size\":-1,"},
    {"file_digest_long", "\"sha256\":\"1", "\"sha256\":\"11"},
    {"file_source_negative", "\"source\":63", "\"source\":-1"},
    {"file_source_large", "\"source\":63", "\"source\":2147483648"},
};

/* Changes the text so that it has more sources than a job can have, and reads it. Returns the
 * error. */
static const char *many_sources(const char *text)
{
    static char list[TEXT_SIZE / 2];
    static struct meta got;
    struct err e = {0};
    size_t n = (size_t)snprintf(list, sizeof list, "\"sources\":[");
    for (int i = 0; i < META_SOURCES - 3; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "{\"path\":\"a\"},");
    put("meta.json", edited(text, "\"sources\":[", list, false));
    CHECK_MSG(!meta_read(dir, &got, &e), "%s", e.text);
    CHECK(got.n_sources == META_SOURCES);
    meta_fini(&got);
    snprintf(list + n, sizeof list - n, "{\"path\":\"a\"},");
    put("meta.json", edited(text, "\"sources\":[", list, false));
    const int rc = meta_read(dir, &got, &e);
    meta_fini(&got);
    return said(rc, &e);
}

/* Checks each of the edits, which damage the text or remove a member that may be absent. */
static void test_meta_edited(void)
{
    static struct meta m, got;
    records_open("tests/golden/records/meta_edited.txt");
    meta_all(&m);
    m.stats.n_after = 64;
    char *text = strdup(meta_text(&m));
    for (size_t i = 0; i < sizeof meta_edits / sizeof *meta_edits; i++) {
        const struct edit *t = &meta_edits[i];
        struct err e = {0};
        put("meta.json", edited(text, t->from, t->to, false));
        const int rc = meta_read(dir, &got, &e);
        meta_fini(&got);
        records_hold(t->name, said(rc, &e));
    }
    records_hold("sources_many", many_sources(text));
    free(text);
    records_close();
}

int main(int argc, char **argv)
{
    records_args(argc, argv);
    scratch_dir(dir, sizeof dir, "stored");
    RUN(test_meta);
    RUN(test_meta_edited);
    CHECK(!file_remove(dir, NULL));
    return test_done("stored_meta");
}
