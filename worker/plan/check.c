/* check.c: the rules of families about objectives, data, positions and text. */
#include "worker/plan/check.h"

#include <stdio.h>
#include <string.h>
#include "api/core/err.h"
#include "api/core/job.h"
#include "worker/family/config.h"
#include "worker/family/family.h"
#include "worker/family/shape.h"
#include "worker/plan/plan.h"
#include "worker/plan/rules.h"

/* ---- text ------------------------------------------------------------------------------------ */

static int check_source_text(const struct job_spec *s, const struct spec_source *src,
                             const char *field, struct err *e)
{
    char what[64];
    if (src->format != DATA_TEXT) return 0; /* a line of jsonl may have ids */
    snprintf(what, sizeof what, "%s.format \"text\"", field);
    return job_refuse_text(s, field, what, e);
}

static int check_prompt_text(const struct job_spec *s, struct err *e)
{
    char field[32];
    if (*spec_text(s, s->input.prompt))
        return job_refuse_text(s, "input.prompt", "input.prompt", e);
    if (!job_has_bodies(s)) /* a body may have ids */
        return job_refuse_text(s, "input", "a prompt of input.path", e);
    for (int i = 0; i < SPEC_STOPS; i++) {
        snprintf(field, sizeof field, "sampling.stop.%d", i);
        if (*spec_text(s, s->sampling.stop[i])) return job_refuse_text(s, field, field, e);
    }
    return 0;
}

/* Adds AROUND tokens to data.seq_len if data.seq_len has its default. The default is one token for
 * each byte of an inline prompt, plus sampling.max_tokens. A tokenizer usually makes fewer tokens
 * than a prompt has bytes. But its post-processor may add ids at both ends, so a short prompt may
 * have more tokens than bytes. */
static void leave_room(struct job_spec *s)
{
    enum { AROUND = 8 };
    const char *prompt = spec_text(s, s->input.prompt);
    if (s->kind == JOB_GENERATE && *prompt &&
        s->data.seq_len == (int64_t)strlen(prompt) + s->sampling.max_tokens)
        s->data.seq_len += AROUND;
}

