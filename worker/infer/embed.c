/* embed.c: sums hidden states over each rank's rows in double, adds up the ranks' sums, and writes
 * a vector for each document. */
#include "worker/infer/embed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/data/npy_head.h"
#include "worker/family/family.h"
#include "worker/model/finite.h"
#include "worker/model/host_copy.h"
#include "worker/plan/volume.h"

/* ---- pooling --------------------------------------------------------------------------------- */

#define PIECE 32 /* rows of hidden states that are downloaded at once */

/* Adds rows [row0, row0 + n) of the states to sum, in ascending order. */
static void add_rows(struct model *m, struct tensor states, int64_t row0, int64_t n, float *buf,
                     double *sum)
{
    const int64_t C = m->shape.width;
    for (int64_t r = 0; r < n; r += PIECE) {
        const int64_t k = r + PIECE < n ? PIECE : n - r;
        const struct tensor x = tensor_sub(states, row0 + r, k, 0, C);
        assert(x.ld == C);
        host_copy_out(m->be, x.dtype, x.data, buf, k * C);
        for (int64_t i = 0; i < k; i++)
            for (int64_t c = 0; c < C; c++) sum[c] += (double)buf[i * C + c];
    }
}

/* Adds this rank's part of positions [from, n) of the sequence. */
static void add_own(struct model *m, int64_t from, int64_t n, float *buf, double *sum)
{
    const struct shard *sh = &m->sp.shard;
    const struct tensor states = model_states(m);
    for (int s = 0; s < sh->n_segs; s++) {
        const int64_t pos = sh->pos[s];
        const int64_t lo = from > pos ? from - pos : 0, end = n - pos;
        const int64_t hi = end < sh->seg_len ? end : sh->seg_len;
        if (lo < hi) add_rows(m, states, s * sh->seg_len + lo, hi - lo, buf, sum);
    }
}

/* Returns the number of elements, from c on, that one small sum takes of C. */
static int sum_length(int64_t C, int64_t c)
{
    return (int)(c + VOLUME_SMALL_N < C ? VOLUME_SMALL_N : C - c);
}

static int sum_ranks(struct model *m, double *x, struct err *e)
{
    const int64_t C = m->shape.width;
    for (int64_t c = 0; m->comm && c < C; c += VOLUME_SMALL_N)
        if (comm_sum_f64(m->comm, PURPOSE_CONTROL, x + c, sum_length(C, c), m->bounce, e))
            return -1;
    return 0;
}

static void normalize(double *x, int64_t n)
{
    double most = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
    if (most == 0) return;
    for (int64_t i = 0; i < n; i++) sum += x[i] / most * (x[i] / most);
    for (int64_t i = 0; i < n; i++) x[i] /= most * sqrt(sum);
}

int embed_tokens(const struct infer *in, const int32_t *tokens, int64_t n, double *out,
                 struct err *e)
{
    struct model *m = in->model;
    const struct job_spec *spec = in->spec;
    const int64_t C = m->shape.width;
    const bool mean = spec->embed.pooling == POOLING_MEAN;
    float *buf = malloc((size_t)(PIECE * C) * sizeof *buf);
    if (!buf) return err_set(e, ERR_IO, "out of memory for %d hidden states", PIECE);
    memset(out, 0, (size_t)C * sizeof *out);
    int rc = infer_forward(in, tokens, n, e);
    if (!rc) {
        const bool cls = spec->embed.pooling == POOLING_CLS;
        add_own(m, mean || cls ? 0 : n - 1, cls ? 1 : n, buf, out);
        rc = sum_ranks(m, out, e);
    }
    free(buf);
    for (int64_t c = 0; c < C && !rc; c++) {
        if (mean) out[c] /= (double)n;
        if (!isfinite(out[c])) rc = finite_blame_forward(m, e, "a hidden state");
    }
    if (!rc && spec->embed.normalize) normalize(out, C);
    return rc;
}

/* ---- documents ------------------------------------------------------------------------------- */

struct embedder {
    const struct infer *in;
    const struct data *d;
    bool writer;  /* true on rank 0, which writes the files */
    bool was_cut; /* the last document read was cut off */
    int32_t *ids; /* owned, [S + 1] */
    double *sum;  /* owned, [C] */
    float *row;   /* owned, [C] */
    struct artifact vectors, list;
};

