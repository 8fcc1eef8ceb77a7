/* test_preference: checks records of a prompt and two answers, the documents and masks that they
 * become, faults in records, and how pairs are packed.
 * tests: needs golden/tokenizers */
#include "tests/lib/files.h"
#include "worker/data/preference.h"
#include "worker/text/tokenizer.h"

/* ---- records --------------------------------------------------------------------------------- */

static void pairs(const char *text)
{
    puts_file("p.jsonl", text);
    one_source("p.jsonl", DATA_JSONL, 300, -1);
    spec->objective.type = OBJECTIVE_DPO;
}

static void check_learnt(struct data *d, const char *want)
{
    uint8_t learn[64];
    const int64_t n = (int64_t)strlen(want);
    CHECK(data_read_mask(d, 0, n, learn, &e) == 0);
    for (int64_t i = 0; i < n; i++)
        CHECK_MSG(learn[i] == want[i] - '0', "token %lld: %d", (long long)i, learn[i]);
}

static void test_text(void)
{
    static const char text[] = "{\"prompt\":\"ab\",\"chosen\":\"c\",\"rejected\":\"\",\"id\":[7]}\n"
                               "{\"rejected\":\"x\",\"tools\":null,\"system\":\"\",\"chosen\":"
                               "\"\\u00e9\",\"prompt\":\"\",\"images\":[]}\n";
    static const int64_t ids[] = {'a', 'b', 'c', 256, 'a', 'b', 256, 0xc3, 0xa9, 256, 'x', 256};
    static const uint64_t ends[] = {4, 7, 10, 12};
    char id[80];
    pairs(text);
    struct data *d = prepare_open();
    check_data(d, ids, 12, ends, 4);
    check_learnt(d, "001100111111");
    check_origin(d, 1, 1, 0);
    check_origin(d, 2, 2,
                 strlen("{\"prompt\":\"ab\",\"chosen\":\"c\",\"rejected\":\"\",\"id\":[7]}\n"));
    snprintf(id, sizeof id, "%s", data_stats(d)->id);
    data_close(d);
    /* the same file, read for another objective, has no such records */
    spec->objective.type = OBJECTIVE_CAUSAL_LM;
    refused(ERR_INVALID, "the record is a preference, of \"chosen\" and \"rejected\", which only a "
                         "training with objective.type \"dpo\" reads");
}

static void test_refused(void)
{
    static const struct {
        const char *line, *want;
        enum err_code code;
    } bad[] = {
        {"[1]", "want an object on every line", ERR_INVALID},
        {"{\"prompt\":\"a\",\"chosen\":\"b\"}", "\"rejected\" is missing", ERR_INVALID},
        {"{\"prompt\":\"a\",\"rejected\":[]}", "\"chosen\" is missing", ERR_INVALID},
        {"{\"chosen\":\"a\",\"rejected\":\"b\"}", "\"prompt\" is missing, and only lists",
         ERR_INVALID},
        {"{\"prompt\":\"a\",\"chosen\":[],\"rejected\":[]}", "\"prompt\" is a string beside lists",
         ERR_INVALID},
        {"{\"prompt\":[],\"chosen\":\"a\",\"rejected\":\"b\"}", "are strings and lists",
         ERR_INVALID},
        {"{\"chosen\":[],\"rejected\":\"b\"}", "are strings and lists", ERR_INVALID},
        {"{\"prompt\":\"a\",\"chosen\":1,\"rejected\":\"b\"}", "neither a string nor a list",
         ERR_INVALID},
        {"{\"chosen\":[1],\"rejected\":[]}", "\"chosen\" 0 is no message", ERR_INVALID},
        {"{\"prompt\":\"a\",\"chosen\":\"b\",\"chosen\":\"b\",\"rejected\":\"b\"}", "occurs twice",
         ERR_INVALID},
        {"{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"b\",\"system\":\"c\"}",
         "\"system\" is not read", ERR_UNSUPPORTED},
        {"{\"chat_template_kwargs\":{\"a\":1},\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":"
         "\"b\"}",
         "\"chat_template_kwargs\" is not read", ERR_UNSUPPORTED},
        {"{\"tools\":[{}],\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"b\"}",
         "\"tools\" is not read", ERR_UNSUPPORTED},
        {"{\"prompt\":\"\",\"chosen\":\"b\",\"rejected\":\"\"}",
         "\"rejected\" has no token to learn after the prompt", ERR_INVALID},
        {"{\"chosen\":[],\"rejected\":[]}", "\"chosen\" is a conversation, and this job reads",
         ERR_UNSUPPORTED},
        {"{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"b\"", "JSON byte 41", ERR_INVALID},
        {"{\"prompt\":\"a\",\"chosen\":[{]", "byte", ERR_INVALID},
    };
    char text[256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct data_stats st;
        snprintf(text, sizeof text, "\n%s\n", bad[i].line);
        pairs(text);
        CHECK_MSG(prepare(&st) == -1 && e.code == bad[i].code && strstr(e.text, bad[i].want),
                  "%s: want \"%s\": %s %s", bad[i].line, bad[i].want, err_name(e.code), e.text);
        CHECK_MSG(strstr(e.text, "p.jsonl line 2: "), "%s", e.text);
    }
}

