/* Compares sampling with an independent reference, which sorts all logits and computes in long
 * double. Compares the places where stop strings are found with strstr. Checks how the lines of a
 * batch are read.
 *
 * tests: needs api/openapi.yaml */
#include <math.h>
#include <stdlib.h>

#include "api/core/job.h"
#include "kernels/philox.h"
#include "tests/lib/mutant.h"
#include "worker/family/shape.h"
#include "worker/model/model.h"
#include "worker/infer/requests.h"
#include "worker/infer/sample.h"
#include "worker/infer/spell.h"
#include "worker/infer/stop.h"

/* ---- random numbers, text -------------------------------------------------------------------- */

static void test_philox(void)
{
    /* The known answers of Random123 for philox4x32-10 (kat_vectors). */
    static const uint32_t kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1}};
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(kat[i] + 4, kat[i], out);
        CHECK(!memcmp(out, kat[i] + 6, sizeof out));
    }
}

static void test_utf8(void)
{
    char out[64];
    unsigned char bytes[8];
    CHECK(sample_utf8((const unsigned char *)"a\xC3\xA9z", 4, out) == 4);
    CHECK_STR(out, "a\xC3\xA9z");
    CHECK(sample_utf8((const unsigned char *)"\xC3"
                                             "a\xFF",
                      3, out) == 7);
    CHECK_STR(out, "\xEF\xBF\xBD"
                   "a\xEF\xBF\xBD");
    CHECK(sample_utf8((const unsigned char *)"", 0, out) == 0);
    CHECK(sample_bytes((const int32_t[]){104, 256, 105, 259, 257}, 5, bytes) == 4);
    CHECK(!memcmp(bytes, "hi\xFF\xFF", 4));
}

/* ---- the reference --------------------------------------------------------------------------- */

#define MAX_V 64

struct seen { /* the text that exists so far */
    int n_prompt, n_text;
    int32_t prompt[8], text[8];
};

struct entry {
    int id;
    long double z, p;
};

static int by_z(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->z != y->z ? (x->z < y->z ? 1 : -1) : x->id - y->id;
}

static int by_entry(const void *a, const void *b)
{
    return ((const struct entry *)a)->id - ((const struct entry *)b)->id;
}

static int times_in(const int32_t *list, int n, int id)
{
    int k = 0;
    for (int i = 0; i < n; i++) k += list[i] == id;
    return k;
}

/* Computes the entries that remain after penalties, temperature, top_k, top_p and min_p. Their ids
 * are in ascending order, and their probabilities add up to 1. *margin receives the smallest
 * distance between a sum of probabilities and the bound with which it is compared. */
static int reference(const float *logits, int V, const struct sample_options *o,
                     const struct seen *s, int banned, struct entry *out, long double *margin)
{
    struct entry e[MAX_V];
    long double sum = 0, run = 0;
    int n = 0, keep;
    for (int i = 0; i < V; i++) {
        long double z = (long double)logits[i];
        int times = times_in(s->text, s->n_text, i);
        bool seen = times || times_in(s->prompt, s->n_prompt, i);
        if (i == banned) continue;
        if (seen && o->repetition != 1)
            z = z < 0 ? z * (long double)o->repetition : z / (long double)o->repetition;
        z -= (long double)o->frequency * times + (times ? (long double)o->presence : 0);
        e[n++] = (struct entry){i, z, 0};
    }
    qsort(e, (size_t)n, sizeof *e, by_z);
    *margin = 1;
    if (o->temperature == 0) {
        out[0] = (struct entry){e[0].id, e[0].z, 1};
        return 1;
    }
    if (o->top_k > 0 && o->top_k < n) n = (int)o->top_k;
    for (int i = 0; i < n; i++)
        sum += e[i].p = expl((e[i].z - e[0].z) / (long double)o->temperature);
    for (keep = 0; keep < n && o->top_p < 1;) {
        run += e[keep++].p;
        *margin = fminl(*margin, fabsl(run / sum - (long double)o->top_p));
        if (run >= (long double)o->top_p * sum) break;
    }
    if (o->top_p < 1) n = keep;
    for (keep = 0; keep < n; keep++) {
        *margin = fminl(*margin, o->min_p > 0 ? fabsl(e[keep].p - (long double)o->min_p) : 1);
        /* the probabilities are in descending order */
        if (e[keep].p < (long double)o->min_p) break;
    }
    n = keep;
    qsort(e, (size_t)n, sizeof *e, by_entry);
    for (sum = 0, keep = 0; keep < n; keep++) sum += e[keep].p;
    for (int i = 0; i < n; i++) {
        out[i] = e[i];
        out[i].p /= sum;
    }
    return n;
}

/* Each entry has a share of [0, 1). Returns the id whose share contains u. If u is nearer than
 * *margin to a border of a share, *margin becomes that distance. */
