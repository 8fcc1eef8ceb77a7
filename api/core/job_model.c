/* job_model.c: rules about families, strategies and objectives: which go together. */
#include "api/core/job.h"

#include <assert.h>
#include <stdio.h>

/* By enum model_family. */
static const struct family_traits families[FAMILY_N] = {
    [FAMILY_LLAMA] = {.softmax = true},
    [FAMILY_BERT] = {.softmax = true, .masked = true},
    [FAMILY_TNL] = {.linear = true},
    [FAMILY_LINEAR] = {.linear = true},
    [FAMILY_RETNET] = {.linear = true},
    [FAMILY_MINIMAX] = {.linear = true, .softmax = true},
    [FAMILY_STDIT] = {.softmax = true, .diffusion = true, .noise = true},
    [FAMILY_STDIT3] = {.softmax = true, .diffusion = true},
    [FAMILY_LATTE] = {.softmax = true, .diffusion = true, .noise = true},
    [FAMILY_T2D] = {.softmax = true, .diffusion = true},
};

const struct family_traits *family_traits(int32_t family)
{
    assert(family >= 0 && family < FAMILY_N);
    return &families[family];
}

/* Else a model.path that nobody has described yet. */
static bool known(const struct job_spec *s)
{
    return s->model.has_config || s->model.shape.width > 0;
}

/* ---- strategies ------------------------------------------------------------------------------ */

/* The one that splits this family's sequences. */
static enum strategy_id strategy_of(const struct family_traits *f)
{
    return f->diffusion ? STRATEGY_DSP : f->linear ? STRATEGY_LASP : STRATEGY_RSA;
}

static bool strategy_fits(const struct family_traits *f, int strategy)
{
    switch (strategy) {
    case STRATEGY_LASP: return f->linear;
    case STRATEGY_DSP: return f->diffusion;
    case STRATEGY_RSA:
    case STRATEGY_ULYSSES:
    case STRATEGY_TP:
    case STRATEGY_TP_SP: return f->softmax && !f->linear && !f->diffusion;
    default: return true;
    }
}

/* Before strategies and layouts that are "auto" become what the decoder takes. */
static int check_strategy(struct job_spec *s, struct err *e)
{
    static const char *const words[] = {
        [STRATEGY_LASP] = "lasp", [STRATEGY_DSP] = "dsp",         [STRATEGY_RSA] = "rsa",
        [STRATEGY_TP] = "tp",     [STRATEGY_ULYSSES] = "ulysses", [STRATEGY_TP_SP] = "tp_sp"};
    const struct family_traits *f = family_traits(s->model.shape.family);
    if (s->parallel.strategy == STRATEGY_AUTO && s->parallel.sp > 1)
        s->parallel.strategy = strategy_of(f);
    if (!strategy_fits(f, s->parallel.strategy))
        return err_field(
            e, ERR_UNSUPPORTED, "parallel.strategy",
            "parallel.strategy \"%s\" does not split the attention of this family: use "
            "\"%s\"",
            words[s->parallel.strategy], words[strategy_of(f)]);
    if (s->parallel.layout == LAYOUT_AUTO && (f->linear || f->masked || f->diffusion))
        s->parallel.layout = LAYOUT_CONTIGUOUS;
    if (s->parallel.layout == LAYOUT_ZIGZAG && (f->linear || f->diffusion))
        return err_field(e, ERR_UNSUPPORTED, "parallel.layout",
                         "parallel.layout \"zigzag\": %s, use \"contiguous\"",
                         f->linear ? "states pass from one rank's tokens to those that follow"
                                   : "dsp shards whole dimensions");
    return 0;
}

/* ---- text ------------------------------------------------------------------------------------ */

bool job_reads_bytes(const struct job_spec *s)
{
    const int32_t of_model = s->model.shape.tokenizer;
    return s->data.tokenizer == TOKENIZER_BYTE || of_model == TOKENIZER_AUTO ||
           of_model == TOKENIZER_BYTE;
}