/* ---- lists of messages ----------------------------------------------------------------------- */

static bool part_is(const struct preference_part *p, const char *want)
{
    return p->at && p->len == strlen(want) && !memcmp(p->at, want, p->len);
}

/* Checks where lists without a prompt are divided. */
static void test_divided(void)
{
    static const struct {
        const char *chosen, *rejected, *prompt, *answer[ANSWER_N];
    } row[] = {
        {"[{\"a\":1},{\"b\":2}]", "[{\"a\":1},{\"b\":3}]", "{\"a\":1}", {"{\"b\":2}", "{\"b\":3}"}},
        {"[ {\"a\" : 1} , {\"b\":2} ]",
         "[{\"a\":1},{\"c\":3},{\"d\":4}]",
         "{\"a\" : 1}",
         {"{\"b\":2}", "{\"c\":3},{\"d\":4}"}},
        {"[{\"a\":\"},{\"},{\"b\":2}]",
         "[{\"a\":\"},{ \"},{\"b\":2}]",
         "",
         {"{\"a\":\"},{\"},{\"b\":2}", "{\"a\":\"},{ \"},{\"b\":2}"}},
        {"[{\"a\":\"\\\"}\"},{\"b\":[{}]}]",
         "[{\"a\":\"\\\"}\"},{\"b\":[{},1]}]",
         "{\"a\":\"\\\"}\"}",
         {"{\"b\":[{}]}", "{\"b\":[{},1]}"}},
        {"[{\"a\":\"\\\\\"}]", "[{\"a\":\"\\\\\"},{}]", "{\"a\":\"\\\\\"}", {"", "{}"}},
        {"[]", "[{}]", "", {"", "{}"}},
    };
    char line[256];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct preference p;
        const int n = snprintf(line, sizeof line, "{\"rejected\":%s,\"chosen\":%s}",
                               row[i].rejected, row[i].chosen);
        CHECK_MSG(!preference_parse(&p, line, (size_t)n, &e), "%zu: %s", i, e.text);
        CHECK_MSG(part_is(&p.prompt, row[i].prompt), "%zu: %.*s", i, (int)p.prompt.len,
                  p.prompt.at);
        for (int k = 0; k < ANSWER_N; k++)
            CHECK_MSG(part_is(&p.answer[k], row[i].answer[k]), "%zu: %.*s", i, (int)p.answer[k].len,
                      p.answer[k].at);
    }
}

#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"

/* Checks a prompt that is a string beside lists. It must be the last user's message with which both
 * lists begin, and the prompt is then these messages. */
