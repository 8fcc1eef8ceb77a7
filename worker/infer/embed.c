/* embed.c: computes documents in passes, and writes the vector of each (pooler.h). */
#include "worker/infer/embed.h"

#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/jwrite.h"
#include "worker/data/npy_head.h"
#include "worker/infer/pooler.h"
#include "worker/model/finite.h"

/* ---- documents ------------------------------------------------------------------------------- */

/* Documents that are computed in one pass. Their ids are joined end to end. */
#define PASS_DOCUMENTS 256
struct pass {
    int64_t first; /* index of the first document */
    int n;
    int64_t ends[PASS_DOCUMENTS];   /* position after the last token of each document */
    int64_t offset[PASS_DOCUMENTS]; /* index in the data of the first token of each document */
    bool was_cut[PASS_DOCUMENTS];
};

struct embedder {
    const struct infer *in;
    const struct data *d;
    bool writer;  /* true on rank 0, which writes the files */
    int32_t *ids; /* owned, [S + 1]: tokens of the pass, and the end id of its last document */
    struct pooler pooler;
    float *row; /* owned, [C] */
    struct pass pass;
    struct artifact vectors, list;
};

/* Returns the number of ids that the post-processor has put at the end of a document. The document
 * is the n tokens that begin at `begin`. Returns 0 for a record of ids, because a record of ids
 * has no text. */
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

/* Reads a document and shortens it to S tokens. Keeps the ids that the post-processor has put
 * at the end of the document. */
static int read_cut(struct embedder *s, int64_t begin, int64_t n, struct err *e)
{
    const int64_t S = s->in->model->plan->S, after = ids_after(s, begin, n, e);
    if (after < 0) return -1;
    const int64_t kept = after < S ? after : 0;
    return data_read(s->d, begin, S - kept, s->ids, e) ||
                   data_read(s->d, begin + n - kept, kept, s->ids + S - kept, e)
               ? -1
               : 0;
}

/* Returns the index in the data of a document's first token. */
static int64_t begin_of(const struct embedder *s, int64_t document)
{
    return document ? (int64_t)data_documents(s->d)[document - 1] : 0;
}

/* Returns true if the last token of a document is an end id, which is not part of the
 * document. The document has n tokens, and `last` is its last token. */
static bool has_end(const struct embedder *s, int64_t n, int32_t last)
{
    return job_reads_bytes(s->in->spec) && last == TOKEN_EOD && n > 1;
}

/* Returns the number of tokens of a document, without its end id if it has one. */
static int64_t measure(struct embedder *s, int64_t document, struct err *e)
{
    int32_t last;
    const int64_t end = (int64_t)data_documents(s->d)[document], n = end - begin_of(s, document);
    if (data_read(s->d, end - 1, 1, &last, e)) return -1;
    return has_end(s, n, last) ? n - 1 : n;
}

static int too_long(struct embedder *s, int64_t document, int64_t n, struct err *e)
{
    struct data_origin from;
    if (data_origin(s->d, document, &from, e)) return -1;
    return err_field(e, ERR_TOO_LARGE, "data.seq_len",
                     "%s record %lld has %lld tokens and this job was planned for %lld: raise "
                     "data.seq_len to %lld, set data.overlong to \"truncate\" to cut it off, or "
                     "split the record",
                     data_file(s->d, from.file), (long long)from.record, (long long)n,
                     (long long)s->in->model->plan->S, (long long)n);
}

/* Checks that all documents fit, before any of them is computed. Fails with ERR_TOO_LARGE; the
 * error names the document. */
static int check_lengths(struct embedder *s, struct err *e)
{
    const uint64_t *ends = data_documents(s->d);
    const int64_t S = s->in->model->plan->S;
    if (s->in->spec->data.overlong == OVERLONG_TRUNCATE) return 0;
    for (int64_t i = 0; i < data_stats(s->d)->n_documents; i++) {
        if ((int64_t)(ends[i] - (i ? ends[i - 1] : 0)) <= S) continue;
        const int64_t n = measure(s, i, e);
        if (n < 0) return -1;
        if (n > S) return too_long(s, i, n, e);
    }
    return 0;
}

/* Reads a document after the documents that the pass already has. n is the number of its
 * tokens, including its end id. *kept gets the number of its tokens in the pass. If the
 * document is longer than a whole sequence, it is shortened. Returns 1 if the pass has no room
 * for the document. In this case the document is not read, unless its last token had to be
 * known to decide whether it fits. */
static int read_next(struct embedder *s, int64_t begin, int64_t n, int64_t *kept, struct err *e)
{
    struct pass *p = &s->pass;
    const int64_t S = s->in->model->plan->S, at = p->n ? p->ends[p->n - 1] : 0, room = S - at;
    const int64_t shortest = has_end(s, n, TOKEN_EOD) ? n - 1 : n;
    p->was_cut[p->n] = false;
    if (shortest <= room) {
        if (data_read(s->d, begin, n, s->ids + at, e)) return -1;
        *kept = has_end(s, n, s->ids[at + n - 1]) ? n - 1 : n;
        if (*kept <= room) return 0;
    }
    if (p->n) return 1;
    p->was_cut[0] = true;
    *kept = S;
    return read_cut(s, begin, n, e);
}

/* Adds a document to the pass. Returns 1 if the pass has no room for the document. */
static int pass_add(struct embedder *s, int64_t document, struct err *e)
{
    struct pass *p = &s->pass;
    const int64_t at = p->n ? p->ends[p->n - 1] : 0, begin = begin_of(s, document);
    const int64_t n = (int64_t)data_documents(s->d)[document] - begin;
    int64_t kept;
    const int rc = read_next(s, begin, n, &kept, e);
    if (rc) return rc;
    p->offset[p->n] = begin;
    p->ends[p->n++] = at + kept;
    return 0;
}

