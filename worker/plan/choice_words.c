/* choice_words.c: describes a choice in words and as JSON. */
#include "worker/plan/choice.h"

#include <stdio.h>
#include "api/core/job.h"
#include "worker/family/family.h"
#include "worker/plan/rules.h"
#include "worker/plan/sentence.h"
#include "worker/plan/strategy.h"
#include "worker/plan/weigh.h"
#include "worker/program/rope.h"

/* Adds the degrees, such as "sp 4 x dp 1" or "sp 4 in groups of 2 x dp 1 x pp 2 x tp 2, zero_group
 * 2". */
static void add_degrees(struct sentence *w, const struct option *o)
{
    sentence_add(w, "sp %d", o->sp);
    if (o->ulysses) sentence_add(w, " in groups of %d", o->ulysses);
    sentence_add(w, " x dp %d", o->dp);
    if (o->pp > 1) sentence_add(w, " x pp %d", o->pp);
    if (o->tp > 1) sentence_add(w, " x tp %d", o->tp);
    if (o->zero_group) sentence_add(w, ", zero_group %d", o->zero_group);
}

/* Adds the name of an option, such as "lasp by ring, sp 4 x dp 1". */
static void add_name(struct sentence *w, const struct option *o)
{
    sentence_add(w, "%s", strategy_word(o->strategy));
    if (strategy_row(o->strategy)->states && o->exchange != EXCHANGE_AUTO)
        sentence_add(w, " by %s", spec_field("parallel.exchange")->words[o->exchange]);
    sentence_add(w, ", ");
    add_degrees(w, o);
}

static void add_seconds(struct sentence *w, double s)
{
    if (s < 1e-3)
        sentence_add(w, "%.3g us", s * 1e6);
    else if (s < 1)
        sentence_add(w, "%.3g ms", s * 1e3);
    else
        sentence_add(w, "%.3g s", s);
}

/* Tells whether an option that divides the model is faster than the chosen option, but by less
 * than CHOICE_GAIN. */
static bool faster_one(const struct choice *c)
{
    bool any = false;
    for (int i = 1; i < c->n && c->timed; i++)
        any |= c->option[i].fits && c->option[i].time.step_s < c->option[0].time.step_s;
    return any;
}

static void explain(struct choice *c)
{
    struct sentence w = sentence_in(c->reason, sizeof c->reason);
    const struct option *b = &c->option[0], *second = c->n_fit > 1 ? b + 1 : NULL;
    char bytes[24];
    sentence_add(&w, "%s, ", strategy_word(b->strategy));
    add_degrees(&w, b);
    sentence_add(&w, ": ");
    if (!b->fits) {
        sentence_add(&w, "none of %d alternatives fits; this one needs least, %s per rank",
                     c->n_weighed, plan_bytes(bytes, b->size));
    } else if (c->asked) {
        sentence_add(&w, "asked for");
    } else if (!c->timed && c->products_weighed > 1) {
        sentence_add(&w,
                     "the first of %d products of ranks that fits; no machine has been measured, "
                     "so nothing was weighed by time",
                     c->products_weighed);
    } else if (!c->timed) {
        sentence_add(&w, "no machine has been measured, so nothing was weighed by time");
    } else if (!second) {
        sentence_add(&w, "the only one of %d alternatives that fits", c->n_weighed);
    } else {
        sentence_add(&w, "the fastest of %d that fit, ", c->n_fit);
        add_seconds(&w, b->time.step_s);
        sentence_add(&w, " a step; next ");
        add_name(&w, second);
        sentence_add(&w, ", ");
        add_seconds(&w, second->time.step_s);
    }
    if (faster_one(c))
        sentence_add(&w, ", where pp or tp that the job does not name must save %.0f%%",
                     100 * CHOICE_GAIN);
    if (c->products_weighed < c->n_products)
        sentence_add(&w,
                     "; %d of %d products of ranks were weighed: the limit is %d plans, or %d s",
                     c->products_weighed, c->n_products, CHOICE_PLANS, CHOICE_MS / 1000);
    if (c->waits)
        sentence_add(&w, "; parallel.form is planned as blockwise: how documents lie is not known "
                         "yet, and decides it when the data are prepared");
}

/* Returns the number of tokens of the longest sequence that the job computes. Sets *field to the
 * name of the job's field that gives this number. */
