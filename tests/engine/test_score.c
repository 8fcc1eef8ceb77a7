/* Checks scoring with overlapping windows, by position and token by token, over P ranks. The
 * results are compared with the definition, which needs one prefill per token. */
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/core/jread.h"
#include "api/core/log.h"
#include "tests/lib/param.h"
#include "tests/lib/prefill.h"
#include "tests/lib/reading.h"
#include "tests/lib/told.h"
#include "worker/infer/score.h"

#define MAX_TOKENS 400

static char scratch[64];

/* Document 3 consists of ids, and some of them may not be targets. */
static const char *const docs[] = {"hello", "a",         "the quick brown fox jumps over",
                                   NULL,    "end of it", "xyzzy plugh, and a little more of that"};
#define N_DOCS ((int)(sizeof docs / sizeof *docs))
static const int32_t ids3[] = {10, 259, 258, 65, 66, 67, 256};
static const bool learn3[] = {false, false, true, true, false, true, true};
#define N_IDS3 7

/* The text that the preparation must write. The test builds it independently. */
static struct {
    int64_t n;
    int32_t id[MAX_TOKENS];
    bool learn[MAX_TOKENS];
    int64_t start[MAX_TOKENS]; /* start of its document */
} all;

static void add_token(int32_t id, bool learn, int64_t start)
{
    all.id[all.n] = id;
    all.learn[all.n] = learn;
    all.start[all.n++] = start;
}

static void write_docs(void)
{
    char path[128], text[2048] = "";
    struct err e = {0};
    for (int i = 0; i < N_DOCS; i++) {
        size_t n = strlen(text);
        int64_t start = all.n;
        if (docs[i]) {
            snprintf(text + n, sizeof text - n, "{\"text\":\"%s\"}\n", docs[i]);
            for (const char *c = docs[i]; *c; c++) add_token((unsigned char)*c, true, start);
            add_token(256, true, start);
            continue;
        }
        snprintf(text + n, sizeof text - n,
                 "{\"input_ids\":[10,259,258,65,66,67,256],"
                 "\"labels\":[-100,-100,258,65,-100,67,256]}\n");
        for (int k = 0; k < N_IDS3; k++) add_token(ids3[k], learn3[k], start);
    }
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, strlen(text), &e), "%s", e.text);
}

struct reading {
    struct job_spec spec;
    char id[80], dir[128];
    struct score out;
    int64_t left; /* the number of windows after which the job is stopped; -1 means that it is not
                   * stopped */
    bool damaged; /* the journal was written with a different model */
    bool whole;   /* windows have only complete documents */
    /* [MAX_TOKENS] receives the scores that are computed from the definition; NULL means that they
     * are not computed */
    double *want;
    int64_t *context;
};

/* log softmax(logits)[id] */
static double log_p(const float *logits, int32_t id)
{
    double top = -(double)INFINITY, sum = 0;
    for (int64_t v = 0; v < tiny_shape.vocab; v++) top = fmax(top, (double)logits[v]);
    for (int64_t v = 0; v < tiny_shape.vocab; v++) sum += exp((double)logits[v] - top);
    return (double)logits[id] - top - log(sum);
}

/* Scores all windows, token by token. For each new token, it prefills the tokens that the
 * prediction of that token may see. */
static int plain(struct tiny_rank *t, struct reading *r, struct err *e)
{
    const int64_t S = r->spec.data.seq_len;
    const int64_t stride = r->spec.score.stride ? r->spec.score.stride : S;
    struct infer in = {.model = &t->model, .spec = &r->spec};
    float *logits = malloc((size_t)tiny_shape.vocab * sizeof *logits);
    int64_t scored = 0; /* all tokens before this one have been scored */
    int rc = 0;
    for (int64_t i = 0; i < all.n; i++) r->want[i] = (double)NAN, r->context[i] = -1;
    for (int64_t first = 0; scored < all.n && !rc; first += stride) {
        int64_t end = first + S < all.n ? first + S : all.n;
        for (int64_t i = scored; i < end && !rc; i++) {
            int64_t from = r->spec.data.document_mask && all.start[i] > first ? all.start[i]
                                                                              : first;
            if (i == all.start[i] || i == first || !all.learn[i]) continue;
            rc = prefill(&in, all.id + from, i - from, logits, e);
            r->want[i] = rc ? 0 : log_p(logits, all.id[i]);
            r->context[i] = i - from;
        }
        scored = end;
    }
    free(logits);
    return rc;
}

