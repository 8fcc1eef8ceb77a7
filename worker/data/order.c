/* data_order: opens streams of samples, and maps global sample n to a sample of a stream. */
#include "worker/data/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/model_shape.h"
#include "api/core/mutant.h"
#include "worker/data/mixture.h"
#include "worker/data/permute.h"
#include "worker/family/family.h"
#include "worker/plan/stage.h"

/* Returns the rule by which tokens are hidden from a masked language model, which must predict
 * these tokens. With the byte tokenizer only bytes are hidden. */
static struct mask_rule mask_rule(const struct job_spec *s, int set)
{
    const struct model_shape *m = &s->model.shape;
    const bool byte = s->objective.mask_token == TOKEN_MASK && job_reads_bytes(s);
    const struct family_row *row = family_row(m);
    if (!row || row->task != MODEL_MASKED_LM || (s->kind != JOB_TRAIN && s->kind != JOB_VERIFY))
        return (struct mask_rule){0};
    return (struct mask_rule){.prob = s->objective.mask_prob,
                              .seed = s->seed,
                              .set = set,
                              .hidden = (int32_t)s->objective.mask_token,
                              .n_other = byte ? 256 : (int32_t)m->vocab,
                              .special = TOKEN_EOD,
                              .n_special = byte ? 3 : 0};
}

