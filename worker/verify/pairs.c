/* pairs.c: computes references on both sides, sums and weighs the one rank's answers, and compares
 * the ranks' sums and factors with them. */
#include "worker/verify/pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "kernels/philox.h"
#include "worker/train/prefer_reference.h"
#include "worker/verify/pass.h"

/* Returns the number that is added to a document's reference. */
static double shift_of(const struct job_spec *s, int64_t document)
{
    const uint32_t key[2] = {(uint32_t)s->seed, (uint32_t)((uint64_t)s->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)document, (uint32_t)((uint64_t)document >> 32),
                                 0x70616972, 0};
    uint32_t word[4];
    philox4x32(key, counter, word);
    return (word[0] * 0x1p-31 - 1) / s->objective.beta;
}

/* ---- the ranks ------------------------------------------------------------------------------- */

static void keep_sums(void *arg, const struct prefer_pair *pair)
{
    struct pairs_ranks *p = arg;
    for (int i = 0; i < 2 && p->n < p->room; i++) p->sum[p->n++] = pair->nll[i];
}

/* Weighs the rows of a sample. If there are several stages, sends the results to rank 0 at this
 * point, at which rank 0 waits for them. */
static int weigh_ranks(void *arg, double *loss, struct err *e)
{
    struct pairs_ranks *p = arg;
    p->n = 0;
    if (p->weigh.call(p->weigh.arg, loss, e)) return -1;
    return p->m->plan->pp > 1 && !p->m->ring ? pairs_compare(p, NULL, e) : 0;
}

/* Computes the references of the samples as a training does before its first step. Progress does
 * not count this pass. */
static int compute_references(struct pairs_ranks *p, const struct verify_args *a,
                              const struct data_order *order, struct err *e)
{
    struct model *m = p->m;
    struct progress *told = m->progress;
    struct prefer_reference r = {.rank = m->job ? comm_rank(m->job) : 0,
                                 .n_drawn = plan_verify_samples(m->plan),
                                 .n_different = data_order_samples(order),
                                 .n_documents = data_stats(a->data)->n_documents,
                                 .reference = p->reference};
    m->progress = NULL;
    const int rc = prefer_reference_init(&r, &p->prefer, e) ||
                           prefer_reference_run(&p->prefer, &r, e)
                       ? -1
                       : 0;
    m->progress = told;
    prefer_reference_fini(&r);
    p->ledger_equal = r.ledger_equal && r.control_equal;
    for (int64_t d = 0; d < r.n_documents; d++) p->reference[d] += shift_of(a->spec, d);
    return rc;
}

int pairs_open(struct pairs_ranks *p, const struct verify_args *a, const struct data_order *order,
               struct err *e)
{
    struct model *m = a->model;
    const struct plan *plan = m->plan;
    const int64_t n_documents = data_stats(a->data)->n_documents;
    p->ledger_equal = true;
    if (!plan->pairs) return 0;
    p->m = m;
    p->before = m->weigh;
    for (int64_t i = 0; i < plan_verify_samples(plan); i++)
        if (2 * data_pairs(order, i) > p->room) p->room = 2 * data_pairs(order, i);
    p->reference = malloc((size_t)(n_documents + 1) * sizeof *p->reference);
    p->sum = malloc((size_t)(p->room + 1) * sizeof *p->sum);
    p->factor = malloc((size_t)(pass_first(m) ? plan->sp * m->sp.shard.T : 1) * sizeof *p->factor);
    if (!p->reference || !p->sum || !p->factor)
        return err_set(e, ERR_IO, "out of memory for %lld answers", (long long)n_documents);
    p->source = train_source_order(order);
    p->prefer = (struct prefer){.spec = a->spec,
                                .model = m,
                                .source = &p->source,
                                .reference = p->reference,
                                .seen = keep_sums,
                                .seen_arg = p};
    if (compute_references(p, a, order, e)) return -1;
    prefer_init(&p->prefer);
    p->weigh = m->weigh;
    m->weigh = (struct model_weigh){weigh_ranks, p};
    return 0;
}

void pairs_close(struct pairs_ranks *p)
{
    if (p->m) p->m->weigh = p->before;
    free(p->reference);
    free(p->sum);
    free(p->factor);
}

/* ---- the one rank ---------------------------------------------------------------------------- */

/* Sums the losses of an answer's rows. The one rank has all rows of the sequence, in order. */
static double sum_rows(const struct model *m, const struct data_answer *a)
{
    double s = 0;
    for (int64_t row = a->pos; row < a->pos + a->length; row++) s += m->nll[row];
    return s;
}

