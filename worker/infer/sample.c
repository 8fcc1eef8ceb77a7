/* sample.c: applies penalties to logits, sorts them by a heap, removes ids by top_k, top_p and
 * min_p, and draws one of the remaining ids by the inverse of the cumulative distribution. */
#include "worker/infer/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "api/core/assert.h"
#include "api/core/utf8.h"
#include "kernels/philox.h"
#include "worker/hf/tokenizer.h"
#include "worker/model/model.h"

double sample_uniform(const struct sample_key *k)
{
    uint32_t counter[4] = {(uint32_t)k->position, (uint32_t)((uint64_t)k->position >> 32),
                           (uint32_t)k->request, (uint32_t)k->sequence};
    uint32_t key[2] = {(uint32_t)k->seed, (uint32_t)((uint64_t)k->seed >> 32)};
    uint32_t r[4];
    philox4x32(key, counter, r);
    return (double)((((uint64_t)r[0] << 32) | r[1]) >> 11) * 0x1p-53;
}

/* ---- a sampler and its memory ---------------------------------------------------------------- */

int64_t sampler_size(int64_t n_vocab)
{
    const struct sampler *s = NULL;
    return n_vocab * (int64_t)(sizeof *s->z + sizeof *s->weight + sizeof *s->heap +
                               sizeof *s->times + sizeof *s->prompt);
}

void sampler_init(struct sampler *s, int64_t n_vocab, void *mem)
{
    *s = (struct sampler){.n_vocab = n_vocab, .z = mem};
    s->weight = s->z + n_vocab;
    s->heap = (int32_t *)(s->weight + n_vocab);
    s->times = s->heap + n_vocab;
    s->prompt = (uint8_t *)(s->times + n_vocab);
}

void sampler_begin(struct sampler *s, const int32_t *tokens, int64_t n)
{
    memset(s->prompt, 0, (size_t)s->n_vocab);
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] >= 0 && tokens[i] < s->n_vocab) s->prompt[tokens[i]] = 1;
    sampler_rewind(s);
}

void sampler_rewind(struct sampler *s)
{
    memset(s->times, 0, (size_t)s->n_vocab * sizeof *s->times);
}

void sampler_take(struct sampler *s, int32_t token)
{
    assert(token >= 0 && token < s->n_vocab);
    s->times[token]++;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static double penalised(const struct sampler *s, double z, int64_t i,
                        const struct sample_options *o)
{
    int32_t times = s->times[i];
    if (o->repetition != 1 && (times || s->prompt[i]))
        z = z > 0 ? z / o->repetition : z * o->repetition;
    return times ? z - (o->frequency * times + o->presence) : z;
}

static bool may_choose(const struct sampler *s, int32_t id, int32_t banned)
{
    return id != banned && (!s->allowed || s->allowed[id / 64] >> id % 64 & 1);
}

/* Tells whether z of each id is its logit. */
static bool is_plain(const struct sampler *s, const struct sample_options *o, int32_t banned)
{
    return banned < 0 && !s->allowed && !s->n_bias && o->repetition == 1 && o->frequency == 0 &&
           o->presence == 0;
}

enum { LANES = 16 };

/* Returns the lowest id with the largest logit. The lanes need not wait for each other. */
static int32_t largest(const float *logits, int64_t n)
{
    float most[LANES], best;
    int64_t i = 0;
    for (int k = 0; k < LANES; k++) most[k] = -INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) most[k] = logits[i + k] > most[k] ? logits[i + k] : most[k];
    for (; i < n; i++) most[0] = logits[i] > most[0] ? logits[i] : most[0];
    best = most[0];
    for (int k = 1; k < LANES; k++) best = most[k] > best ? most[k] : best;
    assert(isfinite(best));
    for (i = 0; logits[i] != best;) i++;
    return (int32_t)i;
}

bool sample_finite(const float *logits, int64_t n)
{
    float sum[LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) sum[k] += logits[i + k] * 0; /* NaN stays NaN */
    for (; i < n; i++) all += logits[i] * 0;
    for (int k = 0; k < LANES; k++) all += sum[k];
    return all == 0;
}

/* Fills z. Returns the id with the largest z. If several ids have the largest z, returns the
 * lowest of these ids. */
static int32_t penalise(struct sampler *s, const float *logits, const struct sample_options *o,
                        int32_t banned)
{
    int32_t best = -1, k = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        double z = (double)logits[i];
        if (k < s->n_bias && s->bias[k].id == i) z += s->bias[k++].add;
        const bool may = may_choose(s, i, banned);
        s->z[i] = may ? penalised(s, z, i, o) : -(double)INFINITY;
        if (may && (best < 0 || s->z[i] > s->z[best])) best = i;
    }
    assert(best >= 0 && isfinite(s->z[best]));
    return best;
}

static bool before(const struct sampler *s, int32_t a, int32_t b)
{
    return s->z[a] > s->z[b] || (s->z[a] == s->z[b] && a < b);
}

