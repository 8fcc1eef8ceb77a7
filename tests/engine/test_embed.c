/* Checks embeddings over P ranks. The embeddings must be the same on all ranks. They must equal
 * the hidden states of one rank after these were pooled in float64. */
#include <math.h>
#include <stdlib.h>

#include "api/core/log.h"
#include "tests/lib/param.h"
#include "tests/lib/reading.h"
#include "tests/lib/ref.h"
#include "worker/family/family.h"
#include "worker/model/section.h"

static char scratch[64];
static const char *const docs[] = {"hello", "a", "the quick brown fox jumps over", "ab",
                                   "xyzzy plugh, and a little more of that"};
#define N_DOCS ((int)(sizeof docs / sizeof *docs))
#define C      48
#define S      40

struct job {
    struct reading_embed r;
    int family; /* enum model_family */
    double want[N_DOCS][C];
    bool reference;
};

/* Computes the vector of a row in double, from the residual stream after the last layer. For a
 * decoder, it applies the final norm, and for ModernBERT the LayerNorm. For BERT the vector is the
 * stream itself, because BERT's last norm belongs to the head. */
static void state(const struct tiny_rank *t, int64_t row, double out[C])
{
    struct model *m = (struct model *)&t->model;
    const bool rms = m->shape.family == FAMILY_LLAMA;
    const struct tensor x = section_hidden(m);
    double mean = 0, square = 0;
    for (int c = 0; c < C; c++) out[c] = ref_at(x, row, c);
    if (m->shape.family == FAMILY_BERT) return;
    const char *name = rms ? "model.norm.weight" : "model.final_norm.weight";
    const struct tensor g = model_weight(m, param_named(&m->shape, name).offset, 1, C);
    for (int c = 0; c < C && !rms; c++) mean += out[c] / C;
    for (int c = 0; c < C; c++) square += (out[c] - mean) * (out[c] - mean) / C;
    for (int c = 0; c < C; c++)
        out[c] = (out[c] - mean) / sqrt(square + m->shape.norm_eps) * ref_at(g, 0, c);
}

/* Computes the pooled vector of a document in double. */
static int pool(struct tiny_rank *t, const struct job_spec *spec, const char *doc, double *out,
                struct err *e)
{
    struct infer in = {.model = &t->model, .spec = spec};
    const int64_t n = (int64_t)strlen(doc);
    int32_t ids[64];
    double length = 0;
    for (int64_t i = 0; i < n; i++) ids[i] = (unsigned char)doc[i];
    if (infer_forward(&in, ids, n, e)) return -1;
    for (int c = 0; c < C; c++) out[c] = 0;
    for (int64_t i = spec->embed.pooling == POOLING_MEAN ? 0 : n - 1; i < n; i++) {
        double row[C];
        state(t, i, row);
        for (int c = 0; c < C; c++) out[c] += row[c];
    }
    for (int c = 0; c < C; c++) out[c] /= spec->embed.pooling == POOLING_MEAN ? (double)n : 1;
    for (int c = 0; c < C; c++) length += out[c] * out[c];
    for (int c = 0; c < C && spec->embed.normalize; c++) out[c] /= sqrt(length);
    return 0;
}

static int pool_all(struct tiny_rank *t, struct reading_embed *r, struct err *e)
{
    struct job *j = r->arg;
    for (int i = 0; i < N_DOCS && j->reference; i++)
        if (pool(t, &r->spec, docs[i], j->want[i], e)) return -1;
    return 0;
}

static void go(struct job *j)
{
    struct reading_embed *r = &j->r;
    reading_run(&r->spec, r->spec.resources.ranks, reading_embed, r);
    if (r->e.code) return;
    CHECK(r->out.n_passes == (r->spec.data.packing == PACKING_NONE ? N_DOCS : 2));
    CHECK(r->told.n_inside > r->out.n_passes * r->spec.model.shape.n_layers);
}

