/* test_packing: what documents become under every packing and every policy for long ones, held
 * against the lengths alone; mixtures; traces; and data that fails under way. */
#include "tests/datadir.h"

#include <fcntl.h>
#include <sys/wait.h>
#include "api/core/jread.h"
#include "worker/rank/trace.h"
#include "worker/train/mixture.h"
#include "worker/train/permute.h"

enum { MAX_DOCS = 400, MAX_TOKENS = 40000, V = 70000 };

struct corpus { /* what was written, known without reading it back */
    struct data *d;
    int64_t n_docs, n_tokens;
    int64_t start[MAX_DOCS + 1];
    int32_t ids[MAX_TOKENS];
    uint8_t learn[MAX_TOKENS];
};

static uint64_t seed = 1;

static int64_t draw(int64_t n) /* [0, n): xorshift */
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (int64_t)(seed % (uint64_t)n);
}

/* Documents of 1 to `most` tokens as records of ids, some tokens masked. Appends to `name`. */
static void corpus_write(struct corpus *c, const char *name, int64_t n_docs, int64_t most,
                         bool masked)
{
    char *text = malloc((size_t)(n_docs * most) * 12 + (size_t)n_docs * 64), *at = text;
    for (int64_t k = 0; k < n_docs; k++, c->n_docs++) {
        const int64_t n = 1 + draw(most), first = c->n_tokens;
        c->start[c->n_docs] = first;
        for (int64_t i = 0; i < n; i++, c->n_tokens++) {
            c->ids[c->n_tokens] = (int32_t)draw(V);
            c->learn[c->n_tokens] = !masked || draw(3) > 0;
        }
        at += sprintf(at, "{\"input_ids\":[");
        for (int64_t i = first; i < c->n_tokens; i++)
            at += sprintf(at, "%s%d", i > first ? "," : "", c->ids[i]);
        at += sprintf(at, "],\"loss_mask\":[");
        for (int64_t i = first; i < c->n_tokens; i++)
            at += sprintf(at, "%s%d", i > first ? "," : "", c->learn[i]);
        at += sprintf(at, "]}\n");
    }
    c->start[c->n_docs] = c->n_tokens;
    put(name, text, (size_t)(at - text));
    free(text);
}

static void corpus_begin(struct corpus *c)
{
    c->n_docs = c->n_tokens = 0;
    sources_begin();
    spec->model.shape.vocab = V;
}

static void corpus_make(struct corpus *c, int64_t n_docs, int64_t most, bool masked)
{
    corpus_begin(c);
    corpus_write(c, "corpus.jsonl", n_docs, most, masked);
    source_add("corpus.jsonl", DATA_JSONL, NULL);
    c->d = prepare_open();
    CHECK(data_stats(c->d)->n_tokens == c->n_tokens && data_stats(c->d)->n_documents == n_docs);
}

static struct corpus corp; /* 200 KiB: not on the stack */

/* ---- every token once ------------------------------------------------------------------------- */

/* How often each token should be in a pass, and the counts of the policy, from lengths alone. */
static struct order_stats expect(const struct corpus *c, int64_t S, int overlong, uint8_t *times)
{
    struct order_stats st = {0};
    for (int64_t k = 0; k < c->n_docs; k++) {
        const int64_t n = c->start[k + 1] - c->start[k];
        int64_t keep = n;
        if (n > S && overlong == OVERLONG_TRUNCATE) keep = S;
        if (n > S && overlong == OVERLONG_DROP) keep = 0;
        for (int64_t i = 0; i < n; i++) times[c->start[k] + i] = i < keep;
        st.n_tokens += keep;
        st.n_documents += keep > 0;
        st.split_documents += n > S && keep == n;
        st.dropped_documents += keep == 0;
        st.dropped_tokens += keep == 0 ? n : 0;
        st.truncated_documents += keep > 0 && keep < n;
        st.truncated_tokens += keep > 0 ? n - keep : 0;
    }
    return st;
}

/* One sample as its fragments say: checks them, counts tokens into seen, adds up targets. */
static int check_sample(const struct corpus *c, const struct data_order *o, int64_t n, int64_t S,
                        uint8_t *seen, int64_t *n_fragments, int64_t *n_tokens)
{
    struct sample s;
    int bad = 0;
    int64_t pos = 0, targets = 0;
    data_sample(o, n, &s);
    for (int64_t k = 0; k < s.n_fragments; k++) {
        struct fragment f;
        data_fragment(o, &s, k, &f);
        bad += f.pos != pos || f.length < 1 || f.document < 0 || f.document >= c->n_docs;
        if (bad) return bad;
        bad += f.token < c->start[f.document];
        bad += f.token + f.length > c->start[f.document + 1];
        for (int64_t i = 0; i < f.length; i++) {
            seen[f.token + i]++;
            targets += i > 0 && c->learn[f.token + i];
        }
        pos += f.length;
    }
    bad += pos != s.n_tokens || pos > S || pos < 1;
    bad += data_targets(o, n, &e) != targets;
    *n_fragments += s.n_fragments;
    *n_tokens += pos;
    return bad;
}