static void test_string_beside_lists(void)
{
#define U(text) SAYS("user", text)
#define A(text) SAYS("assistant", text)
    static const struct {
        const char *string, *chosen, *rejected, *prompt; /* NULL if the record is refused */
    } row[] = {
        {"q", U("q") "," A("x"), U("q") "," A("y"), U("q")},
        {"q", U("q") "," A("x"), "{\"content\":\"q\",\"role\":\"user\"}," A("y"), NULL},
        {"\\u00e9\\n\\\"", U("\\u00e9\\n\\\"") "," A("x"), U("\\u00e9\\n\\\"") " ," A("y"),
         U("\\u00e9\\n\\\"")},
        {"\\u00e9", U("\xc3\xa9") "," A("x"), U("\xc3\xa9") "," A("y"), U("\xc3\xa9")},
        {"r", U("q") "," A("x") "," U("r") "," A("y"), U("q") "," A("x") ", " U("r"),
         U("q") "," A("x") "," U("r")},
        {"q", U("q") "," A("x") "," U("r") "," A("y"), U("q") "," A("x") ", " U("r"), NULL},
        {"q", U("q") "," A("x"), U("q") "," A("x"), U("q") "," A("x")},
        {"q", A("x"), A("y"), NULL},
        {"q", A("q") "," A("x"), A("q") "," A("y"), NULL},
        {"", U("q") "," A("x"), U("q") "," A("y"), NULL},
        {"q", "{\"role\":\"user\",\"content\":[{}]}," A("x"),
         "{\"role\":\"user\",\"content\":[{}]}," A("y"), NULL},
    };
    char line[512];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct preference p;
        const int n = snprintf(line, sizeof line,
                               "{\"rejected\":[%s],\"prompt\":\"%s\",\"chosen\":[%s]}",
                               row[i].rejected, row[i].string, row[i].chosen);
        const int rc = preference_parse(&p, line, (size_t)n, &e);
        CHECK_MSG(rc == (row[i].prompt ? 0 : -1), "%zu: %s", i, rc ? e.text : line);
        if (rc) CHECK_MSG(strstr(e.text, "leave it out (jq -c 'del(.prompt)')"), "%s", e.text);
        if (!rc && row[i].prompt) CHECK_MSG(part_is(&p.prompt, row[i].prompt), "%zu", i);
    }
}

static void model_files(const char *jinja)
{
    char *text = file_read("tests/golden/tokenizers/llama2.json", 1 << 20, NULL, &e);
    CHECK_MSG(text, "%s", e.text);
    file_make_dir(in_dir("model"), &e);
    puts_file("model/tokenizer.json", text);
    puts_file("model/tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}");
    puts_file("model/chat_template.jinja", jinja);
    free(text);
}

static int prepare_model(const char *lines, struct data_stats *st)
{
    const char *const roots[] = {dir};
    const struct data_model of = {in_dir("model"), 0};
    puts_file("m.jsonl", lines);
    one_source("m.jsonl", DATA_JSONL, 512, -1);
    spec->objective.type = OBJECTIVE_DPO;
    spec->model.shape.tokenizer = TOKENIZER_OWN;
    spec->resources.threads = 2;
    e = (struct err){0};
    return data_prepare(spec, &of, roots, 1, in_dir("prepared"), NULL, st, &e);
}

/* Checks a document: it must be the ids of `text`, where the tokens that end after the first
 * `given` bytes are learnt. `more` is the number of end ids. */
static void check_document(const struct data *d, int64_t i, const char *text, size_t given,
                           bool special, int more)
{
    struct tokenizer *t = tokenizer_open(in_dir("model"), &e);
    struct tokens want = {.spans = true};
    const int64_t at = i ? (int64_t)data_documents(d)[i - 1] : 0;
    const int64_t n = (int64_t)data_documents(d)[i] - at;
    int32_t ids[128];
    uint8_t learn[128];
    CHECK(t && !tokenizer_encode(t, text, strlen(text), special, &want, &e));
    CHECK_MSG(n == want.n + more && n <= 128, "document %lld: %lld ids, want %lld", (long long)i,
              (long long)n, (long long)want.n);
    if (n == want.n + more && n <= 128) {
        CHECK(!data_read(d, at, n, ids, &e) && !data_read_mask(d, at, n, learn, &e));
        for (int64_t k = 0; k < want.n; k++)
            CHECK_MSG(ids[k] == want.id[k] && learn[k] == (want.end[k] > (int64_t)given),
                      "document %lld token %lld: %d %d", (long long)i, (long long)k, ids[k],
                      learn[k]);
        if (more) CHECK(ids[n - 1] == 2 && learn[n - 1]);
    }
    text_tokens_fini(&want);
    tokenizer_destroy(t);
}