static int pick(const struct entry *e, int n, double u, long double *margin)
{
    long double run = 0;
    for (int i = 0; i < n; i++) {
        run += e[i].p;
        *margin = fminl(*margin, fabsl(run - (long double)u));
        if (run > (long double)u) return e[i].id;
    }
    return e[n - 1].id;
}

/* Compares the tokens that the sampler under test chooses with those of the reference. If a sum is
 * within 1e-12 of a bound, either side of the bound is possible, and nothing is compared. 1e-12 is
 * a thousand times 64 roundings of double. */
static void compare(struct sampler *s, const float *logits, int V, const struct sample_options *o,
                    const struct seen *seen, int banned, int64_t draws)
{
    struct entry kept[MAX_V];
    long double cut, margin;
    int n = reference(logits, V, o, seen, banned, kept, &cut), compared = 0;
    sampler_begin(s, seen->prompt, seen->n_prompt);
    for (int i = 0; i < seen->n_text; i++) sampler_take(s, seen->text[i]);
    for (int64_t k = 0; k < draws; k++) {
        struct sample_key key = {7, k % 3, k % 5, k};
        int want = pick(kept, n, sample_uniform(&key), (margin = cut, &margin));
        int got = sampler_choose(s, logits, o, banned, &key);
        if (margin < 1e-12L) continue;
        compared++;
        CHECK_MSG(got == want, "draw %lld: %d, not %d (of %d; T %g k %lld p %g min %g)",
                  (long long)k, got, want, n, o->temperature, (long long)o->top_k, o->top_p,
                  o->min_p);
    }
    CHECK_MSG(compared > draws / 2 || cut < 1e-12L, "%d of %lld compared", compared,
              (long long)draws);
}

#define PLAIN                                                                                      \
    {                                                                                              \
        .temperature = 1, .top_p = 1, .repetition = 1                                              \
    }

/* Reproducible numbers in [-1, 1). */
static double noise(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)*x * 0x1p-63;
}

/* Opens a sampler. Its memory begins at s->z, which the caller frees. */
static void sampler_open(struct sampler *s, int64_t n_vocab)
{
    sampler_init(s, n_vocab, malloc((size_t)sampler_size(n_vocab)));
}

static void test_against_reference(void)
{
    struct sampler s;
    uint64_t x = 3;
    float logits[MAX_V];
    static const double temperatures[] = {0, 1e-3, 0.7, 1, 3, 100}, ps[] = {1, 0.9, 0.5, 1e-9},
                        mins[] = {0, 0.01, 0.3, 1}, penalties[] = {1, 1.3, 0.5};
    for (int round = 0; round < 300; round++) {
        int V = 1 + round % MAX_V;
        struct seen seen = {.n_prompt = round % 8, .n_text = round / 3 % 8};
        sampler_open(&s, V);
        /* every second logit is rounded to a coarse grid, so that some logits are equal */
        for (int i = 0; i < V; i++)
            logits[i] = (float)(i % 2 ? 6 * noise(&x) : floor(6 * noise(&x)));
        for (int i = 0; i < 8; i++) {
            seen.prompt[i] = (int32_t)((noise(&x) + 1) / 2 * V);
            seen.text[i] = (int32_t)((noise(&x) + 1) / 2 * V);
        }
        struct sample_options o = {.temperature = temperatures[round % 6],
                                   .top_k = round % 4 ? round % 11 : 0,
                                   .top_p = ps[round / 2 % 4],
                                   .min_p = mins[round / 3 % 4],
                                   .repetition = penalties[round / 5 % 3],
                                   .frequency = round / 7 % 3 * 0.4,
                                   .presence = round / 11 % 3 * -0.6};
        compare(&s, logits, V, &o, &seen, V > 1 && round % 3 == 0 ? round % V : -1, 40);
        free(s.z);
    }
}

/* Returns the set of ids that can be drawn. It draws so often that the random numbers, which are
 * distributed evenly, reach every id. */
static uint64_t support(struct sampler *s, const float *logits, const struct sample_options *o,
                        int banned)
{
    uint64_t ids = 0;
    sampler_begin(s, NULL, 0);
    for (int64_t k = 0; k < 3000; k++) {
        struct sample_key key = {1, 0, 0, k};
        ids |= 1ull << sampler_choose(s, logits, o, banned, &key);
    }
    return ids;
}

/* Checks top_k and top_p if equal logits are on both sides of the limit, where the order of ids
 * decides. The limits must be exactly k and exactly p. Each of eight equal logits has the
 * probability 1/8, which is exact. */
