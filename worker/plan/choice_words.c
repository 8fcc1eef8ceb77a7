/* choice_words.c: a choice in words and as JSON. */
#include "worker/plan/choice.h"

#include <stdio.h>
#include <string.h>
#include "api/core/job.h"
#include "worker/plan/strategy.h"
#include "worker/plan/weigh.h"
#include "worker/program/rope.h"

/* "lasp by ring, sp 4 x dp 1" */
static char *name_of(char out[64], const struct option *o)
{
    const bool states = strategy_row(o->strategy)->states && o->exchange != EXCHANGE_AUTO;
    snprintf(out, 64, "%s%s%s, sp %d x dp %d", strategy_word(o->strategy), states ? " by " : "",
             states ? spec_field("parallel.exchange")->words[o->exchange] : "", o->sp, o->dp);
    return out;
}

static char *seconds(char out[32], double s)
{
    if (s < 1e-3)
        snprintf(out, 32, "%.3g us", s * 1e6);
    else if (s < 1)
        snprintf(out, 32, "%.3g ms", s * 1e3);
    else
        snprintf(out, 32, "%.3g s", s);
    return out;
}

static void explain(struct choice *c)
{
    const struct option *b = &c->option[c->best], *second = NULL;
    char mine[32], other[32], bytes[24], name[64];
    int n_fit = 0;
    for (int i = 0; i < c->n; i++) {
        const struct option *o = &c->option[i];
        n_fit += o->fits;
        if (i != c->best && o->fits && (!second || weigh_better(c, o, second))) second = o;
    }
    size_t n = (size_t)snprintf(c->reason, sizeof c->reason,
                                "%s, sp %d x dp %d: ", strategy_word(b->strategy), b->sp, b->dp);
    if (!b->fits)
        snprintf(c->reason + n, sizeof c->reason - n,
                 "none of %d alternatives fits; this one needs least, %s per rank", c->n,
                 plan_bytes(bytes, b->size));
    else if (c->asked)
        snprintf(c->reason + n, sizeof c->reason - n, "asked for");
    else if (!c->timed)
        snprintf(c->reason + n, sizeof c->reason - n,
                 "no machine has been measured, so nothing was weighed by time");
    else if (!second)
        snprintf(c->reason + n, sizeof c->reason - n, "the only one of %d alternatives that fits",
                 c->n);
    else
        snprintf(c->reason + n, sizeof c->reason - n,
                 "the fastest of %d that fit, %s a step; next %s, %s", n_fit,
                 seconds(mine, b->time.step_s), name_of(name, second),
                 seconds(other, second->time.step_s));
    n = strlen(c->reason);
    if (c->waits)
        snprintf(c->reason + n, sizeof c->reason - n,
                 "; parallel.form is planned as blockwise: how documents lie is not known yet, and "
                 "decides it when the data are prepared");
}

/* A ring costs time where one rank would have done: worth a sentence before it is paid for. */
static void warn(const struct job_spec *asked, struct choice *c)
{
    const struct option *b = &c->option[c->best];
    char alone_s[32], ours[32], what[64] = "the largest sample fits"; /* of latents */
    if (!c->timed || !b->fits || b->sp == 1 || !(c->alone_s > 0)) return;
    const double gain = c->alone_s / b->time.step_s / b->dp;
    if (gain >= 1.1) return;
    if (asked->data.seq_len > 0)
        snprintf(what, sizeof what, "sequences of %lld tokens fit", (long long)asked->data.seq_len);
    snprintf(c->warning, sizeof c->warning,
             "sequence parallelism will not help: %s one rank, which "
             "takes %s a step, and %d ranks would take %s: too short for what they exchange, or "
             "too few cores; take parallel.sp 1, longer sequences, or parallel.dp",
             what, seconds(alone_s, c->alone_s / b->dp), b->sp, seconds(ours, b->time.step_s));
}

/* Two keys of a file say by how much a length was stretched, and the factor counts. */
static void warn_rope(const struct model_shape *m, struct choice *c)
{
    double ratio;
    if (!rope_disagrees(m, &ratio)) return;
    snprintf(c->rope_warning, sizeof c->rope_warning,
             "RoPE is scaled by factor %g as it is given, but max_position_embeddings is %g times "
             "original_max_position_embeddings: see that the factor is meant",
             m->rope.factor, ratio);
}

void choice_explain(const struct job_spec *asked, const struct job_spec *checked, struct choice *c)
{
    explain(c);
    warn(asked, c);
    warn_rope(&checked->model.shape, c);
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
    jwrite_str(w, "recompute", spec_field("memory.recompute")->words[o->recompute]);
    if (o->mlp_chunk) jwrite_int(w, "mlp_chunk_tokens", o->mlp_chunk);
    if (o->size) {
        jwrite_bool(w, "fits", o->fits);
        jwrite_int(w, "bytes", o->size);
    }
    jwrite_int(w, "comm_bytes", o->bytes);
    jwrite_int(w, "comm_messages", o->messages);
    if (c->timed) jwrite_double(w, "step_s", o->time.step_s);
    jwrite_bool(w, "chosen", i == c->best);
    jwrite_bool(w, "runs", o->runs);
    if (o->note) jwrite_str(w, "note", o->note);
    jwrite_end(w);
}

static void write_estimate(const struct choice *c, struct jwrite *w)
{
    const struct estimate *t = &c->option[c->best].time;
    jwrite_object(w, "estimate");
    jwrite_double(w, "step_s", t->step_s);
    jwrite_double(w, "compute_s", t->compute_s);
    jwrite_double(w, "exchange_s", t->exchange_s);
    jwrite_double(w, "hidden_s", t->hidden_s);
    jwrite_double(w, "tokens_s", t->tokens_s);
    if (c->alone_s > 0) jwrite_double(w, "times_one_rank", c->alone_s / t->step_s);
    jwrite_end(w);
}

/* At the largest size. */
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

void choice_write(const struct choice *c, const struct machine *m, struct jwrite *w)
{
    if (!c->n) return;
    jwrite_str(w, "choice", c->reason);
    jwrite_array(w, "weighed");
    for (int i = 0; i < c->n + c->n_compared; i++) write_option(c, i, w);
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
    jwrite_end(w);
}
