/* Divides texts at the places that tokenizer_cut returns. The tokens of the parts must have the
 * same ids, and the same places in the text, as the tokens of the undivided text. The test uses
 * every tokenizer of tests/golden/tokenizers. For steps that these tokenizers do not have, it uses
 * small tokenizers.
 * tests: needs golden */
#include "api/core/file.h"
#include "tests/lib/test.h"
#include "worker/text/tokenizer.h"

#define GOLDEN "tests/golden/tokenizers/"
enum { TEXTS = 1500, ROOM = 4096, PIECES = 40 };

static uint32_t seed = 7;

static int below(int n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

/* Fragments of one character to a few words, which patterns, normal forms and added tokens depend
 * on. */
static const char *const fragments[] = {" ",
                                        " ",
                                        " ",
                                        " ",
                                        "\n",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "  ",
                                        "   \n",
                                        "a",
                                        "e",
                                        "the",
                                        "hello",
                                        "World",
                                        "it's",
                                        "'s",
                                        "'",
                                        "12",
                                        "3",
                                        "4567",
                                        ".",
                                        "!?",
                                        "--",
                                        "/",
                                        "#",
                                        "w\u00f6rld",
                                        "e\u0301",
                                        "\u0301",
                                        "\u4e2d\u6587",
                                        "\u3042",
                                        "\uac00",
                                        "\u1100\u1161",
                                        "\U0001f600",
                                        "\u200d",
                                        "\u00a0",
                                        "\u2028",
                                        "\u3000",
                                        "\u2581",
                                        "\u2581\u2581",
                                        "\ufb01",
                                        "\u0130",
                                        "\u0120",
                                        "\u05d0",
                                        "\u0e01\u0e33",
                                        "\u00bd",
                                        "<s>",
                                        "</s>",
                                        "<|endoftext|>",
                                        "<mask>",
                                        "[MASK]",
                                        "[SEP]",
                                        "<tok>",
                                        "<l>",
                                        "<r>",
                                        "<w>",
                                        "\uff45",
                                        "two words",
                                        "``",
                                        "\u0600",
                                        "\u2160",
                                        "\ue000",
                                        "\U000e0001",
                                        "o",
                                        "of",
                                        "be",
                                        "_x"};

static size_t random_text(char *out)
{
    size_t n = 0;
    const int pieces = 1 + below(PIECES);
    for (int i = 0; i < pieces; i++) {
        const char *f = fragments[below(sizeof fragments / sizeof *fragments)];
        memcpy(out + n, f, strlen(f));
        n += strlen(f);
    }
    out[n] = 0;
    return n;
}

/* Appends the ids of text[at, end), with their places in the complete text. */
static void add_part(struct tokenizer *t, const char *text, size_t n, size_t at, size_t end,
                     struct tokens *out)
{
    struct err e = {0};
    const int64_t first = out->n;
    const struct text_part part = {.text = text + at,
                                   .n = end - at,
                                   .offset = (int64_t)at,
                                   .begins = at == 0,
                                   .ends = end == n};
    CHECK_MSG(!tokenizer_encode_part(t, &part, true, out, &e), "%s", e.text);
    for (int64_t i = first; i < out->n; i++) {
        out->begin[i] += (int64_t)at;
        out->end[i] += (int64_t)at;
    }
}

static bool same(const struct tokens *a, const struct tokens *b)
{
    bool yes = a->n == b->n;
    for (int64_t i = 0; yes && i < a->n; i++)
        yes = a->id[i] == b->id[i] && a->begin[i] == b->begin[i] && a->end[i] == b->end[i];
    return yes;
}

/* Checks that the parts of a text have the same tokens as the undivided text. First the text is
 * divided into two parts, at each place that tokenizer_cut returns. Then it is divided at all of
 * these places. Returns the number of places. */
static int check_text(struct tokenizer *t, const char *name, const char *text, size_t n)
{
    struct tokens whole = {.spans = true}, two = {.spans = true}, all = {.spans = true};
    struct err e = {0};
    int cuts = 0;
    size_t done = 0;
    CHECK_MSG(!tokenizer_encode(t, text, n, true, &whole, &e), "%s: %s", name, e.text);
    for (int64_t at = 0; (at = tokenizer_cut(t, text, n, (size_t)at + 1)) >= 0; cuts++) {
        const size_t cut = (size_t)at;
        CHECK(text[cut] == ' ' || text[cut] == '\n');
        /* The place must not depend on the text after it, which may not have been read yet. */
        CHECK(tokenizer_cut(t, text, cut + 1, cut) == at && tokenizer_cut(t, text, cut, cut) < 0);
        two.n = 0;
        add_part(t, text, n, 0, cut, &two);
        add_part(t, text, n, cut, n, &two);
        CHECK_MSG(same(&whole, &two), "%s: byte %zu of \"%s\"", name, cut, text);
        add_part(t, text, n, done, cut, &all);
        done = cut;
    }
    add_part(t, text, n, done, n, &all);
    CHECK_MSG(same(&whole, &all), "%s: \"%s\"", name, text);
    text_tokens_fini(&whole);
    text_tokens_fini(&two);
    text_tokens_fini(&all);
    return cuts;
}

enum want { NEVER, SOME, OFTEN }; /* SOME means that few texts can be divided */

static void check_cuts(struct tokenizer *t, const char *name, enum want want)
{
    static char text[ROOM];
    int cuts = 0;
    for (int i = 0; i < TEXTS; i++) cuts += check_text(t, name, text, random_text(text));
    const enum want got = cuts > TEXTS / 2 ? OFTEN : cuts > 0 ? SOME : NEVER;
    CHECK_MSG(got == want || (want == SOME && got == OFTEN), "%s: %d cuts", name, cuts);
}

/* Checks the tokenizer of one file. A build without PCRE2 refuses files that have patterns. */
static void check_json(const char *name, const char *json, size_t n, enum want want)
{
    struct err e = {0};
    struct tokenizer *t = tokenizer_open_text(json, n, &e);
    CHECK_MSG(t || strstr(e.text, "no PCRE2"), "%s: %s", name, e.text);
    if (t) check_cuts(t, name, want);
    tokenizer_destroy(t);
}

/* Checks the golden tokenizers. If few texts or no texts can be divided, a comment names the step
 * of the tokenizer that prevents it. */
static void test_goldens(void)
{
    static const struct {
        const char *name;
        enum want cuts;
    } rows
        [] =
            {
                {"bert", OFTEN},          {"bert_cased", OFTEN},
                {"charsmap", NEVER}, /* clusters of characters */
                {"gemma", OFTEN},         {"gpt2", OFTEN},
                {"llama2", OFTEN},        {"llama3", OFTEN},
                {"mistral", OFTEN},       {"o200k", OFTEN},
                {"patterns", NEVER},                        /* anchors */
                {"qwen", OFTEN},          {"splits", SOME}, /* compares several characters */
                {"unigram", NEVER},                         /* replaces a pattern */
                {"unigram_bytes", OFTEN}, {"words", NEVER}, /* strips the ends */
            };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err e = {0};
        char path[128];
        size_t n;
        snprintf(path, sizeof path, GOLDEN "%s.json", rows[i].name);
        char *json = file_read(path, 16 << 20, &n, &e);
        CHECK_MSG(json, "%s", e.text);
        if (json) check_json(rows[i].name, json, n, rows[i].cuts);
        free(json);
    }
}

