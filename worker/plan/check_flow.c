/* check_flow.c: what a job of a diffusion model must keep to. */
#include <stdio.h>
#include "worker/family/family.h"
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
                         kind_name(s->kind));
    }
}