/* Checks the sources and prompts that are known to be text. It is called before a file is read. */
static int check_text(struct job_spec *s, struct err *e)
{
    char field[32];
    if (family_diffusion(&s->model.shape)) return 0;
    if (s->kind == JOB_MERGE && s->data.tokenizer == TOKENIZER_AUTO) return 0; /* has no text */
    if (s->data.tokenizer == TOKENIZER_BYTE && job_lacks_bytes(s))
        return err_field(e, ERR_INVALID, "model.config.vocab_size",
                         "model.config.vocab_size %lld: data.tokenizer \"byte\" needs at least %d",
                         (long long)s->model.shape.vocab, JOB_BYTE_VOCAB);
    if (job_reads_bytes(s)) {
        s->data.tokenizer = TOKENIZER_BYTE;
        return 0;
    }
    if (job_has_tokenizer(s)) {
        leave_room(s);
        return 0;
    }
    if (job_generates(s) || s->kind == JOB_SERVE) return check_prompt_text(s, e);
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

/* Returns the objective that "auto" means. For a diffusion model it is the objective that
 * config.json names. If config.json names none, it is the objective of the published weights. If
 * the weights are random, it is rectified flow. */
static enum objective_id own_objective(const struct job_spec *s, const struct family_row *f)
{
    if (f->task == MODEL_MASKED_LM) return OBJECTIVE_MASKED_LM;
    if (f->task != MODEL_DIFFUSION) return OBJECTIVE_CAUSAL_LM;
    if (s->model.shape.trained_on) return (enum objective_id)s->model.shape.trained_on;
    return f->published_on_noise && !spec_random_weights(s) ? OBJECTIVE_IDDPM
                                                            : OBJECTIVE_RECTIFIED_FLOW;
}

static int check_objective(struct job_spec *s, struct err *e)
{
    const struct family_row *f = family_row(&s->model.shape);
    const enum objective_id own = own_objective(s, f);
    if (s->kind != JOB_TRAIN && s->kind != JOB_VERIFY && !job_generates(s)) return 0;
    if (s->objective.type == OBJECTIVE_AUTO) s->objective.type = (int32_t)own;
    const bool causal = own == OBJECTIVE_CAUSAL_LM, can_pair = causal && !job_generates(s);
    if (s->objective.type != OBJECTIVE_DPO && rules_unpaired(s, can_pair, e)) return -1;
    if (f->task == MODEL_DIFFUSION) return rules_objective(s, e);
    if (s->objective.type == OBJECTIVE_DPO && causal) return rules_pairs(s, e);
    if (s->objective.type == (int32_t)own) return 0;
    return err_field(e, ERR_UNSUPPORTED, "objective.type",
                     "objective.type \"%s\": this family is trained on \"%s\": leave "
                     "objective.type out, or give a model.path of another family",
                     spec_objective_words[s->objective.type], spec_objective_words[own]);
}

/* Tells whether objective.mask_token has its default value, which is the mask of the byte
 * tokenizer. */
static bool mask_is_default(const struct job_spec *s)
{
    return s->objective.mask_token == spec_field("objective.mask_token")->fallback;
}

static int check_mask(struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const bool own = !job_reads_bytes(s) && mask_is_default(s);
    if (s->kind != JOB_TRAIN && s->kind != JOB_VERIFY) return 0;
    if (s->objective.mask_prob <= 0)
        return err_field(e, ERR_INVALID, "objective.mask_prob",
                         "objective.mask_prob 0 hides no token: there would be nothing to learn");
    if (own && m->mask) s->objective.mask_token = m->mask - 1;
    if (own && !m->mask)
        return err_field(e, ERR_INVALID, "objective.mask_token",
                         "objective.mask_token %lld hides bytes, and the ids of the model are not "
                         "bytes, nor does a tokenizer of model.path name a mask_token: give the id "
                         "of the model's own",
                         (long long)s->objective.mask_token);
    if (s->objective.mask_token < m->vocab) return 0;
    return err_field(e, ERR_INVALID, "model.config.vocab_size",
                     "vocab_size %lld has no id for what hides a token, objective.mask_token %lld: "
                     "make it at least %lld",
                     (long long)m->vocab, (long long)s->objective.mask_token,
                     (long long)s->objective.mask_token + 1);
}

bool rules_positions(const struct job_spec *s, int64_t n)
{
    const bool packed = s->kind == JOB_TRAIN || s->kind == JOB_VERIFY || s->kind == JOB_SCORE;
    return n <= family_positions(&s->model.shape) || (packed && s->data.reset_positions);
}

int64_t rules_longest(const struct job_spec *s, char field[RULES_FIELD_SIZE])
{
    int64_t longest = s->data.seq_len;
    snprintf(field, RULES_FIELD_SIZE, "data.seq_len");
    for (int i = 0; i < s->n_stages; i++)
        if (s->stages[i].seq_len > longest) {
            longest = s->stages[i].seq_len;
            snprintf(field, RULES_FIELD_SIZE, "stages.%d.seq_len", i);
        }
    return longest;
}

static int check_positions(struct job_spec *s, struct err *e)
{
    struct model_shape *m = &s->model.shape;
    char field[RULES_FIELD_SIZE];
    const int64_t longest = rules_longest(s, field);
    if (spec_new_model(s) && m->max_pos == (int64_t)1 << 20) /* the job does not give max_pos */
        m->max_pos = longest + m->first_pos;
    if (rules_positions(s, longest)) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s %lld: the model has a table of %lld positions, "
                     "max_position_embeddings%s: make it at most that%s",
                     field, (long long)longest, (long long)family_positions(m),
                     m->first_pos ? " less pad_token_id + 1" : "",
                     job_embeds(s) || job_generates(s)
                         ? ""
                         : ", or say data.reset_positions true for documents that fit in it");
}