static int64_t longest(const struct job_spec *s, char field[RULES_FIELD_SIZE])
{
    const int64_t n = rules_longest(s, field);
    if (s->kind != JOB_VERIFY || s->verify.max_tokens >= n) return n;
    snprintf(field, RULES_FIELD_SIZE, "verify.max_tokens");
    return s->verify.max_tokens;
}

/* Warns if a ring is less than 1.1 times as fast as one rank. The warning comes before the job
 * runs. */
static void warn(const struct job_spec *s, struct choice *c)
{
    char field[RULES_FIELD_SIZE];
    struct sentence w = sentence_in(c->warning, sizeof c->warning);
    const struct option *b = &c->option[0];
    if (!c->timed || !b->fits || b->sp == 1 || !(c->alone_s > 0)) return;
    const double gain = c->alone_s / b->time.step_s / b->dp;
    if (gain >= 1.1) return;
    sentence_add(&w, "sequence parallelism will not help: ");
    if (family_diffusion(&s->model.shape))
        sentence_add(&w, "the largest sample fits");
    else
        sentence_add(&w, "sequences of %lld tokens fit", (long long)longest(s, field));
    sentence_add(&w, " one rank, which takes ");
    add_seconds(&w, c->alone_s / b->dp);
    sentence_add(&w, " a step, and %d ranks would take ", b->sp * b->pp * b->tp);
    add_seconds(&w, b->time.step_s);
    sentence_add(&w,
                 ": too short for what they exchange, or too few cores; take parallel.sp 1, longer "
                 "sequences, or parallel.dp");
}

/* Warns if YaRN's factor differs from max_position_embeddings divided by its original value. seqd
 * uses the factor. */
static void warn_rope(const struct model_shape *m, struct choice *c)
{
    double ratio;
    if (!rope_disagrees(m, &ratio)) return;
    struct sentence w = sentence_in(c->rope_warning, sizeof c->rope_warning);
    sentence_add(
        &w,
        "RoPE is scaled by factor %g as it is given, but max_position_embeddings is %g times "
        "original_max_position_embeddings: see that the factor is meant",
        m->rope.factor, ratio);
}

/* Warns if sequences have more positions than the rotary embedding is made for. If positions are
 * rows of a table, rules_positions refuses these sequences, so there is no warning. */
static void warn_length(const struct job_spec *s, struct choice *c)
{
    const struct model_shape *m = &s->model.shape;
    const bool packed = !job_generates(s) && !job_embeds(s) && s->data.reset_positions;
    const bool any = spec_new_model(s) && m->max_pos == CHOICE_ANY_POSITIONS;
    const double meant = rope_positions(m, s->model.rope.type != 0);
    char field[RULES_FIELD_SIZE];
    const int64_t n = longest(s, field);
    if (m->max_pos < 1 || any || family_diffusion(m) || family_row(m)->position_table ||
        (double)n <= meant || !family_rotates(m))
        return;
    struct sentence w = sentence_in(c->length_warning, sizeof c->length_warning);
    sentence_add(&w,
                 "%s %lld is longer than the %.0f positions that the model is meant for, by "
                 "max_position_embeddings %lld: ",
                 field, (long long)n, meant, (long long)m->max_pos);
    sentence_add(&w,
                 "%s beyond them; make %s smaller, or scale RoPE by model.rope.type and "
                 "model.rope.factor",
                 packed ? "longer documents have positions" : "longer sequences have positions",
                 field);
}

