/* prefer.c: sums the losses of answers over the ranks that hold them, and gives each row its
 * factor. */
#include "worker/train/prefer.h"

#include <math.h>
#include <string.h>
#include "api/core/job.h"
#include "api/core/mutant.h"
#include "worker/train/train.h"

/* Returns log(sigmoid(x)). */
static double log_sigmoid(double x)
{
    return x < 0 ? x - log1p(exp(x)) : -log1p(exp(-x));
}

static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

/* Computes the loss of a margin. *slope gets its derivative. */
static double loss_of(const struct job_spec *s, double margin, double *slope)
{
    const double beta = s->objective.beta, l = s->objective.label_smoothing, x = beta * margin;
    if (s->objective.loss == PREFERENCE_IPO) {
        const double d = margin - 1 / (2 * beta);
        *slope = 2 * d;
        return d * d;
    }
    *slope = beta * (l * sigmoid(x) - (1 - l) * sigmoid(-x));
    return -(1 - l) * log_sigmoid(x) - l * log_sigmoid(-x);
}

void prefer_loss(const struct job_spec *s, const struct prefer_pair *pair,
                 double value[PREFER_VALUES], double factor[2])
{
    const bool means = s->objective.loss == PREFERENCE_IPO;
    const double n = (double)pair->targets[0];
    double gain[2], part[2], slope;
    for (int i = 0; i < 2; i++) {
        gain[i] = -pair->nll[i] - pair->reference[i];
        part[i] = gain[i] / (means ? (double)pair->targets[i] : 1);
    }
    value[PREFER_LOSS] = loss_of(s, part[0] - part[1], &slope) +
                         s->objective.sft_weight * pair->nll[0] / n;
    value[PREFER_CHOSEN] = s->objective.beta * gain[0];
    value[PREFER_REJECTED] = s->objective.beta * gain[1];
    value[PREFER_MARGIN] = value[PREFER_CHOSEN] - value[PREFER_REJECTED];
    value[PREFER_RIGHT] = gain[0] > gain[1];
    factor[0] = -slope / (means ? n : 1) + s->objective.sft_weight / n;
    factor[1] = slope / (means ? (double)pair->targets[1] : 1);
}

/* ---- a sample -------------------------------------------------------------------------------- */

/* Gives the factor to the rows of this rank whose positions are [begin, end). */
static void weigh(const struct shard *sh, float *weight, int64_t begin, int64_t end, double factor)
{
    for (int i = 0; i < sh->n_segs; i++) {
        const int64_t first = sh->pos[i], last = first + sh->seg_len;
        const int64_t from = begin > first ? begin : first, to = end < last ? end : last;
        for (int64_t pos = from; pos < to; pos++)
            weight[i * sh->seg_len + pos - first] = (float)factor;
    }
}

/* Sums the nll of the answers of n pairs, from pair k on, over the ranks that hold them. n is at
 * most PLAN_PAIRS_AT_ONCE. */
static int sum_answers(struct prefer *p, const struct train_source *source, int64_t k, int n,
                       struct data_answer answer[][2], double *nll, struct err *e)
{
    struct model *m = p->model;
    for (int i = 0; i < n; i++) {
        struct data_answer *a = answer[i];
        if (source->pair(source->arg, m->batch.sample, k + i, a, e)) return -1;
        for (int j = 0; j < 2; j++)
            nll[2 * i + j] = model_nll_of(m, a[j].pos, a[j].pos + a[j].length);
    }
    if (!m->holders || mutant_on(MUTANT_PAIR_LOCAL)) return 0;
    return comm_sum_f64(m->holders, PURPOSE_LOSS, nll, 2 * n, m->bounce, e);
}