/* ---- steps that the golden tokenizers do not have -------------------------------------------- */

#define CHARS                                                                                      \
    "\"<unk>\":0,\" \":1,\"\\n\":2,\"a\":3,\"e\":4,\"t\":5,\"h\":6,\"l\":7,\"o\":8,\"\u2581\":9,"  \
    "\".\":10,\"w\":11,\"'\":12,\"s\":13,\"1\":14,\"2\":15,\"th\":16,\"the\":17,\"lo\":18,"        \
    "\"\u2581\u2581\":19,\"\u2581t\":20,\" t\":21,\"12\":22,\"d\":23,\"r\":24,\"\\n\\n\":25"
#define MERGES                                                                                     \
    "[\"t\",\"h\"],[\"th\",\"e\"],[\"l\",\"o\"],[\"\u2581\",\"\u2581\"],[\"\u2581\",\"t\"],"       \
    "[\" \",\"t\"],[\"1\",\"2\"],[\"\\n\",\"\\n\"]"
#define PLAIN                                                                                      \
    "{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"vocab\":{" CHARS                \
    "},\"merges\":"                                                                                \
    "[" MERGES "]}"
#define JOINED /* a token that spans both parts */                                                 \
    "{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"vocab\":{" CHARS ",\"e \":26,\"e \\n\":27,"       \
    "\"e\\n\":28,\"\uff45\":29},\"merges\":[" MERGES                                               \
    ",[\"e\",\" \"],[\"e \",\"\\n\"],[\"e\",\"\\n\"]]}"