static int weigh_one(void *arg, double *loss, struct err *e)
{
    struct pairs_one *o = arg;
    struct batch *b = &o->m->batch;
    (void)e;
    memset(b->weight, 0, (size_t)o->m->sp.shard.T * sizeof *b->weight);
    o->loss = 0;
    for (int64_t i = 0; i < o->n; i += 2) {
        const struct data_answer *a = &o->answer[i];
        double value[PREFER_VALUES], factor[2];
        struct prefer_pair pair;
        for (int j = 0; j < 2; j++) {
            pair.nll[j] = o->sum[i + j] = sum_rows(o->m, &a[j]);
            pair.reference[j] = o->reference[i + j];
            pair.targets[j] = a[j].targets;
        }
        prefer_loss(o->spec, &pair, value, factor);
        o->loss += value[PREFER_LOSS];
        for (int j = 0; j < 2; j++)
            for (int64_t k = 0; k < a[j].length; k++) b->weight[a[j].pos + k] = (float)factor[j];
    }
    *loss = o->loss;
    return 0;
}

void pairs_one_init(struct pairs_one *o, const struct job_spec *spec, struct model *m)
{
    o->spec = spec;
    o->m = m;
    m->weigh = (struct model_weigh){weigh_one, o};
}

void pairs_one_fini(struct pairs_one *o)
{
    free(o->answer);
    free(o->sum);
    free(o->reference);
    free(o->first[0]);
    free(o->first[1]);
    free(o->first_factor);
}

static int grow(void **x, int64_t n, size_t size, struct err *e)
{
    void *more = realloc(*x, (size_t)n * size);
    if (!more) return err_set(e, ERR_IO, "out of memory for %lld answers", (long long)n);
    *x = more;
    return 0;
}

static int make_room(struct pairs_one *o, struct err *e)
{
    const int64_t n = 2 * o->room + 64;
    if (o->n < o->room) return 0;
    if (grow((void **)&o->answer, n, sizeof *o->answer, e) ||
        grow((void **)&o->sum, n, sizeof *o->sum, e) ||
        grow((void **)&o->reference, n, sizeof *o->reference, e) ||
        grow((void **)&o->first[0], n, sizeof *o->sum, e) ||
        grow((void **)&o->first[1], n, sizeof *o->sum, e))
        return -1;
    o->room = n;
    return 0;
}

int pairs_note(struct pairs_one *o, const struct data *d, const struct fragment *f, int64_t pos,
               int64_t targets, struct err *e)
{
    const uint64_t *ends = data_documents(d);
    const int64_t start = f->document ? (int64_t)ends[f->document - 1] : 0;
    const bool second = o->n % 2;
    if (make_room(o, e)) return -1;
    if (f->token != start || f->token + f->length != (int64_t)ends[f->document] ||
        f->document % 2 != second || (second && f->document != o->answer[o->n - 1].document + 1))
        return err_set(e, ERR_INTERNAL,
                       "the packer put tokens [%lld, %lld) of document %lld into fragment %lld, "
                       "which must be the %s answer of a pair as a whole",
                       (long long)f->token, (long long)(f->token + f->length),
                       (long long)f->document, (long long)o->n, second ? "rejected" : "chosen");
    o->answer[o->n++] = (struct data_answer){f->document, pos, f->length, targets};
    return 0;
}

static bool same_answer(const struct data_answer *a, const struct data_answer *b)
{
    return a->document == b->document && a->pos == b->pos && a->length == b->length &&
           a->targets == b->targets;
}

/* Keeps the first answers that differ. */
static void misplace(struct verify_pairs *v, const struct data_answer *one,
                     const struct data_answer *many)
{
    if (v->misplaced) return;
    v->misplaced = true;
    v->one = *one;
    v->many = *many;
}

int pairs_match(const struct pairs_one *o, const struct data_order *order, int64_t i,
                struct verify_pairs *v, struct err *e)
{
    const int64_t n = data_pairs(order, i), both = n < o->n / 2 ? n : o->n / 2;
    struct data_answer a[2], first = {0};
    v->n_1 += o->n / 2;
    for (int64_t k = 0; k < both; k++) {
        if (data_pair(order, i, k, a, e)) return -1;
        if (!k) first = a[0];
        for (int j = 0; j < 2; j++)
            if (!same_answer(&a[j], &o->answer[2 * k + j]))
                misplace(v, &o->answer[2 * k + j], &a[j]);
    }
    if (2 * n != o->n && both) misplace(v, &o->answer[0], &first);
    v->misplaced = v->misplaced || 2 * n != o->n;
    return 0;
}

