/* Compares tokenizers of every kind with answers of the package `tokenizers`
 * (tests/golden/tokenizers), and checks files that are refused.
 * tests: needs golden */
#include "worker/text/tokenizer.h"

#include <glob.h>
#include <stdlib.h>
#include "api/core/file.h"
#include "api/core/utf8.h"
#include "tests/lib/mutant.h"

#define GOLDEN "tests/golden/tokenizers/"

static int n_checked;

static struct tokenizer *open_file(const char *path, struct err *e)
{
    size_t size;
    char *text = file_read(path, 16 << 20, &size, e);
    struct tokenizer *t = text ? tokenizer_open_text(text, size, e) : NULL;
    free(text);
    return t;
}

/* Tells whether this is the error with which a build without PCRE2 refuses files that have
 * patterns. */
static bool without_patterns(const struct err *e)
{
    return e->code == ERR_UNSUPPORTED && strstr(e->text, "no PCRE2");
}

static size_t unhex(char *s)
{
    size_t n = 0;
    unsigned byte;
    for (const char *p = s; sscanf(p, "%2x", &byte) == 1 && *p != '\t'; p += 2) s[n++] = (char)byte;
    return n;
}

static bool same_ids(const struct tokens *got, const char *want)
{
    char *end;
    int64_t n = 0;
    for (const char *p = want; *p; p = end, n++) {
        const long id = strtol(p, &end, 10);
        if (end == p) break;
        if (n >= got->n || got->id[n] != id) return false;
    }
    return n == got->n;
}

static void check_encode(struct tokenizer *t, const char *path, const char *s, size_t n,
                         const char *want, bool special)
{
    struct tokens ids = {.spans = true};
    struct err e = {0};
    CHECK_MSG(tokenizer_encode(t, s, n, special, &ids, &e) == 0, "%s: %s", path, e.text);
    CHECK_MSG(same_ids(&ids, want), "%s: \"%.60s\": want %s", path, s, want);
    for (int64_t i = 0; i < ids.n; i++)
        CHECK(ids.begin[i] >= 0 && ids.begin[i] <= ids.end[i] && ids.end[i] <= (int64_t)n);
    text_tokens_fini(&ids);
}

static void check_decode(struct tokenizer *t, const char *path, const char *list, const char *want,
                         size_t n, bool skip)
{
    struct text whole = {0}, parts = {0};
    struct tokens ids = {0};
    struct err e = {0};
    struct detokenizer *d = detokenizer_create(t, skip);
    static int32_t id[4096];
    char *end;
    for (const char *p = list; strtol(p, &end, 10), end != p; p = end) {
        id[ids.n] = (int32_t)strtol(p, &end, 10);
        CHECK(detokenizer_put(d, id[ids.n++], &parts, &e) == 0);
        CHECK(parts.n <= (int64_t)n && (!parts.n || !memcmp(parts.data, want, (size_t)parts.n)));
        CHECK((size_t)parts.n == n || ((unsigned char)want[parts.n] & 0xc0) != 0x80);
    }
    CHECK(detokenizer_finish(d, &parts, &e) == 0);
    CHECK((size_t)parts.n == n && (!n || !memcmp(parts.data, want, n)));
    CHECK(tokenizer_decode(t, id, ids.n, skip, &whole, &e) == 0);
    CHECK_MSG((size_t)whole.n == n && !memcmp(whole.data, want, n), "%s: got \"%s\"", path,
              whole.data);
    detokenizer_destroy(d);
    text_fini(&whole);
    text_fini(&parts);
}

/* Checks one line of a golden file. The line has a string, its ids without special tokens, its ids
 * with special tokens, the text of the ids with special tokens, and this text without the special
 * tokens. */
static void check_line(struct tokenizer *t, const char *path, char *line)
{
    char *field[5] = {line};
    for (int i = 1; i < 5; i++) {
        field[i] = strchr(field[i - 1], '\t');
        CHECK(field[i]);
        if (!field[i]) return;
        *field[i]++ = 0;
    }
    const size_t n = unhex(field[0]), n_whole = unhex(field[3]), n_plain = unhex(field[4]);
    check_encode(t, path, field[0], n, field[1], false);
    check_encode(t, path, field[0], n, field[2], true);
    check_decode(t, path, field[2], field[3], n_whole, false);
    check_decode(t, path, field[2], field[4], n_plain, true);
    n_checked++;
}