static bool same_counts(const struct order_stats *a, const struct order_stats *b)
{
    return a->n_tokens == b->n_tokens && a->n_documents == b->n_documents &&
           a->split_documents == b->split_documents &&
           a->dropped_documents == b->dropped_documents && a->dropped_tokens == b->dropped_tokens &&
           a->truncated_documents == b->truncated_documents &&
           a->truncated_tokens == b->truncated_tokens;
}

/* Two passes of one order: each has every kept token once, whole documents wherever they fit. */
static int check_order(const struct corpus *c, const struct order_options *options)
{
    static uint8_t times[MAX_TOKENS], seen[MAX_TOKENS];
    struct order_stats want = expect(c, options->seq_len, options->overlong, times);
    struct data_order *o = data_order_open(c->d, options, &e);
    if (!o) return want.n_tokens ? 1000 : !strstr(e.text, "no sample is left");
    const struct order_stats *st = data_order_stats(o);
    const int64_t N = data_order_samples(o);
    int bad = !same_counts(st, &want) + (N != st->n_samples);
    for (int64_t pass = 0; pass < 2; pass++) {
        int64_t n_fragments = 0, n_tokens = 0;
        memset(seen, 0, sizeof seen);
        for (int64_t n = 0; n < N; n++)
            bad += check_sample(c, o, pass * N + n, options->seq_len, seen, &n_fragments,
                                &n_tokens);
        bad += memcmp(seen, times, (size_t)c->n_tokens) != 0;
        bad += n_fragments != st->n_fragments || n_tokens != st->n_tokens;
    }
    if (options->packing != PACKING_CONCAT) /* a piece a document, and what over-long ones give */
        bad += st->n_fragments < st->n_documents ||
               (!st->split_documents && st->n_fragments != st->n_documents);
    data_order_close(o);
    return bad;
}

static void test_every_token_once(void)
{
    static const struct {
        int64_t n_docs, most;
    } corpora[] = {{1, 500}, {300, 1}, {200, 60}, {40, 700}, {7, 3}};
    static const int64_t lens[] = {1, 7, 64, 256, 5000};
    for (size_t k = 0; k < sizeof corpora / sizeof *corpora; k++)
        for (int masked = 0; masked < 2; masked++) {
            corpus_make(&corp, corpora[k].n_docs, corpora[k].most, masked);
            for (size_t s = 0; s < sizeof lens / sizeof *lens; s++)
                for (int packing = 0; packing < PACKING_N; packing++)
                    for (int over = OVERLONG_SPLIT; over < OVERLONG_N; over++)
                        for (int in_order = 0; in_order < 2; in_order++) {
                            struct order_options o = {.seq_len = lens[s],
                                                      .seed = 5,
                                                      .packing = packing,
                                                      .overlong = over,
                                                      .in_order = in_order};
                            int bad = check_order(&corp, &o);
                            CHECK_MSG(bad == 0,
                                      "corpus %zu masked %d S %lld packing %d over %d: "
                                      "%d",
                                      k, masked, (long long)lens[s], packing, over, bad);
                        }
            data_close(corp.d);
        }
}

/* ---- best fit --------------------------------------------------------------------------------- */

/* The definition, in the obvious way: O(n^2). Returns the number of bins; where[i] for document i. */
static int64_t naive_best_fit(const struct corpus *c, int64_t S, int64_t *where)
{
    static int64_t room[MAX_DOCS], since[MAX_DOCS]; /* since: when a bin came to its room */
    bool placed[MAX_DOCS] = {0};
    int64_t n_bins = 0;
    for (int64_t step = 0; step < c->n_docs; step++) {
        int64_t doc = -1, len = 0, best = -1;
        for (int64_t i = 0; i < c->n_docs; i++) {
            int64_t n = c->start[i + 1] - c->start[i];
            if (!placed[i] && n > len) doc = i, len = n;
        }
        placed[doc] = true;
        for (int64_t b = 0; b < n_bins; b++)
            if (room[b] >= len && (best < 0 || room[b] < room[best] ||
                                   (room[b] == room[best] && since[b] > since[best])))
                best = b;
        if (best < 0) {
            best = n_bins++;
            room[best] = S;
        }
        room[best] -= len;
        since[best] = step;
        where[doc] = best;
    }
    return n_bins;
}

