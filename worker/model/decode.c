/* decode.c: one token after another behind a prompt. */
#include "worker/model/model.h"

#include <assert.h>

/* Token i after the prompt is stored by this rank: blocks go round, so that growth is even. */
static bool stores(const struct model *m, int64_t i)
{
    return i / CACHE_BLOCK % m->plan->sp == m->rank;
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
        if (section_decode(m, token, pos, own, e)) return -1;
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