int64_t prefer_each(struct prefer *p, const struct train_source *source,
                    const struct prefer_visit *v, struct err *e)
{
    const int64_t n = source->targets(source->arg, p->model->batch.sample, e);
    struct data_answer answer[PLAN_PAIRS_AT_ONCE][2];
    double nll[2 * PLAN_PAIRS_AT_ONCE];
    for (int64_t k = 0; k < n; k += PLAN_PAIRS_AT_ONCE) {
        const int some = n - k < PLAN_PAIRS_AT_ONCE ? (int)(n - k) : PLAN_PAIRS_AT_ONCE;
        if (sum_answers(p, source, k, some, answer, nll, e)) return -1;
        for (int i = 0; i < some; i++) v->pair(v->arg, answer[i], &nll[2 * i]);
    }
    return n;
}

/* Puts the sums of a pair together with its references. */
static struct prefer_pair pair_of(const struct prefer *p, const struct data_answer a[2],
                                  const double nll[2])
{
    struct prefer_pair pair;
    for (int j = 0; j < 2; j++) {
        pair.nll[j] = nll[j];
        pair.reference[j] = p->reference[a[j].document];
        pair.targets[j] = a[j].targets;
    }
    return pair;
}

/* Computes the loss of a pair, gives its rows their factors, and adds its numbers to the sums of
 * the first rank that holds the sample. */
static void weigh_pair(void *arg, const struct data_answer a[2], const double nll[2])
{
    struct prefer *p = arg;
    struct model *m = p->model;
    const struct prefer_pair pair = pair_of(p, a, nll);
    const bool counts = !m->rank && !m->tensor_rank;
    double factor[2], value[PREFER_VALUES];
    prefer_loss(p->spec, &pair, value, factor);
    if (p->seen) p->seen(p->seen_arg, &pair);
    for (int j = 0; j < 2; j++)
        weigh(&m->sp.shard, m->batch.weight, a[j].pos, a[j].pos + a[j].length,
              factor[mutant_on(MUTANT_FACTOR_SHIFTED) ? 1 - j : j]);
    for (int v = 0; counts && v < PREFER_VALUES; v++) p->sum[v] += value[v];
}

/* Injects MUTANT_PAIR_MEAN: divides the sums and the factors of a sample by its number of pairs. */
static void mutate(struct prefer *p, int64_t n)
{
    struct model *m = p->model;
    if (!mutant_on(MUTANT_PAIR_MEAN)) return;
    for (int v = 0; v < PREFER_VALUES; v++) p->sum[v] /= (double)n;
    for (int64_t i = 0; i < m->sp.shard.T; i++) m->batch.weight[i] /= (float)n;
}

/* The weight of a row without a target is not read; it is 0. */
static int weigh_sample(void *arg, double *loss, struct err *e)
{
    struct prefer *p = arg;
    struct model *m = p->model;
    const struct prefer_visit visit = {weigh_pair, p};
    memset(m->batch.weight, 0, (size_t)m->sp.shard.T * sizeof *m->batch.weight);
    memset(p->sum, 0, sizeof p->sum);
    const int64_t n = prefer_each(p, p->source, &visit, e);
    if (n < 0) return -1;
    mutate(p, n);
    *loss = p->sum[PREFER_LOSS];
    return 0;
}

struct pair_score {
    const struct prefer *p;
    double *sum;
};

static void score_pair(void *arg, const struct data_answer a[2], const double nll[2])
{
    const struct pair_score *s = arg;
    const struct prefer_pair pair = pair_of(s->p, a, nll);
    double value[PREFER_VALUES], factor[2];
    prefer_loss(s->p->spec, &pair, value, factor);
    for (int v = 0; v < PREFER_VALUES; v++) s->sum[v] += value[v];
}

int prefer_score(struct prefer *p, const struct train_source *source, double sum[PREFER_VALUES],
                 struct err *e)
{
    struct pair_score s = {p, sum};
    const struct prefer_visit visit = {score_pair, &s};
    memset(sum, 0, PREFER_VALUES * sizeof *sum);
    return prefer_each(p, source, &visit, e) < 0 ? -1 : 0;
}

void prefer_init(struct prefer *p)
{
    p->model->weigh = (struct model_weigh){weigh_sample, p};
}