static void test_exact_cuts(void)
{
    struct sampler s;
    const float equal[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    const float steps[8] = {0, 3, 3, 1, 3, -INFINITY, 1, 0};
    sampler_open(&s, 8);
    for (int k = 0; k <= 8; k++) {
        struct sample_options o = PLAIN;
        o.top_k = k;
        CHECK(support(&s, equal, &o, -1) == (k ? (1u << k) - 1 : 255u));
        o.top_k = 0;
        o.top_p = k ? k / 8.0 : 1e-9;
        CHECK(support(&s, equal, &o, -1) == (k ? (1u << k) - 1 : 1u));
        if (k == 8) break;
        o.top_p = k / 8.0 + 1e-9; /* slightly more than k logits have together */
        CHECK(support(&s, equal, &o, -1) == (2u << k) - 1);
    }
    struct sample_options o = PLAIN;
    o.top_k = 2;
    CHECK(support(&s, steps, &o, -1) == (1 << 1 | 1 << 2));
    CHECK(support(&s, steps, &o, 1) == (1 << 2 | 1 << 4));
    o.top_k = 4; /* all logits of 3, and the first of the logits of 1 */
    CHECK(support(&s, steps, &o, -1) == (1 << 1 | 1 << 2 | 1 << 4 | 1 << 3));
    o.top_k = 0;
    o.min_p = 1; /* only ids whose logit equals the largest logit */
    CHECK(support(&s, steps, &o, -1) == (1 << 1 | 1 << 2 | 1 << 4));
    o.min_p = 0;
    CHECK(support(&s, steps, &o, -1) == 255 - (1 << 5)); /* -inf is never drawn */
    free(s.z);
}

/* Checks the smallest and the largest numbers that job_check accepts. They must give a token, and
 * no NaN may occur. */
static void test_extremes(void)
{
    struct sampler s;
    struct seen seen = {2, 2, {0, 1}, {1, 2}};
    const float wild[6] = {3.4e38f, -3.4e38f, 0, -INFINITY, 1e-38f, 3.4e38f};
    sampler_open(&s, 6);
    for (int i = 0; i < 64; i++) {
        struct sample_options o = {.temperature = i & 1 ? 5e-324 : 100,
                                   .top_k = i & 2 ? 3 : 0,
                                   .top_p = i & 4 ? 1e-9 : 1,
                                   .min_p = i & 8 ? 1 : 0,
                                   .repetition = i & 16 ? 1e3 : 1e-3,
                                   .frequency = i & 32 ? 100 : -100};
        sampler_begin(&s, seen.prompt, seen.n_prompt);
        for (int k = 0; k < seen.n_text; k++) sampler_take(&s, seen.text[k]);
        for (int64_t k = 0; k < 20; k++) {
            struct sample_key key = {INT64_MAX, k, INT32_MAX, k << 40};
            int32_t id = sampler_choose(&s, wild, &o, -1, &key);
            CHECK_MSG(id >= 0 && id < 6 && id != 3, "%d: %d", i, id);
        }
    }
    const float one[2] = {-INFINITY, -5};
    struct sampler t;
    struct sample_options o = PLAIN;
    sampler_open(&t, 2);
    CHECK(support(&t, one, &o, -1) == 2 && support(&t, one, &o, 0) == 2);
    free(t.z);
    free(s.z);
}

/* Checks that the seed, the request, the sequence and the position each change the random numbers.
 * A sampler that is set back to the end of the prompt must forget the generated text, but not the
 * prompt. */
static void test_keys_and_memory(void)
{
    struct sampler s;
    const float logits[4] = {1, 3, 3, -2};
    struct sample_options o = PLAIN;
    int differ[4] = {0};
    sampler_open(&s, 4);
    sampler_begin(&s, NULL, 0);
    for (int64_t k = 0; k < 64; k++) {
        struct sample_key a = {5, 0, 0, k};
        const struct sample_key other[4] = {
            {6, 0, 0, k}, {5, 1, 0, k}, {5, 0, 1, k}, {5, 0, 0, k + 1}};
        int32_t x = sampler_choose(&s, logits, &o, -1, &a);
        CHECK(x == sampler_choose(&s, logits, &o, -1, &a));
        for (int i = 0; i < 4; i++) differ[i] += x != sampler_choose(&s, logits, &o, -1, &other[i]);
    }
    CHECK(differ[0] && differ[1] && differ[2] && differ[3]);
    struct sample_key key = {0};
    o = (struct sample_options){.top_p = 1, .repetition = 10};
    sampler_begin(&s, (const int32_t[]){1}, 1);
    CHECK(sampler_choose(&s, logits, &o, -1, &key) == 2);
    sampler_take(&s, 2);
    CHECK(sampler_choose(&s, logits, &o, -1, &key) == 0);
    sampler_rewind(&s);
    CHECK(sampler_choose(&s, logits, &o, -1, &key) == 2);
    o = (struct sample_options){.top_p = 1, .repetition = 1, .presence = 0.5, .frequency = 0.5};
    sampler_begin(&s, (const int32_t[]){1}, 1); /* the tokens of a prompt are not counted */
    CHECK(sampler_choose(&s, logits, &o, -1, &key) == 1);
    /* the logit of id 1 is now 3 - 1 - .5, and the logit of id 2 is 3 - .5 - .5 */
    for (int i = 0; i < 3; i++) sampler_take(&s, i % 2 + 1);
    CHECK(sampler_choose(&s, logits, &o, -1, &key) == 2);
    free(s.z);
}

static void test_logprobs(void)
{
    const float logits[6] = {0, 2, -1, 2, -INFINITY, 5};
    struct sample_top top[SAMPLE_TOP];
    double chosen, sum = 0;
    long double Z = expl(0) + 2 * expl(2) + expl(-1) + expl(5);
    CHECK(sample_logprobs(logits, 6, 3, &chosen, 4, top) == 4);
    static const int order[] = {5, 1, 3, 0};
    for (int i = 0; i < 4; i++) CHECK_MSG(top[i].id == order[i], "place %d: %d", i, top[i].id);
    CHECK(chosen == top[2].logprob); /* Both members must have the same number. */
    CHECK(fabsl((long double)chosen - (2 - logl(Z))) < 1e-15L * 8);
    CHECK(sample_logprobs(logits, 6, 4, &chosen, 20, top) == 6 && isinf(chosen));
    for (int i = 0; i < 6; i++) sum += exp(top[i].logprob);
    CHECK(fabs(sum - 1) < 1e-14);
    CHECK(sample_logprobs(logits, 6, 0, &chosen, 0, top) == 0);
}

/* ---- stop strings ---------------------------------------------------------------------------- */

/* Returns the number of bytes at the end of the text that may be the beginning of a stop
 * string. */
static int held_bytes(const struct stop *s)
{
    int held = 0;
    for (int i = 0; i < s->n; i++)
        if (s->string[i].state > held) held = s->string[i].state;
    return held;
}

/* Feeds text byte by byte. Returns the end of the first match, with its length in *size, or -1 if
 * there is no match. After every byte, it checks the number of bytes that are not passed on yet.
 * These bytes must be the longest suffix of the text that is a prefix of a stop string. */
static int run_stop(struct stop *s, const char *text, int *size)
{
    stop_begin(s);
    for (int i = 0; text[i]; i++) {
        *size = stop_feed(s, (unsigned char)text[i]);
        if (*size) return i + 1;
        int held = 0;
        for (int k = 0; k < s->n; k++)
            for (int n = 1; n < s->string[k].size && n <= i + 1; n++)
                if (!memcmp(s->string[k].text, text + i + 1 - n, (size_t)n) && n > held) held = n;
        CHECK_MSG(held_bytes(s) == held, "%s: %d held at %d, not %d", text, held_bytes(s), i, held);
    }
    return -1;
}

static void test_stop(void)
{
    static const struct {
        const char *strings[3], *text;
        int end, size;
    } cases[] = {
        {{"aab"}, "aaab", 4, 3},
        {{"aab"}, "aaaaaab", 7, 3},
        {{"abab"}, "abacababab", 8, 4},
        {{"abcabd"}, "abcabcabd", 9, 6},
        {{"x"}, "", -1, 0},
        {{"xy"}, "xxyx", 3, 2},
        {{"\n\n"}, "a\nb\n\nc", 5, 2},
        {{"bc", "abc"}, "zabc", 4, 3},
        {{"abc", "b"}, "abc", 2, 1},
        {{"aaa", "aa"}, "aaa", 2, 2},
        {{"no", "nor", "or"}, "n nor", 4, 2},
        {{"end"}, "en en endend", 9, 3},
        {{"\xC3\xA9"}, "\xC3\xC3\xA9", 3, 2},
        {{"abcd"}, "abcabcabc", -1, 0},
    };
    static struct stop s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int size = 0;
        stop_init(&s);
        for (int k = 0; k < 3 && cases[i].strings[k]; k++)
            CHECK(!stop_add(&s, cases[i].strings[k], strlen(cases[i].strings[k])));
        int end = run_stop(&s, cases[i].text, &size);
        CHECK_MSG(end == cases[i].end && (end < 0 || size == cases[i].size), "%s: %d, %d",
                  cases[i].text, end, size);
    }
    char longest[STOP_SIZE + 1];
    memset(longest, 'q', sizeof longest);
    stop_init(&s);
    CHECK(stop_add(&s, longest, sizeof longest) == -1 && stop_add(&s, "", 0) == -1);
    for (int i = 0; i < STOP_STRINGS; i++) CHECK(!stop_add(&s, longest, STOP_SIZE));
    CHECK(stop_add(&s, "x", 1) == -1);
    stop_begin(&s);
    for (int i = 1; i < STOP_SIZE; i++) CHECK(!stop_feed(&s, 'q'));
    /* -1 means no byte, after which a match begins again */
    CHECK(stop_feed(&s, -1) == 0 && held_bytes(&s) == 0);
    for (int i = 1; i < STOP_SIZE; i++) CHECK(!stop_feed(&s, 'q'));
    CHECK(stop_feed(&s, 'q') == STOP_SIZE && stop_feed(&s, 'q') == STOP_SIZE);
}

