/* decode.c: one token after another behind a prompt. */
#include "worker/model/model.h"

#include <assert.h>

/* Token i after the prompt is stored by this rank: blocks go round, so that growth is even. */
static bool stores(const struct model *m, int64_t i)
{
    return i / CACHE_BLOCK % m->plan->sp == m->rank;
}

/* Rows of the cache are the prompt's, segment by segment, then the tokens stored since: positions
 * ascend in each of these, so that of each the last rows are seen. */
int model_seen_rows(const struct model *m, int64_t pos, int64_t rows, struct sp_run run[SP_RUNS])
{
    const struct shard *sh = &m->sp.shard;
    const int64_t from = pos - m->shape.window + 1; /* the first position that is seen */
    int64_t row = 0;
    int n = 0;
    for (int i = 0; i < sh->n_segs; i++) {
        int64_t real = sh->S - sh->pos[i], skip = from - sh->pos[i];
        if (real > sh->seg_len) real = sh->seg_len;
        if (real <= 0) continue;
        if (skip < 0) skip = 0;
        if (skip < real) run[n++] = (struct sp_run){row + skip, real - skip};
        row += real;
    }
    int64_t first = row; /* of what was decoded: rank r stores tokens [b P + r, + 1) CACHE_BLOCK */
    for (; first < rows; first++) {
        const int64_t k = first - row, turn = k / CACHE_BLOCK * m->plan->sp + m->rank;
        if (sh->S + turn * CACHE_BLOCK + k % CACHE_BLOCK >= from) break;
    }
    if (first < rows) run[n++] = (struct sp_run){first, rows - first};
    return n;
}

int model_decode(struct model *m, int32_t token, struct tensor *logits, struct err *e)
{
    const struct shard *sh = &m->sp.shard;
    const int64_t C = m->shape.width, pos = sh->S + m->n_decoded;
    const bool own = stores(m, m->n_decoded);
    assert(m->plan->cache_rows);
    if (m->n_decoded >= m->plan->n_decode)
        return err_set(e, ERR_TOO_LARGE, "the cache was planned for %lld new tokens",
                       (long long)m->plan->n_decode);
    if (m->plan->by_program) {
        if (section_decode(m, token, m->carry.n_tokens + pos, own, e)) return -1;
        m->n_decoded++;
        m->cache_used += own;
        *logits = section_logits(m, 0, 1);
        return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
    }
    m->be->ops->embed_fwd(
        m->be, &(struct embed_fwd_args){.table = model_weight(m, m->map.embed, m->shape.vocab, C),
                                        .x = tensor_sub(model_rows(m, m->x, C), 0, 1, 0, C),
                                        .ids = &token});
    for (int l = 0; l < m->shape.n_layers; l++)
        if (layer_decode(m, l, pos, own, e)) return -1;
    m->n_decoded++;
    m->cache_used += own;
    *logits = model_logits(m, 0, 1);
    return m->be->ops->sync ? m->be->ops->sync(m->be, e) : 0;
}