/* Scores all documents. A token sees all tokens before it in its document. A document that is
 * longer than a window is divided into pieces, and a token sees only earlier tokens of its own
 * piece. */
static int plain_whole(struct tiny_rank *t, struct reading *r, struct err *e)
{
    const int64_t S = r->spec.data.seq_len;
    struct infer in = {.model = &t->model, .spec = &r->spec};
    float *logits = malloc((size_t)tiny_shape.vocab * sizeof *logits);
    int64_t n = 0; /* the number of tokens in the document */
    int rc = 0;
    for (int64_t i = 0; i < all.n && !rc; i++) {
        const int64_t start = all.start[i];
        if (i == start)
            for (n = 0; i + n < all.n && all.start[i + n] == start;) n++;
        const int64_t from = n <= S ? start : start + (i - start) / S * S;
        r->want[i] = (double)NAN;
        r->context[i] = -1;
        if (i == from || !all.learn[i]) continue;
        rc = prefill(&in, all.id + from, i - from, logits, e);
        r->want[i] = rc ? 0 : log_p(logits, all.id[i]);
        r->context[i] = i - from;
    }
    free(logits);
    return rc;
}

struct asked {
    int64_t left;
};

static bool enough(void *arg)
{
    struct asked *a = arg;
    return a->left-- == 0;
}

static void body(struct ranks *g, int rank, void *arg)
{
    struct reading *r = arg;
    struct tiny_rank *t = malloc(sizeof *t);
    struct err e = {0};
    struct score out;
    struct data *d = data_open(scratch, r->id, DATA_TRUST, &e);
    int rc = !d || tiny_open(t, &r->spec, g, rank, &e);
    struct asked asked = {r->left}; /* every rank is asked the same number of times */
    struct told told;
    told_open(&told);
    struct infer in = {&t->model, &r->spec, r->dir, enough, &asked, &told.p};
    const int64_t norm = param_named(&tiny_shape, "model.norm.weight").offset;
    if (!rc && r->damaged) ((float *)t->model.params)[norm] += 1;
    if (!rc) rc = score_run(&in, d, &out, &e);
    if (!rc && rank == 0) r->out = out;
    if (!rc && rank == 0)
        told_check(&told, PROGRESS_TOKENS, told.was.from, (double)data_stats(d)->n_tokens);
    if (!rc && rank == 0) CHECK(told.n_inside > t->model.shape.n_layers);
    if (!rc && rank == 0) CHECK((told.was.from > 0) == (out.n_resumed > 0));
    if (r->want && !rc) rc = r->whole ? plain_whole(t, r, &e) : plain(t, r, &e);
    if (rc && r->left >= 0)
        CHECK_MSG(e.code == ERR_ABORTED, "%s", e.text);
    else if (rc)
        ranks_fail(g, rank, &e);
    tiny_close(t);
    free(t);
    data_close(d);
}

static void score(struct reading *r, int P, int64_t S, int64_t stride, int64_t bucket, bool mask)
{
    char path[128];
    *r = (struct reading){.want = r->want,
                          .context = r->context,
                          .left = r->left,
                          .damaged = r->damaged,
                          .whole = r->whole};
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    snprintf(r->dir, sizeof r->dir, "%s/job%d", scratch, P);
    reading_spec(&r->spec, JOB_SCORE, scratch, path, P, S);
    r->spec.score.stride = stride;
    r->spec.score.by_position_bucket = bucket;
    r->spec.score.token_logprobs = 1;
    r->spec.data.document_mask = r->spec.data.reset_positions = mask;
    r->spec.data.packing = r->whole ? PACKING_BEST_FIT : PACKING_CONCAT;
    reading_prepare(&r->spec, scratch, r->id);
    reading_run(&r->spec, P, body, r);
    CHECK(r->left >= 0 || r->out.ledger_equal);
}