/* Checks all texts of seven letters a and b with all stop strings of up to three letters. The
 * first match must end at the place that strstr gives. */
static void test_stop_everywhere(void)
{
    static struct stop s;
    for (int size = 1; size <= 3; size++)
        for (int w = 0; w < 1 << size; w++)
            for (int t = 0; t < 128; t++) {
                char word[4] = "", text[8] = "";
                int found = 0;
                for (int i = 0; i < size; i++) word[i] = w >> i & 1 ? 'b' : 'a';
                for (int i = 0; i < 7; i++) text[i] = t >> i & 1 ? 'b' : 'a';
                stop_init(&s);
                CHECK(!stop_add(&s, word, (size_t)size));
                const char *at = strstr(text, word);
                int end = run_stop(&s, text, &found);
                CHECK_MSG(end == (at ? (int)(at - text) + size : -1), "%s in %s: %d", word, text,
                          end);
            }
}

/* Returns the place at which the stop string "ba" ends the text of two tokens "ab". The b is the
 * end of the first token, and the a is the beginning of the second. */
static int64_t cut_over_tokens(void)
{
    static const char json[] =
        "{\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"decoder\":{"
        "\"type\":\"Fuse\"},\"post_processor\":null,\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
        "\"b\":1,\"ab\":2},"
        "\"merges\":[\"a b\"]}}";
    static struct stop stop;
    struct err e = {0};
    struct spell s = {0};
    int64_t cut[2] = {-1, -1};
    struct tokenizer *t = tokenizer_open_text(json, sizeof json - 1, &e);
    stop_init(&stop);
    CHECK(t && !stop_add(&stop, "ba", 2));
    stop_begin(&stop);
    CHECK_MSG(!spell_begin(&s, t, NULL, 0, &e), "%s", e.text);
    for (int i = 0; i < 2; i++) CHECK_MSG(!spell_put(&s, &stop, 2, &cut[i], &e), "%s", e.text);
    CHECK(cut[0] == -1 && spell_tokens(&s, 1) == 0 && spell_tokens(&s, 2) == 1);
    spell_fini(&s);
    tokenizer_destroy(t);
    return cut[1];
}

