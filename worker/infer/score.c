/* score.c: computes the windows one after the other, gathers their losses on rank 0, and adds the
 * losses to documents and to buckets of positions. */
#include "worker/infer/score.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/data/npy_head.h"
#include "worker/infer/score_journal.h"
#include "worker/infer/window.h"
#include "worker/model/finite.h"
#include "worker/plan/volume.h"

double score_ppl(const struct score_sum *s)
{
    return s->n_targets ? exp(s->nll / (double)s->n_targets) : (double)NAN;
}

double score_bits_per_byte(double text_nll, int64_t n_bytes)
{
    return n_bytes ? text_nll / M_LN2 / (double)n_bytes : (double)NAN;
}

/* State of a score job. Rank 0 adds up the losses document by document. A document may be in
 * several windows. */
struct scorer {
    const struct infer *in;
    const struct data *d;
    struct window w;
    /* [P * T] gathered losses, in the order of the ranks; NULL except on rank 0 */
    double *rows;
    double *nll; /* [P * T] losses by position in the window */
    /* set if the input was text; in that case tokens below 256 are bytes of the text */
    bool text;
    /* set if a tokenizer converted the text to tokens; in that case the number of bytes of
     * each token is known */
    bool cut;
    int64_t sizes_first, sizes_n; /* `sizes` has the sizes of the data's tokens [sizes_first,
                                   * sizes_first + sizes_n) */
    uint32_t sizes[1024];         /* number of bytes of each token of this range */
    /* index of the current document; number of its unscored tokens */
    int64_t document, unscored;
    struct score_sum sum, *bucket;  /* `sum` is for the current document; `bucket` [n_buckets]
                                     * is for the buckets of positions */
    double text_nll;                /* nll of the current document, without the share of its
                                     * end id */
    int64_t bucket_size, n_buckets; /* 0 if buckets are not wanted */
    struct artifact out, logprobs;
    struct score_journal journal;
    struct comm_count want[PURPOSE_N]; /* counts of messages and bytes that a window should
                                        * cause on this rank */
};

/* ---- results --------------------------------------------------------------------------------- */

static int64_t document_start(const struct scorer *s)
{
    return s->document ? (int64_t)data_documents(s->d)[s->document - 1] : 0;
}

static void write_sum(struct jwrite *w, const struct score_sum *sum)
{
    jwrite_double(w, "nll", sum->nll);
    jwrite_int(w, "tokens", sum->n_targets);
}

static int finish_document(struct scorer *s, struct score *out, struct err *e)
{
    char line[8192];
    struct data_origin from;
    struct jwrite w;
    if (data_origin(s->d, s->document, &from, e)) return -1;
    jwrite_init(&w, line, sizeof line - 1);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "document", s->document);
    data_write_origin(s->d, &from, &w);
    write_sum(&w, &s->sum);
    jwrite_int(&w, "bytes", s->sum.n_bytes);
    jwrite_double(&w, "ppl", score_ppl(&s->sum));
    jwrite_double(&w, "bits_per_byte", score_bits_per_byte(s->text_nll, s->sum.n_bytes));
    jwrite_int(&w, "unscored", s->unscored);
    jwrite_int(&w, "offset", document_start(s));
    jwrite_end(&w);
    const int64_t n = jwrite_finish(&w);
    if (n < 0) return err_set(e, ERR_TOO_LARGE, "the name of a file is too long");
    line[n] = '\n';
    out->total.nll += s->sum.nll;
    out->text_nll += s->text_nll;
    out->total.n_targets += s->sum.n_targets;
    out->total.n_bytes += s->sum.n_bytes;
    out->n_unscored += s->unscored;
    s->sum = (struct score_sum){0};
    s->text_nll = 0;
    s->unscored = 0;
    s->document++;
    return artifact_write(&s->out, line, (size_t)n + 1, e);
}

static int write_bucket(struct scorer *s, struct artifact *a, int64_t i, struct err *e)
{
    const struct score_sum *sum = &s->bucket[i];
    char text[512];
    struct jwrite w;
    jwrite_init(&w, text, sizeof text - 1);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "from", i * s->bucket_size);
    jwrite_int(&w, "to", (i + 1) * s->bucket_size);
    write_sum(&w, sum);
    jwrite_double(&w, "loss", sum->n_targets ? sum->nll / (double)sum->n_targets : (double)NAN);
    jwrite_double(&w, "ppl", score_ppl(sum));
    jwrite_end(&w);
    int64_t n = jwrite_finish(&w);
    assert(n > 0);
    if (i && artifact_write(a, ",\n", 2, e)) return -1;
    return artifact_write(a, text, (size_t)n, e);
}