static void check_kind(char *path)
{
    struct err e = {0};
    size_t size;
    struct tokenizer *t = open_file(path, &e);
    if (!t && without_patterns(&e)) {
        n_checked++;
        return;
    }
    CHECK_MSG(t, "%s: %s", path, e.text);
    strcpy(strstr(path, ".json"), ".txt");
    char *text = file_read(path, 16 << 20, &size, &e);
    CHECK_MSG(text, "%s", e.text);
    for (char *line = text, *end; line && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (t) check_line(t, path, line);
    }
    free(text);
    tokenizer_destroy(t);
}

static void test_goldens(void)
{
    glob_t g;
    CHECK(glob(GOLDEN "*.json", 0, NULL, &g) == 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s", g.gl_pathv[i]);
        check_kind(path);
    }
    CHECK(g.gl_pathc >= 14 && n_checked >= (int)g.gl_pathc);
    globfree(&g);
}

/* ---- without patterns ------------------------------------------------------------------------ */

#define SMALL(normalizer, pre, model)                                                              \
    "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true,\"normalized\":false}],"    \
    "\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre ",\"decoder\":null,"                    \
    "\"post_processor\":null,\"model\":" model "}"
#define AB                                                                                         \
    "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aba\":3},"                            \
    "\"merges\":[\"a b\",\"ab a\"]}"

#define CHARSMAP(base64) "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" base64 "\"}"

static struct tokenizer *open_small(const char *json, struct err *e)
{
    return tokenizer_open_text(json, strlen(json), e);
}

static void test_spans(void)
{
    struct err e = {0};
    struct tokens ids = {.spans = true};
    struct tokenizer *t = open_small(SMALL("null", "null", AB), &e);
    static const int32_t want[][3] = {{2, 0, 2}, {2, 2, 4}, {4, 4, 7}, {2, 8, 10}, {2, 10, 12}};
    CHECK_MSG(t, "%s", e.text);
    if (!t) return;
    CHECK(tokenizer_size(t) == 5 && tokenizer_is_special(t, 4) && !tokenizer_is_special(t, 3));
    CHECK(tokenizer_encode(t, "abab<s>cabab", 12, false, &ids, &e) == 0);
    CHECK(ids.n == 5);
    for (int64_t i = 0; i < ids.n && i < 5; i++) {
        CHECK(ids.id[i] == want[i][0]);
        CHECK(ids.begin[i] == want[i][1] && ids.end[i] == want[i][2]); /* "c" has no id */
    }
    size_t n;
    CHECK(tokenizer_id(t, "<s>", 3) == 4 && tokenizer_id(t, "aba", 3) == 3);
    CHECK(tokenizer_content(t, 4, &n) && n == 3 && !tokenizer_content(t, 5, &n));
    text_tokens_fini(&ids);
    tokenizer_destroy(t);
}

/* Checks a merge that is listed twice. The package `tokenizers` uses the last place of the merge
 * in the list, so that "b c" is merged first. */
static bool last_place(void)
{
    struct err e = {0};
    struct tokens ids = {0};
    struct tokenizer *t = open_small(
        SMALL("null", "null",
              "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4},"
              "\"merges\":[\"a b\",\"b c\",\"a b\"]}"),
        &e);
    CHECK_MSG(t && !tokenizer_encode(t, "abc", 3, false, &ids, &e), "%s", e.text);
    const bool last = ids.n == 2 && ids.id[0] == 0 && ids.id[1] == 4;
    text_tokens_fini(&ids);
    tokenizer_destroy(t);
    return last;
}

static void test_listed_twice(void)
{
    CHECK(last_place());
}

#ifdef SEQD_MUTANTS
static void test_mutant(void)
{
    mutant_choose(MUTANT_MERGE_FIRST);
    mutant_report(MUTANT_MERGE_FIRST, !last_place(), "a pair that is listed twice");
    mutant_choose(MUTANT_NONE);
    verify_blind(MUTANT_MERGE_FIRST);
}
#endif

static bool whole_characters(const struct text *s)
{
    int64_t i = 0;
    int k = 1;
    for (; i < s->n && k; i += k) k = utf8_len(s->data + i, s->data + s->n);
    return k != 0;
}

/* Tells whether `more` is the text `less` into which the piece has been inserted at any place. */
static bool inserted(const struct text *less, const struct text *piece, const struct text *more)
{
    if (more->n != less->n + piece->n) return false;
    for (int64_t k = 0; k <= less->n; k++)
        if (!memcmp(more->data, less->data, (size_t)k) &&
            !memcmp(more->data + k, piece->data, (size_t)piece->n) &&
            !memcmp(more->data + k + piece->n, less->data + k, (size_t)(less->n - k)))
            return true;
    return false;
}

/* Checks ids whose pieces consist of complete characters. If such an id is inserted between the
 * ids of two words, the decoded text must be the text of the words with the piece inserted. */