#define WHOLE                                                                                      \
    "{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{" CHARS "},\"merges\":[" MERGES "]}"
#define SHARED /* two strings that have one id */                                                  \
    "{\"type\":\"BPE\",\"vocab\":{" CHARS ",\"x\":4},\"merges\":[" MERGES "]}"
#define BYTES                                                                                      \
    "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"e\":1,\"t\":2,\"h\":3,\"\u0120\":4,\"\u010a\":5,"      \
    "\"1\":6,\"\u0120t\":7,\"th\":8},\"merges\":[\"\u0120 t\",\"t h\"]}"
#define SPLIT(how, behaviour)                                                                      \
    "{\"type\":\"Split\",\"pattern\":{" how "},\"behavior\":\"" behaviour "\",\"invert\":false}"
#define INVERT(how, behaviour)                                                                     \
    "{\"type\":\"Split\",\"pattern\":{" how "},\"behavior\":\"" behaviour "\",\"invert\":true}"
#define SEQUENCE(first, last) "{\"type\":\"Sequence\",\"pretokenizers\":[" first "," last "]}"
#define LEVEL(prefix)         "{\"type\":\"ByteLevel\",\"add_prefix_space\":" prefix ",\"use_regex\":false}"
#define META(scheme, split)                                                                        \
    "{\"type\":\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":\"" scheme              \
    "\",\"split\":" split "}"
#define TOKEN(content, flags)                                                                      \
    "{\"content\":\"" content "\",\"normalized\":false,\"special\":true," flags "}"