static int write_buckets(struct scorer *s, struct score *out, struct err *e)
{
    struct artifact a = {0};
    char head[96];
    int n = snprintf(head, sizeof head, "{\"bucket_tokens\":%lld,\"buckets\":[\n",
                     (long long)s->bucket_size);
    int rc = artifact_open(&a, s->in->job_dir, "score-buckets.json", e) ||
             artifact_write(&a, head, (size_t)n, e);
    for (int64_t i = 0; i < s->n_buckets && !rc; i++) rc = write_bucket(s, &a, i, e);
    if (!rc) rc = artifact_write(&a, "\n]}\n", 4, e) || artifact_finish(&a, e);
    out->buckets = a.done;
    artifact_drop(&a);
    return rc ? -1 : 0;
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Copies the losses from the order of the ranks into the order of the text. */
static void put_in_order(struct scorer *s)
{
    const struct model *m = s->in->model;
    const int64_t T = m->sp.shard.T;
    for (int q = 0; q < m->plan->sp; q++) {
        const struct shard sh = shard_of(&m->sp.shard, q);
        for (int64_t i = 0; i < T; i++) {
            const int64_t pos = shard_pos(&sh, i);
            if (pos < s->w.S) s->nll[pos] = s->rows[q * T + i];
        }
    }
}

/* Reads the number of bytes of the token at position t of the window, and of some tokens after
 * it. */
static int read_sizes(struct scorer *s, int64_t t, struct err *e)
{
    const int64_t at = s->w.first + t, left = data_stats(s->d)->n_tokens - at;
    const int64_t most = (int64_t)(sizeof s->sizes / sizeof *s->sizes);
    if (!s->cut || (at >= s->sizes_first && at < s->sizes_first + s->sizes_n)) return 0;
    s->sizes_first = at;
    s->sizes_n = left < most ? left : most;
    return data_read_bytes(s->d, at, s->sizes_n, s->sizes, e);
}

/* Returns the number of bytes of the token at position t. read_sizes must have been called
 * before. */
static int64_t size_of(const struct scorer *s, int64_t t)
{
    return s->cut ? (int64_t)s->sizes[s->w.first + t - s->sizes_first]
                  : s->text && s->w.ids[t] < 256;
}

/* Counts the token at position t of the window. Returns its log-probability, or NaN. */
static double read_token(struct scorer *s, int64_t t)
{
    const int64_t start = document_start(s), begin = window_seen_from(&s->w, start);
    const int64_t bytes = size_of(s, t), end = (int64_t)data_documents(s->d)[s->document];
    if (!window_scores(&s->w, t, start)) {
        if (s->w.first + t == start && s->w.learn[t]) s->sum.n_bytes += bytes;
        s->unscored++;
        return (double)NAN;
    }
    const double nll = s->nll[t - 1];
    s->sum.nll += nll;
    if (bytes || s->w.first + t + 1 < end) s->text_nll += nll;
    s->sum.n_targets++;
    s->sum.n_bytes += bytes;
    if (s->n_buckets) {
        struct score_sum *b = &s->bucket[(t - begin) / s->bucket_size];
        b->nll += nll;
        b->n_targets++;
    }
    return -nll;
}

/* Adds the losses s->nll of the window's new tokens to their documents. If a document ends in the
 * window, writes its result. */
static int add_window(struct scorer *s, struct score *out, struct err *e)
{
    const uint64_t *ends = data_documents(s->d);
    for (int64_t t = s->w.fresh; t < s->w.n; t++) {
        if (read_sizes(s, t, e)) return -1;
        const double logprob = read_token(s, t);
        if (s->logprobs.open && artifact_write(&s->logprobs, &logprob, sizeof logprob, e))
            return -1;
        if (s->w.first + t + 1 == (int64_t)ends[s->document] && finish_document(s, out, e))
            return -1;
    }
    return 0;
}

/* Adds a window to the results and to the journal. n_targets is the number of targets in the
 * batch. */
static int take_window(struct scorer *s, int64_t n_targets, struct score *out, struct err *e)
{
    const int64_t before = out->total.n_targets + s->sum.n_targets;
    if (add_window(s, out, e)) return -1;
    const int64_t seen = out->total.n_targets + s->sum.n_targets - before;
    if (seen != n_targets)
        return err_set(
            e, ERR_INTERNAL,
            "the window at token %lld has %lld targets in the text and %lld in the batch",
            (long long)s->w.first, (long long)seen, (long long)n_targets);
    return score_journal_add(&s->journal, s->nll, e);
}

/* Sums the loss of the window over ranks. The sum only shows every rank whether the loss is
 * finite. Rank 0 does not need the sum, because it has the losses of all rows. */
static int sum_window(struct scorer *s, int64_t window, struct err *e)
{
    struct model *m = s->in->model;
    double nll;
    if (model_nll(m, &m->batch, &nll, e)) return -1;
    if (m->comm && comm_sum_f64(m->comm, PURPOSE_LOSS, &nll, 1, m->bounce, e)) return -1;
    if (isfinite(nll)) return 0;
    return finite_blame_forward(m, e, "the loss of window %lld", (long long)window);
}

/* Computes a window. On rank 0, s->nll gets the losses of the window, one for each position.
 * Collective. */
static int compute_window(struct scorer *s, int64_t window, struct score *out, struct err *e)
{
    struct model *m = s->in->model;
    int64_t T = m->sp.shard.T;
    infer_at(s->in, window + 1);
    if (window_read(&s->w, window, e)) return -1;
    progress_piece(s->in->progress, (double)(s->w.first + s->w.fresh),
                   (double)(s->w.n - s->w.fresh));
    window_fill(&s->w, s->in->spec, &m->sp.shard, &m->batch);
    const int64_t begin_us = clock_us();
    if (model_forward(m, &m->batch, e)) return -1;
    if (sum_window(s, window, e)) return -1;
    pace_until_now(&out->pace, s->w.n, begin_us);
    if (!m->comm)
        memcpy(s->rows, m->nll, (size_t)T * sizeof *m->nll);
    else if (comm_gather(m->comm, PURPOSE_CONTROL, 0, m->nll, T * (int64_t)sizeof *m->nll, s->rows,
                         m->bounce, e))
        return -1;
    if (m->sp.shard.r == 0) put_in_order(s);
    out->ledger_equal = infer_moved(s->in, s->want) && out->ledger_equal;
    return 0;
}

/* Returns how many tokens of the data come before the end of the window that was read last. */
static double window_end(const struct scorer *s)
{
    return (double)(s->w.first + s->w.n);
}

static int one_window(struct scorer *s, int64_t window, struct score *out, struct err *e)
{
    struct model *m = s->in->model;
    if (compute_window(s, window, out, e)) return -1;
    if (m->sp.shard.r == 0 && take_window(s, m->batch.n_targets, out, e)) return -1;
    progress_at(s->in->progress, window_end(s));
    return 0;
}

/* ---- continuing an earlier attempt ----------------------------------------------------------- */

static int share(struct scorer *s, int64_t *n, struct err *e)
{
    struct model *m = s->in->model;
    if (!m->comm) return 0;
    return comm_broadcast(m->comm, PURPOSE_CONTROL, 0, n, sizeof *n, m->bounce, e);
}

/* Computes the last window of the journal a second time. If any bit of the losses differs from
 * the journal, the journal was written with a different model, and all its records are
 * removed. */
static int check_journal(struct scorer *s, struct score *out, struct err *e)
{
    const bool writer = s->in->model->sp.shard.r == 0;
    if (compute_window(s, out->n_resumed - 1, out, e)) return -1;
    if (writer && !score_journal_has(&s->journal, out->n_resumed - 1, s->nll)) out->n_resumed = 0;
    if (share(s, &out->n_resumed, e)) return -1;
    return writer && !out->n_resumed ? score_journal_cut(&s->journal, 0, e) : 0;
}

/* Adds the windows of the journal to the results, as if this attempt had computed them.
 * Collective. */
static int resume(struct scorer *s, struct score *out, struct err *e)
{
    const bool writer = s->in->model->sp.shard.r == 0;
    if (writer) out->n_resumed = s->journal.n;
    if (share(s, &out->n_resumed, e)) return -1;
    if (out->n_resumed && check_journal(s, out, e)) return -1;
    for (int64_t w = 0; writer && w < out->n_resumed; w++)
        if (window_read(&s->w, w, e) || score_journal_read(&s->journal, w, s->nll, e) ||
            add_window(s, out, e))
            return -1;
    return 0;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Gets this rank's memory from the plan. */
static void scorer_place(struct scorer *s)
{
    struct model *m = s->in->model;
    const int64_t S = m->plan->S, n = m->plan->sp * m->plan->T;
    void *window = model_take(m, PLAN_SCORE_WINDOW, window_size(S));
    window_init(&s->w, s->d, s->in->spec, S, window);
    s->bucket_size = s->in->spec->score.by_position_bucket;
    if (m->sp.shard.r != 0) return;
    if (s->bucket_size) s->n_buckets = (S + s->bucket_size - 1) / s->bucket_size;
    const int64_t buckets = s->n_buckets * (int64_t)sizeof *s->bucket;
    s->rows = model_take(m, PLAN_SCORE_ROWS, 2 * n * (int64_t)sizeof *s->rows);
    s->nll = s->rows + n;
    s->bucket = model_take(m, PLAN_SCORE_BUCKETS, buckets);
    if (buckets) memset(s->bucket, 0, (size_t)buckets);
}

/* Computes the expected counts of a window. They include a forward pass, the sum of the window's
 * losses, and the gather of the losses on rank 0. */
static int expect_window(struct scorer *s, struct err *e)
{
    const struct model *m = s->in->model;
    const int64_t size = m->sp.shard.T * (int64_t)sizeof *m->nll;
    if (!m->comm) return 0;
    if (infer_expect(s->in, 1, s->want, e)) return -1;
    volume_add(&s->want[PURPOSE_LOSS], volume_sum_small(m->plan->sp, 1), 1);
    volume_add(&s->want[PURPOSE_CONTROL], volume_gather(m->plan->sp, size, m->rank == 0), 1);
    return 0;
}

static int scorer_open(struct scorer *s, struct score *out, struct err *e)
{
    const struct job_spec *spec = s->in->spec;
    char head[NPY_HEAD];
    if (expect_window(s, e)) return -1;
    scorer_place(s);
    s->text = data_all_bytes(data_stats(s->d), SET_TRAIN);
    s->cut = data_bytes_known(s->d);
    out->n_windows = s->w.n_windows;
    if (s->in->model->sp.shard.r != 0) return 0;
    if (score_journal_open(&s->journal, s->in->job_dir, &s->w, s->nll, e) ||
        artifact_open(&s->out, s->in->job_dir, "score.jsonl", e))
        return -1;
    if (!spec->score.token_logprobs) return 0;
    npy_head(head, "<f8", data_stats(s->d)->n_tokens, 0);
    return artifact_open(&s->logprobs, s->in->job_dir, "token-logprobs.npy", e) ||
                   artifact_write(&s->logprobs, head, sizeof head, e)
               ? -1
               : 0;
}

static void scorer_close(struct scorer *s)
{
    artifact_drop(&s->out);
    artifact_drop(&s->logprobs);
    score_journal_close(&s->journal);
}

static int finish(struct scorer *s, struct score *out, struct err *e)
{
    if (infer_agree(s->in, &out->ledger_equal, e)) return -1;
    if (s->in->model->sp.shard.r != 0) return 0;
    if (artifact_finish(&s->out, e)) return -1;
    out->artifact = s->out.done;
    if (s->n_buckets && write_buckets(s, out, e)) return -1;
    if (s->logprobs.open) {
        if (artifact_finish(&s->logprobs, e)) return -1;
        out->logprobs = s->logprobs.done;
    }
    return score_journal_remove(&s->journal, e);
}

int score_run(const struct infer *in, const struct data *d, struct score *out, struct err *e)
{
    struct scorer s = {.in = in, .d = d, .journal = {.fd = -1}};
    int rc = -1;
    *out = (struct score){.n_documents = data_stats(d)->n_documents, .ledger_equal = true};
    in->model->progress = in->progress;
    if (scorer_open(&s, out, e) || resume(&s, out, e)) goto out;
    progress_begin(in->progress, PROGRESS_TOKENS, (double)data_stats(d)->n_tokens,
                   out->n_resumed ? window_end(&s) : 0);
    for (int64_t w = out->n_resumed; w < out->n_windows; w++)
        if (infer_check_unit(in, s.journal.fd, e) || one_window(&s, w, out, e)) goto out;
    rc = finish(&s, out, e);
    if (!rc) progress_end(in->progress);
out:
    scorer_close(&s);
    return rc;
}