static void test_stop_over_tokens(void)
{
    CHECK(cut_over_tokens() == 1);
}

#ifdef SEQD_MUTANTS
static void test_mutant(void)
{
    mutant_choose(MUTANT_STOP_FORGOTTEN);
    mutant_report(MUTANT_STOP_FORGOTTEN, cut_over_tokens() != 1, "a stop string over two tokens");
    mutant_choose(MUTANT_NONE);
    verify_blind(MUTANT_STOP_FORGOTTEN);
}
#endif

/* ---- requests -------------------------------------------------------------------------------- */

static struct job_spec spec;
static struct request request;

static void batch_spec(void)
{
    spec_defaults(&spec);
    shape_defaults(&spec.model.shape);
    spec.kind = JOB_GENERATE;
    spec.model.shape.vocab = 300;
    spec.data.seq_len = 40;
    spec.sampling.max_tokens = 16;
    spec.sampling.seed = 9;
    spec.sampling.temperature = 0.5;
    CHECK(!spec_intern(&spec, "END", 3, &spec.sampling.stop[0]));
}

static const struct request *line(const char *text)
{
    request_of_line(&request, &spec, text, (int64_t)strlen(text));
    return &request;
}

static const struct request *body(const char *text)
{
    static char whole[2048];
    snprintf(whole, sizeof whole,
             "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{%s}}",
             text);
    return line(whole);
}