/* Reads the documents of one pass. `first` is the index of the first document of the pass. */
static int pass_read(struct embedder *s, int64_t first, struct err *e)
{
    const int64_t left = data_stats(s->d)->n_documents - first;
    const int64_t most = !infer_packs(s->in) ? 1 : left < PASS_DOCUMENTS ? left : PASS_DOCUMENTS;
    s->pass.first = first;
    s->pass.n = 0;
    for (int64_t i = 0; i < most; i++) {
        const int rc = pass_add(s, first + i, e);
        if (rc < 0) return err_prefix(e, "document %lld", (long long)(first + i));
        if (rc) break;
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
    data_write_origin(s->d, &from, &w);
    jwrite_int(&w, "tokens", n);
    jwrite_int(&w, "offset", offset);
    jwrite_end(&w);
    const int64_t size = jwrite_finish(&w);
    if (size < 0) return err_set(e, ERR_TOO_LARGE, "the name of a file is too long");
    line[size] = '\n';
    return artifact_write(&s->list, line, (size_t)size + 1, e);
}

/* Writes the vector of the pooler, which belongs to document k of the pass. */
static int write_document(struct embedder *s, int k, struct err *e)
{
    const struct pass *p = &s->pass;
    const int64_t C = s->in->model->shape.width, begin = k ? p->ends[k - 1] : 0;
    if (!s->writer) return 0;
    for (int64_t c = 0; c < C; c++) s->row[c] = (float)s->pooler.vector[c];
    if (artifact_write(&s->vectors, s->row, (size_t)C * sizeof *s->row, e)) return -1;
    return write_id(s, p->first + k, p->ends[k] - begin, p->offset[k], e);
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* Compares the ledger with the expected counts of one forward pass and of the sums of n
 * vectors. */
static int compare_ledger(struct embedder *s, int n, struct embed *out, struct err *e)
{
    const struct model *m = s->in->model;
    struct comm_count want[PURPOSE_N];
    if (!m->comm) return 0;
    if (infer_expect(s->in, 1, want, e)) return -1;
    pooler_expect(m, n, &want[PURPOSE_CONTROL]);
    out->ledger_equal = infer_moved(s->in, want) && out->ledger_equal;
    return 0;
}

/* Computes documents [k, k + n) of the pass together and writes them. *done gets the number of
 * documents that were written. Returns 1 if a state of the document after the written
 * documents is not finite. Collective. */
static int pass_run(struct embedder *s, int k, int n, int *done, struct embed *out, struct err *e)
{
    const struct pass *p = &s->pass;
    const int64_t from = k ? p->ends[k - 1] : 0;
    int64_t ends[PASS_DOCUMENTS], begin = 0;
    *done = 0;
    for (int i = 0; i < n; i++) ends[i] = p->ends[k + i] - from;
    infer_at(s->in, p->first + k + 1);
    out->n_passes++;
    const int64_t begin_us = clock_us();
    if (infer_forward_documents(s->in, s->ids + from, ends, n, e)) return -1;
    const struct tensor states = model_states(s->in->model);
    pace_until_now(&out->pace, ends[n - 1], begin_us);
    for (; *done < n; begin = ends[(*done)++]) {
        const int rc = pooler_run(&s->pooler, states, begin, ends[*done], e);
        if (rc) return rc;
        if (write_document(s, k + *done, e)) return -1;
    }
    return compare_ledger(s, n, out, e);
}

/* Computes the documents of the pass one at a time, beginning with document k. */
static int pass_alone(struct embedder *s, int k, struct embed *out, struct err *e)
{
    for (int done; k < s->pass.n; k++) {
        int rc = pass_run(s, k, 1, &done, out, e);
        if (rc > 0) rc = finite_blame_forward(s->in->model, e, "a hidden state");
        if (rc) return err_prefix(e, "document %lld", (long long)(s->pass.first + k));
    }
    return 0;
}

/* Reads a pass that begins with document `first`. Computes and writes its documents. */
static int one_pass(struct embedder *s, int64_t first, struct embed *out, struct err *e)
{
    struct pass *p = &s->pass;
    int done;
    if (pass_read(s, first, e)) return -1;
    const double end = (double)data_documents(s->d)[first + p->n - 1];
    progress_piece(s->in->progress, (double)p->offset[0], end - (double)p->offset[0]);
    const int rc = pass_run(s, 0, p->n, &done, out, e);
    if (rc < 0) return err_prefix(e, "document %lld", (long long)(first + done));
    if (rc && pass_alone(s, done, out, e)) return -1;
    progress_at(s->in->progress, end);
    out->n_tokens += p->ends[p->n - 1];
    for (int k = 0; k < p->n; k++) out->n_truncated += p->was_cut[k];
    return 0;
}

/* ---- the job --------------------------------------------------------------------------------- */

static int embedder_open(struct embedder *s, const struct embed *out, struct err *e)
{
    const struct model *m = s->in->model;
    char head[NPY_HEAD];
    s->ids = malloc((size_t)(m->plan->S + 1) * sizeof *s->ids);
    s->row = malloc((size_t)out->width * sizeof *s->row);
    if (!s->ids || !s->row)
        return err_set(e, ERR_IO, "out of memory for a document of %lld tokens",
                       (long long)m->plan->S);
    if (pooler_open(&s->pooler, s->in, e) || check_lengths(s, e)) return -1;
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
    free(s->row);
    pooler_close(&s->pooler);
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
    for (int64_t i = 0; i < out->n_documents; i += s.pass.n)
        if (infer_check_stop(in, e) || one_pass(&s, i, out, e)) goto out;
    rc = finish(&s, out, e);
    if (!rc) progress_end(in->progress);
out:
    embedder_close(&s);
    return rc;
}