int job_refuse_text(const struct job_spec *s, const char *field, const char *what, struct err *e)
{
    const bool own = s->model.shape.tokenizer == TOKENIZER_OWN;
    return err_field(e, ERR_UNSUPPORTED, field,
                     "%s is text, and %s: give token ids (\"input_ids\" of jsonl, llmc, nanogpt, "
                     "megatron, npy; a list as the \"prompt\" of an openai_batch), or say "
                     "data.tokenizer \"byte\" to use the model on bytes, whatever its ids meant",
                     what,
                     own ? "model.path has a tokenizer of its own, which seqd does not run"
                         : "model.path has no tokenizer, so that nothing says what its ids mean");
}

static int check_source_text(const struct job_spec *s, const struct spec_source *src,
                             const char *field, struct err *e)
{
    char what[64];
    if (src->format != DATA_TEXT) return 0; /* a line of jsonl may hold ids */
    snprintf(what, sizeof what, "%s.format \"text\"", field);
    return job_refuse_text(s, field, what, e);
}

static int check_prompt_text(const struct job_spec *s, struct err *e)
{
    char field[32];
    if (*spec_text(s, s->input.prompt))
        return job_refuse_text(s, "input.prompt", "input.prompt", e);
    if (s->input.source.format != DATA_OPENAI_BATCH)
        return job_refuse_text(s, "input", "a prompt of input.path", e);
    for (int i = 0; i < SPEC_STOPS; i++) {
        snprintf(field, sizeof field, "sampling.stop.%d", i);
        if (*spec_text(s, s->sampling.stop[i])) return job_refuse_text(s, field, field, e);
    }
    return 0;
}

/* What is known to be text before a file is read. */
static int check_text(struct job_spec *s, struct err *e)
{
    char field[32];
    if (family_traits(s->model.shape.family)->diffusion) return 0;
    if (job_reads_bytes(s)) {
        s->data.tokenizer = TOKENIZER_BYTE;
        return 0;
    }
    if (s->kind == JOB_GENERATE) return check_prompt_text(s, e);
    if (s->kind == JOB_SCORE || s->kind == JOB_EMBED)
        return check_source_text(s, &s->input.source, "input", e);
    for (int i = 0; i < s->data.n_train; i++) {
        snprintf(field, sizeof field, "data.train.%d", i);
        if (check_source_text(s, &s->data.train[i], field, e)) return -1;
    }
    for (int i = 0; i < s->eval.n_data; i++) {
        snprintf(field, sizeof field, "eval.data.%d", i);
        if (check_source_text(s, &s->eval.data[i], field, e)) return -1;
    }
    return 0;
}

/* ---- objectives ------------------------------------------------------------------------------ */

/* Weights of another objective give a picture of noise, and no number says so. */
static int check_trained(const struct job_spec *s, const struct family_traits *f, struct err *e)
{
    const bool latte = s->model.shape.family == FAMILY_LATTE;
    if (!f->noise || s->model.has_config || s->objective.type != OBJECTIVE_AUTO ||
        s->model.shape.trained_on != OBJECTIVE_AUTO)
        return 0;
    return err_field(e, ERR_INVALID, "objective.type",
                     "objective.type is missing: %s as published was trained to predict noise, "
                     "seqd trains and samples rectified flow, and the config.json of model.path "
                     "does not say which of them its weights were trained on: if it was rectified "
                     "flow, say \"rectified_flow\"",
                     latte ? "Latte" : "STDiT 1.0");
}