/* Checks a document of messages. The bytes of `text` that are learnt have a "^" in `marks`. */
static void check_marked(const struct data *d, int64_t i, const char *text, const char *marks)
{
    struct tokenizer *t = tokenizer_open(in_dir("model"), &e);
    struct tokens want = {.spans = true};
    const int64_t at = i ? (int64_t)data_documents(d)[i - 1] : 0;
    int32_t id;
    uint8_t learn;
    CHECK(t && !tokenizer_encode(t, text, strlen(text), false, &want, &e));
    CHECK((int64_t)data_documents(d)[i] - at == want.n && strlen(marks) == strlen(text));
    for (int64_t k = 0; k < want.n; k++) {
        const size_t width = (size_t)(want.end[k] - want.begin[k]);
        const bool marked = memchr(marks + want.begin[k], '^', width) != NULL;
        CHECK(!data_read(d, at + k, 1, &id, &e) && !data_read_mask(d, at + k, 1, &learn, &e));
        CHECK_MSG(id == want.id[k] && learn == marked, "document %lld token %lld: %d %d",
                  (long long)i, (long long)k, id, learn);
    }
    text_tokens_fini(&want);
    tokenizer_destroy(t);
}

static void test_messages(void)
{
    static const char lines[] =
        "{\"prompt\":[" SAYS("user", "Hello") "," SAYS("assistant", "Yes") "," SAYS("user", "Go") "],\"chosen\":[" SAYS(
            "assistant",
            "well done") "],\"rejected\":[" SAYS("assistant",
                                                 "no") "]}\n"
                                                       "{\"chosen\":[" SAYS("user", "A b") "," SAYS("assistant", "c") "],\"rejected\":[" SAYS(
                                                           "user",
                                                           "A b") ", " SAYS("assistant",
                                                                            "") "]}\n"
                                                                                "{\"prompt\":"
                                                                                "\"Tell me "
                                                                                "\",\"chosen\":"
                                                                                "\"the "
                                                                                "word\","
                                                                                "\"rejected\":\"a "
                                                                                "lie\"}\n";
    struct data_stats st;
    model_files("{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}");
    CHECK_MSG(!prepare_model(lines, &st), "%s", e.text);
    struct data *d = data_open(in_dir("prepared"), st.id, DATA_CHECK, &e);
    if (!d) printf("  %s\n", e.text), abort();
    CHECK(st.n_documents == 6);
#define FIRST "[user]Hello</s>[assistant]Yes</s>[user]Go</s>[assistant]"
    check_document(d, 0, FIRST "well done</s>", strlen(FIRST), false, 0);
    check_document(d, 1, FIRST "no</s>", strlen(FIRST), false, 0);
    check_document(d, 2, "[user]A b</s>[assistant]c</s>", strlen("[user]A b</s>[assistant]"), false,
                   0);
    check_document(d, 3, "[user]A b</s>[assistant]</s>", strlen("[user]A b</s>[assistant]"), false,
                   0);
    check_document(d, 4, "Tell me the word", strlen("Tell me "), true, 1);
    check_document(d, 5, "Tell me a lie", strlen("Tell me "), true, 1);
    data_close(d);
}

/* Checks a template that writes a turn of the assistant otherwise when more follows, as published
 * ones do that leave out the reasoning of earlier turns. Only the turns of answers need a place. */