static void test_best_fit(void)
{
    static const int64_t lens[] = {60, 61, 63, 64, 65, 127, 128, 200, 4096, 4097};
    static int64_t where[MAX_DOCS];
    corpus_make(&corp, 300, 60, false);
    for (size_t s = 0; s < sizeof lens / sizeof *lens; s++) {
        struct order_options options = {.seq_len = lens[s],
                                        .packing = PACKING_BEST_FIT,
                                        .overlong = OVERLONG_ERROR,
                                        .in_order = true};
        struct data_order *o = order_open(corp.d, &options);
        const int64_t n_bins = naive_best_fit(&corp, lens[s], where);
        int bad = data_order_samples(o) != n_bins;
        for (int64_t n = 0; !bad && n < n_bins; n++) {
            struct sample x;
            struct fragment f = {0};
            int64_t before = INT64_MAX;
            data_sample(o, n, &x);
            for (int64_t k = 0; k < x.n_fragments; k++) {
                data_fragment(o, &x, k, &f);
                bad += where[f.document] != n || f.length > before;
                before = f.length;
            }
        }
        CHECK_MSG(!bad, "S %lld: %lld bins, naive %lld", (long long)lens[s],
                  (long long)data_order_samples(o), (long long)n_bins);
        /* 11/9 of the best possible, which is at least all tokens over the size, and 6/9 */
        const double least = (double)corp.n_tokens / (double)lens[s];
        CHECK((double)n_bins <= 11.0 / 9 * (least + 1) + 6.0 / 9);
        data_order_close(o);
    }
    data_close(corp.d);
}

/* ---- policies --------------------------------------------------------------------------------- */

static void test_overlong(void)
{
    puts_file("long.jsonl", "\n{\"text\":\"abc\"}\n\n{\"text\":\"0123456789\"}\n");
    sources_begin();
    source_add("long.jsonl", DATA_JSONL, NULL);
    struct data *d = prepare_open();
    for (int packing = 0; packing < PACKING_N; packing++) {
        struct order_options o = {.seq_len = 10, .packing = packing, .overlong = OVERLONG_ERROR};
        e = (struct err){0};
        CHECK(!data_order_open(d, &o, &e) && e.code == ERR_INVALID);
        CHECK_STR(e.field, "data.overlong");
        CHECK_MSG(strstr(e.text, "/long.jsonl record 4 has 11 tokens, the sequence 10"), "%s",
                  e.text);
        o.overlong = OVERLONG_AUTO; /* nothing is masked: split */
        struct data_order *x = order_open(d, &o);
        CHECK(data_order_stats(x)->split_documents == 1 && data_order_stats(x)->n_tokens == 15);
        data_order_close(x);
        o.overlong = OVERLONG_DROP;
        o.seq_len = 3;
        CHECK(!data_order_open(d, &o, &e) && e.code == ERR_INVALID);
        CHECK_MSG(strstr(e.text, "2 of them (15 tokens)"), "%s", e.text);
    }
    data_close(d);
    puts_file("p.jsonl", "{\"prompt\":\"0123456789\",\"completion\":\"x\"}\n");
    sources_begin();
    source_add("p.jsonl", DATA_JSONL, NULL);
    spec->data.loss_on = LOSS_ON_COMPLETION;
    d = prepare_open();
    struct order_options o = {.seq_len = 11, .overlong = OVERLONG_AUTO};
    CHECK(!data_order_open(d, &o, &e) && strstr(e.text, "p.jsonl record 1 has 12 tokens"));
    o.seq_len = 12;
    struct data_order *x = order_open(d, &o);
    CHECK(data_targets(x, 0, &e) == 2); /* the last of the prompt predicts x, x its end */
    data_order_close(x);
    o = (struct order_options){.seq_len = 10, .overlong = OVERLONG_SPLIT, .in_order = true};
    x = order_open(d, &o);
    CHECK(data_targets(x, 0, &e) == 0 && data_targets(x, 1, &e) == 1);
    struct shard sh;
    int32_t ids[10], targets[10];
    int64_t pos[10], lo[10], hi[10];
    struct batch b = {ids, targets, pos, lo, hi, 0, 0};
    CHECK(!shard_init(&sh, 10, 1, 0, LAYOUT_CONTIGUOUS, false, &e));
    CHECK(!data_batch(x, &sh, 0, &b, &e) && b.n_targets == 0 && b.n_tokens == 10);
    for (int i = 0; i < 10; i++) CHECK(targets[i] == -1 && ids[i] == '0' + i);
    data_order_close(x);
    data_close(d);
}

/* ---- rows ------------------------------------------------------------------------------------- */

/* Where a rank's row stands, from the description of the layouts. */
static int64_t row_pos(int64_t S, int P, int r, enum layout_id layout, int64_t row)
{
    if (layout == LAYOUT_CONTIGUOUS) return row + r * ((S + P - 1) / P);
    int64_t len = (S + 2 * P - 1) / (2 * P);
    return row < len ? r * len + row : (2 * P - 1 - r) * len + row - len;
}

enum { MAX_S = 300 };

static int64_t real_end(const struct fragment *f)
{
    return f->pos + f->length;
}