static int check_masked(struct job_spec *s, struct err *e)
{
    if (job_generates(s) || s->kind == JOB_SCORE)
        return err_field(e, ERR_UNSUPPORTED, "kind",
                         "a %s job needs a model that tells the next token: this family reads both "
                         "ways, it can train, verify and embed",
                         spec_kind_name(s->kind));
    return check_mask(s, e);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Refuses latents unless the model is a diffusion model. */
static int check_format(const struct job_spec *s, const struct spec_source *src, const char *field,
                        struct err *e)
{
    const bool diffusion = family_diffusion(&s->model.shape);
    if ((src->format == DATA_LATENTS) == diffusion) return 0;
    return err_field(e, ERR_INVALID, field,
                     diffusion ? "%s.format: this family learns from \"latents\", a manifest of "
                                 "samples"
                               : "%s.format \"latents\": this family learns from tokens",
                     field);
}

/* Checks the id with which documents end in formats of tokens. It must be an id of the model. */
static int check_eod(const struct job_spec *s, const struct spec_source *src, const char *field,
                     struct err *e)
{
    char member[48];
    snprintf(member, sizeof member, "%s.eod", field);
    if (src->eod < s->model.shape.vocab || family_diffusion(&s->model.shape)) return 0;
    return err_field(e, ERR_INVALID, member,
                     "%s %lld is not an id of the model: its vocabulary has %lld, from 0", member,
                     (long long)src->eod, (long long)s->model.shape.vocab);
}

static int check_sources(const struct job_spec *s, const char *name, const struct spec_source *src,
                         int n, struct err *e)
{
    char field[32];
    for (int i = 0; i < n; i++) {
        snprintf(field, sizeof field, "%s.%d", name, i);
        if (check_format(s, &src[i], field, e) || check_eod(s, &src[i], field, e)) return -1;
    }
    return 0;
}

static int check_data(const struct job_spec *s, struct err *e)
{
    if (*spec_text(s, s->input.source.path) && check_eod(s, &s->input.source, "input", e))
        return -1;
    return check_sources(s, "data.train", s->data.train, s->data.n_train, e) ||
                   check_sources(s, "eval.data", s->eval.data, s->eval.n_data, e)
               ? -1
               : 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int check_weights(const struct job_spec *s, struct err *e)
{
    if (!s->model.shape.weightless || spec_random_weights(s)) return 0;
    return err_field(e, ERR_INVALID, "model.path",
                     "model.path has neither model.safetensors nor model.safetensors.index.json: "
                     "add its weights (seqctl model check has the line that converts a "
                     "pytorch_model.bin), name a .gguf file of it in model.path, or say model.init "
                     "\"random\" for a new model with this "
                     "directory's config.json and tokenizer");
}

/* Refuses weights without a head, such as weights that were saved from the model's base class.
 * Embed jobs need no head, and a merge leaves a model without one as it is. */
static int check_head(struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    struct model_shape less = *m;
    struct param first;
    s->model.shape.no_head = job_embeds(s) || (s->kind == JOB_MERGE && m->headless);
    if (!m->headless || m->no_head || spec_random_weights(s)) return 0;
    less.no_head = true;
    param_get(m, param_tensors(&less), &first);
    return err_field(e, ERR_INVALID, "model.path",
                     "model.path has no tensor %s: it was saved from its base class, and without a "
                     "head only embed jobs run: give a directory that has it",
                     first.name);
}

/* Checks the fields of a prompt. Its text is read later, with the data. */
static int check_prompt(const struct job_spec *s, struct err *e)
{
    const bool named = spec_text(s, s->embed.prompt_name)[0];
    if (named && !s->embed.prompts)
        return err_field(
            e, ERR_INVALID, "embed.prompt_name",
            "embed.prompt_name names a prompt and embed.prompts is false: leave one of "
            "them out");
    if (named && !spec_text(s, s->model.path)[0])
        return err_field(e, ERR_INVALID, "embed.prompt_name",
                         "embed.prompt_name names a prompt of model.path, which the job does not "
                         "have: write the prompt into the texts");
    if ((named || (s->embed.prompts && s->model.shape.prompted)) && s->model.shape.prompt_apart &&
        s->embed.pooling == POOLING_MEAN)
        return err_field(e, ERR_UNSUPPORTED, "embed.pooling",
                         "include_prompt is false in 1_Pooling of model.path: the mean leaves out "
                         "the prompt, which embed jobs do not: set embed.prompts to false");
    return 0;
}

/* Sets pooling and normalization to the values of the model's publisher. Fields that the job sets
 * are not changed. */
static int check_published(struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const bool pooled = s->embed.unsaid & EMBED_POOLING;
    char word[32];
    if (m->embed_module)
        return err_field(e, ERR_UNSUPPORTED, "model.path",
                         "modules.json of model.path has %s, which changes every vector and which "
                         "embed jobs do not compute: take it out for the vectors before it",
                         m->embed_module == MODULE_UNKNOWN
                             ? "a module of another kind"
                             : shape_embed_module_words[m->embed_module]);
    if (pooled && m->pooling > PUBLISHED_CLS)
        return err_field(e, ERR_UNSUPPORTED, "embed.pooling",
                         "1_Pooling of model.path pools by \"%s\", which embed jobs do not: "
                         "say embed.pooling last, mean or cls for other vectors",
                         shape_text(m, shape_field("pooling"), word));
    if (pooled && m->pooling) s->embed.pooling = m->pooling - 1;
    if (s->embed.unsaid & EMBED_NORMALIZE && m->normalizes)
        s->embed.normalize = m->normalizes == PUBLISHED_YES;
    s->embed.unsaid = 0;
    return check_prompt(s, e);
}

static int check_mlp(const struct job_spec *s, struct err *e)
{
    static const char field[] = "memory.mlp_chunk_tokens";
    if (s->memory.mlp_chunk_tokens <= 0 || family_mlps(&s->model.shape).dense) return 0;
    return err_field(e, ERR_UNSUPPORTED, field,
                     "memory.mlp_chunk_tokens %lld: only a dense MLP runs in pieces, and every "
                     "layer of this model has a mixture of experts: leave it out, or set it to 0",
                     (long long)s->memory.mlp_chunk_tokens);
}

/* Checks the rules that need the model's family. */
static int check_model(struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    const struct family_row *f = family_row(m);
    if (!m->vocab && f->task != MODEL_DIFFUSION)
        return err_field(e, ERR_INVALID, "model.config.vocab_size",
                         "model.config.vocab_size is 0: this family has a vocabulary");
    if (job_embeds(s) && check_published(s, e)) return -1;
    if (job_embeds(s) && s->embed.pooling == POOLING_CLS && f->task != MODEL_MASKED_LM)
        return err_field(
            e, ERR_UNSUPPORTED, "embed.pooling",
            "embed.pooling \"cls\": the first token has seen itself alone, use last or "
            "mean");
    if (check_weights(s, e) || check_data(s, e) || check_mlp(s, e)) return -1;
    if (f->task != MODEL_DIFFUSION && check_head(s, e)) return -1;
    if (f->task == MODEL_MASKED_LM && check_masked(s, e)) return -1;
    if (f->position_table && check_positions(s, e)) return -1;
    if (f->task == MODEL_DIFFUSION && rules_flow(s, e)) return -1;
    return check_text(s, e) || check_objective(s, e) ? -1 : 0;
}

static int complete(struct model_shape *m, struct err *e)
{
    return family_complete(m, e) || shape_check_ranges(m, e) ? -1 : 0;
}

int family_check(struct job_spec *s, struct err *e)
{
    /* The rules below need the sizes of the whole model. */
    s->model.shape.tp = s->model.shape.no_head = s->model.shape.quant = 0;
    s->model.shape.freeze.n_kinds = s->model.shape.adapter.rank = s->model.shape.adapters.n = 0;
    if (job_check(s, e) || rules_rope(s, e)) return -1;
    if (rules_known(s) && complete(&s->model.shape, e)) return rules_rope_error(s, e);
    if (rules_serve(s, e) || rules_in_time(s, e)) return -1;
    if (job_generates(s) && rules_generate(s, e)) return -1;
    if (rules_known(s) && check_model(s, e)) return -1;
    if (rules_parallel(s, e) || rules_states(s, e) || rules_offload(s, e)) return -1;
    if (rules_known(s)) config_keep(s);
    return rules_tensor(s, e) || rules_weights(s, e) || rules_adapters(s, e) ||
                   rules_adapter(s, e) || rules_freeze(s, e)
               ? -1
               : 0;
}