static void test_request(void)
{
    const struct request *r = body("\"prompt\":\"h\\u00e9\"");
    CHECK_MSG(r->refused.code == ERR_NONE, "%s", r->refused.text);
    CHECK_STR(r->id, "a");
    CHECK(r->n_tokens == 3 && r->tokens[0] == 'h' && r->tokens[1] == 0xC3 && r->tokens[2] == 0xA9);
    CHECK(r->max_tokens == 16 && r->n == 1 && r->logprobs == -1 && !r->echo && r->stop.n == 1);
    CHECK(r->sample.temperature == 0.5 && r->sample.top_p == 1 && r->sample.repetition == 1);
    CHECK(r->key.seed == 9 && r->key.request == 0xca978112); /* sha256("a") begins so */
    r = body(
        "\"prompt\":[0,299,256],\"max_tokens\":4,\"temperature\":1.5,\"top_p\":0.25,\"seed\":77,"
        "\"stop\":[\"x\",\"yy\"],\"n\":3,\"logprobs\":5,\"echo\":true,\"top_k\":7,\"min_p\":0.1,"
        "\"repetition_penalty\":1.1,\"frequency_penalty\":0.2,\"presence_penalty\":-0.3,"
        "\"min_tokens\":2,\"ignore_eos\":true,\"model\":\"m\",\"user\":\"u\",\"stream\":false,"
        "\"best_of\":3");
    CHECK_MSG(r->refused.code == ERR_NONE, "%s", r->refused.text);
    CHECK(r->n_tokens == 3 && r->tokens[1] == 299 && r->max_tokens == 4 && r->min_tokens == 2);
    CHECK(r->sample.temperature == 1.5 && r->sample.top_p == 0.25 && r->sample.top_k == 7);
    CHECK(r->sample.min_p == 0.1 && r->sample.repetition == 1.1 && r->sample.frequency == 0.2);
    CHECK(r->sample.presence == -0.3 && r->key.seed == 77 && r->key.request == 0);
    CHECK(r->stop.n == 2 && r->n == 3 && r->logprobs == 5 && r->echo && r->ignore_eos);
    r = body("\"prompt\":\"p\",\"max_tokens\":null,\"stop\":null,\"seed\":null,\"n\":null,"
             "\"logprobs\":null,\"echo\":null");
    CHECK(r->refused.code == ERR_NONE && r->max_tokens == 16 && r->stop.n == 1 && r->key.seed == 9);
    r = body("\"prompt\":\"p\",\"stop\":\"one\",\"max_tokens\":0,\"echo\":true,\"logprobs\":0");
    CHECK(r->refused.code == ERR_NONE && r->stop.n == 1 && r->stop.string[0].size == 3);
    CHECK(!r->max_tokens && r->logprobs == 0);
}

/* STOP_STRINGS strings */
#define STOPS                                                                                      \
    "\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\",\"m\",\"n\",\"o\","   \
    "\"p\""