static int check_objective(struct job_spec *s, struct err *e)
{
    static const char *const words[] = {[OBJECTIVE_CAUSAL_LM] = "causal_lm",
                                        [OBJECTIVE_MASKED_LM] = "masked_lm",
                                        [OBJECTIVE_RECTIFIED_FLOW] = "rectified_flow"};
    const struct family_traits *f = family_traits(s->model.shape.family);
    const enum objective_id own = f->diffusion ? OBJECTIVE_RECTIFIED_FLOW
                                  : f->masked  ? OBJECTIVE_MASKED_LM
                                               : OBJECTIVE_CAUSAL_LM;
    if (s->kind != JOB_TRAIN && s->kind != JOB_VERIFY && s->kind != JOB_GENERATE) return 0;
    if (check_trained(s, f, e)) return -1;
    if (s->objective.type == OBJECTIVE_AUTO) s->objective.type = own;
    if (s->objective.type == (int32_t)own) return 0;
    return err_field(e, ERR_UNSUPPORTED, "objective.type",
                     "objective.type \"%s\": this family is trained on \"%s\"",
                     words[s->objective.type], words[own]);
}

static int check_mask(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    if (s->kind != JOB_TRAIN && s->kind != JOB_VERIFY) return 0;
    if (s->objective.mask_prob <= 0)
        return err_field(e, ERR_INVALID, "objective.mask_prob",
                         "objective.mask_prob 0 hides no token: there would be nothing to learn");
    if (!job_reads_bytes(s) &&
        s->objective.mask_token == spec_field("objective.mask_token")->fallback)
        return err_field(e, ERR_INVALID, "objective.mask_token",
                         "objective.mask_token %lld hides bytes, and the ids of model.path are not "
                         "bytes: give the id of the model's own mask token",
                         (long long)s->objective.mask_token);
    if (s->objective.mask_token < m->vocab) return 0;
    return err_field(e, ERR_INVALID, "model.config.vocab_size",
                     "vocab_size %lld has no id for what hides a token, objective.mask_token %lld: "
                     "make it at least %lld",
                     (long long)m->vocab, (long long)s->objective.mask_token,
                     (long long)s->objective.mask_token + 1);
}

/* Positions are rows of a table: no sequence may be longer. */
static int check_positions(struct job_spec *s, struct err *e)
{
    struct model_shape *m = &s->model.shape;
    int64_t longest = s->data.seq_len;
    for (int i = 0; i < s->n_stages; i++)
        if (s->stages[i].seq_len > longest) longest = s->stages[i].seq_len;
    if (s->model.has_config && m->max_pos == (int64_t)1 << 20) /* not said */
        m->max_pos = longest;
    if (longest <= m->max_pos) return 0;
    return err_field(e, ERR_INVALID, "data.seq_len",
                     "data.seq_len %lld: the model has a table of %lld positions, "
                     "max_position_embeddings",
                     (long long)longest, (long long)m->max_pos);
}

static int check_masked_family(struct job_spec *s, struct err *e)
{
    if (s->kind == JOB_GENERATE || s->kind == JOB_SCORE)
        return err_field(e, ERR_UNSUPPORTED, "kind",
                         "a %s job needs a model that tells the next token: this family reads both "
                         "ways, it can train, verify and embed",
                         kind_name(s->kind));
    return check_mask(s, e) || check_positions(s, e) ? -1 : 0;
}

/* ---- diffusion ------------------------------------------------------------------------------- */

int job_check_latents(const struct job_spec *s, struct err *e)
{
    static const char *const fields[] = {"data.frames", "data.height", "data.width"};
    const int64_t size[] = {s->data.frames, s->data.height, s->data.width};
    for (int i = 0; i < 3; i++)
        if (size[i] < 1)
            return err_field(e, ERR_INVALID, fields[i],
                             "%s is missing: how large the largest sample's latents are (z is [C, "
                             "data.frames, data.height, data.width])",
                             fields[i]);
    const double n = (double)size[0] * (double)size[1] * (double)size[2];
    if (n > (double)JOB_MAX_SEQ)
        return err_field(e, ERR_TOO_LARGE, "data.frames",
                         "data.frames x data.height x data.width is %.0f: at most %lld", n,
                         (long long)JOB_MAX_SEQ);
    if (s->data.seq_len != (int64_t)n)
        return err_field(e, ERR_INVALID, "data.seq_len",
                         "data.seq_len %lld: latents have data.frames, data.height and data.width "
                         "instead: leave it out",
                         (long long)s->data.seq_len);
    return 0;
}