/* Returns the number of ids that the post-processor has put at the end of the document of n tokens
 * from `begin` on. Returns 0 for a record of ids: it has no text. */
static int64_t ids_after(const struct embedder *s, int64_t begin, int64_t n, struct err *e)
{
    uint32_t sizes[256];
    const int64_t after = data_stats(s->d)->n_after;
    if (!after || !data_bytes_known(s->d)) return 0;
    for (int64_t at = 0; at < n; at += 256) {
        const int64_t k = n - at < 256 ? n - at : 256;
        if (data_read_bytes(s->d, begin + at, k, sizes, e)) return -1;
        for (int64_t i = 0; i < k; i++)
            if (sizes[i]) return after;
    }
    return 0;
}

/* Reads a document cut to S tokens. The post-processor's ids at its end are kept. */
static int64_t read_cut(struct embedder *s, int64_t begin, int64_t n, struct err *e)
{
    const int64_t S = s->in->model->plan->S, after = ids_after(s, begin, n, e);
    if (after < 0) return -1;
    const int64_t kept = after < S ? after : 0;
    return data_read(s->d, begin, S - kept, s->ids, e) ||
                   data_read(s->d, begin + n - kept, kept, s->ids + S - kept, e)
               ? -1
               : S;
}

/* Reads the tokens of a document, without its end, into s->ids; *offset: its first token. fails:
 * ERR_TOO_LARGE naming the document. */
static int64_t read_document(struct embedder *s, int64_t document, int64_t *offset, struct err *e)
{
    const uint64_t *ends = data_documents(s->d);
    const int64_t begin = document ? (int64_t)ends[document - 1] : 0, S = s->in->model->plan->S;
    int64_t n = (int64_t)ends[document] - begin;
    struct data_origin from;
    int32_t last;
    *offset = begin;
    if (data_read(s->d, begin + n - 1, 1, &last, e)) return -1;
    if (job_reads_bytes(s->in->spec) && last == TOKEN_EOD && n > 1) n--;
    s->was_cut = n > S;
    if (n <= S) return data_read(s->d, begin, n, s->ids, e) ? -1 : n;
    if (s->in->spec->data.overlong == OVERLONG_TRUNCATE) return read_cut(s, begin, n, e);
    if (data_origin(s->d, document, &from, e)) return -1;
    return err_field(e, ERR_TOO_LARGE, "data.seq_len",
                     "document %lld (%s, record %lld) has %lld tokens and this job was planned for "
                     "%lld: raise data.seq_len, or split the document",
                     (long long)document, data_file(s->d, from.file), (long long)from.record,
                     (long long)n, (long long)S);
}

/* Checks that all documents fit, before any is computed. */
static int check_lengths(struct embedder *s, struct err *e)
{
    const uint64_t *ends = data_documents(s->d);
    const int64_t n = data_stats(s->d)->n_documents, S = s->in->model->plan->S;
    int64_t offset;
    for (int64_t i = 0; i < n; i++) {
        const int64_t size = (int64_t)(ends[i] - (i ? ends[i - 1] : 0));
        if (size > S && read_document(s, i, &offset, e) < 0) return -1;
    }
    return 0;
}

static int write_id(struct embedder *s, int64_t document, int64_t n, int64_t offset, struct err *e)
{
    char line[8192];
    struct data_origin from;
    struct jwrite w;
    if (data_origin(s->d, document, &from, e)) return -1;
    jwrite_init(&w, line, sizeof line - 1);
    jwrite_object(&w, NULL);
    jwrite_int(&w, "index", document);
    jwrite_int(&w, "document", document);
    jwrite_str(&w, "file", data_file(s->d, from.file));
    jwrite_int(&w, "record", (int64_t)from.record);
    jwrite_int(&w, "tokens", n);
    jwrite_int(&w, "offset", offset);
    jwrite_end(&w);
    const int64_t size = jwrite_finish(&w);
    if (size < 0) return err_set(e, ERR_TOO_LARGE, "the name of a file is too long");
    line[size] = '\n';
    return artifact_write(&s->list, line, (size_t)size + 1, e);
}