/* Reads token-logprobs.npy without the code of the product. */
static void read_logprobs(const struct reading *r, double *out)
{
    size_t size;
    char *text = reading_artifact(r->dir, "token-logprobs.npy", &size), want[64];
    snprintf(want, sizeof want, "'descr': '<f8', 'fortran_order': False, 'shape': (%lld,)",
             (long long)all.n);
    CHECK(size == 128 + 8 * (size_t)all.n && !memcmp(text, "\x93NUMPY\x01\x00\x76\x00", 10));
    CHECK_MSG(memmem(text, 128, want, strlen(want)), "%.118s", text + 10);
    CHECK(text[127] == '\n');
    if (size == 128 + 8 * (size_t)all.n) memcpy(out, text + 128, 8 * (size_t)all.n);
    free(text);
}

static double number_at(const char *json, size_t size, const char *key, int which)
{
    struct jread j;
    double v = (double)NAN;
    jread_init(&j, json, size);
    for (enum jtok t = jread_next(&j); t > J_END; t = jread_next(&j))
        if (t == J_KEY && jread_is(&j, key) && jread_next(&j) == J_NUMBER && which-- == 0)
            jread_double(&j, &v);
    return v;
}

/* Checks the reported speed. It counts every token of every window, so a token that is in several
 * windows is counted in each of them. */
static void check_pace(const struct reading *r, int64_t stride)
{
    const int64_t S = r->spec.data.seq_len;
    int64_t n = 0;
    for (int64_t w = 0; w < r->out.n_windows; w++)
        n += all.n - w * stride < S ? all.n - w * stride : S;
    CHECK_MSG(r->out.pace.n == n && r->out.pace.us > 0, "%lld tokens, not %lld",
              (long long)r->out.pace.n, (long long)n);
    CHECK(pace_rate(&r->out.pace) > 0 && isnan(pace_rate(&(struct infer_pace){0})));
}

/* Checks that the scores in the artifacts add up to the totals, and that the artifacts have the
 * same scores. `got` has the score of each token. */
static void check_sums(const struct reading *r, const double *got, const int64_t *context)
{
    const int64_t bucket = r->spec.score.by_position_bucket, S = r->spec.data.seq_len;
    const int n_buckets = (int)((S + bucket - 1) / bucket);
    double nll[MAX_TOKENS] = {0}, sum = 0, in_buckets = 0;
    int64_t n[MAX_TOKENS] = {0}, scored = 0;
    size_t size;
    for (int64_t i = 0; i < all.n; i++) {
        if (isnan(got[i])) continue;
        nll[context[i] / bucket] -= got[i];
        n[context[i] / bucket]++;
        sum -= got[i];
        scored++;
    }
    CHECK(r->out.total.n_targets == scored && r->out.n_unscored == all.n - scored);
    /* Both sums add the same numbers in different orders, with one rounding for each number. */
    CHECK(fabs(sum - r->out.total.nll) <= (double)scored * 0x1p-52 * sum);
    char *text = reading_artifact(r->dir, "score-buckets.json", &size);
    for (int b = 0; b < n_buckets; b++) {
        CHECK(number_at(text, size, "tokens", b) == (double)n[b]);
        CHECK(number_at(text, size, "from", b) == (double)(b * bucket));
        if (!n[b]) continue;
        double v = number_at(text, size, "nll", b);
        CHECK_MSG(fabs(v - nll[b]) <= (double)n[b] * 0x1p-52 * v, "bucket %d: %.17g", b, v);
        in_buckets += v;
    }
    CHECK(fabs(in_buckets - sum) <= (double)scored * 0x1p-52 * sum);
    CHECK(number_at(text, size, "bucket_tokens", 0) == (double)bucket);
    free(text);
    text = reading_artifact(r->dir, "score.jsonl", &size);
    char *line = text;
    static const char named[] = "/docs.jsonl\",\"record\":";
    for (int64_t d = 0, i = 0; d < N_DOCS; d++, line = strchr(line, '\n') + 1) {
        size_t len = (size_t)(strchr(line, '\n') - line);
        CHECK(number_at(line, len, "offset", 0) == (double)i);
        CHECK(number_at(line, len, "document", 0) == (double)d);
        CHECK(number_at(line, len, "record", 0) == (double)(d + 1));
        CHECK_MSG(memmem(line, len, named, strlen(named)), "%.*s", (int)len, line);
        int64_t start = i, unscored = 0;
        for (sum = 0; i < all.n && all.start[i] == start; i++)
            isnan(got[i]) ? (void)unscored++ : (void)(sum -= got[i]);
        CHECK(number_at(line, len, "unscored", 0) == (double)unscored);
        CHECK(number_at(line, len, "tokens", 0) == (double)(i - start - unscored));
        /* equal, because it is summed in the order of the text */
        CHECK(number_at(line, len, "nll", 0) == sum);
    }
    CHECK(!*line);
    free(text);
}