static int no_tokens(struct err *e, const char *field, const char *instead)
{
    return err_field(e, ERR_UNSUPPORTED, field,
                     "%s counts tokens, and samples of latents are of any size: %s", field,
                     instead);
}

static int check_lengths(const struct job_spec *s, struct err *e)
{
    char field[40];
    if (s->train.tokens) return no_tokens(e, "train.tokens", "give train.steps or train.passes");
    if (s->eval.seq_len) return no_tokens(e, "eval.seq_len", "leave it out");
    if (s->eval.max_tokens)
        return no_tokens(e, "eval.max_tokens", "name fewer samples in eval.data");
    for (int i = 0; i < s->n_stages; i++) {
        snprintf(field, sizeof field, "stages.%d.seq_len", i);
        if (s->stages[i].seq_len) return no_tokens(e, field, "leave it out");
        snprintf(field, sizeof field, "stages.%d.rope_theta", i);
        if (s->stages[i].rope_theta > 0)
            return err_field(e, ERR_UNSUPPORTED, field,
                             "%s: this family's rotary base is part of its definition: leave it "
                             "out",
                             field);
    }
    return 0;
}

static int check_flow(const struct job_spec *s, struct err *e)
{
    double sum = 0;
    for (int i = 0; i < 4; i++) sum += s->objective.frame_mask[i];
    if (sum > 1 + 1e-9)
        return err_field(
            e, ERR_INVALID, "objective.frame_mask",
            "objective.frame_mask: its shares of the samples add up to %g, more than 1", sum);
    return job_check_latents(s, e) || check_lengths(s, e) ? -1 : 0;
}

/* What else a job of a diffusion model must keep to. */
static int check_diffusion(const struct job_spec *s, struct err *e)
{
    switch (s->kind) {
    case JOB_TRAIN:
    case JOB_VERIFY: return check_flow(s, e);
    case JOB_GENERATE: return job_check_latents(s, e); /* the rest: job_infer.c */
    default:
        return err_field(e, ERR_UNSUPPORTED, "kind",
                         "a %s job reads tokens: this family is trained on latents, it can train, "
                         "verify and generate",
                         kind_name(s->kind));
    }
}

/* Latents for diffusion models, and for nobody else. */
static int check_format(const struct job_spec *s, const struct spec_source *src, const char *field,
                        struct err *e)
{
    const bool diffusion = family_traits(s->model.shape.family)->diffusion;
    if ((src->format == DATA_LATENTS) == diffusion) return 0;
    return err_field(e, ERR_INVALID, field,
                     diffusion ? "%s.format: this family learns from \"latents\", a manifest of "
                                 "samples"
                               : "%s.format \"latents\": this family learns from tokens",
                     field);
}

static int check_formats(const struct job_spec *s, struct err *e)
{
    char field[32];
    for (int i = 0; i < s->data.n_train; i++) {
        snprintf(field, sizeof field, "data.train.%d", i);
        if (check_format(s, &s->data.train[i], field, e)) return -1;
    }
    for (int i = 0; i < s->eval.n_data; i++) {
        snprintf(field, sizeof field, "eval.data.%d", i);
        if (check_format(s, &s->eval.data[i], field, e)) return -1;
    }
    return 0;
}

