/* check_parallel.c: which strategies, layouts and forms of attention a family takes, and which it has
 * where the job leaves that to "auto". */
#include "worker/family/family.h"
#include "worker/plan/rules.h"

static bool is_ring_of_attention(const struct family_row *f)
{
    return f->softmax && !f->linear && f->task != MODEL_DIFFUSION;
}

static bool strategy_fits(const struct family_row *f, int strategy)
{
    switch (strategy) {
    case STRATEGY_LASP: return f->linear;
    case STRATEGY_DSP: return f->task == MODEL_DIFFUSION;
    case STRATEGY_RSA:
    case STRATEGY_ULYSSES:
    case STRATEGY_TP:
    case STRATEGY_TP_SP: return is_ring_of_attention(f);
    default: return true;
    }
}

/* Zigzag balances causal softmax attention and nothing else; states pass from rank to rank in the
 * order of the sequence. */
static bool zigzag_fits(const struct family_row *f)
{
    return is_ring_of_attention(f) && f->task == MODEL_CAUSAL_LM;
}

enum strategy_id family_strategy(const struct model_shape *m, int sp)
{
    const struct family_row *f = family_row(m);
    if (sp == 1) return STRATEGY_LOCAL;
    return f->task == MODEL_DIFFUSION ? STRATEGY_DSP : f->linear ? STRATEGY_LASP : STRATEGY_RSA;
}

enum layout_id family_layout(const struct model_shape *m, int strategy, int sp, bool rank_bits)
{
    const bool whole_rows = strategy == STRATEGY_ULYSSES; /* of its heads: balanced */
    return sp > 1 && !rank_bits && !whole_rows && zigzag_fits(family_row(m)) ? LAYOUT_ZIGZAG
                                                                             : LAYOUT_CONTIGUOUS;
}

bool family_takes(const struct model_shape *m, int strategy, int layout, int sp)
{
    const struct family_row *f = family_row(m);
    if (strategy == STRATEGY_LOCAL ? sp > 1 : !strategy_fits(f, strategy)) return false;
    return layout != LAYOUT_ZIGZAG || zigzag_fits(f);
}

/* "auto" of a model that is not described waits, but where one rank leaves no choice. */
static void set_auto(struct job_spec *s)
{
    const struct model_shape *m = &s->model.shape;
    const bool bits = s->determinism == DET_RANKS, known = rules_known(s);
    const int sp = s->parallel.sp;
    if (s->parallel.strategy == STRATEGY_AUTO && (known || sp == 1))
        s->parallel.strategy = known ? family_strategy(m, sp) : STRATEGY_LOCAL;
    if (s->parallel.layout == LAYOUT_AUTO && (known || bits || sp == 1))
        s->parallel.layout = known ? family_layout(m, s->parallel.strategy, sp, bits)
                                   : LAYOUT_CONTIGUOUS;
}

static int check_strategy(const struct job_spec *s, struct err *e)
{
    const char *const *words = spec_field("parallel.strategy")->words;
    const struct model_shape *m = &s->model.shape;
    const struct family_row *f = family_row(m);
    if (!strategy_fits(f, s->parallel.strategy))
        return err_field(
            e, ERR_UNSUPPORTED, "parallel.strategy",
            "parallel.strategy \"%s\" does not split the attention of this family: use \"%s\"",
            words[s->parallel.strategy], words[family_strategy(m, s->parallel.sp)]);
    if (s->parallel.layout != LAYOUT_ZIGZAG || zigzag_fits(f)) return 0;
    return err_field(e, ERR_UNSUPPORTED, "parallel.layout",
                     "parallel.layout \"zigzag\" balances causal softmax attention, and this "
                     "family has %s: use \"contiguous\"",
                     f->linear                    ? "linear attention"
                     : f->task == MODEL_DIFFUSION ? "attention along space and time"
                                                  : "attention that reads both ways");
}

static int check_ulysses(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const bool ranks = s->determinism == DET_RANKS;
    const int sp = s->parallel.sp;
    if (s->parallel.layout == LAYOUT_ZIGZAG)
        return err_field(e, ERR_INVALID, "parallel.layout",
                         "strategy \"ulysses\" needs parallel.layout \"contiguous\": every rank "
                         "computes whole rows of its heads, and zigzag balances nothing");
    if (m->n_heads && sp > m->n_heads)
        return err_field(
            e, ERR_INVALID, "parallel.sp",
            "strategy \"ulysses\" shares %lld attention heads out to %d ranks: at most "
            "%lld of them have work",
            (long long)m->n_heads, sp, (long long)m->n_heads);
    if (ranks && m->n_kv_heads && m->n_kv_heads % sp)
        return err_field(e, ERR_INVALID, "parallel.sp",
                         "determinism \"ranks\" with strategy \"ulysses\" needs parallel.sp to "
                         "divide the %lld KV heads: %d would divide a group",
                         (long long)m->n_kv_heads, sp);
    return 0;
}

/* What forms and strategies of softmax attention cannot do. */
static int check_attention(const struct job_spec *s, struct err *e)
{
    const bool ranks = s->determinism == DET_RANKS;
    const bool other = rules_known(s) && !is_ring_of_attention(family_row(&s->model.shape));
    const int form = s->parallel.form;
    const bool two_pass = form == FORM_TWO_PASS || form == FORM_TWO_PASS_SCATTER;
    if (s->train.attention_dropout > 0 && other)
        return err_field(e, ERR_UNSUPPORTED, "train.attention_dropout",
                         "train.attention_dropout drops weights of softmax attention over a "
                         "sequence: not with this family, whose layers have other attention");
    if (two_pass && other)
        return err_field(
            e, ERR_UNSUPPORTED, "parallel.form",
            "parallel.form \"two_pass\" is a form of ring self-attention, which does not "
            "split this family's sequences");
    if (two_pass && s->precision.params != PRECISION_FP32)
        return err_field(e, ERR_UNSUPPORTED, "parallel.form",
                         "parallel.form \"two_pass\" is the published reference and runs in fp32: "
                         "set precision.params \"fp32\", or take \"blockwise\"");
    if (two_pass && ranks)
        return err_field(e, ERR_INVALID, "parallel.form",
                         "parallel.form \"two_pass\" sums as blocks arrive: determinism \"ranks\" "
                         "needs \"blockwise\" or \"all_gather\"");
    return 0;
}

int rules_parallel(struct job_spec *s, struct err *e)
{
    const int strategy = s->parallel.strategy;
    if (strategy == STRATEGY_TP || strategy == STRATEGY_TP_SP)
        return err_field(
            e, ERR_UNSUPPORTED, "parallel.strategy",
            "parallel.strategy \"tp\" and \"tp_sp\" are there to be compared with in "
            "plans: jobs do not run tensor parallelism; choose \"rsa\" or \"ulysses\"");
    set_auto(s);
    if ((rules_known(s) && check_strategy(s, e)) || check_attention(s, e)) return -1;
    return s->parallel.strategy == STRATEGY_ULYSSES && s->parallel.sp > 1 ? check_ulysses(s, e) : 0;
}
