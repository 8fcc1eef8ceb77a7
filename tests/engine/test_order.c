/* test_order: checks sample n of a mixture, of a pass and of the eval set, and the places in the
 * sources from which its tokens come. Also checks data that fails during use. */
#include "tests/lib/corpus.h"

#include <fcntl.h>
#include <sys/wait.h>
#include "api/core/job.h"
#include "api/core/jread.h"
#include "worker/rank/trace.h"
#include "worker/data/mixture.h"

/* ---- mixtures -------------------------------------------------------------------------------- */

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

/* Makes three sources of different sizes. first_doc[i] receives the first document of source i. */
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

/* Checks that each source is used pass by pass, and that a pass has every token once. Each sample
 * must have tokens of only one source. In every block of the mixture, the sources must have their
 * exact shares. */
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
        /* The places of a block are permuted, so the last two passes may be incomplete. */
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

/* Checks that a sample does not depend on earlier requests, on the caller, or on other open
 * orders. Jobs that resume, also with a different number of ranks or a different dp, rely on
 * this. */
static void test_pure(void)
{
    int64_t first_doc[4];
    mixture_corpus(first_doc);
    struct order_options options = {
        .seq_len = 32, .seed = 4, .packing = PACKING_BEST_FIT, .overlong = OVERLONG_SPLIT};
    struct order_options longer = options;
    longer.seq_len = 77; /* the sequence length of a different stage */
    struct data_order *a = order_open(corp.d, &options), *other = order_open(corp.d, &longer);
    struct sample from[200], again;
    for (int64_t n = 0; n < 200; n++) data_sample(a, n, &from[n]);
    data_order_close(a);
    struct data *d = data_open(in_dir("prepared"), data_stats(corp.d)->id, DATA_TRUST, &e);
    CHECK(d != NULL);
    struct data_order *b = order_open(d, &options);
    /* from the middle, backwards, and between other requests */
    for (int64_t n = 199; n >= 0; n -= 3) {
        data_sample(other, n, &again);
        data_sample(b, n, &again);
        CHECK(!memcmp(&again, &from[n], sizeof again));
    }
    data_order_close(b);
    data_order_close(other);
    data_close(d);
    data_close(corp.d);
}

/* Checks the order of concatenated documents without weights. It must consist of the windows of
 * all data, in an order that the seed and the pass determine. The expected values are constants,
 * because a job that resumes must find the same order. */
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

/* Checks sources that have no sample. If such a source has a weight, there must be an error that
 * names the source. If it has no weight, it must be left out. */
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
            CHECK_MSG(strstr(e.text, "source 1") && strstr(e.text, "at least 13 tokens"), "%s",
                      e.text);
        } else {
            CHECK(x && data_order_samples(x) == 1);
        }
        data_order_close(x);
        data_close(d);
    }
}

/* ---- the eval set ---------------------------------------------------------------------------- */

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
    data_sample(x, 3, &s); /* the second pass is like the first one */
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

/* ---- provenance ------------------------------------------------------------------------------ */

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

/* Checks that a trace of a sample names the right bytes of the file. A record must begin at
 * byte_offset, and must have the tokens of the sample. */
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
            CHECK(int_after(&j, "record") == f.document + 1); /* each document is a line */
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

/* Runs seqrank --trace and stores its output in `out`. Returns its exit status. */
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
    for (int64_t k = 3; k < 6; k++) { /* step 2, with batches of 3 */
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
    CHECK(trace_program(out, sizeof out, arg, 2) == 2); /* the command names no sample */
    arg[6] = "set=eval";                                /* the data has no eval set */
    CHECK(trace_program(out, sizeof out, arg, 7) == RANK_EXIT_REFUSED);
    arg[0] = "/nowhere";
    CHECK(trace_program(out, sizeof out, arg, 6) == RANK_EXIT_REFUSED);
    data_order_close(o);
    data_close(corp.d);
}

/* Checks an order of pairs. The two documents of a record must be next to each other. */
static void test_trace_pairs(void)
{
    static char out[1 << 20];
    char path[200];
    corpus_make(&corp, 50, 20, true);
    snprintf(path, sizeof path, "%s/prepared/%s/", dir, data_stats(corp.d)->id);
    const char *arg[] = {
        path,      "seq_len=64", "packing=best_fit+pairs", "overlong=drop", "seed=3",
        "first=0", "count=3"};
    CHECK(trace_program(out, sizeof out, arg, 7) == 0);
    int n = 0;
    for (const char *at = out; (at = strstr(at, "\"document\":")); n++) {
        static int64_t first;
        const int64_t document = atoll(at += strlen("\"document\":"));
        CHECK_MSG(n % 2 ? document == first + 1 : document % 2 == 0, "document %lld",
                  (long long)document);
        first = document;
    }
    CHECK_MSG(n >= 6 && n % 2 == 0, "%d documents", n);
    static const char *const wrong[][2] = {{"packing=concat+pairs", "overlong=drop"},
                                           {"packing=none+pairs", "overlong=split"},
                                           {"packing=none+pairs", "overlong=truncate"},
                                           {"packing=+pairs", "overlong=drop"},
                                           {"packing=best_fit+pairs+", "overlong=drop"},
                                           {"packing=best_fit+fives", "overlong=drop"},
                                           {"packing=best_fit+pairs+pairs", "overlong=drop"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        arg[2] = wrong[i][0], arg[3] = wrong[i][1];
        CHECK_MSG(trace_program(out, sizeof out, arg, 7) == 2, "%s", arg[2]);
    }
    data_close(corp.d);
    corpus_make(&corp, 51, 20, true);
    snprintf(path, sizeof path, "%s/prepared/%s/", dir, data_stats(corp.d)->id);
    arg[2] = "packing=none+pairs", arg[3] = "overlong=drop";
    CHECK(trace_program(out, sizeof out, arg, 7) == RANK_EXIT_REFUSED);
    data_close(corp.d);
}

/* ---- data that fails ------------------------------------------------------------------------- */

/* Checks files that are truncated while an order is open. Each file must cause an error that names
 * it, and must not cause a signal. */
static void test_cut_under_way(void)
{
    static const char *const parts[] = {"tokens.bin", "loss.bin", "origins.bin"};
    static int32_t ids[64], targets[64];
    static int64_t pos[64], lo[64], hi[64];
    struct batch b = {.ids = ids, .targets = targets, .pos = pos, .lo = lo, .hi = hi};
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

/* Checks that digests are computed only once. If the files are unchanged, a second open must use
 * the result of the first open. If a file has changed, the second open must notice the change. */
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
    datadir_begin("order");
    RUN(test_shares);
    RUN(test_mixture);
    RUN(test_pure);
    RUN(test_old_order);
    RUN(test_empty_source);
    RUN(test_eval_set);
    RUN(test_trace);
    RUN(test_trace_program);
    RUN(test_trace_pairs);
    RUN(test_cut_under_way);
    RUN(test_checked_once);
    return datadir_end("order");
}
