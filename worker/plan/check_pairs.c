/* check_pairs.c: the rules of jobs that learn preferences, and of fields that these jobs alone
 * have. */
#include <stdio.h>
#include <string.h>
#include "worker/plan/rules.h"

static int check_sources(const struct job_spec *s, const char *name, const struct spec_source *src,
                         int n, struct err *e)
{
    char field[32], member[48];
    for (int i = 0; i < n; i++) {
        const char *key = spec_text(s, src[i].text_key);
        snprintf(field, sizeof field, "%s.%d", name, i);
        snprintf(member, sizeof member, "%s.text_key", field);
        if (src[i].format == DATA_JSONL && *key && strcmp(key, "text"))
            return err_field(
                e, ERR_INVALID, member,
                "%s \"%.64s\": objective.type \"dpo\" reads the members prompt, chosen "
                "and rejected: leave it out",
                member, key);
        if (src[i].format == DATA_JSONL) continue;
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
        return err_field(
            e, ERR_INVALID, "data.packing",
            "data.packing \"concat\" cuts answers, which objective.type \"dpo\" needs "
            "whole: set it to best_fit, which is the default here, or to none for a sequence for "
            "each pair");
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
    return check_sources(s, "data.train", s->data.train, s->data.n_train, e) ||
                   check_sources(s, "eval.data", s->eval.data, s->eval.n_data, e)
               ? -1
               : 0;
}

/* Refuses what does not go with pairs in this version. */
static int check_others(const struct job_spec *s, struct err *e)
{
    const char *field = s->memory.time_chunk > 0 ? "memory.time_chunk"
                        : s->n_stages            ? "stages"
                        : job_generates(s)       ? "kind"
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

/* ---- fields of other objectives -------------------------------------------------------------- */

/* Fields of the section objective that only preferences read, and fields that only other objectives
 * read. A field with its default counts as not set, because spec_effective shows all fields. */
static const char *const of_pairs[] = {"objective.loss", "objective.beta", "objective.sft_weight",
                                       NULL};
static const char *const of_others[] = {"objective.mask_prob",
                                        "objective.mask_token",
                                        "objective.timestep",
                                        "objective.transform",
                                        "objective.text_dropout",
                                        "objective.frame_mask.random",
                                        "objective.frame_mask.head",
                                        "objective.frame_mask.tail",
                                        "objective.frame_mask.head_tail",
                                        NULL};

/* Returns the first field of the list that the job sets, or NULL if there is none. */
static const struct field *first_set(const struct job_spec *s, const char *const *list)
{
    for (; *list; list++) {
        const struct field *f = spec_field(*list);
        if (!spec_is_default(s, f, (const char *)s + f->offset)) return f;
    }
    return NULL;
}

static const char *value_text(const struct job_spec *s, const struct field *f, char *out,
                              size_t size)
{
    const char *at = (const char *)s + f->offset;
    switch (f->type) {
    case FIELD_DOUBLE: snprintf(out, size, "%g", *(const double *)at); break;
    case FIELD_INT: snprintf(out, size, "%lld", (long long)*(const int64_t *)at); break;
    case FIELD_ENUM: snprintf(out, size, "\"%s\"", f->words[*(const int32_t *)at]); break;
    default: snprintf(out, size, "%s", *(const int32_t *)at ? "true" : "false"); break;
    }
    return out;
}

int rules_unpaired(const struct job_spec *s, bool can_pair, struct err *e)
{
    const struct field *f = first_set(s, of_pairs);
    char value[48];
    if (!f) return 0;
    return err_field(e, ERR_INVALID, f->path,
                     "%s %s goes with objective.type \"dpo\" alone, and the type is \"%s\": %s"
                     "leave %s out",
                     f->path, value_text(s, f, value, sizeof value),
                     spec_objective_words[s->objective.type],
                     can_pair ? "set objective.type to \"dpo\", or " : "", f->path);
}

static int check_unread(const struct job_spec *s, struct err *e)
{
    const struct field *f = first_set(s, of_others);
    char value[48];
    if (!f) return 0;
    return err_field(e, ERR_INVALID, f->path,
                     "%s %s: objective.type \"dpo\" does not read it: leave it out", f->path,
                     value_text(s, f, value, sizeof value));
}

int rules_pairs(const struct job_spec *s, struct err *e)
{
    return check_unread(s, e) || check_others(s, e) || check_data(s, e) || check_loss(s, e) ? -1
                                                                                            : 0;
}