struct order_options data_order_options(const struct job_spec *s, int set, int64_t seq_len)
{
    const struct family_row *row = family_row(&s->model.shape);
    return (struct order_options){.set = set,
                                  .packing = s->data.packing,
                                  .overlong = s->data.overlong,
                                  .seq_len = seq_len           ? seq_len
                                             : set == SET_EVAL ? stage_eval_seq_len(s)
                                                               : s->data.seq_len,
                                  .seed = s->seed,
                                  .longest = row && row->position_table && s->data.reset_positions
                                                 ? family_positions(&s->model.shape)
                                                 : 0,
                                  .in_order = set == SET_EVAL,
                                  .document_mask = s->data.document_mask,
                                  .reset_positions = s->data.reset_positions,
                                  .causal = !row || row->task != MODEL_MASKED_LM,
                                  .vocab = s->model.shape.vocab,
                                  .windowed = s->model.shape.window > 0,
                                  .pairs = job_learns_pairs(s),
                                  .reach = set == SET_TRAIN &&
                                           (s->kind == JOB_TRAIN || s->kind == JOB_VERIFY),
                                  .mask = mask_rule(s, set)};
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool weighted(const struct data_order *o)
{
    if (o->options.in_order) return false;
    for (int i = 0; i < data_n_sources(o->data); i++) {
        const struct data_source *s = data_source(o->data, i);
        if (s->set == o->options.set && s->weight > 0) return true;
    }
    return false;
}

/* Refuses a stream without samples: it has no document, or data.overlong has dropped all. */
static int no_sample(const struct data_order *o, const struct pack *p, struct err *e)
{
    const char *field = o->options.set == SET_EVAL ? "eval.data" : "data.train";
    const bool pairs = o->options.pairs;
    const int64_t S = o->options.seq_len, n = p->o.n_documents / (pairs ? 2 : 1);
    if (!n)
        return err_field(e, ERR_INVALID, field,
                         "this source has no document, for all its records are empty: leave it out "
                         "of %s",
                         field);
    return err_field(
        e, ERR_INVALID, field,
        "no sample is left of %lld %s%s%s: data.overlong \"drop\" has dropped all, since "
        "%s at least %lld tokens and the sequence %lld: raise %s to that%s",
        (long long)n, pairs ? "pair" : "document", n == 1 ? "" : "s",
        o->mixed ? " of this source" : "",
        pairs ? "a pair is its prompt twice and both answers, here" : "each has",
        (long long)pack_shortest(p), (long long)S,
        o->options.set == SET_EVAL ? "eval.seq_len" : "data.seq_len (or the stage's)",
        pairs ? "" : ", or set data.overlong to split");
}

static int open_stream(struct data_order *o, int64_t first_document, int64_t n_documents,
                       struct err *e)
{
    const struct pack_options po = {.data = o->data,
                                    .first_document = first_document,
                                    .n_documents = n_documents,
                                    .seq_len = o->options.seq_len,
                                    .longest = o->options.longest,
                                    .packing = o->options.packing,
                                    .overlong = o->options.overlong,
                                    .pairs = o->options.pairs};
    struct pack *p = &o->stream[o->n_streams++];
    if (pack_open(p, &po, e) < 0) return -1;
    return p->stats.n_samples > 0 ? 0 : no_sample(o, p, e);
}

static int open_mixture(struct data_order *o, struct err *e)
{
    double weight[SPEC_SOURCES];
    int n = 0;
    o->mixed = true;
    for (int i = 0; i < data_n_sources(o->data); i++) {
        const struct data_source *s = data_source(o->data, i);
        if (s->set != o->options.set) continue;
        if (n == SPEC_SOURCES)
            return err_set(e, ERR_CORRUPT, "the order has more than %d sources", n);
        weight[n++] = s->weight;
        if (open_stream(o, s->first_document, s->n_documents, e) < 0)
            return err_prefix(e, "source %d", n - 1);
    }
    return mixture_init(&o->mixture, weight, n, e);
}

/* Opens one stream over the whole set. */
static int open_whole(struct data_order *o, struct err *e)
{
    const struct data_stats *s = data_stats(o->data);
    if (o->options.set == SET_TRAIN) return open_stream(o, 0, s->n_documents, e);
    if (!s->eval_documents)
        return err_field(e, ERR_INVALID, "eval.data", "the prepared data has no eval set");
    return open_stream(o, s->n_documents, s->eval_documents, e);
}

static void add_stats(struct order_stats *sum, const struct order_stats *s)
{
    sum->n_samples += s->n_samples;
    sum->n_fragments += s->n_fragments;
    sum->n_tokens += s->n_tokens;
    sum->n_documents += s->n_documents;
    sum->dropped_documents += s->dropped_documents;
    sum->dropped_tokens += s->dropped_tokens;
    sum->truncated_documents += s->truncated_documents;
    sum->truncated_tokens += s->truncated_tokens;
    sum->split_documents += s->split_documents;
}

struct data_order *data_order_open(const struct data *d, const struct order_options *options,
                                   struct err *e)
{
    struct data_order *o = calloc(1, sizeof *o);
    if (!o) {
        err_set(e, ERR_IO, "out of memory");
        return NULL;
    }
    o->data = d;
    o->options = *options;
    if ((weighted(o) ? open_mixture(o, e) : open_whole(o, e)) < 0) {
        data_order_close(o);
        return NULL;
    }
    for (int i = 0; i < o->n_streams; i++) add_stats(&o->stats, &o->stream[i].stats);
    return o;
}

void data_order_close(struct data_order *o)
{
    if (!o) return;
    for (int i = 0; i < o->n_streams; i++) pack_close(&o->stream[i]);
    free(o);
}

const struct order_stats *data_order_stats(const struct data_order *o)
{
    return &o->stats;
}

int64_t data_order_samples(const struct data_order *o)
{
    return o->stats.n_samples;
}

/* ---- samples --------------------------------------------------------------------------------- */

void data_sample(const struct data_order *o, int64_t n, struct sample *s)
{
    int64_t seed = o->options.seed, k = n;
    assert(n >= 0);
    *s = (struct sample){0};
    if (o->mixed) mixture_at(&o->mixture, seed, n, &s->stream, &k);
    const struct pack *p = &o->stream[s->stream];
    const int64_t N = p->stats.n_samples, pass = k / N;
    /* The streams of a mixture are shuffled independently. */
    if (o->mixed) seed ^= (int64_t)(((uint64_t)s->stream + 1) << 40);
    pack_sample(p, o->options.in_order ? k % N : permute(k % N, N, seed, pass), s);
    s->pass = pass;
}

void data_fragment(const struct data_order *o, const struct sample *s, int64_t k,
                   struct fragment *f)
{
    pack_fragment(&o->stream[s->stream], s, k, f);
}

/* Counts the targets in a fragment. */
static int64_t targets_in(const struct data_order *o, const struct fragment *f, struct err *e)
{
    uint8_t learn[4096];
    int64_t n = 0;
    for (int64_t i = 1; i < f->length;) {
        int64_t m = f->length - i;
        if (m > (int64_t)sizeof learn) m = sizeof learn;
        if (data_read_mask(o->data, f->token + i, m, learn, e) < 0) return -1;
        for (int64_t j = 0; j < m; j++) n += learn[j];
        i += m;
    }
    return n;
}

static int64_t masked_targets(const struct data_order *o, const struct sample *s, struct err *e)
{
    int64_t n_targets = 0;
    for (int64_t k = 0; k < s->n_fragments; k++) {
        struct fragment f;
        data_fragment(o, s, k, &f);
        const int64_t n = targets_in(o, &f, e);
        if (n < 0) return -1;
        n_targets += n;
    }
    return n_targets;
}

bool data_order_paired(const struct data_order *o)
{
    return o->options.pairs;
}

int64_t data_pairs(const struct data_order *o, int64_t n)
{
    struct sample s;
    assert(o->options.pairs);
    data_sample(o, n, &s);
    return s.n_fragments / 2;
}

/* Finds the fragments of pair k of sample n; the chosen answer's is first. */
static void pair_fragments(const struct data_order *o, int64_t n, int64_t k, struct fragment f[2])
{
    struct sample s;
    data_sample(o, n, &s);
    for (int i = 0; i < 2; i++)
        data_fragment(o, &s, 2 * k + i, &f[mutant_on(MUTANT_PAIR_SWAPPED) ? 1 - i : i]);
}

int data_pair(const struct data_order *o, int64_t n, int64_t k, struct data_answer out[2],
              struct err *e)
{
    struct fragment f[2];
    pair_fragments(o, n, k, f);
    for (int i = 0; i < 2; i++) {
        out[i] = (struct data_answer){f[i].document, f[i].pos, f[i].length,
                                      targets_in(o, &f[i], e)};
        if (out[i].targets < 0) return -1;
    }
    return 0;
}

void data_pair_documents(const struct data_order *o, int64_t n, int64_t k, int64_t document[2])
{
    struct fragment f[2];
    pair_fragments(o, n, k, f);
    for (int i = 0; i < 2; i++) document[i] = f[i].document;
}

/* Counts the targets in fragment f of sample n, for a model from which tokens are hidden. */
static int64_t hidden_targets(const struct data_order *o, int64_t n, const struct fragment *f,
                              struct err *e)
{
    enum { PART = 2048 };
    int32_t ids[PART], target;
    uint8_t learn[PART];
    int64_t count = 0;
    for (int64_t i = 0; i < f->length;) {
        const int64_t m = f->length - i < PART ? f->length - i : PART;
        if (data_read(o->data, f->token + i, m, ids, e) < 0 ||
            data_read_mask(o->data, f->token + i, m, learn, e) < 0)
            return -1;
        for (int64_t j = 0; j < m; j++) {
            mask_token(&o->options.mask, n, f->pos + i + j, ids[j], &target);
            count += learn[j] && target >= 0;
        }
        i += m;
    }
    return count;
}

static int64_t all_hidden_targets(const struct data_order *o, int64_t n, const struct sample *s,
                                  struct err *e)
{
    int64_t count = 0;
    for (int64_t k = 0; k < s->n_fragments; k++) {
        struct fragment f;
        data_fragment(o, s, k, &f);
        const int64_t more = hidden_targets(o, n, &f, e);
        if (more < 0) return -1;
        count += more;
    }
    return count;
}

/* Sums the bytes of the tokens in [token, token + n) that may be targets. */
static int64_t learnt_bytes(const struct data *d, int64_t token, int64_t n, struct err *e)
{
    enum { PART = 1024 };
    uint32_t bytes[PART];
    uint8_t learn[PART];
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i += PART) {
        const int64_t m = n - i < PART ? n - i : PART;
        if (data_read_bytes(d, token + i, m, bytes, e) < 0 ||
            data_read_mask(d, token + i, m, learn, e) < 0)
            return -1;
        for (int64_t j = 0; j < m; j++) sum += learn[j] ? bytes[j] : 0;
    }
    return sum;
}

bool data_order_bytes_known(const struct data_order *o)
{
    return data_bytes_known(o->data) && o->options.mask.prob <= 0;
}

int64_t data_target_bytes(const struct data_order *o, int64_t n, struct err *e)
{
    struct sample s;
    int64_t sum = 0;
    assert(data_order_bytes_known(o));
    data_sample(o, n, &s);
    for (int64_t k = 0; k < s.n_fragments; k++) {
        struct fragment f;
        data_fragment(o, &s, k, &f);
        const int64_t more = f.length > 1 ? learnt_bytes(o->data, f.token + 1, f.length - 1, e) : 0;
        if (more < 0) return -1;
        sum += more;
    }
    return sum;
}

int64_t data_targets(const struct data_order *o, int64_t n, struct err *e)
{
    struct sample s;
    data_sample(o, n, &s);
    if (o->options.mask.prob > 0) return all_hidden_targets(o, n, &s, e);
    return data_masked(o->data) ? masked_targets(o, &s, e) : s.n_tokens - s.n_fragments;
}
