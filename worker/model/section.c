/* section.c: makes the frame of a section from the places in the plan. Runs the steps of the
 * section, forward and backward. */
#include "worker/model/section.h"

#include <string.h>
#include "api/core/assert.h"
#include "api/core/mutant.h"
#include "worker/model/finite.h"
#include "worker/model/model.h"
#include "worker/model/piece.h"
#include "worker/model/routing.h"
#include "worker/model/section_paged.h"
#include "worker/model/stored.h"

/* ---- frames from the plan -------------------------------------------------------------------- */

struct here section_at(const struct model *m, int b)
{
    const struct sections *all = &m->prog.all;
    if (b == 0) return (struct here){b, &all->family.in, &all->in, false};
    if (b > m->shape.n_layers) return (struct here){b, &all->family.out, &all->out, false};
    const int kind = family_layer_kind(&m->shape, b - 1);
    return (struct here){b, &all->family.layer[kind], &all->layer[kind], false};
}

static char *stream(const struct model *m, int border)
{
    return m->prog.streams + m->prog.stream_of[border] * m->plan->stream_size;
}

static char *d_stream(const struct model *m, int border)
{
    return m->prog.d_streams + m->prog.d_stream_of[border] * m->plan->stream_size;
}

char *section_border(const struct model *m, bool end, bool grad)
{
    const struct pipe *p = &m->plan->pipe;
    const int border = end ? pipe_end(p) - 1 - pipe_last(p) : pipe_begin(p) - 1;
    return (grad ? d_stream : stream)(m, border);
}

char *section_address(const struct model *m, const struct here *h, const struct place *x, bool grad)
{
    const struct program *in = &m->prog.all.family.in;
    switch (x->where) {
    case PLACE_NONE: return NULL;
    case PLACE_KEPT: return m->prog.kept + plan_record(&m->shape, m->plan, h->b) + x->offset;
    case PLACE_WORK: return m->prog.work + x->offset;
    case PLACE_INPUT: return (grad ? d_stream : stream)(m, h->b - 1) + x->offset;
    case PLACE_RESULT: return (grad ? d_stream : stream)(m, h->b) + x->offset;
    case PLACE_SHARED:
        return (grad ? m->prog.d_shared : m->prog.shared) +
               plan_shared(in, m->plan, x->shared, grad) + x->offset;
    case PLACE_CACHE: return m->prog.caches + plan_cache(&m->shape, m->plan, h->b) + x->offset;
    }
    return NULL;
}

char *section_state_at(const struct model *m, const struct here *h, int op, int slot)
{
    const struct place *x = &h->s->at.state[op];
    char *first = section_address(m, h, x, false);
    return first ? first + slot * placement_state_stride(x) : NULL;
}

static bool in_parts(enum rows_id rows)
{
    return rows == ROWS_COND || rows == ROWS_TEXT;
}

/* Returns the tensor of a value. A view is computed as a window of its base's tensor. The place of
 * a view cannot be used, because it says where the rows begin, but not where shared values
 * begin. */
static struct tensor tensor_at(const struct model *m, const struct here *h, int v, bool grad)
{
    const struct program *p = h->p;
    const int base = prog_base(p, v);
    const struct value *own = &p->value[v], *x = &p->value[base];
    const struct frame *f = &m->prog.frame;
    const bool f32 = grad ? prog_grad_f32(p, base) : x->f32;
    const enum dtype t = f32 ? DT_F32 : m->dtype;
    const struct placement *at = &h->s->at;
    char *data = section_address(m, h, grad ? &at->grad[base] : &at->value[base], grad);
    int64_t rows = f->rows[x->rows].n * (grad && in_parts(x->rows) ? f->parts : 1);
    if (!data) return (struct tensor){0};
    if (x->state) rows = f->parts;
    if (x->form) rows = 1;
    if (h->s->steps.piece[base] && rows > m->plan->mlp_chunk) rows = m->plan->mlp_chunk;
    if (at->value[base].where == PLACE_CACHE && !grad) {
        const int64_t row = h->one || m->plan->paged ? section_new_rows(m)
                                                     : m->slot * cache_stride(&m->plan->extent);
        data += row * x->cols * dtype_size(t);
    }
    const struct tensor all = tensor_of(t, data, rows, x->cols, x->cols);
    return tensor_sub(all, 0, rows, own->view_of == PROG_NONE ? 0 : own->view_col, own->cols);
}