static int check_family(struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const struct family_traits *f = family_traits(m->family);
    if (m->window > 0 && m->family != FAMILY_LLAMA)
        return err_field(e, ERR_UNSUPPORTED, "model.config.sliding_window",
                         "sliding_window: this family has none");
    if (s->kind == JOB_EMBED && s->embed.pooling == POOLING_CLS && !f->masked)
        return err_field(
            e, ERR_UNSUPPORTED, "embed.pooling",
            "embed.pooling \"cls\": the first token has seen itself alone, use last or "
            "mean");
    if (check_formats(s, e)) return -1;
    return f->masked ? check_masked_family(s, e) : f->diffusion ? check_diffusion(s, e) : 0;
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
    const struct family_traits *f = family_traits(s->model.shape.family);
    const bool ranks = s->determinism == DET_RANKS;
    const int form = s->parallel.form;
    const bool two_pass = form == FORM_TWO_PASS || form == FORM_TWO_PASS_SCATTER;
    if (s->train.attention_dropout > 0 && (f->linear || f->diffusion))
        return err_field(e, ERR_UNSUPPORTED, "train.attention_dropout",
                         "train.attention_dropout drops weights of softmax attention over a "
                         "sequence: not with this family, whose layers have other attention");
    if (two_pass && (f->linear || f->diffusion))
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
    return s->parallel.strategy == STRATEGY_ULYSSES && s->parallel.sp > 1 ? check_ulysses(s, e) : 0;
}

/* ---- LASP in time ---------------------------------------------------------------------------- */

/* A walk keeps nothing between its windows but states, and sums gradients as it goes. */
static int check_in_time(const struct job_spec *s, struct err *e)
{
    static const char field[] = "memory.time_chunk";
    const struct family_traits *f = family_traits(s->model.shape.family);
    if (s->kind != JOB_TRAIN)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: only a training is walked in windows: set it to 0");
    if (known(s) && (!f->linear || f->softmax))
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: a window knows of those before it what the states of "
                         "linear attention say, and this family has layers of softmax attention");
    if (s->determinism == DET_RANKS)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: gradients are summed over windows, which "
                         "determinism \"ranks\" does not order: want \"run\"");
    if (s->parallel.zero >= 2)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: gradients are summed over windows, so that every rank "
                         "holds them: want parallel.zero 0 or 1, not %d",
                         s->parallel.zero);
    if (s->n_stages || s->eval.n_data || s->verify.first_step)
        return err_field(e, ERR_UNSUPPORTED, field,
                         "memory.time_chunk: %s would need whole sequences at once: leave it out",
                         s->n_stages      ? "stages"
                         : s->eval.n_data ? "eval"
                                          : "verify.first_step");
    return 0;
}

static int check_context(const struct job_spec *s, struct err *e)
{
    const struct family_traits *f = family_traits(s->model.shape.family);
    const char *field = s->context.save ? "context.save" : "context.load";
    if (s->kind != JOB_GENERATE)
        return err_field(e, ERR_UNSUPPORTED, field, "%s: only generate jobs have a context", field);
    if (known(s) && (!f->linear || f->softmax))
        return err_field(
            e, ERR_UNSUPPORTED, field,
            "%s: a context is what the states of linear attention say, and this family "
            "has layers of softmax attention",
            field);
    return 0;
}

int job_check_model(struct job_spec *s, struct err *e)
{
    if (known(s) &&
        (check_family(s, e) || check_text(s, e) || check_objective(s, e) || check_strategy(s, e)))
        return -1;
    if (s->parallel.strategy == STRATEGY_TP || s->parallel.strategy == STRATEGY_TP_SP)
        return err_field(
            e, ERR_UNSUPPORTED, "parallel.strategy",
            "parallel.strategy \"tp\" and \"tp_sp\" are there to be compared with in "
            "plans: jobs do not run tensor parallelism; choose \"rsa\" or \"ulysses\"");
    if (check_attention(s, e)) return -1;
    if (s->memory.time_chunk > 0 && check_in_time(s, e)) return -1;
    if ((*spec_text(s, s->context.load) || s->context.save) && check_context(s, e)) return -1;
    return 0;
}