static const struct small {
    const char *name, *normalizer, *pretokenizer, *model, *added;
    enum want cuts;
} smalls[] = {
    {"a prefix of ByteLevel", NULL,
     "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}", BYTES, NULL, OFTEN},
    {"a prefix after a split", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"\\\\p{L}+|\\\\s+|[^\\\\s\\\\p{L}]+\"", "Isolated"), LEVEL("true")),
     BYTES, NULL, OFTEN},
    {"a prefix after a split that may be none", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"\\\\p{N}{1,3}\"", "Isolated"), LEVEL("true")), BYTES, NULL, NEVER},
    {"numbers, then words", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"\\\\p{N}{1,3}\"", "Isolated") "," SPLIT(
                  "\"Regex\":\"[\\u4e00-\\u9fa5]+\"",
                  "Isolated") "," SPLIT("\"Regex\":\" "
                                        "?\\\\p{L}+|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"",
                                        "Isolated"),
              LEVEL("false")),
     BYTES, NULL, OFTEN},
    {"bytes that no step parts", NULL, LEVEL("false"), BYTES, NULL, NEVER},
    {"a lookahead across", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"\\\\p{L}+(?=\\\\s)|\\\\s+|.\"", "Isolated"), LEVEL("false")),
     BYTES, NULL, SOME},
    {"a group across", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"(?:\\\\p{L}+(?>\\\\s|'))*\\\\p{L}|\\\\s++|.+?\"", "Isolated"),
              LEVEL("false")),
     BYTES, NULL, SOME},
    {"matches that contiguous ones join", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"\\\\p{L}+|\\\\s+\"", "Contiguous"), LEVEL("false")), BYTES, NULL,
     NEVER},
    {"a match takes what follows", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"\\\\s+\"", "MergedWithNext"), LEVEL("false")), BYTES, NULL, OFTEN},
    {"a match takes what is before", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"\\\\s+\"", "MergedWithPrevious"), LEVEL("false")), BYTES, NULL,
     NEVER},
    {"a match that is none", NULL,
     SEQUENCE(INVERT("\"Regex\":\"\\\\s+\"", "MergedWithNext"), LEVEL("false")), BYTES, NULL,
     NEVER},
    {"an empty match", NULL,
     SEQUENCE(SPLIT("\"Regex\":\"\\\\p{L}*|\\\\s+\"", "Isolated"), LEVEL("false")), BYTES, NULL,
     NEVER},
    {"spaces at an end", NULL, SPLIT("\"String\":\" \"", "MergedWithPrevious"), PLAIN, NULL, OFTEN},
    {"spaces at a beginning", NULL, SPLIT("\"String\":\" \"", "MergedWithNext"), PLAIN, NULL,
     OFTEN},
    {"spaces in one", NULL, SPLIT("\"String\":\" \"", "Contiguous"), PLAIN, NULL, OFTEN},
    {"spaces at an end, inverted", NULL, INVERT("\"String\":\" \"", "MergedWithPrevious"), PLAIN,
     NULL, NEVER},
    {"spaces that are removed", NULL, SPLIT("\"String\":\" \"", "Removed"), PLAIN, NULL, OFTEN},
    {"words", NULL, "{\"type\":\"Whitespace\"}", PLAIN, NULL, OFTEN},
    {"digits", NULL, "{\"type\":\"Digits\",\"individual_digits\":true}", PLAIN, NULL, OFTEN},
    {"digits in one", NULL, "{\"type\":\"Digits\",\"individual_digits\":false}", PLAIN, NULL,
     OFTEN},
    {"punctuation in one", NULL, "{\"type\":\"Punctuation\",\"behavior\":\"Contiguous\"}", PLAIN,
     NULL, OFTEN},
    {"metaspace, always", NULL, META("always", "true"), PLAIN, NULL, OFTEN},
    {"metaspace, first", NULL, META("first", "true"), PLAIN, NULL, OFTEN},
    {"metaspace, never, whole", NULL, META("never", "false"), PLAIN, NULL, OFTEN},
    {"metaspace, always, whole", NULL, META("always", "false"), PLAIN, NULL, OFTEN},
    {"metaspace after a split, first", NULL,
     SEQUENCE("{\"type\":\"WhitespaceSplit\"}", META("first", "false")), PLAIN, NULL, OFTEN},
    {"metaspace after newlines, first", NULL,
     SEQUENCE(SPLIT("\"String\":\"\\n\"", "Isolated"), META("first", "false")), PLAIN, NULL, OFTEN},
    {"metaspace after digits", NULL,
     SEQUENCE("{\"type\":\"Digits\",\"individual_digits\":true}", META("always", "false")), PLAIN,
     NULL, SOME},
    {"a whole text", NULL, NULL, PLAIN, NULL, OFTEN},
    {"tokens across", NULL, NULL, JOINED, NULL, OFTEN},
    {"pieces that are a token", NULL, NULL, WHOLE, NULL, NEVER},
    {"two strings of one id", NULL, NULL, SHARED, NULL, NEVER},
    {"something before", "{\"type\":\"Prepend\",\"prepend\":\"a\"}", NULL, PLAIN, NULL, OFTEN},
    {"a space replaced by two",
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
     "\"\u2581a\"}",
     NULL, PLAIN, NULL, OFTEN},
    {"a letter replaced by a space",
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"e\"},\"content\":\" \"}",
     SEQUENCE(SPLIT("\"Regex\":\"\\\\p{L}+|\\\\s+|[^\\\\s\\\\p{L}]+\"", "Isolated"),
              LEVEL("false")),
     BYTES, NULL, OFTEN},
    {"what is replaced by nothing",
     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"e\"},\"content\":\"\"}", NULL, PLAIN, NULL,
     NEVER},
    {"forms", "{\"type\":\"NFKD\"}", META("first", "true"), PLAIN, NULL, OFTEN},
    {"forms, tokens across", "{\"type\":\"NFKD\"}", NULL, JOINED, NULL, OFTEN},
    {"accents", "{\"type\":\"StripAccents\"}", META("first", "true"), PLAIN, NULL, OFTEN},
    {"lower case", "{\"type\":\"Lowercase\"}", META("first", "true"), PLAIN, NULL, OFTEN},
    {"spaces of translations", "{\"type\":\"Nmt\"}", META("first", "true"), PLAIN, NULL, OFTEN},
    {"added tokens beside", NULL, META("first", "true"), PLAIN,
     TOKEN("<l>", "\"lstrip\":true") "," TOKEN("<r>", "\"rstrip\":true") "," TOKEN(
         "<w>",
         "\"single_word\":true") "," TOKEN("<tok>",
                                           "\"lstrip\":false") "," TOKEN("of",
                                                                         "\"single_word\":true"),
     OFTEN},
    {"an added token with the spaces before", NULL, META("first", "true"), PLAIN,
     TOKEN("<l>", "\"lstrip\":true"), OFTEN},
    {"an added token across", NULL, META("first", "true"), PLAIN,
     TOKEN("o w", "\"lstrip\":false") "," TOKEN("e \\n", "\"lstrip\":false"), OFTEN},
    {"an added token across, with its form", "{\"type\":\"Lowercase\"}", META("first", "true"),
     PLAIN, "{\"content\":\"HELLO \",\"normalized\":true},{\"content\":\"THE\\n\"}", OFTEN},
};