/* Checks the score of every token, on one rank and on several. The score must equal the score that
 * follows from a prefill of the tokens that the token may see. The two computations add the fp32
 * products of a logit, which are up to about 10, in different orders. The bound is 1e-4, as for
 * decoding. */
static void test_strides(void)
{
    static struct reading one = {.left = -1}, many = {.left = -1};
    static double want[MAX_TOKENS], got[MAX_TOKENS];
    static int64_t context[MAX_TOKENS];
    static const struct {
        int64_t S, stride, bucket;
        bool mask;
    } cases[] = {{16, 5, 4, true},  {16, 0, 3, true},  {16, 15, 16, false},
                 {16, 1, 5, false}, {16, 16, 7, true}, {200, 64, 50, true}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        one.want = want;
        one.context = context;
        score(&one, 1, cases[k].S, cases[k].stride, cases[k].bucket, cases[k].mask);
        read_logprobs(&one, got);
        for (int64_t i = 0; i < all.n; i++)
            CHECK_MSG(isnan(want[i]) ? isnan(got[i]) : fabs(got[i] - want[i]) < 1e-4,
                      "case %zu token %lld: %.9g, not %.9g", k, (long long)i, got[i], want[i]);
        check_sums(&one, got, context);
        const int64_t stride = cases[k].stride, S = cases[k].S;
        check_pace(&one, stride ? stride : S);
        for (int64_t i = S; i < all.n && stride && stride < S && !cases[k].mask; i++)
            CHECK(context[i] >= S - stride || i == all.start[i] || !all.learn[i]);
        for (int P = 2; P <= 3; P++) {
            score(&many, P, cases[k].S, cases[k].stride, cases[k].bucket, cases[k].mask);
            read_logprobs(&many, got);
            for (int64_t i = 0; i < all.n; i++)
                CHECK_MSG(isnan(want[i]) ? isnan(got[i]) : fabs(got[i] - want[i]) < 1e-4,
                          "case %zu P %d token %lld: %.9g, not %.9g", k, P, (long long)i, got[i],
                          want[i]);
            check_sums(&many, got, context);
            CHECK(many.out.total.n_targets == one.out.total.n_targets &&
                  many.out.total.n_bytes == one.out.total.n_bytes &&
                  many.out.n_windows == one.out.n_windows);
        }
    }
}

/* Checks windows that have only complete documents. The documents have 6, 2, 31, 7, 10 and 39
 * tokens, including their end ids. Each document must be scored as if it were alone. A document
 * that is longer than a window is scored in pieces. */