void choice_explain(const struct job_spec *checked, struct choice *c)
{
    explain(c);
    warn(checked, c);
    warn_rope(&checked->model.shape, c);
    warn_length(checked, c);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_option(const struct choice *c, int i, struct jwrite *w)
{
    const struct option *o = &c->option[i];
    jwrite_object(w, NULL);
    jwrite_str(w, "strategy", strategy_word(o->strategy));
    if (strategy_has_forms(o->strategy))
        jwrite_str(w, "form", spec_field("parallel.form")->words[o->form]);
    jwrite_str(w, "layout", spec_field("parallel.layout")->words[o->layout]);
    if (strategy_row(o->strategy)->states)
        jwrite_str(w, "exchange", spec_field("parallel.exchange")->words[o->exchange]);
    jwrite_int(w, "sp", o->sp);
    jwrite_int(w, "dp", o->dp);
    jwrite_int(w, "pp", o->pp);
    jwrite_int(w, "tp", o->tp);
    if (o->zero_group) jwrite_int(w, "zero_group", o->zero_group);
    if (o->ulysses) jwrite_int(w, "ulysses", o->ulysses);
    jwrite_str(w, "recompute", spec_field("memory.recompute")->words[o->recompute]);
    if (o->mlp_chunk) jwrite_int(w, "mlp_chunk_tokens", o->mlp_chunk);
    if (o->offload != OFFLOAD_NONE)
        jwrite_str(w, "offload", spec_field("memory.offload")->words[o->offload]);
    if (o->size) {
        jwrite_bool(w, "fits", o->fits);
        jwrite_int(w, "bytes", o->size);
    }
    jwrite_int(w, "comm_bytes", o->bytes);
    jwrite_int(w, "comm_messages", o->messages);
    if (c->timed) jwrite_double(w, "step_s", o->time.step_s);
    jwrite_bool(w, "chosen", i == 0);
    if (o->note) jwrite_str(w, "note", o->note);
    jwrite_end(w);
}

static void write_estimate(const struct choice *c, struct jwrite *w)
{
    const struct estimate *t = &c->option[0].time;
    jwrite_object(w, "estimate");
    jwrite_double(w, "step_s", t->step_s);
    jwrite_double(w, "compute_s", t->compute_s);
    jwrite_double(w, "exchange_s", t->exchange_s);
    if (t->offload_s > 0) jwrite_double(w, "offload_s", t->offload_s);
    if (t->bubble_s > 0) jwrite_double(w, "bubble_s", t->bubble_s);
    jwrite_double(w, "hidden_s", t->hidden_s);
    jwrite_double(w, "tokens_s", t->tokens_s);
    if (c->alone_s > 0) jwrite_double(w, "times_one_rank", c->alone_s / t->step_s);
    jwrite_end(w);
}

/* Writes the rate of the largest size. */
static void write_rate(struct jwrite *w, const char *key, const double rate[PROFILE_SIZES])
{
    jwrite_double(w, key, rate[PROFILE_SIZES - 1] * 1e-9);
}

static void write_machine(const struct machine *m, struct jwrite *w)
{
    jwrite_object(w, "machine");
    jwrite_str(w, "source", m->measured ? "measured by a node" : "given");
    write_rate(w, "gemm_f32_gflops", m->rate[RATE_GEMM][PRECISION_FP32]);
    write_rate(w, "gemm_bf16_gflops", m->rate[RATE_GEMM][PRECISION_BF16]);
    write_rate(w, "attention_f32_gflops", m->rate[RATE_ATTN][PRECISION_FP32]);
    write_rate(w, "attention_bf16_gflops", m->rate[RATE_ATTN][PRECISION_BF16]);
    write_rate(w, "linear_attention_gflops", m->rate[RATE_LINEAR][PRECISION_FP32]);
    jwrite_double(w, "link_gbs", m->link * 1e-9);
    jwrite_double(w, "network_gbs", m->network * 1e-9);
    jwrite_double(w, "hop_us", m->hop * 1e6);
    if (m->cores > 0) jwrite_double(w, "cores", m->cores);
    jwrite_end(w);
}

void choice_write(const struct choice *c, const struct machine *m, int n_options, struct jwrite *w)
{
    const int n = n_options < c->n ? n_options : c->n;
    if (!c->n) return;
    jwrite_str(w, "choice", c->reason);
    jwrite_array(w, "weighed");
    for (int i = 0; i < n; i++) write_option(c, i, w);
    for (int i = c->n; i < c->n + c->n_compared; i++) write_option(c, i, w);
    jwrite_end(w);
    jwrite_object(w, "products");
    jwrite_int(w, "weighed", c->products_weighed);
    jwrite_int(w, "of", c->n_products);
    jwrite_int(w, "plans", c->n_plans);
    jwrite_end(w);
    if (c->timed) write_estimate(c, w);
    if (c->timed) write_machine(m, w);
    if (c->max_seq_len > 0) {
        jwrite_object(w, "limits");
        jwrite_int(w, c->frames ? "max_frames" : "max_seq_len", c->max_seq_len);
        if (!c->frames) jwrite_int(w, "max_batch", c->max_batch);
        jwrite_int(w, c->frames ? "max_frames_one_ring" : "max_seq_len_one_ring", c->longest);
        jwrite_end(w);
    }
    jwrite_array(w, "warnings");
    if (*c->warning) jwrite_str(w, NULL, c->warning);
    if (*c->rope_warning) jwrite_str(w, NULL, c->rope_warning);
    if (*c->length_warning) jwrite_str(w, NULL, c->length_warning);
    jwrite_end(w);
}