static void test_earlier_turns(void)
{
#define ASKED SAYS("user", "A") "," SAYS("assistant", "Yes") "," SAYS("user", "Go")
    struct data_stats st;
    model_files("{% for m in messages %}[{{ m.role }}]{% if loop.last and m.role == 'assistant' %}"
                "(){% endif %}{{ m.content }}{{ eos_token }}{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}");
    CHECK_MSG(!prepare_model(
                  "{\"prompt\":[" ASKED "],\"chosen\":[" SAYS(
                      "assistant", "b") "],"
                                        "\"rejected\":[" SAYS(
                                            "assistant", "c d") "]}\n"
                                                                "{\"chosen\":[" ASKED
                                                                "," SAYS("assistant",
                                                                         "e") "],"
                                                                              "\"rejected\":[" ASKED
                                                                              "," SAYS("assistant",
                                                                                       "f") "]}\n",
                  &st),
              "%s", e.text);
    struct data *d = data_open(in_dir("prepared"), st.id, DATA_CHECK, &e);
    if (!d) printf("  %s\n", e.text), abort();
#define WRITTEN "[user]A</s>[assistant]Yes</s>[user]Go</s>[assistant]"
    check_document(d, 0, WRITTEN "()b</s>", strlen(WRITTEN), false, 0);
    check_document(d, 1, WRITTEN "()c d</s>", strlen(WRITTEN), false, 0);
    check_document(d, 2, WRITTEN "()e</s>", strlen(WRITTEN), false, 0);
    check_document(d, 3, WRITTEN "()f</s>", strlen(WRITTEN), false, 0);
    data_close(d);
#undef WRITTEN
}

/* Checks an answer of several turns with such a template: all its turns are learnt as the whole
 * conversation has them. A template that ends a turn otherwise when more follows is refused. */
static void test_answer_of_turns(void)
{
#define TURNS                                                                                      \
    "{\"prompt\":[" SAYS("user", "A") "],\"chosen\":[" SAYS("assistant", "b") "," SAYS(            \
        "user", "c") "," SAYS("assistant", "d") "],\"rejected\":[" SAYS("assistant", "e") "]}\n"
    struct data_stats st;
    model_files("{% for m in messages %}[{{ m.role }}]{% if loop.last and m.role == 'assistant' %}"
                "(){% endif %}{{ m.content }}{{ eos_token }}{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}");
    CHECK_MSG(!prepare_model(TURNS, &st), "%s", e.text);
    struct data *d = data_open(in_dir("prepared"), st.id, DATA_CHECK, &e);
    if (!d) printf("  %s\n", e.text), abort();
    check_marked(d, 0, "[user]A</s>[assistant]b</s>[user]c</s>[assistant]()d</s>",
                 "                      ^^^^^                      ^^^^^^^");
    check_marked(d, 1, "[user]A</s>[assistant]()e</s>", "                      ^^^^^^^");
    data_close(d);
    model_files("{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ '' if loop.last else ';' }}"
                "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}");
    CHECK(prepare_model(TURNS, &st) == -1);
    CHECK_MSG(strstr(e.text, "line 1: \"chosen\": messages[1]: ") &&
                  strstr(e.text, "the turn's place cannot be told"),
              "%s", e.text);
}

/* Checks the count of pairs whose answers are equal, and of those with different prompts. */
static void test_alike(void)
{
    static const char talks[] = "{\"chosen\":[" SAYS("user", "A") "," SAYS(
        "assistant",
        "b") "],"
             "\"rejected\":[" SAYS("user", "A") "," SAYS(
                 "assistant",
                 "c") "]}\n"
                      "{\"chosen\":[" SAYS("user", "A") "," SAYS(
                          "assistant",
                          "b") "],"
                               "\"rejected\":[" SAYS("user", "B") "," SAYS(
                                   "assistant",
                                   "c") "]}\n"
                                        "{\"prompt\":[" SAYS("user", "A") "],\"chosen\":[" SAYS(
                                            "assistant", "b") "],"
                                                              "\"rejected\":[" SAYS("assistant",
                                                                                    "b") "]}\n";
    struct data_stats st;
    struct data_alike of;
    model_files("{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}");
    for (int text = 0; text < 2; text++) {
        if (text)
            pairs("{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"b\"}\n"
                  "{\"prompt\":\"a\",\"chosen\":\"b\",\"rejected\":\"bc\"}\n"
                  "{\"prompt\":\"\",\"chosen\":\"bb\",\"rejected\":\"cc\"}\n");
        CHECK_MSG(!(text ? prepare(&st) : prepare_model(talks, &st)), "%s", e.text);
        struct data *d = data_open(in_dir("prepared"), st.id, DATA_CHECK, &e);
        if (!d) printf("  %s\n", e.text), abort();
        CHECK_MSG(!data_alike(d, &of, &e), "%s", e.text);
        CHECK_MSG(of.pairs == 3 && of.equal == 1 && of.apart == 1 - text, "%lld, %lld of %lld",
                  (long long)of.equal, (long long)of.apart, (long long)of.pairs);
        data_close(d);
    }
}