static void test_refusals(void)
{
    static const struct {
        const char *body, *field, *part;
    } bad[] = {
        {"", "prompt", "missing or empty"},
        {"\"prompt\":\"\"", "prompt", "missing or empty"},
        {"\"prompt\":[]", "prompt", "missing or empty"},
        {"\"prompt\":[300]", "prompt", "the token 300"},
        {"\"prompt\":[-1]", "prompt", "the token -1"},
        {"\"prompt\":[1.5]", "prompt", "one list of token ids"},
        {"\"prompt\":[[1]]", "prompt", "one request of every prompt"},
        {"\"prompt\":[\"a\",\"b\"]", "prompt", "one request of every prompt"},
        {"\"prompt\":7", "prompt", "must be a string"},
        {"\"prompt\":\"p\",\"prompt\":\"q\"", "prompt", "occurs twice"},
        {"\"prompt\":\"p\",\"max_tokens\":17", "max_tokens", "sampling.max_tokens 16: raise it"},
        {"\"prompt\":\"p\",\"max_tokens\":0", "max_tokens", "asks for nothing"},
        {"\"prompt\":\"p\",\"max_tokens\":-1", "max_tokens", "between 0 and"},
        {"\"prompt\":\"p\",\"max_tokens\":1e99", "max_tokens", "an integer"},
        {"\"prompt\":\"0123456789012345678901234\"", "prompt", "data.seq_len 40"},
        {"\"prompt\":\"p\",\"temperature\":101", "temperature", "between 0 and 100"},
        {"\"prompt\":\"p\",\"temperature\":\"hot\"", "temperature", "a number"},
        {"\"prompt\":\"p\",\"top_p\":-1", "top_p", "between"},
        {"\"prompt\":\"p\",\"top_p\":0", "", ""},
        {"\"prompt\":\"p\",\"top_k\":-1", "", ""},
        {"\"prompt\":\"p\",\"top_k\":-2", "top_k", "between"},
        {"\"prompt\":\"p\",\"logit_bias\":{},\"stream_options\":null,\"future\":[]", "", ""},
        {"\"tool_choice\":\"none\",\"prompt\":\"p\",\"parallel_tool_calls\":true", "", ""},
        {"\"prompt\":\"p\",\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"]", "",
         ""},
        {"\"prompt\":\"p\",\"metadata\":{\"a\":{\"b\":1}},\"store\":false,\"suffix\":\"\"", "", ""},
        {"\"prompt\":\"p\",\"tool_choice\":\"required\"", "tool_choice", "belongs to tools"},
        {"\"prompt\":\"p\",\"response_format\":{\"type\":\"json_object\"}", "response_format",
         "not supported by this job"},
        {"\"prompt\":\"p\",\"store\":true", "store", "no answer is stored"},
        {"\"prompt\":\"p\",\"suffix\":\"x\"", "suffix", "no text is filled in"},
        {"\"prompt\":\"p\",\"modalities\":[\"audio\"]", "modalities", "an answer is text"},
        {"\"prompt\":\"p\",\"top_k\":301", "top_k", "300"},
        {"\"prompt\":\"p\",\"n\":0", "n", "between 1"},
        {"\"prompt\":\"p\",\"logprobs\":21", "logprobs", "20"},
        {"\"prompt\":\"p\",\"logprobs\":true", "logprobs", "an integer"},
        {"\"prompt\":\"p\",\"echo\":1", "echo", "true or false"},
        {"\"prompt\":\"p\",\"stop\":[]", "", ""},
        {"\"prompt\":\"p\",\"stop\":\"\"", "stop", "1 to 256"},
        {"\"prompt\":\"p\",\"stop\":[" STOPS "]", "", ""},
        {"\"prompt\":\"p\",\"stop\":[" STOPS ",\"q\"]", "stop", "at most 16"},
        {"\"prompt\":\"p\",\"stop\":[[\"a\"]]", "stop", "a string or a list"},
        {"\"prompt\":\"p\",\"stream\":true", "stream", "false"},
        {"\"prompt\":\"p\",\"n\":2,\"best_of\":3", "best_of", "must be n"},
        {"\"prompt\":\"p\",\"min_tokens\":17", "min_tokens", "over max_tokens"},
        {"\"prompt\":\"p\",\"logit_bias\":{\"5\":1,\"299\":-100}", "", ""},
        {"\"prompt\":\"p\",\"logit_bias\":{\"300\":1}", "logit_bias", "ids 0 to 299"},
        {"\"prompt\":\"p\",\"logit_bias\":{\"a\":1}", "logit_bias", "not an id of a token"},
        {"\"prompt\":\"p\",\"logit_bias\":{\"5\":1,\"05\":2}", "logit_bias", "id 5 twice"},
        {"\"prompt\":\"p\",\"logit_bias\":{\"5\":101}", "logit_bias", "from -100 to 100"},
        {"\"prompt\":\"p\",\"logit_bias\":[5]", "logit_bias", "an object of ids"},
        {"\"prompt\":\"p\",\"model\":3", "model", "strings"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct request *r = body(bad[i].body);
        CHECK_MSG((r->refused.code == ERR_NONE) == !*bad[i].part, "%s: %s", bad[i].body,
                  r->refused.text);
        CHECK_MSG(!strcmp(r->refused.field, bad[i].field), "%s: field %s", bad[i].body,
                  r->refused.field);
        CHECK_MSG(strstr(r->refused.text, bad[i].part), "%s: %s", bad[i].body, r->refused.text);
        CHECK_STR(r->id, "a");
    }
    static const char *const lines[] = {
        "",
        "[]",
        "{",
        "{}",
        "nonsense",
        "{\"custom_id\":\"a\"}",
        "{\"custom_id\":\"a\",\"method\":\"GET\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":\"p\"}}",
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
        "embeddings\",\"body\":{\"prompt\":\"p\"}}",
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":[]}",
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":\"p\"},\"x\":1}",
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":\"p\"}} x",
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/"
        "completions\",\"body\":{\"prompt\":\"p",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK_MSG(line(lines[i])->refused.code != ERR_NONE, "%s", lines[i]);
}

/* Checks the error of a request that is too long. The error must name the fields whose change
 * makes room for the request. */
static void test_room(void)
{
    static const struct {
        int64_t seq_len, max_tokens;
        const char *body, *says;
        int64_t positions; /* max_pos of the model; 0 for a new one */
    } v[] = {
        {40, 16, "\"max_tokens\":17", "sampling.max_tokens 16: raise it"},
        {40, 16, "\"max_tokens\":60", "raise it, and data.seq_len"},
        {10, 9, "\"max_tokens\":8",
         "3 tokens and max_tokens 8 are 11 together: the job was planned "
         "for data.seq_len 10: raise data.seq_len to 11, or lower "
         "max_tokens"},
        /* the default of max_tokens in a job with a short sequence; it is 256 with a longer
         * sequence */
        {10, 9, "\"n\":1",
         "3 tokens and sampling.max_tokens 9 are 12 together: the job was planned "
         "for data.seq_len 10: raise data.seq_len to 259, or lower "
         "sampling.max_tokens, or give the request a max_tokens"},
        {10, 8, "\"n\":1", "raise data.seq_len to 11, or lower sampling.max_tokens"},
        /* if the prompt is as long as data.seq_len, there is no room for even one token, whatever
         * max_tokens is; only an echo without new tokens is possible */
        {3, 2, "\"max_tokens\":1", "raise data.seq_len to 4, or shorten the prompt"},
        {2, 1, "\"n\":1", "raise data.seq_len to 259, or shorten the prompt"},
        {3, 2, "\"max_tokens\":1,\"echo\":true", "raise data.seq_len to 4, or lower max_tokens"},
        {2, 1, "\"max_tokens\":0,\"echo\":true", "raise data.seq_len to 3, or shorten the prompt"},
        /* a model with fewer positions than the request needs */
        {10, 9, "\"max_tokens\":8", "data.seq_len 10: raise data.seq_len to 11, or lower max", 11},
        {10, 9, "\"max_tokens\":9",
         "data.seq_len 10: the model itself ends at 11 positions: lower max_tokens", 11},
        {10, 9, "\"n\":1", "for data.seq_len 10: raise data.seq_len to 100, or lower sampl", 100},
        {40, 16, "\"max_tokens\":60", "raise it, and data.seq_len", 63},
        {40, 16, "\"max_tokens\":60",
         "sampling.max_tokens 16: the model itself ends at 62 positions: lower max_tokens", 62},
    };
    const struct job_spec before = spec;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        char text[128];
        if (v[i].positions) spec_intern(&spec, "/model", 6, &spec.model.path);
        if (v[i].positions) spec.model.shape.family = FAMILY_GPT2;
        spec.model.shape.max_pos = v[i].positions;
        spec.data.seq_len = v[i].seq_len;
        spec.sampling.max_tokens = v[i].max_tokens;
        snprintf(text, sizeof text, "\"prompt\":\"abc\",%s", v[i].body);
        const struct request *r = body(text);
        CHECK_MSG(strstr(r->refused.text, v[i].says), "%s: %s", v[i].body, r->refused.text);
    }
    spec = before;
}