static void set_family(struct model_shape *m, int family)
{
    struct err e = {0};
    m->family = family;
    if (family == FAMILY_LLAMA) return;
    m->n_kv_heads = m->n_heads;
    m->max_pos = 64;
    m->tied = 1;
    if (family == FAMILY_MODERNBERT) m->window = 5, m->layer_mask[0] = 2, m->norm_bias = 1;
    CHECK_MSG(!family_complete(m, &e), "%s", e.text);
}

static void prepare(struct job *j, int P, int pooling, bool normalized, int64_t seq_len)
{
    char path[128];
    struct reading_embed *r = &j->r;
    *r = (struct reading_embed){.parent = scratch, .after = pool_all, .arg = j};
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    snprintf(r->dir, sizeof r->dir, "%s/job%d", scratch, P);
    reading_spec(&r->spec, JOB_EMBED, scratch, path, P, seq_len);
    set_family(&r->spec.model.shape, j->family);
    r->spec.embed.pooling = pooling;
    r->spec.embed.normalize = normalized;
    /* test_embed_packed.c checks the other packing */
    if (P == 1) r->spec.data.packing = PACKING_NONE;
    reading_prepare(&r->spec, scratch, r->id);
}

static void read_vectors(const struct job *j, float out[N_DOCS][C])
{
    size_t size;
    char *text = reading_artifact(j->r.dir, "embeddings.npy", &size), want[64];
    snprintf(want, sizeof want, "'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d)", N_DOCS,
             C);
    CHECK(size == 128 + N_DOCS * C * sizeof(float) && memmem(text, 128, want, strlen(want)));
    if (size == 128 + N_DOCS * C * sizeof(float)) memcpy(out, text + 128, size - 128);
    free(text);
}

static void check_ids(const struct job *j)
{
    size_t size;
    char *text = reading_artifact(j->r.dir, "embeddings.ids.jsonl", &size), *line = text;
    int64_t offset = 0;
    for (int i = 0; i < N_DOCS; i++) {
        char head[64], tail[96];
        const int n = (int)strlen(docs[i]);
        snprintf(head, sizeof head, "{\"index\":%d,\"document\":%d,\"file\":\"", i, i);
        snprintf(tail, sizeof tail, "docs.jsonl\",\"record\":%d,\"tokens\":%d,\"offset\":%lld}\n",
                 i + 1, n, (long long)offset);
        CHECK_MSG(!strncmp(line, head, strlen(head)), "%.80s", line);
        CHECK_MSG(strstr(line, tail) && strstr(line, tail) < strchr(line, '\n'), "%.120s", line);
        offset += n + 1;
        line = strchr(line, '\n') + 1;
    }
    CHECK(!*line);
    free(text);
}

/* Checks one family. On one rank, with a pass for each document, the hidden states have the same
 * bits. The embedding and the expected vector then differ only because the engine computes the
 * norm in fp32 and this test in double, and because the embedding is rounded. A norm of 48 terms,
 * with its root and two products, has an error of at most about 30 roundings of 6e-8. This is 2e-6
 * of the vector's largest entry. With several ranks, or if documents share passes, attention adds
 * the terms of its keys in a different order. The resulting error is 1e-5 after two layers. */
static void check_pooling(int family)
{
    static struct job one, many;
    static float got[N_DOCS][C];
    one.family = many.family = family;
    for (int k = 0; k < 4; k++) {
        one.reference = true;
        prepare(&one, 1, k / 2, k % 2, S);
        go(&one);
        CHECK(one.r.out.n_documents == N_DOCS && one.r.out.width == C && one.r.out.ledger_equal);
        for (int P = 1; P <= 4; P = P == 1 ? 2 : P + 1) {
            prepare(&many, P, k / 2, k % 2, S);
            go(&many);
            CHECK(many.r.out.ledger_equal && many.r.out.n_tokens == one.r.out.n_tokens);
            memset(got, 0, sizeof got);
            read_vectors(&many, got);
            check_ids(&many);
            for (int i = 0; i < N_DOCS; i++) {
                double most = 0, worst = 0, length = 0;
                for (int c = 0; c < C; c++) {
                    most = fmax(most, fabs(one.want[i][c]));
                    worst = fmax(worst, fabs((double)got[i][c] - one.want[i][c]));
                    length += (double)got[i][c] * (double)got[i][c];
                }
                CHECK_MSG(worst <= (P == 1 ? 2e-6 : 1e-5) * most,
                          "family %d: %d P %d document %d: %g of %g", family, k, P, i, worst, most);
                if (k % 2) CHECK(fabs(length - 1) < 1e-6);
            }
        }
    }
}