static void test_messages_refused(void)
{
    struct data_stats st;
    CHECK(prepare_model("{\"prompt\":[],\"chosen\":[" SAYS(
                            "assistant", "b") "],\"rejected\":[" SAYS("user", "c") "]}\n",
                        &st) == -1);
    CHECK_MSG(strstr(e.text, "\"rejected\" has no token to learn after the prompt") &&
                  strstr(e.text, "line 1"),
              "%s", e.text);
    CHECK(
        prepare_model("{\"chosen\":[" SAYS("user", "a") "],\"rejected\":[" SAYS("user", "a") "]}\n",
                      &st) == -1);
    CHECK_MSG(strstr(e.text, "line 1: \"chosen\" has no message after those of the prompt"), "%s",
              e.text);
    model_files("{% for m in messages %}[{{ m.role }}]{{ m.content }}{{ eos_token }}{% endfor %}"
                "{% if add_generation_prompt %}[assistant]{% endif %}");
    CHECK(prepare_model(
              "{\"prompt\":[" SAYS("user", "a") "],\"chosen\":[" SAYS(
                  "assistant",
                  "b") "],\"rejected\":[{\"content\":\"c\",\"role\":\"user\"}," SAYS("assistant",
                                                                                     "d") "]}\n",
              &st) == -1);
    CHECK_MSG(strstr(e.text,
                     "line 1: \"rejected\": the answer begins with a turn of the role \"user\", "
                     "and the turn after the prompt is the assistant's: begin it with"),
              "%s", e.text);
    /* this template leaves out all messages before the last one */
    model_files("{% for m in messages %}{% if loop.last or m.role == 'user' and "
                "add_generation_prompt %}[{{ m.role }}]{{ m.content }}{% endif %}{% endfor %}");
    CHECK(prepare_model("{\"prompt\":[" SAYS("user", "a") "],\"chosen\":[" SAYS(
                            "assistant", "b") "],\"rejected\":[" SAYS("assistant", "c") "]}\n",
                        &st) == -1);
    CHECK_MSG(strstr(e.text, "\"chosen\": "), "%s", e.text);
    CHECK(!unlink(in_dir("model/chat_template.jinja")));
    CHECK(prepare_model("{\"prompt\":[" SAYS("user", "a") "],\"chosen\":[" SAYS(
                            "assistant", "b") "],\"rejected\":[" SAYS("assistant", "c") "]}\n",
                        &st) == -1);
    CHECK_MSG(strstr(e.text, "\"chosen\": the answer is a conversation, and model.path has no chat "
                             "template") &&
                  strstr(e.text, "give the record's texts as strings"),
              "%s", e.text);
}

/* ---- packing --------------------------------------------------------------------------------- */

enum { N_PAIRS = 60, MOST = 40 };

static int64_t length_of(const struct data *d, int64_t document)
{
    const uint64_t *ends = data_documents(d);
    return (int64_t)(ends[document] - (document ? ends[document - 1] : 0));
}

static struct data *many_pairs(void)
{
    static char text[N_PAIRS * 256];
    char *at = text;
    uint32_t x = 7;
    for (int i = 0; i < N_PAIRS; i++) {
        int n[3];
        for (int k = 0; k < 3; k++) n[k] = (int)((x = x * 1664525 + 1013904223) >> 16) % MOST;
        at += sprintf(at, "{\"prompt\":\"%.*s\",\"chosen\":\"%.*s\",\"rejected\":\"%.*s\"}\n", n[0],
                      "pppppppppppppppppppppppppppppppppppppppp", n[1] + 1,
                      "cccccccccccccccccccccccccccccccccccccccc", n[2] + 1,
                      "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr");
    }
    pairs(text);
    return prepare_open();
}

