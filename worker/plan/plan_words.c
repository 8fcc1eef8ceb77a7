/* plan_words.c: explains a plan in words. */
#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/plan/plan.h"
#include "worker/plan/sentence.h"
#include "worker/plan/strategy.h"

/* ---- ranks side by side ---------------------------------------------------------------------- */

static void add_groups(struct sentence *w, const struct plan *p)
{
    if (p->pp > 1)
        sentence_add(w, "%d stages of layers%s, at most %lld sequences in each; ", p->pp,
                     p->cut_by_memory ? " cut so that they fit" : "", (long long)p->slots);
    if (p->dp > 1)
        sentence_add(w, "%d %s side by side, each on its own samples; ", p->dp,
                     p->sp > 1 ? "rings" : "ranks");
}

/* Adds how ranks pass states, or how they are grouped. */
static void add_exchange(struct sentence *w, const struct plan *p)
{
    static const char *const words[EXCHANGE_N] = {"", " from rank to rank", " to all ranks",
                                                  " from rank to rank in pieces"};
    const struct strategy_row *row = strategy_row(p->strategy);
    if (row->states)
        sentence_add(w, "%s", words[p->exchange]);
    else if (row->rings)
        sentence_add(w, ": %d groups of %d ranks", p->sp / p->ulysses, p->ulysses);
}

/* Adds the limits of determinism "ranks". If dp changes, gradients are summed in a different
 * order, so their bits change. */
static void add_bits(struct sentence *w, const struct plan *p)
{
    if (p->rank_bits && p->kind == JOB_TRAIN)
        sentence_add(w, "; the bits are those of parallel.dp %d", p->dp);
}

static void add_layout(struct sentence *w, const struct plan *p)
{
    const char *why = strategy_row(p->strategy)->in_order;
    if (!why) why = "asked for";
    if (p->rank_bits)
        sentence_add(w, "contiguous: determinism \"ranks\" needs it");
    else if (p->layout == LAYOUT_ZIGZAG)
        sentence_add(w, "zigzag: every rank has the same causal work");
    else
        sentence_add(w, "contiguous%s%s", *why ? ": " : "", why);
}

/* ---- ways to save memory --------------------------------------------------------------------- */

static void add_recompute(struct sentence *w, const struct job_spec *s, const struct plan *p)
{
    if (p->kind != JOB_TRAIN && p->kind != JOB_VERIFY) return;
    sentence_add(w, "; recompute %s: %s", spec_field("memory.recompute")->words[p->recompute],
                 s->memory.recompute != RECOMPUTE_AUTO ? "asked for"
                 : p->offload.on                       ? "what is computed again is not copied"
                                                       : "the fastest that fits");
}

static void add_pieces(struct sentence *w, const struct job_spec *s, const struct plan *p)
{
    if (!p->mlp_chunk) return;
    sentence_add(w, "; MLP in pieces of %lld tokens%s: %s", (long long)p->mlp_chunk,
                 family_mlps(&s->model.shape).experts ? ", experts whole" : "",
                 s->memory.mlp_chunk_tokens < 0 ? "it would not fit whole" : "asked for");
}

static void add_offload(struct sentence *w, const struct job_spec *s, const struct plan *p)
{
    if (!plan_stores(p)) return;
    sentence_add(w, "; %s offloaded to %s: %s",
                 !p->offload.optimizer ? "activations"
                 : p->offload.on       ? "activations and the optimizer"
                                       : "the optimizer",
                 p->own_memory ? "the host's memory" : "memory.offload_dir",
                 s->memory.offload == OFFLOAD_AUTO ? "it would not fit with them" : "asked for");
}

static void add_zero(struct sentence *w, const struct plan *p)
{
    static const char *const what[] = {"", "optimizer state", "optimizer state and gradients",
                                       "optimizer state, gradients and weights"};
    const int n_groups = plan_sum_ranks(p) / p->zero_group;
    if (p->zero && p->zero_group == 1)
        sentence_add(w, "; zero %d in groups of one rank: each has all", p->zero);
    else if (p->zero)
        sentence_add(w, "; zero %d: %s sharded over %d ranks", p->zero, what[p->zero],
                     p->zero_group);
    if (p->zero_group > 1 && n_groups > 1) sentence_add(w, ", in %d groups", n_groups);
    if (p->fused) sentence_add(w, "; updates fused into the backward pass");
}

static void add_batch(struct sentence *w, const struct plan *p)
{
    static const char *const words[BATCH_BOUNDS] = {
        [BATCH_MOST] = "the most",
        [BATCH_WORTH] = "more would bring little beside their caches",
        [BATCH_CACHES] = "caches of more would be larger than the weights and than an eighth of "
                         "the memory",
        [BATCH_FITS] = "more would not fit"};
    if (p->batch_by == BATCH_ASKED) return;
    sentence_add(w, "; %d prompt%s at once: %s", p->batch, p->batch == 1 ? "" : "s",
                 words[p->batch_by]);
}

static void add_pages(struct sentence *w, const struct plan *p)
{
    if (p->sp == 1)
        sentence_add(w, "one rank holds all pages of a sequence");
    else
        sentence_add(w, "%d ranks hold every %dth page of a sequence and pass queries", p->sp,
                     p->sp);
    sentence_add(w, "; %lld pages of %d tokens a rank; prompts in pieces of %lld tokens",
                 (long long)p->n_pages, CACHE_PAGE, (long long)p->piece);
}

void plan_explain(const struct job_spec *s, struct plan *p)
{
    struct sentence w = sentence_in(p->reason, sizeof p->reason);
    if (p->kind == JOB_MERGE) {
        sentence_add(&w,
                     "one rank reads the model tensor by tensor, adds the adapter's product "
                     "and writes it in %s: precision.params",
                     spec_field("precision.params")->words[p->precision]);
        return;
    }
    sentence_add(&w, "%s: ",
                 p->paged     ? "pages"
                 : p->sp == 1 ? "local"
                              : strategy_word(p->strategy));
    add_groups(&w, p);
    if (p->paged) {
        add_pages(&w, p);
    } else if (p->sp == 1) {
        sentence_add(&w, "one rank holds the sequence");
    } else {
        sentence_add(&w, "%d ranks hold %lld rows each and %s", p->sp, (long long)p->T,
                     strategy_form(p->strategy, p->form)->what);
        add_exchange(&w, p);
        sentence_add(&w, "; ");
        add_layout(&w, p);
    }
    add_bits(&w, p);
    if (p->n_windows > 1)
        sentence_add(&w, "; walked in %lld windows of %lld tokens", (long long)p->n_windows,
                     (long long)p->S);
    if (p->tp > 1)
        sentence_add(&w, "; tp %d: every layer's heads and columns over %d ranks", p->tp, p->tp);
    add_recompute(&w, s, p);
    add_pieces(&w, s, p);
    add_offload(&w, s, p);
    add_zero(&w, p);
    add_batch(&w, p);
}