static void open_weights(struct model *m, const struct here *h, struct frame *f)
{
    f->weight_at = h->s->weight_at;
    f->weights = h->p->n_weights ? stored_section(m, h->b) : NULL;
    f->weights_grad = m->grad && h->p->trained_size ? model_bucket_gradient(m, h->b) : NULL;
    f->embed_grad = NULL;
    f->embed_joins = h->b == 0 && m->plan->shards.tied_grads && pipe_last(&m->plan->pipe);
    f->tied = (struct tensor){0};
    if (h->b == 0 && f->weights_grad && !h->p->weight[0].frozen)
        f->embed_grad = model_embed_grad(m);
    if (h->b <= m->shape.n_layers || !m->shape.tied) return;
    f->tied = stored_weight(m, 0, 0);
    f->tied_grad = m->grad && m->plan->shards.tied_grads ? model_bucket_gradient(m, 0) : NULL;
}

/* Returns the experts that the layer's rows choose in a pass of a proof. Returns NULL if there is
 * no proof or if the rows have no choice. */
static int32_t *routes_of(const struct model *m, const struct here *h)
{
    const int first = pipe_first(&m->plan->pipe) ? 1 : pipe_begin(&m->plan->pipe);
    if (!m->routing || !routing_chosen(&m->shape, h->p)) return NULL;
    return m->routing->expert + (h->b - first) * m->sp.shard.T * m->shape.experts_per_token;
}

void section_open_frame(struct model *m, const struct here *h, const struct batch *b, bool grads)
{
    struct frame *f = &m->prog.frame;
    f->p = h->p;
    f->batch = b;
    f->layer = h->b >= 1 && h->b <= m->shape.n_layers ? h->b - 1 : -1;
    f->again = false;
    f->routing = m->routing;
    f->chosen = routes_of(m, h);
    f->slope = m->prog.slopes + (f->layer < 0 ? 0 : f->layer) * m->shape.n_heads;
    for (int v = 0; v < h->p->n_values; v++) {
        f->value[v] = tensor_at(m, h, v, false);
        f->grad[v] = grads ? tensor_at(m, h, v, true) : (struct tensor){0};
    }
    open_weights(m, h, f);
}

void section_set_rows(struct model *m, int64_t T)
{
    struct frame *f = &m->prog.frame;
    const struct shard *sh = &m->sp.shard;
    const struct plan *p = m->plan;
    const int64_t alt = p->grid[0] ? dsp_rows(m->prog.grid, p->sp, p->rank_bits, 1) : 0;
    f->parts = sh->n_sums;
    f->tree = p->rank_bits;
    f->rows[ROWS_T] = (struct frame_rows){T, sh->sum_len};
    f->rows[ROWS_ALT] = (struct frame_rows){alt, alt / sh->n_sums};
    f->rows[ROWS_PART] = (struct frame_rows){T / p->tp, T / p->tp};
    f->rows[ROWS_TEXT] = (struct frame_rows){p->extent.rows[ROWS_TEXT], 0};
    f->rows[ROWS_COND] = (struct frame_rows){p->extent.rows[ROWS_COND], 0};
}

/* ---- running --------------------------------------------------------------------------------- */

static void set_scratch(struct model *m, const struct here *h, const struct step *s, int64_t offset)
{
    struct frame *f = &m->prog.frame;
    f->scratch = m->prog.work + offset;
    f->scratch_size = op_scratch(h->p, s, &m->plan->extent);
    op_scratch_reset(f);
}

static int run_op(struct model *m, const struct here *h, const struct step *s, struct err *e)
{
    struct frame *f = &m->prog.frame;
    const struct op *o = &h->p->op[s->op];
    const struct op_row *row = op_table[o->kind];
    f->now = s->kind == STEP_BACKWARD ? s : NULL;
    if (f->now) return row->backward(f, o, s, e);
    if (m->prog.paged.piece && op_rules[o->kind]->cache == CACHE_STATE)
        return section_paged_states(m, h, s->op, e);
    if (m->prog.paged.piece && op_rules[o->kind]->cache == CACHE_ROWS) section_paged_piece(m, h, o);
    if (!h->one || !row->decode) return row->forward(f, o, e);
    if (op_rules[o->kind]->cache == CACHE_ROWS) return section_decode_rows(m, h, o, e);
    return section_decode_each(m, h, s->op, e);
}

/* Returns this layer's part of the states that enter or leave the sequence. Returns NULL if there
 * are no states, or if the section is not a layer. */
static char *carried(const struct model *m, const char *states)
{
    if (!states || m->prog.frame.layer < 0) return NULL;
    return (char *)states + m->prog.frame.layer * m->carry.stride;
}

/* Sets the state that enters this layer and the address for the state that leaves it. Usually both
 * belong to the carry of a context. In generate, an operation with a state writes the state that
 * leaves it to the slot's cache. The last rank writes it. */