struct want { /* a sample, written down from its fragments and the corpus */
    int32_t ids[MAX_S], targets[MAX_S];
    int64_t pos[MAX_S], lo[MAX_S], hi[MAX_S], n;
};

static void write_down(struct want *w, const struct data_order *o,
                       const struct order_options *options, int64_t n)
{
    struct sample s;
    data_sample(o, n, &s);
    w->n = s.n_tokens;
    for (int64_t k = 0; k < s.n_fragments; k++) {
        struct fragment f;
        data_fragment(o, &s, k, &f);
        for (int64_t i = 0; i < f.length; i++) {
            const int64_t p = f.pos + i, t = f.token + i;
            const bool last = i + 1 == f.length;
            w->ids[p] = corp.ids[t];
            w->targets[p] = last || !corp.learn[t + 1] ? -1 : corp.ids[t + 1];
            w->pos[p] = options->reset_positions ? i : p;
            w->lo[p] = options->document_mask ? f.pos : 0;
            w->hi[p] = options->causal ? p + 1 : options->document_mask ? real_end(&f) : w->n;
        }
    }
}

static int compare_rows(const struct data_order *o, const struct want *w, int64_t n, int64_t S,
                        int P, enum layout_id layout)
{
    int32_t ids[2 * MAX_S], targets[2 * MAX_S];
    int64_t pos[2 * MAX_S], lo[2 * MAX_S], hi[2 * MAX_S], n_targets = 0, covered = 0;
    struct batch b = {ids, targets, pos, lo, hi, 0, 0};
    int bad = 0;
    for (int r = 0; r < P; r++) {
        struct shard sh;
        if (shard_init(&sh, S, P, r, layout, false, &e)) return 1000;
        memset(ids, 0x55, sizeof ids);
        memset(targets, 0x55, sizeof targets);
        if (data_batch(o, &sh, n, &b, &e)) return 1000;
        for (int64_t row = 0; row < sh.T; row++) {
            const int64_t p = row_pos(S, P, r, layout, row);
            const bool pad = p >= w->n;
            covered += !pad;
            n_targets += targets[row] >= 0;
            bad += ids[row] != (pad ? TOKEN_PAD : w->ids[p]);
            bad += targets[row] != (pad ? -1 : w->targets[p]);
            bad += pos[row] != (pad ? 0 : w->pos[p]);
            bad += lo[row] != (pad ? 0 : w->lo[p]);
            bad += hi[row] != (pad ? 0 : w->hi[p]);
        }
        bad += b.n_tokens != w->n;
        bad += ids[sh.T] != 0x55555555 || targets[sh.T] != 0x55555555; /* no row too many */
    }
    return bad + (covered != w->n) + (n_targets != b.n_targets);
}

static void test_rows(void)
{
    static const int64_t lens[] = {1, 37, 256};
    static const int ranks[] = {1, 2, 3, 5};
    static struct want w;
    for (int masked = 0; masked < 2; masked++) {
        corpus_make(&corp, 60, 90, masked);
        for (size_t s = 0; s < sizeof lens / sizeof *lens; s++)
            for (int packing = 0; packing < PACKING_N; packing++)
                for (int flags = 0; flags < 8; flags++) {
                    struct order_options options = {.seq_len = lens[s],
                                                    .seed = 9,
                                                    .packing = packing,
                                                    .overlong = OVERLONG_SPLIT,
                                                    .document_mask = flags & 1,
                                                    .reset_positions = flags & 2,
                                                    .causal = flags & 4};
                    struct data_order *o = order_open(corp.d, &options);
                    int bad = 0;
                    for (int64_t n = 0; n < data_order_samples(o); n += lens[s] == 1 ? 17 : 1) {
                        write_down(&w, o, &options, n);
                        for (size_t p = 0; p < sizeof ranks / sizeof *ranks; p++)
                            for (int l = LAYOUT_CONTIGUOUS; l <= LAYOUT_ZIGZAG; l++)
                                bad += compare_rows(o, &w, n, lens[s], ranks[p], l);
                    }
                    CHECK_MSG(!bad, "masked %d S %lld packing %d flags %d: %d", masked,
                              (long long)lens[s], packing, flags, bad);
                    data_order_close(o);
                }
        data_close(corp.d);
    }
}

/* ---- mixtures --------------------------------------------------------------------------------- */

