/* rope.c: computes the inverse frequencies of each rule and the factor of cosines and sines, and
 * completes a shape's rope fields. */
#include "worker/program/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const rope_words[] = {"default", "linear",   "dynamic", "llama3",
                                  "yarn",    "longrope", NULL};

#define PI 3.14159265358979323846

/* The inputs of all rules. If + - * / are computed in double and then rounded to fp32, the results
 * have the bits of fp32 arithmetic. */
struct rule {
    const struct shape_rope *r;
    double theta;
    int64_t S, max_pos, dim;
    bool single;
};

static double rounded(const struct rule *x, double v)
{
    return x->single ? (double)(float)v : v;
}

/* Returns theta^(2j / dim). */
static double wave(const struct rule *x, double theta, int64_t j)
{
    return rounded(x, pow(theta, rounded(x, 2.0 * (double)j / (double)x->dim)));
}

static void plain(const struct rule *x, double theta, double *inv)
{
    for (int64_t j = 0; j < x->dim / 2; j++)
        inv[j] = x->single ? rounded(x, 1 / wave(x, theta, j))
                           : pow(theta, -2.0 * (double)j / (double)x->dim);
}

static void linear(const struct rule *x, double *inv)
{
    plain(x, x->theta, inv);
    for (int64_t j = 0; j < x->dim / 2; j++) inv[j] = rounded(x, inv[j] / x->r->factor);
}

static void dynamic(const struct rule *x, double *inv)
{
    const double f = x->r->factor, d = (double)x->dim, M = (double)x->max_pos;
    const double S = x->S > x->max_pos ? (double)x->S : M;
    const double grown = rounded(x, rounded(x, rounded(x, f * S) / M) - (f - 1));
    plain(x, rounded(x, x->theta * rounded(x, pow(grown, d / (d - 2)))), inv);
}

static void llama3(const struct rule *x, double *inv)
{
    const struct shape_rope *r = x->r;
    const double old = (double)r->original, low = r->low_freq, high = r->high_freq;
    plain(x, x->theta, inv);
    for (int64_t j = 0; j < x->dim / 2; j++) {
        const double w = rounded(x, 2 * PI / inv[j]), slow = rounded(x, inv[j] / r->factor);
        const double t = rounded(x, rounded(x, rounded(x, old / w) - low) / (high - low));
        if (w > old / low)
            inv[j] = slow;
        else if (w >= old / high)
            inv[j] = rounded(x, rounded(x, rounded(x, rounded(x, 1 - t) * inv[j]) / r->factor) +
                                    rounded(x, t * inv[j]));
    }
}

/* Returns, for yarn, the index of the pair of columns that rotates `rot` times over the original
 * length. */
static double turns(const struct rule *x, double rot)
{
    return (double)x->dim * log((double)x->r->original / (rot * 2 * PI)) / (2 * log(x->theta));
}

static void yarn(const struct rule *x, double *inv)
{
    const struct shape_rope *r = x->r;
    double low = turns(x, r->beta_fast > 0 ? r->beta_fast : 32);
    double high = turns(x, r->beta_slow > 0 ? r->beta_slow : 1);
    if (!r->no_truncate) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, (double)(x->dim - 1));
    if (low == high) high += 0.001;
    for (int64_t j = 0; j < x->dim / 2; j++) {
        const double b = wave(x, x->theta, j);
        const double ramp = rounded(x, rounded(x, (double)j - low) / (high - low));
        /* the weight of 1 / b in the mean */
        const double own = rounded(x, 1 - fmin(fmax(ramp, 0), 1));
        const double slow = rounded(x, 1 / rounded(x, r->factor * b));
        inv[j] = rounded(x, rounded(x, slow * rounded(x, 1 - own)) +
                                rounded(x, rounded(x, 1 / b) * own));
    }
}

static void longrope(const struct rule *x, double *inv)
{
    const double *f = x->S > x->r->original ? x->r->long_factor : x->r->short_factor;
    for (int64_t j = 0; j < x->dim / 2; j++)
        inv[j] = rounded(x, 1 / rounded(x, rounded(x, f[j]) * wave(x, x->theta, j)));
}

/* ---- the factor of cosines and sines --------------------------------------------------------- */

static double mscale(double factor, double by)
{
    return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1;
}

static double scale_of(const struct shape_rope *r)
{
    if (r->kind != ROPE_YARN && r->kind != ROPE_LONGROPE) return 1;
    if (r->attention_factor > 0) return r->attention_factor;
    if (r->kind == ROPE_LONGROPE)
        return r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log((double)r->original));
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return mscale(r->factor, r->mscale) / mscale(r->factor, r->mscale_all_dim);
    return mscale(r->factor, 1);
}

double rope_frequencies(const struct model_shape *m, double theta, int64_t S, int64_t dim,
                        double *inv_freq)
{
    const struct rule x = {&m->rope, theta, S, m->max_pos, dim, m->rope.compute == ROPE_HF};
    switch ((enum rope_id)m->rope.kind) {
    case ROPE_LINEAR: linear(&x, inv_freq); break;
    case ROPE_DYNAMIC: dynamic(&x, inv_freq); break;
    case ROPE_LLAMA3: llama3(&x, inv_freq); break;
    case ROPE_YARN: yarn(&x, inv_freq); break;
    case ROPE_LONGROPE: longrope(&x, inv_freq); break;
    default: plain(&x, theta, inv_freq);
    }
    return scale_of(&m->rope);
}

