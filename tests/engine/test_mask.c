/* test_mask.c: checks the tokens that a masked language model must predict. An oracle draws these
 * tokens again from the definition. They must be the same on any number of ranks. The shares of
 * tokens that are replaced by the mask, replaced by a random token, or left unchanged must be
 * those of BERT. */
#include "tests/lib/datadir.h"

#include <math.h>
#include "api/core/job.h"
#include "tests/lib/philox.h"
#include "worker/family/family.h"

/* LONG is more than two pieces of 2,048 tokens, in which targets are counted */
enum { S = 211, LONG = 2 * 2048 + 700 };

struct rows {
    int32_t ids[LONG], targets[LONG];
    int64_t pos[LONG], lo[LONG], hi[LONG];
};

/* Returns the id at position i of sample n, computed from the definition with the generator of the
 * tests. */
static int32_t oracle(int64_t n, int64_t i, int32_t id, int32_t *target)
{
    const uint32_t key[2] = {(uint32_t)spec->seed, 0x6d61736b};
    const uint32_t counter[4] = {(uint32_t)i, 0, (uint32_t)n, 0};
    uint32_t w[4];
    *target = -1;
    if (id >= 256) return id; /* ids that end documents are not hidden */
    philox_words(key, counter, w);
    if ((double)w[0] / 4294967296.0 >= spec->objective.mask_prob) return id;
    *target = id;
    const double u = (double)w[1] / 4294967296.0;
    return u < 0.8 ? 258 : u < 0.9 ? (int32_t)floor((double)w[2] / 4294967296.0 * 256) : id;
}

static struct data *text_data(bool masked)
{
    static char text[8192];
    sources_begin();
    spec->model.shape.family = FAMILY_BERT;
    spec->model.shape.vocab = 259;
    spec->seed = 77;
    spec->objective.mask_prob = 0.3;
    spec->data.packing = PACKING_CONCAT;
    size_t n = 0;
    for (int line = 0; line < 60; line++)
        n += (size_t)sprintf(text + n,
                             masked ? "{\"prompt\":\"%.*s\",\"completion\":\"line %d\"}\n"
                                    : "{\"text\":\"%.*s line %d\"}\n",
                             line % 40, "the quick brown fox jumps over the lazy dog", line);
    puts_file(masked ? "masked.jsonl" : "plain.jsonl", text);
    source_add(masked ? "masked.jsonl" : "plain.jsonl", DATA_JSONL, "text");
    return prepare_open();
}

/* Compares the sample on one rank with the oracle. Returns how many of its tokens are targets. */
static int64_t check_sample(const struct data *d, const struct data_order *o, int64_t n,
                            int64_t length)
{
    static struct rows rows;
    struct batch b = {
        .ids = rows.ids, .targets = rows.targets, .pos = rows.pos, .lo = rows.lo, .hi = rows.hi};
    struct shard sh;
    struct sample s;
    int64_t count = 0, bad = 0;
    CHECK(shard_init(&sh, length, 1, 0, LAYOUT_CONTIGUOUS, false, &e) == 0);
    CHECK(data_batch(o, &sh, n, &b, &e) == 0);
    data_sample(o, n, &s);
    for (int64_t k = 0; k < s.n_fragments; k++) {
        struct fragment f;
        data_fragment(o, &s, k, &f);
        for (int64_t i = 0; i < f.length; i++) {
            const int64_t at = f.pos + i;
            int32_t id, target;
            uint8_t learn;
            CHECK(!data_read(d, f.token + i, 1, &id, &e) &&
                  !data_read_mask(d, f.token + i, 1, &learn, &e));
            const int32_t seen = oracle(n, at, id, &target);
            if (!learn) target = -1;
            bad += b.targets[at] != target || b.ids[at] != (learn ? seen : id);
            bad += b.lo[at] != f.pos || b.hi[at] != f.pos + f.length || b.pos[at] != i;
            count += target >= 0;
        }
    }
    CHECK_MSG(!bad, "sample %lld: %lld differences", (long long)n, (long long)bad);
    CHECK(b.n_targets == count && data_targets(o, n, &e) == count);
    return count;
}

/* Checks that the rows of P ranks together equal the rows on one rank. */
static void check_ranks(const struct data_order *o, int64_t n, int P, int layout)
{
    static struct rows one, some;
    struct batch a = {
        .ids = one.ids, .targets = one.targets, .pos = one.pos, .lo = one.lo, .hi = one.hi};
    struct batch b = {
        .ids = some.ids, .targets = some.targets, .pos = some.pos, .lo = some.lo, .hi = some.hi};
    struct shard sh;
    int64_t bad = 0, seen = 0, targets = 0;
    CHECK(shard_init(&sh, S, 1, 0, LAYOUT_CONTIGUOUS, false, &e) == 0);
    CHECK(data_batch(o, &sh, n, &a, &e) == 0);
    for (int r = 0; r < P; r++) {
        CHECK(shard_init(&sh, S, P, r, (enum layout_id)layout, false, &e) == 0);
        CHECK(data_batch(o, &sh, n, &b, &e) == 0 && b.n_targets == a.n_targets);
        for (int64_t i = 0; i < sh.T; i++) {
            const int64_t at = shard_pos(&sh, i);
            if (at >= a.n_tokens) {
                bad += b.ids[i] != TOKEN_PAD || b.targets[i] != -1 || b.hi[i] != 0;
                continue;
            }
            seen++;
            targets += b.targets[i] >= 0;
            bad += b.ids[i] != a.ids[at] || b.targets[i] != a.targets[at];
            bad += b.lo[i] != a.lo[at] || b.hi[i] != a.hi[at] || b.pos[i] != a.pos[at];
        }
    }
    CHECK_MSG(!bad && seen == a.n_tokens && targets == a.n_targets, "sample %lld P %d: %lld",
              (long long)n, P, (long long)bad);
}