static void check_pieces(struct tokenizer *t, const char *path)
{
    struct tokens word = {0};
    struct text less = {0}, more = {0}, piece = {0};
    struct err e = {0};
    int64_t n = 0;
    CHECK(!tokenizer_encode(t, "ab", 2, false, &word, &e) && word.n > 0);
    const int64_t k = word.n;
    int32_t *ids = calloc((size_t)(2 * k) + 1, sizeof *ids);
    for (int64_t i = 0; i < 2 * k; i++) ids[i] = word.id[i % k];
    CHECK(!tokenizer_decode(t, ids, 2 * k, false, &less, &e));
    for (int64_t i = 0; i < k; i++) ids[k + 1 + i] = word.id[i];
    for (int32_t id = 0; id < tokenizer_size(t); id++) {
        more.n = piece.n = 0;
        ids[k] = id;
        CHECK(!tokenizer_piece(t, id, &piece, &e) &&
              !tokenizer_decode(t, ids, 2 * k + 1, false, &more, &e));
        if (!piece.n || !whole_characters(&piece)) continue;
        n++;
        CHECK_MSG(inserted(&less, &piece, &more), "%s: id %d: \"%s\", piece \"%s\"", path, (int)id,
                  more.data, piece.data);
    }
    CHECK_MSG(n > tokenizer_size(t) / 3, "%s: %lld pieces", path, (long long)n);
    free(ids);
    text_tokens_fini(&word);
    text_fini(&less);
    text_fini(&more);
    text_fini(&piece);
}

static void test_pieces(void)
{
    glob_t g;
    CHECK(glob(GOLDEN "*.json", 0, NULL, &g) == 0);
    for (size_t i = 0; i < g.gl_pathc; i++) {
        struct err e = {0};
        struct tokenizer *t = open_file(g.gl_pathv[i], &e);
        CHECK_MSG(t || without_patterns(&e), "%s: %s", g.gl_pathv[i], e.text);
        if (t) check_pieces(t, g.gl_pathv[i]);
        tokenizer_destroy(t);
    }
    globfree(&g);
}

static void test_bad_text(void)
{
    struct err e = {0};
    struct tokens ids = {0};
    struct tokenizer *t = open_small(SMALL("null", "null", AB), &e);
    CHECK(tokenizer_encode(t, "ab", 2, false, &ids, &e) == 0 && ids.n == 1);
    CHECK(tokenizer_encode(t, "ab\xff", 3, false, &ids, &e) < 0 && e.code == ERR_INVALID);
    CHECK(ids.n == 1 && strstr(e.text, "byte 2"));
    text_tokens_fini(&ids);
    tokenizer_destroy(t);
}