static void test_pooling(void)
{
    check_pooling(FAMILY_LLAMA), check_pooling(FAMILY_BERT), check_pooling(FAMILY_MODERNBERT);
}

/* Checks 16-bit types. The hidden states are unchanged, but the rows after the norm were rounded.
 * Each entry was changed by at most u times its value, where u is 2^-9 in bf16 and 2^-12 in fp16.
 * A mean was changed by at most the mean of these errors. The largest entry of a mean of these
 * documents is at least half the mean of the rows' largest entries, so the bound is 2 u. If
 * vectors are normalized, the error of their length is as large as the error of an entry. */
static void check_half(enum precision_id precision, double u)
{
    static struct job j;
    static float got[N_DOCS][C];
    j.reference = true;
    for (int k = 0; k < 4; k++) {
        prepare(&j, 1, k / 2, k % 2, S);
        j.r.spec.precision.params = (int32_t)precision;
        go(&j);
        memset(got, 0, sizeof got);
        read_vectors(&j, got);
        for (int i = 0; i < N_DOCS; i++) {
            double most = 0, worst = 0;
            for (int c = 0; c < C; c++) {
                most = fmax(most, fabs(j.want[i][c]));
                worst = fmax(worst, fabs((double)got[i][c] - j.want[i][c]));
            }
            CHECK_MSG(worst <= 2 * u * most && worst > 0, "%d document %d: %g of %g", k, i, worst,
                      most);
        }
    }
}

static void test_half(void)
{
    check_half(PRECISION_BF16, 0x1p-9), check_half(PRECISION_FP16, 0x1p-12);
}

/* Checks a document that is as long as the sequence. If the sequence is one token shorter, the
 * error must name the document's record and every possible fix. */
static void test_length(void)
{
    static struct job j;
    const int64_t longest = (int64_t)strlen(docs[4]);
    prepare(&j, 2, POOLING_LAST, true, longest);
    go(&j);
    CHECK(j.r.out.n_documents == N_DOCS);
    prepare(&j, 1, POOLING_LAST, true, longest - 1);
    j.r.may_fail = true;
    go(&j);
    const struct err *e = &j.r.e;
    CHECK_MSG(e->code == ERR_TOO_LARGE && strstr(e->text, "docs.jsonl record 5 has 38 tokens") &&
                  strstr(e->text, "planned for 37: raise data.seq_len to 38, set data.overlong to "
                                  "\"truncate\""),
              "%s", e->text);
    CHECK_MSG(!strstr(e->text, "document 4"), "counts from 0 as well: %s", e->text);
    CHECK_STR(e->field, "data.seq_len");
    prepare(&j, 1, POOLING_LAST, true, longest - 1);
    j.r.spec.data.overlong = OVERLONG_TRUNCATE;
    reading_prepare(&j.r.spec, scratch, j.r.id);
    go(&j);
    CHECK(j.r.out.n_documents == N_DOCS && j.r.out.n_truncated == 1);
}

int main(void)
{
    char path[128], text[1024] = "";
    struct err e = {0};
    setenv("SEQD_LOG", "error", 0);
    log_init("test_embed");
    snprintf(scratch, sizeof scratch, "/tmp/test_embed.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    for (int i = 0; i < N_DOCS; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "{\"text\":\"%s\"}\n", docs[i]);
    snprintf(path, sizeof path, "%s/docs.jsonl", scratch);
    CHECK_MSG(!file_write(path, text, strlen(text), &e), "%s", e.text);
    RUN(test_pooling);
    RUN(test_half);
    RUN(test_length);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("embed");
}