static void check_data(bool masked)
{
    struct data *d = text_data(masked);
    struct order_options oo = data_order_options(spec, SET_TRAIN, S);
    CHECK(!oo.causal && oo.mask.prob == 0.3);
    struct data_order *o = order_open(d, &oo);
    int64_t sum = 0;
    for (int64_t n = 0; n < 3 * data_order_samples(o); n++) sum += check_sample(d, o, n, S);
    CHECK(sum > 0);
    for (int P = 2; P <= 8; P += P == 4 ? 4 : 1)
        for (int layout = LAYOUT_CONTIGUOUS; layout <= LAYOUT_ZIGZAG; layout++)
            for (int64_t n = 0; n < 2 * data_order_samples(o); n += 3) check_ranks(o, n, P, layout);
    data_order_close(o);
    data_close(d);
}

static void test_oracle(void)
{
    check_data(false);
    check_data(true); /* only completions are learnt */
}

/* Checks a document that fills a whole sample and continues in a second one. */
static void test_long(void)
{
    static char text[LONG + LONG / 2 + 16];
    memset(text, 'a', LONG + LONG / 2);
    sources_begin();
    spec->model.shape.family = FAMILY_BERT;
    spec->model.shape.vocab = 259;
    spec->seed = 78;
    spec->objective.mask_prob = 0.3;
    spec->data.packing = PACKING_CONCAT;
    puts_file("long.txt", text);
    source_add("long.txt", DATA_TEXT, NULL);
    struct data *d = prepare_open();
    const struct order_options oo = data_order_options(spec, SET_TRAIN, LONG);
    struct data_order *o = order_open(d, &oo);
    CHECK(data_order_samples(o) == 2);
    CHECK(check_sample(d, o, 0, LONG) + check_sample(d, o, 1, LONG) > LONG / 4);
    data_order_close(o);
    data_close(d);
}

/* Checks the shares over 200 000 tokens, within five standard errors. A sample that is repeated in
 * a later pass has a different index, so different tokens are hidden. A different seed also hides
 * different tokens. */
static void test_shares(void)
{
    const struct mask_rule r = {
        .prob = 0.15, .seed = 5, .hidden = 258, .n_other = 256, .special = 256, .n_special = 3};
    struct mask_rule other = r;
    enum { N = 200000 };
    double told = 0, hidden = 0, same = 0, again = 0, reseeded = 0;
    other.seed = 6;
    for (int i = 0; i < N; i++) {
        int32_t t, t2, t3;
        const int32_t id = i % 256, x = mask_token(&r, 9, i, id, &t);
        CHECK(t == -1 ? x == id : t == id && x >= 0 && (x < 256 || x == 258));
        told += t >= 0;
        hidden += x == 258;
        same += t >= 0 && x == id;
        mask_token(&r, 10, i, id, &t2);
        mask_token(&other, 9, i, id, &t3);
        again += t >= 0 && t2 >= 0;
        reseeded += t >= 0 && t3 >= 0;
    }
    const double p = told / N, h = hidden / told, k = same / told;
    CHECK_MSG(fabs(p - 0.15) < 5 * sqrt(0.15 * 0.85 / N), "%g told", p);
    CHECK_MSG(fabs(h - 0.8) < 5 * sqrt(0.8 * 0.2 / told), "%g hidden", h);
    /* a tenth of the tokens is left unchanged; a second tenth is replaced, and one in 256 of the
     * replaced tokens gets its old id by chance */
    const double want = 0.1 + 0.1 / 256;
    CHECK_MSG(fabs(k - want) < 5 * sqrt(want * (1 - want) / told), "%g as they were", k);
    CHECK(fabs(again / told - 0.15) < 5 * sqrt(0.15 * 0.85 / told));
    CHECK(fabs(reseeded / told - 0.15) < 5 * sqrt(0.15 * 0.85 / told));
    for (int id = 256; id < 259; id++) {
        int32_t t;
        for (int i = 0; i < 100; i++) CHECK(mask_token(&r, 0, i, id, &t) == id && t == -1);
    }
}

/* Checks that samples of families that attend in one direction are not changed. */
static void test_causal(void)
{
    sources_begin();
    CHECK(data_order_options(spec, SET_TRAIN, S).causal);
    CHECK(data_order_options(spec, SET_TRAIN, S).mask.prob == 0);
    spec->model.shape.family = FAMILY_BERT;
    spec->kind = JOB_EMBED; /* an embedding hides no token */
    CHECK(!data_order_options(spec, SET_TRAIN, S).causal);
    CHECK(data_order_options(spec, SET_TRAIN, S).mask.prob == 0);
}

int main(void)
{
    datadir_begin("mask");
    RUN(test_oracle);
    RUN(test_long);
    RUN(test_shares);
    RUN(test_causal);
    return datadir_end("mask");
}