void rope_local_frequencies(const struct model_shape *m, int64_t dim, double *inv_freq)
{
    const struct rule x = {.dim = dim, .single = m->rope.compute == ROPE_HF};
    plain(&x, m->rope_local, inv_freq);
}

bool rope_differs(const struct model_shape *a, const struct model_shape *b)
{
    struct shape_rope x = a->rope;
    x.compute = b->rope.compute;
    return memcmp(&x, &b->rope, sizeof x) != 0;
}

bool rope_disagrees(const struct model_shape *m, double *ratio)
{
    const struct shape_rope *r = &m->rope;
    if (r->kind != ROPE_YARN || r->original < 1 || m->max_pos < 1) return false;
    *ratio = (double)m->max_pos / (double)r->original;
    return *ratio != r->factor;
}

double rope_positions(const struct model_shape *m, bool asked)
{
    const struct shape_rope *r = &m->rope;
    const double own = (double)m->max_pos;
    if (r->kind == ROPE_DYNAMIC) return INFINITY;
    if (r->kind == ROPE_DEFAULT || (!asked && r->kind != ROPE_YARN)) return own;
    return fmax(own, r->factor * (r->original > 0 ? (double)r->original : own));
}

bool rope_by_length(const struct model_shape *m)
{
    return m->rope.kind == ROPE_DYNAMIC || m->rope.kind == ROPE_LONGROPE;
}

int rope_tables(const struct model_shape *m)
{
    return m->rope_local > 0 ? 2 : 1;
}

int64_t rope_columns(const struct model_shape *m)
{
    return m->rotary_dim ? m->rotary_dim : m->head_dim;
}

/* ---- rules ----------------------------------------------------------------------------------- */

static int missing(const struct model_shape *m, const char *key, struct err *e)
{
    char field[64];
    snprintf(field, sizeof field, "model.config.%s", key);
    return err_field(e, ERR_INVALID, field, "%s is missing: rope_type \"%s\" needs it",
                     key + sizeof "rope_" - 1, rope_words[m->rope.kind]);
}

static int64_t n_factors(const double *f)
{
    int64_t n = 0;
    while (n < SHAPE_FACTORS && f[n] > 0) n++;
    return n;
}

static int complete_longrope(struct model_shape *m, struct err *e)
{
    const int64_t pairs = rope_columns(m) / 2;
    const double *const list[] = {m->rope.short_factor, m->rope.long_factor};
    static const char *const keys[] = {"rope_short_factor", "rope_long_factor"};
    for (int i = 0; i < 2; i++)
        if (n_factors(list[i]) != pairs) {
            char field[64];
            snprintf(field, sizeof field, "model.config.%s", keys[i]);
            return err_field(e, ERR_INVALID, field,
                             "%s has %lld factors above 0: it needs one for each of the %lld pairs "
                             "of columns that turn, at most %d",
                             keys[i], (long long)n_factors(list[i]), (long long)pairs,
                             SHAPE_FACTORS);
        }
    return 0;
}

static int complete_llama3(const struct model_shape *m, struct err *e)
{
    const struct shape_rope *r = &m->rope;
    if (!(r->low_freq > 0)) return missing(m, "rope_low_freq_factor", e);
    if (!(r->high_freq > 0)) return missing(m, "rope_high_freq_factor", e);
    if (r->high_freq > r->low_freq) return 0;
    return err_field(e, ERR_INVALID, "model.config.rope_high_freq_factor",
                     "high_freq_factor %g must be above low_freq_factor %g", r->high_freq,
                     r->low_freq);
}

int rope_complete(struct model_shape *m, struct err *e)
{
    struct shape_rope *r = &m->rope;
    const bool own_length = r->kind >= ROPE_LLAMA3;
    if (r->kind == ROPE_DEFAULT) return 0;
    /* If the factor is missing, it is the quotient of the two lengths. */
    if (!(r->factor > 0) && r->original && r->kind >= ROPE_YARN)
        r->factor = (double)m->max_pos / (double)r->original;
    if (own_length && !r->original) r->original = m->max_pos;
    if (own_length && r->original < 2)
        return missing(m, "rope_original_max_position_embeddings", e);
    if (!(r->factor > 0)) return missing(m, "rope_factor", e);
    if (r->kind == ROPE_DYNAMIC && (r->factor < 1 || rope_columns(m) < 4 || m->max_pos < 1))
        return err_field(e, ERR_INVALID, "model.config.rope_factor",
                         "rope_type \"dynamic\" needs a factor of at least 1, not %g, and four "
                         "columns of a head",
                         r->factor);
    if (r->kind == ROPE_YARN && !(m->rope_theta > 1))
        return err_field(e, ERR_INVALID, "model.config.rope_theta",
                         "rope_theta %g: rope_type \"yarn\" needs more than 1", m->rope_theta);
    if (r->kind == ROPE_LLAMA3) return complete_llama3(m, e);
    return r->kind == ROPE_LONGROPE ? complete_longrope(m, e) : 0;
}
