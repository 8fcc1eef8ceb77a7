/* infer.c: runs forward passes for generate, score and embed jobs. It computes the prefill of
 * a prompt and the logits of the last token. It also computes the number of bytes that a pass
 * should send. */
#include "worker/infer/infer.h"

#include "api/core/assert.h"
#include "api/core/job.h"
#include "api/core/job_paths.h"
#include "worker/comm/ledger.h"
#include "worker/family/family.h"
#include "worker/hf/tokenizer.h"

/* ---- shared ---------------------------------------------------------------------------------- */

int infer_check_stop(const struct infer *in, struct err *e)
{
    if (in->stopped && in->stopped(in->arg)) return err_set(e, ERR_ABORTED, "stopped on request");
    return 0;
}

int infer_check_unit(const struct infer *in, int journal, struct err *e)
{
    if (infer_check_stop(in, e)) return -1;
    return in->leave ? in->leave(in->arg, journal, e) : 0;
}

int infer_expect(const struct infer *in, int64_t n_forwards, struct comm_count want[PURPOSE_N],
                 struct err *e)
{
    const struct model *m = in->model;
    const struct plan_forward x = {m->sp.shard.S, n_forwards};
    return plan_forward_comm(&m->shape, m->plan, m->rank, &x, want, e);
}

bool infer_moved(const struct infer *in, const struct comm_count want[PURPOSE_N])
{
    const struct comm *c = in->model->comm;
    return !c || ledger_equals(comm_ledger(c), want, 0);
}

int infer_agree(const struct infer *in, bool *ok, struct err *e)
{
    struct model *m = in->model;
    int64_t bad = !*ok;
    if (m->comm && comm_sum_i64(m->comm, PURPOSE_CONTROL, &bad, 1, m->bounce, e)) return -1;
    *ok = bad == 0;
    return 0;
}

void infer_name_adapter(const struct infer *in, struct err *e)
{
    char field[JOB_ADAPTER_FIELD];
    const int i = in->model->bad_adapter;
    if (i >= 0) err_about(e, job_adapter_field(in->spec, i, field));
}

void infer_at(const struct infer *in, int64_t step)
{
    struct model *m = in->model;
    if (m->comm) comm_where(m->comm)->step = step;
    if (m->comm) comm_ledger_reset(m->comm);
}

/* Fills this rank's rows with documents that follow each other. Document k ends at position
 * ends[k]. The rows have ascending positions. */
static void fill_batch(struct model *m, const int32_t *tokens, const int64_t *ends, int n_documents)
{
    struct batch *b = &m->batch;
    const struct shard *sh = &m->sp.shard;
    const int64_t n = ends[n_documents - 1];
    const struct batch_rules rules = {!family_masked(&m->shape), true, true, n};
    b->n_tokens = n;
    b->n_targets = 0;
    for (int64_t i = 0, k = 0; i < sh->T; i++) {
        const int64_t pos = shard_pos(sh, i);
        if (pos >= n) {
            batch_pad(b, i, token_pad(m->shape.vocab));
            continue;
        }
        while (pos >= ends[k]) k++;
        b->ids[i] = tokens[pos];
        b->targets[i] = -1;
        batch_place(b, i, pos, k ? ends[k - 1] : 0, ends[k], &rules);
        if (!m->carry.in) continue;
        b->pos[i] += m->carry.n_tokens;
        b->lo[i] = -1; /* lo is -1, because the document began before the sequence */
    }
}

int infer_forward_documents(const struct infer *in, const int32_t *tokens, const int64_t *ends,
                            int n_documents, struct err *e)
{
    struct model *m = in->model;
    const struct context *c = in->context;
    assert(n_documents == 1 || (n_documents > 1 && !c));
    if (model_set_seq(m, ends[n_documents - 1], e)) return -1;
    m->carry = (struct carry){0};
    if (c) m->carry = (struct carry){.in = c->states, .stride = c->stride, .n_tokens = c->n_tokens};
    fill_batch(m, tokens, ends, n_documents);
    return model_forward(m, &m->batch, e);
}

bool infer_packs(const struct infer *in)
{
    return in->spec->data.packing != PACKING_NONE && !model_by_length(in->model);
}

int infer_forward(const struct infer *in, const int32_t *tokens, int64_t n, struct err *e)
{
    return infer_forward_documents(in, tokens, &n, 1, e);
}

int infer_owner(const struct infer *in, int64_t pos, int64_t *row, struct err *e)
{
    const struct model *m = in->model;
    for (int q = 0; q < m->plan->sp; q++) {
        struct shard sh = shard_of(&m->sp.shard, q);
        for (int s = 0; s < sh.n_segs; s++) {
            if (pos < sh.pos[s] || pos >= sh.pos[s] + sh.seg_len) continue;
            *row = s * sh.seg_len + pos - sh.pos[s];
            return q;
        }
    }
    return err_set(e, ERR_INTERNAL, "no rank holds position %lld", (long long)pos);
}

/* ---- the prompt ------------------------------------------------------------------------------ */

int infer_share_logits(const struct infer *in, int root, int64_t row, float *logits, struct err *e)
{
    struct model *m = in->model;
    const int64_t size = m->shape.vocab * (int64_t)sizeof *logits;
    if (root == m->sp.shard.r) {
        struct tensor last = model_logits(m, row, 1);
        m->be->ops->download(m->be, logits, last.data, size);
    }
    if (!m->comm) return 0;
    return comm_broadcast(m->comm, PURPOSE_CONTROL, root, logits, size, m->bounce, e);
}

int infer_last_logits(const struct infer *in, int64_t n, float *logits, struct err *e)
{
    int64_t row = 0;
    const int root = infer_owner(in, n - 1, &row, e);
    return root < 0 ? -1 : infer_share_logits(in, root, row, logits, e);
}

int infer_check_length(const struct infer *in, int64_t n, struct err *e)
{
    const struct plan *p = in->model->plan;
    const int64_t S = p->paged ? p->seq_len : p->S;
    if (n <= S) return 0;
    return err_field(e, ERR_TOO_LARGE, "data.seq_len",
                     "the prompt has %lld tokens and this job was planned for %lld: raise "
                     "data.seq_len to %lld",
                     (long long)n, (long long)S, (long long)n);
}
