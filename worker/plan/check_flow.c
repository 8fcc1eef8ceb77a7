/* check_flow.c: the rules of a job of a diffusion model. */
#include <stdio.h>
#include "worker/family/family.h"
#include "worker/plan/noise.h"
#include "worker/plan/rules.h"

int rules_latents(const struct job_spec *s, struct err *e)
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
    return rules_latents(s, e) || check_lengths(s, e) ? -1 : 0;
}

/* ---- objectives ------------------------------------------------------------------------------ */

/* Checks a job that predicts noise. Refuses fields that have no effect if noise is predicted. */
static int check_noise(const struct job_spec *s, struct err *e)
{
    const struct model_shape *m = &s->model.shape;
    static const char *const frames[] = {"random", "head", "tail", "head_tail"};
    char field[40];
    if (m->out_channels != 2 * m->in_channels)
        return err_field(e, ERR_INVALID, "objective.type",
                         "objective.type \"iddpm\" learns a variance beside each value: it needs "
                         "out_channels of twice in_channels, %lld, and this model has %lld "
                         "(pred_sigma or learn_sigma of config.json)",
                         2 * (long long)m->in_channels, (long long)m->out_channels);
    if (!s->objective.transform)
        return err_field(e, ERR_INVALID, "objective.transform",
                         "objective.transform is about the times of rectified_flow, and iddpm has "
                         "steps: leave it out");
    for (int i = 0; i < 4; i++) {
        if (s->objective.frame_mask[i] <= 0) continue;
        snprintf(field, sizeof field, "objective.frame_mask.%s", frames[i]);
        return err_field(e, ERR_UNSUPPORTED, field,
                         "%s: frames are given clean under rectified_flow alone: leave it out",
                         field);
    }
    if (s->kind == JOB_GENERATE && (s->sampling.steps < 2 || s->sampling.steps > NOISE_STEPS))
        return err_field(e, ERR_INVALID, "sampling.steps",
                         "sampling.steps %lld: a model that predicts noise is sampled in 2 to %d",
                         (long long)s->sampling.steps, NOISE_STEPS);
    return 0;
}

/* Refuses to sample by an objective other than the objective with which the weights were trained.
 * The picture would be noise, and no number would show this. */
static int check_trained(const struct job_spec *s, struct err *e)
{
    const int32_t on = s->model.shape.trained_on;
    if (s->kind != JOB_GENERATE || !on || on == s->objective.type) return 0;
    return err_field(e, ERR_INVALID, "objective.type",
                     "objective.type \"%s\": the config.json of model.path says that its weights "
                     "were trained on \"%s\": leave it out",
                     spec_objective_words[s->objective.type], spec_objective_words[on]);
}

/* Refuses terms of the loss of tokens. */
static int check_tokens(const struct job_spec *s, struct err *e)
{
    const bool z = s->objective.z_loss > 0;
    const char *field = z ? "objective.z_loss" : "objective.label_smoothing";
    const double value = z ? s->objective.z_loss : s->objective.label_smoothing;
    if (value <= 0) return 0;
    return err_field(e, ERR_INVALID, field,
                     "%s %g: a diffusion model has no logits of tokens: leave it out", field,
                     value);
}

int rules_objective(struct job_spec *s, struct err *e)
{
    const int32_t type = s->objective.type;
    const bool noise = type == OBJECTIVE_IDDPM;
    if (!noise && type != OBJECTIVE_RECTIFIED_FLOW)
        return err_field(e, ERR_UNSUPPORTED, "objective.type",
                         "objective.type \"%s\": this family is trained on \"rectified_flow\" or "
                         "\"iddpm\"",
                         spec_objective_words[type]);
    if (check_tokens(s, e) || check_trained(s, e) || (noise && check_noise(s, e))) return -1;
    if (!noise && s->kind == JOB_GENERATE && s->sampling.eta)
        return err_field(e, ERR_INVALID, "sampling.eta",
                         "sampling.eta 1: ancestral sampling is of models that predict noise "
                         "(iddpm), and this one follows rectified_flow: leave it out");
    /* programs depend on trained_on, and saved files contain names that depend on it */
    s->model.shape.trained_on = type;
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

int rules_flow(const struct job_spec *s, struct err *e)
{
    switch (s->kind) {
    case JOB_TRAIN:
    case JOB_VERIFY: return check_flow(s, e);
    case JOB_GENERATE: return rules_latents(s, e); /* the rest: check_generate.c */
    default:
        return err_field(e, ERR_UNSUPPORTED, "kind",
                         "a %s job reads tokens: this family is trained on latents, it can train, "
                         "verify and generate",
                         spec_kind_name(s->kind));
    }
}