static void test_shares(void)
{
    static const struct {
        int n;
        double weight[4];
        int64_t share[4];
    } cases[] = {{2, {0.7, 0.3}, {700, 300}},
                 {2, {7, 3}, {700, 300}},
                 {3, {1, 1, 1}, {334, 333, 333}},
                 {3, {0.1, 0.2, 0.7}, {100, 200, 700}},
                 {4, {1, 1, 2, 2}, {167, 167, 333, 333}},
                 {2, {999, 1}, {999, 1}},
                 {1, {5}, {1000}}};
    struct mixture m;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        CHECK(mixture_init(&m, cases[c].weight, cases[c].n, &e) == 0);
        for (int64_t block = 0; block < 5; block++) {
            static bool used[4][MIXTURE_BLOCK];
            int64_t count[4] = {0};
            int bad = 0;
            memset(used, 0, sizeof used);
            for (int64_t i = 0; i < MIXTURE_BLOCK; i++) {
                int source;
                int64_t k;
                mixture_at(&m, 3, block * MIXTURE_BLOCK + i, &source, &k);
                k -= block * cases[c].share[source];
                bad += source < 0 || source >= cases[c].n;
                if (bad || k < 0 || k >= cases[c].share[source] || used[source][k]) {
                    bad++;
                    break;
                }
                used[source][k] = true;
                count[source]++;
            }
            for (int i = 0; i < cases[c].n; i++) bad += count[i] != cases[c].share[i];
            CHECK_MSG(!bad, "case %zu block %lld", c, (long long)block);
        }
    }
    CHECK(mixture_init(&m, (double[]){1, 1e-4}, 2, &e) == -1 && e.code == ERR_INVALID);
    CHECK(mixture_init(&m, (double[]){1, 0}, 2, &e) == -1);
    CHECK(mixture_init(&m, (double[]){1, 1.0 / 0.0}, 2, &e) == -1);
}

/* Three sources of different sizes. first_doc[i]: where the documents of source i begin. */
static void mixture_corpus(int64_t first_doc[4])
{
    static const char *const names[] = {"m0.jsonl", "m1.jsonl", "m2.jsonl"};
    static const int64_t docs[] = {100, 7, 30};
    static const double weight[] = {0.5, 0.2, 0.3};
    corpus_begin(&corp);
    for (int i = 0; i < 3; i++) {
        first_doc[i] = corp.n_docs;
        corpus_write(&corp, names[i], docs[i], 40, false);
        source_add(names[i], DATA_JSONL, NULL)->weight = weight[i];
    }
    first_doc[3] = corp.n_docs;
    corp.d = prepare_open();
}

/* Each source is gone through pass by pass, every token of it once a pass; its samples hold nothing
 * of another; every block of the mixture has its exact shares. */
static void check_mixture(const struct data_order *o, const int64_t first_doc[4], int64_t n_blocks)
{
    static int64_t times[3][8][MAX_TOKENS];
    static const int64_t share[] = {500, 200, 300};
    int64_t count[3] = {0}, passes[3] = {0};
    int bad = 0;
    memset(times, 0, sizeof times);
    for (int64_t n = 0; n < n_blocks * MIXTURE_BLOCK; n++) {
        struct sample s;
        data_sample(o, n, &s);
        count[s.stream]++;
        if (s.pass > passes[s.stream]) passes[s.stream] = s.pass;
        for (int64_t k = 0; k < s.n_fragments; k++) {
            struct fragment f;
            data_fragment(o, &s, k, &f);
            bad += f.document < first_doc[s.stream] || f.document >= first_doc[s.stream + 1];
            for (int64_t i = 0; s.pass < 8 && i < f.length; i++)
                times[s.stream][s.pass][f.token + i]++;
        }
        if (n % MIXTURE_BLOCK == MIXTURE_BLOCK - 1)
            for (int i = 0; i < 3; i++) bad += count[i] != share[i] * (n / MIXTURE_BLOCK + 1);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_MSG(passes[i] > 1, "source %d: too few samples to see a whole pass", i);
        /* The places of a block are permuted: the last two passes may be open. */
        for (int64_t p = 0; p + 1 < passes[i] && p < 8; p++)
            for (int64_t t = corp.start[first_doc[i]]; t < corp.start[first_doc[i + 1]]; t++)
                bad += times[i][p][t] > 1 || (p + 2 < passes[i] && times[i][p][t] != 1);
    }
    CHECK_MSG(!bad, "%d differences", bad);
}

static void test_mixture(void)
{
    int64_t first_doc[4];
    mixture_corpus(first_doc);
    for (int packing = 0; packing < PACKING_N; packing++) {
        struct order_options options = {
            .seq_len = 16, .seed = 4, .packing = packing, .overlong = OVERLONG_SPLIT};
        struct data_order *o = order_open(corp.d, &options);
        check_mixture(o, first_doc, 2);
        data_order_close(o);
    }
    data_close(corp.d);
}

/* A sample does not depend on what was asked before, on who asks, or on the other orders that are
 * open: what a resumed job, another number of ranks and another dp rely on. */
