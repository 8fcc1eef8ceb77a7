/* check_pairs.c: the rules of jobs that learn preferences. */
#include <stdio.h>
#include "worker/plan/rules.h"

static int check_sources(const char *name, const struct spec_source *src, int n, struct err *e)
{
    char field[32];
    for (int i = 0; i < n; i++) {
        if (src[i].format == DATA_JSONL) continue;
        snprintf(field, sizeof field, "%s.%d", name, i);
        return err_field(e, ERR_INVALID, field,
                         "%s.format: objective.type \"dpo\" reads records with prompt, chosen and "
                         "rejected: give a jsonl file",
                         field);
    }
    return 0;
}

static int check_data(const struct job_spec *s, struct err *e)
{
    if (s->data.packing == PACKING_CONCAT)
        return err_field(e, ERR_INVALID, "data.packing",
                         "data.packing \"concat\" cuts answers, which objective.type \"dpo\" needs "
                         "whole: set it to best_fit, or to none for a sequence for each pair");
    if (s->data.overlong == OVERLONG_SPLIT || s->data.overlong == OVERLONG_TRUNCATE)
        return err_field(
            e, ERR_INVALID, "data.overlong",
            "data.overlong cuts answers, which objective.type \"dpo\" needs whole: set "
            "it to error or drop");
    if (!s->data.document_mask || !s->data.reset_positions)
        return err_field(
            e, ERR_INVALID, s->data.document_mask ? "data.reset_positions" : "data.document_mask",
            "data.%s false: the two answers of objective.type \"dpo\" must not see each "
            "other: set it to true",
            s->data.document_mask ? "reset_positions" : "document_mask");
    if (s->data.loss_on != LOSS_ON_AUTO)
        return err_field(
            e, ERR_INVALID, "data.loss_on",
            "data.loss_on: objective.type \"dpo\" learns from the answers alone: leave "
            "it out");
    return check_sources("data.train", s->data.train, s->data.n_train, e) ||
                   check_sources("eval.data", s->eval.data, s->eval.n_data, e)
               ? -1
               : 0;
}

/* Refuses what does not go with pairs in this version. */
static int check_others(const struct job_spec *s, struct err *e)
{
    const char *field = s->memory.time_chunk > 0  ? "memory.time_chunk"
                        : s->n_stages             ? "stages"
                        : s->kind == JOB_GENERATE ? "kind"
                                                  : NULL;
    if (!field) return 0;
    return err_field(e, ERR_UNSUPPORTED, field,
                     "%s: with objective.type \"dpo\" not in this version: %s", field,
                     s->kind != JOB_TRAIN ? "train with it" : "leave it out");
}

static int check_loss(const struct job_spec *s, struct err *e)
{
    if (s->objective.z_loss > 0)
        return err_field(e, ERR_INVALID, "objective.z_loss",
                         "objective.z_loss %g goes with objective.type \"causal_lm\" and "
                         "\"masked_lm\" alone: leave it out with \"dpo\"",
                         s->objective.z_loss);
    if (s->objective.loss != PREFERENCE_IPO || s->objective.label_smoothing <= 0) return 0;
    return err_field(
        e, ERR_INVALID, "objective.label_smoothing",
        "objective.label_smoothing goes with objective.loss \"sigmoid\" alone: leave it "
        "out with \"ipo\"");
}

int rules_pairs(const struct job_spec *s, struct err *e)
{
    return check_others(s, e) || check_data(s, e) || check_loss(s, e) ? -1 : 0;
}