static void test_steps(void)
{
    static char json[8192];
    for (size_t i = 0; i < sizeof smalls / sizeof *smalls; i++) {
        const struct small *s = &smalls[i];
        const int n = snprintf(json, sizeof json,
                               "{\"normalizer\":%s,\"pre_tokenizer\":%s,\"model\":%s,"
                               "\"added_tokens\":[%s]}",
                               s->normalizer ? s->normalizer : "null",
                               s->pretokenizer ? s->pretokenizer : "null", s->model,
                               s->added ? s->added : "");
        CHECK(n < (int)sizeof json);
        check_json(s->name, json, (size_t)n, s->cuts);
    }
}

/* Checks bytes that are not UTF-8. A text must not be divided between such bytes, and the error
 * must have the place of the byte in the complete text. */
static void test_bad_text(void)
{
    static const char json[] = "{\"model\":" PLAIN "}";
    struct err e = {0};
    struct tokens ids = {0};
    struct tokenizer *t = tokenizer_open_text(json, sizeof json - 1, &e);
    CHECK_MSG(t, "%s", e.text);
    if (!t) return;
    CHECK(tokenizer_cut(t, "\xe2\x96 a", 4, 0) < 0 &&
          tokenizer_cut(t, "\x96\x96\x96\x96\x96 a", 7, 0) < 0);
    CHECK(tokenizer_cut(t, " a", 2, 0) < 0 && tokenizer_cut(t, "", 0, 0) < 0);
    const struct text_part part = {.text = " \xff", .n = 2, .offset = 5000000000};
    CHECK(tokenizer_encode_part(t, &part, true, &ids, &e) < 0 && !ids.n);
    CHECK_STR(e.text, "byte 5000000001 of the text is not UTF-8");
    text_tokens_fini(&ids);
    tokenizer_destroy(t);
}

int main(void)
{
    RUN(test_goldens);
    RUN(test_steps);
    RUN(test_bad_text);
    return test_done("text_cuts");
}