static void set_carry(struct model *m, const struct here *h, const struct step *s)
{
    struct frame *f = &m->prog.frame;
    f->carry_in = carried(m, m->carry.in);
    f->carry_out = carried(m, m->carry.out);
    if (m->plan->kind == JOB_GENERATE && op_rules[h->p->op[s->op].kind]->cache == CACHE_STATE)
        f->carry_out = section_state_at(m, h, s->op, m->slot);
}

struct piece_run {
    struct model *m;
    const struct here *h;
    const struct step *first;
    const int64_t *scratch; /* offset of the scratch of each step */
    int64_t n_looked;       /* number of operations that were counted before these steps */
};

static int run_in_piece(void *arg, int i, struct err *e)
{
    const struct piece_run *r = arg;
    const struct step *s = &r->first[i];
    set_scratch(r->m, r->h, s, r->scratch[i]);
    if (run_op(r->m, r->h, s, e)) return -1;
    r->m->prog.watch.n_ops = r->n_looked + i;
    if (r->m->prog.watch.on && !r->m->prog.frame.again) finite_look(r->m, r->h->b, s->op);
    return 0;
}

/* Runs the steps of a dense MLP piece by piece. `first` is the first of the steps. */
static int run_pieces(struct model *m, const struct here *h, const struct step *first,
                      const int64_t *scratch, struct err *e)
{
    struct piece_run r = {m, h, first, scratch, m->prog.watch.n_ops};
    const struct piece_walk w = {.s = &h->s->steps,
                                 .first = first,
                                 .chunk = m->plan->mlp_chunk,
                                 .run = run_in_piece,
                                 .arg = &r};
    if (piece_walk(&m->prog.frame, &w, e)) return -1;
    /* also counts the operations on ranks that have no rows */
    m->prog.watch.n_ops = r.n_looked + first->n_piece;
    return 0;
}

static bool is_loss(const struct program *p, const struct step *s)
{
    return op_rules[p->op[s->op].kind]->loss;
}

int section_run(struct model *m, const struct here *h, struct err *e)
{
    const struct schedule *list = &h->s->steps;
    for (int i = 0; i < list->n_forward; i++) {
        const struct step *s = &list->forward[i];
        if (is_loss(h->p, s)) break;
        if (s->piece) {
            if (run_pieces(m, h, s, &h->s->at.scratch_forward[i], e)) return -1;
            i += s->n_piece - 1;
            continue;
        }
        set_scratch(m, h, s, h->s->at.scratch_forward[i]);
        set_carry(m, h, s);
        if (run_op(m, h, s, e)) return -1;
        if (m->prog.watch.on) finite_look(m, h->b, s->op);
    }
    return 0;
}

/* Runs the backward list. If an operation is computed again, it gets no carry, because its states
 * were kept. */
static int run_backward(struct model *m, const struct here *h, struct err *e)
{
    const struct schedule *list = &h->s->steps;
    for (int i = 0; i < list->n_backward; i++) {
        const struct step *s = &list->backward[i];
        m->prog.frame.again = true;
        m->prog.frame.carry_in = m->prog.frame.carry_out = NULL;
        m->prog.frame.d_carry_out = carried(m, m->carry.d_out);
        m->prog.frame.d_carry_in = carried(m, m->carry.d_in);
        if (s->piece) {
            if (run_pieces(m, h, s, &h->s->at.scratch_backward[i], e)) return -1;
            i += s->n_piece - 1;
            continue;
        }
        set_scratch(m, h, s, h->s->at.scratch_backward[i]);
        if (run_op(m, h, s, e)) return -1;
    }
    return 0;
}

/* Sends the states after the prompt from the last rank to all ranks. Every rank needs them,
 * because every rank decodes. */
static int share_states(struct model *m, const struct here *h, struct err *e)
{
    if (!m->comm || m->plan->kind != JOB_GENERATE || m->plan->paged) return 0;
    for (int i = 0; i < h->p->n_ops; i++) {
        const struct place *x = &h->s->at.state[i];
        if (op_rules[h->p->op[i].kind]->cache != CACHE_STATE) continue;
        if (comm_broadcast_tensor(m->comm, PURPOSE_STATE, m->plan->sp - 1,
                                  section_state_at(m, h, i, m->slot), x->size, m->bounce, e))
            return -1;
    }
    return 0;
}

/* Returns the length of a pass for progress reports, in sections. The backward of a section counts
 * as two sections. The first sections have no backward if nothing of them is trained. */
