/* test_packing: checks which samples are made from documents, with every kind of packing and every
 * policy for long documents. The expected samples are computed from the documents' lengths only.
 * Also checks the rows of every rank. */
#include "api/core/job.h"
#include "tests/lib/corpus.h"

/* ---- every token once ------------------------------------------------------------------------ */

/* Computes how often each token must occur in a pass, using only the lengths of documents. Also
 * computes how many documents the policy changes or leaves out. */
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

/* Checks one sample by its fragments, counts its tokens in `seen`, and adds up its targets. */
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

/* Checks two passes of one order. Each pass must have every kept token once. A document that fits
 * into a sample must not be split. */
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
    /* there must be one piece for each document, and several pieces for a document that is too
     * long */
    if (options->packing != PACKING_CONCAT)
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

/* ---- best fit -------------------------------------------------------------------------------- */

/* Computes best fit by its definition, in O(n^2) steps. Returns the number of bins and, in
 * where[i], the bin of document i. */
static int64_t naive_best_fit(const struct corpus *c, int64_t S, int64_t *where)
{
    /* since[i] is the step in which bin i got its current room */
    static int64_t room[MAX_DOCS], since[MAX_DOCS];
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
    /* With the last size, bins have more than 4,096 free places, which are found three levels up
     * in the tree. */
    static const int64_t lens[] = {60, 61, 63, 64, 65, 127, 128, 200, 4096, 4097, 8300};
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
        /* best fit needs at most 11/9 n + 6/9 bins, where n is the smallest possible number; n is
         * at least the number of tokens divided by the size */
        const double least = (double)corp.n_tokens / (double)lens[s];
        CHECK((double)n_bins <= 11.0 / 9 * (least + 1) + 6.0 / 9);
        data_order_close(o);
    }
    data_close(corp.d);
}

/* ---- policies -------------------------------------------------------------------------------- */

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
        o.overlong = OVERLONG_AUTO; /* there is no mask, so "auto" splits */
        struct data_order *x = order_open(d, &o);
        CHECK(data_order_stats(x)->split_documents == 1 && data_order_stats(x)->n_tokens == 15);
        data_order_close(x);
        o.overlong = OVERLONG_DROP;
        o.seq_len = 3;
        CHECK(!data_order_open(d, &o, &e) && e.code == ERR_INVALID);
        CHECK_MSG(strstr(e.text, "each has at least 4 tokens and the sequence 3: raise"), "%s",
                  e.text);
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
    /* the last token of the prompt predicts x, and x predicts its end */
    CHECK(data_targets(x, 0, &e) == 2);
    data_order_close(x);
    o = (struct order_options){.seq_len = 10, .overlong = OVERLONG_SPLIT, .in_order = true};
    x = order_open(d, &o);
    CHECK(data_targets(x, 0, &e) == 0 && data_targets(x, 1, &e) == 1);
    struct shard sh;
    int32_t ids[10], targets[10];
    int64_t pos[10], lo[10], hi[10];
    struct batch b = {.ids = ids, .targets = targets, .pos = pos, .lo = lo, .hi = hi};
    CHECK(!shard_init(&sh, 10, 1, 0, LAYOUT_CONTIGUOUS, false, &e));
    CHECK(!data_batch(x, &sh, 0, &b, &e) && b.n_targets == 0 && b.n_tokens == 10);
    for (int i = 0; i < 10; i++) CHECK(targets[i] == -1 && ids[i] == '0' + i);
    data_order_close(x);
    data_close(d);
}

/* Checks sequences that are longer than the model's table of positions. Documents have 4 and 11
 * tokens. First the table has 11 positions, and then 10. */
static void test_table(void)
{
    puts_file("table.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"0123456789\"}\n");
    sources_begin();
    source_add("table.jsonl", DATA_JSONL, NULL);
    struct data *d = prepare_open();
    static const int ways[] = {OVERLONG_AUTO, OVERLONG_ERROR, OVERLONG_SPLIT, OVERLONG_TRUNCATE,
                               OVERLONG_DROP};
    for (int i = 0; i < 5 * PACKING_N; i++) {
        struct order_options o = {.packing = i / 5,
                                  .overlong = ways[i % 5],
                                  .seq_len = 12,
                                  .longest = 11,
                                  .reset_positions = true};
        struct data_order *x = order_open(d, &o);
        CHECK(x && data_order_stats(x)->n_tokens == 15);
        data_order_close(x);
        o.longest = 10;
        CHECK(!data_order_open(d, &o, &e) && e.code == ERR_INVALID);
        CHECK_STR(e.field, "data.seq_len");
        CHECK_MSG(strstr(e.text,
                         "/table.jsonl record 2 has 11 tokens, and the model a table of 10 "
                         "positions: cut it into shorter documents, or make data.seq_len at "
                         "most 10"),
                  "%s", e.text);
        o.seq_len = 10; /* the sequence is not longer than the table, so data.overlong decides */
        if (ways[i % 5] == OVERLONG_ERROR) continue;
        x = order_open(d, &o);
        CHECK(x && data_order_stats(x)->n_tokens == (i % 5 == 3 ? 14 : i % 5 == 4 ? 4 : 15));
        data_order_close(x);
    }
    data_close(d);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Returns the position of a rank's row, computed from the description of the layouts. */
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

struct want { /* a sample, written from its fragments and the corpus */
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
    struct batch b = {.ids = ids, .targets = targets, .pos = pos, .lo = lo, .hi = hi};
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
        /* no row beyond T may be written */
        bad += ids[sh.T] != 0x55555555 || targets[sh.T] != 0x55555555;
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

int main(void)
{
    datadir_begin("packing");
    RUN(test_every_token_once);
    RUN(test_best_fit);
    RUN(test_overlong);
    RUN(test_table);
    RUN(test_rows);
    return datadir_end("packing");
}
