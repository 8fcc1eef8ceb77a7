/* check_parallel.c: checks the strategies, layouts and forms of attention that a family accepts,
 * and replaces "auto" by the family's values. A strategy's own rules are in its row. */
#include <string.h>
#include "worker/plan/rules.h"
#include "worker/plan/strategy.h"

/* Replaces "auto". If the model is not described yet, "auto" is replaced only in a job with one
 * rank, because one rank leaves no choice. */
static void set_auto(struct job_spec *s)
{
    const struct model_shape *m = &s->model.shape;
    const bool bits = s->determinism == DET_RANKS, known = rules_known(s);
    const int sp = s->parallel.sp;
    if (s->parallel.strategy == STRATEGY_AUTO && (known || sp == 1))
        s->parallel.strategy = known ? strategy_default(m, sp) : STRATEGY_LOCAL;
    const struct strategy_row *row = strategy_row(s->parallel.strategy);
    const int u = known ? strategy_group(m, s->parallel.strategy, sp, s->parallel.ulysses) : 1;
    if (known && row->rings) s->parallel.ulysses = u;
    if (s->parallel.layout == LAYOUT_AUTO && (known || bits || sp == 1))
        s->parallel.layout = known ? strategy_layout(m, s->parallel.strategy, sp / u, bits)
                                   : LAYOUT_CONTIGUOUS;
}

/* Checks the groups of a ring's ranks (parallel.ulysses). */
static int check_groups(const struct job_spec *s, struct err *e)
{
    const struct strategy_row *row = strategy_row(s->parallel.strategy);
    const int u = s->parallel.ulysses, sp = s->parallel.sp;
    if (u && !(row && row->rings))
        return err_field(e, ERR_INVALID, "parallel.ulysses",
                         "parallel.ulysses %d is for parallel.strategy \"usp\", not \"%s\": set "
                         "that, or leave out parallel.ulysses",
                         u, strategy_word(s->parallel.strategy));
    if (u && sp % u)
        return err_field(e, ERR_INVALID, "parallel.ulysses",
                         "parallel.ulysses %d does not divide parallel.sp %d: a ring is groups of "
                         "as many ranks each; use a divisor of %d",
                         u, sp, sp);
    return 0;
}

/* Tells whether `word`, which is the name of a refused strategy, is also the name of a form of the
 * strategy that the family accepts. */
static bool is_form(int32_t own, const char *word)
{
    int form = 0;
    while (form < FORM_N && strcmp(spec_field("parallel.form")->words[form], word)) form++;
    return form < FORM_N && strategy_row(own)->form[form];
}

static int refuse_strategy(const struct job_spec *s, struct err *e)
{
    const char *word = strategy_word(s->parallel.strategy);
    const enum strategy_id own = strategy_default(&s->model.shape, s->parallel.sp);
    const bool form = is_form(own, word);
    return err_field(e, ERR_UNSUPPORTED, "parallel.strategy",
                     "parallel.strategy \"%s\" does not split the attention of this family: use "
                     "\"%s\"%s%s%s",
                     word, strategy_word(own), form ? " with parallel.form \"" : "",
                     form ? word : "", form ? "\"" : "");
}

static int check_strategy(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const struct family_row *f = family_row(m);
    if (!strategy_fits(s->parallel.strategy, f)) return refuse_strategy(s, e);
    if (s->parallel.layout != LAYOUT_ZIGZAG || strategy_zigzag_fits(f)) return 0;
    return err_field(e, ERR_UNSUPPORTED, "parallel.layout",
                     "parallel.layout \"zigzag\" balances causal softmax attention, and this "
                     "family has %s: use \"contiguous\"",
                     f->linear                    ? "linear attention"
                     : f->task == MODEL_DIFFUSION ? "attention along space and time"
                                                  : "attention that reads both ways");
}

/* Returns the strategy that has this form, or STRATEGY_N if no strategy has it. A job may name any
 * form together with any strategy. */
static int owner_of(int form)
{
    int id = STRATEGY_AUTO + 1;
    while (id < STRATEGY_N && !strategy_row(id)->form[form]) id++;
    return id;
}