static void test_pure(void)
{
    int64_t first_doc[4];
    mixture_corpus(first_doc);
    struct order_options options = {
        .seq_len = 32, .seed = 4, .packing = PACKING_BEST_FIT, .overlong = OVERLONG_SPLIT};
    struct order_options longer = options;
    longer.seq_len = 77; /* another stage */
    struct data_order *a = order_open(corp.d, &options), *other = order_open(corp.d, &longer);
    struct sample from[200], again;
    for (int64_t n = 0; n < 200; n++) data_sample(a, n, &from[n]);
    data_order_close(a);
    struct data *d = data_open(in_dir("prepared"), data_stats(corp.d)->id, DATA_TRUST, &e);
    CHECK(d != NULL);
    struct data_order *b = order_open(d, &options);
    for (int64_t n = 199; n >= 0; n -= 3) { /* from the middle, backwards, between others */
        data_sample(other, n, &again);
        data_sample(b, n, &again);
        CHECK(!memcmp(&again, &from[n], sizeof again));
    }
    data_order_close(b);
    data_order_close(other);
    data_close(d);
    data_close(corp.d);
}

/* Without weights the order of concatenated documents is what it always was: windows of the whole
 * set, permuted by (seed, pass). Values from the program before it knew orders. */
static void test_old_order(void)
{
    static const int64_t want[] = {
        19, 14, 3,  16, 6, 11, 1,  9,  5, 18, 7, 13, 12, 17, 4,  15, 8, 0, 2,  20, 10,
        5,  17, 19, 0,  3, 16, 20, 14, 2, 1,  9, 13, 12, 7,  15, 10, 8, 4, 18, 6,  11,
    };
    puts_file("o.txt", "0123456789012345678901234567890123456789");
    sources_begin();
    source_add("o.txt", DATA_TEXT, NULL);
    struct data *d = prepare_open();
    struct order_options options = {.seq_len = 2, .seed = 7};
    struct data_order *o = order_open(d, &options);
    CHECK(data_order_samples(o) == 21);
    for (int64_t n = 0; n < 42; n++) {
        struct sample s;
        data_sample(o, n, &s);
        CHECK_MSG(s.index == want[n], "sample %lld is window %lld, was %lld", (long long)n,
                  (long long)s.index, (long long)want[n]);
    }
    data_order_close(o);
    data_close(d);
}

/* A weighted source of which nothing is left is an error with its name; without weights it is not
 * missed. */
static void test_empty_source(void)
{
    puts_file("short.txt", "abc");
    puts_file("long.txt", "abcdefghijkl");
    for (int weighted = 0; weighted < 2; weighted++) {
        sources_begin();
        source_add("short.txt", DATA_TEXT, NULL)->weight = weighted;
        source_add("long.txt", DATA_TEXT, NULL)->weight = weighted;
        struct data *d = prepare_open();
        struct order_options o = {.seq_len = 8, .overlong = OVERLONG_DROP};
        e = (struct err){0};
        struct data_order *x = data_order_open(d, &o, &e);
        if (weighted) {
            CHECK(!x && e.code == ERR_INVALID);
            CHECK_MSG(strstr(e.text, "source 1") && strstr(e.text, "(13 tokens)"), "%s", e.text);
        } else {
            CHECK(x && data_order_samples(x) == 1);
        }
        data_order_close(x);
        data_close(d);
    }
}

/* ---- the eval set ----------------------------------------------------------------------------- */

static void test_eval_set(void)
{
    puts_file("t.txt", "training text");
    puts_file("v.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"cde\"}\n");
    sources_begin();
    source_add("t.txt", DATA_TEXT, NULL)->weight = 2;
    source_in(&spec->eval.data[spec->eval.n_data++], "v.jsonl", DATA_JSONL, NULL);
    spec->data.seq_len = 4;
    struct data *d = prepare_open();
    struct order_options o = data_order_options(spec, SET_EVAL, 0);
    CHECK(o.in_order && o.seq_len == 4 && o.causal);
    struct data_order *x = order_open(d, &o);
    CHECK(data_order_samples(x) == 2);
    struct sample s;
    struct fragment f;
    data_sample(x, 0, &s);
    CHECK(s.n_tokens == 4 && s.n_fragments == 2);
    data_fragment(x, &s, 0, &f);
    CHECK(f.token == data_stats(d)->n_tokens && f.length == 3 && f.document == 1);
    data_sample(x, 3, &s); /* the second pass is as the first */
    CHECK(s.index == 1 && s.pass == 1 && s.n_tokens == 3);
    data_order_close(x);
    o = data_order_options(spec, SET_TRAIN, 5);
    CHECK(!o.in_order && o.seq_len == 5);
    x = order_open(d, &o);
    CHECK(data_order_samples(x) == 3);
    data_order_close(x);
    data_close(d);
    sources_begin();
    source_add("t.txt", DATA_TEXT, NULL);
    d = prepare_open();
    o = (struct order_options){.set = SET_EVAL, .seq_len = 4, .in_order = true};
    CHECK(!data_order_open(d, &o, &e) && !strcmp(e.field, "eval.data"));
    data_close(d);
}

/* ---- provenance ------------------------------------------------------------------------------- */