static void sift(struct sampler *s, int64_t i, int64_t n)
{
    int32_t *h = s->heap, x = h[i];
    for (int64_t c = 2 * i + 1; c < n; c = 2 * i + 1) {
        if (c + 1 < n && before(s, h[c + 1], h[c])) c++;
        if (!before(s, h[c], x)) break;
        h[i] = h[c];
        i = c;
    }
    h[i] = x;
}

static void heap_fill(struct sampler *s)
{
    for (int32_t i = 0; i < s->n_vocab; i++) s->heap[i] = i;
    for (int64_t i = s->n_vocab / 2; i-- > 0;) sift(s, i, s->n_vocab);
}

/* Removes the next id in sorted order from a heap of n ids. After the call the id is stored in
 * the array directly after the shorter heap. */
static int32_t heap_pop(struct sampler *s, int64_t n)
{
    int32_t top = s->heap[0];
    s->heap[0] = s->heap[n - 1];
    s->heap[n - 1] = top;
    sift(s, 0, n - 1);
    return top;
}

/* Returns the last id, in sorted order, that is kept by top_k and top_p. */
static int32_t last_kept(struct sampler *s, const struct sample_options *o)
{
    int64_t V = s->n_vocab, k = o->top_k > 0 && o->top_k < V ? o->top_k : V;
    int32_t last = 0;
    double sum = 0, run = 0;
    heap_fill(s);
    if (k < V)
        for (int64_t i = 0; i < k; i++) sum += s->weight[last = heap_pop(s, V - i)];
    else
        for (int64_t i = 0; i < V; i++) sum += s->weight[i];
    if (o->top_p >= 1) return last;
    /* the popped ids are at the end of the array, and the id with the largest z is the last */
    for (int64_t i = 0; i < k; i++) {
        last = k < V ? s->heap[V - 1 - i] : heap_pop(s, V - i);
        run += s->weight[last];
        if (run >= o->top_p * sum) break;
    }
    return last;
}

/* Draws one of the kept ids by the inverse of their cumulative distribution. The ids are visited
 * in ascending order. */
static int32_t draw(const struct sampler *s, int32_t last, double min_p, double u)
{
    double sum = 0, run = 0;
    int32_t found = -1;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < s->n_vocab; i++) {
            if (s->weight[i] < min_p || s->weight[i] == 0 || (last >= 0 && before(s, last, i)))
                continue;
            if (pass == 0) {
                sum += s->weight[i];
                continue;
            }
            run += s->weight[found = i];
            if (run > u * sum) return found;
        }
    return found; /* reached if u * sum was rounded up to sum */
}

int32_t sampler_choose(struct sampler *s, const float *logits, const struct sample_options *o,
                       int32_t banned, const struct sample_key *key)
{
    int32_t best, last = -1;
    if (o->temperature <= 0 && is_plain(s, o, banned)) return largest(logits, s->n_vocab);
    best = penalise(s, logits, o, banned);
    if (o->temperature <= 0) return best;
    for (int64_t i = 0; i < s->n_vocab; i++)
        s->weight[i] = exp((s->z[i] - s->z[best]) / o->temperature);
    if ((o->top_k > 0 && o->top_k < s->n_vocab) || o->top_p < 1) last = last_kept(s, o);
    return draw(s, last, o->min_p, sample_uniform(key));
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

int sample_logprobs(const float *logits, int64_t n_vocab, int32_t id, double *chosen, int n,
                    struct sample_top *top)
{
    double most = -(double)INFINITY, sum = 0;
    int held = 0;
    assert(n <= SAMPLE_TOP && id >= 0 && id < n_vocab);
    if (n > n_vocab) n = (int)n_vocab;
    for (int64_t i = 0; i < n_vocab; i++)
        if ((double)logits[i] > most) most = (double)logits[i];
    for (int64_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - most);
    const double norm = most + log(sum);
    *chosen = (double)logits[id] - norm;
    for (int32_t i = 0; i < n_vocab; i++) {
        if (held == n && (!n || logits[i] <= logits[top[n - 1].id])) continue;
        int at = held < n ? held++ : n - 1;
        for (; at > 0 && logits[i] > logits[top[at - 1].id]; at--) top[at] = top[at - 1];
        top[at] = (struct sample_top){i, (double)logits[i] - norm};
    }
    return held;
}

/* ---- text ------------------------------------------------------------------------------------ */

size_t sample_utf8(const unsigned char *bytes, size_t n, char *out)
{
    const char *s = (const char *)bytes, *end = s + n;
    size_t w = 0;
    while (s < end) {
        int len = utf8_len(s, end);
        memcpy(out + w, len ? s : "\xEF\xBF\xBD", len ? (size_t)len : 3);
        w += len ? (size_t)len : 3;
        s += len ? len : 1;
    }
    out[w] = 0;
    return w;
}

size_t sample_bytes(const int32_t *tokens, int64_t n, unsigned char *out)
{
    size_t w = 0;
    for (int64_t i = 0; i < n; i++)
        if (tokens[i] != TOKEN_EOD) out[w++] = tokens[i] < 256 ? (unsigned char)tokens[i] : 0xFF;
    return w;
}