static int check_form(const struct job_spec *s, struct err *e)
{
    const int form = s->parallel.form, owner = owner_of(form);
    const char *word = spec_field("parallel.form")->words[form];
    const struct strategy_form *f = owner < STRATEGY_N ? strategy_row(owner)->form[form] : NULL;
    if (!f || !(f->published || strategy_row(owner)->first_form)) return 0;
    if (rules_known(s) && !strategy_fits(owner, family_row(&s->model.shape)))
        return err_field(
            e, ERR_UNSUPPORTED, "parallel.form",
            "parallel.form \"%s\" is a form of strategy \"%s\", which does not split this "
            "family's sequences",
            word, strategy_word(owner));
    if (!f->published) return 0;
    if (s->precision.params != PRECISION_FP32)
        return err_field(e, ERR_UNSUPPORTED, "parallel.form",
                         "parallel.form \"%s\" is the published reference and runs in fp32: set "
                         "precision.params \"fp32\", or take \"blockwise\"",
                         word);
    if (rules_known(s) && s->model.shape.attn_cap > 0)
        return err_field(e, ERR_UNSUPPORTED, "parallel.form",
                         "parallel.form \"%s\" keeps probabilities, and the slope of this model's "
                         "attn_logit_softcapping %g is of scores: take \"blockwise\" or "
                         "\"all_gather\"",
                         word, s->model.shape.attn_cap);
    if (rules_known(s) && family_row(&s->model.shape)->sinks)
        return err_field(e, ERR_UNSUPPORTED, "parallel.form",
                         "parallel.form \"%s\" keeps probabilities of keys, and this model's "
                         "attention has sinks, which are none: take \"blockwise\" or "
                         "\"all_gather\"",
                         word);
    if (s->determinism == DET_RANKS)
        return err_field(e, ERR_INVALID, "parallel.form",
                         "parallel.form \"%s\" sums as blocks arrive: determinism \"ranks\" needs "
                         "\"blockwise\" or \"all_gather\"",
                         word);
    return 0;
}

/* Refuses exchanges that multiply maps of states if determinism is "ranks", because the products
 * of maps round differently for different numbers of ranks. */
static int check_exchange(const struct job_spec *s, struct err *e)
{
    const int exchange = s->parallel.exchange;
    if (!rules_known(s) || !family_row(&s->model.shape)->in_turn || exchange == EXCHANGE_AUTO ||
        exchange == EXCHANGE_RING || s->determinism != DET_RANKS)
        return 0;
    return err_field(e, ERR_INVALID, "parallel.exchange",
                     "parallel.exchange \"%s\" multiplies what each rank's rows do to the states "
                     "of this family's delta rule, which rounds as the number of ranks is: "
                     "determinism \"ranks\" needs \"ring\"",
                     spec_field("parallel.exchange")->words[exchange]);
}

static int check_dropout(const struct job_spec *s, struct err *e)
{
    if (s->train.attention_dropout <= 0 || !rules_known(s) ||
        strategy_splits(family_row(&s->model.shape)) == SPLITS_SOFTMAX)
        return 0;
    return err_field(e, ERR_UNSUPPORTED, "train.attention_dropout",
                     "train.attention_dropout drops weights of softmax attention over a "
                     "sequence: leave it out, for this family's layers have other attention");
}

/* Refuses noise of embeddings in a model that has none. */
static int check_noise(const struct job_spec *s, struct err *e)
{
    if (s->train.neftune_alpha <= 0 || !rules_known(s) || !family_diffusion(&s->model.shape))
        return 0;
    return err_field(e, ERR_INVALID, "train.neftune_alpha",
                     "train.neftune_alpha %g: a diffusion model has no embeddings of tokens: leave "
                     "it out",
                     s->train.neftune_alpha);
}

/* Sets the way in which attention divides the grid, from parallel.form. It is set for any number
 * of ranks, because a family's program is written for one of these ways. */
static void set_grid_way(struct job_spec *s)
{
    struct model_shape *m = &s->model.shape;
    if (rules_known(s))
        m->grid_way = strategy_form(strategy_default(m, 2), s->parallel.form)->grid_way;
}

/* Checks that each stage has a layer. Refuses stages for a diffusion model, because all its layers
 * read values of its first section. */
static int check_stages(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const int pp = s->parallel.pp;
    if (pp <= 1 || !rules_known(s)) return 0;
    if (family_row(m)->task == MODEL_DIFFUSION)
        return err_field(e, ERR_UNSUPPORTED, "parallel.pp",
                         "parallel.pp %d: all layers of this family share values of the first "
                         "stage, make parallel.pp 1",
                         pp);
    if (pp > m->n_layers)
        return err_field(e, ERR_INVALID, "parallel.pp",
                         "parallel.pp %d: the model has %d layers, and each stage needs one", pp,
                         m->n_layers);
    return 0;
}

int rules_parallel(struct job_spec *s, struct err *e)
{
    const struct strategy_row *row = strategy_row(s->parallel.strategy);
    if (row && row->splits_model)
        return err_field(e, ERR_UNSUPPORTED, "parallel.strategy",
                         "parallel.strategy \"%s\" is no way to split a sequence: a training "
                         "shares layers between ranks by parallel.tp; choose \"auto\"",
                         strategy_word(s->parallel.strategy));
    if (check_groups(s, e)) return -1;
    set_auto(s);
    if ((rules_known(s) && check_strategy(s, e)) || check_exchange(s, e) || check_dropout(s, e) ||
        check_noise(s, e) || check_form(s, e) || check_stages(s, e))
        return -1;
    set_grid_way(s);
    row = strategy_row(s->parallel.strategy);
    return row && row->check && s->parallel.sp > 1 ? row->check(s, e) : 0;
}