static int64_t int_after(struct jread *j, const char *key)
{
    int64_t v = -1;
    for (enum jtok t = jread_next(j); t > J_END; t = jread_next(j))
        if (t == J_KEY && jread_is(j, key)) {
            CHECK(jread_next(j) == J_NUMBER && jread_int(j, &v) == 0);
            return v;
        }
    CHECK_MSG(0, "no %s", key);
    return v;
}

/* From the trace back to the bytes of the file: the record begins at byte_offset, and its tokens
 * are those of the sample. */
static void test_trace(void)
{
    static char json[1 << 20];
    static int32_t ids[256];
    corpus_make(&corp, 50, 100, true);
    size_t text_size;
    char *text = file_read(in_dir("corpus.jsonl"), 1 << 24, &text_size, &e);
    struct order_options options = {
        .seq_len = 64, .packing = PACKING_BEST_FIT, .overlong = OVERLONG_SPLIT};
    struct data_order *o = order_open(corp.d, &options);
    for (int64_t n = 0; n < data_order_samples(o); n++) {
        struct jread j;
        struct sample s;
        int64_t size = data_trace(o, n, 1000, json, sizeof json, &e);
        CHECK(size > 0 && size == data_trace(o, n, 1000, NULL, 0, &e));
        data_sample(o, n, &s);
        jread_init(&j, json, (size_t)size);
        CHECK(int_after(&j, "sample") == n && int_after(&j, "pass") == 0);
        CHECK(int_after(&j, "tokens") == s.n_tokens);
        CHECK(int_after(&j, "targets") == data_targets(o, n, &e));
        CHECK(int_after(&j, "n_fragments") == s.n_fragments);
        for (int64_t k = 0; k < s.n_fragments; k++) {
            struct fragment f;
            data_fragment(o, &s, k, &f);
            CHECK(int_after(&j, "source") == 0);
            CHECK(int_after(&j, "record") == f.document + 1); /* a line a document */
            const char *line = text + int_after(&j, "byte_offset");
            CHECK(int_after(&j, "document") == f.document);
            const int64_t offset = int_after(&j, "offset");
            CHECK(int_after(&j, "length") == f.length && int_after(&j, "pos") == f.pos);
            CHECK(!strncmp(line, "{\"input_ids\":[", 14) && (line == text || line[-1] == '\n'));
            const char *at = line + 14;
            for (int64_t i = 0; i < offset; i++) at = strchr(at, ',') + 1;
            CHECK(data_read(corp.d, f.token, f.length, ids, &e) == 0);
            for (int64_t i = 0; i < f.length; i++, at += strcspn(at, ",]") + 1)
                CHECK(ids[i] == atoi(at));
        }
        CHECK(jread_next(&j) == J_OBJECT_END && jread_next(&j) == J_ARRAY_END);
        CHECK(jread_next(&j) == J_OBJECT_END && jread_next(&j) == J_END);
    }
    CHECK(strstr(json, "/corpus.jsonl\"") != NULL);
    int64_t few = data_trace(o, 0, 1, json, sizeof json, &e);
    CHECK(few > 0 && few < 400);
    data_order_close(o);
    free(text);
    data_close(corp.d);
}

/* seqrank --trace, its output in `out`. Returns its exit status. */
static int trace_program(char *out, size_t size, const char *const *arg, int n)
{
    char *argv[16];
    int status = -1;
    FILE *f = fopen(in_dir("trace.out"), "w+");
    for (int i = 0; i < n; i++) argv[i] = (char *)arg[i];
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fileno(f), 1);
        dup2(open("/dev/null", O_WRONLY), 2);
        _exit(trace_main(n, argv));
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    rewind(f);
    out[fread(out, 1, size - 1, f)] = 0;
    fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_trace_program(void)
{
    static char out[1 << 20], want[1 << 20];
    char path[200];
    corpus_make(&corp, 50, 100, true);
    snprintf(path, sizeof path, "%s/prepared/%s/", dir, data_stats(corp.d)->id);
    const char *arg[] = {path,     "seq_len=64", "packing=best_fit", "overlong=split",
                         "seed=3", "step=2",     "global_batch=3"};
    CHECK(trace_program(out, sizeof out, arg, 7) == 0);
    struct order_options options = {
        .seq_len = 64, .packing = PACKING_BEST_FIT, .overlong = OVERLONG_SPLIT, .seed = 3};
    struct data_order *o = order_open(corp.d, &options);
    size_t n = (size_t)sprintf(want,
                               "{\"prepared_id\":\"%s\",\"set\":\"train\",\"seq_len\":64,"
                               "\"first\":3,\"count\":3,\"samples\":[",
                               data_stats(corp.d)->id);
    for (int64_t k = 3; k < 6; k++) { /* step 2 of batches of 3 */
        n += (size_t)data_trace(o, k, 1000, want + n, sizeof want - n, &e);
        n += (size_t)sprintf(want + n, "%s", k < 5 ? "," : "]}\n");
    }
    CHECK(!strcmp(out, want));
    arg[5] = "first=3", arg[6] = "count=3";
    CHECK(trace_program(out, sizeof out, arg, 7) == 0 && !strcmp(out, want));
    static const char *const wrong[] = {"step=0",   "packing=some", "seq_len=-1", "sq=1",
                                        "count=1x", "set=both",     "count=70000"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        arg[6] = wrong[i];
        CHECK_MSG(trace_program(out, sizeof out, arg, 7) == 2, "%s", wrong[i]);
    }
    CHECK(trace_program(out, sizeof out, arg, 2) == 2); /* no sample is named */
    arg[6] = "set=eval";                                /* there is none */
    CHECK(trace_program(out, sizeof out, arg, 7) == 1);
    arg[0] = "/nowhere";
    CHECK(trace_program(out, sizeof out, arg, 6) == 1);
    data_order_close(o);
    data_close(corp.d);
}