static void test_request_id(void)
{
    char id[REQUEST_ID_SIZE];
    struct err e;
    const char *good = "{\"body\":{\"custom_id\":\"no\"},\"custom_id\":\"yes \\u00e9\"}";
    CHECK(!request_id(good, (int64_t)strlen(good), id, &e));
    CHECK_STR(id, "yes \xC3\xA9");
    static const char *const bad[] = {"{}",
                                      "{\"custom_id\":5}",
                                      "{\"custom_id\":\"\"}",
                                      "{\"custom_id\":\"a\",\"custom_id\":\"b\"}",
                                      "{\"custom_id\":\"a\\u0000b\"}",
                                      "{\"custom_id\":\"a\"",
                                      "7"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_MSG(request_id(bad[i], (int64_t)strlen(bad[i]), id, &e) == -1, "%s", bad[i]);
}

/* Returns the reason for which a served request with this member is refused. */
static const char *served(const char *member, int size, bool chat)
{
    const struct request_call call = {.id = 1, .chat = chat, .adapter = ADAPTER_BASE};
    char text[128];
    const int n = snprintf(text, sizeof text, "{\"%.*s\":[[1]]}", size, member);
    request_of_body(&request, &spec, &call, text, n);
    return request.refused.text;
}

/* Checks that a served request knows each member that api/openapi.yaml lists. */
static void test_openapi_members(void)
{
    static const char *const schemas[] = {"\n    OpenAICompletionsRequest:\n",
                                          "\n    OpenAIChatRequest:\n"};
    static const char properties[] = "\n      properties:\n";
    static char text[1 << 20];
    FILE *f = fopen("api/openapi.yaml", "r");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0);
    if (f) fclose(f);
    for (int chat = 0; chat < 2; chat++) {
        const char *p = strstr(text, schemas[chat]);
        int n = 0;
        p = p ? strstr(p, properties) : NULL;
        p = p ? p + sizeof properties - 1 : "";
        for (; strspn(p, " ") >= 8; p = strchr(p, '\n') + 1) {
            if (strspn(p, " ") > 8) continue;
            const char *why = served(p + 8, (int)strcspn(p + 8, ":"), chat);
            CHECK_MSG(!strstr(why, "unknown member") && !strstr(why, "not in this version"), "%s",
                      why);
            n++;
        }
        CHECK(n > 15);
    }
    CHECK(strstr(served("other", 5, false), "unknown member"));
}

int main(void)
{
    struct err e = {0};
    batch_spec();
    CHECK(!request_init(&request, 4096, &e));
    RUN(test_philox);
    RUN(test_utf8);
    RUN(test_against_reference);
    RUN(test_exact_cuts);
    RUN(test_extremes);
    RUN(test_keys_and_memory);
    RUN(test_logprobs);
    RUN(test_stop);
    RUN(test_stop_everywhere);
    RUN(test_stop_over_tokens);
#ifdef SEQD_MUTANTS
    RUN(test_mutant);
#endif
    RUN(test_request);
    RUN(test_refusals);
    RUN(test_room);
    RUN(test_request_id);
    RUN(test_openapi_members);
    request_fini(&request);
    return test_done("sample");
}