static void test_whole(void)
{
    static struct reading r = {.left = -1, .whole = true};
    static double want[MAX_TOKENS], got[MAX_TOKENS];
    static int64_t context[MAX_TOKENS];
    static const struct {
        int64_t S, n_windows;
    } cases[] = {{39, 3}, {40, 3}, {38, 5}, {31, 5}, {17, 7}, {200, 1}};
    r.want = want;
    r.context = context;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int P = 1; P <= 3; P++) {
            score(&r, P, cases[k].S, 0, 4, true);
            read_logprobs(&r, got);
            for (int64_t i = 0; i < all.n; i++)
                CHECK_MSG(isnan(want[i]) ? isnan(got[i]) : fabs(got[i] - want[i]) < 1e-4,
                          "S %lld P %d token %lld: %.9g, not %.9g", (long long)cases[k].S, P,
                          (long long)i, got[i], want[i]);
            check_sums(&r, got, context);
            CHECK_MSG(r.out.n_windows == cases[k].n_windows && r.out.pace.n == all.n,
                      "S %lld: %lld windows", (long long)cases[k].S, (long long)r.out.n_windows);
        }
    score(&r, 1, 31, 0, 4, true);
    const double nll = r.out.total.nll;
    r.left = 2, score(&r, 1, 31, 0, 4, true);
    r.left = -1, score(&r, 1, 31, 0, 4, true); /* the second attempt continues */
    CHECK(r.out.n_resumed == 2 && r.out.n_windows == 5 && r.out.total.nll == nll);
}

/* ---- over several attempts ------------------------------------------------------------------- */

#define N_FILES 3
static const char *const files[N_FILES] = {"score.jsonl", "score-buckets.json",
                                           "token-logprobs.npy"};

static void score_part(struct reading *r, int P, int64_t left, bool damaged)
{
    r->left = left;
    r->damaged = damaged;
    score(r, P, 16, 5, 4, true);
}

/* Returns the size of the only journal of the job, or -1 if there is none. */
static int64_t journal(const struct reading *r, char path[512])
{
    struct stat st;
    glob_t found;
    snprintf(path, 512, "%s/score-*.journal", r->dir);
    int64_t size = -1;
    if (!glob(path, 0, NULL, &found)) {
        CHECK(found.gl_pathc == 1 && !stat(found.gl_pathv[0], &st));
        snprintf(path, 512, "%s", found.gl_pathv[0]);
        size = st.st_size;
    }
    globfree(&found);
    return size;
}

static void spoil(const char *path, int64_t at)
{
    char x;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(pread(fd, &x, 1, at) == 1);
    x ^= 1;
    CHECK(pwrite(fd, &x, 1, at) == 1);
    close(fd);
}

/* Checks a job that is stopped and started again. Its journal may be truncated, damaged, or
 * written with a different model. The job must continue after the windows for which the journal
 * has complete records of this model. The results must have the same bytes as a job that is not
 * stopped. */
static void test_resume(void)
{
    static struct reading r;
    const int64_t record = 16 * 8 + 32;
    for (int P = 1; P <= 3; P += 2) {
        char *want[N_FILES], path[512];
        size_t size[N_FILES], n;
        score_part(&r, P, -1, false);
        CHECK(r.out.n_resumed == 0 && r.out.n_windows > 12 && journal(&r, path) == -1);
        const double nll = r.out.total.nll;
        for (int i = 0; i < N_FILES; i++) want[i] = reading_artifact(r.dir, files[i], &size[i]);
        score_part(&r, P, 7, false);
        CHECK(journal(&r, path) == 7 * record);
        CHECK(!truncate(path, 7 * record - 5));
        score_part(&r, P, 2, false);
        CHECK(journal(&r, path) == 8 * record);
        spoil(path, 5 * record + 3);
        score_part(&r, P, 0, false);
        CHECK(journal(&r, path) == 5 * record);
        score_part(&r, P, -1, false);
        CHECK(r.out.n_resumed == 5 && r.out.total.nll == nll && journal(&r, path) == -1);
        for (int i = 0; i < N_FILES; i++) {
            char *got = reading_artifact(r.dir, files[i], &n);
            CHECK_MSG(n == size[i] && !memcmp(got, want[i], n), "%s on %d ranks", files[i], P);
            free(got);
            free(want[i]);
        }
        score_part(&r, P, 6, false);
        score_part(&r, P, -1, true);
        CHECK(r.out.n_resumed == 0 && r.out.total.nll != nll);
    }
}

int main(void)
{
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_score");
    snprintf(scratch, sizeof scratch, "/tmp/test_score.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    write_docs();
    RUN(test_strides);
    RUN(test_whole);
    RUN(test_resume);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("score");
}