/* Compares the ledger with the counts of a forward pass and of the sum of a vector. */
static int compare_ledger(struct embedder *s, struct embed *out, struct err *e)
{
    const struct model *m = s->in->model;
    const int P = m->plan->sp;
    struct comm_count want[PURPOSE_N];
    if (!m->comm) return 0;
    if (infer_expect(s->in, 1, want, e)) return -1;
    for (int64_t c = 0; c < out->width; c += VOLUME_SMALL_N)
        volume_add(&want[PURPOSE_CONTROL], volume_sum_small(P, sum_length(out->width, c)), 1);
    out->ledger_equal = infer_moved(s->in, want) && out->ledger_equal;
    return 0;
}

static int one_document(struct embedder *s, int64_t document, struct embed *out, struct err *e)
{
    const int64_t C = s->in->model->shape.width;
    int64_t offset;
    infer_at(s->in, document + 1);
    const int64_t n = read_document(s, document, &offset, e);
    const double end = (double)data_documents(s->d)[document];
    progress_piece(s->in->progress, (double)offset, end - (double)offset);
    if (n < 0 || embed_tokens(s->in, s->ids, n, s->sum, e))
        return err_prefix(e, "document %lld", (long long)document);
    if (compare_ledger(s, out, e)) return -1;
    progress_at(s->in->progress, end);
    out->n_tokens += n;
    out->n_truncated += s->was_cut;
    if (!s->writer) return 0;
    for (int64_t c = 0; c < C; c++) s->row[c] = (float)s->sum[c];
    if (artifact_write(&s->vectors, s->row, (size_t)C * sizeof *s->row, e)) return -1;
    return write_id(s, document, n, offset, e);
}

/* ---- the job --------------------------------------------------------------------------------- */

static int embedder_open(struct embedder *s, const struct embed *out, struct err *e)
{
    const struct model *m = s->in->model;
    char head[NPY_HEAD];
    s->ids = malloc((size_t)(m->plan->S + 1) * sizeof *s->ids);
    s->sum = malloc((size_t)out->width * sizeof *s->sum);
    s->row = malloc((size_t)out->width * sizeof *s->row);
    if (!s->ids || !s->sum || !s->row)
        return err_set(e, ERR_IO, "out of memory for a document of %lld tokens",
                       (long long)m->plan->S);
    if (check_lengths(s, e)) return -1;
    if (!s->writer) return 0;
    npy_head(head, "<f4", out->n_documents, out->width);
    return artifact_open(&s->vectors, s->in->job_dir, "embeddings.npy", e) ||
                   artifact_write(&s->vectors, head, sizeof head, e) ||
                   artifact_open(&s->list, s->in->job_dir, "embeddings.ids.jsonl", e)
               ? -1
               : 0;
}

static void embedder_close(struct embedder *s)
{
    artifact_drop(&s->vectors);
    artifact_drop(&s->list);
    free(s->ids);
    free(s->sum);
    free(s->row);
}

static int finish(struct embedder *s, struct embed *out, struct err *e)
{
    if (infer_agree(s->in, &out->ledger_equal, e)) return -1;
    if (!s->writer) return 0;
    if (artifact_finish(&s->vectors, e) || artifact_finish(&s->list, e)) return -1;
    out->vectors = s->vectors.done;
    out->ids = s->list.done;
    return 0;
}

int embed_run(const struct infer *in, const struct data *d, struct embed *out, struct err *e)
{
    struct embedder s = {.in = in, .d = d, .writer = in->model->sp.shard.r == 0};
    int rc = -1;
    *out = (struct embed){.n_documents = data_stats(d)->n_documents,
                          .width = in->model->shape.width,
                          .ledger_equal = true};
    in->model->progress = in->progress;
    if (embedder_open(&s, out, e)) goto out;
    progress_begin(in->progress, PROGRESS_TOKENS, (double)data_stats(d)->n_tokens, 0);
    for (int64_t i = 0; i < out->n_documents; i++)
        if (infer_check_stop(in, e) || one_document(&s, i, out, e)) goto out;
    rc = finish(&s, out, e);
    if (!rc) progress_end(in->progress);
out:
    embedder_close(&s);
    return rc;
}