int pairs_base(struct pairs_one *o, struct err *e)
{
    struct model *m = o->m;
    struct progress *told = m->progress;
    struct routing *routing = m->routing;
    const struct sp_drop drop = m->sp.drop;
    double nll;
    sp_drop_nothing(&m->sp.drop);
    m->progress = NULL;
    m->routing = NULL;
    model_use_base(m, true);
    const int rc = model_forward(m, &m->batch, e) || model_nll(m, &m->batch, &nll, e) ? -1 : 0;
    model_use_base(m, false);
    m->routing = routing;
    m->progress = told;
    m->sp.drop = drop;
    for (int64_t i = 0; i < o->n; i++)
        o->reference[i] = shift_of(o->spec, o->answer[i].document) - sum_rows(m, &o->answer[i]);
    return rc;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void add(struct pairs_sums *s, int64_t document, double one, double many, double norm)
{
    const double d = many - one;
    s->diff += d * d;
    s->norm += norm * norm;
    if (!(fabs(d) <= fabs(s->worst.many - s->worst.one)) || !s->worst.set)
        s->worst = (struct verify_answer){true, document, one, many};
}

/* Gathers the factors of all rows on the first rank that holds the sample. Each rank has the
 * factors of all rows of its place in the ring, and contributes those of the rows whose logits it
 * computes. */
static int gather(struct pairs_ranks *p, struct err *e)
{
    struct model *m = p->m;
    const int64_t own = m->sp.shard.T / m->plan->tp;
    return pass_gather(m, m->batch.weight + m->tensor_rank * own, own * (int64_t)sizeof(float),
                       p->factor, &p->moved, e);
}

/* Sends the sums and the factors from the last stage to rank 0. */
static int carry(struct pairs_ranks *p, struct err *e)
{
    struct model *m = p->m;
    const int last = m->plan->pp - 1;
    const int64_t sums = p->n * (int64_t)sizeof *p->sum;
    const int64_t factors = m->plan->sp * m->sp.shard.T * (int64_t)sizeof *p->factor;
    if (pipe_last(&m->plan->pipe))
        return pass_send(m, 0, p->sum, sums, &p->moved, e) ||
                       pass_send(m, 0, p->factor, factors, &p->moved, e)
                   ? -1
                   : 0;
    return pass_receive(m, last, p->sum, sums, &p->moved, e) ||
                   pass_receive(m, last, p->factor, factors, &p->moved, e)
               ? -1
               : 0;
}

/* Returns the index of the answer that has a row of the sequence, or -1 if none has it. */
static int64_t answer_at(const struct pairs_one *o, int64_t pos)
{
    int64_t low = 0, high = o->n;
    while (low < high) {
        const int64_t k = (low + high) / 2;
        if (pos >= o->answer[k].pos + o->answer[k].length)
            low = k + 1;
        else
            high = k;
    }
    return low < o->n && pos >= o->answer[low].pos ? low : -1;
}

/* Compares the factors of the rows that have a target. The factor of another row is not used. */
static int compare_factors(const struct pairs_ranks *p, struct pairs_one *o, struct err *e)
{
    const struct batch *b = &o->m->batch;
    for (int q = 0; q < p->m->plan->sp; q++) {
        struct shard sh;
        if (plan_shard(p->m->plan, p->m->sp.shard.S, q, &sh, e)) return -1;
        for (int64_t row = 0; row < sh.T; row++) {
            const int64_t pos = shard_pos(&sh, row);
            const int64_t k = pos < sh.S && b->targets[pos] >= 0 ? answer_at(o, pos) : -1;
            if (k >= 0)
                add(&o->part[VERIFY_FACTORS], o->answer[k].document, b->weight[pos],
                    p->factor[q * sh.T + row], b->weight[pos]);
        }
    }
    return 0;
}

int pairs_compare(struct pairs_ranks *p, struct pairs_one *o, struct err *e)
{
    struct model *m = p->m;
    if (pipe_last(&m->plan->pipe) && gather(p, e)) return -1;
    if (o) p->n = 2 * data_pairs(p->source.arg, o->m->batch.sample);
    if (m->plan->pp > 1 && pass_first(m) && carry(p, e)) return -1;
    for (int64_t i = 0; o && i < p->n && i < o->n; i++) {
        const int64_t d = o->answer[i].document;
        add(&o->part[VERIFY_SUMS], d, o->sum[i], p->sum[i], o->sum[i]);
        add(&o->part[VERIFY_REFERENCES], d, o->reference[i], p->reference[d],
            o->reference[i] - shift_of(o->spec, d));
    }
    return o ? compare_factors(p, o, e) : 0;
}

static double ratio(const struct pairs_sums *s)
{
    return verify_ratio(sqrt(s->diff), sqrt(s->norm));
}

void pairs_end(const struct pairs_one *o, struct verify_pairs *v)
{
    for (int i = 0; i < VERIFY_PAIR_PARTS; i++) {
        v->part[i].rel_l2 = ratio(&o->part[i]);
        v->part[i].worst = o->part[i].worst;
    }
}

/* ---- roundings ------------------------------------------------------------------------------- */

int pairs_keep(struct pairs_one *o, struct err *e)
{
    const size_t rows = (size_t)o->m->sp.shard.T * sizeof *o->first_factor;
    if (!o->first_factor) o->first_factor = malloc(rows);
    if (!o->first_factor) return err_set(e, ERR_IO, "out of memory for the factors of rows");
    memcpy(o->first_factor, o->m->batch.weight, rows);
    memcpy(o->first[0], o->sum, (size_t)o->n * sizeof *o->sum);
    memcpy(o->first[1], o->reference, (size_t)o->n * sizeof *o->reference);
    o->first_loss = o->loss;
    return 0;
}

void pairs_again(struct pairs_one *o)
{
    const struct batch *b = &o->m->batch;
    for (int64_t i = 0; i < o->n; i++) {
        const double *sum = &o->first[0][i], *reference = &o->first[1][i];
        add(&o->again[VERIFY_SUMS], 0, *sum, o->sum[i], *sum);
        add(&o->again[VERIFY_REFERENCES], 0, *reference, o->reference[i],
            *reference - shift_of(o->spec, o->answer[i].document));
    }
    for (int64_t row = 0; row < o->m->sp.shard.S; row++)
        if (b->targets[row] >= 0)
            add(&o->again[VERIFY_FACTORS], 0, o->first_factor[row], b->weight[row],
                o->first_factor[row]);
}

void pairs_again_end(struct pairs_one *o)
{
    for (int i = 0; i < VERIFY_PAIR_PARTS; i++) {
        o->rounding[i] = fmax(o->rounding[i], ratio(&o->again[i]));
        o->again[i] = (struct pairs_sums){0};
    }
}

/* ---- the verdict ----------------------------------------------------------------------------- */

bool pairs_equal(const struct verify_pairs *p)
{
    bool equal = !p->misplaced && p->n_1 == p->n_p;
    for (int i = 0; i < VERIFY_PAIR_PARTS; i++) equal &= p->part[i].rel_l2 <= p->part[i].allowed;
    return equal;
}

double pairs_usual(int part, struct job_tolerance usual)
{
    return part == VERIFY_FACTORS ? usual.grad_rel_l2 : usual.loss_rel;
}

bool pairs_sentence(const struct verify *v, const char *worst, struct err *e)
{
    static const char *const what[VERIFY_PAIR_PARTS] = {"the sum of the losses",
                                                        "the log-probability before the training",
                                                        "the factor of a row's loss"};
    const struct verify_pairs *p = &v->pairs;
    if (p->n_1 != p->n_p) {
        err_set(e, ERR_CORRUPT,
                "%d ranks do not equal 1 rank: they have %lld pairs of answers instead of %lld, %s",
                v->n_ranks, (long long)p->n_p, (long long)p->n_1, worst);
        return true;
    }
    if (p->misplaced) {
        err_set(e, ERR_CORRUPT,
                "%d ranks do not equal 1 rank: of %lld pairs of answers, the first that differs is "
                "document %lld at token %lld with %lld targets instead of document "
                "%lld at token %lld with %lld targets, %s",
                v->n_ranks, (long long)p->n_p, (long long)p->many.document, (long long)p->many.pos,
                (long long)p->many.targets, (long long)p->one.document, (long long)p->one.pos,
                (long long)p->one.targets, worst);
        return true;
    }
    for (int i = 0; i < VERIFY_PAIR_PARTS && v->logits_rel_l2 <= v->allowed_logits_rel_l2; i++) {
        const struct verify_answer *a = &p->part[i].worst;
        if (p->part[i].rel_l2 <= p->part[i].allowed) continue;
        err_set(e, ERR_CORRUPT,
                "%d ranks do not equal 1 rank: logits are equal, but %s of document %lld (a %s "
                "answer) is %.9g instead of %.9g, of all answers it differs by rel-L2 %.3g "
                "(allowed %.3g), %s",
                v->n_ranks, what[i], (long long)a->document,
                a->document % 2 ? "rejected" : "chosen", a->many, a->one, p->part[i].rel_l2,
                p->part[i].allowed, worst);
        return true;
    }
    return false;
}