/* Checks the pairs of a sample, and marks them as seen. Returns the sample's tokens. */
static int64_t check_pairs(const struct data *d, const struct data_order *o, int64_t n,
                           uint8_t *seen)
{
    struct sample s;
    int64_t pos = 0, targets = 0;
    data_sample(o, n, &s);
    CHECK(s.n_fragments == 2 * data_pairs(o, n));
    for (int64_t k = 0; k < data_pairs(o, n); k++) {
        struct data_answer a[2];
        CHECK(!data_pair(o, n, k, a, &e));
        CHECK(a[0].document % 2 == 0 && a[1].document == a[0].document + 1);
        seen[a[0].document / 2]++;
        for (int i = 0; i < 2; i++) {
            struct fragment f;
            data_fragment(o, &s, 2 * k + i, &f);
            CHECK(a[i].pos == pos && a[i].length == length_of(d, a[i].document));
            CHECK(f.document == a[i].document && f.pos == pos && f.length == a[i].length);
            CHECK(a[i].targets >= 1 && a[i].targets < a[i].length);
            pos += a[i].length;
            targets += a[i].targets;
        }
    }
    CHECK(pos == s.n_tokens && targets == data_targets(o, n, &e));
    return pos;
}

static void check_order(const struct data *d, int packing, int overlong, int64_t S)
{
    uint8_t seen[N_PAIRS] = {0};
    struct order_options x = {.seq_len = S,
                              .seed = 3,
                              .packing = packing,
                              .overlong = overlong,
                              .document_mask = true,
                              .reset_positions = true,
                              .causal = true,
                              .pairs = true,
                              .vocab = 300};
    struct data_order *o = order_open(d, &x);
    const struct order_stats *st = data_order_stats(o);
    int64_t tokens = 0, left = 0;
    for (int64_t n = 0; n < data_order_samples(o); n++) {
        const int64_t m = check_pairs(d, o, n, seen);
        CHECK(m <= S && (packing == PACKING_BEST_FIT || data_pairs(o, n) == 1));
        tokens += m;
    }
    for (int i = 0; i < N_PAIRS; i++) {
        const int64_t length = length_of(d, 2 * i) + length_of(d, 2 * i + 1);
        CHECK_MSG(seen[i] == (length <= S), "pair %d: %d", i, seen[i]);
        left += length > S;
    }
    CHECK(st->n_tokens == tokens && st->n_fragments == 2 * (N_PAIRS - left));
    CHECK(st->dropped_documents == 2 * left && st->n_documents == st->n_fragments);
    data_order_close(o);
}

static void test_packing(void)
{
    struct data *d = many_pairs();
    const struct order_options x = {.seq_len = 64, .packing = PACKING_NONE, .pairs = true};
    for (int packing = PACKING_BEST_FIT; packing <= PACKING_NONE; packing++)
        for (int64_t S = 64; S <= 1024; S *= 4)
            check_order(d, packing, S < 256 ? OVERLONG_DROP : OVERLONG_AUTO, S);
    CHECK(!data_order_open(d, &x, &e) && e.code == ERR_INVALID);
    CHECK_STR(e.field, "data.overlong");
    CHECK_MSG(strstr(e.text, "answers of") && strstr(e.text, "set data.overlong to drop"), "%s",
              e.text);
    data_close(d);
}

int main(void)
{
    datadir_begin("preference");
    RUN(test_text);
    RUN(test_refused);
    RUN(test_divided);
    RUN(test_string_beside_lists);
    RUN(test_messages);
    RUN(test_earlier_turns);
    RUN(test_answer_of_turns);
    RUN(test_alike);
    RUN(test_messages_refused);
    RUN(test_packing);
    return datadir_end("preference");
}