static double pass_length(const struct model *m, bool forward_alone)
{
    const int n = m->shape.n_layers + 2;
    return n + (forward_alone ? 0 : 2.0 * (n - m->plan->shards.back_from));
}

/* Completes the sends of the last layers. */
static int settle(struct model *m, struct err *e)
{
    if (m->prog.linear.ops && linear_settle(&m->prog.linear, e)) return -1;
    return carry_settle(&m->prog.carry, e);
}

int section_forward(struct model *m, const struct batch *b, bool to_loss, struct err *e)
{
    const double all = pass_length(m, to_loss);
    const struct pipe *p = &m->plan->pipe;
    section_set_rows(m, m->sp.shard.T);
    if (!to_loss && !pipe_first(p) && section_send_out(m, pipe_begin(p) - 1, e)) return -1;
    for (int i = pipe_begin(p); i < pipe_end(p) && i <= m->shape.n_layers; i++) {
        const struct here h = section_at(m, i);
        if (model_fetch(m, i, e)) return -1;
        section_open_frame(m, &h, b, false);
        if (section_run(m, &h, e) || share_states(m, &h, e)) return -1;
        if (!to_loss && section_send_out(m, i, e)) return -1;
        progress_part(m->progress, (i + 1) / all);
    }
    if (settle(m, e)) return -1;
    if (!pipe_last(p)) return 0;
    if (model_fetch_head(m, e)) return -1;
    if (!to_loss) return 0;
    const struct here out = section_at(m, m->shape.n_layers + 1);
    section_open_frame(m, &out, b, false);
    return section_run(m, &out, e);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* If `terms` is set, the loss has label smoothing and z-loss. */
static void set_loss(struct model *m, float scale, bool terms)
{
    struct frame *f = &m->prog.frame;
    f->loss_scale = scale;
    f->label_smoothing = terms ? m->plan->label_smoothing : 0;
    f->z_loss = terms ? m->plan->z_loss : 0;
    f->loss_chunk = m->plan->loss_chunk;
    f->nll = m->prog.nll;
    f->logits = (float *)m->prog.logits;
}

/* Clears the elements of a layer's gradient that no pass writes. These elements are between
 * tensors, or in tensors without a gradient. They must be cleared because they are summed as well,
 * and their memory may have had records or logits before. */
static void clear_between(struct model *m, const struct here *h)
{
    const int64_t all = h->p->trained_size;
    float *g = model_bucket_gradient(m, h->b);
    int64_t end = 0;
    for (int i = 0; i < h->p->n_weights; i++) {
        const struct weight *w = &h->p->weight[i];
        const int64_t n = w->rows * (w->cols ? w->cols : 1);
        const int64_t from = w->frozen ? w->offset + n : w->offset;
        if (w->offset >= all) continue; /* it has no gradient */
        assert(w->offset >= end);
        if (from > end) m->be->ops->fill(m->be, g + end, from - end, 0);
        end = w->offset + n;
    }
    if (all > end) m->be->ops->fill(m->be, g + end, all - end, 0);
}

/* Runs the loss and the head backward. This also computes the head's part of a tied embedding's
 * gradient. */
static int out_backward(struct model *m, const struct batch *b, struct err *e)
{
    const int last = m->shape.n_layers + 1;
    const struct here h = section_at(m, last);
    const bool tied = m->plan->shards.tied_grads;
    if (model_clear(m, last, e) || (tied && model_clear(m, 0, e))) return -1;
    section_open_frame(m, &h, b, true);
    if (run_backward(m, &h, e) || model_reduce(m, last, true, e)) return -1;
    return tied ? model_reduce(m, 0, false, e) : 0;
}

static int layer_back(struct model *m, int i, const struct batch *b, struct err *e)
{
    const struct here h = section_at(m, i);
    if (model_clear(m, i, e)) return -1;
    if ((i > 0 || plan_fetches_in(&m->shape, m->plan)) && model_fetch(m, i, e)) return -1;
    if (section_bring_back(m, i, e)) return -1;
    if (i > 0 && (m->plan->item[PLAN_KEPT].shared || m->plan->extent.logits_apart))
        clear_between(m, &h);
    section_open_frame(m, &h, b, true);
    return run_backward(m, &h, e) || model_reduce(m, i, true, e) ? -1 : 0;
}

int section_backward(struct model *m, const struct batch *b, float scale, struct err *e)
{
    const struct program *in = &m->prog.all.family.in;
    const int64_t shared = plan_shared(in, m->plan, in->n_shared, true);
    set_loss(m, scale, true);
    m->prog.frame.fresh = m->grad_anew;
    m->grad_anew = false;
    if (shared) m->be->ops->fill(m->be, (float *)m->prog.d_shared, shared / 4, 0);
    const struct pipe *p = &m->plan->pipe;
    const int from = m->plan->shards.back_from, begin = pipe_begin(p);
    if (pipe_last(p) && out_backward(m, b, e)) return -1;
    for (int i = pipe_end(p) - 1 - pipe_last(p); i >= (from > begin ? from : begin); i--) {
        const int n_done = m->shape.n_layers + 2 - i; /* the section of the head ran first */
        if (layer_back(m, i, b, e)) return -1;
        progress_part(m->progress, (m->shape.n_layers + 2 + 2 * n_done) / pass_length(m, false));
    }
    progress_part(m->progress, 1); /* the sections that nothing trains have no backward */
    return settle(m, e);
}

/* ---- after the last layer -------------------------------------------------------------------- */

static const struct op *loss_op(const struct model *m)
{
    const struct program *out = &m->prog.all.family.out;
    return &out->op[out->n_ops - 1];
}

/* Computes the input of the loss again if a backward pass has overwritten the workspace that had
 * it. The stream after the last layer has not been overwritten. */
static int out_again(struct model *m, const struct here *h, const struct batch *b, struct err *e)
{
    if (m->prog.frame.p == h->p && !m->prog.frame.grad[PROG_X].data) return 0;
    section_open_frame(m, h, b ? b : m->prog.frame.batch, false);
    return section_run(m, h, e);
}

int section_head(struct model *m, struct err *e)
{
    const struct here h = section_at(m, m->shape.n_layers + 1);
    return out_again(m, &h, NULL, e);
}

static int open_loss(struct model *m, const struct batch *b, struct err *e)
{
    const struct here h = section_at(m, m->shape.n_layers + 1);
    if (out_again(m, &h, b, e)) return -1;
    const struct schedule *list = &h.s->steps;
    set_loss(m, 0, m->trained_loss);
    set_scratch(m, &h, &list->forward[list->n_forward - 1],
                h.s->at.scratch_forward[list->n_forward - 1]);
    return 0;
}

int section_loss(struct model *m, const struct batch *b, struct err *e)
{
    if (open_loss(m, b, e)) return -1;
    m->prog.frame.batch = b;
    return op_table[loss_op(m)->kind]->forward(&m->prog.frame, loss_op(m), e);
}

/* Computes the input of the loss if it is not available. Sends no message. */
static void open_rows(struct model *m)
{
    struct err e = {0};
    const int bad = open_loss(m, NULL, &e);
    assert(!bad);
}

struct tensor section_normed(struct model *m, int64_t row0, int64_t n)
{
    open_rows(m);
    const struct tensor t = frame_in(&m->prog.frame, loss_op(m), 0);
    return tensor_sub(t, row0, n, 0, t.cols);
}

struct tensor section_logits(struct model *m, int64_t row0, int64_t n)
{
    open_rows(m);
    return op_loss_logits(&m->prog.frame, loss_op(m), row0, n);
}

struct tensor section_hidden(struct model *m)
{
    return model_rows(m, stream(m, m->shape.n_layers), m->shape.width);
}

/* Runs only the first operation of `out`. Afterwards the input of the loss is not available. */
struct tensor section_states(struct model *m)
{
    const struct here h = section_at(m, m->shape.n_layers + 1);
    const struct step *first = &h.s->steps.forward[0];
    struct frame *f = &m->prog.frame;
    struct err e = {0};
    if (h.p->op[first->op].kind != OP_NORM) return section_hidden(m);
    section_open_frame(m, &h, f->batch, false);
    set_scratch(m, &h, first, h.s->at.scratch_forward[0]);
    const int bad = run_op(m, &h, first, &e);
    assert(!bad); /* without messages, a run cannot fail */
    const struct tensor out = frame_out(f, &h.p->op[first->op], 0);
    f->p = NULL; /* so that open_loss() computes its input again */
    return out;
}

char *section_state(struct model *m, int l, int k, int64_t *size)
{
    const struct here h = section_at(m, l + 1);
    for (int i = 0; i < h.p->n_ops; i++) {
        if (!placement_state_count(h.p, i) || k--) continue;
        *size = h.s->at.state[i].size;
        return section_state_at(m, &h, i, m->slot);
    }
    return NULL;
}

bool section_windowed(const struct model *m)
{
    for (int l = 0; l < m->shape.n_layers; l++) {
        const struct program *p = section_at(m, l + 1).p;
        for (int i = 0; i < p->n_ops; i++)
            if (p->op[i].kind == OP_ATTENTION && p->op[i].u.attn.window > 0) return true;
    }
    return false;
}