static void test_refused(void)
{
    static const struct {
        const char *json, *says;
    } cases[] = {
        {"{", "byte"},
        {"[]", "object"},
        {SMALL("{\"type\":\"Wrong\"}", "null", AB), "normalizer \"Wrong\" is not known"},
        {SMALL("{\"type\":\"Precompiled\"}", "null", AB), "precompiled_charsmap"},
        {SMALL(CHARSMAP(""), "null", AB), "has 0 bytes"},
        {SMALL(CHARSMAP("BA=A"), "null", AB), "not base64"},
        {SMALL(CHARSMAP("BAA"), "null", AB), "not base64"},
        {SMALL(CHARSMAP("kAEAAAAAAAA="), "null", AB), "has 8 bytes and says that its trie has 400"},
        {SMALL(CHARSMAP("BAAAAAAAAAD/"), "null", AB), "not UTF-8"},
        {SMALL("null", "{\"type\":\"Wrong\"}", AB), "pre_tokenizer \"Wrong\" is not known"},
        {SMALL("null", "null", "{\"type\":\"Wrong\"}"), "model \"Wrong\" is not known"},
        {SMALL("null", "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a c\"]}"),
         "\"c\" is not in the vocabulary"},
        {SMALL("null", "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}"), "id -1"},
        {SMALL("null", "null", "{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}"),
         "id 99999999"},
        {SMALL("null", "null", "{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}"),
         "dropout"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct tokenizer *t = open_small(cases[i].json, &e);
        CHECK_MSG(!t && strstr(e.text, cases[i].says), "case %zu: %s", i, e.text);
        tokenizer_destroy(t);
    }
}

static void test_refused_patterns(void)
{
    static const char *const patterns[] = {
        "^*",  "(a",    "a)",     "a{2}+",   "\\\\p{Nope}", "(?<n>a)", "[[:x:]]", "[a&&]",
        "a**", "\\\\1", "(?i:é)", "(?i:ss)", "(?i:\\\\pL)", "[b-a]",   "\\\\Qx"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char json[1024];
        struct err e = {0};
        snprintf(json, sizeof json,
                 SMALL("null",
                       "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"%s\"},"
                       "\"behavior\":\"Isolated\",\"invert\":false}",
                       AB),
                 patterns[i]);
        struct tokenizer *t = open_small(json, &e);
        CHECK_MSG(!t && e.code == ERR_UNSUPPORTED, "%s: %s", patterns[i], e.text);
        tokenizer_destroy(t);
    }
}

/* Checks the error for a file. The error must name the file exactly once, and must name the
 * fix. */
static void check_opening(const char *dir, const char *path, const char *text, const char *says)
{
    struct err e = {0};
    char want[768];
    CHECK(file_write(path, text, strlen(text), &e) == 0);
    CHECK(!tokenizer_open(dir, &e));
    snprintf(want, sizeof want, "%s/%s", dir, says);
    CHECK_MSG(strstr(e.text, *says == 't' ? want : says), "%s", e.text);
}

static void test_directory(void)
{
    char dir[] = "/tmp/test_tokenizer.XXXXXX", path[256];
    struct err e = {0};
    CHECK(mkdtemp(dir) != NULL);
    CHECK(!tokenizer_open(dir, &e) && e.code == ERR_NOT_FOUND);
    CHECK_MSG(strstr(e.text, "add that of the published model, or give token ids"), "%s", e.text);
    snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    CHECK(file_write(path, "x", 1, &e) == 0);
    CHECK(!tokenizer_open(dir, &e) && strstr(e.text, "save_pretrained"));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    check_opening(
        dir, path, SMALL("null", "{\"type\":\"WeirdPiece\"}", AB),
        "tokenizer.json: pre_tokenizer \"WeirdPiece\" is not known: give token ids in place "
        "of text, or a model whose tokenizer does without it");
    check_opening(
        dir, path, "{\n\"model\": }",
        "tokenizer.json: JSON byte 11 (line 2, column 10): a value was expected: mend the "
        "file there, or fetch it again");
    check_opening(dir, path,
                  SMALL("null", "null",
                        "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":"
                        "[\"a \\u001b[2J\"]}"),
                  "merge 0: \"?[2J\" is not in the vocabulary: fetch the file again");
    CHECK(file_write(path, SMALL("null", "null", AB), strlen(SMALL("null", "null", AB)), &e) == 0);
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    static const char config[] = "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"ab\"}";
    CHECK(file_write(path, config, sizeof config - 1, &e) == 0);
    struct tokenizer *t = tokenizer_open(dir, &e);
    CHECK_MSG(t, "%s", e.text);
    if (!t) return;
    const struct special_ids *s = tokenizer_special(t);
    CHECK(s->bos == 4 && s->eos == 2 && s->pad == -1);
    tokenizer_destroy(t);
    file_remove(dir, NULL);
}

/* Checks a tokenizer for which a long text is one piece. Merging with a queue must have the same
 * result as searching all pairs for the next merge. */
static void test_long_piece(void)
{
    enum { N = 1 << 20 };
    struct err e = {0};
    struct tokens ids = {0}, part = {0};
    struct tokenizer *t = open_small(SMALL("null", "null", AB), &e);
    char *s = malloc(N);
    uint32_t r = 1;
    for (int i = 0; i < N; i++) s[i] = "ab"[(r = r * 1664525 + 1013904223) >> 31];
    for (int i = 29; i < N; i += 30) s[i] = 'b', s[i - 1] = 'b'; /* no merge ends in bb */
    CHECK(tokenizer_encode(t, s, N, false, &ids, &e) == 0);
    /* No merge joins the two letters of "bb", so the text may also be converted in parts of 30
     * bytes, which give the same ids. */
    int64_t at = 0;
    for (int i = 0; i < N; i += 30) {
        part.n = 0;
        CHECK(tokenizer_encode(t, s + i, (size_t)(N - i < 30 ? N - i : 30), false, &part, &e) == 0);
        const bool same = at + part.n <= ids.n &&
                          !memcmp(ids.id + at, part.id, (size_t)part.n * sizeof *part.id);
        CHECK_MSG(same, "piece at %d", i);
        if (!same) break;
        at += part.n;
    }
    CHECK(at == ids.n);
    text_tokens_fini(&ids);
    text_tokens_fini(&part);
    free(s);
    tokenizer_destroy(t);
}

int main(void)
{
    RUN(test_goldens);
    RUN(test_spans);
    RUN(test_listed_twice);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    RUN(test_pieces);
    RUN(test_bad_text);
    RUN(test_refused);
    RUN(test_refused_patterns);
    RUN(test_directory);
    RUN(test_long_piece);
    return test_done("tokenizer");
}