/* ---- data that fails -------------------------------------------------------------------------- */

/* Files that are cut under an open order: an error with the file's name, and no signal. */
static void test_cut_under_way(void)
{
    static const char *const parts[] = {"tokens.bin", "loss.bin", "origins.bin"};
    static int32_t ids[64], targets[64];
    static int64_t pos[64], lo[64], hi[64];
    struct batch b = {ids, targets, pos, lo, hi, 0, 0};
    struct shard sh;
    char path[200], json[4096];
    CHECK(!shard_init(&sh, 64, 1, 0, LAYOUT_CONTIGUOUS, false, &e));
    for (int p = 0; p < 3; p++) {
        corpus_make(&corp, 50, 100, true);
        struct order_options options = {
            .seq_len = 64, .packing = PACKING_NONE, .overlong = OVERLONG_SPLIT, .in_order = true};
        struct data_order *o = order_open(corp.d, &options);
        const int64_t last = data_order_samples(o) - 1;
        CHECK(!data_batch(o, &sh, last, &b, &e) && data_trace(o, last, 9, json, 4096, &e) > 0);
        snprintf(path, sizeof path, "%s/prepared/%s/%s", dir, data_stats(corp.d)->id, parts[p]);
        CHECK(truncate(path, 3) == 0);
        e = (struct err){0};
        int rc = p < 2 ? data_batch(o, &sh, last, &b, &e)
                       : (int)data_trace(o, last, 9, json, sizeof json, &e);
        CHECK_MSG(rc == -1 && e.code == ERR_CORRUPT && strstr(e.text, path), "%s: %d %s", parts[p],
                  rc, e.text);
        if (p == 1) CHECK(data_targets(o, last, &e) == -1);
        data_order_close(o);
        data_close(corp.d);
    }
}

/* The digests are looked at once: a second open trusts what the first found, for as long as the
 * files are the same ones; and sees at once when they are not. */
static void test_checked_once(void)
{
    char path[200], id[80], c;
    corpus_make(&corp, 50, 100, true);
    snprintf(id, sizeof id, "%s", data_stats(corp.d)->id);
    data_close(corp.d);
    snprintf(path, sizeof path, "%s/prepared/%s.checked", dir, id);
    CHECK(file_exists(path));
    static const char *const parts[] = {"tokens.bin", "documents.bin", "loss.bin", "origins.bin"};
    for (int p = 0; p < 4; p++) {
        struct data *d = data_open(in_dir("prepared"), id, DATA_CHECK, &e);
        CHECK(d != NULL);
        data_close(d);
        snprintf(path, sizeof path, "%s/prepared/%s/%s", dir, id, parts[p]);
        int fd = open(path, O_RDWR);
        CHECK(pread(fd, &c, 1, 9) == 1);
        c ^= 1;
        CHECK(pwrite(fd, &c, 1, 9) == 1);
        close(fd);
        e = (struct err){0};
        CHECK_MSG(!data_open(in_dir("prepared"), id, DATA_CHECK, &e) && e.code == ERR_CORRUPT &&
                      strstr(e.text, path),
                  "%s: %s", parts[p], e.text);
        c ^= 1;
        fd = open(path, O_RDWR);
        CHECK(pwrite(fd, &c, 1, 9) == 1);
        close(fd);
    }
}

int main(void)
{
    datadir_begin("packing");
    RUN(test_every_token_once);
    RUN(test_best_fit);
    RUN(test_overlong);
    RUN(test_rows);
    RUN(test_shares);
    RUN(test_mixture);
    RUN(test_pure);
    RUN(test_old_order);
    RUN(test_empty_source);
    RUN(test_eval_set);
    RUN(test_trace);
    RUN(test_trace_program);
    RUN(test_cut_under_way);
    RUN(test_checked_once);
    return datadir_end("packing");
}
