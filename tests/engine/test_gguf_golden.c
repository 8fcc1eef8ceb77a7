/* Compares GGUF files with results of llama.cpp (tests/golden/make_gguf_golden.py). The results
 * are logits of each architecture with weights of every type, and ids of each kind of tokenizer.
 * tests: needs golden/gguf */
#include "tests/lib/lm.h"

#include "api/core/file.h"
#include "worker/hf/hf.h"
#include "worker/text/tokenizer.h"

#define GOLDEN "tests/golden/gguf/"

/* ---- logits ---------------------------------------------------------------------------------- */

/* Opens the ids and logits of a sequence, which is a single document. */
static void open_golden(struct lm_golden *g, const char *name)
{
    char path[128];
    struct err e = {0};
    *g = (struct lm_golden){.name = name};
    snprintf(g->dir, sizeof g->dir, GOLDEN "%s.gguf", name);
    snprintf(path, sizeof path, GOLDEN "%s.safetensors", name);
    CHECK_MSG(!hf_read_dir(g->dir, &g->m, &e), "%s", e.text);
    g->file = st_open(path, &e);
    CHECK_MSG(g->file, "%s", e.text);
    if (!g->file) abort();
    const struct st_tensor *logits = st_find(g->file, "logits");
    g->n = logits->dims[0];
    g->S = logits->dims[1];
    g->V = logits->dims[2];
    g->ids = lm_ints(g, "ids");
    int32_t **rest[] = {&g->targets, &g->pos, &g->lo, &g->hi};
    for (int k = 0; k < 4; k++) *rest[k] = calloc((size_t)g->S, sizeof **rest[k]);
    for (int64_t i = 0; i < g->S; i++) {
        g->targets[i] = i + 1 < g->S ? g->ids[i + 1] : -1;
        g->pos[i] = (int32_t)i;
        g->hi[i] = (int32_t)i + 1;
    }
    g->n_targets = g->S - 1;
    g->logits = malloc((size_t)logits->count * 4);
    CHECK(!st_read_f32(g->file, logits, g->logits, &e));
}

/* Compares logits with transformers and llama.cpp. All three compute in fp32 with sums of at most
 * 64 terms, and differ by 1e-6. llama.cpp's GELU is a table of fp16 values, whose error is
 * 3e-4. */
static void check_logits(const char *name, double bound)
{
    struct lm_golden g;
    struct err e = {0};
    open_golden(&g, name);
    float *other = malloc((size_t)(g.S * g.V) * sizeof *other);
    CHECK(!st_read_f32(g.file, st_find(g.file, "llama_cpp"), other, &e));
    for (int P = 1; P <= 2; P++) {
        struct lm_run r = {0};
        lm_go(&r, &g, P);
        const double off = lm_rel_l2(r.logits, g.logits, g.S * g.V);
        const double off_other = lm_rel_l2(r.logits, other, g.S * g.V);
        CHECK_MSG(off <= LM_WANTED, "%s on %d: logits off by %g", name, P, off);
        CHECK_MSG(off_other <= bound, "%s on %d: %g off those of llama.cpp", name, P, off_other);
        lm_free(&r);
    }
    free(other);
    lm_close(&g);
}

static void test_logits(void)
{
    check_logits("llama", LM_WANTED);
    check_logits("qwen2", LM_WANTED);
    check_logits("qwen3", LM_WANTED);
    check_logits("gemma3", 1e-3);
}

/* ---- ids ------------------------------------------------------------------------------------- */

static size_t unhex(char *s)
{
    size_t n = 0;
    unsigned byte;
    for (const char *p = s; sscanf(p, "%2x", &byte) == 1; p += 2) s[n++] = (char)byte;
    return n;
}

static bool same_ids(struct tokenizer *t, const char *s, size_t n, bool special, const char *want)
{
    struct tokens ids = {0};
    struct err e = {0};
    CHECK_MSG(!tokenizer_encode(t, s, n, special, &ids, &e), "%s", e.text);
    int64_t k = 0;
    bool same = true;
    for (char *end; *want; want = end) {
        const long id = strtol(want, &end, 10);
        if (end == want) break;
        same &= k < ids.n && ids.id[k] == id;
        k++;
    }
    same &= k == ids.n;
    text_tokens_fini(&ids);
    return same;
}

/* Compares the ids of all strings in a file with the ids of llama.cpp. Returns the number of
 * strings whose ids differ. */
static int count_other(struct tokenizer *t, char *text, int *n)
{
    int other = 0;
    char *line = text, *next;
    for (; *line; line = next) {
        next = strchr(line, '\n');
        *next++ = 0;
        char *plain = strchr(line, '\t');
        *plain++ = 0;
        char *special = strchr(plain, '\t');
        *special++ = 0;
        const size_t size = unhex(line);
        const bool same = same_ids(t, line, size, false, plain) &&
                          same_ids(t, line, size, true, special);
        other += !same;
        ++*n;
    }
    return other;
}

static void check_ids(const char *name, int differ)
{
    char path[128];
    struct err e = {0};
    int n = 0;
    snprintf(path, sizeof path, GOLDEN "%s.gguf", name);
    struct tokenizer *t = tokenizer_open(path, &e);
    if (!t && strstr(e.text, "no PCRE2")) return; /* this is a build without patterns */
    CHECK_MSG(t, "%s", e.text);
    snprintf(path, sizeof path, GOLDEN "%s.txt", name);
    char *text = file_read(path, 1 << 20, NULL, &e);
    CHECK_MSG(text, "%s", e.text);
    if (t && text) {
        const int other = count_other(t, text, &n);
        CHECK_MSG(other == differ && n > 40, "%s: %d of %d strings have other ids", name, other, n);
    }
    free(text);
    tokenizer_destroy(t);
}

static void test_ids(void)
{
    check_ids("llama2", 0);
    check_ids("gemma", 0);
    check_ids("llama3", 0);
    /* three strings differ, because llama.cpp leaves out the tokenizer's NFC */
    check_ids("qwen", 3);
    check_ids("gpt2", 0);
    check_ids("smollm", 0);
    check_ids("tekken", 0);
}

int main(void)
{
    RUN(test_logits);
    RUN(test_ids);
    return test_done("gguf_golden");
}
